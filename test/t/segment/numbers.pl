# Segments on one server: numbers, blocks and ranges; errors and rights; what is
# changed by hand is seen by the next number; and nothing is lost by a clean stop.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

# An error that comes is not that of max_wait.
my $node = snowid_cluster('segments', <<~EOF);
	snowid.max_wait = 1h
	snowid.max_segments = 40
	EOF
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
let_hold($node);
$node->start;
query($node, 'CREATE EXTENSION snowid_segments');
add_tag($node, $_) foreach qw(a b);

# The results of those statements that have no error.
sub answers
{
	my ($sql) = @_;
	my (undef, $out) = $node->psql('postgres', $sql, on_error_stop => 0);
	return $out;
}

#---- Numbers ----

is(number($node, 'a'), 1, 'the first number is 1');
is( query(
		$node,
		"SELECT snowid_number('a'), snowid_number('a'), snowid_number('b')"),
	'2|3|1',
	'numbers continue over sessions, each tag by itself');
is( query(
		$node,
		"SELECT min(n), max(n), count(DISTINCT n), bool_and(n = i + 3) FROM (SELECT snowid_number('a') AS n, i FROM generate_series(1, 100000) i) AS x"
	),
	'4|100003|100000|t',
	'many numbers are consecutive over ranges if no other session takes some'
);
is(segment_status($node, 'a', 'step > 10000'),
	't', 'a range that did not last is followed by a longer one');

# A session remembers one of the two, by this hash.
my $same_place = query($node,
	"SELECT 'b' || min(i) FROM generate_series(1, 10000) i WHERE (hashtext('b' || i) # hashtext('b')) & 255 = 0"
);
add_tag($node, $same_place, max_id => 1000);
is( query(
		$node,
		"SELECT string_agg(snowid_number(CASE i % 2 WHEN 0 THEN 'b' ELSE '$same_place' END)::text, ',') FROM generate_series(1, 6) i"
	),
	'1001,2,1002,3,1003,4',
	'tags that change by row, of which a session remembers one');
my $session = SnowidSession->new($node, 'postgres');
is( $session->query(
		join '',     map { "SELECT snowid_number('$_');" } 'b',
		$same_place, 'b', $same_place),
	"5\n1004\n6\n1005",
	'tags that change by statement, of which a session remembers one');
hold_process($node, 'client', 'LWLockAcquire');
is($session->query("SELECT snowid_number('$same_place')"),
	1006, 'a statement takes no lock for a tag that its session remembers');
my $looks = ask_in_background($node, "SELECT snowid_number('b')");
held_process($node);
let_go($node);
is($looks->outcome, 7, 'a new session takes one');
is(query($node, "BEGIN READ ONLY; SELECT snowid_number('a'); COMMIT"),
	100004, 'in a read-only transaction');
query($node, "BEGIN; SELECT snowid_number('a'); ROLLBACK");
is(number($node, 'a'), 100006, 'a rollback leaves a gap');

add_tag($node, 'r', step => 10, cover => 0);
is( query(
		$node,
		"SELECT r.* FROM generate_series(1, 8) i, snowid_number_range('r', 7 + 0 * i) r"
	),
	join("\n", map { (10 * $_ - 9) . '|' . (10 * $_ - 3) } 1 .. 8),
	'a call takes its range of one range of the table');
is( query(
		$node, "SELECT last - first FROM snowid_number_range('r', 1000000)"),
	999999,
	'a call gets a range that is longer than the step');

# Two callers have seen that the next range is wanted, and it is there when one of them asks.
add_tag($node, $_, step => 10, cover => 0) foreach qw(asked behind);
number($node, 'asked');
hold_process($node, 'client', 'LWLockAcquire', 'LWLockRelease');
my $asks_late = ask_in_background($node, "SELECT snowid_number('asked')");
held_process($node);
is(number($node, 'asked'), 3, 'another caller asks for the next range');
poll_segment($node, 'asked', 'left_next > 0');
let_go($node);
is($asks_late->outcome, 2, 'the caller that asks late has its number');
is(number($node, 'behind') . ' and ' . max_id($node, 'asked'),
	'1 and 20', 'no range is fetched if the next one is there');

# A tag that wants nothing is forgotten while another one waits.
add_tag($node, $_) foreach qw(idle waits);
number($node, 'idle');
hold_process($node, 'snowid segments', 'WaitLatch');
held_process($node);
my $waits = ask_in_background($node, "SELECT snowid_number('waits')");
poll_segment($node, 'waits', 'waits = 1');
query($node, "SELECT snowid_segment_forget('idle')");
let_go($node);
is($waits->outcome, 1,
	'a tag that waits has its numbers when another one was forgotten');

# Tags that wait at the same time have their ranges of one transaction.
add_tag($node, $_) foreach qw(before one other);
hold_process($node, 'snowid segments', 'StartTransactionCommand');
my @asked = ask_in_background($node, "SELECT snowid_number('before')");
held_process($node);
push @asked, ask_in_background($node, "SELECT snowid_number('$_')")
  foreach qw(one other);
wait_for($node,
	"SELECT count(*) = 2 FROM snowid_segment_status() WHERE biz_tag IN ('one', 'other') AND waits = 1"
);
let_go($node);
is(join(' ', map { $_->outcome } @asked),
	'1 1 1', 'all tags that waited have numbers');
is( query(
		$node,
		"SELECT count(DISTINCT xmin::text) FROM snowid_segments WHERE biz_tag IN ('one', 'other')"
	),
	1,
	'tags that want a range at the same time get theirs in one commit');

# The commit of two tags' ranges fails because of one.
query($node, <<~EOF);
	SELECT snowid_segment_forget('before');
	INSERT INTO snowid_segments (biz_tag) VALUES ('bad'), ('good');
	ALTER TABLE snowid_segments ADD CONSTRAINT no_bad CHECK (biz_tag <> 'bad' OR max_id < 10)
	EOF
hold_process($node, 'snowid segments', 'StartTransactionCommand');
@asked = ask_in_background($node, "SELECT snowid_number('before')");
held_process($node);
push @asked, ask_in_background($node, "SELECT snowid_number('$_')")
  foreach qw(good bad);
wait_for($node,
	"SELECT count(*) = 2 FROM snowid_segment_status() WHERE biz_tag IN ('good', 'bad') AND waits = 1"
);

# the transaction of the two, and then the next one
foreach (1 .. 2)
{
	my $pid = held_process($node);
	hold_process($node, 'snowid segments', 'StartTransactionCommand');
	kill 'CONT', $pid;
}
held_process($node);
is( query(
		$node,
		"SELECT count(*) FROM snowid_segment_status() WHERE biz_tag = 'good' AND error IS NOT NULL"
	),
	0,
	'a tag has no error because of another one of its transaction');
let_go($node);
is($asked[1]->outcome, 1,
	'a tag whose range cannot be taken does not keep others from theirs');
wait_for($node,
	"SELECT error LIKE '%\"no_bad\"%' FROM snowid_segment_status() WHERE biz_tag = 'bad'"
);
query($node, 'ALTER TABLE snowid_segments DROP CONSTRAINT no_bad');
is($asked[2]->outcome, 1,
	'a tag whose range could not be taken is tried again');
$asked[0]->outcome;

# A range is taken, and then its commit fails.
query($node, <<~EOF);
	CREATE TABLE allowed (id bigint PRIMARY KEY);
	BEGIN;
	LOCK TABLE snowid_segments;
	INSERT INTO allowed SELECT max_id FROM snowid_segments UNION SELECT 77;
	ALTER TABLE snowid_segments ADD CONSTRAINT only_allowed FOREIGN KEY (max_id)
		REFERENCES allowed DEFERRABLE INITIALLY DEFERRED;
	INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('late', 77);
	COMMIT
	EOF
my $late = ask_in_background($node, "SELECT snowid_number('late')");
wait_for($node,
	"SELECT error LIKE '%\"only_allowed\"%' FROM snowid_segment_status() WHERE biz_tag = 'late'"
);
query($node, 'ALTER TABLE snowid_segments DROP CONSTRAINT only_allowed');
is($late->outcome . ' of ' . max_id($node, 'late'),
	'78 of 1077', 'a range whose commit fails is not used');

# A caller has looked a tag up, whose row was not read yet, when the tag is forgotten.
add_tag($node, 'gone');
hold_process($node, 'snowid segments', 'StartTransactionCommand');
like(
	sql_error(
		$node, "SET statement_timeout = '1s'; SELECT snowid_number('gone')"),
	qr/^57014: /,
	'a caller that waits can be cancelled');
my $held = held_process($node);
hold_process($node, 'client', 'LWLockAcquire', 'LWLockRelease');
my $asks = ask_in_background($node, "SELECT snowid_number('gone')");
held_process($node);
query($node, "SELECT snowid_segment_forget('gone')");
let_go($node);
kill 'CONT', $held;
is($asks->outcome, 1001,
	'a tag that is forgotten while a caller asks has numbers of another range'
);

# Two callers have seen that a tag has no place in memory.
add_tag($node, 'raced');
hold_process($node, 'client', 'LWLockAcquire', 'LWLockRelease');
$asks = ask_in_background($node, "SELECT snowid_number('raced')");
held_process($node);
is(number($node, 'raced'), 1, 'the caller that gets a place for a tag');
let_go($node);
is($asks->outcome, 2, 'another one that looked before');
is(segment_status($node, 'raced', 'count(*)'), 1, 'a tag has one place');

#---- What is refused ----

like(
	sql_error($node, "SELECT snowid_period_parse(repeat('x', 10000), '1')"),
	qr/^42704: segment "x+/,
	'a tag that is too long to be one has no format');
like(
	sql_error(
		$node,
		"BEGIN; INSERT INTO snowid_segments (biz_tag) VALUES ('new'); SELECT snowid_number('new')"
	),
	qr/^42704: segment "new" does not exist\nDETAIL:  A row of snowid_segments that is not committed yet is not seen\./,
	'a row of the same transaction is not seen');
add_tag($node, 'fresh');
like(
	sql_error(
		$node,
		"BEGIN; ALTER TABLE snowid_segments RENAME TO renamed; SELECT snowid_number('fresh')"
	),
	qr/^42704: segment "fresh" does not exist\n/,
	'a table that has another name has no row of the tag');
foreach my $change ('DROP CONSTRAINT snowid_segments_pkey CASCADE',
	'ALTER step TYPE bigint')
{
	like(
		sql_error(
			$node,
			"BEGIN; ALTER TABLE snowid_segments $change; SELECT snowid_number('fresh')"
		),
		qr/^55000: definition of table "snowid_segments" does not match the snowid_segments extension\n/,
		"a table that was changed is refused: $change");
}

query($node,
	"INSERT INTO snowid_segments (biz_tag, max_id, limit_id) VALUES ('few', 95, 100), ('last', 9223372036854775806, NULL)"
);
is( query(
		$node,
		"SELECT string_agg(snowid_number('few')::text, ',') FROM generate_series(1, 5)"
	),
	'96,97,98,99,100',
	'limit_id is reached exactly');
like(
	sql_error($node, "SELECT snowid_number('few')"),
	qr/^2200H: the numbers of "few" are used up\nDETAIL:  By its limit_id and format, the last one is 100\./,
	'a tag has no numbers above its limit_id');
query($node,
	"UPDATE snowid_segments SET limit_id = 101 WHERE biz_tag = 'few'");
is(number($node, 'few'), 101, 'a tag continues when its limit_id is raised');
is(number($node, 'last'),
	9223372036854775807, 'the last of all numbers is reached exactly');
like(sql_error($node, "SELECT snowid_number('last')"),
	qr/^2200H: /, 'no number comes after the last of all');
query($node,
	"INSERT INTO snowid_segments (biz_tag, limit_id) VALUES ('rest', 10); SELECT snowid_number_range('rest', 7)"
);
like(sql_error($node, "SELECT snowid_number_range('rest', 7)"),
	qr/^2200H: /, 'a range has no numbers above limit_id');
is(number($node, 'rest'),
	8, 'the rest of a range stays for others if the next one cannot be had');
add_tag($node, 'end', max_id => 9223372036854775797);
is( query($node,
		<<~EOF), '9223372036854775798,9223372036854775801|9223372036854775802|(9223372036854775803,9223372036854775807)',
		SELECT (SELECT min(n) || ',' || max(n) FROM (SELECT snowid_number('end') AS n FROM generate_series(1, 4)) x),
			snowid_number('end'), (SELECT r FROM snowid_number_range('end', 5) r)
		EOF
	'several at once come as far');

#---- Rights ----

query($node, <<~EOF);
	CREATE ROLE clerk; CREATE ROLE boss; CREATE ROLE deputy IN ROLE boss;
	INSERT INTO snowid_segments (biz_tag, role) VALUES ('secret', 'boss');
	CREATE FUNCTION as_boss() RETURNS bigint LANGUAGE sql SECURITY DEFINER
		RETURN snowid_number('secret');
	ALTER FUNCTION as_boss() OWNER TO boss;
	EOF
like(
	sql_error($node, "SET ROLE clerk; SELECT snowid_number('secret')"),
	qr/^42501: permission denied for segment "secret"/,
	'another role than that of a tag gets none');
is(segment_status($node, 'secret', 'count(*)'),
	0, 'a tag that is not for the caller takes no place');
is(query($node, "SET ROLE deputy; SELECT snowid_number('secret')"),
	1, "members of a tag's role get numbers");
like(
	sql_error(
		$node,
		"SET ROLE boss; PREPARE p AS SELECT snowid_number('secret'); EXECUTE p; SET ROLE clerk; EXECUTE p"
	),
	qr/^42501: /,
	'other roles get no number, even if the session has got some');
like(
	sql_error($node, <<~EOF),
		SELECT set_config('role', role, false), snowid_number(tag)
		FROM (VALUES ('boss', 'secret'), ('boss', 'b'), ('clerk', 'b'), ('clerk', 'secret')) v (role, tag)
		EOF
	qr/^42501: permission denied for segment "secret"/,
	'another role gets no number, even if the call has got some');
like(
	sql_error($node, <<~EOF),
		SELECT set_config('role', role, false), snowid_number('secret')
		FROM (VALUES ('boss'), ('clerk')) v (role)
		EOF
	qr/^42501: permission denied for segment "secret"/,
	'another role gets no number, even if the call just got one of the tag');
is(query($node, "SET ROLE clerk; SELECT as_boss()"),
	5, 'others get numbers from a function that runs as a member');
like(
	sql_error(
		$node,
		"SET ROLE deputy; SELECT snowid_number('secret'); RESET ROLE; REVOKE boss FROM deputy; SET ROLE deputy; SELECT snowid_number('secret')"
	),
	qr/^42501: permission denied for segment "secret"/,
	'a former member gets no number, even if the session has got some');
query($node, "GRANT boss TO deputy");
like(
	sql_error($node, <<~EOF),
		SET ROLE deputy; SELECT snowid_number('secret');
		RESET ROLE; UPDATE snowid_segments SET role = 'clerk' WHERE biz_tag = 'secret';
		SET ROLE deputy; SELECT snowid_number('secret')
		EOF
	qr/^42501: /,
	'a new role counts at once, even if the session has got numbers');
query($node, "SET ROLE clerk; SELECT snowid_number('secret')");
is( answers(
		"SET ROLE deputy; SELECT snowid_number('secret'); RESET ROLE; UPDATE snowid_segments SET role = 'boss' WHERE biz_tag = 'secret'; SET ROLE deputy; SELECT snowid_number('secret') > 0"
	),
	't',
	'a new role counts at once, even if the session was refused');

#---- Changes by hand ----

query($node,
	"UPDATE snowid_segments SET max_id = 5000000 WHERE biz_tag = 'a'");
is(number($node, 'a'), 5000001, 'max_id raised: the next number is above it');
number($node, 'b');
my $set = query($node,
	"UPDATE snowid_segments SET max_id = max_id WHERE biz_tag = 'b' RETURNING max_id"
);
is( number($node, 'b'),
	$set + 1,
	'max_id is set to its present value: no number up to it is handed out any more'
);

my $before = number($node, 'a');
query($node,
	"BEGIN; UPDATE snowid_segments SET max_id = max_id + 1000000 WHERE biz_tag = 'a'; ROLLBACK"
);
is( number($node, 'a'),
	$before + 1,
	'a change that is rolled back leaves the numbers in memory');
query($node,
	"INSERT INTO snowid_segments (biz_tag, period) VALUES ('daily', 'day'); SELECT snowid_period_number('daily')"
);
query($node,
	"BEGIN; UPDATE snowid_segments SET max_id = 7000000 WHERE biz_tag = 'a'; DELETE FROM snowid_segments WHERE biz_tag = 'daily'; PREPARE TRANSACTION 'p'"
);
query($node, "COMMIT PREPARED 'p'");
is(number($node, 'a'),
	7000001, 'a prepared transaction counts when it is committed');
like(
	sql_error(
		$node,
		"SET statement_timeout = '10min'; SELECT snowid_period_number('daily')"
	),
	qr/^42704: /,
	'a prepared deletion of a row with periods counts when it is committed');

is( answers(
		"SELECT snowid_number('a'); DELETE FROM snowid_segments WHERE biz_tag = 'a'; SELECT snowid_number('a'); SELECT snowid_number('a'); INSERT INTO snowid_segments (biz_tag) VALUES ('a'); SELECT snowid_number('a')"
	),
	"7000002\n1",
	'a session sees a tag go, and come again from 1');

foreach my $way (
	"DELETE FROM snowid_segments WHERE biz_tag = 'a'",
	"UPDATE snowid_segments SET biz_tag = 'z' WHERE biz_tag = 'a'",
	'TRUNCATE snowid_segments')
{
	my $end = max_id($node, 'a');
	query($node,
		"BEGIN; $way; INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('a', $end); COMMIT"
	);
	is( number($node, 'a'),
		$end + 1,
		"a new row with the max_id that the old one had gives no number up to that: $way"
	);
}

# The process is held while the row is replaced by another one.
sub replace_held
{
	held_process($node);
	my $end = max_id($node, 'a');
	query($node,
		"BEGIN; DELETE FROM snowid_segments WHERE biz_tag = 'a'; INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('a', $end); COMMIT"
	);
	let_go($node);
	return $end;
}

hold_process($node, 'snowid segments', 'StartTransactionCommand');
query($node, 'SELECT pg_terminate_backend(pid) ' . fetchers());
my $replaced = replace_held();
is( number($node, 'a'),
	$replaced + 1,
	'a range that is just being given back is not given to another row');
number($node, 'a');
hold_process($node, 'snowid segments',
	'LWLockAcquire', 'CommitTransactionCommand');
query($node, "SELECT snowid_number('a') FROM generate_series(1, 500)");
$replaced = replace_held();
is( number($node, 'a'),
	$replaced + 1,
	'a range that was just fetched is not used if the row was replaced');

query($node, "TRUNCATE snowid_segments");
add_tag($node, 'a', max_id => 10);
add_tag($node, 'b', max_id => 20);
add_tag($node, 'c', max_id => 30);

is(number($node, 'a'), 11, 'before it is forgotten');
query($node,
	"SELECT snowid_segment_forget('a'), snowid_segment_forget('nobody')");
is(number($node, 'a'),
	1011, 'a tag that was forgotten continues with the next range');
is( segment_status(
		$node, 'a',
		"biz_tag, source IS NULL, next, \"left\" > 0, step, error IS NULL"),
	'a|t|1012|t|1000|t',
	'the status has the next number and the length of the last range');

#---- REINDEX CONCURRENTLY ----

# It waits for an old snapshot when it has its second index, and leaves that if it fails.
add_tag($node, 'plain', period => 'none');
add_tag($node, 'daily', period => 'day');
my $reader = SnowidSession->new($node, 'postgres');
$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $indexes =
  "FROM pg_index WHERE indrelid IN ('snowid_segments'::regclass, 'snowid_segment_periods'::regclass)";
my @reindexers =
  map { ask_in_background($node, "REINDEX TABLE CONCURRENTLY $_") }
  'snowid_segments', 'snowid_segment_periods';
wait_for($node, "SELECT count(*) = 4 AND bool_and(indisready) $indexes");

sub fetches_while
{
	my ($what) = @_;
	is( query(
			$node,
			"SELECT count(snowid_number('plain')), count(snowid_period_number('daily')) FROM generate_series(1, 3000)"
		),
		'3000|3000',
		"ranges are fetched while $what");
	return;
}
fetches_while('REINDEX CONCURRENTLY runs');
query($node,
	"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'REINDEX%'"
);
like($_->outcome, qr/canceling statement/, 'REINDEX CONCURRENTLY fails')
  foreach @reindexers;
undef $reader;
is(query($node, "SELECT count(*) $indexes"),
	4, 'REINDEX CONCURRENTLY leaves its indexes');
fetches_while('an index is left of REINDEX CONCURRENTLY');
query($node, "DROP INDEX ${_}_pkey_ccnew")
  foreach 'snowid_segments', 'snowid_segment_periods';

#---- REINDEX in a transaction ----

query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag) VALUES ('unused');
	INSERT INTO snowid_segments (biz_tag, period, format) VALUES ('text', 'year', '{YYYY}-{N:3}');
	EOF
my $owner = SnowidSession->new($node, 'postgres');
$owner->query('BEGIN; REINDEX INDEX snowid_segments_pkey');
my $log    = -s $node->logfile;
my $unused = ask_in_background($node, "SELECT snowid_number('unused')");
$node->wait_for_log(qr/cannot reserve numbers: Its row is locked/, $log);
my $parses = ask_in_background($node,
	"SELECT number FROM snowid_period_parse('text', '2026-007')");
wait_for($node,
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%period_parse%' AND pid <> pg_backend_pid() AND (wait_event_type = 'Lock' OR state = 'idle')"
);
undef $owner;
is($parses->outcome, 7, 'a serial is read after REINDEX');
is($unused->outcome, 1,
	'the first call for a tag has its number after REINDEX');

# Between two ranges of this server another one has taken some.
query($node,
	"INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('gap', 10, '0'); SELECT snowid_number('gap')"
);
query($node,
	"SELECT snowid_segment_take('gap', 'none', NULL, NULL, 0, 1000, 10)");
number($node, 'gap');
poll_segment($node, 'gap', 'left_next > 0');
query($node, 'SELECT pg_terminate_backend(pid, 60000) ' . fetchers());
is(max_id($node, 'gap'),
	20, 'numbers after those of another server are given back alone');

# A tag whose row is locked is tried again after a pause, in which others get the lock that a
# look has, however many callers ask.
query($node,
	"INSERT INTO snowid_segments (biz_tag) VALUES ('tried'); BEGIN; UPDATE snowid_segments SET step = 1 WHERE biz_tag = 'tried'; PREPARE TRANSACTION 'p'"
);
my @ask =
  map { ask_in_background($node, "SELECT snowid_number('tried')") } 1 .. 3;
poll_segment($node, 'tried', "error = 'Its row is locked'");
hold_process($node, 'snowid segments', 'PopActiveSnapshot');
my $lasting = held_process($node);
usleep(300_000);
hold_process($node, 'snowid segments', 'StartTransactionCommand');
my $began = time;
kill 'CONT', $lasting;
held_process($node);
cmp_ok(time - $began,
	'>=', 0.2, 'after a look that lasted and failed there is a pause');
let_go($node);
query($node, "COMMIT PREPARED 'p'");
is(join(' ', sort { $a <=> $b } map { $_->outcome } @ask),
	'1 2 3', 'a row that is locked is tried');

#---- A clean stop, and tables of another database ----

number($node, 'b') foreach 1 .. 3;
$node->restart;
is(join(' ', map { number($node, $_) } qw(a b c)),
	'1012 24 31', 'a clean stop loses no number');
query($node, 'SELECT pg_terminate_backend(pid) ' . fetchers());
is(number($node, 'a'), 1013, 'the end of the process loses no number');

$node->restart;
query($node, 'CREATE DATABASE copy TEMPLATE postgres');
is($node->safe_psql('copy', "SELECT snowid_number('a')"),
	1014, 'numbers continue in the copy of a database');
is(number($node, 'a'), 1014, 'the same tag in two databases is two');
$node->safe_psql('copy',
	"CREATE SCHEMA s; ALTER EXTENSION snowid_segments SET SCHEMA s");
is($node->safe_psql('copy', "SELECT s.snowid_number('a')"),
	1015, 'the extension can be moved');
is( $node->safe_psql(
		'copy',
		"DROP EXTENSION snowid_segments CASCADE; CREATE EXTENSION snowid_segments SCHEMA s; INSERT INTO s.snowid_segments VALUES ('a'); SELECT s.snowid_number('a')"
	),
	1,
	'made again, it knows nothing of before');
is( $node->safe_psql(
		'copy',
		"SELECT count(*) FROM s.snowid_segment_status() WHERE biz_tag = 'a'"),
	1,
	'the status has no tag of the table before');
$node->restart;
is($node->safe_psql('copy', "SELECT s.snowid_number('a')"),
	2, 'a table that is gone takes no numbers of the present one with it');

# It gives back for 0.4 s.
number($node, $_) foreach qw(gap b);
hold_process($node, 'snowid segments', 'fmgr_info', 'SetConfigOption');
query($node, 'SELECT pg_terminate_backend(pid) ' . fetchers('postgres'));
my $gives_back = held_process($node);
usleep(500_000);
let_go($node);
wait_until('its end', sub { !kill 0, $gives_back });
is( query(
		$node,
		'SELECT count(*) FROM snowid_segment_status() WHERE "left" > 0'),
	1,
	'numbers that a process cannot give back in time stay in memory');

#---- Room ----

query($node,
	"INSERT INTO snowid_segments (biz_tag) SELECT 't' || i FROM generate_series(1, 100) i"
);
is( query(
		$node,
		"SELECT count(snowid_number('t' || i)) FROM generate_series(1, 100) i"
	),
	100,
	'if there are more tags than max_segments, all get numbers');
my $in_copy = 'SELECT count(*) FROM s.snowid_segment_status()';
is( query($node, 'SELECT count(*) FROM snowid_segment_status()') +
	  $node->safe_psql('copy', $in_copy),
	40,
	'as many tags are in memory as max_segments says');
is(number($node, 't1'),
	1001, 'a tag that made room continues after its numbers in memory');
like(
	sql_error($node, "SELECT snowid_number('none')"),
	qr/^42704: segment "none" does not exist\n/,
	'a tag that does not exist is refused');
query($node,
	"CREATE FUNCTION in_worker(tag text) RETURNS bigint PARALLEL SAFE LANGUAGE plpgsql AS 'BEGIN RETURN snowid_number(tag); END'"
);
my $force =
  $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
like(
	sql_error($node, "SET $force = on; SELECT in_worker('none')"),
	qr/^42704: segment "none" does not exist\n.*parallel worker/s,
	'a tag that does not exist is refused in a parallel worker');
is(segment_status($node, 'none', 'count(*)'),
	0, 'a tag that does not exist takes no place');
is(query($node, "SET $force = on; SELECT in_worker('t1')"),
	1002, 'a parallel worker gets the next number of a tag');
$session = SnowidSession->new($node, 'postgres');

foreach my $others ('11, 40', '51, 80')
{
	my $number = $session->query("SELECT snowid_number('t1')");
	query($node,
		"SELECT count(snowid_number('t' || i)) FROM generate_series($others) i"
	);
	is( $session->query("SELECT snowid_number('t1')"),
		$number + 1,
		"the tag that was used last makes no room for $others");
}
is( query(
		$node,
		"SELECT error FROM snowid_segment_status() WHERE error IS NOT NULL"),
	'',
	'no tag has an error');

# The only place is waited for.
configure($node, "snowid.max_segments = 1\nsnowid.max_wait = 1min");
$node->restart;
query($node, "UPDATE snowid_segments SET max_id = 5000 WHERE biz_tag = 't1'");
hold_process($node, 'snowid segments', 'StartTransactionCommand');
my $waiting = ask_in_background($node, "SELECT snowid_number('t1')");
held_process($node);
like(
	sql_error(
		$node, "SET statement_timeout = '1s'; SELECT snowid_number('t2')"),
	qr/^57014: /,
	'a caller that waits for room can be cancelled');
reload_with($node, 'snowid.max_segments' => 1, 'snowid.max_wait' => '1s');
like(
	sql_error($node, "SELECT snowid_number('t2')"),
	qr/^53400: there is no room for another segment\nDETAIL:  There are 1, and all are in use\./,
	'a tag that is waited for makes no room');
let_go($node);
is($waiting->outcome, 5001, 'the caller that waited gets its number');
is(number($node, 't2'),
	1001,
	'a place that no caller waits for any more is given to another tag');

# It is given away between two calls of a statement.
add_tag($node, 'stays', max_id => 0);
add_tag($node, 'comes', max_id => 5000);
my $between = SnowidSession->new($node, 'postgres');
$between->query('SELECT pg_advisory_lock(1)');
my $two = ask_in_background($node,
	"SELECT snowid_number('stays') FROM generate_series(1, 2) i WHERE i = 1 OR pg_advisory_lock(1) IS NOT NULL"
);
wait_for($node,
	"SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
);
is(number($node, 'comes'), 5001, 'another tag gets the place');
undef $between;
is($two->outcome, "1\n1001",
	'a statement whose tag lost its place gets no number of another tag');

# Of two places one is another database's.
configure($node, "snowid.max_segments = 2\nsnowid.max_wait = 1min");
$node->restart;
cmp_ok($node->safe_psql('copy', "SELECT s.snowid_number('a')"),
	'>', 0, 'a tag of another database has a place');
query($node, "UPDATE snowid_segments SET max_id = 6000 WHERE biz_tag = 't1'");
hold_process($node, 'snowid segments', 'StartTransactionCommand');
$waiting = ask_in_background($node, "SELECT snowid_number('t1')");
held_process($node);
reload_with($node, 'snowid.max_segments' => 2, 'snowid.max_wait' => '0');
$began = time;
like(
	sql_error($node, "SELECT snowid_number('t2')"),
	qr/^53400: there is no room for another segment\n/,
	'a database that has as many places as another one gets none of its');
cmp_ok(time - $began,
	'>=', 1, 'a caller waits for a second, whatever max_wait');
let_go($node);
is($waiting->outcome, 6001, 'the caller in the other place has its number');

configure($node, 'snowid.max_segments = 0');
$node->restart;
like(
	sql_error($node, "SELECT snowid_number('a')"),
	qr/^55000: segments are switched off/,
	'snowid.max_segments = 0');
is(sql_error($node, "UPDATE snowid_segments SET max_id = max_id + 1"),
	'', 'the table is still there');
$node->stop;
done_testing();
