# The extension image of the Dockerfile, without docker: its steps are run here, and
# a server whose installation has no trace of snowid takes the extension from the
# files of the image alone, as CloudNativePG mounts them.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidTest;
use Test::More;

my $top      = abs_path(dirname(__FILE__) . '/../../..');
my $dir      = PostgreSQL::Test::Utils::tempdir;
my ($stages) = slurp_file("$top/Dockerfile") =~
  /^FROM build AS files\n(.*?)^FROM \$FROM$/ms;

#---- The image ----

# in a copy of the sources
mkdir "$dir/source";
system('cp', '-r', (map { "$top/$_" } qw(Makefile LICENSE src sql)),
	glob("$top/*.control"), "$dir/source") == 0
  or die "cp: $?";
my ($command) = $stages =~ /^RUN (make .*)$/m;
my $log = "$dir/log";
ok( IPC::Run::run(
		[
			'sh',
			'-c',
			"cd $dir/source && make -s clean && "
			  . ($command =~ s{/files}{$dir/files}r)
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
is(join(' ', sort map { s{^\Q$dir\E/image/}{}r } glob("$dir/image/lib/*")),
	'lib/snowid.so', 'the library is all that is in lib/');
unlike(scalar run_command([ 'ldd', "$dir/image/lib/snowid.so" ]),
	qr/hiredis/, 'the library needs no hiredis');
is( join(
		' ',
		grep { /redis/i } (
			run_command(
				[ 'nm', '-D', '--defined-only', "$dir/image/lib/snowid.so" ])
		)[0] =~ / T (\w+)$/mg),
	'',
	'the library does not show the hiredis in it to others');

#---- A server ----

SKIP:
{
	my ($install_path) = installation_without_library();
	my $node =
	  PostgreSQL::Test::Cluster->new('image', install_path => $install_path);

	skip 'PostgreSQL before 18 knows no extension_control_path', 1
	  if $node->pg_version->major < 18;
	$node->init;
	$node->append_conf('postgresql.conf', <<~EOF);
		extension_control_path = '\$system:$dir/image/share'
		dynamic_library_path = '\$libdir:$dir/image/lib'
		shared_preload_libraries = 'snowid'
		snowid.worker_id = 1
		EOF
	$node->start;
	$node->safe_psql('postgres', "CREATE EXTENSION $_")
	  foreach qw(snowid snowid_segments);
	server_is_open($node);
	like($node->safe_psql('postgres', 'SELECT snowid_next()'),
		qr/^\d+$/, 'the server makes keys');
	is($node->safe_psql('postgres', <<~'EOF'), 1, 'the server gives numbers');
		INSERT INTO snowid_segments (biz_tag) VALUES ('t');
		SELECT snowid_number('t');
		EOF
	$node->stop;
	unlike(slurp_file($node->logfile),
		qr/(?:ERROR|WARNING|FATAL):/, 'nothing is wrong in its log');
}

done_testing();
