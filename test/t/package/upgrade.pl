# Who updates the extension gets what is installed anew: from every version that
# sql/ has, and between versions made here.  SQL and a library of different
# versions say so, and keys go on.  Released scripts stay as they are.
use strict;
use warnings;

use Cwd 'abs_path';
use Digest::SHA 'sha256_hex';
use File::Basename qw(basename dirname);
use File::Copy 'copy';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidManaged;
use SnowidTest;
use Test::More;

my $top = abs_path(dirname(__FILE__) . '/../../..');
my %script =
  map { basename($_) => slurp_file($_) } glob("$top/sql/snowid--*.sql");
my ($newest) =
  slurp_file("$top/snowid.control") =~ /^default_version = '(.*)'/m;
my $fresh    = $script{"snowid--$newest.sql"};
my @versions = sort { number($a) <=> number($b) }
  map { /^snowid--([\d.]+)\.sql$/ } keys %script;

sub number
{
	my ($major, $minor) = split /\./, $_[0];
	return $major * 1000 + $minor;
}

#---- The scripts ----

is($versions[-1], $newest, 'the newest script is the default version');
ok( $script{"snowid--$versions[ $_ - 1 ]--$versions[$_].sql"},
	"a script updates $versions[ $_ - 1 ] to $versions[$_]"
) foreach 1 .. $#versions;

my %released =
  map { reverse split } grep { !/^#/ } split /\n/,
  slurp_file("$top/test/released.sha256");
is(sha256_hex(slurp_file("$top/$_")), $released{$_}, "$_ is as released")
  foreach sort keys %released;
ok($released{"sql/snowid--$_.sql"}, "the script of release $_ is frozen")
  foreach slurp_file("$top/CHANGELOG.md") =~ /^## ([\d.]+) \(\d.*\)$/mg;

#---- An installation with more versions ----

my ($install_path, $extensions, $libraries) = installation_without_library();
symlink((run_command([ 'pg_config', '--pkglibdir' ]))[0] . '/snowid.so',
	"$libraries/snowid.so")
  or die "$!";
copy("$top/snowid.control", $extensions) or die "$!";

sub write_script
{
	my ($name, @parts) = @_;
	append_to_file("$extensions/$name", join("\n", @parts, ''));
	return;
}

# What a script of this version begins with
sub guard
{
	my ($version) = @_;
	return $fresh =~
	  /^(CREATE FUNCTION snowid_require_library.*?^DROP .*?;\n)/ms
	  ? $1 =~ s/'\Q$newest\E'/'$version'/r
	  : die 'no guard';
}
write_script($_, $script{$_}) foreach keys %script;

# One whose status has a column less than the library's
my ($status) = $fresh =~
  /^(CREATE FUNCTION snowid_status\(.*?^GRANT .*? snowid_status\(\) .*?;\n)/ms;
my $old_status = $status =~ s/,\s*OUT \w+ \w+\)/)/r;
isnt($old_status, $status, 'a status without its last column');
write_script('snowid--0.0.sql', $fresh =~ s/\Q$status\E/$old_status/r);
write_script(
	"snowid--0.0--$newest.sql",       guard($newest),
	'DROP FUNCTION snowid_status();', $status);

# One behind the present one, which the library serves, too; and updates to it
# that forget one change each.
my @changes = (
	'CREATE FUNCTION snowid_new(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT RETURN $1;',
	q{COMMENT ON FUNCTION snowid_next() IS 'another one';},
	'ALTER FUNCTION snowid_bits(bigint) COST 7;',
	'ALTER FUNCTION snowid_next_array(bigint) PARALLEL UNSAFE;',
	'GRANT EXECUTE ON FUNCTION snowid_advance(bigint) TO pg_monitor;',
	'DROP FUNCTION snowid_to_base62(bigint);',
	q{CREATE OR REPLACE FUNCTION snowid_migration(schema regnamespace) RETURNS SETOF text
		LANGUAGE sql STABLE STRICT AS 'SELECT NULL WHERE false';},
	'CREATE TABLE snowid_table (id snowid);',
	'CREATE CAST (snowid AS json) WITH INOUT;');
my $next = "$newest.1";
write_script("snowid--$next.sql",          $fresh,        @changes);
write_script("snowid--$newest--$next.sql", guard($next),  @changes);
write_script("snowid--$newest--99.0.sql",  guard('99.0'), @changes);
write_script("snowid--$newest--but$_.sql", guard($next),
	@changes[ 0 .. $_ - 1, $_ + 1 .. $#changes ])
  foreach 0 .. $#changes;

#---- Updates ----

my $node =
  PostgreSQL::Test::Cluster->new('upgrade', install_path => $install_path);
$node->init;
$node->append_conf('postgresql.conf', <<~EOF);
	shared_preload_libraries = 'snowid'
	snowid.worker_id = 1
	EOF
$node->start;
$node->safe_psql('postgres', $_)
  foreach q{CREATE EXTENSION snowid VERSION '0.0'},
  'CREATE TABLE made (id bigint DEFAULT snowid_next())';

SKIP:
{
	skip 'PostgreSQL before 18 knows no version of a library', 1
	  if $node->pg_version->major < 18;
	is( $node->safe_psql(
			'postgres',
			q{SELECT module_name, version FROM pg_get_loaded_modules() WHERE file_name ~ '^snowid[.]'}
		),
		"snowid|$newest",
		'the server tells the name and the version of the library that it runs'
	);
}

sub update
{
	my ($version) = @_;
	return sql_error($node, "ALTER EXTENSION snowid UPDATE TO '$version'");
}

# All that an extension consists of, as pg_upgrade would make it: without numbers
# and the version.  It is of the first version, and updated to the others.
my $databases = 0;

sub contents
{
	my ($first, @others) = @_;
	my $db = 'db' . ++$databases;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db,        "CREATE EXTENSION snowid VERSION '$first'");
	$node->safe_psql($db,        "ALTER EXTENSION snowid UPDATE TO '$_'")
	  foreach @others;
	my ($dump) = run_command(
		[
			'pg_dump',       '--binary-upgrade',
			'--schema-only', '-d',
			$node->connstr($db)
		]);
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return join "\n", map { s/\boid = '\K\d+//r }
	  grep { !/^(?:--|\\|$)|binary_upgrade_|relfrozenxid/ } split /\n/, $dump;
}
my %new = map { $_ => contents($_) } $newest, $next;

like(
	$new{$newest},
	qr/ADD FUNCTION \w+\.snowid_next\(\)/,
	'the comparison sees the functions');
is(contents($_, $newest), $new{$newest}, "$_ updated to $newest")
  foreach '0.0', @versions[ 0 .. $#versions - 1 ];
is(contents('0.0', $next), $new{$next}, "all the way to $next");
isnt(contents($newest, "but$_"),
	$new{$next}, "it would be seen that an update forgets: $changes[$_]")
  foreach 0 .. $#changes;

#---- A library and SQL of different versions, while keys are made ----

my $client =
  start_client($node, 'INSERT INTO made DEFAULT VALUES RETURNING id;');
clients_go_on($client);
my $is_open = 'SELECT is_open FROM snowid_status()';
my $too_old =
  qr/^55000: the snowid library that is loaded is older than version 99\.0 .*^HINT:  Restart the server/ms;

like(
	sql_error($node, $is_open),
	qr/^55000: snowid_status\(\) is not declared as the snowid library has it.*^HINT:  Run ALTER EXTENSION snowid UPDATE\./ms,
	'SQL older than the library says so');
is(update($newest),        '',  'after the update');
is(query($node, $is_open), 't', 'it serves again');
like(update('99.0'), $too_old, 'SQL newer than the library is refused');
is( query(
		$node,
		q{SELECT extversion FROM pg_extension WHERE extname = 'snowid'}),
	$newest,
	'and changes nothing');
is(update($next), '', 'an update that the library serves');
clients_go_on($client);

my @keys = stop_client($client);
is(disorder(@keys), 0, 'keys of a session that went on: they increase');
is(slurp_file($client->{errors}), '', 'it saw no error');

$node->stop;
done_testing();
