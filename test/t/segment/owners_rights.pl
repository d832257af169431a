# Segments of a database whose owner is not a superuser: none of the owner's code runs
# in the process that fetches, even if the owner owns the tables, and the owner's
# settings do not reach it.  A role learns only about its own tags.
use strict;
use warnings;

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSegments;
use SnowidTest;
use Test::More;

# What this database's settings would end is neither the clients, nor the sessions of the
# central server, which is this one; libpq of the server reads this, too.
my $node = snowid_cluster('rights', 'snowid.max_wait = 1s');
$ENV{PGOPTIONS} = '-c exit_on_error=off';
$ENV{PGOPTIONS} .= ' -c transaction_timeout=0' if $node->pg_version >= 17;
$node->start;
query($node, 'CREATE ROLE owner LOGIN; CREATE ROLE clerk LOGIN');
query($node, 'CREATE DATABASE shop OWNER owner');

# The answer that a role gets, or its error; retried if the process was too slow.
sub gets
{
	my ($role, $sql) = @_;
	my $answer = 'has not answered yet';

	while ($answer =~ /has not answered yet/)
	{
		my (undef, $out, $err) =
		  $node->psql('shop', $sql, extra_params => [ '-U', $role ]);
		$answer = $out . $err;
	}
	return $answer;
}

sub as_owner
{
	my ($sql) = @_;
	return $node->safe_psql('shop', $sql, extra_params => [ '-U', 'owner' ]);
}

as_owner(<<~EOF);
	CREATE SCHEMA evil;
	GRANT USAGE ON SCHEMA evil TO PUBLIC;
	CREATE TABLE evil.seen (who text, what text);
	GRANT ALL ON evil.seen TO PUBLIC;
	CREATE FUNCTION evil.sees(what text) RETURNS boolean LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO evil.seen VALUES (current_user, what);
		RETURN true;
	END \$\$;
	CREATE FUNCTION evil.equals(text, text) RETURNS boolean LANGUAGE sql
		RETURN evil.sees('operator');
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equals);
	CREATE FUNCTION evil.fires() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM evil.sees('trigger');
		RETURN NEW;
	END \$\$;
	ALTER DATABASE shop SET search_path = evil, public, pg_catalog;
	ALTER DATABASE shop SET default_transaction_read_only = on;
	ALTER DATABASE shop SET default_transaction_isolation = serializable;
	ALTER DATABASE shop SET synchronous_commit = off;
	ALTER DATABASE shop SET constraint_exclusion = on;
	ALTER DATABASE shop SET lock_timeout = '1ms';
	ALTER DATABASE shop SET exit_on_error = on;
	EOF
query($node, 'ALTER DATABASE shop SET transaction_timeout = 1')
  if $node->pg_version >= 17;
my $write = 'SET default_transaction_read_only = off; SET lock_timeout = 0; ';
as_owner(<<~EOF);
	$write
	CREATE EXTENSION snowid_segments SCHEMA public;
	INSERT INTO public.snowid_segments (biz_tag) VALUES ('a');
	INSERT INTO public.snowid_segments (biz_tag, period) VALUES ('day', 'day');
	EOF
is( gets('owner', "SELECT public.snowid_number('a')"),
	1,
	'an owner who is not a superuser has segments, whatever the owner has set'
);

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
		gets('owner', "$write$attempt"),
		qr/must be owner|permission denied|cannot drop|requires/,
		"refused to an owner without the table: $attempt");
}

#---- The tables change their owner ----

$node->safe_psql('shop', <<~EOF);
	$write
	ALTER TABLE public.snowid_segments OWNER TO owner;
	ALTER TABLE public.snowid_segment_periods OWNER TO owner;
	EOF
as_owner(<<~EOF);
	$write
	CREATE TRIGGER t BEFORE INSERT OR UPDATE ON public.snowid_segments FOR EACH ROW EXECUTE FUNCTION evil.fires();
	CREATE TRIGGER t BEFORE INSERT OR UPDATE ON public.snowid_segment_periods FOR EACH ROW EXECUTE FUNCTION evil.fires();
	ALTER TABLE public.snowid_segments ADD CHECK (evil.sees('check'));
	ALTER TABLE public.snowid_segment_periods ADD CHECK (evil.sees('check'));
	ALTER TABLE public.snowid_segment_periods ADD more boolean DEFAULT evil.sees('default');
	CREATE RULE r AS ON UPDATE TO public.snowid_segments DO ALSO SELECT evil.sees('rule');
	ALTER TABLE public.snowid_segments ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
	CREATE POLICY p ON public.snowid_segments USING (evil.sees('policy'));
	DELETE FROM evil.seen;
	EOF
is( gets(
		'owner',
		"SELECT max(public.snowid_number('a')) FROM pg_catalog.generate_series(1, 5000)"
	),
	5001,
	'ranges are taken from tables that the owner has come to own');
is(gets('owner', "SELECT (public.snowid_period_number('day')).number"),
	1, 'the row of a day is made in a table that the owner has come to own');
is(as_owner('SELECT count(*) FROM evil.seen'),
	0, 'nothing of his is computed for that');
as_owner(
	"${write}CREATE FUNCTION evil.index(text) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN true"
);
foreach my $change (
	[
		'CREATE INDEX i ON public.snowid_segments (evil.index(biz_tag))',
		'DROP INDEX public.i'
	],
	[
		'ALTER TABLE public.snowid_segments SET UNLOGGED',
		'ALTER TABLE public.snowid_segments SET LOGGED'
	])
{
	my ($spoil, $mend) = @$change;
	as_owner("${write}$spoil");
	like(
		gets(
			'owner',
			"SELECT public.snowid_number('a') FROM pg_catalog.generate_series(1, 50000)"
		),
		qr/no numbers available for segment "a"\nDETAIL:  Its table or its source failed/,
		"the table gives no numbers after: $spoil");
	as_owner("${write}$mend");
	ok( $node->poll_query_until(
			'shop', "SELECT public.snowid_number('a') > 0"),
		"numbers continue after: $mend");
}
like(
	slurp_file($node->logfile),
	qr/cannot reserve numbers: definition of table "snowid_segments" does not match the snowid_segments extension/,
	'the log names the table that is not as it was made');

# A null in a column that is NOT NULL would crash those who read it.
as_owner(<<~EOF);
	$write
	INSERT INTO public.snowid_segments (biz_tag, period) VALUES ('month', 'month');
	ALTER TABLE public.snowid_segment_periods ADD wanted text NOT NULL DEFAULT 'x';
	EOF
like(
	gets('owner', "SELECT public.snowid_period_number('month')"),
	qr/no numbers available for segment "month"\nDETAIL:  Its table or its source failed/,
	'no row is made in a table with another column that is NOT NULL');
as_owner(
	"${write}ALTER TABLE public.snowid_segment_periods ALTER wanted DROP NOT NULL"
);
ok( $node->poll_query_until(
		'shop', "SELECT (public.snowid_period_number('month')).number = 1"),
	'a row is made if that column may be null');

# Rows that the constraints would not have let in.
as_owner(<<~EOF);
	$write
	SET search_path = pg_catalog;
	ALTER TABLE public.snowid_segments ALTER step DROP NOT NULL, ALTER cover DROP NOT NULL, ALTER max_id DROP NOT NULL,
		DROP CONSTRAINT snowid_segments_step_check, DROP CONSTRAINT snowid_segments_max_id_check;
	INSERT INTO public.snowid_segments (biz_tag, step, cover, max_id) VALUES ('null', NULL, NULL, NULL);
	INSERT INTO public.snowid_segments (biz_tag, step) VALUES ('long', 2000000000), ('short', -5);
	INSERT INTO public.snowid_segments (biz_tag, max_id) VALUES ('below', -9223372036854775808);
	EOF
is( join(' ',
		map { gets('owner', "SELECT public.snowid_number('$_')") }
		  qw(null long short)),
	'1 1 1',
	'a row that its constraints would refuse has numbers');
like(
	gets('owner', "SELECT public.snowid_number('below')"),
	qr/The last error was: Its max_id is behind: numbers up to 0 were handed out here\./,
	'a row with a negative max_id has no numbers');

#---- Sources ----

$write .= 'SET search_path = pg_catalog; ';

$node->safe_psql('shop', <<~EOF);
	$write
	CREATE EXTENSION postgres_fdw SCHEMA public;
	GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO owner;
	DROP TRIGGER t ON public.snowid_segments;
	DROP RULE r ON public.snowid_segments;
	ALTER TABLE public.snowid_segments NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;
	CREATE EXTENSION file_fdw SCHEMA public;
	CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
	GRANT USAGE ON FOREIGN SERVER files TO owner;
	EOF
my $host = $node->host;
my $port = $node->port;
as_owner(<<~EOF);
	$write
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'shop');
	CREATE USER MAPPING FOR owner SERVER far OPTIONS (user 'owner', password 'secret');
	CREATE TABLE public.plain (LIKE public.snowid_segments INCLUDING DEFAULTS);
	CREATE VIEW public.view AS SELECT * FROM public.plain;
	CREATE FOREIGN TABLE public.triggered (biz_tag text, max_id bigint) SERVER far;
	CREATE TRIGGER t BEFORE UPDATE ON public.triggered FOR EACH ROW EXECUTE FUNCTION evil.fires();
	CREATE FOREIGN TABLE public.good (biz_tag text, max_id bigint) SERVER far OPTIONS (table_name 'plain');
	EOF
foreach my $refused (
	[ plain     => 'Its source is no foreign table of postgres_fdw' ],
	[ view      => 'Its source is no foreign table of postgres_fdw' ],
	[ nowhere   => 'Its source does not exist' ],
	[ '"'       => 'Its source does not exist' ],
	[ triggered => 'Its source has triggers' ])
{
	my ($source, $why) = @$refused;
	my $insert =
	  "INSERT INTO public.snowid_segments (biz_tag, source) VALUES ('$source', 'public.$source')";
	like(
		gets('owner', "$write$insert"),
		qr/segment "$source" would have no numbers\nDETAIL:  \Q$why\E/,
		"$source cannot be named as a source");
	as_owner("${write}SET check_function_bodies = off; $insert");
	like(
		gets('owner', "SELECT public.snowid_number('$source')"),
		qr/The last error was: \Q$why\E/,
		"$source gives no numbers where it was not checked");
}
as_owner(
	"${write}INSERT INTO public.snowid_segments (biz_tag, source) VALUES ('good', 'public.good')"
);

# The server trusts all roles here, so it does not ask for a password.
like(
	gets('owner', "SELECT public.snowid_number('good')"),
	qr/The last error was: The central server of its source does not ask for a password\./,
	'a source is not reached by the identity of this server');

# A pipe that nobody writes would be read for ever.
my $pipe = PostgreSQL::Test::Utils::tempdir . '/pipe';
POSIX::mkfifo($pipe, 0600) or die "mkfifo: $!";
as_owner(
	"${write}ALTER SERVER far OPTIONS (ADD sslmode 'verify-ca', ADD sslrootcert '$pipe')"
);
like(
	gets('owner', "SELECT public.snowid_number('good')"),
	qr/no numbers available for segment "good"/,
	'a source with a pipe instead of a file gives no numbers');
wait_until(
	'the reason in the status',
	sub {
		gets('owner', "SELECT public.snowid_number('good')");
		$node->safe_psql('shop',
			"SELECT error FROM public.snowid_segment_status() WHERE biz_tag OPERATOR(pg_catalog.=) 'good'"
		) eq 'A file that its source names is no regular file';
	});
pass('a pipe instead of a file is not read');
as_owner("${write}ALTER SERVER far OPTIONS (DROP sslmode, DROP sslrootcert)");
as_owner(
	"${write}ALTER USER MAPPING FOR owner SERVER far OPTIONS (DROP password)"
);
like(
	gets('owner', "SELECT public.snowid_number('good')"),
	qr/The last error was: The user mapping of its source has no password\./,
	'a source is not reached without a password');
$node->safe_psql('shop',
	"${write}ALTER USER MAPPING FOR owner SERVER far OPTIONS (ADD password_required 'false'); INSERT INTO public.plain (biz_tag) VALUES ('good')"
);
ok( $node->poll_query_until(
		'shop', "SELECT public.snowid_number('good') > 0"),
	'a superuser can allow that');

# The rights are looked at again.
$node->safe_psql('shop', <<~EOF);
	$write
	ALTER FOREIGN TABLE public.good OWNER TO CURRENT_USER;
	CREATE USER MAPPING FOR CURRENT_USER SERVER far;
	REVOKE ALL ON public.good FROM owner;
	SELECT public.snowid_segment_forget('good');
	EOF
like(
	gets('owner', "SELECT public.snowid_number('good')"),
	qr/The last error was: The database's owner has no privileges on its source\./,
	'a right that was revoked ends the use of a source');

#---- Which role learns what ----

$node->safe_psql('shop', <<~EOF);
	$write
	GRANT SELECT, UPDATE ON public.good TO owner;
	ALTER TABLE public.plain ADD CHECK (max_id < 10) NOT VALID, ADD memo text DEFAULT 'card 4111';
	UPDATE public.snowid_segments SET step = 1000 WHERE biz_tag = 'good';
	EOF
my $told = gets('clerk', "SELECT public.snowid_number('good')");
like(
	$told,
	qr/no numbers available for segment "good"\nDETAIL:  Its table or its source failed; see the server log, or snowid_segment_status\(\)\./,
	'a caller does not learn the error of the central server');
unlike($told, qr/4111/, 'a caller does not see a row of the central server');
unlike(
	slurp_file($node->logfile),
	qr/cannot reserve.*4111/,
	'the log has no row of the central server');
like(
	$node->safe_psql(
		'shop',
		"SELECT error FROM public.snowid_segment_status() WHERE biz_tag OPERATOR(pg_catalog.=) 'good'"
	),
	qr/violates check constraint/,
	'the status has the error of the central server');
as_owner(
	"${write}UPDATE public.snowid_segments SET role = 'owner' WHERE biz_tag = 'good'"
);
like(
	gets('clerk', "SELECT public.snowid_number('good')"),
	qr/permission denied for segment "good"/,
	'a role that has no right on a tag learns nothing else');

#---- No place for the process ----

query($node,
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a')"
);
configure($node, 'snowid.max_wait = 1s');
$node->append_conf('postgresql.conf', 'max_worker_processes = 4');
$node->restart;
is(query($node, "SELECT snowid_number('a')"),
	1, 'the reserved process slot is enough for the tables of a database');
query($node, <<~EOF);
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw;
	CREATE USER MAPPING FOR CURRENT_USER SERVER far;
	CREATE FOREIGN TABLE far (biz_tag text, max_id bigint) SERVER far;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('far', 'far');
	EOF
like(
	sql_error($node, "SELECT snowid_number('far')"),
	qr/^55000: no numbers available for segment "far"\nDETAIL:  No process could be started to reserve some\.\nHINT:  Increase max_worker_processes\./,
	'callers learn that no process slot is free');
$node->stop;
done_testing();
