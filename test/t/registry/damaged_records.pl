# Records that are damaged, or of another version: they give no ID away, and stop
# only their owner.  Floods and hangs are bounded.
use strict;
use warnings;

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $redis =
  SnowidRedis->start('redis', 'appendonly yes', 'appendfsync always');
my ($first, $second) = map { claiming($_, $redis) } qw(first second);
wait_for_claim($_) foreach $first, $second;
my ($mine, $other) = map { worker_id($_) } $first, $second;
my $script =
  $redis->query('SCRIPT', 'LOAD', slurp_file('src/registry/registry.lua'));
my $layout =
  'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=12';

# The script's answer to a newcomer that wants this very ID.
sub answer
{
	my (%with) = @_;
	return $redis->query(
		'EVALSHA',
		$script, 1, 'snowid',
		%{
			{
				version    => 4,
				operation  => 'claim',
				layout     => $layout,
				server     => 'e' x 32,
				name       => 'newcomer',
				place      => '',
				token      => 'e' x 16,
				starts     => 1,
				n          => 1,
				interval   => 1000,
				lease      => 0,
				boot       => 'boot',
				latest     => 3e12,
				dc         => 0,
				count      => 32,
				fresh      => 'e' x 16,
				ceiling    => 2e12,
				reach      => 2e12,
				known      => '',
				ownership  => '0' x 16,
				generation => 0,
				floor      => 0,
				used       => 0,
				resume     => 'record',
				up         => 0,
				registry   => '',
				span       => 0,
				high       => 0,
				deadline   => 9e15,
				move       => 0,
				leaving    => '',
				past       => '',
				%with
			}
		});
}

is(answer(version => 1),
	"version\n4\n1", 'a call of another version is refused');
wait_until('the end of the settling',
	sub { answer(count => 2) !~ /^settling/ });

# The ID looks free to a newcomer, and there is no other; a number for each call.
my $calls = 1;

sub offered
{
	$redis->query('HSET', 'snowid', 'taken:0:0', $other == 1 ? '10' : '01');
	return answer(count => 2, n => ++$calls);
}
like(offered(), qr/^full\n/,
	'a record that is whole gives its ID to no other server');

#---- Damaged ----

my $good   = $redis->query('HGET', 'snowid', "0:$other");
my @fields = $good =~ /"(\w+)":"/g;
cmp_ok(scalar(@fields), '>=', 16, 'the fields of a record');
$second->stop;
$good = $redis->query('HGET', 'snowid', "0:$other");
my %damaged = (
	'not JSON'        => 'damaged',
	'a number'        => '5',
	'nothing'         => '',
	'null'            => 'null',
	'an empty array'  => '[]',
	'an empty object' => '{}',
	'cut off'         => substr($good, 0, -20),
	"another ID's"    => $redis->query('HGET', 'snowid', "0:$mine"),
	'nested'          => "[$good]");
foreach my $field (@fields)
{
	next if $field eq 'v';
	$damaged{"without $field"} =
	  $good =~ s/"$field":"[^"]*",?//r =~ s/,\}/}/r;
	$damaged{"$field is a number"} = $good =~ s/("$field"):"[^"]*"/$1:1/r;
	$damaged{"$field is null"}     = $good =~ s/("$field"):"[^"]*"/$1:null/r;
	$damaged{"$field is an array"} = $good =~ s/("$field"):"[^"]*"/$1:[]/r;
	$damaged{"$field is empty"}    = $good =~ s/("$field"):"[^"]+"/$1:""/r;
	$damaged{"$field is changed"} =
	  $good =~ s/("$field"):"([^"]*)"/$1:"0$2"/r;
	$damaged{"$field is negative"} =
	  $good =~ s/("$field"):"([^"]*)"/$1:"-1"/r;
}
my @given;
foreach my $name (sort keys %damaged)
{
	next
	  if $damaged{$name} eq $good
	  || $name =~
	  /^(?:owner is empty|registry is (?:empty|changed|negative))$/;
	$redis->query('HSET', 'snowid', "0:$other", $damaged{$name});
	my $answer = offered();
	push @given, "$name: $answer" if $answer !~ /^full\n/;
}
$redis->query('HSET', 'snowid', "0:$other", $good);
my $marks     = $redis->query('HGET', 'snowid', "mark:0:$other");
my @bad_marks = (
	'', 'x', '5',
	$marks =~ s/ \d+$//r,
	$marks =~ s/^\d+/1e3/r,
	$marks =~ s/ \d+ / -1 /r,
	$marks =~ s/$/0000/r);
foreach my $bad (@bad_marks)
{
	$redis->query('HSET', 'snowid', "mark:0:$other", $bad);
	my $answer = offered();
	push @given, "marks \"$bad\": $answer" if $answer !~ /^full\n/;
}
$redis->query('HSET', 'snowid', "mark:0:$other", $marks);
is(join("\n", @given),
	'', 'no damage gives an ID away, of ' . (keys(%damaged) + @bad_marks));
$redis->query('HSET', 'snowid', 'taken:0:0', '11');

# One of them, seen by all.
$redis->query('HSET', 'snowid', "0:$other", $damaged{'without claim'});
$redis->stop('KILL');
$redis->run;
answered($first);
is(status($first, 'is_open, registry, worker_id'),
	"t|claimed|$mine", 'others continue, also when Redis was restarted');
is( $first->safe_psql(
		'postgres',
		"SELECT worker_id, server_name, ceiling, state, is_me FROM snowid_claims() WHERE worker_id = $other"
	),
	"$other|||damaged|f",
	'snowid_claims() shows it');
my $third = claiming('third', $redis);
wait_for_claim($third);
is(worker_id($third), 2, 'a newcomer gets another ID');
$second->start;
error_is($second, "the field \"0:$other\" of the hash \"snowid\" is damaged");
like(
	sql_error($second, 'SELECT snowid_next()'),
	qr/^55000: .*\nDETAIL:  Redis cannot be used: the field "0:$other" of the hash "snowid" is damaged; snowid_release\(0, $other\) removes it\./,
	'its owner does not resume it at a start, and says what to do');
is($first->safe_psql('postgres', "SELECT snowid_release(0, $other)"),
	'released', 'it is released');
wait_for_claim($second);
is(worker_id($second), $other, 'the owner of the released ID has it again');

#---- Another version ----

$redis->edit("0:$other", v => 2);
error_is($second,
	"the field \"0:$other\" of the hash \"snowid\" was written by another version of snowid: it has format 2, and this one has 4"
);
is( $first->safe_psql(
		'postgres',
		"SELECT state FROM snowid_claims() WHERE worker_id = $other"),
	'version',
	'a record of another version');
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
	return $node->safe_psql('postgres',
		'SELECT floor(extract(epoch FROM ceiling) * 1000) FROM snowid_status()'
	);
}

my $far     = 3155760000000;
my $outside = 2253088648659904;
my $beyond =
  'the record of worker ID %d of datacenter 0 has a ceiling in %d-.*, further ahead than snowid.max_jump';
$redis->edit("0:$other", floor => $far, ceiling => $far);
error_is($second, sprintf $beyond, $other, 2070);
is(status($second, 'is_open'), 't', 'a running server continues');
$second->restart;
error_is($second, sprintf $beyond, $other, 2070);
is( status($second, 'is_open, registry, worker_id'),
	"t|remembered|$other",
	'a server that starts continues with the ID in its file, since the record is its own'
);
$second->safe_psql('postgres', 'SELECT snowid_next()');
$second->stop('immediate');
$second->start;
poll($second, "is_open AND registry = 'remembered'");
$second->safe_psql('postgres', 'SELECT snowid_next()');
cmp_ok(
	ceiling_ms($second), '<',
	(time + 100) * 1000,
	'the ceiling of the record is in no file and no origin');
$redis->edit("0:$other", floor => 0, ceiling => $outside);
error_is($second, sprintf $beyond, $other, 73367);
my $fourth = claiming('fourth', $redis, "snowid.redis_lease = '3s'\n");
wait_for_claim($fourth);
my $leased = worker_id($fourth);
$fourth->stop('immediate');
$redis->edit("0:$leased", ceiling => $far);
$fourth->start;
wait_for_claim($fourth);
isnt(worker_id($fourth), $leased,
	'a server on lease whose record has such a ceiling takes another ID');
my $shown =
  "SELECT string_agg(worker_id::text, ' ' ORDER BY worker_id) FROM snowid_claims() WHERE state = 'damaged'";
wait_for($first, $shown, $leased);
pass('snowid_claims() shows such a record as damaged, when it is silent');
is($first->safe_psql('postgres', "SELECT snowid_release(0, $leased)"),
	'released', 'it is released');

# its server is alive, for longer than a silence of it
is( $first->safe_psql(
		'postgres',
		"SELECT state FROM snowid_claims() WHERE worker_id = $other"),
	'live',
	'that of a living server is live for others');
like(sql_error($first, "SELECT snowid_release(0, $other)"),
	qr/is in use/, 'they do not release it');
is($second->safe_psql('postgres', $shown),
	$other, 'its own server shows it as damaged');
is($second->safe_psql('postgres', "SELECT snowid_release(0, $other)"),
	'released', 'its own server releases it');
wait_for_claim($_) foreach $second, $fourth;
is(worker_id($second), $other,
	'when the record is released its owner has it again');
cmp_ok(
	$redis->record("0:$other", 'ceiling'),
	'<',
	(time + 100) * 1000,
	'the owner has written a ceiling of its own keys');
cmp_ok(
	ceiling_ms($_), '<',
	(time + 100) * 1000,
	'no key is granted up to there, ' . $_->name) foreach $second, $fourth;
$redis->edit('meta', top => $far);
$redis->query('HSET', 'snowid', "0:$leased", '{}');
$first->safe_psql('postgres', "SELECT snowid_release(0, $leased)");
cmp_ok(
	$redis->record("0:$leased", 'ceiling'),
	'<',
	(time + 4000) * 1000,
	'its next owner begins within snowid.max_jump');
$_->stop foreach $second, $fourth;

#---- A ceiling that its owner asked for, with a greater snowid.max_lead ----

my $leads = claiming('leads', $redis);
wait_for_claim($leads);
my $its = worker_id($leads);
settings($leads, "snowid.max_lead = '1d'\n");
$leads->reload;
wait_until('the ceiling of a day',
	sub { $redis->record("0:$its", 'ceiling') > (time + 80_000) * 1000 });
is( $first->safe_psql(
		'postgres',
		"SELECT state FROM snowid_claims() WHERE worker_id = $its"),
	'live',
	'another server, with a shorter snowid.max_jump, does not take it for damaged'
);
settings($leads);
$leads->reload;
answered($leads);
is( $leads->safe_psql(
		'postgres',
		"SELECT state FROM snowid_claims() WHERE worker_id = $its"),
	'live',
	'when snowid.max_lead is lowered the owner continues to mark its record');
$leads->stop;

#---- A former owner starts, and the record of the present one is damaged ----

{
	my $redis = SnowidRedis->start('again');
	my ($helper, $former) = map { claiming($_, $redis) } qw(helper former);
	wait_for_claim($_) foreach $helper, $former;
	my $id = worker_id($former);
	$former->stop;
	wait_for($helper,
		"SELECT state = 'silent' FROM snowid_claims() WHERE worker_id = $id");
	query($helper, "SELECT snowid_release(0, $id)");

	# it is not cut off, and the former one waits for it, however slow the machine is
	$redis->edit('meta', since => 0);
	my $present = claiming('present', $redis, '', marks => 500_000);
	wait_for_claim($present);
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
	my $late = claiming('late', $redis);
	wait_for_claim($late);
	my $id = worker_id($late);
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

#---- No other ID ----

my $narrow =
  "snowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=1 sequence=12'\nsnowid.redis_prefix = 'narrow'\n";
my @both = map { claiming("narrow$_", $redis, $narrow) } 0, 1;
wait_for_claim($_) foreach @both;
like(
	sql_error($both[0], 'SELECT snowid_reclaim()'),
	qr/^55000: no other worker ID could be claimed\nDETAIL:  All 2 worker IDs of datacenter 0 are in use/,
	'no other ID could be claimed: 55000');
$_->stop foreach @both;

#---- A flood, and a pipe in place of the file ----

my $proxy   = SnowidRedis->proxy($redis);
my $flooded = hasty('flooded', $proxy);
wait_for_claim($flooded);
my $pid = $flooded->safe_psql('postgres',
	"SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowid registry'"
);

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

my $file = $flooded->data_dir . '/snowid/state';
foreach my $name ('', '.tmp')
{
	rename($file, "$file.good") if $name eq '';
	POSIX::mkfifo("$file$name", 0600) or die "$!";
	$flooded->start;
	poll($flooded, "reason ~ 'cannot use its state file'");
	pass("a pipe in place of \"state$name\" is reported");
	$flooded->stop;
	unlink "$file$name";
	rename("$file.good", $file) if $name eq '';
}

$first->stop;
done_testing();
