# Beliefs about the clock outlive a crash of any process, and a restart of the server on the
# same boot of the machine: a jump that was accepted, corrections one by one, a step back.
# A jump that was not believed is not believed afterwards, either, until the machine boots.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

my $hour     = 3600;
my $jumped   = qr/LOG:  the clock jumped ahead by \d+ ms/;
my $set_back = qr/LOG:  the clock was set back by \d+ ms/;

sub start
{
	my ($name, $skew) = @_;
	my $node =
	  snowid_cluster($name, "snowid.worker_id = 1\nsnowid.max_lead = 100ms");
	$node->append_conf('postgresql.conf', 'restart_after_crash = on');
	let_hold($node);
	set_skew($node, $skew);
	start_and_open($node);
	return $node;
}

# Keys have the time of the clock, which is this many s off; the keeper has seen it,
# since it gives a grant, which it does while keys are made.
sub keys_follow
{
	my ($node, $skew) = @_;
	my $before = status($node, 'ceiling');
	$node->poll_query_until('postgres',
		<<~EOF) or die 'keys do not follow the clock';
		SELECT is_open AND ceiling IS DISTINCT FROM nullif('$before', '')::timestamptz AND abs(extract(epoch FROM ceiling) - @{[ time + $skew ]}) < 90
			AND abs(extract(epoch FROM snowid_timestamp(key) - clock_timestamp())) < 5
		FROM (SELECT snowid_next() AS key) made, snowid_status()
		EOF
	return;
}

# Kills a process of the server, which restarts; the keeper is back after it.
sub crash
{
	my ($node, $who) = @_;
	my $worker = keeper_pid($node);
	my $client = start_client($node, 'SELECT pg_sleep(600);');
	my $slept  = "wait_event = 'PgSleep'";
	my $which  = $who eq 'client backend' ? $slept : "backend_type = '$who'";

	wait_for($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE $slept");
	my $pid =
	  query($node, "SELECT min(pid) FROM pg_stat_activity WHERE $which");
	kill 'KILL', $pid or die "$who: $!";
	$client->{handle}->finish;
	wait_for_successor($node, $worker);
	return;
}

#---- A jump that was accepted ----

my $node = start('accepted', -2 * $hour);
set_skew($node, 0);
poll($node, "reason ~ 'jumped'");

# after the keeper has looked for it, and before it notes the jump once more
hold_keeper($node, 'LWLockAcquire');
held_keeper($node);
$node->safe_psql('postgres', 'SELECT snowid_accept_clock()');
let_go($node);
keys_follow($node, 0);
pass('a jump can be accepted while the keeper reads the clock');
foreach my $who ('client backend', 'snowid keeper')
{
	my $log  = -s $node->logfile;
	my $last = $node->safe_psql('postgres', 'SELECT snowid_next()');
	crash($node, $who);
	keys_follow($node, 0);
	is(logged($node, $log, $jumped),
		0, "kill -9 of a $who: a jump that was accepted stays so");
	cmp_ok($node->safe_psql('postgres', 'SELECT snowid_next()'),
		'>', $last, "kill -9 of a $who: keys continue above all before");
}

#---- A jump that is not believed ----

my $log = -s $node->logfile;
set_skew($node, 24 * $hour);
poll($node, "reason ~ 'jumped'");
crash($node, 'client backend');
poll($node, "NOT is_open AND reason ~ 'jumped'");
is(logged($node, $log, $jumped),
	2, 'a crash during a jump: it is not believed after it, either');
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: .*\nDETAIL:  The clock jumped ahead/,
	'a crash during a jump: callers learn that the clock jumped');

foreach my $mode ('fast', 'immediate')
{
	$log = -s $node->logfile;
	$node->stop($mode);
	$node->start;
	poll($node, "NOT is_open AND reason ~ 'jumped'");
	is( logged($node, $log, $jumped),
		1,
		"a restart in mode $mode during a jump: it is not believed after it");
}
$log = -s $node->logfile;
set_skew($node, 0);
keys_follow($node, 0);
is(logged($node, $log, qr/LOG:  the clock is back after its jump ahead/),
	1, 'a crash during a jump: it is over when the clock is back');

#---- A step back ----

$log = -s $node->logfile;
set_skew($node, -2 * $hour);
$node->wait_for_log($set_back, $log);
set_skew($node, 0);
keys_follow($node, 0);
is(logged($node, $log, $jumped),
	0, 'the end of a step back by two hours is no jump');
$log = -s $node->logfile;
set_skew($node, -2 * $hour);
$node->wait_for_log($set_back, $log);
crash($node, 'client backend');
gate_is_open($node);
is(logged($node, $log, $set_back),
	1, 'a crash after a step back: it is logged once');
is( $node->safe_psql(
		'postgres', 'SELECT clock_steps_back FROM snowid_status()'),
	0,
	'counters begin again, and it is not counted again');
set_skew($node, 0);
keys_follow($node, 0);
is(logged($node, $log, $jumped),
	0, 'the end of the step within an hour is no jump after a crash, either');
$node->stop;

#---- A boot ----

$node = start('booted', 0);
$node->stop;
set_skew($node, 24 * $hour);
$log = -s $node->logfile;
$node->start;
server_is_open($node);
keys_follow($node, 24 * $hour);
is(logged($node, $log, $jumped),
	0, 'after a boot of the machine its clock is believed');
$node->stop;

# A container that starts again has another boot, and the same clocks.
$node = start('container', 0);
$node->stop;
SnowidTest::boot($node);
$node->start;
server_is_open($node);
keys_follow($node, 0);
set_skew($node, 24 * $hour);
poll($node, "reason ~ 'jumped'");
crash($node, 'client backend');
poll($node, 'reason IS NOT NULL');
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: .*\nDETAIL:  The clock jumped ahead/,
	'a crash during a jump, after a boot between which the clock stood as before: it is not believed'
);
$node->stop;

#---- Places from which the clock was set back ----

$node = start('places', -2 * 24 * $hour);
set_skew($node, -2 * 24 * $hour - 1);
$node->wait_for_log($set_back);
set_skew($node, 0);
poll($node, "reason ~ 'jumped'");
$node->safe_psql('postgres', 'SELECT snowid_accept_clock()');
keys_follow($node, 0);
$log = -s $node->logfile;
set_skew($node, -24 * $hour);
$node->wait_for_log($set_back, $log);
my $small = -s $node->logfile;
set_skew($node, -24 * $hour - 10);
$node->wait_for_log($set_back, $small);
set_skew($node, 0);
keys_follow($node, 0);
is( logged($node, $log, $jumped),
	0,
	'a return after a step back is no jump, though small steps back came before and after it'
);

$log = -s $node->logfile;
set_skew($node, -365 * 24 * $hour);
$node->wait_for_log($set_back, $log);
set_skew($node, -65 * 24 * $hour);
$node->wait_for_log($jumped, $log);
pass(
	'a jump to a time between the present and the former one is not believed'
);
set_skew($node, 0);
keys_follow($node, 0);
is(logged($node, $log, $jumped),
	1, 'the return to the former time is believed after that jump');
$node->stop;

#---- The hour for a return ----

# The machine sleeps for so many s in all, and wakes with the clock so many s off.
sub sleep_and_wake
{
	my ($slept, $skew) = @_;
	my $keeper = keeper_pid($node);
	stop_process($node, $keeper);
	put_beside($node, 'slept', $slept);
	set_skew($node, $skew);
	kill 'CONT', $keeper;
	return;
}

$node = start('asleep', 0);
$log  = -s $node->logfile;
set_skew($node, -1);
$node->wait_for_log($set_back, $log);
$log = -s $node->logfile;
sleep_and_wake(3000, 3000 - 2 * $hour);
$node->wait_for_log($set_back, $log);
sleep_and_wake(4000, 4000);
next_key($node);
is(logged($node, $log, $jumped),
	0, 'the hour for a return begins again with a step back from there');
$log = -s $node->logfile;
set_skew($node, 4000 - 3 * $hour);
$node->wait_for_log($set_back, $log);
sleep_and_wake(8000, 8000);
poll($node, "reason ~ 'jumped'");
pass('an hour after a step back, the return to the former time is a jump');
$node->safe_psql('postgres', 'SELECT snowid_accept_clock()');
next_key($node);

# Wakes with the clock so many hours behind.
sub wakes_behind
{
	my ($slept, $hours) = @_;
	$log = -s $node->logfile;
	sleep_and_wake($slept, $slept - $hours * $hour);
	$node->wait_for_log($set_back, $log);
	return;
}

wakes_behind(8000,  2);
wakes_behind(11000, 3);
sleep_and_wake(12000, 12000);
poll($node, "reason ~ 'jumped'");
pass('the hour does not begin again with a step back from elsewhere');
$node->safe_psql('postgres', 'SELECT snowid_accept_clock()');
next_key($node);

wakes_behind(12000, 2);
wakes_behind(16000, 4);
$log = -s $node->logfile;
sleep_and_wake(17000, 17000 - 2 * $hour);
keeper_turns($node);
is( logged($node, $log, $jumped),
	0,
	'an hour after a step back, the next one is from another time, to which the clock may return'
);
$node->stop;

#---- Corrections that are believed one by one ----

$node = start('corrected', -2 * $hour);
$log  = -s $node->logfile;
foreach my $minutes (-80, -40, 0)
{
	set_skew($node, $minutes * 60);
	keys_follow($node, $minutes * 60);
	crash($node, 'client backend') if $minutes != -80;
	keys_follow($node, $minutes * 60);
}
is( logged($node, $log, $jumped),
	0,
	'three corrections of 40 minutes each, and crashes between and after them: all are believed'
);
$node->stop;
done_testing();
