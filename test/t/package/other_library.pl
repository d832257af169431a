# Another library with shared memory of its own, loaded before snowid: both get theirs,
# also after a crash.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

plan skip_all => 'pg_stat_statements is not installed'
  if !-e `pg_config --sharedir` =~
  s/\n//r . '/extension/pg_stat_statements.control';

my $node = snowid_cluster('both', 'snowid.worker_id = 1');
$node->append_conf('postgresql.conf', <<~EOF);
	shared_preload_libraries = 'pg_stat_statements, snowid'
	restart_after_crash = on
	synchronous_commit = on
	EOF
start_and_open($node);
query($node, 'CREATE EXTENSION pg_stat_statements');

sub both_work
{
	my ($name) = @_;
	query($node, 'SELECT snowid_next()');
	is( query(
			$node,
			q(SELECT calls > 0 FROM pg_stat_statements WHERE query = 'SELECT snowid_next()')
		),
		't', $name);
	return;
}

both_work('both libraries work');
my $log = -s $node->logfile;
kill 'KILL', keeper_pid($node);
$node->wait_for_log(qr/database system is ready to accept connections/, $log);
server_is_open($node);
both_work('both libraries work after a crash');
$node->stop;
done_testing();
