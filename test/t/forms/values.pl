# Results of the SQL functions, values and SQLSTATEs, against a model in whole numbers
# of any size, near the edges of random layouts: test/fuzz/surface.py.
# needs: python3
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

plan skip_all => 'there is no python3'
  if !eval { IPC::Run::run([ 'python3', '-c', '' ]) };

my $seconds = $ENV{SNOWID_FUZZ_SECONDS} // 3;
my $seed    = $ENV{SNOWID_FUZZ_SEED}    // int(rand(1 << 31));

# Of a server with the default layout, and with one at the limits of a server's.
my $at_the_limits =
  "snowid.layout = 'epoch=1970-01-01T00:00:00.001Z datacenter=0 worker=3 sequence=18'\n";
foreach my $settings ('', $at_the_limits)
{
	my $node = snowid_cluster(
		$settings ? 'limits' : 'default',
		$settings . 'snowid.worker_id = 3');
	start_and_open($node);
	local %ENV = $node->_get_env();
	my $out;
	my $good =
	  IPC::Run::run(
		[ 'python3', 'test/fuzz/surface.py', $seconds / 2, $seed ],
		'>&', \$out);
	ok($good, $out =~ /^(\d+ calls, .*)/m ? $1 : 'the calls');
	diag($out) if !$good;
	$node->stop;
}
done_testing();
