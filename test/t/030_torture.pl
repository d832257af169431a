# Half a minute of test/torture: processes killed, clock stepped, directory taken
# away, standby promoted, under clients that report each key outside the server.
use strict;
use warnings;

use Test::More;

my @said   = `$^X test/torture 30`;
my $status = $?;

note @said;
is($status, 0,
	'no key twice, none out of order, none with the number of another server')
  or diag @said;
is($said[-1], "PASS\n", 'and the run was complete');
done_testing();
