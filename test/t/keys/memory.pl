# The memory protocol of the generator, by going through all interleavings of its
# model with spin: test/memory/run; and two barriers that it needs.
# needs: spin
use strict;
use warnings;

use Test::More;

plan skip_all => 'spin is not installed'
  if system('command -v spin >/dev/null') != 0;

my @said = `test/memory/run 2>&1`;
is($?, 0, 'keys increase, with the pair of their opening, below the ceiling')
  or diag @said;
like(
	join('', @said),
	qr/^2 callers: [1-9]\d{5,} states, nothing found\n3 callers: [1-9]\d{6,} states, nothing found$/,
	'in all interleavings') or diag @said;

@said = `test/memory/run --mutations NO_READ_BARRIER NO_CLOSE_EXCHANGE 2>&1`;
is($?, 0, 'not so without a barrier, or without an exchange') or diag @said;
is(scalar(grep { /assertion violated/ } @said), 2, 'each of which is found')
  or diag @said;
done_testing();
