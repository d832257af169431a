# On PostgreSQL 17 and later, pg_stat_activity tells what callers and snowid's
# processes wait for.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');
my $node  = claiming_cluster('waits', $redis, 'max_worker_processes = 4');
$node->start;
plan skip_all => 'wait events have names from PostgreSQL 17 on'
  if $node->pg_version < 17;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
wait_for_claim($node);

# everybody waits for long
settings($node, "snowid.max_wait = '600s'\nsnowid.redis_timeout = '60s'");
$node->reload;
wait_for($node, "SELECT current_setting('snowid.redis_timeout') = '1min'");

my ($keeper, $registry) =
  map { process_pid($node, "snowid $_") } qw(keeper registry);
my $helper;

END
{
	local $?;
	kill 'CONT', grep { $_ } $keeper, $registry, $helper;
	$redis->resume if $redis;
}

# Waits until a process, or the caller, waits for this.
sub waits_for
{
	my ($who, $event) = @_;
	wait_for($node,
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE ($who) AND wait_event_type = 'Extension' AND wait_event = '$event'"
	);
	pass("$who: $event");
	return;
}

# The wait event of a caller in this statement, which is cancelled then.
sub caller_waits_for
{
	my ($sql, $event) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/asked/, "\\echo asked\n$sql;\n");
	my $is_it = "query = \$\$$sql;\$\$";
	waits_for($is_it, $event);
	$node->safe_psql('postgres',
		"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE $is_it");
	$session->quit;
	return;
}

my $keepers    = "backend_type = 'snowid keeper'";
my $registries = "backend_type = 'snowid registry'";

waits_for($keepers,    'SnowidKeeperMain');
waits_for($registries, 'SnowidRegistryMain');

# the clock is set back
next_key($node);
set_skew($node, -300);
caller_waits_for('SELECT snowid_next()', 'SnowidClock');
set_skew($node, 0);
next_key($node);

# the keeper does nothing
kill 'STOP', $keeper;
caller_waits_for(
	'SELECT count(*) FROM (SELECT snowid_next_batch(1000000000)) keys',
	'SnowidKeeper');
caller_waits_for('SELECT snowid_advance(snowid_max(now()))', 'SnowidAdvance');
kill 'CONT', $keeper;
next_key($node);

# the registry does nothing; then Redis
kill 'STOP', $registry;
caller_waits_for('SELECT count(*) FROM snowid_claims()', 'SnowidRegistry');
kill 'CONT', $registry;
$redis->freeze;
waits_for($registries, 'SnowidRedis');
$redis->resume;

# "snowid origin" does nothing, and there is no place for a second one
my $postmaster = $node->{_pid};
wait_until(
	'the process "snowid origin"',
	sub {
		($helper) = qx(ps -o pid=,args= --ppid $postmaster) =~
		  /^\s*(\d+).*snowid origin/m;
		$helper;
	});
kill 'STOP', $helper;
kill 'TERM', $keeper;
waits_for($keepers, 'SnowidOrigin');
kill 'CONT', $helper;
wait_for_claim($node);

# a segment's row is locked
$node->append_conf('postgresql.conf', 'max_worker_processes = 6');
$node->restart;
$node->safe_psql('postgres',
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'), ('b')"
);
my $locker = $node->background_psql('postgres');
$locker->query_safe(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'b' FOR UPDATE");
$node->safe_psql('postgres', "SELECT snowid_number('a')");
waits_for("backend_type = 'snowid segments'", 'SnowidSegmentsMain');
caller_waits_for("SELECT snowid_number('b')", 'SnowidSegment');
$locker->quit;

$node->stop;
done_testing();
