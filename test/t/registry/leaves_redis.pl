# A server that leaves Redis for a number gives its claim up in its own file: when
# it comes back while Redis is away, it does not resume an ID that another server
# has by then.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');

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
	wait_for($witness,
		"SELECT state = 'silent' FROM snowid_claims() WHERE worker_id = $id");
	is(query($witness, "SELECT snowid_release(0, $id)"),
		'released', "$what: its ID is released");
	my $heir = claiming("heir_of_$id", $redis);
	wait_for_claim($heir);
	is(worker_id($heir), $id, "$what: another server gets the ID");

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
	isnt(worker_id($server), $id,
		"$what gets another ID as soon as Redis is back");
	$heir->stop;
	return;
}

my $witness = claiming('witness', $redis);
wait_for_claim($witness);
my $primary =
  snowid_cluster('primary', 'snowid.worker_id = 8', allows_streaming => 1);
start_and_open($primary);
$primary->backup('backup');

my $server = claiming('server', $redis);
wait_for_claim($server);
leave_and_come_back('A server', $server, $witness, 1);

my $standby = server_from_backup(
	'standby', $primary, 'backup',
	claim_settings('standby', $redis, $short),
	has_streaming => 1);
$standby->start;
poll($standby, "registry = 'claimed'");
my ($id) =
  grep { ($redis->record("0:$_", 'name') // '') eq 'standby' } 0 .. 9;
leave_and_come_back('A standby', $standby, $witness, $id);

#---- Keys ahead of the clock, and a crash ----

my $ahead = claiming('ahead', $redis);
wait_for_claim($ahead);
my $until = time + 1800;
query($ahead, "SELECT snowid_advance(snowid_max(to_timestamp($until)))");
$ahead->stop('immediate');
configure($ahead, 'snowid.worker_id = 7');
$ahead->start;
poll($ahead, 'worker_id = 7');
my ($ownership, $ceiling) = unpack 'Q< q<',
  substr(slurp_file($ahead->data_dir . '/snowid/state'), 144, 16);
isnt($ownership, 0, 'the file has the claim that was given up');
cmp_ok(
	$ceiling, '>=',
	$until * 1000,
	'the file has its ceiling, as the WAL has it');

$_->stop foreach $ahead, $server, $standby, $primary, $witness;
done_testing();
