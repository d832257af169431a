# The process that fetches ranges cannot connect to its database at once, since another
# session wants that alone, and the server's lock_timeout ends the wait: it exits, and
# another one comes.  No process connects twice.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('s1',
	"snowid.max_wait = 1min\nlock_timeout = 300ms\nrestart_after_crash = off");
$node->start;
query($node, 'CREATE DATABASE shop');
$node->safe_psql('shop', <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a');
	EOF
my $session = $node->background_psql('shop');
$session->query_safe('SELECT 1');
my $dropper = ask_in_background($node, 'DROP DATABASE shop');
wait_for($node,
	"SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND mode = 'AccessExclusiveLock' AND classid = 'pg_database'::regclass AND granted"
);
is($session->query("SELECT snowid_number('a')"),
	1, 'a number comes once the database is not wanted alone');
like(
	answer_of($dropper),
	qr/is being accessed by other users/,
	'the database was wanted alone meanwhile');
like(slurp_file($node->logfile), qr/canceling statement due to lock timeout/,
	'the wait for the database was ended');
is(query($node, 'SELECT count(*) ' . fetchers('shop')),
	1, 'the process is there once');
$session->quit;
is(sql_error($node, 'DROP DATABASE shop'), '', 'the database can be dropped');
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|was terminated by signal/,
	'no process crashed');

done_testing();
