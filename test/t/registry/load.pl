# test/by_hand/registry_load does what its page says, with few servers and few records.
use strict;
use warnings;

use SnowidRedis;
use Test::More;

my @servers =
  `test/by_hand/registry_load --servers 5 --bits 3 --seconds 120 2>&1`;
is($?, 0, 'test/by_hand/registry_load ends without an error')
  or diag @servers;
like(
	$servers[1],
	qr/^  5 of 5 have an ID, 5 different ones, /,
	'five servers on one Redis have five IDs');

my @cost = `test/by_hand/registry_load --cost 16 2>&1`;
is($?, 0, 'test/by_hand/registry_load --cost ends without an error')
  or diag @cost;
like(
	"@cost",
	qr/^ *\Q$_\E +[0-9.]+ ms, +[1-9]\d* bytes of append-only file$/m,
	"$_ is shown with its cost"
) foreach 'a claim of a new server', 'a mark', 'a page of snowid_claims()';

done_testing();
