# Keys of many sessions at once, in several databases, one by one, in batches
# and under parallel queries: none twice, and all in the order in which they
# were made.  No caller waits while the layout has units left.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('concurrent', <<~EOF);
	snowid.worker_id = 1
	max_connections = 60
	max_worker_processes = 16
	max_parallel_workers = 8
	EOF
$node->start;

# A call makes count keys in one of three ways, and notes when it began and when
# it had them.
my $schema = <<~EOF;
	CREATE EXTENSION snowid;
	CREATE UNLOGGED TABLE made (key bigint UNIQUE, client text, call int,
		began timestamptz, ended timestamptz);
	CREATE TABLE many AS SELECT generate_series(1, 500) AS n;
	ALTER TABLE many SET (parallel_workers = 2);
	CREATE FUNCTION make_parallel() RETURNS SETOF bigint LANGUAGE plpgsql
		AS 'BEGIN RETURN QUERY SELECT snowid_next() FROM many; END';
	CREATE FUNCTION make(client text, call int, how text, count int)
	RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
		began timestamptz := clock_timestamp();
		ended timestamptz;
		keys bigint[];
	BEGIN
		IF how = 'single' THEN
			keys := ARRAY[snowid_next()];
		ELSIF how = 'singles' THEN
			keys := ARRAY(SELECT snowid_next() FROM generate_series(1, count));
		ELSIF how = 'batch' THEN
			keys := ARRAY(SELECT snowid_next_batch(count));
		ELSE
			keys := ARRAY(SELECT make_parallel());
		END IF;
		ended := clock_timestamp();
		INSERT INTO made SELECT unnest(keys), client, call, began, ended;
	END \$\$;
	EOF

foreach my $db (qw(a b c))
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db,        $schema);
}

query($node, 'CREATE EXTENSION snowid');
server_is_open($node);
my $waits = status($node, 'waits');

# The settings that make a session's queries parallel, cost or no cost.
my $force = $node->safe_psql('postgres',
	"SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')"
);
my $parallel = "SET $force = on; SET parallel_setup_cost = 0;"
  . ' SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;';
SKIP:
{
	skip('auto_explain is not installed', 1)
	  if sql_error($node, "LOAD 'auto_explain'") ne '';

	my (undef, undef, $plan) = $node->psql('a', <<~EOF);
		LOAD 'auto_explain';
		SET auto_explain.log_min_duration = 0;
		SET auto_explain.log_analyze = on;
		SET auto_explain.log_nested_statements = on;
		SET client_min_messages = log;
		$parallel
		SELECT make('plan', 1, 'parallel', 500);
		EOF
	like(
		$plan,
		qr/Workers Launched: [1-9]/,
		'a query that makes keys runs in parallel');
	$node->safe_psql('a', 'TRUNCATE made');
}

# Each database has sessions that make single keys, batches of any size, and
# two sessions of parallel queries: 27 sessions in all.
# With assertions fewer keys, for they are made again without them.
my $small = has_assertions();
my @runs;
foreach my $db (qw(a b c))
{
	push @runs,
	  start_pgbench(
		$node, $db, "-c 7 -j 1 -M prepared " . ($small ? '-t 100' : '-T 3'),
		'single@10' => "SELECT make('$db' || :client_id, :n, 'single', 1);",
		'singles@3' => "\\set count random(2, 300)\n"
		  . "SELECT make('$db' || :client_id, :n, 'singles', :count);",
		'batch@2' => "\\set count random(1, 300)\n"
		  . "SELECT make('$db' || :client_id, :n, 'batch', :count);",
		'large@1' => "\\set count random_exponential(1, 20000, 40)\n"
		  . "SELECT make('$db' || :client_id, :n, 'batch', :count);");
	push @runs,
	  start_pgbench(
		$node,
		$db,
		'-c 2 -j 1 ' . ($small ? '-t 8' : '-T 3'),
		parallel =>
		  "${parallel}SELECT make('$db.parallel' || :client_id, :n, 'parallel', 500);"
	  );
}
my $done = 0;
foreach my $run (@runs)
{
	$done++ if stop_pgbench($run, 'finish');
	note $run->{out};
}
is($done, 6, 'no insert of 27 sessions in 3 databases met a key twice');

# All in one table, whose UNIQUE index is the proof over all databases.
foreach my $db (qw(b c))
{
	my $file = $node->basedir . "/$db.made";
	$node->safe_psql($db, "COPY made TO '$file'");
	my ($rc, $out, $err) = $node->psql('a', "COPY made FROM '$file'");
	is($err, '', "no key of database $db was made in another one, too");
	unlink $file;
}
note 'calls and keys: ',
  $node->safe_psql('a', 'SELECT count(DISTINCT began), count(*) FROM made');
is( $node->safe_psql(
		'a',
		"SELECT count(DISTINCT client), count(*) > 10000, min(key) > 0 FROM made"
	),
	'27|t|t',
	'all sessions made keys');
is( $node->safe_psql('a',
		<<~EOF), '0', "each session's keys increase from call to call");
	SELECT count(*) FROM (
		SELECT low, lag(high) OVER (PARTITION BY client ORDER BY call) AS before
		FROM (SELECT client, call, min(key) AS low, max(key) AS high
			FROM made GROUP BY 1, 2) calls) c
	WHERE low <= before
	EOF
is(out_of_order($node, 'a', 'began', 'ended'),
	'0', 'no key is below one that was returned before its call began');
is( status($node, 'waits || \' \' || errors'),
	"$waits 0",
	'no caller waited: callers never wanted more keys than the layout numbers'
);

# 32 sessions below the cap, each call timed.  How long a session was off the
# processor counts here too, but it does for nextval() as well, beside it.
query($node, <<~EOF);
	CREATE UNLOGGED TABLE took (what text, ms float8);
	CREATE SEQUENCE s;
	CREATE FUNCTION take(what text) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
		began timestamptz := clock_timestamp();
		key bigint := CASE what WHEN 'snowid' THEN snowid_next() ELSE nextval('s') END;
		ended timestamptz := clock_timestamp();
	BEGIN
		INSERT INTO took VALUES (what, extract(epoch FROM ended - began) * 1000);
	END \$\$;
	EOF
my $run = start_pgbench(
	$node, 'postgres', '-c 32 -j 1 -T 3 -R 8000 -M prepared',
	snowid  => "SELECT take('snowid');",
	nextval => "SELECT take('nextval');");
stop_pgbench($run, 'finish') or diag($run->{out});
my %took = map { my ($what, @ms) = split /\|/; $what => \@ms } split /\n/,
  query(
	$node,
	'SELECT what, count(*), count(*) FILTER (WHERE ms > 100), max(ms) FROM took GROUP BY what'
  );
my ($calls, $slow, $most) = @{ $took{snowid} };
diag(
	"32 sessions, $calls calls: the slowest took $most ms, and of nextval() $took{nextval}[2] ms"
);
cmp_ok($calls, '>', 100, '32 sessions made keys');
ok( $slow <= $calls / 5000 + 3 * $took{nextval}[1] && $most < 30_000,
	'calls of 32 sessions that take over 100 ms below the cap are as rare as those of nextval()'
  )
  or diag(
	"$slow of $calls calls took over 100 ms, and $took{nextval}[1] of nextval()"
  );
is(status($node, 'waits'), $waits, 'the generator makes no caller wait');

$node->stop;
done_testing();
