# The process "snowid origin" cannot connect to its database, since another session has
# that alone, and the server's lock_timeout ends each wait: it exits, and another one
# comes.  No process connects twice.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node;

# How often the process has exited.
sub exits
{
	return
	  scalar(() = slurp_file($node->logfile) =~
		  /"snowid origin" \(PID \d+\) exited with exit code 1/g);
}

$node = snowid_cluster('locked',
	"snowid.worker_id = 1\nlock_timeout = 300ms\nrestart_after_crash = off");
start_and_open($node);
my $session = $node->background_psql('template1');
$session->query_safe('BEGIN; ALTER DATABASE postgres RENAME TO other');
configure($node,
	"snowid.worker_id = 2\nlock_timeout = 300ms\nrestart_after_crash = off");
$node->reload;
my $exits = exits();
wait_until('three processes that could not connect',
	sub { exits() > $exits + 2 });
$session->query_safe('ROLLBACK');
$session->quit;
server_is_open($node);
is(status($node, 'worker_id'),
	2, 'the server has its number when the database is free');
$node->stop;
unlike(
	slurp_file($node->logfile),
	qr/PANIC|TRAP|was terminated by signal/,
	'no process crashed');
done_testing();
