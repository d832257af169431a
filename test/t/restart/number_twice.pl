# A number of a sequence that a client has received can be given out again after
# a crash, if the transaction that took it was open; a key is not, even if the
# clock has the same time then.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

# Only a process that has to flushes the WAL.
my $settings = "wal_writer_delay = 10s\nautovacuum = off";

# What an open transaction gets from this function, before the server is killed
# and after.
sub before_and_after
{
	my ($node, $call) = @_;
	my $session = $node->background_psql('postgres');

	my $before = $session->query_safe("BEGIN; SELECT $call");
	$node->stop('immediate');
	$session->{run}->finish;
	$node->start;
	server_is_open($node) if $call =~ /snowid/;
	return ($before, query($node, "SELECT $call"));
}

my $plain = PostgreSQL::Test::Cluster->new('sequence');
$plain->init;
$plain->append_conf('postgresql.conf', $settings);
$plain->start;
query($plain, 'CREATE SEQUENCE payments');
query($plain, 'CHECKPOINT');
my ($before, $after) = before_and_after($plain, "nextval('payments')");
is($after, $before, 'nextval() gives a number twice that a client has seen');
$plain->stop;

my $node = snowid_cluster('keys', "snowid.worker_id = 1\n$settings");
start_and_open($node);

# The ceiling before the last one is durable.
query($node, 'SELECT snowid_next()');
query($node, 'CHECKPOINT');
stop_clock($node, (time + 5) * 1000);
($before, $after) = before_and_after($node, 'snowid_next()');
cmp_ok($after, '>', $before, 'snowid_next() does not');
$node->stop;

done_testing();
