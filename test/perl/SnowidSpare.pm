# What the tests of the spare worker ID share: one server whose clock steps, and
# all keys of it.

package SnowidSpare;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use SnowidTest qw(query set_skew server_is_open sql_error status wait_until
  wait_for_worker_id keeper_pid kill_all);

our @EXPORT = qw(use_server step_clock let_pass keys_are_of changes_to
  is_refused last_key goes_back_and_forth interruptions);

# The server, by how many seconds its clock is off, its keys, and the last one.
my ($node, $clock, %made, $last_key);

# From here on it is this server, which may run or not.
sub use_server
{
	my ($server, $seconds) = @_;
	$node  = $server;
	$clock = $seconds;
	%made  = ();
	set_skew($node, $clock);
	return;
}

sub step_clock
{
	my ($seconds) = @_;
	$clock += $seconds;
	set_skew($node, $clock);
	return;
}

# Time passes, while the server is down where that would be a jump of the clock.
sub let_pass
{
	my ($seconds) = @_;
	$node->stop if $seconds > 1800;
	step_clock($seconds);
	$node->start if $seconds > 1800;
	server_is_open($node);
	return;
}

sub last_key { return $last_key; }

# Makes keys.  They are new, have this worker ID and the clock's time.  After a
# crash they begin at the ceiling, which may lead by more than max_lead at first.
sub keys_are_of
{
	my ($worker_id, $name) = @_;
	my @keys;

	wait_until(
		'keys',
		sub {
			@keys = eval {
				split /\n/, query($node, 'SELECT snowid_next_batch(1000)');
			};
			die $@
			  if $@ && $@ !~ /58000: the next key would lead the clock by/;
			return scalar @keys;
		});
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

# How often the log has it, from an offset on.
sub logged
{
	my ($from, $pattern) = @_;
	return scalar(() = slurp_file($node->logfile, $from) =~ /$pattern/g);
}

# The clock steps back by ten seconds, an hour and a year, and forth, each twice.
sub goes_back_and_forth
{
	my ($own, $spare) = @_;
	my $log   = -s $node->logfile;
	my $count = 0;

	foreach my $step (
		[ 10,          'ten seconds' ],
		[ 3600,        'an hour' ],
		[ 365 * 86400, 'a year' ])
	{
		my ($seconds, $text) = @$step;

		foreach my $time ('', ', again')
		{
			let_pass($seconds + 60);
			keys_are_of($own, "the own worker ID$time");
			my $before = $last_key;
			my $uses   = status($node, 'spare_uses');
			step_clock(-$seconds);
			changes_to($spare,
				"$text back$time: the spare, at the clock's time");
			cmp_ok($last_key, '<', $before, 'below the keys before');
			is( status(
					$node, 'worker_id_source, spare_worker_id, spare_uses'),
				"spare|$spare|" . ($uses + 1),
				'the status tells');
			keys_are_of($spare, 'and again');
			step_clock($seconds);
			changes_to($own, "set right$time: the own worker ID");
			cmp_ok($last_key, '>', $before, 'above all keys before');
			$count++;
		}
	}
	is(logged($log, qr/LOG:  snowid uses its spare worker ID\n/),
		$count, 'the log tells of each use');
	is( logged(
			$log, qr/LOG:  snowid does not use its spare worker ID any more/),
		$count,
		'and of its end');
	is(logged($log, qr/the clock jumped ahead/),
		0, 'the end of a step back is no jump ahead');
	return;
}

# What may come between two steps of the clock, by name.
sub interruptions
{
	return (
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
}

1;
