# Segments of several servers with one central table: no
# number twice, and none lost without a fault; a central server that hangs, is gone
# or has lost a range stops neither keys nor the tags of the table here, and its own
# tags continue by themselves.
use strict;
use warnings;

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
is(join(' ', map { number($_, 'a') } @servers),
	'2 102 202', 'each server continues in its range');
is( query(
		$s1, "SELECT max(snowid_number('few')) FROM generate_series(1, 150)"),
	150,
	'a tag has numbers up to the limit of its source');
like(
	sql_error($s2, "SELECT snowid_number('few')"),
	qr/^2200H: .*\nDETAIL:  By its limit_id and format, the last one is 150\./,
	'beyond the limit of the source there are no numbers');
like(
	sql_error($s1, "SELECT snowid_number('absent')"),
	qr/^55000: no numbers available for segment "absent"\nDETAIL:  The last error was: Its source has no such row\./,
	'a tag that the source does not have has no numbers');
is(query($s2, 'SELECT count(*) ' . fetchers('postgres')),
	1, 'a database whose tags have sources alone has one process');
query($s2, source_in('without', $central, 'template1'));
add_tag($s2, 'unknown', source => 'without');
sql_error($s2, "SELECT snowid_number('unknown')");
like(
	query(
		$s2,
		"SELECT error FROM snowid_segment_status() WHERE biz_tag = 'unknown'"
	),
	qr/does not exist/,
	'a database of the central server without the extension: the status says what is not there'
);
is(number($s1, 'here'), 1, 'a tag of the table here has its own numbers');
is(query($s1, 'SELECT count(*) ' . fetchers('postgres')),
	2, 'a database has two processes: for its table, and for its sources');
my $here = "FROM snowid_segment_status() WHERE biz_tag = 'here'";
wait_for($s1, "SELECT left_next = 1 $here");
query($s1,
	"SELECT pg_terminate_backend(pid, 60000) @{[ fetchers() ]} ORDER BY backend_start DESC LIMIT 1"
);
is(query($s1, "SELECT left_next $here"),
	1, 'the process for sources leaves the numbers of the table here alone');

#---- Clean stops, and conflicts ----

add_tag($central, 'both', step => 100, cover => 0);
add_tag($s1, 'both', step => 100, cover => 0, source => 'central');
is(join(' ', map { number($_, 'both') } $central, $s1),
	'1 101', 'a central server hands out numbers of its own table, too');
$central->restart;
is(number($central, 'both'),
	201, 'a range is not taken back if another server has taken one since');

$_->restart foreach reverse @servers;
is(number($s1, 'a'),
	301, 'a range of a central table is not given back at a clean stop');
$_->restart foreach @servers;
is( query(
		$central,
		"SELECT update_time BETWEEN now() - interval '1 h' AND now() FROM snowid_segments WHERE biz_tag = 'a'"
	),
	't',
	'the central table has the time of the last change');

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
		'-c 2 -j 1 -t 50',
		conflict => "INSERT INTO got SELECT snowid_number('b'), 'b';")
} @servers;
ok(stop_pgbench($_, 'finish'),
	'no call fails while three servers want ranges of one row')
  or diag $_->{out}
  foreach @loads;
$_->restart foreach @servers;
my @numbers =
  map { split /\n/, query($_, "SELECT n FROM got WHERE tag = 'b'") } @servers;
my %seen = map { $_ => 1 } @numbers;
is(scalar(keys %seen), 300, 'no number is handed out by two of the servers');
cmp_ok(max_id($central, 'b') - 300,
	'<=', 6, 'no number is lost while servers want ranges of one row');

#---- A commit of which nothing is known ----

# The central server commits what it is asked, and tells it only when the caller has
# gone: it waits for a standby that does not exist.
my $doubt = number($s1, 'a');
is(number($s2, 'c'), 1, 'another server has a range of another tag');
$central->append_conf('postgresql.conf',
	"synchronous_standby_names = 'none'");
$central->reload;
wait_for($central,
	"SELECT current_setting('synchronous_standby_names') = 'none'");

# commits wait when the checkpointer has seen it, the second time at the latest
query($central, 'CHECKPOINT') for 1 .. 2;
my $before = max_id($central, 'b');
my $asker  = ask_in_background($s1, "SELECT snowid_number('b')");
poll_segment($s1, 'b', "error = 'The central server did not answer in time'");
$central->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$central->reload;
cmp_ok(
	$asker->outcome, '>',
	$before + 1,
	'a range that is taken without an answer is not used');

#---- One of two sources hangs ----

# Tags of the two sources have their places in turn.
my $pairs = 12;
query($_,
	"INSERT INTO snowid_segments (biz_tag) SELECT t || n FROM (VALUES ('far'), ('near')) AS w (t), generate_series(1, $pairs) n"
) foreach $central, $s2;
query($s1, source_in('near', $s2, 'postgres'));
query($s1, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, step, cover, source)
		SELECT t || n, 1, '0', s FROM (VALUES ('far', 'central'), ('near', 'near')) AS w (t, s), generate_series(1, $pairs) n;
	EOF
foreach my $n (1 .. $pairs)
{
	number($s1, "$_$n") foreach qw(far near);
}
wait_up_to('1min');
my @far = processes($central);
kill 'STOP', @far;
my (@of_far, @of_near);
foreach my $n (1 .. $pairs)
{
	push @of_far, ask_in_background($s1, "SELECT snowid_number('far$n')");
	push @of_near,
	  ask_in_background($s1,
		"SELECT count(snowid_number('near$n')) FROM generate_series(1, 3)");
}
my @answers = map { $_->outcome } @of_near;
kill 'CONT', @far;
is( "@answers",
	join(' ', (3) x $pairs),
	'tags of a source get their numbers while another source hangs, however many tags that has'
);

# A server that failed is left alone for a second, whichever others are asked meanwhile.
query($s1, source_in('nowhere', $central, 'nowhere'));
query($s1, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('nowhere', 'nowhere');
	ALTER SERVER near OPTIONS (ADD keepalives_count '0');
	EOF
my $of_nowhere = ask_in_background($s1, "SELECT snowid_number('nowhere')");
query(
	$s1,
	join "\n",
	map {
		"ALTER SERVER near OPTIONS (SET keepalives_count '$_'); SELECT snowid_segment_forget('near1'), snowid_number('near1');"
	} 1 .. 20);
my @attempts;
wait_until(
	'a third attempt',
	sub {
		@attempts =
		  map  { $_->[0] * 3600 + $_->[1] * 60 + $_->[2] }
		  map  { [/(\d+):(\d+):([\d.]+)/] }
		  grep { /database "nowhere" does not exist/ }
		  split /\n/, slurp_file($central->logfile);
		@attempts > 2;
	});
query($s1, "DELETE FROM snowid_segments WHERE biz_tag = 'nowhere'");
is( scalar(
		grep { ($attempts[$_] - $attempts[ $_ - 1 ]) % 86400 < 1 }
		  1 .. $#attempts),
	0,
	'a server that failed is asked again after a second, and no earlier');

#---- The central server hangs ----

sub keys_and_local_numbers
{
	my ($what) = @_;
	my $before = number($s1, 'here');
	is(number($s1, 'here'), $before + 1, "$what: the tags here continue");
	is(query($s1, "SELECT snowid_next() > 0"), 't', "$what: keys continue");
	return;
}

# The error that callers get when the numbers in memory are used up, and the reason
# that pg_monitor sees.
sub refused
{
	my ($what, $detail, $known) = @_;
	like(
		sql_error(
			$s1, "SELECT snowid_number('c') FROM generate_series(1, 100000)"),
		qr/^55000: no numbers available for segment "c"\nDETAIL:  $detail\./,
		"$what: a caller learns that there is no number");
	ok( $s1->poll_query_until(
			'postgres',
			"SELECT error ~ '$known' FROM snowid_segment_status() WHERE biz_tag = 'c'"
		),
		"$what: the status says why");
	return;
}

server_is_open($s1);
number($_, 'c') foreach @servers;
wait_up_to('4s');
my @hung = processes($central);
kill 'STOP', @hung;
refused(
	'hung',
	'The last error was: The central server did not answer in time',
	'did not answer in time');
keys_and_local_numbers('hung');
kill 'CONT', @hung;
wait_for($s1, "SELECT snowid_number('c') > 0");
pass('numbers continue by themselves when the central server continues');

#---- It is gone, or another one ----

# Ranges are durable there, whatever is set for those who take them.
query($central, 'ALTER DATABASE postgres SET synchronous_commit = off');
query($s1,      "SELECT snowid_segment_forget('c')");
my $last  = number($s1, 'c');
my $taken = max_id($central, 'c');
kill_all($central);
refused(
	'gone',
	'Its table or its source failed; see the server log, or snowid_segment_status\(\)',
	'(connection to server|server closed|terminat|could not connect)');
keys_and_local_numbers('gone');
$central->start;
cmp_ok(max_id($central, 'c'),
	'>=', $taken, 'a central server that was killed has lost no range');
wait_for($s1, "SELECT snowid_number('c') > $last");

query($central, <<~EOF);
	ALTER TABLE snowid_segments DISABLE TRIGGER guard;
	UPDATE snowid_segments SET max_id = 10 WHERE biz_tag = 'c';
	ALTER TABLE snowid_segments ENABLE ALWAYS TRIGGER guard;
	EOF
refused(
	'put back',
	'The last error was: Its max_id is behind: numbers up to \d+ were handed out here',
	'is behind');
query($central,
	"UPDATE snowid_segments SET max_id = 1000000 WHERE biz_tag = 'c'");
wait_for($s1, "SELECT snowid_number('c') > 1000000");
pass('numbers continue if max_id is raised above those that were handed out');

#---- A row that is locked there, and one that moves ----

# The next range cannot be fetched, and nobody waits for it.
query($s1, "SELECT snowid_segment_forget('c'), snowid_number('c')");
my $holder = SnowidSession->new($central, 'postgres');
$holder->query(
	"BEGIN; UPDATE snowid_segments SET description = 'held' WHERE biz_tag = 'c'"
);
query($s1, "SELECT snowid_number('c') FROM generate_series(1, 20)");
my $of_c = "FROM snowid_segment_status() WHERE biz_tag = 'c'";
wait_for($s1, "SELECT error IS NOT NULL $of_c");
sleep 2;
$holder->query('COMMIT');
number($s1, 'c');
wait_for($s1, "SELECT error IS NULL AND left_next > 0 $of_c");
pass('a range that could not be fetched is wanted again by the next number');

my $locker = SnowidSession->new($central, 'postgres');
$locker->query(
	"BEGIN; UPDATE snowid_segments SET description = 'locked' WHERE biz_tag = 'c'"
);
refused(
	'locked there',
	'The last error was: (?:Its row is locked|The central server did not answer in time)',
	'is locked|in time');
my $waits = segment_status($s1, 'c', 'waits');

# One caller waits for that row all the time.  Others, for a second each, want a range of
# another tag: it may not come in time, but they do not get the error of that row.
wait_up_to('5min');
my $of_locked = ask_in_background($s1, "SELECT snowid_number('c') > 0");
poll_segment($s1, 'c', "error IS NOT NULL AND waits > $waits");
wait_up_to('1s');
my @errors =
  map {
	sql_error($s1, "SELECT snowid_segment_forget('a'), snowid_number('a')")
  } 1 .. 5;
unlike(
	"@errors",
	qr/Its row is locked/,
	'a row that is locked there is no error of other tags of that server');
wait_for($s1, "SELECT snowid_number('a') > 0");
pass('a row that is locked there does not stop other tags of that server');
$locker->query('COMMIT');
is($of_locked->outcome, 't', 'a row that was locked there has numbers again');
wait_up_to('4s');

# One that knows only whether it is asked again in the same session.
query($central, 'CREATE DATABASE busy');
fake_source($central, 'busy', <<~'EOF');
	LANGUAGE plpgsql AS $$
	BEGIN
	    problem := CASE current_setting('busy.was_asked', true) WHEN 'yes' THEN '' ELSE 'locked' END;
	    first := high + 1;
	    last := high + length;
	    PERFORM set_config('busy.was_asked', 'yes', false);
	END $$;
	EOF
query($s1,
	source_in('busy', $central, 'busy')
	  . "INSERT INTO snowid_segments (biz_tag, source) VALUES ('busy', 'busy')"
);
is(number($s1, 'busy'),
	1, 'a row that another server has locked for a moment is waited for');

query($s1,
	"UPDATE snowid_segments SET source = NULL, max_id = 77 WHERE biz_tag = 'c'"
);
is(number($s1, 'c'), 78, 'another source counts at once');

# The connection is the one that its options say now.
query($s1, "ALTER SERVER central OPTIONS (SET port '1')");
like(
	sql_error($s1, "SELECT snowid_number('a') FROM generate_series(1, 1000)"),
	qr/^55000: /,
	'changed options of the server count at once');
poll_segment($s1, 'a', "error LIKE '% Is the server running %'");
query($s1,
	"ALTER SERVER central OPTIONS (SET port '" . $central->port . "')");
wait_for($s1, "SELECT snowid_number('a') > 0");

$_->stop foreach @servers, $central;
done_testing();
