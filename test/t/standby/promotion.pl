# A promoted standby begins above every key in the rows that reached it, also with
# its clock two minutes behind the old primary's: the ceiling came with the WAL.  This
# also holds if it was restarted since, crashed before its first key, was made from a
# backup of a standby, or follows a standby that was promoted before.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $primary =
  snowid_cluster('primary', 'snowid.worker_id = 1', allows_streaming => 1);
$primary->append_conf('postgresql.conf', 'max_connections = 20');
$primary->start;
$primary->safe_psql('postgres', <<~EOF);
	CREATE EXTENSION snowid;
	CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowid_next());
	EOF
my $insert = 'INSERT INTO made DEFAULT VALUES RETURNING id;';
server_is_open($primary);
$primary->backup('primary');

sub standby
{
	my ($name, $from, $backup) = @_;
	my $node = server_from_backup(
		$name, $from,
		$backup // $from->name,
		'snowid.worker_id = 1',
		has_streaming => 1);
	set_skew($node, -1800);
	return $node;
}

# The highest key of a worker ID in the rows of a server.
sub highest_of
{
	my ($node, $worker_id) = @_;
	return $node->safe_psql('postgres',
		"SELECT max(id) FROM made WHERE (id >> 12) & 31 = $worker_id");
}

# While the server's clock is two minutes behind the keys in its rows, it makes no key
# below them; with the clock only a little late it makes one above.  The
# ceiling rises for a minute after the last key, and no test should wait for that.
sub begins_above
{
	my ($what, $node, $worker_id) = @_;
	my $highest = highest_of($node, $worker_id);

	makes_none_while_behind($node, $highest,
		"$what: two minutes behind, it makes no key below those in its rows");
	reload_with(
		$node,
		'snowid.worker_id' => $worker_id,
		'snowid.max_lead'  => '10min');
	stop_clock($node, key_ms($highest) - 900);
	is( query($node, <<~EOF),
		SELECT key > $highest, worker_id, clock_timestamp() < snowid_timestamp($highest)
		FROM snowid_next() key, snowid_decode(key)
		EOF
		"t|$worker_id|t",
		"$what: only just behind, it begins above those in its rows");
	return;
}

sub makes_none_while_behind
{
	my ($node, $highest, $name) = @_;

	# a copy of a directory opens when the clock has advanced, and not where it stands
	gate_is_open($node);
	stop_clock($node, key_ms($highest) - 120_000);
	gate_is_open($node);
	my ($lead) = sql_error($node, 'SELECT snowid_next()') =~
	  /^58000: the next key would lead the clock by (\d+) ms/;
	cmp_ok($lead // 0, '>=', 120_000, $name);
	return;
}

#---- Under load ----

my $standby   = standby('standby',   $primary);
my $restarted = standby('restarted', $primary);
my $crashed   = standby('crashed',   $primary);
my $cascade1  = standby('cascade1',  $primary);
$_->start foreach ($standby, $restarted, $crashed, $cascade1);
my @clients = map { start_client($primary, $_) }
  ($insert, $insert, 'SELECT snowid_next();');
clients_go_on(@clients);

# one more, from a backup that is taken on a standby and follows that
$cascade1->backup('cascade1');
my $cascade2 = standby('cascade2', $cascade1);
$cascade2->start;

clients_go_on(@clients);
$primary->stop('immediate');
my @keys = map { stop_client($_) } @clients;
$standby->promote;
makes_none_while_behind(
	$standby,
	highest_of($standby, 1),
	'a server promoted with its clock two minutes behind makes no key');
set_skew($standby, -60);
configure($standby, 'snowid.worker_id = 2');
$standby->reload;
wait_for_worker_id($standby, 2);
is( $standby->safe_psql(
		'postgres', 'SELECT worker_id FROM snowid_decode(snowid_next())'),
	'2',
	'under load: a worker ID of its own lets it make keys at once');
configure($standby, 'snowid.worker_id = 1');
$standby->reload;
gate_is_open($standby, 1);
begins_above('promoted under load', $standby, 1);
$standby->stop('immediate');

#---- The standby was restarted, and the primary quiet since ----

$primary->start;
$primary->safe_psql('postgres', $insert) foreach (1 .. 3);
$primary->wait_for_catchup($_) foreach ($restarted, $crashed, $cascade1);
$cascade1->wait_for_catchup($cascade2, 'replay', $cascade1->lsn('replay'));
$primary->stop;
$restarted->safe_psql('postgres', 'CHECKPOINT');
$restarted->stop('immediate');
$restarted->start;
$restarted->promote;
begins_above('restarted, then promoted', $restarted, 1);
$restarted->stop('immediate');

#---- Crashed before the first grant ----

configure($crashed, 'snowid.worker_id = -1');
$crashed->reload;
wait_for($crashed, "SELECT current_setting('snowid.worker_id') = '-1'");
$crashed->promote;
$crashed->stop('immediate');
configure($crashed, 'snowid.worker_id = 1');
$crashed->start;
$crashed->stop('immediate');
$crashed->start;
begins_above('promoted and crashed before its first key', $crashed, 1);
$crashed->stop('immediate');

#---- A cascade, the second of which was made from a backup of the first ----

configure($cascade1, 'snowid.worker_id = 2');
$cascade1->reload;
wait_for($cascade1, "SELECT current_setting('snowid.worker_id') = '2'");
$cascade1->promote;
like($cascade1->safe_psql('postgres', $insert),
	qr/^\d+$/, 'the first of the cascade makes keys as worker 2');
cmp_ok(
	highest_of($cascade1, 2),
	'<',
	highest_of($cascade1, 1),
	'below those of worker 1, since its clock is behind');
$cascade1->wait_for_catchup($cascade2);
is( highest_of($cascade2, 2),
	highest_of($cascade1, 2),
	'the second follows it');
$cascade1->stop('immediate');
$cascade2->promote;
begins_above('the second of a cascade, promoted after the first',
	$cascade2, 1);
configure($cascade2, 'snowid.worker_id = 2');
set_skew($cascade2, -2400);
$cascade2->reload;
gate_is_open($cascade2, 2);
begins_above('the second, with the worker ID of the first', $cascade2, 2);
$cascade2->stop('immediate');

#---- No room ----

# a quiet primary, so that the standby gets to where its keeper runs
configure($primary, 'snowid.worker_id = -1');
$primary->start;
$primary->backup('quiet');
my $cramped = standby('cramped', $primary, 'quiet');
my $places  = origin_places($cramped);
$cramped->append_conf('postgresql.conf', "$places = 0");
$cramped->start;
$cramped->wait_for_log(qr/WARNING: .*no room for the ceilings of snowid/);
pass("a standby with $places = 0 warns");
configure($primary, 'snowid.worker_id = 1');
$primary->reload;
server_is_open($primary);
$primary->safe_psql('postgres', $insert);
$cramped->wait_for_log(
	qr/FATAL: .*could not find free replication state slot/);
pass('a standby without room for ceilings stops replay at the first ceiling');
$cramped->stop('immediate', fail_ok => 1);
$cramped->append_conf('postgresql.conf', "$places = 10");
$cramped->start;
$primary->wait_for_catchup($cramped);
is( highest_of($cramped, 1),
	highest_of($primary, 1),
	'room for the ceilings: replay continues');

$cramped->stop;
$primary->stop;
done_testing();
