# The owner of a worker ID: the same directory gets its own back, a copy another;
# after a reboot only if no other server uses it.  No server makes keys with the ID
# of another one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

$SIG{PIPE} = 'IGNORE';

my $redis = SnowidRedis->start('redis', 'appendonly yes');
my $short = "snowid.max_wait = '1s'\n";

#---- The same directory ----

my $first = claimed('first', $redis, $short);
makes_keys_as($first, 0, 'the first claim');

$first->stop;
configure($first, claim_settings('renamed', $redis, $short));
$first->{_port} = PostgreSQL::Test::Cluster::get_free_port();
$first->append_conf('postgresql.conf', "port = $first->{_port}");
$first->start;
wait_for_claim($first);
makes_keys_as($first, 0,
	'a server with another name and another port gets its ID back');
is($redis->record('0:0', 'name'), 'renamed', 'under its new name');
settings($first, $short);
$first->reload;
wait_until('the new name', sub { $redis->record('0:0', 'name') eq 'first' });
is(query($first, 'SELECT server_name FROM snowid_claims()'),
	'first', 'a name is changed by reload');

foreach my $how ('immediate stop', 'kill of all its processes')
{
	$how eq 'immediate stop' ? $first->stop('immediate') : kill_all($first);
	$redis->edit('0:0', interval => 60_000);
	my $began = time;
	$first->start;
	wait_for_claim($first);
	cmp_ok(time - $began,
		'<', 30, "after an $how the server waits for nothing");
	makes_keys_as($first, 0, "after an $how the server gets its ID back");
}

#---- Copies ----

query($first, 'CHECKPOINT');
my @frozen = freeze($first);
my $hot    = copy_of('hot', $first, $short);
kill 'CONT', reverse @frozen;
$first->stop;
my $cold = copy_of('cold', $first, $short);
$cold->start;
wait_for_claim($cold);
makes_keys_as($cold, 1,
	'a file copy of a stopped server gets another ID at once, while that is down'
);
like(
	slurp_file($cold->logfile),
	qr/this data directory is a copy, or was restored/,
	'a file copy: its log says why');
$redis->freeze;
$first->start;
server_is_open($first);
is(claim_state($first), 'remembered', 'the original continues without Redis');
$hot->start;
waits_for_redis($hot, 'a file copy waits for Redis');
$redis->resume;
wait_for_claim($_) foreach $first, $hot;
makes_keys_as($first, 0, 'the original keeps its own');
makes_keys_as($hot,   2, 'a file copy of a running server gets another ID');
$cold->restart;
wait_for_claim($cold);
makes_keys_as($cold, 1, 'a copy keeps its own over a restart');

#---- Another boot ----

$cold->stop;
my $seen    = now_ms();
my $ceiling = $seen + 30_500;
$redis->edit(
	'0:1',
	boot     => 'another',
	interval => 15_000,
	seen     => $seen,
	ceiling  => $ceiling);
my $log   = -s $cold->logfile;
my $began = time;
$cold->start;
$cold->wait_for_log(qr/is taken back when no other server uses it/, $log);
kill_all($cold);
$redis->freeze;
$cold->start;
waits_for_redis($cold,
	'killed while it waited for silence: without Redis it has no ID');
$redis->resume;
wait_for_claim($cold);
cmp_ok(now_ms() - $seen, '>', 30_000,
	'after a reboot the ID is taken back after twice the interval of silence'
);
cmp_ok(time - $began,
	'<', 90, 'after a reboot the ID is taken back without a longer wait');
makes_keys_as($cold, 1, 'it is the same');
cmp_ok($last_ms, '>', $ceiling,
	'after a reboot keys are above the recorded ceiling');
$redis->freeze;
$cold->restart;
server_is_open($cold);
is(claim_state($cold), 'remembered',
	'a server that has its ID back continues with it without Redis');
$redis->resume;
wait_for_claim($cold);

# An old copy: a later start is on record.
my $node_id = $redis->record('0:1', 'owner');
$cold->stop;
$redis->edit('0:1', starts => 1000);
$cold->start;
wait_for_claim($cold);
makes_keys_as($cold, 1,
	'a lower count of starts is refused: the directory is a new server');
isnt(
	$redis->record('0:1', 'owner'),
	$node_id,
	'a lower count of starts is refused: the new server has the ID by its place, as after a restore'
);

#---- A block copy: it cannot be distinguished from the original by its file ----

# Gives a stopped server the ID, starts and claims of another one.
sub clone_node
{
	my ($to, $from) = @_;
	my ($own, $state) =
	  map { slurp_file($_->data_dir . '/snowid/state') } $to, $from;

	substr($state, $_->[0], $_->[1]) = substr($own, $_->[0], $_->[1])
	  foreach [ 0, 32 ], [ 104, 24 ];
	write_state($to, $state);
	return;
}

# Its former ID is given back, and must not be the next free one.
my $had = worker_id($hot);
$hot->stop;
$redis->edit("0:$had", ceiling => now_ms() + 3600_000);
clone_node($hot, $first);
my $state = $hot->data_dir . '/snowid/state';
write_state($hot,
	slurp_file($state) =~ s/^.{544}\K.{16}/pack 'q2', 1000, 1000/esr);
$redis->edit('0:0', boot => 'another');
$hot->start;
wait_for_claim($hot);
is(unpack('x544 q', slurp_file($state)),
	1000,
	'a clone that gets an identity of its own keeps its snowid_advance()');

# or the one that its directory had, where that has been silent for long enough
like(key_of($hot), qr/^[23]$/, 'a clone on another machine gets another ID');
like(
	slurp_file($hot->logfile),
	qr/Another server uses a copy of this data directory/,
	'a clone on another machine: its log says why');
makes_keys_as($first, 0, 'the living holder keeps its own');
unlike(
	slurp_file($first->logfile),
	qr/lost its worker ID/,
	'the living holder never lost its ID');

sub first_marks_every
{
	my ($ms) = @_;

	marks_every($first, $ms);
	$first->reload;
	wait_until(
		'a mark with the new interval',
		sub {
			($redis->record('0:0', 'interval') > 10_000) == ($ms >= 10_000);
		});
	return;
}

# Redis is back, and these servers call it one after the other; its settling ends then.
sub end_pause
{
	my (@nodes) = @_;

	$redis->run;
	foreach my $node (@nodes)
	{
		my $last = status($node, "coalesce(registry_ok_at, '-infinity')");
		$node->reload;
		poll($node, "registry_ok_at > '$last'");
	}
	$redis->end_settling;
	$_->reload foreach @nodes;
	return;
}

# Redis goes away while the clone waits for silence: that is no silence.
$hot->stop;
clone_node($hot, $first);
settings($hot, $short);
first_marks_every(10_000);
$hot->start;
poll($hot, "registry ~ 'is taken back when no other'");
$redis->stop;
usleep(3_500_000);
is( status($hot, 'is_open AND worker_id = 0'),
	'f',
	'a clone that knew of a holder does not use its ID when Redis goes away');
makes_keys_as($first, 0, 'the holder does');
end_pause($hot, $first);
first_marks_every(300);
wait_for_claim($hot);
isnt(key_of($hot), 0,
	'time without Redis is not silence: the clone gets another ID');
makes_keys_as($first, 0, 'the living holder keeps its own');
unlike(
	slurp_file($first->logfile),
	qr/lost its worker ID/,
	'the living holder never lost its ID, not even without Redis');

# A clone that starts while Redis is away uses the holder's ID, and then is to have another one.
$hot->stop;
clone_node($hot, $first);
first_marks_every(10_000);
$redis->stop;
$hot->start;
makes_keys_as($hot, 0, 'a clone that starts without Redis');
settings($hot, $short . 'snowid.datacenter_id = 6');
end_pause($hot, $first);
first_marks_every(300);
wait_for_claim($hot);
is(status($hot, 'datacenter_id'),
	6, 'the clone gets another ID when Redis is back');
wait_for_claim($first);
makes_keys_as($first, 0, 'the living holder keeps its own');
unlike(
	slurp_file($first->logfile),
	qr/lost its worker ID/,
	'the living holder never lost its ID to a clone that used it');
$hot->stop;
settings($first, $short);
$first->reload;

$_->stop foreach $first, $cold;
done_testing();
