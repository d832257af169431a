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
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('a', 100, '0');
	EOF

# Where the compare-and-swap is.
my ($libdir) = map { s/\n//r } qx(pg_config --pkglibdir);
my ($code)   = run_log_of('gdb', '-batch', '-ex', 'disassemble snowid_number',
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
$session->set_query_timer_restart();
my $pid     = $session->query_safe('SELECT pg_backend_pid()');
my @numbers = $session->query_safe("SELECT snowid_number('a')");

# gdb goes through this by itself, to the first error; the caller stands at the step
# until there is the file "go".  Signals of the server's do not stop it.
my $dir  = $node->basedir;
my $step = "((long) &snowid_number + $at)";
append_to_file("$dir/script", <<~EOF);
	handle SIGUSR1 SIGUSR2 SIGURG SIGALRM nostop noprint pass
	break *$step
	shell touch '$dir/set'
	continue
	if \$pc == $step
	shell touch '$dir/at'; until [ -e '$dir/go' ] || ! kill -0 $$; do sleep 0.1; done
	end
	delete
	detach
	EOF
my $gdb = IPC::Run::start(
	[ 'gdb', '-q', '-nx', '-batch', '-p', $pid, '-x', "$dir/script" ],
	'<', '/dev/null', '>', "$dir/gdb.out", '2>&1');
wait_until('gdb', sub { -e "$dir/set" || !$gdb->pumpable });
plan skip_all => 'gdb cannot attach to a server process' if !-e "$dir/set";

# The first number of a statement does not come by this step; the second does.
$session->{stdin} .=
  "SELECT snowid_number('a') FROM generate_series(1, 2);\n";
wait_until(
	'the caller at its step',
	sub {
		$session->{run}->pump_nb;
		return -e "$dir/at" || !$gdb->pumpable;
	});
ok(-e "$dir/at", 'the caller is stopped before its step');

# One at a time, so that no range is passed over.
my @others = map { number($node, 'a') } 1 .. 3;
push @others, split /\n/,
  query($node, "SELECT snowid_number('a') FROM generate_series(1, 197)");
cmp_ok($others[-1] - $others[0],
	'==', 199, 'two ranges are taken meanwhile, to the same offset');
append_to_file("$dir/go", '');
$gdb->finish;
push @numbers,
  $session->query_until(qr/^done$/m, "\\echo done\n") =~ /^(\d+)$/mg;
is( $numbers[-1] // '',
	$others[-1] + 1,
	'the caller that was stopped gets a number');
push @numbers, @others;
my %seen = map { $_ => 1 } @numbers;
is(scalar(keys %seen),
	scalar(@numbers), 'the caller gets a number that nobody else has got');
$session->quit;
$node->stop;
done_testing();
