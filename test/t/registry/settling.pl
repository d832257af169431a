# What the simulator found, with real servers and a real Redis: a server that was
# asked to wait, and then is cut off; one that asks for another ID in the settling;
# keys that only a former owner knows of; a lease that lapses while its settings
# want another datacenter.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $redis = SnowidRedis->start('redis');
my $proxy = SnowidRedis->proxy($redis);

# Such a server calls when it is asked to.
my $seldom = "snowid.redis_mark_interval = '10s'\n";

sub end_settling
{
	$redis->edit('meta', since => 0, span => 0);
	return;
}

sub end_all
{
	$_->stop foreach @_;
	$proxy->mode('');
	$redis->query('FLUSHALL');
	return;
}

#---- Asked to wait, then cut off ----

my $a = claiming('a', $proxy);
wait_for_claim($a);
$a->stop;
$redis->query('FLUSHALL');
settings($a, $short . $seldom);
$a->start;
poll($a, "NOT is_open AND reason ~ 'registry is empty'");
$redis->edit('meta', span => 3600_000);
$proxy->mode('silent');
$a->reload;
poll($a, "is_open AND registry = 'remembered'");
is(worker_id($a), 0, 'asked to wait, and cut off: it continues with its ID');
end_settling();
my $b = claiming('b', $redis);
wait_for_claim($b);
is(worker_id($b), 1,
	'asked to wait, and cut off: a newcomer does not get its ID after the settling'
);
settings($a, $short);
$proxy->mode('');
$a->reload;
wait_for_claim($a);
is(worker_id($a), 0, 'asked to wait, and cut off: it keeps its ID');
ok( !logged($a, 0, qr/snowid lost its worker ID/),
	'asked to wait, and cut off: it never lost its ID');
end_all($a, $b);

#---- Another ID is asked for in the settling ----

$a = claiming('a1', $redis, $seldom);
end_settling();
$a->reload;
wait_for_claim($a);
$redis->query('FLUSHALL');
like(
	sql_error($a, 'SELECT snowid_reclaim()'),
	qr/^55000: no other worker ID could be claimed\nDETAIL:  The registry is empty/,
	'in the settling no server gets another ID');
is($redis->record('0:0', 'name'),
	'a1', 'in the settling the ID that a server has is put back');
kill_all($a);
end_settling();
$b = claiming('b1', $redis);
wait_for_claim($b);
is(worker_id($b), 1,
	'an ID that is put back in the settling is not given to a newcomer');
end_all($b);

#---- Keys that only a former owner knows of ----

$a = claiming('a2', $proxy);
wait_for_claim($a);
$b = claiming('b2', $redis);
wait_for_claim($b);
$proxy->mode('silent');
error_is($a, 'no answer');
set_skew($a, 600);
$a->poll_query_until('postgres',
	"SELECT last_key_time > now() - interval '1 s' FROM snowid_status(), snowid_next() WHERE snowid_next IS NOT NULL"
) or die;
my $last = $a->safe_psql('postgres',
	'SELECT floor(extract(epoch FROM snowid_timestamp(snowid_next())) * 1000)'
);
$b->poll_query_until('postgres',
	"SELECT state = 'silent' FROM snowid_claims() WHERE worker_id = 0")
  or die;
is($b->safe_psql('postgres', 'SELECT snowid_release(0, 0)'),
	'released', 'the ID of a server that is cut off is released');
my $c = claiming('c2', $redis);
wait_for_claim($c);
cmp_ok($redis->record('0:0', 'ceiling'),
	'<', $last, 'its next owner knows nothing of its last keys');
$proxy->mode('');
$a->wait_for_log(qr/snowid lost its worker ID/);
wait_for_claim($a);
kill_all($a);
query($c, 'SELECT snowid_reclaim()');
wait_until('the next owner gives it back',
	sub { $redis->record('0:0', 'owner') eq '' });
cmp_ok($redis->record('0:0', 'ceiling'), '>=', $last,
	'the record has the ceiling that the owner before has reported, though its own is exact'
);
my $d = claiming('d2', $redis);
wait_for_claim($d);
isnt(worker_id($d), 0, 'a newcomer does not get the ID of these keys');
end_all($b, $c, $d);

#---- A lease that lapses while the settings want another datacenter ----

my $on_lease = "snowid.redis_lease = '3s'\n";
$a = claiming('a4', $proxy, $on_lease);
wait_for_claim($a);
$b = claiming('b4', $redis, $on_lease);
wait_for_claim($b);
foreach my $full (0 .. 31)
{
	my %record =
	  $redis->query('HGET', 'snowid', '0:1') =~ /"(\w+)":"([^"]*)"/g;
	$redis->plant("1:$full", %record, owner => 'f' x 32);
	$redis->take_away("1:$full", interval => 3600_000, lease => 0);
}
settings($a, $short . $on_lease . 'snowid.datacenter_id = 1');
$a->reload;
$a->wait_for_log(qr/snowid keeps worker ID 0 of datacenter 0/);
$proxy->mode('silent');
$b->poll_query_until('postgres',
	"SELECT state = 'lapsed' FROM snowid_claims() WHERE worker_id = 0")
  or die;
$proxy->mode('');
poll($a,
	"NOT is_open AND reason ~ 'All 32 worker IDs of datacenter 1 are in use'"
);
ok(1, 'it does not keep an ID that has lapsed');
like(
	slurp_file($a->logfile),
	qr/The lease of worker ID 0 of datacenter 0 has lapsed, and the settings want another datacenter\./,
	'a lease that has lapsed: the log says why it is not kept');
end_all($a, $b);

done_testing();
