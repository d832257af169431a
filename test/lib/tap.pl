# tap.pl - runs TAP tests, each by itself, in place of prove in `make installcheck`.
#
#	tap.pl [--jobs=N] [--limit=SECONDS] [--totals=FILE] [-I DIR]... TEST...
#	tap.pl --until-failure ...
#
# Prints the first check of a test that fails, at once; and as soon as the test ends, a
# line about it, and below that what explains its failure.  At the end "passed failed" goes
# into FILE.  A test that ends badly without a failed check is one failure; a check that TAP
# marks with a directive counts nowhere.
#
# The name of a check must be a whole claim, since it is all that one sees when it fails:
# three words or more, and none that continues another sentence in front, nor behind a
# colon.  Names that are not are one failure.
#
# --until-failure is for test/release/mutations: the first test goes alone, then several at a
# time, up to the first check that fails, which is all that is printed.

use strict;
use warnings;

use Getopt::Long;
use IO::Select;

my ($jobs, $limit, $totals, $until_failure, @include) = (1, 3600);
GetOptions(
	'jobs=i'        => \$jobs,
	'limit=i'       => \$limit,
	'totals=s'      => \$totals,
	'until-failure' => \$until_failure,
	'I=s'           => \@include) or exit 2;
my @waiting = @ARGV;
my $most    = $until_failure ? 1 : $jobs;
my ($passed, $failed) = (0, 0);
my (%running, %half);

$| = 1;
my $outputs = IO::Select->new;
while (@waiting || %running)
{
	start(shift @waiting) while @waiting && keys %running < $most;
	foreach my $out ($outputs->can_read)
	{
		my $test = $running{$out};
		my $more =
		  sysread($out, $test->{tap}, 65536, length $test->{tap});
		look_for_failure($test);
		next if $more;
		$outputs->remove($out);
		close($out);
		delete $running{$out};
		$most = $jobs;
		report($test, $?);
	}
}
if (%half)
{
	$failed++;
	print map { "   not a whole claim: $_\n" } sort keys %half;
	result('names of checks', 'FAILED');
}
if ($totals)
{
	open(my $file, '>', $totals) or die "$totals: $!\n";
	print $file "$passed $failed\n";
	close $file or die "$totals: $!\n";
}
exit($failed ? 1 : 0);

sub start
{
	my ($script) = @_;
	my @perl = ('perl', map({ ('-I', $_) } @include), $script);
	open(my $out, '-|', 'timeout', '--foreground', '--kill-after=60', $limit,
		@perl)
	  or die "$script: $!\n";
	$outputs->add($out);
	$running{$out} = {
		name  => $script =~ s{^test/t/|\.pl$}{}gr,
		began => time,
		tap   => ''
	};
	return;
}

sub result { return printf "   %-40s %s\n", @_; }

# One that has ended: its line, what explains a failure, and the count.
sub report
{
	my ($test, $status) = @_;
	my ($ok,   $not_ok) = (0, 0);
	while ($test->{tap} =~ /^(not )?ok\b *\d*(?: -)? *(.*)/mg)
	{
		my ($bad, $name) = ($1, $2);
		next if $name =~ /#\s*(?:skip|todo)\b/i;
		$bad ? $not_ok++ : $ok++;
		$half{"$test->{name}: $name"} = 1 if !is_claim($name);
	}
	my ($skipped) = $test->{tap} =~ /^1\.\.0 # skip (.*)/im;
	my $exit = $status >> 8;
	my $why =
		$exit == 124 || $exit == 137      ? 'it timed out'
	  : $test->{tap} =~ /^(Bail out!.*)/m ? $1
	  : $not_ok                           ? ''
	  : $status                           ? "it ended with $exit"
	  : $ok || $skipped                   ? ''
	  :                                     'it checks nothing';
	if ($until_failure)
	{
		stop($test, $why) if $why;
		return;
	}
	$not_ok ||= 1 if $why;
	$passed += $ok;
	$failed += $not_ok;
	result(
		$test->{name},
		$not_ok    ? "$ok ok, $not_ok FAILED" . ($why && ": $why")
		: $skipped ? "skipped: $skipped"
		: sprintf '%3d ok %6d s',
		$ok,
		time - $test->{began});
	explain($test->{name}) if $not_ok;
	return;
}

# The first check that has failed so far
sub look_for_failure
{
	my ($test) = @_;
	return
	  if $test->{has_failed}
	  || $test->{tap} !~ /^not ok \d+ - ((?!.*#\s*(?i:skip|todo)\b).*)\n/m;
	stop($test, $1) if $until_failure;
	$test->{has_failed} = 1;
	result($test->{name}, "FAILED so far: $1");
	return;
}

sub stop
{
	my ($test, $why) = @_;
	print "not ok 1 - $test->{name}: $why\n";
	exit 1;
}

sub is_claim
{
	my ($name) = @_;
	my @words  = split ' ', $name;
	return
		 @words > 2
	  && $name !~ /^(?:with|what|which|who\w*|where)\b/i
	  && $name !~ /(?:^|: )(?:and|nor|so|also|then|until|but|or)\b/i;
}

# The failed checks with what is said below them, and the ends of the logs, which
# PostgreSQL names by the last part of the test's name.
sub explain
{
	my $name = $_[0] =~ s{.*/}{}r;
	my $log  = "tmp_check/log/regress_log_$name";
	my $left = 0;

	foreach my $line (lines($log))
	{
		$left = 13  if $line =~ /\bnot ok /;
		print $line if $left-- > 0;
	}
	foreach my $file ($log, glob("tmp_check/log/${name}_*.log"))
	{
		my @lines = lines($file) or next;
		print '--- end of ', $file =~ s{.*/}{}r, "\n",
		  @lines[ -(@lines < 25 ? @lines : 25) .. -1 ];
	}
	return;
}

sub lines
{
	my ($name) = @_;
	open(my $in, '<', $name) or return ();
	return <$in>;
}
