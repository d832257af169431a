# A keeper that does nothing (stopped, or waiting for a disk that hangs) does not
# look healthy: status and errors say since when nothing was reserved, and by
# which process; and all of it is over when the keeper continues.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node =
  snowid_cluster('stuck', "snowid.worker_id = 1\nsnowid.max_wait = 200ms");
$node->append_conf('postgresql.conf', 'fsync = on');
start_and_open($node);
my $worker = keeper_pid($node);
END { kill 'CONT', $worker if $worker; }

# Keys are made until there are none.
sub error_of_caller
{
	my $error = '';
	$error = sql_error($node, 'SELECT snowid_next()') until $error;
	return $error;
}

my $stuck =
  qr/The "snowid keeper" process, PID $worker, is busy or hangs: it has reserved nothing since (.+)\.$/m;

sub is_told
{
	my ($what, $before) = @_;
	my $error = error_of_caller();

	like(
		$error,
		qr/^55000: snowid could not reserve more keys\nDETAIL:  $stuck/,
		"$what: callers learn who and since when");
	poll($node, 'NOT is_open');
	my ($reason, $read_at) =
	  split /\|/, status($node, 'reason, clock_timestamp()');
	like(
		$reason,
		qr/^snowid could not reserve more keys: $stuck$/,
		"$what: the status names the process and since when it is stuck");
	my ($since) = $reason =~ $stuck;
	is( query(
			$node,
			"SELECT '$since'::timestamptz BETWEEN '$before'::timestamptz - interval '2 s' AND '$read_at'::timestamptz - interval '2 s'"
		),
		't',
		"$what: the time is that at which it stopped");
	return;
}

sub is_over
{
	my ($what) = @_;
	poll($node, 'is_open AND reason IS NULL');
	is(sql_error($node, 'SELECT snowid_next()'),
		'', "$what: keys continue when it does");
	return;
}

my $before =
  query($node, 'SELECT snowid_next(); SELECT clock_timestamp()') =~
  s/^.*\n//r;
stop_process($node, $worker);
is_told('a stopped worker', $before);
kill 'CONT', $worker;
is_over('a stopped worker');

query($node, 'SELECT snowid_next()');
$before = query($node, 'SELECT clock_timestamp()');
hold_syncs($node, 1);
is_told('a disk that hangs', $before);
hold_syncs($node, 0);
is_over('a disk that hangs');

# The ceiling of a server where nobody makes keys is past, too.
set_skew($node, 1800);
poll($node, 'ceiling < clock_timestamp()');
is(query($node, 'SELECT is_open, reason FROM snowid_status()'),
	't|', 'a keeper that has nothing to do is not stuck');
$node->stop;
done_testing();
