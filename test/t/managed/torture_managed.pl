# managed/snowid--0.1.sql on a server without the library: 12 sessions whose
# statements are cancelled, which are terminated, under a clock that steps, and
# through a crash: no key twice, and all in order.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = PostgreSQL::Test::Cluster->new('torture');
$node->init;

# a burst of terminations must not end in a refusal of the test's own sessions
$node->append_conf('postgresql.conf',
	"max_connections = 60\nautovacuum = off\nsynchronous_commit = off\nlog_statement = none\nlog_min_error_statement = panic\n"
);
give_clock($node);
$node->start;
is(query($node, 'SHOW shared_preload_libraries'),
	'', 'the server loads no library');
query($node, 'CREATE SCHEMA keys');
run_script($node, 'postgres', 'keys');
query($node,
	q{SELECT keys.snowid_setup(1, 1); ALTER DATABASE postgres SET search_path = public, keys}
);

my $clock = 0;

sub step
{
	$clock += $_[0];
	set_skew($node, $clock);
	return;
}

# Each session asks for keys in every way.  What it is given it writes down as
# "first|count", in its own order.
my @ways = (
	'SELECT snowid_next(), 1;',
	'SELECT snowid_next(), 1 FROM generate_series(1, 200);',
	'SELECT snowid_next_block(7), 7;',
	'SELECT snowid_next_batch(20), 1;',
	'SELECT unnest(snowid_next_array(50)), 1;',
	'SELECT snowid_next(), 1 FROM generate_series(1, 2000);',
	'SELECT snowid_next_block(1 + n % 30), 1 + n % 30 FROM generate_series(1, 20) n;',
	'SELECT snowid_next(), 1;');
my $way = 0;
my @done;

sub start_session
{
	my $sql = join "\n", map { $ways[ ($way + $_) % @ways ] } 0 .. $#ways;
	$way++;

	# half of them have a timeout that is always near
	local $ENV{PGOPTIONS} =
	  '-c statement_timeout=' . ($way % 2 ? 2 + $way % 5 : 0);
	push @done, start_client($node, $sql, 'hasty');
	return $done[-1];
}

# Waits until the sessions together have got so many keys more.
sub keys_come
{
	my ($more, $what) = @_;
	my $from = 0;
	$from += -s $_->{keys} // 0 foreach @done;
	wait_until(
		"keys, $what",
		sub {
			my $now = 0;
			$now += -s $_->{keys} // 0 foreach @done;
			return $now > $from + 20 * $more;
		});
	return;
}

sub count_errors
{
	my ($pattern) = @_;
	my $count = 0;
	foreach my $session (@done)
	{
		my @lines = slurp_file($session->{errors}) =~ /$pattern/g;
		$count += @lines;
	}
	return $count;
}

my @sessions = map { start_session() } 1 .. 12;
keys_come(5000, 'of 12 sessions');

foreach my $round (1 .. 12)
{
	# the clock, within what keys may lead, and ahead again
	step(
		  $round % 4 == 1 ? -0.3
		: $round % 4 == 3 ? 0.35
		: $round % 4 == 2 ? 0.002
		:                   -0.01);

	# cancels in a burst, so that some hit the same call twice
	query(
		$node,
		q{SELECT count(pg_cancel_backend(pid)) FROM generate_series(1, 50),
		pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}
	);
	if ($round % 3 == 0)
	{
		query(
			$node,
			q{SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 3) p}
		);
		foreach my $session (@sessions)
		{
			next if $session->{handle}->pumpable;
			eval { $session->{handle}->finish };
			$session = start_session();
		}
	}
	keys_come(300, "round $round");
}
cmp_ok(count_errors(qr/canceling statement/),
	'>', 100, 'statements were cancelled');

# further back than keys may lead and callers wait: an error at once, and keys as
# soon as the clock is there again
step(-30);
wait_until(
	'refusals',
	sub {
		count_errors(
			qr/the next key would lead the clock by (?:29|30)\d\d\d ms/) > 20;
	});
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^58000: the next key would lead the clock by \d+ ms.*It may lead the clock by 1000 ms/s,
	'30 s back: 58000');
step(30);
keys_come(1000, 'when the clock is back');

# 2 s back: keys wait
step(-2);
my $key = query($node, 'SELECT snowid_next()');
is( query(
		$node,
		"SELECT snowid_timestamp($key) <= clock_timestamp() + interval '1 s'"
	),
	't',
	'2 s back: a key is waited for');
step(2);
is( count_errors(qr/ERROR:  (?!canceling statement|the next key would lead)/),
	0, 'no other errors');

# Those who held a lock while they did nothing: idle before it was looked at, and
# in the same idle period after.
is( query($node, <<~'EOF'),
		SELECT coalesce(array_agg(pid || ' ' || state_change), '{}') AS idle FROM pg_stat_activity WHERE state <> 'active' \gset
		SELECT coalesce(array_agg(pid), '{}') AS holders FROM pg_locks WHERE locktype = 'advisory' \gset
		SELECT count(*) FROM pg_stat_activity
		WHERE pid = ANY (:'holders') AND pid || ' ' || state_change = ANY (:'idle')
		EOF
	'0',
	'no lock is left in a session that does nothing');

#---- A session that ends in the middle of a jump ----

stop_client($_) foreach @sessions;
@sessions = ();
$node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'}
);
$key = query($node, 'SELECT max(k) FROM snowid_next_batch(1000) k');
query($node,
	q{SELECT setval('keys.snowid_turn', last_value | 1) FROM keys.snowid_turn}
);
is( query(
		$node,
		"SELECT snowid_next() > $key, (last_value & 1) FROM (SELECT snowid_next() OFFSET 0) k, keys.snowid_turn"
	),
	't|0',
	'a jump that was left is done again');

#---- The whole server ----

@sessions = map { start_session() } 1 .. 12;
keys_come(2000, 'before the crash');
kill_all($node);
foreach my $session (@sessions)
{
	eval { $session->{handle}->finish };
}

# longer than keys may lead
step(1.1);
$node->start;
@sessions = map { start_session() } 1 .. 12;
keys_come(2000, 'after the crash');
stop_client($_) foreach @sessions;

#---- All of them ----

my ($keys, $disorder, @ranges) = (0, 0);
foreach my $session (@done)
{
	my $last = 0;
	foreach (slurp_file($session->{keys}) =~ /^(\d+\|\d+)\n/mg)
	{
		my ($first, $count) = split /\|/;

		# a line that a killed psql had not finished has not this form
		$disorder++ if $first <= $last;
		$last = $first + $count - 1;
		push @ranges, [ $first, $last ];
		$keys += $count;
	}
}
my ($highest, $twice) = (0, 0);
foreach my $range (sort { $a->[0] <=> $b->[0] } @ranges)
{
	$twice++ if $range->[0] <= $highest;
	$highest = $range->[1];
}
cmp_ok($keys, '>', 20_000, "keys: $keys, of " . @done . ' sessions');
is($twice,    0, 'no key is there twice');
is($disorder, 0, 'those of a session increase');

#---- Order across sessions: each above all that were returned before it was asked for ----

query($node,
	q{CREATE SEQUENCE tick; CREATE UNLOGGED TABLE made (began bigint, ended bigint, key bigint)}
);
my $run = start_pgbench(
	$node, 'postgres', '-c 6 -j 1 -T 600 -M prepared',
	'next@8' =>
	  q{INSERT INTO made SELECT b, nextval('tick'), k FROM (SELECT b, snowid_next() AS k FROM (SELECT nextval('tick') AS b OFFSET 0) x OFFSET 0) y;},
	'block@1' =>
	  q{INSERT INTO made SELECT b, nextval('tick'), k FROM (SELECT b, snowid_next_block(3) AS k FROM (SELECT nextval('tick') AS b OFFSET 0) x OFFSET 0) y;}
);
foreach my $round (1 .. 10)
{
	my $from = query($node, 'SELECT count(*) FROM made');
	step($round % 2 ? -0.2 : 0.25);
	wait_for($node, "SELECT count(*) > $from + 300 FROM made");
}
ok(stop_pgbench($run), 'sessions under a clock that steps');
is(out_of_order($node, 'postgres', 'began', 'ended'),
	'0', 'keys increase over all sessions');

$node->stop;
done_testing();
