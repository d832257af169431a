# The process that fetches ranges connects to its database: the wait for that may fail,
# and SIGTERM may come at any moment of it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidTest;
use Test::More;

# A session that drops the database "shop", has its lock, and is stopped; and its PID.
sub hold_dropper
{
	my ($node) = @_;
	my $dropper = ask_in_background($node, 'DROP DATABASE shop');
	my $has_it =
	  "FROM pg_locks WHERE locktype = 'object' AND mode = 'AccessExclusiveLock' AND classid = 'pg_database'::regclass AND granted";
	wait_for($node, "SELECT count(*) = 1 $has_it");
	my $pid = query($node, "SELECT pid $has_it");
	kill 'STOP', $pid;
	return ($dropper, $pid);
}

#---- Another session wants the database alone, and lock_timeout ends the wait ----

# The process exits, and another one comes.  None connects twice.
my $node = snowid_cluster('s1',
	"snowid.max_wait = 1min\nlock_timeout = 300ms\nrestart_after_crash = off"
);
$node->start;
query($node, 'CREATE DATABASE shop');
$node->safe_psql('shop', <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	EOF
my $session = SnowidSession->new($node, 'shop');
my ($dropper, $dropper_pid) = hold_dropper($node);
$session->ask("SELECT snowid_number('a')");
wait_until(
	'a second failure',
	sub {
		my $log = slurp_file($node->logfile);
		(() = $log =~ /canceling statement due to lock timeout/g) > 1;
	});
kill 'CONT', $dropper_pid;
like(
	$dropper->outcome,
	qr/is being accessed by other users/,
	'the database was wanted alone meanwhile');
is($session->outcome, 1,
	'numbers come once the database is not wanted alone');
is(query($node, 'SELECT count(*) ' . fetchers('shop')),
	1, 'the process is there once');
undef $session;
is(sql_error($node, 'DROP DATABASE shop'), '', 'the database can be dropped');
$node->stop('fast');
unlike(
	slurp_file($node->logfile),
	qr/PANIC|TRAP|was terminated by signal/,
	'no process crashed');

#---- SIGTERM, when it has just connected, and the table is locked ----

$node = snowid_cluster('s2', 'snowid.max_wait = 1min');
let_hold($node);
$node->start;
query($node, 'CREATE EXTENSION snowid_segments');
add_tag($node, 'a');
my $locker = SnowidSession->new($node, 'postgres');
$locker->query('BEGIN; LOCK TABLE snowid_segments');

# one of its settings is from before, the others are from after that
hold_process($node, 'snowid segments', 'SetConfigOption', 'SetConfigOption');
my $waits = ask_in_background($node, "SELECT snowid_number('a')");
my $pid   = held_process($node);
kill 'TERM', $pid;
kill 'CONT', $pid;
wait_until('its end', sub { !kill 0, $pid });
pass('a process that has just connected ends by SIGTERM');
$locker->query('COMMIT');
is($waits->outcome, 1, 'a number comes all the same');

#---- SIGTERM just before it connects, while another session has the database alone ----

query($node, 'CREATE DATABASE shop');
$node->safe_psql('shop', <<~EOS);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	EOS
$session = SnowidSession->new($node, 'shop');
is(number($node, 'a') > 0, 1, 'the process in the reserved place is in use');
($dropper, $dropper_pid) = hold_dropper($node);
hold_process($node, 'snowid segments', 'ProcessConfigFile');
$session->ask("SELECT snowid_number('a')");
$pid = held_process($node);
kill 'TERM', $pid;
kill 'CONT', $pid;
wait_until('its end', sub { !kill 0, $pid });
pass('a process that is about to connect ends by SIGTERM');
kill 'CONT', $dropper_pid;
like(
	$dropper->outcome,
	qr/is being accessed by other users/,
	'the database was wanted alone before the process connected');
is($session->outcome, 1,
	'a process that ended before it connected is started again');
undef $session;
$node->stop('fast');

#---- A process that a caller started ends ----

# One of the first two databases has the process in the reserved place.
$node = snowid_cluster('s3', 'snowid.max_wait = 1min');
$node->append_conf('postgresql.conf', 'log_min_messages = debug1');
let_hold($node);
$node->start;
foreach my $database (qw(first second third))
{
	query($node, "CREATE DATABASE $database");
	$node->safe_psql($database,
		"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
	);
}
$node->safe_psql($_, "SELECT snowid_number('a')") foreach qw(first second);

my $registered = sub {
	scalar(() = slurp_file($node->logfile) =~
		  /DEBUG:  registering background worker "snowid segments"/g);
};

# the other one is as old as the server
my ($database, $ends) = split /\|/,
  query($node,
	"SELECT datname, pid @{[ fetchers() ]} ORDER BY backend_start DESC LIMIT 1"
  );
my $before = $registered->();
query($node, "SELECT pg_terminate_backend($ends)");
wait_until('its end', sub { !kill 0, $ends });
$node->safe_psql($database, "SELECT snowid_number('a')");
is($registered->() - $before,
	1, 'a process that a caller started has no successor but the next one');

#---- A process that was called comes when another one was started in its place ----

hold_process($node, 'snowid segments', 'ProcessConfigFile');
is($node->safe_psql('third', "SELECT snowid_number('a')"),
	1, 'a process that does not come is not waited for');
my $late  = held_process($node);
my $there = "SELECT count(*) " . fetchers('third');
let_go($node);
wait_until('its end, or two of them',
	sub { !kill(0, $late) || query($node, $there) > 1 });
is(query($node, $there), 1, 'a process that comes late ends');

# The other one has left again.
my $end = 'SELECT pg_terminate_backend(pid, 60000) ' . fetchers('third');
query($node, $end);
hold_process($node, 'snowid segments', 'ProcessConfigFile');
$node->safe_psql('third',
	"SELECT snowid_segment_forget('a'); SELECT snowid_number('a')");
$late = held_process($node);
query($node, $end);
let_go($node);
wait_until('the end of a process that comes late', sub { !kill 0, $late });
pass('a process that comes late ends, if the other one has left again');

#---- A process has nothing to do ----

# It leaves after five minutes: four pass after its last range, and then two more.
my $now = 1000 * time;
stop_clock($node, $now);
$node->safe_psql('third',
	"SELECT snowid_segment_forget('a'); SELECT snowid_number('a')");
my $idle = fetcher_pid($node, 'third');
time_passes($node, $now, 240);
$node->safe_psql('third',
	"SELECT snowid_segment_forget('a'); SELECT snowid_number('a')");
time_passes($node, $now, 240);
my $last = $node->safe_psql('third', "SELECT snowid_number('a')");
sleep 2;
is(fetcher_pid($node, 'third'),
	$idle, 'a process stays for minutes after its last range');
time_passes($node, $now, 120);
wait_until('the end of a process that has nothing to do',
	sub { !kill 0, $idle });
is( $node->safe_psql('third', "SELECT snowid_number('a')"),
	$last + 1,
	'a process that has had nothing to do for minutes leaves, and gives back'
);
set_skew($node, 0);
$node->stop('fast');

done_testing();
