# The outbox of doc/recipes.md, by its own statements: a transaction that commits late
# has the smaller key.  Its reader skips nothing, where one that remembers the greatest
# key does; and with the lock of the page writers take turns until their COMMIT.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename 'dirname';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $page =
  slurp_file(abs_path(dirname(__FILE__) . '/../../..') . '/doc/recipes.md');
my ($table)  = $page =~ /^(CREATE TABLE outbox .*?^\);)$/ms;
my ($reader) = $page =~ /^SELECT body (FROM outbox\nWHERE .*?;)$/ms;
my ($lock)   = $page =~ /^(SELECT pg_advisory_xact_lock\(.*?;)/m;
ok($table && $reader && $lock,
	'the page has the table, the reader and the lock');

my $node = snowid_cluster('outbox',
	"snowid.worker_id = 1\nmax_prepared_transactions = 2");
start_and_open($node);
$node->safe_psql('postgres', $table);

# A transaction that is not committed yet
sub prepare
{
	my ($name, @statements) = @_;
	return $node->safe_psql('postgres',
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
		$node->safe_psql(
			'postgres',
			"SELECT tx, id, body $reader" =~
			  s/\('0'::xid8, 0\)/('$tx'::xid8, $id)/r))
	{
		($tx, $id, my $body) = split /\|/, $row;
		push @bodies, $body;
	}
	return "@bodies";
}

prepare('early');
$node->safe_psql('postgres', q{INSERT INTO outbox (body) VALUES ('late')});
is(read_on(), '',
	'the reader waits for a transaction that could still precede');
my $last = $node->safe_psql('postgres', 'SELECT max(id) FROM outbox');
$node->safe_psql('postgres', q{COMMIT PREPARED 'early'});
is( $node->safe_psql(
		'postgres', "SELECT count(*) FROM outbox WHERE id > $last"),
	'0',
	'a reader that remembers the greatest key skips the row');
is(read_on(), 'early late', 'the reader of the page gets both rows');
is(read_on(), '',           'the reader of the page gets no row twice');

prepare('first', $lock);
like(
	sql_error($node, "SET lock_timeout = '100ms'; $lock"),
	qr/lock timeout/,
	'a second writer waits for the first one to commit');
$node->safe_psql('postgres', q{COMMIT PREPARED 'first'});
$node->safe_psql('postgres',
	"BEGIN; $lock INSERT INTO outbox (body) VALUES ('second'); COMMIT");
is( $node->safe_psql(
		'postgres',
		"SELECT string_agg(body, ' ' ORDER BY id) FROM outbox WHERE id > $last AND body IN ('first', 'second')"
	),
	'first second',
	'the lock puts keys in the order of commits');

$node->stop;
done_testing();
