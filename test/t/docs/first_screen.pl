# README's first screen, in both languages: the two commands for a fresh machine run as
# they stand there, the second for one quick test, and print what the page shows.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'the commands are for Debian and Ubuntu'
  if system('command -v apt-get dpkg-query gcc >/dev/null 2>&1') != 0;

my $top = abs_path(dirname(__FILE__) . '/../../..');
my ($english, $chinese) =
  map { first_screen("$top/$_") } qw(README.md README.zh-CN.md);

# The lines of the first block in sh, and of the one after it, which shows the output
sub first_screen
{
	my ($page)  = @_;
	my ($start) = join "\n", (split /\n/, slurp_file($page))[ 0 .. 59 ];
	my ($commands, $shown) =
	  $start =~ /^```sh\n(.*?)^```\n.*?^```\n(.*?)^```\n/ms
	  or die "$page: no commands with their output in its first 60 lines";

	return {
		commands => [ $commands =~ /^([^#\n]*?) *(?:#.*)?$/mg ],
		shown    => [ split /\n/, $shown ]
	};
}

sub squeeze
{
	my ($line) = @_;
	return $line =~ s/\s+/ /gr =~ s/^ | $//gr;
}

# Runs a command line in the checkout, with the PostgreSQL that was chosen, if one was, and
# what is compiled already.  Returns its exit status and its lines, without the spaces
# that align them.
sub run_line
{
	my ($line) = @_;
	my $out = '';

	local $ENV{PG_CONFIG} = $ENV{CHOSEN_PG_CONFIG} // '';
	local $ENV{BUILT}     = $top;
	delete local @ENV{qw(KEEP_BUILD JOBS MAKEFLAGS MAKELEVEL MFLAGS)};
	IPC::Run::run([ 'bash', '-c', "cd '$top' && $line" ],
		'<', \'', '>&', \$out);
	note($out);
	return ($? >> 8, map { squeeze($_) } split /\n/, $out);
}

is_deeply(
	$english->{commands},
	[ 'test/demo', 'test/run' ],
	'README.md has the two commands in its first 60 lines');
is_deeply($chinese, $english,
	'README.zh-CN.md has the same commands and the same output');

my ($demo,   $run)   = @{ $english->{commands} };
my ($status, @lines) = run_line($demo);
is($status, 0, "the command $demo ends without an error");
my @missing = map { squeeze($_) } @{ $english->{shown} };
foreach my $line (@lines)
{
	shift @missing if @missing && $line eq $missing[0];
}
is("@missing", '', "$demo prints what README shows, in its order")
  or diag(join "\n", @lines);

($status, @lines) = run_line("$run keys/host_name");
is($status, 0, "the command $run ends without an error")
  or diag(join "\n", @lines);
like(
	$lines[-1],
	qr/^\d+ passed, 0 failed$/,
	"$run ends with the line that README shows");

done_testing();
