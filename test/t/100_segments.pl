# Segments: numbers from memory, a range at a time from snowid_segments.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('segments', 'snowid.worker_id = 1');
$node->start;
query($node, 'CREATE EXTENSION snowid');
query($node, "INSERT INTO snowid_segments (biz_tag) VALUES ('a'), ('b')");

is(query($node, "SELECT snowid_number('a')"), 1, 'the first number');
is( query(
		$node,
		"SELECT snowid_number('a'), snowid_number('a'), snowid_number('b')"),
	'2|3|1',
	'the next ones');
is( query(
		$node,
		"SELECT min(n), max(n), count(DISTINCT n) FROM snowid_numbers('a', 100000) n"
	),
	'4|100003|100000',
	'many');
is(query($node, "SELECT snowid_number_range('a', 10)"),
	'(100004,100013)', 'a range');
like(
	sql_error($node, "SELECT snowid_number('c')"),
	qr/^42704: segment "c" does not exist/,
	'no such tag');
$node->stop;
$node->start;
is(query($node, "SELECT snowid_number('a')"),
	100014, 'a clean stop loses nothing');
$node->stop;
done_testing();
