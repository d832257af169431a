# The cost of a key, as far as it does not depend on the machine: instructions of
# a session, WAL, and writes; a number of a segment takes no more instructions.
# Times are compared in test/bench.
# needs: valgrind
use strict;
use warnings;

use Config;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

# Of a whole key, without what the kernel does to read the clock.
my $most_instructions = 90;

# WAL a million keys, and grants a second while keys are made.
my $most_wal    = 10_000;
my $most_grants = 5;

#---- Instructions ----

# Instructions inside of snowid_next() when a session of its own makes $n keys; or
# inside of snowid_number().
sub instructions
{
	my ($node, $n, $call) = @_;
	$call //= 'snowid_next()';
	my ($pid) = split(
		/\|/,
		$node->safe_psql(
			'postgres',
			"SELECT pg_backend_pid(), count($call) FROM generate_series(1, $n)"
		));
	my $name = $node->basedir . "/callgrind.$pid";
	foreach my $i (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		# it is written when the session has ended
		return $1 if -e $name && slurp_file($name) =~ /^totals: (\d+)/m;
		usleep(100_000);
	}
	die "no count in $name";
}

SKIP:
{
	skip(
		'valgrind is not installed: the instructions of a key are not counted',
		3) if system('command -v valgrind >/dev/null') != 0;

	skip(
		'the instructions of a key are those of a 64-bit build without assertions',
		3) if $Config{ptrsize} != 8 || has_assertions();

	my $node = snowid_cluster('instructions',
		"snowid.worker_id = 1\nsnowid.max_wait = 1h");
	my $log    = $node->logfile;
	my $server = IPC::Run::start(
		[
			'valgrind',
			'-q',
			'--tool=callgrind',
			'--toggle-collect=snowid_next',
			'--toggle-collect=snowid_number',
			'--callgrind-out-file=' . $node->basedir . '/callgrind.%p',
			'postgres',
			'-D',
			$node->data_dir
		],
		'>', $log, '2>&1');
	foreach my $i (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last
		  if system('pg_isready', '-q', '-h', $node->host, '-p', $node->port)
		  == 0;
		usleep(100_000);
	}
	$node->safe_psql('postgres', <<~EOF);
		CREATE EXTENSION snowid;
		CREATE EXTENSION snowid_segments;
		INSERT INTO snowid_segments (biz_tag, step) VALUES ('invoice', 1000000);
		SELECT snowid_next(), snowid_number('invoice');
		EOF

	# so many that requests for a grant do not count, nor a wait for one
	my $n = 20_000;
	my ($first, $second, $third) =
	  map { instructions($node, $_ * $n) } 1 .. 3;
	my $each = ($second - $first) / $n;
	note("instructions a key: $each");
	cmp_ok($each, '<=', $most_instructions, 'a key takes few instructions');
	cmp_ok(abs($third - 2 * $second + $first) / $n,
		'<', 1, 'each key takes as many as the one before');

	# so many that it does not count if a process has to come for the first
	my ($few, $many) =
	  map { instructions($node, $_, "snowid_number('invoice')") } 40_000,
	  80_000;
	my $number = ($many - $few) / 40_000;
	note("instructions a number: $number");
	cmp_ok($number, '<=', $each,
		'a number of a segment takes no more than a key');

	system_or_bail('pg_ctl', '-D', $node->data_dir, '-m', 'fast', 'stop');
	$server->finish;
}

#---- WAL and writes ----

my $node = snowid_cluster('cost', 'snowid.worker_id = 1');
$node->start;
$node->safe_psql('postgres',
	'CREATE EXTENSION snowid; SELECT snowid_next(); VACUUM; CHECKPOINT');

my $millions = 5;
my $writes =
  q{substring(pg_read_file('/proc/self/io') FROM 'syscw: (\d+)')::bigint};
my $begin   = $node->lsn('insert');
my $start   = time();
my $written = $node->safe_psql('postgres', <<~EOF);
	SELECT $writes AS before \\gset
	SELECT count(*) FROM (SELECT snowid_next_batch($millions * 500000)) keys \\g /dev/null
	SELECT count(*) FROM (SELECT snowid_next() FROM generate_series(1, 50) a, generate_series(1, $millions * 10000) b) keys \\g /dev/null
	SELECT $writes - :before
	EOF
my $seconds = time() - $start;
my $end     = $node->lsn('insert');

is($written, 0, 'a session that makes keys writes nothing');
my $wal = $node->safe_psql('postgres',
	"SELECT pg_wal_lsn_diff('$end', '$begin') / $millions");
cmp_ok($wal, '<', $most_wal, 'WAL a million keys');

# each grant is one record, flushed by itself
my ($records, $stderr) = run_command(
	[
		'pg_waldump', '-p', $node->data_dir . '/pg_wal',
		'-s', $begin, '-e', $end
	]);
my @grants = grep { /rmgr: ReplicationOrigin/ } split(/\n/, $records);
my @others =
  grep { !/rmgr: (ReplicationOrigin|Standby|XLOG)/ } split(/\n/, $records);
is("@others", '', 'keys put nothing into the WAL but their ceiling');
cmp_ok(
	scalar(@grants), '<',
	10 + $most_grants * $seconds,
	"few grants, and flushes, for $millions million keys");
note(
	sprintf(
		'%.0f bytes of WAL a million keys, %d grants in %.1f s',
		$wal, scalar(@grants), $seconds));

$node->stop;
done_testing();
