# is_open says what a call made now would get: in each state here, a real call gets a key
# if and only if the status says so, and else an error; and a status that is not open has
# the reason.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(sleep time);

my %stopped;    # processes that wait for SIGCONT
my $redis = SnowidRedis->start('redis');

END
{
	local $?;
	kill 'CONT', keys %stopped if %stopped;
	$redis->resume if $redis;
}

# Waits until the status of this server says so, and holds it against a call.
sub state_is
{
	my ($server, $what, $open, $reason) = @_;
	poll($server,
			($open ? '' : 'NOT ')
		  . 'is_open'
		  . ($reason ? " AND reason ~ '$reason'" : ''));
	my $error = sql_error($server, 'SELECT snowid_next()');
	if ($open)
	{
		is($error, '', "$what: is_open is true, and a call gets a key");
	}
	else
	{
		like($error, qr/^\w{5}: /,
			"$what: is_open is false, and a call gets an error");
		isnt(status($server, 'coalesce(reason, $$$$)'),
			'', "$what: the status has the reason");
	}
	return;
}

my $settings = "snowid.max_lead = 1s\nsnowid.max_wait = 200ms\n";
my $node     = snowid_cluster(
	'node',
	"${settings}snowid.worker_id = 1",
	allows_streaming => 1);

#---- The clock ----

start_and_open($node);
state_is($node, 'a server that has started', 1);
set_skew($node, 60);
state_is($node, 'a clock a minute ahead', 1);
next_key($node);
set_skew($node, 59.2);
state_is($node, 'a clock that was set back by less than max_lead', 1);
set_skew($node, 50);
state_is($node, 'a clock that was set back further',
	0, 'would lead the clock by');
set_skew($node, -500_000_000 * 2);
state_is($node, 'a clock before the epoch', 0, 'before the layout');
set_skew($node, 60);
state_is($node, 'a clock that was set right', 1);
set_skew($node, 7200);
state_is($node, 'a clock that jumped by two hours', 0, 'jumped ahead');
sleep 1;
state_is($node, 'that clock, a second later', 0, 'jumped ahead');
set_skew($node, 60);
state_is($node, 'a clock that came back', 1);
set_skew($node, 7200);
poll($node, 'NOT is_open');
query($node, 'SELECT snowid_accept_clock()');
state_is($node, 'a jump that was accepted', 1);

#---- The keeper; with no keys left, keeper/stuck.pl asks ----

# The clock stands, so what is left up to the ceiling stays.
stop_clock($node, int(1000 * (time + 7205)));
state_is($node, 'a clock that stands', 1);
my $keeper = keeper_pid($node);
stop_process($node, $keeper);
$stopped{$keeper} = 1;
sleep 3;
state_is($node, 'a keeper that is stopped, with keys left up to the ceiling',
	1);
kill 'CONT', $keeper;
%stopped = ();
set_skew($node, 7210);
state_is($node, 'a keeper that continues', 1);

#---- The worker ID, the layout, the state file ----

sub reload_settings
{
	configure($node, $settings . $_[0]);
	$node->reload;
	return;
}
reload_settings('');
state_is($node, 'no worker ID', 0, 'no worker ID');
reload_settings("snowid.max_lead = 1h\nsnowid.worker_id = 2");
state_is(
	$node, 'a new worker ID that has to wait',
	0,     'when the clock has passed');
reload_settings('snowid.worker_id = 1');
state_is($node, 'the former worker ID', 1);
$node->stop;
configure($node,
	"${settings}snowid.worker_id = 1\nsnowid.layout = 'epoch=2024-01-01T00:00:00Z worker=10 sequence=12'"
);
$node->start;
state_is(
	$node, 'a layout that waits for consent',
	0,     'cannot use this layout|layout was changed');
$node->stop;
configure($node, "${settings}snowid.worker_id = 1");
$node->start;
state_is($node, 'the former layout', 1);

#---- A standby ----

$node->backup('standby');
my $standby = server_from_backup(
	'standby', $node, 'standby',
	"${settings}snowid.worker_id = 1",
	has_streaming => 1);
set_skew($standby, 7210);
$standby->start;
state_is($standby, 'a standby', 0, 'during recovery');

# From PostgreSQL 19 on a promotion waits for each process.
my $may_hang = $node->pg_version->major < 19;
if ($may_hang)
{
	$keeper = keeper_pid($standby);
	stop_process($standby, $keeper);
	$stopped{$keeper} = 1;
}
$node->stop('immediate');
$standby->promote;
if ($may_hang)
{
	state_is(
		$standby, 'a promoted standby, whose keeper is stopped',
		0,        'not ready yet: The "snowid keeper" process');
	kill 'CONT', $keeper;
	%stopped = ();
}
state_is($standby, 'a promoted standby', 1);
$standby->stop;

#---- A claim ----

$redis->stop;
$node =
  claiming_cluster('claims', $redis, "${settings}snowid.redis_lease = '5s'");
$node->start;
create_extension($node);
state_is($node, 'no claim yet', 0, 'has not claimed a worker ID yet');
$redis->run;
state_is($node, 'a lease', 1);
$redis->stop;
wait_for($node,
	q(SELECT registry = 'the lease has ended' FROM snowid_status()));
state_is($node, 'a lease that has ended', 0);
$redis->run;
state_is($node, 'a lease that was renewed', 1);
$node->stop;

done_testing();
