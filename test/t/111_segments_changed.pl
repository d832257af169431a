# What is changed by hand while numbers are taken: rows that are deleted while a range
# of them is being fetched, rows of periods that are over, and tags that move to
# another source and back.  No number comes twice, and none is lost without need.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('changed', 'snowid.max_wait = 60s');
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
let_hold($node);
$node->start;

# Noon of 2026-11-21, and all the time: so no lock_timeout ends a wait.
stop_clock($node, 1795262400000);
query($node, <<~EOF);
	CREATE EXTENSION snowid;
	INSERT INTO snowid_segments (biz_tag, period) VALUES ('bill', 'day'), ('receipt', 'day');
	EOF

# What a statement gives whose numbers the process can fetch only when $release was
# called: the process waits for a lock until then.
sub answer_behind_lock
{
	my ($sql, $release) = @_;
	my $caller = $node->background_psql('postgres', on_error_stop => 0);

	$caller->query_until(qr/^asked$/m, "\\echo asked\n$sql;\n");
	wait_for($node,
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid segments' AND wait_event_type = 'Lock'"
	);
	$release->();
	my $answer = $caller->query_until(qr/^done$/m, "\\echo done\n");
	$caller->quit;
	return $answer =~ s/\n?done\n//r;
}

#---- Deleted while a range is fetched ----

# The newest row is that of a day in the future, of which 57 numbers were used.
sub begin_future
{
	my ($tag) = @_;
	query($node,
		"INSERT INTO snowid_segment_periods VALUES ('$tag', '2030-01-01', 57)"
	);
	return
	  "DELETE FROM snowid_segment_periods WHERE biz_tag = '$tag' AND period > '2027-01-01'";
}

# The rows of a tag.
sub days
{
	my ($tag) = @_;
	return query($node,
		"SELECT string_agg(period::text, ' ' ORDER BY period) FROM snowid_segment_periods WHERE biz_tag = '$tag'"
	);
}

my $delete  = begin_future('bill');
my $deleter = $node->background_psql('postgres');
$deleter->query_safe("BEGIN; $delete");
is( answer_behind_lock(
		"SELECT * FROM snowid_period_number('bill')",
		sub { $deleter->query_safe('COMMIT') }),
	'2026-11-21|1',
	'a day of the future that is deleted while a range of it is fetched');
$deleter->quit;
is(days('bill'), '2026-11-21', 'is not made again');

$delete = begin_future('receipt');
query($node, "BEGIN; $delete; PREPARE TRANSACTION 'p'");
is( answer_behind_lock(
		"SELECT * FROM snowid_period_number('receipt')",
		sub { query($node, "COMMIT PREPARED 'p'") }),
	'2026-11-21|1',
	'nor by COMMIT PREPARED');
is(days('receipt'), '2026-11-21', 'which makes none of it');

$node->stop;
done_testing();
