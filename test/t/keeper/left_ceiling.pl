# A worker ID that is left by a keeper whose predecessor died keeps the ceiling of its
# keys, even if its origin was set back while it had no owner.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidTest;
use SnowidHold;
use Test::More;

my $node = snowid_cluster('moved',
	"snowid.worker_id = 3\nsnowid.max_lead = '1s'\nexit_on_error = on");
let_hold($node);
start_and_open($node);
query($node, 'SELECT snowid_next()');
my $name = query($node,
	q(SELECT external_id FROM pg_replication_origin_status WHERE external_id ~ '_3$')
);
my $keeper = keeper_pid($node);
hold_keeper($node, 'StartTransactionCommand');
wait_until(
	'the end of a keeper while it waits',
	sub {
		kill('FPE', $keeper);
		process_pid($node, 'snowid keeper') ne $keeper;
	});
held_keeper($node);
my $last = query($node,
	q(SELECT floor(extract(epoch FROM last_key_time) * 1000)::bigint FROM snowid_status())
);
query($node,
	"SELECT pg_replication_origin_advance('$name', (SELECT remote_lsn - 3600000 FROM pg_replication_origin_status WHERE external_id = '$name'))"
);
reload_with($node, 'snowid.worker_id' => 4);
let_go($node);
wait_for_worker_id($node, 4);
my ($ceiling, $dc, $worker, $exact) =
  unpack('x160 q x4 l l l', slurp_file($node->data_dir . '/snowid/state'));
is($worker, 3, 'the past claim is that of the former worker ID');
cmp_ok($ceiling, '>=', $last,
	"the past claim's ceiling (exact: $exact) is above its keys");
$node->stop;
done_testing();
