# What the packages do: the scripts of the Debian package, of which the hook of
# pg_upgradecluster takes the files of conf.d along that are about snowid, and the removal
# warns where a server preloads it (test/release/package tries both on Debian); and the extension
# image of the Dockerfile, without docker: a server whose installation has no trace of
# snowid takes the extension from the files of the image alone, from PostgreSQL 18 on as
# CloudNativePG mounts them, and claims its number by the hiredis in them.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename 'dirname';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidRedis;
use Test::More;

my $top = abs_path(dirname(__FILE__) . '/../../..');
my $dir = PostgreSQL::Test::Utils::tempdir;

#---- The hook of pg_upgradecluster ----

my $debian   = "$top/debian";
my $programs = "$dir/programs";
mkdir $programs;

# Writes a program.
sub program
{
	my ($name, $text) = @_;
	append_to_file("$programs/$name", $text);
	chmod 0755, "$programs/$name" or die "$!";
	return;
}

program('hook',
	slurp_file("$debian/pg_upgradecluster.in") =~ s/PGVERSION/17/gr);

# As pg_upgradecluster calls it: by way of another process, with the name of the new
# cluster.
program('pg_upgradecluster', <<~EOF);
	#!/bin/sh
	sh -c '"\$0" "\$@"; exit \$?' '$programs/hook' \$HOOK_ARGUMENTS
	EOF

# A new tree of configurations; returns what the hook prints.
my $trees = 0;

sub upgrade
{
	my ($arguments, $hook_arguments, %files) = @_;
	my $root = "$programs/tree" . ++$trees;

	foreach my $file (sort keys %files)
	{
		system('mkdir', '-p', dirname("$root/$file")) == 0 or die;
		append_to_file("$root/$file", $files{$file});
	}
	local $ENV{PG_CLUSTER_CONF_ROOT} = $root;
	local $ENV{HOOK_ARGUMENTS}       = $hook_arguments;
	my $output;
	IPC::Run::run([ "$programs/pg_upgradecluster", split / /, $arguments ],
		'>&', \$output)
	  or $output .= "\nfailed";
	return ($root, $output =~ s/\Q$root\E/ROOT/gr);
}
my $settings = "snowid.layout = 'leaf'\nsnowid.worker_id = 1\n";
my %servers  = (
	'15/main/conf.d/snowid.conf'   => $settings,
	'15/main/conf.d/preload.conf'  => "shared_preload_libraries = 'snowid'\n",
	'15/main/conf.d/other.conf'    => "work_mem = '4MB'\n",
	'15/second/conf.d/snowid.conf' => "snowid.worker_id = 2\n",
	'17/main/postgresql.conf'      => '',
	'17/new/postgresql.conf'       => '');

my ($root, $said) = upgrade('15 main', '15 main 17 init', %servers);
is($said,
	<<~'EOF', 'an upgrade takes the files about snowid along, and says so');
	snowid: copied ROOT/15/main/conf.d/preload.conf to ROOT/17/main/conf.d
	snowid: copied ROOT/15/main/conf.d/snowid.conf to ROOT/17/main/conf.d
	EOF
is(slurp_file("$root/17/main/conf.d/snowid.conf"),
	$settings, 'the new server has the settings of the old one');

($root, $said) =
  upgrade('-v 17 --rename new 15 second', '15 new 17 init', %servers);
is( slurp_file("$root/17/new/conf.d/snowid.conf"),
	"snowid.worker_id = 2\n",
	'a server that gets another name has its own settings');
($root, $said) =
  upgrade('15 main -v 17 --rename=second', '15 second 17 init', %servers);
is(slurp_file("$root/17/second/conf.d/snowid.conf"),
	$settings,
	'a server that gets the name of another one has its own settings');
($root, $said) = upgrade('15 main', '15 main 17 init',
	%servers, '17/main/conf.d/snowid.conf' => "snowid.worker_id = 9\n");
is( slurp_file("$root/17/main/conf.d/snowid.conf"),
	"snowid.worker_id = 9\n",
	'a file that is there already stays');
like(
	$said,
	qr{^snowid: WARNING: ROOT/17/main/conf\.d/snowid\.conf was there already, and differs from ROOT/15/main/conf\.d/snowid\.conf$}m,
	'a file that is there already and differs is named');

foreach my $arguments ('15 main 17 finish', '15 main 18 init')
{
	($root, $said) = upgrade('15 main', $arguments, %servers);
	is($said, '', "nothing is done for: $arguments");
}
($root, $said) = upgrade(
	'15 main', '15 main 17 init',
	'15/main/postgresql.conf' => '',
	'17/main/postgresql.conf' => '');
is($said, '', 'a server without conf.d is upgraded without a word');

#---- The removal of the package ----

program('prerm',         slurp_file("$debian/prerm.in") =~ s/PGVERSION/15/gr);
program('pg_lsclusters', <<~'EOF');
	#!/bin/sh
	echo '15 main 5432 online postgres /var/lib/postgresql/15/main /var/log/x.log'
	echo '15 plain 5433 down postgres /var/lib/postgresql/15/plain /var/log/y.log'
	echo '17 main 5434 online postgres /var/lib/postgresql/17/main /var/log/z.log'
	EOF
program('pg_conftool', <<~'EOF');
	#!/bin/sh
	[ "$3" = plain ] || echo 'pg_stat_statements, snowid'
	EOF

sub prerm
{
	my ($what) = @_;
	local $ENV{PATH} = "$programs:$ENV{PATH}";
	my ($out, $err);
	IPC::Run::run([ "$programs/prerm", $what ], '>', \$out, '2>', \$err)
	  or return "failed: $err";
	return "$out$err";
}
like(
	prerm('remove'),
	qr{\AWARNING: The server 15/main preloads snowid, which is removed now\.\n(?!.*WARNING)}s,
	'a removal names the server of that major that preloads snowid, and no other'
);
is(prerm('upgrade'), '', 'an upgrade of the package says nothing');

#---- The extension image ----

my ($stages) = slurp_file("$top/Dockerfile") =~
  /^FROM build AS files\n(.*?)^FROM \$FROM$/ms;

# in a copy of the sources, with what is compiled already
mkdir "$dir/source";
system('cp', '-a', (map { "$top/$_" } qw(Makefile LICENSE src sql)),
	glob("$top/*.control"), "$dir/source") == 0
  or die "cp: $?";
my ($command) = $stages =~ /^RUN (make .*)$/m;
my $log = "$dir/log";
ok( IPC::Run::run(
		[
			'sh', '-c',
			"cd $dir/source && " . ($command =~ s{/files}{$dir/files}r)
		],
		'>&', $log),
	"it builds: $command") or diag(slurp_file($log));

my %target = reverse $stages =~ /^COPY --from=files (\S+) (\S+)$/mg;
is( join(' ', sort keys %target),
	'/lib/ /share/extension/',
	'the image has the two folders that CloudNativePG looks for');
my ($pkglibdir) = run_command([ 'pg_config', '--pkglibdir' ]);
my ($sharedir)  = run_command([ 'pg_config', '--sharedir' ]);
foreach ([ '/lib/', $pkglibdir ],
	[ '/share/extension/', "$sharedir/extension" ])
{
	my ($folder, $here) = @$_;

	# Debian's folders, as the Dockerfile names them, are these of this installation
	like(
		$target{$folder},
		qr{^/files/usr/(?:lib|share)/postgresql/\*/(?:lib|extension)/$},
		"files that are copied to $folder are of the installation");
	system('mkdir', '-p', "$dir/image$folder") == 0 or die "mkdir: $?";
	system("cp -r $dir/files$here/. $dir/image$folder") == 0 or die "cp: $?";
}
is( join(' ', sort map { s{^\Q$dir\E/image/}{}r } glob("$dir/image/lib/*")),
	'lib/snowid.so lib/snowid_redis.so',
	'the two libraries are all that is in lib/');
foreach my $library (qw(snowid snowid_redis))
{
	unlike(scalar run_command([ 'ldd', "$dir/image/lib/$library.so" ]),
		qr/hiredis/, "$library needs no hiredis");
}
is( join(
		' ',
		(   run_command(
				[
					'nm',             '-D',
					'--defined-only', "$dir/image/lib/snowid_redis.so"
				]))[0] =~ / [A-Z] (\w+)$/mg),
	'snowid_redis',
	'snowid_redis shows itself, and not the hiredis in it, to others');

#---- A server with the files of the image ----

my ($install_path, $extensions, $libraries) = installation_without_library();
my $redis = SnowidRedis->start('redis');
my $node =
  PostgreSQL::Test::Cluster->new('image', install_path => $install_path);

$node->init;
$node->append_conf('postgresql.conf', <<~EOF);
	shared_preload_libraries = 'snowid'
	@{[ claim_settings('image', $redis) ]}
	EOF
if ($node->pg_version->major >= 18)
{
	$node->append_conf('postgresql.conf', <<~EOF);
		extension_control_path = '\$system:$dir/image/share'
		dynamic_library_path = '\$libdir:$dir/image/lib'
		EOF
}
else
{
	system('cp', glob("$dir/image/lib/*"), $libraries) == 0
	  && system('cp', glob("$dir/image/share/extension/*"), $extensions) == 0
	  or die "cp: $?";
}
$node->start;
$node->safe_psql('postgres', "CREATE EXTENSION $_")
  foreach qw(snowid snowid_segments);
wait_for_claim($node);
like($node->safe_psql('postgres', 'SELECT snowid_next()'),
	qr/^\d+$/, 'the server makes keys with a number from Redis');
is($node->safe_psql('postgres', <<~'EOF'), 1, 'the server gives numbers');
	INSERT INTO snowid_segments (biz_tag) VALUES ('t');
	SELECT snowid_number('t');
	EOF
$node->stop;
unlike(
	slurp_file($node->logfile),
	qr/(?:ERROR|WARNING|FATAL):  (?!terminating connection)/,
	'nothing is wrong in its log');

done_testing();
