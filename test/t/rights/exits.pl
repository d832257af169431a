# Each process of snowid exits within a second of a signal or a fast stop, whatever it
# waits for: its next turn, a name server that hangs, a Redis that sends nothing or a
# byte now and then, or a TLS handshake.
# A sync of the disk is excepted: it cannot be interrupted.
use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(sleep);

my $patient = "snowid.redis_timeout = '60s'\n";

sub by_signal
{
	my (@pids) = @_;
	kill 'TERM', @pids;
	return;
}

#---- The keeper waits for its next turn ----

my $node = snowid_cluster('numbered', 'snowid.worker_id = 1');
start_and_open($node);
exits_in_time($node, 'the keeper', sub { (\&by_signal, keeper_pid($node)) });
server_is_open($node);
my $trials = 0;
exits_in_time(
	$node,
	'the keeper at a fast stop',
	sub {
		if ($trials++)
		{
			$node->stop('fast', fail_ok => 1);
			$node->start;
		}
		server_is_open($node);
		return (sub { kill 'INT', $node->{_pid} }, keeper_pid($node));
	});
$node->stop('fast', fail_ok => 1);

#---- The registry waits for a name server ----

$node = snowid_cluster('named',
	"snowid.redis_url = 'redis://name.hangs'\n$patient");
append_to_file("$node->{skew_file}.hangs", '');
$node->start;

# The process whose child looks the name up.
sub looking_up
{
	my $pid;
	wait_until(
		'the look-up',
		sub {
			$pid = process_pid($node, 'snowid registry');
			qx(ps -o pid= --ppid $pid);
		});
	return $pid;
}

exits_in_time(
	$node,
	'a name server that hangs',
	sub { (\&by_signal, looking_up()) });
$node->stop;

#---- The registry waits for a Redis ----

my %speaker;
END { kill 'KILL', keys %speaker if %speaker }

foreach my $kind ('silent', 'slow', 'TLS')
{
	my $listener =
	  IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1')
	  or die "$!";
	my $url =
		($kind eq 'TLS' ? 'rediss' : 'redis')
	  . '://127.0.0.1:'
	  . $listener->sockport;
	my @connections;

	$node = snowid_cluster("to_$kind", "snowid.redis_url = '$url'\n$patient");
	$node->start;
	exits_in_time(
		$node,
		"a Redis ($kind)",
		sub {
			push @connections, scalar $listener->accept;
			say_bytes($connections[-1]) if $kind eq 'slow';
			return (\&by_signal, process_pid($node, 'snowid registry'));
		});
	$node->stop;
}

# A reply without an end, in a process of its own.
sub say_bytes
{
	my ($connection) = @_;
	my $pid = fork // die "$!";

	$speaker{$pid} = 1;
	return if $pid;
	%speaker = ();
	local $SIG{PIPE} = 'DEFAULT';
	syswrite($connection, '+');
	while (syswrite($connection, 'x'))
	{
		sleep 0.05;
	}
	return POSIX::_exit(0);
}

done_testing();
