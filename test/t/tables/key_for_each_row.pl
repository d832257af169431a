# Each row gets a key of its own, and keys rise in the order of the rows, wherever
# PostgreSQL evaluates an expression with snowid_next() without a query's planner: COPY,
# rewrites of tables, checks, arguments, logical replication.  There, its support
# function puts another expression in its place, so that COPY inserts many rows at a
# time; with the rights, refusals, plans and dumps that it had before.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster(
	'rows',
	"snowid.worker_id = 1\nwal_level = logical",
	allows_streaming => 1);
start_and_open($node);
query($node, "CREATE EXTENSION $_") foreach qw(pg_walinspect postgres_fdw);

# A later major is not answered: its COPY is slower, and all else is the same.
my $is_answered = $node->pg_version->major <= 19;

# Several statements, each a transaction of its own, in one session.
sub sql
{
	return query($node, join("\n", map { "$_;" } @_));
}

# The rows of a table, numbered by n: count, keys that differ, whether they rise.
sub keys_of
{
	my ($table, $key, $where) = @_;
	$key //= 'id';
	return query($where // $node, <<~EOF);
		SELECT count(*), count(DISTINCT $key), bool_and(rises)
		FROM (SELECT *, $key > lag($key) OVER (ORDER BY n) OR n = 1 AS rises FROM $table) rows
		EOF
}

# How many records of the WAL insert many rows each, from there on.
sub inserts_of_many
{
	return query($node, <<~EOF);
		SELECT count(*) FROM pg_get_wal_records_info('$_[0]', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'Heap2' AND record_type LIKE 'MULTI_INSERT%'
		EOF
}

# Creates a table, loads 500 rows into it, and checks that their keys rise; at once, if
# PostgreSQL lets the table take many rows at a time.
sub copies
{
	my ($name, $at_once, $create, $key) = @_;

	sql('DROP TABLE IF EXISTS t', $create);
	my $lsn = query($node, 'SELECT pg_current_wal_insert_lsn()');
	sql('SET synchronous_commit = on', q{COPY t (n) FROM PROGRAM 'seq 500'});
	is(keys_of('t', $key),
		'500|500|t', "COPY into $name: a key for each row, in their order");
  SKIP:
	{
		skip 'the support function does not know this major', 1
		  if !$is_answered;
		cmp_ok(inserts_of_many($lsn), $at_once ? '>' : '==', 0,
			"COPY into $name inserts "
			  . ($at_once ? 'many rows at a time' : 'row by row'));
	}
	return;
}

#---- COPY ----

copies('a plain table',
	1, 'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int)');
copies('a table with a primary key',
	1, 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowid_next(), n int)');
copies('a column of type snowid',
	1, 'CREATE TABLE t (id snowid PRIMARY KEY DEFAULT snowid_next(), n int)');
copies(
	'a column of text',
	1,
	q{CREATE TABLE t (id text COLLATE "C" DEFAULT 'x' || snowid_next(), n int)}
);
copies(
	'several key columns',
	1,
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int, b snowid DEFAULT snowid_next(), c bigint NOT NULL DEFAULT snowid_next())'
);
is( query(
		$node,
		'SELECT bool_and(id < b AND b < c AND (id > before OR n = 1)) FROM (SELECT *, lag(c) OVER (ORDER BY n) AS before FROM t) rows'
	),
	't',
	'keys of several columns rise in a row, and from row to row');

sql('CREATE DOMAIN order_id AS bigint CHECK (VALUE > 0)',
	'CREATE DOMAIN own_key AS snowid DEFAULT snowid_next() CHECK (VALUE > 0::bigint)'
);
copies('a domain', 1,
	'CREATE TABLE t (id order_id DEFAULT snowid_next(), n int)');
copies('a domain with the default', 1, 'CREATE TABLE t (id own_key, n int)');

copies(
	'a table with a CHECK that makes a key',
	1,
	'CREATE TABLE t (id bigint DEFAULT snowid_next() CHECK (id < snowid_next()), n int)'
);
copies(
	'a table with a generated column',
	1,
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int, m bigint GENERATED ALWAYS AS (id + 1) STORED)'
);
copies(
	'a table with another volatile default',
	0,
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int, r float8 DEFAULT random())'
);
copies(
	'partitions by a number', 1,
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int) PARTITION BY RANGE (n);
	CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (200);
	CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (200) TO (501)');
copies(
	'partitions by the key', 1,
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int) PARTITION BY HASH (id);
	CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1)');

sql('CREATE TABLE seen (id bigint, n int)', q{
	CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO seen VALUES (NEW.id, NEW.n);
		RETURN NEW;
	END $$}, q{
	CREATE FUNCTION see_all() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO seen SELECT * FROM new_rows;
		RETURN NULL;
	END $$});
foreach my $trigger (
	[
		'BEFORE ROW', 0,
		'BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION see()'
	],
	[
		'AFTER STATEMENT',
		1,
		'AFTER INSERT ON t REFERENCING NEW TABLE AS new_rows EXECUTE FUNCTION see_all()'
	])
{
	my ($when, $at_once, $rest) = @$trigger;
	sql('TRUNCATE seen');
	copies(
		"a table with a trigger $when", $at_once,
		"CREATE TABLE t (id bigint DEFAULT snowid_next(), n int);
		CREATE TRIGGER see $rest");
	is(query($node, 'SELECT count(*) FROM t JOIN seen USING (id, n)'),
		'500', "a trigger $when sees the keys that the table has");
}

my ($host, $port) = ($node->host, $node->port);
sql("CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres')",
	'CREATE USER MAPPING FOR PUBLIC SERVER here',
	'CREATE TABLE far (id bigint, n int)');
foreach my $batch (1, 100)
{
	sql('DROP TABLE IF EXISTS t',
		'TRUNCATE far',
		"CREATE FOREIGN TABLE t_far (id bigint DEFAULT snowid_next(), n int) SERVER here OPTIONS (table_name 'far', batch_size '$batch')",
		q{COPY t_far (n) FROM PROGRAM 'seq 500'});
	is(keys_of('far'), '500|500|t',
		"COPY into a foreign table, $batch rows at a time: a key for each row, in their order"
	);
	sql('DROP FOREIGN TABLE t_far');
}
sql('TRUNCATE far',
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int) PARTITION BY RANGE (n)',
	'CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (200)',
	q{CREATE FOREIGN TABLE t2 PARTITION OF t FOR VALUES FROM (200) TO (501) SERVER here OPTIONS (table_name 'far', batch_size '100')},
	q{COPY t (n) FROM PROGRAM 'seq 500'});
is(keys_of('t'), '500|500|t',
	'COPY into partitions here and elsewhere: a key for each row, in their order'
);

sql('DROP TABLE t',
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int)',
	q{COPY t (n) FROM PROGRAM 'seq 500' WHERE snowid_next() > 0});
is(keys_of('t'), '500|500|t', 'COPY ... WHERE makes a key for each row');
if ($node->pg_version->major >= 16)
{
	sql('TRUNCATE t',
		q{COPY t (n, id) FROM PROGRAM 'seq 500 | sed "s/\$/,D/"' (FORMAT csv, DEFAULT 'D')}
	);
	is(keys_of('t'), '500|500|t',
		'COPY with the marks of defaults makes a key for each');
}

#---- Rewrites ----

# 300 rows, then the command.
sub altered
{
	my ($name, $command, $key) = @_;
	sql('DROP TABLE IF EXISTS t',
		'CREATE TABLE t AS SELECT n, 0 AS other FROM generate_series(1, 300) n',
		$command);
	is(keys_of('t', $key),
		'300|300|t', "$name: a key for each row, in their order");
	return;
}

altered('ADD COLUMN', 'ALTER TABLE t ADD id bigint DEFAULT snowid_next()');
altered('ADD COLUMN PRIMARY KEY',
	'ALTER TABLE t ADD id snowid PRIMARY KEY DEFAULT snowid_next()');
altered('ADD COLUMN of a domain',
	'ALTER TABLE t ADD id order_id DEFAULT snowid_next()');
altered('ADD COLUMN of a domain with the default',
	'ALTER TABLE t ADD id own_key');
altered('ADD COLUMN with an expression',
	q{ALTER TABLE t ADD id text COLLATE "C" DEFAULT 'x' || snowid_next()});
altered(
	'ADD COLUMN with a CHECK that makes a key',
	'ALTER TABLE t ADD id bigint DEFAULT snowid_next() CHECK (id < snowid_next())'
);
altered('ALTER TYPE ... USING',
	'ALTER TABLE t ALTER other TYPE snowid USING snowid_next() + other',
	'other');
sql('DROP TABLE t',
	'CREATE TABLE t (n int) PARTITION BY RANGE (n)',
	'CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (100)',
	'CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (100) TO (301)',
	'INSERT INTO t SELECT generate_series(1, 300)',
	'ALTER TABLE t ADD id bigint DEFAULT snowid_next()');
is(query($node, 'SELECT count(*), count(DISTINCT id) FROM t'),
	'300|300', 'ADD COLUMN to a partitioned table: a key for each row');

#---- Refused as before ----

sql('CREATE TABLE r (id bigint, n int)');
foreach my $refused (
	[ 'an index', 'CREATE INDEX ON r ((id + snowid_next()))' ],
	[
		'a partition key',
		'CREATE TABLE p (id bigint) PARTITION BY RANGE ((id + snowid_next()))'
	],
	[
		'a row filter',
		'CREATE PUBLICATION filtered FOR TABLE r WHERE (id < snowid_next())'
	])
{
	my ($where, $statement) = @$refused;
	like(
		sql_error($node, $statement),
		qr/^(?:42P17|42P16|0A000|22023): /,
		"$where refuses snowid_next()");
}

#---- Once for each evaluation ----

is( sql('PREPARE two(bigint, bigint) AS SELECT $1 < $2',
		map { 'EXECUTE two(snowid_next(), snowid_next())' } 1,
		2),
	"t\nt",
	'each argument of EXECUTE gets a key of its own');
sql('CREATE TABLE called (id bigint, n serial)',
	'CREATE PROCEDURE call_it(id bigint, later bigint) BEGIN ATOMIC INSERT INTO called VALUES (id), (later); END',
	'CALL call_it(snowid_next(), snowid_next())',
	'CALL call_it(snowid_next(), snowid_next())');
is(keys_of('called'), '4|4|t', 'each argument of CALL gets a key of its own');
sql('CREATE TABLE p (id bigint) PARTITION BY RANGE (id)',
	'CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (snowid_next())',
	'CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (snowid_next()) TO (snowid_next())'
);
is( query(
		$node,
		q{SELECT bool_and(b[1]::bigint < b[2]::bigint) FROM pg_class, regexp_match(pg_get_expr(relpartbound, oid), '(\d+).*?(\d+)') b WHERE relname ~ '^p[12]$'}
	),
	't',
	'each bound of a partition gets a key of its own');
sql('CREATE DOMAIN past AS bigint CHECK (VALUE < snowid_next())',
	'CREATE TABLE times (id past DEFAULT snowid_next(), n serial)',
	'INSERT INTO times SELECT snowid_next() FROM generate_series(1, 100)',
	q{DO $$ BEGIN FOR i IN 1..100 LOOP INSERT INTO times VALUES (snowid_next()); END LOOP; END $$}
);
is(keys_of('times'), '200|200|t',
	'the CHECK of a domain makes a key each time');

#---- The plans of queries ----

sql('CREATE TABLE source AS SELECT generate_series(1, 300) AS n',
	'DROP TABLE t',
	'CREATE TABLE t (id bigint DEFAULT snowid_next(), n int)');
my $without_support =
  q{CREATE OR REPLACE FUNCTION snowid_next() RETURNS bigint AS '$libdir/snowid' LANGUAGE C VOLATILE PARALLEL RESTRICTED};
foreach my $query (
	'SELECT snowid_next()',
	'SELECT snowid_next(), n FROM source WHERE n < snowid_next()',
	'SELECT * FROM source WHERE n = (SELECT snowid_next())',
	'INSERT INTO t (n) SELECT n FROM source',
	'INSERT INTO t (n) VALUES (1), (2)',
	'CREATE TABLE made AS SELECT snowid_next() AS id, n FROM source',
	'MERGE INTO t USING source s ON t.n = s.n WHEN NOT MATCHED THEN INSERT (n) VALUES (s.n)',
	'UPDATE t SET id = DEFAULT')
{
	my $explain = "EXPLAIN (VERBOSE, COSTS OFF) $query";
	my $plan    = query($node, $explain);
	is(sql('BEGIN', $without_support, $explain, 'ROLLBACK'),
		$plan, "the plan is that of a function without support: $query");
}
sql('CREATE TABLE made AS SELECT snowid_next() AS id, n FROM source',
	'INSERT INTO t (n) SELECT n FROM source ORDER BY n');
is(keys_of($_), '300|300|t', "$_, by a query: a key for each row")
  foreach qw(made t);

sql('TRUNCATE t',
	'MERGE INTO t USING source s ON t.n = s.n WHEN NOT MATCHED THEN INSERT (n) VALUES (s.n)'
);
is(query($node, 'SELECT count(*), count(DISTINCT id) FROM t'),
	'300|300', 'MERGE: a key for each row');

#---- Rights ----

sql('CREATE ROLE clerk',
	'TRUNCATE t, times',
	'GRANT ALL ON t, times TO clerk',
	'GRANT CREATE, USAGE ON SCHEMA public TO clerk',
	'GRANT pg_execute_server_program TO clerk',
	'REVOKE ALL ON FUNCTION snowid_next() FROM PUBLIC',
	'SET ROLE clerk',
	'CREATE TABLE of_clerk (n int)');
my $denied = qr/^42501: permission denied for function snowid_next\n/;
foreach my $statement (
	q{COPY t (n) FROM PROGRAM 'seq 5'},
	q{COPY t (n) FROM PROGRAM 'true'},
	'ALTER TABLE of_clerk ADD id bigint DEFAULT snowid_next()',
	'INSERT INTO t (n) VALUES (1)')
{
	like(sql_error($node, "SET ROLE clerk; $statement"),
		$denied, "no right, no key: $statement");
}
like(sql_error($node, 'SELECT 1::past; SET ROLE clerk; SELECT 1::past'),
	$denied, 'no right, no key: a CHECK that was prepared for another role');
sql('GRANT EXECUTE ON FUNCTION snowid_next() TO clerk',
	'REVOKE ALL ON FUNCTION snowid_next_support(internal) FROM PUBLIC');
is(sql_error($node, q{SET ROLE clerk; COPY t (n) FROM PROGRAM 'seq 500'}),
	'', 'a role needs the right to call snowid_next() only');
is(keys_of('t'), '500|500|t', 'it gets a key for each row');
sql('GRANT EXECUTE ON FUNCTION snowid_next_support(internal) TO PUBLIC');
is( sql_error(
		$node,
		q{SET ROLE clerk; SELECT 1::past; ALTER TABLE of_clerk ADD id bigint DEFAULT snowid_next()}
	),
	'',
	'a role with both rights may do all of it');

# later minor releases refuse the cast, earlier ones the value
like(
	sql_error($node, "SELECT snowid_next_support($_)"),
	qr/^(?:42883: function \S+ does not exist|42846: cannot cast|0A000: cannot accept a value of type internal)/,
	"nobody can call the support function: $_"
) foreach qw(NULL NULL::internal 0 snowid_next()), q('1');

#---- What is stored is what was written ----

is( query(
		$node,
		q{SELECT string_agg(DISTINCT pg_get_expr(adbin, adrelid), ' ') FROM pg_attrdef WHERE adrelid IN ('t'::regclass, 'of_clerk'::regclass)}
	),
	'snowid_next()',
	'defaults are stored as they were written');
my ($dump) =
  run_command([ 'pg_dump', '-s', $node->connstr('postgres') ]);
ok($dump =~ /DEFAULT \S*snowid_next\(\)/ && $dump !~ /COALESCE|_support/,
	'a dump has them as they were written');

#---- Logical replication ----

my $other = snowid_cluster('other', 'snowid.worker_id = 2');
start_and_open($other);
sql('CREATE TABLE orders (n int PRIMARY KEY)',
	'CREATE PUBLICATION orders FOR TABLE orders',
	'INSERT INTO orders SELECT generate_series(1, 100)');
query($other,
	'CREATE TABLE orders (n int PRIMARY KEY, id bigint DEFAULT snowid_next(), b snowid DEFAULT snowid_next() CHECK (b < snowid_next()))'
);
query($other,
	"CREATE SUBSCRIPTION orders CONNECTION '${\$node->connstr} dbname=postgres' PUBLICATION orders"
);
$other->wait_for_subscription_sync
  if $other->can('wait_for_subscription_sync');
wait_for($other, 'SELECT count(*) = 100 FROM orders');
sql('INSERT INTO orders SELECT generate_series(101, 200)',
	map { "INSERT INTO orders VALUES ($_)" } 201 .. 220);
wait_for($other, 'SELECT count(*) = 220 FROM orders');
is(keys_of('orders', 'id', $other),
	'220|220|t', 'a subscription makes a key for each row, in their order');
is(query($other, 'SELECT bool_and(id < b) FROM orders'),
	't', 'it makes a key for each column of a row');
query($other, 'DROP SUBSCRIPTION orders');

$_->stop foreach $node, $other;

done_testing();
