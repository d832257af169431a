# A pair that is new to this server waits for max_lead, by the clock and the settings as
# they are: one that is corrected before the gate was opened with it has no effect
# afterwards, and no step of the clock shortens the wait.
#
# A number of the settings is a claim: if it returns to a server, its keys begin above all
# that other servers may have made with it meanwhile, and above the server's own, also if
# the position with its ceiling has vanished.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

my $hour = 3600;

sub start
{
	my ($name, $skew, $settings) = @_;
	my $node = snowid_cluster($name, $settings);

	# a wrong clock stands, so that what waits for it does so until it is set right
	stop_clock($node, (time + $skew) * 1000) if $skew;
	$node->start;
	create_extension($node);
	return $node;
}

sub settings
{
	my ($node, $settings) = @_;
	configure($node, $settings);
	$node->reload;
	return;
}

my $waits =
  "NOT is_open AND reason ~ 'can be used when the clock has passed'";

# When the gate opens by its reason, in s since 1970; and from now, by its clock.
my $opens = q(substring(reason FROM 'has passed (.*)\.$')::timestamptz);

sub pause
{
	my ($seconds) = @_;
	my $until = time + $seconds;
	usleep(100_000) while time < $until;
	return;
}

sub opens_at { return status($_[0], "extract(epoch FROM $opens)"); }

sub opens_in
{
	return status($_[0], "extract(epoch FROM $opens - clock_timestamp())");
}

#---- The clock was ahead at the first start ----

my $node =
  start('ahead', 3 * $hour, "snowid.worker_id = 1\nsnowid.max_lead = 3s");
my $log = -s $node->logfile;
poll($node, $waits);
set_skew($node, 0);
poll($node, 'is_open');
is( $node->safe_psql(
		'postgres',
		'SELECT snowid_timestamp(snowid_next()) < clock_timestamp() + interval \'4 s\''
	),
	't',
	'a clock that was 3 h ahead at the first start is set right: keys at once, at the right time'
);
$node->stop;

#---- max_lead is lowered while it waits ----

$node = start('lowered', 0, "snowid.worker_id = 1\nsnowid.max_lead = 1h");
poll($node, $waits);
cmp_ok(
	opens_in($node), '>',
	0.9 * $hour,
	'max_lead of 1 h: a new pair waits for an hour');
settings($node, "snowid.worker_id = 1\nsnowid.max_lead = 100ms");
poll($node, 'is_open');
is( $node->safe_psql(
		'postgres',
		'SELECT snowid_timestamp(snowid_next()) < clock_timestamp() + interval \'1 s\''
	),
	't',
	'the wait ends when max_lead is lowered');

#---- Steps while it waits ----

my $made = next_key($node);
settings($node, "snowid.worker_id = 2\nsnowid.max_lead = 10min");
poll($node, $waits);
is(status($node, 'last_key'),
	$made, 'the view has the last key while the gate is closed');
my $began = time;
set_skew($node, 50 * 60);
poll($node,
	"$waits AND substring(reason FROM 'has passed (.*)\\.\$')::timestamptz > clock_timestamp() + interval '5 min'"
);
cmp_ok(opens_in($node) + time - $began,
	'>', 595, 'a step ahead does not shorten the wait');
set_skew($node, 0);
poll($node,
	"$waits AND substring(reason FROM 'has passed (.*)\\.\$')::timestamptz < clock_timestamp() + interval '11 min'"
);
cmp_ok(opens_in($node) + time - $began,
	'>', 595, 'a step ahead and back does not shorten the wait');
set_skew($node, -2 * $hour);
poll($node,
	"$waits AND substring(reason FROM 'has passed (.*)\\.\$')::timestamptz < clock_timestamp() + interval '11 min'"
);
cmp_ok(opens_in($node), '>', 590, 'a step back does not shorten the wait');

# It is found while the clock is behind; then the clock is set right.  From then on a
# step back by less than it has waited changes nothing: that reading may have been
# right, and what another server made up to max_lead ahead of it is below.
my $before = opens_at($node);
pause(3);
settings($node, "snowid.worker_id = 3\nsnowid.max_lead = 10min");
poll($node, "$waits AND extract(epoch FROM $opens) > $before + 1");
set_skew($node, 0);
poll($node, "$waits AND extract(epoch FROM $opens) > $before + $hour");
pause(7);
$log = -s $node->logfile;
my $first = opens_at($node);
set_skew($node, -5);
$node->wait_for_log(qr/the clock was set back/, $log);
pause(3);
my $second = opens_at($node);
cmp_ok($second - $first,
	'>', -3,
	'a small step back: keys begin above the highest reading and max_lead')
  or diag("$first, $second");

#---- Others had it meanwhile ----

my $third = opens_at($node);
settings($node, "snowid.worker_id = 4\nsnowid.max_lead = 10min");
poll($node, "$waits AND extract(epoch FROM $opens) <> $third");
$first = opens_at($node);
pause(4);
settings($node, "snowid.max_lead = 10min");
poll($node, "reason = 'snowid has no worker ID'");
settings($node, "snowid.worker_id = 4\nsnowid.max_lead = 10min");
poll($node, $waits);
cmp_ok(opens_at($node) - $first,
	'>', 2, 'a pair that was given up while it waited begins to wait again');
$node->stop;

#---- The server itself goes back to a number ----

# The clock stands, so that nothing depends on how fast the test is.
my $now    = int(time) * 1000;
my $server = snowid_cluster('goes_back', 'snowid.worker_id = 5');
stop_clock($server, $now);
$server->start;
create_extension($server);
poll($server, $waits);
time_passes($server, $now + 1100, 2);
wait_for_worker_id($server, 5);

# The number is set by a reload, and the clock stands at so many ms after the start.
sub set_number
{
	my ($id, $ms) = @_;
	configure($server, "snowid.worker_id = $id");
	$server->reload;
	poll($server, $waits);
	time_passes($server, $now + $ms, 2);
	return;
}

# The same, and the server makes keys with it.
sub change
{
	my ($id, $ms) = @_;
	set_number($id, $ms);
	wait_for_worker_id($server, $id);
	return;
}

# The clock goes back to where the former keys of the pair are.
stop_clock($server, $now + 3600);
$before =
  query($server, 'SELECT max(k) FROM snowid_next_batch(3000000) AS k');
change(8, 6000);
stop_clock($server, $now + 1000);
set_number(5, 3500);
poll($server, q(is_open OR reason ~ 'would lead'));
like(
	sql_error(
		$server, 'SELECT max(k) FROM snowid_next_batch(4096 * 100) AS k'),
	qr/would lead the clock/,
	'no key is made below those that the server made with the number before');
stop_clock($server, $now + 8000);
poll($server, 'is_open');
cmp_ok(next_key($server), '>', $before,
	'the first key is above them when the clock is there');

# The number comes back while the clock is below its last key, and is then above it.
sub continue_with_5
{
	my ($what, $below, $above) = @_;
	set_number(5, $below);
	like(
		sql_error($server, 'SELECT snowid_next()'),
		qr/would lead the clock/,
		"no key is made below the former ones though $what");
	stop_clock($server, $now + $above);
	poll($server, 'is_open');
	cmp_ok(next_key($server), '>', $before,
		"the first key is above the former ones though $what");
	return;
}

# Only a superuser can do that, who gives our number a row; a lost directory of positions
# leaves the same.
sub drop_position
{
	my ($number) = @_;
	query($server, <<~EOF);
		SET allow_system_table_mods = on;
		INSERT INTO pg_replication_origin VALUES ($number, 'dropped');
		SELECT pg_replication_origin_drop('dropped');
		EOF
	return;
}

# The number of the origin that has the ceiling of a worker ID.
sub number_of
{
	my ($worker_id) = @_;
	return query($server,
		"SELECT local_id FROM @{[ ceilings() ]} WHERE worker_id = $worker_id"
	);
}

#---- The position vanishes while the server has no pair ----

stop_clock($server, $now + 20000);
$before = next_key($server);
change(9, 22000);
configure($server, '');
$server->restart;
poll($server, "reason = 'snowid has no worker ID'");
drop_position(number_of(5));
stop_clock($server, $now + 10000);
continue_with_5('its position has vanished', 11200, 21000);

#---- A crash, then another number and a clock that was set back ----

# The ceiling of the number is in the WAL alone, and must get into the file.
stop_clock($server, $now + 40000);
$before = next_key($server);
$server->stop('immediate');
stop_clock($server, $now + 24000);
configure($server, 'snowid.worker_id = 10');
$server->start;
poll($server, $waits);
time_passes($server, $now + 25100, 2);
wait_for_worker_id($server, 10);
drop_position(number_of(5));
continue_with_5('the server crashed and its position has vanished',
	26200, 42000);

#---- The same number again, and its position vanished without the library ----

# A clean stop writes the ceiling of the pair into the file.
stop_clock($server, $now + 60000);
$before = next_key($server);
my $number = number_of(5);
$server->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$server->restart;
drop_position($number);
$server->stop;
stop_clock($server, $now + 46000);
$server->append_conf('postgresql.conf',
	"shared_preload_libraries = 'snowid'");
$server->start;
continue_with_5('its position has vanished while the library was not loaded',
	47200, 62000);
$server->stop;

#---- Past claims ----

# The ceiling in ms since 1970 and the worker ID of the last one, in the state file, and
# whether the ceiling is known.
sub past_claim
{
	my ($node) = @_;
	my ($ceiling, undef, $worker, $exact) =
	  unpack('x160 q x4 l l l',
		slurp_file($node->data_dir . '/snowid/state'));
	return ($ceiling, $worker, $exact);
}

# A worker ID that is left by a keeper whose predecessor died keeps the ceiling of its
# keys.
{
	my $node = snowid_cluster('left_by_successor',
		"snowid.worker_id = 0\nsnowid.max_lead = '1s'\nexit_on_error = on");
	let_hold($node);
	start_and_open($node);
	query($node, 'SELECT snowid_next()');
	hold_successor($node);
	my $last = query($node,
		q(SELECT floor(extract(epoch FROM last_key_time) * 1000)::bigint FROM snowid_status())
	);
	reload_with($node, 'snowid.worker_id' => 4);
	let_go($node);
	wait_for_worker_id($node, 4);
	my ($ceiling, $worker) = past_claim($node);
	is($worker, 0, 'the past claim is that of the former worker ID');
	cmp_ok($ceiling, '>=', $last,
		"the past claim's ceiling is above its keys");
	$node->stop;
}

# A standby that is given a number knows the ceiling of the claim that it leaves.
{
	my $redis = SnowidRedis->start('redis');
	my $node =
	  claiming_cluster('left_by_standby', $redis, '', allows_streaming => 1);
	start_and_open($node);
	my $last = query($node,
		'SELECT floor(extract(epoch FROM snowid_timestamp(snowid_next())) * 1000)'
	);
	$node->stop('immediate');
	$node->set_standby_mode;
	configure($node, 'snowid.worker_id = 4');
	$node->start;
	my ($ceiling, $worker, $exact);
	wait_until(
		'a past claim',
		sub {
			($ceiling, $worker, $exact) = past_claim($node);
			return $ceiling > 0;
		});
	is($exact, 1, 'on a standby the ceiling of a past claim is known');
	cmp_ok($ceiling, '>=', $last, 'it is above the keys');
	$node->stop;
}

done_testing();
