# A caller that loses its processor between its reading of the cursor and its
# compare-and-swap, while others take all of two ranges, so that the offset is the
# same again: the number that it gets is nobody else's.  Stopped with gdb.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('race', '');
$node->start;
query($node, <<~EOF);
	CREATE EXTENSION snowid;
	INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('a', 100, '0');
	EOF

# Where the compare-and-swap is.
my ($libdir) = map { s/\n//r } qx(pg_config --pkglibdir);
my ($code)   = run_log_of('gdb', '-batch', '-ex', 'disassemble segment_next',
	"$libdir/snowid.so");
my ($at) = $code =~ /<\+(\d+)>:\s+lock cmpxchg/;
plan skip_all => 'there is no gdb that finds the instruction' if !defined $at;

sub run_log_of
{
	my $out = '';
	eval { IPC::Run::run(\@_, '>', \$out, '2>', '/dev/null'); };
	return $out;
}

my $session = $node->background_psql('postgres');
my $pid     = $session->query_safe('SELECT pg_backend_pid()');
my @numbers = $session->query_safe("SELECT snowid_number('a')");
my $until   = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
my ($in, $out) = ('', '');
my $gdb = IPC::Run::start([ 'gdb', '-q', '-nx', '-p', $pid ],
	'<', \$in, '>&', \$out, $until);

# What gdb says to this.
sub tell_gdb
{
	my ($command, $answer) = @_;
	$out = '';
	$in .= "$command\n";
	$gdb->pump until $out =~ $answer || !$gdb->pumpable;
	return $out =~ $answer;
}
tell_gdb('set pagination off', qr/\(gdb\)/);
if (!tell_gdb("break *((long) &segment_next + $at)", qr/Breakpoint 1 at/))
{
	$in .= "quit\n";
	eval { $gdb->finish };
	plan skip_all => 'gdb cannot attach to a server process';
}
tell_gdb('continue', qr/Continuing/);
$session->{stdin} .= "SELECT snowid_number('a');\n\\echo done\n";
$session->{run}->pump_nb;
$gdb->pump until $out =~ /Breakpoint 1,/ || !$gdb->pumpable;
like($out, qr/Breakpoint 1,/, 'the caller is stopped before its step');

# One at a time, lest a range be passed over.
push @numbers, map { number($node, 'a') } 1 .. 3;
push @numbers, split /\n/,
  query($node, "SELECT snowid_number('a') FROM generate_series(1, 197)");
is(segment_status($node, 'a', 'next'),
	202, 'others have taken two ranges, to the same offset');
tell_gdb('delete', qr/\(gdb\)/);
$in .= "detach\nquit\n";
$gdb->finish;
$session->{run}->pump until $session->{stdout} =~ /done/;
push @numbers, $session->{stdout} =~ /^(\d+)$/m;
is(scalar(@numbers), 202, 'the caller goes on');
my %seen = map { $_ => 1 } @numbers;
is(scalar(keys %seen), 202, 'with a number that nobody else has got');
$session->quit;
$node->stop;
done_testing();
