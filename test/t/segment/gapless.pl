# The manual's two recipes for numbers without gaps, as they are written there:
# under concurrent transactions that commit, roll back, delete what they have
# inserted or what has no number yet, or are killed with the server, no number is missing and none is there
# twice.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $page = slurp_file('doc/segment.md');

# The SQL of a section of the manual.
sub recipe
{
	my ($title) = @_;
	my ($sql)   = $page =~ /^### \Q$title\E\n.*?^```sql\n(.*?)^```/ms;
	return $sql // die "the manual has no recipe \"$title\"";
}

my $node = snowid_cluster('gapless', 'snowid.worker_id = 1');
$node->append_conf('postgresql.conf', 'synchronous_commit = on');
$node->start;
query($node, 'CREATE EXTENSION snowid');
server_is_open($node);
query($node, recipe('Numbered at COMMIT'));
query($node, recipe('Numbered after COMMIT'));

sub load
{
	my ($table) = @_;
	my $insert = "INSERT INTO $table (customer) VALUES ('x')";

	return (
		"$table-one\@4"      => "$insert;",
		"$table-two\@1"      => "BEGIN; $insert; $insert; COMMIT;",
		"$table-rollback\@2" => "BEGIN; $insert; ROLLBACK;",
		"$table-part\@1"     =>
		  "BEGIN; $insert; SAVEPOINT s; $insert; ROLLBACK TO s; COMMIT;",
		"$table-deleted\@1" =>
		  "BEGIN; $insert RETURNING id AS made \\gset\nDELETE FROM $table WHERE id = :made; COMMIT;",
		"$table-changed\@1" =>
		  "BEGIN; UPDATE $table SET customer = 'y' WHERE id = (SELECT id FROM $table ORDER BY id DESC LIMIT 1); COMMIT;"
	);
}

# Neither a gap nor a number that is there twice, and so many at least.
sub is_gapless
{
	my ($table, $least, $what) = @_;
	is( query(
			$node,
			"SELECT count(*) >= $least, count(*) = count(DISTINCT number), count(*) = max(number), min(number) FROM $table"
		),
		't|t|t|1',
		"$table: $what");
	return;
}

my $wanted = 0;
foreach my $round ('', 'killed', 'killed again')
{
	$wanted += 200;
	my $run = start_pgbench(
		$node,
		'postgres',
		'-c 6 -j 1 -T 600',
		load('bills'),
		load('invoices'),
		'invoices-gone@2' =>
		  'DELETE FROM invoices WHERE id = (SELECT id FROM invoices WHERE number IS NULL LIMIT 1) AND number IS NULL;'
	);
	my $job = start_pgbench(
		$node, 'postgres',
		'-c 3 -j 1 -T 600',
		number => 'SELECT number_invoices();');
	wait_for($node,
		"SELECT count(*) > $wanted AND (SELECT max(number) > $wanted FROM bills) FROM invoices WHERE number IS NOT NULL"
	);
	if ($round)
	{
		kill_all($node);
		stop_pgbench($_, 'finish') foreach $run, $job;
		$node->start;
		server_is_open($node);
	}
	else
	{
		ok(stop_pgbench($_), 'nobody is refused')
		  or diag $_->{out}
		  foreach $run, $job;
	}
	is_gapless('bills', $wanted, "numbered at COMMIT $round");
	query($node, 'SELECT number_invoices()');
	is_gapless('invoices', $wanted, "numbered after COMMIT $round");
}
is(query($node, 'SELECT number_invoices()'),
	0, 'each invoice is numbered once');
$node->stop;
done_testing();
