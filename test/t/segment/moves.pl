# A central table moves from one server to another while a third one, which has it as its
# source, knows nothing of that yet: the old one refuses its ranges, and no number is
# handed out twice, in the order of steps that the manual has.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;

# a has its ranges from b, which moves to c.
my ($a, $b, $c) = map {
	my $node =
	  snowid_cluster("s$_", "snowid.worker_id = $_\nsnowid.max_wait = 1min");
	$node->start;
	query($node,
		'CREATE EXTENSION snowid_segments; CREATE EXTENSION postgres_fdw');
	$node
} 1 .. 3;

sub see
{
	my ($node, $name, $other) = @_;
	query($node, source_in($name, $other, 'postgres'));
	return;
}
see($a, 'b', $b);
see($a, 'c', $c);
see($b, 'c', $c);
add_tag($b, 'plain', step   => 10,      cover => 0);
add_tag($b, 'month', period => 'month', step  => 10, cover => 0);
add_tag($a, 'plain', source => 'b',     step  => 10, cover => 0);
add_tag(
	$a, 'month',
	source => 'b',
	period => 'month',
	step   => 10,
	cover  => 0);

my %call = (
	plain => "SELECT snowid_number('plain')",
	month => "SELECT (snowid_period_number('month')).number");
my %seen;

# So many numbers of a server; none was seen before.
sub take
{
	my ($node, $tag, $n) = @_;
	my @numbers = split /\n/,
	  query($node, "$call{$tag} FROM generate_series(1, $n)");
	my @twice = grep { $seen{$tag}{$_}++ } @numbers;
	is("@twice", '', $node->name . ": no number of $tag comes twice");
	return;
}

foreach my $tag (sort keys %call)
{
	take($a, $tag, 25);
	take($b, $tag, 25);
}

sub wait_up_to
{
	my ($node, $max) = @_;
	reload_with($node, 'snowid.worker_id' => 1, 'snowid.max_wait' => $max);
	return;
}

# 1. The old server: from here on it hands out nothing itself.  2. The new one.
wait_up_to($b, '1s');
foreach my $tag (sort keys %call)
{
	my $row = query($b,
		"UPDATE snowid_segments SET source = 'c' WHERE biz_tag = '$tag' RETURNING format('(%L, %L, %s, %s)', biz_tag, period, max_id, step)"
	);
	like(
		sql_error($b, $call{$tag}),
		qr/Its source has no such row/,
		"$tag: between the steps the old server has no numbers");
	like(
		sql_error($c, $call{$tag}),
		qr/segment "$tag" does not exist/,
		"$tag: between the steps the new server has no numbers");

	my $periods = query($b,
		"SELECT coalesce(string_agg(format('(%L, %L, %s)', biz_tag, period, max_id), ','), '') FROM snowid_segment_periods WHERE biz_tag = '$tag'"
	);
	my @commands =
	  "INSERT INTO snowid_segments (biz_tag, period, max_id, step) VALUES $row";
	push @commands,
	  "INSERT INTO snowid_segment_periods (biz_tag, period, max_id) VALUES $periods"
	  if $periods;
	query($c, join('; ', 'BEGIN', @commands, 'COMMIT'));
	take($c, $tag, 15);
}
wait_up_to($b, '1min');
take($b, $_, 15) foreach sort keys %call;

# The third server still asks the old one, and uses up what it has in memory.
wait_up_to($a, '1s');
foreach my $tag (sort keys %call)
{
	my $refused = '';
	wait_until(
		'the last number in memory',
		sub {
			my ($rc, $out, $err) = $a->psql('postgres', $call{$tag});
			$seen{$tag}{$out}++ if $rc == 0;
			$refused = $err;
			return $refused =~ /a source itself/;
		});
	like(
		$refused,
		qr/no numbers available for segment "$tag"\nDETAIL:  The last error was: Its source has a source itself\./,
		"$tag: a server that gets its own ranges from elsewhere gives none, and the error says why"
	);
	is( segment_status($a, $tag, 'error'),
		'Its source has a source itself',
		"$tag: the status says why");
	is(scalar(grep { $_ > 1 } values $seen{$tag}->%*),
		0, "$tag: no number comes twice until then");
}
like(
	slurp_file($a->logfile),
	qr/cannot reserve numbers: Its source has a source itself/,
	'the log says why');

# 3. The other servers.
wait_up_to($a, '1min');
query($a,
	"UPDATE snowid_segments SET source = 'c', max_id = max_id + 1 WHERE biz_tag = '$_'"
) foreach sort keys %call;
foreach my $tag (sort keys %call)
{
	take($_, $tag, 25) foreach $a, $b, $c;
}
$_->stop foreach $a, $b, $c;
done_testing();
