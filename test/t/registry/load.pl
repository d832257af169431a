# test/by_hand/registry_load does what its page says: many servers at one moment, what a
# call writes, and how long a full table hides an ID that can be had.
use strict;
use warnings;

use SnowidRedis;
use Test::More;

my @servers =
  `test/by_hand/registry_load --servers 200 --bits 9 --seconds 300 --ahead 2>&1`;
is($?, 0, 'test/by_hand/registry_load ends without an error')
  or diag @servers;
like(
	$servers[1],
	qr/^  200 of 200 have an ID, 200 different ones, 200 with keys at their clock's time, /,
	'200 servers on one Redis have 200 IDs');
like(
	$servers[4],
	qr/^  200 of 200 have an ID, 200 different ones, 200 with keys at their clock's time, /,
	'200 servers whose clock was ahead by an hour, and is set right, have 200 IDs with which keys begin at once'
);

my $cost = `test/by_hand/registry_load --cost 16,1000,16384 2>&1`;
is($?, 0, 'test/by_hand/registry_load --cost ends without an error')
  or diag $cost;

my %most = (
	'a claim of a new server'   => 2000,
	'a mark'                    => 400,
	'a page of snowid_claims()' => 400);
foreach my $call (sort keys %most)
{
	my @bytes =
	  $cost =~ /^\Q$call\E +[0-9.]+ ms, +(\d+) bytes of append-only file$/mg;
	is( scalar(grep { $_ > 0 && $_ <= $most{$call} } @bytes),
		3,
		"$call writes at most $most{$call} bytes, with 16, 1,000 and 16,384 records"
	) or diag $cost;
}

# A pause is 5 s, and two intervals are 12 s; a slow machine makes fewer pauses.
foreach
  my $what ('the one lease that has lapsed', 'the one ID that is not ahead')
{
	my @pauses = $cost =~ /^\Q$what\E +[0-9.]+ s, (\d+) pauses, /mg;
	is(scalar(grep { $_ <= 2 } @pauses),
		3, "$what is found within two intervals, in each of three tables")
	  or diag $cost;
}

done_testing();
