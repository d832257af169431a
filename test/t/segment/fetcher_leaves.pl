# The process that fetches ranges leaves: with more tags than fit into one
# transaction that it cannot give back, with one that it could not give back before,
# and while its source does not answer.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $fetchers = "FROM pg_stat_activity WHERE backend_type = 'snowid segments'";

my $node = snowid_cluster('leave', 'snowid.max_wait = 60s');
$node->start;
query($node, <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag, step) VALUES ('locked', 100);
	EOF

#---- What could not be given back ----

is(number($node, 'locked'), 1, 'a number');
my $locker = $node->background_psql('postgres');
$locker->query_safe(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'locked' FOR UPDATE");
wait_until('it is idle, and its row is locked',
	sub { slurp_file($node->logfile) =~ /Its row is locked/ });
$locker->query_safe('COMMIT');
$locker->quit;
sleep 6;    # longer than a process without work stays
$node->restart;
is(number($node, 'locked'),
	2, 'what could not be given back once is given back by a stop');

#---- Very many tags ----

query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, step) SELECT 't' || n, 100 FROM generate_series(1, 600) n;
	SELECT count(snowid_number(biz_tag)) FROM snowid_segments WHERE biz_tag LIKE 't%';
	EOF

# Another server takes a range of each.
query($node,
	"UPDATE snowid_segments SET max_id = max_id + 100, update_time = 'infinity' WHERE biz_tag LIKE 't%'"
);
my $pid = query($node, "SELECT pid $fetchers");
query($node, "SELECT pg_terminate_backend($pid)");
wait_for($node, "SELECT count(*) = 0 $fetchers AND pid = $pid");
pass('the process leaves, whatever cannot be given back');
is(number($node, 't600'), 2, 'and that is used on');
$node->stop;

#---- A source that does not answer ----

my $central = snowid_cluster('central', '');
$central->start;
my @tags = map { "c$_" } 1 .. 40;
query($central, <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) SELECT 'c' || n FROM generate_series(1, 40) n;
	EOF
my $server =
  snowid_cluster('s1', "snowid.worker_id = 1\nsnowid.max_wait = 60s");
$server->start;
use_central($server, $central->host, $central->port, @tags);
query($server, "ALTER SERVER central OPTIONS (ADD connect_timeout '3')");
query($server, "SELECT count(snowid_number(biz_tag)) FROM snowid_segments");
is(number($server, 'c1'), 2, 'a number of another server');
query($server,
	"UPDATE snowid_segments SET limit_id = 1 WHERE biz_tag = 'c1'");
wait_for($central,
	"SELECT max_id = 2 FROM snowid_segments WHERE biz_tag = 'c1'");
is(number($server, 'c1'),
	3, 'its range is given back to it when the row is changed here');

# Another server takes a range, so that what is left here cannot be given back.
is(number($server, 'c2'), 2, 'a number of another tag');
query($central,
	"UPDATE snowid_segments SET max_id = max_id + 100, update_time = 'infinity' WHERE biz_tag = 'c2'"
);
wait_for($server, "SELECT count(*) = 0 $fetchers");
query($server,
	"UPDATE snowid_segments SET limit_id = 1 WHERE biz_tag = 'c2'");
is(segment_status($server, 'c2', 'lost'),
	98, 'what was used on is lost when the row is changed');
is(number($server, 'c2'), 201,
	'and numbers go on behind the other server\'s');

query($server, "SELECT count(snowid_number(biz_tag)) FROM snowid_segments");
query($central,
	"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postgres_fdw'"
);
my @hung = processes($central);
kill 'STOP', @hung;
my $began = time;
$server->stop('fast');
cmp_ok(time - $began, '<', 100, 'a fast stop tries only once to reach it');
kill 'CONT', @hung;
$central->stop;
done_testing();
