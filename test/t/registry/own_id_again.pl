# The worker ID is claimed from Redis: two servers get different ones, and each
# gets its own back after a restart, also without Redis.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');
my @nodes = map { claiming_cluster("node$_", $redis) } 1, 2;

foreach my $node (@nodes)
{
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
	wait_for_claim($node);
}
is(worker_id($nodes[0]), 0, 'the first gets the lowest ID');
is(worker_id($nodes[1]), 1, 'the second the next one');
is( $nodes[1]->safe_psql(
		'postgres',
		'SELECT worker_id, server_name, state, is_me FROM snowid_claims()'),
	"0|node1|live|f\n1|node2|live|t",
	'snowid_claims() shows both');

$_->stop foreach @nodes;
foreach my $node (reverse @nodes)
{
	$node->start;
	wait_for_claim($node);
}
is(worker_id($nodes[0]), 0, 'each gets its own back');
is(worker_id($nodes[1]), 1, 'each gets its own back');

$redis->stop;
$nodes[1]->restart;
server_is_open($nodes[1]);
is(claim_state($nodes[1]), 'remembered', 'without Redis it continues');
is(worker_id($nodes[1]),   1, 'started without Redis it has the same ID');
like(
	$nodes[1]
	  ->safe_psql('postgres', 'SELECT registry_error FROM snowid_status()'),
	qr/^127\.0\.0\.1 port \d+: Connection refused$/,
	'started without Redis it shows the error');

done_testing();
