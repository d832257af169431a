# The keeper owns its origin as a session does: while keys are made nobody drops
# it, moves it, or uses it.  What is dropped while no keeper runs is found
# missing, and its number is never taken for another's; also where somebody
# drops it, and takes its number, again and again while keepers come and go.  A
# clean stop stores the last key, but for a lock that may last.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $settings = "snowid.worker_id = 1\nsnowid.max_lead = 10ms";
my $node     = snowid_cluster('owned', $settings);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
start_and_open($node);

sub keys_go_on
{
	server_is_open($node);
	return makes_keys_as($node, 1, @_);
}

my $name = query($node,
	q(SELECT roname FROM pg_replication_origin WHERE roname LIKE 'snowid\_%')
);

# What the WAL knows of the origin, in ms; empty where there is none.
sub position
{
	return query($node,
		"SELECT remote_lsn - '0/0' FROM pg_replication_origin_status WHERE external_id = '$name'"
	);
}

#---- While keys are made ----

my $pid    = keeper_pid($node);
my $client = start_client($node);
clients_go_on($client);
like(
	sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: could not drop replication origin with ID \d+, in use by PID $pid\n/,
	'a drop is refused, and by whom');
like(
	sql_error(
		$node,
		q(SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname LIKE 'snowid\_%')
	),
	qr/^55006: could not drop /,
	'a drop of all origins of snowid is refused');
like(
	sql_error($node, "SELECT pg_replication_origin_advance('$name', '0/1')"),
	qr/^55006: .*already active for PID $pid\n/,
	'it cannot be moved');
like(
	sql_error($node, "SELECT pg_replication_origin_session_setup('$name')"),
	qr/^55006: .*already active for PID $pid\n/,
	'it cannot be used by a session');
query($node, "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid keeper' AND pid <> $pid"
) or die;
clients_go_on($client);
$pid = keeper_pid($node);
like(
	sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: .* in use by PID $pid\n/,
	'a new keeper owns it, too');
keys_are_right('keys are as they should be', $client);
keys_go_on('keys go on after the attempts');

# Each grant is in the WAL: a crash finds it.
query($node, 'CHECKPOINT') foreach 1 .. 3;
keys_go_on('after checkpoints');
my $ceiling = position();
$node->stop('immediate');
$node->start;
cmp_ok(position(), '>=', $ceiling, 'a crash finds the ceiling');
keys_go_on('after a crash');

#---- A clean stop ----

sub last_ms
{
	return query($node,
		"SELECT trunc(extract(epoch FROM snowid_timestamp($_[0])) * 1000)");
}

$node->stop;
configure($node, 'snowid.worker_id = -1');
$node->start;
is(position(), last_ms($last_key), 'a clean stop stores the last key');
configure($node, $settings);
$node->reload;
keys_go_on('keys go on behind the key of the clean stop');

query($node, q(SELECT pg_replication_origin_create('somebody_else')));
my $idle = $node->background_psql('postgres');
$idle->query_safe(
	q(BEGIN; SELECT pg_replication_origin_drop('somebody_else')));
keys_go_on('while a transaction that dropped an origin is open');
configure($node, 'snowid.worker_id = -1');
$node->reload;
$node->poll_query_until('postgres',
	"SELECT reason ~ 'no worker ID' FROM snowid_status()")
  or die;
cmp_ok(position(), '>=', last_ms($last_key),
	'it does not keep the gate from closing, and the ceiling stays');
configure($node, $settings);
$node->reload;
keys_go_on('keys again, though it is open yet');
$idle->quit;

#---- Dropped while no keeper runs ----

$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
query($node,
	"SELECT pg_replication_origin_drop('$name'); SELECT pg_replication_origin_create('thief')"
);
is(query($node, q(SELECT pg_replication_origin_progress('thief', false))),
	'', 'who gets its number gets no ceiling');
query($node, q(SELECT pg_replication_origin_advance('thief', '0/10')));
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowid'");
$node->start;
keys_go_on('dropped while no keeper ran: it is made anew');
is( query(
		$node,
		q(SELECT pg_replication_origin_progress('thief', false) = '0/10')),
	't',
	'the origin that has the number now is not touched');
query($node, q(SELECT pg_replication_origin_drop('thief')));

#---- Dropped again and again, while keepers come and go ----

# A thief of the number stays for a moment, and says what it has got.
my $thief = start_client($node, <<~EOF =~ s/\n//gr, 'hasty');
	DO \$\$ DECLARE got pg_lsn; BEGIN
		BEGIN
			PERFORM pg_replication_origin_drop('$name');
			PERFORM pg_replication_origin_create('thief');
			RAISE WARNING 'dropped %', (SELECT roident FROM pg_replication_origin WHERE roname = 'thief');
		EXCEPTION WHEN undefined_object OR object_in_use THEN NULL;
		END;
		COMMIT;
		got := pg_replication_origin_progress('thief', false);
		IF got IS NOT NULL THEN RAISE WARNING 'got %', got; END IF;
		PERFORM pg_replication_origin_drop('thief');
	EXCEPTION WHEN undefined_object THEN NULL;
	END \$\$;
	EOF
$client = start_client($node);
my @stolen;
for (1 .. 400)
{
	clients_go_on($client);
	query($node,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'snowid keeper'"
	);
	@stolen = slurp_file($thief->{errors}) =~ /dropped/g;
	last if @stolen >= 5;
}
cmp_ok(scalar @stolen, '>=', 5, 'it was dropped between keepers');
clients_go_on($client);
stop_client($thief);
like(sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: /,
	'dropped between keepers: the origin is there and owned now');
unlike(slurp_file($thief->{errors}),
	qr/got /, 'who got its number never got a ceiling');
keys_are_right('increasing, none twice', $client);
keys_go_on('keys go on');
$node->stop;
done_testing();
