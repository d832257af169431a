# The state file: if it cannot be read, or another server holds the directory,
# the gate stays closed with the reason, and nothing is overwritten.  A copy of the
# directory is noticed.
use strict;
use warnings;

use Fcntl qw(:flock O_RDONLY O_DIRECTORY);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidTest;
use Test::More;

my $settings =
  "snowid.worker_id = 1\nsnowid.layout = 'epoch=2024-01-01T00:00:00Z datacenter=5 worker=5 sequence=12'";
my $node = snowid_cluster('statefile', $settings);
my $copy;
my $file = $node->data_dir . '/snowid/state';
let_hold($node);
start_and_open($node);

my $highest = next_key($node);

# The gate opens by itself, and keys continue above all before.
sub keys_go_on
{
	my ($name) = @_;
	server_is_open($node);
	my $key = next_key($node);
	cmp_ok($key, '>', $highest, "$name: keys continue");
	$highest = $key;
	return;
}

sub write_content
{
	my ($content, $path) = @_;
	replace_file($path // $file, $content);
	return;
}

# A new keeper's reaction to the file; the gate is closed, so that the one before
# does not write it.
sub verdict
{
	my $pid = keeper_pid($node);
	query($node, "SELECT pg_terminate_backend($pid)");
	wait_for_successor($node, $pid);
	poll($node, q(is_open OR reason ~ '(state file|layout)'));
	return status($node, q(coalesce(reason, 'open')));
}

# A failure must not leave what the next run cannot remove.
END
{
	local $?;
	chmod 0700, map { $_->data_dir, $_->data_dir . '/snowid' }
	  grep { $_ } $node, $copy;
}

#---- The file ----

sub content
{
	return -f $file && -r $file && !-l $file ? slurp_file($file) : '';
}

my $good = slurp_file($file);
is(length $good, 604, 'the file is there');

# Damages the file, and mends it.
sub is_refused
{
	my ($name, $sqlstate, $detail, $damage, $mend) = @_;

	$node->stop;
	$damage->();
	my $damaged = content();
	$node->start;
	poll($node, "is_open OR reason ~ 'state file'");
	like(
		status($node, 'reason'),
		qr/^snowid cannot use its state file: $detail/,
		"$name: the status says so");
	like(
		sql_error($node, 'SELECT snowid_next()'),
		qr/^$sqlstate: snowid cannot use its state file\nDETAIL:  $detail\nHINT:  See doc\/troubleshooting\.md in snowid's manual; /,
		"$name: the error says so");
	ok(content() eq $damaged, "$name: nothing is overwritten");
	$mend->();
	keys_go_on("$name, mended");
	return;
}

sub put_back { return write_content($good) }

is_refused(
	'not readable', '55000',
	qr/Could not open file "snowid\/state": Permission denied\./,
	sub { chmod 0,    $file },
	sub { chmod 0600, $file });
is_refused(
	'a directory in its place',
	'55000',
	qr/Could not read file "snowid\/state": Is a directory\./,
	sub { unlink $file; mkdir $file },
	sub { rmdir $file;  put_back() });
is_refused(
	'a disk error',
	'55000',
	qr/Could not read file "snowid\/state": Input\/output error\./,
	sub { unlink $file; symlink '/proc/self/mem', $file },
	sub { unlink $file; put_back() });
is_refused(
	'truncated', 'XX001',
	qr/File "snowid\/state" is damaged\./,
	sub { write_content(substr($good, 0, 35)) }, \&put_back);
is_refused(
	'another version',
	'XX001',
	qr/File "snowid\/state" has version 2, and this snowid reads version 1\./,
	sub {
		write_content(
			substr($good, 0, 4) . pack('L', 2) . substr($good, 8) . 'more');
	},
	\&put_back);

# A flipped bit in a byte.
my @accepted;
$node->stop;
write_content('');
$node->start;
poll($node, "reason ~ 'state file'");
foreach my $byte (0 .. 11, map { 12 + 16 * $_ } 0 .. 36)
{
	my $flipped = $good;
	substr($flipped, $byte, 1) ^= chr(1 << int(rand(8)));
	write_content($flipped);
	my $fault =
	  $byte >= 4 && $byte < 8 ? qr/has version \d+,/ : qr/is damaged/;
	push @accepted, $byte
	  unless verdict() =~
	  /^snowid cannot use its state file: File "snowid\/state" $fault/;
	push @accepted, $byte unless slurp_file($file) eq $flipped;
}
is("@accepted", '', 'a flipped bit is noticed, and nothing is overwritten');
put_back();
keys_go_on('mended');

$node->stop;
unlink $file;
chmod 0500, $node->data_dir . '/snowid';
$node->start;
poll($node, "reason ~ 'file'");
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: snowid cannot use its state file\nDETAIL:  Could not create file "snowid\/state.tmp": Permission denied\./,
	'a file that cannot be written: the error says so');
chmod 0700, $node->data_dir . '/snowid';
keys_go_on('mended');
like(
	slurp_file($file),
	qr/^\Q${\ substr($good, 0, 32)}\E.{572}$/s,
	'a directory that can be written again: the file is written');

$node->stop;
unlink $file;
symlink '/dev/full', "$file.tmp" or die "$!";

# so that a write that fails does not remove the link
chmod 0500, $node->data_dir . '/snowid';
my $before = -s $node->logfile;
$node->start;
$node->wait_for_log(
	qr/Could not write file "snowid\/state": No space left on device/,
	$before);
ok(!-e $file, 'a full disk leaves no half a file');
chmod 0700, $node->data_dir . '/snowid';
keys_go_on('keys continue when there is space again');
$good = slurp_file($file);
is(length $good, 604, 'the file is written when there is space again');

#---- Another server on the directory ----

open(my $lock, '<', $node->data_dir . '/snowid/lock') or die "$!";
ok(!flock($lock, LOCK_EX | LOCK_NB), 'a running server holds the lock');
$node->stop;
$good = slurp_file($file);
ok(flock($lock, LOCK_EX | LOCK_NB), 'a stopped one does not');
$node->start;
poll($node, "reason ~ 'file'");
my $locked =
  qr/Another server, perhaps in another container, uses this data directory: it has locked "snowid\/lock"\./;
like(status($node, 'reason'),
	$locked, 'while another process holds it the status says so');
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: snowid cannot use its state file\nDETAIL:  $locked\n/,
	'while another process holds it the error says so');
ok(slurp_file($file) eq $good, 'nothing is overwritten');
my $keeper = keeper_pid($node);

# How many of its descriptors are of this file.
sub descriptors
{
	my ($name) = @_;
	return scalar grep { /\/snowid\/\Q$name\E/ }
	  map { readlink // () } glob("/proc/$keeper/fd/*");
}
query($node, 'SELECT pg_sleep(1)');
cmp_ok(descriptors('lock'), '<', 2,
	'a keeper that tries again leaves no descriptor behind');
close($lock);
keys_go_on('when it is free');
wait_until('the state file is closed', sub { descriptors('state') == 0 });
pass('a keeper that has read and written its state file leaves none open');

# A keeper that leaves, before it starts its successor.
hold_keeper($node, 'RegisterDynamicBackgroundWorker', 'replorigin_advance');
query($node, "SELECT pg_terminate_backend($keeper)");
held_keeper($node);
sysopen(my $directory, $node->data_dir, O_RDONLY | O_DIRECTORY) or die "$!";
open($lock, '<', $node->data_dir . '/snowid/lock')              or die "$!";
ok(flock($_, LOCK_EX | LOCK_NB),
	'a keeper that leaves lets go of its locks first')
  foreach $lock, $directory;
close($_) foreach $lock, $directory;
let_go($node);
keys_go_on('after a keeper that left');

# Its end takes nothing from the successor, which callers find when they wait for a grant.
hold_keeper($node, 'proc_exit');
$keeper = keeper_pid($node);
query($node, "SELECT pg_terminate_backend($keeper)");
held_keeper($node);
wait_until(
	'a successor',
	sub {
		query($node,
			"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowid keeper' AND pid <> $keeper"
		) == 1;
	});
keys_go_on('while a keeper leaves');
let_go($node);
wait_until('its end', sub { !kill 0, $keeper });
query($node, 'SELECT pg_sleep(5)');
server_is_open($node);
pass('the successor of a keeper that left is known');

# After a crash at that moment the postmaster starts both of them.
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->reload;
hold_keeper($node, 'proc_exit');
query($node, 'SELECT pg_terminate_backend(' . keeper_pid($node) . ')');
kill 'KILL', held_keeper($node);
$node->poll_query_until('postgres',
	'SELECT pg_postmaster_start_time() IS NOT NULL');
keys_go_on('after a keeper that crashed when it had left');
keeper_turns($node);
is( query(
		$node,
		q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowid keeper')
	),
	1,
	'one of two keepers that start at once ends');

#---- The directory is removed while the server runs ----

unlink glob($node->data_dir . '/snowid/*');
rmdir $node->data_dir . '/snowid' or die "$!";
configure($node, $settings =~ s{worker_id = 1}{worker_id = 2}r);
chmod 0500, $node->data_dir;
$node->reload;
poll($node,
	"NOT is_open AND reason ~ 'Could not create directory \"snowid\": Permission denied'"
);
pass('a directory that was removed and cannot come again: no key');
chmod 0700, $node->data_dir;
wait_for_worker_id($node, 2);
is(-s $file, 604, 'a directory that was removed comes again with the file');
open($lock, '<', $node->data_dir . '/snowid/lock') or die "$!";
ok(!flock($lock, LOCK_EX | LOCK_NB), 'its lock is held again');
close($lock);
configure($node, $settings);
$node->reload;
wait_for_worker_id($node, 1);
keys_go_on('back with the former worker ID');

#---- A copy ----

my $warning = qr/WARNING:  this data directory is a copy, or was restored\n/;
$node->stop;
$copy = PostgreSQL::Test::Cluster->new('copy');
mkdir $copy->basedir;
system_or_bail('cp', '-a', $node->data_dir, $copy->data_dir);
$copy->append_conf('postgresql.conf', 'port = ' . $copy->port);
give_clock($copy);
configure($copy, '');
$copy->start;
poll($copy, "reason = 'snowid has no worker ID'");
configure($copy, $settings);
$copy->restart;
server_is_open($copy);
is( () = slurp_file($copy->logfile) =~ /$warning/g,
	1,
	'a copy of the directory is noticed with its first number, and logged once'
);
ok(slurp_file($copy->data_dir . '/snowid/state') ne $good,
	'its file is its own');
$copy->restart;
server_is_open($copy);
is(() = slurp_file($copy->logfile) =~ /$warning/g,
	1, 'a copy is a copy no longer after its next start');

# A snapshot of a file system has the same inodes and times of birth.
my ($ext4, $xfs) = (0xEF53, 0x58465342);
foreach my $volume (
	[ $ext4, 7, 1, 'in another file system' ],
	[ $xfs,  8, 1, 'in an XFS' ],
	[ $xfs,  9, 0, 'in an XFS on another device, as far as it tells' ])
{
	my ($type, $id, $times, $where) = @$volume;
	$copy->stop;
	put_beside($copy, 'volume', "$type $id");
	my $log = -s $copy->logfile;
	$copy->start;
	server_is_open($copy);
	is(() = slurp_file($copy->logfile, $log) =~ /$warning/g,
		$times, "a directory $where: how often it is called a copy");
}

# Logged once, also if the file cannot be written.
$copy->stop;
write_content($good, $copy->data_dir . '/snowid/state');
chmod 0500, $copy->data_dir . '/snowid';
my $log = -s $copy->logfile;
$copy->start;
poll($copy, "reason ~ 'file'");
query($copy, 'SELECT pg_sleep(2.2)');
poll($copy, "reason ~ 'state.tmp'");
pass('a copy whose file cannot be written');
is(() = slurp_file($copy->logfile, $log) =~ /$warning/g,
	1, 'is noticed, and logged once');
chmod 0700, $copy->data_dir . '/snowid';
server_is_open($copy);
$copy->stop;
unlike(slurp_file($node->logfile),
	qr/$warning/, 'the original is never called a copy');
done_testing();
