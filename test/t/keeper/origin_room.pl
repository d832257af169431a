# Origins do not accumulate: those whose ceiling passed a day ago go at the next look-up;
# if there are more than a few, also those that passed by more than max_jump, and those of
# worker IDs that Redis has on record.  So max_replication_slots can be lowered, and other
# origins have room.  Origins that tell the layout of the last keys stay, and so do those
# that lie ahead.
#
# Positions that no keeper wrote are refused with the origin's name, and not calculated
# with; names that are no layout of snowid's are not ours, and stay.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $node  = snowid_cluster('room', 'snowid.worker_id = 1');
my $limit = origin_places($node);
start_and_open($node);

# A server's worker IDs that have origins.
sub origins
{
	my ($server) = @_;
	return query(
		$server,
		q(SELECT string_agg(substring(roname FROM '_0_(\d+)$'), ' ' ORDER BY roident)
		FROM pg_replication_origin WHERE roname LIKE 'snowid\_%'));
}

sub origins_are
{
	my ($expected, $name) = @_;
	$node->poll_query_until(
		'postgres',
		q(SELECT string_agg(substring(roname FROM '_0_(\d+)$'), ' ' ORDER BY substring(roname FROM '_0_(\d+)$')::int)
		FROM pg_replication_origin WHERE roname LIKE 'snowid\_%'), $expected);
	is(join(' ', sort { $a <=> $b } split / /, origins($node)),
		$expected, $name);
	return;
}

my $skew = 0;

# Makes keys as this keeper, with the clock this many seconds ahead.
sub make_keys_at
{
	my ($worker_id, $at, $more) = @_;
	my $settings =
	  "snowid.worker_id = $worker_id\nsnowid.max_lead = 10ms\nsnowid.max_jump = 1min\n"
	  . ($more // '');
	configure($node, $settings);
	if ($at == $skew) { $node->reload; }
	else
	{
		$node->stop;
		set_skew($node, $skew = $at);
		$node->start;
	}
	$node->poll_query_until('postgres',
		"SELECT is_open AND worker_id = $worker_id FROM snowid_status()")
	  or die "$worker_id: "
	  . query($node, 'SELECT reason FROM snowid_status()');
	query($node, 'SELECT snowid_next()');
	return;
}

#---- With room ----

make_keys_at($_, 0) foreach 2 .. 6;
origins_are('1 2 3 4 5 6', 'origins of the last minute stay');
make_keys_at(7, 120);
make_keys_at(7, 121);
origins_are('4 5 6 7', 'a few of those past by max_jump stay');
make_keys_at(8, 121);
make_keys_at(8, 2 * 86400);
make_keys_at(8, 2 * 86400 + 1);
origins_are('8', 'those a day past go, though there is room');

# An origin that a session uses stays, and stops nothing.
make_keys_at(9, 2 * 86400 + 1);
my $holder = start_pgbench($node, 'postgres', '-c 1 -t 1', hold => <<~EOF);
	SELECT pg_replication_origin_session_setup(roname) FROM pg_replication_origin WHERE roname LIKE 'snowid%_0_8';
	SELECT pg_sleep(1e8);
	EOF
$node->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
  or die;
set_skew($node, $skew = 4 * 86400);
$node->poll_query_until('postgres',
	"SELECT reason ~ 'jumped' FROM snowid_status()")
  or die;
query($node, 'SELECT snowid_accept_clock()');
make_keys_at(10, $skew);
make_keys_at(11, $skew);
origins_are('8 10 11', 'one that is in use stays');

# All stay while their catalog is locked, which stops nothing either.
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK pg_replication_origin IN SHARE MODE');
query($node,
	"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
);
stop_pgbench($holder);
make_keys_at(10, $skew);
wait_for($node,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'snowid origin' AND datname IS NOT NULL"
);
origins_are('8 10 11', 'while the catalog is locked all stay');
$session->query_safe('COMMIT');
$session->quit;

#---- A lower limit ----

make_keys_at($_, $skew) foreach 12 .. 15;
make_keys_at(15, $skew + $_ * 120) foreach 1, 2;
origins_are('12 13 14 15', 'a few stay');
$node->append_conf('postgresql.conf', "$limit = 4");
$node->restart;
server_is_open($node);
pass("$limit can be lowered to a few, and the server starts");
make_keys_at($_, $skew + 120) foreach 16 .. 22;
pass('a few origins are enough if worker IDs come and go');
query(
	$node, q(SELECT pg_replication_origin_advance(name, '0/1')
		FROM (SELECT 'other' || n AS name, pg_replication_origin_create('other' || n) FROM generate_series(1, 2) n) o)
);
make_keys_at(23, $skew);
pass('an origin that may go makes room for another one');
query($node,
	q(SELECT pg_replication_origin_drop('other' || n) FROM generate_series(1, 2) n)
);
make_keys_at(22, $skew);

#---- The origin of the last keys stays ----

my $wider =
  "snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=13'\n";
configure($node, "snowid.worker_id = 22\n$wider");
$node->restart;
$node->poll_query_until('postgres',
	q(SELECT reason LIKE 'snowid''s layout was changed%' FROM snowid_status())
) or die;
foreach my $restart (1 .. 3)
{
	$node->stop;
	set_skew($node, $skew += 86400);
	$node->start;
	$node->poll_query_until('postgres',
		q(SELECT reason LIKE 'snowid''s layout was changed%' FROM snowid_status())
	) or die;
}
pass('another layout waits for consent, days later, too');
configure($node, 'snowid.worker_id = 22');
$node->restart;
server_is_open($node);
pass('the layout of the last keys is known');
$node->stop;

#---- Worker IDs from Redis ----

my $redis = SnowidRedis->start('redis');
$node = claiming_cluster('claiming', $redis, '');
$node->append_conf('postgresql.conf', "$limit = 4");
start_and_open($node);
my $highest = 0;
my $failed  = 0;
foreach my $round (1 .. 12)
{
	settings($node, "snowid.datacenter_id = $round\n");
	$node->reload;
	poll($node, "is_open AND datacenter_id = $round");
	my $key = next_key($node);
	$failed++ unless $key > $highest;
	$highest = $key;
}
is($failed, 0,
	'a dozen datacenters, one after the other, with worker IDs from Redis: keys continue'
);
cmp_ok(query($node, 'SELECT count(*) FROM pg_replication_origin'),
	'<=', 4, 'a dozen worker IDs from Redis: four origins are kept at most');
$node->stop;

#---- Positions that no keeper wrote ----

$node =
  snowid_cluster('wild', "snowid.worker_id = 1\nsnowid.max_lead = 10ms");
start_and_open($node);

sub keys_go_on
{
	server_is_open($node);
	return makes_keys_as($node, 1, @_);
}

# Moves an origin while the gate is closed, or drops it where $ms is empty.
sub move
{
	my ($name, $ms) = @_;
	configure($node, 'snowid.worker_id = -1');
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT reason ~ 'no worker ID' FROM snowid_status()")
	  or die;
	query(
		$node,
		defined $ms
		? sprintf("SELECT pg_replication_origin_advance('$name', '%X/%X')",
			$ms >> 32, $ms & 0xffffffff)
		: "SELECT pg_replication_origin_drop('$name')");
	configure($node, "snowid.worker_id = 1\nsnowid.max_lead = 10ms");
	$node->reload;
	return;
}

sub is_refused
{
	my ($name, $ms, $told) = @_;
	move($name, $ms);
	$node->poll_query_until('postgres',
		"SELECT reason ~ 'position' FROM snowid_status()")
	  or die "$name at $ms";
	like(
		query($node, 'SELECT reason FROM snowid_status()'),
		qr/^snowid cannot use its replication origin: The position of replication origin "\Q$name\E" is \Q$told\E, which is not a Unix time/,
		"$name at $ms: refused with its name");
	return;
}

my $own  = 'snowid_1288834974657_5_5_12_0_1';
my $last = 1288834974657 + (1 << 41) - 1;
keys_go_on('keys of a new server');

# An owner of the database where "snowid origin" reads cannot end it by a setting.
query($node, 'ALTER DATABASE postgres SET exit_on_error = on');
foreach
  my $ms (1, 1288834974656, $last + 1, 2253088648659904, 1 << 52, 1 << 53,
	9223372036854775807)
{
	is_refused($own, $ms, $ms);
	move($own);
	keys_go_on('dropped: keys continue');
}
is_refused($own, 18446744073709551614, -2);
move($own);
keys_go_on('dropped: keys continue');

# Of another pair, and of another layout.
foreach my $other ('snowid_1288834974657_5_5_12_0_2',
	'snowid_1577836800000_5_5_12_0_2')
{
	query($node, "SELECT pg_replication_origin_create('$other')");
	is_refused($other, 2253088648659904, 2253088648659904);
	move($other);
	keys_go_on('dropped: keys continue');
}

query($node, 'ALTER DATABASE postgres RESET exit_on_error');

# A session that reads keys before the keeper has decided sees no layout in them.
configure($node, 'snowid.worker_id = -1');
$node->restart;
poll($node, q(reason ~ 'no worker ID'));
query($node, <<~EOF);
	SELECT pg_replication_origin_create('snowid_1577836800000_5_5_12_0_2');
	SELECT pg_replication_origin_advance('snowid_1577836800000_5_5_12_0_2', 'FFFFF/0');
	EOF
is(sql_error($node, "SELECT snowid_timestamp($last_key)"),
	'', 'no pair, and a wild position of another layout: keys can be read');
move('snowid_1577836800000_5_5_12_0_2');
keys_go_on('dropped: keys continue');

#---- Names that are no layout of ours ----

my @names = map { "snowid_$_" } (
	'1288834974657_32_5_12_0_1',
	'1288834974657_5_-1_12_0_1',
	'1288834974657_5_5_64_0_1',
	'1288834974657_17_5_12_0_1',
	'1288834974657_5_23_12_0_1',
	'1288834974657_5_5_19_0_1',
	'1288834974657_2147483647_2147483647_2147483647_0_1',
	'1288834974657_5_5_12_32_1',
	'1288834974657_5_5_12_0_32',
	'1288834974657_5_5_12_-1_1',
	'1288834974657_5_5_12_0_-1',
	'253402300800000_5_5_12_0_1',
	'-62135596800001_5_5_12_0_1',
	'9223372036854775807_5_5_12_0_1',
	'-9223372036854775808_5_5_12_0_1',
	'99999999999999999999_5_5_12_0_1',
	'1288834974657_5_5_12_0',
	'1288834974657_5_5_12_0_1_1',
	'01288834974657_5_5_12_0_1',
	'',
	'%s%n');
configure($node, 'snowid.worker_id = -1');
$node->reload;
$node->poll_query_until('postgres',
	"SELECT reason ~ 'no worker ID' FROM snowid_status()")
  or die;
$node->append_conf('postgresql.conf', origin_places($node) . ' = 40');
foreach my $name (@names)
{
	query($node, "SELECT pg_replication_origin_create('$name')");
}
$node->restart;
query($node,
	"SELECT pg_replication_origin_advance('$_', 'FFFFFFFF/FFFFFFF0')")
  foreach @names;
configure($node, "snowid.worker_id = 1\nsnowid.max_lead = 10ms");
$node->reload;
keys_go_on('origins whose names are no layout of ours stop no key');
$node->restart;
keys_go_on(
	'origins whose names are no layout of ours stop no key after a restart, either'
);
is(query($node, 'SELECT count(*) FROM pg_replication_origin'),
	@names + 1, 'origins whose names are no layout of ours are left alone');

#---- In the range, but its end ----

move($own, $last);
$node->poll_query_until('postgres',
	"SELECT coalesce(reason, '') !~ 'no worker ID' FROM snowid_status()")
  or die;
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^(58000|2200H): /,
	'the end of the range makes no key');
configure($node, "snowid.worker_id = 2\nsnowid.max_lead = 10ms");
$node->reload;
server_is_open($node);
makes_keys_as($node, 2, 'another worker ID makes keys at the clock');
$node->stop;

#---- A ceiling that is too far ahead ----

# It does not say that the others are old: the clock, which may be wrong, would alone.
{
	my $node = snowid_cluster('beyond',
		"snowid.worker_id = 1\nsnowid.max_lead = 10ms");
	start_and_open($node);
	next_key($node);
	reload_with($node, 'snowid.worker_id' => 2);
	wait_for_worker_id($node, 2);
	next_key($node);
	query($node, <<~EOF);
		SELECT pg_replication_origin_create(replace(roname, '_0_2', '_0_3'))
		FROM pg_replication_origin WHERE roname LIKE 'snowid%_0_2';
		SELECT pg_replication_origin_advance(roname,
			'0/0'::pg_lsn + floor(extract(epoch FROM now() + interval '30 days') * 1000))
		FROM pg_replication_origin WHERE roname LIKE 'snowid%_0_3';
		EOF
	$node->stop;
	set_skew($node, 4 * 86400);
	$node->start;
	server_is_open($node);
	next_key($node);
	is(origins($node), '1 2 3', 'origins stay that only the clock calls old');
	$node->stop;
}

#---- The server's own origin ----

# It is not dropped and made again, which would lose its ceiling for a moment.
{
	my $node = snowid_cluster('own', 'snowid.worker_id = 1');
	start_and_open($node);
	next_key($node);
	my $own  = "FROM pg_replication_origin WHERE roname LIKE 'snowid%_0_1'";
	my $made = query($node, "SELECT xmin $own");
	$node->stop;
	set_skew($node, 2 * 86400);
	configure($node, 'snowid.worker_id = 2');
	$node->start;
	server_is_open($node);
	next_key($node);
	reload_with($node, 'snowid.worker_id' => 1);
	wait_for_worker_id($node, 1);
	next_key($node);
	is(query($node, "SELECT xmin $own"),
		$made, 'an old origin stays if its worker ID makes keys again');
	$node->stop;
}

#---- The database is locked ----

# The process "snowid origin" cannot connect to its database, since another session has
# that alone, and the server's lock_timeout ends each wait: it exits, and another one
# comes.  No process connects twice.
{
	my $node;

	# How often the process has exited.
	sub exits
	{
		return
		  scalar(() = slurp_file($node->logfile) =~
			  /"snowid origin" \(PID \d+\) exited with exit code 1/g);
	}

	$node = snowid_cluster('locked_database',
		"snowid.worker_id = 1\nlock_timeout = 300ms\nrestart_after_crash = off"
	);
	start_and_open($node);
	my $session = $node->background_psql('template1');
	$session->query_safe('BEGIN; ALTER DATABASE postgres RENAME TO other');
	configure($node,
		"snowid.worker_id = 2\nlock_timeout = 300ms\nrestart_after_crash = off"
	);
	$node->reload;
	my $exits = exits();
	wait_until('three processes that could not connect',
		sub { exits() > $exits + 2 });
	$session->query_safe('ROLLBACK');
	$session->quit;
	server_is_open($node);
	is(status($node, 'worker_id'),
		2, 'the server has its number when the database is free');
	$node->stop;
	unlike(
		slurp_file($node->logfile),
		qr/PANIC|TRAP|was terminated by signal/,
		'no process crashed');
}

done_testing();
