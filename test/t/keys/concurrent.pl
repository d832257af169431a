# Keys of many sessions at once, in several databases, one by one, in batches and under
# parallel queries: none twice, and all in the order in which they were made.  No caller
# waits while the layout has units left.
#
# Keys that are made at random moments are evenly spread over id % n, so that they shard
# well; with snowid.sequence_start = 'zero' they are not, and the sequence restarts at 0
# each millisecond.
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

create_extension($node);
server_is_open($node);

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
		$node, $db, "-c 7 -j 1 -M prepared " . ($small ? '-t 100' : '-T 2'),
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
		'-c 2 -j 1 ' . ($small ? '-t 8' : '-T 2'),
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

# Callers wait for units that lead the clock by max_lead, 1 s.  (They also wait for a keeper
# that gets no processor, but that is the machine's fault.)
is( $node->safe_psql(
		'a',
		"SELECT count(*) FROM made WHERE snowid_timestamp(key) > ended + interval '500 ms'"
	),
	'0',
	'no caller waited for a unit: callers never wanted more keys than the layout numbers'
);
is(status($node, 'errors'), '0', 'no call of 27 sessions was refused');

#---- 32 sessions, each call timed ----

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
my $waits = status($node, 'waits');
my $run   = start_pgbench(
	$node, 'postgres', '-c 32 -j 1 -t 375 -R 8000 -M prepared',
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
cmp_ok(status($node, 'waits') - $waits,
	'<', 100, 'the generator makes callers wait after a pause only')
  unless $small;

#---- Keys at random moments ----

my @powers = map { 2**$_ } 1 .. 10;
my @others = (3, 7, 10, 12, 100, 365, 1000, 1021);

# Keys, each made by a statement of its own at a random moment: pgbench -R draws
# exponential pauses.
sub make_keys
{
	my ($node, $count, $rate) = @_;
	my $each = $count / 4;

	$node->safe_psql('postgres', <<~EOF);
		CREATE EXTENSION IF NOT EXISTS snowid;
		DROP TABLE IF EXISTS made;
		CREATE UNLOGGED TABLE made (key bigint UNIQUE)
		EOF
	my $run = start_pgbench(
		$node, 'postgres',
		"-c 4 -j 2 -t $each -R $rate -M prepared",
		made => 'INSERT INTO made SELECT snowid_next();');
	stop_pgbench($run, 'finish') or die $run->{out};
	return;
}

# How far the remainders of the keys by n are from an even spread: chi-square,
# as a standard normal deviate (Wilson and Hilferty).  Of an even spread it
# exceeds 6 with p < 1e-9, for one of the divisors below with p < 2e-8.
sub unevenness
{
	my ($node, $n) = @_;
	my $chi2 = $node->safe_psql('postgres', <<~EOF);
		SELECT sum((coalesce(found, 0) - expected) ^ 2 / expected)
		FROM generate_series(0, $n - 1) r
		CROSS JOIN (SELECT count(*) / ${n}::float AS expected FROM made) e
		LEFT JOIN (SELECT key % $n AS r, count(*) AS found FROM made GROUP BY 1) f
			USING (r)
		EOF
	my $v = 2 / (9 * ($n - 1));
	return (($chi2 / ($n - 1))**(1 / 3) - 1 + $v) / sqrt($v);
}

make_keys($node, 20000, 5000);
foreach my $n (@powers, @others)
{
	my $z = unevenness($node, $n);
	ok($z < 6, "keys at random moments are evenly spread over id % $n")
	  or diag("unevenness $z");
}

configure($node, "snowid.worker_id = 1\nsnowid.sequence_start = zero");
$node->restart;

make_keys($node, 5000, 1000);
is( $node->safe_psql('postgres', <<~EOF), 'f|t',
		SELECT bool_or(last <> count - 1 OR first <> 0), count(*) > 100 FROM (
			SELECT min(sequence) AS first, max(sequence) AS last, count(*)
			FROM made, snowid_decode(key) GROUP BY created_at) ms
		EOF
	'sequence_start zero: the sequence of each millisecond starts at 0 and has no gap'
);

# a key each of some ms
my $session = $node->background_psql('postgres');
my $ms      = (time + 10) * 1000;
$session->query_safe('TRUNCATE made');
foreach (1 .. 250)
{
	stop_clock($node, $ms += 1 + int(rand(5)));
	$session->query_safe('INSERT INTO made SELECT snowid_next()');
}
$session->quit;
set_skew($node, 20);
foreach my $n (@powers)
{
	my $z = unevenness($node, $n);
	ok($z > 10, "sequence_start zero: they are not, over id % $n")
	  or diag("unevenness $z");
}
is( $node->safe_psql('postgres', <<~EOF), '0|t|t',
		SELECT min(sequence), bool_and(sequence = (i - 1) % 4096),
			max(created_at) - min(created_at) = interval '2 ms'
		FROM snowid_next_batch(10000) WITH ORDINALITY b (key, i), snowid_decode(key)
		EOF
	'sequence_start zero: a burst is numbered from 0 to 4095 in each millisecond'
);

$node->stop;

done_testing();
