# The process that fetches ranges is held up: by a synchronous standby that is away, by a
# central server that hangs, by a row that is locked, or by a session that wants the
# database alone.  It continues in time even if the clock stands still meanwhile, which
# keeps PostgreSQL's own time-outs from ending.  And while it is held up, another tag may
# replace its tag in memory.
#
# While the standby is away no caller gets a number of the table here, whatever the
# database's owner has set; ranges of a central server, which has them durably, and a
# stop do not wait for it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidTest;
use Socket;
use Test::More;

#---- A synchronous standby that is away ----

my $fetchers = fetchers();

my $central = snowid_cluster('central', '');
$central->start;
query($central,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
);
my $node =
  snowid_cluster('s1', 'snowid.max_wait = 1min', allows_streaming => 1);
$node->start;
use_central($node, $central->host, $central->port, 'a');
query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag) VALUES ('here');
	INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('before', 1, '0');
	CREATE ROLE owner LOGIN;
	CREATE DATABASE shop OWNER owner;
	EOF
$node->safe_psql('shop', <<~EOF, extra_params => [ '-U', 'owner' ]);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('here');
	ALTER DATABASE shop SET synchronous_commit = local;
	EOF
is(number($node, 'a'),      1, 'a number of a central server');
is(number($node, 'before'), 1, 'a number of the table here');

# From here on the processes are there, and older than what they begin later.
wait_for($node,
	"SELECT count(*) = 2 AND bool_and(xact_start IS NULL AND backend_xmin IS NULL) $fetchers"
);
pass('a process that waits has no transaction, and holds back no vacuum');
wait_for($node,
	"SELECT bool_and(clock_timestamp() - backend_start > '3 s') $fetchers");
$node->append_conf('postgresql.conf',
	"synchronous_standby_names = 'nobody'\nsynchronous_commit = on");
$node->reload;
wait_for($node,
	"SELECT current_setting('synchronous_standby_names') = 'nobody'");

# commits wait when the checkpointer has seen it, the second time at the latest
query($node, 'CHECKPOINT') for 1 .. 2;

is( query(
		$node,
		"SELECT count(snowid_number('a')) FROM generate_series(1, 500)"),
	500,
	'ranges of a central server need no standby here');
my @callers;
foreach my $database ('postgres', 'shop')
{
	my $caller = $node->background_psql($database, on_error_stop => 0);
	$caller->query_until(qr/^asked$/m, <<~EOF);
		\\echo asked
		SELECT snowid_number('here');
		EOF
	ok( $node->poll_query_until(
			'postgres',
			"SELECT count(*) = 1 $fetchers AND datname = '$database' AND wait_event = 'SyncRep'"
		),
		"$database: a number of the table here waits for the standby");
	is( query(
			$node,
			"SELECT xact_start - backend_start > '3 s' $fetchers AND wait_event = 'SyncRep'"
		),
		't',
		'the start of a transaction is shown, and not that of the process'
	) if $database eq 'postgres';
	push @callers, $caller;
}

my $waiting = "$fetchers AND datname = 'postgres' AND wait_event = 'SyncRep'";
my $left =
  "SELECT sum(\"left\" + left_next) FROM snowid_segment_status() WHERE biz_tag = 'here'";
my $ended = query($node, "SELECT pid $waiting");
query($node, "SELECT pg_terminate_backend($ended)");
wait_for($node,
	"SELECT EXISTS (SELECT $waiting AND pid <> $ended) OR ($left) > 0");
is(query($node, $left),
	0, 'a range whose process ends before the standby has it is lost');
$node->stop('fast');
pass('a fast stop does not wait for it');

foreach my $caller (@callers)
{
	eval { $caller->quit };
	unlike($caller->{stdout}, qr/^\d+$/m, 'nobody got a number');
}
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$node->start;
query($node,
	"INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('locked', 10, '0'), ('free', 10, '0')"
);

#---- A copy of the database that must fail ----

my $client = start_client($node, "SELECT snowid_number('free');");
clients_go_on($client);
like(
	sql_error($node, 'CREATE DATABASE copy TEMPLATE postgres'),
	qr/^55006: source database "postgres" is being accessed by other users/,
	'a database that is in use cannot be copied');
clients_go_on($client);
stop_client($client);
is(sql_error($node, 'CREATE DATABASE copy TEMPLATE postgres'),
	'', 'a database can be copied from the only session in it');

#---- A database is dropped while its central server hangs ----

my ($host, $port) = ($central->host, $central->port);

# Makes a database with a number of the central server in memory, and has that hang.
sub hang
{
	query($node, 'CREATE DATABASE other');
	$node->safe_psql(
		'other',
		join "\n",
		'CREATE EXTENSION snowid_segments; CREATE EXTENSION postgres_fdw;',
		source_at(
			'central',
			host   => $host,
			port   => $port,
			dbname => 'postgres'),
		"INSERT INTO snowid_segments (biz_tag, step, source) VALUES ('a', 100, 'central');"
	);
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
my $session =
  ask_in_background($node,
	"SELECT count(snowid_number('a')) FROM generate_series(1, 1000)",
	'other');
wait_for($node,
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'other' AND backend_type = 'client backend' AND wait_event_type = 'Extension'"
);
query($node,
	"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'other' AND backend_type = 'client backend'"
);
is(sql_error($node, 'DROP DATABASE other'),
	'', 'a database can be dropped during a fetch');
kill 'CONT', @hung;
eval { $session->quit };

#---- A central server that reads nothing ----

socket(my $deaf, PF_INET, SOCK_STREAM, 0)      or die "$!";
setsockopt($deaf, SOL_SOCKET, SO_RCVBUF, 4096) or die "$!";
bind($deaf, sockaddr_in(0, INADDR_LOOPBACK))   or die "$!";
listen($deaf, 10)                              or die "$!";
my ($deaf_port) = sockaddr_in(getsockname($deaf));
query($node, <<~EOF);
	DO \$\$ BEGIN EXECUTE format(
		'CREATE SERVER deaf FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host ''127.0.0.1'', port ''$deaf_port'', sslmode ''disable'', gssencmode ''disable'', options %L)',
		'-c a.b=' || repeat('x', 2000000)); END \$\$;
	CREATE USER MAPPING FOR CURRENT_USER SERVER deaf;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('deaf', 'deaf');
	EOF
my $unheard = ask_in_background($node, "SELECT snowid_number('deaf')");
wait_for($node,
	"SELECT count(*) = 1 FROM snowid_segment_status() WHERE biz_tag = 'deaf' AND error <> ''"
);
pass('a central server that reads nothing is not waited for without end');
eval { $unheard->quit };
query($node, 'DROP SERVER deaf CASCADE');

#---- The clock stands still ----

stop_clock($node, (time - 7200) * 1000);
my $locker = $node->background_psql('postgres');
$locker->query_safe(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'locked' FOR UPDATE");
my $waits = ask_in_background($node, "SELECT snowid_number('locked')");
wait_for($node,
	"SELECT error = 'Its row is locked' FROM snowid_segment_status() WHERE biz_tag = 'locked'"
);
is( query(
		$node,
		"SELECT count(snowid_number('free')) FROM generate_series(1, 100)"),
	100,
	'a row that is locked does not stop other tags');
$locker->query_safe('COMMIT');
$locker->quit;
is(answer_of($waits), 1, 'a row that is not locked any more has numbers');

cmp_ok(number($node, 'a'), '>', 0, 'a number of the central server');
@hung = processes($central);
kill 'STOP', @hung;
$waits = ask_in_background($node,
	"SELECT count(snowid_number('a')) FROM generate_series(1, 1000)");
wait_for($node,
	"SELECT error = 'The central server did not answer in time' FROM snowid_segment_status() WHERE biz_tag = 'a'"
);
pass('a central server that hangs is not waited for without end');
$node->stop('fast');
pass('a fast stop does not wait for a central server that hangs');
eval { $waits->quit };
kill 'CONT', @hung;

#---- The place of a tag is given to another one during a fetch ----

my $small = snowid_cluster('s2',
	"snowid.worker_id = 2\nsnowid.max_wait = 60s\nsnowid.max_segments = 1");
let_hold($small);
$small->start;
use_central($small, $central->host, $central->port, 'a');
my $first = number($small, 'a');
hold_process($small, 'snowid segments',
	'LWLockAcquire', 'CommitTransactionCommand');
is( query(
		$small, "SELECT max(snowid_number('a')) FROM generate_series(1, 99)"),
	$first + 99,
	'a range is used up');
held_process($small);
query($small, <<~EOF);
	UPDATE snowid_segments SET source = NULL, max_id = 1000000, limit_id = 1000000 WHERE biz_tag = 'a';
	INSERT INTO snowid_segments (biz_tag) VALUES ('b');
	EOF
$waits = ask_in_background($small, "SELECT snowid_number('b')");
wait_for($small,
	"SELECT count(*) = 1 FROM snowid_segment_status() WHERE biz_tag = 'b'");
let_go($small);
is(answer_of($waits), 1,
	'a tag that replaced another one in memory has numbers of its own');
is( query($central, "SELECT max_id FROM snowid_segments WHERE biz_tag = 'a'"),
	$first + 199,
	'a range that is fetched for a tag no longer in memory is lost');

#---- The place is given to another database's tag while its range is given back ----

$small->restart;
my $tag =
  "INSERT INTO snowid_segments (biz_tag, limit_id) VALUES ('same', 1000)";
query($small, $tag);
query($small, 'CREATE DATABASE other');
$small->safe_psql('other', "CREATE EXTENSION snowid_segments; $tag");
is(query($small, "SELECT last FROM snowid_number_range('same', 500)"),
	500, 'half of a range is used');

# it looks for the next range, and is idle
foreach (1 .. 2)
{
	hold_process($small, 'snowid segments', 'WaitLatch');
	held_process($small);
	let_go($small);
}
my $fetcher = fetcher_pid($small);
hold_process($small, 'snowid segments', 'fmgr_info');
query($small, "SELECT pg_terminate_backend($fetcher)");
held_process($small);
is($small->safe_psql('other', "SELECT snowid_number('same')"),
	1, 'a tag of another database gets the only place');
let_go($small);
wait_until('the end of the process', sub { !kill 0, $fetcher });
is( query(
		$small, "SELECT max_id FROM snowid_segments WHERE biz_tag = 'same'"),
	1000,
	'a range of another database is not given back to a row');
is($small->safe_psql('other', "SELECT snowid_number('same')"),
	2, 'a tag that got the place keeps its range');

#---- A row is changed by hand while its range is given back ----

query($small,
	"INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('imported', 100, '0')"
);
is(number($small, 'imported'), 1, 'most of a range is in memory');
my $importer = $small->background_psql('postgres');
$importer->query_safe(
	"BEGIN; UPDATE snowid_segments SET max_id = greatest(max_id, 100) WHERE biz_tag = 'imported'"
);
$fetcher = fetcher_pid($small);
hold_process($small, 'snowid segments', 'LWLockRelease', 'fmgr_info');
query($small, "SELECT pg_terminate_backend($fetcher)");
held_process($small);
$importer->query_safe('COMMIT');
$importer->quit;
let_go($small);
wait_until('the end of the process', sub { !kill 0, $fetcher });
is( query(
		$small,
		"SELECT max_id FROM snowid_segments WHERE biz_tag = 'imported'"),
	100,
	'a max_id that is set while the range is given back is not lowered');

# The session that changes it is held where it drops the range from memory.
cmp_ok(number($small, 'imported'), '>', 100, 'a range after the import');
my $last =
  query($small,
	"SELECT max_id FROM snowid_segments WHERE biz_tag = 'imported'");
$fetcher = fetcher_pid($small);
hold_process($small, 'client', 'LWLockAcquire');
my $sets = ask_in_background($small,
	"UPDATE snowid_segments SET max_id = greatest(max_id, $last) WHERE biz_tag = 'imported'"
);
held_process($small);
query($small, "SELECT pg_terminate_backend($fetcher)");
wait_until('the end of the process', sub { !kill 0, $fetcher });
let_go($small);
is(answer_of($sets), '', 'a max_id can be set while the process ends');
is( query(
		$small,
		"SELECT max_id FROM snowid_segments WHERE biz_tag = 'imported'"),
	$last,
	'a max_id that becomes visible while the process ends is not lowered');
$small->stop;
$central->stop;

done_testing();
