# Changes by hand while numbers are taken: rows that are deleted while a range of them
# is being fetched, rows of past periods, and tags that move to another source and
# back.  No number repeats, and none is lost without need.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('changed', 'snowid.max_wait = 60s');
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
let_hold($node);
$node->start;

# Noon of 2026-11-21, and all the time: so no lock_timeout ends a wait.
my $noon = 1795262400;
stop_clock($node, 1000 * $noon);
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
	return $caller->outcome;
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
my $deleter = SnowidSession->new($node, 'postgres');
$deleter->query("BEGIN; $delete");
is( answer_after(
		"SELECT * FROM snowid_period_number('bill')",
		$is_locked,
		sub { $deleter->query('COMMIT') }),
	'2026-11-21|1',
	'a day of the future that is deleted while a range of it is fetched');
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
add_tag($node, 'again');
query($node,
	"BEGIN; DELETE FROM snowid_segments WHERE biz_tag = 'again'; INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('again', 40); PREPARE TRANSACTION 'p'"
);
is( answer_after(
		"SELECT snowid_number('again')",
		$is_locked,
		sub { query($node, "COMMIT PREPARED 'p'") }),
	41,
	'a tag that is begun again by COMMIT PREPARED is there all the time');

# The row of a day that another transaction inserts: it is waited for, until lock_timeout.
set_skew($node, $noon - time);
add_tag($node, 'fresh', period => 'day');
my $inserter = SnowidSession->new($node, 'postgres');
$inserter->query(
	"BEGIN; INSERT INTO snowid_segment_periods VALUES ('fresh', '2026-11-21', 5)"
);
my $take =
  'SELECT first, problem FROM snowid_segment_take(%s, \'day\', date \'2026-11-21\' - date \'2000-01-01\', NULL, 0, 1000, 20)';
like(
	sql_error(
		$node, sprintf "SET statement_timeout = '1min'; $take", q('fresh')),
	qr/^55P03: canceling statement due to lock timeout/,
	'another server does not wait without end for a day whose row is being inserted'
);
is( answer_after(
		"SELECT * FROM snowid_period_number('fresh')",
		fails_with('canceling statement due to lock timeout'),
		sub { $inserter->query('COMMIT') }),
	'2026-11-21|6',
	'a day whose row is being inserted is not waited for without end');
stop_clock($node, 1000 * $noon);

# And one that another transaction has taken.
add_tag($node, 'taken', period => 'day');
$inserter = SnowidSession->new($node, 'postgres');
$inserter->query(
	"BEGIN; INSERT INTO snowid_segment_periods VALUES ('taken', '2026-11-21', 20)"
);
is( answer_after(
		sprintf($take, q('taken')),
		'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted',
		sub { $inserter->query('COMMIT') }),
	'|locked',
	'a day whose numbers another transaction took meanwhile is not taken again'
);

#---- Periods that are over ----

add_tag($node, 'today', period => 'day', step => 10, cover => 0);
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

# A range is fetched between the end of its statement and its commit.
add_tag($node, 'between', period => 'day');
my $between = "SELECT * FROM snowid_period_number('between')";
is(query($node, $between), '2026-11-21|1', 'a number before a newer day');
hold_process($node, 'client', 'LWLockRelease');
my $newer = ask_in_background($node,
	"INSERT INTO snowid_segment_periods VALUES ('between', '2026-11-30', 7)");
held_process($node);
like(query($node, $between),
	qr/^2026-11-21\|/, 'a number while a newer day is not visible yet');
let_go($node);
is($newer->outcome, '', 'a newer day becomes visible');
is(query($node, $between),
	'2026-11-30|8',
	'a day that becomes visible after a range was fetched counts at once');

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
		"SELECT count(*) = 1 FROM snowid_segment_status() WHERE error LIKE 'Its max_id is behind: %'",
		sub {
			query($node,
				"INSERT INTO snowid_segment_periods VALUES ('unnoticed', '2026-11-21', 100)"
			);
		}),
	qr/^10[45]$/,
	'a day whose row is gone does not begin again');

#---- To a source, and back ----

# The central server is another database of this one.
sub there
{
	my ($sql, $database) = @_;
	return $node->safe_psql($database // 'there', $sql);
}

query($node, 'CREATE DATABASE there');
query($node, 'CREATE DATABASE fake');
there(<<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('new', 'day'), ('used', 'day'), ('longer there', 'day');
	EOF
query($node,
		'CREATE EXTENSION postgres_fdw;'
	  . source_in('central', $node, 'there')
	  . source_in('fake',    $node, 'fake'));
add_tag($node, 'a');
add_tag($node, $_, period => 'day') foreach qw(new used);
query($node, "SELECT snowid_number_range('a', 5000)");
query($node,
	"UPDATE snowid_segments SET source = 'central' WHERE biz_tag = 'a'");
my $here = max_id($node, 'a');
is( answer_after(
		"SELECT snowid_number('a')",
		fails_with(
			"Its max_id is behind: numbers up to $here were handed out here"),
		sub { there("UPDATE snowid_segments SET max_id = $here + 2000") }),
	$here + 2001,
	'a tag that is moved to a source whose max_id is lower has no numbers until that is raised'
);

# A server that answers with a row of its own.
sub fake_answers
{
	my ($row) = @_;
	fake_source($node, 'fake', "LANGUAGE sql RETURN ROW($row)");
	return;
}

sub fake_range
{
	my ($first, $last, $period) = @_;
	fake_answers("${first}::bigint, ${last}::bigint, $period, NULL::text");
	return;
}
fake_range(95, 104, 'NULL::int');
add_tag(
	$node, 'fake',
	max_id => 100,
	step   => 10,
	cover  => 0,
	source => 'fake');
my $not_asked =
  fails_with('Its source returned numbers that were not asked for');
my $asking = ask_in_background($node, "SELECT snowid_number('fake')");
wait_for($node, $not_asked);
pass('a range of numbers that were handed out here is refused');
fake_answers("NULL::bigint, NULL::bigint, NULL::int, 'evil'::text");
wait_for($node,
	fails_with('Its source refused for a reason that is not known here'));
pass('a word that is not known is not passed on');

# The caller asks again after each.
sub ranges_are_refused
{
	foreach my $case (@_)
	{
		my ($what, @range) = @$case;
		fake_range(@range);
		wait_for($node, $not_asked);
		pass("a range $what is refused");
		fake_answers("NULL::bigint, NULL::bigint, NULL::int, 'locked'::text");
		wait_for($node, fails_with('Its row is locked'));
	}
	return;
}
ranges_are_refused(
	[ 'that is too long',           200, 210, 'NULL::int' ],
	[ 'that ends before it begins', 200, 150, 'NULL::int' ],
	[ 'of a period',                200, 209, 1 ]);
fake_range(200, 209, 'NULL::int');
is($asking->outcome, 200, 'a range that was asked for is handed out');

# The same with periods.
sub of_month
{
	my ($day) = @_;
	return "date '$day' - date '2000-01-01'";
}
add_tag(
	$node, 'monthly',
	period   => 'month',
	limit_id => 500,
	step     => 10,
	cover    => 0,
	source   => 'fake');
$asking =
  ask_in_background($node, "SELECT * FROM snowid_period_number('monthly')");
ranges_are_refused(
	[ 'of a month that is over',        1,   10,  of_month('2026-10-01') ],
	[ 'of a day that begins no month',  1,   10,  of_month('2026-12-02') ],
	[ 'of a year that has five digits', 1,   10,  of_month('10000-01-01') ],
	[ 'above the limit',                495, 504, of_month('2026-11-01') ],
	[ 'of no month',                    1,   10,  'NULL::int' ]);
fake_range(1, 10, of_month('2026-12-01'));
is($asking->outcome, '2026-12-01|1',
	'a range of a month that the source has begun is handed out');
fake_range(1, 10, of_month('2026-11-01'));
$asking = ask_in_background($node,
	"SELECT max((n).number) FROM (SELECT snowid_period_number('monthly') AS n FROM generate_series(1, 10)) s"
);
wait_for($node, $not_asked);
pass('a range of a month before the newest one is refused');
fake_range(11, 20, of_month('2026-12-01'));
is($asking->outcome, 11, 'a range of the newest month is handed out');

foreach my $source ('NULL', "'fake'")
{
	like(
		sql_error(
			$node,
			"UPDATE snowid_segments SET source = $source WHERE biz_tag = 'a'"
		),
		qr/^22023: source of segment "a" cannot be changed without its max_id\nDETAIL:  Numbers above $here may have been handed out from its source\.\nHINT:  Raise max_id in the same statement, to that of the source at least\./,
		"moved from its source to $source, a tag needs another max_id");
}
my $mover = SnowidSession->new($node, 'postgres');
$mover->query(
	"BEGIN; SELECT FROM snowid_segments WHERE biz_tag = 'a' FOR UPDATE");
my $max_there =
  there("SELECT max_id FROM snowid_segments WHERE biz_tag = 'a'");
$mover->query(
	"UPDATE snowid_segments SET source = NULL, max_id = greatest(max_id, $max_there) + 1 WHERE biz_tag = 'a'; COMMIT"
);
cmp_ok(
	query($node, "SELECT snowid_number('a')"),
	'>',
	$here + 2001,
	'moved back with the max_id of its source, a tag continues above it');

# A tag has its name in the encoding of each database.
my $accented = "INSERT INTO snowid_segments (biz_tag%s) VALUES (chr(233)%s)";
there(sprintf $accented, '', '');
query($node,
	q(CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'));
there(
	'CREATE EXTENSION snowid_segments; CREATE EXTENSION postgres_fdw;'
	  . source_in('central', $node, 'there')
	  . sprintf($accented, ', source', ", 'central'"),
	'latin');
is(there('SELECT snowid_number(chr(233))', 'latin'),
	1, 'a tag of another encoding is found at its source');

# Of each period, too.
foreach my $tag ('new', 'used')
{
	query($node,
		"UPDATE snowid_segments SET step = 5, cover = '0' WHERE biz_tag = '$tag'"
	);
	query($node, "SELECT snowid_period_number('$tag')");
	query($node,
		"UPDATE snowid_segments SET source = 'central' WHERE biz_tag = '$tag'"
	);
}
my $last =
  "SELECT max_id FROM snowid_segment_periods WHERE period = '2026-11-21' AND biz_tag = ";
my $used = query($node, "$last 'used'");
there(
	"INSERT INTO snowid_segment_periods VALUES ('used', '2026-11-21', $used - 1)"
);
foreach my $case (
	[
		'new',
		'has no row of the day',
		"INSERT INTO snowid_segment_periods VALUES ('new', '2026-11-21', 100)"
	],
	[
		'used',
		'has an older max_id of the day',
		"UPDATE snowid_segment_periods SET max_id = 100 WHERE biz_tag = 'used'"
	])
{
	my ($tag, $what, $cure) = @$case;
	my $max_id = query($node, "$last '$tag'");
	is( answer_after(
			"SELECT * FROM snowid_period_number('$tag')",
			fails_with(
				"Its max_id is behind: numbers up to $max_id were handed out here"
			),
			sub { there($cure) }),
		'2026-11-21|101',
		"if a source $what, it has no numbers until that is raised");
}

# The day of the source is put back below numbers that were handed out from there.
there(<<~EOF);
	ALTER TABLE snowid_segment_periods DISABLE TRIGGER guard;
	UPDATE snowid_segment_periods SET max_id = 100 WHERE biz_tag = 'used';
	ALTER TABLE snowid_segment_periods ENABLE ALWAYS TRIGGER guard;
	EOF
like(
	answer_after(
		"SELECT max((n).number) FROM (SELECT snowid_period_number('used') AS n FROM generate_series(1, 10)) s",
		"SELECT count(*) = 1 FROM snowid_segment_status() WHERE error LIKE 'Its max_id is behind: %'",
		sub {
			there(
				"UPDATE snowid_segment_periods SET max_id = 200 WHERE biz_tag = 'used'"
			);
		}),
	qr/^20\d$/,
	'a day of a source that was put back has no numbers until it is raised');
my $days = there(
	"SELECT string_agg(format('(%L, %L, %s)', biz_tag, period, max_id), ',') FROM snowid_segment_periods WHERE biz_tag = 'used'"
);
query($node, <<~EOF);
	BEGIN;
	SELECT FROM snowid_segments WHERE biz_tag = 'used' FOR UPDATE;
	UPDATE snowid_segments SET source = NULL, max_id = max_id + 1 WHERE biz_tag = 'used';
	INSERT INTO snowid_segment_periods (biz_tag, period, max_id) VALUES $days
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
add_tag($node, 'longer', period => 'day', step => 10, cover => 0);
add_tag(
	$node, 'longer there',
	period => 'day',
	step   => 10,
	cover  => 0,
	source => 'central');

# Thirty numbers of a tag: its period, and the last one.
sub take_thirty
{
	my ($tag) = @_;
	return query($node,
		"SELECT string_agg(DISTINCT (n).period::text, ' '), max((n).number) FROM (SELECT snowid_period_number('$tag') AS n FROM generate_series(1, 30)) s"
	);
}
my @tags = ('longer', 'longer there');
is(take_thirty($_), '2026-11-21|30', "$_: thirty numbers of a day")
  foreach @tags;
foreach my $to ([ month => '2026-11-01' ], [ year => '2026-01-01' ])
{
	my ($period, $label) = @$to;
	query($node,
		"UPDATE snowid_segments SET period = '$period' WHERE biz_tag LIKE 'longer%'"
	);
	there(
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

#---- Dumps of rows that cannot be resolved where they are restored ----

query($node, <<~EOF);
	SET check_function_bodies = off;
	CREATE ROLE gone;
	UPDATE snowid_segments SET source = NULL, max_id = max_id + 1000 WHERE source IS NOT NULL;
	INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('kept', 4711);
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('kept days', 'day');
	INSERT INTO snowid_segment_periods VALUES ('kept days', '2026-11-21', 57);
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('no source', 'central');
	INSERT INTO snowid_segments (biz_tag, role) VALUES ('no role', 'gone');
	INSERT INTO snowid_segments (biz_tag, role, period, format) VALUES ('no role, a period', 'gone', 'day', '{YYYYMMDD}{N:6}');
	INSERT INTO snowid_segments (biz_tag, zone) VALUES ('no zone', 'US/EasternGone');
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('no period', 'week');
	INSERT INTO snowid_segments (biz_tag, period, format) VALUES ('no format', 'day', '{N:6}');
	DROP ROLE gone;
	DROP SERVER central CASCADE;
	DROP SERVER fake CASCADE
	EOF
my %problems = (
	'no source'         => 'Its source does not exist',
	'no role'           => 'Its role does not exist',
	'no role, a period' => 'Its role does not exist',
	'no zone'           => 'Its time zone is not known here',
	'no period'         => 'Its period must be none, day, month or year',
	'no format'         =>
	  'Its format must have these fields, once each: {YYYYMMDD}{N:6}');

# rows that cannot be resolved, too
query($node, 'CREATE DATABASE whole');
restore_dump($node, 'postgres', $node, 'whole');
is($node->safe_psql('whole', "SELECT snowid_number('kept')"),
	4712, 'the other tags continue in the restored database');
is( $node->safe_psql(
		'whole', "SELECT * FROM snowid_period_number('kept days')"),
	'2026-11-21|58',
	'a tag with periods continues in its day in the restored database');
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
my (undef, undef, $unread) =
  $node->psql('whole', "SELECT snowid_period_parse('no format', '000001')");
like(
	$unread,
	qr/segment "no format" has no format/,
	'a serial is not read by a format that cannot be one');
is( $node->safe_psql(
		'whole',
		"SELECT * FROM snowid_period_parse('no role, a period', '20261121000042')"
	),
	'2026-11-21|42',
	'serials of a tag whose role does not exist are read');
foreach my $role ('12345678', '-')
{
	like(
		sql_error(
			$node,
			"INSERT INTO snowid_segments (biz_tag, role, period, format) VALUES ('x', '$role', 'day', '{YYYYMMDD}{N:6}')"
		),
		qr/^22023: segment "x" would have no numbers\nDETAIL:  Its role does not exist\./,
		"by hand, a role that does not exist is refused: $role");
}

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

# A row whose period is changed where no trigger sees it, while numbers are left.
add_tag($node, 'daily', step => 4, cover => 0);
number($node, 'daily');
poll_segment($node, 'daily', 'left_next = 4');
query($node, <<~EOF);
	UPDATE snowid_segments SET period = 'day', update_time = 'infinity' WHERE biz_tag = 'daily';
	SELECT snowid_number('daily') FROM generate_series(1, 4);
	EOF
poll_segment($node, 'daily', 'period IS NOT NULL');
is( query($node, "SELECT period, number FROM snowid_period_number('daily')"),
	'2026-11-21|1',
	'a period that no trigger saw begins with a range of its own');

# A row that is changed where no trigger sees it: with the next range that is fetched its role
# and format count in sessions that have numbers of it, too.
query($node, <<~EOF);
	CREATE ROLE clerk;
	CREATE ROLE boss;
	INSERT INTO snowid_segments (biz_tag, step, cover, role) VALUES ('secret', 4, '0', 'clerk');
	INSERT INTO snowid_segments (biz_tag, step, cover, period, format)
		VALUES ('renamed', 4, '0', 'day', '{YYYYMMDD}A{N:6}');
	EOF
my $clerk = $node->background_psql('postgres', on_error_stop => 0);
$clerk->query_safe('SET ROLE clerk');
is( $clerk->query_safe(
		"SELECT snowid_number('secret'), snowid_period_serial('renamed')"),
	'1|20261121A000001',
	'a session has numbers');
query($node, <<~EOF);
	ALTER TABLE snowid_segments
		ALTER role TYPE regrole USING CASE biz_tag WHEN 'secret' THEN 'boss'::regrole ELSE role END,
		ALTER format TYPE text USING replace(format, 'A', 'B');
	EOF
query($node,
	"SELECT snowid_number('secret'), snowid_period_serial('renamed') FROM generate_series(1, 8)"
);
is($clerk->query_safe("SELECT snowid_period_serial('renamed')"),
	'20261121B000010',
	'a format that was changed unseen counts with the next range');
is($clerk->query("SELECT snowid_number('secret')"),
	'', 'a role that was changed unseen, too');
$clerk->quit;

# A limit that is lowered unseen: the numbers in memory are given back, and no others.
query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('limited', 10, '0');
	SELECT snowid_number('limited');
	ALTER TABLE snowid_segments DISABLE TRIGGER guard;
	UPDATE snowid_segments SET limit_id = 0 WHERE biz_tag = 'limited';
	ALTER TABLE snowid_segments ENABLE ALWAYS TRIGGER guard;
	EOF
query($node,
	'SELECT pg_terminate_backend(pid, 60000) ' . fetchers('postgres'));

# on a busy machine there is no time to give them back
cmp_ok(max_id($node, 'limited'),
	'>=', 1,
	'no number that was handed out is given back, whatever the limit');

# A change by replication is seen, too.
my $as_replica = 'SET session_replication_role = replica;';
my $of_copied  = "SELECT number FROM snowid_period_number('copied')";
add_tag($node, 'copied', period => 'day');
is(query($node, $of_copied), 1, 'a number of a day that is replicated');
query($node,
	"$as_replica UPDATE snowid_segment_periods SET max_id = 5 WHERE biz_tag = 'copied'"
);
is( query($node, "$last 'copied'"),
	1000,
	'the max_id of a period that is lowered by replication: the greater one stays'
);
is(query($node, $of_copied), 1001, 'a number after the change');
query($node, "$as_replica TRUNCATE snowid_segment_periods");
is(query($node, $of_copied),
	1, 'periods that are truncated by replication begin again');
query($node, "$as_replica TRUNCATE snowid_segments");
like(sql_error($node, $of_copied),
	qr/^42704: /, 'a table that is truncated by replication has no tags');

# Rows that cannot have numbers.
is( sql_error(
		$node,
		"INSERT INTO snowid_segment_periods VALUES (repeat('x', 2000), '2026-11-21', 1)"
	),
	'',
	'a period of a tag that is too long to be one');
like(
	sql_error(
		$node,
		"INSERT INTO snowid_segments (biz_tag, period) VALUES (NULL, 'week')"
	),
	qr/^23502: null value in column "biz_tag"/,
	'a row without a tag, whose period is none');

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
query($node, 'ALTER TABLE snowid_segment_periods RENAME TO renamed');
like(
	sql_error(
		$node,
		"SELECT snowid_segment_take('a', 'none', NULL, NULL, 0, 10, 1)"),
	qr/^55000: definition of table "snowid_segment_periods" does not match the snowid_segments extension$/m,
	'no range is taken if the table of periods was renamed');

#---- Dropped while a caller waits ----

query($node, 'ALTER TABLE renamed RENAME TO snowid_segment_periods');
add_tag($node, 'dropped');
reload_with($node, 'snowid.max_wait' => '1min');
query($node,
	"BEGIN; DROP EXTENSION snowid_segments CASCADE; PREPARE TRANSACTION 'p'");
like(
	answer_after(
		"SELECT snowid_number('dropped')",
		$is_locked,
		sub { query($node, "COMMIT PREPARED 'p'") }),
	qr/segment "dropped" does not exist/,
	'a caller that waits hears that the extension was dropped');

$node->stop;
done_testing();
