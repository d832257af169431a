# Clients that make keys in a loop and report each one to files outside the
# server, and the check of all that they reported.
#
# A client is a process that speaks PostgreSQL's protocol through a Unix socket;
# so it costs little, has the keys of a batch of which it saw only a part, and
# knows by the monotonic clock when a call began and ended.  It connects again
# by itself, and continues until it is stopped.
#
# Files in the clients' directory, one of each a client:
#	keys.N.server:pair	a key a line, those of one pair (datacenter and worker ID
#				in one number) of a server; they should increase
#	calls.N		"ns b server:pair first-key" when a call began, "ns e server:pair
#				last-key" when it ended, one of each for the keys of a pair;
#				"ns f ..." where the pair is not the server's
#	errors.N	"ns SQLSTATE message"
#	marks		"ns m kind", what was done to the server

package SnowidClients;

use strict;
use warnings;
use Exporter 'import';
use Cwd            qw(abs_path);
use Fcntl          qw(:DEFAULT :seek);
use File::Basename qw(dirname);
use File::Glob     qw(bsd_glob);
use IPC::Run;
use IO::Select;
use IO::Socket::UNIX;
use List::Util  qw(max);
use POSIX       ();
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);

our @EXPORT = qw(start_clients point_clients pause_clients stop_clients
  wait_for_keys mark check_keys longest_pause);

my $target_len = 256;
my $no_answer  = 30;                                      # seconds
my $check      = abs_path(dirname(__FILE__) . '/keys');

sub ns { return int(clock_gettime(CLOCK_MONOTONIC) * 1e9); }

#---- What the test calls ----

# Starts $count clients that wait for point_clients().  Client n uses database
# n modulo their number; each session begins with $options, as in PGOPTIONS.
# $statement->() gives the next one to run; its first column is a key or an array
# of keys.  The first $hasty ones (1) do not sleep between calls; with CALM=1 in the
# environment they sleep, too, since they would take all processors.
sub start_clients
{
	my ($dir, $count, $databases, $options, $statement, $hasty) = @_;
	my $clients = { dir => $dir, pids => [], count => $count };

	write_target($clients, 'none');
	open($clients->{marks}, '>>', "$dir/marks") or die "$dir/marks: $!";
	$clients->{marks}->autoflush(1);
	foreach my $n (1 .. $count)
	{
		my $seed = int(rand(2**31));
		my $pid  = fork() // die "fork: $!";
		if ($pid == 0)
		{
			# no END block of the test may run here
			$SIG{INT} = $SIG{TERM} = sub { POSIX::_exit(1); };
			eval {
				srand($seed);
				client($dir, $n, $databases->[ $n % @$databases ],
					$options, $statement, $n <= ($hasty // 1));
			};
			print STDERR "client $n: $@" if $@;
			POSIX::_exit($@ ? 1 : 0);
		}
		push @{ $clients->{pids} }, $pid;
	}
	return $clients;
}

# From their next call on all clients use this server, whose keys carry $pair,
# datacenter and worker ID in one number; or any, where this is a name.
sub point_clients
{
	my ($clients, $node, $pair) = @_;
	write_target($clients,
		join(' ', $pair, $node->host . '/.s.PGSQL.' . $node->port));
	return;
}

# They leave after their present call.
sub pause_clients
{
	my ($clients) = @_;
	write_target($clients, 'none');
	return;
}

# Ends the clients after their present call; true where none of them failed.
sub stop_clients
{
	my ($clients) = @_;
	my $good = 1;

	write_target($clients, 'stop');
	foreach my $pid (@{ $clients->{pids} })
	{
		$good = 0 unless waitpid($pid, 0) == $pid && $? == 0;
	}
	$clients->{pids} = [];
	return $good;
}

# Waits until every client (or $least of them) has got keys after this moment;
# false after $timeout s.
sub wait_for_keys
{
	my ($clients, $timeout, $least) = @_;
	my @files = map { "$clients->{dir}/calls.$_" } 1 .. $clients->{count};
	my @sizes = map { -s $_ // 0 } @files;
	my $end   = clock_gettime(CLOCK_MONOTONIC) + $timeout;

	$least //= @files;
	while ((grep { (-s $files[$_] // 0) > $sizes[$_] } 0 .. $#files) < $least)
	{
		return 0 if clock_gettime(CLOCK_MONOTONIC) > $end;
		sleep(0.01);
	}
	return 1;
}

# Notes what is done to the server, for the pauses that check_keys() finds.
sub mark
{
	my ($clients, $kind) = @_;
	print { $clients->{marks} } join(' ', ns(), 'm', $kind), "\n";
	return;
}

# Checks what all these clients reported; a hash of figures.  The keys of each
# server increase, for each of its pairs.  Over all of its pairs, too, but for
# one that was taken because the keys of the one before lay far ahead.
my $far_ahead = 300;    # ms, less than max_wait + reserve of any test

sub check_keys
{
	my (@sets) = @_;
	my @dirs   = map { "'$_->{dir}'" } @sets;
	my $files  = sub {
		my ($name) = @_;
		return join(' ', map { "$_/$name" } @dirs);
	};
	my $tmp    = $sets[0]{dir};
	my @keys   = map { bsd_glob("$_->{dir}/keys.*") } @sets;
	my %result = (
		calls      => 0,
		refused    => 0,
		errors     => {},
		unexpected => [],
		pause      => {},
		pairs      => {},
		given_up   => 0);
	my (%highest, %present, %last_end, $first_mark, $kind);

	local $ENV{LC_ALL} = 'C';
	close($_->{marks}) foreach @sets;

	open(my $found, '-|', $check, @keys) or die "$check: $!";
	chomp(my @found = <$found>);
	close($found) or die "$check failed";
	@result{qw(keys order foreign)} = split / /, pop @found;

	# files that increase need only be merged
	IPC::Run::run(
		[
			qw(sort -n -S 1G -T),
			$tmp,        $result{order} ? () : qw(--merge --batch-size=1000),
			'/dev/null', @keys
		],
		'|',
		[qw(uniq -d)],
		'>',
		\my $twice) or die 'sort failed';
	my @twice = split /\n/, $twice;
	$result{duplicates} = @twice;
	push @found, map { "key $_ was made twice" } splice(@twice, 0, 3);
	$result{examples} = \@found;

	# at equal times "b" comes before "e": that call was not over yet
	open(
		my $events,
		'-|',
		"sort -T '$tmp' -k1,1n -k2,2 "
		  . $files->('calls.*') . ' '
		  . $files->('marks')) or die "$!";
	while (<$events>)
	{
		chomp;
		my ($at, $what, $pair, $key) = split / /;
		my $server = ($pair =~ /^([^:]*):/)[0];
		if ($what eq 'm')
		{
			$kind = substr($_, length("$at m "));
			$first_mark //= $at;
		}
		elsif ($what eq 'b')
		{
			my $before  = $present{$server} // $pair;
			my $highest = max($highest{$pair} // -1, $highest{$before} // -1);

			$result{pairs}{$pair} = 1;
			if (   $key > ($highest{$pair} // -1)
				&& $key <= $highest
				&& ($highest >> 22) - ($key >> 22) > $far_ahead)
			{
				$result{given_up}++;
				$present{$server} = $pair;
			}
			next if $key > $highest || $present{$server} ne $before;
			$result{order}++;
			push @{ $result{examples} },
			  "$kind: key $key of $pair is not above $highest of $before"
			  if $result{order} <= 3;
		}
		elsif ($what eq 'e')
		{
			$result{calls}++;
			$highest{$pair} = $key if $key > ($highest{$pair} // -1);
			$present{$server} //= $pair;
			$present{$server} = $pair
			  if $key >= ($highest{ $present{$server} } // -1);
			if (defined $kind)
			{
				my $pause =
				  ($at - max($last_end{$server} // $at, $first_mark)) / 1e9;
				$result{pause}{$kind} = $pause
				  if $pause > ($result{pause}{$kind} // 0);
				$last_end{$server} = $at;
			}
		}
		elsif ($what eq 'f') { $result{foreign}++; }
	}
	close($events) or die 'sort failed';

	open(my $errors, '-|', 'cat ' . $files->('errors.*')) or die "$!";
	while (<$errors>)
	{
		chomp;
		my (undef, $state, $message) = split / /, $_, 3;
		$result{errors}{$state}++;
		$result{refused}++ if $state =~ /^(55000|58000)$/;

		# shutting down and starting, terminated, crashed, gone
		push @{ $result{unexpected} }, "$state $message"
		  unless $state =~ /^(55000|58000|57P0[123]|08\w{3})$/;
	}
	close($errors);
	return \%result;
}

# The longest time, in s, from one call to the next in which one of these clients
# got no keys.
sub longest_pause
{
	my ($clients) = @_;
	my $longest = 0;

	foreach my $file (bsd_glob("$clients->{dir}/calls.*"))
	{
		my $last;
		open(my $calls, '<', $file) or die "$file: $!";
		while (<$calls>)
		{
			my ($at, $what) = split / /;
			next if $what ne 'e';
			$longest = max($longest, $at - ($last // $at));
			$last    = $at;
		}
		close($calls);
	}
	return $longest / 1e9;
}

#---- The client ----

sub write_target
{
	my ($clients, $target) = @_;
	sysopen(my $file, "$clients->{dir}/target", O_WRONLY | O_CREAT)
	  or die "$!";
	syswrite($file, pack("A$target_len", $target)) == $target_len or die "$!";
	close($file);
	return;
}

sub read_target
{
	my ($file) = @_;
	sysseek($file, 0, SEEK_SET);
	sysread($file, my $target, $target_len) == $target_len
	  or die "target: $!";
	return unpack("A$target_len", $target);
}

# Of keys that have a line each.
sub first_of { return substr($_[0], 0, index($_[0], "\n")); }

sub last_of
{
	return substr($_[0], rindex($_[0], "\n", length($_[0]) - 2) + 1, -1);
}

sub pair_of { return ($_[0] >> 12) & 1023; }

sub client
{
	my ($dir, $n, $database, $options, $statement, $is_hasty) = @_;
	my ($conn, $server);
	my $in_use = 'none';
	my $parent = getppid();
	my $pause  = $is_hasty && !$ENV{CALM} ? 0 : 0.01;

	open(my $target_file, '<', "$dir/target") or die "$!";
	my %out;
	my $put = sub {
		my ($name, @lines) = @_;
		if (!$out{$name})
		{
			open($out{$name}, '>>', "$dir/$name") or die "$dir/$name: $!";
			$out{$name}->autoflush(1);
		}
		print { $out{$name} } @lines or die "$dir/$name: $!";
	};
	my $failed = sub { $put->("errors.$n", ns(), " $_[0]\n"); };
	$put->("$_.$n", '') foreach 'calls', 'errors';
	while (getppid() == $parent)
	{
		my $target = read_target($target_file);
		if ($target ne $in_use)
		{
			close($conn->{socket}) if $conn;
			undef $conn;
			$in_use = $target;
		}
		return if $target eq 'stop';
		if ($target eq 'none')
		{
			sleep(0.005);
			next;
		}
		if (!$conn)
		{
			($server, my $path) = split / /, $target, 2;
			($conn, my $error) = pg_connect($path, $database, $options);
			if (!$conn)
			{
				$failed->($error);
				sleep(0.01);
				next;
			}
		}

		my $began = ns();
		my ($rows, $error, $is_lost) = pg_query($conn, $statement->());
		my $ended = ns();

		if (@$rows)
		{
			my $lines = join("\n", @$rows, '') =~ tr/,{}/\n/dr;
			my %of    = (pair_of(first_of($lines)) => $lines);
			my $call  = '';
			if (!exists $of{ pair_of(last_of($lines)) })
			{
				%of = ();
				$of{ pair_of($_) } .= "$_\n" foreach split /\n/, $lines;
			}
			foreach my $its_pair (keys %of)
			{
				my $name  = "$server:$its_pair";
				my $first = first_of($of{$its_pair});
				$call .= "$began b $name $first\n";
				$call .= "$ended e $name " . last_of($of{$its_pair}) . "\n";
				$call .= "$ended f $name $first\n"
				  if $server =~ /^\d/ && $server != $its_pair;
				$put->("keys.$n.$name", $of{$its_pair});
			}
			$put->("calls.$n", $call);
		}
		$failed->($error) if $error ne '';

		# the server needs the processor, too
		sleep(rand($error ne '' ? 0.004 : $pause)) if $pause || $error ne '';
		undef $conn                                if $is_lost;
	}
	return;
}

#---- PostgreSQL's protocol, as much as is needed ----

my $lost = '08006 connection lost';

sub pg_connect
{
	my ($path, $database, $options) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $path)
	  or return (undef, "08001 $path: $!");
	my $conn =
	  { socket => $socket, buffer => '', select => IO::Select->new($socket) };
	my $start = pack(
		'N(Z*)*', 196608,
		user             => scalar getpwuid($<),
		database         => $database,
		options          => $options,
		application_name => 'client',
		'');

	syswrite($socket, pack('N', length($start) + 4) . $start);
	my (undef, $error) = pg_answer($conn);
	return $error eq '' ? ($conn, '') : (undef, $error);
}

# The first column of all rows that came, as it is; the error or ''; and whether
# the connection is gone.
sub pg_query
{
	my ($conn, $sql) = @_;
	syswrite($conn->{socket}, 'Q' . pack('NZ*', length($sql) + 5, $sql));
	return pg_answer($conn);
}

sub pg_answer
{
	my ($conn) = @_;
	my @values;
	my $error = '';

	for (;;)
	{
		my $at  = 0;
		my $len = length($conn->{buffer});
		while ($len - $at >= 5)
		{
			my ($type, $size) = unpack('aN', substr($conn->{buffer}, $at, 5));
			last if $len - $at < $size + 1;
			if ($type eq 'D')
			{
				push @values,
				  unpack('x2 N/a*',
					substr($conn->{buffer}, $at + 5, $size - 4));
			}
			elsif ($type eq 'E')
			{
				my $text  = substr($conn->{buffer}, $at + 5, $size - 4);
				my %field = map { substr($_, 0, 1) => substr($_, 1) }
				  grep { $_ ne '' } split(/\0/, $text);
				$error = join(' ', @field{qw(C M)}, $field{D} // ());
				$error =~ s/\n/ /g;
			}
			elsif ($type eq 'Z')
			{
				$conn->{buffer} = '';
				return (\@values, $error, 0);
			}
			$at += $size + 1;
		}
		substr($conn->{buffer}, 0, $at, '');
		my $comes = $conn->{select}->can_read($no_answer);
		next
		  if $comes
		  && sysread($conn->{socket}, $conn->{buffer}, 1 << 16,
			length($conn->{buffer}));

		# of an array that is cut off, the elements that are whole
		push @values, $1 if $conn->{buffer} =~ /^D.{10}(\{.*),/s;
		return (\@values,
			$error || ($comes ? $lost : "XXXXX no answer in $no_answer s"),
			1);
	}
}

1;
