# A spare worker ID that is claimed from Redis: where the clock steps back, keys go
# on with it at once, as with one from the settings; also without Redis, over a
# crash, a restart and a promotion, and when the claim is taken away.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidSpare;
use SnowidTest;
use Test::More;

my ($hour, $year) = (3600, 365 * 86400);
my $settings =
  "snowid.redis_spare = on\nsnowid.max_wait = 300ms\nsnowid.max_jump = 2min\n";
my $redis = SnowidRedis->start('redis');
my ($node, $own, $spare);

# Waits until a server has both, and tells them.
sub both
{
	my ($server) = @_;
	poll($server,
		"is_open AND registry = 'claimed' AND worker_id_source = 'claim' AND spare_worker_id IS NOT NULL"
	);
	return split /\|/, status($server, 'worker_id, spare_worker_id');
}

sub claims
{
	return query($node,
		'SELECT worker_id, server_name, is_me FROM snowid_claims() ORDER BY 1'
	);
}

# A server that has its spare for longer than any of its steps.
$node = claiming_cluster('node', $redis, $settings, allows_streaming => 1);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
use_server($node, -2 * $year);
start_and_open($node);
($own, $spare) = both($node);
is(join(' ', sort $own, $spare), '0 1', 'a server claims two worker IDs');
is( claims(),
	join("\n", sort "$own|node|t", "$spare|node (spare)|t"),
	'snowid_claims() has both');
$node->stop;
use_server($node, 0);
$node->start;
is(join(' ', both($node)), "$own $spare", 'and gets both back');

#---- Steps back, and back again ----

goes_back_and_forth($own, $spare);

#---- Crashes, and the keeper's end, with and without Redis ----

my %interruption = interruptions();
foreach my $is_there (1, 0)
{
	foreach my $what (sort keys %interruption)
	{
		let_pass($hour + 60);
		keys_are_of($own, "$what, Redis $is_there: the own worker ID");
		$redis->stop if !$is_there;
		step_clock(-$hour);
		changes_to($spare, "$what: the spare");
		$interruption{$what}->();
		changes_to($spare, "$what: again, the spare");
		step_clock($hour);
		changes_to($own, "$what: the own worker ID in the end");
		$redis->run if !$is_there;
	}
}

#---- Others ----

# $redis kept nothing, so that the server puts both claims back
both($node);
my $other = claiming_cluster('other', $redis, $settings);
set_skew($other, 0);
$other->start;
$other->safe_psql('postgres', 'CREATE EXTENSION snowid');
is(join(' ', sort $own, $spare, both($other)),
	'0 1 2 3', 'another server gets two others');
$other->stop;
$node->stop;
my $copy = PostgreSQL::Test::Cluster->new('copy');
$node->backup_fs_cold('cold');
$copy->init_from_backup($node, 'cold');
configure($copy, claim_settings('copy', $redis, $settings));
give_clock($copy);
$copy->start;
$node->start;
is(join(' ', both($copy), both($node)) =~ /^(?:4 5|5 4) $own $spare$/,
	1, 'so does a copy of its directory');
$copy->stop;

#---- Taken away ----

let_pass($hour + 60);
keys_are_of($own, 'before the spare is revoked');
step_clock(-60);
changes_to($spare, 'the spare is used');
$other->start;
is(query($other, "SELECT snowid_release(0, $spare, true)"),
	'revoked', 'it is revoked by another server');
poll($node, "spare_worker_id <> $spare");
my $new = status($node, 'spare_worker_id');
changes_to($new, 'another spare is claimed, and used at the clock\'s time');
wait_for($other,
	"SELECT count(*) = 0 FROM snowid_claims() WHERE worker_id = $spare");
step_clock(60);
changes_to($own, 'the own worker ID in the end');
step_clock(-$hour / 2);
is_refused('a spare makes no key of a time before it was claimed');
step_clock($hour / 2);

#---- Promotion ----

$node->backup('backup');
my $standby = server_from_backup(
	'standby', $node, 'backup',
	claim_settings('standby', $redis, $settings),
	has_streaming => 1);
set_skew($standby, 0);
$standby->start;
wait_for($standby, 'SELECT count(*) = 2 FROM snowid_claims() WHERE is_me');
my $claimed = join(
	' ',
	split /\n/,
	query(
		$standby,
		'SELECT worker_id FROM snowid_claims() WHERE is_me ORDER BY 1'));
$node->wait_for_catchup('standby', 'replay', $node->lsn('insert'));
$redis->stop;
$node->stop('immediate');
use_server($standby, 0);
$standby->promote;
poll($standby, 'is_open AND spare_worker_id IS NOT NULL');
my @both = split /\|/, status($standby, 'worker_id, spare_worker_id');
is(join(' ', sort @both), $claimed, 'a standby claims two in advance');
let_pass(100);
keys_are_of($both[0], 'promoted without Redis: the own worker ID');
step_clock(-50);
changes_to($both[1], 'and its spare');
$standby->stop;
$redis->run;

#---- On lease ----

$node =
  claiming_cluster('leases', $redis, "$settings\nsnowid.redis_lease = 3s");
use_server($node, -$hour);
start_and_open($node);
poll($node, "worker_id_source = 'lease' AND spare_worker_id IS NOT NULL");
($own, $spare) = split /\|/, status($node, 'worker_id, spare_worker_id');
let_pass(100);
keys_are_of($own, 'on lease: the own worker ID');
step_clock(-50);
changes_to($spare, 'the spare');
my $used = last_key();
$node->stop;
is($redis->record("0:$_", 'owner'), '', 'a clean stop gives it back')
  foreach $own, $spare;
cmp_ok(
	$redis->record("0:$spare", 'ceiling'),
	'>=',
	($used >> 22) + 1288834974657,
	'with what it has used');

#---- Taken away while it is not in use ----

# Waits until it has another one; returns it.
sub gets_another
{
	my ($name) = @_;
	poll($node, "spare_worker_id <> $spare");
	pass($name);
	return (both($node))[1];
}

$redis->query('FLUSHALL');
$node = claiming_cluster('idle', $redis, $settings, allows_streaming => 1);
set_skew($node, 0);
start_and_open($node);
($own, $spare) = both($node);
$redis->take_away("0:$spare");
$spare = gets_another('lost before it was used: another spare');

# a position that no keeper wrote: how far its keys went cannot be looked up
my $wild = 'snowid_1288834974657_5_5_12_0_31';
query($node,
	"SELECT pg_replication_origin_create('$wild'); SELECT pg_replication_origin_advance('$wild', '0/1')"
);
$node->stop;
$redis->take_away("0:$spare");
$node->start;
poll($node, q(reason ~ 'which is not a Unix time'));
query($node, "SELECT pg_replication_origin_drop('$wild')");
$spare = gets_another('lost while the server was down: another spare');

# Redis forgets the own one, and gives it out as the spare: one of the two is lost
my $key = next_key($node);
my $log = -s $node->logfile;
my $pid = process_pid($node, 'snowid registry');
kill 'STOP', $pid;
$redis->query('HDEL', 'snowid', "0:$own");
$redis->take_away("0:$spare");
$node->wait_for_log(
	qr/LOG:  snowid has no spare worker ID\n.*DETAIL:  It was claimed twice\./,
	$log);
kill 'CONT', $pid;
$node->wait_for_log(qr/LOG:  snowid lost its worker ID\n/, $log);
my @two = both($node);
isnt($two[0], $two[1], 'one ID claimed twice: there are two in the end');
cmp_ok(next_key($node), '>', $key, 'and keys go on increasing');

# on a standby, where no origin can be asked
$node->backup('idle');
$standby = server_from_backup(
	'waits', $node, 'idle',
	claim_settings('waits', $redis, $settings),
	has_streaming => 1);
set_skew($standby, 0);
$standby->start;
my $spares =
  q(FROM snowid_claims() WHERE is_me AND server_name = 'waits (spare)');
wait_for($standby, "SELECT count(*) = 1 $spares");
$spare = query($standby, "SELECT worker_id $spares");
$redis->take_away("0:$spare");
wait_for($standby, "SELECT count(*) = 1 $spares AND worker_id <> $spare");
pass('a standby that loses its spare gets another one');
$_->stop foreach $standby, $node;
done_testing();
