# A server uses its own claim, and no other.  An ID that it has by Redis' records and does
# not use is given back.  No key is made with a claim that is given to another server
# while the gate is opened, with one that does not fit the layout, or with one that was
# given up for a number: if the server returns while Redis is away, another may have it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidHold;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

#---- Two servers, and an ID that one of them does not use ----

my $redis = SnowidRedis->start('redis');
my $a     = claimed('a', $redis);
my $b     = claimed('b', $redis);
is(worker_id($a), 0, 'the first server gets the lowest ID');
is(worker_id($b), 1, 'the second server gets the next ID');
is( query(
		$b,
		'SELECT worker_id, server_name, state, is_me FROM snowid_claims()'),
	"0|a|live|f\n1|b|live|t",
	'snowid_claims() shows both');

# As if the server had claimed the ID 5 as well, and never heard of it.
sub claim_another
{
	$redis->plant(
		'0:5', $redis->fields('0:0'),
		claim    => 'e' x 16,
		interval => 3600_000);
	return;
}

sub shown
{
	my ($node) = @_;
	return query($node,
		"SELECT worker_id, state, is_me FROM snowid_claims()");
}

claim_another();
is( shown($a),
	"0|live|t\n1|live|f\n5|unused|f",
	'it shows the ID that it does not use');
is( shown($b),
	"0|live|f\n1|live|t\n5|live|f",
	'another server cannot know that the ID is not used');
like(
	sql_error($b, 'SELECT snowid_release(0, 5)'),
	qr/^55000: worker ID 5 of datacenter 0 is in use/,
	'another server cannot release the ID');
is(query($a, 'SELECT snowid_release(0, 5)'),
	'released', 'it releases it at once');
is(shown($a),     "0|live|t\n1|live|f", 'the ID that was given back is free');
is(worker_id($a), 0, 'a server that gives the other ID back keeps its own');

claim_another();
$a->restart;
wait_for_claim($a);
is(shown($a), "0|live|t\n1|live|f", 'a server gives it back as it starts');
is(worker_id($a), 0,
	'a server that gives it back as it starts keeps its own');

#---- A start that is not in the file, and one without Redis ----

# A start that is not in the file does not count.
$a->stop;
chmod 0500, $a->data_dir . '/snowid' or die "$!";

END
{
	local $?;
	chmod 0700, $a->data_dir . '/snowid' if $a;
}
$a->start;
poll($a, q(reason ~ 'state file: Could not create file'));
is(status($a, 'is_open'), 'f', 'a start that cannot be written makes no key');
chmod 0700, $a->data_dir . '/snowid';
wait_for_claim($a);
is(worker_id($a), 0, 'a start that can be written again has its ID');

$redis->stop;
configure($b, claim_settings('b', $redis, "snowid.redis_lease = '2s'\n"));
$b->restart;
error_is($b, 'Connection refused');
is( unpack('l<', substr(slurp_file($b->data_dir . '/snowid/state'), 72, 4)),
	2000,
	'a claim for good is a lease in the file before Redis hears of it');
$_->stop foreach $a, $b;

#---- Given to another server while the gate is opened ----

$redis = SnowidRedis->start('takes');
my $node = claiming_cluster('withdrawn', $redis);
let_hold($node);
$node->start;
create_extension($node);
wait_for_claim($node);
my $lost = worker_id($node);
makes_keys_as($node, $lost, 'a claim that no other server has');

# The first grant is under way, and the gate is closed.
$node->stop;
hold_keeper($node, 'XLogFlush', 'replorigin_advance');
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

#---- No room for it in the layout ----

$redis = SnowidRedis->start('narrow');
$node  = claimed('narrow', $redis);
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

#---- Given up for a number ----

$redis = SnowidRedis->start('left');

# The server has a number for a while; meanwhile its ID is released, and another
# server gets it.  Then it is to claim again, with Redis away.
sub leave_and_come_back
{
	my ($what, $server, $witness, $id) = @_;
	my $is_standby = query($server, 'SELECT pg_is_in_recovery()') eq 't';

	is($redis->record("0:$id", 'name'), $server->name, "$what has a claim");
	configure($server, 'snowid.worker_id = 9');
	$server->stop;
	chmod 0500, $server->data_dir . '/snowid' or die "$!";
	$server->start;
	poll($server,
		"NOT is_open AND reason ~ 'use its state file: Could not create file'"
	);
	pass("$what makes no key before its file forgets the claim");
	chmod 0700, $server->data_dir . '/snowid' or die "$!";
	poll($server, $is_standby ? "reason ~ 'recovery'" : 'is_open');
	wait_until(
		'its file forgets the claim',
		sub {
			substr(slurp_file($server->data_dir . '/snowid/state'), 88, 8) eq
			  "\0" x 8;
		});
	release_silent($witness, $id);
	my $heir = claimed("heir_of_$id", $redis);
	is(worker_id($heir), $id, "$what: another server gets the ID");

	my $starts = unpack 'x48 Q<',
	  slurp_file($server->data_dir . '/snowid/state');
	$redis->stop;
	configure($server,
		claim_settings($server->name, $redis, "${short}snowid.max_wait = 0"));
	$server->restart;
	$server->promote if $is_standby;
	error_is($server, 'Connection refused');
	like(
		sql_error($server, 'SELECT snowid_next()'),
		qr/^55000: snowid has not claimed a worker ID yet\nDETAIL:  Redis cannot be used/,
		"$what, back with Redis away, does not resume the claim");
	$redis->run;
	wait_for_claim($server);
	my $new = worker_id($server);
	isnt($new, $id, "$what gets another ID as soon as Redis is back");
	is( $redis->record("0:$new", 'boot'),
		$redis->record('0:0',    'boot'),
		"$what, after the number, claims with the boot of its machine");
	is( $redis->record("0:$new", 'starts'),
		$starts + 1,
		"$what, after the number, counts its start");
	$heir->stop;
	return;
}

my $witness = claimed('witness', $redis);
my $primary =
  snowid_cluster('primary', 'snowid.worker_id = 8', allows_streaming => 1);
start_and_open($primary);
$primary->backup('backup');

my $server = claimed('server', $redis);
leave_and_come_back('A server', $server, $witness, 1);

my $standby = server_from_backup(
	'standby', $primary, 'backup',
	claim_settings('standby', $redis, $short),
	has_streaming => 1);
$standby->start;
poll($standby, "registry = 'claimed'");
leave_and_come_back('A standby', $standby, $witness, worker_id($standby));

$_->stop foreach $server, $standby, $primary, $witness;

done_testing();
