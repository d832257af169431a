# coverage.pl - reads what gcov says (its JSON, a line a file) and prints lines and
# branches by file: coverage.pl CHECKOUT <JSON.  Fails below the aims, and where
# coverage.list and the tests do not agree on which lines are not reached.
#
# A branch is one way to continue after a condition, in our own text: those in the
# macros of PostgreSQL that report, assert, check for interrupts, take a spinlock or
# read a varlena or an array are not counted.
use strict;
use warnings;

use JSON::PP;

my ($top)        = @ARGV;
my $list         = "$top/test/release/coverage.list";
my %aim          = (lines => 98, branches => 90);
my $their_macros = qr/\b(?:ereport|ereturn|elog|Assert|CHECK_FOR_INTERRUPTS
	|SpinLock\w+|VAR(?:SIZE|DATA)\w+|ARR_\w+|PG_GETARG_\w+_PP?|PG_TRY|PG_CATCH|HOLD_INTERRUPTS
	|RESUME_INTERRUPTS|TIMESTAMP_\w+|foreach\w*|list_\w+|lfirst\w*)\b/x;

# Of a file, by line: how often it was run, its branches, and the function it is of.
my (%count, %branches, %function);
while (my $json = <STDIN>)
{
	foreach my $file (@{ decode_json($json)->{files} })
	{
		next if $file->{file} !~ m{^src/(.*)};
		my $name = $1;
		next if !-e "$top/src/$name";
		foreach my $line (@{ $file->{lines} })
		{
			my $n = $line->{line_number};
			$count{$name}{$n} += $line->{count};
			$function{$name}{$n} = $line->{function_name} // '';

			# an inline function is there once for each file that includes it
			my $i = 0;
			$branches{$name}{$n}[ $i++ ] += $_->{count}
			  foreach @{ $line->{branches} };
		}
	}
}

sub lines_of
{
	my ($file) = @_;
	open(my $in, '<', $file) or die "$file: $!";
	my @lines = <$in>;
	chomp @lines;
	return @lines;
}

# The list: a file's name, behind a tab each the function and the text of a line, and
# why; a blank line.  What is said to be reached "now and then" may be.
my (%listed, %maybe, @wrong);
if (-e $list)
{
	local $/ = '';
	open(my $in, '<', $list) or die "$list: $!";
	while (my $entry = <$in>)
	{
		my ($file, @lines) = grep { !/^#/ } split /\n/, $entry;
		my @texts = map { s/^\t//r } grep { /^\t/ } @lines;
		my $why   = join ' ', grep { !/^\t/ } @lines;
		next if !defined $file;
		push @wrong, "$list: $file: no reason, or no line"
		  if !@texts || $why eq '';
		$listed{$file}{$_}++ foreach @texts;
		@{ $maybe{$file} }{@texts} = () if $why =~ /^Now and then/;
	}
}

my (%sum, %there, %missed);
printf "%-34s %15s %17s\n", 'file', 'lines', 'branches';
foreach my $name (sort keys %count)
{
	my @text = lines_of("$top/src/$name");
	my ($lines, $reached, $ways, $taken) = (0, 0, 0, 0);

	foreach my $n (sort { $a <=> $b } keys %{ $count{$name} })
	{
		my $text = $text[ $n - 1 ] =~ s/^\s+|\s+$//gr;
		my $line = "$function{$name}{$n}: $text";
		$lines++;
		$there{$name}{$line}++;
		$reached++ if $count{$name}{$n};
		push @wrong, "src/$name:$n: not reached, and not in the list: $line"
		  if !$count{$name}{$n}
		  && ++$missed{$name}{$line} > ($listed{$name}{$line} // 0);
		my $branches = $branches{$name}{$n};
		next if !$branches || $text =~ $their_macros;
		$ways  += @$branches;
		$taken += grep { $_ } @$branches;
	}
	show($name, $reached, $lines, $taken, $ways);
	my @add = ($reached, $lines, $taken, $ways);
	$sum{$_} += shift @add foreach qw(reached lines taken ways);
}
show('all', @sum{qw(reached lines taken ways)});

sub show
{
	my ($name, $reached, $lines, $taken, $ways) = @_;
	printf "%-34s %4d/%4d %5.1f%% %5d/%4d %5.1f%%\n", $name, $reached, $lines,
	  100 * $reached / ($lines || 1), $taken, $ways,
	  $ways ? 100 * $taken / $ways : 100;
	return;
}

foreach my $name (sort keys %listed)
{
	foreach my $line (sort keys %{ $listed{$name} })
	{
		my $n = $listed{$name}{$line};
		push @wrong, "src/$name: in the list, and gone: $line"
		  if ($there{$name}{$line} // 0) < $n;
		push @wrong, "src/$name: in the list, and reached: $line"
		  if ($there{$name}{$line} // 0) >= $n
		  && ($missed{$name}{$line} // 0) < $n
		  && !exists $maybe{$name}{$line};
	}
}
push @wrong, "below the aim: $aim{lines} % of lines"
  if $sum{reached} < $aim{lines} / 100 * $sum{lines};
push @wrong, "below the aim: $aim{branches} % of branches"
  if $sum{taken} < $aim{branches} / 100 * $sum{ways};
print map { "$_\n" } @wrong;
exit(@wrong > 0);
