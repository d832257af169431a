# How a server gets its spare worker ID and loses it: by a reload, while it is in
# use or not; a spare is never used at a time before it was this server's; and
# snowid_advance(), a copy of the directory, no room for its origin.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($minute, $hour, $day) = (60, 3600, 86400);
my %settings = (
	'snowid.max_lead' => '100ms',
	'snowid.max_wait' => '200ms',
	'snowid.max_jump' => '10d');
my $node;

sub conf
{
	my (%set) = @_;
	return (%settings, map { ("snowid.$_" => $set{$_}) } keys %set);
}

sub start_new
{
	my ($name, $skew, $set, $more) = @_;
	my %conf = conf(%$set);
	$node = snowid_cluster(
		$name,
		join("\n", map { "$_ = $conf{$_}" } sort keys %conf),
		allows_streaming => 1);
	$node->append_conf('postgresql.conf', $more // '');
	set_skew($node, $skew);
	start_and_open($node);
	return;
}

sub reload
{
	my (%set) = @_;
	reload_with($node, conf(%set));
	return;
}

# A new key is of this worker ID and of the clock's time.
sub key_is_of
{
	my ($worker_id, $name) = @_;
	wait_for_worker_id($node, $worker_id);
	is( query(
			$node,
			'SELECT worker_id, abs(extract(epoch FROM created_at - clock_timestamp())) < 30 FROM snowid_decode(snowid_next())'
		),
		"$worker_id|t",
		$name);
	return;
}

sub is_refused
{
	my ($name) = @_;
	poll($node, 'is_open');
	like(sql_error($node, 'SELECT snowid_next()'),
		qr/^58000: the next key would lead the clock by \d+ ms/, $name);
	return;
}

#---- By a reload ----

start_new('reloaded', -$day, { worker_id => 1 });
is(status($node, 'spare_worker_id, spare_uses'), '|0', 'without a spare');
set_skew($node, -$day - $hour);
is_refused('a step back is refused');
reload(worker_id => 1, spare_worker_id => 2);
key_is_of(2, 'a spare that is set then is used, at the clock\'s time');
my $key = next_key($node);
reload(worker_id => 1);
wait_for_worker_id($node, 1);
is_refused('without it, the own worker ID is back, and is refused');
is(status($node, 'worker_id_source, spare_worker_id'),
	'setting|', 'and the status says so');
reload(worker_id => 1, spare_worker_id => 2);
key_is_of(2, 'and with it, it is used again');
cmp_ok(next_key($node), '>', $key, 'above its keys before');
reload(worker_id => 2, spare_worker_id => 1);
poll($node, "worker_id_source = 'setting' AND spare_worker_id = 1");
key_is_of(2, 'the spare in use becomes the worker ID itself, and goes on');
reload(worker_id => 3, spare_worker_id => 2);
key_is_of(3, 'another worker ID ends the use of the spare');
reload(worker_id => 2, spare_worker_id => 3);
key_is_of(2, 'the two are exchanged');
my $log = -s $node->logfile;
reload(worker_id => 2, spare_worker_id => 2);
$node->wait_for_log(
	qr/LOG:  snowid has no spare worker ID\n.*DETAIL:  snowid.spare_worker_id is snowid.worker_id, too\./,
	$log);
poll($node, 'spare_worker_id IS NULL');
key_is_of(2,
	'a spare that is the worker ID itself is none, and the log says so');
$log = -s $node->logfile;
configure($node, "snowid.worker_id = 2\nsnowid.spare_worker_id = 32");
$node->reload;
$node->wait_for_log(
	qr/invalid value for parameter "snowid.spare_worker_id": 32.*The layout's range is from 0 to 31/s,
	$log);
pass('one that is out of range is not taken by a reload');
$node->stop;

#---- A time at which it was not this server's ----

start_new('taken', -$day, { worker_id => 1 });
key_is_of(1, 'the own worker ID');
$log = -s $node->logfile;
reload(worker_id => 1, spare_worker_id => 2);
$node->wait_for_log(
	qr/LOG:  snowid has worker ID 2 of datacenter 0 as a spare/, $log);
poll($node, 'spare_worker_id = 2');
set_skew($node, -$day + 10 * $minute);
key_is_of(1, 'a spare that is set is not used without need');

foreach my $what ('before it was set', 'the same after a crash')
{
	set_skew($node, -$day - $minute);
	is_refused(
		"a step back to $what: it may have been another server's then");
	is(status($node, 'worker_id, spare_worker_id'),
		'1|2', 'so it is not used');
	$node->stop('immediate');
	$node->start;
}
is_refused('after another crash, too');
set_skew($node, -$day + $minute);
key_is_of(2, 'a step back to after it was set: it is used');
$node->stop;
set_skew($node, -$day + 20 * $minute);

# Its origin is of use for a time long past, so it is not one that may go.
$node->start;
key_is_of(1, 'the clock is right');
$node->stop;
set_skew($node, 30 * $day);
$node->start;
key_is_of(1, 'and goes on for a month');
$node->restart;
key_is_of(1, 'and a restart');
my $highest = query($node, 'SELECT snowid_max(clock_timestamp())');
set_skew($node, -$day + 2 * $minute);
key_is_of(2, 'a step back of a month: it is used');
set_skew($node, -$day + $minute);
is_refused('but not for the time of its former keys');
$node->stop;

#---- snowid_advance() ----

start_new(
	'advanced', -$day,
	{ worker_id => 1, spare_worker_id => 2 },
	'restart_after_crash = on');
poll($node, 'spare_worker_id = 2');

sub advance
{
	my ($to) = @_;
	my $id = query($node, "SELECT snowid_max(clock_timestamp() + '$to')");
	query($node, "SELECT snowid_advance($id)");
	return $id;
}

advance('10 min');
is_refused('keys wait for the time that they were advanced to');
$node->stop('immediate');
$node->start;
is_refused('and the spare does not make them, after a crash either');
is(status($node, 'worker_id, spare_uses'), '1|0', 'nor is it used');
set_skew($node, -$day + 11 * $minute);
key_is_of(1, 'when the time has come, the own worker ID makes them');
set_skew($node, -$day + $hour);
key_is_of(1, 'time passes');
set_skew($node, -$day + 30 * $minute);
key_is_of(2, 'a step back: the spare');
my $id = advance('50 min');
is_refused('advanced with the spare: keys wait');

foreach my $crash (0, 1)
{
	if ($crash)
	{
		$node->stop('immediate');
		$node->start;
	}
	set_skew($node, -$day + 70 * $minute);
	is_refused('keys of the own worker ID, the clock being right, do too'
		  . ($crash ? ' after a crash' : ''));
}
set_skew($node, -$day + 2 * $hour);
key_is_of(1, 'until the time is there');
cmp_ok(next_key($node), '>', $id, 'above it');

# Merged rows may be below the own keys and above those of the spare.
set_skew($node, -$day + 3 * $hour);
key_is_of(1, 'time passes');
$id = advance('-10 min');
cmp_ok(next_key($node), '>', $id, 'advanced to below the last key');
$node->stop;
set_skew($node, -$day + 2.7 * $hour);
$node->start;
is_refused('the spare makes no keys below that, either');
is(status($node, 'worker_id'), '1', 'so it is not used');
set_skew($node, -$day + 2.9 * $hour);
key_is_of(2, 'only above it');
set_skew($node, -$day + 3.1 * $hour);
key_is_of(1, 'time passes');

#---- A copy of the directory ----

$node->backup('copy');
set_skew($node, -$day + 3.5 * $hour);
key_is_of(1, 'the original goes on');
set_skew($node, -$day + 3.2 * $hour);
key_is_of(2, 'and uses its spare');
my $spare_key = next_key($node);
$node->stop;
my $copy = server_from_backup('copied', $node, 'copy',
	"snowid.worker_id = 1\nsnowid.spare_worker_id = 2\nsnowid.max_lead = 100ms\nsnowid.max_wait = 200ms\nsnowid.max_jump = 10d"
);
$node = $copy;
set_skew($node, -$day + 4 * $hour);
$node->start;
key_is_of(1, 'a copy of the data directory in its place');
$node->stop('immediate');
set_skew($node, -$day + 3.2 * $hour);
$node->start;
is_refused(
	'does not use the spare for a time before its start, for the original may have'
);
set_skew($node, -$day + 5 * $hour);
key_is_of(1, 'time passes');
set_skew($node, -$day + 4.5 * $hour);
key_is_of(2, 'but for one behind it');
cmp_ok(next_key($node), '>', $spare_key, 'above the keys of the original');
$node->stop;

#---- No room for its origin ----

start_new('room', -$day, { worker_id => 1 }, origin_places($node) . ' = 1');
$log = -s $node->logfile;
reload(worker_id => 1, spare_worker_id => 2);
$node->wait_for_log(
	qr/LOG:  snowid could not take its spare worker ID 2\n.*DETAIL:  Could not find free replication state slot/,
	$log);
key_is_of(1, 'no room for the origin of the spare: the own one goes on');
set_skew($node, -$day - $hour);
is_refused('and the spare is not used');
is(status($node, 'spare_worker_id'), '', 'nor is it in the status');
$node->stop;
$node->append_conf('postgresql.conf', origin_places($node) . ' = 2');
$node->start;
key_is_of(2, 'when there is room, it is');
$node->stop;

# snowid_advance() takes it, too, and as if it were set then.
start_new('late', -$day, { worker_id => 1 }, origin_places($node) . ' = 2');
query($node,
	q(SELECT pg_replication_origin_advance('other', '0/1') FROM pg_replication_origin_create('other'))
);
$log = -s $node->logfile;
reload(worker_id => 1, spare_worker_id => 2);
$node->wait_for_log(qr/LOG:  snowid could not take its spare worker ID 2\n/,
	$log);
query($node, q(SELECT pg_replication_origin_drop('other')));
advance('-10 min');
poll($node, 'spare_worker_id = 2');
$node->stop;
set_skew($node, -$day - 5 * $minute);
$node->start;
is_refused(
	'a spare that there was no room for is not used for a time before it was taken'
);
is(status($node, 'worker_id'), '1', 'not even one after an advance');
$node->stop;

#---- The catalog of origins is locked ----

start_new('locked', 0, { worker_id => 1, spare_worker_id => 2 });
poll($node, 'spare_worker_id = 2');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK pg_replication_origin IN SHARE MODE');
my $refused;
wait_until(
	'the reason',
	sub {
		$refused = sql_error($node,
			q(SELECT snowid_advance(snowid_max(clock_timestamp() + '1 min')))
		);
		$refused !~ /^55000: snowid could not reserve more keys\nHINT/;
	});
like(
	$refused,
	qr/^55000: snowid could not reserve more keys\nDETAIL:  Another transaction has created or dropped/,
	'where the spare could make keys below it, an advance is refused');
key_is_of(1, 'and nothing has changed');
reload(worker_id => -1);
poll($node, q(reason ~ 'no worker ID'));
unlink $node->data_dir . '/snowid/state';
reload(worker_id => 1, spare_worker_id => 2);
poll($node,
	q(reason ~ 'cannot use its replication origin: Another transaction has created or dropped')
);
pass('a pair that is new here begins when it has its spare');
$session->query_safe('COMMIT');
$session->quit;
key_is_of(1, 'which is when the catalog is free');
$node->stop;
done_testing();
