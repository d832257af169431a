# A session with a server, by PostgreSQL's protocol: a query in it costs much less
# than one in a psql of its own.

package SnowidSession;

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;

# Dies where the server does not take it.
sub new
{
	my ($class, $node, $database) = @_;
	my $path   = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!\n";
	my $self   = bless { socket => $socket, buffer => '' }, $class;

	$self->send(
		pack(
			'N (Z*)* x', 196608,
			user     => scalar getpwuid($<),
			options  => $ENV{PGOPTIONS} // '',
			database => $database));
	$self->answer;
	return $self;
}

# The rows of one statement, or of several in one transaction, as psql -At would
# print them.  Dies with the first error, as psql has it with VERBOSITY verbose.
sub query
{
	my ($self, $sql) = @_;
	$self->ask($sql);
	return $self->answer;
}

# The same in two steps, for a statement that takes a while.
sub ask
{
	my ($self, $sql) = @_;
	$self->send(pack('Z*', $sql), 'Q');
	return;
}

sub send
{
	my ($self, $content, $type) = @_;
	my $message =
	  ($type // '') . pack('N a*', length($content) + 4, $content);

	local $SIG{PIPE} = 'IGNORE';
	while ($message ne '')
	{
		my $sent = syswrite($self->{socket}, $message) or die "lost: $!\n";
		substr($message, 0, $sent, '');
	}
	return;
}

sub bytes
{
	my ($self, $count) = @_;
	my $patience = $PostgreSQL::Test::Utils::timeout_default;

	while (length($self->{buffer}) < $count)
	{
		$! = 0;
		my $ready = IO::Select->new($self->{socket})->can_read($patience);
		next                             if !$ready && $!{EINTR};
		die "no answer in $patience s\n" if !$ready;
		sysread($self->{socket}, $self->{buffer}, 1 << 16,
			length($self->{buffer}))
		  or die "the connection was lost\n";
	}
	return substr($self->{buffer}, 0, $count, '');
}

# An error or a notice, but for the line of the statement.
sub message
{
	my %field = map { substr($_, 0, 1) => substr($_, 1) }
	  grep { $_ ne '' } split(/\0/, $_[0]);
	my $text = "$field{S}:  $field{C}: $field{M}\n";

	foreach ([ D => 'DETAIL' ], [ H => 'HINT' ], [ W => 'CONTEXT' ])
	{
		my ($letter, $name) = @$_;
		$text .= "$name:  $field{$letter}\n" if exists $field{$letter};
	}
	return $text . "LOCATION:  $field{R}, $field{F}:$field{L}\n";
}

# The answer, or the error, behind all notices.
sub outcome
{
	my ($self) = @_;
	my $answer = eval { $self->answer } // $@;
	return $self->{notices} . $answer;
}

# Notices stay in $self->{notices} until the next answer.
sub answer
{
	my ($self) = @_;
	my @rows;
	my $error = '';

	$self->{notices} = '';

	for (;;)
	{
		my ($type, $size) = eval { unpack('a N', $self->bytes(5)) }
		  or die $error || $@;
		my $content = $self->bytes($size - 4);

		if ($type eq 'D')
		{
			my ($columns, @row) = unpack('n', $content);
			my $at = 2;
			for (1 .. $columns)
			{
				my $length = unpack('l>', substr($content, $at, 4));
				push @row,
				  $length < 0 ? '' : substr($content, $at + 4, $length);
				$at += 4 + ($length < 0 ? 0 : $length);
			}
			push @rows, join('|', @row);
		}
		elsif ($type eq 'E') { $error ||= message($content); }
		elsif ($type eq 'N') { $self->{notices} .= message($content); }
		elsif ($type eq 'Z')
		{
			die $error if $error ne '';
			return join("\n", @rows);
		}
	}
}

1;
