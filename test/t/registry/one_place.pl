# Two servers whose data directories cannot be told apart, on what looks like one
# boot of one machine (two memory images, of which one was restored): they do not
# take the worker ID from each other for ever.
#
# A server knows a twin by a record that was written more than an interval after its
# own start.  So the second server starts later than that here; where both start
# within an interval, they may lose their IDs some times more.
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

# A server with this inode, running.
sub server_in
{
	my ($place, $name, $settings) = @_;
	my $node = claiming_cluster($name, $redis, $short . ($settings // ''));
	append_to_file("$node->{skew_file}.place", $place);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
	wait_for_claim($node);
	return $node;
}

# Waits until this server can know a twin.
sub until_it_knows_twins
{
	my ($pair) = @_;
	wait_until(
		"a record of $pair that shows a twin",
		sub {
			my ($seen, $since, $interval) =
			  map { $redis->record($pair, $_) } qw(seen since interval);
			return $seen - $since > $interval;
		});
	return;
}

sub losses
{
	return join ' ', map { logged($_, 0, qr/snowid lost its worker ID/) } @_;
}

# Both continue with these IDs, and no server lost one twice.
sub both_go_on
{
	my ($ids, $losses, $name, @nodes) = @_;
	wait_for_claim($_) foreach @nodes;
	foreach (1 .. 5)
	{
		answered($_) foreach @nodes;
	}
	wait_for_claim($_) foreach @nodes;
	like(join(' ', map { worker_id($_) } @nodes),
		qr/^$ids$/, "$name: the IDs");
	is(losses(@nodes), $losses, "$name: how often they were lost");
	return;
}

my $a = server_in(1, 'a');
is(worker_id($a), 0, 'a server claims the first ID');
my $place = $redis->record('0:0', 'place');
until_it_knows_twins('0:0');
my $b = server_in(1, 'b');
is($redis->record('0:0', 'name'), 'b', 'another with its place takes the ID');
$a->wait_for_log(qr/snowid lost its worker ID/);
both_go_on('1 0', '1 0', 'one place', $a, $b);
is($redis->record($_, 'place'), $place, "both have the place: $_")
  foreach '0:0', '0:1';
$a->restart;
$b->restart;
both_go_on('1 0', '1 0', 'both started again', $a, $b);

# The newcomer takes an ID away even if it cannot use it.
my $c = server_in(2, 'c', 'snowid.datacenter_id = 5');
until_it_knows_twins('5:0');
my $d = server_in(2, 'd', 'snowid.datacenter_id = 6');
$c->wait_for_log(qr/snowid lost its worker ID/);
both_go_on('1 0', '1 0', 'one place, two datacenters', $c, $d);

$_->stop foreach $a, $b, $c, $d;
done_testing();
