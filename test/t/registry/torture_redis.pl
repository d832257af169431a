# Half a minute of test/torture/redis: three servers, one Redis, and all that can
# happen to them, under clients that report each key outside the servers.
# needs: redis-server
use strict;
use warnings;

use Test::More;

local $ENV{CALM} = 1;
my @said   = `$^X test/torture/redis 30`;
my $status = $?;

note @said;
is($status, 0,
	'no key twice over all servers, none out of order, none with an ID that its server did not have'
) or diag @said;
is($said[-1], "PASS\n", 'the torture ran to its end');
done_testing();
