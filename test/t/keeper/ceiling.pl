# A ceiling is the position of a replication origin that has a number and no name.
# It outlives a crash, a checkpoint and a crash, a base backup, a standby and its restart,
# and a promotion; it can be lowered; SQL cannot drop or move it, and nobody gets its
# number.  A row that somebody gives to one of our numbers is refused by its name.
#
# It takes two places of max_replication_slots; a change of the worker ID one more each, four
# in all, of which those that are a day old are used again; and a change of the layout the
# fifth, so that a crash within it loses no ceiling.  Without a place there are no keys, and
# the reason is reported.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $ceilings = ceilings();

# The ceiling of a worker ID, in ms since 1970.
sub ceiling
{
	my ($node, $worker_id) = @_;
	return query($node,
		"SELECT ms FROM $ceilings WHERE worker_id = $worker_id");
}

# The numbers that have a place, and the worker IDs that have a ceiling of this layout.
sub places
{
	my ($node) = @_;
	return query($node,
		"SELECT string_agg(local_id::text, ' ' ORDER BY local_id DESC) FROM pg_replication_origin_status WHERE external_id IS NULL"
	);
}

sub worker_ids
{
	my ($node) = @_;
	return query($node, <<~EOF);
		SELECT string_agg(worker_id::text, ' ' ORDER BY worker_id)
		FROM $ceilings JOIN pg_replication_origin_status position USING (local_id),
			pg_replication_origin_status layout
		WHERE layout.local_id = 65534
			AND (position.remote_lsn >= '80000000/0') = (layout.remote_lsn >= '80000000/0')
		EOF
}

# A server that only keeps what it has.
sub restart_without_id
{
	my ($node, $mode) = @_;
	$node->stop($mode);
	configure($node, 'snowid.worker_id = -1');
	$node->start;
	return;
}

my $settings = "snowid.worker_id = 1\nsnowid.max_lead = 100ms";
my $node     = snowid_cluster('node', $settings, allows_streaming => 1);
my $limit    = origin_places($node);
$node->append_conf('postgresql.conf',
	"allow_system_table_mods = on\nrestart_after_crash = on");
let_hold($node);
start_and_open($node);
next_key($node);
is(places($node), '65534 65533',
	'a server takes two places, whose origins have no name');

#---- Crash, checkpoint, base backup, standby, promotion ----

my $before = ceiling($node, 1);
restart_without_id($node, 'immediate');
cmp_ok(ceiling($node, 1), '>=', $before, 'a crash: the ceiling is there');
$before = ceiling($node, 1);
query($node, 'CHECKPOINT');
$node->stop('immediate');
$node->start;
is(ceiling($node, 1), $before, 'a checkpoint and a crash: the same one');

$node->backup('copy');
my $standby = server_from_backup(
	'standby', $node, 'copy',
	"snowid.worker_id = 2\nsnowid.max_lead = 100ms",
	has_streaming => 1);
$standby->start;
is(ceiling($standby, 1), $before, 'a base backup has it');
configure($node, $settings);
$node->reload;
server_is_open($node);
my $last = next_key($node);
$node->wait_for_catchup($standby);
cmp_ok(ceiling($standby, 1), '>', $before, 'a standby follows');
$before = ceiling($standby, 1);
$standby->restart;
cmp_ok(ceiling($standby, 1),
	'>=', $before, 'a standby that was restarted has it');
$node->stop('immediate');
$before = ceiling($standby, 1);

# Its worker ID is another one, and its clock is behind by less than callers wait.
my $behind = key_ms($last) - 3000;
stop_clock($standby, $behind);
$standby->promote;
poll($standby, q(reason ~ 'can be used when the clock has passed'));
time_passes($standby, $behind + 1000, 1);
gate_is_open($standby);
cmp_ok(status($standby, 'lead_ms'),
	'>', 1000,
	'promoted: a clock that is behind makes no key below the primary\'s');
stop_clock($standby, $before + 1);
server_is_open($standby);
cmp_ok(next_key($standby), '>', $last, 'promoted: keys above the primary\'s');
is(ceiling($standby, 1), $before, 'promoted: its ceiling stays');
is(worker_ids($standby), '1 2',   'promoted: the new server has its own');
$standby->stop;

#---- Lower ----

$node->start;
server_is_open($node);
$last = next_key($node);
query($node, 'SELECT max(k) FROM snowid_next_batch(500000) k');
$last =
  status($node, 'floor(extract(epoch FROM last_key_time) * 1000)::bigint');
configure($node, "snowid.worker_id = -1\nsnowid.max_lead = 100ms");
$node->reload;
poll($node, "reason = 'snowid has no worker ID'");
is(ceiling($node, 1),
	$last, 'a gate that is closed lowers the ceiling to the last key');
is(status($node, 'floor(extract(epoch FROM ceiling) * 1000)::bigint'),
	$last, 'a gate that is closed: the status has the lowered ceiling');
configure($node, $settings);
$node->reload;
server_is_open($node);

#---- SQL ----

foreach my $call (
	"pg_replication_origin_drop('65533')",
	"pg_replication_origin_advance('65533', '0/1')",
	"pg_replication_origin_session_setup('65533')",
	"pg_replication_origin_progress('65533', false)")
{
	like(
		sql_error($node, "SELECT $call"),
		qr/"65533" does not exist/,
		"no name: $call");
}
query($node, q(SELECT pg_replication_origin_create('theirs')));
is( query(
		$node,
		q(SELECT roident FROM pg_replication_origin WHERE roname = 'theirs')),
	1,
	'others get the lowest free number');

foreach my $number (65534, 65533, 65530)
{
	query($node,
		"INSERT INTO pg_replication_origin VALUES ($number, 'ours')");
	like(
		sql_error($node, 'SELECT snowid_next()'),
		qr/^55000: replication origin "ours" has a number that snowid uses\nDETAIL:  Its number is $number;/,
		"a row with the number $number is refused by its name");
	query($node, "DELETE FROM pg_replication_origin WHERE roident = $number");
}
query($node, "INSERT INTO pg_replication_origin VALUES (65529, 'other')");
next_key($node);
pass('a row with another number is not');
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK pg_replication_origin');
next_key($node);
pass('a new session waits for nobody who has locked the catalog');
$holder->quit;

#---- Places ----

# Makes keys with a worker ID, the clock this many days ahead.
sub make_keys_as
{
	my ($id, $days) = @_;

	# first, so that no key of this worker ID is of the time before
	set_skew($node, $days * 86400);
	configure($node,
		"snowid.worker_id = $id\nsnowid.max_lead = 100ms\nsnowid.max_jump = 20d"
	);
	$node->reload;
	wait_for_worker_id($node, $id);
	return next_key($node);
}

make_keys_as($_, 0) foreach 2, 3;
is(worker_ids($node), '1 2 3', 'the ceilings of former worker IDs stay');
is(places($node),     '65534 65533 65532 65531', 'three have four places');
my $key = make_keys_as(3, 0);
cmp_ok(make_keys_as(4, 0),
	'>', $key, 'a fourth worker ID makes keys above the former ones');
is(worker_ids($node), '2 3 4', 'the lowest ceiling makes room');
make_keys_as(5, 3);
make_keys_as(6, 3);
is(worker_ids($node), '4 5 6',
	'two more later: the last three ceilings stay');
is( places($node),
	'65534 65533 65532 65531',
	'two more later: four places as before');

#---- Another layout ----

# The ceilings in the state file: of past claims, and of its own.
sub known
{
	return map { unpack 'H*', $_ } unpack 'x152 a384 a8',
	  slurp_file($node->data_dir . '/snowid/state');
}

my $layout =
  "snowid.layout = 'epoch=2000-01-01T00:00:00Z datacenter=5 worker=5 sequence=12'";
configure($node, "snowid.worker_id = 6\n$layout");
$node->restart;
poll($node, q(reason ~ 'layout was changed'));
my @known = known();
hold_keeper($node, 'replorigin_advance', 'replorigin_advance');
query($node, 'SELECT snowid_accept_layout()');
my $pid = held_keeper($node);
query($node, 'SET synchronous_commit = on; CREATE TABLE mark ()');
kill 'KILL', $pid;
wait_for_successor($node, $pid);
is( places($node),
	'65534 65533 65532 65531 65530',
	'another layout has the fifth place for its first ceiling');
is(worker_ids($node), '4 5 6',
	'a crash before the layout is written loses no ceiling in the WAL');
is_deeply(
	[ known() ],
	\@known,
	'a crash before the layout is written loses no ceiling in the state file'
);
query($node, 'SELECT snowid_accept_layout()');
gate_is_open($node);
is( places($node),
	'65534 65533 65532 65531 65530',
	'the layout is changed: five places at most');
my @new = known();
isnt($new[0], $known[0],
	'the layout is changed: the ceilings of past claims are forgotten');
isnt($new[1], $known[1],
	'the layout is changed: the ceiling of the claim is that of its start');
configure($node, "snowid.worker_id = 6\n" . $layout =~ s/2000/1999/r);
$node->restart;
poll($node, q(reason ~ 'layout was changed'));
query($node, 'SELECT snowid_accept_layout()');
gate_is_open($node);
is(worker_ids($node), '6',
	'the layout is changed again: no ceiling of the first one is valid again'
);
$node->stop;

#---- A position that no ceiling can be ----

$node = snowid_cluster('wide',
	"snowid.worker_id = 1\nsnowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=1 worker=1 sequence=2'"
);
$node->append_conf('postgresql.conf', 'allow_system_table_mods = on');
start_and_open($node);
foreach my $damage (
	[ 65534, '0/1',               'of no layout' ],
	[ 65534, '7FFFFFFF/FFFFFFFF', 'of a layout that cannot be' ],
	[ 65533, '7FFFFFFF/FFFFFFFF', 'beyond all times' ])
{
	my ($number, $position, $what) = @$damage;

	query($node,
		"INSERT INTO pg_replication_origin VALUES ($number, 'ours')");
	query($node, "SELECT pg_replication_origin_advance('ours', '$position')");
	query($node, 'DELETE FROM pg_replication_origin');
	poll($node, "reason ~ 'origin number $number was not set by snowid'");
	like(
		sql_error($node, 'SELECT count(*) FROM snowid_next_batch(100000)'),
		qr/position of replication origin number $number was not set by snowid/,
		"a position $what is refused by its number");
	my $log = -s $node->logfile;
	query($node,
		"INSERT INTO pg_replication_origin VALUES ($number, 'ours')");
	query($node, q(SELECT pg_replication_origin_drop('ours')));
	next_key($node);
	$node->wait_for_log(qr/LOG:  snowid reserves keys again/, $log);
	pass("a position $what: the log says when it is gone");
}
$node->stop;

my $other = snowid_cluster('day', 'snowid.worker_id = 1');
start_and_open($other);
next_key($other);
$node = $other;
make_keys_as(2, 0);
make_keys_as(2, 2);
make_keys_as(3, 2);
is(worker_ids($node), '2 3',
	'a ceiling that is a day old makes room for a new one');
is( places($node),
	'65534 65533 65532',
	'a ceiling that is a day old: no further place is taken');
my $below = qr/LOG:  new keys may be below keys that another worker ID made/;
unlike(slurp_file($node->logfile),
	$below, 'the log warns of no key below those of other worker IDs');
make_keys_as(4, 0);
$node->wait_for_log($below);
pass('the log warns when a clock that is set back makes keys below');
$node->stop;

#---- No place ----

$node = snowid_cluster('full', $settings);
$node->append_conf('postgresql.conf', "$limit = 2");
start_and_open($node);
query($node, q(SELECT pg_replication_origin_create('theirs')));
like(
	sql_error(
		$node, q(SELECT pg_replication_origin_advance('theirs', '0/1'))),
	qr/could not find free replication state slot/,
	'the last place is taken');
configure($node, "snowid.worker_id = 2\nsnowid.max_lead = 100ms");
$node->reload;
poll($node, q(reason ~ 'could not find free replication state slot'));
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: snowid cannot raise its ceiling\nDETAIL:  could not find free replication state slot.*Increase "?max/,
	'no place for a new worker ID: callers get the reason');
$node->append_conf('postgresql.conf', "$limit = 3");
$node->restart;
server_is_open($node);
is(worker_ids($node), '1 2', 'one place more: the new worker ID makes keys');

# A superuser drops the position, and another one takes its place.
my $keeper = keeper_pid($node);
my $number =
  query($node, "SELECT local_id FROM $ceilings WHERE worker_id = 2");
stop_process($node, $keeper);
query($node, <<~EOF);
	SET allow_system_table_mods = on;
	INSERT INTO pg_replication_origin VALUES ($number, 'dropped');
	SELECT pg_replication_origin_drop('dropped');
	SELECT pg_replication_origin_advance('theirs', '0/1');
	EOF
kill 'CONT', $keeper;
like(
	sql_error(
		$node,
		"SELECT snowid_advance(snowid_max(clock_timestamp() + interval '30 min'))"
	),
	qr/could not find free replication state slot/,
	'no place for a ceiling that was dropped: snowid_advance() fails');
is(unpack('x544 q', slurp_file($node->data_dir . '/snowid/state')),
	0, 'a snowid_advance() that fails is not in the state file');
$node->stop;
done_testing();
