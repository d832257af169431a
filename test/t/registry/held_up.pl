# A process that is held up between two readings of the clock waits no longer than it
# should: the process "snowid registry", which is about to call Redis again.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $fake = SnowidRedis->proxy(SnowidRedis->start('redis'), sub { $_[0] });

# Says that the registry is empty, and may be asked again after so many ms.
sub settling
{
	my ($ms) = @_;
	return strings('settling', $ms, 1700000000000);
}

my $node = claiming_cluster('slow', $fake, $short);
$fake->mode('claim only:' . settling(1));
append_to_file("$node->{skew_file}.slow", '');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
poll($node, "registry ~ 'The registry is empty'");

foreach my $ms (1 .. 20)
{
	$fake->mode('claim only:' . settling($ms));
	answered($node);
}
pass('a process that is held up calls Redis again and again');
unlink "$node->{skew_file}.slow";
$fake->mode('');
wait_for_claim($node);
pass('a process that was held up claims a worker ID at last');
$node->stop;
done_testing();
