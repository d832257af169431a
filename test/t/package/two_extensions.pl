# Two extensions from one library: snowid has keys and no table, snowid_segments has
# numbers under a tag with their tables.  Each is created, dumped, restored, moved and
# dropped without the other.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('two', 'snowid.worker_id = 1');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN CREATEDB');

# Makes a database that this role owns, and runs commands there as that role.
sub database
{
	my ($db, @commands) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER owner");
	as_owner($db, $_) foreach @commands;
	return;
}

sub as_owner
{
	my ($db, $sql) = @_;
	return $node->safe_psql($db, $sql, extra_params => [ '-U', 'owner' ]);
}

# What is of an extension, or has our name and is of none: all that a client's tool
# lists.
my $tables =
  q{SELECT string_agg(table_name, ' ' ORDER BY table_name) FROM information_schema.tables
	WHERE table_schema NOT IN ('pg_catalog', 'information_schema')};
my $traces = q{SELECT
	(SELECT count(*) FROM pg_class WHERE relname LIKE 'snowid%') +
	(SELECT count(*) FROM pg_proc WHERE proname LIKE 'snowid%') +
	(SELECT count(*) FROM pg_type WHERE typname LIKE '%snowid%') +
	(SELECT count(*) FROM pg_operator WHERE oprcode::text LIKE '%snowid%') +
	(SELECT count(*) FROM pg_opclass WHERE opcname LIKE 'snowid%') +
	(SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'guard%')};

# The lines of a dump that are about us.
sub dumped
{
	my ($db, @options) = @_;
	my ($dump) = run_command([ 'pg_dump', @options, $node->connstr($db) ]);
	return join "\n", sort grep { /snowid/ && !/^(--|COMMENT)/ } split /\n/,
	  $dump;
}

# Dumps a database in this format and restores it into another one.
sub restored
{
	my ($format, $from, $to) = @_;
	my $file = $node->basedir . "/$to.dump";

	$node->command_ok(
		[ 'pg_dump', '-F', $format, '-f', $file, $node->connstr($from) ],
		"pg_dump -F $format of $from");
	database($to);
	my @restore =
	  $format eq 'p'
	  ? ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file)
	  : ('pg_restore', '--exit-on-error', $file);
	$node->command_ok([ @restore, '-d', $node->connstr($to) ],
		"$to: the dump is restored");
	return;
}

#---- Keys alone ----

database(
	'keys',
	'CREATE EXTENSION snowid',
	'CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowid_next(), key snowid)'
);
$node->poll_query_until('keys', 'SELECT is_open FROM snowid_status()');
as_owner('keys', 'INSERT INTO orders DEFAULT VALUES');
is(as_owner('keys', $tables),
	'orders', 'snowid alone: a client that lists tables sees none of ours');
is( dumped('keys', '-s'),
	"CREATE EXTENSION IF NOT EXISTS snowid WITH SCHEMA public;\n    id bigint DEFAULT public.snowid_next() NOT NULL,\n    key public.snowid"
	  =~ s/^(C.*)\n(.*)\n(.*)$/join "\n", sort $1, $2, $3/er,
	'snowid alone: a dump of the schema has the extension by name only');
is(as_owner('keys', q{SELECT to_regproc('snowid_number') IS NULL}),
	't', 'snowid alone has no function of numbers');

#---- Numbers alone ----

database(
	'numbers',
	'CREATE EXTENSION snowid_segments',
	q{INSERT INTO snowid_segments (biz_tag) VALUES ('a')},
	q{INSERT INTO snowid_segments (biz_tag, period, format) VALUES ('day', 'day', '{YYYYMMDD}-{N:3}')}
);
is( as_owner(
		'numbers',
		q{SELECT snowid_number('a'), snowid_period_serial('day') ~ '^\d{8}-001$'}
	),
	'1|t',
	'snowid_segments alone gives numbers and serials');
is(as_owner('numbers', q{SELECT to_regproc('snowid_next') IS NULL}),
	't', 'snowid_segments alone has no function of keys');
is( as_owner('numbers', $tables),
	'snowid_segment_periods snowid_segments',
	'snowid_segments alone has two tables');
is( dumped('numbers', '-s'),
	'CREATE EXTENSION IF NOT EXISTS snowid_segments WITH SCHEMA public;',
	'snowid_segments alone: a dump of the schema has the extension by name only'
);

#---- Both, each in a schema of its own ----

database(
	'shop',
	'CREATE SCHEMA k',
	'CREATE SCHEMA "n n"',
	'CREATE EXTENSION snowid SCHEMA k',
	'CREATE EXTENSION snowid_segments SCHEMA "n n"',
	q{INSERT INTO "n n".snowid_segments (biz_tag) VALUES ('a')},
	'CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT k.snowid_next())',
	'INSERT INTO orders DEFAULT VALUES');
is( as_owner(
		'shop',
		q{SELECT k.snowid_next() > max(id), "n n".snowid_number('a') FROM orders}
	),
	't|1',
	'both in one database');
$node->safe_psql('shop',
	'ALTER EXTENSION snowid SET SCHEMA "n n"; ALTER EXTENSION snowid_segments SET SCHEMA k'
);
is( as_owner('shop', q{SELECT "n n".snowid_next() > 0, k.snowid_number('a')}),
	't|2',
	'each can be moved to another schema');
is( sql_error(
		$node,
		"\\c shop\nCREATE SCHEMA one AUTHORIZATION owner; ALTER EXTENSION snowid SET SCHEMA one; ALTER EXTENSION snowid_segments SET SCHEMA one"
	),
	'',
	'both fit into one schema');

#---- Dump and restore ----

$node->restart;    # what is in memory of a tag is not in the dump
foreach my $format ('p', 'c')
{
	restored($format, 'keys', "keys_$format");
	is( as_owner(
			"keys_$format",
			'INSERT INTO orders DEFAULT VALUES RETURNING id > (SELECT max(id) FROM orders)'
		),
		't',
		"keys_$format: keys continue after the restore");
	restored($format, 'numbers', "numbers_$format");
	is( as_owner(
			"numbers_$format",
			q{SELECT snowid_number('a'), snowid_period_serial('day') ~ '^\d{8}-002$'}
		),
		'2|t',
		"numbers_$format: numbers and serials continue after the restore");
	restored($format, 'shop', "shop_$format");
	is( as_owner(
			"shop_$format",
			q{SELECT one.snowid_next() > max(id), one.snowid_number('a') FROM orders}
		),
		't|3',
		"shop_$format: keys and numbers continue after the restore");
}

#---- Dropped: one of them, then the other ----

is( $node->safe_psql(
		'shop_p',
		q{DROP EXTENSION snowid CASCADE; SELECT one.snowid_number('a')}),
	4,
	'snowid is dropped: numbers continue in the same session');
is( $node->safe_psql(
		'shop_p', q{SELECT to_regproc('one.snowid_next') IS NULL}),
	't',
	'snowid is dropped: its functions are gone');
is( $node->safe_psql(
		'shop_c',
		q{DROP EXTENSION snowid_segments; SELECT one.snowid_next() > max(id) FROM orders}
	),
	't',
	'snowid_segments is dropped: keys continue in the same session');
is($node->safe_psql('shop_c', $tables),
	'orders', 'snowid_segments is dropped: its tables are gone');
$node->safe_psql('shop_p', 'DROP EXTENSION snowid_segments');
$node->safe_psql('shop_c', 'DROP EXTENSION snowid CASCADE');
is($node->safe_psql($_, $traces), 0, "$_: nothing of us is left")
  foreach 'shop_p', 'shop_c';
is( $node->safe_psql(
		'shop_p',
		q{CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'); SELECT snowid_number('a')}
	),
	1,
	'snowid_segments is created again without its former rows');

#---- Without the library in the server ----

my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init;
$plain->start;
like(
	sql_error($plain, 'CREATE EXTENSION snowid_segments'),
	qr/WARNING:  55000: snowid is not loaded by this server/,
	'a server that does not preload the library warns at CREATE EXTENSION');
is( sql_error($plain, q{INSERT INTO snowid_segments (biz_tag) VALUES ('a')}),
	'',
	'a server that does not preload the library restores the tables');
like(
	sql_error($plain, q{SELECT snowid_number('a')}),
	qr/^55000: snowid is not loaded by this server/,
	'a server that does not preload the library gives no number');

$_->stop foreach $node, $plain;
done_testing();
