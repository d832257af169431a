# A tag's numbers were used up; in its next period an error that ends the transaction of
# the process is not taken for that.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('s1', '');
$node->start;
query($node, <<~EOF);
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag, period, limit_id) VALUES ('a', 'day', 3);
	EOF
my $call = "SELECT number FROM snowid_period_number('a')";
is(query($node, $call), $_, "number $_ of the period") foreach 1 .. 3;
like(
	sql_error($node, $call),
	qr/^2200H: the numbers of "a" are used up/,
	'the numbers of the period are used up');
query($node, 'CREATE INDEX other ON snowid_segments (description)');
set_skew($node, 86400);
like(
	sql_error($node, $call),
	qr/^55000: no numbers available for segment "a"/,
	'an error in the next period is not taken for the end of the numbers');
query($node, 'DROP INDEX other');
is(query($node, $call), 1, 'the next period has numbers');
$node->stop;

done_testing();
