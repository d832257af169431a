# Tenants of one server, one of which tries to stop the others: sources that hang, more
# tags than max_segments, tags that do not exist, processes that are always busy.
# Another tenant's calls are all answered; and each process ends within a second of
# SIGTERM, whatever it is doing.
use strict;
use warnings;

use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

my $node = snowid_cluster('tenants', <<~EOF);
	snowid.max_wait = 20s
	snowid.max_segments = 100
	EOF
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->start;
query($node, 'CREATE EXTENSION postgres_fdw');
foreach my $tenant (qw(a b))
{
	query($node, "CREATE ROLE owner_$tenant LOGIN");
	query($node, "CREATE ROLE user_$tenant LOGIN");
	query($node, "CREATE DATABASE tenant_$tenant OWNER owner_$tenant");
	$node->safe_psql("tenant_$tenant",
		"CREATE EXTENSION postgres_fdw; GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO owner_$tenant"
	);
	as($tenant, 'owner', 'CREATE EXTENSION snowid_segments');
}

# The answer that a role of a tenant gets, or its error.
sub as
{
	my ($tenant, $role, $sql) = @_;
	my (undef,   $out,  $err) = $node->psql("tenant_$tenant", $sql,
		extra_params => [ '-U', "${role}_$tenant" ]);
	return $out . $err;
}

# The same again and again, in the background.
sub without_end
{
	my ($tenant, $role, $sql, $pause) = @_;
	my $asking =
	  '$| = 1; while (print "$ARGV[0];\n") { select(undef, undef, undef, $ARGV[1]) }';
	my $handle = IPC::Run::start(
		[ $^X, '-e', $asking, $sql, $pause ],
		'|',
		[
			'psql', '-XAtq',
			'-d',   $node->connstr("tenant_$tenant"),
			'-U',   "${role}_$tenant"
		],
		'>',
		'/dev/null',
		'2>',
		'/dev/null');
	return $handle;
}

sub stop
{
	foreach my $handle (@_)
	{
		$handle->signal('KILL');
		eval { $handle->finish };
	}
	query($node,
		"SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename LIKE 'user%'"
	);
	return;
}

#---- What is hostile ----

# A server that takes connections and never says a word.
my $silent = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1')
  or die "$!";
my $port = $silent->sockport;
foreach my $i (1 .. 20)
{
	as('a', 'owner', <<~EOF);
		CREATE SERVER s$i FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$port');
		CREATE USER MAPPING FOR owner_a SERVER s$i OPTIONS (user 'x', password 'y');
		INSERT INTO snowid_segments (biz_tag, source) VALUES ('far$i', 's$i');
		EOF
}
as('a', 'owner',
	"INSERT INTO snowid_segments (biz_tag) SELECT 'a' || i FROM generate_series(1, 1100) i"
);
as('b', 'owner',
	"INSERT INTO snowid_segments (biz_tag) SELECT 'b' || i FROM generate_series(1, 200) i"
);
is(as('a', 'owner', 'SELECT count(*) FROM snowid_segments'),
	'1120', 'the hostile tenant has its tags');

#---- One tenant has all tags in memory, and is idle ----

is( as( 'a',
		'owner',
		"SELECT count(snowid_number('a' || i)) FROM generate_series(1, 150) i"
	),
	150,
	'one tenant has more tags in use than max_segments');
is( $node->safe_psql(
		'tenant_a', 'SELECT count(*) FROM snowid_segment_status()'),
	100,
	'all tags in memory are those of one tenant');
is(as('b', 'user', "SELECT snowid_number('b1')"),
	1, 'a tag of another tenant gets numbers at once');
is( $node->safe_psql(
		'tenant_a', 'SELECT count(*) FROM snowid_segment_status()'),
	99,
	'the tenant that has most gives way');

#---- One tenant at full malice ----

my $each =
  "DO \$\$ BEGIN FOR i IN 1 .. %d LOOP BEGIN PERFORM snowid_number('%s' || i); EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END \$\$";
my @malice = (
	(map { without_end('a', 'user', sprintf($each, 1100, 'a'), 0.05) }
		  1 .. 2),
	(   map {
			without_end('a', 'user', "SELECT snowid_number('far$_')", 0.05)
		} 1 .. 6),
	without_end('a', 'user', sprintf($each, 1000, 'none'), 0.01));
wait_for($node, 'SELECT count(*) = 2 ' . fetchers('tenant_a'));

my ($answers, $slowest) = (0, 0);
my $calls = 30;
foreach my $i (1 .. $calls)
{
	my $began  = time;
	my $number = as('b', 'user', "SELECT snowid_number('b' || $i + 1)");
	$answers++               if $number =~ /^\d+$/;
	diag($number)            if $number !~ /^\d+$/;
	$slowest = time - $began if time - $began > $slowest;
}
is($answers, $calls,
	'all calls of another tenant are answered, each of a new tag');
note "the slowest took $slowest s";
cmp_ok(query($node, 'SELECT count(*) ' . fetchers('tenant_a')),
	'<=', 2, 'a tenant has two processes at most');

#---- No place of a process is one tenant's ----

query($node, "ALTER SYSTEM SET max_worker_processes = 4");
stop(@malice);
$node->restart;
as('a', 'owner', <<~EOF);
	CREATE TABLE big AS SELECT FROM generate_series(1, 100000);
	GRANT SELECT ON big TO user_a;
	ALTER DATABASE tenant_a SET max_parallel_workers_per_gather = 8;
	ALTER DATABASE tenant_a SET min_parallel_table_scan_size = 0;
	ALTER DATABASE tenant_a SET parallel_setup_cost = 0;
	ALTER DATABASE tenant_a SET parallel_tuple_cost = 0;
	EOF

# All at once: parallel queries in each place that is free, central servers that hang, and most of the time catalogs that let nobody connect, also not the process.
my $log = -s $node->logfile;
@malice = (
	(   map {
			without_end('a', 'user',
				'SELECT count(*) FROM big WHERE pg_sleep(1) IS NOT NULL',
				0.01)
		} 1 .. 2),
	(   map {
			without_end('a', 'user', "SELECT snowid_number('far$_')", 0.05)
		} 1 .. 3),
	without_end('a', 'user', sprintf($each, 1100, 'a'), 0.05));
wait_for($node, 'SELECT count(*) > 0 ' . fetchers('tenant_a'));
as('a', 'owner', 'VACUUM FULL pg_attribute');
push @malice,
  without_end('a', 'owner', 'BEGIN; SELECT count(*) FROM pg_class', 1000),
  without_end('a', 'owner', "SET lock_timeout = '2s'; VACUUM FULL pg_class",
	0.1);
wait_for($node,
	"SELECT count(*) > 0 FROM pg_locks WHERE relation = 'pg_class'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted"
);
$answers =
  grep { as('b', 'user', "SELECT snowid_number('b$_')") =~ /^\d+$/ } 62 .. 81;
is($answers, 20,
	'all calls of another tenant are answered, whatever one does at once');
like(
	slurp_file($node->logfile, $log),
	qr/\[\d+\] ERROR:  canceling statement due to lock timeout/,
	'the process could not connect to the hostile database meanwhile');
stop(@malice);

#---- A process that waits for a locked table ----

# The rows of a tenant are locked by its owner, in a session that stays.
my $locker = SnowidSession->new($node, 'tenant_b');
$locker->query('BEGIN; LOCK TABLE snowid_segments IN ACCESS EXCLUSIVE MODE');
my $asks = without_end('b', 'user', "SELECT snowid_number('b150')", 0.05);
exits_in_time(
	$node,
	'a process that waits for a locked table',
	sub {
		wait_for($node, 'SELECT count(*) > 0 ' . fetchers('tenant_b'));
		return (sub { kill 'TERM', @_ }, fetcher_pid($node, 'tenant_b'));
	});
my $began = time;
$node->stop('fast');
cmp_ok(time - $began,
	'<', 30, 'a fast stop waits for no table that is locked');
$asks->signal('KILL');
eval { $asks->finish };
done_testing();
