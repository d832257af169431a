# While the machine can have no more processes, the postmaster tries once a second to start
# those of snowid again, and not all the time; they are there when it can.  Callers and
# status say that the keeper is not running.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = snowid_cluster('forks', 'snowid.worker_id = 1');
start_and_open($node);
query($node,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'), ('b')"
);
query($node, "SELECT snowid_number('a')");
my $keeper   = keeper_pid($node);
my $segments = process_pid($node, 'snowid segments');

# these are there before
my ($asks, $calls) = map { SnowidSession->new($node, 'postgres') } 1 .. 2;
my $log = -s $node->logfile;
my $at  = time;
put_beside($node, 'forks', '');
kill 'TERM', $keeper, $segments;
wait_until('a fork that fails',
	sub { slurp_file($node->logfile, $log) =~ /could not fork/ });
wait_until(
	'a status without a keeper',
	sub {
		$asks->query('SELECT is_open, reason FROM snowid_status()') eq
		  'f|snowid is shutting down or starting again: The "snowid keeper" process is not running; see the server log.';
	});
pass('the status says that the keeper is not running');
like(
	eval { $calls->query('SELECT snowid_next()') } // $@,
	qr/^ERROR:  55000: snowid is shutting down or starting again\n/,
	'a call does not say that the server is out of processes or in recovery');
sleep 5;
unlink "$node->{skew_file}.forks";
my $seconds = time - $at;
my $failed  = () = slurp_file($node->logfile, $log) =~ /could not fork/g;
note "$failed times in $seconds s";

# Its successor
cmp_ok(
	$failed, '<=',
	2 * ($seconds + 2),
	'the postmaster tries to start each process once a second');
server_is_open($node);
isnt(keeper_pid($node), $keeper, 'another keeper is there');
is(sql_error($node, "SELECT snowid_number('b')"),
	'', 'numbers of a segment are reserved again');
is(sql_error($node, 'SELECT snowid_next()'), '', 'keys are made again');

$node->stop;

done_testing();
