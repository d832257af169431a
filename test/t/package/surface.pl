# What people write: layouts, the type snowid in JSON, and strings in which a backslash
# escapes; and another library beside it, with shared memory of its own.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('surface');

#---- Layouts that no server makes keys in ----

foreach my $bad (
	[
		'sonyflake',
		'A server cannot make keys in this layout: its timestamp is not in milliseconds.'
	],
	[
		'baidu',
		'A server cannot make keys in this layout: its timestamp is not in milliseconds.'
	],
	[
		'epoch=2020-01-01T00:00:00Z sequence=19',
		'A server cannot make keys in this layout: it has more than 16 datacenter bits, 22 worker bits or 18 sequence bits.'
	],
	[
		'epoch=1969-12-31T23:59:59.999Z worker=5',
		'A server cannot make keys in this layout: its epoch is not in the years from 1970 to 2247 (UTC).'
	],
	[
		'epoch=2248-01-01T00:00:00Z worker=5',
		'A server cannot make keys in this layout: its epoch is not in the years from 1970 to 2247 (UTC).'
	])
{
	my ($layout, $why) = @$bad;

	like(
		refused_start($node, "snowid.layout = '$layout'"),
		qr/WARNING: .*"snowid\.layout": "\Q$layout\E"\n.*DETAIL:  \Q$why\E\n.*FATAL:  invalid value for parameter "snowid\.layout": "\Q$layout\E"\n/s,
		"snowid.layout = '$layout' stops the start and says why");
}
like(
	refused_start(
		$node, "snowid.layout = 'pgedge'\nsnowid.datacenter_id = 1"),
	qr/FATAL:  invalid value for parameter "snowid\.datacenter_id": "1"/,
	'IDs must fit the layout');

# Extremes that are taken, where the clock is read right.
foreach my $good (
	[ 'Twitter',  1,    'twitter' ],
	[ 'pgedge',   1023, 'pgedge' ],
	[ 'mastodon', 0,    'mastodon' ],
	[ 'leaf',     1023, 'leaf' ],
	[
		'epoch=1970-01-01T00:00:00Z worker=5 sequence=16',
		31,
		'epoch=1970-01-01T00:00:00.000Z datacenter=0 worker=5 sequence=16'
	])
{
	my ($layout, $worker_id, $is) = @$good;
	my $server = snowid_cluster($layout =~ s/\W.*//r,
		"snowid.layout = '$layout'\nsnowid.worker_id = $worker_id");

	start_and_open($server);
	is( $server->safe_psql('postgres',
			<<~EOF), 't|t|t', "keys in the layout $layout");
		SELECT snowid_decode(key) = snowid_decode(key, '$layout'),
			snowid_timestamp(key) BETWEEN now() - interval '1 s' AND now() + interval '1 minute',
			'$is' IN (lower(current_setting('snowid.layout')), layout)
		FROM snowid_next() key, snowid_status()
		EOF
	$server->stop;
}

#---- The type snowid in JSON ----

configure($node, 'snowid.worker_id = 1');
start_and_open($node);
SKIP:
{
	skip 'COPY writes no JSON before PostgreSQL 19', 1
	  if $node->pg_version->major < 19;
	is( $node->safe_psql(
			'postgres',
			q{COPY (SELECT 1::bigint::snowid AS id, 1::bigint AS number) TO STDOUT (FORMAT json)}
		),
		'{"id":"0000000000001","number":1}',
		'COPY to JSON quotes the type snowid');
}

#---- Strings in which a backslash escapes ----

$node->safe_psql('postgres', 'CREATE DATABASE strings');
$node->safe_psql('strings',  old_strings($node) . 'CREATE EXTENSION snowid');
is($node->safe_psql('strings', <<~'EOF'), '0|1', 'its comments are whole');
	SELECT count(*) FILTER (WHERE d ~ ' gexec'), count(*) FILTER (WHERE strpos(d, '\gexec') > 0)
	FROM pg_proc, obj_description(oid, 'pg_proc') d WHERE proname ~ '^snowid'
	EOF

#---- Another library that is loaded before ----

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

SKIP:
{
	skip 'pg_stat_statements is not installed', 2
	  if !-e `pg_config --sharedir` =~
	  s/\n//r . '/extension/pg_stat_statements.control';

	$node->append_conf('postgresql.conf', <<~EOF);
		shared_preload_libraries = 'pg_stat_statements, snowid'
		restart_after_crash = on
		synchronous_commit = on
		EOF
	$node->restart;
	server_is_open($node);
	query($node, 'CREATE EXTENSION pg_stat_statements');
	both_work('both libraries work');
	my $log = -s $node->logfile;
	kill 'KILL', keeper_pid($node);
	$node->wait_for_log(qr/database system is ready to accept connections/,
		$log);
	server_is_open($node);
	both_work('both libraries work after a crash');
}
$node->stop;

done_testing();
