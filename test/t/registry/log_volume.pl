# How much a Redis can have written into the log: one whose error is another one
# each time, asked again and again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $asked = 300;

my $count = 0;
my $fake  = SnowidRedis->fake(
	sub {
		$count++;
		return "-ERR trouble number $count\r\n";
	});
my $node = snowid_cluster('asks', <<~EOF);
	snowid.redis_url = 'redis://127.0.0.1:$fake->{port}'
	snowid.redis_check_interval = '100ms'
	EOF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
poll($node, "registry_error ~ 'trouble number'");

my $before = () = $fake->requests(0);
my $log    = -s $node->logfile;
my $began  = time;
wait_until('the tries that were asked for',
	sub { (() = $fake->requests(0)) >= $before + $asked });
my $lines = () = slurp_file($node->logfile, $log) =~
  /(?:LOG|WARNING|ERROR|FATAL):  |DETAIL:  /g;

# two processes, each 30 lines with a detail, and then one each 10 s
cmp_ok(
	$lines, '<=',
	2 * 2 * (31 + (time - $began) / 10),
	"of $asked different errors few are logged");
cmp_ok($lines, '<', $asked, 'fewer than there were');
poll($node, "registry_error ~ 'trouble number'");
pass('the status has the last one all the same');
$node->stop;
done_testing();
