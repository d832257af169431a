# A Redis that answers nonsense, made at random from its own answers: a server says
# so, neither crashes nor hangs, makes no key out of order or for a pair that the
# layout does not have, and continues when Redis is itself again.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

$SIG{PIPE} = 'IGNORE';

my $seconds = $ENV{SNOWID_FUZZ_SECONDS} // 5;
my $seed    = $ENV{SNOWID_FUZZ_SEED}    // int(rand(1 << 31));
my @words   = (
	qw(yours ok lost late older twin other gone revoked layout silence settling full
	  more list damaged version free live), '', '0', '1', '-1', '31', '32',
	'4096',
	'1700000000000', '9000000000000000', '9223372036854775807', 'ff',
	'00000000000000ff',
	"\0", '%s%n', "\xff" x 300, 'a' x 5000);

# The answer with some of it changed; or another one.
sub spoil
{
	my ($answer) = @_;
	my $kind = int(rand(8));

	return $answer                                           if $kind > 5;
	return substr($answer, 0, rand(length $answer))          if $kind == 0;
	return strings(map { $words[ rand @words ] } 1 .. $kind) if $kind <= 2;
	if ($kind == 3)
	{
		my $count = int(rand(10));
		return join '', "*$count\r\n", map {
			(   "\$" . length($_) . "\r\n$_\r\n", ":$_\r\n",
				"+$_\r\n",                        "-ERR $_\r\n",
				"*-1\r\n",                        "\$-1\r\n"
			)[ rand(10) < 8 ? 0 : rand 6 ]
		} map { $words[ rand @words ] } 1 .. $count;
	}
	if ($kind == 4)
	{
		# one of its words is another
		my @parts = split /(?=\$\d+\r\n)/, $answer;
		my $word  = $words[ rand @words ];
		$parts[ rand @parts ] = '$' . length($word) . "\r\n$word\r\n";
		return join '', @parts;
	}
	substr($answer, rand(length $answer), 1) = chr(rand(256))
	  for 0 .. rand(4);
	return $answer;
}

my $redis = SnowidRedis->start('redis');
srand($seed);
my $fake    = SnowidRedis->proxy($redis, \&spoil);
my $good    = claimed('good', $fake);
my $renewed = "snowid.redis_lease = '2s'\n";
my $lease   = claimed('lease', $fake, $renewed);
my %nodes   = ('for good' => $good, 'on lease' => $lease);

#---- An answer that no operation gives, one at a time ----

foreach my $answer (
	['what'],
	['ok'],
	[ 'ok', 'x' ],
	[ 'ok', -1 ],
	[ 'ok', '9e9' ],
	[ 'ok', 1600000000000, 'a' x 16, 'x',           0 ],
	[ 'ok', 1600000000000, 'a' x 16, 0,             -1 ],
	[ 'ok', 1600000000000, 'a' x 16, 1_000_000_000, 0 ],
	[ 'ok', 1600000000000, 'a' x 16, 0,             90_000_000_000_001 ],
	['lost'],
	[ 'layout', 1 ])
{
	$fake->mode('mark only:' . strings(@$answer));
	error_is($good, '^unexpected reply to "mark"$');
	$fake->mode('');
	answered($good);
	pass("an unexpected reply to mark is an error: @$answer");
}

my @claim =
  (1, '0' x 15 . '1', 1600000000000, 1700000000000, 1, 'a' x 16, 0, 0);
my @answers = (
	['what'],
	['yours'],
	[ 'yours', @claim, 1 ],
	['lost'],
	['layout'],
	['settling'],
	[ 'silence',  'x' ],
	[ 'silence',  1,   1 ],
	[ 'settling', 'x', 1 ],
	[ 'settling', 1,   'x' ],
	[ 'taken',    1 ],
	[ 'full',     1, 2, 0 ],
	[ 'full',     1, 2, 'x', '' ],
	[ 'full',     1, 2, -1,  'more' ],
	[ 'what',     1, 2, 3 ]);
foreach my $wrong (
	[ 0, 32 ],
	[ 0, 'x' ],
	[ 1, '0' x 16 ],
	[ 1, '1' ],
	[ 1, 'x' x 16 ],
	[ 2, -1 ],
	[ 3, '9' x 30 ],
	[ 4, '' ],
	[ 5, 'x' ],
	[ 5, '0' x 16 ],
	[ 6, -1 ],
	[ 6, 1_000_000_000 ],
	[ 7, 'x' ],
	[ 7, 90_000_000_000_001 ])
{
	my @wrong = @claim;
	$wrong[ $wrong->[0] ] = $wrong->[1];
	push @answers, [ 'yours', @wrong ];
}
my $waiting = claiming('waiting', $fake,
	"snowid.max_wait = '100ms'\nsnowid.server_name = ''\n");
$waiting->stop;
$redis->query('DEL', 'snowid');
$fake->mode('claim only:' . strings('what'));
PostgreSQL::Test::Utils::system_or_bail('rm', '-r',
	$waiting->data_dir . '/snowid');
$waiting->start;
foreach my $answer (@answers)
{
	$fake->mode('claim only:' . strings('settling', 1, 1700000000000));
	poll($waiting, "registry ~ 'The registry is empty'");
	$fake->mode('claim only:' . strings(@$answer));
	poll($waiting, "registry ~ 'unexpected reply to \"claim\"'");
	like(sql_error($waiting, 'SELECT snowid_next()'),
		qr/^55000: /, "claim: @$answer: no key");
}
my @beyond = @claim;
$beyond[3] = 2253088648659904;
$fake->mode('claim only:' . strings('yours', @beyond));
poll($waiting, "registry ~ 'has a ceiling in 73367-.*, further ahead'");
like(sql_error($waiting, 'SELECT snowid_next()'),
	qr/^55000: /, 'a claim whose ceiling cannot be gives no key');
$fake->mode('');
wait_for_claim($_) foreach $good, $waiting;
like(
	query(
		$good, 'SELECT string_agg(server_name, chr(10)) FROM snowid_claims()'
	),
	qr/^[^\n]+:\d+$/m,
	'without snowid.server_name it is host name and port');

# Requests of administrators.
foreach my $answer (
	['what'],
	[ 'list', 1 ],
	[ 'list', 2147483647, 'name', 1,        1, 1, 1, 'live', 'ff', 0 ],
	[ 'list', -1,         'name', 1,        1, 1, 1, 'live', 'ff', 0 ],
	[ 'list', 1,          'name', -1,       1, 1, 1, 'live', 'ff', 0 ],
	[ 'list', 1,          'name', '9' x 19, 1, 1, 1, 'live', 'ff', 0 ])
{
	$fake->mode('list only:' . strings(@$answer));
	like(
		sql_error($good, 'SELECT snowid_claims()'),
		qr/^08006: unexpected reply from Redis\nHINT:  Is something else/,
		"an unexpected reply to list is an error: @$answer");
}
foreach my $reply (
	":1\r\n",             "+list\r\n",
	"\$4\r\nlist\r\n",    "*-1\r\n",
	"*0\r\n",             "*1\r\n:1\r\n",
	"*1\r\n*1\r\n:1\r\n", "*2\r\n\$4\r\nlist\r\n\$-1\r\n",
	"*1\r\n\$5\r\nli\0st\r\n")
{
	$fake->mode("list only:$reply");
	like(
		sql_error($good, 'SELECT snowid_claims()'),
		qr/^08006: .*the registry's script: unexpected type of reply/s,
		'list: no array of strings: ' . $reply =~ s/\W+/ /gr);
}
$fake->mode('list only:' . strings('list', ('x' x 900) x 9));
like(
	sql_error($good, 'SELECT snowid_claims()'),
	qr/^08006: .*The reply from Redis is too long/s,
	'a reply to list that is too long is an error');

# The kB that the process for Redis has of its own after so many large answers.  A
# sanitizer keeps the memory that the first hundred free.
my $registry = process_pid($good, 'snowid registry');

sub memory_after
{
	my ($calls) = @_;
	$fake->mode('list only:' . strings(('x' x 250) x 900));
	sql_error($good, 'SELECT snowid_claims()') for 1 .. $calls;
	return slurp_file("/proc/$registry/status") =~ /^RssAnon:\s+(\d+)/m
	  ? $1
	  : die;
}
my $first = memory_after(100);
cmp_ok(memory_after(60) - $first,
	'<', 5_000, 'large answers leave nothing in memory');
foreach my $answer ('what', 'live')
{
	$fake->mode('list only:' . strings($answer));
	like(
		sql_error($good, 'SELECT snowid_release(0, 31)'),
		qr/^08006: unexpected reply from Redis/,
		"an unexpected reply to release is an error: $answer");
}

# The mark by which a claim is given back, after another one was got.
$fake->mode('mark only:' . strings('what'));
query($good, 'SELECT snowid_reclaim()');
error_is($good, '^unexpected reply to "mark"$');
$fake->mode("mark only:-ERR no\r\n");
error_is($good, "the registry's script: ERR no");
$fake->mode('');
answered($good);

# A ceiling that the layout does not have; a claim that is gone, but is not.
$fake->mode('mark only:' . strings('ok', 2253088648659904, 'a' x 16, 0, 0));
error_is($good,
	'^the record of worker ID \d+ of datacenter 0 has a ceiling in 73367-.*, further ahead than snowid.max_jump$'
);
$fake->mode('mark only:' . strings('gone'));
answered($good);
$fake->mode('');
answered($good);
is(claim_state($good), 'claimed', 'a claim that is gone is claimed again');

# A mark that finds the registry of another layout; and one that is gone.
$fake->mode('mark only:' . strings('layout', 'a layout', 'a server'));
poll($waiting, "NOT is_open OR registry <> 'claimed'");
$fake->mode('');
wait_for_claim($waiting);
my $before = worker_id($waiting);
$redis->query('HDEL', 'snowid', "0:$before");
answered($waiting);
is(worker_id($waiting), $before, 'a record that is gone is put back');
$waiting->stop;

# It is tried again if it gets no answer of ours.
my $former = worker_id($lease);
$fake->mode('mark only:' . strings('what'));
query($lease, 'SELECT snowid_reclaim()');
error_is($lease, '^unexpected reply to "mark"$');
$fake->mode('');
wait_until('the release', sub { $redis->record("0:$former", 'owner') eq '' });
wait_for_claim($_) foreach values %nodes;

#---- A clock of one word ----

my $short_of_time = SnowidRedis->fake(
	sub {
		return strings('1') if $_[1] ne 'INFO';
		return "\$23\r\nrole:master\r\nrun_id:a\r\n\r\n";
	});
my $timeless =
  claiming('timeless', "redis://127.0.0.1:$short_of_time->{port}");
error_is($timeless, 'TIME: unexpected type of reply$');
pass('a clock of one word is an error');
$timeless->stop;

#---- At random ----

# parts of answers are waited for
foreach my $node (values %nodes)
{
	settings($node, $short . ($node == $lease ? $renewed : ''));
	$node->reload;
}

my %answers;
my $asked = 0;
my $ends  = time + $seconds;
$fake->mode('spoil');
while (time < $ends)
{
	foreach my $name (sort keys %nodes)
	{
		my $node = $nodes{$name};

		# what an administrator asks for, too
		my $sql = (
			'SELECT count(*) FROM snowid_claims()',
			'SELECT snowid_release(0, 31)',
			'SELECT snowid_reclaim()')[ rand 3 ];
		my $error = sql_error($node, $sql);
		fail("$sql: $error") if $error !~ /^$|^(?:08006|55000): /;
		$asked++;

		my ($rc, $key) = $node->psql('postgres',
			'SET statement_timeout = 300; SELECT snowid_next()');
		next if $rc != 0;
		fail("$name: key $key is not above $answers{$name}")
		  if $key <= ($answers{$name} // 0);
		$answers{$name} = $key;
		my $status = query($node,
			"SELECT datacenter_id = 0 AND worker_id BETWEEN 0 AND 31 AND lead_ms < 1000 AND snowid_timestamp($key) < now() + interval '10 s' FROM snowid_status()"
		);
		fail("$name: a key of a wrong pair or time") if $status eq 'f';
	}
}
pass("$asked requests, seed $seed");
$fake->mode('');
foreach my $name (sort keys %nodes)
{
	my $node = $nodes{$name};
	wait_for_claim($node);
	cmp_ok(next_key($node), '>', $answers{$name} // 0, "$name: it continues");
	no_process_ended($node, $name);
	my $process = process_pid($node, 'snowid registry');
	my @sockets = grep { /^socket:/ }
	  map { readlink // () } glob("/proc/$process/fd/*");
	cmp_ok(scalar @sockets,
		'<', 5, "$name: connections that were given up are closed");
	$node->stop;
}
done_testing();
