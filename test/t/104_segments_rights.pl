# Segments of a database whose owner is not a superuser: he can use them, and gets
# none of his code run with the rights of the process that fetches; his settings do
# not reach it.  Where there is no place for that process, callers are told.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('rights', 'snowid.max_wait = 20s');
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
	CREATE EXTENSION snowid SCHEMA public;
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
	'ALTER EXTENSION snowid DROP TABLE public.snowid_segments',
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

#---- No place for the process ----

query($node,
	"CREATE EXTENSION snowid; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
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
