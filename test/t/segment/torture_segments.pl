# Half a minute of test/torture/segments: three servers with one central table, any
# of the four killed or hung and the network cut, under clients that report each
# number outside the servers.
use strict;
use warnings;

use Test::More;

local $ENV{CALM} = 1;
my @said   = `$^X test/torture/segments 30`;
my $status = $?;

note @said;
is($status, 0,
	'no number twice, none out of order, none lost but by crashes and ends of ranges'
) or diag @said;
is($said[-1], "PASS\n", 'the torture ran to its end');
done_testing();
