# A synchronous standby that is away, and segments: nobody gets a number of the table
# here, whatever the database's owner has set; ranges of a central server, which has
# them durably, do not wait for it, nor does a stop.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $fetchers = fetchers();

my $central = snowid_cluster('central', '');
$central->start;
query($central,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
);
my $server =
  snowid_cluster('s1', 'snowid.max_wait = 1min', allows_streaming => 1);
$server->start;
use_central($server, $central->host, $central->port, 'a');
query($server, <<~EOF);
	INSERT INTO snowid_segments (biz_tag) VALUES ('here');
	INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('before', 1, '0');
	CREATE ROLE owner LOGIN;
	CREATE DATABASE shop OWNER owner;
	EOF
$server->safe_psql('shop', <<~EOF, extra_params => [ '-U', 'owner' ]);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('here');
	ALTER DATABASE shop SET synchronous_commit = local;
	EOF
is(number($server, 'a'),      1, 'a number of a central server');
is(number($server, 'before'), 1, 'a number of the table here');

# From here on the processes are there, and older than what they begin later.
wait_for($server,
	"SELECT count(*) = 2 AND bool_and(xact_start IS NULL AND backend_xmin IS NULL) $fetchers"
);
pass('a process that waits has no transaction, and holds back no vacuum');
wait_for($server,
	"SELECT bool_and(clock_timestamp() - backend_start > '3 s') $fetchers");
$server->append_conf('postgresql.conf',
	"synchronous_standby_names = 'nobody'\nsynchronous_commit = on");
$server->reload;
wait_for($server,
	"SELECT current_setting('synchronous_standby_names') = 'nobody'");

# commits wait when the checkpointer has seen it, the second time at the latest
query($server, 'CHECKPOINT') for 1 .. 2;

is( query(
		$server,
		"SELECT count(snowid_number('a')) FROM generate_series(1, 500)"),
	500,
	'ranges of a central server need no standby here');
my @callers;
foreach my $database ('postgres', 'shop')
{
	my $caller = $server->background_psql($database, on_error_stop => 0);
	$caller->query_until(qr/^asked$/m, <<~EOF);
		\\echo asked
		SELECT snowid_number('here');
		EOF
	ok( $server->poll_query_until(
			'postgres',
			"SELECT count(*) = 1 $fetchers AND datname = '$database' AND wait_event = 'SyncRep'"
		),
		"$database: a number of the table here waits for the standby");
	is( query(
			$server,
			"SELECT xact_start - backend_start > '3 s' $fetchers AND wait_event = 'SyncRep'"
		),
		't',
		'the start of a transaction is shown, and not that of the process'
	) if $database eq 'postgres';
	push @callers, $caller;
}

$server->stop('fast');
pass('a fast stop does not wait for it');
foreach my $caller (@callers)
{
	eval { $caller->quit };
	unlike($caller->{stdout}, qr/^\d+$/m, 'nobody got a number');
}
$central->stop;
done_testing();
