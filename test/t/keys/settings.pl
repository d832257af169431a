# Settings that are wrong stop the start; a layout that must not be used closes
# the gate; and at both ends of the timestamp's range there is an error and
# never a wrap.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);
use Time::Local qw(timegm);

my $pristine = snowid_cluster('settings');
my $node     = $pristine;

# max_lead is what each start takes here.
my $worker_1 = "snowid.worker_id = 1\nsnowid.max_lead = 100ms";

sub unix_time
{
	my ($y, $m, $d, @time) = @_;
	return timegm(reverse($y, $m - 1, $d, map { $_ // 0 } @time[ 0 .. 2 ]));
}

# Sets the server's clock: year, month, day, hour, minute, second in UTC.
sub set_clock
{
	my ($y, $m, $d, @time) = @_;
	set_skew($node, unix_time($y, $m, $d, @time) - time);
	return;
}

# Starts the server with these settings and this clock, and waits until the gate
# is open or closed for good.
sub restart_with
{
	my ($settings, @clock) = @_;
	configure($node, $settings);
	$node->stop;
	set_clock(@clock) if @clock;
	$node->start;
	poll($node, "is_open OR reason <> 'snowid is not ready yet'");
	return;
}

# A server that never made a key takes $node's place, and is started.
my $servers = 0;

sub fresh_server
{
	my ($settings, @clock) = @_;
	$node->stop;
	$node = PostgreSQL::Test::Cluster->new('settings' . ++$servers);
	$node->init_from_backup($pristine, 'fresh');
	give_clock($node);
	set_clock(@clock) if @clock;
	configure($node, $settings);
	$node->start;
	create_extension($node);
	return;
}

#---- Bad settings ----

foreach my $bad (
	[ 'snowid.worker_id',      99 ],
	[ 'snowid.worker_id',      'abc' ],
	[ 'snowid.worker_id',      -2 ],
	[ 'snowid.datacenter_id',  32 ],
	[ 'snowid.layout',         'yesterday' ],
	[ 'snowid.sequence_start', 'middle' ],
	[ 'snowid.max_lead',       '1 parsec' ],
	[ 'snowid.max_wait',       '-1s' ],
	[ 'snowid.max_jump',       '1ms' ],
	[ 'snowid.server_name',    'x' x 65 ],
	[ 'snowid.server_name',    "a\tb" ],
	[ 'snowid.server_name',    "caf\xe9" ],
	[ 'snowid.max_segments',   100001 ],
	[ 'snowid.max_segments',   'many' ],
	[ 'snowid.redis_prefix',   '' ],
	[ 'snowid.redis_lease',    '999ms' ])
{
	my ($name, $value) = @$bad;

	like(
		refused_start($node, "$name = '$value'"),
		qr/FATAL:  invalid value for parameter "$name": "$value"/,
		"$name = '$value' stops the start, and the log names both");
}
foreach my $value ('010', '00', '7.6', '1e1', '0x7', '+7', ' 7', '-0', '')
{
	like(
		refused_start($node, "snowid.worker_id = '$value'"),
		qr/FATAL:  invalid value for parameter "snowid\.worker_id": "\Q$value\E"\n.*DETAIL:  It must be decimal digits that do not begin with 0, or "hostname", or -1\.\n/,
		"the worker ID '$value', which could mean another number, stops the start"
	);
}
foreach my $name ('snowid.worker_idd', 'SnowID.lyaout', 'snowid.a')
{
	like(
		refused_start($node, "$name = 1"),
		qr/FATAL:  unrecognized configuration parameter "$name"\n.*HINT:  See doc\/reference\.md in snowid's manual\.\n/,
		"the misspelt $name stops the start, and the log says where they are listed"
	);
}

#---- One source of the worker ID ----

like(
	refused_start(
		$node,
		"snowid.redis_url = 'redis://127.0.0.1:1'\nsnowid.worker_id = 1"),
	qr/FATAL:  invalid value for parameter "snowid\.worker_id": "1"\n.*DETAIL:  With snowid\.redis_url, the worker ID is claimed\. Remove one of the two settings\.\n/,
	'snowid.worker_id beside snowid.redis_url stops the start, and the log says what to do'
);

$pristine->backup_fs_cold('fresh');
fresh_server($worker_1, 2075, 1, 1);

SKIP:
{
	skip('time_t has 32 bits here, and ends in 2038', 1)
	  if query($node, 'SELECT extract(year FROM clock_timestamp())') ne
	  '2075';

	#---- A layout whose range ends soon ----

	my $twitter =
	  'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=12';
	poll($node, "reason LIKE 'snowid cannot use this layout: %'");
	like(
		sql_error($node, 'SELECT snowid_next()'),
		qr/^55000: snowid cannot use this layout\nDETAIL:  The timestamp's range of "$twitter" ends at 2080-07-10 .*, in less than ten years\.\nHINT:  Correct snowid.layout/,
		'a layout whose range ends within ten years is refused at its first use'
	);
	is( query(
			$node,
			"SELECT created_at FROM snowid_decode(snowid_max('2080-07-10', 'twitter'), 'twitter')"
		),
		'2080-07-10 00:00:00+00',
		'a layout that is refused decodes when it is named');
	like(
		sql_error($node, 'SELECT snowid_decode(1)'),
		qr/^55000: snowid cannot use this layout\nDETAIL:  The timestamp's range/,
		'a layout that is refused decodes nothing when it is not named');

	restart_with($worker_1, 2060, 1, 1);
	my $key = next_key($node);
	cmp_ok($key, '>', 0, 'a layout whose range lasts longer makes keys');

	#---- The end of the range, 2080-07-10 17:30:30.208 UTC ----

	my $log = -s $node->logfile;
	restart_with($worker_1, 2075, 1, 1);
	cmp_ok(next_key($node), '>', $key,
		'a layout in use makes keys in its last ten years');
	like(
		slurp_file($node->logfile, $log),
		qr/WARNING:  the timestamp's range of the snowid layout ends at 2080-07-10/,
		'a start warns of the end of a layout in use');

	my $ended =
	  qr/^2200H: the timestamp's range of the snowid layout has ended\nHINT:  /;

	# A burst may go 1 s ahead, and the clock stands still 0.5 s before the end.
	$node->stop;
	configure($node, "snowid.worker_id = 1\nsnowid.max_lead = 1s");
	stop_clock($node, unix_time(2080, 7, 10, 17, 30, 29) * 1000 + 700);
	$node->start;
	server_is_open($node);
	cmp_ok(next_key($node), '>', $key, 'keys are made until the range ends');
	like(
		sql_error(
			$node,
			'SELECT count(*) FROM (SELECT snowid_next_batch(100000000)) b'),
		$ended,
		'a burst at the end of the range gets an error');
	is( status(
			$node,
			'last_key = snowid_encode(last_key_time, 0, 1, 4095), last_key > 0,
		last_key_time = to_timestamp(3487858230.208)'),
		't|t|t',
		'after the very last key');
	my $errors = status($node, 'errors');
	like(sql_error($node, 'SELECT snowid_next()'),
		$ended, 'single keys: the range has ended');
	is( status($node, 'errors'),
		$errors + 1,
		'a key that the range has no room for counts as an error');
	is( status($node, 'is_open, reason'),
		"f|the timestamp's range of the snowid layout has ended",
		'the status says that the range has ended');
	set_clock(2150, 3, 15);
	like(sql_error($node, 'SELECT snowid_next()'),
		$ended, 'never a wrap: long after the end there is no key');
	restart_with($worker_1, 2150, 3, 15);
	like(sql_error($node, 'SELECT snowid_next()'),
		$ended, 'never a wrap: a restart makes no key');

	#---- Before the epoch ----

	my $next_century =
	  "$worker_1\nsnowid.layout = 'epoch=2100-01-01T00:00:00Z datacenter=5 worker=5 sequence=12'";
	fresh_server($next_century, 2099, 12, 31, 23, 30, 0);
	poll($node, "reason = 'the clock is before the layout''s epoch'");
	like(
		sql_error($node, 'SELECT snowid_next()'),
		qr/^58000: the clock is before the layout's epoch\nHINT:  Set the clock/,
		'a server whose clock is before the epoch makes no keys');
	set_clock(2100, 1, 1, 0, 0, 1);
	server_is_open($node);
	is(status($node, 'last_key, last_key_time, lead_ms'),
		'||0', 'a server whose clock is before the epoch has made no key');
	is( query(
			$node,
			'SELECT created_at::date FROM snowid_decode(snowid_next())'),
		'2100-01-01',
		'keys are made from the epoch on');
	set_clock(2099, 12, 31, 23, 30, 0);
	like(
		sql_error($node, 'SELECT snowid_next()'),
		qr/^58000: the clock is before the layout's epoch\nHINT:  Set the clock/,
		'a clock that is set back before the epoch is an error');
	set_clock(2100, 1, 1, 0, 0, 10);

	# of this one the last unit is the greatest number of all
	fresh_server(
		"snowid.worker_id = 0\nsnowid.layout = 'epoch=2100-01-01T00:00:00Z sequence=16'",
		2099, 12, 31, 23, 30, 0);
	like(
		sql_error($node, 'SELECT snowid_advance(9223372036854775807)'),
		qr/^22023: key 9223372036854775807 leads the clock by 14073749\d{7} ms, /,
		'by how much its last key leads a clock before the epoch');
}

#---- Other widths ----

foreach my $layout (
	[ 0,  10, 12, 1000, 0 ],
	[ 10, 0,  12, 0,    1000 ],
	[ 0,  0,  18, 0,    0 ],
	[ 7,  8,  0,  255,  100 ])
{
	my ($datacenter_bits, $worker_bits, $sequence_bits,
		$worker_id,       $datacenter_id) = @$layout;
	my ($d, $w) = (
		$datacenter_bits ? $datacenter_id : '',
		$worker_bits     ? $worker_id     : '');

	fresh_server(<<~EOF);
		snowid.max_lead = 100ms
		snowid.layout = 'epoch=2020-01-01T00:00:00Z datacenter=$datacenter_bits worker=$worker_bits sequence=$sequence_bits'
		snowid.worker_id = $worker_id
		snowid.datacenter_id = $datacenter_id
		EOF
	server_is_open($node);
	is( query($node,
			<<~EOF), "t|t|$d|$w", "keys of widths $datacenter_bits, $worker_bits, $sequence_bits");
		SELECT count(DISTINCT key) = 100 AND bool_and(key > before OR before IS NULL),
			bool_and(created_at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 min'),
			min(datacenter_id), max(worker_id)
		FROM (SELECT key, lag(key) OVER () AS before FROM snowid_next_batch(100) key) k,
			snowid_decode(key)
		EOF
}

$node->stop;
done_testing();
