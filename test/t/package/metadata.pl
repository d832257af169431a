# The files with which others build and run snowid: one version everywhere, a
# META.json by PGXN's specification, a build outside of the source tree, a
# Dockerfile with the steps of test/release/package, and YAML with the intended meaning.
# needs: libyaml-libyaml-perl
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename qw(basename dirname);
use File::Find;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = abs_path(dirname(__FILE__) . '/../../..');

# The text of a file that matches; dies if there is none.
sub in_file
{
	my ($file, $pattern) = @_;
	slurp_file("$top/$file") =~ $pattern or die "$file: no $pattern";
	return $1;
}

#---- The version ----

my $version =
  in_file('snowid.control', qr/^default_version = '(\d+\.\d+)'$/m);
my $compat = slurp_file("$top/src/compat.h");
is( join('.',
		map { $compat =~ /^#define LIBRARY_$_ (\d+)$/m } qw(MAJOR MINOR)),
	$version,
	'src/compat.h has the version');
is(in_file('CHANGELOG.md', qr/^## ([\d.]+) /m),
	$version, 'CHANGELOG.md has the version');
is(in_file('debian/changelog', qr/\Asnowid \(([\d.]+)-/),
	$version, 'debian/changelog has the version');
foreach my $extension (qw(snowid snowid_segments))
{
	is( in_file("$extension.control", qr/^default_version = '(\d+\.\d+)'$/m),
		$version,
		"$extension.control has the version");
	is( in_file(
			"sql/$extension--$version.sql",
			qr/\A.*the SQL surface of $extension (\S+);/),
		$version,
		"the script of $extension has the version");
}
ok( -e "$top/managed/snowid--$version.sql",
	'the script under managed/ has the version');
is(in_file('managed/pg_tle.sql', qr/'snowid', '([\d.]+)'/),
	$version, 'managed/pg_tle.sql has the version');

#---- META.json ----

my $meta = decode_json(slurp_file("$top/META.json"));
my $full = "$version.0";
is($meta->{version}, $full, 'META.json: three numbers');
is_deeply(
	[ sort keys %{ $meta->{provides} } ],
	[ 'snowid', 'snowid_segments' ],
	'META.json provides both extensions');
foreach my $extension (qw(snowid snowid_segments))
{
	my $provided = $meta->{provides}{$extension};

	is($provided->{version}, $full,
		"META.json has the version of $extension");
	is( $provided->{file},
		"sql/$extension--$version.sql",
		"META.json has the script of $extension");
	is( $provided->{abstract} // $meta->{abstract},
		in_file("$extension.control", qr/^comment = '(.*)'$/m),
		"META.json has the comment of $extension");
	ok(-e "$top/$provided->{docfile}",
		"META.json has a page about $extension");
}

foreach my $key (qw(name abstract maintainer license))
{
	like($meta->{$key}, qr/\S/, "META.json has a $key");
}
is($meta->{license}, 'postgresql', 'a license that PGXN knows');
is($meta->{'meta-spec'}{version}, '1.0.0',
	'the version of the specification');
my ($oldest) =
  in_file('src/compat.h', qr/#if PG_VERSION_NUM < (\d+)0000\n#error/);
is($meta->{prereqs}{runtime}{requires}{PostgreSQL},
	"$oldest.0.0", 'the oldest PostgreSQL');
is(in_file('debian/pgversions', qr/^(\d+)\+$/m), $oldest, 'in debian/, too');

# One address everywhere.
my $address = $meta->{resources}{homepage};
like($address, qr{^https://\S+$}, 'META.json has the address of the project');
is($meta->{resources}{repository}{url},
	"$address.git", 'META.json has the repository at the address');
foreach my $file (
	'README.md',         'README.zh-CN.md',
	'debian/control.in', 'debian/copyright')
{
	my $text  = slurp_file("$top/$file");
	my @found = $text =~ m{(https://example\.org/\w+)}g;
	@found = $text =~ m{(\Q$address\E)} if !@found;
	is(join(' ', grep { $_ ne $address } @found),
		'', "$file has the address of META.json and no other");
	ok(scalar @found, "$file has an address");
}

# The picture, once in light colours and once in dark ones.
my %dark = (
	'#1f2328' => '#e6edf3',
	'#ffffff' => '#0d1117',
	'#eef1f4' => '#1c2330',
	'#cfe8ff' => '#1f4b7a');
is( slurp_file("$top/doc/picture-light.svg") =~ s/(#[0-9a-f]{6})/$dark{$1}/gr,
	slurp_file("$top/doc/picture-dark.svg"),
	'the dark picture is the light one in other colours');
foreach my $page (qw(README.md README.zh-CN.md))
{
	like(slurp_file("$top/$page"),
		qr{"doc/picture-$_\.svg"}, "$page shows the $_ picture")
	  foreach qw(light dark);
}

# The majors: as README says, in its Chinese form and in the workflow.
my $majors = in_file('README.md', qr/PostgreSQL (\d+ to \d+)\b/);
like(
	slurp_file("$top/README.zh-CN.md"),
	qr/PostgreSQL ${\($majors =~ s, to , 到 ,r)}\b/,
	'README.zh-CN.md names the majors of README.md');
my ($first, $last) = $majors =~ /(\d+)/g;
is($first, $oldest, 'README.md names the oldest major');
is( in_file('.github/workflows/test.yml', qr/postgres: \[(.*)\]/),
	join(', ', $first .. $last),
	'the workflow runs on each major of README.md');

#---- A build in another directory ----

my $dir  = PostgreSQL::Test::Utils::tempdir;
my $log  = "$dir/log";
my @make = (
	'make',              '-s',
	'-C',                "$dir/build",
	'-f',                "$dir/source/Makefile",
	"VPATH=$dir/source", 'with_llvm=no',
	'CFLAGS=-O0',        "DESTDIR=$dir/root");
mkdir "$dir/$_" foreach qw(source source/test build root);
system('cp', '-r', @$_) == 0
  or die "cp: $?"
  foreach [
	(   map { glob("$top/$_") }
		  qw(Makefile *.control LICENSE *.md doc managed sql src)),
	"$dir/source"
  ],
  [ "$top/test/bench", "$dir/source/test" ];
find(
	{
		no_chdir => 1,
		wanted   => sub { unlink if /\.(?:o|bc|lua\.h)$/ }
	},
	"$dir/source/src");
ok(IPC::Run::run([ @make, 'all', 'install' ], '>&', $log), 'a VPATH build')
  or diag(slurp_file($log));
like(qx(nm -D "$dir/build/snowid.so"), qr/ T _PG_init$/m, 'of all sources');

# The manual is installed in the folders that it has in the sources, and what
# else is installed has no folder of its own.
my %installed;
my ($docdir) = run_command([ 'pg_config', '--docdir' ]);
my $manual = "$dir/root$docdir/snowid";
find(
	{
		no_chdir => 1,
		wanted   => sub {
			$installed{ m{^\Q$manual\E/(.*)} ? $1 : basename($_) } = $_ if -f;
		}
	},
	"$dir/root");
is_deeply(
	[ sort keys %installed ],
	[
		sort 'snowid.so',
		'snowid_redis.so',
		'snowid.control',
		'snowid_segments.control',
		(   map { basename($_) }
			  glob("$top/sql/snowid--*.sql $top/sql/snowid_segments--*.sql")),
		map { substr($_, length($top) + 1) } glob(
			"$top/*.md $top/LICENSE $top/doc/*.* $top/doc/*/* $top/managed/* $top/test/bench/results.*"
		)
	],
	'make install installs libraries, control files, scripts, and the manual with its files'
);
my @dead;
foreach my $page (grep { /\.md$/ } sort keys %installed)
{
	my $text = slurp_file($installed{$page}) =~ s/^```.*?^```$//gmsr;
	push @dead, map { "$page: $_" }
	  grep { !-e dirname($installed{$page}) . "/$_" }
	  map  { s/#.*//r }
	  grep { !/^(?:https?:|#)/ } $text =~ /\]\(([^)\s]+)\)/g;
}
is(join("\n", @dead),
	'', 'every link of the installed manual leads somewhere');

# Without hiredis the rest is built and installed, and make says so.
append_to_file("$dir/cc", <<'EOF');
#!/bin/sh
case "$*" in *hiredis*) exit 1 ;; esac
exec gcc "$@"
EOF
chmod 0755, "$dir/cc" or die "$!";
my ($pkglibdir) = run_command([ 'pg_config', '--pkglibdir' ]);
foreach my $case ([ "CC=$dir/cc", ', as hiredis/hiredis.h is missing' ],
	[ 'HIREDIS=no', '' ])
{
	my ($argument, $why) = @$case;
	my $root   = "$dir/without_" . $argument =~ s/=.*//r;
	my $output = '';

	ok( IPC::Run::run(
			[ @make, $argument, "DESTDIR=$root", 'all', 'install' ], '>&',
			\$output),
		"make $argument builds and installs the rest");
	like(
		$output,
		qr{^\Qsnowid_redis is not built$why: no worker IDs from Redis.\E$}m,
		"make $argument says that snowid_redis is not built");
	is(join(' ', map { basename($_) } glob("$root$pkglibdir/*")),
		'snowid.so', "make $argument installs no snowid_redis");
}

# Runs "make installcheck" without pg_regress, with these arguments; returns its output.
sub checks
{
	my (@arguments) = @_;
	my ($output, $errors) = ('', '');

	# not with the variables of the make that runs this test
	delete local @ENV{qw(MAKEFLAGS TAP_TESTS)};
	IPC::Run::run([ @make, 'installcheck', 'REGRESS=', @arguments ],
		'>', \$output, '2>', \$errors);
	return "$output$errors";
}
is( checks('REDIS_SERVER=no-redis'),
	"No TAP tests: they need the packages no-redis.\n",
	'make installcheck without a Redis says so, and runs no TAP test');
mkdir "$dir/perl";
mkdir "$dir/perl/IPC";
append_to_file("$dir/perl/IPC/Run.pm", "die 'there is no such module';\n");
{
	local $ENV{PERL5LIB} = "$dir/perl";
	is( checks('REDIS_SERVER=no-redis'),
		"No TAP tests: they need the packages libipc-run-perl no-redis.\n",
		'make installcheck without the module of TAP tests says so, and runs none'
	);
}
ok(IPC::Run::run([ @make, 'uninstall' ], '>&', $log),
	'make uninstall ends without error')
  or diag(slurp_file($log));
is(join(' ', grep { -f } values %installed),
	'', 'make uninstall removes each file');
ok(!-e $manual, "make uninstall removes the manual's folders");

#---- Debian, Docker ----

my $control = slurp_file("$top/debian/control.in");
is( slurp_file("$top/debian/control"),
	$control =~ s/PGVERSION/$oldest/gr,
	'debian/control is made of control.in');

my $steps      = slurp_file("$top/test/release/package");
my $dockerfile = slurp_file("$top/Dockerfile") =~ s/\\\n\s*//gr;
$dockerfile =~ s/^FROM build AS files\n.*?^FROM/FROM/ms;  # extension_image.pl
my $commands = join "\n", $dockerfile =~ /^RUN (.*)$/mg;
foreach my $command (grep { !/^(?:rm|echo) / } split / *&& *|\n/, $commands)
{
	ok(index($steps, $command) >= 0, "test/release/package runs: $command");
}
like(
	$commands,
	qr/^echo "shared_preload_libraries = 'snowid'" /m,
	'the image preloads snowid');

#---- Demos ----

# The output of a demo, and its exit code, within the time that it must not build in.
sub demo
{
	my (@command) = @_;
	my $output    = '';
	my $ended     = eval {
		IPC::Run::run(
			[ 'bash', "$top/test/$command[0]", @command[ 1 .. $#command ] ],
			'>&', \$output);
	};
	return ($ended ? 1 : 0, $output);
}
foreach my $name (qw(demo demo-cluster))
{
	my ($ended, $output) = demo($name, '--help');
	is($ended, 1, "test/$name --help succeeds");
	like(
		$output,
		qr{\Atest/$name - .*checkout: see\s+setup\.sh}s,
		"test/$name --help prints its purpose");
}
append_to_file("$dir/three.csv",
	qq("a ""b"", c",pen,2\n) . "d,ink,1\n" x 50_000);
my ($three, $refused) = demo('demo', "$dir/three.csv");
is($three, 0, 'test/demo fails on a CSV file of three columns');
is( $refused,
	qq(demo: $dir/three.csv: the first line has 3 columns, and two are wanted, master,detail: "a ""b"", c",pen,2\n),
	'test/demo shows the first line, before it builds anything');

#---- YAML ----

SKIP:
{
	skip 'YAML::XS is not installed', 1 if !eval { require YAML::XS };

	my %yaml;
	foreach my $file (
		'compose.yaml',
		map { substr($_, length($top) + 1) } glob(
			"$top/doc/kubernetes/*.yaml $top/doc/*.yml $top/.github/workflows/*.yml"
		))
	{
		$yaml{$file} =
		  [ eval { YAML::XS::Load(slurp_file("$top/$file")) } ];
		is($@, '', "$file is YAML");
	}

	# The command of the standby, with stand-ins for the programs of its image: a
	# first copy that was interrupted is made again.
	my %programs = (
		install       => 'mkdir "${!#}"',
		gosu          => 'shift; exec "$@"',
		pg_basebackup => <<'END',
while [ "$1" != -D ]; do shift; done
touch "$2/PG_VERSION"
[ -e "$0.works" ] || { kill -KILL $PPID; exit 1; }
touch "$2/pg_control"
END
		'docker-entrypoint.sh' => 'ls "$PGDATA"');
	mkdir "$dir/$_" foreach qw(bin volume);
	foreach my $program (keys %programs)
	{
		append_to_file("$dir/bin/$program",
			"#!/bin/bash\n$programs{$program}\n");
		chmod 0755, "$dir/bin/$program";
	}
	my $start = sub {
		local $ENV{PATH}          = "$dir/bin:$ENV{PATH}";
		local $ENV{PGDATA}        = "$dir/volume/pgdata";
		local $ENV{POSTGRES_USER} = 'postgres';
		IPC::Run::run(
			[
				map { s/\$\$/\$/gr }
				  @{ $yaml{'compose.yaml'}[0]{services}{standby}{command} }
			],
			'>&',
			\my $output);
		return $output;
	};
	is($start->(), '', 'compose.yaml: the standby is killed while it copies');
	append_to_file("$dir/bin/pg_basebackup.works", '');
	foreach my $turn ('copies again', 'has its copy')
	{
		is($start->(), "PG_VERSION\npg_control\n",
			"compose.yaml: the standby $turn");
	}
}

done_testing();
