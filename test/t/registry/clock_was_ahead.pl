# A clock that was ahead and is set right: what was done by it holds nobody up.  A
# snowid_advance() does not keep the server from another worker ID; a server believes
# the ceilings that it wrote itself, also in an empty registry; and where such an ID is given
# to it in place of another, it takes a third one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis    = SnowidRedis->start('redis');
my $settings = "snowid.max_wait = '1s'\n";

sub key_is_of_today
{
	my ($node, $name) = @_;
	poll($node, 'is_open');
	is( query(
			$node,
			"SELECT abs(extract(epoch FROM snowid_timestamp(snowid_next()) - clock_timestamp())) < 60"
		),
		't', $name);
	return;
}

#---- An advance ----

my $node = claiming_cluster('advanced', $redis, $settings, marks => 300);
set_skew($node, 2 * 3600);
start_and_open($node);
query($node,
	"SELECT snowid_advance(snowid_max(clock_timestamp() + interval '1 min'))"
);
set_skew($node, 0);
poll($node, 'is_open AND worker_id = 1');
key_is_of_today($node,
	'an advance by a clock that was wrong: the server takes another worker ID'
);
$node->stop;

#---- Ceilings of its own ----

$node = claiming_cluster('ahead', $redis, $settings, marks => 300);
set_skew($node, 2 * 86400);
start_and_open($node);
next_key($node);
my $keeper = keeper_pid($node);
stop_process($node, $keeper);
set_skew($node, 0);
like(
	sql_error($node, "SET statement_timeout = '60s'; SELECT snowid_next()"),
	qr/^58000: the next key would lead the clock/,
	'a caller is refused after max_wait if the keeper takes no other worker ID'
);
set_skew($node, 2 * 86400);
kill 'CONT', $keeper;
$node->stop;
set_skew($node, 0);
settings($node, $settings . "snowid.redis_prefix = 'other'\n");
$node->start;
key_is_of_today($node,
	'in an empty registry the server believes the ceilings that it wrote');
$redis->query('FLUSHALL');
$node->restart;
key_is_of_today($node,
	'in a registry that was emptied the server believes them, too');
$node->stop;

#---- Another ID that only its WAL knows of ----

$redis->query('FLUSHALL');
$node = claiming_cluster('twice', $redis, $settings, marks => 300);
set_skew($node, 1800);
start_and_open($node);
next_key($node);
set_skew($node, 0);
poll($node, 'is_open AND worker_id = 1');
$node->stop;
unlink $node->data_dir . '/snowid/state' or die "$!";
$redis->forget('0:0');
set_skew($node, 1800);
$node->start;
poll($node, 'is_open AND worker_id = 1');
next_key($node);
set_skew($node, 0);
poll($node, 'is_open AND worker_id = 2');
key_is_of_today($node,
	'the first other worker ID has keys ahead, too: the server takes a second one'
);
is( query(
		$node,
		'SELECT count(*) FROM snowid_claims() WHERE server_name = \'twice\''),
	'1',
	'of the other worker IDs it keeps the second alone');
$node->stop;
done_testing();
