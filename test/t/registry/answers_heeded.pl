# What Redis says is heeded: that a worker ID is another's, whether or not its
# replicas have heard of that; and that there is nothing to do but wait.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

$SIG{PIPE} = 'IGNORE';

my $redis   = SnowidRedis->start('redis', 'repl-diskless-sync-delay 0');
my $replica = SnowidRedis->start('replica');
$replica->query('REPLICAOF', '127.0.0.1', $redis->{port});
wait_until('the replica',
	sub { $redis->query('INFO', 'replication') =~ /state=online/ });

my $replicas = "snowid.redis_wait_replicas = 1\n";
my ($former, $stays) =
  map { claiming($_, $redis, $replicas) } qw(former stays);
wait_for_claim($_) foreach $former, $stays;
my $id = worker_id($former);

# While a server is down, its ID is released, and becomes another's.
$former->stop;
wait_for($stays,
	"SELECT state = 'silent' FROM snowid_claims() WHERE worker_id = $id");
is(query($stays, "SELECT snowid_release(0, $id)"),
	'released', 'the ID of a server that is down is released');
my $next = claiming('next', $redis, $replicas);
wait_for_claim($next);
is(worker_id($next), $id, "an ID that is released becomes another server's");

$replica->stop;
error_is($next, ': 0 of the 1 replicas ');
$former->start;
poll($former, "is_open OR registry ~ ': 0 of the 1 replicas '");
is(status($former, 'is_open'),
	'f', 'its former server learns of that without the replica, too');
cmp_ok(query($stays, 'SELECT count(*) FROM snowid_claims()'),
	'>=', 2, 'a missing replica: snowid_claims() tells who has which ID');

# A server that runs, too, is told so.
$redis->take_away('0:' . worker_id($stays));
poll($stays, 'NOT is_open');
pass('a running server learns that its ID is another\'s');
$_->stop foreach $former, $stays, $next;

#---- Redis has lost a lease that has ended: the settling ----

my $lease = claiming('lease', $redis, "snowid.redis_lease = '2s'\n");
wait_for_claim($lease);
next_key($lease);
$redis->stop;
poll($lease, "reason ~ 'has not been renewed: Redis cannot be used: '");

# a mark, and as it is gone a claim, every 200 ms: not whenever the keeper asks
my $began = clock_gettime(CLOCK_MONOTONIC);
$redis->run;
poll($lease, "reason ~ 'has not been renewed: The registry is empty'");
pass('the reason is what Redis said last');
wait_for_claim($lease);
my ($calls) =
  $redis->query('INFO', 'commandstats') =~ /^cmdstat_evalsha:calls=(\d+)/m;
cmp_ok(
	$calls, '<',
	20 + 20 * (clock_gettime(CLOCK_MONOTONIC) - $began),
	'while it waits, a server calls Redis no more than usual');
$lease->stop;
done_testing();
