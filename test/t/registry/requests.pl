# Requests of administrators to Redis: they do not keep a server from its own marks,
# however often they are refused, and the errors are true.  A server obeys Redis'
# answer that its worker ID is another's, even if the replicas have not heard of
# that, and its answer to wait.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

$SIG{PIPE} = 'IGNORE';

my $redis = SnowidRedis->start('redis');

sub calls
{
	return $redis->query('INFO', 'commandstats') =~
	  /^cmdstat_evalsha:calls=(\d+)/m ? $1 : 0;
}

#---- Refused again and again ----

my $settings =
  "snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=1 sequence=12'\nsnowid.redis_lease = '30s'\n";
my ($asks, $other) =
  map { claimed($_, $redis, $settings, marks => 2000) } qw(asks other);
for (1 .. 2)
{
	my $last = status($asks, 'lease_ceiling');
	wait_until(
		'a mark that renews the lease',
		sub {
			next_key($asks);
			my $error = sql_error($asks, 'SELECT snowid_reclaim()');
			die $error
			  if $error !~
			  /^55000: no other worker ID could be claimed\nDETAIL:  All 2 worker IDs/;
			return status($asks, 'lease_ceiling') ne $last;
		});
}
pass(
	'a server on lease that is refused another ID all the time renews its lease as before'
);
$_->stop foreach $asks, $other;
$redis->settle;

#---- The texts of errors ----

my $node = claimed('node', $redis);

# the change lasts as long as the keeper stands
my $keeper = keeper_pid($node);
END { kill 'CONT', $keeper if $keeper; }
stop_process($node, $keeper);
is(query($node, 'SELECT snowid_reclaim()'),
	1, 'snowid_reclaim() gives another ID');
like(
	sql_error($node, 'SELECT snowid_reclaim()'),
	qr/^55000: no other worker ID could be claimed\nDETAIL:  There is no claim that Redis has confirmed, or another one is under way\.$/m,
	'a second snowid_reclaim() at once is refused');
kill 'CONT', $keeper;
wait_for_worker_id($node, 1);

# a claim that is lost leaves the state file first
my $dir = $node->data_dir . '/snowid';
my $log = log_size($node);
chmod 0500, $dir;
$redis->take_away('0:1');
poll($node,
	"NOT is_open AND reason ~ 'snowid lost its worker ID: .*Permission denied'"
);
pass('a lost claim that cannot leave the state file: the status says why');
like(
	slurp_file($node->logfile),
	qr/LOG:  snowid lost its worker ID\n.*DETAIL:  .*Permission denied/,
	'a lost claim that cannot leave the state file: the log says why');
usleep(3_000_000);
cmp_ok(logged($node, $log, qr/LOG:  snowid lost its worker ID/), '<=', 2,
	'a lost claim that cannot leave the state file: the log says so once, after the loss'
);
chmod 0700, $dir;
poll($node, 'is_open');
$node->stop;
append_to_file($node->data_dir . '/snowid/state', 'x');
$node->start;
my $calls = calls();

foreach
  my $call ('snowid_claims()', 'snowid_release(0, 9)', 'snowid_reclaim()')
{
	like(
		sql_error($node, "SELECT $call"),
		qr/^55000: the snowid registry process is not ready\nHINT:  "reason" in snowid_status\(\) says why\.$/m,
		"a damaged state file: $call says that the snowid registry process is not ready"
	);
}
is(calls(), $calls, 'a damaged state file: Redis is not asked');
like(status($node, 'reason'), qr/state file/, 'the status says why');
$node->stop;

#---- A worker ID is another's, as Redis says ----

{
	my $redis   = SnowidRedis->start('redis', 'repl-diskless-sync-delay 0');
	my $replica = SnowidRedis->start('replica');
	$replica->query('REPLICAOF', '127.0.0.1', $redis->{port});
	wait_until('the replica',
		sub { $redis->query('INFO', 'replication') =~ /state=online/ });

	my $replicas =
	  "snowid.redis_wait_replicas = 1\nsnowid.redis_timeout = '6s'\n";
	my ($former, $stays) =
	  map { claiming($_, $redis, $replicas) } qw(former stays);
	wait_for_claim($_) foreach $former, $stays;
	my $id = worker_id($former);

	# While a server is down, its ID is released, and becomes another's.
	$former->stop;
	release_silent($stays, $id);
	my $next = claimed('next', $redis, $replicas);
	is(worker_id($next), $id,
		"an ID that is released becomes another server's");

	$replica->stop;
	error_is($next, ': 0 of the 1 replicas ');
	$former->start;
	poll($former, "is_open OR registry ~ ': 0 of the 1 replicas '");
	is( status($former, 'is_open'),
		'f',
		'the former server of the ID learns of that without the replica, too'
	);
	cmp_ok(query($stays, 'SELECT count(*) FROM snowid_claims()'),
		'>=', 2,
		'a missing replica: snowid_claims() shows the ID of each server');

	# A running server learns that, too.
	$redis->take_away('0:' . worker_id($stays));
	poll($stays, 'NOT is_open');
	pass('a running server learns that its ID is another\'s');
	$_->stop foreach $former, $stays, $next;

	#---- Redis has lost a lease that has ended: the settling ----

	my $lease = claimed('lease', $redis, "snowid.redis_lease = '2s'\n");
	next_key($lease);
	$redis->stop;
	poll($lease, "reason ~ 'has not been renewed: Redis cannot be used: '");

	# a mark, and as it is gone a claim, every 200 ms: not whenever the keeper asks
	my $began = clock_gettime(CLOCK_MONOTONIC);
	$redis->run;
	poll($lease, "reason ~ 'has not been renewed: The registry is empty'");
	pass('the reason is the last one of Redis');
	wait_for_claim($lease);
	my ($calls) =
	  $redis->query('INFO', 'commandstats') =~
	  /^cmdstat_evalsha:calls=(\d+)/m;
	cmp_ok(
		$calls, '<',
		20 + 20 * (clock_gettime(CLOCK_MONOTONIC) - $began),
		'while it waits, a server calls Redis no more than usual');
	$lease->stop;
}

#---- A request fails ----

{
	my $redis = SnowidRedis->start('away');
	my $node  = claimed('away', $redis, '', marks => 10_000);
	query($node,
		'CREATE ROLE asks; GRANT EXECUTE ON FUNCTION snowid_claims() TO asks'
	);
	my $log = log_size($node);

	# before the next mark fails, too: that would be logged, or not
	$redis->stop;
	like(
		sql_error($node, 'SET ROLE asks; SELECT snowid_claims()'),
		qr/^08006: Redis cannot be used\nDETAIL:  See the server log\.\nLOCATION/,
		'a list that fails refers an ordinary role to the log');
	like(
		slurp_file($node->logfile, $log),
		qr/LOG:  Redis cannot be used\n.*DETAIL:  127\.0\.0\.1 port \d+: /,
		'the log has the reason of a request that failed, though only one did'
	);
	like(
		sql_error($node, 'SELECT snowid_release(0, 9)'),
		qr/^08006: Redis cannot be used\nDETAIL:  127\..*\nHINT:  The request may have been carried out; see snowid_claims\(\)\.\n/,
		'the error of a release that fails says that it may have been carried out'
	);
	$node->stop;
}

#---- A request that is cancelled, or whose session ends, makes room for the next ----

{
	my $redis = SnowidRedis->start('patient');
	my $node  = claimed('patient', $redis);
	settings($node, $short . "snowid.redis_timeout = '60s'\n");
	$node->reload;
	wait_for($node,
		"SELECT current_setting('snowid.redis_timeout') = '1min'");
	$redis->freeze;
	like(
		sql_error(
			$node, "SET statement_timeout = '50ms'; SELECT snowid_claims()"),
		qr/^57014: canceling statement due to statement timeout/,
		'a request can be cancelled while Redis hangs');
	my $session = SnowidSession->new($node, 'postgres');
	$session->ask('SELECT snowid_claims()');
	wait_for($node,
		"SELECT count(pg_terminate_backend(pid)) = 1 FROM pg_stat_activity WHERE query = 'SELECT snowid_claims()'"
	);
	like($session->outcome, qr/57P01/, 'a request can be terminated, too');
	$redis->resume;
	wait_for($node, 'SELECT count(*) = 1 FROM snowid_claims()');
	pass('the next request is answered when Redis continues');

	# a stop in the middle of a request; no mark is due
	my $answered = status($node, 'registry_ok_at');
	marks_every($node, 10_000);
	$node->reload;
	poll($node, "registry_ok_at > '$answered'");
	$redis->freeze;
	my $log  = log_size($node);
	my $asks = SnowidSession->new($node, 'postgres');
	$asks->ask('SELECT snowid_claims()');
	wait_for($node,
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'SELECT snowid_claims()' AND wait_event_type = 'Extension'"
	);
	$node->stop;
	is(logged($node, $log, qr/LOG:  Redis cannot be used/),
		0, 'a request that a stop ends is no failure of Redis');
}

done_testing();
