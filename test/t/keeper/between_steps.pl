# Between two steps of the keeper others may act: while it opens the gate its claim is
# given to another server; between one keeper and the next the origin is dropped, or
# taken by a session.  No key comes of a lost claim, and all others are above those
# before.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

#---- The claim is withdrawn while the gate is being opened ----

my $redis = SnowidRedis->start('redis');
my $node  = claiming_cluster('withdrawn', $redis);
let_hold($node);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
wait_for_claim($node);
my $lost = worker_id($node);
makes_keys_as($node, $lost, 'a claim');

# The first grant is under way, and the gate is closed.
$node->stop;
hold_keeper($node, 'XLogFlush', 'replorigin_session_setup');
$node->start;
held_keeper($node);
$redis->take_away("0:$lost");
poll($node, q(registry ~ 'held by "thief"'));
my $log = -s $node->logfile;
let_go($node);
wait_for_claim($node);
isnt(worker_id($node), $lost, 'lost before the gate was open: another one');
unlike(
	slurp_file($node->logfile, $log),
	qr/makes keys as datacenter 0, worker $lost$/m,
	'the gate was never open with the one that was lost');
makes_keys_as($node, worker_id($node), 'keys are made');
is($redis->record("0:$lost", 'name'), 'thief', 'the other server keeps it');
$node->stop;

#---- The origin is dropped before a successor owns it, and the gate is open ----

$node = snowid_cluster('origin', "snowid.worker_id = 1");
let_hold($node);
start_and_open($node);
my $name = query($node,
	q(SELECT roname FROM pg_replication_origin WHERE roname LIKE 'snowid\_%')
);
my $ceiling_ms = q(floor(extract(epoch FROM ceiling) * 1000));
my $position   = qq(SELECT coalesce((SELECT remote_lsn - '0/0'
	FROM pg_replication_origin_status WHERE external_id = '$name'), 0));

# Nothing is used up, so that no grant becomes due.
makes_keys_as($node, 1, 'an origin');
stop_clock($node, now_ms());
my $keeper = keeper_pid($node);
hold_keeper($node, 'StartTransactionCommand');
wait_until(
	'the end of a keeper while it waits',
	sub {
		kill('FPE', $keeper);
		process_pid($node, 'snowid keeper') ne $keeper;
	});
held_keeper($node);
query($node, "SELECT pg_replication_origin_drop('$name')");
is(status($node, 'is_open'), 't', 'the gate stays open');
let_go($node);
wait_for($node,
	"SELECT ($position) >= (SELECT $ceiling_ms FROM snowid_status())");
pass('dropped between two keepers: the ceiling is above all keys again');
like(sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: /, 'dropped between two keepers: the new origin is owned');
makes_keys_as($node, 1, 'keys are made');
$node->stop('immediate');
$node->start;
server_is_open($node);
makes_keys_as($node, 1, 'after a crash, too');
set_skew($node, 0);

#---- A session takes it from a keeper that leaves ----

# So the keeper cannot store its last key.
hold_keeper($node, 'replorigin_advance');
$keeper = keeper_pid($node);
query($node, "SELECT pg_terminate_backend($keeper)");
held_keeper($node);
$log = -s $node->logfile;
my $session = $node->background_psql('postgres');
$session->query_safe("SELECT pg_replication_origin_session_setup('$name')");
let_go($node);
my $taken = qr/replication origin with (?:ID|OID) \d+ is already active/;
$node->wait_for_log(qr/\[$keeper\].* ERROR:  $taken/, $log);
poll($node, q(reason ~ 'already active for PID'));
isnt(keeper_pid($node), $keeper,
	'a keeper that fails as it leaves has a successor');
$session->query_safe('SELECT pg_replication_origin_session_reset()');
$session->quit;
server_is_open($node);
makes_keys_as($node, 1, 'the successor makes keys with the origin');
$node->stop;
done_testing();
