# Segments of a database whose owner is not a superuser: he can use them, and gets
# none of his code run with the rights of the process that fetches; his settings do
# not reach it.  Where there is no place for that process, callers are told.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('rights', 'snowid.max_wait = 20s');
let_hold($node);
$node->start;
query($node, 'CREATE ROLE owner LOGIN');
query($node, 'CREATE DATABASE shop OWNER owner');

sub as_owner
{
	my ($sql) = @_;
	return $node->safe_psql('shop', $sql, extra_params => [ '-U', 'owner' ]);
}

# What he gets, or the error.
sub owner_gets
{
	my ($sql) = @_;
	my (undef, $out, $err) =
	  $node->psql('shop', $sql, extra_params => [ '-U', 'owner' ]);
	return $out . $err;
}

as_owner(<<~EOF);
	CREATE SCHEMA evil;
	CREATE TABLE evil.seen (who text, what text);
	CREATE FUNCTION evil.equals(text, text) RETURNS boolean LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO evil.seen VALUES (current_user, 'operator');
		RETURN false;
	END \$\$;
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equals);
	CREATE FUNCTION evil.fires() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO evil.seen VALUES (current_user, 'trigger');
		RETURN NEW;
	END \$\$;
	ALTER DATABASE shop SET search_path = evil, public, pg_catalog;
	ALTER DATABASE shop SET default_transaction_read_only = on;
	ALTER DATABASE shop SET default_transaction_isolation = serializable;
	ALTER DATABASE shop SET synchronous_commit = off;
	EOF
if ($node->pg_version >= 17)
{
	query($node, 'ALTER DATABASE shop SET transaction_timeout = 1');
	$ENV{PGOPTIONS} = '-c transaction_timeout=0';
}
as_owner(<<~EOF);
	SET default_transaction_read_only = off;
	CREATE EXTENSION snowid_segments SCHEMA public;
	INSERT INTO public.snowid_segments (biz_tag) VALUES ('a');
	EOF
is(owner_gets("SELECT public.snowid_number('a')"),
	1, 'an owner who is not a superuser has segments, whatever he has set');
is(as_owner("SELECT count(*) FROM evil.seen"),
	0, 'and no operator of his is called for them');

my $write = 'SET default_transaction_read_only = off; ';
foreach my $attempt (
	'CREATE TRIGGER t BEFORE UPDATE ON public.snowid_segments FOR EACH ROW EXECUTE FUNCTION evil.fires()',
	'CREATE RULE r AS ON UPDATE TO public.snowid_segments DO ALSO SELECT 1',
	'ALTER TABLE public.snowid_segments DISABLE TRIGGER ALL',
	'ALTER TABLE public.snowid_segments ADD CHECK (evil.equals(biz_tag, biz_tag))',
	'ALTER EXTENSION snowid_segments DROP TABLE public.snowid_segments',
	'DROP TABLE public.snowid_segments',
	'CREATE INDEX ON public.snowid_segments (evil.equals(biz_tag, biz_tag))',
	'CREATE TRIGGER t BEFORE INSERT ON evil.seen EXECUTE FUNCTION public.snowid_segments_guard()'
  )
{
	like(
		owner_gets("$write$attempt"),
		qr/must be owner|permission denied|cannot drop|requires/,
		"refused: $attempt");
}

as_owner(<<~EOF);
	$write
	CREATE TABLE public.mine (LIKE public.snowid_segments INCLUDING DEFAULTS);
	INSERT INTO public.mine (biz_tag) VALUES ('b');
	CREATE TRIGGER t BEFORE UPDATE ON public.mine FOR EACH ROW EXECUTE FUNCTION evil.fires();
	INSERT INTO public.snowid_segments (biz_tag, source) VALUES ('b', 'public.mine');
	EOF
is(owner_gets("SELECT public.snowid_number('b')"),
	1, 'a table of his as the source');
is(as_owner("SELECT DISTINCT who, what FROM evil.seen"),
	'owner|trigger', 'its trigger runs with his rights');

# What would run at COMMIT, when the process has its own rights again.
as_owner(<<~EOF);
	$write
	CREATE TABLE public.later (LIKE public.snowid_segments INCLUDING DEFAULTS);
	INSERT INTO public.later (biz_tag) VALUES ('d');
	CREATE CONSTRAINT TRIGGER t AFTER UPDATE ON public.later
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION evil.fires();
	INSERT INTO public.snowid_segments (biz_tag, source) VALUES ('d', 'public.later');
	EOF
like(
	owner_gets("SELECT public.snowid_number('d')"),
	qr/The last error was: cannot fire deferred trigger within security-restricted operation\./,
	'a deferred trigger of his');
is(as_owner("SELECT DISTINCT who, what FROM evil.seen"),
	'owner|trigger', 'does not run with other rights');

$node->safe_psql('shop', <<~EOF);
	SET default_transaction_read_only = off;
	CREATE TABLE public.theirs (LIKE public.snowid_segments);
	EOF
like(
	owner_gets(
		"${write}INSERT INTO public.snowid_segments (biz_tag, source) VALUES ('c', 'public.theirs')"
	),
	qr/permission denied for the source of a segment/,
	'a table that is not his is no source');

# What he sets in a trigger, for the session.
as_owner(<<~EOF);
	$write
	CREATE TABLE public.sets (LIKE public.snowid_segments INCLUDING DEFAULTS);
	INSERT INTO public.sets (biz_tag) VALUES ('e');
	CREATE FUNCTION evil.sets() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM set_config('search_path', 'evil, public, pg_catalog', false);
		RETURN NEW;
	END \$\$;
	CREATE TRIGGER t BEFORE UPDATE ON public.sets FOR EACH ROW EXECUTE FUNCTION evil.sets();
	INSERT INTO public.snowid_segments (biz_tag, source, step, cover) VALUES ('e', 'public.sets', 10, '0');
	EOF
is( owner_gets(
		"SELECT max(public.snowid_number('e')) FROM pg_catalog.generate_series(1, 50)"
	),
	50,
	'a trigger of his that sets search_path');
is(as_owner("SELECT DISTINCT who, what FROM evil.seen"),
	'owner|trigger', 'has no operator of his called for other tables');

#---- Names that become another table's ----

reload_with($node, 'snowid.max_wait' => '1min');
query($node, 'CREATE DATABASE swap OWNER owner');
my @psql = ('psql', '-XAtq', '-d', $node->connstr('swap'), '-U');

sub swap
{
	my ($sql) = @_;
	return $node->safe_psql('swap', $sql, extra_params => [ '-U', 'owner' ]);
}

# A statement of somebody's, in the background.
sub begin_psql
{
	my ($user, $sql) = @_;
	my $run = { out => '' };
	$run->{handle} = IPC::Run::start([ @psql, $user, '-c', $sql ],
		'<', '/dev/null', '>&', \$run->{out},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $run;
}

sub end_psql
{
	my ($run) = @_;
	$run->{handle}->finish;
	return $run->{out};
}

swap(<<~EOF);
	CREATE SCHEMA s;
	CREATE EXTENSION snowid_segments SCHEMA s;
	INSERT INTO s.snowid_segments (biz_tag) VALUES ('first'), ('second');
	INSERT INTO s.snowid_segments (biz_tag, period, format) VALUES ('day', 'day', '{YYYYMMDD}-{N:2}');
	CREATE SCHEMA other;
	CREATE TABLE other.seen (who text, what text);
	GRANT ALL ON other.seen TO PUBLIC;
	CREATE FUNCTION other.sees(what text) RETURNS text LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO other.seen VALUES (current_user, what);
		RETURN what;
	END \$\$;
	CREATE FUNCTION other.fires() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM other.sees('trigger');
		RETURN NEW;
	END \$\$;
	CREATE SCHEMA s_next;
	CREATE TABLE s_next.snowid_segments (LIKE s.snowid_segments INCLUDING DEFAULTS);
	INSERT INTO s_next.snowid_segments (biz_tag, max_id, limit_id) VALUES ('first', 0, 0), ('second', 1000, NULL);
	CREATE TRIGGER t BEFORE UPDATE ON s_next.snowid_segments FOR EACH ROW EXECUTE FUNCTION other.fires();
	EOF
my $to_other =
  'ALTER SCHEMA s RENAME TO s_last; ALTER SCHEMA s_next RENAME TO s';
my $to_ours =
  'ALTER SCHEMA s RENAME TO s_next; ALTER SCHEMA s_last RENAME TO s';

# The process has looked up the name for one of its statements, and not resolved it.
my $at = 'quote_qualified_identifier';
foreach ([ 'first', '' ], [ 'second', $at ])
{
	my ($tag, $after) = @$_;
	wait_for($node,
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'snowid segments' AND datname = 'swap'"
	);
	hold_process($node, 'snowid segments', $at, $after);
	my $caller = begin_psql('owner', "SELECT s.snowid_number('$tag')");
	held_process($node);
	swap($to_other);
	let_go($node);
	is(end_psql($caller), "1\n",
		"the schema is another one from the $tag statement on: the number is of the table"
	);
	swap($to_ours);
}
is(swap('SELECT count(*) FROM other.seen'),
	0, 'and no trigger of his is called');

swap(<<~EOF);
	DROP TABLE s_next.snowid_segments;
	CREATE VIEW s_next.snowid_segments AS SELECT 'day' AS biz_tag, other.sees('view') AS format;
	EOF
my $holder =
  $node->background_psql('swap', extra_params => [ '-U', 'owner' ]);
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $reader = begin_psql(
	scalar getpwuid($<),
	"SELECT s.snowid_period_parse('day', serial), pg_advisory_lock(1) FROM (VALUES ('20261121-01'), ('20261122-01')) v (serial)"
);
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted");
swap($to_other);
$holder->quit;
like(
	end_psql($reader),
	qr/the table of a segment was renamed meanwhile/,
	'a serial is not read by the format of another table');
is(swap('SELECT count(*) FROM other.seen'), 0, 'nor is a view of his read');

#---- No place for the process ----

query($node,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
);
$node->append_conf('postgresql.conf', 'max_worker_processes = 3');
configure($node, 'snowid.max_wait = 1s');
$node->restart;
like(
	sql_error($node, "SELECT snowid_number('a')"),
	qr/^55000: no number of "a" is reserved\nDETAIL:  No process could be started to reserve some\.\nHINT:  Raise max_worker_processes\./,
	'callers are told that there is no place for the process');
$node->stop;
done_testing();
