# What is changed by hand while numbers are taken: rows that are deleted while a range
# of them is being fetched, rows of periods that are over, and tags that move to
# another source and back.  No number comes twice, and none is lost without need.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('changed', 'snowid.max_wait = 60s');
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
let_hold($node);
$node->start;

# Noon of 2026-11-21, and all the time: so no lock_timeout ends a wait.
stop_clock($node, 1795262400000);
query($node, <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('bill', 'day'), ('receipt', 'day');
	EOF

my $waits_for_lock =
  "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid segments' AND wait_event_type = 'Lock'";

# What a statement gives whose numbers can be fetched only when $release was called,
# which is done when $held is so.
sub answer_after
{
	my ($sql, $held, $release) = @_;
	my $caller = $node->background_psql('postgres', on_error_stop => 0);

	$caller->query_until(qr/^asked$/m, "\\echo asked\n$sql;\n");
	wait_for($node, $held);
	$release->();
	my $answer = $caller->query_until(qr/^done$/m, "\\echo done\n");
	$caller->quit;
	return $answer =~ s/\n?done\n//r;
}

#---- Deleted while a range is fetched ----

# The newest row is that of a day in the future, of which 57 numbers were used.
sub begin_future
{
	my ($tag) = @_;
	query($node,
		"INSERT INTO snowid_segment_periods VALUES ('$tag', '2030-01-01', 57)"
	);
	return
	  "DELETE FROM snowid_segment_periods WHERE biz_tag = '$tag' AND period > '2027-01-01'";
}

# The rows of a tag.
sub days
{
	my ($tag) = @_;
	return query($node,
		"SELECT string_agg(period::text, ' ' ORDER BY period) FROM snowid_segment_periods WHERE biz_tag = '$tag'"
	);
}

my $delete  = begin_future('bill');
my $deleter = $node->background_psql('postgres');
$deleter->query_safe("BEGIN; $delete");
is( answer_after(
		"SELECT * FROM snowid_period_number('bill')",
		$waits_for_lock,
		sub { $deleter->query_safe('COMMIT') }),
	'2026-11-21|1',
	'a day of the future that is deleted while a range of it is fetched');
$deleter->quit;
is(days('bill'), '2026-11-21', 'is not made again');

$delete = begin_future('receipt');
query($node, "BEGIN; $delete; PREPARE TRANSACTION 'p'");
is( answer_after(
		"SELECT * FROM snowid_period_number('receipt')",
		$waits_for_lock,
		sub { query($node, "COMMIT PREPARED 'p'") }),
	'2026-11-21|1',
	'nor by COMMIT PREPARED');
is(days('receipt'), '2026-11-21', 'which makes none of it');

# Another row of the same tag, when the old one is still being looked at.
query($node, "INSERT INTO snowid_segments (biz_tag) VALUES ('anew')");
query($node,
	"BEGIN; DELETE FROM snowid_segments WHERE biz_tag = 'anew'; INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('anew', 40); PREPARE TRANSACTION 'p'"
);
is( answer_after(
		"SELECT snowid_number('anew')",
		$waits_for_lock,
		sub { query($node, "COMMIT PREPARED 'p'") }),
	41,
	'a tag that is begun anew by COMMIT PREPARED is there all the time');

#---- Periods that are over ----

query($node,
	"INSERT INTO snowid_segments (biz_tag, period, step, cover) VALUES ('today', 'day', 10, '0')"
);
query($node,
	"INSERT INTO snowid_segment_periods VALUES ('today', '2020-01-01', 7), ('today', '2020-01-02', 7), ('today', '2020-01-03', 7)"
);
my $number = "SELECT number FROM snowid_period_number('today')";
is(query($node, $number), 1, 'the first of today');

# The next range is committed, and nobody has it yet.
hold_process($node, 'snowid segments',
	'timer_settime', 'CommitTransactionCommand');
is(query($node, $number), 2, 'the second');
held_process($node);
query($node,
	"DELETE FROM snowid_segment_periods WHERE biz_tag = 'today' AND period = '2020-01-01'"
);
query($node,
	"UPDATE snowid_segment_periods SET max_id = max_id WHERE biz_tag = 'today' AND period = '2020-01-02'"
);
let_go($node);
is( query(
		$node,
		"SELECT string_agg((n).number::text, ' ') FROM (SELECT snowid_period_number('today') AS n FROM generate_series(1, 30)) s"
	),
	join(' ', 3 .. 32),
	'rows of days that are over can be deleted and changed, and no number of today is lost'
);

# Those of today alone are given back, when they were not used for ten seconds.
query($node,
	"SELECT snowid_segment_forget(biz_tag) FROM snowid_segments WHERE biz_tag <> 'today'"
);
wait_for($node,
	"SELECT (SELECT max_id = 41 FROM snowid_segments WHERE biz_tag = 'anew') AND (SELECT bool_and(max_id = 1) FROM snowid_segment_periods WHERE biz_tag <> 'today')"
);
wait_for($node,
	"SELECT \"left\" + left_next = 10 FROM snowid_segment_status() WHERE biz_tag = 'today'"
);
hold_process($node, 'snowid segments', 'StartTransactionCommand');
wait_for($node,
	"SELECT \"left\" + left_next = 0 FROM snowid_segment_status() WHERE biz_tag = 'today'"
);
held_process($node);
query($node,
	"DELETE FROM snowid_segment_periods WHERE biz_tag = 'today' AND period = '2020-01-02'"
);
let_go($node);
is(query($node, $number), 33, 'nor where they are just being given back');

query($node,
	"UPDATE snowid_segment_periods SET period = '2026-11-30' WHERE biz_tag = 'today' AND period = '2020-01-03'"
);
is(query($node, "SELECT * FROM snowid_period_number('today')"),
	'2026-11-30|8', 'one that becomes the newest counts at once');

#---- To a source, and back ----

query($node, <<~EOF);
	CREATE TABLE source (biz_tag text PRIMARY KEY, max_id bigint, limit_id bigint, update_time timestamptz);
	INSERT INTO source VALUES ('a', 0);
	CREATE TABLE days (biz_tag text, period date, max_id bigint, update_time timestamptz, PRIMARY KEY (biz_tag, period));
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('new', 'day'), ('used', 'day');
	EOF

# A caller's numbers are not fetched, for what lies behind $error.
sub fails_with
{
	my ($error) = @_;
	return
	  "SELECT count(*) = 1 FROM snowid_segment_status() WHERE error = '$error'";
}

query($node, "SELECT snowid_number('a') FROM generate_series(1, 5000)");
query($node,
	"UPDATE snowid_segments SET source = 'source' WHERE biz_tag = 'a'");
is( answer_after(
		"SELECT snowid_number('a')",
		fails_with(
			'Its source is behind: numbers up to 5000 were handed out here'),
		sub { query($node, "UPDATE source SET max_id = 7000") }),
	7001,
	'a tag that is moved to a source whose max_id is lower has no numbers until that is raised'
);
foreach my $source ('NULL', "'days'")
{
	like(
		sql_error(
			$node,
			"UPDATE snowid_segments SET source = $source WHERE biz_tag = 'a'"
		),
		qr/^22023: source of segment "a" cannot be changed without its max_id\nDETAIL:  Numbers above 5000 may have been handed out from its source\.\nHINT:  Raise max_id in the same statement, to that of the source at least\./,
		"moved from its source to $source, it needs another max_id");
}
query($node, <<~EOF);
	BEGIN;
	SELECT FROM snowid_segments WHERE biz_tag = 'a' FOR UPDATE;
	UPDATE snowid_segments here SET source = NULL, max_id = greatest(here.max_id, there.max_id) + 1
		FROM source there WHERE here.biz_tag = 'a' AND there.biz_tag = 'a';
	COMMIT
	EOF
cmp_ok(query($node, "SELECT snowid_number('a')"),
	'>', 7001, 'with that of its source, none comes twice');

# Of each period, too.
foreach my $tag ('new', 'used')
{
	query($node, "SELECT snowid_period_number('$tag')") foreach 1 .. 5;
	query($node,
		"UPDATE snowid_segments SET source = 'days' WHERE biz_tag = '$tag'");
	wait_for($node,
		"SELECT max_id = 5 FROM snowid_segment_periods WHERE biz_tag = '$tag'"
	);
}
is(query($node, "SELECT * FROM snowid_period_number('new')"),
	'2026-11-21|6',
	'where the source has no row of the day, the day goes on');
query($node, "INSERT INTO days VALUES ('used', '2026-11-21', 4)");
is( answer_after(
		"SELECT * FROM snowid_period_number('used')",
		fails_with(
			'Its source is behind: numbers up to 5 were handed out here'),
		sub {
			query($node,
				"UPDATE days SET max_id = 10 WHERE biz_tag = 'used'");
		}),
	'2026-11-21|11',
	'where it has one, that must be raised');
query($node, <<~EOF);
	BEGIN;
	SELECT FROM snowid_segments WHERE biz_tag = 'used' FOR UPDATE;
	UPDATE snowid_segments SET source = NULL, max_id = max_id + 1 WHERE biz_tag = 'used';
	INSERT INTO snowid_segment_periods SELECT biz_tag, period, max_id FROM days WHERE biz_tag = 'used'
		ON CONFLICT (biz_tag, period) DO UPDATE SET max_id = greatest(snowid_segment_periods.max_id, excluded.max_id);
	COMMIT
	EOF
is( query(
		$node, "SELECT period, number > 11 FROM snowid_period_number('used')"
	),
	'2026-11-21|t',
	'moved back, its periods go on, too');

#---- Rights on a source ----

query($node, <<~EOF);
	CREATE ROLE clerk;
	GRANT SELECT, INSERT, UPDATE ON snowid_segments TO clerk;
	GRANT SELECT, UPDATE ON days TO clerk;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('boss', 'source');
	SET ROLE clerk;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('clerk', 'days')
	EOF
foreach my $change (
	"period = 'day' WHERE biz_tag = 'clerk'",
	"biz_tag = 'clerks' WHERE biz_tag = 'boss'")
{
	like(
		sql_error(
			$node, "SET ROLE clerk; UPDATE snowid_segments SET $change"),
		qr/^42501: permission denied for the source of a segment/,
		"who has no right on a source: SET $change");
}
is( sql_error(
		$node,
		"SET ROLE clerk; UPDATE snowid_segments SET step = 5 WHERE biz_tag = 'boss'"
	),
	'',
	'what is not about the source can be changed');

#---- max_id lowered by who is sure ----

query($node,
	"INSERT INTO snowid_segments (biz_tag) VALUES ('lowered'); SELECT snowid_number('lowered') FROM generate_series(1, 50)"
);
query($node,
	"UPDATE snowid_segments SET max_id = 10, update_time = '-infinity' WHERE biz_tag = 'lowered'"
);
query($node, "SELECT snowid_segment_forget('lowered')");
is(query($node, "SELECT snowid_number('lowered')"),
	11, 'max_id lowered by who is sure, and forgotten, counts');

#---- The data alone are restored ----

query($node, 'CREATE DATABASE copy');
foreach
  my $options (['--schema-only'], [ '--data-only', '--disable-triggers' ])
{
	my $dump = $node->basedir . '/dump.sql';
	$node->command_ok(
		[ 'pg_dump', @$options, '-f', $dump, $node->connstr('postgres') ],
		"pg_dump @$options");
	$node->command_ok(
		[
			'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			$node->connstr('copy')
		],
		'and its restore');
}
$node->safe_psql('copy', <<~EOF);
	ALTER TABLE snowid_segments ENABLE ALWAYS TRIGGER guard, ENABLE ALWAYS TRIGGER guard_all;
	ALTER TABLE snowid_segment_periods ENABLE ALWAYS TRIGGER guard, ENABLE ALWAYS TRIGGER guard_all;
	EOF
is( $node->safe_psql(
		'copy',
		"SELECT string_agg(tgenabled::text, '') FROM pg_trigger WHERE tgname IN ('guard', 'guard_all')"
	),
	'AAAA',
	'its triggers are set to fire always, as the manual says');

$node->stop;
done_testing();
