# A number of the settings is a claim: one that comes back to a server begins above
# what others may have made with it meanwhile, and above what the server itself made,
# also if the position of its origin has vanished.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $now = int(time) * 1000;
my $waits =
  "NOT is_open AND reason ~ 'can be used when the clock has passed'";

# Both servers' clocks stand, so that nothing depends on how fast the test is.
sub start
{
	my ($name, $id) = @_;
	my $node = snowid_cluster($name, "snowid.worker_id = $id");

	stop_clock($node, $now);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
	poll($node, $waits);
	stop_clock($node, $now + 1100);
	wait_for_worker_id($node, $id);
	return $node;
}

# The number is set by a reload, and the clock stands at so many ms after the start.
sub change
{
	my ($node, $id, $ms) = @_;
	configure($node, "snowid.worker_id = $id");
	$node->reload;
	poll($node, $waits);
	stop_clock($node, $now + $ms);
	wait_for_worker_id($node, $id);
	return;
}

# Takes keys until the next would lead the clock by more than max_lead; the last one.
sub take_all
{
	my ($node) = @_;
	return query($node, 'SELECT max(k) FROM snowid_next_batch(3000000) AS k');
}

#---- A number that was lent ----

my $lender   = start('lender',   5);
my $borrower = start('borrower', 6);
next_key($lender);
change($lender,   7, 2300);
change($borrower, 5, 2300);
my $last = take_all($borrower);
change($borrower, 6, 4500);

stop_clock($lender, $now + 2400);
configure($lender, 'snowid.worker_id = 5');
$lender->reload;
poll($lender, $waits);
pass('a number that comes back from another server waits');
stop_clock($lender, $now + 3600);
wait_for_worker_id($lender, 5);
cmp_ok(next_key($lender), '>', $last,
	'its first key is above the last one that the other server made with it');
$borrower->stop;

#---- The server itself goes back to a number, and its origin has no position ----

my $before = take_all($lender);
change($lender, 8, 6000);
my $idle = query($lender,
	"SELECT external_id FROM pg_replication_origin_status WHERE external_id LIKE 'snowid%\\_5'"
);
like(
	sql_error(
		$lender,
		"SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin
			WHERE roname LIKE 'snowid\\_%' ORDER BY roname = '$idle' DESC, roname LIKE '%\\_8'"
	),
	qr/could not drop replication origin/,
	'the origin of the pair in use cannot be dropped');
is( query(
		$lender,
		"SELECT count(*) FROM pg_replication_origin_status WHERE external_id = '$idle'"
	),
	0,
	'the drop that was refused has wiped the position of an idle pair');

# The clock goes back to where the former keys of the pair are.
stop_clock($lender, $now + 1000);
configure($lender, 'snowid.worker_id = 5');
$lender->reload;
poll($lender, 'NOT is_open');
stop_clock($lender, $now + 3500);
wait_until('the server decides about the number',
	sub { status($lender, 'is_open OR reason ~ \'would lead\'') eq 't' });
like(
	sql_error(
		$lender, 'SELECT max(k) FROM snowid_next_batch(4096 * 100) AS k'),
	qr/would lead the clock/,
	'no key is made below those that the server made with the number before');
stop_clock($lender, $now + 8000);
poll($lender, 'is_open');
cmp_ok(next_key($lender), '>', $before,
	'the first key is above them when the clock is there');

#---- The position vanishes while the server starts ----

stop_clock($lender, $now + 20000);
$before = next_key($lender);
configure($lender, '');
$lender->restart;
poll($lender, "reason = 'snowid has no worker ID'");
query($lender,
	"SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname LIKE 'snowid\\_%'"
);
stop_clock($lender, $now + 10000);
configure($lender, 'snowid.worker_id = 5');
$lender->reload;
poll($lender, 'NOT is_open');
stop_clock($lender, $now + 11200);
like(
	sql_error($lender, 'SELECT snowid_next()'),
	qr/would lead the clock/,
	'no key is made below the former ones though their origin was dropped');
stop_clock($lender, $now + 21000);
poll($lender, 'is_open');
cmp_ok(next_key($lender), '>', $before,
	'the first key is above the former ones though their origin was dropped');
$lender->stop;
done_testing();
