# The spare worker ID: where the clock steps back so far that callers would be
# refused, keys go on at the clock's time with the spare, and with the own ID
# when the clock has passed its keys.  No key is made twice, whatever comes in
# between: a crash, the keeper's end, a clean stop, another step.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

my ($hour, $day, $year) = (3600, 86400, 365 * 86400);
my $settings =
  "snowid.worker_id = 1\nsnowid.spare_worker_id = 2\nsnowid.max_lead = 100ms\nsnowid.max_wait = 200ms\nsnowid.max_jump = 2min\n";
my $node;

# The server whose clock $clock is off by; every key of it, and those that were
# not above the one before and not of another worker ID.
my $clock;
my %made;
my $last_key;

sub set_clock
{
	($clock) = @_;
	set_skew($node, $clock);
	return;
}

# Makes keys.  They are new, have this worker ID and the clock's time.
sub keys_are_of
{
	my ($worker_id, $name) = @_;
	my @keys  = split /\n/, query($node, 'SELECT snowid_next_batch(1000)');
	my $twice = grep { $made{$_}++ } @keys;
	my @parts = split /\|/,
	  query($node,
		"SELECT worker_id, abs(extract(epoch FROM created_at - clock_timestamp())) < 30 FROM snowid_decode($keys[-1])"
	  );

	is("$twice @parts", "0 $worker_id t", $name);
	$last_key = $keys[-1];
	return;
}

# Waits until keys are made with this worker ID.
sub changes_to
{
	my ($worker_id, $name) = @_;
	wait_for_worker_id($node, $worker_id);
	keys_are_of($worker_id, $name);
	return;
}

sub is_refused
{
	my ($name) = @_;
	like(sql_error($node, 'SELECT snowid_next()'),
		qr/^58000: the next key would lead the clock by \d+ ms/, $name);
	return;
}

sub logged
{
	my ($from, $pattern) = @_;
	return scalar(() = slurp_file($node->logfile, $from) =~ /$pattern/g);
}

# A server that has its spare for longer than any of its steps.
sub new_server
{
	my ($name, %init) = @_;
	$node = snowid_cluster($name, $settings, %init);
	$node->append_conf('postgresql.conf', 'restart_after_crash = on');
	%made = ();
	set_clock(-2 * $year);
	start_and_open($node);
	poll($node, 'spare_worker_id = 2');
	$node->stop;
	set_clock(0);
	$node->start;
	server_is_open($node);
	return;
}

# Time passes, while the server is down where that would be a jump of the clock:
# the spare's keys are to lie so far behind.
sub let_pass
{
	my ($seconds) = @_;
	$node->stop if $seconds > $hour / 2;
	set_clock($clock + $seconds);
	$node->start if $seconds > $hour / 2;
	server_is_open($node);
	return;
}

#---- Steps back, and back again ----

new_server('spare');
my $log   = -s $node->logfile;
my $count = 0;
foreach
  my $step ([ 10, 'ten seconds' ], [ $hour, 'an hour' ], [ $year, 'a year' ])
{
	my ($seconds, $text) = @$step;

	foreach my $time ('', ', again')
	{
		let_pass($seconds + 60);
		keys_are_of(1, "the own worker ID$time");
		my $before = $last_key;
		my $uses   = status($node, 'spare_uses');
		set_clock($clock - $seconds);
		changes_to(2, "$text back$time: the spare, at the clock's time");
		cmp_ok($last_key, '<', $before, 'below the keys before');
		is( status($node, "worker_id_source, spare_worker_id, spare_uses"),
			'spare|2|' . ($uses + 1),
			'the status tells');
		keys_are_of(2, 'and again');
		set_clock($clock + $seconds);
		changes_to(1, "set right$time: the own worker ID");
		cmp_ok($last_key, '>', $before, 'above all keys before');
		$count++;
	}
}
is(status($node, 'worker_id_source, spare_worker_id'),
	'setting|2', 'in the end the status has the own and the spare');
is(logged($log, qr/LOG:  snowid uses its spare worker ID\n/),
	$count, 'the log tells of each use');
is( logged($log, qr/LOG:  snowid does not use its spare worker ID any more/),
	$count,
	'and of its end');
is(logged($log, qr/the clock jumped ahead/),
	0, 'the end of a step back is no jump ahead');

#---- A time that is before the spare's own keys ----

set_clock($clock - $year + 5);
is_refused('a step to before the keys of the spare: callers are refused');
is(status($node, 'worker_id'), 1, 'by the own worker ID');
my $refused_at = $clock;
set_clock($clock + 20);
changes_to(2, 'when the clock has passed them: the spare');

# While the spare is used the clock steps back once more.
my $highest = $last_key;
set_clock($clock - 60);
is_refused('a step back beyond the keys of both is refused');
set_clock($clock + 60);
keys_are_of(2, 'until the clock is there');
cmp_ok($last_key, '>', $highest, 'above the others of the spare');

#---- Crashes, and the keeper's end ----

# With the clock behind, and with the clock set right.
my %interruption = (
	'kill -9 of the postmaster' => sub {
		kill_all($node);
		$node->start;
	},
	'kill -9 of the keeper' => sub {
		my $log = -s $node->logfile;
		kill 'KILL', keeper_pid($node);
		$node->wait_for_log(
			qr/database system is ready to accept connections/, $log);
	},
	'the end of the keeper' => sub {
		my $pid = keeper_pid($node);
		query($node, "SELECT pg_terminate_backend($pid)");
		$node->poll_query_until('postgres',
			"SELECT pid <> $pid FROM pg_stat_activity WHERE backend_type = 'snowid keeper'"
		) or die;
	},
	'a clean stop' => sub { $node->restart });
set_clock($clock + $year);
changes_to(1, 'the clock is right');
foreach my $what (sort keys %interruption)
{
	foreach my $right (0, 1)
	{
		let_pass($hour + 60);
		keys_are_of(1, "$what: the own worker ID");
		set_clock($clock - $hour);
		changes_to(2, "$what: the spare");
		set_clock($clock + $hour) if $right;
		$interruption{$what}->();
		changes_to(1 + !$right,
			"$what, with the clock " . ($right ? 'set right' : 'behind'));
		set_clock($clock + $hour) if !$right;
		changes_to(1, "$what: the own worker ID in the end");
	}
}
$node->stop;
done_testing();
