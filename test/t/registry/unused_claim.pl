# A record that says that a server has an ID which it does not use (Redis' answer
# got lost): the server shows it as such and gives it back.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $redis = SnowidRedis->start('redis');
my $a     = claiming('a', $redis);
wait_for_claim($a);
my $b = claiming('b', $redis);
wait_for_claim($b);
is(join(' ', map { worker_id($_) } $a, $b), '0 1',
	'two servers have two IDs');

# As if the server had claimed the ID 5 as well, and never heard of it.
sub claim_another
{
	my $json   = $redis->query('HGET', 'snowid', '0:0') =~ s{\\/}{/}gr;
	my %record = $json =~ /"(\w+)":"([^"]*)"/g;
	$redis->plant('0:5', %record, claim => 'e' x 16, interval => 3600_000);
	return;
}

sub shown
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		"SELECT worker_id, state, is_me FROM snowid_claims()");
}

claim_another();
is( shown($a),
	"0|live|t\n1|live|f\n5|unused|f",
	'it shows the ID that it does not use');
is( shown($b),
	"0|live|f\n1|live|t\n5|live|f",
	'another server cannot know that the ID is not used');
like(
	sql_error($b, 'SELECT snowid_release(0, 5)'),
	qr/^55000: worker ID 5 of datacenter 0 is in use/,
	'another server cannot release the ID');
is($a->safe_psql('postgres', 'SELECT snowid_release(0, 5)'),
	'released', 'it releases it at once');
is(shown($a),     "0|live|t\n1|live|f", 'the ID that was given back is free');
is(worker_id($a), 0, 'a server that gives the other ID back keeps its own');

claim_another();
$a->restart;
wait_for_claim($a);
is(shown($a), "0|live|t\n1|live|f", 'a server gives it back as it starts');
is(worker_id($a), 0,
	'a server that gives it back as it starts keeps its own');

$_->stop foreach $a, $b;
done_testing();
