# A keeper that dies at any step of a grant, of a change of the worker ID, of its
# own end and its successor's begin, or of snowid_advance(): after the crash every
# key is above all that were made before, at the same time of the clock.  The same
# holds for a standby that is promoted then: the ceiling arrived before the rows.
#
# The keeper is held at each step while clients take all keys that they can get.
# The clock stands still meanwhile, so that only the ceiling stops them; it shows
# the same time after the crash, so that a lost ceiling would repeat keys.
use strict;
use warnings;

use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

# Few units a millisecond, so that a grant is soon used up.
my %settings = (
	'snowid.worker_id' => 1,
	'snowid.max_lead'  => '10min');
my $layout =
  "snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=2'";

# Where the keeper is held: before its first call of one function, behind one of
# another.  LWLockRelease is held after it.
my %steps = (
	'a grant' => [
		['replorigin_advance'],
		['XLogFlush'],
		[ 'LWLockRelease',              'XLogFlush' ],
		[ 'ConditionVariableBroadcast', 'XLogFlush' ],
		[ 'WaitLatch',                  'XLogFlush' ]
	],
	'another worker ID' => [
		[ 'LWLockRelease',              'ProcessConfigFile' ],
		[ 'ConditionVariableBroadcast', 'ProcessConfigFile' ],
		['replorigin_advance'],
		[ 'LWLockRelease',  'replorigin_advance' ],
		[ 'durable_rename', 'replorigin_advance' ],
		[ 'WaitLatch',      'replorigin_advance' ]
	],
	'an opening with another worker ID' => [
		['replorigin_advance'],
		['XLogFlush'],
		[ 'ConditionVariableBroadcast', 'XLogFlush' ],
		[ 'WaitLatch',                  'XLogFlush' ]
	],
	'its end' => [
		['LWLockRelease'],
		['ConditionVariableBroadcast'],
		['replorigin_advance'],
		[ 'LWLockRelease',  'replorigin_advance' ],
		[ 'durable_rename', 'replorigin_advance' ],
		['RegisterDynamicBackgroundWorker'],
		[ 'replorigin_get_progress',    'RegisterDynamicBackgroundWorker' ],
		[ 'replorigin_advance',         'RegisterDynamicBackgroundWorker' ],
		[ 'XLogFlush',                  'RegisterDynamicBackgroundWorker' ],
		[ 'ConditionVariableBroadcast', 'XLogFlush' ]
	],
	'an advance' => [
		['replorigin_advance'],
		['XLogFlush'],
		[ 'ConditionVariableBroadcast', 'XLogFlush' ],
		[ 'WaitLatch',                  'XLogFlush' ]
	]);

my $insert = 'INSERT INTO made DEFAULT VALUES RETURNING id;';
my $now    = int(time * 1000);

# The clock advances by this many s, and stands.
sub step_clock
{
	my ($seconds, @nodes) = @_;
	$now += $seconds * 1000;
	stop_clock($_, $now) foreach @nodes;
	return;
}

# A server with both worker IDs in use.
sub start_server
{
	my ($name, %init) = @_;
	my $node = snowid_cluster($name, $layout, %init);

	$node->append_conf('postgresql.conf', <<~EOF);
		restart_after_crash = on
		wal_writer_delay = 10s
		wal_retrieve_retry_interval = 100ms
		EOF
	let_hold($node);
	$node->start;
	$node->safe_psql('postgres', <<~EOF);
		CREATE EXTENSION snowid;
		CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowid_next());
		CREATE TABLE marks (nr int);
		EOF
	foreach my $worker_id (2, 1)
	{
		set_worker_id($node, $worker_id, 'snowid.max_lead' => '10ms');
		wait_for_worker_id($node, $worker_id);
	}
	set_worker_id($node, 1);
	step_clock(60, $node);
	return $node;
}

sub set_worker_id
{
	my ($node, $worker_id, %more) = @_;
	my %all = (%settings, 'snowid.worker_id' => $worker_id, %more);

	configure($node,
		join("\n", $layout, map { "$_ = $all{$_}" } sort keys %all));
	$node->reload;
	return;
}

# The server makes keys, and its keeper has nothing to do until half of what it
# granted is used: in full, for the first grants after an opening are smaller.
sub is_at_rest
{
	my ($node, $make) = @_;

	server_is_open($node);
	wait_until(
		'a full grant',
		sub {
			query($node, $make);
			return status($node,
				q(ceiling > last_key_time + interval '300 ms')) eq 't';
		});
	return;
}

# A number that returns waits until the clock has passed max_lead, which is short
# for that: less than the keys lead the clock.  The keeper is held from this moment
# on, if that is wanted.
sub pass_max_lead
{
	my ($node, $id, $step) = @_;

	set_worker_id($node, $id, 'snowid.max_lead' => '500ms');
	poll($node, "is_open AND worker_id = $id OR reason ~ 'can be used when'");
	hold_keeper($node, @$step) if $step;
	step_clock(0.55, $node);
	if   ($step) { held_keeper($node); }
	else         { wait_for_worker_id($node, $id); }
	set_worker_id($node, $id);
	wait_for($node, "SELECT current_setting('snowid.max_lead') = '10min'");
	return;
}

# Has the keeper do this, and be held at a step of it, while a client takes all
# keys that can be had.  Returns its PID and the clients.
sub hold_at
{
	my ($node, $what, $step, $sql) = @_;
	my $worker_id = status($node, 'worker_id');
	my $keeper    = keeper_pid($node);
	my @clients;

	set_worker_id($node, $worker_id);

	# so the clock has not passed them when another number is open
	query($node, 'SELECT count(*) FROM snowid_next_batch(3000)')
	  if $what =~ /another worker ID/;
	is_at_rest($node,
		$sql
		? 'INSERT INTO made SELECT snowid_next_batch(100)'
		: 'SELECT count(*) FROM snowid_next_batch(100)');
	hold_keeper($node, @$step) unless $what =~ /^an opening/;
	if ($what eq 'a grant') { @clients = start_client($node, $sql, 'hasty'); }
	elsif ($what eq 'another worker ID')
	{
		$node->{next_id} = 3 - $worker_id;
		set_worker_id($node, $node->{next_id});
	}
	elsif ($what =~ /^an opening/)
	{
		pass_max_lead($node, 3 - $worker_id, $step);
	}
	elsif ($what eq 'its end')
	{
		query($node, "SELECT pg_terminate_backend($keeper)");
	}
	else
	{
		@clients = start_client($node,
			q(SELECT snowid_advance(snowid_min(clock_timestamp() + '2 s'));));
	}
	my $pid = held_keeper($node);
	push @clients, start_client($node, $sql, 'hasty');
	clients_are_connected($node, @clients);
	keys_are_used_up($node);
	return ($pid, @clients);
}

# One that came only after the crash would last for ever.
sub clients_are_connected
{
	my ($node, @clients) = @_;
	my $count = @clients;
	wait_for($node,
		"SELECT count(*) = $count FROM pg_stat_activity WHERE application_name = 'crash_points.pl'"
	);
	return;
}

# Waits until clients have all that they can get; if they stop before, says where.
sub keys_are_used_up
{
	my ($node) = @_;
	return
	  if eval {
		poll($node,
			q(NOT is_open OR last_key_time >= ceiling AND snowid_bits(last_key) ~ '11$')
		);
		1;
	  };
	my $why = $@;
	diag(
		query(
			$node,
			'SELECT pid, state, wait_event, query FROM pg_stat_activity WHERE client_port IS NOT NULL'
		),
		"\n",
		qx(ps -o pid,stat,wchan,args --ppid $$ --ppid $node->{_pid}));
	die $why;
}

sub name_of
{
	my ($what, $at, $after) = @_;
	return "$what, at $at" . ($after ? " behind $after" : '');
}

# Ends a server at once, with a keeper that is held.
sub stop_at_once
{
	my ($node, $pid) = @_;

	$node->command_ok(
		[ 'pg_ctl', '-D', $node->data_dir, '-m', 'immediate', '-W', 'stop' ],
		'an immediate stop');
	kill 'QUIT', $pid;
	kill 'CONT', $pid;
	wait_until('the end of the server', sub { !kill 0, $node->{_pid} });
	$node->{_pid} = undef;
	return;
}

# The server crashes; then its keys are above all that were made.
sub keys_go_on_above
{
	my ($name, $how, $node, $pid, @clients) = @_;
	my $highest = status($node, 'last_key');

	if ($how eq 'kill') { kill 'KILL', $pid; }
	else                { stop_at_once($node, $pid); }
	$_->{handle}->finish foreach @clients;
	my @keys = map { slurp_file($_->{keys}) =~ /^(\d+)\n/mg } @clients;
	$highest = max($highest, @keys);
	$node->start                                  if $how ne 'kill';
	pass_max_lead($node, delete $node->{next_id}) if $node->{next_id};
	server_is_open($node);
	my $next = next_key($node);
	is( query(
			$node,
			"SELECT $next > $highest, clock_timestamp() <= snowid_timestamp($highest)"
		),
		't|t',
		"$name: $how") or diag("$next after $highest");
	step_clock(30, $node);
	return;
}

#---- On a server ----

my $node = start_server('crashes');
my $n    = 0;
foreach my $what (sort keys %steps)
{
	foreach my $step (@{ $steps{$what} })
	{
		my @hows = $n++ % 2 ? 'kill' : 'immediate';
		foreach my $how ($what eq 'a grant' ? ('kill', 'immediate') : @hows)
		{
			keys_go_on_above(name_of($what, @$step),
				$how, $node, hold_at($node, $what, $step));
		}
	}
}

$node->stop;

#---- On standbys ----

$node = start_server('primary', allows_streaming => 1);
$node->backup('backup');
my @standbys = map {
	server_from_backup(
		"standby$_", $node, 'backup',
		"$layout\nsnowid.worker_id = 1\nsnowid.max_lead = 10ms",
		has_streaming => 1)
} 1 .. 4;
foreach my $standby (@standbys)
{
	stop_clock($standby, $now - 2000);
	$standby->start;
}

# Every key in the rows of a standby is below the ceiling that it knows.
sub ceilings_are_there
{
	my ($standby, $name) = @_;
	is(query($standby, <<~EOF), 't|t', "$name: the standby has the ceiling");
		SELECT count(*) > 0, bool_and(id <= highest)
		FROM (SELECT max(id) AS id, worker_id FROM made, snowid_decode(id) GROUP BY worker_id) rows
		LEFT JOIN @{[ ceilings(2) ]} USING (worker_id)
		EOF
	return;
}

# Promoted, it makes none below them, with its clock below; not so far that the
# ceiling of the other worker ID would be out of its reach.
sub promoted_it_goes_on
{
	my ($standby, $name) = @_;
	my $highest = query($standby, 'SELECT max(id) FROM made');

	$standby->promote;
	poll($standby, q(reason ~ 'can be used when'));
	stop_clock($standby, $now - 1000);
	server_is_open($standby);
	set_worker_id($standby, 1);
	is(query($standby, <<~EOF), 't|t', "$name: promoted");
		SELECT snowid_next() > $highest, clock_timestamp() < snowid_timestamp($highest)
		EOF
	$standby->stop('immediate');
	return;
}

my %promoted = (
	name_of('a grant', 'ConditionVariableBroadcast', 'XLogFlush')       => 1,
	name_of('another worker ID', 'LWLockRelease', 'replorigin_advance') => 1,
	name_of('its end',           'LWLockRelease', 'replorigin_advance') => 1);
my $last = pop @standbys;
foreach my $what (sort keys %steps)
{
	foreach my $step (@{ $steps{$what} })
	{
		my ($pid, @clients) = hold_at($node, $what, $step, $insert);
		my $name = name_of($what, @$step);

		# a commit, for what is flushed by itself may end within a record
		query($node,
			'SET synchronous_commit = on; INSERT INTO marks VALUES (1)');
		my $lsn = $node->lsn('flush');

		foreach my $standby ($last, $promoted{$name} ? $standbys[-1] : ())
		{
			$node->wait_for_catchup($standby, 'replay', $lsn);
		}
		ceilings_are_there($last, $name);
		promoted_it_goes_on(pop @standbys, $name) if $promoted{$name};
		kill 'CONT', $pid;
		pass_max_lead($node, delete $node->{next_id}) if $node->{next_id};
		stop_client($_) foreach @clients;
		server_is_open($node);

		# beyond what clients took before they ended: a promoted standby waits for no more
		step_clock(30 + max(0, int status($node, 'lead_ms / 1000')), $node);
		stop_clock($_, $now - 2000) foreach @standbys;
	}
}
is(scalar @standbys, 0, 'all promotions were tried');
$_->stop foreach ($last, $node);

done_testing();
