# snowid_advance() holds for a server on lease, too, that was stopped, and whose machine
# has another boot when it starts again before the lease has ended: it is a new server
# with another worker ID.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidTest;
use SnowidRedis;
use Test::More;

my $redis = SnowidRedis->start('redis');
my $node  = claiming_cluster('owner', $redis, "snowid.redis_lease = '3s'\n");
start_and_open($node);
wait_for_claim($node);
my $id = worker_id($node);
query($node, "SELECT snowid_advance(snowid_min(now() + interval '30 min'))");
$node->stop;
$redis->edit("0:$id", boot => 'another', lease => 3600_000);
$node->start;
wait_until(
	'another worker ID',
	sub { slurp_file($node->logfile) =~ /makes keys as .* worker (?!$id\b)/ }
);
cmp_ok(status($node, 'lead_ms'),
	'>', 60_000, 'keys of the new worker ID are above snowid_advance(), too');
$node->stop;
done_testing();
