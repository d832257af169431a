# More databases want a process of segments than can have one: they get theirs in the order
# in which they began to wait, and no call is refused, even if two have central servers
# that need their time.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

my $node = snowid_cluster('queue', 'snowid.max_wait = 1h');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->start;

my $databases = 40;
query($node, 'CREATE DATABASE d1');
$node->safe_psql('d1',
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag, step, cover) SELECT 't' || i, 1, '0' FROM generate_series(1, 20) i"
);
query($node, "CREATE DATABASE d$_ TEMPLATE d1") foreach 2 .. $databases;

#---- Many busy databases ----

my @busy = map {
	ask_in_background($node,
		"SELECT count(snowid_number('t1')) FROM generate_series(1, 50)",
		"d$_")
} 1 .. $databases;
is( join(' ', map { $_->outcome } @busy),
	join(' ', (50) x $databases),
	'no call is refused while 40 databases are busy');

#---- The order ----

# The reserved process alone, which one database has, and which is stopped.
query($node, 'ALTER SYSTEM SET max_worker_processes = 3');
$node->restart;
$node->safe_psql('d1', "SELECT snowid_number('t2')");
my $pid = fetcher_pid($node, 'd1');
kill 'STOP', $pid;
my @order = (7, 3, 11, 5);
my @waiting;

foreach my $n (@order)
{
	push @waiting,
	  ask_in_background($node, "SELECT snowid_number('t2')", "d$n");
	$node->poll_query_until("d$n",
		"SELECT waits > 0 FROM snowid_segment_status() WHERE biz_tag = 't2'")
	  or die;
}
kill 'CONT', $pid;
is(join(' ', map { $_->outcome } @waiting),
	'1 1 1 1', 'all that waited get their number');
my %fetched = map {
	$_ => $node->safe_psql("d$_",
		"SELECT extract(epoch FROM update_time) FROM snowid_segments WHERE biz_tag = 't2'"
	)
} @order;
is(join(' ', sort { $fetched{$a} <=> $fetched{$b} } @order),
	"@order", 'the database that began to wait first is served first');

# Each needs the process for a moment, at the same time.
my @moments =
  map { ask_in_background($node, "SELECT snowid_number('t4')", "d$_") }
  21 .. 32;
is( join(' ', map { $_->outcome } @moments),
	join(' ', (1) x 12),
	'a process that has nothing more to do makes room at once');

#---- A database that is dropped while it is in the line ----

$node->safe_psql('d2', "SELECT snowid_number('t20')");
$pid = fetcher_pid($node, 'd2');
kill 'STOP', $pid;
my $gone = ask_in_background($node, "SELECT snowid_number('t2')", 'd12');
wait_for($node,
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'd12' AND wait_event_type = 'Extension'"
);
query($node,
	"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'd12'"
);

# what nobody has asked for since a second is passed over
usleep(1_500_000);
kill 'CONT', $pid;
query($node, 'DROP DATABASE d12');
is($node->safe_psql('d13', "SELECT snowid_number('t2')"),
	1, 'numbers of a database behind one that was dropped');
unlike(
	slurp_file($node->logfile),
	qr/FATAL:  database \d+ does not exist/,
	'no process is started for a database that was dropped');

#---- Central servers that take their time, or hang ----

# One place beside the reserved one, and a server that knows nothing but high numbers.
query($node, 'ALTER SYSTEM SET max_worker_processes = 4');
$node->restart;
query($node, 'CREATE DATABASE away');
$node->safe_psql('away',
	'CREATE TABLE takes (seconds float8); INSERT INTO takes VALUES (0.2)');
fake_source($node, 'away',
	q{LANGUAGE sql AS 'SELECT pg_sleep(seconds) FROM takes; SELECT high + 1, high + length, NULL::int, $$$$'}
);
foreach my $database (qw(d3 d4))
{
	$node->safe_psql($database,
			'CREATE EXTENSION postgres_fdw;'
		  . source_in('away', $node, 'away')
		  . "INSERT INTO snowid_segments (biz_tag, source, step, cover) VALUES ('far', 'away', 1, '0')"
	);
}
@busy = map {
	ask_in_background($node,
		"SELECT count(snowid_number('far')) FROM generate_series(1, 3)", $_)
} qw(d3 d4);
is(join(' ', map { $_->outcome } @busy),
	'3 3', 'no database cuts the central server of another one off');

# The reserve has work, too.
$node->safe_psql('away', 'UPDATE takes SET seconds = 1000');
my $hangs = ask_in_background($node, "SELECT snowid_number('far')", 'd3');
my $log   = -s $node->logfile;
my $next  = 13;
wait_until(
	'the place of a central server that hangs',
	sub {
		$node->safe_psql("d$next", "SELECT snowid_number('t19')");
		$next = $next < $databases ? $next + 1 : 13;
		return slurp_file($node->logfile, $log) =~ /is shutting down/;
	});
pass(
	'a central server that hangs is left for the tables of another database');

# The other database has such a server, too; and this one a tag whose source answers, and
# for which nobody waits: its ranges are asked for in time.
my $hangs_too = ask_in_background($node, "SELECT snowid_number('far')", 'd4');
query($node, 'CREATE DATABASE near');
fake_source($node, 'near',
	q{LANGUAGE sql AS 'SELECT high + 1, high + length, NULL::int, $$$$'});
$node->safe_psql('d3',
	source_in('near', $node, 'near')
	  . "INSERT INTO snowid_segments (biz_tag, source, step, cover) VALUES ('near', 'near', 10, '0')"
);
my $ranges = 0;
while ($ranges < 8)
{
	$node->safe_psql('d3',
		"SELECT count(snowid_number('near')) FROM generate_series(1, 10)");
	$node->poll_query_until('d3',
		"SELECT left_next > 0 FROM snowid_segment_status() WHERE biz_tag = 'near'"
	) or last;
	$ranges++;
}
is($ranges, 8,
	'a database keeps its place in the line after a turn in which a central server hung'
);
query($node,
	"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%far%' AND pid <> pg_backend_pid()"
);
$node->stop('fast');
done_testing();
