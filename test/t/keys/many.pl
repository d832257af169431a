# Many keys in one call: blocks and arrays beside other sessions, at the limits
# of lead and ceiling.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('many', 'snowid.worker_id = 1');
start_and_open($node);

#---- Beside each other: each key is somebody's ----

$node->safe_psql('postgres',
	'CREATE TABLE made (key bigint PRIMARY KEY, kind text)');
my $run = start_pgbench(
	$node, 'postgres', '-c 6 -t 60',
	block =>
	  q{INSERT INTO made SELECT k, 'block' FROM (SELECT snowid_next_block(700) AS b) s, generate_series(b, b + 699) k;},
	array =>
	  q{INSERT INTO made SELECT unnest(snowid_next_array(50)), 'array';},
	batch  => q{INSERT INTO made SELECT snowid_next_batch(50), 'batch';},
	single =>
	  q{INSERT INTO made SELECT snowid_next(), 'single' FROM generate_series(1, 50);}
);
ok(stop_pgbench($run, 'finish'),
	'blocks, arrays, batches and single keys do not overlap')
  or diag $run->{out};
is($node->safe_psql('postgres', 'SELECT count(DISTINCT kind) FROM made'),
	4, 'each was among them');

#---- The next millisecond that has room, and no other ----

# The error of 1000 blocks of this size; not that the keeper was late, which is another.
sub error_of_blocks
{
	my ($size) = @_;
	my $error;

	foreach (1 .. 100)
	{
		$error = sql_error($node,
			"SELECT count(snowid_next_block($size)) FROM generate_series(1, 1000)"
		);
		last if $error !~ /^55000: snowid could not reserve more keys/;
	}
	return $error;
}

# With no lead at all each block of 4,096 waits for its own ms; more than 1 ms
# of the clock would be refused.
configure($node,
	"snowid.worker_id = 1\nsnowid.max_lead = 0\nsnowid.max_wait = 1ms");
$node->restart;
server_is_open($node);
is(error_of_blocks(4096), '',
	'a block never waits longer than the next millisecond');
is(error_of_blocks(2049), '',
	'a block that leaves half a millisecond never waits longer than that, either'
);

#---- Not above the ceiling ----

reload_with(
	$node,
	'snowid.worker_id' => 1,
	'snowid.max_lead'  => '1s',
	'snowid.max_wait'  => '100ms');
my $worker = keeper_pid($node);
foreach my $call ('snowid_next_block(4000)', 'snowid_next_array(4000)')
{
	$node->safe_psql('postgres', 'SELECT snowid_next()');
	stop_process($node, $worker);
	my $error =
	  sql_error($node, "SELECT count($call) FROM generate_series(1, 100000)");
	my $above = $node->safe_psql('postgres',
		'SELECT last_key_time > ceiling FROM snowid_status()');
	kill 'CONT', $worker;
	like(
		$error,
		qr/^55000: snowid could not reserve more keys/,
		"$call stops at the ceiling");
	is($above, 'f', 'no key is above it');
	ok($node->poll_query_until('postgres', "SELECT count($call) = 1"),
		"$call continues when the keeper does");
}

# A grant was asked for by the first call, so nothing but the ceiling stops the second.
stop_process($node, $worker);
set_skew($node, 10);
my $began = time;
$node->psql(
	'postgres',
	'SELECT snowid_next(); SELECT snowid_next();',
	on_error_stop => 0,
	stdout        => \my $keys);
kill 'CONT', $worker;
set_skew($node, 0);
is($keys, '',
	'single keys stop at the ceiling, also when a grant was asked for');
cmp_ok(time - $began,
	'>=', 2,
	'each waits for the keeper for a second, although max_wait is shorter');

#---- Interrupts ----

like(
	sql_error(
		$node,
		"SET statement_timeout = '300ms'; SELECT array_length(snowid_next_array(100000000), 1)"
	),
	qr/^57014/,
	'a large array is interrupted');

$node->stop;

#---- A layout of few keys a millisecond ----

my $small = snowid_cluster('small', <<~EOF);
	snowid.worker_id = 1
	snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=0'
	snowid.sequence_start = 'zero'
	EOF
start_and_open($small);
is( $small->safe_psql(
		'postgres',
		'SELECT snowid_next_block(1) < snowid_next_block(1), array_length(snowid_next_array(20), 1)'
	),
	't|20',
	'a block of the one key of a millisecond');
like(
	sql_error($small, 'SELECT snowid_next_block(2)'),
	qr/^22023.*from 1 to 1,/s,
	'a block of two is refused if a millisecond has one key');
$small->stop;

done_testing();
