# Numbers that begin again each day, month or year, in the time zone of their tag:
# over midnights, days of 23 and 25 hours, clocks that are set back and forth, and
# crashes, periods never go back and no number of one repeats.  The same holds with a
# central server and clocks that differ.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);
use Time::Local qw(timegm);

my $node = snowid_cluster('periods', 'snowid.max_wait = 60s');
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
let_hold($node);
$node->start;
query($node, <<~EOF);
	CREATE EXTENSION snowid_segments;
	CREATE TABLE got (period date, number bigint, before timestamptz, after timestamptz DEFAULT clock_timestamp());
	EOF

# The time of "2026-11-21T12:00:00.000", in Unix ms.
sub unix_ms
{
	my ($y, $mon, $d, $h, $min, $s, $ms) = split /\D/, $_[0];
	return 1000 * timegm($s, $min, $h, $d, $mon - 1, $y) + $ms;
}

# A server's clock stands at this time.
sub stand_at
{
	my ($time, $server) = @_;
	stop_clock($server // $node, unix_ms($time));
	return;
}

# A serial, or the error in its place.
sub serial
{
	my ($tag, $server) = @_;
	my ($rc, $out, $err) = ($server // $node)
	  ->psql('postgres', "SELECT snowid_period_serial('$tag')");
	return $rc == 0 ? $out : $err;
}

#---- Days, the clock back and forth ----

add_tag($node, 'invoice', period => 'day', format => 'INV-{YYYYMMDD}-{N:6}');
stand_at('2026-11-21T12:00:00.000');
my $session = SnowidSession->new($node, 'postgres');
my $one     = "SELECT snowid_period_serial('invoice')";
is($session->query($one), 'INV-20261121-000001', 'a day begins at 1');

stand_at('2026-11-21T23:59:59.999');
is($session->query($one), 'INV-20261121-000002', 'the last ms of a day');
stand_at('2026-11-22T00:00:00.000');
is($session->query($one),
	'INV-20261122-000001', 'a session begins the new day at midnight');
is(serial('invoice'), 'INV-20261122-000002',
	'a new day begins in all sessions');
stand_at('2026-11-21T12:00:00.000');
is($session->query($one),
	'INV-20261122-000003', 'the clock set back: the new day continues');
is( $session->query(
		"SELECT min((n).period), max((n).number) FROM (SELECT snowid_period_number('invoice') AS n FROM generate_series(1, 2000)) x"
	),
	'2026-11-22|2003',
	'the newest day continues in the ranges after it');
$node->restart;
is(serial('invoice'), 'INV-20261122-002004',
	'the newest day continues over a restart');
kill_all($node);
$node->start;
cmp_ok(serial('invoice'), 'gt', 'INV-20261122-002004',
	'the newest day continues over a crash');
stand_at('2026-11-23T00:00:00.000');
is(serial('invoice'), 'INV-20261123-000001',
	'the next day begins with the clock');
stand_at('2026-11-22T23:59:59.999');
is(serial('invoice'), 'INV-20261123-000002',
	'a day does not go back with the clock');
stand_at('2026-11-30T00:00:00.000');
is(serial('invoice'), 'INV-20261130-000001',
	'days without numbers are left out');

# A clock that was wrong by far is put right by hand.
stand_at('2030-01-01T00:00:00.000');
is(serial('invoice'), 'INV-20300101-000001', 'a clock that is years ahead');
stand_at('2026-11-30T12:00:00.000');
is(serial('invoice'), 'INV-20300101-000002',
	'a clock that was years ahead is believed');
query($node,
	"DELETE FROM snowid_segment_periods WHERE period > '2027-01-01'");
like(serial('invoice'), qr/^INV-20261130-\d{6}$/,
	'the day before continues when the row of the future is deleted');
query($node,
	"UPDATE snowid_segment_periods SET max_id = 9000 WHERE period = '2026-11-30'"
);
is(serial('invoice'), 'INV-20261130-009001',
	'max_id raised by hand counts at once');
like(
	sql_error(
		$node,
		"UPDATE snowid_segment_periods SET max_id = 8999 WHERE period = '2026-11-30'"
	),
	qr/^22023: max_id of segment "invoice" cannot be lowered/,
	'the max_id of a period cannot be lowered');

# The next range is there before the day is over, and is the next day's.
add_tag(
	$node, 'late',
	step   => 20,
	cover  => 0,
	period => 'day',
	format => '{YYYYMMDD}-{N:3}');
hold_process($node, 'snowid segments',
	'StartTransactionCommand', 'ConditionVariableBroadcast');
is( query(
		$node,
		"SELECT max(snowid_period_serial('late')) FROM generate_series(1, 6)"
	),
	'20261130-006',
	'six of a day');
held_process($node);
stand_at('2026-12-01T00:00:00.000');
let_go($node);
poll_segment($node, 'late', 'left_next > 0');
is(serial('late'), '20261201-001', 'a range that was fetched at midnight');

# The clock is set back when a caller has seen the day end, and before a range of the
# next one is there.
my $waits = segment_status($node, 'late', 'waits');
hold_process($node, 'snowid segments', 'StartTransactionCommand');
stand_at('2026-12-02T00:00:00.000');
my $caller = ask_in_background($node, "SELECT snowid_period_serial('late')");
poll_segment($node, 'late', "waits > $waits");
held_process($node);
stand_at('2026-12-01T12:00:00.000');
let_go($node);
like($caller->outcome, qr/^20261201-\d{3}$/,
	'the day that had ended continues');

# The range of a day begins at the number after the end of that of the day before, since
# another server has had some of the day.
add_tag(
	$node, 'edge',
	step   => 20,
	cover  => 0,
	period => 'day',
	format => '{YYYYMMDD}-{N:3}');
stand_at('2026-12-03T12:00:00.000');
hold_process($node, 'snowid segments',
	'StartTransactionCommand', 'ConditionVariableBroadcast');
is( query(
		$node,
		"SELECT max(snowid_period_serial('edge')) FROM generate_series(1, 6)"
	),
	'20261203-006',
	'six of a day, of which another range is wanted');
held_process($node);
stand_at('2026-12-04T00:00:00.000');
is( query(
		$node,
		"SELECT first, last FROM snowid_segment_take('edge', 'day', date '2026-12-04' - date '2000-01-01', NULL, 0, 1000, 20)"
	),
	'1|20',
	'another server takes a range of the next day');
let_go($node);
poll_segment($node, 'edge', 'left_next > 0');
query($node, 'SELECT pg_terminate_backend(pid, 60000) ' . fetchers());
is( query(
		$node,
		"SELECT max_id FROM snowid_segment_periods WHERE biz_tag = 'edge' ORDER BY period DESC LIMIT 1"
	),
	20,
	'of two days, the numbers of the later one alone are given back to it');

#---- Zones, months, years ----

# At these times in UTC, the serials are:
sub periods_are
{
	my ($zone, $period, $format, @times) = @_;
	my ($tag, $last, $n) = ("$zone $period", '', 0);
	add_tag(
		$node, $tag,
		period => $period,
		zone   => $zone,
		format => $format . '_{N:2}');
	while (my ($time, $label) = splice @times, 0, 2)
	{
		$n = 0 if $label ne $last;
		stand_at($time);
		is( serial($tag),
			$label . sprintf('_%02d', ++$n),
			"$zone, $time: $label");
		$last = $label;
	}
	return;
}

# in the past, for what is to come is changed now and then
periods_are(
	'Europe/Berlin',    'day',
	'{YYYY}-{MM}-{DD}', '2025-03-29T22:59:59.999',
	'2025-03-29',       '2025-03-29T23:00:00.000',
	'2025-03-30',       '2025-03-30T21:59:59.999',
	'2025-03-30',       '2025-03-30T22:00:00.000',
	'2025-03-31',       '2025-10-25T21:59:59.999',
	'2025-10-25',       '2025-10-25T22:00:00.000',
	'2025-10-26',       '2025-10-26T00:30:00.000',
	'2025-10-26',       '2025-10-26T01:30:00.000',
	'2025-10-26',       '2025-10-26T22:59:59.999',
	'2025-10-26',       '2025-10-26T23:00:00.000',
	'2025-10-27');
periods_are(
	'America/Havana', 'day',
	'{YYYYMMDD}',     '2024-11-03T03:59:59.999',
	'20241102',       '2024-11-03T04:00:00.000',
	'20241103',       '2024-11-03T05:00:00.000',
	'20241103',       '2024-11-04T04:59:59.999',
	'20241103',       '2024-11-04T05:00:00.000',
	'20241104');

# 00:01 local time was followed by 23:01 of the day before
periods_are(
	'America/St_Johns', 'day',
	'{YYYYMMDD}',       '2006-10-29T02:30:30.000',
	'20061029',         '2006-10-29T02:40:00.000',
	'20061029');
periods_are(
	'Asia/Shanghai', 'month',
	'{YYYYMM}',      '2026-12-31T15:59:59.999',
	'202612',        '2026-12-31T16:00:00.000',
	'202701',        '2027-01-31T15:59:59.999',
	'202701',        '2027-01-31T16:00:00.000',
	'202702');
periods_are(
	'Pacific/Kiritimati', 'year',
	'{YYYY}',             '2027-12-31T09:59:59.999',
	'2027',               '2027-12-31T10:00:00.000',
	'2028',               '2028-12-31T09:59:59.999',
	'2028',               '2028-12-31T10:00:00.000',
	'2029');

# as far from UTC as PostgreSQL takes it
periods_are(
	'X+167:59:59', 'year',
	'{YYYY}',      '2027-01-07T23:59:58.999',
	'2026',        '2027-01-07T23:59:59.000',
	'2027',        '2028-01-07T23:59:58.999',
	'2027');
periods_are(
	'X-167:59:59', 'year',
	'{YYYY}',      '2027-12-25T00:00:00.999',
	'2027',        '2027-12-25T00:00:01.000',
	'2028',        '2028-12-24T00:00:00.999',
	'2028');

#---- Width ----

add_tag($node, 'narrow', period => 'day', format => '{YYYYMMDD}{N:1}');
stand_at('2026-11-21T12:00:00.000');
is( query(
		$node,
		"SELECT string_agg(snowid_period_serial('narrow'), ',') FROM generate_series(1, 9)"
	),
	join(',', map { "20261121$_" } 1 .. 9),
	'the last number that has room');
like(
	sql_error($node, "SELECT snowid_period_serial('narrow')"),
	qr/^2200H: the numbers of "narrow" are used up\nDETAIL:  By its limit_id and format, the last one is 9\./,
	'a format without room is an error');
stand_at('2026-11-22T12:00:00.000');
is(serial('narrow'), '202611221',
	'a tag whose numbers are used up continues with the next day');
query($node,
	"UPDATE snowid_segments SET format = '{YYYYMMDD}/{N:3}' WHERE biz_tag = 'narrow'"
);
like(serial('narrow'), qr{^20261122/\d{3}$}, 'another format counts at once');

#---- Midnight under load ----

set_skew($node, unix_ms('2026-11-24T23:59:55.000') / 1000 - time());
my $load =
  start_pgbench($node, 'postgres', '-c 4 -j 1 -T 600', one => <<~EOF);
	SELECT clock_timestamp() AS before \\gset
	INSERT INTO got (period, number, before) SELECT period, number, ':before' FROM snowid_period_number('invoice');
	EOF
wait_for($node, "SELECT count(*) > 100 FROM got WHERE period = '2026-11-30'");
set_skew($node, unix_ms('2026-12-01T23:59:58.000') / 1000 - time());
wait_for($node, "SELECT count(*) > 100 FROM got WHERE period = '2026-12-02'");
ok(stop_pgbench($load), 'nobody is refused at midnight under load')
  or diag $load->{out};
is( query(
		$node,
		"SELECT period, count(*) - count(DISTINCT number), count(*) FILTER (WHERE period < before::date OR period > after::date) FROM got WHERE period > '2026-11-30' GROUP BY 1 ORDER BY 1"
	),
	"2026-12-01|0|0\n2026-12-02|0|0",
	'no number of a day repeats, and each has its own day');
is( query($node,
		<<~EOF), 0, 'no serial is below one that was returned before');
	SELECT count(*) FROM (SELECT period, number, max(returned) OVER (ORDER BY at, returned IS NULL DESC ROWS UNBOUNDED PRECEDING) AS highest
		FROM (SELECT before AS at, period, number, NULL::text AS returned FROM got UNION ALL
			SELECT after, NULL, NULL, period || to_char(number, '000000000') FROM got) e) c
	WHERE period || to_char(number, '000000000') <= highest
	EOF

#---- One central table, clocks that differ ----

my $central = snowid_cluster('central', '');
$central->start;
query($central,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag, period) VALUES ('a', 'day')"
);
my @servers = map {
	my $server = snowid_cluster("s$_", "snowid.worker_id = $_");
	$server->start;
	use_central($server, $central->host, $central->port);
	add_tag(
		$server, 'a',
		step   => 3,
		cover  => 0,
		source => 'central',
		period => 'day',
		format => '{YYYYMMDD}-{N:6}');
	$server
} 1, 2;
my ($ahead, $behind) = @servers;
stand_at('2026-11-21T12:00:00.000', $_) foreach @servers;
is(serial('a', $ahead), '20261121-000001', 'a range of a central table');
my $number = serial('a', $behind);
like($number, qr/^20261121-/, 'another server has a range of the same day');
stand_at('2026-11-22T00:00:00.000', $ahead);
is(serial('a', $ahead),
	'20261122-000001', 'a server whose clock is ahead begins a day');
is( serial('a', $behind),
	$number =~ s/(\d)$/$1 + 1/er,
	'a server that is behind continues with the numbers that it has');
my @rest = map { serial('a', $behind) } 1 .. 10;
is("@rest", join(' ', sort @rest), 'their numbers increase');
like($rest[-1], qr/^20261122-/,
	'a server that is behind continues with the newest day');
kill_all($behind);
$behind->start;
stand_at('2026-11-21T12:00:00.000', $behind);
like(serial('a', $behind),
	qr/^20261122-/,
	'a server that is behind stays in the newest day over a crash');
$central->restart;
my @numbers = map { serial('a', $_) } (@servers) x 5;
my %seen    = map { $_ => 1 } @numbers, @rest, '20261122-000001';
is(scalar(keys %seen), 21, 'no number of a central day repeats');
is( query(
		$central,
		"SELECT string_agg(period::text, ' ' ORDER BY period) FROM snowid_segment_periods"
	),
	'2026-11-21 2026-11-22',
	'the central table has a row a day');

#---- A source with other periods ----

add_tag($central, 'other', period => 'month');
add_tag($ahead, 'other', source => 'central', period => 'day');
my $asking =
  ask_in_background($ahead,
	"SELECT number FROM snowid_period_number('other')");
poll_segment($ahead, 'other', "error = 'Its source has another period'");
query($central,
	"UPDATE snowid_segments SET period = 'day' WHERE biz_tag = 'other'");
is($asking->outcome, 1,
	'a tag has numbers once its source has the same period');

#---- Numbers that were used up, and a failure in the next period ----

add_tag($ahead, 'here', period => 'day', limit_id => 3);
my $of_here = "SELECT number FROM snowid_period_number('here')";
is(query($ahead, $of_here), $_, "number $_ of the period") foreach 1 .. 3;
like(
	sql_error($ahead, $of_here),
	qr/^2200H: the numbers of "here" are used up/,
	'the numbers of the period are used up');
query($ahead,
	'CREATE ROLE other; ALTER TABLE snowid_segment_periods OWNER TO other');
stand_at('2026-11-25T12:00:00.000', $ahead);
like(
	sql_error($ahead, $of_here),
	qr/^55000: no numbers available for segment "here"/,
	'an error in the next period is not taken for the end of the numbers');
query($ahead, 'ALTER TABLE snowid_segment_periods OWNER TO CURRENT_USER');
is(query($ahead, $of_here), 1, 'the next period has numbers');
$_->stop foreach @servers, $central, $node;

done_testing();
