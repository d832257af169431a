# No number of a segment is handed out twice, whatever ends: the process that fetches,
# the server, or the primary; and none is lost if it ends in order.
#
# A caller that loses its processor between its reading of the cursor and its
# compare-and-swap, while others take all of two ranges, so that the offset is the same
# again, gets a number that is nobody else's.  It is stopped with gdb.
# needs: gdb?
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes 'usleep';

# A commit that does not wait is written after 10 s.
my $node = snowid_cluster(
	'durable',
	'snowid.max_wait = 60s',
	allows_streaming => 'logical');
$node->append_conf('postgresql.conf', <<~EOF);
	wal_writer_delay = 10s
	restart_after_crash = on
	checkpoint_timeout = 1h
	EOF
let_hold($node);
$node->start;
query($node, <<~EOF);
	CREATE EXTENSION snowid_segments;
	CREATE TABLE got (n bigint PRIMARY KEY);
	INSERT INTO snowid_segments (biz_tag) VALUES ('a'), ('b'), ('c');
	INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('busy', 10, '0');
	CHECKPOINT;
	EOF

#---- The server is killed ----

foreach my $tag ('a', 'c')
{
	my $session = SnowidSession->new($node, 'postgres');
	$session->query('BEGIN');
	my $seen = $session->query(
		"SELECT max(snowid_number('$tag')) FROM generate_series(1, 1500)");
	kill_all($node);
	$node->start;
	cmp_ok(number($node, $tag),
		'>', $seen,
		"killed with the transaction open: no number comes again ($tag)");
}

my $seen = number($node, 'a');
my $pid  = fetcher_pid($node);
kill 'KILL', $pid;
wait_until('the end of the process', sub { !kill 0, $pid });
wait_for($node, 'SELECT true');
cmp_ok(number($node, 'a'),
	'>', $seen, 'no number comes again if its process is killed');

#---- The process ends, under load ----

my $load = start_pgbench(
	$node, 'postgres',
	'-c 4 -j 1 -t 400',
	one => "INSERT INTO got SELECT snowid_number('busy');");
my $ended = 0;
while ($load->{handle}->pumpable)
{
	$load->{handle}->pump_nb;
	$ended +=
	  query($node, "SELECT count(pg_terminate_backend(pid)) " . fetchers());
	usleep(20_000);
}
ok(stop_pgbench($load, 'finish'), 'nobody is refused while it is terminated')
  or diag $load->{out};
cmp_ok($ended, '>', 0, "the process ended $ended times");
is(query($node, "SELECT count(*), max(n) FROM got"),
	'1600|1600', 'no number is lost or handed out twice if the process ends');

#---- A clean stop, under load ----

foreach my $mode ('fast', 'smart')
{
	my $run = start_pgbench(
		$node, 'postgres',
		'-c 4 -j 1 -T 600',
		one => "INSERT INTO got SELECT snowid_number('busy');");
	my $count = query($node, 'SELECT count(*) FROM got');
	wait_for($node, "SELECT count(*) > $count + 100 FROM got");
	if   ($mode eq 'fast') { $node->stop('fast'); stop_pgbench($run); }
	else                   { stop_pgbench($run);  $node->stop('smart'); }
	$node->start;
	my $lost =
	  number($node, 'busy') - 1 - query($node, 'SELECT max(n) FROM got');
	cmp_ok($lost, '<=', 4, "a $mode stop loses at most what was being taken");
}

#---- Databases that are dropped ----

foreach my $round (1, 2)
{
	query($node, 'CREATE DATABASE other');
	is( $node->safe_psql(
			'other',
			"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'); SELECT snowid_number('a')"
		),
		1,
		"a database of the same name has numbers of its own ($round)");
	is(sql_error($node, 'CREATE DATABASE copy TEMPLATE other'),
		'', 'a database can be copied at once');
	is($node->safe_psql('copy', "SELECT snowid_number('a')"),
		2, 'a copy of a database continues where it was');
	is($node->safe_psql('other', "SELECT snowid_number('a')"),
		2, 'a database that was copied continues by itself');
	$node->safe_psql('other', 'TRUNCATE snowid_segments');
	is($node->safe_psql('copy', "SELECT snowid_number('a')"),
		3, 'a table that is truncated is no other database\'s');
	is(sql_error($node, 'DROP DATABASE other'),
		'', 'a database can be dropped at once');
	is(sql_error($node, 'DROP DATABASE copy'),
		'', 'the copy can be dropped at once');
}

# Somebody wanted a range, and nobody has fetched it.
my $places = query($node, 'SHOW snowid.max_segments');
$node->append_conf('postgresql.conf', 'snowid.max_segments = 1');
$node->restart;
query($node, 'CREATE DATABASE other');
$node->safe_psql('other',
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'); SELECT snowid_number('a')"
);
my $fetcher = query($node, 'SELECT pid ' . fetchers('other'));
kill 'STOP', $fetcher;
$node->safe_psql('other',
	"SELECT snowid_number('a') FROM generate_series(1, 200)");
my $drop = SnowidSession->new($node, 'postgres');
$drop->ask('DROP DATABASE other');
wait_for($node,
	"SELECT count(*) = 1 FROM pg_locks WHERE classid = 'pg_database'::regclass AND mode = 'AccessExclusiveLock' AND granted"
);
kill 'CONT', $fetcher;
$drop->answer;
wait_for($node, "SELECT snowid_number('a') > 0");
pass('a tag that was wanted in a database that is gone takes no place');
$node->append_conf('postgresql.conf', "snowid.max_segments = $places");
$node->restart;

#---- A logical replica has the table, too ----

my $replica = snowid_cluster('replica', '');
$replica->start;
query($node,
	"UPDATE snowid_segments SET max_id = 100000 WHERE biz_tag = 'a'; CREATE PUBLICATION all_tables FOR ALL TABLES"
);
my $connection = $node->connstr('postgres') =~ s/'/''/gr;
query($replica, <<~EOF);
	CREATE EXTENSION snowid_segments;
	CREATE TABLE got (n bigint PRIMARY KEY);
	EOF
query($replica,
	"CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION all_tables");
wait_for($replica, "SELECT count(*) = 4 FROM snowid_segments");
wait_for($replica,
	"SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel");
query($replica,
	"UPDATE snowid_segments SET max_id = 200000 WHERE biz_tag = 'a'");
is(number($replica, 'a'), 200001, 'a subscriber has numbers of its own');
query($node,
	"UPDATE snowid_segments SET max_id = 150000, description = 'changed' WHERE biz_tag = 'a'"
);
wait_for($replica,
	"SELECT description = 'changed' FROM snowid_segments WHERE biz_tag = 'a'"
);
cmp_ok(max_id($replica, 'a'),
	'>=', 200000, 'a change from the publisher does not lower max_id');
cmp_ok(number($replica, 'a'),
	'>', 200001, 'the numbers of a subscriber continue');
query($node,
	"UPDATE snowid_segments SET max_id = 300000 WHERE biz_tag = 'a'");
wait_for($replica, "SELECT snowid_number('a') > 300000");
pass('a greater max_id of the publisher counts at the subscriber');
$replica->stop;

#---- A standby ----

$node->backup('backup');
my $standby =
  server_from_backup('standby', $node, 'backup', '', has_streaming => 1);
$standby->start;
like(
	sql_error($standby, "SELECT snowid_number('a')"),
	qr/^55000: a standby hands out no numbers/,
	'a standby hands out no numbers');
$node->append_conf('postgresql.conf',
	"synchronous_standby_names = 'standby'\nsynchronous_commit = on");
$node->reload;
wait_for($node,
	"SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = 'standby'"
);

# While the standby is away, nobody gets what it has not got.
my ($receiver) = query($standby, 'SELECT pid FROM pg_stat_wal_receiver');
kill 'STOP', $receiver;
hold_process($node, 'snowid segments', 'PopActiveSnapshot');
my $caller  = ask_in_background($node, "SELECT snowid_number('c')");
my $stopped = held_process($node);
kill 'TERM', $stopped;
hold_process($node, 'snowid segments', 'PopActiveSnapshot', 'proc_exit');
kill 'CONT', $stopped;
wait_until('its end', sub { !kill 0, $stopped });
pass(
	'a process that was asked to exit before its commit does not wait for a standby'
);
kill 'INT', held_process($node);
let_go($node);
my $waits = "SELECT wait_event = 'SyncRep' " . fetchers();
ok( $node->poll_query_until('postgres', $waits),
	'the commit of a range waits for a standby, whatever was cancelled just before'
);
my $told = fetcher_pid($node);
query($node, "SELECT pg_cancel_backend($told), pg_sleep(0.5)");
is( query($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = $told"),
	'SyncRep',
	'no cancel ends the wait for a standby');
hold_process($node, 'snowid segments', 'StartTransactionCommand');
query($node, "SELECT pg_terminate_backend($told)");
held_process($node);
is( segment_status($node, 'c', "\"left\" + left_next"),
	'0',
	'a range that a process has taken is lost if it is asked to exit meanwhile'
);
is( segment_status($node, 'c', 'error'),
	'The process is shutting down',
	'the status says why it is lost');
let_go($node);
ok($node->poll_query_until('postgres', "$waits AND pid <> $told"),
	'the next process waits for the standby, too');
$node->stop('fast');
pass('a fast stop does not wait for a standby that is away');
unlike($caller->outcome, qr/^\d+$/m,
	'nobody got a number that the standby has not got');
kill 'CONT', $receiver;
$node->start;
wait_for($node,
	"SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = 'standby'"
);
cmp_ok(number($node, 'c'),
	'>', 1, 'numbers continue when the standby is back');
my $log = -s $node->logfile;
$node->restart;
unlike(
	slurp_file($node->logfile, $log),
	qr/cannot reserve numbers/,
	'a stop gives back without a word, also beside a standby');
wait_for($node,
	"SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = 'standby'"
);

my @clients =
  map { start_client($node, "SELECT snowid_number('busy');", 'hasty') }
  1 .. 3;
clients_go_on(@clients);
kill_all($node);
my @numbers = map { stop_client($_) } @clients;
$standby->promote;
my ($last) = sort { $b <=> $a } @numbers;
cmp_ok(number($standby, 'busy'),
	'>', $last,
	'promoted, the standby hands out none that the primary handed out');
my %seen = map { $_ => 1 } @numbers;
is(scalar(keys %seen),
	scalar(@numbers), 'no number was handed out twice before the promotion');
$standby->stop;

#---- A caller that loses its processor, stopped with gdb ----

SKIP:
{
	my $race = snowid_cluster('race', '');
	$race->start;
	query($race, <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('a', 100, '0');
	EOF

	# Where the compare-and-swap is.
	my ($libdir) = map { s/\n//r } qx(pg_config --pkglibdir);
	my $code = '';
	eval {
		IPC::Run::run(
			[
				'gdb', '-batch', '-ex', 'disassemble snowid_number',
				"$libdir/snowid.so"
			],
			'>',
			\$code,
			'2>',
			'/dev/null');
	};
	my ($at) = $code =~ /<\+(\d+)>:\s+lock cmpxchg/;
	skip 'there is no gdb that reads the library', 4 if $code eq '';
	skip 'snowid_number() has no "lock cmpxchg", an instruction of x86', 4
	  if !defined $at;

	my $session = $race->background_psql('postgres');
	$session->set_query_timer_restart();
	my $pid     = $session->query_safe('SELECT pg_backend_pid()');
	my @numbers = $session->query_safe("SELECT snowid_number('a')");

	# gdb goes through this by itself, to the first error; the caller stands at the step
	# until there is the file "go".  Signals of the server's do not stop it.
	my $dir  = $race->basedir;
	my $step = "((long) &snowid_number + $at)";
	append_to_file("$dir/script", <<~EOF);
	handle SIGUSR1 SIGUSR2 SIGURG SIGALRM nostop noprint pass
	break *$step
	shell touch '$dir/set'
	continue
	if \$pc == $step
	shell touch '$dir/at'; until [ -e '$dir/go' ] || ! kill -0 $$; do sleep 0.1; done
	end
	delete
	detach
	EOF
	my $gdb = IPC::Run::start(
		[ 'gdb', '-q', '-nx', '-batch', '-p', $pid, '-x', "$dir/script" ],
		'<', '/dev/null', '>', "$dir/gdb.out", '2>&1');
	wait_until('gdb', sub { -e "$dir/set" || !$gdb->pumpable });
	skip 'gdb cannot attach to a server process', 4 if !-e "$dir/set";

	# The first number of a statement does not come by this step; the second does.
	$session->{stdin} .=
	  "SELECT snowid_number('a') FROM generate_series(1, 2);\n";
	wait_until(
		'the caller at its step',
		sub {
			$session->{run}->pump_nb;
			return -e "$dir/at" || !$gdb->pumpable;
		});
	ok(-e "$dir/at", 'the caller is stopped before its step');

	# One at a time, so that no range is passed over.
	my @others = map { number($race, 'a') } 1 .. 3;
	push @others, split /\n/,
	  query($race, "SELECT snowid_number('a') FROM generate_series(1, 197)");
	cmp_ok($others[-1] - $others[0],
		'==', 199, 'two ranges are taken meanwhile, to the same offset');
	append_to_file("$dir/go", '');
	$gdb->finish;
	push @numbers,
	  $session->query_until(qr/^done$/m, "\\echo done\n") =~ /^(\d+)$/mg;
	is( $numbers[-1] // '',
		$others[-1] + 1,
		'the caller that was stopped gets a number');
	push @numbers, @others;
	my %seen = map { $_ => 1 } @numbers;
	is(scalar(keys %seen),
		scalar(@numbers),
		'the caller gets a number that no other session has got');
	$session->quit;
	$race->stop;
}

done_testing();
