# pg_createsubscriber makes a logical subscriber of a physical standby, whose ceilings and
# snowid/state stay: with a worker ID of its own, or with the one that it claimed from
# Redis, it makes keys above those in its rows, and none that the publisher makes.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

my ($version) = run_command([ 'pg_config', '--version' ]);
plan skip_all => 'pg_createsubscriber is there from PostgreSQL 17 on'
  if $version =~ /(\d+)/ && $1 < 17;

my $insert = "INSERT INTO made VALUES (DEFAULT, '%s') RETURNING id;";

# A server with a table, and a standby of it
sub pair_of_servers
{
	my ($name, $publisher_settings, $standby_settings) = @_;
	my $publisher = snowid_cluster("${name}_publisher", $publisher_settings,
		allows_streaming => 'logical');

	start_and_open($publisher);
	query($publisher,
		'CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowid_next(), maker text)'
	);
	$publisher->backup('backup');
	my $standby =
	  server_from_backup("${name}_standby", $publisher, 'backup',
		$standby_settings, has_streaming => 1);
	$standby->start;
	return ($publisher, $standby);
}

# Makes the standby a subscriber while keys are made; $worker_id and $own_id are the
# worker IDs of the two.
sub becomes_subscriber
{
	my ($what, $publisher, $standby, $worker_id, $own_id) = @_;
	my @clients =
	  map { start_client($publisher, sprintf $insert, 'publisher') } 1, 2;

	clients_go_on(@clients);
	$standby->stop;
	my $log_begins = -s $standby->logfile;
	$standby->command_ok(
		[
			'pg_createsubscriber',           '-D',
			$standby->data_dir,              '-P',
			$publisher->connstr('postgres'), '-s',
			$standby->host,                  '-p',
			$standby->port,                  '-d',
			'postgres',                      '-t',
			$PostgreSQL::Test::Utils::timeout_default
		],
		"$what: pg_createsubscriber ends well under load");
	$standby->start;
	server_is_open($standby);
	my $highest = query($standby, 'SELECT max(id) FROM made');
	push @clients, start_client($standby, sprintf $insert, 'subscriber');
	clients_go_on(@clients);
	my @made = map { [ stop_client($_) ] } @clients;
	my @own  = @{ $made[2] };

	is(disorder(@$_), 0, "$what: the keys of a session increase")
	  foreach @made;
	cmp_ok($own[0], '>', $highest,
		"$what: the first key is above those in the rows");
	is(scalar(grep { key_worker_id($_) != $own_id } @own),
		0, "$what: the subscriber's keys have its own worker ID, $own_id");
	is( scalar(
			grep { key_worker_id($_) != $worker_id } map { @$_ } @made[ 0, 1 ]
		),
		0,
		"$what: the publisher's have worker ID $worker_id");

	# the publisher's rows arrive beside the subscriber's own, which have other keys
	my $rows = "SELECT count(*), sum(id) FROM made WHERE maker = 'publisher'";
	wait_for($standby, $rows, query($publisher, $rows));
	cmp_ok(
		query(
			$standby, "SELECT count(*) FROM made WHERE maker = 'subscriber'"),
		'>=', @own,
		"$what: the subscriber's own rows are there, too");
	$standby->restart;
	is( query(
			$standby,
			"SELECT array_agg(worker_id ORDER BY worker_id) FROM @{[ ceilings() ]}"
		),
		"{$worker_id,$own_id}",
		"$what: the ceilings of both are there");
	server_is_open($standby);
	cmp_ok(next_key($standby), '>', $own[-1],
		"$what: after a restart keys are above the last one");
	unlike(
		slurp_file($standby->logfile, $log_begins),
		qr/(?:WARNING|ERROR|FATAL|PANIC):.*(?:snowid[' ]|ceiling|replication state)/,
		"$what: no message of snowid's at WARNING or above");
	$_->stop foreach $standby, $publisher;
	return;
}

becomes_subscriber(
	'by number',
	pair_of_servers('number', 'snowid.worker_id = 1', 'snowid.worker_id = 2'),
	1,
	2);

my $redis = SnowidRedis->start('redis');
my ($publisher, $standby) = pair_of_servers(
	'claim',
	claim_settings('publisher', $redis),
	claim_settings('standby',   $redis));
poll($standby, 'worker_id IS NOT NULL');
becomes_subscriber('by Redis', $publisher, $standby, worker_id($publisher),
	worker_id($standby));

done_testing();
