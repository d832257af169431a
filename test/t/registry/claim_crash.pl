# A claim in bad moments.  The server and all its processes die at several steps of it; it
# is lost to another server, or new on a standby while the disk is full.  No server makes
# keys with an ID that is another's, with Redis or without; each case is reported, and the
# server continues by itself.
use strict;
use warnings;

use File::Path qw(rmtree);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $redis = SnowidRedis->start('redis', 'appendonly yes');
my $short = "snowid.max_wait = '1s'\n";

# With a new pair the gate stays closed for as long as keys may lead.
my $unopened = $short . "snowid.max_lead = '1h'\n";

#---- kill -9 at every step of a claim ----

# In mid-command: Redis carries it out after the server is dead.
my $node = claiming_cluster('killed', $redis, $short);
$redis->edit(
	'meta',
	pinned_by => 'test',
	layout    =>
	  'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=12',
	since => now_ms(),
	span  => 3600_000,
	beat  => now_ms());
$node->start;
create_extension($node);
poll($node, "registry ~ '^The registry is empty'");
is($redis->owned('killed'), 0, 'while the registry settles a newcomer waits');
my $registry = process_pid($node, 'snowid registry');
stop_process($node, $registry);
$redis->edit('meta', since => 0, span => 1000);
$redis->freeze;
kill 'CONT', $registry;
poll($node, 'registry_error IS NOT NULL');
is(status($node, 'is_open, worker_id'),
	'f|', 'killed while Redis does not answer');
kill_all($node);
$redis->resume;
$redis->query('PING');
is($redis->owned('killed'),
	0, 'Redis claims nothing for a server that does not wait any more');
$redis->freeze;
settings($node);
$node->start;
waits_for_redis($node, 'started without Redis it has no ID');
$redis->resume;
wait_for_claim($node);
my $id = worker_id($node);
makes_keys_as($node, $id,
	'killed while Redis does not answer: with Redis it gets an ID');
is($redis->owned('killed'),
	1, 'killed while Redis does not answer: it has no second ID');

# Claimed, and the gate not open yet.
$node->stop;
rmtree($node->data_dir . '/snowid');
$redis->edit("0:$id", place => '');    # it is not known again
settings($node, $unopened);
$node->start;
poll($node, "registry = 'claimed' AND reason ~ 'A pair that is new'");
($id) =
  grep { ($redis->record("0:$_", 'name') // '') eq 'killed' && $_ != $id }
  0 .. 31;
kill_all($node);
settings($node, $short);
$redis->freeze;
$node->start;
waits_for_redis($node,
	'killed before the gate was open: without Redis it has no ID');
$redis->resume;
wait_for_claim($node);
makes_keys_as($node, $id,
	'killed before the gate was open: with Redis it gets the same ID');
is($redis->owned('killed'),
	2, 'killed before the gate was open: it has no second ID');

# Open.
kill_all($node);
$redis->freeze;
$node->start;
server_is_open($node);
is(claim_state($node), 'remembered',
	'killed after the gate was open: it continues without Redis');
makes_keys_as($node, $id,
	'killed after the gate was open: keys have its own ID');
$redis->resume;
wait_for_claim($node);
makes_keys_as($node, $id,
	'killed after the gate was open: Redis confirms its ID');

#---- Lost to another node ----

my %lost;

# The server has an ID that is none of those that it lost.
sub gets_another
{
	my ($name) = @_;
	$lost{$id} = 1;
	makes_keys_as($node, $id = worker_id($node), $name);
	ok(!$lost{$id}, "$name: an ID that it did not lose");
	return;
}

my $client = start_client($node);
clients_go_on($client);
my $log = -s $node->logfile;
$redis->take_away("0:$id", boot => 'other', ceiling => 0);
poll($node, "worker_id <> $id AND registry = 'claimed' AND is_open");
my @keys = stop_client($client);
my @lost = grep { key_worker_id($_) == $id } @keys;
like(
	slurp_file($node->logfile, $log),
	qr/LOG:  snowid lost its worker ID\n.*DETAIL:  Worker ID $id of datacenter 0 was released, or is now held by "thief"\./,
	'lost while it runs: the gate is closed, and the log names the new owner'
);
is(disorder(@keys),                 0,       'keys keep increasing');
is($redis->record("0:$id", 'name'), 'thief', 'the other server keeps the ID');
cmp_ok(
	$redis->record("0:$id", 'floor'),
	'>=',
	query(
		$node,
		"SELECT floor(extract(epoch FROM snowid_timestamp($lost[-1])) * 1000)"
	),
	"the next owner begins above the last key");
$highest{killed} = $keys[-1];
gets_another('lost while it runs: it has another one');

# The same, and killed before it has another one.
settings($node, $unopened);
$node->restart;
wait_for_claim($node);
$redis->take_away("0:$id", boot => 'other', ceiling => 0);
poll($node, "reason ~ 'A pair that is new'");
kill_all($node);
settings($node, $short);
$redis->freeze;
$node->start;
waits_for_redis($node,
	'killed when it had lost its ID: without Redis it has none');
$redis->resume;
wait_for_claim($node);
gets_another(
	'killed when it had lost its ID: with Redis it gets another one');

# While it is down, after a crash.
kill_all($node);
$redis->take_away("0:$id", boot => 'other', ceiling => 0);
$node->start;
wait_for_claim($node);
cmp_ok(
	$redis->record("0:$id", 'floor'),
	'>=',
	key_ms($highest{killed}),
	'lost while it was down: the next owner begins above the last key');
gets_another('lost while it was down: it gets another one');
$redis->freeze;
$node->restart;
server_is_open($node);
is(claim_state($node), 'remembered',
	'a server that was started without Redis remembers its ID');
makes_keys_as($node, $id, 'it continues with the new one');
$redis->resume;

# While it runs without Redis.
$redis->stop;
$node->restart;
server_is_open($node);
makes_keys_as($node, $id, 'lost while Redis is away: it continues');
$redis->run;
$redis->take_away("0:$id", boot => 'other');
poll($node, "worker_id <> $id AND registry = 'claimed' AND is_open");
gets_another('Redis is back: a server that lost its ID gets another one');

#---- From for good to a lease, and back ----

settings($node, $short . "snowid.redis_lease = '5s'");
$node->restart;
wait_for_claim($node);
is(status($node, 'worker_id_source'), 'lease', 'the claim becomes a lease');
makes_keys_as($node, $id, 'the lease is of the same ID');
kill_all($node);
settings($node, $short);
$redis->freeze;
$node->start;
waits_for_redis($node, 'a former lease is not remembered without Redis');
$redis->resume;
wait_for_claim($node);
is(status($node, 'worker_id_source'), 'claim', 'the claim is for good again');
$id = worker_id($node);
kill_all($node);
$redis->freeze;
$node->start;
server_is_open($node);
makes_keys_as($node, $id, 'a claim that is for good again is remembered');

$node->stop;

#---- The first claim of a standby, on a full disk ----

$redis = SnowidRedis->start('rare');

# The ownership in the state file.
sub ownership
{
	my ($node) = @_;
	return unpack('@56 H16', slurp_file($node->data_dir . '/snowid/state'));
}

$node = claimed('primary', $redis, '', allows_streaming => 1);

SKIP:
{
	skip 'there is no prlimit', 4 if system('prlimit >/dev/null 2>&1') != 0;

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
	like(
		sql_error($standby, 'SELECT snowid_next()'),
		qr/^55000: snowid makes no keys during recovery\nDETAIL:  Could not write file "snowid\/state": No space left on device\./,
		'the error of a standby that cannot write its first claim has the reason'
	);
	is(ownership($standby), '0' x 16, 'its file is as it was');
	system_or_bail(@limit, '--fsize=unlimited:');
	wait_until('the file', sub { ownership($standby) ne '0' x 16 });
	$redis->stop;
	$node->stop;
	$standby->restart;
	$standby->promote;
	server_is_open($standby);
	is( status($standby, 'registry, worker_id'),
		'remembered|1',
		'space again: the file is written, and promoted without Redis it makes keys'
	);
	$standby->stop;
}

#---- Lost, and no other one is free ----

# A server that is killed before it has another claim, and starts without Redis, does not
# resume the one that it lost.
{
	my $redis = SnowidRedis->start('late');
	my $node  = claimed('late_owner', $redis, $short);
	my $id    = worker_id($node);

	isnt(ownership($node), '0' x 16, 'the state file has the claim');
	$redis->occupy("0:$id", 0, [ grep { $_ != $id } 0 .. 31 ]);
	$redis->take_away("0:$id");
	wait_until(
		'the claim is out of the file',
		sub { ownership($node) eq '0' x 16 });
	kill_all($node);
	$redis->stop;
	$node->start;
	waits_for_redis($node,
		'a server without Redis does not resume a claim that it lost');
	$node->stop;
}

done_testing();
