# The registry's script in a simulator: test/model/run.  Half a minute of random
# schedules of every fault that is known, and a mutation that it must catch.
use strict;
use warnings;

use Test::More;

plan skip_all => 'neither luajit nor lua5.1 is installed'
  if system('command -v luajit lua5.1 >/dev/null') != 0;

my @said = `test/model/run --schedules 20000 --seconds 30 2>&1`;
is($?, 0, 'no two servers make keys of the same times with one worker ID')
  or diag @said;
like(
	$said[-1],
	qr/^model: [1-9]\d* schedules, 0 overlaps, 0 leaks, 0 waits, 0 thrown out, 0 other faults; /,
	'and no ID leaks, nobody waits for ever, nobody is thrown out');
note @said;

@said =
  `test/model/run --mutate 'newcomers do not settle' --schedules 3000 --enough 1 2>&1`;
isnt($?, 0, 'without the time of settling there are') or diag @said;
like(
	join('', @said),
	qr/: (overlap|thrown out): server/,
	'and the steps are told') or diag @said;
done_testing();
