# snowid_make_partitions() in the first days of a layout, and beside partitions of
# numbers that are no keys.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

# A server on Sunday, 2026-11-22 12:00 UTC
sub server
{
	my ($name, $epoch) = @_;
	my $server = snowid_cluster($name,
		"snowid.worker_id = 1\nsnowid.layout = 'epoch=$epoch worker=10 sequence=12'"
	);
	set_skew($server, 1795348800 - time);
	start_and_open($server);
	return $server;
}

# The partitions that a call, and a second one, makes of a table beside those that
# it has: the first key and when the last one ends.
sub made
{
	my ($server, $type, $others, $arguments) = @_;
	query($server,
		"CREATE TABLE t (id $type PRIMARY KEY) PARTITION BY RANGE (id)");
	query($server,
		"CREATE TABLE other PARTITION OF t FOR VALUES FROM $others")
	  if $others;
	my $result = join '', map {
		sql_error($server, "CALL snowid_make_partitions('t', $arguments)")
	} 1, 2;
	$result ||= query($server, <<~EOF);
		SELECT string_agg(concat_ws(' ', c.relname, b[1]::${type}::bigint,
			to_char(snowid_timestamp(b[2]::$type) AT TIME ZONE 'UTC', 'MM-DD HH24:MI')), ', ' ORDER BY c.relname)
		FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid,
			regexp_match(pg_get_expr(relpartbound, c.oid), '(\\w+)''?[)] TO [(]''?(\\w+)') b
		WHERE inhparent = 't'::regclass AND c.relname <> 'other'
		EOF
	query($server, 'DROP TABLE t');
	return $result;
}

#---- The layout is 12 days old ----

my $young = server('young', '2026-11-10T08:00:00Z');
is( made($young, 'bigint', '', q{'1 month', 0}),
	't_202611 0 12-01 00:00',
	'the month in which the layout begins');
my $day = query($young, q{SELECT snowid_min('2026-11-22Z')});
foreach my $keep ('90 days', '100000 years')
{
	is( made($young, 'bigint', '', qq{'1 day', 0, '$keep'}),
		"t_20261122 $day 11-23 00:00",
		"keep of $keep, which is before the layout");
}
is( made(
		$young,                                'bigint',
		q{(0) TO (snowid_min('2026-11-11Z'))}, q{'1 day', 0, '90 days'}
	) =~ tr/,//,
	11,
	'no day after a partition of the first day is left out');
my $week = query($young, q{SELECT snowid_min('2026-11-16Z')});
foreach my $others (
	'(MINVALUE) TO (1000000)',
	'(MINVALUE) TO (0)',
	'(MINVALUE) TO (-5)',
	'(-10) TO (-5)')
{
	is( made($young, 'bigint', $others, q{'1 week', 0, '90 days'}),
		"t_2026w47 $week 11-23 00:00",
		"beside plain numbers: $others");
}
query($young, <<~'EOF');
	CREATE TABLE t (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE other PARTITION OF t FOR VALUES FROM (MINVALUE) TO (1000000);
	EOF
query($young, q{CALL snowid_make_partitions('t', '1 day', 0, '3 days')});
is( query(
		$young,
		q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY 1) FROM pg_inherits WHERE inhparent = 't'::regclass}
	),
	'other t_20261122',
	'plain numbers are not too old for "keep"');
query($young, 'DROP TABLE t');
is( made($young, 'snowid', '(MINVALUE) TO (1000000::bigint)', q{'1 week', 0}),
	"t_2026w47 $week 11-23 00:00",
	'the same of the type snowid');
is( made($young, 'bigint', '(MINVALUE) TO (1000000)', q{'1 month', 0}),
	't_202611 1000000 12-01 00:00',
	'a month begins after the plain numbers');
like(
	made(
		$young,                                       'bigint',
		q{(MINVALUE) TO (snowid_min('2026-11-12Z'))}, q{'1 month', 0}),
	qr/^42P17: partition public.other holds some keys of the month of 2026-11-01, but not all/,
	'a partition that ends among keys is refused');
$young->stop;

#---- Its first day ----

my $first = server('first', '2026-11-22T00:00:00Z');
foreach my $type ('bigint', 'snowid')
{
	is( made($first, $type, '', q{'1 day', 0, '1 day'}),
		't_20261122 0 11-23 00:00',
		"the first day of the layout, $type");
}
is( made($first, 'bigint', '(MINVALUE) TO (1000000)', q{'1 day', 0}),
	't_20261122 1000000 11-23 00:00',
	'beside plain numbers');
$first->stop;
done_testing();
