# A worker ID by number that a server gives away, and gets back after another server made
# keys with it up to max_lead ahead of its clock: its first key is above all of them,
# in whatever way it was given away, and whatever max_lead is.  The clocks of both servers
# stand, so that nothing depends on how fast the test is.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $waits =
  "NOT is_open AND reason ~ 'can be used when the clock has passed'";
my $now = int(time) * 1000;
my $max_lead;    # ms

# The clock of the server goes to so many ms after the start, and max_lead passes.
sub max_lead_passes
{
	my ($node, $ms) = @_;
	time_passes($node, $now + $ms, int($max_lead / 1000) + 1);
	return;
}

# Sets the number, "" for none, by a reload.
sub set_number
{
	my ($node, $id) = @_;
	configure($node,
		"snowid.max_lead = ${max_lead}ms\nsnowid.max_wait = 0"
		  . ($id ne '' ? "\nsnowid.worker_id = $id" : ''));
	$node->reload if $node->{_pid};
	return;
}

# Also in between, as it cannot be seen for which number a server waits.
sub has_no_number
{
	my ($node) = @_;
	set_number($node, '');
	poll($node, "reason = 'snowid has no worker ID'");
	return;
}

# A server that makes keys with the number, its clock so many ms after the start.
sub serve_as
{
	my ($node, $id, $ms) = @_;
	has_no_number($node);
	stop_clock($node, $now + $ms);
	set_number($node, $id);
	poll($node, $waits);
	max_lead_passes($node, $ms + $max_lead + 10);
	wait_for_worker_id($node, $id);
	return;
}

sub server
{
	my ($name, $id) = @_;
	my $node = snowid_cluster("${name}_$max_lead", '');
	stop_clock($node, $now);
	set_number($node, $id);
	$node->start;
	create_extension($node);
	serve_as($node, $id, 0);
	return $node;
}

# Takes all keys up to max_lead ahead of the clock that stands; the last one.
sub take_all
{
	my ($node) = @_;

	query(
		$node,
		sprintf
		  q(SELECT snowid_advance(snowid_max(clock_timestamp() + interval '%d ms'))),
		$max_lead - 2) if $max_lead > 0;
	1 while
	  eval { query($node, 'SELECT max(k) FROM snowid_next_batch(1000) k'); };
	return query($node, 'SELECT last_key FROM snowid_status()');
}

# The other server has the number meanwhile, and gives it back at once.
sub lend
{
	my ($borrower, $ms) = @_;
	serve_as($borrower, 5, $ms);
	my $last = take_all($borrower);
	set_number($borrower, 6);
	poll($borrower, $waits);
	return $last;
}

# It gets the number at a clock like the borrower's.
sub gets_it_back
{
	my ($lender, $last, $ms, $name) = @_;
	stop_clock($lender, $now + $ms + $max_lead + 10);
	set_number($lender, 5);
	$lender->start if !$lender->{_pid};
	poll($lender, $waits);
	max_lead_passes($lender, $ms + 2 * $max_lead + 30);
	wait_for_worker_id($lender, 5);

	# and if the clock is set back below the borrower's keys then
	stop_clock($lender, $now + $ms + $max_lead + 30);
	cmp_ok(next_key($lender), '>', $last, "$name: the first key is above");
	return;
}

foreach my $lead (0, 1000, 10000)
{
	$max_lead = $lead;
	my $lender   = server('lender',   5);
	my $borrower = server('borrower', 6);
	my $name     = "max_lead of $lead ms";
	my $ms       = 100;
	my $step     = 4 * $lead + 100;
	next_key($lender);

	# by no number
	has_no_number($lender);
	my $last = lend($borrower, $ms += $step);
	gets_it_back($lender, $last, $ms, "$name, no number meanwhile");
	keeper_turns($lender);
	is(status($lender, 'is_open'),
		't', "$name: the gate stays open with a number that came back");

	# by another number, with which it made no keys
	stop_clock($lender, $now + ($ms += $step));
	set_number($lender, 7);
	poll($lender, $waits);
	$last = lend($borrower, $ms);
	has_no_number($lender);
	gets_it_back($lender, $last, $ms, "$name, another number meanwhile");

	# by a Redis that cannot be reached
	stop_clock($lender, $now + ($ms += $step));
	configure($lender,
		"snowid.max_lead = ${max_lead}ms\nsnowid.redis_url = 'redis://127.0.0.1:1'"
	);
	$lender->restart;
	poll($lender, "reason ~ 'has not claimed'");
	$last = lend($borrower, $ms);
	$lender->stop;
	gets_it_back($lender, $last, $ms, "$name, no Redis meanwhile");

	# by several reloads that it may or may not see, to a number that it cannot have
	my $directory = $lender->data_dir . '/snowid';
	chmod 0500, $directory or die "$!";
	stop_clock($lender, $now + ($ms += $step));
	set_number($lender, 7);
	poll($lender, "reason ~ 'state file'");
	$last = lend($borrower, $ms);
	stop_clock($lender, $now + $ms + $max_lead + 10);
	set_number($lender, 5);
	poll($lender, "NOT is_open AND reason ~ 'state file'");
	chmod 0700, $directory or die "$!";
	gets_it_back($lender, $last, $ms,
		"$name, a number that could not be had meanwhile");

	# the clock of the lender has not moved: nothing is lost by a number that was never left
	$lender->restart;
	stop_clock($lender, $now + $ms + 2 * $max_lead + 40);
	wait_for_worker_id($lender, 5);
	pass("$name: the number that was not given away is there at once");
	$_->stop foreach $lender, $borrower;
}
done_testing();
