# Unlucky moments, each found by a review: postgres and template1 are not there; a
# transaction that dropped some origin stays open; the clock steps
# back for a while and then right; a backend crashes while the clock is wrong;
# the clock is wrong at a start, with another pair's ceiling in the future; a
# standby and its primary do not agree on the layout; callers wait in a crowd; an
# old backup is put back in place, with the same worker ID; and worker IDs come
# and go until room for their origins gets short.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

$SIG{PIPE} = "IGNORE";

my $node = snowid_cluster('unlucky', 'snowid.worker_id = 1');
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
start_and_open($node);

# The key's time is within a minute of the true one.
sub is_of_today
{
	my ($key, $name) = @_;
	my $off =
	  query($node, "SELECT extract(epoch FROM snowid_timestamp($key))") -
	  time;
	return ok(abs($off) < 60, $name) || diag("$off s off");
}

#---- The usual databases are not there ----

sub keys_go_on_in
{
	my ($database, $name) = @_;
	my $key =
	  $node->safe_psql($database, 'SELECT last_key FROM snowid_status()');
	$node->restart;
	$node->poll_query_until($database, 'SELECT is_open FROM snowid_status()')
	  or die;
	cmp_ok($node->safe_psql($database, 'SELECT snowid_next()'),
		'>', $key, $name);
	return;
}

my $key = next_key($node);
$node->safe_psql('template1', 'ALTER DATABASE postgres RENAME TO other');
keys_go_on_in('other', 'without the database postgres keys go on');
$node->safe_psql('other', $_)
  foreach 'ALTER DATABASE template1 IS_TEMPLATE false',
  'DROP DATABASE template1';
keys_go_on_in('other', 'without the database template1 keys go on');
$node->safe_psql('other',     'CREATE DATABASE template1 TEMPLATE template0');
$node->safe_psql('template1', 'ALTER DATABASE other RENAME TO postgres');

#---- A lock on the catalog of origins, until a transaction ends ----

query($node, q(SELECT pg_replication_origin_create('somebody_else')));
my $idle = $node->background_psql('postgres');
$idle->query_safe(
	q(BEGIN; SELECT pg_replication_origin_drop('somebody_else')));
my $ceiling = status($node, 'ceiling');
$node->poll_query_until('postgres',
	"SELECT snowid_timestamp(snowid_next()) > '$ceiling'::timestamptz + interval '1 s'"
) or die 'no key above the ceiling';
pass('an open transaction that dropped an origin stops no key');
$idle->quit;

#---- Back for a while, then right ----

$key = next_key($node);
set_skew($node, -2 * 3600);
$node->wait_for_log(qr/LOG:  the clock was set back by 7\d{6} ms/);
set_skew($node, 0);
$node->poll_query_until('postgres', "SELECT snowid_next() > $key") or die;
is_of_today(next_key($node),
	'the end of a step back by two hours is no jump ahead');
unlike(
	slurp_file($node->logfile),
	qr/jumped ahead/,
	'the end of a step back by two hours is not logged as a jump');

#---- A crash while the clock is wrong ----

my $log = -s $node->logfile;
$node->safe_psql('postgres', 'SELECT snowid_next()');
set_skew($node, 365 * 86400);
$node->wait_for_log(qr/jumped ahead/, $log);
$log = -s $node->logfile;
my $victim = $node->background_psql('postgres', on_error_stop => 0);
kill 9, scalar($victim->query('SELECT pg_backend_pid()'));
$node->wait_for_log(qr/database system is ready to accept connections/, $log);
$node->wait_for_log(qr/jumped ahead/,                                   $log);
set_skew($node, 0);
$node->poll_query_until('postgres', 'SELECT snowid_next() > 0') or die;
is_of_today(next_key($node),
	'a crash during a jump of the clock does not make it believed');
eval { $victim->quit };

#---- A start with a wrong clock, and a ceiling of another pair ahead ----

$node->stop;
set_skew($node, 30 * 86400);
$node->start;
my $ahead = next_key($node);
set_skew($node, 0);
configure($node, 'snowid.worker_id = 2');
$node->restart;
is_of_today(next_key($node), 'another pair makes keys of today');
$node->stop;
set_skew($node, 3 * 365 * 86400);
$node->start;
server_is_open($node);
$node->stop;
set_skew($node, 0);
configure($node, "snowid.worker_id = 1\nsnowid.max_wait = 100ms");
$node->start;
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^58000: the next key would lead/,
	'a start years ahead does not make the server forget a ceiling that lies ahead'
);

#---- Callers in a crowd do not keep the keeper busy ----

my $pid = keeper_pid($node);

sub worker_switches
{
	return slurp_file("/proc/$pid/status") =~
	  /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : die;
}

configure($node, "snowid.worker_id = 3\nsnowid.max_wait = 4s");
$node->reload;
server_is_open($node);
next_key($node);
set_skew($node, -3);
my $switches = worker_switches();
my $crowd    = start_pgbench($node, 'postgres', '-c 8 -t 1',
	next => 'SELECT snowid_next();');
ok(stop_pgbench($crowd, 'finish'),
	'callers wait for a clock that was set back');
cmp_ok(worker_switches() - $switches,
	'<', 2000, 'callers that wait do not keep the keeper busy');
set_skew($node, 0);

#---- A standby with another layout than its primary's keys ----

my $layout_1 = "snowid.worker_id = 4\n";
my $layout_2 = $layout_1
  . "snowid.layout = 'epoch=2000-01-01T00:00:00Z datacenter=5 worker=5 sequence=12'\n";
$node->stop;
$node = snowid_cluster('primary', $layout_1, allows_streaming => 1);
$node->start;
query($node, 'CREATE EXTENSION snowid');
$node->poll_query_until('postgres', 'SELECT snowid_next() > 0') or die;
$node->backup('base');
my %standby = map {
	my $name   = "standby_$_";
	my $server = server_from_backup(
		$name, $node, 'base',
		$_ == 1 ? $layout_1 : $layout_2,
		has_streaming => 1);
	$server->start;
	$_ => $server;
} 1, 2;
configure($node, $layout_2);
$node->restart;
$node->poll_query_until('postgres',
	q(SELECT reason LIKE 'snowid''s layout was changed%' FROM snowid_status())
) or die;
query($node, 'SELECT snowid_accept_layout()');
server_is_open($node);
$key = query($node,
	'CREATE TABLE t AS SELECT snowid_next() AS id; SELECT id FROM t');
$node->wait_for_catchup($_) foreach values %standby;
$_->promote foreach values %standby;
like(
	sql_error($standby{1}, 'SELECT snowid_next()'),
	qr/^55000: snowid cannot use this layout\n/,
	'promoted with the layout before, a standby makes no key below those of the last'
);
server_is_open($standby{2});
cmp_ok($standby{2}->safe_psql('postgres', 'SELECT snowid_next()'),
	'>', $key, 'promoted with the last layout, it asks for no consent');

$_->stop foreach $node, values %standby;

#---- An old backup with the same worker ID ----

my $settings = "snowid.worker_id = 1\nsnowid.max_lead = 4s";
my $original = snowid_cluster('original', $settings, allows_streaming => 1);
start_and_open($original);
$original->safe_psql('postgres', 'SELECT snowid_next()');
$original->backup('old');
set_skew($original, -3);
$key = $original->safe_psql('postgres',
	'SELECT max(k) FROM (SELECT snowid_next_batch(4000000) AS k) b');
$original->stop('immediate');
my $restored = server_from_backup('restored', $original, 'old', $settings);
set_skew($restored, -3);
$restored->start;
server_is_open($restored);
cmp_ok($restored->safe_psql('postgres', 'SELECT snowid_next()'), '>', $key,
	'a backup that is put back begins above what was made up to max_lead ahead of its clock'
);

#---- Room for origins ----

$restored->append_conf('postgresql.conf', origin_places($restored) . ' = 4');
my $missing = 0;
foreach my $id (2 .. 9)
{
	set_skew($restored, $id * 2 * 86400 + 10);
	configure($restored, "snowid.worker_id = $id\nsnowid.max_lead = 10ms");
	$restored->restart;
	$restored->poll_query_until('postgres', 'SELECT snowid_next() > 0')
	  or $missing++;
}
is($missing, 0, 'pairs left behind for days make room for new ones');
$restored->stop;
done_testing();
