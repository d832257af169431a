# Records that are damaged, or of another version: they give no ID away, and stop
# only their owner.  A flood is bounded.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $redis =
  SnowidRedis->start('redis', 'appendonly yes', 'appendfsync always');
my ($first, $second) = map { claimed($_, $redis) } qw(first second);
my ($mine, $other) = map { worker_id($_) } $first, $second;

sub state_of
{
	my ($id, $node) = @_;
	return query($node // $first,
		"SELECT state FROM snowid_claims() WHERE worker_id = $id");
}

#---- Damaged ----

$second->stop;
$redis->query('HSET', 'snowid', "0:$other",
	substr($redis->query('HGET', 'snowid', "0:$other"), 0, -20));
$redis->stop('KILL');
$redis->run;
answered($first);
is(status($first, 'is_open, registry, worker_id'),
	"t|claimed|$mine", 'others continue, also when Redis was restarted');
is( query(
		$first,
		"SELECT worker_id, server_name, ceiling, state, is_me FROM snowid_claims() WHERE worker_id = $other"
	),
	"$other|||damaged|f",
	'snowid_claims() shows it');
my $third = claimed('third', $redis);
is(worker_id($third), 2, 'a newcomer gets another ID');
$second->start;
error_is($second, "the field \"0:$other\" of the hash \"snowid\" is damaged");
like(
	sql_error($second, 'SELECT snowid_next()'),
	qr/^55000: .*\nDETAIL:  Redis cannot be used: the field "0:$other" of the hash "snowid" is damaged; snowid_release\(0, $other\) removes it\./,
	'its owner does not resume it at a start, and says what to do');
is(query($first, "SELECT snowid_release(0, $other)"),
	'released', 'it is released');
wait_for_claim($second);
is(worker_id($second), $other, 'the owner of the released ID has it again');

$redis->occupy("0:$other", 0, [9], name => "\e[31mred\x7f");
is( query(
		$first, 'SELECT server_name FROM snowid_claims() WHERE worker_id = 9'
	),
	'?[31mred?',
	'control characters in the name of another server are not shown');
$redis->forget('0:9');

#---- Another version ----

$redis->edit("0:$other", v => 2);
error_is($second,
	"the field \"0:$other\" of the hash \"snowid\" was written by another version of snowid: it has format 2, and this one has 4"
);
is(state_of($other), 'version', 'a record of another version');
like(
	sql_error($first, "SELECT snowid_release(0, $other, true)"),
	qr/^08006: .*written by another version of snowid/s,
	'cannot be released');
answered($first);
$redis->query('HDEL', 'snowid', "0:$other");
wait_for_claim($second);
answered($second);
is(worker_id($second), $other, 'when it is gone its owner has it again');
$third->stop;

#---- Times that no server's keys can have ----

# The ceiling of a server, in Unix ms.
sub ceiling_ms
{
	my ($node) = @_;
	return status($node, 'floor(extract(epoch FROM ceiling) * 1000)');
}

my $far = 3155760000000;
my $beyond =
  "the record of worker ID $other of datacenter 0 has a ceiling in 2070-.*, further ahead than snowid.max_jump";
$redis->edit("0:$other", floor => $far, ceiling => $far);
error_is($second, $beyond);
is(status($second, 'is_open'), 't', 'a running server continues');
$second->restart;
error_is($second, $beyond);
is( status($second, 'is_open, registry, worker_id'),
	"t|remembered|$other",
	'a server that starts continues with the ID in its file, since the record is its own'
);
next_key($second);
$second->stop('immediate');
$second->start;
poll($second, "is_open AND registry = 'remembered'");
next_key($second);
cmp_ok(
	ceiling_ms($second), '<',
	(time + 100) * 1000,
	'the ceiling of the record is in no file and no origin');

# its server marks it all the same
my $n = $redis->record("0:$other", 'n');
wait_until('a mark', sub { $redis->record("0:$other", 'n') > $n });
is(state_of($other), 'live', 'that of a living server is live for others');
like(sql_error($first, "SELECT snowid_release(0, $other)"),
	qr/is in use/, 'they do not release it');
is(state_of($other, $second), 'damaged',
	'its own server shows it as damaged');
is(query($second, "SELECT snowid_release(0, $other)"),
	'released', 'its own server releases it');
wait_for_claim($second);
is(worker_id($second), $other,
	'when the record is released its owner has it again');
cmp_ok(
	$redis->record("0:$other", 'ceiling'),
	'<',
	(time + 100) * 1000,
	'the owner has written a ceiling of its own keys');
cmp_ok(
	ceiling_ms($second), '<',
	(time + 100) * 1000,
	'no key is granted up to there');
$second->stop;

#---- A ceiling that its owner asked for, with a greater snowid.max_lead ----

my $leads = claimed('leads', $redis);
my $its   = worker_id($leads);
settings($leads, "snowid.max_lead = '1d'\n");
$leads->reload;
wait_until('the ceiling of a day',
	sub { $redis->record("0:$its", 'ceiling') > (time + 80_000) * 1000 });
is(state_of($its), 'live',
	'another server, with a shorter snowid.max_jump, does not take it for damaged'
);
settings($leads);
$leads->reload;
answered($leads);
is( state_of($its, $leads),
	'live',
	'when snowid.max_lead is lowered the owner continues to mark its record');
$leads->stop;

#---- A former owner starts, and the record of the present one is damaged ----

{
	my $redis = SnowidRedis->start('again');
	my ($helper, $former) = map { claimed($_, $redis) } qw(helper former);
	my $id = worker_id($former);
	$former->stop;
	release_silent($helper, $id);

	# it is not cut off, and the former one waits for it, however slow the machine is
	$redis->edit('meta', since => 0);
	my $present = claimed('present', $redis, '', marks => 500_000);
	is(worker_id($present), $id, 'an ID that was released has another owner');

	# the whole registry, and that record
	foreach my $field ('meta', "0:$id")
	{
		my $whole = $redis->query('HGET', 'snowid', $field);
		my $what  = $field eq 'meta' ? 'the registry' : 'the record';

		$redis->query('HSET', 'snowid', $field, '{}');
		$former->start;
		error_is($former,
			"the field \"$field\" of the hash \"snowid\" is damaged");
		is(status($former, 'is_open'),
			'f', "a former owner resumes nothing while $what is damaged");
		$former->stop;
		$redis->query('HSET', 'snowid', $field, $whole) if $field eq 'meta';
	}

	# just after the release, before the present owner puts it back
	my $held = process_pid($present, 'snowid registry');
	stop_process($present, $held);
	query($helper, "SELECT snowid_release(0, $id)");
	$former->start;
	poll($former,
		"NOT is_open AND reason ~ 'only servers that already have a worker ID'"
	);
	pass('a former owner waits after the release of the damaged record');
	kill 'CONT', $held;
	$present->reload;
	wait_for_claim($former);
	isnt(worker_id($former), $id, 'a former owner gets another ID');
	is(worker_id($present), $id, 'the present owner has put its claim back');
	is(logged($present, 0, qr/snowid lost its worker ID/),
		0, 'the present owner never lost its ID');
	$_->stop foreach $helper, $former, $present;
}

#---- The owner runs, and the release comes late ----

{
	my $late = claimed('late', $redis);
	my $id   = worker_id($late);
	$redis->query('HSET', 'snowid', "0:$id", '{}');
	error_is($late, "the field \"0:$id\" of the hash \"snowid\" is damaged");
	sleep 12;    # more than two intervals
	is(status($late, 'is_open'),
		't', 'a running owner of a damaged record continues');
	query($first, "SELECT snowid_release(0, $id)");
	poll($late, "is_open AND worker_id <> $id");
	pass('an owner whose damaged record is released late takes another ID');
	$late->stop;
}

#---- A flood ----

my $proxy   = SnowidRedis->proxy($redis);
my $flooded = claimed('flooded', $proxy, $short);
my $pid     = process_pid($flooded, 'snowid registry');

sub memory_kb
{
	return (slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+)/m)[0];
}
my $before = memory_kb();
$proxy->mode("all:" . "*900\r\n" . ("*900\r\n" . (":1\r\n" x 900)) x 900);
error_is($flooded, 'a reply is too long$');
cmp_ok(memory_kb() - $before,
	'<', 20_000, 'a flood of elements takes no memory');
$proxy->mode('');
answered($flooded);
$flooded->stop;

$first->stop;
done_testing();
