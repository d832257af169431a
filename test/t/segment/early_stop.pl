# SIGTERM reaches the process that fetches ranges when it has just connected to its
# database: it ends all the same, even if the table is locked.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('s1', 'snowid.max_wait = 1min');
let_hold($node);
$node->start;
query($node, <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	EOF
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE snowid_segments');
hold_process($node, 'snowid segments', 'SetConfigOption');
my $waits = ask_in_background($node, "SELECT snowid_number('a')");
my $pid = held_process($node);
kill 'TERM', $pid;
kill 'CONT', $pid;
my $ended = 0;
foreach (1 .. 300)
{
	$ended = !kill 0, $pid;
	last if $ended;
	select undef, undef, undef, 0.1;
}
ok($ended, 'a process that has just connected ends by SIGTERM');
$locker->query_safe('COMMIT');
$locker->quit;
is(answer_of($waits), 1, 'a number comes all the same');

# The signal comes just before, and another session has the database alone.
query($node, 'CREATE DATABASE shop');
$node->safe_psql('shop', <<~EOS);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	EOS
my $session = $node->background_psql('shop');
$session->query_safe('SELECT 1');
is(number($node, 'a') > 0, 1, 'the process in the reserved place is in use');
my $dropper = ask_in_background($node, 'DROP DATABASE shop');
my $has_it =
  "FROM pg_locks WHERE locktype = 'object' AND mode = 'AccessExclusiveLock' AND classid = 'pg_database'::regclass AND granted";
wait_for($node, "SELECT count(*) = 1 $has_it");
my $dropper_pid = query($node, "SELECT pid $has_it");
kill 'STOP', $dropper_pid;
hold_process($node, 'snowid segments', 'ProcessConfigFile');
$session->{stdin} .= "SELECT snowid_number('a');\n";
$session->{run}->pump_nb;
$pid = held_process($node);
kill 'TERM', $pid;
kill 'CONT', $pid;
my $shop_ended = 0;
foreach (1 .. 100)
{
	$shop_ended = !kill 0, $pid;
	last if $shop_ended;
	select undef, undef, undef, 0.1;
}
ok($shop_ended, 'a process that is about to connect ends by SIGTERM');
kill 'CONT', $dropper_pid;
eval { $session->quit };
eval { $dropper->quit };
$node->stop('fast');

done_testing();
