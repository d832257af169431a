# Another layout than that of the last keys.  A consent to it is given once, also if the
# clock once ran far ahead under the old one: neither a new keeper nor a start asks again,
# and standbys read the new keys.  Neither a crash between its steps, nor a change back,
# which needs a consent of its own, repeats a key of the old layout.
#
# The functions that read keys by this server's layout fail while that layout is not that
# of its last keys: if it is refused, on a standby, before the gate was ever open, and if
# there is no keeper at all.
use strict;
use warnings;

use POSIX qw(strftime);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidTest;
use Test::More;

my ($day, $year) = (86400, 365 * 86400);

sub layout
{
	my ($years, $sequence) = @_;
	my $epoch =
	  strftime('%Y-%m-%dT%H:%M:%S.000Z', gmtime(time - $years * $year));
	return "epoch=$epoch datacenter=5 worker=5 sequence=$sequence";
}

# Keys of the new one are above those of the old, until a year has passed; those of the
# third one are above them if they were made in the next ten days, and those of the fourth
# one if they were made in the next five seconds.
my %layouts = (
	old    => layout(1,             13),
	new    => layout(3,             12),
	close  => layout(1 + 10 / 365,  13),
	near   => layout(1 + 5 / $year, 13),
	future => layout(-9,            12));

sub settings
{
	my ($layout, $worker_id) = @_;
	return
	  "snowid.worker_id = $worker_id\nsnowid.max_lead = 100ms\nsnowid.max_wait = 10s\nsnowid.layout = '$layouts{$layout}'";
}

my $node =
  snowid_cluster('consent', settings('old', 1), allows_streaming => 1);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
let_hold($node);
my $highest = 0;

# Starts with a layout and the clock this many seconds off, until it is decided
# whether keys may be made.
sub start_with
{
	my ($layout, $worker_id, $skew) = @_;
	configure($node, settings($layout, $worker_id));
	$node->stop;
	set_skew($node, $skew);
	$node->start;
	poll($node, q(is_open OR reason ~ 'layout|would lead'));
	return;
}

sub key_is_above
{
	my ($name) = @_;
	my $key = next_key($node);
	cmp_ok($key, '>', $highest, $name);
	$highest = $key;
	return;
}

sub is_refused
{
	my ($name, $error) = @_;
	like(sql_error($node, 'SELECT snowid_next()'), $error, $name);
	return;
}

my $asks =
  qr/^55000: snowid's layout was changed\nDETAIL:  .*\nHINT:  Put the old layout back, or call snowid_accept_layout\(\) if the change is meant\./;
my $never =
  qr/^55000: snowid cannot use this layout\nDETAIL:  .* New keys would not be above the old ones\.\nHINT:  Correct snowid.layout and restart the server\./;
my $waits = qr/^58000: the next key would lead the clock by/;

# An administrator can consent to nothing.
sub nothing_waits
{
	my ($name) = @_;
	like(
		sql_error($node, 'SELECT snowid_accept_layout()'),
		qr/^55000: there is no layout change to accept\nHINT:  If keys are refused, snowid_status\(\) has another reason/,
		"$name: there is nothing to consent to, and the hint leads to the reason"
	);
	return;
}

#---- Functions that read keys by the layout ----

my @calls = (
	'snowid_decode(1)',              'snowid_timestamp(1)',
	'snowid_min(now())',             'snowid_max(now())',
	'snowid_encode(now(), 1, 1, 1)', 'snowid_bits(1)');

# The errors of the functions, each called by itself
sub errors_of
{
	my ($server) = @_;
	return grep { $_ ne '' } map { sql_error($server, "SELECT $_") } @calls;
}

sub all_work
{
	my ($name, $server) = @_;
	is(join('', errors_of($server // $node)),
		'', "$name: functions read keys");
	return;
}

my $cannot  = 'snowid cannot use this layout';
my $changed = "snowid's layout was changed";

# They fail, and name both layouts.
sub none_works
{
	my ($name, $ours, $theirs, $message, $server) = @_;
	my $both =
	  "The settings make \"$layouts{$ours}\", and this server's last keys have \"$layouts{$theirs}\".";

	$server //= $node;
	my $errors = status($server, 'errors');
	is( scalar(
			grep { /^55000: \Q$message\E\nDETAIL:  \Q$both\E/ }
			  errors_of($server)),
		6,
		"$name: no function reads keys, and each says why");
	is( sql_error(
			$server,
			'SELECT '
			  . join(', ', map { s/\)$/, '$layouts{$theirs}')/r } @calls)),
		'',
		"$name: functions read keys by a layout that is given");
	is(status($server, 'errors'),
		$errors, "$name: they do not count as errors of keys");
	return;
}

#---- The clock runs ahead ----

configure($node, settings('new', -1));
$node->start;
create_extension($node);
poll($node, q(reason ~ 'no worker ID'));
all_work('no key was made yet');
start_with('old', 1, 30 * $day);
all_work('open');
query($node, 'CREATE TABLE marks ()');
$highest = next_key($node);
start_with('old', 2, 10 * $day);
next_key($node);
start_with('close', 1, 0);
is_refused('a layout whose keys are above the clock, and below the last keys',
	$never);
none_works('a layout that is refused', 'close', 'old', $cannot);
nothing_waits('a layout that is refused');
start_with('old', 1, 0);
is_refused('the clock ran ahead: no keys for a month', $waits);
$node->backup('copy');
my $standby = server_from_backup(
	'standby', $node, 'copy',
	settings('new', 1),
	has_streaming => 1);
$standby->start;
poll($standby, q(reason ~ 'recovery'));
none_works('a standby with the layout that comes next',
	'new', 'old', $cannot, $standby);

#---- A crash within the consent ----

# The keeper dies at a step of it, and what it wrote is in the WAL.
sub crash_at
{
	my (@step) = @_;
	start_with('new', 1, 0);
	is_refused('the layout is changed', $asks);
	hold_keeper($node, @step);
	query($node, 'SELECT snowid_accept_layout()');
	my $pid = held_keeper($node);
	query($node,
		'SET synchronous_commit = on; INSERT INTO marks DEFAULT VALUES');
	kill 'KILL', $pid;
	wait_for_successor($node, $pid);
	return;
}

# The old layout comes back, with each pair an hour before its last keys.
sub nothing_repeats
{
	my ($name) = @_;
	foreach my $pair ([ 1, 30 * $day ], [ 2, 10 * $day ])
	{
		my ($id, $skew) = @$pair;
		start_with('old', $id, $skew - 3600);
		is_refused("$name: no key of worker ID $id comes again", $waits);
	}
	return;
}

crash_at('replorigin_advance');
nothing_repeats('a crash before the new ceiling');
crash_at('replorigin_advance', 'replorigin_advance');
nothing_repeats('a crash between the new ceiling and the new layout');

# By the old layout it would be one of worker ID 0, half a year ahead.
start_with('old', 0, 31 * $day);
is(sql_error($node, 'SELECT snowid_next()'),
	'', 'a ceiling whose layout was not written says nothing');
crash_at('XLogFlush', 'replorigin_advance');
start_with('old', 1, 0);
is_refused('a crash behind the new layout: the old one is refused', $never);

#---- The same number, whose last keys were far ahead ----

# The state file still has the ceiling that the number had in the old layout.
{
	my $other = $node;
	$node = snowid_cluster('same_number', settings('old', 1));
	$node->append_conf('postgresql.conf', 'restart_after_crash = on');
	let_hold($node);
	set_skew($node, 30 * $day);
	start_and_open($node);
	query($node, 'CREATE TABLE marks ()');
	next_key($node);
	crash_at('XLogFlush', 'replorigin_advance');
	server_is_open($node);
	is( query(
			$node,
			"SELECT snowid_timestamp(snowid_next()) < clock_timestamp() + interval '1 day'"
		),
		't',
		'a crash behind the new layout: keys of the same number begin at the clock'
	);
	$node->stop;
	$node = $other;
}

#---- With consent ----

start_with('new', 1, 0);
key_is_above('consent given: keys are above all old ones');
nothing_waits('consent given');

$node->wait_for_catchup($standby);
all_work('consent given, on a standby', $standby);
my $pid = keeper_pid($node);
query($node, "SELECT pg_terminate_backend($pid)");
wait_for_successor($node, $pid);
poll($node, q(is_open OR reason ~ 'layout|would lead'));
key_is_above('a new keeper does not ask again');
start_with('new', 1, 0);
key_is_above('a start does not ask again');
$node->wait_for_catchup($standby);
$standby->restart;
all_work('a standby that is started again', $standby);

configure($standby, settings('old', 2));
$standby->restart;
none_works('a standby with the former layout',
	'old', 'new', $cannot, $standby);
$standby->promote;
poll($standby, q(reason ~ 'layout'));
like(
	sql_error($standby, 'SELECT snowid_next()'),
	$never,
	'promoted with the former layout, a standby makes no key below the last ones'
);
configure($standby, settings('new', 2));
$standby->restart;
server_is_open($standby);
is(sql_error($standby, 'SELECT snowid_next()'),
	'', 'a promoted standby does not ask again');
all_work('promoted', $standby);
$standby->stop;

#---- Back to the old layout ----

start_with('old', 1, 10 * $day);
is_refused('no way back while its keys would be below', $never);
start_with('old', 1, 2 * $year);
is_refused('when they are above, consent is asked for', $asks);
none_works('waiting for consent', 'old', 'new', $changed);
is(query($node, <<~EOF), "refused\n\nt", 'a session sees the consent');
	CREATE FUNCTION read() RETURNS text LANGUAGE plpgsql AS \$\$
	BEGIN RETURN snowid_min(now()) = snowid_min(now(), '$layouts{old}');
	EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN 'refused'; END \$\$;
	SELECT read();
	SELECT snowid_accept_layout();
	DO \$\$ BEGIN
		WHILE NOT (SELECT is_open FROM snowid_status()) LOOP PERFORM pg_sleep(0.02); END LOOP;
	END \$\$;
	SELECT left(read(), 1);
	EOF
all_work('after the consent');
key_is_above(
	'consent given to the way back: keys are above those of both layouts');
is(query($node, <<~EOF), 1, 'no ceiling of the time before counts again');
	SELECT count(*)
	FROM pg_replication_origin_status layout, pg_replication_origin_status ceiling
	WHERE layout.local_id = 65534 AND ceiling.local_id BETWEEN 65530 AND 65533
		AND ceiling.remote_lsn <> '0/0'
		AND (ceiling.remote_lsn >= '80000000/0') = (layout.remote_lsn >= '80000000/0')
	EOF

#---- A layout that no keeper has judged ----

foreach my $case (
	[ 'no worker ID',      'snowid.worker_id = -1', 'no worker ID', 'new' ],
	[ 'no worker process', 'max_worker_processes = 0', 'not ready', 'new' ],
	[ 'the clock is before the epoch', '',             'before',    'future' ]
  )
{
	my ($name, $settings, $reason, $layout) = @$case;

	configure($node, settings($layout, 1) . "\n$settings");
	$node->restart;
	poll($node, "NOT is_open AND reason ~ '$reason'");
	none_works($name, $layout, 'old', $cannot);
	next if $layout eq 'future';
	configure($node, settings('old', 1) . "\n$settings");
	$node->restart;
	poll($node, "NOT is_open AND reason ~ '$reason'");
	all_work("$name, but the layout of the last keys");
}
$node->stop;

#---- A clock that jumps within a turn of the keeper ----

# All facts are by one reading of the clock.  There is a consent to a layout, whose keys
# would be below the last ones since the clock was set back; and after the keeper has read
# it, the clock is for a moment where they would be above.
my $made = time * 1000;

$node = snowid_cluster('one_reading', settings('old', 1));
let_hold($node);
start_and_open($node);
next_key($node);
configure($node, settings('near', 1) =~ s/max_lead = 100ms/max_lead = 10s/r);
$node->restart;
poll($node, q(is_open OR reason ~ 'layout'));
is_refused(
	'a layout whose keys are below those that may have been made since the last one that is known',
	$never);
configure($node, settings('close', 1) =~ s/max_lead = 100ms/max_lead = 10s/r);
$node->stop;
stop_clock($node, $made + 60_000);
$node->start;
poll($node, q(reason ~ 'layout was changed'));
query($node, 'SELECT snowid_accept_layout()');
poll($node, q(reason ~ 'can be used when the clock has passed'));
my $behind = $made - 11 * $day * 1000;
set_clock_back($node, $behind);
poll($node, q(reason ~ 'cannot use this layout'));
time_passes($node, $behind + 30_000, 30);
keeper_turns($node);
hold_keeper($node, 'durable_rename');
stop_clock($node, $behind + 25_000);
held_keeper($node);
stop_clock($node, $made + 20 * $day * 1000);
let_go($node);
keeper_turns($node);
stop_clock($node, $behind + 25_000);
is_refused('a layout is not judged by a clock that jumps after it was read',
	$never);
$node->stop;

#---- A change that is undone ----

# Meanwhile the number is another one, and the clock is wrong: how far keys were made with
# the former one is read from the WAL, and not guessed by the clock.
$node = snowid_cluster('undone', settings('old', 1));
start_and_open($node);
$highest = next_key($node);
start_with('new', 2, 30 * $day);
is_refused('a change that will be undone', $asks);
start_with('old', 1, 0);
poll($node, q(is_open OR reason ~ 'would lead'));
key_is_above('a change is undone: keys continue');

# The claim of another worker ID cannot be written at first.
my $directory = $node->data_dir . '/snowid';
start_with('new', 2, 0);
chmod 0500, $directory or die "$!";
query($node, 'SELECT snowid_accept_layout()');
poll($node, q(reason ~ 'state file'));
chmod 0700, $directory or die "$!";
server_is_open($node);
pass('a consent is not used up by a failure before the first key');
$node->stop;

done_testing();
