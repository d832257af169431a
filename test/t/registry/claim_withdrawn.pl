# While the keeper opens the gate its claim is given to another server: no key comes
# of it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');
my $node  = claiming_cluster('withdrawn', $redis);
let_hold($node);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
wait_for_claim($node);
my $lost = worker_id($node);
makes_keys_as($node, $lost, 'a claim that no other server has');

# The first grant is under way, and the gate is closed.
$node->stop;
hold_keeper($node, 'XLogFlush', 'replorigin_session_setup');
$node->start;
held_keeper($node);
$redis->take_away("0:$lost");
poll($node, q(registry ~ 'held by "thief"'));
my $log = -s $node->logfile;
let_go($node);
wait_for_claim($node);
isnt(worker_id($node), $lost,
	'lost before the gate was open: the server claims another one');
unlike(
	slurp_file($node->logfile, $log),
	qr/makes keys as datacenter 0, worker $lost$/m,
	'the gate was never open with the one that was lost');
makes_keys_as($node, worker_id($node),
	'lost before the gate was open: another one');
is($redis->record("0:$lost", 'name'),
	'thief', 'lost before the gate was open: the other server keeps it');
$node->stop;
done_testing();
