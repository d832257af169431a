# Rare faults: no descriptor is left, a signal of arithmetic, a data directory that is
# locked, a directory in place of the state file.  Each is reported, and passes.
use strict;
use warnings;

use Fcntl qw(:flock O_RDONLY O_DIRECTORY);
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidSession;
use SnowidTest;
use Test::More;

my $redis = SnowidRedis->start('redis');

#---- No descriptors ----

# The limit with which a process in its present state could open this many more.
sub limit_of
{
	my ($pid, $more) = @_;
	my $limit = -1;
	do { $more-- if !-l '/proc/' . $pid . '/fd/' . ++$limit }
	  while $more >= 0;
	return $limit;
}

my $named = hasty('named', "redis://name.hangs:$redis->{port}");
my $node  = claiming('numeric', $redis);
wait_for_claim($_) foreach $named, $node;

# Without a Redis there is no connection, and it is tried again and again.
sub fails_with
{
	my ($what, $server, $more, $error) = @_;
	my $log   = -s $server->logfile;
	my $pid   = process_pid($server, 'snowid registry');
	my $limit = 1024;

	# down to that of a process which only waits, and has the fewest
	wait_until(
		$what,
		sub {
			my $lower = limit_of($pid, $more);
			system_or_bail('prlimit', '--pid', $pid, "--nofile=$lower:")
			  if $lower < $limit;
			$limit = $lower if $lower < $limit;
			return slurp_file($server->logfile, $log) =~ $error
			  || status($server, 'registry_error') =~ $error;
		});
	pass($what);
	system_or_bail('prlimit', '--pid', $pid, '--nofile=1024:');
	error_is($server, 'Connection refused');
	return;
}

SKIP:
{
	skip 'there is no prlimit', 4 if system('prlimit >/dev/null 2>&1') != 0;
	$redis->stop;
	error_is($_, 'Connection refused') foreach $named, $node;
	fails_with('no descriptor for the pipe to a look-up',
		$named, 0, qr/could not create a pipe: Too many open files/);
	fails_with('none for the socket',
		$node, 0, qr/127\.0\.0\.1.*Too many open files/);
	fails_with('none to wait for the socket',
		$node, 1, qr/ERROR:  .*Too many open files/);

	my @limit = ('prlimit', '--pid', process_pid($named, 'snowid registry'));
	my $soft  = qx(@limit --nproc --noheadings --output SOFT) =~ s/\s//gr;
	system_or_bail(@limit, '--nproc=1:');
	error_is($named, 'could not fork: Resource temporarily unavailable');
	system_or_bail(@limit, "--nproc=$soft:");
	error_is($named, 'Connection refused');
	pass('no process for a look-up');
	$redis->run;
	answered($_) foreach $named, $node;
}

#---- A signal of arithmetic ----

# PostgreSQL makes it an error, wherever the process is: also where a name is looked
# up, which the shim lets hang.
my $log = -s $named->logfile;
my $pid = process_pid($named, 'snowid registry');
append_to_file("$named->{skew_file}.hangs", '');
settings($named, $short . "snowid.redis_timeout = '60s'\n");
$named->reload;
wait_until('the look-up', sub { qx(ps -o pid= --ppid $pid) });
kill 'FPE', $pid;
$named->wait_for_log(qr/floating-point exception/, $log);
wait_until('the end of the look-up', sub { !qx(ps -o pid= --ppid $pid) });
unlink "$named->{skew_file}.hangs";
answered($named);
pass('while a name is looked up');
$named->stop;

# It ends a process that only waits, and not one that asks Redis; no gate is closed by
# that: the successor finds it open, and continues.  Elsewhere it may come in malloc(),
# which the end of the process needs.
sub ends
{
	my ($process) = @_;
	my $id = process_pid($node, $process);
	wait_until(
		"the end of $process",
		sub {
			my $now = process_pid($node, $process);
			return $now ne '' if $now ne $id;
			eval { stop_process($node, $id); kill 'FPE', $id }; # dies when it is over
			kill 'CONT', $id;
			return 0;
		});
	return;
}

my $highest = next_key($node);
foreach my $process ('snowid registry', 'snowid keeper')
{
	ends($process);
	is(status($node, 'is_open'), 't', "$process ended: the gate stays open");
	cmp_ok(next_key($node), '>', $highest, "$process ended: keys continue");
	answered($node);
}

# A second request to Redis waits for its turn; and no longer than it may.
sub ask_at_once
{
	my ($timeout) = @_;

	settings($node, $short . "snowid.redis_timeout = '$timeout'\n");
	$node->reload;
	wait_for($node, "SELECT current_setting('snowid.redis_timeout')",
		$timeout);
	answered($node);    # so the process has it, too
	$redis->freeze;
	my @sessions = map { SnowidSession->new($node, 'postgres') } 1 .. 3;
	$_->ask('SELECT count(*) FROM snowid_claims()') foreach @sessions;
	return @sessions;
}

is(scalar(grep { $_->outcome =~ /ERROR/ } ask_at_once('500ms')),
	3, 'three ask at once: none for ever');
$redis->resume;
answered($node);
my @asking = ask_at_once('1min');
wait_for($node,
	"SELECT count(*) = 3 FROM pg_stat_activity WHERE query ~ '^SELECT count.* FROM snowid_claims' AND wait_event_type = 'Extension'"
);
$redis->resume;
my @said = map { $_->outcome } @asking;
is(scalar(grep { /^\d+$/ } @said),
	3, 'each of three waiting callers gets its answer')
  or diag(@said);
settings($node, $short);
$node->reload;
answered($node);

#---- The directory is locked, or a directory has the file's name ----

# While the keeper stands still, so that it does not make the directory meanwhile.
sub exchange
{
	my ($code) = @_;
	my $keeper = keeper_pid($node);

	stop_process($node, $keeper);
	$code->();
	kill 'CONT', $keeper;
	return;
}

my $dir = $node->data_dir . '/snowid';
$node->stop;
foreach my $server ('a server with a claim', 'a server with a number')
{
	sysopen(my $lock, $node->data_dir, O_RDONLY | O_DIRECTORY) or die "$!";
	flock($lock, LOCK_EX | LOCK_NB)                            or die "$!";
	$node->start;
	poll($node,
		"reason ~ 'A process of a former server still uses this data directory'"
	);
	like(
		sql_error($node, "SELECT snowid_next()"),
		qr/^(?:55000|58000|XX001): /,
		"$server: locked: no key");
	close($lock);
	server_is_open($node);
	pass("$server: the gate opens when the lock is gone");
	$node->stop;

	rename($dir, "$dir.good");
	append_to_file($dir, '');
	$node->start;
	poll($node,
		"reason ~ 'Could not open file \"snowid/lock\": Not a directory'");
	pass("$server: a file in place of the directory");
	exchange(sub { unlink $dir; symlink "$dir.none", $dir; });
	poll($node, "reason ~ 'Could not (create directory|open file) \"snowid'");
	pass("$server: a link to nowhere in place of it");
	exchange(sub { unlink $dir; rename("$dir.good", $dir); });
	server_is_open($node);
	$node->stop;
	configure($node, "snowid.worker_id = 9\nsnowid.max_lead = 10ms");
}
done_testing();
