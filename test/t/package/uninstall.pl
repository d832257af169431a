# doc/operations.md, Uninstall: its query prepares tables of every form, so that the
# extension can be dropped without CASCADE and no value is lost; with CASCADE, columns
# of its type are lost.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename 'dirname';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $top  = abs_path(dirname(__FILE__) . '/../../..');
my $node = snowid_cluster('uninstall', 'snowid.worker_id = 1');
start_and_open($node);
query($node, 'DROP EXTENSION snowid');

# The query of a page, which psql runs with \gexec
sub query_of
{
	my ($page) = @_;
	my ($query) =
	  slurp_file("$top/$page") =~ /^```sql\n((?:(?!^```).)*^\\gexec\n)```/ms;
	return $query // die "$page: no query";
}
my $prepare = query_of('doc/operations.md');
is(query_of('doc/zh/operations.md'),
	$prepare, 'both languages have the same query');

# A table of each form; in a schema that is not in the search_path
my $tables = <<~'EOF';
	CREATE SCHEMA keys;
	CREATE EXTENSION snowid SCHEMA keys;
	SET search_path = public, keys;
	CREATE TABLE orders (id snowid PRIMARY KEY DEFAULT snowid_next(), "Note" text,
		no text GENERATED ALWAYS AS (snowid_serial('O', id, '+08', 'twitter')) STORED);
	CREATE TABLE lines (id bigint PRIMARY KEY DEFAULT snowid_next(), of_order snowid REFERENCES orders,
		as_bigint bigint REFERENCES orders);
	CREATE TABLE "Odd name" ("The key" snowid DEFAULT snowid_next(), other snowid, UNIQUE (other, "The key"));
	CREATE TABLE parts (id bigint DEFAULT snowid_next(), key snowid, of_order snowid) PARTITION BY RANGE (id);
	CREATE TABLE parts_all PARTITION OF parts DEFAULT;
	CREATE TABLE base (id snowid DEFAULT snowid_next());
	CREATE TABLE child (more snowid) INHERITS (base);
	CREATE TABLE plain (id bigint PRIMARY KEY DEFAULT 7, n int);
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
		SELECT (SELECT md5(string_agg((id::bigint, "Note", no)::text, ',' ORDER BY id)) FROM orders),
			(SELECT md5(string_agg((id, of_order::bigint, as_bigint)::text, ',' ORDER BY id)) FROM lines),
			(SELECT md5(string_agg(("The key"::bigint, other::bigint)::text, ',' ORDER BY other)) FROM "Odd name"),
			(SELECT md5(string_agg((id, key::bigint, of_order::bigint)::text, ',' ORDER BY id)) FROM parts),
			(SELECT md5(string_agg((id::bigint, more::bigint)::text, ',' ORDER BY id)) FROM child),
			(SELECT count(*) FROM plain WHERE id = 7)
		EOF
}

foreach my $db ('shop', 'cascade')
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db,        $tables);
}
$node->safe_psql('shop',
	'ALTER DATABASE shop SET search_path = public, keys');
my $before = values_of('shop');
my $drop   = 'DROP EXTENSION snowid';
my ($rc, $out, $err) = $node->psql('shop', $drop);
like(
	$err,
	qr/cannot drop extension snowid because other objects depend on it/,
	'the extension is not dropped while tables depend on it');

# The way of the page
($rc, $out, $err) =
  $node->psql('shop', "\\set ON_ERROR_STOP 1\n$prepare", timeout => 180);
is($err, '', "the page's query changes every table");
($rc, $out, $err) = $node->psql('shop', $drop);
is($err,              '', 'after the query nothing depends on the extension');
is(values_of('shop'), $before, 'no value is lost');
is( $node->safe_psql(
		'shop',
		q{SELECT string_agg(adrelid::regclass || '.' || attname, ' ') FROM pg_attrdef
		JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum}),
	'plain.id',
	'the default of a column that has nothing to do with keys stays');
is( $node->safe_psql(
		'shop',
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
query($node, 'CREATE EXTENSION snowid');
like(
	query($node, q{SELECT obj_description('snowid'::regtype, 'pg_type')}),
	qr/DROP EXTENSION snowid CASCADE drops columns of this type/,
	'the comment on the type warns of CASCADE');
$node->stop;
done_testing();
