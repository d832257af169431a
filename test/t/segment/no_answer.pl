# A pooler or the like between a server and its central server may answer COMMIT with
# something that is no error, and is no commit either: the range is lost, and not handed
# out.
use strict;
use warnings;

use IO::Select;
use POSIX ();
use IO::Socket::INET;
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

my $central = snowid_cluster('central', '');
$central->start;
query($central,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
);

my $flag     = $central->basedir;
my $listener = IO::Socket::INET->new(
	LocalAddr => '127.0.0.1',
	Listen    => 10) or die "$!";

# Passes on.  The first call waits for a file, and the answer to its COMMIT is another one.
sub pass_on
{
	my ($client) = @_;
	my $server =
	  IO::Socket::UNIX->new(
		Peer => $central->host . '/.s.PGSQL.' . $central->port)
	  or die "$!";
	my $is_call = 0;
	my $select  = IO::Select->new($client, $server);
	for (;;)
	{
		foreach my $from ($select->can_read)
		{
			sysread($from, my $bytes, 65536) or return;
			if ($from == $client)
			{
				if ($bytes =~ /snowid_segment_take/ && !-e "$flag/seen")
				{
					$is_call = 1;
					append_to_file("$flag/seen", '');
					usleep(10_000) while !-e "$flag/go";
				}
				syswrite($server, $bytes);
			}
			else
			{
				$bytes =~ s/COMMIT\x00/AGREED\x00/ if $is_call;
				syswrite($client, $bytes);
			}
		}
	}
}

my $proxy = fork // die "$!";
if ($proxy == 0)
{
	local $SIG{CHLD} = 'IGNORE';
	while (my $client = $listener->accept)
	{
		next if fork;
		pass_on($client);
		POSIX::_exit(0);
	}
	POSIX::_exit(0);
}

my $node = snowid_cluster('s1', 'snowid.max_wait = 1min');
$node->start;
use_central($node, '127.0.0.1', $listener->sockport, 'a');
my $waits = ask_in_background($node, "SELECT snowid_number('a')");
wait_until('the call', sub { -e "$flag/seen" });
is(number($central, 'a'), 1, 'the central server hands out a number itself');
append_to_file("$flag/go", '');
is(answer_of($waits), 1101,
	'a range whose commit is not confirmed is not handed out');
$node->stop;
$central->stop;
kill 'TERM', $proxy;

done_testing();
