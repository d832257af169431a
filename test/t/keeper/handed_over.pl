# A worker ID that a program hands from one server to another, as soon as the status shows
# that the first one makes no keys with it, while 200 callers on each of them want more
# keys than the layout has: no key is made twice.  Callers that sleep on a key then are
# ahead of the clock by more than max_lead.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes 'usleep';

my $rounds  = 20;
my $callers = 200;

# One key a millisecond, so that each caller sleeps for 200 ms: longer than it takes to hand
# the worker ID over.
my $common =
  "snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=0'\nsnowid.max_lead = 10ms\nsnowid.max_wait = 10min";

sub server
{
	my ($name, $id) = @_;
	my $node = snowid_cluster($name, "snowid.worker_id = $id");
	$node->append_conf('postgresql.conf', "$common\nmax_connections = 300");
	start_and_open($node);
	query($node,
		'CREATE UNLOGGED TABLE made (key bigint DEFAULT snowid_next())');
	$node->{session} = SnowidSession->new($node, 'postgres');
	$node->{callers} = start_pgbench(
		$node, 'postgres',
		"-c $callers -T 600",
		make => 'INSERT INTO made DEFAULT VALUES');
	return $node;
}

# By a signal of our own, since pg_ctl takes time.
sub set_number
{
	my ($node, $id) = @_;
	configure($node, "snowid.worker_id = $id");
	kill 'HUP', $node->{_pid};
	return;
}

# Waits until the status says so, at once.
sub is_so
{
	my ($node, $what) = @_;
	wait_until(
		"$what on " . $node->name,
		sub {
			for (1 .. 20)
			{
				return 1
				  if $node->{session}
				  ->query("SELECT $what FROM snowid_status()") eq 't';
				usleep(500);
			}
			return 0;
		});
	return;
}

# How many keys with the worker ID are stored there.
sub fives
{
	my ($node) = @_;
	return $node->{session}
	  ->query('SELECT count(*) FROM made WHERE (key & 31) = 5');
}

my ($from, $to) = (server('first', 5), server('second', 6));
my %free = map { $_->name => $_ == $from ? 7 : 6 } $from, $to;
foreach my $round (1 .. $rounds)
{
	set_number($from, $free{ $from->name });
	is_so($from, 'worker_id <> 5 OR NOT is_open');
	my $had = fives($to);
	set_number($to, 5);
	is_so($to, 'worker_id = 5 AND is_open');
	usleep(250_000);
	wait_until('keys with the worker ID', sub { fives($to) > $had });
	($from, $to) = ($to, $from);
}

my %keys;
foreach my $node ($from, $to)
{
	ok(stop_pgbench($node->{callers}), $node->name . ': no caller failed')
	  or diag($node->{callers}{out});
	$keys{ $node->name } =
	  [ split /\n/, query($node, 'SELECT key FROM made') ];
	$node->stop;
}
my %seen;
$seen{$_}++ foreach map { @$_ } values %keys;
my $fives = grep { ($_ & 31) == 5 } keys %seen;
my $twice = grep { $_ > 1 } values %seen;
cmp_ok($fives, '>', $rounds, 'both servers made keys with the worker ID');
is($twice, 0, 'no key was made twice')
  or diag("$twice of $fives keys");
done_testing();
