# A claim that the state file remembers is of no use under a layout that has no room
# for its worker ID: no key is made with it, without Redis and with it.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');
my $node  = claiming('server', $redis);
wait_for_claim($node);
is(query($node, 'SELECT snowid_reclaim()'), 1, 'a claim is made at first');
wait_for_claim($node);
answered($node);

# With an earlier epoch, so that new keys are above all old ones.
my $narrow =
	$short
  . "snowid.max_wait = '100ms'\n"
  . "snowid.layout = 'epoch=2000-01-01T00:00:00Z datacenter=10 worker=0 sequence=12'\n";
$redis->stop;
settings($node, $narrow);
$node->restart;
error_is($node, 'Connection refused');
error_is($node, 'Connection refused');
like(sql_error($node, "SELECT snowid_next()"),
	qr/^55000: /, 'no key is made without Redis');
isnt(claim_state($node), 'remembered',
	'no claim is remembered that does not fit');

$redis->run;
settings($node, $narrow . "snowid.redis_prefix = 'narrow'");
$node->restart;
wait_until(
	'a key',
	sub {
		$node->psql('postgres', 'SELECT snowid_accept_layout()');
		status($node, 'is_open') eq 't';
	});
is( query(
		$node,
		'SELECT datacenter_id, worker_id FROM snowid_decode(snowid_next())'),
	'0|',
	'the new layout has a registry of its own, and an ID that fits');
$node->stop;
done_testing();
