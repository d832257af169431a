# Redis loses its last writes (killed, and an older append-only file put back):
# whatever it forgot, no two servers get the same worker ID, and no server that
# is connected loses its own.
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

my $redis =
  SnowidRedis->start('redis', 'appendonly yes', 'appendfsync always');

# longer than it takes to kill Redis and to start it again; and one that is to lapse
my $lease  = "snowid.redis_lease = '10s'\n";
my $lapses = "snowid.redis_lease = '5s'\n";

sub start_server
{
	my ($name, $settings) = @_;
	return claimed($name, $redis,
		"snowid.max_wait = '60s'\n" . ($settings // ''));
}

# Which IDs, and whether a server heard since then that its own is lost.
my %logs;

sub from_here
{
	%logs = map { $_->name => [ $_, log_size($_) ] } @_;
	return;
}

sub ids_are
{
	my ($ids, $name, @nodes) = @_;
	wait_for_claim($_) foreach @nodes;
	answered($_)       foreach @nodes;
	is(join(' ', map { worker_id($_) } @nodes), $ids, "$name: the IDs");
	is( join(' ',
			map { my $id = worker_id($_); $redis->record("0:$id", 'name') }
			  @nodes),
		join(' ', map { $_->name } @nodes),
		"$name: the records are those of the IDs");
	is( join(' ',
			grep { logged(@{ $logs{$_} }, qr/snowid lost its worker ID/) }
			sort keys %logs),
		'',
		"$name: no connected server lost its own");
	return;
}

# The server's next keys carry an ID that is not this one.
sub no_key_with
{
	my ($node, $id, $name) = @_;
	isnt(key_of($node), $id, "$name: its first key has another ID");
	return;
}

sub end_all
{
	$_->stop foreach @_;
	$redis->settle;
	return;
}

#---- On lease ----

# Worker ID 0 has lapsed, and its next owner's clock has passed its keys: they may lie a
# lease above its ceiling.
my $free =
  "SELECT state = 'lapsed' AND ceiling + interval '6 s' < now() FROM snowid_claims() WHERE worker_id = 0";

my $a    = start_server('a', $lease);
my $copy = $redis->copy_data;
query($a, 'SELECT snowid_reclaim()');
$redis->wait_until_free('0:0');
$a->stop;
my $b = start_server('b', $lease);
is(worker_id($b), 0, 'an ID that was given back is given out again');
from_here($b);
$redis->go_back($copy);
$a->start;
no_key_with($a, 0,
	'Redis forgot that a lease was given back, and its next owner');
ids_are('1 0', 'Redis forgot that a lease was given back, and its next owner',
	$a, $b);
end_all($a, $b);

$a    = start_server('a1', $lapses);
$copy = $redis->copy_data;
$b    = start_server('b1', $lease);
kill_all($a);
wait_for($b, $free);
is(query($b, 'SELECT snowid_reclaim()'), 0, 'a lapsed lease is given out');
$redis->wait_until_free('0:1');
from_here($b);
$redis->go_back($copy);
$a->start;
no_key_with($a, 0,
	'Redis forgot that a lease lapsed, and the next owner of the ID');
ids_are('1 0',
	'Redis forgot that a lease lapsed, and the next owner of the ID',
	$a, $b);
end_all($a, $b);

# The same, but the server of the lapsed lease runs, and is heard first.
my $proxy = SnowidRedis->proxy($redis);
$a    = claimed('cut_off', $proxy, $short . $lapses);
$copy = $redis->copy_data;
$b    = start_server('later', "snowid.redis_lease = '20s'\n");
$proxy->mode('silent');
wait_for($b, $free);
is(query($b, 'SELECT snowid_reclaim()'),
	0, 'the lapsed lease of a server that is cut off is given out');
$redis->wait_until_free('0:1');
from_here($b);
my $registry = process_pid($b, 'snowid registry');
kill 'STOP', $registry;
$redis->go_back($copy);
$proxy->mode('');
poll($a, "NOT is_open AND reason ~ 'Redis was restarted'");
pass('a lapsed lease whose record is back waits for the settling');
kill 'CONT', $registry;
ids_are('1 0', 'a lapsed lease whose record is back', $a, $b);
end_all($a, $b);

#---- For good ----

$a    = start_server('a2');
$copy = $redis->copy_data;
is(query($a, 'SELECT snowid_reclaim()'), 1, 'a server changes its ID');
server_is_open($a);
$redis->wait_until_free('0:0');
$b = start_server('b2');
from_here($a, $b);
$redis->go_back($copy);
ids_are('1 0', 'Redis forgot that an ID was changed, and its new owner',
	$a, $b);
is($redis->owned('a2'), 1, 'no server has two IDs');

# A server that was down at that time does not know.
$copy = $redis->copy_data;
$b->stop;
release_silent($a, 0);
my $c = start_server('c2');
from_here($a, $c);
settings($b, "snowid.max_wait = '60s'");
$redis->go_back($copy);
$b->start;
no_key_with($b, 0, 'Redis forgot that an ID was released');
ids_are('1 2 0', 'Redis forgot that an ID was released', $a, $b, $c);
end_all($a, $b, $c);

#---- No server loses its ID without need ----

$a    = start_server('a4');
$copy = $redis->copy_data;
$a->restart;
wait_for_claim($a);
from_here($a);
$redis->go_back($copy);
ids_are('0', 'Redis forgot a restart', $a);
is($redis->owned('a4'), 1, 'Redis forgot a restart: no ID leaks');

# Redis is emptied while it is restarted.
$copy = $redis->copy_data;
foreach my $how (qw(stop kill))
{
	$how eq 'kill' ? kill_all($a) : $a->stop;
	$redis->query('FLUSHALL');
	$a->start;
	ids_are('0', "Redis was emptied meanwhile ($how)", $a);
	is($redis->owned('a4'), 1,
		"Redis was emptied meanwhile ($how): no ID leaks");
}
end_all($a);

#---- The ceiling of an ID that is given back is that of the last key ----

$a = claimed('a5', $proxy, $short);
$proxy->mode('silent');
error_is($a, 'no answer');
set_skew($a, 20);
wait_for($a,
	"SELECT last_key_time > now() - interval '1 s' FROM snowid_status(), snowid_next() WHERE snowid_next IS NOT NULL"
);
my $last = key_ms(next_key($a));
cmp_ok($redis->record('0:0', 'ceiling'),
	'<', $last, 'keys that Redis has not heard of');
$a->restart;    # the process that made them is gone
server_is_open($a);
$a->stop;
$proxy->mode('');
settings($a, 'snowid.datacenter_id = 3');
set_skew($a, 0);
$a->start;
wait_for_claim($a);
is(status($a, 'datacenter_id'), 3, 'another datacenter over a restart');
$redis->wait_until_free('0:0');
cmp_ok($redis->record('0:0', 'ceiling'),
	'>=', $last,
	'the one before is given back with the ceiling of its last key');
$a->stop;

#---- Redis' clock ----

give_clock($redis);
set_skew($redis, 3600);
$redis->stop;
$redis->run;
$redis->settle;
cmp_ok(
	($redis->query('TIME') =~ /^(\d+)/)[0],
	'>',
	time + 3000,
	'the clock of Redis is an hour ahead');
$a = start_server('a6');
$b = start_server('b6');
$c = start_server('c6', $lapses);
kill_all($_) foreach $a, $c;
set_skew($redis, 0);

# it is silent by the clock that is set right
release_silent($b, 0);
wait_for($b, $free =~ s/worker_id = 0/worker_id = 2/r);

my $d = start_server('d6', $lease);
is(worker_id($d), 0, 'the released ID is given out');
is( query($d, 'SELECT snowid_reclaim()'),
	2,
	'the clock of Redis is set right: the ID of a lease that lapsed is given out'
);
$_->stop foreach $b, $d;

done_testing();
