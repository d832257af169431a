# A server that was rewound or restored in place is the same server: it keeps its
# worker ID, above all that its former life used; two servers that take turns
# need two IDs for ever, and neither stops.
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
	my @keys = split /\n/,
	  $node->safe_psql('postgres', 'SELECT snowid_next_batch(100)');
	my @wrong = grep { (($_ >> 12) & 1023) != $id || $seen{$_}++ } @keys;
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
	$node->append_conf('postgresql.conf',
			'port = '
		  . $node->port
		  . "\nunix_socket_directories = '"
		  . $node->host
		  . "'");
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
	$first->safe_psql('postgres', 'CREATE EXTENSION snowid');
	wait_for_claim($first);
	$first->backup('backup');
	my $second = server_from_backup(
		"second_$kind", $first, 'backup',
		claim_settings("second_$kind", $redis, $short . $settings),
		has_streaming => 1);
	$second->start;
	$second->poll_query_until('postgres',
		"SELECT registry = 'claimed' FROM snowid_status()")
	  or die;
	my @nodes = ($first, $second);
	my %wrong;

	foreach my $turn (1 .. 30)
	{
		my ($old, $new) = @nodes;
		my $id = worker_id($old);
		makes_new_keys($old, $id,
			"$kind, turn $turn: the primary makes keys");
		$old->wait_for_catchup($new, 'replay', $old->lsn('flush'));
		$old->stop($turn % 2 ? 'fast' : 'immediate');
		$new->promote;
		server_is_open($new);
		$new->safe_psql('postgres', 'CHECKPOINT');

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
		$old->poll_query_until('postgres',
			"SELECT registry = 'claimed' FROM snowid_status()")
		  or die claim_state($old);
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
	$redis->query('FLUSHALL');
	return;
}

take_turns('good',  '');
take_turns('lease', "snowid.redis_lease = '2s'");

#---- Restored in place, with the clock set back ----

foreach my $clock (0, -150)
{
	my $node = claiming_cluster("restored$clock", $redis,
		$short . "snowid.max_lead = '2s'");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
	wait_for_claim($node);
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
	$node->poll_query_until('postgres',
		"SELECT registry = 'claimed' FROM snowid_status()")
	  or die claim_state($node);
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

#---- Without Redis ----

my $fixed =
  snowid_cluster('fixed', "snowid.worker_id = 9\nsnowid.max_lead = '2s'");
start_and_open($fixed);
$fixed->stop;
my $dir      = $fixed->data_dir;
my $restored = qr/WARNING:  this data directory is a copy, or was restored/;

system_or_bail('cp', '-a', $dir, "$dir.backup");
$fixed->start;
server_is_open($fixed);
makes_new_keys($fixed, 9, 'a fixed ID');
$fixed->stop;
system_or_bail('sh', '-c', "rm -rf $dir/* && cp -a $dir.backup/. $dir/");
set_skew($fixed, -1.5);
$fixed->start;
server_is_open($fixed);
is(logged($fixed, 0, $restored),
	1, 'a backup that is restored into the same directory is noticed');
makes_new_keys($fixed, 9,
	'a backup that is restored into the same directory repeats no key');
$fixed->stop;

done_testing();
