# Keys in other forms, as far as they depend on the database: collations and encodings,
# dump and restore, binary COPY, a move, a server without the library, a
# standby, pg_upgrade.
#
# Results of the SQL functions, values and SQLSTATEs, against a model in whole numbers of
# any size, near the edges of random layouts: test/fuzz/surface.py.
# needs: python3
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node =
  snowid_cluster('forms', 'snowid.worker_id = 1', allows_streaming => 1);
$node->start;
$node->safe_psql('postgres',
	q{CREATE DATABASE utf8 ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0});
$node->safe_psql('utf8', 'CREATE EXTENSION snowid');
$node->poll_query_until('utf8', 'SELECT is_open FROM snowid_status()');

#---- Collations: text sorts as keys do ----

$node->safe_psql('utf8', <<~'EOF');
	CREATE TABLE texts AS
		SELECT id, snowid_to_base32(id) AS base32, snowid_serial('PAY', id, '+08', 'twitter') AS serial,
			snowid_to_base62(id) AS base62
		FROM (SELECT (n * 9223372036854775)::bigint + n AS id FROM generate_series(1, 999) n) s;
	CREATE FUNCTION in_order(form text, collation_name text) RETURNS boolean LANGUAGE plpgsql AS $$
	DECLARE result boolean;
	BEGIN
		EXECUTE format('SELECT bool_and(p < id) FROM (SELECT id, lag(id) OVER (ORDER BY %I COLLATE %I) AS p FROM texts) s',
			form, collation_name) INTO result;
		RETURN result;
	END $$;
	EOF
my $collations =
  q{FROM pg_collation WHERE collname IN ('C', 'POSIX', 'und-x-icu', 'en-x-icu', 'en-US-x-icu',
	'de-x-icu', 'fr-x-icu', 'es-x-icu', 'th-x-icu', 'ar-x-icu', 'ja-x-icu', 'ko-x-icu', 'zh-x-icu', 'zh-Hant-x-icu')};
is( $node->safe_psql(
		'utf8',
		"SELECT string_agg(collname, ' ') FROM pg_collation WHERE (collprovider = 'i' OR collname IN ('C', 'POSIX')) AND NOT in_order('serial', collname)"
	),
	'',
	'serials sort as keys do under every collation');
is( $node->safe_psql(
		'utf8',
		"SELECT string_agg(collname, ' ') $collations AND NOT in_order('base32', collname)"
	),
	'',
	'base32 under those of many languages');
SKIP:
{
	skip 'no ICU', 1
	  if $node->safe_psql('utf8', "SELECT count(*) $collations") < 3;
	is( $node->safe_psql(
			'utf8',
			q{SELECT in_order('base32', 'cs-x-icu'), in_order('base32', 'lt-x-icu'),
			in_order('base62', 'C'), in_order('base62', 'und-x-icu')}),
		'f|f|t|f',
		'base32 does not sort so in some languages; base62 sorts so under "C" only'
	);
}

#---- The place of what is wrong is counted in characters ----

# Also in a database without an encoding, whose clients write UTF-8.
query($node,
	"CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
);
$node->safe_psql('ascii', 'CREATE EXTENSION snowid');

foreach my $case (
	[
		q{'01-ÄRYZVZUW377'::snowid},
		qr/^22P02: invalid input syntax for type snowid.*"Ä" at position 4 is/s
	],
	[
		q{snowid_from_base32('ÄÖ')},
		qr/^22P02: invalid key in base 32: "ÄÖ".*"Ä" at position 1 is/s
	],
	[ q{snowid_from_base62('é0000000000')}, qr/"é" at position 1 is/ ],
	[ q{snowid_from_base62('AzL8n0Y5ß8m')}, qr/"ß" at position 9 is/ ],
	[ q{snowid_serial('Ä', 1)}, qr/^22023: invalid code of a serial: "Ä"/ ],
	[
		q{snowid_serial_id('PAYÄ', 'PAY')},
		qr/^22P02: invalid serial: "PAYÄ".*other characters than digits/s
	])
{
	my ($sql, $expected) = @$case;
	foreach my $database (qw(utf8 ascii))
	{
		my ($rc, $out, $err) = $node->psql($database,
			"\\set VERBOSITY verbose\nSET client_encoding = 'UTF8';\nSELECT $sql"
		);
		$err =~ s/^.*?ERROR:\s+//s;
		like($err, $expected,
			"the place of what is wrong: $sql, in $database");
	}
}

# No text should end within a character; one that does shows nothing after it.
my $cut = sql_error($node, <<~'EOF');
	\c utf8
	CREATE CAST (bytea AS text) WITHOUT FUNCTION;
	CREATE TABLE cut AS SELECT '\xf0'::bytea::text AS key, 'QQQ'::text AS next;
	DROP CAST (bytea AS text);
	SELECT snowid_from_base32(key) FROM cut;
	EOF
query($node, "\\c utf8\nDROP TABLE cut");
like($cut, qr/^22P02: .*" at position 1 is/s, 'a character that is cut off');
unlike($cut, qr/Q/, 'hides what follows it');

#---- Binary COPY: the 8 bytes of a bigint ----

my $file = $node->basedir . '/binary';
$node->safe_psql('utf8', <<~EOF);
	CREATE TABLE k (id snowid PRIMARY KEY DEFAULT snowid_next(), n int);
	INSERT INTO k (n) SELECT generate_series(1, 1000);
	CREATE TABLE b (id bigint, n int);
	CREATE TABLE again (id snowid, n int);
	COPY k TO '$file' (FORMAT binary);
	COPY b FROM '$file' (FORMAT binary);
	COPY b TO '$file' (FORMAT binary);
	COPY again FROM '$file' (FORMAT binary);
	COPY (SELECT 'x'::text) TO '$file' (FORMAT binary);
	EOF
is( $node->safe_psql(
		'utf8',
		'SELECT (SELECT count(*) FROM k JOIN b USING (id, n)), (SELECT count(*) FROM k JOIN again USING (id, n))'
	),
	'1000|1000',
	'COPY BINARY to a bigint and back');
my ($rc, $out, $err) =
  $node->psql('utf8', "COPY again (id) FROM '$file' (FORMAT binary)");
like($err, qr/ERROR/, 'not of anything else');

#---- What a bigint can do, and the type cannot ----

$node->safe_psql('utf8',
	'CREATE TABLE ranges (id snowid) PARTITION BY RANGE (id)');
foreach my $statement (
	'SELECT id::numeric FROM k',
	'SELECT id::int FROM k WHERE false',
	'SELECT FROM k WHERE id = 5.0',
	'SELECT COALESCE(id, 0) FROM k',
	'SELECT GREATEST(id, 0) FROM k',
	'SELECT CASE WHEN n > 0 THEN id ELSE 0 END FROM k',
	'SELECT id FROM k UNION SELECT 0',
	'SELECT lag(id, 1, 0) OVER () FROM k',
	'SELECT round(id) FROM k',
	'SELECT count(*) OVER (ORDER BY id RANGE BETWEEN 5 PRECEDING AND CURRENT ROW) FROM k',
	'INSERT INTO k (id) VALUES (5)',
	'CREATE TABLE ranges_1 PARTITION OF ranges FOR VALUES FROM (1) TO (2)')
{
	my $as_bigint =
	  $statement =~
	  s/\bid\b(?= *(?:::|=|,|RANGE|ELSE|\)? FROM))/id::bigint/gr =~
	  s/\((5|1|2)\)/($1::bigint)/gr;

	like(
		sql_error($node, "\\c utf8\n$statement"),
		qr/^(?:42\w{3}|0A000): /,
		"the type refuses: $statement");
	is(sql_error($node, "\\c utf8\nBEGIN;\n$as_bigint;\nROLLBACK"),
		'', "a cast to bigint cures it: $as_bigint");
}
$node->safe_psql('utf8', 'DROP TABLE ranges');
like(
	sql_error(
		$node,
		"\\c utf8\nCREATE PUBLICATION part FOR TABLE k WHERE (id::bigint > 5)"
	),
	qr/^0A000: /,
	'a publication refuses a condition on the type');

#---- Dump and restore, also by pg_restore, onto a server without the library ----

$node->safe_psql('utf8', <<~'EOF');
	DROP TABLE b, again, texts;
	DROP FUNCTION in_order;
	INSERT INTO k VALUES ((-1)::bigint, -1), ('0ARYZVZXW377R', 0);
	CREATE TABLE lines (id bigint PRIMARY KEY DEFAULT snowid_next(), order_id snowid REFERENCES k, of_bigint bigint REFERENCES k,
		no text GENERATED ALWAYS AS (snowid_serial('L', id, '+08', 'twitter', true)) STORED, CHECK (order_id > 5));
	CREATE INDEX ON lines (order_id);
	INSERT INTO lines (order_id, of_bigint) SELECT id, id FROM k WHERE n > 0;
	CREATE VIEW old AS SELECT * FROM k WHERE id < 388400145978465529 AND id > '0000000000000';
	CREATE TABLE logs (id snowid DEFAULT snowid_next(), no text DEFAULT snowid_serial('A', snowid_next())) PARTITION BY RANGE (id);
	CREATE TABLE logs_all PARTITION OF logs FOR VALUES FROM ('0000000000000') TO (9223372036854775807);
	INSERT INTO logs DEFAULT VALUES;
	CREATE VIEW joined AS SELECT n FROM k JOIN lines ON k.id = order_id;
	CREATE VIEW with_using AS SELECT n FROM k JOIN (SELECT order_id AS id FROM lines) l USING (id);
	CREATE VIEW with_nullif AS SELECT NULLIF(id, '0ARYZVZXW377R') AS n FROM k;
	EOF

# Each view with its column's type, and whether it compares by an operator of snowid
my $comparisons = <<~'EOF';
	SELECT string_agg(format('%s %s %s', relname, format_type(atttypid, NULL), EXISTS (
			SELECT FROM pg_depend JOIN pg_rewrite r ON r.oid = objid
			WHERE classid = 'pg_rewrite'::regclass AND ev_class = c.oid AND refclassid = 'pg_operator'::regclass)), ', ' ORDER BY relname)
	FROM pg_class c JOIN pg_attribute ON attrelid = c.oid AND attname = 'n' WHERE relname IN ('joined', 'with_using', 'with_nullif')
	EOF
is( $node->safe_psql('utf8', $comparisons),
	'joined integer t, with_nullif snowid t, with_using integer t',
	'views compare keys by operators of snowid');
my $sum =
  q{SELECT count(*), min(id), max(id), md5(string_agg(id::text || n, ',' ORDER BY id)),
	(SELECT md5(string_agg(l::text, ',' ORDER BY id)) FROM lines l), (SELECT string_agg(v::text, ',') FROM old v),
	(SELECT md5(min(id)::text || min(no)) FROM logs) FROM k};
my $before = $node->safe_psql('utf8', $sum);
like(
	$before,
	qr/^1002\|-0000000000000000001\|/,
	'values that a cast from bigint stored are dumped, too');
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'utf8' ],
	'pg_dump ends without error');
$node->backup('copy');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$node->safe_psql('postgres',
	q{CREATE DATABASE restored ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0}
);
$node->command_ok(
	[ 'pg_restore', '-e', '-d', 'restored', $dump ],
	'pg_restore without the library loaded');
is($node->safe_psql('restored', $sum), $before, 'all is there');
is( $node->safe_psql('restored', $comparisons),
	'joined integer t, with_nullif bigint f, with_using integer f',
	'restored views with USING and NULLIF compare keys as bigint, as the manual says'
);
like(
	$node->safe_psql(
		'restored',
		q{SET enable_seqscan = off; EXPLAIN SELECT * FROM lines WHERE order_id = 388400145978465529}
	),
	qr/Index Scan|Bitmap Index Scan/,
	'restored rows are found by index');

#---- A move ----

$node->safe_psql('restored',
	'CREATE SCHEMA keys; ALTER EXTENSION snowid SET SCHEMA keys');
is($node->safe_psql('restored', "SET search_path = public, keys; $sum"),
	$before, 'the extension moves to another schema');

#---- A standby ----

my $standby = server_from_backup(
	'standby', $node, 'copy',
	'snowid.worker_id = 2',
	has_streaming => 1);
$standby->start;
is($standby->safe_psql('utf8', $sum), $before, 'a standby reads the type');
is( $standby->safe_psql(
		'utf8', q{SELECT n FROM k WHERE id = '0ARYZVZXW377R'}),
	'0',
	'a standby finds rows by the type');
$standby->stop;

#---- pg_upgrade carries type, operators and families ----

my $new = PostgreSQL::Test::Cluster->new('upgraded');
$new->init;
$node->stop;
pg_upgrade($node, $new);
$new->start;
is($new->safe_psql('utf8', $sum), $before, 'all is there');
my $plan = $new->safe_psql('utf8', <<~'EOF');
	ANALYZE;
	SET enable_seqscan = off;
	EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id < 5::bigint;
	EXPLAIN (COSTS OFF) SELECT * FROM lines WHERE id = '0ARYZVZXW377R'::snowid;
	EXPLAIN (COSTS OFF) SELECT * FROM k FULL JOIN lines ON k.id = lines.id;
	SET enable_hashjoin = off;
	EXPLAIN (COSTS OFF) SELECT * FROM k FULL JOIN lines ON k.id = lines.order_id;
	EOF
like(
	$plan,
	qr/Index Cond: \(id < '5'::bigint\).*Index Cond: \(id = '388400145978465528'::bigint\).*Hash.*Merge Full Join/s,
	'indexes, hash and merge joins work as before');
$new->stop;

#---- Results of the SQL functions ----

my $seconds = $ENV{SNOWID_FUZZ_SECONDS} // 3;
my $seed    = $ENV{SNOWID_FUZZ_SEED}    // int(rand(1 << 31));

# Of a server with the default layout, and with one at the limits of a server's.
my $at_the_limits =
  "snowid.layout = 'epoch=1970-01-01T00:00:00.001Z datacenter=0 worker=3 sequence=18'\n";
foreach my $settings ('', $at_the_limits)
{
  SKIP:
	{
		skip 'there is no python3', 1
		  if !eval { IPC::Run::run([ 'python3', '-c', '' ]) };
		my $server = snowid_cluster(
			$settings ? 'limits' : 'default',
			$settings . 'snowid.worker_id = 3');
		start_and_open($server);
		local %ENV = $server->_get_env();
		my $out;
		my $good =
		  IPC::Run::run(
			[ 'python3', 'test/fuzz/surface.py', $seconds / 2, $seed ],
			'>&', \$out);
		ok($good, $out =~ /^(\d+ calls, .*)/m ? $1 : 'the calls');
		diag($out) if !$good;
		$server->stop;
	}
}

done_testing();
