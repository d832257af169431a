# snowid_make_partitions(): partitions by the clock, under locks that hinder no
# session; it refuses tables that it does not understand, and says why.  Also in the
# first days of a layout, and beside partitions of numbers that are no keys.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

my $node = snowid_cluster('partitions', 'snowid.worker_id = 1');

# Wednesday, 2026-12-30 12:00 UTC by the server's clock
my $start = 1798632000 - time;
set_skew($node, $start);
$node->start;
query($node,
	'CREATE SCHEMA keys; CREATE EXTENSION snowid SCHEMA keys; ALTER DATABASE postgres SET search_path = public, keys'
);
wait_for($node, 'SELECT is_open FROM keys.snowid_status()');

sub sql { return query($node, $_[0]); }

sub make
{
	return query($node, "CALL snowid_make_partitions($_[0])");
}

sub make_error
{
	my ($arguments, $schema) = @_;
	return sql_error($node,
		'CALL ' . ($schema // '') . "snowid_make_partitions($arguments)");
}

# The partitions of a table, with the first and last moment of their keys.
sub parts
{
	return sql(
		qq{SELECT c.relname, snowid_timestamp(b[1]::bigint) AT TIME ZONE 'UTC', snowid_timestamp(b[2]::bigint - 1) AT TIME ZONE 'UTC'
		FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid, regexp_match(pg_get_expr(relpartbound, c.oid), '(\\d+).*?(\\d+)') b
		WHERE inhparent = '$_[0]'::regclass ORDER BY b[1]::bigint});
}

sql(q{CREATE TABLE day (id bigint PRIMARY KEY DEFAULT snowid_next(), n int NOT NULL CHECK (n > 0), m int GENERATED ALWAYS AS (n * 2) STORED)
		PARTITION BY RANGE (id);
	CREATE INDEX ON day (n);
	CREATE TABLE week (LIKE day INCLUDING ALL) PARTITION BY RANGE (id);
	CREATE TABLE month (LIKE day INCLUDING ALL) PARTITION BY RANGE (id)});

#---- Days, weeks, months, by the clock ----

make(q{'day', '1 day', 2});
is( parts('day'),
	<<~'EOF' =~ s/\n$//r, 'partitions of days end at midnight of UTC');
	day_20261230|2026-12-30 00:00:00|2026-12-30 23:59:59.999
	day_20261231|2026-12-31 00:00:00|2026-12-31 23:59:59.999
	day_20270101|2027-01-01 00:00:00|2027-01-01 23:59:59.999
	EOF
make(q{'week', '7 days', 1});
is(parts('week'),
	<<~'EOF' =~ s/\n$//r, 'partitions of weeks begin on Monday');
	week_2026w53|2026-12-28 00:00:00|2027-01-03 23:59:59.999
	week_2027w01|2027-01-04 00:00:00|2027-01-10 23:59:59.999
	EOF
query($node,
	q{SET timezone = 'Asia/Shanghai'; SET datestyle = 'German'; CALL snowid_make_partitions('month', '1 month', 2)}
);
is( parts('month'),
	<<~'EOF' =~ s/\n$//r, 'months, of UTC whatever the session has');
	month_202612|2026-12-01 00:00:00|2026-12-31 23:59:59.999
	month_202701|2027-01-01 00:00:00|2027-01-31 23:59:59.999
	month_202702|2027-02-01 00:00:00|2027-02-28 23:59:59.999
	EOF
my $before = parts('day');
make(q{'day', '1 day', 2});
is(parts('day'), $before, 'once more: nothing to do');
is(sql(q{INSERT INTO day (n) VALUES (1) RETURNING tableoid::regclass, m}),
	'day_20261230|2', 'a key finds its partition');
is( sql(q{SELECT (SELECT count(*) FROM pg_index WHERE indrelid = 'day_20261230'::regclass),
	(SELECT count(*) FROM pg_constraint WHERE conrelid = 'day_20261230'::regclass AND contype <> 'n')}
	),
	'2|2',
	'a new partition has indexes and constraints');

# a key far ahead moves nothing: not by max(id)
sql(q{INSERT INTO day (id, n) VALUES (snowid_max('2027-01-01 23:00Z'), 1)});
make(q{'day', '1 day', 2});
is(parts('day'), $before, 'partitions do not follow max(id)');

# nothing was made for days: the gap is closed
set_skew($node, $start + 5 * 86400);
make(q{'day', '1 day', 1});
like(
	parts('day'),
	qr/day_20270101\|.*\nday_20270102\|.*\nday_20270103\|.*\nday_20270104\|.*\nday_20270105\|[^\n]*$/,
	'days that were left out are made');
$before = parts('day');
sql('DROP TABLE day_20270103');
make(q{'day', '1 day', 1});
is(parts('day'), $before,
	'a day that was dropped between others is made again');

#---- keep ----

make(q{'day', '1 day', 0, '3 days'});
like(parts('day'), qr/^day_20270101\|/, 'older partitions are detached');
is(sql(q{SELECT count(*), (SELECT count(*) FROM day) FROM day_20261230}),
	'1|1', 'detached partitions keep their rows');
sql('DROP TABLE day_20270102');
make(q{'day', '1 day', 1, '1 day'});
like(parts('day'), qr/^day_20270103\|/,
	'a shorter "keep" detaches more partitions, and makes none that is too old'
);

# rows to which a foreign key refers
sql(q{CREATE TABLE kept (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	DO $$ BEGIN FOR day IN 1 .. 2 LOOP
		EXECUTE format('CREATE TABLE kept_2027010%s PARTITION OF kept FOR VALUES FROM (%s) TO (%s)', day,
			snowid_min(make_timestamptz(2027, 1, day, 0, 0, 0, 'UTC')), snowid_min(make_timestamptz(2027, 1, day + 1, 0, 0, 0, 'UTC')));
	END LOOP; END $$;
	INSERT INTO kept VALUES (snowid_min('2027-01-01Z'));
	CREATE TABLE notes (kept_id bigint REFERENCES kept);
	INSERT INTO notes SELECT id FROM kept});
like(
	make_error(q{'kept', '1 day', 1, '0 days'}),
	qr/^23503: removing partition "kept_20270101" violates foreign key constraint/,
	'a partition is not detached while a foreign key refers to its rows');
like(
	parts('kept'),
	qr/^kept_20270101\|[^\n]*\nkept_20270102\|.*\nkept_20270105\|[^\n]*$/s,
	'a partition that cannot be detached keeps the later ones from it, but no new one from being made'
);
sql('DELETE FROM notes');
make(q{'kept', '1 day', 1, '0 days'});
like(parts('kept'), qr/^kept_20270104\|/,
	'a later call detaches what a foreign key has held up');
sql('DROP TABLE notes, kept');

#---- Locks ----

my $writer = SnowidSession->new($node, 'postgres');
$writer->query(
	'BEGIN; INSERT INTO day (id, n) VALUES (snowid_min(now()), 2); SELECT count(*) FROM day;'
);
is( $node->psql(
		'postgres',
		q{SET lock_timeout = '3s'; CALL snowid_make_partitions('day', '1 day', 5)}
	),
	0,
	'a transaction that writes and reads the table does not hinder it');
like(
	sql_error(
		$node,
		q{SET lock_timeout = '300ms'; CALL snowid_make_partitions('day', '1 day', 6, '0 days')}
	),
	qr/^55P03:/,
	'a detach ends by its lock_timeout');
like(parts('day'), qr/^day_20270103\|.*day_20270110/s,
	'a detach that fails: partitions that were made before it are committed');
$writer->query('COMMIT;');
sql('CREATE TABLE tickets (id serial PRIMARY KEY, n int CHECK (n > 0))');
$writer->query('BEGIN; LOCK TABLE day, tickets;');

foreach my $call (q{CALL snowid_make_partitions('day', '1 day', 5)},
	q{SELECT snowid_migration('public')})
{
	like(sql_error($node, "SET statement_timeout = '60s'; $call"),
		qr/^55P03:/,
		"a call that only reads the catalogs does not wait long: $call");
}
$writer->query('COMMIT;');
sql('DROP TABLE tickets');

# A foreign key: to attach needs a lock of the table that it refers to, for which
# it does not wait long, since all writers of that table would wait for it.
sql(q{CREATE TABLE orders (id bigint PRIMARY KEY);
	CREATE TABLE lines (id bigint PRIMARY KEY, order_id bigint REFERENCES orders) PARTITION BY RANGE (id)}
);
$writer->query('BEGIN; INSERT INTO orders VALUES (1);');
my $make_lines =
  q{SET statement_timeout = '60s'; CALL snowid_make_partitions('lines', '1 day', 1)};
like(
	sql_error($node, $make_lines),
	qr/^55P03:/,
	"a call gives up while a transaction writes the table to which a foreign key refers"
);
is(sql_error($node, 'INSERT INTO orders VALUES (2)'),
	'', 'other statements can insert');
$writer->query('COMMIT;');
$writer->query(
	'BEGIN; INSERT INTO day (id, n) VALUES (snowid_min(now()), 3);');
is(sql_error($node, $make_lines), '', 'after that it goes');
is( sql(q{INSERT INTO lines SELECT snowid_min(now()), min(id) FROM orders RETURNING tableoid::regclass}
	),
	'lines_20270104',
	'keys find their partition');
like(
	sql_error(
		$node,
		q{SET statement_timeout = '60s'; CALL snowid_make_partitions('day', '1 day', 5, '0 days')}
	),
	qr/^55P03:/,
	'a call does not wait long for a detach');
is( sql(q{SET lock_timeout = '3s';
	DO $$ BEGIN
		CALL snowid_make_partitions('lines', '1 day', 1);
		CREATE TEMP TABLE after_call AS SELECT current_setting('lock_timeout'), current_user = session_user;
	END $$;
	SELECT * FROM after_call}
	),
	'3s|t',
	'after a call that made nothing, the transaction has its lock_timeout and rights'
);
$writer->query('COMMIT;');

#---- The tablespace ----

sql(q{SET allow_in_place_tablespaces = on; CREATE TABLESPACE "fast disk" LOCATION ''}
);
sql(q{CREATE TABLE "placed" (id bigint) PARTITION BY RANGE (id) TABLESPACE "fast disk"}
);
make(q{'placed', '1 month', 0});
is( sql(q{SELECT c.relname, spcname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid LEFT JOIN pg_tablespace t ON t.oid = reltablespace
	WHERE inhparent = 'placed'::regclass}),
	'placed_202701|fast disk',
	'a partition is in the tablespace of its parent');
sql($_) foreach 'DROP TABLE placed', 'DROP TABLESPACE "fast disk"';

#---- Refused tables and arguments ----

# with a day, one byte too long
my $long = 'name_that_is_long_' x 3 . 'y';
sql(qq{CREATE TABLE plain (id bigint);
	CREATE TABLE list (id bigint) PARTITION BY LIST (id);
	CREATE TABLE two (id bigint, n int) PARTITION BY RANGE (id, n);
	CREATE TABLE ints (id int) PARTITION BY RANGE (id);
	CREATE TABLE expr (id bigint) PARTITION BY RANGE ((id + 1));
	CREATE TABLE with_default (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE rest PARTITION OF with_default DEFAULT;
	CREATE TABLE $long (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE cut (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE noon PARTITION OF cut FOR VALUES FROM (MINVALUE) TO (6800000000000000000)}
);
like(
	make_error("'$_', '1 day', 1"),
	qr/^42809: (?:public\.)?$_ is not partitioned by range of a key/,
	"table $_ is refused") foreach qw(plain list two ints expr);
like(
	make_error(q{4000000000::oid::regclass, '1 day', 1}),
	qr/^42809: 4000000000 is not partitioned by range of a key/,
	'a table that does not exist is refused');
like(
	make_error(q{'with_default', '1 day', 1}),
	qr/^55000: public.with_default has the default partition public.rest$/m,
	'a default partition, by name');
like(
	make_error("'day', '$_', 1"),
	qr/^22023: step cannot be/,
	"no step of $_")
  foreach '2 days', '1 hour', '30 days', '-1 day', '1 year', '1 month 1 day',
  '1 month -29 days', '1 year -359 days', '13 months -360 days',
  '1 month -23 days', '0';
like(
	make_error("'day', '1 day', $_"),
	qr/^22023: ahead must be/,
	"an ahead of $_ is refused") foreach -1, 1001;
like(make_error(q{'plain', '1 day', 1000}),
	qr/^42809:/, 'an ahead of 1000 is accepted');
like(
	make_error(q{'day', '1 day', 1, '-1 day'}),
	qr/^22023: keep must not be negative/,
	'a keep of -1 day is refused');
like(make_error($_), qr/^22004:/, "$_")
  foreach q{NULL, '1 day', 1}, q{'day', NULL, 1}, q{'day', '1 day', NULL};
like(
	make_error("'$long', '1 day', 1"),
	qr/^42622: the name of a partition is too long: ${long}_20270104$/m,
	'names that would be cut off');
chop $long;
sql("CREATE TABLE $long (id bigint) PARTITION BY RANGE (id)");
make("'$long', '1 day', 0");
like(parts($long), qr/^${long}_20270104\|/, 'the longest name');
like(
	make_error(q{'month', '7 days', 8}),
	qr/^42P17: partition public.month_202612 holds some keys of the week of 2026-12-28, but not all/,
	'a partition that holds a part of a period, by name');
sql('DROP TABLE noon; CREATE TABLE noon PARTITION OF cut FOR VALUES FROM (MINVALUE) TO (2140000000000000000)'
);
like(
	make_error(q{'cut', '1 day', 1}),
	qr/^42P17: partition public.noon holds some keys of the day of \d+-\d\d-\d\d, but not all/,
	'a partition that would leave a gap is refused');
sql('DROP TABLE noon; CREATE TABLE noon PARTITION OF cut FOR VALUES FROM (2140000000000000000) TO (MAXVALUE)'
);
like(
	make_error(q{'cut', '1 week', 40}),
	qr/^42P17: partition public.noon .*^DETAIL:  The week is from \d+ to \d+\./ms,
	'a partition without an upper bound is refused with the bounds of the period'
);
sql(q{DROP TABLE noon; DO $$ BEGIN EXECUTE format('CREATE TABLE old PARTITION OF cut FOR VALUES FROM (MINVALUE) TO (%s)', snowid_min('2027-01-04Z')); END $$}
);
make(q{'cut', '1 day', 1});
is( sql(q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid) FROM pg_inherits WHERE inhparent = 'cut'::regclass}
	),
	'old cut_20270104 cut_20270105',
	'a partition that ends at the start of a day');
sql('CREATE TABLE day_20270120 ()');
like(
	make_error(q{'day', '1 day', 30}),
	qr/^42P07: relation "day_20270120" already exists/,
	'a table of that name, by name');
make(q{'week', '7 days', 9});
sql('CREATE FUNCTION make_weeks(ahead int) RETURNS void LANGUAGE sql AS $$CALL snowid_make_partitions('
	  . q{'week', '7 days', ahead)$$});

foreach my $call (
	q{BEGIN; CALL snowid_make_partitions('week', '7 days', 9)},
	q{BEGIN; CALL snowid_make_partitions('week', '7 days', 10)},
	'SELECT make_weeks(9)',
	'SELECT make_weeks(10)',
	'DO $$BEGIN '
	. "CALL snowid_make_partitions('week', '7 days', 9); "
	. 'EXCEPTION WHEN division_by_zero THEN END$$')
{
	like(
		sql_error($node, $call),
		qr/^2D000: snowid_make_partitions\(\) cannot be called inside a transaction or a function/,
		"a call inside a transaction or a function is refused, also if there is nothing to do: $call"
	);
}

#---- The type snowid, other schemas, another owner ----

sql(q{CREATE ROLE app; CREATE SCHEMA "My Shop"; ALTER DATABASE postgres RESET search_path;
	CREATE TABLE "My Shop"."Orders" (id keys.snowid PRIMARY KEY DEFAULT keys.snowid_next()) PARTITION BY RANGE (id);
	ALTER TABLE "My Shop"."Orders" OWNER TO app});
like(
	make_error(q{'"My Shop"."Orders"', '1 month', 1}, 'keys.'),
	qr/^42501: permission denied for schema My Shop/,
	'a superuser makes no partition that the owner of the table may not make'
);
sql('GRANT USAGE, CREATE ON SCHEMA "My Shop" TO app');
query($node,
	q{CALL keys.snowid_make_partitions('"My Shop"."Orders"', '1 month', 1)})
  foreach 1 .. 2;
is( sql(q{SELECT string_agg(relname, ' ' ORDER BY relname), min(pg_get_userbyid(relowner)) FROM pg_class
	WHERE relnamespace = '"My Shop"'::regnamespace AND relispartition AND relkind = 'r'}
	),
	'Orders_202701 Orders_202702|app',
	'a table of another schema, type and owner');

#---- What a transaction may not write ----

query($node,
	'CREATE TABLE fresh (id bigint PRIMARY KEY) PARTITION BY RANGE (id)');
my $call     = q{CALL keys.snowid_make_partitions('fresh', '1 day', 1)};
my $commands = q{SELECT count(*) FROM keys.snowid_migration('public')};
like(sql_error($node, "SET default_transaction_read_only = on; $call"),
	qr/^25006:/, 'not in a read-only transaction');
is(sql("SET default_transaction_read_only = on; $commands"),
	'2', 'the commands of a migration are read in a read-only transaction');
is(sql(q{SELECT keys.snowid_migration(NULL)}),
	'', 'no commands for no schema');
$node->stop;

#---- The first days of a layout, and partitions of numbers that are no keys ----

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
foreach my $keep ('90 days', '4000 years')
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

# Is a partition that ends there detached, if days are kept?
sub is_too_old
{
	my ($end) = @_;
	query($young, <<~EOF);
		CREATE TABLE t (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE other PARTITION OF t FOR VALUES FROM (MINVALUE) TO ($end);
		EOF
	query($young, q{CALL snowid_make_partitions('t', '1 day', 0, '3 days')});
	my $names = query($young,
		q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY 1) FROM pg_inherits WHERE inhparent = 't'::regclass}
	);
	query($young, 'DROP TABLE IF EXISTS t, other');
	return $names;
}
is( is_too_old(1000000),
	'other t_20261122',
	'plain numbers are not too old for "keep"');
is( is_too_old(q{snowid_min('2026-11-11Z')}),
	't_20261119 t_20261120 t_20261121 t_20261122',
	'the first day of the layout is');
is( made($young, 'snowid', '(MINVALUE) TO (1000000::bigint)', q{'1 week', 0}),
	"t_2026w47 $week 11-23 00:00",
	'the same of the type snowid');
is( made($young, 'bigint', '(MINVALUE) TO (1000000)', q{'1 month', 0}),
	't_202611 1000000 12-01 00:00',
	'a month begins after the plain numbers');
is( made(
		$young,
		'bigint',
		'(10) TO (1000000); CREATE TABLE few PARTITION OF t FOR VALUES FROM (0) TO (10)',
		q{'1 month', 0}),
	'few 0 11-10 08:00, t_202611 1000000 12-01 00:00',
	'a month begins after two partitions of plain numbers');
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
