# Claims in rare states: revoked, while no other worker ID is free; lost, while the
# origins cannot be read; new on a standby, while the disk is full.  Each is reported, and
# continues by itself.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');

sub start_claiming
{
	my ($name, $settings, %init) = @_;
	my $node = claiming_cluster($name, $redis, $settings, %init);

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
	wait_for_claim($node);
	return $node;
}

#---- Revoked, and there is no other ----

# Two worker IDs, and both are in use.
my $narrow = <<~EOF;
	snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=1 sequence=12'
	snowid.redis_prefix = 'narrow'
	EOF
my ($first, $second) = map { start_claiming($_, $narrow) } qw(first second);
my $id  = worker_id($second);
my $key = next_key($second);
my $log = -s $second->logfile;
is(query($first, "SELECT snowid_release(0, $id, true)"),
	'revoked', 'one of two worker IDs is revoked');
$second->wait_for_log(qr/LOG:  snowid lost its worker ID\n/, $log);
wait_for_claim($second);
is(worker_id($second), $id, 'there is no other: its owner gets it again');
cmp_ok(next_key($second), '>', $key, 'no other ID: keys keep increasing');
$_->stop foreach $first, $second;

#---- Lost, and the origins cannot be read ----

# The ownership in the state file.
sub ownership
{
	my ($node) = @_;
	return unpack('@56 H16', slurp_file($node->data_dir . '/snowid/state'));
}

my $node = start_claiming('lost', '', allows_streaming => 1);
$id = worker_id($node);
makes_keys_as($node, $id, 'a claim that Redis has');
my $wild = 'snowid_1288834974657_5_5_12_0_31';
query($node,
	"SELECT pg_replication_origin_create('$wild'); SELECT pg_replication_origin_advance('$wild', '0/1')"
);
$node->stop;
$redis->take_away("0:$id");
my $owned = ownership($node);
$node->start;
poll($node, q(reason ~ 'held by "thief"'));
wait_for($node,
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid origin' AND datname IS NOT NULL"
);
is(ownership($node), $owned,
	'the end of its keys is not known: a lost claim is not given up yet');
query($node, "SELECT pg_replication_origin_drop('$wild')");
wait_for_claim($node);
isnt(worker_id($node), $id,
	'the origins can be read again: another ID is claimed');
makes_keys_as($node, worker_id($node), 'keys continue with the other ID');

#---- The first claim of a standby, on a full disk ----

SKIP:
{
	skip 'there is no prlimit', 3 if system('prlimit >/dev/null 2>&1') != 0;

	$node->backup('backup');
	my $standby = server_from_backup(
		'standby', $node, 'backup',
		claim_settings('standby', $redis),
		has_streaming => 1);

	# to a pipe: the log must not be cut off
	$standby->append_conf('postgresql.conf', 'logging_collector = on');
	$redis->stop;
	$standby->start;
	poll($standby, q(registry ~ 'Redis cannot be used'));
	my @limit = ('prlimit', '--pid', keeper_pid($standby));
	system_or_bail(@limit, '--fsize=100:');
	$redis->run;
	wait_until(
		'the error',
		sub {
			grep {
				slurp_file($_) =~
				  /DETAIL:  Could not write file "snowid\/state": No space left on device\.$/m
			} glob($standby->data_dir . '/log/*');
		});
	pass('a standby that cannot write its first claim says so');
	is(ownership($standby), '0' x 16, 'its file is as it was');
	system_or_bail(@limit, '--fsize=unlimited:');
	wait_until('the file', sub { ownership($standby) ne '0' x 16 });
	$redis->stop;
	$node->stop;
	$standby->restart;
	$standby->promote;
	server_is_open($standby);
	is(claim_state($standby), 'remembered',
		'space again: the file is written, and promoted without Redis it makes keys'
	);
	$standby->stop;
}
done_testing();
