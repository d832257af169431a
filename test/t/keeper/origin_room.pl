# Origins do not pile up: those whose ceiling has passed by a day go at the next
# look-up; where there are more than a few, those that passed by more than
# max_jump, and those of worker IDs that Redis has on record.  So
# max_replication_slots can be lowered, and other origins have room.  What says
# which layout made the last keys stays, and so does what lies ahead.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $node  = snowid_cluster('room', 'snowid.worker_id = 1');
my $limit = origin_places($node);
start_and_open($node);

# The server's worker IDs that have origins.
sub origins
{
	return query(
		$node,
		q(SELECT string_agg(substring(roname FROM '_0_(\d+)$'), ' ' ORDER BY roident)
		FROM pg_replication_origin WHERE roname LIKE 'snowid\_%'));
}

sub origins_are
{
	my ($expected, $name) = @_;
	$node->poll_query_until(
		'postgres',
		q(SELECT string_agg(substring(roname FROM '_0_(\d+)$'), ' ' ORDER BY substring(roname FROM '_0_(\d+)$')::int)
		FROM pg_replication_origin WHERE roname LIKE 'snowid\_%'), $expected);
	is(join(' ', sort { $a <=> $b } split / /, origins()), $expected, $name);
	return;
}

my $skew = 0;

# Makes keys as this keeper, with the clock this many seconds ahead.
sub make_keys_as
{
	my ($worker_id, $at, $more) = @_;
	my $settings =
	  "snowid.worker_id = $worker_id\nsnowid.max_lead = 10ms\nsnowid.max_jump = 1min\n"
	  . ($more // '');
	configure($node, $settings);
	if ($at == $skew) { $node->reload; }
	else
	{
		$node->stop;
		set_skew($node, $skew = $at);
		$node->start;
	}
	$node->poll_query_until('postgres',
		"SELECT is_open AND worker_id = $worker_id FROM snowid_status()")
	  or die "$worker_id: "
	  . query($node, 'SELECT reason FROM snowid_status()');
	query($node, 'SELECT snowid_next()');
	return;
}

#---- With room ----

make_keys_as($_, 0) foreach 2 .. 6;
origins_are('1 2 3 4 5 6', 'origins of the last minute stay');
make_keys_as(7, 120);
make_keys_as(7, 121);
origins_are('4 5 6 7', 'a few of those past by max_jump stay');
make_keys_as(8, 121);
make_keys_as(8, 2 * 86400);
make_keys_as(8, 2 * 86400 + 1);
origins_are('8', 'those a day past go, though there is room');

# One that somebody has in use stays, and stops nothing.
make_keys_as(9, 2 * 86400 + 1);
my $holder = start_pgbench($node, 'postgres', '-c 1 -t 1', hold => <<~EOF);
	SELECT pg_replication_origin_session_setup(roname) FROM pg_replication_origin WHERE roname LIKE 'snowid%_0_8';
	SELECT pg_sleep(1e8);
	EOF
$node->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
  or die;
set_skew($node, $skew = 4 * 86400);
$node->poll_query_until('postgres',
	"SELECT reason ~ 'jumped' FROM snowid_status()")
  or die;
query($node, 'SELECT snowid_accept_clock()');
make_keys_as(10, $skew);
make_keys_as(11, $skew);
origins_are('8 10 11', 'one that is in use stays');

# All stay while their catalog is locked, which stops nothing either.
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK pg_replication_origin IN SHARE MODE');
query($node,
	"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
);
stop_pgbench($holder);
make_keys_as(10, $skew);
wait_for($node,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'snowid origin' AND datname IS NOT NULL"
);
origins_are('8 10 11', 'while the catalog is locked all stay');
$session->query_safe('COMMIT');
$session->quit;

#---- A lower limit ----

make_keys_as($_, $skew) foreach 12 .. 15;
make_keys_as(15, $skew + $_ * 120) foreach 1, 2;
origins_are('12 13 14 15', 'a few stay');
$node->append_conf('postgresql.conf', "$limit = 4");
$node->restart;
server_is_open($node);
pass("$limit can be lowered to a few, and the server starts");
make_keys_as($_, $skew + 120) foreach 16 .. 22;
pass('a few origins are enough if worker IDs come and go');

#---- What made the last keys stays ----

my $wider =
  "snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=13'\n";
configure($node, "snowid.worker_id = 22\n$wider");
$node->restart;
$node->poll_query_until('postgres',
	q(SELECT reason LIKE 'snowid''s layout was changed%' FROM snowid_status())
) or die;
foreach my $restart (1 .. 3)
{
	$node->stop;
	set_skew($node, $skew += 86400);
	$node->start;
	$node->poll_query_until('postgres',
		q(SELECT reason LIKE 'snowid''s layout was changed%' FROM snowid_status())
	) or die;
}
pass('another layout waits for consent, days later, too');
configure($node, 'snowid.worker_id = 22');
$node->restart;
server_is_open($node);
pass('the layout of the last keys is known');
$node->stop;

#---- Worker IDs from Redis ----

my $redis = SnowidRedis->start('redis');
$node = claiming_cluster('claiming', $redis, '');
$node->append_conf('postgresql.conf', "$limit = 4");
start_and_open($node);
my $highest = 0;
my $failed  = 0;
foreach my $round (1 .. 12)
{
	settings($node, "snowid.datacenter_id = $round\n");
	$node->reload;
	poll($node, "is_open AND datacenter_id = $round");
	my $key = next_key($node);
	$failed++ unless $key > $highest;
	$highest = $key;
}
is($failed, 0,
	'a dozen datacenters, one after the other, with worker IDs from Redis: keys continue'
);
cmp_ok(query($node, 'SELECT count(*) FROM pg_replication_origin'),
	'<=', 4, 'a dozen worker IDs from Redis: four origins are kept at most');
$node->stop;
done_testing();
