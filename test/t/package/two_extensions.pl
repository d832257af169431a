# Two extensions from one library: snowid has keys and no table, snowid_segments has
# numbers under a tag with their tables.  Each is created, dumped, moved and dropped
# without the other.
#
# doc/uninstall.sql prepares tables of every form, so that the extension can be dropped
# without CASCADE and no value is lost; with CASCADE, columns of its type are lost.
# The statements of doc/operations.md for the ceilings remove nothing as long as snowid
# is preloaded, and then all of them, and nothing of others.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename 'dirname';
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
foreach ([ 'numbers_left', 'p' ], [ 'keys_left', 'c' ])
{
	my ($copy, $format) = @$_;
	database($copy);
	restore_dump($node, 'shop', $node, $copy, $format);
	is( as_owner(
			$copy,
			q{SELECT one.snowid_next() > max(id), one.snowid_number('a') FROM orders}
		),
		't|3',
		"$copy: keys and numbers continue after the restore");
}

#---- Dropped: one of them, then the other ----

is( $node->safe_psql(
		'numbers_left',
		q{DROP EXTENSION snowid CASCADE; SELECT one.snowid_number('a')}),
	4,
	'snowid is dropped: numbers continue in the same session');
is( $node->safe_psql(
		'numbers_left', q{SELECT to_regproc('one.snowid_next') IS NULL}),
	't',
	'snowid is dropped: its functions are gone');
is( $node->safe_psql(
		'keys_left',
		q{DROP EXTENSION snowid_segments; SELECT one.snowid_next() > max(id) FROM orders}
	),
	't',
	'snowid_segments is dropped: keys continue in the same session');
is($node->safe_psql('keys_left', $tables),
	'orders', 'snowid_segments is dropped: its tables are gone');
$node->safe_psql('numbers_left', 'DROP EXTENSION snowid_segments');
$node->safe_psql('keys_left',    'DROP EXTENSION snowid CASCADE');
is($node->safe_psql($_, $traces), 0, "$_: nothing of us is left")
  foreach 'numbers_left', 'keys_left';
is( $node->safe_psql(
		'numbers_left',
		q{CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'); SELECT snowid_number('a')}
	),
	1,
	'snowid_segments is created again without its former rows');

#---- Uninstall ----

my $top = abs_path(dirname(__FILE__) . '/../../..');

my $prepare = slurp_file("$top/doc/uninstall.sql");

# A table of each form; in a schema that is not in the search_path
my $every_form = <<~'EOF';
	CREATE SCHEMA keys;
	CREATE EXTENSION snowid SCHEMA keys;
	SET search_path = public, keys;
	CREATE TABLE orders (id snowid PRIMARY KEY DEFAULT snowid_next(), "Note" text,
		no text GENERATED ALWAYS AS (snowid_serial('O', id, '+08', 'twitter')) STORED,
		ticket text GENERATED ALWAYS AS ('T-' || id::text) STORED);
	CREATE TABLE lines (id bigint PRIMARY KEY DEFAULT snowid_next(), of_order snowid REFERENCES orders,
		as_bigint bigint REFERENCES orders);
	CREATE TABLE "Odd name" ("The key" snowid DEFAULT snowid_next(), other snowid, UNIQUE (other, "The key"));
	CREATE TABLE parts (id bigint DEFAULT snowid_next(), key snowid, of_order snowid,
		tail bigint GENERATED ALWAYS AS (of_order::bigint % 1000) STORED) PARTITION BY RANGE (id);
	CREATE TABLE parts_all PARTITION OF parts DEFAULT;
	CREATE TABLE base (id snowid DEFAULT snowid_next());
	CREATE TABLE child (more snowid, label text GENERATED ALWAYS AS (id::text) STORED) INHERITS (base);
	CREATE TABLE plain (id bigint PRIMARY KEY DEFAULT 7, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
	INSERT INTO orders ("Note") SELECT 'n' || n FROM generate_series(1, 100) n;
	INSERT INTO lines (of_order, as_bigint) SELECT id, id FROM orders;
	INSERT INTO "Odd name" (other) SELECT id FROM orders;
	INSERT INTO parts (key, of_order) SELECT id, id FROM orders;
	INSERT INTO child (more) SELECT id FROM orders;
	INSERT INTO plain (n) VALUES (1);
	EOF

# Every value, whatever the type of its column
sub values_of
{
	my ($db) = @_;
	return $node->safe_psql($db, <<~'EOF');
		SELECT (SELECT md5(string_agg((id::bigint, "Note", no, ticket)::text, ',' ORDER BY id)) FROM orders),
			(SELECT md5(string_agg((id, of_order::bigint, as_bigint)::text, ',' ORDER BY id)) FROM lines),
			(SELECT md5(string_agg(("The key"::bigint, other::bigint)::text, ',' ORDER BY other)) FROM "Odd name"),
			(SELECT md5(string_agg((id, key::bigint, of_order::bigint, tail)::text, ',' ORDER BY id)) FROM parts),
			(SELECT md5(string_agg((id::bigint, more::bigint, label)::text, ',' ORDER BY id)) FROM child),
			(SELECT count(*) FROM plain WHERE id = 7)
		EOF
}

foreach my $db ('sold', 'cascade')
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db,        $every_form);
}
$node->safe_psql('sold',
	'ALTER DATABASE sold SET search_path = public, keys');
my $before = values_of('sold');
my $drop   = 'DROP EXTENSION snowid';
my ($rc, $out, $err) = $node->psql('sold', $drop);
like(
	$err,
	qr/cannot drop extension snowid because other objects depend on it/,
	'the extension is not dropped while tables depend on it');

# The way of the page
($rc, $out, $err) =
  $node->psql('sold', "\\set ON_ERROR_STOP 1\n$prepare", timeout => 180);
is($err, '', "the page's query changes every table");
($rc, $out, $err) = $node->psql('sold', $drop);
is($err,              '', 'after the query nothing depends on the extension');
is(values_of('sold'), $before, 'no value is lost');
is( $node->safe_psql(
		'sold',
		q{SELECT string_agg(adrelid::regclass || '.' || attname, ' ' ORDER BY adnum) FROM pg_attrdef
		JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum}),
	'plain.id plain.twice',
	'columns that have nothing to do with keys keep their defaults and expressions'
);
is( $node->safe_psql(
		'sold',
		q{SELECT count(*) FROM pg_constraint WHERE contype IN ('p', 'f', 'u') AND connamespace = 'public'::regnamespace}
	),
	6,
	'no constraint is lost');

# The way that PostgreSQL's hint proposes
$node->safe_psql('cascade', "$drop CASCADE");
is( $node->safe_psql(
		'cascade',
		q{SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped}
	),
	'Note',
	'CASCADE drops the columns of the type');

# What the type says of itself
create_extension($node);
like(
	query($node, q{SELECT obj_description('snowid'::regtype, 'pg_type')}),
	qr/DROP EXTENSION snowid CASCADE drops columns of this type/,
	'the comment on the type warns of CASCADE');

# The ceilings, beside another one's origin
sub removal_of
{
	my ($page) = @_;
	my ($block) =
	  slurp_file("$top/$page") =~
	  /^```sql\n(SET allow_system_table_mods(?:(?!^```).)*)```/ms;
	return $block // die "$page: no statements";
}

sub origins
{
	return query($node,
		q{SELECT string_agg(coalesce(external_id, local_id::text), ' ' ORDER BY local_id) FROM pg_replication_origin_status}
	);
}

sub rows
{
	return query($node,
		q{SELECT string_agg(roname, ' ') FROM pg_replication_origin});
}

my $remove = removal_of('doc/operations.md');
is(removal_of('doc/zh/operations.md'),
	$remove, 'both languages remove ceilings by the same statements');
$node->safe_psql('postgres',
	q{SELECT pg_replication_origin_create('theirs'); SELECT pg_replication_origin_advance('theirs', '0/1')}
);
next_key($node);
is(origins(), 'theirs 65533 65534', 'there are ceilings, without a name');
is(sql_error($node, $remove),
	'', 'a server that preloads snowid: the statements give no error');
is( origins() . ', ' . rows(),
	'theirs 65533 65534, theirs',
	'a server that preloads snowid: the statements remove nothing');
$node->append_conf('postgresql.conf', q(shared_preload_libraries = ''));
$node->restart;
is(sql_error($node, $remove),
	'', 'a server without snowid: the statements give no error');
is( origins() . ', ' . rows(),
	'theirs, theirs',
	'a server without snowid: no position and no row is left');
$node->restart;
is(origins(), 'theirs',
	'a server without snowid: no position is left after a restart');
$node->stop;

done_testing();
