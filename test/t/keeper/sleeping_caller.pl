# A caller that sleeps on a key which is not due yet does not return it once the gate was
# closed: another server may have the worker ID by then.  It gets a key of the new one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes 'time';

my %common = ('snowid.max_lead' => '10ms', 'snowid.max_wait' => '1h');
my $node   = snowid_cluster('sleeping',
	join("\n", map { "$_ = $common{$_}" } sort keys %common)
	  . "\nsnowid.worker_id = 1");
start_and_open($node);

# The clock stands, and all keys up to max_lead ahead of it are made, in the layout's 4096
# a ms: so the next caller sleeps until the clock moves.
my $ms = int(1000 * time) + 2000;
stop_clock($node, $ms);
poll($node, "is_open AND lead_ms IS NULL OR lead_ms < 10");
my $first = next_key($node);
my ($at, $sequence) =
  split /\|/,
  query($node,
	"SELECT round(extract(epoch FROM created_at) * 1000), sequence FROM snowid_decode($first)"
  );
my $left = ($ms + 10 - $at) * 4096 + 4095 - $sequence;
is(query($node, "SELECT count(*) FROM snowid_next_batch($left)"),
	$left, 'a caller gets all keys up to max_lead');

my $next    = 'SELECT worker_id FROM snowid_decode(snowid_next())';
my @callers = map { SnowidSession->new($node, 'postgres') } 1 .. 3;
$_->ask($next) foreach @callers;
wait_for($node,
	"SELECT count(*) = 3 FROM pg_stat_activity WHERE query = '$next' AND wait_event_type = 'Extension'"
);

# One does not run until the gate is open again.
my $held =
  query($node, "SELECT min(pid) FROM pg_stat_activity WHERE query = '$next'");
stop_process($node, $held);
reload_with($node, %common, 'snowid.worker_id' => 2);
poll($node,
	"NOT is_open AND reason ~ 'can be used when the clock has passed'");
set_skew($node, 5);
wait_for_worker_id($node, 2);
kill 'CONT', $held;

is($_->outcome, 2, 'a caller that slept gets a key of the new worker ID')
  foreach @callers;
$node->stop;

done_testing();
