# A Redis that answers nonsense, made at random from its own answers: a server says
# so, neither crashes nor hangs, makes no key out of order or for a pair that the
# layout does not have, and goes on when Redis is itself again.
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
	qw(yours ok lost late older gone revoked layout silence settling taken full
	  ahead list damaged version free live), '', '0', '1', '-1', '31', '32',
	'4096',
	'1700000000000', '9000000000000000', '9223372036854775807', 'ff',
	'00000000000000ff',
	"\0", '%s%n', "\xff" x 300, 'a' x 5000);

# The answer with some of it changed; or another one.
sub spoil
{
	my ($answer) = @_;
	my $kind = int(rand(8));

	return $answer                                  if $kind > 5;
	return substr($answer, 0, rand(length $answer)) if $kind == 0;
	return join '', "*$kind\r\n", map { '$' . length($_) . "\r\n$_\r\n" }
	  map { $words[ rand @words ] } 1 .. $kind
	  if $kind <= 2;
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
my $fake  = SnowidRedis->proxy($redis, \&spoil);
my %nodes = (
	'for good' => claiming('good',  $fake),
	'on lease' => claiming('lease', $fake, "snowid.redis_lease = '2s'\n"));
wait_for_claim($_) foreach values %nodes;

my %answers;
my $asked = 0;
my $last  = 0;
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
		fail("$name: key $key is not above " . ($last // ''))
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
	cmp_ok(next_key($node), '>', $answers{$name} // 0, "$name: it goes on");
	unlike(
		slurp_file($node->logfile),
		qr/PANIC|TRAP|FATAL|terminated by signal|server process .* exited with/,
		"$name: no process ended");
	$node->stop;
}
done_testing();
