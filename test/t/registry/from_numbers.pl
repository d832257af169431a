# Three servers with numbers move to Redis one after another, as doc/worker-ids.md says: no
# two of them ever have the same pair, and no key is made twice.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');

# The one that moves first has the highest number, and Redis gives the lowest.
my @servers =
  map { snowid_cluster("server$_", "snowid.worker_id = $_\n") } 2, 1, 0;
my (%made, %twice);

sub all_make_keys
{
	foreach my $server (@servers)
	{
		foreach my $key (split /\n/,
			query($server, 'SELECT snowid_next_batch(1000)'))
		{
			$twice{$key}++ if $made{$key}++;
		}
	}
	return;
}

sub pairs
{
	return map { status($_, "datacenter_id || ':' || worker_id") } @servers;
}

foreach my $server (@servers)
{
	$server->start;
	create_extension($server);
	server_is_open($server);
}
is(join(' ', pairs()), '0:2 0:1 0:0', 'three servers have numbers');
all_make_keys();
foreach my $server (@servers)
{
	configure($server,
		claim_settings($server->name, $redis, "snowid.datacenter_id = 1\n"));
	$server->restart;
	wait_for_claim($server);
	my %pairs = map { $_ => 1 } pairs();
	is(scalar(keys %pairs),
		3,
		$server->name . ' has moved, and each server has a pair of its own');
	all_make_keys();
}
is(join(' ', pairs()),     '1:0 1:1 1:2', 'all three have IDs of Redis');
is(join(' ', keys %twice), '',            'no key was made twice');
$_->stop foreach @servers;
done_testing();
