# Changes by hand while numbers are taken: rows that are deleted while a range of them
# is being fetched, rows of past periods, and tags that move to another source and
# back.  No number repeats, and none is lost without need.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments qw(use_central ask_in_background answer_of);
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

my $is_locked =
  "SELECT count(*) > 0 FROM snowid_segment_status() WHERE error LIKE '%row%locked'";

# A caller's numbers are not fetched, for what lies behind $error.
sub fails_with
{
	my ($error) = @_;
	return
	  "SELECT count(*) = 1 FROM snowid_segment_status() WHERE error = '$error'";
}

# What a statement gives whose numbers can be fetched only when $release was called,
# which is done when $held is so.
sub answer_after
{
	my ($sql, $held, $release) = @_;
	my $caller = ask_in_background($node, $sql);

	wait_for($node, $held);
	$release->();
	return answer_of($caller);
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
		$is_locked,
		sub { $deleter->query_safe('COMMIT') }),
	'2026-11-21|1',
	'a day of the future that is deleted while a range of it is fetched');
$deleter->quit;
is(days('bill'), '2026-11-21',
	'a day that was deleted during a fetch is not made again');

$delete = begin_future('receipt');
query($node, "BEGIN; $delete; PREPARE TRANSACTION 'p'");
is( answer_after(
		"SELECT * FROM snowid_period_number('receipt')",
		$is_locked,
		sub { query($node, "COMMIT PREPARED 'p'") }),
	'2026-11-21|1',
	'a day of the future that is deleted by COMMIT PREPARED is not waited for'
);
is(days('receipt'), '2026-11-21',
	'COMMIT PREPARED of its deletion leaves no day of the future');

# Another row of the same tag, when the old one is still being looked at.
query($node, "INSERT INTO snowid_segments (biz_tag) VALUES ('again')");
query($node,
	"BEGIN; DELETE FROM snowid_segments WHERE biz_tag = 'again'; INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('again', 40); PREPARE TRANSACTION 'p'"
);
is( answer_after(
		"SELECT snowid_number('again')",
		$is_locked,
		sub { query($node, "COMMIT PREPARED 'p'") }),
	41,
	'a tag that is begun again by COMMIT PREPARED is there all the time');

# The row of a day that another transaction inserts.
query($node,
	"INSERT INTO snowid_segments (biz_tag, period) VALUES ('fresh', 'day')");
my $inserter = $node->background_psql('postgres');
$inserter->query_safe(
	"BEGIN; INSERT INTO snowid_segment_periods VALUES ('fresh', '2026-11-21', 5)"
);
is( answer_after(
		"SELECT * FROM snowid_period_number('fresh')",
		$is_locked,
		sub { $inserter->query_safe('COMMIT') }),
	'2026-11-21|6',
	'a day whose row is being inserted is not waited for in the process');
$inserter->quit;

#---- Periods that are over ----

query($node,
	"INSERT INTO snowid_segments (biz_tag, period, step, cover) VALUES ('today', 'day', 10, '0')"
);
query($node,
	"INSERT INTO snowid_segment_periods VALUES ('today', '2020-01-01', 7), ('today', '2020-01-03', 7)"
);
my $number = "SELECT number FROM snowid_period_number('today')";
is(query($node, $number), 1, 'the first number of a day is 1');

# The next range is committed, and nobody has it yet.
hold_process($node, 'snowid segments',
	'LWLockAcquire', 'CommitTransactionCommand');
is(query($node, $number), 2, 'the second number of a day is 2');
held_process($node);
query($node,
	"DELETE FROM snowid_segment_periods WHERE biz_tag = 'today' AND period = '2020-01-01'"
);
let_go($node);
is( query(
		$node,
		"SELECT string_agg((n).number::text, ' ') FROM (SELECT snowid_period_number('today') AS n FROM generate_series(1, 30)) s"
	),
	join(' ', 3 .. 32),
	'no number of today is lost if the row of a past day is deleted');
query($node,
	"UPDATE snowid_segment_periods SET period = '2026-11-30' WHERE biz_tag = 'today' AND period = '2020-01-03'"
);
is(query($node, "SELECT * FROM snowid_period_number('today')"),
	'2026-11-30|8', 'a row that becomes the newest day counts at once');

# The row of a day in use is deleted, and no trigger says so.
query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, period, step, cover) VALUES ('unnoticed', 'day', 1, '0');
	SELECT snowid_period_number('unnoticed');
	ALTER TABLE snowid_segment_periods DISABLE TRIGGER guard;
	DELETE FROM snowid_segment_periods WHERE biz_tag = 'unnoticed';
	ALTER TABLE snowid_segment_periods ENABLE ALWAYS TRIGGER guard;
	EOF
like(
	answer_after(
		"SELECT max((n).number) FROM (SELECT snowid_period_number('unnoticed') AS n FROM generate_series(1, 5)) s",
		fails_with('The row of its newest period was deleted'),
		sub {
			query($node,
				"INSERT INTO snowid_segment_periods VALUES ('unnoticed', '2026-11-21', 100)"
			);
		}),
	qr/^10[45]$/,
	'a day whose row is gone does not begin again');

#---- To a source, and back ----

# A server is its own central one, by way of other tables.
query($node, 'CREATE TABLE there (LIKE snowid_segments INCLUDING DEFAULTS)');
query($node,
	'CREATE TABLE days_there (LIKE snowid_segment_periods INCLUDING ALL)');
use_central($node, $node->host, $node->port);
query($node, <<~EOF);
	ALTER FOREIGN TABLE central OPTIONS (SET table_name 'there');
	CREATE FOREIGN TABLE days (biz_tag text, period date, max_id bigint, update_time timestamptz)
		SERVER central OPTIONS (table_name 'days_there');
	INSERT INTO there (biz_tag) VALUES ('a');
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('new', 'day'), ('used', 'day');
	EOF

query($node, "SELECT snowid_number_range('a', 5000)");
query($node,
	"UPDATE snowid_segments SET source = 'central' WHERE biz_tag = 'a'");
my $here =
  query($node, "SELECT max_id FROM snowid_segments WHERE biz_tag = 'a'");
is( answer_after(
		"SELECT snowid_number('a')",
		fails_with(
			"Its max_id is behind: numbers up to $here were handed out here"),
		sub { query($node, "UPDATE there SET max_id = $here + 2000") }),
	$here + 2001,
	'a tag that is moved to a source whose max_id is lower has no numbers until that is raised'
);

# A source that returns other numbers than those that it was asked for.
query($node, <<~EOF);
	CREATE FUNCTION lowers() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		NEW.max_id := 5;
		RETURN NEW;
	END \$\$;
	INSERT INTO there (biz_tag, max_id) VALUES ('lower', 100);
	CREATE TRIGGER lowers BEFORE UPDATE ON there FOR EACH ROW EXECUTE FUNCTION lowers();
	INSERT INTO snowid_segments (biz_tag, step, cover, source) VALUES ('lower', 10, '0', 'central');
	EOF
is( answer_after(
		"SELECT snowid_number('lower')",
		fails_with('Its source returned numbers that were not asked for'),
		sub {
			query($node,
				"DROP TRIGGER lowers ON there; UPDATE there SET max_id = 200 WHERE biz_tag = 'lower'"
			);
		}),
	201,
	'numbers of a source that were not asked for are not handed out');

foreach my $source ('NULL', "'days'")
{
	like(
		sql_error(
			$node,
			"UPDATE snowid_segments SET source = $source WHERE biz_tag = 'a'"
		),
		qr/^22023: source of segment "a" cannot be changed without its max_id\nDETAIL:  Numbers above $here may have been handed out from its source\.\nHINT:  Raise max_id in the same statement, to that of the source at least\./,
		"moved from its source to $source, a tag needs another max_id");
}
query($node, <<~EOF);
	BEGIN;
	SELECT FROM snowid_segments WHERE biz_tag = 'a' FOR UPDATE;
	UPDATE snowid_segments here SET source = NULL, max_id = greatest(here.max_id, there.max_id) + 1
		FROM there WHERE here.biz_tag = 'a' AND there.biz_tag = 'a';
	COMMIT
	EOF
cmp_ok(
	query($node, "SELECT snowid_number('a')"),
	'>',
	$here + 2001,
	'moved back with the max_id of its source, a tag continues above it');

# Of each period, too.
foreach my $tag ('new', 'used')
{
	query($node,
		"UPDATE snowid_segments SET step = 5, cover = '0' WHERE biz_tag = '$tag'"
	);
	query($node, "SELECT snowid_period_number('$tag')");
	query($node,
		"UPDATE snowid_segments SET source = 'days' WHERE biz_tag = '$tag'");
}
my $last =
  "SELECT max_id FROM snowid_segment_periods WHERE period = '2026-11-21' AND biz_tag = ";
my $new  = query($node, "$last 'new'");
my $used = query($node, "$last 'used'");
is( query($node, "SELECT * FROM snowid_period_number('new')"),
	'2026-11-21|' . ($new + 1),
	'if the source has no row of the day, the day continues');
query($node,
	"INSERT INTO days_there VALUES ('used', '2026-11-21', $used - 1)");
is( answer_after(
		"SELECT * FROM snowid_period_number('used')",
		fails_with(
			"Its max_id is behind: numbers up to $used were handed out here"),
		sub {
			query($node,
				"UPDATE days_there SET max_id = 100 WHERE biz_tag = 'used'");
		}),
	'2026-11-21|101',
	'if a source has an older max_id of the day, it must be raised');
my $locker = $node->background_psql('postgres');
$locker->query_safe(
	"BEGIN; SELECT FROM snowid_segment_periods WHERE biz_tag = 'used' FOR UPDATE"
);
query($node, "SELECT snowid_segment_forget('used')");
is( answer_after(
		"SELECT count(snowid_period_number('used'))",
		$is_locked,
		sub { $locker->query_safe('COMMIT') }),
	1,
	'a row of a day here that is locked is not waited for in the process');
$locker->quit;
query($node, <<~EOF);
	BEGIN;
	SELECT FROM snowid_segments WHERE biz_tag = 'used' FOR UPDATE;
	UPDATE snowid_segments SET source = NULL, max_id = max_id + 1 WHERE biz_tag = 'used';
	INSERT INTO snowid_segment_periods SELECT biz_tag, period, max_id FROM days_there WHERE biz_tag = 'used'
		ON CONFLICT (biz_tag, period) DO UPDATE SET max_id = greatest(snowid_segment_periods.max_id, excluded.max_id);
	COMMIT
	EOF
is( query(
		$node,
		"SELECT period, number > 101 FROM snowid_period_number('used')"),
	'2026-11-21|t',
	'moved back, the periods of a tag continue');

#---- Longer periods ----

# Days become months, and months a year, in which the days and months before them are;
# of the table here, and of a source.
query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, period, step, cover) VALUES ('longer', 'day', 10, '0');
	INSERT INTO snowid_segments (biz_tag, period, step, cover, source) VALUES ('longer there', 'day', 10, '0', 'days');
	EOF

# Thirty numbers of a tag: its period, and the last one.
sub take_thirty
{
	my ($tag) = @_;
	my ($rc, $out, $err) = $node->psql('postgres',
		"SELECT string_agg(DISTINCT (n).period::text, ' '), max((n).number) FROM (SELECT snowid_period_number('$tag') AS n FROM generate_series(1, 30)) s"
	);
	return $rc == 0 ? $out : $err;
}
reload_with($node, 'snowid.max_wait' => '5s');
my @tags = ('longer', 'longer there');
is(take_thirty($_), '2026-11-21|30', "$_: thirty numbers of a day")
  foreach @tags;
foreach my $to ([ month => '2026-11-01' ], [ year => '2026-01-01' ])
{
	my ($period, $label) = @$to;
	query($node,
		"UPDATE snowid_segments SET period = '$period' WHERE biz_tag LIKE 'longer%'"
	);
	is(take_thirty($_), "$label|30",
		"$_: with the period $period, it begins at 1 and continues")
	  foreach @tags;
	query($node, "SELECT snowid_segment_forget('$_')") foreach @tags;
	like(take_thirty($_), qr/^$label\|(?:60|70|80)$/,
		"$_: forgotten, it continues in the $period")
	  foreach @tags;
}
reload_with($node, 'snowid.max_wait' => '1min');

#---- The data alone are restored ----

query($node, 'CREATE DATABASE copy');
foreach
  my $options (['--schema-only'], [ '--data-only', '--disable-triggers' ])
{
	my $dump = $node->basedir . '/dump.sql';
	$node->command_ok(
		[ 'pg_dump', @$options, '-f', $dump, $node->connstr('postgres') ],
		"pg_dump @$options writes the tables");
	$node->command_ok(
		[
			'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			$node->connstr('copy')
		],
		"pg_dump @$options can be restored");
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
	'triggers of a restored table are set to fire always, as the manual says'
);

#---- Dumps of rows that cannot be resolved where they are restored ----

query($node, <<~EOF);
	SET check_function_bodies = off;
	CREATE ROLE gone;
	UPDATE snowid_segments SET source = NULL, max_id = max_id + 1000 WHERE source IS NOT NULL;
	INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('kept', 4711);
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('no source', 'central');
	INSERT INTO snowid_segments (biz_tag, role) VALUES ('no role', 'gone');
	INSERT INTO snowid_segments (biz_tag, zone) VALUES ('no zone', 'US/EasternGone');
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('no period', 'week');
	INSERT INTO snowid_segments (biz_tag, period, format) VALUES ('no format', 'day', '{N:6}');
	DROP ROLE gone;
	DROP FOREIGN TABLE central
	EOF
my %problems = (
	'no source' => 'Its source does not exist',
	'no role'   => 'Its role does not exist',
	'no zone'   => 'Its time zone is not known here',
	'no period' => 'Its period must be none, day, month or year',
	'no format' =>
	  'Its format must have these fields, once each: {YYYYMMDD}{N:6}');
foreach my $options ([], ['--inserts'])
{
	my $dump = $node->basedir . '/whole.sql';
	query($node, 'DROP DATABASE IF EXISTS whole');
	query($node, 'CREATE DATABASE whole');
	$node->command_ok(
		[ 'pg_dump', @$options, '-f', $dump, $node->connstr('postgres') ],
		"pg_dump @$options writes rows that cannot be resolved");
	$node->command_ok(
		[
			'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			$node->connstr('whole')
		],
		"a dump with rows that cannot be resolved is restored (@$options)");
	is($node->safe_psql('whole', "SELECT snowid_number('kept')"),
		4712, 'the other tags continue in the restored database');
}
reload_with($node, 'snowid.max_wait' => '1s');
foreach my $tag (sort keys %problems)
{
	my ($function) =
	  $tag =~ /period|format/ ? 'snowid_period_number' : 'snowid_number';
	my (undef, undef, $error) =
	  $node->psql('whole', "SELECT $function('$tag')");
	like(
		$error,
		qr/no numbers available for segment "$tag"\nDETAIL:  The last error was: \Q$problems{$tag}\E\./,
		"$tag: it has no numbers, and the error says why");
}
like(
	sql_error(
		$node,
		"INSERT INTO snowid_segments (biz_tag, role) VALUES ('x', 'gone')"),
	qr/^22023: segment "x" would have no numbers\nDETAIL:  Its role does not exist\./,
	'by hand, a role that does not exist is refused');

# A source that is no name, and longer than one may be.
query($node,
	q(CREATE DATABASE wide TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'));
$node->safe_psql('wide', <<~'EOF');
	CREATE EXTENSION snowid_segments;
	SET check_function_bodies = off;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('wide', repeat(U&'\00e9', 200));
	EOF
my $wide = ask_in_background($node, "SELECT snowid_number('wide')", 'wide');
$node->poll_query_until('wide',
	"SELECT count(*) = 1 FROM snowid_segment_status() WHERE biz_tag = 'wide'")
  or die;
is( $node->safe_psql(
		'wide',
		"SELECT replace(convert_from(convert_to(source, 'LATIN1'), 'LATIN1'), U&'\\00e9', '') FROM snowid_segment_status() WHERE biz_tag = 'wide'"
	),
	'',
	'a source that is too long is cut between two characters');
eval { $wide->quit };

#---- Tables that are not the extension's ----

query($node, <<~EOF);
	CREATE TABLE other (biz_tag text);
	CREATE TRIGGER guard BEFORE INSERT ON other
		FOR EACH ROW EXECUTE FUNCTION snowid_segments_guard();
	EOF
like(
	sql_error($node, q(INSERT INTO other VALUES ('a'))),
	qr/^55000: definition of table "snowid_segments" does not match the snowid_segments extension$/m,
	'the trigger refuses another table');
query($node, 'ALTER EXTENSION snowid_segments DROP TABLE snowid_segments');
like(
	sql_error($node, q(SELECT snowid_number('kept'))),
	qr/^42704: segment "kept" does not exist$/m,
	'a table that the extension does not own any more gives no numbers');

$node->stop;
done_testing();
