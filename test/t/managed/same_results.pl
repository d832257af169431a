# managed/snowid--0.1.sql beside the library: the same functions with the same
# marks, results and errors; keys, set-up, privileges, and callers' search_path.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidTest;
use Test::More;

my $node =
  snowid_cluster('managed', "snowid.datacenter_id = 1\nsnowid.worker_id = 1");
$node->start;

sub sql
{
	my ($sql) = @_;
	return query($node, "SET search_path = managed, public; $sql");
}

query($node,
	'CREATE SCHEMA library; CREATE EXTENSION snowid SCHEMA library; CREATE SCHEMA managed'
);
run_script($node, 'postgres', 'managed');
$node->poll_query_until('postgres',
	'SELECT is_open FROM library.snowid_status()');
like(
	sql_error($node, 'SELECT managed.snowid_next()'),
	qr/^55000: snowid has no worker ID in this database/,
	'no key before the set-up');
like(sql_error($node, 'SELECT managed.snowid_next_block(1)'),
	qr/^55000:/, 'no block before the set-up');
foreach my $pair ('0, 32', '-1, 0', 'NULL, 1', '1, NULL')
{
	like(
		sql_error($node, "SELECT managed.snowid_setup($pair)"),
		qr/^22023: datacenter_id and worker_id must be from 0 to 31/,
		"no pair: $pair");
}
sql('SELECT snowid_setup(1, 7)');

#---- The same functions ----

my $functions =
  q{SELECT proname || '(' || pg_get_function_arguments(p.oid) || ') ' || pg_get_function_result(p.oid) || ' '
		|| CASE WHEN provolatile = 'v' THEN 'v' ELSE provolatile::text || proparallel::text END || ' ' || proisstrict
	FROM pg_proc p WHERE pronamespace = '%s'::regnamespace
		AND proname ~ '^snowid_(next|decode|timestamp|min|max|encode|bits|layouts|advance|to_base|from_base|serial)'
		AND proname !~ '_support|offset' ORDER BY 1};
is( query($node, sprintf $functions, 'managed'),
	query($node, sprintf $functions, 'library'),
	'names, arguments, results, volatility, STRICT, and parallel safety of functions that make no keys are the same'
);
is( sql(q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'managed'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL}
	),
	'0',
	'each has a comment');
is( sql(q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'managed'::regnamespace AND prosrc ~ '@schema'}
	),
	'0',
	'no function has a placeholder for the name of its schema');

#---- The same results and errors ----

query($node, <<~'EOS');
	CREATE FUNCTION outcome(schema text, expression text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		result text;
		detail text;
		hint text;
	BEGIN
		PERFORM set_config('search_path', schema, true);
		EXECUTE 'SELECT string_agg(x::text, $_$, $_$) FROM ' || expression || ' x' INTO result;
		RETURN coalesce(result, 'null');
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
		RETURN concat_ws('|', sqlstate, sqlerrm, detail, hint);
	END $$;
	CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
	CREATE TABLE layouts AS SELECT unnest(ARRAY['twitter', 'Discord', 'instagram', 'mastodon', 'SONYFLAKE', 'pgedge', 'leaf', 'baidu',
		'shardingsphere', 'CosId', 'yitter', 'pgdog',
		'epoch=2020-01-01T00:00:00Z', 'epoch=2020-01-01T00:00:00Z datacenter=16 worker=1 sequence=4',
		'epoch=1969-12-31T23:59:59.999Z sequence=22', 'sequence=5  epoch=2020-02-29T00:00:00.1234+01:30 worker=3',
		'epoch=0001-01-01T00:00:00Z', 'epoch=9999-12-31T23:59:59.999Z datacenter=31 worker=31']) AS layout;
	CREATE TABLE keys AS
		SELECT unnest(ARRAY[0, 1, -1, 4095, 4096, 1541815603606036480, 9223372036854775807, 175928847299117063,
			3870172288071432645, 98776444300593659, 314948827708654619, '-9223372036854775808']::bigint[]) AS id
		UNION ALL SELECT (n * 92233720368547757)::bigint + n * 7919 FROM generate_series(1, 99, 7) n;
	CREATE TABLE times AS SELECT unnest(ARRAY['infinity', '-infinity', '2010-11-04 01:42:54.657Z', '2010-11-04 01:42:54.656999Z',
		'2026-11-21 10:20:30.456789Z', '2080-07-10 17:30:30.208Z', '2080-07-10 17:30:30.209Z', '1969-12-31 23:59:59.9995Z',
		'0001-01-01Z', '4713-01-01 BC', '294276-12-31 23:59:59.999999Z', '9999-12-31 23:59:59.999Z', '10000-01-01Z']::timestamptz[]) AS ts;
	CREATE TABLE expressions AS
		SELECT format('%s(%s%s)', f, id, CASE WHEN layout <> '' THEN ', ' || quote_literal(layout) END) AS expression
		FROM unnest('{snowid_decode,snowid_timestamp,snowid_bits}'::text[]) f, keys, (TABLE layouts UNION ALL SELECT '') l
		UNION ALL
		SELECT format('%s(%L%s)', f, ts, CASE WHEN layout <> '' THEN ', ' || quote_literal(layout) END)
		FROM unnest('{snowid_min,snowid_max}'::text[]) f, times, (TABLE layouts UNION ALL SELECT '') l
		UNION ALL
		SELECT format('snowid_encode(%L, %s%s)', ts, parts, CASE WHEN layout <> '' THEN ', ' || quote_literal(layout) END)
		FROM times, unnest('{"0, 0, 0","1, 1, 1","31, 31, 4095","32, 0, 0","0, 32, 0","0, 0, 4096","-1, 0, 0","0, 65535, 255"}'::text[]) parts,
			(TABLE layouts UNION ALL SELECT '') l
		UNION ALL
		SELECT format('%s(%s)', f, id) FROM unnest('{snowid_to_base32,snowid_to_base62}'::text[]) f, keys
		UNION ALL
		SELECT format('snowid_from_base32(%L)', t)
		FROM unnest('{0ARYZVZXW377R,0aryzvzxw377r,oIlYZVZXW377R,0ARY-ZVZX-W377-R,----0ARYZVZXW377R,7ZZZZZZZZZZZZ,8000000000000,
			ZZZZZZZZZZZZZ,0000000000000,UARYZVZXW377R,0ARYuVZXW377R,0ARYZVZXW377,0ARYZVZXW377RR,"",-," 0ARYZVZXW377R",0ARY_VZXW377R,ÄARY}'::text[]) t
		UNION ALL
		SELECT format('snowid_from_base62(%L)', t)
		FROM unnest('{AzL8n0Y58m7,AzL8n0Y58m8,zzzzzzzzzzz,00000000000,0000000000z,0000000000,000000000000,"",0000-000000,ÄÖ,00000000é00}'::text[]) t
		UNION ALL
		SELECT format('snowid_serial(%L, %s, %L%s, check_digits => %L)', code, id, utc_offset,
			CASE WHEN layout <> '' THEN ', ' || quote_literal(layout) END, checked)
		FROM unnest('{"",PAY,ABCDEFGH,09}'::text[]) WITH ORDINALITY c(code, n), keys,
			unnest('{Z,+08,-03:30,-15:59,+1559}'::text[]) WITH ORDINALITY o(utc_offset, m),
			(TABLE layouts UNION ALL SELECT '') l, unnest('{t,f}'::bool[]) checked
		-- each code with each offset by two layouts; by the others each of both
		WHERE n = least(m, 4) OR layout IN ('', 'leaf')
		UNION ALL
		SELECT format('snowid_serial(%L, 5, %L)', code, utc_offset)
		FROM unnest('{pay,ABCDEFGHI,P-Y,Ä,PAY}'::text[]) code, unnest('{Z,z,"",Europe/Berlin,+8,+16,+08:60,"08",+08:,"+ 8",-00:00,0Z}'::text[]) utc_offset
		UNION ALL
		SELECT format('snowid_serial_id(%L, %L, %L, %L, %L)', library.snowid_serial(code, id, o, layout, checked), code, o, layout, checked)
		FROM unnest('{"",PAY}'::text[]) code, keys, unnest('{Z,-03:30}'::text[]) o, unnest('{twitter,sonyflake,pgedge,leaf,baidu}'::text[]) layout,
			unnest('{t,f}'::bool[]) checked
		WHERE id >= 0 AND id < 6e18
		UNION ALL
		SELECT format('snowid_serial_id(%L, %L)', serial, 'PAY')
		FROM unnest('{PAY2022062816074010511260000,PAX2022062816074010511260000,PAY202206281607401051126000,PAY20220628160740105112600000,
			PAY2022062816074010532260000,PAY2022062816074010511329999,PAY2022133816074010511260000,PAY2022063116074010511260000,
			PAY2022062824074010511260000,PAY2022062816604010511260000,PAY0000062816074010511260000,PAY1969062816074010511260000,
			PAY202206281607401051126000X,PAY,"",P,PAY9999123123595999931314095,PAY2022060016074010511260000}'::text[]) serial
		UNION ALL
		SELECT format('snowid_bits(5, %L)', layout)
		FROM unnest('{"",epoch,worker=5,epoch=,epoch=2020,"epoch=2020-01-01T00:00:00Z epoch=2020-01-01T00:00:00Z",
			epoch=2020-02-30T00:00:00Z,epoch=2020-13-01T00:00:00Z,epoch=2020-00-01T00:00:00Z,epoch=0000-01-01T00:00:00Z,
			epoch=2020-01-01T24:00:00Z,epoch=2020-01-01T00:00:60Z,epoch=2020-01-01T00:00:00,epoch=2020-01-01T00:00:00.Z,
			epoch=2020-01-01T00:00:00+16,epoch=2020-01-01T00:00:00+0060,epoch=2020-01-01T00:00:00+0,epoch=2020-01-01T00:00:00+01:,
			epoch=0001-01-01T00:00:00+01,epoch=9999-12-31T23:59:59-01,"epoch=2020-01-01 00:00:00Z",epoch=2020-01-01T00:00:00z,
			"epoch=2020-01-01T00:00:00Z worker=32","epoch=2020-01-01T00:00:00Z worker=-1","epoch=2020-01-01T00:00:00Z worker=",
			"epoch=2020-01-01T00:00:00Z worker=1x","epoch=2020-01-01T00:00:00Z worker=1 worker=1","epoch=2020-01-01T00:00:00Z worker=0031",
			"epoch=2020-01-01T00:00:00Z datacenter=31 worker=31 sequence=1","epoch=2020-01-01T00:00:00Z datacenter=999999999999999999999",
			"epoch=2020-01-01T00:00:00Z\tworker=3\nsequence=4",nonsense,"twitter ","epoch=2020-01-01T00:00:00Z Worker=1"}'::text[]) layout
		UNION ALL
		SELECT unnest(ARRAY['snowid_from_base32(''0ARYZVZXW377R'' COLLATE ci)', 'snowid_from_base62(''0000000000z'' COLLATE ci)',
			'snowid_serial_id(''PAY2022062816074010511260000'' COLLATE ci, ''PAY'', ''Z'', ''twitter'')',
			'snowid_serial_id(''pay2022062816074010511260000'' COLLATE ci, ''PAY'', ''Z'', ''twitter'')',
			'snowid_serial(''PAY'' COLLATE ci, 1541815603606036480, ''Z'', ''twitter'', true)', 'snowid_timestamp(5, ''twitter'' COLLATE ci)',
			'snowid_timestamp(5, ''Epoch=2020-01-01T00:00:00Z'' COLLATE ci)', 'snowid_timestamp(5, ''epoch=2020-01-01T00:00:00Z worker=5'' COLLATE ci)'])
		UNION ALL
		SELECT format(f, text) FROM unnest('{snowid_from_base32(%L),snowid_from_base62(%L),"snowid_bits(5, %L)","snowid_serial(%L, 5)",
			"snowid_serial(''A'', 5, %L)","snowid_serial_id(%L, ''A'')"}'::text[]) f,
			(VALUES (repeat('a', 100)), (repeat('a', 101)), (repeat('Ä', 100)), (repeat('Ä', 150)), (repeat('a ', 100))) v(text)
		UNION ALL VALUES ('snowid_layouts()'), ('snowid_next_batch(-1)'), ('snowid_next_array(-1)'), ('snowid_next_batch(NULL)'),
			('snowid_next_array(NULL)'), ('snowid_next_block(NULL)'), ('snowid_next_block(0)'), ('snowid_next_block(4097)'),
			('snowid_next_block(-9223372036854775808)'), ('snowid_next_batch(0)'), ('snowid_next_array(0)'),
			('snowid_advance(-1)'), ('snowid_advance(NULL)'),
			('snowid_decode(NULL)'), ('snowid_min(NULL)'), ('snowid_serial(NULL, 1)'), ('snowid_from_base32(NULL)');
	EOS
my $count = sql('SELECT count(*) FROM expressions');
cmp_ok($count, '>', 3000,
	"results and errors of $count expressions are the same");
is( sql(q{SELECT expression, m, l FROM expressions, outcome('managed', expression) m, outcome('library', expression) l WHERE m <> l LIMIT 10}
	),
	'',
	'all have the same outcome, errors with detail and hint');

#---- Keys ----

is( sql(q{SELECT count(*), bool_and(k > p OR p IS NULL), count(DISTINCT datacenter_id), min(datacenter_id), max(worker_id), min(worker_id)
	FROM (SELECT k, lag(k) OVER (ORDER BY n) AS p, n FROM (SELECT snowid_next() AS k, n FROM generate_series(1, 20000) n) s) t, snowid_decode(k)}
	),
	'20000|t|1|1|7|7',
	'keys increase and carry the pair');
is( sql(q{SELECT bool_and(k > p OR p IS NULL), count(*), bool_and(worker_id = 7)
	FROM (SELECT k, lag(k) OVER (ORDER BY n) AS p FROM snowid_next_batch(200000) WITH ORDINALITY t(k, n)) s, library.snowid_decode(k)}
	),
	't|200000|t',
	'those of a batch');
is( sql(q{SELECT array_length(a, 1), a = ARRAY(SELECT unnest(a) ORDER BY 1), a[1] < snowid_next() FROM snowid_next_array(1000) a}
	),
	'1000|t|t',
	'those of an array');
is( sql(q{SELECT bool_and(snowid_min(snowid_timestamp(b)) <= b AND snowid_max(snowid_timestamp(b)) >= b + size - 1
		AND (b & 4095) + size <= 4096), bool_and(b > p OR p IS NULL)
	FROM (SELECT b, size, lag(b + size - 1) OVER (ORDER BY n) AS p
		FROM (SELECT n, size, snowid_next_block(size) AS b FROM (SELECT n, 1 + n * 41 % 4096 AS size FROM generate_series(1, 100) n) i) s) t}
	),
	't|t',
	'a block is of one millisecond');
is( sql(q{SELECT k BETWEEN snowid_min(clock_timestamp() - interval '1 min') AND snowid_max(clock_timestamp() + interval '1 s')
	FROM snowid_next() k}),
	't',
	'keys have the time of the clock');
is( sql(q{SELECT snowid_serial_id(s, 'PAY', '+08', true) < snowid_next() FROM snowid_serial('PAY', snowid_next(), '+08', true) s}
	),
	't',
	'the key of a serial is below the next key');

# a block of every key of a millisecond: 6 s of them are more than may be waited for
like(
	sql_error(
		$node,
		'SELECT managed.snowid_advance(managed.snowid_encode(clock_timestamp() + interval $$1 h 1 s$$, 0, 0, 0))'
	),
	qr/^22023: key \d+ leads the clock by 360\d+ ms, more than an hour/,
	'no advance by more than an hour');
is( sql(q{CREATE TABLE far AS SELECT snowid_encode(date_trunc('ms', clock_timestamp()) + interval '500 ms', 31, 31, 17) AS id;
	SELECT snowid_advance(id) FROM far; SELECT snowid_next() > id, snowid_timestamp(snowid_next()) > snowid_timestamp(id) - interval '1 ms' FROM far}
	),
	"\nt|t",
	'keys continue above the key that snowid_advance() was given');
sql('SELECT snowid_setup(2, 8)');
is( sql('SELECT snowid_next() > id, (snowid_decode(snowid_next())).worker_id FROM far'
	),
	't|8',
	'after another set-up keys continue above the last');

#---- Rollback, read-only transactions ----

is( sql(q{BEGIN; CREATE TEMP TABLE t AS SELECT snowid_next() AS id; SELECT id FROM t \gset
	ROLLBACK; SELECT snowid_next() > :id}),
	't',
	'a rollback gives nothing back');
like(
	sql_error(
		$node,
		'SET default_transaction_read_only = on; SELECT managed.snowid_next()'
	),
	qr/^25006:/,
	'not in a read-only transaction');

#---- Privileges, and a caller's search_path ----

query($node, <<~'EOS');
	CREATE ROLE app LOGIN;
	GRANT USAGE ON SCHEMA managed TO app;
	GRANT CREATE ON DATABASE postgres TO app;
	EOS

sub as_app
{
	return sql_error($node, "SET SESSION AUTHORIZATION app;\n$_[0]");
}
foreach my $sql (
	'snowid_setup(1, 1)',
	'snowid_advance(1)',
	'snowid_reserve(1::bigint, false, 0::bigint)',
	'snowid_compile(1, 1)',
	'snowid_pair()')
{
	like(
		as_app("SELECT managed.$sql"),
		qr/^42501: permission denied for function/,
		"$sql is not for everybody");
}
like(
	as_app("SELECT setval('managed.snowid_turn', 1)"),
	qr/^42501: permission denied for sequence/,
	'the sequences are not for everybody');
is( as_app(
		q{SELECT managed.snowid_next(), managed.snowid_next_array(2), managed.snowid_next_block(2) \gset}
	),
	'',
	'keys are for everybody');
is(as_app(<<~'EOS'), '', 'a table of the caller is not read as the owner');
	SET search_path = public;
	CREATE TEMP TABLE pg_database (oid oid, datname name);
	SELECT managed.snowid_next_block(2) \gset
	EOS

#---- As a default, in a generated column and an index, and in a parallel plan ----

is( sql(q{CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowid_next(), n int,
		no text GENERATED ALWAYS AS (snowid_serial('O', id, '+08', 'twitter')) STORED);
	INSERT INTO orders (n) SELECT generate_series(1, 1000);
	CREATE INDEX ON orders (snowid_timestamp(id, 'twitter'));
	SELECT count(DISTINCT id), count(DISTINCT no), bool_and(no = snowid_serial('O', id, '+08')) FROM orders}
	),
	'1000|1000|t',
	'defaults and generated columns');
my $force = query($node,
	"SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')"
);
is( sql(qq{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET $force = on;
	SELECT count(*) FROM orders WHERE snowid_from_base32(snowid_to_base32(id)) = id AND snowid_serial_id(no, 'O', '+08') = id
		AND snowid_encode(snowid_timestamp(id), 2, 8, (snowid_decode(id)).sequence) = id}
	),
	'1000',
	'functions in parallel plans give the same');
like(
	sql(q{SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id >= snowid_min(now() - interval '1 h')}
	),
	qr/Index Cond: \(id >= managed.snowid_min|Index Cond: \(id >= snowid_min/,
	'snowid_min() is a condition of an index');

$node->stop;
done_testing();
