# The clock steps back and forth under running sessions, and a burst outruns the
# format: keys stay in order, never lead the clock by more than max_lead, and
# callers wait, or are refused at once, according to max_wait.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

my $clock = 0;
my $node  = snowid_cluster('clock', 'snowid.worker_id = 1');
$node->start;

# Steps the clock, and notes which calls were at work meanwhile.
sub step
{
	my ($seconds) = @_;
	my $from = query($node, q(SELECT nextval('tick')));

	$clock += $seconds;
	set_skew($node, $clock);
	query($node, "INSERT INTO stepped VALUES ($from, nextval('tick'))");
	return;
}

# In Unix ms.
sub server_ms { return int((time + $clock) * 1000); }

# Steps it back and waits until the keeper has logged it: true where that was
# once, with the size that it read off two clocks.
sub step_back_is_logged
{
	my ($ms) = @_;
	my $from = -s $node->logfile;

	step(-$ms / 1000);
	$node->wait_for_log(qr/the clock was set back/, $from);
	my @sizes = slurp_file($node->logfile, $from) =~
	  /the clock was set back by (\d+) ms/g;
	note "logged: @sizes";
	return @sizes == 1 && abs($sizes[0] - $ms) <= 5;
}

sub settings
{
	my ($max_lead, $max_wait) = @_;
	return reload_with(
		$node,
		'snowid.worker_id' => 1,
		'snowid.max_lead'  => $max_lead,
		'snowid.max_wait'  => $max_wait);
}

# Each call notes what it got: key, or error; the server's (skewed) clock before
# and after; and numbers of a sequence, which order the calls whatever the clock
# does.  That the keeper is late says nothing about the clock.
query($node, <<~EOF);
	CREATE EXTENSION snowid;
	CREATE UNLOGGED SEQUENCE tick;
	CREATE UNLOGGED TABLE stepped (before bigint, after bigint);
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
			IF problem = '55000 snowid could not reserve more keys' THEN
				RETURN;
			END IF;
		END;
		INSERT INTO made
		SELECT client, began, nextval('tick'), before, clock_timestamp(), key, problem;
	END \$\$;
	EOF
poll($node, 'is_open');

sub start_making
{
	my ($rate) = @_;
	my $run = start_pgbench(
		$node, 'postgres',
		'-c 4 -j 1 -T 600 -M prepared' . ($rate ? " -R $rate" : ''),
		make => 'SELECT make(:client_id);');
	wait_for($node, 'SELECT count(DISTINCT client) = 4 FROM made');
	return $run;
}

# Checks that hold for all keys made, with any steps of the clock; empties the
# table.  Calls during which the clock was stepped say nothing about the lead.
sub check_made
{
	my ($what, $max_lead) = @_;

	is( out_of_order($node, 'postgres', 'began', 'ended'),
		'0',
		"$what: keys strictly increase in the order in which they were made");
	is( query(
			$node,
			"SELECT count(*) FROM made WHERE problem !~ '^58000 the next key would lead the clock by \\d+ ms\$'"
		),
		'0',
		"$what: there is no other error than the lead");
	is( query($node,
			<<~EOF), '0|t', "$what: no key leads the clock by more than $max_lead");
		SELECT count(*) FILTER (WHERE snowid_timestamp(key) > made.after + interval '$max_lead'),
			count(*) > 100
		FROM made
		WHERE NOT EXISTS (SELECT FROM stepped WHERE began < stepped.after AND ended > stepped.before)
		EOF
	query($node, 'TRUNCATE made, stepped');
	return;
}

# A caller that asks for a key, and waits.
sub start_caller
{
	my $session = SnowidSession->new($node, 'postgres');
	$session->ask('SELECT snowid_next()');
	wait_until_it_waits();
	return $session;
}

sub wait_until_it_waits
{
	wait_for(
		$node,
		q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'SELECT snowid_next()'
		AND wait_event_type = 'Extension' AND state = 'active'));
	return;
}

#---- Steps of the clock under load, with max_lead = 1s and max_wait = 5s ----

my $run = start_making(3000);

ok(step_back_is_logged(50), 'a step of -50 ms is logged once, with its size');
ok(step_back_is_logged(1500),
	'a step of -1.5 s is logged once, with its size');
my $after = query($node, 'SELECT max(began) FROM made');
wait_for($node,
	"SELECT count(DISTINCT client) = 4 FROM made WHERE began > $after");
is(query($node, 'SELECT count(*) FROM made WHERE problem IS NOT NULL'),
	'0', 'callers continue after it without an error');
poll($node, 'lead_ms < 100');

ok(step_back_is_logged(10000),
	'a step of -10 s is logged once, with its size');
step(10);
$after = query($node, 'SELECT max(ended) FROM made');
wait_for($node,
	"SELECT count(DISTINCT client) = 4 FROM made WHERE key > 0 AND began > $after"
);
pass('when the clock is back, all continue');
is(status($node, 'clock_steps_back'), 3, 'the view counts the steps back');

step(1.55);
step(1800);
wait_for($node,
	"SELECT snowid_timestamp(max(key)) > clock_timestamp() - interval '5 min' FROM made"
);
pass('after a step of half an hour ahead keys follow the clock');
ok(stop_pgbench($run), 'no session failed') or diag($run->{out});
check_made('steps', '1 s');

#---- The same to the ms, by a clock that stands still ----

my $t = server_ms() + 1000;
stop_clock($node, $t);
is(key_ms(next_key($node)), $t, 'a key has the time of the clock');
my $waits = status($node, 'waits');
stop_clock($node, $t - 50);
is(key_ms(next_key($node)), $t, 'after a step of -50 ms keys lead by that');
is(status($node, 'waits'),  $waits, 'after a step of -50 ms no caller waits');

# 1.5 s back is 0.5 s more than keys may lead
my $waited = status($node, 'wait_ms');
stop_clock($node, $t - 1500);
my $caller = start_caller();
stop_clock($node, $t - 1001);
wait_until_it_waits();
stop_clock($node, $t - 1000);
is(key_ms($caller->answer), $t,
	'after a step of -1.5 s a caller waits until the clock is 0.5 s further, so that its key leads by 1 s'
);
is(status($node, 'waits'), $waits + 1, 'the view counts the wait');
is(status($node, "wait_ms BETWEEN $waited + 1 AND $waited + 3600000"),
	't', 'the view counts the time of the wait');

set_skew($node, $clock);
poll($node, 'lead_ms = 0');

# ten minutes are more than a caller may wait
settings('1s', '1min');
$t = server_ms() + 1000;
stop_clock($node, $t);
my $last = next_key($node);
stop_clock($node, $t - 600_000);
my $errors = status($node, 'errors');
my $began  = time;
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^58000: the next key would lead the clock by 60000[01] ms\nDETAIL:  snowid.max_lead is 1000 ms, so the key is due in 599000 ms, but snowid.max_wait is 60000 ms.\nHINT:  The clock was set back/,
	'after a step of -10 min callers get an error that says by how much, and a hint'
);
like(
	sql_error($node, 'SELECT snowid_next_batch(1000)'),
	qr/^58000: the next key would lead the clock by 60000[01] ms/,
	'after a step of -10 min a batch gets the same error');
cmp_ok(time - $began,
	'<', 30, 'after a step of -10 min the errors come at once');
is(status($node, 'last_key'), $last, 'the refused callers used no number up');
is(status($node, 'errors'),   $errors + 2, 'the view counts the errors');
set_skew($node, $clock);

#---- Waits can be ended ----

# Each could last for ten minutes.
settings('1s', '1h');
poll($node, 'lead_ms = 0');
next_key($node);
step(-600);
$caller = start_caller();
pass('a wait shows as a wait event in pg_stat_activity');
query($node,
	q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT snowid_next()')
);
like(
	$caller->outcome,
	qr/57014: canceling statement due to user request/,
	'a waiting caller can be cancelled');
like(
	sql_error(
		$node,
		"SET statement_timeout = '200ms'; SELECT snowid_next_batch(10)"),
	qr/^57014: canceling statement due to statement timeout/,
	'statement_timeout ends a wait');

$caller = start_caller();
step(600);
like($caller->outcome, qr/^\d+$/,
	'a waiting caller continues when the clock is set right');

next_key($node);
step(-600);
$caller = start_caller();
step(-3600);
like(
	$caller->outcome,
	qr/58000: the next key would lead the clock by (?:4200|41[0-9]{2})\d{3} ms/,
	'a caller whose wait becomes too long is refused');
step(4200);

#---- Saturation ----

settings('1s', '1min');
poll($node, 'lead_ms = 0');
query($node, 'SELECT * FROM (SELECT snowid_next_batch(10000000)) b LIMIT 1');
cmp_ok(status($node, 'lead_ms'),
	'<', 16,
	'a batch that is not read to its end uses up 16 ms of numbers at most');

# Ten million keys by one statement (with assertions, a fourth of them) beside
# sessions that take single keys.  To compare each key with the one before takes time,
# so that only the query that does not reaches max_lead = 1s.
my $many = has_assertions() ? 2_500_000 : 10_000_000;
foreach my $case ([ '1s', 'true' ], [ '0', 'key > lag(key) OVER ()' ])
{
	my ($max_lead, $above) = @$case;

	settings($max_lead, '1min');
	$waits = status($node, 'waits');
	$run   = start_pgbench(
		$node, 'postgres',
		'-c 8 -j 1 -T 3600 -R 4000 -M prepared',
		make => 'SELECT make(:client_id);');
	wait_for($node, 'SELECT count(DISTINCT client) = 8 FROM made');
	$began = time;
	my ($count, $ordered, $in_reach, $first, $end) = split /\|/,
	  query($node, <<~EOF);
		SELECT count(*), bool_and(above),
			snowid_timestamp(max(key)) <= clock_timestamp() + interval '$max_lead',
			min(key), max(key)
		FROM (SELECT key, $above AS above
			FROM (SELECT snowid_next_batch($many) AS key OFFSET 0) b) k
		EOF
	diag(
		sprintf 'max_lead %s: %d keys in %.1f s, %d waits',
		$max_lead, $many,
		time - $began,
		status($node, 'waits') - $waits);
	ok(stop_pgbench($run),
		"max_lead $max_lead: no session fails beside a batch of millions")
	  or diag($run->{out});
	is( "$count $ordered $in_reach",
		"$many t t",
		"max_lead $max_lead: a batch of millions of keys is complete, increases and does not lead too far"
	);
	my ($clients, $least, $pause) = split /\|/, query($node, <<~EOF);
		SELECT count(*), min(n), max(pause) FROM (
			SELECT client, count(*) AS n, max(extract(epoch FROM after - before)) AS pause
			FROM made WHERE key BETWEEN $first AND $end GROUP BY client) c
		EOF
	note
	  "single keys of $clients sessions: $least of each, longest wait $pause s";
	ok( $clients == 8 && $least >= 5 && $pause < 30,
		"max_lead $max_lead: it starves none of 8 sessions that take single keys"
	) or diag("$clients sessions, $least keys, waited $pause s");
	check_made("saturation, max_lead $max_lead", $max_lead);
}

#---- The policy of other generators: a clock that is behind is refused ----

# Twitter's differs by a shorter max_wait; with the least, keys/many.pl fills each ms.
settings('0', '10ms');
$run = start_making();
is( query($node, 'SELECT count(*) FROM (SELECT snowid_next_batch(100000)) b'),
	'100000',
	'max_lead 0: a full millisecond waits for the next');
$waits = status($node, 'waits');
wait_until('a wait',
	sub { step(-0.008); return status($node, 'waits') > $waits });
is(query($node, 'SELECT count(*) FROM made WHERE problem IS NOT NULL'),
	'0', 'max_lead 0: callers wait for a clock some ms behind');

my $from = query($node, q(SELECT nextval('tick')));
stop_clock($node, server_ms() - 50);
wait_for($node, 'SELECT count(*) > 10 FROM made WHERE problem IS NOT NULL');
pass('max_lead 0: a clock 50 ms behind is refused');
set_skew($node, $clock);
query($node, "INSERT INTO stepped VALUES ($from, nextval('tick'))");
$after = query($node, 'SELECT max(ended) FROM made');
wait_for($node,
	"SELECT count(DISTINCT client) = 4 AND count(*) > 100 FROM made WHERE key > 0 AND began > $after"
);
ok(stop_pgbench($run), 'max_lead 0: no session failed') or diag($run->{out});
check_made('max_lead 0', '0');

$node->stop;
done_testing();
