# Half a minute of test/torture/keys: processes killed, clock stepped, directory taken
# away, standby promoted, under clients that report each key outside the server.
# Its check finds faults, and counts lines that were cut off.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib";
use File::Temp;
use IO::Select;
use IO::Socket;
use SnowidClients;
use Test::More;

# What the check finds in files of these keys, of the pair 0: how many keys,
# duplicates, out of order, of another pair.
sub found
{
	my (@keys) = @_;
	my $set    = { dir => File::Temp->newdir };
	my %lines  = (
		'calls.1'  => [],
		'errors.1' => [],
		marks      => [],
		map { ("keys.$_.s1:0" => $keys[$_]) } 0 .. $#keys);

	foreach my $name (keys %lines)
	{
		open($set->{$name}, '>', "$set->{dir}/$name") or die "$!";
		print { $set->{$name} } map { "$_\n" } @{ $lines{$name} };
		close($set->{$name});
	}
	my $checked = check_keys($set);
	return "@$checked{qw(keys duplicates order foreign)}";
}

is(found([ 1, 3, 10 ], [ 2, 9 ]), '5 0 0 0', 'good keys have no fault');
is(found([ 1, 3, 10 ], [ 3, 9 ]),
	'5 1 0 0', 'one key at two clients is found');
is(found([ 1, 3, 3 ], [ 2, 9 ]),
	'5 1 1 0', 'one key that a client has twice is found');
is(found([ 1, 10, 3 ], [ 2, 9 ]), '5 0 1 0', 'keys that fall are found');
is(found([ 1, 10, 3 ], [ 2, 3, 10, 11 ]),
	'7 2 1 0', 'keys that fall and are there twice are found');
is(found([ 1, 1 << 12 ], [2]), '3 0 0 1', "a key of another pair is found");

# A server that dies as it sends the array {1,2,345}.
my ($client, $server) =
  IO::Socket->socketpair(AF_UNIX, SOCK_STREAM, PF_UNSPEC);
$server->print('D', pack('N n N', 19, 1, 9), '{1,2,34');
close($server);
my ($rows) = SnowidClients::pg_answer(
	{
		socket => $client,
		buffer => '',
		select => IO::Select->new($client)
	});
is("@$rows", '{1,2', 'the whole keys of an array that was cut off are read');

local $ENV{CALM} = 1;
my @said   = `$^X test/torture/keys 30`;
my $status = $?;

note @said;
is($status, 0,
	'no key twice, none out of order, none with the number of another server')
  or diag @said;
is($said[-1], "PASS\n", 'the torture ran to its end');
done_testing();
