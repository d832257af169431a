# A closed gate costs nothing, however many callers wait for it: they sleep, the
# keeper looks twice a second at most, and the log has each state once; and it opens soon after the reason has passed.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

# So long each state is watched, in s; and how often the keeper may wait in it.  A slow
# machine does less.
my $period = 6;
my $bound  = 6 * $period;

my $node =
  snowid_cluster('closed', "snowid.worker_id = 1\nsnowid.max_wait = 1h");
$node->append_conf('postgresql.conf', 'log_min_messages = debug1');
start_and_open($node);

# Settings by reload.
sub settings
{
	my ($settings) = @_;
	configure($node, "snowid.max_wait = 1h\n$settings");
	$node->reload;
	return;
}

# Watches a gate that is closed while callers wait for it.
sub is_quiet
{
	my ($what, $why) = @_;
	my @clients = map { start_client($node) } 1 .. 4;

	my $callers =
	  "FROM pg_stat_activity WHERE query ~ '^SELECT snowid_next' AND wait_event_type = 'Extension'";
	poll($node, "NOT is_open AND reason ~ '$why'");
	wait_for($node, "SELECT count(*) = 4 $callers");
	my @callers = split /\n/, query($node, "SELECT pid $callers");
	my $keeper  = keeper_pid($node);
	my $log     = -s $node->logfile;
	my ($before, $calls) = (waits_of($keeper), waits_of(@callers));
	my $ends = time + $period;
	query($node, 'SELECT pg_sleep(0.1)') while time < $ends;
	my $turns = waits_of($keeper) - $before;
	$calls = waits_of(@callers) - $calls;
	$log   = slurp_file($node->logfile, $log);
	my $lines = () = $log =~ /(?:LOG|WARNING|ERROR|FATAL):  /g;
	note "$turns waits of the keeper, $calls of 4 callers, $lines lines";
	cmp_ok($turns, '<', $bound, "$what: the keeper rests");
	cmp_ok($calls, '<', $bound / 3,
		"$what: callers that wait for it rest, too");
	cmp_ok($lines, '<', 3, "$what: the log is quiet");
	return @clients;
}

# The reason has passed: all continue.
sub goes_on
{
	my ($what, @clients) = @_;
	clients_go_on(@clients);
	pass("$what: when it has passed keys continue");
	foreach my $client (@clients)
	{
		stop_client($client);
		is(slurp_file($client->{errors}), '', 'without an error');
	}
	return;
}

#---- A new pair ----

settings("snowid.worker_id = 2\nsnowid.max_lead = 1h");
my @clients = is_quiet('a new pair', 'can be used when the clock has passed');
settings("snowid.worker_id = 2\nsnowid.max_lead = 10ms");
goes_on('a new pair', @clients);

# A reason that does not pass ends their wait.
settings("snowid.worker_id = 3\nsnowid.max_lead = 1h");
poll($node, "reason ~ 'can be used when the clock has passed'");
my $waiting = start_client($node);
wait_for($node,
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT snowid_next' AND wait_event_type = 'Extension'"
);
settings('');
wait_until('an error', sub { -s $waiting->{errors} });
like(
	slurp_file($waiting->{errors}),
	qr/ERROR:  snowid has no worker ID/,
	'a caller that waits learns that there is no worker ID');
stop_client($waiting);

#---- The ceiling cannot be written ----

my $places =
  query($node, "SELECT current_setting('@{[ origin_places($node) ]}')");
query($node, <<~EOF);
	SELECT pg_replication_origin_create('other' || i) FROM generate_series(1, $places) i
	EOF

# the layout and two pairs have places
query($node,
	"SELECT pg_replication_origin_advance('other' || i, '0/1') FROM generate_series(1, $places - 3) i"
);
settings("snowid.worker_id = 3\nsnowid.max_lead = 10ms");
@clients = is_quiet(
	'the ceiling cannot be written',
	'cannot raise its ceiling: could not find free replication state.*Increase'
);
query($node,
	'SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin');
goes_on('the ceiling cannot be written', @clients);

#---- Redis is away ----

my $port = PostgreSQL::Test::Cluster::get_free_port();
settings("snowid.redis_url = 'redis://127.0.0.1:$port'");
$node->restart;
@clients = is_quiet('Redis is away', 'Redis cannot be used');
stop_client($_) foreach @clients;

#---- A jump of the clock that is not believed, and another worker ID ----

settings('snowid.worker_id = 1');
$node->restart;
server_is_open($node);
set_skew($node, 86400);
poll($node, "NOT is_open AND reason ~ 'could not reserve more keys.*jumped'");
settings('snowid.worker_id = 4');
poll($node, "NOT is_open AND reason ~ 'not ready yet.*jumped'");
pass(
	'a worker ID that is not this server\'s any more is left, though the clock is not believed'
);
set_skew($node, 0);
poll($node, 'is_open AND worker_id = 4');
pass('the new worker ID is taken when the clock is back');
$node->stop;
done_testing();
