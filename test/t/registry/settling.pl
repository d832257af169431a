# Redis forgets, and servers call again in any order: no connected server loses its worker
# ID, and no other server gets it.  A first claim, and servers whose leases differ; a server
# that comes from another registry; a machine that loses power at the same time; a registry
# that moves to another Redis; two masters; and cases that the simulator found: a server that
# was asked to wait, and then is cut off; keys that only a former owner knows of; a lease that
# lapses while its settings want another datacenter.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

# It never lost an ID, and has this one.
sub keeps
{
	my ($node, $id, $name) = @_;
	wait_for_claim($node);
	is(worker_id($node), $id, "$name: it keeps its ID");
	is(logged($node, 0, qr/snowid lost its worker ID/),
		0, "$name: it never lost it");
	return;
}

#---- A first claim is forgotten, and a server that marks more often comes ----

# The settling is that of the product, whatever is stored.
my $redis =
  SnowidRedis->start('redis', 'appendonly yes', 'appendfsync always');
my $began = now_ms();
$redis->stop;
give_clock($redis);
stop_clock($redis, $began);
$redis->run;
$redis->settle;
$redis->edit('meta', span => 3600_000);
my $rarely = hasty('rarely', $redis, '', marks => 5000);
my $brief  = claiming_cluster(
	'brief', $redis,
	"snowid.redis_timeout = '300ms'\nsnowid.redis_lease = '1s'\n",
	marks => 5000);
my $held;

END { kill 'CONT', $held if $held; }

poll($rarely, "NOT is_open AND reason ~ 'registry is empty'");
my $copy = $redis->copy_data;
$redis->end_settling;
$rarely->reload;
wait_for_claim($rarely);
$held = process_pid($rarely, 'snowid registry');
stop_process($rarely, $held);
$redis->go_back($copy);
my $rare_id = worker_id($rarely);
$redis->edit('meta', span => 0, longest => 0);
$brief->start;
create_extension($brief);
answered($brief);

# its next mark is later than most; steps are no jumps of the clock
foreach my $seconds (1 .. 8)
{
	stop_clock($redis, $began + 1000 * $seconds);
	answered($brief);
}
is($redis->owned('brief'), 0,
	'a new server waits for those that mark rarely');
kill 'CONT', $held;
wait_until('its claim is back', sub { $redis->owned('rarely') });
keeps($rarely, $rare_id, 'a server whose first claim was forgotten');
$redis->end_settling;
wait_for_claim($brief);
isnt(worker_id($brief), $rare_id,
	'a new server does not get an ID whose first claim was forgotten');
$_->stop foreach $rarely, $brief;

#---- A server that comes from another registry ----

my $here = SnowidRedis->start('here', 'appendonly yes', 'appendfsync always');
my $there = SnowidRedis->start('there');
$there->edit('meta', name => 'b' x 16);
my $owner = claimed('owner', $here,  $short);
my $guest = claimed('guest', $there, $short);
is(join(' ', map { worker_id($_) } $owner, $guest),
	'0 0', 'two servers of two registries have one ID');

# the Redis that it is to use is away at first, and then is another instance
$here->stop;
$guest->{redis} = $here;
settings($guest, $short . "snowid.max_wait = '100ms'\n");
$guest->restart;
error_is($guest, 'Connection refused');
like(
	sql_error($guest, 'SELECT snowid_next()'),
	qr/^55000: snowid has not claimed a worker ID yet/,
	'a server whose URL has changed waits for the new Redis');
$here->run;
wait_for_claim($guest);
isnt(worker_id($guest), 0, 'the new Redis gives the guest an ID of its own');
keeps($owner, 0, 'an owner, while Redis was away');
$guest->stop;

#---- A machine loses power, and Redis its last writes ----

my $id = worker_id($owner);
kill_all($owner);
$here->edit(
	"0:$id",
	boot     => 'before the power failure',
	interval => 4000);
$copy = $here->copy_data;
$here->edit("0:$id", n => $here->record("0:$id", 'n') + 7);
$owner->start;
poll($owner, "reason ~ 'before the machine was restarted'");
$here->go_back($copy);
wait_for_claim($owner);
is(worker_id($owner), $id,
	'after a power failure, and with a Redis that forgot its last writes, a server has its ID'
);
is( query(
		$owner,
		'SELECT count(*) FROM snowid_claims() WHERE server_name = \'owner\''),
	'1',
	'after a power failure no other ID has leaked');
unlike(
	slurp_file($owner->logfile),
	qr/another server/i,
	'it takes no server for a copy of itself');
$owner->stop;

#---- The registry moves to another Redis, as the manual says ----

my ($left, $next) = map { SnowidRedis->start($_) } qw(left next);
my @movers = map { hasty($_, $left) } qw(one two away);
wait_for_claim($_) foreach @movers;
my @had = map { worker_id($_) } @movers;
$movers[2]->stop;
$next->query('REPLICAOF', '127.0.0.1', $left->{port});
wait_until('the replica has caught up', sub { $next->owned('away') });
$next->query('REPLICAOF', 'NO', 'ONE');
$left->stop;
my $arrives = hasty('arrives', $next);

foreach my $mover (@movers)
{
	$mover->{redis} = $next;
	settings($mover, $short);
	$mover->stop if $mover->name ne 'away';
	$mover->start;
}
wait_for_claim($_) foreach @movers, $arrives;
is(join(' ', map { worker_id($_) } @movers),
	"@had", 'a move to another Redis: each server has its ID again');
is(worker_id($arrives), 3,
	'a move to another Redis: a new server gets an ID that none has');
$_->stop foreach @movers, $arrives;

#---- An old master comes back as a master ----

my @both = map { SnowidRedis->start($_) } qw(old_master new_master);
my $url  = join ',', map { $_->url } @both;

# a Redis that does not answer in time is none that it sees
my $torn = claiming('torn', $url);
poll($torn, "NOT is_open AND reason ~ 'are both masters'");
like(
	slurp_file($torn->logfile),
	qr/WARNING:  snowid claims no worker ID while two of its Redis are masters/,
	'a new server claims no ID from one of two masters, and warns');
is($_->owned('torn'), 0, "nothing was claimed from the $_->{name}")
  foreach @both;
$both[1]->query('REPLICAOF', '127.0.0.1', $both[0]->{port});
wait_for_claim($torn);
is($both[0]->owned('torn'), 1, 'it claims one when there is one master');
$both[1]->query('REPLICAOF', 'NO', 'ONE');
$torn->restart;
wait_for_claim($torn);
is(logged($torn, 0, qr/WARNING:  snowid claims no worker ID/),
	1, 'a server that has an ID keeps it beside two masters');
settings($torn, "snowid.datacenter_id = 1\n");
my $log = log_size($torn);
$torn->reload;
$torn->wait_for_log(qr/LOG:  snowid keeps worker ID \d+ of datacenter 0/,
	$log);
answered($torn);
is($_->query('HEXISTS', 'snowid', '1:0'),
	0, "no ID of another datacenter was claimed from the $_->{name}")
  foreach @both;
pass('the ID that is kept beside two masters is marked');
$both[1]->query('REPLICAOF', '127.0.0.1', $both[0]->{port});
wait_for($torn, 'SELECT datacenter_id = 1 FROM snowid_status()');
pass('an ID of the other datacenter is claimed when there is one master');

# its claim is a lease, or was one: the answer may be another ID
foreach my $lease ("snowid.redis_lease = '3s'\n", '')
{
	my $name = $lease ? 'on lease' : 'whose claim was a lease';

	$both[1]->query('REPLICAOF', 'NO', 'ONE');
	settings($torn, "snowid.datacenter_id = 1\n" . $lease);
	$torn->stop('immediate');
	$torn->start;
	poll($torn, "NOT is_open AND reason ~ 'are both masters'");
	pass("a server $name claims nothing at a start beside two masters");
	$both[1]->query('REPLICAOF', '127.0.0.1', $both[0]->{port});
	wait_for_claim($torn);
}
$torn->stop;

# it comes back empty, and new servers have made another registry of it
my ($reborn, $kept) = map { SnowidRedis->start($_) } qw(reborn kept);
$reborn->edit('meta', name => '1111111111111111');
$reborn->stop;
my $both = join ',', map { $_->url } $reborn, $kept;
my ($had_0, $has_1) = map { hasty($_, $both) } qw(had_0 has_1);
wait_for_claim($_) foreach $had_0, $has_1;
$reborn->run;
my $newcomer = claimed('newcomer', $reborn, $short);
settings($had_0, '');
$had_0->restart;
poll($had_0, "NOT is_open AND reason ~ 'are both masters'");
pass(
	'a server whose ID another registry does not know claims none from it beside its own'
);
$reborn->stop;
wait_for_claim($had_0);
isnt(worker_id($had_0), worker_id($has_1),
	'it claims one that nobody has from the registry that is left');
$_->stop foreach $had_0, $has_1, $newcomer;

#---- Asked to wait, then cut off ----

$redis = SnowidRedis->start('settles');
my $proxy = SnowidRedis->proxy($redis);

sub end_all
{
	$_->stop foreach @_;
	$proxy->mode('');
	$redis->settle;
	return;
}

my $a = claimed('a', $proxy, $short);
$a->stop;
$redis->query('FLUSHALL');
marks_every($a, 10_000);

# a first call without an answer would have it continue with its ID
settings($a, '');
$a->start;
poll($a, "NOT is_open AND reason ~ 'registry is empty'");
$redis->edit('meta', span => 3600_000);
settings($a, $short);
$proxy->mode('silent');
$a->reload;
poll($a, "is_open AND registry = 'remembered'");
is(worker_id($a), 0, 'asked to wait, and cut off: it continues with its ID');
$redis->end_settling;
my $b = claimed('b', $redis, $short);
is(worker_id($b), 1,
	'asked to wait, and cut off: a newcomer does not get its ID after the settling'
);
marks_every($a, 300);
$proxy->mode('');
$a->reload;
keeps($a, 0, 'a server that was asked to wait, and cut off');
end_all($a, $b);

#---- What an owner brings back after a restart ----

my $high = 80_000_000_000_000;
$a = claimed('a6', $redis, $short);
$redis->edit('meta', since => 0, span => 100_000, high => $high);
$a->restart;
wait_for_claim($a);
$a->stop;
$redis->query('FLUSHALL');
settings($a, '');
$a->start;
poll($a, "NOT is_open AND reason ~ 'registry is empty'");
is($redis->record('meta', 'span'),
	100_000, 'a restarted owner brings the longest span back');
is($redis->record('meta', 'high'),
	$high, 'a restarted owner brings the highest generation back');
end_all($a);

#---- Keys that only a former owner knows of ----

$a = claimed('a2', $proxy, $short);
$b = claimed('b2', $redis, $short);
$proxy->mode('silent');
error_is($a, 'no answer');
set_skew($a, 600);
wait_for($a,
	"SELECT last_key_time > now() - interval '1 s' FROM snowid_status(), snowid_next() WHERE snowid_next IS NOT NULL"
);
my $last = key_ms(next_key($a));
release_silent($b, 0);
my $c = claimed('c2', $redis, $short);
cmp_ok($redis->record('0:0', 'ceiling'),
	'<', $last, 'its next owner knows nothing of its last keys');
$proxy->mode('');
$a->wait_for_log(qr/snowid lost its worker ID/);
wait_for_claim($a);
kill_all($a);
query($c, 'SELECT snowid_reclaim()');
$redis->wait_until_free('0:0');
cmp_ok($redis->record('0:0', 'ceiling'), '>=', $last,
	'the record has the ceiling that the owner before has reported, though its own is exact'
);
my $d = claimed('d2', $redis, $short);
isnt(worker_id($d), 0, 'a newcomer does not get the ID of these keys');

# in a settling that does not end
$redis->query('FLUSHALL');
wait_until('a registry', sub { $redis->query('HGET', 'snowid', 'meta') });
$redis->edit('meta', span => 3600_000);
like(
	sql_error($b, 'SELECT snowid_reclaim()'),
	qr/^55000: no other worker ID could be claimed\nDETAIL:  The registry is empty/,
	'in the settling no server gets another ID');
is(claim_state($b), 'claimed',
	'in the settling a server keeps the ID that it wants to leave');
end_all($b, $c, $d);

#---- A lease that lapses while the settings want another datacenter ----

my $on_lease = "snowid.redis_lease = '3s'\n";
$a = claimed('a4', $proxy, $short . $on_lease);
$b = claimed('b4', $redis, $short . $on_lease);
$redis->occupy(
	'0:1', 1, [ 0 .. 31 ],
	interval => 3600_000,
	lease    => 0);
settings($a, $short . $on_lease . 'snowid.datacenter_id = 1');
$a->reload;
$a->wait_for_log(qr/snowid keeps worker ID 0 of datacenter 0/);
$proxy->mode('silent');
wait_for($b,
	"SELECT state = 'lapsed' FROM snowid_claims() WHERE worker_id = 0");
$proxy->mode('');
poll($a,
	"NOT is_open AND reason ~ 'All 32 worker IDs of datacenter 1 are in use'"
);
pass('a server does not keep an ID that has lapsed');
like(
	slurp_file($a->logfile),
	qr/The lease of worker ID 0 of datacenter 0 has lapsed, and the settings want another datacenter\./,
	'a lease that has lapsed: the log says why it is not kept');
end_all($a, $b);

done_testing();
