# keys.pl - what the clients of test/by_hand/engines have got, by their logs.
#
#	keys.pl made LOG...			the keys that a client got, in order
#	keys.pl stored LOG...		those whose transaction was committed
#	keys.pl prove WHO=WORKER[,WORKER]... LOG...
#			fails where a key was made twice, a client got a lower key of a worker
#			after a higher one, or WHO made keys as another one
#	keys.pl pauses EVENTS LOG...
#			how long nobody got a key after each event
#
# A line of a log is "made WHO {KEY,...} [MS]", before the transaction, and
# "stored WHO {KEY,...}" after it, or "connected WHO MS"; times are in Unix ms.
# A line of EVENTS is "MS NAME".  Keys have the default layout.

use strict;
use warnings;

my ($command, @arguments) = @ARGV;
my @logs     = grep { !/=/ } @arguments;
my %expected = map  { split /=/ } grep { /=/ } @arguments;
my $events   = $command eq 'pauses' ? shift @logs : undef;

my (@clients, %stored, %makers, @times, @connected);

foreach my $log (@logs)
{
	my @made;
	open my $lines, '<', $log or die "$log: $!\n";
	while (<$lines>)
	{
		if (/^(made|stored) (\w+) \{([\d,]+)\} ?(\d*)$/)
		{
			my @keys = split /,/, $3;
			@stored{@keys} = () if $1 eq 'stored';
			next if $1 eq 'stored';
			push @made,  map { [ $_, $2 ] } @keys;
			push @times, $4 if $4;
		}
		push @connected, $1 if /^connected \w+ (\d+)$/;
	}
	close $lines or die "$log: $!\n";
	push @clients, \@made if @made;
}
@times     = sort { $a <=> $b } @times;
@connected = sort { $a <=> $b } @connected;

my @keys = sort { $a <=> $b } map { $_->[0] } map { @$_ } @clients;
die "no keys were made\n" unless @keys;
$makers{ $_->[1] }{ worker_id($_->[0]) }++ foreach map { @$_ } @clients;

if ($command eq 'made')
{
	print map { "$_\n" } @keys;
}
elsif ($command eq 'stored')
{
	print map { "$_\n" } sort { $a <=> $b } keys %stored;
}
elsif ($command eq 'pauses') { print_pauses() }
elsif ($command eq 'prove')  { prove() }
else                         { die "no such command: $command\n" }

sub worker_id { return ($_[0] >> 12) & 1023; }

# "WHO as worker N: KEYS" for each
sub workers
{
	return map {
		my $who = $_;
		map    { "$who as worker $_: $makers{$who}{$_}" }
		  sort { $a <=> $b }
		  keys %{ $makers{$who} }
	} sort keys %makers;
}

sub prove
{
	my @wrong;
	foreach my $i (1 .. $#keys)
	{
		push @wrong, "key $keys[$i] was made twice"
		  if $keys[$i] == $keys[ $i - 1 ];
	}
	foreach my $made (@clients)
	{
		my %last;
		foreach my $key (map { $_->[0] } @$made)
		{
			my $worker_id = worker_id($key);
			push @wrong, "key $key was made after $last{$worker_id}"
			  if $key <= ($last{$worker_id} // 0);
			$last{$worker_id} = $key;
		}
	}
	foreach my $who (sort keys %makers)
	{
		my %mine = map { $_ => 1 } split /,/, $expected{$who} // '';
		push @wrong, "$who made keys as worker $_"
		  foreach grep { !$mine{$_} } keys %{ $makers{$who} };
	}
	push @wrong,
	  map { "$_ made no key" } grep { !$makers{$_} } sort keys %expected;
	die map { "$_\n" }
	  @wrong > 5 ? (@wrong[ 0 .. 4 ], @wrong - 5 . " more") : @wrong
	  if @wrong;
	printf "%d keys of %d clients: none twice, each client's increase; %s\n",
	  scalar(@keys), scalar(@clients), join ', ', workers();
	return;
}

# The longest time without a key that ends between this event and the next, and
# what of it came after the first connection.
sub print_pauses
{
	open my $lines, '<', $events or die "$events: $!\n";
	my @events = map { [ split ' ', $_, 2 ] } <$lines>;
	close $lines or die "$events: $!\n";
	foreach my $i (0 .. $#events)
	{
		my ($begin, $name) = @{ $events[$i] };
		my $end = $i < $#events ? $events[ $i + 1 ][0] : $times[-1];
		my ($from, $to) = (0, 0);

		foreach my $j (1 .. $#times)
		{
			next if $times[$j] < $begin || $times[$j] > $end;
			($from, $to) = @times[ $j - 1, $j ]
			  if $times[$j] - $times[ $j - 1 ] > $to - $from;
		}
		my ($back) = grep { $_ >= $from && $_ <= $to } @connected;
		chomp $name;
		printf "%-65s %6.1f s%s\n", $name, ($to - $from) / 1000,
		  $back
		  ? sprintf(', %.1f s of it after a client had connected',
			($to - $back) / 1000)
		  : '';
	}
	return;
}
