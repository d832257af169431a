# The clock steps back and forth under running sessions, and a burst outruns the
# format: keys stay in order, never lead the clock by more than max_drift, and
# callers wait, or are told at once, as max_wait has it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

my $clock = 0;
my $node = snowid_cluster('clock', 'snowid.worker_id = 1');
$node->start;

sub query
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# What $sql gives, polled until it is true.
sub poll
{
	my ($sql) = @_;
	$node->poll_query_until('postgres', $sql) or die "never: $sql";
	return;
}

sub status
{
	my ($column) = @_;
	return query("SELECT $column FROM snowid_status()");
}

# Steps the clock.
sub step
{
	my ($seconds) = @_;
	$clock += $seconds;
	set_skew($node, $clock);
	return;
}

# Steps it back and waits until the worker has logged it: true where that was
# once, with the size that it read off two clocks.
sub step_back_is_logged
{
	my ($ms) = @_;
	my $from = -s $node->logfile;

	step(-$ms / 1000);
	$node->wait_for_log(qr/the clock was set back/, $from);
	my @sizes = slurp_file($node->logfile, $from) =~ /the clock was set back by (\d+) ms/g;
	note "logged: @sizes";
	return @sizes == 1 && abs($sizes[0] - $ms) <= 2;
}

# Settings by reload, in force for every new session when this returns.
sub settings
{
	my ($max_drift, $max_wait) = @_;
	configure($node, <<~EOF);
		snowid.worker_id = 1
		snowid.max_drift = $max_drift
		snowid.max_wait = $max_wait
		EOF
	$node->reload;
	poll("SELECT current_setting('snowid.max_wait') = '$max_wait' AND current_setting('snowid.max_drift') = '$max_drift'");
	return;
}

# Each call notes what it got: key, or error; the server's (skewed) clock before
# and after; and numbers of a sequence, which order the calls whatever the clock
# does.
query(<<~EOF);
	CREATE EXTENSION snowid;
	CREATE UNLOGGED SEQUENCE tick;
	CREATE UNLOGGED TABLE made (client int, began bigint, ended bigint,
		before timestamptz, after timestamptz, key bigint UNIQUE, problem text);
	CREATE FUNCTION make(client int) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
		began bigint := nextval('tick');
		before timestamptz := clock_timestamp();
		key bigint;
		problem text;
	BEGIN
		BEGIN
			key := snowid_next();
		EXCEPTION WHEN system_error OR object_not_in_prerequisite_state THEN
			problem := sqlstate || ' ' || sqlerrm;
		END;
		INSERT INTO made
		SELECT client, began, nextval('tick'), before, clock_timestamp(), key, problem;
	END \$\$;
	EOF
poll('SELECT is_open FROM snowid_status()');

sub start_making
{
	my ($rate) = @_;
	my $run = start_pgbench($node, 'postgres',
		'-c 4 -j 1 -T 600 -M prepared' . ($rate ? " -R $rate" : ''),
		make => 'SELECT make(:client_id);');
	poll('SELECT count(DISTINCT client) = 4 FROM made');
	return $run;
}

# What must hold for all that was made, whatever the clock did; empties the
# table.  Calls during which the clock was set back say nothing about the lead:
# one a session and step at most.
sub check_made
{
	my ($what, $max_drift, $steps) = @_;

	is(out_of_order($node, 'postgres', 'began', 'ended'),
		'0', "$what: keys strictly increase in the order in which they were made");
	is(query("SELECT count(*) FROM made WHERE problem !~ '^58000 the next key would lead the clock by \\d+ ms\$'"),
		'0', "$what: there is no other error than the lead");
	is(query("SELECT count(*) FROM made WHERE before <= after
			AND snowid_timestamp(key) > after + interval '$max_drift'"),
		'0', "$what: no key leads the clock by more than $max_drift");
	cmp_ok(query('SELECT count(*) FROM made WHERE before > after'),
		'<=', 4 * $steps, "$what: which was checked for all other calls");
	query('TRUNCATE made');
	return;
}

#---- Steps of the clock, with max_drift = 1s and max_wait = 5s ----

my $run = start_making(3000);
my $waits = status('waits');

ok(step_back_is_logged(50), 'a step of -50 ms is logged once, with its size');
is(status('waits'), $waits, 'nobody waits after a step of -50 ms');

# 1.5 s back is 0.5 s more than keys may lead
ok(step_back_is_logged(1500), 'a step of -1.5 s is logged once, with its size');
my $after = query('SELECT max(began) FROM made');
poll("SELECT count(DISTINCT client) = 4 FROM made WHERE began > $after");
my $longest = query("SELECT extract(epoch FROM max(after - before)) * 1000 FROM made");
note "longest wait: $longest ms";
ok($longest > 400 && $longest < 1000,
	'after a step of -1.5 s callers wait for 0.5 s and go on')
  or diag("the longest wait took $longest ms");
cmp_ok(status('waits'), '>', $waits, 'the status counts the waits');
cmp_ok(status('wait_ms'), '>=', 400, 'and their time');
is(query('SELECT count(*) FROM made WHERE problem IS NOT NULL'),
	'0', 'without an error');
poll('SELECT lead_ms < 100 FROM snowid_status()');

# 10 s back is 9 s more, and max_wait is 5 s
ok(step_back_is_logged(10000), 'a step of -10 s is logged once, with its size');
poll('SELECT count(*) > 100 FROM made WHERE problem IS NOT NULL');
my $last = status('last_key');
my $began = time;
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^58000: the next key would lead the clock by (?:9|10)\d\d\d ms\nDETAIL:  snowid.max_drift allows 1000 ms, and to wait \d+ ms for the clock is more than snowid.max_wait, 5000 ms.\nHINT:  The clock was set back/,
	'after a step of -10 s callers get an error that says by how much, and a hint');
cmp_ok(time - $began, '<', 1, 'at once');
is(query("SELECT count(*) FROM made WHERE problem IS NOT NULL AND after - before > interval '0.5 s'"),
	'0', 'each of them');
like(
	sql_error($node, 'SELECT snowid_next_batch(1000)'),
	qr/^58000: the next key would lead the clock/,
	'a batch, too');
is(status('last_key'), $last, 'the refused callers used no number up');
cmp_ok(status('errors'), '>', 100, 'the status counts the errors');
step(10);
$after = query('SELECT max(ended) FROM made');
poll("SELECT count(DISTINCT client) = 4 FROM made WHERE key > $last AND began > $after");
is(query("SELECT count(*) FROM made WHERE began > $after AND problem IS NOT NULL"),
	'0', 'when the clock is back, all go on');
is(status('clock_steps_back'), 3, 'the status counts the steps back');

step(1.55);
step(1800);
poll("SELECT snowid_timestamp(max(key)) > clock_timestamp() - interval '5 s' FROM made");
pass('after a step of half an hour ahead keys follow the clock');
ok(stop_pgbench($run), 'no session failed') or diag($run->{out});
check_made('steps', '1 s', 3);

#---- Waits can be ended ----

# A session that waits, about 4 s long after a step of -5 s.
sub start_waiting
{
	my ($sql) = @_;
	my $session = { out => '' };
	$session->{handle} = IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d',
			$node->connstr('postgres'), '-c', "SET application_name = waiting;\n$sql"
		],
		'<', '/dev/null', '>&', \$session->{out},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $session;
}
my $is_waiting = q(SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'waiting'
	AND wait_event_type = 'Extension' AND state = 'active');

query('SELECT snowid_next()');
step(-5.5);
my $session = start_waiting('SELECT snowid_next()');
poll($is_waiting);
pass('a wait shows as a wait event in pg_stat_activity');
$began = time;
query(q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'waiting'));
$session->{handle}->finish;
like($session->{out}, qr/57014: canceling statement due to user request/,
	'a waiting caller can be cancelled');
cmp_ok(time - $began, '<', 1, 'at once');

step(5.5);
query('SELECT snowid_next()');
step(-5.5);
$began = time;
like(
	sql_error($node, "SET statement_timeout = '200ms'; SELECT snowid_next_batch(10)"),
	qr/^57014: canceling statement due to statement timeout/,
	'statement_timeout ends a wait');
cmp_ok(time - $began, '<', 2, 'in time');

$session = start_waiting('SELECT snowid_next() > 0');
poll($is_waiting);
$began = time;
step(5.5);
$session->{handle}->finish;
is($session->{out}, "t\n", 'a waiting caller goes on when the clock is set right');
cmp_ok(time - $began, '<', 2, 'within a second');

query('SELECT snowid_next()');
step(-5);
$session = start_waiting('SELECT snowid_next()');
poll($is_waiting);
step(-20);
$session->{handle}->finish;
like($session->{out}, qr/58000: the next key would lead the clock by 2\d\d\d\d ms/,
	'a caller whose wait becomes too long is told so');
step(25);

#---- Saturation ----

poll('SELECT lead_ms = 0 FROM snowid_status()');
query('SELECT * FROM (SELECT snowid_next_batch(10000000)) b LIMIT 1');
cmp_ok(status('lead_ms'), '<', 16,
	'a batch that is not read to its end uses up 16 ms of numbers at most');

# Ten million keys by one statement beside sessions that take single keys.  To
# compare each key with the one before takes time, so that only the query that
# does not reaches max_drift = 1s.
foreach my $case ([ '1s', 'true' ], [ '0', 'key > lag(key) OVER ()' ])
{
	my ($max_drift, $above) = @$case;

	settings($max_drift, '5s');
	$waits = status('waits');
	$run = start_pgbench($node, 'postgres', '-c 8 -j 1 -T 600 -M prepared',
		make => 'SELECT make(:client_id);');
	poll('SELECT count(DISTINCT client) = 8 FROM made');
	$began = time;
	my ($count, $ordered, $in_reach, $first, $end) = split /\|/, query(<<~EOF);
		SELECT count(*), bool_and(above),
			snowid_timestamp(max(key)) <= clock_timestamp() + interval '$max_drift',
			min(key), max(key)
		FROM (SELECT key, $above AS above
			FROM (SELECT snowid_next_batch(10000000) AS key OFFSET 0) b) k
		EOF
	diag(sprintf 'max_drift %s: 10,000,000 keys in %.1f s, %d waits',
		$max_drift, time - $began, status('waits') - $waits);
	ok(stop_pgbench($run), "max_drift $max_drift: no session fails beside a batch of ten million")
	  or diag($run->{out});
	is("$count $ordered $in_reach", '10000000 t t',
		"max_drift $max_drift: a batch of ten million keys is complete, increases and does not lead too far");
	my ($clients, $least, $pause) = split /\|/, query(<<~EOF);
		SELECT count(*), min(n), max(pause) FROM (
			SELECT client, count(*) AS n, max(extract(epoch FROM after - before)) AS pause
			FROM made WHERE key BETWEEN $first AND $end GROUP BY client) c
		EOF
	note "single keys of $clients sessions: $least of each, longest wait $pause s";
	ok($clients == 8 && $least >= 50 && $pause < 2,
		"max_drift $max_drift: it starves none of 8 sessions that take single keys")
	  or diag("$clients sessions, $least keys, waited $pause s");
	check_made("saturation, max_drift $max_drift", $max_drift, 0);
}

#---- The policies of other generators ----

# A full millisecond waits for the next one under each; a clock that is behind
# is refused by how much.
foreach my $policy ([ 'Twitter', '2ms', undef ], [ 'Leaf', '10ms', 0.008 ])
{
	my ($name, $max_wait, $bearable) = @$policy;

	settings('0', $max_wait);
	$run = start_making();
	is(query('SELECT count(*) FROM (SELECT snowid_next_batch(100000)) b'),
		'100000', "$name: a full millisecond waits for the next");
	if ($bearable)
	{
		$waits = status('waits');
		step(-$bearable);
		poll("SELECT waits > $waits FROM snowid_status()");
		pass("$name: a clock some ms behind is waited for");
	}
	is(query('SELECT count(*) FROM made WHERE problem IS NOT NULL'),
		'0', "$name: without an error");

	step(-0.05);
	poll('SELECT count(*) > 10 FROM made WHERE problem IS NOT NULL');
	pass("$name: a clock 50 ms behind is refused");
	$after = query('SELECT max(ended) FROM made');
	poll("SELECT count(DISTINCT client) = 4 FROM made WHERE key > 0 AND began > $after");
	ok(stop_pgbench($run), "$name: no session failed") or diag($run->{out});
	check_made($name, '0', 2);
}

$node->stop;
done_testing();
