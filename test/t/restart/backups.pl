# A backup beside the running server, a server set back to an earlier point, a dump: no
# key is made twice if each server has its own worker ID; and the weaker promises if they
# share one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

my $insert = 'INSERT INTO made DEFAULT VALUES RETURNING id;';
my $copied =
  qr/WARNING:  this data directory is a copy, or was restored\n.*DETAIL:  Its keys are made as datacenter 0, worker /;
my %made;    # every key that a client got, and by which server
my @repeated;

# Notes what a client of a server got; returns the keys.
sub collect
{
	my ($node, @keys) = @_;
	foreach my $key (@keys)
	{
		push @repeated, "$key by $made{$key} and " . $node->name
		  if exists $made{$key};
		$made{$key} = $node->name;
	}
	return @keys;
}

sub only_by
{
	my ($worker_id, @keys) = @_;
	return @keys > 0 && !grep { key_worker_id($_) != $worker_id } @keys;
}

sub highest_of
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT max(id) FROM made');
}

my $living = snowid_cluster(
	'living', 'snowid.worker_id = 1',
	allows_streaming => 1,
	has_archiving    => 1);
$living->start;
$living->safe_psql('postgres', <<~EOF);
	CREATE EXTENSION snowid;
	CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowid_next());
	EOF

#---- Beside the living server: its backup, and its past ----

my @clients =
  map { start_client($living, $_) } ($insert, 'SELECT snowid_next();');
clients_go_on(@clients);
$living->backup('backup');
clients_go_on(@clients);
my $then = highest_of($living);
$living->safe_psql('postgres', "SELECT pg_create_restore_point('then')");
clients_go_on(@clients);
$living->safe_psql('postgres', 'SELECT pg_switch_wal()');
$living->poll_query_until(
	'postgres', q(SELECT count(*) = 1 FROM pg_stat_archiver
	WHERE last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - pg_size_bytes(current_setting('wal_segment_size'))))
) or die;

sub set_back
{
	my ($name, $settings) = @_;
	my $node = server_from_backup(
		$name, $living, 'backup', $settings,
		has_restoring => 1,
		standby       => 0);
	$node->append_conf('postgresql.conf', <<~EOF);
		recovery_target_name = 'then'
		recovery_target_action = 'promote'
		archive_mode = off
		EOF
	return $node;
}

sub is_up
{
	my ($node) = @_;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die;
	server_is_open($node);
	return;
}

my $beside =
  server_from_backup('beside', $living, 'backup', 'snowid.worker_id = 2');
$beside->append_conf('postgresql.conf', 'archive_mode = off');
my $past = set_back('past', 'snowid.worker_id = 3');
foreach my $node ($beside, $past)
{
	$node->start;
	is_up($node);
	like(slurp_file($node->logfile),
		$copied, $node->name . ': the log says that it is a copy');
}
cmp_ok(highest_of($past), '>=', $then,
	'set back: the rows are there up to the restore point');
cmp_ok(highest_of($past), '<', highest_of($living),
	'set back: no later rows are there');
my @others = map { start_client($_, $insert) } ($beside, $past);
clients_go_on(@clients, @others);
ok(only_by(2, collect($beside, stop_client($others[0]))),
	'a restored backup makes keys with the worker ID that it was given');
ok( only_by(3, collect($past, stop_client($others[1]))),
	'a server that was set back makes keys with the worker ID that it was given'
);
$_->stop foreach ($beside, $past);
my @keys = collect($living, map { stop_client($_) } @clients);
ok(only_by(1, @keys), 'while the living server continued');
is("@repeated", '',
	'a restored backup and a server set back: no key was made twice');

#---- Set back, with the same worker ID: the other one is gone for good ----

$living->stop('immediate');

my $same = set_back('same', 'snowid.worker_id = 1');
set_skew($same, -60);
$same->start;
is_up($same);
my $highest = highest_of($same);
stop_clock($same, key_ms($highest) - 60_000);
my ($lead) = sql_error($same, 'SELECT snowid_next()') =~
  /^58000: the next key would lead the clock by (\d+) ms/;
cmp_ok($lead // 0, '>=', 60_000,
	'a server set back, with the same worker ID and a clock a minute behind: no key is below those in its rows'
);
reload_with(
	$same,
	'snowid.worker_id' => 1,
	'snowid.max_lead'  => '10min');
stop_clock($same, key_ms($highest) - 900);
is( $same->safe_psql(
		'postgres',
		"SELECT snowid_next() > $highest, clock_timestamp() < snowid_timestamp($highest)"
	),
	't|t',
	'a server that was set back begins above the keys in its rows');
$same->stop('immediate');
set_skew($same, 0);
$same->start;
cmp_ok(
	$same->safe_psql('postgres', $insert),
	'>',
	(sort { $a <=> $b } @keys)[-1],
	'a server that was set back begins above all that its past made, if the clock has passed that'
);
$same->stop;

#---- A dump, restored into a new server with the same worker ID ----

# the old server's keys lead its clock, as far as they may
my $drift =
  "snowid.worker_id = 1\nsnowid.max_lead = 3s\nsnowid.max_wait = 30s";
configure($same, $drift);
$same->start;
$same->safe_psql('postgres', $insert);
set_skew($same, -2.5);
$same->safe_psql('postgres', $insert);
my $dump = $same->basedir . '/dump.sql';
$same->run_log([ 'pg_dump', '-d', $same->connstr('postgres'), '-f', $dump ]);
$highest = highest_of($same);
$same->stop;

my $new = snowid_cluster('new', $drift);
set_skew($new, -2.5);
my $began = time - 2.5;
$new->start;
is($new->psql('postgres', slurp_file($dump), on_error_stop => 1),
	0, 'a dump is restored into a new server');
my $key = $new->safe_psql('postgres', $insert);
like(
	slurp_file($new->logfile),
	qr/DETAIL:  A pair that is new to this server can be used when the clock has passed /,
	'the new server reports the reason for its wait');
cmp_ok(key_ms($key), '>', ($began + 3) * 1000,
	'the new server makes no key until the clock has passed its start by max_lead'
);
cmp_ok($key, '>', $highest,
	"the new server's keys are above those of a server that had the worker ID until then"
);
$new->stop;

#---- An old backup with the same worker ID ----

my $settings = "snowid.worker_id = 1\nsnowid.max_lead = 4s";
my $original = snowid_cluster('original', $settings, allows_streaming => 1);
start_and_open($original);
$original->safe_psql('postgres', 'SELECT snowid_next()');
$original->backup('old');
set_skew($original, -3);
my $made_after = $original->safe_psql('postgres',
	'SELECT max(k) FROM (SELECT snowid_next_batch(4000000) AS k) b');
$original->stop('immediate');
my $restored = server_from_backup('restored', $original, 'old', $settings);
set_skew($restored, -3);
$restored->start;
server_is_open($restored);
cmp_ok(
	$restored->safe_psql('postgres', 'SELECT snowid_next()'),
	'>',
	$made_after,
	'a backup that is put back begins above keys made up to max_lead ahead of its clock'
);
$restored->stop;

done_testing();
