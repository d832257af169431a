# A way to a Redis that a test can cut: a process that passes on what it gets.
# $proxy->url stands for the Redis' own.

package SnowidProxy;

use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Cluster;

my @proxies;

sub start
{
	my ($class, $redis) = @_;
	my $self = bless {
		port => PostgreSQL::Test::Cluster::get_free_port(),
		to   => $redis->{port}
	}, $class;

	push @proxies, $self;
	$self->run;
	return $self;
}

# Starts it again, after stop().
sub run
{
	my ($self) = @_;
	my $listener = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => $self->{port},
		Listen    => 20,
		ReuseAddr => 1) or die "proxy: $!";
	my $parent = $$;

	$self->{pid} = fork() // die "fork: $!";
	if ($self->{pid} == 0)
	{
		# no END block of the test may run here
		$SIG{INT} = $SIG{TERM} = sub { POSIX::_exit(0); };
		eval { pass_on($listener, $self->{to}, $parent); };
		POSIX::_exit(1);
	}
	return;
}

sub url { return "redis://127.0.0.1:$_[0]{port}"; }

# From here on nothing passes, and what is sent arrives when the way is mended.
sub cut  { kill 'STOP', $_[0]{pid}; return; }
sub mend { kill 'CONT', $_[0]{pid}; return; }

# Ends the connections that there are, as a machine does that was started again.
sub drop { kill 'USR1', $_[0]{pid}; return; }

# Connections are refused, and what was on its way is lost.
sub stop
{
	my ($self) = @_;
	return if !$self->{pid};
	kill 'KILL', $self->{pid};
	waitpid($self->{pid}, 0);
	delete $self->{pid};
	return;
}

sub pass_on
{
	my ($listener, $to, $parent) = @_;
	my $select = IO::Select->new($listener);
	my %other;
	my $dropped = 0;
	my $end     = sub {
		foreach my $socket (grep { defined } $_[0], delete $other{ $_[0] })
		{
			delete $other{$socket};
			$select->remove($socket);
			setsockopt($socket, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0))
			  if $dropped;
			close($socket);
		}
	};

	$SIG{PIPE} = 'IGNORE';
	$SIG{USR1} = sub { $dropped = 1; };
	while (getppid() == $parent)
	{
		my @ready = $select->can_read(1);
		if ($dropped)
		{
			$end->($_) foreach grep { $_ != $listener } $select->handles;
			$dropped = 0;
			next;
		}
		foreach my $socket (@ready)
		{
			if ($socket == $listener)
			{
				my $client = $listener->accept or next;
				my $server = IO::Socket::INET->new(
					PeerAddr => '127.0.0.1',
					PeerPort => $to);
				next if !$server;
				@other{ $client, $server } = ($server, $client);
				$select->add($client, $server);
			}
			elsif (my $peer = $other{$socket})
			{
				if (sysread($socket, my $data, 1 << 16))
				{
					syswrite($peer, $data);
				}
				else { $end->($socket); }
			}
		}
	}
	return;
}

END
{
	local $?;
	$_->stop foreach @proxies;
}

1;
