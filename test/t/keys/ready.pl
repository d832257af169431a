# A server that cannot make keys says why; some functions work on it nevertheless;
# and it becomes ready by a reload or by promotion.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

my $old_key = '1541815603606036480';    # Twitter's layout, 2022-06-28

# A table as applications have it; its rows need no generator.
my $schema = <<~EOF;
	CREATE EXTENSION snowid;
	CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowid_next(),
		made_at timestamptz GENERATED ALWAYS AS (snowid_timestamp(id, 'twitter')) STORED);
	INSERT INTO orders VALUES ($old_key), ($old_key + 1);
	EOF

my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init;
$plain->start;
my $node = snowid_cluster('ready', '', allows_streaming => 1);
$node->start;

# Dumps a server's database, and restores it where snowid is not loaded and into
# a server that has it.
my $dumps = 0;

sub dump_and_restore
{
	my ($from, $what) = @_;
	my $db = 'restored' . ++$dumps;

	subtest "pg_dump and restore work: $what" => sub {
		my $rows = 'SELECT count(*), min(id), max(made_at) FROM orders';
		foreach my $to ($plain, $node)
		{
			$to->safe_psql('postgres', "CREATE DATABASE $db");
			restore_dump($from, 'postgres', $to, $db, 'p');
			is( $to->safe_psql($db, $rows),
				$from->safe_psql('postgres', $rows),
				'the restored rows are the same');
			is( $to->safe_psql(
					$db, "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
					WHERE adrelid = 'orders'::regclass AND adnum = 1"),
				'snowid_next()',
				'the default is restored');
		}
	};
	return $db;
}

#---- Not in shared_preload_libraries ----

my $not_loaded =
  qr/^55000: snowid is not loaded by this server\nHINT:  Add snowid to shared_preload_libraries and restart/;

like(
	sql_error($plain, $schema),
	qr/WARNING:  55000: snowid is not loaded by this server\nDETAIL:  The extension can be used once it is\.\nHINT:  Add snowid to shared_preload_libraries and restart the server\./,
	'not preloaded: CREATE EXTENSION warns of it');
is($plain->safe_psql('postgres', "SELECT to_regproc('snowid_next')"),
	'snowid_next', 'not preloaded: CREATE EXTENSION works');
foreach my $call (
	'snowid_next()',                'snowid_next_batch(2)',
	'snowid_next_array(2)',         'snowid_next_block(2)',
	'snowid_advance(1)',            'snowid_status()',
	'snowid_accept_clock()',        'snowid_accept_layout()',
	'snowid_reclaim()',             'snowid_release(0, 1)',
	'snowid_claims()',              "snowid_decode($old_key)",
	"snowid_timestamp($old_key)",   'snowid_min(now())',
	'snowid_max(now())',            'snowid_encode(now(), 1, 1, 1)',
	"snowid_bits($old_key)",        "snowid_serial('PAY', 1)",
	"snowid_serial_id('1', 'PAY')", "snowid_to_public(1, 'ord')",
	"snowid_from_public('ord_1', 'ord')")
{
	like(sql_error($plain, "SELECT $call"),
		$not_loaded, "not preloaded: $call says so");
}
like(sql_error($plain, 'SELECT * FROM snowid_status()'),
	$not_loaded, 'not preloaded: the status says so');
like(sql_error($plain, 'INSERT INTO orders DEFAULT VALUES'),
	$not_loaded, 'not preloaded: a default says so');
is( $plain->safe_psql(
		'postgres', "SELECT * FROM snowid_decode($old_key, 'twitter')"),
	$plain->safe_psql(
		'postgres',
		"SELECT timestamptz '2022-06-28 16:07:40.105Z', 11, 26, 0"),
	'not preloaded: snowid_decode by a named layout works');
is( $plain->safe_psql(
		'postgres',
		"SELECT snowid_to_base32(388400145978465528), snowid_from_base32('0arYZ-vzxw377r'), snowid_serial('', $old_key, 'Z', 'twitter')"
	),
	'0ARYZVZXW377R|388400145978465528|2022062816074010511260000',
	'not preloaded: functions that need no server work');
is( $plain->safe_psql(
		'postgres', 'SELECT count(*) > 3 FROM snowid_layouts()'),
	't',
	'not preloaded: the named layouts are there');

is( $plain->safe_psql('postgres', <<~EOF),
		SET client_min_messages = error;
		CREATE EXTENSION snowid_segments;
		INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('a', 5), ('b', 6);
		INSERT INTO snowid_segment_periods VALUES ('a', '2026-01-01', 7);
		UPDATE snowid_segments SET max_id = 8 WHERE biz_tag = 'b' RETURNING max_id;
		DELETE FROM snowid_segment_periods RETURNING max_id;
		TRUNCATE snowid_segments;
		EOF
	"8\n7",
	'not preloaded: rows of tags are written');
foreach my $call (
	"snowid_number('a')",         "snowid_number_range('a', 2)",
	"snowid_segment_forget('a')", 'snowid_segment_status()')
{
	like(sql_error($plain, "SELECT $call"),
		$not_loaded, "not preloaded: $call says so");
}
$plain->safe_psql('postgres', 'DROP EXTENSION snowid_segments');

#---- No worker ID ----

my $no_worker_id =
  qr/^55000: snowid has no worker ID\nHINT:  Set snowid.worker_id, a number that no other server uses, and reload/;

is(sql_error($node, $schema), '', 'no worker ID: CREATE EXTENSION works');
poll($node, "reason = 'snowid has no worker ID'");
my $errors = status($node, 'errors');
like(sql_error($node, 'SELECT snowid_next()'),
	$no_worker_id, 'no worker ID: snowid_next says so');
is( status($node, 'errors'),
	$errors + 1,
	'no worker ID: the view counts the error');
like(sql_error($node, 'SELECT snowid_next_batch(2)'),
	$no_worker_id, 'no worker ID: a batch says so');
like(sql_error($node, 'INSERT INTO orders DEFAULT VALUES'),
	$no_worker_id, 'no worker ID: a default says so');
is( $node->safe_psql(
		'postgres',
		'SELECT is_open, reason, worker_id, last_key, keys FROM snowid_status()'
	),
	'f|snowid has no worker ID|||0',
	'no worker ID: the status says so');
is( $node->safe_psql(
		'postgres', "SELECT worker_id FROM snowid_decode($old_key)"),
	'26',
	'no worker ID: snowid_decode works');
dump_and_restore($plain, 'not preloaded');
dump_and_restore($node,  'no worker ID');

#---- A worker ID by reload ----

$node->safe_psql('postgres', 'ALTER SYSTEM SET snowid.worker_id = 7');
$node->reload;
wait_for_worker_id($node, 7);
pass('ALTER SYSTEM and a reload give the server its worker ID');
is( $node->safe_psql(
		'postgres', 'SELECT worker_id FROM snowid_decode(snowid_next())'),
	'7',
	'keys carry it');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');

like(
	sql_error($node, 'ALTER SYSTEM SET snowid.worker_id = 32'),
	qr/^22023: invalid value .*"snowid.worker_id": "32"\nDETAIL:  The layout's range is from 0 to 31 \(5 bits\)/,
	'ALTER SYSTEM refuses a worker ID that does not fit, and says which would'
);

# Changes under load; max_lead is what each change takes.
$node->safe_psql('postgres', <<~EOF);
	CREATE UNLOGGED TABLE made (key bigint UNIQUE, client int, call int,
		began timestamptz, ended timestamptz);
	CREATE FUNCTION make(client int, call int) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
		began timestamptz := clock_timestamp();
		key bigint := snowid_next();
		ended timestamptz := clock_timestamp();
	BEGIN
		INSERT INTO made VALUES (key, client, call, began, ended);
	END \$\$;
	EOF
configure($node, "snowid.worker_id = 7\nsnowid.max_lead = 100ms");
$node->reload;
my $run = start_pgbench(
	$node, 'postgres',
	'-c 4 -j 1 -T 600 -M prepared',
	make => 'SELECT make(:client_id, :n);');
$node->poll_query_until('postgres',
	'SELECT count(DISTINCT client) = 4 FROM made')
  or die;
my @ids = (7, 3, 31, 0, 12);
foreach my $id (@ids[ 1 .. $#ids ])
{
	configure($node, "snowid.worker_id = $id\nsnowid.max_lead = 100ms");
	$node->reload;
	wait_for_worker_id($node, $id);
	my $now = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	$node->poll_query_until('postgres',
		"SELECT count(DISTINCT client) = 4 FROM made WHERE began > '$now'")
	  or die;
	is( $node->safe_psql(
			'postgres',
			"SELECT DISTINCT worker_id FROM made, snowid_decode(key) WHERE began > '$now'"
		),
		$id,
		"after a reload keys carry worker ID $id");
}
ok(stop_pgbench($run), 'no session failed while the worker ID changed')
  or diag($run->{out});
is( $node->safe_psql(
		'postgres', 'SELECT string_agg(worker_id::text, \' \' ORDER BY first)
		FROM (SELECT worker_id, min(key) AS first FROM made, snowid_decode(key) GROUP BY 1) w'
	),
	"@ids",
	'the worker IDs follow each other');
is(out_of_order($node, 'postgres', 'began', 'ended'),
	'0', 'keys increase across all changes of the worker ID');

# The keys of the old ID may lead the clock when the new one begins.
reload_with($node, 'snowid.worker_id' => 12, 'snowid.max_lead' => 0);
my $key = $node->safe_psql('postgres', 'SELECT snowid_next()');
set_skew($node, -1);
configure($node, "snowid.worker_id = 2\nsnowid.max_lead = 0");
$node->reload;
wait_for_worker_id($node, 2);
is(status($node, 'last_key'),
	'', 'the status has no last key of a new worker ID before its first');
is( $node->safe_psql(
		'postgres',
		"SELECT key > $key, worker_id FROM snowid_next() key, snowid_decode(key)"
	),
	't|2',
	'under a lower worker ID, too, if the clock was set back');
set_skew($node, 0);

my $log = -s $node->logfile;
configure($node, 'snowid.worker_id = 32');
$node->reload;
$node->wait_for_log(
	qr/invalid value for parameter "snowid.worker_id": "32"\n.*DETAIL:  The layout's range is from 0 to 31/,
	$log);
pass('a reload with a worker ID that does not fit logs the range');
is( $node->safe_psql(
		'postgres', 'SELECT worker_id FROM snowid_decode(snowid_next())'),
	'2',
	'a pair that is not allowed: the old worker ID stays');
configure($node, 'snowid.worker_id = 2');
$node->reload;

$node->safe_psql('postgres', 'DROP FUNCTION make; DROP TABLE made');
my $db = dump_and_restore($node, 'open');
is( $node->safe_psql(
		$db,
		'INSERT INTO orders DEFAULT VALUES RETURNING id > (SELECT max(id) FROM orders)'
	),
	't',
	'a restored default makes keys above the restored ones');
like(sql_error($plain, "\\c $db\nINSERT INTO orders DEFAULT VALUES"),
	$not_loaded, 'an insert without the library loaded says so');

#---- A standby ----

my $recovery =
  qr/^55000: snowid makes no keys during recovery\nHINT:  Ask the primary server, or promote this one/;

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
configure($standby, "snowid.worker_id = 2\nsnowid.max_wait = 1min");
$standby->start;
poll($standby, "reason ~ 'recovery' AND NOT is_open");
my $began = time;
foreach my $call (
	'snowid_next()',         'snowid_next_batch(1)',
	'snowid_next_block(10)', 'snowid_next_array(10)',
	'snowid_advance(1)')
{
	like(sql_error($standby, "SELECT $call"),
		$recovery, "standby: $call says so");
}
cmp_ok(time - $began, '<', 30, 'standby: at once');
dump_and_restore($standby, 'standby');
$key = $node->safe_psql('postgres', 'SELECT snowid_next()');
is( $standby->safe_psql(
		'postgres', "SELECT pg_promote();\nSELECT snowid_next() > $key"),
	"t\nt",
	'promoted: keys are made, above those of the primary');
$_->stop foreach $standby, $node, $plain;
done_testing();
