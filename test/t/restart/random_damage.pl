# Damage at random: of records in Redis, of the state file, of ceilings in the WAL.
# A server says so or takes no notice; it makes no key out of order or with another's
# worker ID, ends no process, and continues when the damage is mended.
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
srand($seed);

sub random_bytes
{
	return join '', map { chr(rand(256)) } 1 .. $_[0];
}

# How many kinds of damage there are.
my $kinds = 7;

# Some bytes changed, cut off, added, doubled or exchanged, or a digit of a number; the
# kinds in turn.
sub damaged
{
	my ($bytes, $n) = @_;
	my $kind = $n % $kinds;
	my $at   = int(rand(length($bytes) || 1));

	if ($kind == 0)
	{
		vec($bytes, rand(8 * length $bytes), 1) ^= 1 for 0 .. rand(3);
		return $bytes;
	}
	return substr($bytes, 0, $at)                if $kind == 1;
	return $bytes . random_bytes(rand(20))       if $kind == 2;
	return substr($bytes, $at) . $bytes          if $kind == 3;
	return random_bytes(rand(2) * length $bytes) if $kind == 4;
	if ($kind == 5)
	{
		substr($bytes, $at, rand(20)) = random_bytes(rand(20));
		return $bytes;
	}
	my $digits = () = $bytes =~ /\d/g;
	my $which  = int(rand($digits));
	return $bytes =~ s/(\d)/$which-- == 0 ? ($1 + 1) % 10 : $1/ger;
}

my %highest;
my %made;

# The next key, if there is one: by whom, and above all before.
sub try_a_key
{
	my ($node, $what) = @_;
	my $name = $node->name;
	my ($rc, $out, $err) = $node->psql('postgres',
		"\\set VERBOSITY verbose\nSET statement_timeout = '2s'; SELECT snowid_next()"
	);

	if ($rc != 0)
	{
		fail("$what: $err")
		  if $err !~ /ERROR:  (?:55000|58000|2200H|57014|XX001): /;
		return;
	}
	fail("$what: $name: $out is not above $highest{$name}")
	  if $out <= ($highest{$name} // 0);
	$highest{$name} = $out;
	$made{$name}++;
	return query($node, "SELECT worker_id FROM snowid_decode($out)");
}

# Damages until the time is up, and in each way: $code->($n) for each, then all must
# continue.
sub each_damage
{
	my ($what, $nodes, $code) = @_;
	my $ends  = time + $seconds / 3;
	my $count = 0;

	do
	{
		$code->($count++);
	} until time > $ends && $count >= $kinds;
	pass("$what: $count times, seed $seed");
	foreach my $node (@$nodes)
	{
		server_is_open($node);
		ok(defined try_a_key($node, $what), "$what: keys continue");
		no_process_ended($node, $what);
	}
	return;
}

#---- Records in Redis ----

my $redis = SnowidRedis->start('redis');
my @nodes;

@nodes =
  map { claiming($_, $redis, "snowid.max_wait = '100ms'\n", marks => 100) }
  qw(first second);
wait_for_claim($_) foreach @nodes;
each_damage(
	'a record',
	\@nodes,
	sub {
		my ($n)    = @_;
		my @fields = split /\n/, $redis->query('HKEYS', 'snowid');
		my $field  = $fields[ rand @fields ];
		my $good   = $redis->query('HGET', 'snowid', $field);
		my $bad    = damaged($good, $n) =~ tr/\0/\1/r;

		my $other_field = rand(8) < 1
		  && damaged($field, int(rand($kinds))) =~ tr/\0/\1/r;

		# one that is there would be gone afterwards
		$other_field = 0 if grep { $_ eq $other_field } @fields;
		$redis->query('HSET', 'snowid', $other_field || $field, $bad);
		for (1 .. 3)
		{
			my @ids = grep { defined } map { try_a_key($_, $bad) } @nodes;
			fail("$bad: two servers are $ids[0]")
			  if @ids == 2 && $ids[0] == $ids[1];
			usleep(100_000);
		}
		$redis->query('HSET', 'snowid', $field, $good);
		$redis->query('HDEL', 'snowid', $other_field) if $other_field;
		eval { answered($_), wait_for_claim($_) foreach @nodes; 1 }
		  or die "after $field was $bad, and is $good: $@";
	});
my $other = worker_id($nodes[1]);

#---- The state file ----

my $file = $nodes[0]->data_dir . '/snowid/state';

each_damage(
	'the state file',
	[ $nodes[0] ],
	sub {
		my ($n) = @_;

		# a server that runs, or stops, may write the file
		$nodes[0]->stop(rand(2) < 1 ? 'fast' : 'immediate');
		my $good = slurp_file($file);
		my $bad  = damaged($good, $n);

		replace_file($file, $bad);
		$nodes[0]->start;
		poll($nodes[0], "NOT is_open AND reason ~ 'use its state file'")
		  if $bad ne $good;
		my $id = try_a_key($nodes[0], unpack('H*', $bad));
		fail(unpack('H*', $bad) . ": two servers are $id")
		  if defined $id && $id == $other;
		replace_file($file, $good);
		wait_for_claim($nodes[0]);
	});
$_->stop foreach @nodes;

#---- Ceilings ----

# A superuser gives one of our numbers of replication origins a name, and moves it.
my $node = snowid_cluster('origins',
	"allow_system_table_mods = on\nsnowid.max_wait = 0\nsnowid.worker_id = 1"
);
my $layout = 65534;
my $own    = 65533;
start_and_open($node);
try_a_key($node, 'a ceiling');

sub use_worker_id
{
	my ($id) = @_;
	configure($node, "snowid.max_wait = 0\nsnowid.worker_id = $id");
	$node->reload;
	wait_for($node, "SELECT current_setting('snowid.worker_id') = '$id'");
	poll($node,
		$id < 0
		? "reason ~ 'no worker ID'"
		: "is_open OR reason !~ 'no worker ID'");
	return;
}

each_damage(
	'a ceiling',
	[$node],
	sub {
		my ($n)    = @_;
		my $number = ($layout, $own, 65530 + int(rand(3)))[ $n % 3 ];
		my $place  = query($node,
			"SELECT coalesce(max(remote_lsn - '0/0'), 0) FROM pg_replication_origin_status WHERE local_id = $number"
		);
		my $bytes = damaged(pack('Q>', $place), int(rand(6)));
		my $lsn   = sprintf '%X/%X', unpack('NN', $bytes . "\0" x 8);
		$lsn = '0/1' if $n == 3;    # of the layout, and means none
		my $what = "number $number from $place at $lsn";

		query($node, <<~EOF);
			SET synchronous_commit = local;
			BEGIN;
			INSERT INTO pg_replication_origin (roident, roname) VALUES ($number, 'taken');
			SELECT pg_replication_origin_advance('taken', '$lsn');
			COMMIT
			EOF
		if ($n % 2)
		{
			$node->stop($n % 4 == 1 ? 'fast' : 'immediate');
			$node->start;
		}
		poll($node,
			"NOT is_open AND reason ~ 'position of replication origin number $layout was not set by snowid'"
		) if $n == 3;
		fail("$what: a key is made") if defined try_a_key($node, $what);
		query($node, 'DELETE FROM pg_replication_origin');
		try_a_key($node, $what);

		# a ceiling ahead stays in memory and in the state file, too
		configure($node, "snowid.worker_id = -1");
		$node->stop;
		unlink $node->data_dir . '/snowid/state';
		$node->start;
		query($node,
			"INSERT INTO pg_replication_origin (roident, roname) SELECT i, 'taken' || i FROM generate_series(65530, $layout) i"
		);
		query($node,
			'SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin'
		);
		use_worker_id(1);
		server_is_open($node);
	});
$node->stop;
diag(join ', ', map { "$_ made $made{$_} keys" } sort keys %made);
done_testing();
