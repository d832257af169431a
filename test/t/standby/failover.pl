# The failover drill: the primary crashes under load, its standby takes over with
# a worker ID of its own, the old primary rejoins by pg_rewind as a standby, and
# takes over again; a worker ID is changed by reload.  No key is made twice
# in all of it, and the keys of each period are above those of the one before.
use strict;
use warnings;

use File::Compare;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $insert = 'INSERT INTO made DEFAULT VALUES RETURNING id;';
my %made;
my $repeated = 0;
my $highest  = 0;    # of all periods so far
my @clients;

my $first =
  snowid_cluster('first', 'snowid.worker_id = 1', allows_streaming => 1);
$first->append_conf('postgresql.conf',
	"max_connections = 20\nwal_keep_size = 256MB");
$first->start;
$first->safe_psql('postgres', <<~EOF);
	CREATE EXTENSION snowid;
	CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowid_next());
	EOF
$first->backup('backup');
my $second = server_from_backup(
	'second', $first, 'backup',
	'snowid.worker_id = 1',
	has_streaming => 1);
$second->start;

sub load
{
	my ($node) = @_;
	@clients = map { start_client($node, $_) } (
		$insert, $insert,
		'SELECT snowid_next();',
		'SELECT snowid_next_batch(100);');
	clients_go_on(@clients);
	return;
}

# Ends the clients, and checks what they got since the last time.
sub period_is_good
{
	my ($what, $worker_id) = @_;
	my ($disorder, $foreign, $count, $begin) = (0, 0, 0, $highest);

	foreach my $client (@clients)
	{
		my $last = $begin;
		foreach my $key (stop_client($client))
		{
			$disorder++ if $key <= $last;
			$foreign++  if key_worker_id($key) != $worker_id;
			$repeated++ if $made{$key}++;
			$last = $key;
			$count++;
		}
		$highest = $last if $last > $highest;
	}
	note "$what: $count keys";
	cmp_ok($count, '>', 0, "$what: keys are made");
	is($disorder, 0, "$what: in order, and above those of the period before");
	is($foreign,  0, "$what: each carries worker ID $worker_id");
	return;
}

sub set_worker_id
{
	my ($node, $id) = @_;
	configure($node, "snowid.worker_id = $id");
	$node->reload;
	return;
}

my $worker_ids =
  "SELECT string_agg(worker_id::text, ' ' ORDER BY worker_id) FROM @{[ ceilings() ]}";

#---- The primary crashes, the standby takes over ----

load($first);
$first->stop('immediate');
period_is_good('the first primary', 1);
set_worker_id($second, 2);
$second->promote;
wait_for_worker_id($second, 2);
load($second);
clients_go_on(@clients);

#---- The old primary rejoins ----

# its settings are in its directory, and pg_rewind brings the other's
my $saved = $first->basedir . '/saved';
mkdir $saved;
system_or_bail('cp', '-p', $first->data_dir . "/$_", $saved)
  foreach ('postgresql.conf', 'snowid.conf');
$second->safe_psql('postgres', 'CHECKPOINT');
command_ok(
	[
		'pg_rewind',       '--no-sync',
		'--target-pgdata', $first->data_dir,
		'--source-server', $second->connstr('postgres')
	],
	'pg_rewind works with the directory there');
is( compare(
		$first->data_dir . '/snowid/state',
		$second->data_dir . '/snowid/state'),
	0,
	"pg_rewind brings the source's state file");
is( slurp_file($first->data_dir . '/snowid.conf'),
	"snowid.worker_id = 2\n",
	"pg_rewind brings the source's worker ID, if that is set in the data directory"
);
system_or_bail('cp', '-p', "$saved/$_", $first->data_dir)
  foreach ('postgresql.conf', 'snowid.conf');
$first->enable_streaming($second);
$first->start;
like(
	sql_error($first, 'SELECT snowid_next()'),
	qr/^55000: snowid makes no keys during recovery/,
	'the old primary is a standby now');
clients_go_on(@clients);

#---- Fail back ----

$second->wait_for_catchup($first);
$second->stop;
period_is_good('the second primary', 2);
my $log = -s $first->logfile;
$first->promote;
wait_for_worker_id($first, 1);
unlike(
	slurp_file($first->logfile, $log),
	qr/this data directory is a copy/,
	'a promotion does not ask whether the directory is a copy');
is($first->safe_psql('postgres', $worker_ids),
	'1 2',
	'the server that took over again has the ceilings of both worker IDs');
load($first);
clients_go_on(@clients);
period_is_good('failed back', 1);

#---- A worker ID changed by reload ----

load($first);
set_worker_id($first, 3);
wait_for_worker_id($first, 3);
my @before = map { stop_client($_) } @clients;
is(scalar(grep { key_worker_id($_) !~ /^[13]$/ } @before),
	0, 'a worker ID changed by reload: keys carry the one or the other');
foreach my $key (@before)
{
	$repeated++     if $made{$key}++;
	$highest = $key if $key > $highest;
}
load($first);
period_is_good('keys of the new worker ID', 3);
$first->stop;

is($repeated, 0, 'no key was made twice in ' . keys(%made));
done_testing();
