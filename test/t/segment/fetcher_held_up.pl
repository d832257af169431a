# The process that fetches ranges is held up: by a central server that hangs, by a
# row that is locked, or by who wants the database for himself.  It goes on in time also
# where the clock is set back meanwhile, by which PostgreSQL's own time-outs do not end.
# And while it is held up, the place of its tag in memory may become another tag's.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $central = snowid_cluster('central', '');
$central->start;
query($central,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
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

#---- A copy of the database that must fail ----

my $client = start_client($node, "SELECT snowid_number('free');");
clients_go_on($client);
$pid = process_pid($node, 'snowid segments');
like(
	sql_error($node, 'CREATE DATABASE copy TEMPLATE postgres'),
	qr/^55006: source database "postgres" is being accessed by other users/,
	'a database that is in use cannot be copied');
is(process_pid($node, 'snowid segments'),
	$pid, 'and the process stays, for those who use it');
clients_go_on($client);
stop_client($client);
is(sql_error($node, 'CREATE DATABASE copy TEMPLATE postgres'),
	'', 'from the only session in it, it can');

#---- A database is dropped while its central server hangs ----

my ($host, $port) = ($central->host, $central->port);

# Makes a database with a number of the central server in memory, and has that hang.
sub hang
{
	query($node, 'CREATE DATABASE other');
	$node->safe_psql('other', <<~EOF);
		CREATE EXTENSION snowid_segments; CREATE EXTENSION postgres_fdw;
		CREATE SERVER central FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER central;
		CREATE FOREIGN TABLE central (biz_tag text, max_id bigint, limit_id bigint, update_time timestamptz)
			SERVER central OPTIONS (schema_name 'public', table_name 'snowid_segments');
		INSERT INTO snowid_segments (biz_tag, step, source) VALUES ('a', 100, 'central');
		EOF
	$node->safe_psql('other', "SELECT snowid_number('a')");
	my @pids = processes($central);
	kill 'STOP', @pids;
	return @pids;
}

my @hung = hang();
is(sql_error($node, 'DROP DATABASE other'),
	'', 'a database can be dropped while its central server hangs');
kill 'CONT', @hung;
@hung = hang();
my $session = $node->background_psql('other', on_error_stop => 0);
$session->query_until(qr/^asked$/m,
	"\\echo asked\nSELECT count(snowid_number('a')) FROM generate_series(1, 1000);\n"
);
wait_for($node,
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'other' AND backend_type = 'client backend' AND wait_event_type = 'Extension'"
);
query($node,
	"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'other' AND backend_type = 'client backend'"
);
is(sql_error($node, 'DROP DATABASE other'), '', 'also during a fetch');
kill 'CONT', @hung;
eval { $session->quit };
@hung = hang();
is(sql_error($node, 'DROP DATABASE other WITH (FORCE)'),
	'', 'also with force');
kill 'CONT', @hung;

#---- The clock is set back, and stands still ----

stop_clock($node, (time - 7200) * 1000);
$locker = $node->background_psql('postgres');
$locker->query_safe(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'locked' FOR UPDATE");
my $waits = start_taking('locked', 1);
my $free  = start_taking('free',   100);
$free->{handle}->finish;
is($free->{out}, "100\n", 'a row that is locked does not stop other tags');
wait_for($node,
	"SELECT error = 'Its row is locked' FROM snowid_segment_status() WHERE biz_tag = 'locked'"
);
pass('and the status says what it is');
$locker->query_safe('COMMIT');
$locker->quit;
$waits->{handle}->finish;
is($waits->{out}, "1\n", 'when it is not any more, it has numbers');

cmp_ok(number($node, 'a'), '>', 0, 'a number of the central server');
@hung = processes($central);
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

#---- The place of a tag is given to another one during a fetch ----

my $small = snowid_cluster('s2',
	"snowid.worker_id = 2\nsnowid.max_wait = 60s\nsnowid.max_segments = 1");
let_hold($small);
$small->start;
use_central($small, $central->host, $central->port, 'a');
my $first = number($small, 'a');
hold_process($small, 'snowid segments',
	'timer_settime', 'CommitTransactionCommand');
is( query(
		$small, "SELECT max(snowid_number('a')) FROM generate_series(1, 99)"),
	$first + 99,
	'a range is used up');
held_process($small);
query($small, <<~EOF);
	UPDATE snowid_segments SET source = NULL, max_id = 1000000, limit_id = 1000000 WHERE biz_tag = 'a';
	INSERT INTO snowid_segments (biz_tag) VALUES ('b');
	EOF
like(sql_error($small, "SELECT snowid_number('a')"),
	qr/^2200H: /, 'and the tag has no other');
wait_until(
	'its place',
	sub {
		sql_error($small, "SELECT snowid_number('b')") !~
		  /^53400: there is no room for another segment/;
	});
query($central,
	"INSERT INTO snowid_segments (biz_tag, max_id) SELECT 'b', max_id FROM snowid_segments WHERE biz_tag = 'a'"
);
let_go($small);
my $same = 'SELECT count(DISTINCT max_id) FROM snowid_segments';
wait_until(
	'the end of the fetch',
	sub {
		query($small, 'SELECT lost FROM snowid_segment_status()') > 0
		  || query($central, $same) > 1;
	});
is(query($central, $same),
	1, 'what is fetched then is not given back to the other tag');
$small->stop;

$central->stop;
done_testing();
