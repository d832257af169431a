# The process that looks up origins has a process slot of its own: an ordinary role
# whose parallel queries hold all other slots stops no key, at a reload, with a new
# keeper or at a promotion.  If the process does not start, another one is started.  A
# lock on the catalog stops keys only if the catalog must be read or written; while the
# gate is open, the keeper waits for nothing that a session can hold (HOLD=60 in the
# environment holds each for a minute, and notes the longest call).  Then, and if no
# origin slot is free, the reason is reported, and databases can be created meanwhile.
# The process needs neither postgres nor template1.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node =
  snowid_cluster('place', 'snowid.worker_id = 1', allows_streaming => 1);
$node->append_conf('postgresql.conf',
	"max_connections = 20\nmax_worker_processes = 6\nmax_parallel_workers = 20"
);
start_and_open($node);
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
$node->backup('base');
my $standby = server_from_backup(
	'standby', $node, 'base',
	'snowid.worker_id = 2',
	has_streaming => 1);
$standby->start;

my $highest = 0;

# The server makes keys as this keeper, above all before.
sub makes_keys
{
	my ($server, $worker_id, $name) = @_;
	$server->poll_query_until('postgres',
		"SELECT is_open AND worker_id = $worker_id FROM snowid_status()")
	  or die "$name: "
	  . $server->safe_psql('postgres', 'SELECT reason FROM snowid_status()');
	my $key = $server->safe_psql('postgres', 'SELECT snowid_next()');
	cmp_ok($key, '>', $highest, $name);
	$highest = $key;
	return;
}

sub use_worker_id
{
	my ($worker_id) = @_;
	configure($node, "snowid.worker_id = $worker_id\nsnowid.max_lead = 10ms");
	$node->reload;
	return;
}

# As an ordinary role, parallel queries in every free process slot.
sub hold_places
{
	my ($server) = @_;
	my $setting = $server->safe_psql('postgres',
		"SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')"
	);
	my @runs = map {
		start_pgbench(
			$server, 'postgres',
			'-U ordinary -c 1 -t 1',
			"sleep$_" => "SET $setting = on;\nSELECT pg_sleep(3600);")
	} 1 .. 6;
	$server->poll_query_until('postgres',
		<<~EOF) or die 'the places are not held';
		SELECT count(*) = 6 FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND query LIKE 'SELECT pg_sleep%'
			AND wait_event IN ('PgSleep', 'ExecuteGather')
		EOF
	cmp_ok(
		$server->safe_psql(
			'postgres',
			"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"
		),
		'<', 6,
		'more queries than process slots');
	return @runs;
}

sub let_places_go
{
	my ($server, @runs) = @_;
	$server->safe_psql('postgres',
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ordinary'"
	);
	$_->{handle}->finish foreach @runs;
	return;
}

sub new_keeper
{
	my $pid = keeper_pid($node);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid keeper' AND pid <> $pid"
	) or die;
	return;
}

# The process that waits for questions; it has no row in pg_stat_activity.
sub helper_pid
{
	my ($postmaster) =
	  slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	my $pid = '';
	wait_until(
		'the process "snowid origin"',
		sub {
			($pid) = qx(ps -o pid=,args= --ppid $postmaster) =~
			  /^\s*(\d+).*snowid origin/m;
			$pid;
		});
	return $pid;
}

#---- All process slots are held ----

my @held = hold_places($node);
use_worker_id(3);
makes_keys($node, 3, 'all places held: a new worker ID makes keys');
new_keeper();
makes_keys($node, 3, 'all places held: a new keeper makes keys');

# The process itself does not start: no second one can be started.
my $helper = helper_pid();
kill 'STOP', $helper;
use_worker_id(4);
$node->poll_query_until('postgres',
	"SELECT reason ~ 'increase max_worker_processes' FROM snowid_status()")
  or die;
pass('if no process can be started the reason says so');
kill 'CONT', $helper;
makes_keys($node, 4, 'keys continue when the process starts');
let_places_go($node, @held);

$standby->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_roles WHERE rolname = 'ordinary'")
  or die;
@held = hold_places($standby);
$standby->promote;
makes_keys($standby, 2,
	'all places held: a standby that is promoted makes keys');
let_places_go($standby, @held);
$standby->stop;

#---- The process does not start in time ----

$helper = helper_pid();
kill 'STOP', $helper;
use_worker_id(5);
makes_keys($node, 5, 'a process that does not come is replaced');
kill 'CONT', $helper;
use_worker_id(6);
makes_keys($node, 6, 'a process that starts late is used again');

#---- The catalog is locked ----

$node->safe_psql('postgres',
	q(SELECT pg_replication_origin_create('somebody_else')));
my $idle = $node->background_psql('postgres');
$idle->query_safe(
	q(BEGIN; SELECT pg_replication_origin_drop('somebody_else')));
new_keeper();
makes_keys($node, 6,
	'a transaction that dropped an origin keeps no new keeper from its own');
my $ceiling = status($node, 'ceiling');
$node->poll_query_until('postgres',
	"SELECT snowid_timestamp(snowid_next()) > '$ceiling'::timestamptz + interval '1 s'"
) or die 'no key above the ceiling';
pass('a transaction that dropped an origin stops no grant');
use_worker_id(5);
makes_keys($node, 5,
	'a transaction that dropped an origin keeps no new worker ID from an origin that is there'
);
use_worker_id(7);
$node->poll_query_until('postgres',
	"SELECT reason ~ 'Another transaction that created or dropped a replication origin is still in progress' FROM snowid_status()"
) or die;
pass('a new origin waits for its end, and the reason is reported');
is(sql_error($node, 'CREATE DATABASE new'),
	'', 'a database can be created meanwhile');
$idle->query_safe('COMMIT');
makes_keys($node, 7, 'the transaction has ended: keys continue');

$idle->query_safe(
	'BEGIN; LOCK pg_replication_origin IN ACCESS EXCLUSIVE MODE');
my $pid = keeper_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres',
	"SELECT reason ~ 'has not answered yet' FROM snowid_status()")
  or die;
pass('a catalog that no session may read: the reason is reported');
my $log = -s $node->logfile;
wait_for($node, <<~EOF);
	SELECT count(*) > 0 FROM pg_stat_activity, pg_terminate_backend(pid)
	WHERE backend_type = 'snowid origin' AND wait_event_type = 'Lock'
	EOF
$node->wait_for_log(
	qr/DETAIL:  The process "snowid origin" failed; see the server log\./,
	$log);
pass('a process that is terminated at its question says so');
$idle->query_safe('COMMIT');
makes_keys($node, 7, 'the catalog can be read again: keys continue');
$idle->quit;

# No answer waits for a standby that is down.
$node->append_conf('postgresql.conf',
	"synchronous_commit = on\nsynchronous_standby_names = 'nobody'");
use_worker_id(8);
makes_keys($node, 8, 'a synchronous standby is down: keys continue');
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$node->reload;

# A server that stops does not wait for an answer.
$idle = $node->background_psql('postgres');
$idle->query_safe(
	'BEGIN; LOCK pg_replication_origin IN ACCESS EXCLUSIVE MODE');
use_worker_id(1);
$node->poll_query_until('postgres',
	"SELECT reason ~ 'has not answered yet' FROM snowid_status()")
  or die;
$node->stop;
pass('the server stops while a question waits');
eval { $idle->quit };
$node->start;
makes_keys($node, 1, 'the server that was stopped makes keys again');
$node->stop;

#---- A late answer, when no process waits for it any more ----

# Two pairs of one server, and the ceiling of one is half an hour ahead.
my $late = "snowid.max_lead = 10ms\nsnowid.max_wait = 200ms\n";
$node = snowid_cluster('late', $late . 'snowid.worker_id = 2');
set_skew($node, 1800);
start_and_open($node);
$highest = next_key($node);
$node->stop;
configure($node, $late . 'snowid.worker_id = 1');
set_skew($node, 0);
$node->start;
server_is_open($node);
next_key($node);
$node->stop;
configure($node, $late);
$node->start;
poll($node, "reason ~ 'no worker ID'");

# That ceiling is out of reach while the question is asked, and a reload brings it
# within.
$idle = $node->background_psql('postgres');
$idle->query_safe(
	'BEGIN; LOCK pg_replication_origin IN ACCESS EXCLUSIVE MODE');
configure($node, $late . 'snowid.worker_id = 1');
$node->reload;
poll($node, "reason ~ 'has not answered yet'");
configure($node, $late);
$node->reload;
poll($node, "reason ~ 'no worker ID'");
$idle->query_safe('COMMIT');
$idle->quit;
wait_for($node,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'snowid origin' AND datname IS NOT NULL"
);
configure($node, "snowid.max_lead = 1h\nsnowid.worker_id = 1");
$node->reload;
makes_keys($node, 1,
	'a late answer is not used: keys are above those of a pair that came within reach'
);
$node->stop;

#---- The usual databases are not there ----

# Keys continue after a start; asks in this database.
sub keys_go_on_in
{
	my ($database, $name) = @_;
	my $key =
	  $node->safe_psql($database, 'SELECT last_key FROM snowid_status()');
	$node->restart;
	$node->poll_query_until($database, 'SELECT is_open FROM snowid_status()')
	  or die;
	cmp_ok($node->safe_psql($database, 'SELECT snowid_next()'),
		'>', $key, $name);
	return;
}

$node = snowid_cluster('databases', 'snowid.worker_id = 1');
start_and_open($node);
next_key($node);
$node->safe_psql('template1', 'ALTER DATABASE postgres RENAME TO other');
keys_go_on_in('other', 'without the database postgres keys continue');
$node->safe_psql('other', $_)
  foreach 'ALTER DATABASE template1 IS_TEMPLATE false',
  'DROP DATABASE template1';
keys_go_on_in('other', 'without the database template1 keys continue');
$node->stop;

#---- No slot is left for an origin ----

# The keeper fails again and again.
$node = snowid_cluster('full', '');
$node->append_conf('postgresql.conf', origin_places($node) . ' = 2');
$node->start;
create_extension($node);
query($node,
	"SELECT pg_replication_origin_advance(name, '0/1') FROM (SELECT 'other_' || n AS name, pg_replication_origin_create('other_' || n) FROM generate_series(1, 2) n) o"
);
poll($node, "reason ~ 'no worker ID'");
use_worker_id(1);
poll($node, "reason ~ 'replication state'");
my $why =
  qr/^snowid cannot use its replication origin: could not find free replication state/;
like(status($node, 'reason'),
	$why, 'no place for an origin: the reason is not that of before');
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: snowid cannot use its replication origin\nDETAIL:  could not find free replication state/,
	'no place for an origin: callers get the reason');
is(sql_error($node, "CREATE DATABASE new_$_"),
	'', 'a database can be created meanwhile')
  foreach 1 .. 2;
like(status($node, 'reason'),
	$why, 'while the keeper tries again the reason stays');
query($node, q(SELECT pg_replication_origin_drop('other_1')));
$highest = 0;
makes_keys($node, 1, 'a free slot for the origin again: keys continue');
$node->stop;

#---- The catalogs are locked while the gate is open ----

$node =
  snowid_cluster('locked', "snowid.worker_id = 1\nsnowid.max_lead = 100ms");
start_and_open($node);

# While pg_database is locked no session can connect, so both connect before.
my $holder = $node->background_psql('postgres');
my $caller = $node->background_psql('postgres');
$caller->query_safe('SELECT snowid_next()');
$holder->query_safe(
	'BEGIN; LOCK pg_replication_origin, pg_database IN ACCESS EXCLUSIVE MODE'
);

# For so many seconds keys are made; in five of them the keeper gives ten grants.
my $seconds = $ENV{HOLD} // 5;
my @stopped;
END { kill 'CONT', @stopped; }

sub keys_are_made
{
	my ($while) = @_;
	my ($count, $longest) = split /\|/, $caller->query_safe(
		"SELECT count(DISTINCT k), max(extract(epoch FROM after - before) * 1000)::numeric(9, 3)
		FROM generate_series(1, $seconds * 20) g, LATERAL (SELECT pg_sleep(0.05 + 0 * g),
			clock_timestamp() AS before, snowid_next() AS k, clock_timestamp() AS after OFFSET 0) made"
	);
	is($count, $seconds * 20, "keys are made while $while");
	note "while $while, the longest call took $longest ms";
	return;
}

sub continue_stopped
{
	kill 'CONT', @stopped;
	@stopped = ();
	return;
}

# Settings that the keeper looks at, and a request to it
sub reload_and_advance
{
	my ($max_lead) = @_;
	configure($node, "snowid.worker_id = 1\nsnowid.max_lead = $max_lead");
	$node->reload;
	$caller->query_safe('SELECT snowid_advance(snowid_next())');
	return;
}

keys_are_made('the catalogs are locked');
reload_and_advance('200ms');
keys_are_made('the catalogs are locked, after a reload and snowid_advance()');
$holder->query_safe('ROLLBACK');

@stopped = (helper_pid());
kill 'STOP', @stopped;
reload_and_advance('100ms');
keys_are_made('"snowid origin" is stopped');
continue_stopped();

# A session whose request the keeper carries out, while the session is stopped
my $keeper = keeper_pid($node);
stop_process($node, $keeper);
my $advancing = IPC::Run::start(
	[
		'psql',                             '-XAtq',
		$node->connstr('postgres'),         '-c',
		'SET application_name = advancing', '-c',
		"SELECT snowid_advance(snowid_max(clock_timestamp()))"
	],
	'>&',
	\my $said,
	IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
my $asks =
  "FROM pg_stat_activity WHERE application_name = 'advancing' AND wait_event_type = 'Extension'";
wait_for($node, "SELECT count(*) = 1 $asks");
@stopped = (query($node, "SELECT pid $asks"));
stop_process($node, @stopped);
kill 'CONT', $keeper;
keys_are_made('a session that has called snowid_advance() is stopped');
continue_stopped();
$advancing->finish;
is($said, "\n", 'the session that was stopped gets its answer');

#---- A keeper that has to look its origin up ----

$holder->query_safe(
	'BEGIN; LOCK pg_replication_origin, pg_database IN ACCESS EXCLUSIVE MODE'
);

# The holder alone can read it, too.
my $position =
  q(SELECT remote_lsn - '0/0' FROM pg_replication_origin_status WHERE external_id ~ '_0_1$');
my $before = $holder->query_safe($position);
$log = -s $node->logfile;
configure($node, 'snowid.worker_id = 2');
$node->reload;
$node->wait_for_log(qr/Another session has locked the catalog pg_database\./,
	$log);
pass('a keeper that needs the catalogs reports the lock');
cmp_ok($holder->query_safe($position), '>=', $before,
	'the ceiling that is left is not lowered while its origin may be dropped'
);
$holder->query_safe('ROLLBACK');
wait_for_worker_id($node, 2);
pass('the keeper finds its origin when the lock is released');
$holder->quit;
$caller->quit;
$node->stop;
unlike(
	slurp_file($node->logfile),
	qr/WARNING:  .*(?:leak|not closed)/,
	'no process leaves a catalog open');

done_testing();
