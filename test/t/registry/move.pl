# The clock is set back so far behind a server's keys that every caller would be
# refused: the server leaves its worker ID for another one by itself, and callers
# wait meanwhile.  For good and on lease; again and again; at a start; on a
# promoted standby; if no other ID is free; and if the clock is right again before
# that.  No key is made twice.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidKeys;
use SnowidRedis;
use SnowidSession;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

$SIG{PIPE} = 'IGNORE';

use constant HOUR      => 3600;
use constant DAYS_BACK => -3 * 24 * HOUR;    # further than snowid.max_jump

# No caller may be refused because this machine is slow.
my $patient = "snowid.max_wait = '60s'\n";
my $hasty   = "snowid.max_wait = '1s'\n";
my $behind =
  qr/58000: the clock is too far behind the keys of this server\nDETAIL:  The keys of worker ID (\d+) of datacenter 0 end at 2\d{3}-[^;,]+/;

my $redis = SnowidRedis->start('redis');
my (%made, $twice);

# Counts keys that were made before, by any server of this registry.
sub count_keys
{
	$twice += scalar grep { $made{$_}++ } @_;
	return @_;
}

sub new_key { return (count_keys(next_key($_[0])))[0]; }

# Each part has a registry of its own.
sub begin_part
{
	$redis->settle;
	%made  = ();
	$twice = 0;
	return;
}

sub end_part
{
	my ($part, @nodes) = @_;
	new_key($_) foreach @nodes;
	is($twice, 0, "$part: no key is made twice");
	is( join(
			'',
			map {
				slurp_file($_->logfile) =~ /PANIC|TRAP|terminated by signal/
			} @nodes),
		'',
		"$part: no process crashes");
	$_->stop foreach @nodes;
	return;
}

# The worker IDs of the past claims in the state file, newest first.
sub past_ids
{
	my ($node) = @_;
	my $state = slurp_file($node->data_dir . '/snowid/state');
	return join ' ', map { unpack 'l', substr($state, $_ + 24, 4) }
	  grep { substr($state, $_, 8) ne "\0" x 8 } map { 152 + 48 * $_ } 0 .. 7;
}

sub moves { return status($_[0], 'moves'); }

#---- Under load, twice in a row, and the clock put right ----

foreach my $kind ('for good', 'on lease')
{
	begin_part();
	my $lease = $kind eq 'on lease' ? "snowid.redis_lease = '10s'\n" : '';
	my ($one, $two) = map { claimed($_, $redis, $patient . $lease) }
	  $lease ? qw(c d) : qw(a b);
	is(join(' ', map { worker_id($_) } $one, $two),
		'0 1', "$kind: two servers have a worker ID each");

	my $log     = log_size($one);
	my @clients = map { start_client($_) } $one, $one, $two;
	clients_go_on(@clients);
	set_skew($one, -(HOUR));
	poll($one, 'is_open AND worker_id = 2');
	clients_go_on(@clients);
	my @keys = map { [ count_keys(stop_client($_)) ] } @clients;
	is(join('', map { slurp_file($_->{errors}) } @clients),
		'', "$kind: no caller is refused when the clock is set back");
	is(join(' ', map { disorder(@$_) } @keys),
		'1 1 0', "$kind: order is given up once, on that server alone");
	my @before = grep { key_worker_id($_) == 0 } map { @$_ } @keys[ 0, 1 ];
	my @after  = grep { key_worker_id($_) == 2 } map { @$_ } @keys[ 0, 1 ];
	is( @before + @after,
		@{ $keys[0] } + @{ $keys[1] },
		"$kind: all keys have the ID before or the other one");
	cmp_ok(
		highest(map { key_ms($_) } @after),
		'<',
		(time - HOUR + 60) * 1000,
		"$kind: keys continue at the clock's time");
	is(moves($one), 1, "$kind: the status counts the move");
	my $key = new_key($one);
	is( status($one, "last_key >= $key"),
		't',
		"$kind: the status has the last key, though it is older than the start"
	);
	like(
		slurp_file($one->logfile, $log),
		qr/LOG:  the clock is too far behind the keys of this server\n.*LOG:  snowid left worker ID 0 of datacenter 0, whose keys are ahead of the clock\n\S.*DETAIL:  They end at 2\d{3}-.*; new keys are below them until then\.\n/s,
		"$kind: the log says why, and where order ends");
	my ($noticed, $left) = map {
		slurp_file($one->logfile, $log) =~ /^\S+ \d\d:\d\d:([\d.]+) [^\n]*$_/m
	} 'the clock was set back by', 'the clock is too far behind';
	cmp_ok(60 + $left - $noticed - 60 * ($left >= $noticed),
		'>=', 0.49,
		"$kind: a step back counts when it has lasted for a moment");
	wait_until(
		"$kind: the ID before is given back",
		sub { $redis->record('0:0', 'owner') eq '' });
	cmp_ok(
		$redis->record('0:0', 'ceiling'),
		'>=',
		highest(map { key_ms($_) } @before),
		"$kind: the registry keeps the ceiling of the ID that was left");
	is(past_ids($one), '0', "$kind: it is among the past claims");

	# the second time it takes longer
	@clients = map { start_client($_) } $one, $two;
	clients_go_on(@clients);
	my $began = time;
	set_skew($one, -2 * HOUR);
	poll($one,
		"NOT is_open AND reason ~ 'worker ID 2 .*; another one is claimed when the clock has been behind for 10000 ms'"
	);
	pass("$kind: again set back, the status says how long the ID is kept");
	poll($one, 'is_open AND worker_id = 3');
	cmp_ok(time - $began,
		'>', 9.9, "$kind: the second ID is left after a pause");
	clients_go_on(@clients);
	@keys = map { [ count_keys(stop_client($_)) ] } @clients;
	is(join('', map { slurp_file($_->{errors}) } @clients),
		'', "$kind: callers wait for that, too");
	is(moves($one),    2,     "$kind: the status counts it");
	is(past_ids($one), '2 0', "$kind: both IDs are among the past claims");

	# a third time, but the clock is right again before the pause is over
	my $last = new_key($one);
	set_skew($one, -3 * HOUR);
	poll($one, "NOT is_open AND reason ~ 'has been behind for 20000 ms'");
	pass("$kind: the pause grows");
	set_skew($one, -2 * HOUR);
	poll($one, 'is_open AND worker_id = 3');
	cmp_ok(new_key($one), '>', $last,
		"$kind: the clock is right again, and keys continue in order with the same ID"
	);

	# right, as it was in the beginning
	set_skew($one, 0);
	wait_until("$kind: keys of the right time",
		sub { key_ms(new_key($one)) > (time - 60) * 1000 });
	is(worker_id($one), 3, "$kind: with the right clock the ID stays");
	cmp_ok(new_key($one), '>', highest(@before),
		"$kind: keys are above those of the first ID again");
	is(moves($one), 2, "$kind: a clock that is right moves nothing");
	end_part($kind, $one, $two);
}

#---- A caller that waits until its key is due ----

begin_part();
my $waiting =
  claimed('waiting', $redis, $patient . "snowid.max_lead = '10ms'\n");
my $stands = now_ms();
stop_clock($waiting, $stands);
my $batch = SnowidSession->new($waiting, 'postgres');
$batch->ask(
	q{SELECT string_agg(key::text, E'\n') FROM snowid_next_batch(100000) AS key}
);
poll($waiting, 'lead_ms > 11');
set_skew($waiting, -(HOUR));
my @batch = count_keys(split /\n/, $batch->answer);
is( scalar @batch,
	100_000,
	'a batch waits for the clock, which is set back: it gets all of its keys'
);
cmp_ok(
	highest(map { key_ms($_) } @batch),
	'<=',
	$stands + 10,
	'a batch waits for the clock, which is set back: no key leads it by more than max_lead'
);
is(key_worker_id($batch[-1]), 1,
	'a batch waits for the clock, which is set back: it continues with the other ID'
);
end_part('a caller that waits', $waiting);

#---- The registry is full ----

my $few =
  "snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=9 worker=1 sequence=12'\n";
begin_part();
my $full  = claimed('full',  $redis, $hasty . $few);
my $other = claimed('other', $redis, $hasty . $few);
my $last  = new_key($full);
set_skew($full, -(HOUR));
poll($full, "reason ~ 'no other one could be claimed: All 2 worker IDs'");
like(
	sql_error($full, 'SELECT snowid_next()'),
	qr/^$behind, and no other one could be claimed: All 2 worker IDs of datacenter 0 are in use: 2 have an owner, of which only a silent one can be released\.\nHINT:  Set the clock right; see doc\/worker-ids\.md in/,
	'no free ID: callers learn of the clock, and why there is no other ID');
is(query($full, 'SELECT is_open FROM snowid_status()'),
	'f', 'no free ID: the status says that no keys are made');
my $marks = $redis->record('0:0', 'n');
wait_until(
	'a mark',
	sub {
		$redis->record('0:0', 'seen') > 0
		  && $redis->record('0:0', 'n') > $marks + 5;
	});
wait_for($other,
	"SELECT state = 'live' FROM snowid_claims() WHERE worker_id = 0");
pass('no free ID: the server marks the one that it has');
new_key($other);
set_skew($full, 0);
server_is_open($full);
cmp_ok(new_key($full), '>', $last,
	'no free ID: with the clock right again keys continue');
is(status($full, 'worker_id, moves'),
	'0|0', 'no free ID: the server has the same ID');
$last = new_key($other);
my $log = log_size($other);
is(query($full, 'SELECT snowid_release(0, 1, true)'),
	'revoked', 'no free ID: the ID of the other server is revoked');
$other->wait_for_log(qr/LOG:  snowid lost its worker ID\n/, $log);
wait_for_claim($other);
is(worker_id($other), 1,
	'no free ID: a server whose ID was revoked gets it again');
cmp_ok(new_key($other), '>', $last,
	'no free ID: its keys are above those before');
end_part('no free ID', $full, $other);

#---- Redis is away ----

begin_part();
my $cut = claimed('cut', $redis, $hasty);
new_key($cut);
$redis->stop;
error_is($cut, 'Connection refused');
set_skew($cut, -(HOUR));
poll($cut, "reason ~ 'no other one could be claimed: Redis cannot be used'");
like(
	sql_error($cut, 'SELECT snowid_next()'),
	qr/^$behind, and no other one could be claimed: Redis cannot be used: .*Connection refused\.\nHINT:/,
	'Redis away: callers learn of the clock, and of Redis');
query($cut, 'CREATE ROLE app');
like(
	sql_error($cut, 'SET ROLE app; SELECT snowid_next()'),
	qr/58000: the clock is too far behind the keys of this server\nDETAIL:  See the server log\.\n/,
	'Redis away: an ordinary role does not learn its address');
$redis->run;
poll($cut, 'is_open AND worker_id = 1');
new_key($cut);
is(moves($cut), 1, 'Redis is back: the server moves by itself');

# the clock is right again before Redis is back
$redis->stop;
$last = new_key($cut);
set_skew($cut, -2 * HOUR);
poll($cut, 'NOT is_open');
set_skew($cut, -(HOUR));
server_is_open($cut);
cmp_ok(new_key($cut), '>', $last,
	'Redis away, but the clock right again: keys continue');
$redis->run;
answered($cut);
is(status($cut, 'worker_id, moves'),
	'1|1', 'Redis is back after that: nothing moves any more');
end_part('Redis away', $cut);

#---- At a start ----

begin_part();
my $starts = claimed('starts', $redis, $patient);
foreach my $how ('fast', 'immediate')
{
	my $id = worker_id($starts);
	count_keys(split /\n/, query($starts, 'SELECT snowid_next_batch(1000)'));
	$starts->stop($how);
	set_skew($starts, $how eq 'fast' ? -(HOUR) : DAYS_BACK);
	$starts->start;
	poll($starts, 'is_open');
	isnt(worker_id($starts), $id,
		"started with the clock set back ($how): another ID");
	count_keys(split /\n/, query($starts, 'SELECT snowid_next_batch(1000)'));
}
is(past_ids($starts), '1 0', 'at each start one ID was left');

# Redis does not answer at the start, and the clock is days behind: keys, and the
# marks of a server that made none for a while, are beyond what Redis may say.
my $end = query($starts,
	'SELECT 1000 * extract(epoch FROM last_key_time)::bigint FROM snowid_status()'
);
wait_until('a mark far above the last key',
	sub { $redis->record('0:2', 'ceiling') > $end + 10_000 });
$redis->freeze;
settings($starts, $short . $hasty);
$starts->stop;
set_skew($starts, 2 * DAYS_BACK);
$starts->start;
poll($starts,
	"reason ~ 'no other one could be claimed: Redis cannot be used'");
$redis->resume;
poll($starts, 'is_open');
is(status($starts, 'worker_id'),
	3, 'once Redis answers, a server whose keys are days ahead moves');
end_part('at a start', $starts);

# On lease, a server that crashed asks Redis for the ID that it had.
begin_part();
my $leased =
  claimed('leased', $redis, $patient . "snowid.redis_lease = '10s'\n");
my @made =
  count_keys(split /\n/, query($leased, 'SELECT snowid_next_batch(1000)'));
$leased->stop('immediate');
set_skew($leased, DAYS_BACK);
$leased->start;
poll($leased, 'is_open');
is(status($leased, 'worker_id'),
	1, 'on lease, a server that starts with its clock days behind moves');
cmp_ok(
	$redis->record('0:0', 'ceiling'),
	'>=',
	highest(map { key_ms($_) } @made),
	'on lease: the registry keeps the ceiling of the ID before, though it may be free'
);
end_part('at a start, on lease', $leased);

#---- A promoted standby ----

begin_part();
my $primary =
  claimed('primary', $redis, $short . $patient, allows_streaming => 1);
$primary->backup('backup');
my $standby = server_from_backup(
	'standby', $primary, 'backup',
	claim_settings('standby', $redis, $short . $patient),
	has_streaming => 1);
$standby->start;
poll($standby, "registry = 'claimed'");
is(status($standby, 'worker_id, worker_id_source, is_open'),
	'1|claim|f', 'a standby shows the ID that it has claimed in advance');
wait_until(
	'the claim is in its file',
	sub {
		substr(slurp_file($standby->data_dir . '/snowid/state'), 56, 8) ne
		  "\0" x 8;
	});
my $early = worker_id($standby);
count_keys(split /\n/, query($primary, 'SELECT snowid_next_batch(1000)'));
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
$standby->stop;
set_skew($standby, -(HOUR));
$standby->start;
poll($standby, "registry = 'claimed'");
$primary->stop('immediate');
$standby->promote;
poll($standby, 'is_open');
isnt(worker_id($standby), $early,
	'a promoted standby whose clock was set back since its claim takes another ID'
);
count_keys(split /\n/, query($standby, 'SELECT snowid_next_batch(1000)'));
cmp_ok(
	key_ms(new_key($standby)),
	'<',
	(time - HOUR + 60) * 1000,
	'a promoted standby makes keys at its own time');
end_part('promoted', $standby);

#---- Keys that were advanced wait ----

begin_part();
my $advanced = claimed('advanced', $redis, $hasty);
my $target   = query($advanced,
	"SELECT snowid_max(clock_timestamp() + interval '30 min')");
query($advanced, "SELECT snowid_advance($target)");
foreach my $when ('', ', after a crash')
{
	like(
		sql_error($advanced, 'SELECT snowid_next()'),
		qr/^58000: the next key would lead the clock by/,
		"advanced$when: keys wait for the clock");
	is(status($advanced, 'worker_id, moves'),
		'0|0', "advanced$when: no other ID is claimed");
	next if $when;
	$advanced->stop('immediate');
	$advanced->start;
	gate_is_open($advanced);
	usleep(1_500_000);
}
set_skew($advanced, 31 * 60);
wait_until(
	'the first key',
	sub {
		defined eval { $last = next_key($advanced) }
	});
cmp_ok($last, '>', $target, 'advanced: the first key is above');
end_part('advanced', $advanced);

# a server that is advanced changes its ID
begin_part();
my $both =
  claimed('advanced_lease', $redis, "${hasty}snowid.redis_lease = '3s'\n");
$target =
  query($both, "SELECT snowid_max(clock_timestamp() + interval '30 min')");
query($both, "SELECT snowid_advance($_)") foreach $target, 1;
$both->restart;
gate_is_open($both);
is(worker_id($both), 0, 'advanced, on lease: a restart keeps the ID');
is(query($both, 'SELECT snowid_reclaim()'),
	1, 'advanced, on lease: another ID');
poll($both, 'worker_id = 1');
like(
	sql_error($both, 'SELECT snowid_next()'),
	qr/^58000: the next key would lead the clock by/,
	'advanced, on lease: keys of the other ID wait for the clock, too');
set_skew($both, 31 * 60);
wait_until(
	'the first key of the other ID',
	sub {
		defined eval { $last = next_key($both) }
	});
cmp_ok($last, '>', $target,
	'advanced, on lease: the first key of the other ID is above');
end_part('advanced_lease', $both);

done_testing();
