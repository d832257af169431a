# Recipes of the manual, by their own statements.  The outbox of doc/recipes.md: a
# transaction that commits late has the smaller key; its reader skips nothing, where one
# that remembers the greatest key does; and with the lock of the page writers take turns
# until their COMMIT.  Numbers without gaps, of doc/segment.md: under concurrent
# transactions that commit, roll back, delete what they have inserted or what has no
# number yet, or are killed with the server, no number is missing and none is there twice.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename 'dirname';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $doc = abs_path(dirname(__FILE__) . '/../../..') . '/doc';

#---- The outbox ----

my $page     = slurp_file("$doc/recipes.md");
my ($table)  = $page =~ /^(CREATE TABLE outbox .*?^\);)$/ms;
my ($reader) = $page =~ /^SELECT body (FROM outbox\nWHERE .*?;)$/ms;
my ($lock)   = $page =~ /^(SELECT pg_advisory_xact_lock\(.*?;)/m;
ok($table && $reader && $lock,
	'the page has the table, the reader and the lock');

my $node = snowid_cluster('recipes',
	"snowid.worker_id = 1\nmax_prepared_transactions = 2");
$node->append_conf('postgresql.conf', 'synchronous_commit = on');
start_and_open($node);
query($node, $table);

# A transaction that is not committed yet
sub prepare
{
	my ($name, @statements) = @_;
	return query($node,
		"BEGIN; @statements INSERT INTO outbox (body) VALUES ('$name'); PREPARE TRANSACTION '$name'"
	);
}

# What the page's reader gets, from where it was
my ($tx, $id) = (0, 0);

sub read_on
{
	my @bodies;
	foreach my $row (
		split /\n/,
		query(
			$node,
			"SELECT tx, id, body $reader" =~
			  s/\('0'::xid8, 0\)/('$tx'::xid8, $id)/r))
	{
		($tx, $id, my $body) = split /\|/, $row;
		push @bodies, $body;
	}
	return "@bodies";
}

prepare('early');
query($node, q{INSERT INTO outbox (body) VALUES ('late')});
is(read_on(), '',
	'the reader waits for a transaction that could still precede');
my $last = query($node, 'SELECT max(id) FROM outbox');
query($node, q{COMMIT PREPARED 'early'});
is(query($node, "SELECT count(*) FROM outbox WHERE id > $last"),
	'0', 'a reader that remembers the greatest key skips the row');
is(read_on(), 'early late', 'the reader of the page gets both rows');
is(read_on(), '',           'the reader of the page gets no row twice');

prepare('first', $lock);
like(
	sql_error($node, "SET lock_timeout = '100ms'; $lock"),
	qr/lock timeout/,
	'a second writer waits for the first one to commit');
query($node, q{COMMIT PREPARED 'first'});
query($node,
	"BEGIN; $lock INSERT INTO outbox (body) VALUES ('second'); COMMIT");
is( query(
		$node,
		"SELECT string_agg(body, ' ' ORDER BY id) FROM outbox WHERE id > $last AND body IN ('first', 'second')"
	),
	'first second',
	'the lock puts keys in the order of commits');

#---- Numbers without gaps ----

my $segments = slurp_file("$doc/segment.md");

# The SQL of a section of the manual.
sub recipe
{
	my ($title) = @_;
	my ($sql)   = $segments =~ /^### \Q$title\E\n.*?^```sql\n(.*?)^```/ms;
	return $sql // die "the manual has no recipe \"$title\"";
}

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
