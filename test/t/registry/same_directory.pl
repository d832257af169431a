# A server that was rewound or restored in place is the same server: it keeps its
# worker ID, above all keys of its former life.  Two servers that take turns need two IDs,
# and neither stops.
#
# Two servers whose data directories cannot be told apart, on what looks like one boot
# of one machine (two memory images, of which one was restored), do not take the worker
# ID from each other for ever.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $redis = SnowidRedis->start('redis', 'appendonly yes');
my %seen;

# Keys of this server, none of which was made before.
sub makes_new_keys
{
	my ($node, $id, $name) = @_;
	my @keys  = split /\n/, query($node, 'SELECT snowid_next_batch(100)');
	my @wrong = grep { key_worker_id($_) != $id || $seen{$_}++ } @keys;
	is(scalar(@keys) . '/' . @wrong, '100/0', $name);
	return;
}

sub used_ids
{
	my %record = split /\n/, $redis->query('HGETALL', 'snowid');
	return join ' ', map { s/^0://r }
	  sort grep { /^0:/ && $record{$_} =~ /"owner":"[^"]/ } keys %record;
}

sub its_settings
{
	my ($node, $settings) = @_;
	has_own_address($node);
	configure($node, claim_settings($node->name, $redis, $short . $settings));
	return;
}

# A primary and its standby, promoted and rewound in turn.
sub take_turns
{
	my ($kind, $settings) = @_;
	my $first = claiming_cluster(
		"first_$kind", $redis,
		$short . $settings,
		allows_streaming => 1);
	$first->append_conf('postgresql.conf', <<~EOF);
		wal_keep_size = '64MB'
		max_replication_slots = 10
		EOF
	$first->start;
	create_extension($first);
	wait_for_claim($first);
	$first->backup('backup');
	my $second = server_from_backup(
		"second_$kind", $first, 'backup',
		claim_settings("second_$kind", $redis, $short . $settings),
		has_streaming => 1);
	$second->start;
	poll($second, "registry = 'claimed'");
	my @nodes = ($first, $second);
	my %wrong;

	foreach my $turn (1 .. 6)
	{
		my ($old, $new) = @nodes;
		my $id = worker_id($old);
		makes_new_keys($old, $id,
			"$kind, turn $turn: the primary makes keys");
		$old->wait_for_catchup($new, 'replay', $old->lsn('flush'));
		$old->stop($turn % 2 ? 'fast' : 'immediate');
		$new->promote;
		server_is_open($new);
		query($new, 'CHECKPOINT');

		if ($turn % 2 == 0)
		{
			$old->start;    # pg_rewind wants a clean end
			$old->stop;
		}
		system_or_bail('pg_rewind', '--target-pgdata', $old->data_dir,
			'--source-server', $new->connstr('postgres'), '--no-sync');
		its_settings($old, $settings);
		$old->enable_streaming($new);
		$old->set_standby_mode;
		$old->start;
		poll($old, "registry = 'claimed'");
		wait_for_claim($new);
		$wrong{ "turn $turn: " . used_ids() } = 1
		  if scalar(my @ids = split / /, used_ids()) > 2;
		@nodes = ($new, $old);
	}
	is(join(', ', sort keys %wrong),
		'', "$kind: two servers need two IDs for ever");
	makes_new_keys(
		$nodes[0],
		worker_id($nodes[0]),
		"$kind: both servers make keys");
	$_->stop foreach reverse @nodes;
	$redis->settle;
	return;
}

take_turns('good',  '');
take_turns('lease', "snowid.redis_lease = '2s'");

#---- Restored in place, with the clock set back ----

foreach my $clock (0, -150)
{
	my $node =
	  claimed("restored$clock", $redis, $short . "snowid.max_lead = '2s'");
	my $id = worker_id($node);
	$node->stop;
	my $dir = $node->data_dir;
	system_or_bail('cp', '-a', $dir, "$dir.backup");
	$node->start;
	wait_for_claim($node);
	makes_new_keys($node, $id, "before the restore ($clock s)");
	my $highest = (sort { $b <=> $a } keys %seen)[0];
	$node->stop;
	system_or_bail('sh', '-c', "rm -rf $dir/* && cp -a $dir.backup/. $dir/");
	set_skew($node, $clock);
	$node->start;
	poll($node, "registry = 'claimed'");
	server_is_open($node);
	wait_until(
		"restored in place ($clock s): one ID",
		sub { $redis->owned($node->name) == 1 });
	like(
		slurp_file($node->logfile),
		qr/this data directory is a copy, or was restored/,
		'it is noticed');

	if ($clock == 0)
	{
		is(worker_id($node), $id, 'it keeps its ID');
	}
	else
	{
		isnt(worker_id($node), $id,
			'a server whose clock is behind its keys takes another ID');
	}
	$id = worker_id($node);
	makes_new_keys($node, $id,
		"restored in place ($clock s): it makes no key twice");
	set_skew($node, 0);
	makes_new_keys($node, $id,
		"restored in place ($clock s), the clock right: it makes no key twice"
	);
	cmp_ok((sort { $a <=> $b } keys %seen)[-1],
		'>', $highest, 'above those before');
	$node->stop;
}

#---- Two directories that cannot be told apart ----

# A server knows a twin by a record that was written more than an interval after its
# own start.  So the second server starts later than that here; if both start within
# an interval, they may lose their IDs a few more times.

$redis = SnowidRedis->start('twins');

# A server with this inode, running.
sub server_in
{
	my ($place, $name, $settings) = @_;
	my $node = claiming_cluster($name, $redis, $short . ($settings // ''));
	append_to_file("$node->{skew_file}.place", $place);
	$node->start;
	create_extension($node);
	wait_for_claim($node);
	return $node;
}

# Waits until this server can know a twin.
sub until_it_knows_twins
{
	my ($pair) = @_;
	wait_until(
		"a record of $pair that shows a twin",
		sub {
			my ($seen, $since, $interval) =
			  map { $redis->record($pair, $_) } qw(seen since interval);
			return $seen - $since > $interval;
		});
	return;
}

sub losses
{
	return join ' ', map { logged($_, 0, qr/snowid lost its worker ID/) } @_;
}

# Both continue with these IDs, and no server lost one twice.
sub both_go_on
{
	my ($ids, $losses, $name, @nodes) = @_;
	wait_for_claim($_) foreach @nodes;
	foreach (1 .. 5)
	{
		answered($_) foreach @nodes;
	}
	wait_for_claim($_) foreach @nodes;
	like(join(' ', map { worker_id($_) } @nodes),
		qr/^$ids$/, "$name: the IDs");
	is(losses(@nodes), $losses, "$name: how often they were lost");
	return;
}

my $a = server_in(1, 'a');
is(worker_id($a), 0, 'a server claims the first ID');
my $place = $redis->record('0:0', 'place');
until_it_knows_twins('0:0');
my $b = server_in(1, 'b');
is($redis->record('0:0', 'name'),
	'b', 'another server with its directory takes the ID');
$a->wait_for_log(qr/snowid lost its worker ID/);
both_go_on('1 0', '1 0', 'one place', $a, $b);
is($redis->record($_, 'place'), $place, "both have the place: $_")
  foreach '0:0', '0:1';
$a->restart;
$b->restart;
both_go_on('1 0', '1 0', 'both started again', $a, $b);

# The newcomer takes an ID away even if it cannot use it; that ID is free again once the
# table was looked at.
my $c = server_in(2, 'c', 'snowid.datacenter_id = 5');
until_it_knows_twins('5:0');
my $d = server_in(2, 'd', 'snowid.datacenter_id = 6');
$c->wait_for_log(qr/snowid lost its worker ID/);
both_go_on('[01] 0', '1 0', 'one place, two datacenters', $c, $d);

$_->stop foreach $a, $b, $c, $d;

done_testing();
