# A worker ID on lease: keys end at the record's ceiling in Redis, and the next
# owner begins above it.  Faults of Redis, of the network, of clocks, processes and
# directories cost time, and never a key's uniqueness.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidProxy;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(clock_gettime time usleep CLOCK_MONOTONIC);

$SIG{PIPE} = 'IGNORE';

use constant LEASE => 2000;    # ms

my $on_lease = <<~EOF;
	snowid.redis_lease = '2s'
	snowid.redis_timeout = '1s'
	snowid.max_wait = '500ms'
	EOF
my (%made, %proxy);
my $repeated = 0;
my @frozen;

END { kill 'CONT', @frozen; }

my $redis = SnowidRedis->start('redis');

sub on_lease
{
	my ($name, %init) = @_;
	$proxy{$name} = SnowidProxy->start($redis);
	my $node =
	  claiming_cluster($name, $proxy{$name}, $on_lease, marks => 5000, %init);
	$node->append_conf('postgresql.conf', 'restart_after_crash = on');
	$node->start;
	create_extension($node);
	return $node;
}

sub record
{
	my ($worker_id, $field) = @_;
	return $redis->record("0:$worker_id", $field) // '';
}

# The keys that a client has received so far, and all of them when it is ended.
sub so_far { return slurp_file($_[0]{keys}) =~ /^(\d+)\n/mg; }

sub keys_of
{
	my @keys = stop_client($_[0]);
	foreach my $key (@keys) { $repeated++ if $made{$key}++; }
	return @keys;
}

# The server's clock, in Unix ms, before the first call that its lease refuses, and why it
# does: by the session that calls, for another one may come late.
sub end_of_lease
{
	my ($node) = @_;
	my ($ended, $why);
	wait_until(
		'the end of a lease',
		sub {
			($ended, $why) = sql_error($node, <<~'EOF')
				DO $$
				DECLARE at timestamptz; why text;
				BEGIN
					LOOP
						at := clock_timestamp();
						PERFORM snowid_next(), pg_sleep(0.01);
					END LOOP;
				EXCEPTION WHEN object_not_in_prerequisite_state THEN
					GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL;
					RAISE '% ms: % %', floor(extract(epoch FROM at) * 1000), SQLERRM, why;
				END $$
				EOF
			  =~ /(\d+) ms: (.*The lease of worker ID \d+ has not been renewed.*)/s;
			defined $ended;
		});
	return ($ended, $why);
}

# Up to where the server knows its lease: no answer that Redis gave on the way is in it.
sub known_ceiling
{
	my ($node) = @_;
	return status($node, 'floor(extract(epoch FROM lease_ceiling) * 1000)');
}

# Waits until its lease ended a lease ago.
sub wait_for_lapse
{
	my ($node, $worker_id) = @_;
	wait_for($node,
		"SELECT state = 'lapsed' FROM snowid_claims() WHERE worker_id = $worker_id"
	);
	return;
}

# Seconds until the server makes keys as this keeper.
sub seconds_until_open
{
	my ($node, $worker_id) = @_;
	my $began = time;
	wait_until(
		"keys as worker $worker_id",
		sub {
			my ($key, $err);

			# psql may end before it has read that
			eval {
				$node->psql(
					'postgres', 'SELECT snowid_next()',
					stdout => \$key,
					stderr => \$err);
			};
			return
				 $key
			  && key_worker_id($key) == $worker_id
			  && ++$made{$key} == 1;
		});
	return time - $began;
}

#---- A server makes no keys, and its lease ends ----

my $idle_redis = SnowidRedis->start('idle_redis');
my $idle       = claimed('idle', $idle_redis, $on_lease);
query($idle, 'SELECT snowid_next()');
my $last_use = clock_gettime(CLOCK_MONOTONIC);

# longer than grants are renewed after a key
query($idle, 'SELECT pg_sleep(4)');
$idle_redis->freeze;
poll($idle, "reason ~ 'has not been renewed: Redis cannot be used'");
my @pids = map { process_pid($idle, "snowid $_") } qw(keeper registry);
my ($slept, $waits) = (clock_gettime(CLOCK_MONOTONIC), waits_of(@pids));
usleep(3_000_000);
$waits = waits_of(@pids) - $waits;
$slept = clock_gettime(CLOCK_MONOTONIC) - $slept;
cmp_ok($waits / $slept,
	'<', 20,
	'the processes of an idle server whose lease has ended mostly sleep');

#---- The record is written before keys are made ----

my $one = on_lease('a', allows_streaming => 1);
wait_for_claim($one);
is(worker_id($one), 0, 'the first gets the lowest ID');
my $load = start_client($one);
clients_go_on($load);

my ($above, $samples) = (0, 0);
my ($began, %seen)    = (time);
while (keys %seen < 6)
{
	my ($wal, $view, $lease) = split /\|/, query($one, <<~EOF);
		SELECT (SELECT max(ms) FROM @{[ ceilings() ]}),
			floor(extract(epoch FROM ceiling) * 1000),
			floor(extract(epoch FROM lease_ceiling) * 1000) FROM snowid_status()
		EOF
	$samples++;
	my ($n, $at) =
	  split / /, $redis->query('HGET', 'snowid', 'mark:0:0');
	$seen{$n} //= $at;
	$above++
	  if $wal > $lease || $view > $lease || $lease > record(0, 'ceiling');
}
is($above, 0,
	"neither the WAL's ceiling nor the status's is above the record's, in $samples looks"
);
my @n = sort { $a <=> $b } keys %seen;

# of several renewals between two looks, each one's part
my ($pause) = sort { $a <=> $b } map {
	int(($seen{ $n[$_] } - $seen{ $n[ $_ - 1 ] }) / ($n[$_] - $n[ $_ - 1 ]))
} 2 .. $#n;
ok($pause > 500 && $pause < LEASE, "renewed at a third: after $pause ms");

#---- Redis hangs ----

my $n = record(0, 'n');
wait_until('a renewal', sub { record(0, 'n') > $n });
$redis->freeze;
my ($ended, $why) = end_of_lease($one);
my $ceiling = known_ceiling($one);
like(
	$why,
	qr/^snowid could not reserve more keys The lease of worker ID 0 has not been renewed: Redis cannot be used: .*no answer within snowid\.redis_timeout/s,
	'without Redis keys end, and the error says why');
my $last_key = status($one, 'last_key');
cmp_ok(key_ms($last_key), '<=', $ceiling,
	'no key is above the ceiling of the lease');
cmp_ok(
	$ended, '>',
	$ceiling - 1500,
	'keys continue up to the ceiling of the lease');
usleep(300_000);
is(status($one, 'last_key'), $last_key, 'no more are made');
$redis->resume;
clients_go_on($load);
is(worker_id($one), 0, 'Redis is back: they continue by themselves');
is(disorder(keys_of($load)), 0,
	'keys are in order over a time without Redis');

#---- Its way to Redis is cut, and its ID is another's: its clock five minutes ahead of ours ----

# $owner is cut off, and $next is to have its ID; what the owner made since, and what it
# may have made at most.
sub recycle
{
	my ($owner, $next, $worker_id) = @_;
	my $client = start_client($owner);

	clients_go_on($client);
	$proxy{ $owner->name }->cut;
	my ($recorded, $seen) =
	  (record($worker_id, 'ceiling'), record($worker_id, 'seen'));
	my $known = known_ceiling($owner);
	my ($ended) = end_of_lease($owner);
	cmp_ok(
		$ended, '>',
		$known - 1500,
		'keys continue up to the ceiling of the lease that is known');
	$next->();
	wait_until('another owner',
		sub { record($worker_id, 'name') ne $owner->name });
	cmp_ok(
		record($worker_id, 'since'),
		'>',
		$seen + 2 * LEASE,
		'it is given out after a second lease');
	cmp_ok(
		record($worker_id, 'floor'),
		'>=',
		$recorded + LEASE,
		'to begin a lease above its ceiling');
	return ($client, $recorded);
}

# Another worker ID, once the one before it is given back.
sub reclaim
{
	my ($node) = @_;
	my $got;
	wait_until(
		'another worker ID',
		sub {
			$got = eval { query($node, 'SELECT snowid_reclaim()') };
			defined $got;
		});
	return $got;
}

# The cut off owner is back, and gets another ID.
sub come_back
{
	my ($owner, $was, $is, $client, $recorded) = @_;
	my $log = -s $owner->logfile;

	$proxy{ $owner->name }->mend;
	$owner->wait_for_log(qr/Worker ID $was of datacenter 0 .*held by/, $log);
	poll($owner, "is_open AND worker_id = $is");
	clients_go_on($client);
	my @keys = keys_of($client);
	my @old  = grep { key_worker_id($_) == $was } @keys;
	cmp_ok(highest(map { key_ms($_) } @old),
		'<=', $recorded, 'the old owner made no key above its ceiling');
	is( scalar(
			grep { key_worker_id($_) != $was && key_worker_id($_) != $is }
			  @keys),
		0,
		'it continues with another ID');
	is(disorder(@keys), 0, 'keys are in order over the change of the ID');
	return;
}

$proxy{b} = SnowidProxy->start($redis);
my $two = claiming_cluster('b', $proxy{b}, $on_lease);
set_skew($two, 300);
$two->start;
create_extension($two);
wait_for_claim($two);
is(worker_id($two), 1, 'a newcomer gets another ID');
query($two, 'SELECT snowid_next()');

my @cut = recycle(
	$one,
	sub {
		wait_for_lapse($two, 0);
		is(query($two, 'SELECT snowid_reclaim()'),
			0, 'an ID whose lease has lapsed is the lowest free one');
	},
	0);
server_is_open($two);
my $b_load = start_client($two);
clients_go_on($b_load);
come_back($one, 0, 2, @cut);
my @b_keys = keys_of($b_load);
is( scalar(grep { key_worker_id($_) != 0 || key_ms($_) <= $cut[1] } @b_keys),
	0,
	'the new one makes keys above that with this ID');
is(record(0, 'name'), 'b', 'the new server keeps the ID');

#---- The same to it, with the next one's clock behind: it waits for that ----

my $three = on_lease('c');
wait_for_claim($three);
is(worker_id($three), 3, 'a third server');
@cut = recycle(
	$two,
	sub {
		wait_for_lapse($three, 0);
		is(query($three, 'SELECT snowid_reclaim()'),
			4, 'IDs whose keys lie ahead are not given to a newcomer');
		poll($three, 'is_open AND worker_id = 4');

		# of b's keys the clock is to come through the last ones yet
		set_skew($three,
			($cut[1] = record(0, 'ceiling')) / 1000 - time - 100);
		isnt(reclaim($three), 0,
			'an ID is not given to a newcomer as long as some of its keys lie ahead'
		);
		set_skew($three, $cut[1] / 1000 - time);
		wait_until('the lapsed ID', sub { reclaim($three) == 0 });
		pass(
			'an ID is given to a newcomer as soon as none of its keys lies ahead'
		);
	},
	0);
wait_for_worker_id($three, 0);
my $c_load = start_client($three);
clients_go_on($c_load);

#---- A clean stop, and a start in place ----

keys_of($c_load);
wait_for($three,
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
);
my $c_highest = query($three, 'SELECT last_key FROM snowid_status()');
$three->stop;
$three->start;
cmp_ok(seconds_until_open($three, 0),
	'<', 30, 'after a clean stop it is back at once, with its ID');
cmp_ok(query($three, 'SELECT last_key FROM snowid_status()'),
	'>', $c_highest, 'after a clean stop keys are above those before');
$c_highest = query($three, 'SELECT last_key FROM snowid_status()');
$three->stop;

#---- The server before has the ID again when that lease has lapsed ----

my ($b_client, $b_recorded) = @cut;
my @behind;

# once its clock has come to where the ID begins: before, it would get another one
wait_for_lapse($one, 0);
wait_until('the clock of b',
	sub { (time + 300) * 1000 > record(0, 'ceiling') + LEASE });

# the next claim begins a round over the table, and finds that lease
$redis->query('HDEL', 'snowid', 'next:0');
$proxy{b}->mend;
wait_until('b has it', sub { record(0, 'name') eq 'b' });
server_is_open($two);
clients_go_on($b_client);
my @b_all = keys_of($b_client);
my @b_new = grep { key_ms($_) > $b_recorded } @b_all;
cmp_ok((sort { $a <=> $b } @b_new)[0],
	'>', $c_highest,
	'the server has the ID again, and keys above those of the one between');
is(disorder(@b_all), 0, 'all keys of the one that was cut off are in order');

#---- A crash, and a start in place ----

my $a_has = worker_id($one);
$load = start_client($one);
clients_go_on($load);
$one->stop('immediate');
my @before = keys_of($load);
$one->start;
cmp_ok(seconds_until_open($one, $a_has),
	'<', 30, 'after a crash it is back at once, with its ID');
$load = start_client($one);
clients_go_on($load);
is(disorder(@before, keys_of($load)), 0, 'after a crash keys are in order');

#---- The clock steps ----

my $a_id = worker_id($one);
$load = start_client($one);
clients_go_on($load);
$began = time;
set_skew($one, 600);
wait_until('keys of the new time',
	sub { key_ms((so_far($load))[-1]) > ($began + 600) * 1000 });
cmp_ok(time - $began,
	'<', 30, 'the clock goes ten minutes ahead: keys continue');
cmp_ok(
	record($a_id, 'ceiling'),
	'>',
	($began + 600) * 1000,
	'the clock goes ten minutes ahead: the grant is in the record');
set_skew($one, 0);
poll($one, "is_open AND worker_id <> $a_id");
keys_of($load);
my $a_next = worker_id($one);

#---- snowid_advance() ----

$began = time;
query($one, q(SELECT snowid_advance(snowid_max(now() + interval '20 s'))));
cmp_ok(
	record($a_next, 'ceiling'),
	'>',
	($began + 19) * 1000,
	'snowid_advance() raises the ceiling in the record');
like(
	sql_error($one, 'SELECT snowid_next()'),
	qr/^58000: the next key would lead/,
	'before the generator continues there');
set_skew($one, 20);
my $advanced = query($one, 'SELECT snowid_next()');
cmp_ok(
	key_ms($advanced), '>',
	($began + 18) * 1000,
	'the generator continues there when the clock has come there');
$made{$advanced}++;
$proxy{a}->stop;
like(
	sql_error(
		$one, q(SELECT snowid_advance(snowid_max(now() + interval '25 s')))),
	qr/^55000: snowid could not reserve more keys/,
	'without Redis it cannot');
cmp_ok(
	query(
		$one,
		'SELECT floor(extract(epoch FROM ceiling) * 1000) FROM snowid_status()'
	),
	'<=',
	record($a_next, 'ceiling'),
	"without Redis it does not raise the ceiling above the record's");
$proxy{a}->run;
wait_for_claim($one);

#---- Frozen, copied, resumed ----

$two->stop;
my $a_was = worker_id($one);
$load = start_client($one);
clients_go_on($load);
@frozen = freeze($one);
my $a_recorded = record($a_was, 'ceiling');
my $copy       = copy_of('copy', $one, $on_lease);

# what lapses until it has its claim is out of its clock's reach
set_skew($copy, -600);
$copy->start;
wait_for_claim($copy);
isnt(worker_id($copy), $a_was, 'a copy of a frozen server gets another ID');
set_skew($copy, 20);

# or freed already, by the claim of the copy
wait_for($copy,
	"SELECT count(*) = 0 FROM snowid_claims() WHERE worker_id = $a_was AND state <> 'lapsed'"
);

# once its clock has come so far, the copy may even have the ID that lapsed
wait_until('the lapsed ID', sub { reclaim($copy) == $a_was });
wait_for_worker_id($copy, $a_was);
my $copy_load = start_client($copy);
clients_go_on($copy_load);
kill 'CONT', reverse @frozen;
poll($one, "is_open AND worker_id <> $a_was");
clients_go_on($load, $copy_load);
my @a_keys = keys_of($load);
is(disorder(@a_keys), 0, 'resumed, the frozen one continues in order');
is( scalar(
		grep { key_worker_id($_) == $a_was && key_ms($_) > $a_recorded }
		  @a_keys),
	0,
	'the frozen one made no key above its ceiling');
is( scalar(
		grep { key_worker_id($_) != $a_was || key_ms($_) <= $a_recorded }
		  keys_of($copy_load)),
	0,
	'the keys of the copy are above that ceiling');
$copy->stop;

#---- Processes end ----

my $backend = "FROM pg_stat_activity WHERE backend_type = 'snowid %s'";
$a_id = worker_id($one);
$load = start_client($one);
clients_go_on($load);
foreach my $process ('registry', 'keeper', 'registry')
{
	my $that = sprintf($backend, $process);
	my $old  = query($one, "SELECT pid $that");
	query($one, "SELECT pg_terminate_backend(pid) $that");
	wait_for($one, "SELECT pid <> $old $that");
	wait_for_claim($one);
	clients_go_on($load);
	$n = record($a_id, 'n');
	wait_until('a renewal', sub { record($a_id, 'n') > $n });
}
my @terminated = keys_of($load);
is(disorder(@terminated), 0, 'registry and worker terminated: order is kept');
is(scalar(grep { key_worker_id($_) != $a_id } @terminated),
	0, 'registry and worker terminated: the ID is kept');

#---- The server that makes no keys has its lease again ----

my $left = $last_use + 61 - clock_gettime(CLOCK_MONOTONIC);
usleep($left * 1e6) if $left > 0;
$idle_redis->resume;
poll($idle, 'is_open AND reason IS NULL');
pass('a lease that is renewed takes the reason away, though nobody makes keys'
);

is($repeated + grep({ $_ > 1 } values %made),
	0, 'no key was made twice in ' . keys(%made));

#---- Stop, and reboot before the lease ends ----

# snowid_advance() holds for a server on lease, too, that was stopped, and whose machine
# has another boot when it starts again before the lease has ended: it is a new server
# with another worker ID.
{
	my $redis = SnowidRedis->start('reboot');
	my $node  = claimed('rebooted', $redis, "snowid.redis_lease = '3s'\n");
	my $id    = worker_id($node);
	query($node,
		"SELECT snowid_advance(snowid_min(now() + interval '30 min'))");
	$node->stop;
	$redis->edit("0:$id", boot => 'another', lease => 3600_000);
	$node->start;
	wait_until(
		'another worker ID',
		sub {
			slurp_file($node->logfile) =~ /makes keys as .* worker (?!$id\b)/;
		});
	cmp_ok(status($node, 'lead_ms'),
		'>', 60_000,
		'keys of the new worker ID are above snowid_advance(), too');
	$node->stop;
}

done_testing();
