# The worker IDs that servers get: the 33rd of a datacenter, another datacenter by a
# reload, the layout that the registry pins; and the administrator's functions.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

$SIG{PIPE} = 'IGNORE';

my $redis = SnowidRedis->start('redis');

# A living server has twice this to show it.
my ($first, $second, $late) =
  map { claiming_cluster($_, $redis, '', marks => 2000) }
  qw(first second late);
my $layout =
  'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=12';
my $narrower = $layout =~ s/12\z/11/r;

# Waits until it makes keys with this pair, as Redis has confirmed.
sub wait_for_pair
{
	my ($node, $worker_id, $datacenter_id) = @_;
	$datacenter_id //= 0;
	poll($node,
		"is_open AND registry = 'claimed' AND worker_id = $worker_id AND datacenter_id = $datacenter_id"
	);
	return;
}

sub refused
{
	my ($node, $why) = @_;
	poll($node, "NOT is_open AND reason ~ '$why'");
	return sql_error($node, 'SELECT snowid_next()');
}

# The pair that a key carries, its time in Unix ms, and the key.
sub new_key
{
	my ($node) = @_;
	return split /\|/, query($node, <<~EOF);
		SELECT datacenter_id || ':' || worker_id, (extract(epoch FROM created_at) * 1000)::bigint, id
		FROM (SELECT snowid_next() AS id OFFSET 0) made, LATERAL snowid_decode(id)
		EOF
}

sub release
{
	my ($node, @arg) = @_;
	return sql_error($node,
		'SELECT snowid_release(' . join(', ', @arg) . ')');
}

#---- The layout is pinned ----

$_->start foreach $first, $second;
foreach my $node ($first, $second)
{
	create_extension($node);
	wait_for_claim($node);
}
my ($one, $two) = map { worker_id($_) } $first, $second;
my @others = grep { $_ != $one && $_ != $two } 0 .. 31;
$redis->occupy("0:$one", 0, \@others, interval => 300);
my %owner =
  ($one => 'first, me', $two => 'second', map { $_ => "other$_" } @others);
is( query(
		$first,
		"SELECT string_agg(server_name || CASE WHEN is_me THEN ', me' ELSE '' END, ' ' ORDER BY worker_id) FROM snowid_claims()"
	),
	join(' ', map { $owner{$_} } 0 .. 31),
	'snowid_claims() shows the owner of each ID, over more than one page, and which is its own'
);
is( sql_error(
		$first,
		'DO $$ BEGIN FOR i IN 1..200 LOOP PERFORM snowid_claims(); END LOOP; END $$'
	),
	'',
	'each request is answered, however soon it follows the one before');

settings($late,
	"snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=11'"
);
$late->start;
create_extension($late);
like(
	refused($late, 'layout'),
	qr/^55000: snowid was refused a worker ID\nDETAIL:  The registry "snowid" is for the layout "\Q$layout\E", by "(first|second)"; this server has "\Q$narrower\E"\.\nHINT:  See snowid_claims\(\)/,
	'a server with another layout is refused, with both layouts and the server that set the first'
);
like(
	sql_error($late, 'SELECT * FROM snowid_claims()'),
	qr/is for the layout/,
	'a server of another layout can list nothing');
like(
	release($late, 0, $others[0]),
	qr/is for the layout/,
	'a server of another layout can release nothing');

#---- The 33rd ----

settings($late);
$late->restart;
like(
	refused($late, 'owner'),
	qr/^55000: snowid was refused a worker ID\nDETAIL:  All 32 worker IDs of datacenter 0 are in use: 32 have an owner, of which only a silent one can be released\.\nHINT:  See snowid_claims\(\)/,
	'the 33rd is refused, with the number of owners');
my ($gone, $gone2) = @others;
wait_for($first,
	"SELECT bool_and(state = 'silent') FROM snowid_claims() WHERE server_name ~ 'other'"
);
pass('the servers that are gone are silent');
is( query(
		$first,
		"SELECT string_agg(state, ' ') FROM snowid_claims() WHERE server_name !~ 'other'"
	),
	'live live',
	'the servers that run are live');
release_silent($first, $gone);
wait_for_pair($late, $gone);
pass('the 33rd gets the ID that is released');
is((new_key($late))[0], "0:$gone", 'the 33rd makes keys with the ID');

#---- A number beside a claim ----

like(
	sql_error($first, 'ALTER SYSTEM SET snowid.worker_id = 1'),
	qr/^22023: invalid value for parameter "snowid\.worker_id": "1"\nDETAIL:  With snowid\.redis_url, the worker ID is claimed\./,
	'ALTER SYSTEM refuses a number as long as the worker ID is claimed');
my $log = -s $late->logfile;
settings($late, "snowid.worker_id = $gone2");
$late->reload;
$late->wait_for_log(
	qr/invalid value for parameter "snowid\.worker_id": "$gone2"\n.*DETAIL:  With snowid\.redis_url, the worker ID is claimed\./,
	$log);
is(status($late, 'worker_id'),
	$gone, 'a reload with a number does not change the claim');

#---- Another datacenter, by a reload ----

my $highest = (new_key($late))[2];

sub keys_go_on
{
	my ($node,    $pair, $name) = @_;
	my ($carried, undef, $key)  = new_key($node);
	is($carried, $pair, "$name: keys carry it");
	cmp_ok($key, '>', $highest, "$name: keys keep increasing");
	$highest = $key;
	return;
}

$redis->occupy("0:$one", 3, [ 0 .. 31 ], interval => 3600_000);
$log = -s $late->logfile;
settings($late, 'snowid.datacenter_id = 3');
$late->reload;
$late->wait_for_log(
	qr/snowid keeps worker ID $gone of datacenter 0\n.*DETAIL:  All 32 worker IDs of datacenter 3 are in use: 32 have an owner/,
	$log);
keys_go_on($late, "0:$gone", 'a reload with a datacenter that is full');

$log = -s $late->logfile;
settings($late, 'snowid.datacenter_id = 2');
$late->reload;
wait_for_pair($late, 0, 2);
keys_go_on($late, '2:0', 'another datacenter by a reload');
$late->wait_for_log(qr/snowid released worker ID $gone of datacenter 0/,
	$log);
is($redis->record("0:$gone", 'owner'),
	'', 'after the change to another datacenter the ID before it is free');
cmp_ok(
	$redis->record("0:$gone", 'ceiling'),
	'<',
	time * 1000 + 200,
	'it is given back with the ceiling of its last key');
is( query($late, 'SELECT worker_id, server_name, is_me FROM snowid_claims()'),
	'0|late|t',
	'each datacenter has its own claims');
settings($late);
$late->restart;
wait_for_pair($late, $gone);

is( query($first, <<~EOF),
		SELECT since < last_seen, last_seen BETWEEN now() - interval '1 min' AND now() + interval '1 min',
			ceiling BETWEEN now() - interval '1 min' AND now() + interval '1 min', lease_left_ms IS NULL
		FROM snowid_claims() WHERE server_name = 'second'
		EOF
	't|t|t|t',
	'snowid_claims() shows since when, when last seen, and the ceiling');

#---- snowid_release() ----

my $range =
  qr/^22023: datacenter ID or worker ID is out of range\nDETAIL:  The layout has 5 datacenter bits and 5 worker bits\./;
foreach my $refused (
	[ '-1, 0', $range ],
	[ '32, 0', $range ],
	[ '0, -1', $range ],
	[ '0, 32', $range ],
	[
		"0, $one",
		qr/^55000: worker ID $one of datacenter 0 is this server's own\nHINT:  Use snowid_reclaim\(\)/
	],
	[ "0, $one, true", qr/^55000: .*this server's own/ ],
	[ '2, 0', qr/^55000: worker ID 0 of datacenter 2 is not claimed\n/ ],
	[ '4, 5', qr/^55000: worker ID 5 of datacenter 4 is not claimed\n/ ],
	[
		"0, $two",
		qr/^55000: worker ID $two of datacenter 0 is in use\nDETAIL:  "second" was seen \d+ ms ago\.\nHINT:  Stop that server first, or use force\./
	])
{
	my ($arguments, $error) = @$refused;
	like(release($first, $arguments),
		$error, "snowid_release($arguments) is refused");
}
is(worker_id($second), $two, 'a live server keeps its ID at a release');
is(query($first, 'SELECT snowid_release(NULL, 1)'), '', 'release of NULL');

# By force, of a server whose clock is ahead; there is one other for it.
release_silent($first, $gone2);
set_skew($second, 600);
wait_for($second,
	'SELECT last_key_time > ceiling - interval \'1 s\' FROM snowid_status(), snowid_next() WHERE snowid_next IS NOT NULL'
);
my (undef, undef, $ahead) = new_key($second);
is(query($first, "SELECT snowid_release(0, $two, true)"),
	'revoked', 'release of a live one, by force');
poll($second, "is_open AND worker_id <> $two AND registry = 'claimed'");
like(
	slurp_file($second->logfile),
	qr/Worker ID $two of datacenter 0 was revoked by snowid_release\(\)\./,
	'the log of its owner says why');
my ($pair, undef, $key) = new_key($second);
isnt($pair, "0:$two", 'its owner yields and gets another');
cmp_ok($key, '>', $ahead, 'the keys of an owner that yields keep increasing');
is($redis->record("0:$two", 'owner'), '', 'the revoked ID is free');
my $ceiling = $redis->record("0:$two", 'ceiling');
cmp_ok(
	$ceiling, '>=',
	query(
		$first,
		"SELECT extract(epoch FROM snowid_timestamp($ahead)) * 1000 - 1"),
	'its ceiling is above the last key');

like(
	sql_error($late, 'SELECT snowid_reclaim()'),
	qr/^55000: no other worker ID could be claimed\nDETAIL:  All 32 worker IDs of datacenter 0 are in use: 31 have an owner, of which only a silent one can be released, and the keys of 1 free ones lie ahead of this server's clock, the nearest up to \d{4}-/,
	'the next owner waits for the ceiling');
set_skew($late, 600);
wait_until(
	'the ID',
	sub {
		(eval { query($late, 'SELECT snowid_reclaim()') } // -1) == $two;
	});
wait_for_pair($late, $two);
($pair, my $made, $key) = new_key($late);
is($pair, "0:$two", 'its keys have the ID');
cmp_ok($made, '>', $ceiling, 'its keys are above the recorded ceiling');
cmp_ok($key, '>', $ahead,
	'its keys are above the last key of the owner before');

#---- snowid_reclaim() ----

# While all others have an owner.
$late->stop;
$redis->occupy("0:$one", 0,
	[ grep { $redis->record("0:$_", 'owner') eq '' } 0 .. 31 ]);
is(query($first, 'SELECT count(*) FROM snowid_claims()'),
	32, 'all have an owner again');
$highest = (new_key($first))[2];
my $client = start_client($first);
clients_go_on($client);
like(
	sql_error($first, 'SELECT snowid_reclaim()'),
	qr/All 32 worker IDs of datacenter 0 are in use/,
	'reclaim with no free ID: an error');
clients_go_on($client);
my @keys = stop_client($client);
is(scalar(grep { key_worker_id($_) != $one } @keys),
	0, 'reclaim with no free ID: the server keeps the ID that it has');
is(slurp_file($client->{errors}),
	'', 'without a pause of its keys that a caller notices');
is(worker_id($first),                $one,    'the status says so');
is($redis->record("0:$one", 'name'), 'first', 'Redis says so');

# not one whose keys have been ten minutes ahead of the clock
my ($other) =
  grep { $_ != $one && $_ != $two && $_ != worker_id($second) }
  reverse 0 .. 31;
$redis->forget("0:$other");
$client = start_client($first);
clients_go_on($client);
$log = -s $first->logfile;
is(query($first, 'SELECT snowid_reclaim()'),
	$other, 'reclaim gets another ID');
wait_for_pair($first, $other);
$first->wait_for_log(qr/snowid released worker ID $one of datacenter 0/,
	$log);
clients_go_on($client);
@keys = stop_client($client);
my %workers = map { key_worker_id($_) => 1 } @keys;
is( join(' ', sort keys %workers),
	join(' ', sort $one, $other),
	'keys are made with the one, and then with the other');
is(disorder(@keys), 0, 'keys keep increasing over a change of the ID');
is(slurp_file($client->{errors}),     '', 'no caller gets an error');
is($redis->record("0:$one", 'owner'), '', 'the old one is free');
$first->restart;
wait_for_pair($first, $other);
pass('a restart keeps the new ID');

#---- Redis is away, or not there at all ----

my @calls =
  ('snowid_claims()', "snowid_release(0, $one)", 'snowid_reclaim()');
$redis->freeze;
foreach my $call (@calls)
{
	my $began = time;
	like(
		sql_error($first, "SELECT $call"),
		qr/^08006: Redis (did not answer within snowid\.redis_timeout|cannot be used)\n/,
		"$call while Redis does not answer");
	cmp_ok(time - $began, '<', 30, "$call ends after snowid.redis_timeout");
}
is((new_key($first))[0], "0:$other", 'the keys continue');
$redis->resume;
wait_for_claim($first);
poll($first, "registry_ok_at > now() - interval '1 s'");
is(query($first, 'SELECT bool_or(is_me) FROM snowid_claims()'),
	't', 'the functions work again when Redis is back');

# The request is carried out after all, without an answer.
wait_until('the end of the change', sub { $redis->owned('first') == 1 });
$redis->freeze;
like(sql_error($first, 'SELECT snowid_reclaim()'),
	qr/^08006:/, 'a reclaim that is not answered');
$redis->resume;
poll($first, 'registry_ok_at > to_timestamp(' . (time + 1) . ')');
wait_until('one ID', sub { $redis->owned('first') == 1 });
pass('a reclaim whose answer was lost leaves no second ID');
is($redis->record('0:' . worker_id($first), 'name'),
	'first', 'the server has the ID in Redis');

$redis->stop;

# The claim that a server remembers is not for other settings.
settings($late, "snowid.datacenter_id = 1\nsnowid.max_wait = 0");
$late->start;
poll($late, 'registry_error IS NOT NULL');
like(
	sql_error($late, 'SELECT snowid_next()'),
	qr/^55000: snowid has not claimed a worker ID yet\nDETAIL:  Redis cannot be used: .*Connection refused/,
	'another datacenter_id, and no Redis: the remembered claim is not used');
$late->stop;

configure($late, 'snowid.worker_id = 1');
$late->start;
foreach my $call (@calls)
{
	like(
		sql_error($late, "SELECT $call"),
		qr/^55000: this server's worker ID does not come from Redis\nHINT:  Set snowid\.redis_url/,
		"$call without a URL");
}

$_->stop foreach $first, $second, $late;
done_testing();
