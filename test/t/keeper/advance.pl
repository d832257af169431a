# A snowid_advance() that the keeper has not taken changes nothing, whether it is
# cancelled or runs out of time.  One that succeeded holds after a crash; of one that
# ends in between, the outcome is unknown.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes ();

my $settings =
  "snowid.worker_id = 1\nsnowid.max_wait = 200ms\nsnowid.max_lead = 100ms\n";
my $node = snowid_cluster('advance', $settings);
$node->append_conf('postgresql.conf',
	"fsync = on\nrestart_after_crash = on\nwal_writer_delay = 10s");
let_hold($node);
start_and_open($node);
my @stopped;
END { kill 'CONT', @stopped; }

sub advance
{
	return
	  "SELECT snowid_advance(snowid_max(clock_timestamp() + interval '$_[0]'))";
}

# Keys and ceiling have the time of today, also after a crash.
sub nothing_is_left
{
	my ($node, $what) = @_;
	my $today =
	  'SELECT abs(extract(epoch FROM snowid_timestamp(snowid_next()) - clock_timestamp())) < 5';

	server_is_open($node);

	# more than the keeper has reserved: it makes a turn
	query($node,
		'SELECT count(*) FROM (SELECT snowid_next_batch(4000000)) b');
	is( query(
			$node,
			"$today AND ceiling < clock_timestamp() + interval '1 min' FROM snowid_status()"
		),
		't',
		"$what: the ceiling is where it was");
	$node->stop('immediate');
	$node->start;
	server_is_open($node);
	is(query($node, $today),
		't', "$what: after a crash keys continue at once");
	return;
}

sub max_wait
{
	my ($wait) = @_;
	configure($node, "$settings\nsnowid.max_wait = $wait");
	$node->reload;
	wait_for($node, "SELECT current_setting('snowid.max_wait') = '$wait'");
	return;
}

# The keeper writes, and is held up.
sub keeper_syncs
{
	wait_for($node,
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid keeper' AND wait_event IN ('WALSync', 'WalSync')"
	);
	return;
}

sub stop_worker
{
	@stopped = (keeper_pid($node));
	stop_process($node, @stopped);
	return;
}

sub continue_worker
{
	kill 'CONT', @stopped;
	@stopped = ();
	return;
}

# A session that calls it, and its PID.
sub start_advance
{
	my ($by)    = @_;
	my $session = SnowidSession->new($node, 'postgres');
	my $pid = $session->{pid} = $session->query('SELECT pg_backend_pid()');

	$session->ask(advance($by));
	wait_for($node,
		"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid"
	);
	return $session;
}

#---- Calls that end before the keeper has seen them ----

stop_worker();
like(
	sql_error($node, "SET statement_timeout = '100ms'; " . advance('30 min')),
	qr/^57014: canceling statement due to statement timeout/,
	'a call that is cancelled');
continue_worker();
nothing_is_left($node, 'cancelled');

stop_worker();
like(
	sql_error($node, advance('30 min')),
	qr/^55000: snowid could not reserve more keys\nDETAIL:  .*PID $stopped[0], is busy or hangs/,
	'a call that the keeper does not see');
continue_worker();
nothing_is_left($node, 'not seen');

max_wait('1h');
stop_worker();

# the clock stands, so that it does not come near before the keeper continues
my $stands = int(time) * 1000;
stop_clock($node, $stands);
my @sessions = map { start_advance("$_ s") } 1 .. 3;
query($node,
	"SELECT pg_terminate_backend($sessions[0]{pid}), pg_cancel_backend($sessions[1]{pid})"
);
like($sessions[0]->outcome,
	qr/57P01/, 'a session that waits can be terminated');
like($sessions[1]->outcome,
	qr/57014/,
	"a session that waits for another one's call can be cancelled");

# An interrupt that is no cancel, either.
my $log = -s $node->logfile;
query($node, "SELECT pg_log_backend_memory_contexts($sessions[2]{pid})");
$node->wait_for_log(qr/logging memory contexts of PID $sessions[2]{pid}/,
	$log);

# The keeper leaves before it has seen the call; its successor does.
query($node, "SELECT pg_terminate_backend($stopped[0])");
continue_worker();
like(
	$sessions[2]->outcome,
	qr/^NOTICE:  00000: keys wait until .* in 290[01] ms/,
	'a session that is cancelled makes room for the next');

# The keeper judges by its own reading of the clock, which is set back meanwhile.
max_wait('2s');
stop_worker();
my $far = start_advance('59 min');
stop_clock($node, $stands - 600_000);
continue_worker();
like(
	$far->outcome,
	qr/^ERROR:  55000: snowid could not reserve more keys/,
	'a key that is beyond max_jump when the keeper sees the call is refused');
set_skew($node, 0);

# The answer to a session that cannot read it is not another one's.
stop_worker();
my ($first, $second) = map { start_advance('1 s') } 1, 2;
stop_process($node, $first->{pid});
push @stopped, $first->{pid};
kill 'CONT', shift @stopped;
like(
	$second->outcome,
	qr/^ERROR:  55000: snowid could not reserve more keys/,
	'a call does not get the answer to the call of another session');
continue_worker();
unlike($first->outcome, qr/ERROR/, 'that session gets it when it continues');

# Its grants are as large as ever.
wait_for($node,
	"SELECT ceiling > clock_timestamp() + interval '300 ms' FROM snowid_next(), snowid_status()"
);
max_wait('200ms');

#---- Calls that the keeper carries out ----

max_wait('1h');

# While the clock stands, and more than half of a grant is left, the keeper writes
# nothing else.  The first grants after an opening are smaller.
my $half_is_left =
  "ceiling > greatest(clock_timestamp(), last_key_time) + interval '250 ms'";
wait_until('a full grant',
	sub { next_key($node); status($node, $half_is_left) eq 't' });
stop_clock($node, 1000 * time);
poll($node, $half_is_left);
hold_syncs($node, 1);
my $session = start_advance('20 min');
keeper_syncs();
query($node, 'SELECT pg_terminate_backend(' . keeper_pid($node) . ')');
hold_syncs($node, 0);
my $outcome = $session->outcome;
set_skew($node, 0);
unlike($outcome, qr/ERROR|FATAL|connection/,
	'the call succeeds, though the keeper is asked to exit');
max_wait('200ms');
my $refused =
  qr/^58000: the next key would lead the clock by 1[12]\d\d\d\d\d ms\n/;
gate_is_open($node);
like(sql_error($node, 'SELECT snowid_next()'),
	$refused, 'keys continue above it');
$node->stop('immediate');
$node->start;
gate_is_open($node);
like(sql_error($node, 'SELECT snowid_next()'),
	$refused, 'after a crash keys are above it, too');
is(sql_error($node, 'SELECT snowid_advance(1)'),
	'', 'a call that has nothing to do succeeds');
like(sql_error($node, 'SELECT snowid_next()'),
	$refused,
	'after a call with a smaller key all keys are above the greater');
configure($node, $settings =~ s/worker_id = 1/worker_id = 3/r);
$node->reload;
gate_is_open($node, 3);
like(sql_error($node, 'SELECT snowid_next()'),
	$refused,
	'another worker ID makes keys above the greatest one of all calls, too');
configure($node, $settings);
$node->reload;
gate_is_open($node, 1);
like(
	sql_error(
		$node,
		"SELECT snowid_advance(1); SET statement_timeout = '100ms'; SELECT pg_sleep(20)"
	),
	qr/^57014: /,
	'a session can be cancelled after its call');

#---- An error of the keeper ----

max_wait('1h');
hold_keeper($node, 'replorigin_advance');
$session = start_advance('30 min');
kill 'FPE', held_keeper($node);
let_go($node);
like(
	$session->outcome,
	qr/^ERROR:  55000: snowid could not reserve more keys\nDETAIL:  floating-point exception\./,
	'a call that the keeper fails to carry out ends with its error');
is(sql_error($node, 'SELECT snowid_advance(1)'),
	'', 'the next call after an error succeeds');

my $dir = $node->data_dir . '/snowid';
chmod 0500, $dir or die "$!";
like(
	sql_error($node, advance('35 min')),
	qr/^55000: snowid could not reserve more keys\nDETAIL:  Could not create file "snowid\/state.tmp": Permission denied\./,
	'a call whose key cannot be written into the state file ends with the error'
);
chmod 0700, $dir or die "$!";

#---- A keeper that hangs ----

hold_syncs($node, 1);
$session = start_advance('40 min');
keeper_syncs();
query($node, "SELECT pg_cancel_backend($session->{pid})");
like($session->outcome, qr/57014/,
	'a call can be cancelled while the keeper hangs');
hold_syncs($node, 0);
is(sql_error($node, 'SELECT snowid_advance(1)'),
	'', 'the next call is carried out when the keeper continues');
max_wait('3s');
hold_syncs($node, 1);
like(
	sql_error($node, advance('50 min')),
	qr/^55000: the outcome of snowid_advance\(\) is unknown\nDETAIL:  .*hangs, and may still carry it out\./,
	'a call that runs out of time while the keeper hangs says that its outcome is unknown'
);
hold_syncs($node, 0);
$node->stop;

#---- Another worker ID, and the clock ----

my $other = snowid_cluster('other_id', 'snowid.worker_id = 1');
set_skew($other, 2 * 3600 + 1);
start_and_open($other);

sub reload
{
	my ($worker_id, $max_jump) = @_;
	reload_with(
		$other,
		'snowid.worker_id' => $worker_id,
		'snowid.max_jump'  => $max_jump,
		'snowid.max_wait'  => 0);
	return;
}

# A clock that was wrong: keys of the former ID stay above.
query($other,
	"SELECT snowid_advance(snowid_max(clock_timestamp() + interval '30 min'))"
);
set_skew($other, 0);
reload(3, '1h');
wait_for_worker_id($other, 3);
is( query(
		$other,
		"SELECT snowid_timestamp(snowid_next()) < clock_timestamp() + interval '1 min'"
	),
	't',
	'an advance by a clock that was set back does not count');
is( query(
		$other,
		"SELECT ceiling < clock_timestamp() + interval '1 min' AND (SELECT count(*) = 1 FROM @{[ ceilings() ]} WHERE worker_id = 3) FROM snowid_status()"
	),
	't',
	'keys below those of the former ID have a ceiling of their own');
my $file    = $other->data_dir . '/snowid/state';
my $written = (Time::HiRes::stat($file))[9];
keeper_turns($other);
is((Time::HiRes::stat($file))[9], $written,
	'an advance that does not count leaves the state file, which is written once for that'
);
reload(3, '3h');
set_skew($other, 2 * 3600 + 60);
reload(4, '3h');
gate_is_open($other, 4);
is(status($other, 'is_open'),
	't', 'such an advance does not count when the clock comes there again');
$other->stop;

# Called again after a small step back, with any key, it counts from there: another one does
# not make it void, though the clock is behind the first call by more than callers wait.  Nor
# does a call meanwhile that had nothing to do.
my $again = snowid_cluster('again', 'snowid.worker_id = 1');
my $began = (int(time) + 60) * 1000;
start_and_open($again);

stop_clock($again, $began);
my $key =
  query($again, "SELECT snowid_max(clock_timestamp() + interval '20 min')");
query($again, "SELECT snowid_advance($key)");
stop_clock($again, $began + 60_000);
query($again, 'SELECT snowid_advance(1)');
set_clock_back($again, $began - 5000);
query($again, 'SELECT snowid_advance(1)');
set_clock_back($again, $began - 10_000);
configure($again, 'snowid.worker_id = 2');
$again->reload;
poll($again, "reason ~ 'can be used when the clock has passed'");
time_passes($again, $began - 8000, 2);
gate_is_open($again, 2);
like(
	sql_error($again, 'SELECT snowid_next()'),
	qr/would lead the clock/,
	'an advance holds over two steps back with a call between them, of any key'
);

#---- Another layout ----

# Its keys are above at once, also if it is in the WAL and cannot be written into the state
# file yet; and a restart does not have them wait, either.
set_skew($again, 60);
configure($again,
	"snowid.worker_id = 2\nsnowid.max_wait = 0\nsnowid.layout = 'epoch=2000-01-01T00:00:00Z datacenter=5 worker=5 sequence=12'"
);
$again->restart;
poll($again, "reason ~ 'layout was changed'");
$dir = $again->data_dir . '/snowid';
chmod 0500, $dir or die "$!";
query($again, 'SELECT snowid_accept_layout()');
poll($again, "reason ~ 'state.tmp'");
chmod 0700, $dir or die "$!";

foreach my $when ('at once', 'after a restart')
{
	gate_is_open($again);
	is(sql_error($again, "SELECT 1 / (snowid_next() > $key)::int"),
		'', "another layout does not wait for a former advance, $when");
	$again->restart;
}
$again->stop;
done_testing();
