# A hostile tenant: the owner of a database, not a superuser, and an ordinary role
# try to get rights that are not theirs, to read others' data, and to stop others.
# Each new function of the extensions is tried here, too.
#
# rights/overloads.pl plants objects beside the names that our scripts use.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('tenant', 'snowid.worker_id = 1');
start_and_open($node);
query($node, "CREATE ROLE $_ LOGIN") foreach qw(owner mallory member);
query($node, 'CREATE ROLE app NOLOGIN');
query($node, 'GRANT app TO member');
query($node, 'CREATE DATABASE shop OWNER owner');
my $superuser = query($node, 'SELECT current_user');

sub as
{
	my ($role, $sql) = @_;
	return $node->safe_psql('shop', $sql, extra_params => [ '-U', $role ]);
}

# The error that a role gets, SQLSTATE first; '' where there is none.
sub error_of
{
	my ($role, $sql) = @_;
	my (undef, undef, $err) = $node->psql(
		'shop',
		"\\set VERBOSITY verbose\n$sql",
		extra_params => [ '-U', $role ]);
	return $err =~ /(?:ERROR|FATAL):\s+(.*)/s ? $1 : '';
}

#---- The trap ----

# What the owner's code does wherever it runs: it tells the log as whom, and tries
# to get more rights, and to leave something behind in the session.
as('owner', <<~'EOS');
	CREATE SCHEMA evil;
	GRANT USAGE, CREATE ON SCHEMA evil TO PUBLIC;
	CREATE FUNCTION evil.trap(what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	DECLARE
		attack text;
	BEGIN
		RAISE LOG 'trap % runs as %', what, current_user;
		FOREACH attack IN ARRAY ARRAY['ALTER ROLE owner SUPERUSER', 'ALTER ROLE mallory SUPERUSER', 'RESET ROLE',
			'SET ROLE postgres', 'RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION postgres',
			'ALTER ROLE owner SUPERUSER', 'ALTER ROLE mallory SUPERUSER', 'GRANT app TO mallory',
			'CREATE TEMP TABLE pg_class (oid oid)', 'LISTEN evil', 'PREPARE evil AS SELECT 1',
			'SELECT set_config(''search_path'', ''evil, pg_catalog'', false)',
			'SELECT set_config(''role'', ''none'', false)'] LOOP
			BEGIN
				EXECUTE attack;
				RAISE LOG 'trap % had as %: %', what, current_user, attack;
			EXCEPTION WHEN OTHERS THEN
				NULL;
			END;
		END LOOP;
	END $$;
	CREATE FUNCTION evil.yes(what text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM evil.trap(what); RETURN true; END $$;
	CREATE FUNCTION evil.one(what text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM evil.trap(what); RETURN 1; END $$;
	CREATE FUNCTION evil.fires() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM evil.trap('trigger'); RETURN NEW; END $$;
	CREATE DOMAIN evil.checked AS text CHECK (evil.yes('domain'));
	CREATE DOMAIN evil.with_default AS bigint DEFAULT evil.one('default of a domain');
	CREATE TYPE evil.pair AS (a evil.checked, b evil.with_default);
	CREATE EXTENSION snowid SCHEMA public;
	CREATE EXTENSION snowid_segments SCHEMA public;
	INSERT INTO public.snowid_segments (biz_tag) VALUES (E'\uFEFF');
	EOS

# As whom did the traps run since then?
my $read = 0;

sub ran_as
{
	my $log = slurp_file($node->logfile, $read);
	my %ran = map { $_ => 1 } $log =~ /LOG:  trap .* runs as (\w+)$/mg;

	$read = -s $node->logfile;
	return join ' ', sort keys %ran;
}

# No role has got a right, and nothing of the trap's is left in a session.
sub harmless
{
	my ($what) = @_;
	is( query(
			$node,
			q{SELECT string_agg(rolname, ' ') FROM pg_roles WHERE rolsuper AND oid <> 10}
		),
		'',
		"no role becomes a superuser: $what");
	is( query(
			$node,
			q{SELECT string_agg(member::regrole::text, ' ') FROM pg_auth_members WHERE roleid = 'app'::regrole}
		),
		'member',
		"no role becomes a member of another role: $what");
	disarm();
	return;
}

sub disarm
{
	query($node, "ALTER ROLE $_ NOSUPERUSER") foreach qw(owner mallory);
	query($node, 'REVOKE app FROM mallory');
	return;
}

# Calls as a role, and then asks the same session for what is left in it.
my $left =
  q{SELECT current_user OPERATOR(pg_catalog.=) session_user, pg_catalog.current_setting('search_path'),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statements),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_listening_channels()),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_class WHERE relpersistence OPERATOR(pg_catalog.=) 't')};

sub leaves_nothing
{
	my ($role, $call, $what) = @_;
	my ($rc,   $out,  $err)  = $node->psql(
		'shop', "$call\n;\n$left;",
		on_error_stop => 0,
		extra_params  => [ '-U', $role ]);
	is($err, '', "$what: no error");
	like(
		$out,
		qr/^t\|"\$user", public\|0\|0\|0$/m,
		"$what: nothing is left in the session");
	return;
}

#---- Partitions ----

# A hostile table of each kind: the object that makes it hostile, and whether
# attaching a partition evaluates it.
my %hostile = (
	'check constraint' =>
	  [ q{ALTER TABLE NAME ADD CHECK (evil.yes('check'))}, 'evaluated' ],
	'not valid check' =>
	  [ q{ALTER TABLE NAME ADD CHECK (evil.yes('check')) NOT VALID}, '' ],
	'default' =>
	  [ q{ALTER TABLE NAME ALTER note SET DEFAULT evil.one('default')}, '' ],
	'generated column' => [
		q{ALTER TABLE NAME ADD g bigint GENERATED ALWAYS AS (evil.one('generated') + id) STORED},
		''
	],
	'domain' => [
		q{ALTER TABLE NAME ADD c evil.checked, ADD d evil.with_default DEFAULT 7, ADD e evil.pair},
		''
	],
	'expression index' => [
		q{CREATE INDEX ON NAME ((evil.one('index') + id)) WHERE evil.yes('predicate')},
		''
	],
	'statistics' => [
		q{CREATE STATISTICS NAME_s ON (evil.one('statistics') + id), note FROM NAME},
		''
	],
	'trigger' => [
		q{CREATE TRIGGER t BEFORE INSERT ON NAME FOR EACH ROW WHEN (evil.yes('when')) EXECUTE FUNCTION evil.fires();
		CREATE TRIGGER s BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON NAME EXECUTE FUNCTION evil.fires()},
		''
	],
	'rule' => [
		q{CREATE RULE r AS ON INSERT TO NAME DO ALSO SELECT evil.yes('rule')},
		''
	],
	'row security' => [
		q{CREATE POLICY p ON NAME USING (evil.yes('policy')); ALTER TABLE NAME ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
		''
	],
	'foreign key' => [
		q{CREATE TABLE NAME_master (id bigint PRIMARY KEY, CHECK (evil.yes('master'))) PARTITION BY RANGE (id);
		CREATE TABLE NAME_master_1 PARTITION OF NAME_master FOR VALUES FROM (MINVALUE) TO (5);
		ALTER TABLE NAME ADD m bigint REFERENCES NAME_master},
		''
	],
	'bounds' => [
		q{CREATE TABLE NAME_old PARTITION OF NAME FOR VALUES FROM (evil.one('from')) TO (1 + evil.one('to'))},
		''
	]);
my $make =
  q{CALL public.snowid_make_partitions('NAME', '1 day', 2, '3 days')};
my $count = 0;
foreach my $kind (sort keys %hostile)
{
	my ($commands, $evaluated) = @{ $hostile{$kind} };
	my $name = 'public.t' . ++$count;

	as('owner',
		"CREATE TABLE $name (id bigint NOT NULL DEFAULT snowid_next(), note bigint) PARTITION BY RANGE (id); "
		  . $commands =~ s/NAME/$name/gr);
	ran_as();
	leaves_nothing(
		$superuser,
		$make =~ s/NAME/$name/r,
		"partitions by a superuser, hostile $kind");
	my $ran = ran_as();
	like(
		$ran,
		$evaluated ? qr/^owner$/ : qr/^(?:owner)?$/,
		"the owner's code runs with the owner's rights alone: $kind");
	harmless("partitions, hostile $kind");
	is( as( 'owner',
			"SELECT count(*) >= 3, string_agg(DISTINCT pg_get_userbyid(relowner), ' ') FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = '$name'::regclass"
		),
		't|owner',
		"partitions are made, and belong to the table's owner: $kind");
}

# Keys that are expressions.
as('owner',
	q{CREATE TABLE public.by_expression (id bigint) PARTITION BY RANGE ((evil.one('key') + id))}
);
ran_as();
like(
	error_of($superuser, $make =~ s/NAME/public.by_expression/r),
	qr/^42809: public\.by_expression is not partitioned by range of a key/,
	'a table that is partitioned by an expression is refused');
is(ran_as(), '', 'its expression is not evaluated');

# A partition of another role, which is detached.
as('owner',
	q{CREATE TABLE public.theirs (id bigint NOT NULL) PARTITION BY RANGE (id); GRANT CREATE ON SCHEMA public TO mallory}
);
as('mallory', <<~'EOS');
	CREATE TABLE public.theirs_old (id bigint NOT NULL CHECK (evil.yes('check of a partition')));
	EOS
as($superuser, <<~'EOS');
	ALTER TABLE public.theirs ATTACH PARTITION public.theirs_old
		FOR VALUES FROM (public.snowid_min('2020-01-01Z', 'twitter')) TO (public.snowid_min('2020-01-02Z', 'twitter'));
	EOS
disarm();
ran_as();
leaves_nothing(
	'owner',
	$make =~ s/NAME/public.theirs/r,
	'a partition of another role is detached');
is(ran_as(), '',
	'its code does not run with the rights of the role that detaches it');

# A table whose name becomes another's while partitions are made: the owner's
# code renames schemas when the first of them is attached.
as('owner', <<~'EOS');
	CREATE SCHEMA one;
	CREATE SCHEMA two;
	CREATE FUNCTION evil.swap() RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		IF to_regnamespace('two') IS NOT NULL THEN
			EXECUTE 'ALTER SCHEMA one RENAME TO three; ALTER SCHEMA two RENAME TO one';
		END IF;
		RETURN true;
	END $$;
	CREATE FUNCTION evil.swap_later() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		PERFORM evil.swap();
		RETURN true;
	END $$;
	CREATE TABLE one.ev (id bigint NOT NULL CHECK (evil.swap_later())) PARTITION BY RANGE (id);
	EOS
as($superuser,
	'CREATE TABLE two.ev (id bigint NOT NULL) PARTITION BY RANGE (id)');
like(
	error_of($superuser, $make =~ s/NAME/one.ev/r),
	qr/^42501: (?:must be owner of|permission denied for) table ev/,
	'a name that becomes that of a table of a superuser is refused');
is( as( $superuser,
		q{SELECT count(*) FROM pg_inherits JOIN pg_class c ON c.oid = inhparent WHERE relname = 'ev' AND pg_get_userbyid(relowner) <> 'owner'}
	),
	'0',
	'the table of the superuser has no new partition');

# Roles that may call it.
as('owner',
	q{CREATE TABLE public.ours (id bigint NOT NULL) PARTITION BY RANGE (id)});
like(
	error_of('mallory', $make =~ s/NAME/public.ours/r),
	qr/^42501: must be owner of table ours/,
	'partitions of a table are not made by another role');
as($superuser,
	'CREATE SCHEMA app AUTHORIZATION app; CREATE TABLE app.ev (id bigint NOT NULL) PARTITION BY RANGE (id); ALTER TABLE app.ev OWNER TO app; GRANT USAGE ON SCHEMA app TO member'
);
leaves_nothing(
	'member',
	$make =~ s/NAME/app.ev/r,
	'partitions of a table of a role, by a member');
is( as( $superuser,
		q{SELECT string_agg(DISTINCT pg_get_userbyid(relowner), ' ') FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'app.ev'::regclass}
	),
	'app',
	'partitions that a member makes belong to the role');

#---- Migration ----

as('owner', 'CREATE SCHEMA old');
as('owner', <<~"EOS" =~ s/NAME/old.t$_->[1]/gr) foreach
	CREATE TABLE NAME (id bigserial NOT NULL, note bigint) PARTITION BY RANGE (note);
	$_->[0]
	EOS
  map { [ $hostile{ (sort keys %hostile)[$_] }[0], $_ ] }
  0 .. scalar(keys %hostile) - 1;
as('owner',
	q{CREATE TABLE old.by_expression (id bigint GENERATED ALWAYS AS IDENTITY, CHECK (evil.yes('check'))) PARTITION BY HASH ((evil.one('key') + id))}
);
ran_as();
my $migrate = q{SELECT public.snowid_migration('old') \gexec};
my $still =
  q{SELECT count(*) FROM public.snowid_migration('old') c WHERE c ~ '^ALTER'};
leaves_nothing($superuser, $migrate, 'migration by a superuser');
is( as('owner', $still),
	1 + keys %hostile,
	"a superuser's list leaves tables of other roles to these");
leaves_nothing(
	$superuser,
	"SET ROLE owner;\n$migrate\nRESET ROLE",
	'migration by a superuser as the owner');
is(as('owner', $still), 0,  "the owner's tables are changed");
is(ran_as(),            '', "none of the owner's code runs");
harmless('migration of hostile tables');

#---- Roles and the functions that they may call ----

# Each function by its name; a new one needs a line here.
my %who = (
	snowid_segment_status => 'pg_monitor owner',
	(map { $_ => 'pg_monitor' } qw(snowid_status snowid_claims)),
	(map { $_ => 'owner' } qw(snowid_segment_forget snowid_segment_take)),
	map { $_ => 'superuser' }
	  qw(snowid_advance snowid_accept_clock snowid_accept_layout snowid_reclaim
	  snowid_release snowid_segment_lock snowid_segment_take_row));
my $everybody = join ' ', sort qw(
  snowid_next snowid_next_batch snowid_next_array snowid_next_block
  snowid_decode snowid_timestamp snowid_min snowid_max snowid_encode
  snowid_bits snowid_layouts snowid_to_base32 snowid_from_base32
  snowid_to_base62 snowid_from_base62 snowid_to_public snowid_from_public
  snowid_serial snowid_serial_id snowid_migration snowid_make_partitions
  snowid_number snowid_number_range snowid_period_number
  snowid_period_serial snowid_period_parse);
my $functions =
  q{FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname IN ('snowid', 'snowid_segments')
	WHERE NOT 'internal'::regtype = ANY (proargtypes::oid[]) AND prorettype <> 'trigger'::regtype};
my $by_name =
  qq{SELECT string_agg(DISTINCT proname, ' ' ORDER BY proname) $functions
	AND proname ~ '^snowid_' AND prolang <> (SELECT oid FROM pg_language WHERE lanname = 'internal')
	AND NOT proname IN ('snowid_in', 'snowid_out')};
is(as('mallory', "$by_name AND has_function_privilege(p.oid, 'EXECUTE')"),
	$everybody, 'everybody may call these functions');
is( as( 'mallory',
		"$by_name AND NOT has_function_privilege(p.oid, 'EXECUTE')"),
	join(' ', sort keys %who),
	'not everybody may call the others');
is( as( 'mallory',
		"$by_name AND has_function_privilege('pg_monitor', p.oid, 'EXECUTE') AND NOT has_function_privilege('public', p.oid, 'EXECUTE')"
	),
	join(' ', sort grep { $who{$_} =~ /pg_monitor/ } keys %who),
	'pg_monitor may call the functions that show the state of the server');
is( as('owner', "$by_name AND NOT has_function_privilege(p.oid, 'EXECUTE')"),
	join(' ', sort grep { $who{$_} !~ /owner/ } keys %who),
	'the owner of the database has those of its segments beside them');

is( as( 'mallory',
		"SELECT string_agg(proname, ' ' ORDER BY proname) $functions AND prosecdef"
	),
	'',
	"no function gives its callers its owner's rights");
is( as( 'mallory',
		"SELECT count(*) $functions AND (proname IN ('snowid_segment_lock', 'snowid_segment_take_row') AND prosqlbody IS NULL OR NOT (SELECT rolsuper FROM pg_roles o WHERE o.oid = proowner))"
	),
	'0',
	'the functions that lock and take a range were parsed when they were created, and all functions are of a superuser'
);
is( as( 'mallory',
		"SELECT count(*) $functions AND proleakproof AND (prolang <> 12 OR NOT prosrc ~ '^(int[248]+(eq|ne|lt|gt|le|ge)|btint[248]+cmp)\$')"
	),
	'0',
	"only core's comparisons of integers are leakproof");


#---- Rows that a policy hides ----

# At the hidden row the function throws: it is not leakproof, so it does not see that.
as('owner', <<~'EOS');
	CREATE TABLE public.hidden (id bigint, owner text);
	INSERT INTO public.hidden VALUES (-1, 'owner'), (snowid_next(), 'mallory');
	ALTER TABLE public.hidden ENABLE ROW LEVEL SECURITY;
	CREATE POLICY p ON public.hidden USING (owner = current_user);
	GRANT SELECT ON public.hidden TO mallory;
	EOS
my $seen =
  'SELECT count(*) FROM public.hidden WHERE snowid_bits(id) IS NOT NULL';
is(as('mallory', $seen), '1', 'a function sees no row that a policy hides');
like(error_of('owner', "SET row_security = on; $seen"),
	qr/^22023:/, 'the same function throws at the hidden row');

#---- Arguments that are too long, too large, or nonsense ----

# Long texts in all places for a text: errors, and so the log, stay short.
my %sample = (
	int8         => [qw(-9223372036854775808 -1 0 9223372036854775807)],
	int4         => [qw(-2147483648 -1 0 2147483647)],
	int2         => [qw(-32768 -1 0 32767)],
	timestamptz  => [qw(-infinity infinity -4713-11-24BC 294276-12-31)],
	interval     => [ '-1 day', '178000000 years', '0' ],
	bool         => ['t'],
	regclass     => [ 'pg_class',      '0' ],
	regnamespace => [ 'pg_catalog',    '0' ],
	snowid       => [ '0000000000000', '-0000000000000000001' ],
	text         => [ '',              "\x{feff}", 'LONG' ]);
my @signatures = split /\n/, as('owner', <<~"EOS");
	SELECT p.oid::regproc || ' ' || prokind::text || ' ' || array_to_string(ARRAY(
		SELECT typname FROM unnest(proargtypes) WITH ORDINALITY u(t, i) JOIN pg_type y ON y.oid = u.t ORDER BY i), ' ')
	$functions AND has_function_privilege(p.oid, 'EXECUTE') AND NOT 'cstring'::regtype = ANY (proargtypes::oid[])
		AND NOT prorettype = 'cstring'::regtype AND proname ~ '^snowid_' ORDER BY p.oid
	EOS
my (@calls, %unknown);
foreach my $signature (@signatures)
{
	my ($name, $kind, @types) = split / /, $signature;
	$unknown{$_} = 1 foreach grep { !$sample{$_} } @types;
	foreach my $i (0 .. 3)
	{
		my @values = map {
			my $sample = $sample{$_}                       // [];
			my $value  = $sample->[ $i % (@$sample || 1) ] // '';
			$value eq 'LONG'
			  ? "repeat('x', 1000000)"
			  : "CAST('$value' AS $_)"
		} @types;
		push @calls,
			($kind eq 'p' ? 'CALL ' : 'SELECT ')
		  . "$name("
		  . join(', ', @values) . ')';
	}
}
is(join(' ', sort keys %unknown),
	'', 'there are values for each type of an argument');
cmp_ok(scalar @calls, '>', 200, 'there are calls with extreme arguments');
my $started = as('owner', 'SELECT pg_postmaster_start_time()');
$read = -s $node->logfile;
$node->psql(
	'shop',
	join('', "SET statement_timeout = '2s';\n", map { "$_;\n" } @calls),
	on_error_stop => 0,
	extra_params  => [ '-U', 'owner' ]);
my $log = slurp_file($node->logfile, $read);
is(as('owner', 'SELECT pg_postmaster_start_time()'),
	$started, 'extreme arguments stop no server');
unlike(
	$log,
	qr/terminated by signal|PANIC|TRAP/,
	'extreme arguments end no process of the server');
unlike(
	$log,
	qr/ERROR:  XX000|invalid memory alloc request/,
	'extreme arguments meet no internal error');
my ($longest) = sort { $b <=> $a } map { length } split /\n/, $log;
cmp_ok($longest, '<', 2000, 'no argument makes a long line of the log');

foreach
  my $call ('SELECT count(k) FROM public.snowid_next_batch(2000000000) k',
	'SELECT public.snowid_next_array(100000000)')
{
	like(error_of('mallory', "SET statement_timeout = '100ms'; $call"),
		qr/^57014:/, "statement_timeout ends the call: $call");
}

$node->stop;
done_testing();
