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
my $lease = "snowid.redis_lease = '10s'\n";

# Seconds by which the clock is wrong; whether the settling is over when it is back; and
# whether its machine has booted meanwhile.
my @owners =
  map { { wrong => $_->[0], late => $_->[1], boots => $_->[2] } }
  [ 30, 0, 0 ], [ 3500, 0, 1 ], [ -3500, 0, 0 ],
  [ 30, 1, 1 ], [ 3500, 1, 0 ], [ -3500, 1, 1 ];

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
my $stays = claiming('stays', $redis, '', marks => 300);
wait_for_claim($stays);

foreach my $i (0 .. $#owners)
{
	my $node = claiming_cluster("owner$i", $redis, $lease, marks => 5000);
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

# Its first call says it, before the next mark could.
sub come_back
{
	my ($owner) = @_;
	my $node = $owner->{node};

	# set_skew() lets a server that does not run boot
	{
		local $node->{_pid} = $owner->{boots} ? undef : 1;
		set_skew($node, 0);
	}
	$node->start;
	poll($node,
		$owner->{late}
		? 'is_open'
		: "NOT is_open AND reason ~ 'registry is empty'");
	cmp_ok($redis->record("0:$owner->{id}", 'ceiling') // 0,
		'>=', $owner->{last},
		'the record has the ceiling of all keys: ' . name_of($owner));
	return;
}

come_back($_) foreach grep { !$_->{late} } @owners;
wait_until(
	'the end of the settling',
	sub {
		my ($since, $span, $beat) =
		  map { $redis->record('meta', $_) } qw(since span beat);
		return $beat > $since + $span;
	});
come_back($_) foreach grep { $_->{late} } @owners;

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
