# tally.pl - reads the output of `make installcheck` and prints a line a test.
#
# Owns the counting.  Understands pg_regress of PostgreSQL 15 ("test a ... ok")
# and later ("ok 1 - a"), and prove's verbose output.  At the end it writes
# "passed failed" to the file named first, and the scripts of prove that failed
# to the one named second.  A script that ends badly without a failed assertion
# is one failure; a check that TAP marks with a directive counts nowhere.
#
# The name of a check in a script must be a whole claim, since it is all that one sees
# when it fails: three words or more, and none that continues another sentence in
# front, nor behind a colon.  Names that are not are one failure.

use strict;
use warnings;

my ($totals, $scripts) = @ARGV;
my ($passed, $failed)  = (0, 0);
my @bad_scripts;
my @halves;

# Of the test script that is running: its name, how many assertions held and
# failed, and what prove said at its end.
my ($script, $ok, $not_ok, $verdict);

sub end_script
{
	return unless defined $script;
	my $died = $verdict !~ /^(?:ok|skipped)/ && !$not_ok;
	$verdict = 'timed out'
	  if $verdict =~ /^Dubious, test returned (?:124|137)\b/;
	$not_ok++ if $died;
	$passed += $ok;
	$failed += $not_ok;
	push @bad_scripts, $script if $not_ok;
	printf "   %-40s %s\n", $script,
	  $died
	  ? "FAILED: " . ($verdict || "did not end")
	  : $not_ok ? "$ok ok, $not_ok FAILED"
	  . ($verdict eq 'timed out' ? ', timed out' : '')
	  : $verdict =~ /^skipped/ ? $verdict
	  :                          "$ok ok";
	undef $script;
	return;
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

sub count
{
	my ($good, $name) = @_;

	if (defined $script)
	{
		push @halves, "$script: $name" if !is_claim($name);
		$good ? $ok++ : $not_ok++;
	}
	else
	{
		$good ? $passed++ : $failed++;
		printf "   %-40s %s\n", $name, $good ? "ok" : "FAILED";
	}
	return;
}

$| = 1;
while (my $line = <STDIN>)
{
	chomp $line;
	if ($line =~ m{^(?:\S*/)?([^/\s]+/[^/\s]+\.pl) \.\.+ ?(.*)})
	{
		end_script();
		($script, $ok, $not_ok, $verdict) = ($1, 0, 0, $2);
	}
	elsif ($line =~ /^(?:Test Summary Report|All tests successful|Files=)/)
	{
		end_script();
	}
	elsif ($line =~ /^(not )?ok\b\s*\d*\s*(?:[-+]\s+)?(.*?)(?:\s+\d+ ms)?$/
		&& $line ne 'ok')
	{
		my ($bad, $name) = ($1, $2);
		count(!$bad, $name) unless $name =~ /#\s*(?:skip|todo)\b/i;
	}
	elsif ($line =~ /^(?:test|    )\s+(\S+)\s+\.\.\. (ok|FAILED)\b/)
	{
		count($2 eq 'ok', $1);
	}
	elsif (defined $script
		&& $line =~ /^(?:ok$|skipped|Dubious|Failed |Result|No subtests)/)
	{
		$verdict ||= $line;
	}
}
end_script();
if (@halves)
{
	my %seen;
	$failed++;
	print "   not a whole claim: $_\n" foreach grep { !$seen{$_}++ } @halves;
	printf "   %-40s FAILED\n", 'names of checks';
}

open(my $out, '>', $totals) or die "$totals: $!\n";
print $out "$passed $failed\n";
close $out                or die "$totals: $!\n";
open($out, '>', $scripts) or die "$scripts: $!\n";
print $out map { "$_\n" } @bad_scripts;
close $out or die "$scripts: $!\n";
