# Numbers of several tags are fetched in one transaction.  Where that fails because of
# one of them, the others get theirs all the same, and that one when it can.  What is
# no table of the extension's gives no numbers.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('together',
	"snowid.worker_id = 1\nsnowid.max_wait = '10min'");
start_and_open($node);
query($node, <<~'EOF');
	CREATE EXTENSION snowid_segments;
	INSERT INTO snowid_segments (biz_tag) VALUES ('a'), ('b'), ('c'), ('d'), ('e'), ('first');
	CREATE SEQUENCE tries;
	-- from the second time on when it may
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		WHILE nextval('public.tries') > 1 AND NOT pg_try_advisory_xact_lock(1) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
		RAISE 'not today';
	END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON snowid_segments
		FOR EACH ROW WHEN (old.biz_tag = 'b') EXECUTE FUNCTION refuse();
	SELECT snowid_number('first');
	EOF

my %asks;
my %said;

# Asks for a number while the process stands still; returns when that is known.
sub ask_for
{
	my ($tag) = @_;
	$said{$tag} = '';
	$asks{$tag} = IPC::Run::start(
		[
			'psql', '-XAtq',
			'-d',   $node->connstr('postgres'),
			'-c',   "SELECT snowid_number('$tag')"
		],
		'<',
		'/dev/null',
		'>&',
		\$said{$tag});
	wait_for($node,
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'SELECT snowid_number(''$tag'')' AND wait_event_type = 'Extension'"
	);
	return;
}

sub is_answered
{
	my ($tag, $name) = @_;
	$asks{$tag}->finish;
	like($said{$tag}, qr/^\d+$/, $name);
	return;
}

# The process finds both wishes in one turn.
my $pid = process_pid($node, 'snowid segments');
END { kill 'CONT', $pid if $pid; }
my $session = $node->background_psql('postgres');
$session->query_safe('SELECT pg_advisory_lock(1)');
kill 'STOP', $pid;
ask_for($_) foreach qw(a b);
kill 'CONT', $pid;
is_answered('a', 'one of two fails: the other gets its number at once');
$session->quit;
wait_for($node,
	"SELECT error = 'not today' FROM snowid_segment_status() WHERE biz_tag = 'b'"
);
kill 'STOP', $pid;
ask_for('c');
kill 'CONT', $pid;
is_answered('c', 'so does who comes later');
query($node, 'DROP TRIGGER refuse ON snowid_segments');
is_answered('b', 'and that one as soon as it can');
kill 'STOP', $pid;
query($node, "SELECT snowid_segment_forget('b')");
ask_for($_) foreach qw(b e);
kill 'CONT', $pid;
is_answered($_, "$_ has numbers") foreach qw(b e);
is( query(
		$node,
		"SELECT count(DISTINCT xmin::text) FROM snowid_segments WHERE biz_tag IN ('b', 'e')"
	),
	1,
	'from then on, together with others again');

#---- Tables that are not the extension's ----

query($node, <<~EOF);
	CREATE TABLE other (biz_tag text);
	CREATE TRIGGER guard BEFORE INSERT ON other
		FOR EACH ROW EXECUTE FUNCTION snowid_segments_guard();
	EOF
like(
	sql_error($node, q(INSERT INTO other VALUES ('a'))),
	qr/^42703: the table of segments has no column "\w+"$/m,
	'the trigger of another table');
query($node, 'ALTER EXTENSION snowid_segments DROP TABLE snowid_segments');
like(
	sql_error($node, q(SELECT snowid_number('d'))),
	qr/^42704: segment "d" does not exist$/m,
	'a table that the extension does not own any more gives no numbers');
$node->stop;
done_testing();
