# A claim that was lost leaves the state file even while another session has locked the
# catalog: a server that is killed then, and starts without Redis, does not resume it.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidTest;
use SnowidRedis;
use Test::More;

my $redis = SnowidRedis->start('redis');
my $node  = claiming_cluster('owner', $redis);
start_and_open($node);
wait_for_claim($node);
my $id      = worker_id($node);
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE pg_database');

# The ownership in the state file; 0: it has no claim.
sub in_file
{
	return unpack('x56 Q', slurp_file($node->data_dir . '/snowid/state'));
}

isnt(in_file(), 0, 'the state file has the claim');
$redis->take_away("0:$id");
wait_until('the claim is out of the file', sub { in_file() == 0 });
$redis->stop;
$node->stop('immediate');
$session->{run}->finish;
$node->start;
poll($node, 'registry_error IS NOT NULL');
waits_for_redis($node,
	'a server without Redis does not resume a claim that it lost');
unlike(
	slurp_file($node->logfile),
	qr/continues with previously claimed/,
	'the log has no claim that is resumed');
$node->stop;
done_testing();
