# The snowid keeper: its ceiling is durable before keys are made below it, no
# caller waits for it, and it costs no WAL when no keys are made.
# Keys continue whatever ends it; if it cannot work, keys stop with the reason and
# continue by themselves; and PostgreSQL's own tools work with it.
use strict;
use warnings;

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidKeys;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

# Left alone until the end of this test.
my $idle = snowid_cluster('idle', 'snowid.worker_id = 2');
$idle->start;
my $idle_since = time;

my $node =
  snowid_cluster('worker', 'snowid.worker_id = 1', allows_streaming => 1);
$node->start;

sub complaints
{
	return join '', map { slurp_file($_->{errors}) } @_;
}

# The processor's time of a process so far.
sub seconds_of_work
{
	my ($pid) = @_;
	my ($user, $system) =
	  (split ' ', slurp_file("/proc/$pid/stat") =~ s/^.*\) //r)[ 11, 12 ];
	return ($user + $system) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

query($node, <<~EOF);
	CREATE EXTENSION snowid;
	CREATE FUNCTION ms(at timestamptz) RETURNS numeric
		RETURN trunc(extract(epoch FROM at) * 1000);
	-- makes keys, and sees the ceiling after each
	CREATE FUNCTION make_below_ceiling(count int) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
		key bigint;
		durable numeric;
		shown timestamptz;
	BEGIN
		FOR key IN SELECT snowid_next_batch(count)
		LOOP
			SELECT ms INTO STRICT durable FROM @{[ ceilings() ]} WHERE worker_id = 1;
			SELECT ceiling INTO shown FROM snowid_status();
			IF ms(snowid_timestamp(key)) > least(durable, ms(shown)) THEN
				RAISE 'key % is above the ceiling %, %', key, durable, shown;
			END IF;
		END LOOP;
	END \$\$;
	EOF

#---- The ceiling ----

# Runs first with keys as they come, and then against the cap.
server_is_open($node);
my $run = start_pgbench(
	$node, 'postgres',
	'-c 3 -j 1 -T 2',
	ceiling => 'SELECT make_below_ceiling(1 + :n % 20);');
ok(stop_pgbench($run, 'finish'),
	'no key is above the ceiling that the WAL has')
  or diag($run->{out});
$run = start_pgbench(
	$node, 'postgres', '-c 3 -j 1 -T 2',
	ceiling => 'SELECT make_below_ceiling(5);',
	batch   => 'SELECT count(*) FROM (SELECT snowid_next_batch(1000000)) b;');
ok(stop_pgbench($run, 'finish'),
	'no key is above it if keys outrun the format, either')
  or diag($run->{out});

# A step of the clock at a time, by less than the reserve, so that the keeper's
# speed does not count.
poll($node, 'lead_ms = 0');

sub now_is
{
	my ($ms, $reserved) = @_;
	stop_clock($node, $ms);
	poll($node, "ms(ceiling) >= $ms + $reserved");
	return;
}

my $ms = int(time * 1000) + 1000;
now_is($ms, 300);
my $waits = status($node, 'waits');
foreach (1 .. 5)
{
	next_key($node);
	now_is($ms += 200, 300);
}
is(status($node, 'waits'),
	$waits, 'under steady load no caller waits for a grant');
foreach (1 .. 3)
{
	next_key($node);
	now_is($ms += 1300, 0);
}
next_key($node);
is(status($node, 'waits'),
	$waits, 'no caller waits for a grant if there is a second between keys');
set_skew($node, 0);
poll($node, 'lead_ms = 0');

#---- Keys that are far ahead do not keep the keeper busy ----

# They are at the ceiling, which the clock does not let it raise.  So it looks again and again,
# while it expects callers, with a pause each time.
my $keeper = keeper_pid($node);
query($node,
	"SELECT snowid_advance(snowid_max(clock_timestamp() + interval '5 s'))");
my ($began, $worked) = (time, seconds_of_work($keeper));
usleep(2_000_000);
cmp_ok(
	seconds_of_work($keeper) - $worked,
	'<',
	(time - $began) / 10,
	'keys that are far ahead of the clock do not keep the keeper busy');
poll($node, 'lead_ms = 0');

#---- The keeper ends ----

my @clients = map { start_client($node, undef, 'hasty') } 1, 2;
foreach my $round (1 .. 5)
{
	my $pid = keeper_pid($node);
	query($node, "SELECT pg_terminate_backend($pid)");
	wait_for_successor($node, $pid);
	clients_go_on(@clients);
}
pass('a keeper that is terminated is started again, and keys continue');
my $pid = keeper_pid($node);
query($node, "SELECT pg_cancel_backend($pid)");
clients_go_on(@clients);
unlike(
	slurp_file($node->logfile),
	qr/canceling statement/,
	'pg_cancel_backend() does not disturb the keeper');
keys_are_right('the keeper is replaced: keys increase, none twice', @clients);
is(complaints(@clients), '',
	'no caller gets an error while the keeper is replaced');

# At the very moment that the clock is set back.  With max_lead as large as the
# step, keys need only the keeper.
reload_with(
	$node,
	'snowid.worker_id' => 1,
	'snowid.max_lead'  => '2h',
	'snowid.max_jump'  => '1d');
@clients = map { start_client($node, undef, 'hasty') } 1, 2;
foreach my $round (1 .. 3)
{
	clients_go_on(@clients);
	$pid = keeper_pid($node);
	query($node, "SELECT pg_terminate_backend($pid)");
	usleep(($round - 1) * 3_000);
	set_skew($node, -3600);
	wait_for_successor($node, $pid);
	clients_go_on(@clients);
	set_skew($node, 0);
}
pass(
	'a keeper comes back if the clock is set back by an hour at that moment');
keys_are_right(
	'the clock is set back as the keeper ends: keys increase, none twice',
	@clients);
is(complaints(@clients), '',
	'the clock is set back as the keeper ends: no caller gets an error');
reload_with(
	$node,
	'snowid.worker_id' => 1,
	'snowid.max_lead'  => '1s',
	'snowid.max_jump'  => '1h');

#---- No place for the keeper ----

my $highest = next_key($node);

sub restart_with
{
	my ($settings) = @_;
	$node->append_conf('postgresql.conf', $settings);
	$node->restart;
	return;
}

restart_with('max_worker_processes = 0');
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: snowid is not ready yet\nDETAIL:  The "snowid keeper" process is not running; increase max_worker_processes/,
	'no place for the keeper in max_worker_processes: the error says so');
like(
	status($node, 'reason'),
	qr/^snowid is not ready yet: The "snowid keeper" process is not running/,
	'no place for the keeper in max_worker_processes: the status says so');
restart_with('max_worker_processes = 8');
server_is_open($node);
cmp_ok(next_key($node), '>', $highest, 'enough slots again: keys continue');

#---- PostgreSQL's tools ----

my $client = start_client($node);
clients_go_on($client);
$node->backup('backup');
my $backup = $node->backup_dir . '/backup';
command_ok([ 'pg_verifybackup', $backup ],
	'pg_basebackup and pg_verifybackup work');
ok(-f "$backup/snowid/state", 'a base backup has the state file');
stop_client($client);
$highest = next_key($node);
query($node, $_)
  foreach 'CREATE EXTENSION snowid_segments',
  q{INSERT INTO snowid_segments (biz_tag) VALUES ('a')};
my @disable = query($node, 'SHOW data_checksums') eq 'on' ? '--disable' : ();
$node->stop;
command_ok([ 'pg_checksums', $_, '-D', $node->data_dir ],
	"pg_checksums $_ works")
  foreach @disable, '--enable', '--check';

my ($out, $err);
IPC::Run::run(
	[ 'postgres', '--single', '-D', $node->data_dir, 'postgres' ],
	'<', \"SELECT snowid_next()\nSELECT snowid_number('a')",
	'>', \$out, '2>', \$err);
like(
	$err,
	qr/ERROR:  snowid makes no keys in single-user mode/,
	'single-user mode makes no keys and says so');
like(
	$err,
	qr/ERROR:  snowid hands out no numbers in single-user mode/,
	'single-user mode hands out no numbers and says so');

my $state = slurp_file($node->data_dir . '/snowid/state');
unlink $node->data_dir . '/snowid/state';
command_ok(
	[
		'pg_ctl', '-w',           '-D', $node->data_dir,
		'-l',     $node->logfile, '-o', '-b',
		'start'
	],
	'the server starts as pg_upgrade starts it');
$node->_update_pid(1);
my $positions =
  q(SELECT string_agg(concat_ws(' ', local_id, remote_lsn), ', ' ORDER BY local_id) FROM pg_replication_origin_status);
my $before_it = query($node, $positions);
like(
	$before_it,
	qr/^65533 \S+, 65534 \S+$/,
	'a server of pg_upgrade has the ceilings');
like(sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: /, 'a server of pg_upgrade makes no keys');
is(keeper_pid($node), '', 'a server of pg_upgrade has no keeper');
is(query($node, $positions),
	$before_it, 'a server of pg_upgrade writes no grant into the WAL');
$node->stop;
ok( !-e $node->data_dir . '/snowid/state',
	'a server of pg_upgrade writes no state file');
append_to_file($node->data_dir . '/snowid/state', $state);
$node->start;
server_is_open($node);
cmp_ok(next_key($node), '>', $highest, 'keys continue after all of it');
$node->stop;

#---- An error while keys are made ----

let_hold($node);
$node->start;
server_is_open($node);
$highest = next_key($node);
my $from = -s $node->logfile;
hold_keeper($node, 'replorigin_advance');
my $at_work = held_keeper($node);
kill 'FPE', $at_work;
hold_keeper($node, 'WaitLatch');
kill 'CONT', $at_work;
held_keeper($node);
like(
	status($node, 'reason'),
	qr/floating-point exception/,
	'an error of the keeper is the reason up to its next grant');
let_go($node);
$node->wait_for_log(qr/ERROR:  floating-point exception/, $from);
cmp_ok(next_key($node), '>', $highest, 'keys continue after an error');
query($node, 'SELECT count(*) FROM snowid_next_batch(4000000)');
unlike(
	slurp_file($node->logfile, $from),
	qr/snowid makes keys/,
	'an error of the keeper closes no open gate');
is(keeper_pid($node), $at_work, 'an error of the keeper does not end it');

# It answers to others' signals again.
query($node, 'CREATE DATABASE short_lived');
is( sql_error(
		$node, "SET statement_timeout = '60s'; DROP DATABASE short_lived"),
	'',
	'after an error of the keeper no DROP DATABASE waits for it');
$node->stop;

#---- Nobody makes keys ----

usleep(100_000) while time - $idle_since < 4.5;
wait_until(
	'no WAL',
	sub {
		my ($before, undef, $after) = split /\n/,
		  query($idle,
			'SELECT pg_current_wal_insert_lsn(); SELECT pg_sleep(2); SELECT pg_current_wal_insert_lsn()'
		  );
		return $before eq $after;
	});
pass('a server that makes no keys writes no WAL, some seconds after its start'
);
set_skew($idle, 7200);
query($idle, 'CREATE EXTENSION snowid');
wait_for($idle, "SELECT reason ~ 'clock jumped ahead' FROM snowid_status()");
set_skew($idle, 0);
wait_for($idle, 'SELECT is_open AND reason IS NULL FROM snowid_status()');
pass('a reason that is over leaves the status, even if no keys are made');
is(sql_error($idle, 'SELECT snowid_next()'),
	'', 'a server that made no key makes one at once');
$idle->stop;
done_testing();
