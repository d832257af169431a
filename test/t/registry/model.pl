# The registry's script in a simulator: test/model/run.  Fixed schedules, and random ones
# of every fault that is known.  test/run sources takes out each statement
# once, where something of it has changed.
# needs: luajit lua-cjson
use strict;
use warnings;

use Test::More;

plan skip_all => 'neither luajit nor lua5.1 with lua-cjson is installed'
  if system(
	q{luajit -e 'require "cjson"' 2>/dev/null || lua5.1 -e 'require "cjson"' 2>/dev/null}
  ) != 0;

my $nothing =
  qr/^model: [1-9]\d* schedules, 0 overlaps, 0 leaks, 0 waits, 0 thrown out, 0 other faults; /;

# Side by side, and looked at one after the other
sub begin
{
	my ($command) = @_;
	open(my $run, '-|', "$command 2>&1") or die "$!";
	return $run;
}

sub said_by
{
	my ($run) = @_;
	my @said = <$run>;
	close($run);
	return @said;
}

my $has_lua = system('command -v lua5.1 >/dev/null') == 0;

# Two halves: fixed schedules and random ones, and random ones.
my @halves = map { begin("test/model/run $_") } '--schedules 1500',
  '--seed 1501 --schedules 1500';
my $unsettled = begin(
	q(test/model/run --mutate 'newcomers do not settle' --schedules 3000 --enough 1)
);
my $in_lua = $has_lua
  && begin('lua5.1 test/model/main.lua --seed 100001 --schedules 300');
my @said;

foreach my $half (@halves)
{
	@said = said_by($half);
	is($?, 0, 'no two servers make keys of the same times with one worker ID')
	  or diag @said;
	like($said[-1], $nothing,
		'no ID leaks, and no server waits for ever or is thrown out');
	note @said;
}

@said = said_by($unsettled);
isnt($?, 0, 'without the time of settling a fault is found') or diag @said;
like(
	join('', @said),
	qr/: (overlap|thrown out|given twice): server/,
	'without the time of settling the steps to the fault are printed'
) or diag @said;

SKIP:
{
	skip 'lua5.1, the Lua of Redis, is not installed', 1 if !$has_lua;
	@said = said_by($in_lua);
	like($said[-1], $nothing, 'the same in the Lua of Redis') or diag @said;
}
done_testing();
