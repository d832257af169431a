# While the gate is open the keeper waits for nothing that a session can hold: with the
# catalogs of origins and databases locked, keys are made, also over a reload and
# a snowid_advance(); and a keeper that has to look its origin up reports the lock.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node =
  snowid_cluster('locked', "snowid.worker_id = 1\nsnowid.max_lead = 100ms");
start_and_open($node);

# A locked pg_database lets nobody connect, so both sessions are here before.
my $holder = $node->background_psql('postgres');
my $caller = $node->background_psql('postgres');
$caller->query_safe('SELECT snowid_next()');
$holder->query_safe(
	'BEGIN; LOCK pg_replication_origin, pg_database IN ACCESS EXCLUSIVE MODE'
);

# Ten times what the keeper has reserved, so it gives grants meanwhile.
my $keys = q(SELECT count(DISTINCT k) FROM generate_series(1, 50) AS g,
	LATERAL (SELECT snowid_next() AS k, pg_sleep(0.1 + 0 * g)) AS made);
is($caller->query_safe($keys),
	50, 'keys are made while the catalogs are locked');
configure($node, "snowid.worker_id = 1\nsnowid.max_lead = 200ms");
$node->reload;
$caller->query_safe('SELECT snowid_advance(snowid_next())');
is($caller->query_safe($keys), 50,
	'keys are made after a reload and an advance while the catalogs are locked'
);

#---- A keeper that has to look its origin up ----

# The holder alone can read it, too.
my $position =
  q(SELECT remote_lsn - '0/0' FROM pg_replication_origin_status WHERE external_id ~ '_0_1$');
my $before = $holder->query_safe($position);
my $log    = -s $node->logfile;
configure($node, 'snowid.worker_id = 2');
$node->reload;
$node->wait_for_log(qr/Another session has locked the catalog pg_database\./,
	$log);
pass('a keeper that needs the catalogs reports the lock');
cmp_ok($holder->query_safe($position), '>=', $before,
	'the ceiling that is left is not lowered while its origin may be dropped'
);
$holder->query_safe('ROLLBACK');
wait_for_worker_id($node, 2);
pass('the keeper finds its origin when the lock is released');
$holder->quit;
$caller->quit;
$node->stop;
done_testing();
