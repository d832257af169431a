# Segments of several servers with one central table, through postgres_fdw: no
# number twice and none lost where all is well; conflicts lose nothing; a central
# server that hangs, is gone or has lost a range stops neither keys nor the tags
# of the table here, and its own tags go on by themselves.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $central = snowid_cluster('central', '', allows_streaming => 1);
$central->append_conf('postgresql.conf', 'wal_writer_delay = 10s');
$central->start;
query($central, <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a'), ('b'), ('c'), ('few');
	UPDATE snowid_segments SET limit_id = 150 WHERE biz_tag = 'few';
	CHECKPOINT;
	EOF
my @servers;
foreach my $n (1 .. 3)
{
	my $server =
	  snowid_cluster("s$n", "snowid.worker_id = $n\nsnowid.max_wait = 10s");
	$server->start;
	use_central($server, $central->host, $central->port,
		qw(a b c few absent));
	query($server, <<~EOF);
		CREATE EXTENSION snowid;
		CREATE TABLE got (n bigint, tag text);
		INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('here', 1, '0');
		EOF
	push @servers, $server;
}
my ($s1, $s2) = @servers;

is(join(' ', map { number($_, 'a') } @servers),
	'1 101 201', 'each server has a range of its own');
is(join(' ', map { number($_, 'a') } @servers), '2 102 202', 'and goes on');
is(number($s1, 'few'), 1, 'the limit is that of the source ...');
is( query(
		$s1, "SELECT max(snowid_number('few')) FROM generate_series(1, 149)"),
	150,
	'and what it leaves is taken');
like(
	sql_error($s2, "SELECT snowid_number('few')"),
	qr/^2200H: .*\nDETAIL:  Its limit_id is 150\./,
	'and no more');
like(
	sql_error($s1, "SELECT snowid_number('absent')"),
	qr/^42704: segment "absent" does not exist\nDETAIL:  Its source has no such row\./,
	'a tag that the source does not have');
is(number($s1, 'here'), 1, 'beside them, there are tags of the table here');

#---- Clean stops, and conflicts ----

$_->restart foreach reverse @servers;
is(number($s1, 'a'),
	203, 'stopped in order, who has the last range gives it back');
$_->restart foreach @servers;
is( query(
		$central,
		"SELECT update_time BETWEEN now() - interval '1 h' AND now() FROM snowid_segments WHERE biz_tag = 'a'"
	),
	't',
	'the central table has the time of it');

# All of them take single numbers of the same row, and have time for it.
sub wait_up_to
{
	my ($max) = @_;
	reload_with(
		$servers[ $_ - 1 ],
		'snowid.worker_id' => $_,
		'snowid.max_wait'  => $max) foreach 1 .. 3;
	return;
}

wait_up_to('5min');
query($_,
	"UPDATE snowid_segments SET step = 1, cover = '0' WHERE biz_tag = 'b'")
  foreach @servers;
my @loads = map {
	start_pgbench(
		$_, 'postgres',
		'-c 2 -j 1 -t 150',
		conflict => "INSERT INTO got SELECT snowid_number('b'), 'b';")
} @servers;
ok(stop_pgbench($_, 'finish'),
	'nobody is refused where they are in each other\'s way')
  or diag $_->{out}
  foreach @loads;
$_->restart foreach @servers;
my @numbers =
  map { split /\n/, query($_, "SELECT n FROM got WHERE tag = 'b'") } @servers;
my %seen = map { $_ => 1 } @numbers;
is(scalar(keys %seen), 900, 'and no number is there twice');
cmp_ok(
	query($central, "SELECT max_id FROM snowid_segments WHERE biz_tag = 'b'")
	  - 900,
	'<=', 6, 'nor are any lost by conflicts');

query($s1, <<~'EOF');
	CREATE TABLE plain (biz_tag text PRIMARY KEY, max_id bigint, limit_id bigint, update_time timestamptz);
	INSERT INTO plain VALUES ('tried', 0);
	CREATE SEQUENCE tries;
	CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		try bigint := nextval('public.tries');
	BEGIN
		IF try BETWEEN 2 AND 4 THEN
			RAISE 'conflict' USING ERRCODE = 'serialization_failure';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER conflict BEFORE UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION conflict();
	INSERT INTO snowid_segments (biz_tag, source, step, cover) VALUES ('tried', 'plain', 100, '1 day');
	EOF
query($s1, "SELECT snowid_number('tried') FROM generate_series(1, 101)");
cmp_ok(query($s1, 'SELECT last_value FROM tries'),
	'>=', 5, 'a range is tried to be fetched again and again');
is(segment_status($s1, 'tried', 'step'), 200, 'and is not longer for that');

#---- A range between those of others ----

# $s1 has one range before $s2's and one behind it; it gives the latter back when it is
# idle, and $s2 what it has left of its own when it stops.
is(number($_, 'c'), $_ == $s1 ? 1 : 101, 'a range each') foreach $s1, $s2;
query($s1, "SELECT snowid_number('c') FROM generate_series(2, 20)");
wait_for($s1,
	"SELECT left_next = 100 FROM snowid_segment_status() WHERE biz_tag = 'c'"
);
wait_for($central,
	"SELECT max_id = 200 FROM snowid_segments WHERE biz_tag = 'c'");
$s2->stop;
is( query($central, "SELECT max_id FROM snowid_segments WHERE biz_tag = 'c'"),
	101,
	'both are given back');
is( query(
		$s1,
		"SELECT string_agg(n, ' ') FROM (SELECT snowid_number('c')::text AS n FROM generate_series(20, 101)) s"
	),
	join(' ', 21 .. 100, 102, 103),
	'numbers go on behind what others have used');
$s2->start;

#---- A commit of which nothing is known ----

# The central server commits what $s1 gives back, and tells it only when $s1 has
# cut the line: it waits for a standby that does not exist.
query($s1, 'ALTER SERVER central OPTIONS (DROP options)');    # the time-out
my $doubt = number($s1, 'a');
is(number($s1, 'c'), 104, 'a range of another tag, too');
$central->append_conf('postgresql.conf',
	"synchronous_standby_names = 'none'");
$central->reload;
wait_for($central,
	"SELECT current_setting('synchronous_standby_names') = 'none'");

# commits wait when the checkpointer has seen it, the second time at the latest
query($central, 'CHECKPOINT') for 1 .. 2;
my $asker = IPC::Run::start(
	[
		'psql', '-XAtq',
		'-d',   $s1->connstr('postgres'),
		'-c',   "SELECT snowid_number('b')"
	],
	'>',
	\my $asked);
wait_for($s1,
	"SELECT lost > 0 FROM snowid_segment_status() WHERE biz_tag = 'b'");
pass('what is fetched without an answer is counted as lost');
my $fetchers = query($s1,
	"SELECT string_agg(pid::text, ', ') FROM pg_stat_activity WHERE backend_type = 'snowid segments'"
);
query($s1,
	"SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[$fetchers]) pid");
wait_for($s1,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid IN ($fetchers)");
$central->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$central->reload;
wait_for($central,
	"SELECT max_id = $doubt FROM snowid_segments WHERE biz_tag = 'a'");
pass('the central server has committed what was given back');
$asker->finish;
like($asked, qr/^\d+$/, 'who waited for a number gets another one');
is(number($s1, 'c'), 105,        'who gave it back goes on there');
is(number($s2, 'a'), $doubt + 1, 'or another server, where it is the first');
is( number($s1, 'a'),
	$doubt + 101,
	'who gave it back without an answer does not use it');
cmp_ok(segment_status($s1, 'a', 'lost'), '>', 0,
	'and has counted it as lost');
query($s1,
	"ALTER SERVER central OPTIONS (ADD options '-c statement_timeout=4s')");

#---- The central server hangs ----

sub keys_and_local_numbers
{
	my ($what) = @_;
	my $before = number($s1, 'here');
	is(number($s1, 'here'), $before + 1, "$what: the tags here go on");
	is(query($s1, "SELECT snowid_next() > 0"), 't', "$what: keys go on");
	return;
}

server_is_open($s1);
number($_, 'c') foreach @servers;
wait_up_to('1s');
my @hung = processes($central);
kill 'STOP', @hung;
my $error =
  sql_error($s1, "SELECT snowid_number('c') FROM generate_series(1, 100000)");
like(
	$error,
	qr/^55000: no number of "c" is reserved\n/,
	'hung: numbers go on to the end of what is in memory');
keys_and_local_numbers('hung');
$s1->poll_query_until('postgres',
	"SELECT error LIKE 'The source did not answer in time%' FROM snowid_segment_status() WHERE biz_tag = 'c'"
);
like(
	sql_error($s1, "SELECT snowid_number('c')"),
	qr/^55000: no number of "c" is reserved\nDETAIL:  The last error was: The source did not answer in time\./,
	'then callers are told that the source hangs');
$s2->stop('fast');
pass('a fast stop does not wait for it');
$s2->start;
kill 'CONT', @hung;
wait_for($s1, "SELECT snowid_number('c') > 0");
pass('when it is back, numbers go on by themselves');

#---- It is gone, or another one ----

my $last = number($s1, 'c');
my $taken =
  query($central, "SELECT max_id FROM snowid_segments WHERE biz_tag = 'c'");
kill_all($central);
$error =
  sql_error($s1, "SELECT snowid_number('c') FROM generate_series(1, 100000)");
like(
	$error,
	qr/^55000: no number of "c" is reserved\nDETAIL:  The last error was: .*(?:could not connect to server|server closed the connection|terminat)/,
	'gone: callers get the error of the source');
keys_and_local_numbers('gone');
$central->start;
cmp_ok(
	query($central, "SELECT max_id FROM snowid_segments WHERE biz_tag = 'c'"),
	'>=', $taken, 'killed, it has lost no range');
wait_for($s1, "SELECT snowid_number('c') > $last");

query($central,
	"UPDATE snowid_segments SET max_id = 10, update_time = '-infinity' WHERE biz_tag = 'c'"
);
$error =
  sql_error($s1, "SELECT snowid_number('c') FROM generate_series(1, 100000)");
like(
	$error,
	qr/^55000: .*\nDETAIL:  The last error was: Its max_id was lowered: numbers up to \d+ were handed out here\./,
	'a source that has lost ranges is found out');
query($central,
	"UPDATE snowid_segments SET max_id = 1000000 WHERE biz_tag = 'c'");
wait_for($s1, "SELECT snowid_number('c') > 1000000");
pass('until its max_id is raised');

#---- A row that is locked there, and one that moves ----

my $locker = $central->background_psql('postgres');
$locker->query_safe(
	"BEGIN; UPDATE snowid_segments SET description = 'locked' WHERE biz_tag = 'c'"
);
$error = sql_error($s1,
	"SET statement_timeout = '60s'; SELECT snowid_number('c') FROM generate_series(1, 100000)"
);
like(
	$error,
	qr/^55000: no number of "c" is reserved/,
	'a row that is locked there');
wait_for($s1, "SELECT snowid_number('a') > 0");
pass('does not stop other tags of that server');
$locker->query_safe('COMMIT');
$locker->quit;
wait_for($s1, "SELECT snowid_number('c') > 0");

query($s1,
	"UPDATE snowid_segments SET source = NULL, max_id = 77 WHERE biz_tag = 'c'"
);
is(number($s1, 'c'), 78, 'another source counts at once');

like(
	sql_error(
		$s1,
		"CREATE ROLE clerk; GRANT INSERT ON snowid_segments TO clerk; SET ROLE clerk; INSERT INTO snowid_segments (biz_tag, source) VALUES ('x', 'central')"
	),
	qr/^42501: permission denied for the source of a segment/,
	'who names a source must have rights on it');

#---- What can be no source ----

# Behind these a foreign table is not seen, and what it leaves in doubt would be used.
query($s1, <<~EOF);
	CREATE VIEW view AS SELECT * FROM central;
	CREATE TABLE parts (LIKE central) PARTITION BY LIST (biz_tag);
	ALTER TABLE parts ATTACH PARTITION central DEFAULT;
	EOF
foreach my $source ('view', 'parts')
{
	my $insert =
	  "INSERT INTO snowid_segments (biz_tag, source) VALUES ('a_$source', '$source')";
	like(
		sql_error($s1, $insert),
		qr/^42809: "$source" cannot be the source of a segment\nDETAIL:  A source is an ordinary table or a foreign table\.\n/,
		"what hides a foreign table is no source: $source");
	query($s1,
		"ALTER TABLE snowid_segments DISABLE TRIGGER guard; $insert; ALTER TABLE snowid_segments ENABLE ALWAYS TRIGGER guard"
	);
	wait_until(
		'nor where it was not checked',
		sub {
			sql_error($s1, "SELECT snowid_number('a_$source')") =~
			  /^55000: .*\nDETAIL:  The last error was: "$source" cannot be the source of a segment: /;
		});
	pass('nor where it was not checked');
}
query($s1, <<~EOF);
	ALTER TABLE parts DETACH PARTITION central;
	CREATE TABLE parent (LIKE central);
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('c_parent', 'parent');
	ALTER FOREIGN TABLE central INHERIT parent;
	EOF
query($central, "INSERT INTO snowid_segments (biz_tag) VALUES ('c_parent')");
wait_until(
	'nor are the rows of a table that inherits from a source',
	sub {
		sql_error($s1, "SELECT snowid_number('c_parent')") =~
		  /^42704: .*\nDETAIL:  Its source has no such row\./;
	});
pass('nor are the rows of a table that inherits from a source');

query($s1, "DROP FOREIGN TABLE central CASCADE");
like(
	sql_error($s1, "SELECT snowid_number('b')"),
	qr/^55000: no number of "b" is reserved\nDETAIL:  The last error was: the table that is the source does not exist\./,
	'a source that was dropped');
$_->stop foreach @servers, $central;
done_testing();
