# A server that makes keys and has subscriptions: while their tables are copied,
# rows arrive, keepers end and worker IDs change, a session tries to drop every
# origin of snowid.  No subscription skips a row or gets a number of ours, no
# origin of ours is touched, and keys continue.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
my $node = snowid_cluster(
	'subscriber',
	"snowid.worker_id = 1\nsnowid.max_lead = 10ms",
	allows_streaming => 'logical');

# A table's copy ends with a commit; the publisher forgets it then.
$node->append_conf('postgresql.conf', <<~EOF);
	synchronous_commit = on
	max_logical_replication_workers = 12
	max_worker_processes = 20
	@{[ origin_places($node) ]} = 20
	EOF
start_and_open($node);

my @tables = map { "t$_" } 1 .. 6;
my $schema = join(' ',
	map { "CREATE TABLE $_ (id int PRIMARY KEY, from_snowid bigint);" }
	  @tables);
$publisher->safe_psql('postgres', $schema);
$publisher->safe_psql('postgres',
	"INSERT INTO $_ SELECT generate_series(1, 1000)")
  foreach @tables;
$publisher->safe_psql('postgres', "CREATE PUBLICATION p$_ FOR TABLE t$_")
  foreach 1 .. 6;
query($node, $schema);
query($node, "ALTER TABLE $_ ALTER from_snowid SET DEFAULT snowid_next()")
  foreach @tables;

# Our origins, with their numbers.
my $ours =
  q(SELECT string_agg(roident || ' ' || roname, ', ' ORDER BY roident)
	FROM pg_replication_origin WHERE roname LIKE 'snowid\_%\_0\_1');
my $before  = query($node, $ours);
my $dropper = start_client($node, <<~EOF =~ s/\n//gr, 'hasty');
	DO \$\$ DECLARE name text; BEGIN
		FOR name IN SELECT roname FROM pg_replication_origin WHERE roname LIKE 'snowid%_0_1' LOOP
			BEGIN
				PERFORM pg_replication_origin_drop(name);
				RAISE WARNING 'dropped %', name;
			EXCEPTION WHEN undefined_object OR object_in_use THEN NULL;
			END;
		END LOOP;
	END \$\$; SELECT 1;
	EOF
my $client     = start_client($node);
my $connection = $publisher->connstr . ' dbname=postgres';
my $rows       = 1000;

sub more_rows
{
	$rows++;
	$publisher->safe_psql('postgres',
		join(' ', map { "INSERT INTO $_ VALUES ($rows);" } @tables));
	return;
}

sub all_rows_come
{
	my ($name) = @_;
	more_rows();
	foreach my $table (@tables)
	{
		$node->poll_query_until('postgres',
			"SELECT count(*) FROM $table WHERE id = $rows", '1')
		  or die "$table: the last row does not come";
	}
	is( query(
			$node,
			join(' UNION ALL ', map { "SELECT count(*) FROM $_" } @tables)),
		join("\n", ($rows) x @tables),
		"$name: no row is skipped");
	return;
}

foreach my $n (1 .. 6)
{
	query($node,
		"CREATE SUBSCRIPTION s$n CONNECTION '$connection' PUBLICATION p$n WITH (synchronous_commit = on)"
	);
	more_rows();
}
clients_go_on($client);
all_rows_come('tables that are copied while keys are made');
like(
	sql_error(
		$node,
		"SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname LIKE 'snowid\\_%\\_0\\_1'"
	),
	qr/^55006: /,
	'the origin of snowid cannot be dropped then');
is(query($node, $ours), $before, 'the origin of snowid keeps its number');
unlike(slurp_file($dropper->{errors}),
	qr/dropped/, 'no attempt to drop an origin of snowid succeeded');

# Keepers end, and tables are copied again, whose origins are made and dropped.
foreach my $round (1 .. 3)
{
	query($node,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'snowid keeper'"
	);
	query($node, "DROP SUBSCRIPTION s$round; TRUNCATE t$round");
	query($node,
		"CREATE SUBSCRIPTION s$round CONNECTION '$connection' PUBLICATION p$round WITH (synchronous_commit = on)"
	);
	more_rows();
	clients_go_on($client);
}
all_rows_come('keepers that come and go');

# Worker IDs change, so new origins are made beside those of tables.
stop_client($dropper);
foreach my $worker_id (2 .. 5)
{
	configure($node, "snowid.worker_id = $worker_id\nsnowid.max_lead = 10ms");
	query($node, "DROP SUBSCRIPTION s$worker_id; TRUNCATE t$worker_id");
	$node->reload;
	query($node,
		"CREATE SUBSCRIPTION s$worker_id CONNECTION '$connection' PUBLICATION p$worker_id WITH (synchronous_commit = on)"
	);
	$node->poll_query_until('postgres',
		"SELECT is_open AND worker_id = $worker_id FROM snowid_status()")
	  or die;
	clients_go_on($client);
}
all_rows_come('worker IDs that change');
$node->stop('immediate');
$node->start;
server_is_open($node);
$client->{handle}->finish;
all_rows_come('a subscriber that crashed');
keys_are_right('keys increase, none twice', $client);
is(query($node, "SELECT count(*) FROM t1 WHERE from_snowid IS NOT NULL"),
	'0', 'rows are as they were sent');
query($node, "DROP SUBSCRIPTION s$_") foreach 1 .. 6;
is( query(
		$node,
		q(SELECT count(*) FROM pg_replication_origin WHERE roname NOT LIKE 'snowid\_%')
	),
	'0',
	'subscriptions leave no origin behind');
$node->stop;
$publisher->stop;
done_testing();
