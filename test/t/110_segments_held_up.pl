# The process that fetches ranges is held up: by a central server that hangs, by a
# row that is locked, or by who wants the database for himself.  It goes on in time also
# where the clock is set back meanwhile, by which PostgreSQL's own time-outs do not end.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $central = snowid_cluster('central', '');
$central->start;
query($central,
	"CREATE EXTENSION snowid; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
);
my $node = snowid_cluster('s1', 'snowid.max_wait = 60s');
$node->start;
use_central($node, $central->host, $central->port, 'a');
query($node,
	"INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('locked', 10, '0'), ('free', 10, '0'), ('kept', 100, '0')"
);
my $fetchers = "FROM pg_stat_activity WHERE backend_type = 'snowid segments'";

# Takes numbers of a tag in the background.
sub start_taking
{
	my ($tag, $n) = @_;
	my $taking = { out => '' };
	$taking->{handle} = IPC::Run::start(
		[
			'psql',
			'-XAtq',
			'-d',
			$node->connstr('postgres'),
			'-c',
			"SELECT count(snowid_number('$tag')) FROM generate_series(1, $n)"
		],
		'<',
		'/dev/null',
		'>&',
		\$taking->{out},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $taking;
}

#---- The process is terminated and cannot give back ----

is(number($node, 'kept'), 1, 'a number');
my $locker = $node->background_psql('postgres');
$locker->query_safe(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'kept' FOR UPDATE");
my $pid = process_pid($node, 'snowid segments');
query($node, "SELECT pg_terminate_backend($pid)");
wait_for($node,
	"SELECT array_agg(pid) <> ARRAY[$pid] AND min(wait_event_type) = 'Extension' $fetchers"
);
$locker->query_safe('COMMIT');
$locker->quit;
$node->restart;
is(number($node, 'kept'), 2, 'a clean stop gives back what its process kept');

#---- The clock is set back, and stands still ----

stop_clock($node, (time - 7200) * 1000);
$locker = $node->background_psql('postgres');
$locker->query_safe(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'locked' FOR UPDATE");
my $waits = start_taking('locked', 1);
my $free  = start_taking('free',   100);
$free->{handle}->finish;
is($free->{out}, "100\n", 'a row that is locked does not stop other tags');
is( segment_status($node, 'locked', 'error'),
	'Its row is locked',
	'and the status says what it is');
$locker->query_safe('COMMIT');
$locker->quit;
$waits->{handle}->finish;
is($waits->{out}, "1\n", 'when it is not any more, it has numbers');

cmp_ok(number($node, 'a'), '>', 0, 'a number of the central server');
my @hung = processes($central);
kill 'STOP', @hung;
$waits = start_taking('a', 1000);
wait_for($node,
	"SELECT error = 'The source did not answer in time' FROM snowid_segment_status() WHERE biz_tag = 'a'"
);
pass('a central server that hangs is cut off');
$node->stop('fast');
pass('and a fast stop does not wait for it');
$waits->{handle}->finish;
kill 'CONT', @hung;

$central->stop;
done_testing();
