# Keys that are made at random moments are evenly spread over id % n, so that
# they shard well; with snowid.sequence_start = 'zero' they are not, and the
# sequence restarts at 0 each millisecond.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my @powers = map { 2**$_ } 1 .. 10;
my @others = (3, 7, 10, 12, 100, 365, 1000, 1021);

# Keys, each made by a statement of its own at a random moment: pgbench -R draws
# exponential pauses.
sub make_keys
{
	my ($node, $count, $rate) = @_;
	my $each = $count / 4;

	$node->safe_psql('postgres', <<~EOF);
		CREATE EXTENSION IF NOT EXISTS snowid;
		DROP TABLE IF EXISTS made;
		CREATE UNLOGGED TABLE made (key bigint UNIQUE)
		EOF
	my $run = start_pgbench(
		$node, 'postgres',
		"-c 4 -j 2 -t $each -R $rate -M prepared",
		made => 'INSERT INTO made SELECT snowid_next();');
	stop_pgbench($run, 'finish') or die $run->{out};
	return;
}

# How far the remainders of the keys by n are from an even spread: chi-square,
# as a standard normal deviate (Wilson and Hilferty).  Of an even spread it
# exceeds 6 with p < 1e-9, for one of the divisors below with p < 2e-8.
sub unevenness
{
	my ($node, $n) = @_;
	my $chi2 = $node->safe_psql('postgres', <<~EOF);
		SELECT sum((coalesce(found, 0) - expected) ^ 2 / expected)
		FROM generate_series(0, $n - 1) r
		CROSS JOIN (SELECT count(*) / ${n}::float AS expected FROM made) e
		LEFT JOIN (SELECT key % $n AS r, count(*) AS found FROM made GROUP BY 1) f
			USING (r)
		EOF
	my $v = 2 / (9 * ($n - 1));
	return (($chi2 / ($n - 1))**(1 / 3) - 1 + $v) / sqrt($v);
}

my $node = snowid_cluster('spread', 'snowid.worker_id = 1');
$node->start;

make_keys($node, 20000, 5000);
foreach my $n (@powers, @others)
{
	my $z = unevenness($node, $n);
	ok($z < 6, "keys at random moments are evenly spread over id % $n")
	  or diag("unevenness $z");
}

configure($node, "snowid.worker_id = 1\nsnowid.sequence_start = zero");
$node->restart;

make_keys($node, 5000, 1000);
is( $node->safe_psql('postgres', <<~EOF), 'f|t',
		SELECT bool_or(last <> count - 1 OR first <> 0), count(*) > 100 FROM (
			SELECT min(sequence) AS first, max(sequence) AS last, count(*)
			FROM made, snowid_decode(key) GROUP BY created_at) ms
		EOF
	'sequence_start zero: the sequence of each millisecond starts at 0 and has no gap'
);

# a key each of some ms
my $session = $node->background_psql('postgres');
my $ms      = (time + 10) * 1000;
$session->query_safe('TRUNCATE made');
foreach (1 .. 250)
{
	stop_clock($node, $ms += 1 + int(rand(5)));
	$session->query_safe('INSERT INTO made SELECT snowid_next()');
}
$session->quit;
set_skew($node, 20);
foreach my $n (@powers)
{
	my $z = unevenness($node, $n);
	ok($z > 10, "sequence_start zero: they are not, over id % $n")
	  or diag("unevenness $z");
}
is( $node->safe_psql('postgres', <<~EOF), '0|t|t',
		SELECT min(sequence), bool_and(sequence = (i - 1) % 4096),
			max(created_at) - min(created_at) = interval '2 ms'
		FROM snowid_next_batch(10000) WITH ORDINALITY b (key, i), snowid_decode(key)
		EOF
	'sequence_start zero: a burst is numbered from 0 to 4095 in each millisecond'
);

$node->stop;
done_testing();
