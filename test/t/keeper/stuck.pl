# A process that does nothing does not look healthy.  While the keeper is stopped, or
# waits for a disk that hangs, status and errors say since when nothing was reserved, and
# by which process; and all of it is over when the keeper continues.  On PostgreSQL 17 and
# later, pg_stat_activity shows why callers and each of snowid's processes wait.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $node =
  snowid_cluster('stuck', "snowid.worker_id = 1\nsnowid.max_wait = 200ms");
$node->append_conf('postgresql.conf', 'fsync = on');
start_and_open($node);
my $worker = keeper_pid($node);
END { kill 'CONT', $worker if $worker; }

# Keys are made until there are none.
sub error_of_caller
{
	my $error = '';
	$error = sql_error($node, 'SELECT snowid_next()') until $error;
	return $error;
}

my $stuck =
  qr/The "snowid keeper" process, PID $worker, is busy or hangs: it has reserved nothing since (.+)\.$/m;

sub is_told
{
	my ($what, $before) = @_;
	my $error = error_of_caller();

	like(
		$error,
		qr/^55000: snowid could not reserve more keys\nDETAIL:  $stuck/,
		"$what: callers learn which process hangs, and since when");
	poll($node, 'NOT is_open');
	my ($reason, $read_at) =
	  split /\|/, status($node, 'reason, clock_timestamp()');
	like(
		$reason,
		qr/^snowid could not reserve more keys: $stuck$/,
		"$what: the status names the process and since when it is stuck");
	my ($since) = $reason =~ $stuck;
	is( query(
			$node,
			"SELECT '$since'::timestamptz BETWEEN '$before'::timestamptz - interval '2 s' AND '$read_at'::timestamptz - interval '2 s'"
		),
		't',
		"$what: the time is that at which it stopped");
	return;
}

sub is_over
{
	my ($what) = @_;
	poll($node, 'is_open AND reason IS NULL');
	is(sql_error($node, 'SELECT snowid_next()'),
		'', "$what: keys continue when it does");
	return;
}

my $before =
  query($node, 'SELECT snowid_next(); SELECT clock_timestamp()') =~
  s/^.*\n//r;
stop_process($node, $worker);
is_told('a stopped worker', $before);
kill 'CONT', $worker;
is_over('a stopped worker');

query($node, 'SELECT snowid_next()');
$before = query($node, 'SELECT clock_timestamp()');
hold_syncs($node, 1);
is_told('a disk that hangs', $before);
hold_syncs($node, 0);
is_over('a disk that hangs');

# The ceiling of a server that makes no keys is past, too.
set_skew($node, 1800);
poll($node, 'ceiling < clock_timestamp()');
is(query($node, 'SELECT is_open, reason FROM snowid_status()'),
	't|', 'a keeper that has nothing to do is not stuck');
$node->stop;

#---- Waits in pg_stat_activity ----

my ($redis, $keeper, $registry);

END
{
	local $?;
	kill 'CONT', grep { $_ } $keeper, $registry;
	$redis->resume if $redis;
}

# Waits until a process, or the caller, waits for this.
sub waits_for
{
	my ($who, $event) = @_;
	wait_for($node,
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE ($who) AND wait_event_type = 'Extension' AND wait_event = '$event'"
	);
	pass("$who: $event");
	return;
}

# The wait event of a caller in this statement, which is cancelled then.
sub caller_waits_for
{
	my ($sql, $event) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/asked/, "\\echo asked\n$sql;\n");
	my $is_it = "query = \$\$$sql;\$\$";
	waits_for($is_it, $event);
	$node->safe_psql('postgres',
		"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE $is_it");
	$session->quit;
	return;
}

SKIP:
{
	skip 'wait events have names from PostgreSQL 17 on', 9
	  if $node->pg_version < 17;

	$redis = SnowidRedis->start('redis');
	$node  = claiming_cluster('waits', $redis, 'max_worker_processes = 5');
	$node->start;
	create_extension($node);
	wait_for_claim($node);

	# everybody waits for long
	settings($node, "snowid.max_wait = '600s'\nsnowid.redis_timeout = '60s'");
	$node->reload;
	wait_for($node,
		"SELECT current_setting('snowid.redis_timeout') = '1min'");

	($keeper, $registry) =
	  map { process_pid($node, "snowid $_") } qw(keeper registry);
	my $registries = "backend_type = 'snowid registry'";

	waits_for("backend_type = 'snowid keeper'", 'SnowidMain');
	waits_for($registries,                      'SnowidMain');

	# the clock is set back
	next_key($node);
	set_skew($node, -300);
	caller_waits_for('SELECT snowid_next()', 'SnowidClock');
	set_skew($node, 0);
	next_key($node);

	# the keeper does nothing
	kill 'STOP', $keeper;
	caller_waits_for(
		'SELECT count(*) FROM (SELECT snowid_next_batch(1000000000)) keys',
		'SnowidKeeper');
	caller_waits_for('SELECT snowid_advance(snowid_max(now()))',
		'SnowidAdvance');
	kill 'CONT', $keeper;
	next_key($node);

	# the registry does nothing; then Redis
	kill 'STOP', $registry;
	caller_waits_for('SELECT count(*) FROM snowid_claims()',
		'SnowidRegistry');
	kill 'CONT', $registry;
	$redis->freeze;
	waits_for($registries, 'SnowidNetwork');
	$redis->resume;

	# a segment's row is locked
	$node->append_conf('postgresql.conf', 'max_worker_processes = 7');
	$node->restart;
	$node->safe_psql('postgres',
		"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'), ('b')"
	);
	my $locker = $node->background_psql('postgres');
	$locker->query_safe(
		"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'b' FOR UPDATE");
	$node->safe_psql('postgres', "SELECT snowid_number('a')");
	waits_for("backend_type = 'snowid segments'", 'SnowidMain');
	caller_waits_for("SELECT snowid_number('b')", 'SnowidSegment');
	$locker->quit;

	$node->stop;
}

done_testing();
