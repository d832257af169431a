# Positions that no keeper wrote are refused with the origin's name, and not
# calculated with; names that are no layout of snowid's are not ours.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $node =
  snowid_cluster('wild', "snowid.worker_id = 1\nsnowid.max_lead = 10ms");
start_and_open($node);

sub keys_go_on
{
	server_is_open($node);
	return makes_keys_as($node, 1, @_);
}

# Moves an origin while the gate is closed, or drops it where $ms is empty.
sub move
{
	my ($name, $ms) = @_;
	configure($node, 'snowid.worker_id = -1');
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT reason ~ 'no worker ID' FROM snowid_status()")
	  or die;
	query(
		$node,
		defined $ms
		? sprintf("SELECT pg_replication_origin_advance('$name', '%X/%X')",
			$ms >> 32, $ms & 0xffffffff)
		: "SELECT pg_replication_origin_drop('$name')");
	configure($node, "snowid.worker_id = 1\nsnowid.max_lead = 10ms");
	$node->reload;
	return;
}

sub is_refused
{
	my ($name, $ms, $told) = @_;
	move($name, $ms);
	$node->poll_query_until('postgres',
		"SELECT reason ~ 'position' FROM snowid_status()")
	  or die "$name at $ms";
	like(
		query($node, 'SELECT reason FROM snowid_status()'),
		qr/^snowid cannot use its replication origin: The position of replication origin "\Q$name\E" is \Q$told\E, which is not a Unix time/,
		"$name at $ms: refused with its name");
	return;
}

#---- Positions ----

my $own  = 'snowid_1288834974657_5_5_12_0_1';
my $last = 1288834974657 + (1 << 41) - 1;
keys_go_on('keys of a new server');
foreach
  my $ms (1, 1288834974656, $last + 1, 2253088648659904, 1 << 52, 1 << 53,
	9223372036854775807)
{
	is_refused($own, $ms, $ms);
	move($own);
	keys_go_on('dropped: keys continue');
}
is_refused($own, 18446744073709551614, -2);
move($own);
keys_go_on('dropped: keys continue');

# Of another pair, and of another layout.
foreach my $other ('snowid_1288834974657_5_5_12_0_2',
	'snowid_1577836800000_5_5_12_0_2')
{
	query($node, "SELECT pg_replication_origin_create('$other')");
	is_refused($other, 2253088648659904, 2253088648659904);
	move($other);
	keys_go_on('dropped: keys continue');
}

# A session that reads keys before the keeper has decided sees no layout in them.
configure($node, 'snowid.worker_id = -1');
$node->restart;
poll($node, q(reason ~ 'no worker ID'));
query($node, <<~EOF);
	SELECT pg_replication_origin_create('snowid_1577836800000_5_5_12_0_2');
	SELECT pg_replication_origin_advance('snowid_1577836800000_5_5_12_0_2', 'FFFFF/0');
	EOF
is(sql_error($node, "SELECT snowid_timestamp($last_key)"),
	'', 'no pair, and a wild position of another layout: keys can be read');
move('snowid_1577836800000_5_5_12_0_2');
keys_go_on('dropped: keys continue');

#---- Names ----

my @names = map { "snowid_$_" } (
	'1288834974657_32_5_12_0_1',
	'1288834974657_5_-1_12_0_1',
	'1288834974657_5_5_64_0_1',
	'1288834974657_17_5_12_0_1',
	'1288834974657_5_23_12_0_1',
	'1288834974657_5_5_19_0_1',
	'1288834974657_2147483647_2147483647_2147483647_0_1',
	'1288834974657_5_5_12_32_1',
	'1288834974657_5_5_12_0_32',
	'1288834974657_5_5_12_-1_1',
	'1288834974657_5_5_12_0_-1',
	'253402300800000_5_5_12_0_1',
	'-62135596800001_5_5_12_0_1',
	'9223372036854775807_5_5_12_0_1',
	'-9223372036854775808_5_5_12_0_1',
	'99999999999999999999_5_5_12_0_1',
	'1288834974657_5_5_12_0',
	'1288834974657_5_5_12_0_1_1',
	'01288834974657_5_5_12_0_1',
	'',
	'%s%n');
configure($node, 'snowid.worker_id = -1');
$node->reload;
$node->poll_query_until('postgres',
	"SELECT reason ~ 'no worker ID' FROM snowid_status()")
  or die;
$node->append_conf('postgresql.conf', origin_places($node) . ' = 40');
foreach my $name (@names)
{
	query($node, "SELECT pg_replication_origin_create('$name')");
}
$node->restart;
query($node,
	"SELECT pg_replication_origin_advance('$_', 'FFFFFFFF/FFFFFFF0')")
  foreach @names;
configure($node, "snowid.worker_id = 1\nsnowid.max_lead = 10ms");
$node->reload;
keys_go_on('origins whose names are no layout of ours stop no key');
$node->restart;
keys_go_on(
	'origins whose names are no layout of ours stop no key after a restart, either'
);
is(query($node, 'SELECT count(*) FROM pg_replication_origin'),
	@names + 1, 'origins whose names are no layout of ours are left alone');

#---- In the range, but its end ----

move($own, $last);
$node->poll_query_until('postgres',
	"SELECT coalesce(reason, '') !~ 'no worker ID' FROM snowid_status()")
  or die;
like(
	sql_error($node, 'SELECT snowid_next()'),
	qr/^(58000|2200H): /,
	'the end of the range makes no key');
configure($node, "snowid.worker_id = 2\nsnowid.max_lead = 10ms");
$node->reload;
server_is_open($node);
makes_keys_as($node, 2, 'another worker ID makes keys at the clock');
$node->stop;
done_testing();
