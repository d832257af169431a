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
	CREATE ROLE owner LOGIN;
	CREATE DATABASE shop OWNER owner;
	EOF
$node->safe_psql('shop', <<~EOF, extra_params => [ '-U', 'owner' ]);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('here');
	ALTER DATABASE shop SET synchronous_commit = local;
	EOF
is(number($node, 'a'),    1, 'a number of a central server');
is(number($node, 'here'), 1, 'a number of the table here');
wait_for($node,
	"SELECT count(*) = 2 AND bool_and(xact_start IS NULL AND backend_xmin IS NULL) $fetchers"
);
pass('a process that waits has no transaction, and holds back no vacuum');
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
my $caller = ask_in_background($node, "SELECT snowid_number('here')", 'shop');
ok( $node->poll_query_until(
		'postgres',
		"SELECT count(*) = 1 $fetchers AND datname = 'shop' AND wait_event = 'SyncRep'"
	),
	'a number of the table here waits for the standby, whatever the owner of the database has set'
);
$node->stop('fast');
pass('a fast stop does not wait for it');
unlike($caller->outcome, qr/^\d+$/m, 'nobody got a number');
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$node->start;
add_tag($node, $_, step => 10, cover => 0) foreach qw(locked free);

#---- A database is dropped while its central server hangs ----

# Makes a database with a number of the central server in memory, and has that hang.
sub hang
{
	query($node, 'CREATE DATABASE other');
	$node->safe_psql(
		'other',
		join "\n",
		'CREATE EXTENSION snowid_segments; CREATE EXTENSION postgres_fdw;',
		source_in('central', $central, 'postgres'),
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

#---- The clock stands still ----

stop_clock($node, (time - 7200) * 1000);
my $locker = SnowidSession->new($node, 'postgres');
$locker->query(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'locked' FOR UPDATE");
my $waits = ask_in_background($node, "SELECT snowid_number('locked')");
poll_segment($node, 'locked', "error = 'Its row is locked'");
is( query(
		$node,
		"SELECT count(snowid_number('free')) FROM generate_series(1, 100)"),
	100,
	'a row that is locked does not stop other tags');
$locker->query('COMMIT');
is($waits->outcome, 1, 'a row that is not locked any more has numbers');

cmp_ok(number($node, 'a'), '>', 0, 'a number of the central server');
@hung = processes($central);
kill 'STOP', @hung;
$waits = ask_in_background($node,
	"SELECT count(snowid_number('a')) FROM generate_series(1, 1000)");
poll_segment($node, 'a',
	"error = 'The central server did not answer in time'");
pass('a central server that hangs is not waited for without end');
$node->stop('fast');
pass('a fast stop does not wait for a central server that hangs');
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
poll_segment($small, 'b', 'count(*) = 1');
let_go($small);
is($waits->outcome, 1,
	'a tag that replaced another one in memory has numbers of its own');
is( max_id($central, 'a'),
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
is(max_id($small, 'same'),
	1000, 'a range of another database is not given back to a row');
is($small->safe_psql('other', "SELECT snowid_number('same')"),
	2, 'a tag that got the place keeps its range');

#---- A row is changed by hand while its range is given back ----

add_tag($small, 'imported', step => 100, cover => 0);
is(number($small, 'imported'), 1, 'most of a range is in memory');
my $importer = SnowidSession->new($small, 'postgres');
$importer->query(
	"BEGIN; UPDATE snowid_segments SET max_id = greatest(max_id, 100) WHERE biz_tag = 'imported'"
);
$fetcher = fetcher_pid($small);
hold_process($small, 'snowid segments', 'LWLockRelease', 'fmgr_info');
query($small, "SELECT pg_terminate_backend($fetcher)");
held_process($small);
$importer->query('COMMIT');
let_go($small);
wait_until('the end of the process', sub { !kill 0, $fetcher });
is(max_id($small, 'imported'),
	100, 'a max_id that is set while the range is given back is not lowered');

# The session that changes it is held where it drops the range from memory.
cmp_ok(number($small, 'imported'), '>', 100, 'a range after the import');
my $last = max_id($small, 'imported');
$fetcher = fetcher_pid($small);
hold_process($small, 'client', 'LWLockAcquire');
my $sets = ask_in_background($small,
	"UPDATE snowid_segments SET max_id = greatest(max_id, $last) WHERE biz_tag = 'imported'"
);
held_process($small);
query($small, "SELECT pg_terminate_backend($fetcher)");
wait_until('the end of the process', sub { !kill 0, $fetcher });
let_go($small);
is($sets->outcome, '', 'a max_id can be set while the process ends');
is(max_id($small, 'imported'),
	$last,
	'a max_id that becomes visible while the process ends is not lowered');
$small->stop;
$central->stop;

done_testing();
