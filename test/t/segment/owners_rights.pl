# Segments of a database whose owner is not a superuser: none of the owner's code runs
# in the process that fetches, which uses no table of the owner's, and the owner's
# settings do not reach it.  A role learns only about its own tags.
use strict;
use warnings;

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
query($node,
	'CREATE ROLE owner LOGIN; CREATE ROLE clerk LOGIN; CREATE ROLE remote LOGIN'
);
query($node, 'CREATE DATABASE shop OWNER owner');

# The answer that a role gets, or its error; retried if the process was too slow.
sub gets
{
	my ($role, $sql, $database) = @_;
	my $answer = 'has not answered yet';

	while ($answer =~ /has not answered yet/)
	{
		my (undef, $out, $err) = $node->psql($database // 'shop',
			$sql, extra_params => [ '-U', $role ]);
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
	INSERT INTO public.snowid_segments (biz_tag, cover) VALUES ('a', '0');
	INSERT INTO public.snowid_segments (biz_tag, cover, period) VALUES ('day', '0', 'day');
	EOF
is( gets('owner', "SELECT public.snowid_number('a')"),
	1,
	'an owner who is not a superuser has segments, whatever the owner has set'
);

foreach my $attempt (
	'CREATE TRIGGER t BEFORE UPDATE ON public.snowid_segments FOR EACH ROW EXECUTE FUNCTION evil.fires()',
	'ALTER EXTENSION snowid_segments DROP TABLE public.snowid_segments',
	'DROP TABLE public.snowid_segments',
	'ALTER FUNCTION public.snowid_segment_lock(text) OWNER TO owner',
	'CREATE TRIGGER t BEFORE INSERT ON evil.seen EXECUTE FUNCTION public.snowid_segments_guard()'
  )
{
	like(
		gets('owner', "$write$attempt"),
		qr/must be owner|permission denied|cannot drop|requires/,
		"refused to an owner without the table: $attempt");
}

#---- The tables change their owner ----

# Gives the tables, or one of them, to somebody; they have no numbers as long as they are
# not a superuser's, but for two ranges in memory, whose lengths do not grow.
my $postgres = $node->safe_psql('shop', 'SELECT CURRENT_USER');
my $others =
  "The tables or their functions are not a superuser's, or have triggers of others";

sub give_tables_to
{
	my ($role, @tables) = @_;
	$node->safe_psql('shop', "${write}ALTER TABLE public.$_ OWNER TO $role")
	  foreach @tables;
	return;
}

sub has_no_numbers
{
	my ($what) = @_;
	foreach my $call ("snowid_number('a')", "snowid_period_number('day')")
	{
		like(
			gets(
				'owner',
				"SELECT public.$call FROM pg_catalog.generate_series(1, 5000)"
			),
			qr/The last error was: \Q$others\E\./,
			"$what: no $call, and the error says why");
	}
	like(
		$node->safe_psql(
			'shop',
			"SELECT problem FROM public.snowid_segment_take('a', 'none', NULL, NULL, 0, 1000000, 1)"
		),
		qr/^owner$/,
		"$what: no range for another server");
	return;
}

foreach my $table ('snowid_segments', 'snowid_segment_periods')
{
	give_tables_to('owner', $table);
	has_no_numbers("$table belongs to another role");
	give_tables_to($postgres, $table);
}
give_tables_to('owner', 'snowid_segments', 'snowid_segment_periods');
as_owner(<<~EOF);
	$write
	CREATE FUNCTION evil.index(text) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN evil.sees('index');
	CREATE TRIGGER t BEFORE INSERT OR UPDATE ON public.snowid_segments FOR EACH ROW EXECUTE FUNCTION evil.fires();
	CREATE TRIGGER t BEFORE INSERT OR UPDATE ON public.snowid_segment_periods FOR EACH ROW EXECUTE FUNCTION evil.fires();
	ALTER TABLE public.snowid_segments ADD CHECK (evil.sees('check'));
	ALTER TABLE public.snowid_segment_periods ADD CHECK (evil.sees('check'));
	ALTER TABLE public.snowid_segment_periods ADD more boolean DEFAULT evil.sees('default');
	CREATE INDEX i ON public.snowid_segments (evil.index(biz_tag));
	CREATE RULE r AS ON UPDATE TO public.snowid_segments DO ALSO SELECT evil.sees('rule');
	ALTER TABLE public.snowid_segments ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
	CREATE POLICY p ON public.snowid_segments USING (evil.sees('policy'));
	DELETE FROM evil.seen;
	EOF
has_no_numbers('both belong to another role');
is(as_owner('SELECT count(*) FROM evil.seen'),
	0, "nothing of a table's other owner is computed");
$node->safe_psql('shop', <<~EOF);
	$write
	DROP RULE r ON public.snowid_segments;
	DROP INDEX public.i;
	DROP POLICY p ON public.snowid_segments;
	ALTER TABLE public.snowid_segments NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY, DROP CONSTRAINT snowid_segments_check;
	ALTER TABLE public.snowid_segment_periods DROP CONSTRAINT snowid_segment_periods_check;
	EOF
give_tables_to($postgres, 'snowid_segments', 'snowid_segment_periods');
has_no_numbers('triggers of another role are left');
is(as_owner('SELECT count(*) FROM evil.seen'),
	0, 'nothing of a trigger of another role is computed');
$node->safe_psql('shop',
	"${write}DROP TRIGGER t ON public.$_; DELETE FROM evil.seen")
  foreach 'snowid_segments', 'snowid_segment_periods';
ok( $node->poll_query_until(
		'shop', "SELECT (public.snowid_period_number('day')).number > 0"),
	'a tag with periods continues when the tables are what they were');
ok($node->poll_query_until('shop', "SELECT public.snowid_number('a') > 0"),
	'a tag continues when the tables are what they were');

#---- Who may create triggers replaces the extension's ----

$node->safe_psql('shop', <<~EOF);
	$write
	GRANT ALL ON public.snowid_segments, public.snowid_segment_periods TO clerk;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO clerk;
	DELETE FROM evil.seen;
	EOF
foreach my $case (
	[ 'with a function of its own', 'EXECUTE FUNCTION evil.fires()' ],
	[
		'with a condition of its own',
		"WHEN (evil.sees('condition')) EXECUTE FUNCTION public.snowid_segments_guard()"
	])
{
	my ($what, $rest) = @$case;
	is( gets(
			'clerk',
			"${write}CREATE OR REPLACE TRIGGER guard BEFORE INSERT OR UPDATE ON public.$_ FOR EACH ROW $rest"
		),
		'',
		"a role that may create triggers replaces that of $_ $what"
	) foreach 'snowid_segments', 'snowid_segment_periods';
	has_no_numbers("its triggers are replaced, $what");
	is(as_owner('SELECT count(*) FROM evil.seen'),
		0, "nothing of a trigger that was replaced is computed, $what");
}
unlike(
	gets(
		'clerk',
		"${write}SELECT public.snowid_segment_take_row('a', 'none', NULL, NULL, 0, NULL, 1)"
	),
	qr/ERROR/,
	'a role that may do everything takes a range by the function for the process'
);
is(as_owner('SELECT DISTINCT who FROM evil.seen'),
	'clerk', 'that function has its rights alone');
$node->safe_psql('shop', <<~EOF);
	$write
	CREATE OR REPLACE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON public.snowid_segments
		FOR EACH ROW EXECUTE FUNCTION public.snowid_segments_guard();
	CREATE OR REPLACE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON public.snowid_segment_periods
		FOR EACH ROW EXECUTE FUNCTION public.snowid_segments_guard('periods');
	ALTER TABLE public.snowid_segments ENABLE ALWAYS TRIGGER guard;
	ALTER TABLE public.snowid_segment_periods ENABLE ALWAYS TRIGGER guard;
	REVOKE ALL ON public.snowid_segments, public.snowid_segment_periods FROM clerk;
	GRANT SELECT ON public.snowid_segments, public.snowid_segment_periods TO clerk;
	REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM clerk;
	EOF

#---- The functions are not a superuser's any more ----

foreach my $function ('snowid_segment_lock', 'snowid_segment_take_row',
	'snowid_segments_guard')
{
	$node->safe_psql('shop',
		"${write}ALTER FUNCTION public.$function OWNER TO owner");
	my $said = gets('owner',
		'SELECT public.snowid_number(\'a\') FROM pg_catalog.generate_series(1, 5000)'
	);
	like(
		$said,
		qr/The last error was: The tables .*are not a superuser's, or have triggers of others\./,
		"no numbers by a function of another role: $function");
	$node->safe_psql('shop',
		"${write}ALTER FUNCTION public.$function OWNER TO $postgres");
}
$node->safe_psql('shop', <<~EOF);
	$write
	CREATE ROLE admin SUPERUSER;
	DO \$\$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid FROM pg_catalog.pg_proc WHERE proname ~ '^snowid_segment' LOOP
			EXECUTE pg_catalog.format('ALTER FUNCTION %s OWNER TO admin', f);
		END LOOP;
	END \$\$;
	EOF
give_tables_to('admin', 'snowid_segments', 'snowid_segment_periods');
ok( $node->poll_query_until('shop', "SELECT public.snowid_number('a') > 0"),
	'a tag continues if tables and functions belong to another superuser');
$node->safe_psql('shop', "${write}ALTER ROLE admin NOSUPERUSER");
has_no_numbers('their owner is no superuser any more');
$node->safe_psql('shop',
	"${write}ALTER ROLE admin SUPERUSER; REASSIGN OWNED BY admin TO $postgres; DROP ROLE admin"
);
ok( $node->poll_query_until(
		'shop', "SELECT (public.snowid_period_number('day')).number > 0"),
	'a tag with periods continues when the functions are what they were');

# The schema is the owner's: another table by the name of the extension's.
as_owner(<<~EOF);
	$write
	CREATE SCHEMA mine;
	EOF
$node->safe_psql('shop',
	"${write}ALTER EXTENSION snowid_segments SET SCHEMA mine");
as_owner(<<~EOF);
	$write
	ALTER SCHEMA mine RENAME TO yours;
	CREATE SCHEMA mine;
	CREATE TABLE mine.snowid_segments (LIKE yours.snowid_segments INCLUDING ALL);
	CREATE TABLE mine.snowid_segment_periods (LIKE yours.snowid_segment_periods INCLUDING ALL);
	CREATE TRIGGER t BEFORE INSERT OR UPDATE ON mine.snowid_segments FOR EACH ROW EXECUTE FUNCTION evil.fires();
	INSERT INTO mine.snowid_segments (biz_tag, max_id) VALUES ('a', 1000000000);
	DELETE FROM evil.seen;
	EOF
cmp_ok(
	gets(
		'owner',
		"SELECT max(yours.snowid_number('a')) FROM pg_catalog.generate_series(1, 5000)"
	),
	'<',
	1000000000,
	'a schema that was renamed and made again counts for nothing');
is(as_owner('SELECT count(*) FROM evil.seen'),
	0, 'nothing in a schema of the former name is computed');
$node->safe_psql('shop',
	"${write}ALTER EXTENSION snowid_segments SET SCHEMA public; DROP SCHEMA mine CASCADE"
);

#---- What the database's owner may do ----

like(gets('owner', "SELECT biz_tag FROM public.snowid_segment_status()"),
	qr/^a$/m, "the database's owner sees the status of its tags");
is(gets('owner', "SELECT public.snowid_segment_forget('a')"),
	'', "the database's owner can forget a tag");
as_owner(
	"${write}GRANT EXECUTE ON FUNCTION public.snowid_segment_take TO remote");
my $take = "SELECT first, last, problem FROM public.snowid_segment_take";
as_owner(
	"${write}INSERT INTO public.snowid_segments (biz_tag) VALUES ('far away')"
);
is( gets(
		'remote',
		"${write}$take('far away', 'none', NULL, NULL, 0, 9223372036854775807, 10)"
	),
	'1|10|',
	'a role that may execute the function alone takes a range');
is( gets(
		'remote',
		"${write}$take('far away', 'none', NULL, NULL, 0, NULL, 9223372036854775807)"
	),
	'11|1000010|',
	'a role that takes ranges cannot use a tag up at once');

foreach my $case (
	[ "'far away', 'none', NULL, NULL, 2000000, NULL, 10", 'behind' ],
	[ "'far away', 'day', 9000, NULL, 0, NULL, 10",        'period' ],
	[ "'absent', 'none', NULL, NULL, 0, NULL, 10",         'absent' ],
	[ "NULL, 'none', NULL, NULL, 0, NULL, 10",             'absent' ],
	[ "'far away', 'none', NULL, NULL, 0, NULL, -10",      'behind' ])
{
	my ($args, $problem) = @$case;
	like(
		gets('remote', "${write}$take($args)"),
		qr/^\|\d*\|$problem$/,
		"a range is refused ($problem): $args");
}
like(
	gets(
		'remote',
		"${write}$take('far away', 'none', NULL, NULL, 1000010, NULL, -10)"),
	qr/max_id of segment "far away" cannot be lowered/,
	'another server cannot give back: a negative length is refused');

#---- Sources ----

$write .= 'SET search_path = pg_catalog; ';

$node->safe_psql('shop', <<~EOF);
	$write
	CREATE EXTENSION postgres_fdw SCHEMA public;
	GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO owner;
	CREATE EXTENSION file_fdw SCHEMA public;
	CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
	GRANT USAGE ON FOREIGN SERVER files TO owner;
	EOF
my $host = $node->host;
my $port = $node->port;
query($node, 'CREATE DATABASE far OWNER owner');
$node->safe_psql('far',
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('good')"
);
as_owner(<<~EOF);
	$write
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'far');
	CREATE USER MAPPING FOR owner SERVER far OPTIONS (user 'owner', password 'secret');
	EOF

foreach my $refused (
	[ files   => 'Its source is no foreign server of postgres_fdw' ],
	[ nowhere => 'Its source does not exist' ],
	[ '"'     => 'Its source does not exist' ])
{
	my ($source, $why) = @$refused;
	my $insert =
	  "INSERT INTO public.snowid_segments (biz_tag, source) VALUES ('$source', '$source')";
	like(
		gets('owner', "$write$insert"),
		qr/segment "$source" would have no numbers\nDETAIL:  \Q$why\E/,
		"$source cannot be named as a source");
	as_owner("${write}SET check_function_bodies = off; $insert");
	like(
		gets('owner', "SELECT public.snowid_number('$source')"),
		qr/The last error was: \Q$why\E/,
		"$source gives no numbers if it was not checked");
}
as_owner(
	"${write}INSERT INTO public.snowid_segments (biz_tag, source) VALUES ('good', 'far')"
);

# The server trusts all roles here, so it does not ask for a password.
like(
	gets('owner', "SELECT public.snowid_number('good')"),
	qr/The last error was: The central server of its source does not ask for a password\./,
	'a source is not reached by the identity of this server');

# libpq would take an empty one for none, and read the server's own file of passwords.
foreach my $change (
	[ "SET password ''", 'The user mapping of its source has no password' ],
	[
		"SET password 'secret'",
		'The central server of its source does not ask for a password'
	],
	[ 'DROP password', 'The user mapping of its source has no password' ])
{
	my ($option, $why) = @$change;
	as_owner(
		"${write}ALTER USER MAPPING FOR owner SERVER far OPTIONS ($option)");
	wait_until(
		'the reason',
		sub {
			gets('owner', "SELECT public.snowid_number('good')") =~
			  /The last error was: $why\./;
		});
	pass("a source is not reached without a password: $option");
}
$node->safe_psql('shop',
	"${write}ALTER USER MAPPING FOR owner SERVER far OPTIONS (ADD password_required 'false')"
);
ok( $node->poll_query_until(
		'shop', "SELECT public.snowid_number('good') > 0"),
	'a superuser can allow that');

# With a password for which the server asks, nobody needs to allow it.
$node->safe_psql('shop', <<~EOF);
	$write
	ALTER USER MAPPING FOR owner SERVER far OPTIONS (DROP password_required, ADD password 'secret');
	ALTER ROLE owner PASSWORD 'secret';
	SELECT public.snowid_segment_forget('good');
	EOF
my $hba = $node->data_dir . '/pg_hba.conf';
replace_file($hba, "local far owner scram-sha-256\n" . slurp_file($hba));
$node->reload;
ok( $node->poll_query_until(
		'shop', "SELECT public.snowid_number('good') > 0"),
	'a source that asks for the password of the mapping gives numbers');

# The rights are looked at again.
$node->safe_psql('shop', <<~EOF);
	$write
	ALTER SERVER far OWNER TO CURRENT_USER;
	SELECT public.snowid_segment_forget('good');
	EOF
like(
	gets('owner', "SELECT public.snowid_number('good')"),
	qr/The last error was: The database's owner may not use its source\./,
	'a right that was revoked ends the use of a source');

#---- Which role learns what ----

$node->safe_psql('shop',
	"${write}GRANT USAGE ON FOREIGN SERVER far TO owner; UPDATE public.snowid_segments SET step = 1000 WHERE biz_tag OPERATOR(pg_catalog.=) 'good'"
);
$node->safe_psql('far', <<~EOF);
	ALTER TABLE snowid_segments ADD CHECK (max_id < 10) NOT VALID, ADD memo text DEFAULT 'card 4111';
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

#---- A role that is renamed, and a dump ----

# Those of two roles that get a number of this tag.
sub who_may
{
	my ($database) = @_;
	return join ' ', grep {
		gets($_, "SELECT snowid_number('theirs')", $database) !~
		  /permission denied for segment/
	} qw(clerk remote);
}

query($node, 'CREATE ROLE clerks; GRANT clerks TO clerk');
query($node, "CREATE DATABASE $_") foreach qw(first again);
$node->safe_psql('first',
	"CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag, role) VALUES ('theirs', 'clerks')"
);
is(who_may('first'), 'clerk', 'members of the role get numbers');
query($node,
	'ALTER ROLE clerks RENAME TO staff; CREATE ROLE clerks; GRANT clerks TO remote'
);
is(who_may('first'), 'clerk',
	'a role that is renamed keeps its tags, and another of its name has none'
);
$node->safe_psql('first', "SELECT snowid_segment_forget('theirs')");
is(who_may('first'), 'clerk',
	'the same role has them when the row is read again');
restore_dump($node, 'first', $node, 'again');
is(who_may('again'), 'clerk',
	'a restored dump has the role by its name of now');
query($node, 'DROP ROLE staff');
is(who_may($_), '', "when the role is dropped, nobody gets numbers: $_")
  foreach qw(first again);

#---- No place for the process ----

$node->append_conf('postgresql.conf', 'max_worker_processes = 3');
$node->restart;
query($node, <<~EOF);
	CREATE EXTENSION snowid_segments;
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw;
	CREATE USER MAPPING FOR CURRENT_USER SERVER far;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('far', 'far');
	EOF
like(
	sql_error($node, "SELECT snowid_number('far')"),
	qr/^55000: no numbers available for segment "far"\nDETAIL:  No process could be started to reserve some\.\nHINT:  Increase max_worker_processes\./,
	'callers learn that no process slot is free');
$node->stop;
done_testing();
