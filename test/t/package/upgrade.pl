# An update gives what a new installation gives: from every version that sql/ has, and
# between versions made here.  Released scripts stay as they are.
#
# SQL and a library of different versions say so, and keys continue: every function that
# returns a row checks how it is declared, and a script newer than the library that the
# server runs says so before it creates anything.
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
  map { basename($_) => slurp_file($_) } glob("$top/sql/snowid*--*.sql");
my @extensions = qw(snowid snowid_segments);
my %newest =
  map { $_ => slurp_file("$top/$_.control") =~ /^default_version = '(.*)'/m }
  @extensions;
my $newest = $newest{snowid};
my %fresh  = map { $_ => $script{"$_--$newest.sql"} } @extensions;

sub number
{
	my ($major, $minor) = split /\./, $_[0];
	return $major * 1000 + $minor;
}

#---- The scripts ----

my %versions;
foreach my $extension (@extensions)
{
	my @versions = sort { number($a) <=> number($b) }
	  map { /^\Q$extension\E--([\d.]+)\.sql$/ } keys %script;

	is($newest{$extension}, $newest,
		"$extension has the version of the library");
	is($versions[-1], $newest,
		"the newest script of $extension is the default version");
	ok($script{"$extension--$versions[ $_ - 1 ]--$versions[$_].sql"},
		"a script updates $extension from $versions[ $_ - 1 ] to $versions[$_]"
	) foreach 1 .. $#versions;
	$versions{$extension} = \@versions;
}

my %released =
  map { reverse split } grep { !/^#/ } split /\n/,
  slurp_file("$top/test/sources/released.sha256");
is(sha256_hex(slurp_file("$top/$_")), $released{$_}, "$_ is as released")
  foreach sort keys %released;
foreach
  my $release (slurp_file("$top/CHANGELOG.md") =~ /^## ([\d.]+) \(\d.*\)$/mg)
{
	ok($released{"sql/$_--$release.sql"},
		"the script of $_ in release $release is frozen")
	  foreach @extensions;
}

#---- An installation with more versions ----

my ($install_path, $extensions, $libraries) = installation_without_library();
symlink((run_command([ 'pg_config', '--pkglibdir' ]))[0] . '/snowid.so',
	"$libraries/snowid.so")
  or die "$!";
copy("$top/$_.control", $extensions) or die "$!" foreach @extensions;

sub write_script
{
	my ($name, @parts) = @_;
	append_to_file("$extensions/$name", join("\n", @parts, ''));
	return;
}

# The first lines of a script of this version
sub guard
{
	my ($version) = @_;
	return $fresh{snowid} =~
	  /^(CREATE FUNCTION snowid_require_library.*?^DROP .*?;\n)/ms
	  ? $1 =~ s/'\Q$newest\E'/'$version'/r
	  : die 'no guard';
}
write_script($_, $script{$_}) foreach keys %script;

# One whose status has a column less than the library's
my %status =
  (snowid => 'snowid_status', snowid_segments => 'snowid_segment_status');
foreach my $extension (@extensions)
{
	my $function = $status{$extension};
	my ($status) = $fresh{$extension} =~
	  /^(CREATE FUNCTION $function\(.*?^GRANT .*? $function\(\) .*?;\n(?:COMMENT ON FUNCTION $function\(\).*?;\n)?)/ms;
	my $old_status = $status =~ s/,\s*OUT \w+ \w+\)/)/r;

	isnt($old_status, $status,
		"a status of $extension without its last column");
	write_script("$extension--0.0.sql",
		$fresh{$extension} =~ s/\Q$status\E/$old_status/r);
	write_script(
		"$extension--0.0--$newest.sql", guard($newest),
		"DROP FUNCTION $function();",   $status);
}

# One behind the present one, which the library serves, too; and updates to it
# that forget one change each.
my %changes;
$changes{snowid} = [
	'CREATE FUNCTION snowid_new(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT RETURN $1;',
	q{COMMENT ON FUNCTION snowid_next() IS 'another one';},
	'ALTER FUNCTION snowid_bits(bigint) COST 7;',
	'ALTER FUNCTION snowid_next_array(bigint) PARALLEL UNSAFE;',
	'GRANT EXECUTE ON FUNCTION snowid_advance(bigint) TO pg_monitor;',
	'DROP FUNCTION snowid_to_base62(bigint);',
	q{CREATE OR REPLACE FUNCTION snowid_migration(schema regnamespace) RETURNS SETOF text
		LANGUAGE sql STABLE STRICT AS 'SELECT NULL WHERE false';},
	'CREATE TABLE snowid_table (id snowid);',
	'CREATE CAST (snowid AS json) WITH INOUT;'
];
$changes{snowid_segments} = [
	'ALTER TABLE snowid_segments ADD COLUMN color text;',
	'ALTER TABLE snowid_segments DISABLE TRIGGER guard;',
	'GRANT DELETE ON snowid_segment_periods TO pg_monitor;',
	q{CREATE TABLE snowid_more (id int); SELECT pg_catalog.pg_extension_config_dump('snowid_more', '');}
];
my $next = "$newest.1";
foreach my $extension (@extensions)
{
	my @changes = @{ $changes{$extension} };

	write_script("$extension--$next.sql", $fresh{$extension},     @changes);
	write_script("$extension--$newest--$next.sql", guard($next),  @changes);
	write_script("$extension--$newest--99.0.sql",  guard('99.0'), @changes);
	write_script("$extension--$newest--but$_.sql",
		guard($next), @changes[ 0 .. $_ - 1, $_ + 1 .. $#changes ])
	  foreach 0 .. $#changes;
}

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
  q{CREATE EXTENSION snowid_segments VERSION '0.0'},
  q{INSERT INTO snowid_segments (biz_tag) VALUES ('a')},
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
		'the server shows the name and the version of the library that it runs'
	);
}

sub update
{
	my ($extension, $version) = @_;
	return sql_error($node,
		"ALTER EXTENSION $extension UPDATE TO '$version'");
}

# All that an extension consists of, as pg_upgrade would make it: without numbers
# and the version.  It is of the first version, and updated to the others.  Its name
# comes first.
my $databases = 0;

sub contents
{
	my ($extension, $first, @others) = @_;
	my $db = 'db' . ++$databases;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, "CREATE EXTENSION $extension VERSION '$first'");
	$node->safe_psql($db, "ALTER EXTENSION $extension UPDATE TO '$_'")
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
foreach my $extension (@extensions)
{
	my %new     = map  { $_ => contents($extension, $_) } $newest, $next;
	my @older   = grep { $_ ne $newest } @{ $versions{$extension} };
	my @changes = @{ $changes{$extension} };

	like(
		$new{$newest},
		qr/ADD FUNCTION \w+\.$status{$extension}\(/,
		"the comparison sees the functions of $extension");
	is(contents($extension, $_, $newest),
		$new{$newest}, "$extension $_ updated to $newest")
	  foreach '0.0', @older;
	is(contents($extension, '0.0', $next),
		$new{$next}, "$extension updated all the way to $next");
	isnt(
		contents($extension, $newest, "but$_"),
		$new{$next},
		"it would be seen that an update of $extension forgets: $changes[$_]"
	) foreach 0 .. $#changes;
}

#---- A library and SQL of different versions, while keys are made ----

my $client =
  start_client($node, 'INSERT INTO made DEFAULT VALUES RETURNING id;');
clients_go_on($client);
my $is_open = 'SELECT is_open FROM snowid_status()';
my $too_old =
  qr/^55000: the snowid library that is loaded is older than version 99\.0 .*^HINT:  Restart the server/ms;

like(
	sql_error($node, $is_open),
	qr/^55000: declaration of snowid_status\(\) does not match the snowid library.*^HINT:  Run ALTER EXTENSION snowid UPDATE\./ms,
	'SQL older than the library says so');
like(
	sql_error($node, 'SELECT * FROM snowid_segment_status()'),
	qr/^55000: declaration of snowid_segment_status\(\) does not match the snowid library.*^HINT:  Run ALTER EXTENSION snowid_segments UPDATE\./ms,
	'SQL of snowid_segments older than the library names that extension');
is(update('snowid_segments', $newest),
	'', 'snowid_segments is updated by itself');
is(query($node, q{SELECT snowid_number('a')}),
	1, 'numbers continue after the update');
is(query($node, 'SELECT count(*) FROM snowid_segment_status()'),
	1, 'the status of segments serves after the update');
like(update('snowid_segments', '99.0'),
	$too_old, 'SQL of snowid_segments newer than the library is refused');
is(update('snowid', $newest), '',  'after the update');
is(query($node, $is_open),    't', 'snowid_status() serves again');
like(update('snowid', '99.0'),
	$too_old, 'SQL newer than the library is refused');
is( query(
		$node,
		q{SELECT extversion FROM pg_extension WHERE extname = 'snowid'}),
	$newest,
	'SQL newer than the library changes nothing');
is(update('snowid', $next), '', 'an update that the library serves');
clients_go_on($client);

my @keys = stop_client($client);
is(disorder(@keys), 0, 'keys of a session that continued: they increase');
is(slurp_file($client->{errors}), '',
	'a session that continued saw no error');

$node->stop;

#---- Functions that are declared for another version of the library ----

$node = snowid_cluster('versions', 'snowid.worker_id = 1');
start_and_open($node);

# The C function as a script of another version would declare it: arguments,
# then columns.
sub result_of
{
	my ($symbol, $arguments, $call, @columns) = @_;
	my $n = 0;
	my $declared = join ', ', @$arguments,
	  map { "OUT c" . ++$n . " $_" } @columns;

	return sql_error($node, <<~EOF);
		CREATE FUNCTION pg_temp.f($declared)
			RETURNS @{[ $symbol =~ /layouts|claims/ ? 'SETOF record' : 'record' ]}
			AS '\$libdir/snowid', '$symbol' LANGUAGE C;
		SELECT * FROM pg_temp.f($call);
		EOF
}

my $restart =
  'Restart the server, so that it loads the library that is installed.';
my $update = 'Run ALTER EXTENSION snowid UPDATE.';

foreach my $function (
	[ 'snowid_status',  [],                   '' ],
	[ 'snowid_layouts', [],                   '' ],
	[ 'snowid_claims',  [],                   '' ],
	[ 'snowid_decode',  ['bigint'],           '0' ],
	[ 'snowid_decode',  [ 'bigint', 'text' ], "0, 'twitter'" ])
{
	my ($symbol, $arguments, $call) = @$function;
	my @columns = split /\|/, $node->safe_psql('postgres', <<~EOF);
		SELECT string_agg(type::regtype::text, '|' ORDER BY n)
		FROM pg_proc, unnest(proallargtypes[pronargs + 1:]) WITH ORDINALITY t(type, n)
		WHERE proname = '$symbol' AND pronargs = @{[ scalar @$arguments ]}
		EOF
	my $count = @columns;
	my $name  = "$symbol(@$arguments)";

	like(
		result_of($symbol, $arguments, $call, @columns),
		$symbol eq 'snowid_claims'
		? qr/worker ID does not come from Redis/
		: qr/^$/,
		"$name, $count columns");
	foreach my $case (
		[ 'a column more',   $restart, @columns, 'int' ],
		[ '40 columns more', $restart, @columns, ('text') x 40 ],
		[ 'a column less',   $update,  @columns[ 0 .. $#columns - 1 ] ],
		[
			'a text for a number',
			"$restart If that does not help: $update",
			map { /^(integer|boolean)$/ ? 'text' : $_ } @columns
		])
	{
		my ($what, $hint, @declared) = @$case;
		my $declared = @declared;

		like(
			result_of($symbol, $arguments, $call, @declared),
			qr/^55000: declaration of (pg_temp(_\d+)?\.)?f\(.*\) does not match the snowid library\nDETAIL:  It is declared with $declared columns, and the library has $count\.\nHINT:  \Q$hint\E\n/,
			"$name, $what");
	}
}

query($node,
	q(CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'))
);
foreach my $function (
	[ 'snowid_status',       '',          '' ],
	[ 'snowid_decode',       'bigint',    '0' ],
	[ 'snowid_number_range', 'text, int', q('a', 1) ])
{
	my ($symbol, $arguments, $call) = @$function;
	like(
		sql_error($node, <<~EOF),
			CREATE FUNCTION f($arguments) RETURNS int
				AS '\$libdir/snowid', '$symbol' LANGUAGE C;
			SELECT f($call);
			EOF
		qr/^XX000: return type must be a row type\n/,
		"$symbol($arguments), declared as one number");
}

#---- The first statement of each script ----

my $script_version;
foreach my $script (
	glob(`pg_config --sharedir` =~ s/\n//r . '/extension/snowid*--*.sql'))
{
	($script_version) = $script =~ /--([\d.]+)\.sql$/;
	my ($first) = slurp_file($script) =~ /^(CREATE .*?;\nSELECT .*?;\n)/ms;
	like(
		$first,
		qr/^CREATE FUNCTION snowid_require_library\([^;]*;\nSELECT snowid_require_library\('\Q$script_version\E'/,
		"$script asks for its version first");
}
$node->safe_psql('postgres',
	"CREATE FUNCTION require(text) RETURNS void AS '\$libdir/snowid', 'snowid_require_library' LANGUAGE C"
);
is(sql_error($node, "SELECT require('$script_version')"),
	'', 'the version that a script asks for is that of this library');
foreach my $newer ($script_version . '0', '0.99', '99.0', 'new')
{
	like(
		sql_error($node, "SELECT require('$newer')"),
		qr/^55000: the snowid library that is loaded is older than version $newer of the extension\nDETAIL:  It is of version \Q$script_version\E\.\nHINT:  $restart\n/,
		"version $newer of the script needs another library");
}

$node->stop;

done_testing();
