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
	my $epoch = strftime('%Y-%m-%dT%H:%M:%SZ', gmtime(time - $years * $year));
	return "epoch=$epoch datacenter=5 worker=5 sequence=$sequence";
}

# Keys of the new one are above those of the old, until a year has passed; those of the
# third one are above them if they were made in the next ten days, and those of the fourth
# one if they were made in the next five seconds.
my %layouts = (
	old   => layout(1,             13),
	new   => layout(3,             12),
	close => layout(1 + 10 / 365,  13),
	near  => layout(1 + 5 / $year, 13));

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
	my ($name, $server) = @_;
	my $key = next_key($server // $node);
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

#---- The clock runs ahead ----

set_skew($node, 30 * $day);
start_and_open($node);
query($node, 'CREATE TABLE marks ()');
$highest = next_key($node);
start_with('old', 2, 10 * $day);
next_key($node);
start_with('close', 1, 0);
is_refused('a layout whose keys are above the clock, and below the last keys',
	$never);
nothing_waits('a layout that is refused');
start_with('old', 1, 0);
is_refused('the clock ran ahead: no keys for a month', $waits);
$node->backup('copy');
my $standby = server_from_backup(
	'standby', $node, 'copy',
	settings('new', 1),
	has_streaming => 1);
$standby->start;

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
	wait_for($node,
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid keeper' AND pid <> $pid"
	);
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
query($node, 'SELECT snowid_accept_layout()')
  if status($node, 'is_open') eq 'f';
server_is_open($node);
key_is_above('consent given: keys are above all old ones');
nothing_waits('consent given');

sub standby_reads
{
	my ($name) = @_;
	$node->wait_for_catchup($standby);
	is(sql_error($standby, "SELECT snowid_timestamp($highest)"),
		'', "$name: a standby reads the new keys");
	return;
}

standby_reads('consent given');
my $pid = keeper_pid($node);
query($node, "SELECT pg_terminate_backend($pid)");
wait_for($node, <<~EOF);
	SELECT is_open OR reason ~ 'layout|would lead' FROM snowid_status(), pg_stat_activity
	WHERE backend_type = 'snowid keeper' AND pid <> $pid
	EOF
key_is_above('a new keeper does not ask again');
start_with('new', 1, 0);
key_is_above('a start does not ask again');
$standby->restart;
standby_reads('started again');

# The clock runs ahead under the new layout.
start_with('new', 1, 30 * $day);
key_is_above('the clock runs ahead again');
start_with('new', 1, 0);
is_refused('a clock that is set right: no consent is needed', $waits);
start_with('new', 2, 0);
is(sql_error($node, 'SELECT snowid_next()'),
	'', 'another worker ID does not ask again');

$node->wait_for_catchup($standby);
configure($standby, settings('new', 2));
$standby->restart;
$standby->promote;
poll($standby, q(is_open OR reason ~ 'layout|would lead'));
is(sql_error($standby, 'SELECT snowid_next()'),
	'', 'a promoted standby does not ask again');
$standby->stop;

#---- Back to the old layout ----

start_with('old', 1, 10 * $day);
is_refused('no way back while its keys would be below', $never);
start_with('old', 1, 2 * $year);
is_refused('when they are above, consent is asked for', $asks);
query($node, 'SELECT snowid_accept_layout()');
server_is_open($node);
key_is_above(
	'consent given to the way back: keys are above those of both layouts');
is(query($node, <<~EOF), 1, 'no ceiling of the time before counts again');
	SELECT count(*)
	FROM pg_replication_origin_status layout, pg_replication_origin_status ceiling
	WHERE layout.local_id = 65534 AND ceiling.local_id BETWEEN 65530 AND 65533
		AND ceiling.remote_lsn <> '0/0'
		AND (ceiling.remote_lsn >= '80000000/0') = (layout.remote_lsn >= '80000000/0')
	EOF
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
$node->stop;

#---- Functions that read keys by the layout ----

my $layout_1 =
  'epoch=2020-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my $lower =
  'epoch=2021-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my $higher =
  'epoch=2010-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my @calls = (
	'snowid_decode(1)',              'snowid_timestamp(1)',
	'snowid_min(now())',             'snowid_max(now())',
	'snowid_encode(now(), 1, 1, 1)', 'snowid_bits(1)');

sub with_layout
{
	my ($layout, $more) = @_;
	return
	  "snowid.layout = '$layout'\n"
	  . ($more // 'snowid.worker_id = 1') . "\n";
}

# The errors of the functions, each called by itself
sub errors_of
{
	my ($node) = @_;
	return grep { $_ ne '' } map { sql_error($node, "SELECT $_") } @calls;
}

sub all_work
{
	my ($name, $node) = @_;
	is(join('', errors_of($node)), '', "$name: they work");
	return;
}

# They fail, and name both layouts.
sub none_works
{
	my ($name, $node, $ours, $theirs, $message) = @_;
	my $both =
	  "The settings make \"$ours\", and this server's last keys have \"$theirs\".";

	is( scalar(
			grep { /^55000: \Q$message\E\nDETAIL:  \Q$both\E/ }
			  errors_of($node)),
		6,
		"$name: they fail, with the reason");
	is( sql_error(
			$node, 'SELECT ' . join(', ', map { s/\)$/, '$theirs')/r } @calls)
		),
		'',
		"$name: by a layout that is given they work");
	return;
}

my $cannot  = 'snowid cannot use this layout';
my $changed = "snowid's layout was changed";

sub restart_with
{
	my ($node, $settings) = @_;
	configure($node, $settings);
	$node->restart;
	return;
}

sub closed_with
{
	my ($node, $reason) = @_;
	$node->poll_query_until('postgres',
		"SELECT NOT is_open AND reason ~ '$reason' FROM snowid_status()")
	  or die;
	return;
}

#---- A server that never made a key ----

$node =
  snowid_cluster('primary', with_layout($layout_1, ''),
	allows_streaming => 1);
$node->start;
create_extension($node);
closed_with($node, 'no worker ID');
all_work('no key was made yet', $node);
restart_with($node, with_layout($lower, ''));
closed_with($node, 'no worker ID');
all_work('no key was made yet, in another layout', $node);

#---- Its layout is refused ----

restart_with($node, with_layout($layout_1));
server_is_open($node);
all_work('open', $node);
my $key = $node->safe_psql('postgres', 'SELECT snowid_next()');
$node->backup('backup');

restart_with($node, with_layout($lower));
closed_with($node, $cannot);
none_works('refused', $node, $lower, $layout_1, $cannot);
is($node->safe_psql('postgres', 'SELECT errors FROM snowid_status()'),
	0, 'functions that fail do not count as errors of keys');

# one session, over the consent
restart_with($node, with_layout($higher));
closed_with($node, 'was changed');
none_works('waiting for consent', $node, $higher, $layout_1, $changed);
is( $node->safe_psql('postgres',
		<<~EOF), "refused\n\nt", 'a session sees the consent');
	CREATE FUNCTION read() RETURNS text LANGUAGE plpgsql AS \$\$
	BEGIN RETURN snowid_min('2023-01-01Z') = snowid_min('2023-01-01Z', '$higher');
	EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN 'refused'; END \$\$;
	SELECT read();
	SELECT snowid_accept_layout();
	DO \$\$ BEGIN
		WHILE NOT (SELECT is_open FROM snowid_status()) LOOP PERFORM pg_sleep(0.02); END LOOP;
	END \$\$;
	SELECT left(read(), 1);
	EOF
all_work('after the consent', $node);

#---- No keeper has judged it ----

foreach my $case (
	[ 'no worker ID', '', 'no worker ID' ],
	[
		'no worker process',
		"snowid.worker_id = 1\nmax_worker_processes = 0",
		'not ready'
	],
	[
		'the clock is before the epoch',
		'snowid.worker_id = 1',
		'before',
		'epoch=2240-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12'
	])
{
	my ($name, $settings, $reason, $epoch) = @$case;

	restart_with($node, with_layout($epoch // $layout_1, $settings));
	closed_with($node, $reason);
	none_works($name, $node, $epoch // $layout_1, $higher, $cannot);
	next if $epoch;
	restart_with($node, with_layout($higher, $settings));
	closed_with($node, $reason);
	all_work("$name, but the layout of the last keys", $node);
}

#---- On a standby, the primary's ----

restart_with($node, with_layout($higher));
server_is_open($node);
$node->backup('later');

sub standby
{
	my ($name, $layout) = @_;
	my $standby =
	  server_from_backup($name, $node, 'later', with_layout($layout),
		has_streaming => 1);
	$standby->start;
	closed_with($standby, 'recovery');
	$node->safe_psql('postgres', 'SELECT snowid_next()');
	$node->wait_for_catchup($standby);
	return $standby;
}
my $same = standby('same', $higher);
all_work('a standby', $same);
my $before = standby('before', $layout_1);
none_works('a standby with another layout',
	$before, $layout_1, $higher, $cannot);
is( $before->safe_psql(
		'postgres', "SELECT snowid_decode($key, '$layout_1') IS NOT NULL"),
	't',
	'a standby with another layout reads by the layout that it is given');

# the primary changes its layout, and standbys with the next one wait for it
my $third =
  'epoch=2000-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my $next = standby('next', $third);
none_works('a standby with the layout that comes next',
	$next, $third, $higher, $cannot);
restart_with($node, with_layout($third));
closed_with($node, 'was changed');
$node->safe_psql('postgres', 'SELECT snowid_accept_layout()');
server_is_open($node);
$node->safe_psql('postgres', 'SELECT snowid_next()');
$node->wait_for_catchup($_) foreach $next, $same;
all_work('when the primary has it, too', $next);
none_works('a standby with the former layout',
	$same, $higher, $third, $cannot);
$next->promote;
server_is_open($next);
all_work('promoted', $next);
$same->promote;
like(
	sql_error($same, 'SELECT snowid_next()'),
	qr/^55000: snowid cannot use this layout\n/,
	'promoted with the former layout, a standby makes no key below the last ones'
);

$_->stop foreach $next, $same, $before, $node;

done_testing();
