# Shared by the torture programs: their directory, their end, the rounds of
# faults, and the report on the keys that the clients got.
#
# Each also has a server whose processes are left alone, so that they last as
# long as the run: their memory must not grow, and its clients see no pause.
#
# Use it before PostgreSQL's modules, which look at the environment when they
# are loaded.  PG_CONFIG=... chooses a PostgreSQL.  The last line that is
# printed is PASS or FAIL.  KEEP=1 keeps the directory of a run that failed.

package SnowidTorture;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use File::Temp;
use List::Util  qw(max shuffle sum);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);

our @EXPORT =
  qw($work say_so any between many torture kill_server start_server ask
  kill_process new_client_dir);

our $work;
my ($out, $main);

BEGIN
{
	die "$0: initdb does not run as root\n" if $> == 0;
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	my ($bin, $lib) =
	  map { s/\n//r } (`$pg_config --bindir`, `$pg_config --pkglibdir`);
	die "$0: $pg_config does not run\n" if !$lib;

	my $here = dirname(abs_path(__FILE__));
	-e "$here/$_"
	  or die "$0: run \"make test/lib/$_\" first\n"
	  foreach 'skew.so', 'keys';
	unshift @INC, "$lib/pgxs/src/test/perl";
	$work = File::Temp->newdir('torture.XXXXXX', TMPDIR => 1, CLEANUP => 0);
	$ENV{PATH}        = "$bin:$ENV{PATH}";
	$ENV{TESTDIR}     = "$work";
	$ENV{TESTDATADIR} = "$work/tmp_check";       # from PostgreSQL 16 on
	$ENV{TESTLOGDIR}  = "$work/tmp_check/log";
	$ENV{PG_REGRESS} //= "$lib/pgxs/src/test/regress/pg_regress";
	open($out, '>&', \*STDOUT) or die "$!";      # Utils.pm takes STDOUT
	$out->autoflush(1);
	$main = $$;
	$SIG{INT} = $SIG{TERM} = sub { exit 1; };
}

# Runs after those of the modules below, which end the servers.
END
{
	if (defined $main && $$ == $main)
	{
		my $status = $?;
		if ($status != 0 && $ENV{KEEP}) { print $out "kept: $work\n"; }
		else
		{
			$File::Temp::KEEP_ALL = 0;
			system('rm', '-rf', "$work");
		}
		print $out $status == 0 ? "PASS\n" : "FAIL\n";
		$? = $status;
	}
}

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidClients;
use SnowidTest;

sub say_so { print $out @_, "\n"; return; }

sub any     { return $_[ int(rand(@_)) ]; }
sub between { return $_[0] + rand($_[1] - $_[0]); }

# How many keys a client is to ask for in one array, ten times a second; else 0.
my $many      = $ENV{MANY} // 0;
my $next_many = 0;

sub many
{
	my $now = clock_gettime(CLOCK_MONOTONIC);
	return 0 if !$many || $now < $next_many;
	$next_many = $now + 0.1;
	return 1 + int(rand($many));
}

my $client_dirs = 0;

sub new_client_dir
{
	my $dir = "$work/clients" . ++$client_dirs;
	mkdir $dir or die "$dir: $!";
	return $dir;
}

#---- A server ----

sub kill_server
{
	my ($node) = @_;
	my $pid = $node->{_pid};
	$node->kill9;
	sleep(0.005) while kill(0, $pid);
	return;
}

# Starts it, as soon as the processes of a killed one are gone: for 60 s, its startup
# process may wait for a checkpointer that never comes.
sub start_server
{
	my ($node) = @_;
	my $end = clock_gettime(CLOCK_MONOTONIC) + 120;
	while (!$node->start(fail_ok => 1))
	{
		die "the server does not start\n"
		  if clock_gettime(CLOCK_MONOTONIC) > $end;
		sleep(0.05);
	}
	return;
}

# An answer, or '' where the server has none or cannot be asked now.
sub ask
{
	my ($node, $sql)    = @_;
	my ($rc,   $answer) = eval {
		$node->psql(
			'postgres', $sql,
			timeout   => 30,
			timed_out => \my $late,
			stderr    => \my $err);
	};
	return defined $rc && $rc == 0 ? $answer : '';
}

# kill -9 of one of the processes that this condition names, to its end.
sub kill_process
{
	my ($node, $which) = @_;
	my $pid = ask($node,
		"SELECT pid FROM pg_stat_activity WHERE $which ORDER BY random() LIMIT 1"
	);
	return unless $pid =~ /^\d+$/;
	kill 'KILL', $pid;
	sleep(0.002) while kill(0, $pid);
	return;
}

# The memory of each of its processes that last, in kB, without what is shared.
# None under ASan, which keeps what was freed.
sub memory
{
	my ($node) = @_;
	my %kb;

	return {} if slurp_file("/proc/$node->{_pid}/maps") =~ /libasan/;
	foreach my $pid (processes($node))
	{
		my $about = eval {
				slurp_file("/proc/$pid/cmdline")
			  . slurp_file("/proc/$pid/status");
		} // next;
		my $name =
			$pid == $node->{_pid}      ? 'postmaster'
		  : $about =~ /: (snowid \w+)/ ? $1
		  : $about =~ /\[local\]/      ? 'session'
		  :                              next;
		($kb{"$name $pid"}) = $about =~ /^RssAnon:\s+(\d+)/m;
	}
	return \%kb;
}

#---- The run ----

# Faults in random order, until the time is over; after each one all clients get
# keys again.  Then reports on all the clients there were, and ends the program.
#	seconds	=> how long
#	faults	=> { name => sub }
#	clients	=> sub that returns those at work
#	all		=> sub that returns these and all that were stopped before
#	finish	=> sub that stops the servers, and returns further problems
#	servers	=> sub that returns how many there were
#	steady	=> the node that lasts, and those of its clients that should see no pause
sub torture
{
	my (%run) = @_;
	my $end = clock_gettime(CLOCK_MONOTONIC) + $run{seconds};
	my (%done, @problems, $memory, $later);
	my $any_keys = sub {
		my ($after) = @_;
		foreach my $clients ($run{clients}->())
		{
			wait_for_keys($clients, 60) or die "no keys $after\n";
		}
	};

	eval {
		my @next;
		$any_keys->('at first');
		while (clock_gettime(CLOCK_MONOTONIC) < $end)
		{
			@next = shuffle(sort keys %{ $run{faults} }) unless @next;
			my $kind = shift @next;

			mark($_, $kind) foreach $run{clients}->();
			$done{$kind}++;
			say_so("  $kind") if $ENV{VERBOSE};
			$run{faults}{$kind}->();
			$any_keys->("after: $kind");
			$memory //= memory($run{steady}[0]);
			sleep(between(0, 0.3));
		}
		$later = memory($run{steady}[0]);
	};
	push @problems, $@ if $@;
	foreach my $clients ($run{clients}->())
	{
		push @problems, "a client failed\n" unless stop_clients($clients);
	}
	push @problems, $run{finish}->() if !@problems;
	my $log = join '',
	  map { slurp_file($_) } glob("$work/tmp_check/log/*_s*.log");
	push @problems, "the server's log has: $1\n"
	  if $log =~ /((?:PANIC|TRAP|segmentation|signal 11)[^\n]*)/;

	my $checked = check_keys($run{all}->());
	say_so(sum(values %done) // 0,
		' rounds, ', $run{servers}->(), ' servers:');
	say_so(sprintf '  %-56s %4s %s',
		'fault', 'no.', 'longest time without keys');
	foreach my $kind (sort keys %done)
	{
		say_so(sprintf '  %-56s %4d %6.2f s',
			$kind, $done{$kind}, $checked->{pause}{$kind} // 0);
	}
	say_so(
		"$checked->{keys} keys in $checked->{calls} calls, $checked->{refused} calls refused; errors by SQLSTATE: "
		  . join(', ',
			map { "$_ $checked->{errors}{$_}" }
			sort keys %{ $checked->{errors} }));
	say_so(
		"$checked->{duplicates} duplicates, $checked->{order} order violations, $checked->{foreign} keys with another server's number, "
		  . scalar(@{ $checked->{unexpected} })
		  . ' unexpected errors'
		  . (
			$checked->{given_up}
			? "; order given up $checked->{given_up} times for another worker ID"
			: ''));
	say_so(
		sprintf
		  'the server that nobody touches: longest pause of a client %.2f s',
		longest_pause($run{steady}[1]));
	foreach my $process (grep { defined $memory->{$_} } sort keys %$later)
	{
		my $growth = $later->{$process} - $memory->{$process};
		say_so(
			"  memory of $process: $memory->{$process} kB, grown by $growth kB"
		);

		# what is used for the first time is less; 100 bytes lost ten times a
		# second are more after 20 minutes; malloc() keeps the largest array
		push @problems, "the memory of $process grows\n"
		  if $growth > 1024 + ($process =~ /session/ ? $many / 10 : 0);
	}
	push @problems, $run{check}->($checked) if $run{check};
	say_so("  $_") foreach @{ $checked->{examples} // [] };
	my %seen;
	say_so("  $_")
	  foreach grep { !$seen{$_}++ && keys %seen <= 5 }
	  @{ $checked->{unexpected} };
	print $out "  $_" foreach @problems;

	exit(   !@problems
		  && $checked->{keys} > 0
		  && !$checked->{duplicates}
		  && !$checked->{order}
		  && !$checked->{foreign}
		  && !@{ $checked->{unexpected} } ? 0 : 1);
}

1;
