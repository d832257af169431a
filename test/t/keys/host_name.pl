# A server takes its worker ID from the end of its host's name, with the same
# configuration everywhere; a name without a number stops the start, and is shown.
# The name is read when the server starts, and not again.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $setting = "snowid.worker_id = 'hostname'\nsnowid.max_lead = 100ms";
my $node    = snowid_cluster('host', $setting);

# The host of a server has another name, for what is started from here on.
sub name_host
{
	my ($server, $name) = @_;
	put_beside($server, 'hostname', "$name\n");
	return;
}

# The IDs of a server's next key
sub ids
{
	my ($server) = @_;
	return query($server,
		'SELECT datacenter_id, worker_id FROM snowid_decode(snowid_next())');
}

#---- A name that tells ----

name_host($node, 'shop-db-12');
start_and_open($node);
is(ids($node), '0|12',
	'the worker ID is the number that the host name ends in');
is(status($node, 'worker_id, worker_id_source'),
	'12|hostname', 'the status says where the worker ID is from');

#---- A name that changes ----

my $key = next_key($node);
name_host($node, 'shop-db-13');
configure($node, "$setting\nsnowid.datacenter_id = 2");
$node->reload;
poll($node, 'datacenter_id = 2');
is(ids($node), '2|12',
	'a server whose host is renamed keeps its worker ID over a reload');
configure($node, $setting);
$node->restart;
server_is_open($node);
is(ids($node), '0|13',
	'a server that is restarted has the worker ID of the new name');
cmp_ok(next_key($node), '>', $key,
	'the keys with the new worker ID are greater');
reload_with($node, 'snowid.worker_id' => 13);
poll($node, "worker_id_source = 'setting'");
is(ids($node), '0|13',
	'the same number can be set in place of the host name');

#---- Names that do not ----

$node->stop;
foreach my $name (
	'db', 'db12',        'db-',         'db-1a',
	'7',  'db-x.site-7', 'ip-10-0-0-7', '10-0-0-7',
	'')
{
	name_host($node, $name);
	like(
		refused_start($node, $setting),
		qr/FATAL:  invalid value for parameter "snowid\.worker_id": "hostname"\n.*DETAIL:  The host name "\Q$name\E" must end in a hyphen and a number, and not in an address\./,
		"the host name \"$name\" stops the start");
}
foreach my $name ('db-32', 'db-2147483648', 'db-99999999999999999999')
{
	name_host($node, $name);
	like(
		refused_start($node, $setting),
		qr/FATAL:  invalid value .*\n.*DETAIL:  The number in the host name "$name" is not in the layout's range, from 0 to 31\./,
		"the host name \"$name\", for which the layout has no room, stops the start"
	);
}

foreach my $name ('db-010', 'db-00', 'db-2026-07.example.com', 'db-09')
{
	name_host($node, $name);
	like(
		refused_start($node, $setting),
		qr/FATAL:  invalid value .*\n.*DETAIL:  The number in the host name "\Q$name\E" must not begin with 0\./,
		"the host name \"$name\", whose number begins with 0, stops the start"
	);
}

#---- Names with more in them ----

my %worker = (
	'pg-3.site-1.example.com' => 3,
	'db-2026-7'               => 7,
	'rack1-2-3-4'             => 4,
	'DB-0'                    => 0);
foreach my $name (sort keys %worker)
{
	name_host($node, $name);
	$node->start;
	server_is_open($node);
	is(ids($node), "0|$worker{$name}",
		"the host name \"$name\" gives worker ID $worker{$name}");
	$node->stop;
}

#---- A job ----

name_host($node, 'shop-1-initdb');
$node->start;
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^55000: snowid has no worker ID\nDETAIL:  The host name "shop-1-initdb" does not end in a number\./,
	'a job that prepares the directory of server 1 can start it, and makes no keys'
);
$node->stop;

#---- A reload ----

name_host($node, 'db');
configure($node, "snowid.worker_id = 5\nsnowid.max_lead = 100ms");
$node->start;
server_is_open($node);
my $log = -s $node->logfile;
configure($node, $setting);
$node->reload;
$node->wait_for_log(
	qr/invalid value for parameter "snowid\.worker_id": "hostname"\n.*DETAIL:  The host name "db" must end/,
	$log);
is(ids($node), '0|5',
	'a reload to a host name without a number changes nothing');

#---- One source ----

$node->stop;
name_host($node, 'shop-1-initdb');
like(
	refused_start($node, "$setting\nsnowid.redis_url = 'redis://localhost'"),
	qr/FATAL:  invalid value for parameter "snowid\.worker_id": "hostname"\n.*DETAIL:  With snowid\.redis_url, the worker ID is claimed\./,
	'the host name beside a Redis stops the start');

done_testing();
