# A server on lease whose clock was wrong crashes, and Redis is emptied at the same moment.
# The server knows from its WAL up to where it made keys, and says so in its first call:
# the next owner of its worker ID begins above.  By up to snowid.max_jump, ahead or
# behind; back in the settling or after it; on the same boot or on another one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');
my $proxy = SnowidRedis->proxy($redis);
my $lease = "snowid.redis_lease = '10s'\n";

# Seconds by which the clock is wrong; whether the settling is over when it is back; and
# whether its machine has booted meanwhile: each pair of these is there.
my @owners = map { { wrong => $_->[0], late => $_->[1], boots => $_->[2] } }
  [ 30,    0, 0 ],
  [ 30,    1, 1 ],
  [ 3500,  0, 1 ],
  [ 3500,  1, 0 ],
  [ -3500, 0, 0 ],
  [ -3500, 1, 1 ];

sub name_of
{
	my ($owner) = @_;
	return
		"wrong by $owner->{wrong} s, back "
	  . ($owner->{late} ? 'after' : 'in')
	  . ' the settling, on '
	  . ($owner->{boots} ? 'another' : 'the same') . ' boot';
}

# The registry has its name from this one.
my $stays = claimed('stays', $redis, '', marks => 300);

# A server on lease may make keys up to the recorded ceiling, however long it is cut off.
# Redis forgets that, hears it once in the settling, and not again: the ID's next owner
# begins above all the same.
{
	my $way     = SnowidRedis->proxy($redis);
	my $renewed = "snowid.redis_lease = '3s'\n";
	my $leased  = claimed('leased', $way, $short . $renewed);
	my $at      = '0:' . worker_id($leased);

	# from here on, since a first key waits for it
	settings($leased, $renewed . "snowid.max_lead = '5min'\n");
	$leased->reload;
	wait_until('a ceiling minutes ahead',
		sub { $redis->record($at, 'ceiling') > 1000 * time + 250_000 });
	$way->mode('silent');
	sleep 4;
	next_key($leased);
	$redis->query('FLUSHALL');
	wait_until('a registry', sub { $redis->query('HGET', 'snowid', 'meta') });
	$redis->edit('meta', span => 3_600_000);
	$way->mode('');
	wait_until('what the server says of its keys',
		sub { $redis->query('HGET', 'snowid', $at) });
	is($redis->record($at, 'owner'),
		'', 'a lease that was cut off for longer is not put back');
	$way->mode('silent');
	set_skew($leased, 200);
	my $last = key_ms(next_key($leased));
	kill_all($leased);
	$redis->end_settling;

	my $heir =
	  claiming('heir', $redis, "snowid.max_lead = '15min'\n", marks => 300);
	wait_until('a claim of the next owner',
		sub { $redis->record($at, 'name') eq 'heir' });
	cmp_ok($redis->record($at, 'floor'), '>', $last,
		'cut off again, it made keys 200 s ahead: the next owner of its ID begins above them'
	);
	$heir->stop;
	$way->stop;
	$redis->settle;
	my $home = '0:' . worker_id($stays);
	wait_until('a claim that is put back',
		sub { ($redis->record($home, 'name') // '') eq 'stays' });
}

# A server that has another ID, and may not use it yet, has not released the former one.
# Redis forgets both: the former one's next owner begins above its keys.
{
	my $moves = claimed('moves', $redis, '', marks => 300);
	my $at    = '0:' . worker_id($moves);
	my $last  = key_ms(next_key($moves));

	# so long, from here on
	settings($moves, "snowid.max_lead = '5min'\n");
	$moves->reload;
	wait_until('a ceiling minutes ahead',
		sub { $redis->record($at, 'ceiling') > 1000 * time + 250_000 });
	query($moves, 'SELECT snowid_reclaim()');
	$redis->query('FLUSHALL');
	wait_until(
		'what the server says of its former ID',
		sub { $redis->query('HGET', 'snowid', $at) });
	is($redis->record($at, 'owner'),
		'', 'the ID that a server is about to release is not put back');
	cmp_ok($redis->record($at, 'floor'), '>=', $last,
		'the floor of the record is above the keys that were made with that ID'
	);
	kill_all($moves);
	$redis->settle;
	wait_for_claim($stays);
}

# Each mark says up to where keys are made: after snowid_advance(), too, and not by a clock
# that is not believed.
{
	my $marks = claimed('marks', $redis, '', marks => 300);
	my $at    = '0:' . worker_id($marks);
	set_skew($marks, 2 * 86400);
	$marks->wait_for_log(qr/the clock jumped ahead/);
	my $n = $redis->record($at, 'n');
	wait_until('marks', sub { $redis->record($at, 'n') > $n + 2 });
	cmp_ok(
		$redis->record($at, 'ceiling'),
		'<',
		1000 * (time + 3600),
		'a clock that is not believed is in no mark');
	set_skew($marks, 0);
	$marks->wait_for_log(qr/the clock is back/);
	my $key = query($marks,
		"SELECT snowid_max(clock_timestamp() + interval '30 min')");
	query($marks, "SELECT snowid_advance($key)");
	wait_until('a mark',
		sub { $redis->record($at, 'ceiling') >= key_ms($key) });
	pass('the record has the ceiling of snowid_advance()');
	kill_all($marks);
	$redis->settle;
	wait_for_claim($stays);
}

foreach my $i (0 .. $#owners)
{
	my $node = claiming_cluster("owner$i", $proxy, $lease, marks => 5000);
	set_skew($node, $owners[$i]{wrong});
	$node->start;
	create_extension($node);
	$owners[$i]{node} = $node;
}
foreach my $owner (@owners)
{
	wait_for_claim($owner->{node});
	$owner->{id}   = key_of($owner->{node});
	$owner->{last} = key_ms(next_key($owner->{node}));
}

kill_all($_->{node}) foreach @owners;
$redis->query('FLUSHALL');

# The settling lasts for as long as the machine needs.
wait_until('a registry', sub { $redis->query('HGET', 'snowid', 'meta') });
$redis->edit('meta', span => 3_600_000);

# The arguments of the next claim of a server, from this offset of the requests on.
sub said_in_claim
{
	my ($node, $from) = @_;
	foreach my $words ($proxy->requests($from))
	{
		my (undef, undef, undef, undef, %said) = @$words;
		return \%said
		  if $words->[0] =~ /^EVAL/
		  && $said{operation} eq 'claim'
		  && $said{name} eq $node->name;
	}
	return;
}

sub come_back
{
	my ($owner) = @_;
	my $node    = $owner->{node};
	my $from    = $proxy->requests_size;
	my $said;

	# set_skew() lets a server that does not run boot
	{
		local $node->{_pid} = $owner->{boots} ? undef : 1;
		set_skew($node, 0);
	}
	$node->start;
	wait_until('the first call', sub { $said = said_in_claim($node, $from) });
	cmp_ok($said->{used}, '>=', $owner->{last},
		'its first call has the ceiling of all keys: ' . name_of($owner));
	return if $owner->{late};
	poll($node, "NOT is_open AND reason ~ 'registry is empty'");
	cmp_ok($redis->record("0:$owner->{id}", 'floor') // 0,
		'>=', $owner->{last},
		'the floor of the record is above all keys: ' . name_of($owner));
	return;
}

come_back($_) foreach grep { !$_->{late} } @owners;
$redis->end_settling;
come_back($_) foreach grep { $_->{late} } @owners;
poll($_->{node}, 'is_open') foreach @owners;

# its clock reaches all of them
my $next = claiming_cluster('next', $redis, '', marks => 300);
set_skew($next, 3600);
$next->start;
create_extension($next);
wait_for_claim($next);
my $id = worker_id($next);
my ($former) = grep { $_->{id} == $id } @owners;
ok($former, 'a newcomer whose clock is ahead gets the ID of one of them');
cmp_ok(
	key_ms(next_key($next)),
	'>',
	$former->{last} // 0,
	'its keys are above those of the owner before');
$_->stop foreach $next, $stays, map { $_->{node} } @owners;
done_testing();
