# Roles plant objects that PostgreSQL could take for names of our scripts: functions,
# operators, types and tables, in the schema of the extension and in each schema
# before it.  Then a superuser, the database's owner and an ordinary role call
# everything.  Nothing planted runs with another role's rights.
#
# Names and types are read from the scripts and the catalogs, so that new ones are
# tried, too.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename qw(basename dirname);
use List::Util     qw(sum uniq);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidTest;
use Test::More;

my $top        = abs_path(dirname(__FILE__) . '/../../..');
my @extensions = sort map { basename($_, '.control') } glob "$top/*.control";
my @scripts    = glob "$top/sql/*--*.sql $managed/*--*.sql";
my $node       = snowid_cluster('overloads', 'snowid.worker_id = 1');
start_and_open($node);
query($node, "CREATE ROLE $_ LOGIN") foreach qw(owner mallory clerk);
query($node, 'CREATE ROLE group_of_owner');
query($node, 'GRANT group_of_owner TO owner');

#---- Names that the scripts call ----

my $source = join '', map { slurp_file($_) =~ s/^\s*--.*$//gmr } @scripts;

# Strings stay: some are commands.
my %words = map { lc $_ => 1 } $source =~ /\b([a-z_]\w*)/gi;

# SQL has other names of these types.
$words{$_} = 1 foreach qw(int8 int4 bool);
my %symbols =
  map { $_ => 1 } $source =~ /(?<![-+*\/<>=~!@#%^&|])([-+*\/<>=~!@#%^&|]+)/g;

# The result of a query of one column, in a database without any traps.
sub list
{
	my ($sql) = @_;
	return split /\n/, query($node, $sql);
}

# Of names from the catalogs, those that the scripts have.
sub used
{
	my ($names, @candidates) = @_;
	return grep { $names->{$_} } @candidates;
}
my %result = map { split / /, $_, 2 } list(<<~'EOS');
	SELECT DISTINCT ON (proname) proname || ' ' || prorettype::regtype
	FROM pg_proc JOIN pg_type t ON t.oid = prorettype
	WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' ORDER BY proname, typtype <> 'b', t.oid
	EOS
my @called = used(\%words, sort { $a cmp $b } keys %result);

# but for one of the extension's own, which would be there before
my @operators = grep { $_ ne '#>' } used(
	\%symbols,
	list(
		q{SELECT DISTINCT oprname FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace}
	));
my @types = used(
	\%words,
	list(
		q{SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b'}
	));
my @relations = used(
	\%words,
	list(
		q{SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')}
	));
cmp_ok(scalar @called,    '>', 40, 'the scripts call functions of core');
cmp_ok(scalar @operators, '>', 15, 'they use operators of core');
cmp_ok(scalar @types,     '>', 10, 'they use types of core');
cmp_ok(scalar @relations, '>', 10, 'they read catalogs');

# Our functions, as name, type of the result, types of the arguments.
query($node, "CREATE EXTENSION $_")
  foreach grep { $_ ne 'snowid' } @extensions;
query($node, 'CREATE SCHEMA managed');
run_script($node, 'postgres', 'managed');
my @ours = list(<<~'EOS');
	SELECT DISTINCT proname || ' ' || CASE typtype WHEN 'b' THEN CASE WHEN prorettype < 10000 THEN '' ELSE 'OURS.' END || typname
			ELSE 'text' END || ' ' || array_to_string(ARRAY(
		SELECT CASE WHEN typnamespace = 'pg_catalog'::regnamespace THEN '' ELSE 'OURS.' END || typname
		FROM unnest(proargtypes) WITH ORDINALITY u(t, i) JOIN pg_type t ON t.oid = u.t ORDER BY i), ' ')
	FROM pg_proc JOIN pg_type r ON r.oid = prorettype WHERE (pronamespace = 'managed'::regnamespace OR EXISTS (
		SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
		WHERE d.classid = 'pg_proc'::regclass AND d.objid = pg_proc.oid AND d.refclassid = 'pg_extension'::regclass
			AND d.deptype = 'e' AND extname ~ '^snowid'))
		AND NOT 'internal'::regtype = ANY (proargtypes::oid[])
	EOS
cmp_ok(scalar @ours, '>', 80, 'the functions of the scripts are found');

#---- The traps ----

# Functions that fit a call better than the wanted one, as well, or nearly.
sub overloads
{
	my ($name, @wanted) = @_;
	my $n   = @wanted;
	my @all = ([@wanted], ['VARIADIC text[]'], ['VARIADIC anyarray']);

	push @all, [ ($_) x $n ]
	  foreach qw(int4 int8 text varchar name anyelement anycompatible);
	push @all, [ @wanted[ 0 .. $n - 2 ], "VARIADIC $wanted[-1]\[]" ]
	  if $n > 0;
	foreach my $i (0 .. $n - 1)
	{
		foreach my $type (
			qw(int2 int4 int8 numeric text varchar name regclass regprocedure anyelement)
		  )
		{
			my @types = @wanted;
			$types[$i] = $type;
			push @all, \@types;
		}
	}
	return map { "$name(" . join(', ', @$_) . ')' } @all;
}

# Each tries to get its creator the rights that it is called with, and tells the log.
my $trap = <<~'EOS';
	CREATE FUNCTION CREATOR.trap(what text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	DECLARE
		attack text;
	BEGIN
		RAISE LOG 'trap % of CREATOR runs as %', what, current_user;
		IF current_user <> 'CREATOR' THEN
			FOREACH attack IN ARRAY '{ALTER ROLE CREATOR SUPERUSER,GRANT group_of_owner TO CREATOR}'::text[] LOOP
				BEGIN
					EXECUTE attack;
				EXCEPTION WHEN OTHERS THEN
					NULL;
				END;
			END LOOP;
		END IF;
		RETURN true;
	END $$;
	EOS

# A role plants traps in a schema: what fits calls of our functions, which are in
# another schema; what makes these calls ambiguous; or what fits the rest.  What is
# refused is left out.  Returns how many there are then.
sub plant
{
	my ($db, $role, $schema, $what, $ours) = @_;
	my (@functions, @commands);
	my $body = sub {
		my ($name) = @_;
		return
		  "LANGUAGE plpgsql AS \$trap\$ BEGIN PERFORM $role.trap('$schema.$name'); RETURN NULL; END \$trap\$";
	};

	foreach my $function ($what eq 'core' ? () : @ours)
	{
		my ($name, $result, @types) =
		  split / /, $function =~ s/OURS\./$ours./gr;
		push @functions,
		  map { [ $_, $result ] }
		  $what eq 'ambiguous'
		  ? "$name(" . join(', ', @types, 'int4 DEFAULT 0') . ')'
		  : overloads($name, @types);
	}
	if ($what eq 'core')
	{
		foreach my $name (@called)
		{
			push @functions, map { [ $_, $result{$name} ] }
			  map { overloads($name, ('text') x $_) } 0 .. 3;
		}
		foreach my $left (@types, 'anyelement')
		{
			foreach
			  my $right (uniq($left, 'int4', 'int8', 'text', 'regnamespace'))
			{
				my $function = "trap_operator($left, $right)";
				push @commands,
				  "CREATE FUNCTION $schema.$function RETURNS boolean "
				  . $body->($function);
				push @commands, map {
					"CREATE OPERATOR $schema.$_ (LEFTARG = $left, RIGHTARG = $right, FUNCTION = $schema.trap_operator)"
				} @operators;
			}
		}
		push @commands, map {
			"CREATE DOMAIN $schema.$_ AS pg_catalog.$_ CHECK ($role.trap('domain $_'))"
		} @types;
		push @commands, map {
			"CREATE VIEW $schema.$_ AS SELECT $role.trap('view $_') AS trapped, * FROM pg_catalog.$_"
		} @relations;
	}
	push @commands, map {
		"CREATE FUNCTION $schema.$_->[0] RETURNS $_->[1] " . $body->($_->[0])
	} @functions;
	@commands = uniq(@commands);

	# some at a time: a transaction of many subtransactions is slow
	my $sql =
	  "SET search_path = pg_catalog; SET check_function_bodies = off;\n";
	while (my @some = splice @commands, 0, 50)
	{
		my $do = join '', map {
			"BEGIN EXECUTE \$cmd\$$_\$cmd\$; planted := planted OPERATOR(pg_catalog.+) 1; EXCEPTION WHEN OTHERS THEN NULL; END;\n"
		} @some;
		$sql .=
		  "DO \$do\$ DECLARE planted int := 0; BEGIN $do RAISE WARNING 'planted %', planted; END \$do\$;\n";
	}
	my (undef, undef, $err) =
	  $node->psql($db, $sql, extra_params => [ '-U', $role ]);
	die $err if $err =~ /ERROR/;
	return sum($err =~ /WARNING:  planted (\d+)/g);
}

# Has any been called with other rights than its creator's, or given it one?
my $read = 0;

sub nobody_has_got_a_right
{
	my ($when) = @_;
	my $log = slurp_file($node->logfile, $read);
	my %ran;

	$read = -s $node->logfile;
	while ($log =~ /LOG:  trap (.*) of (\w+) runs as (\w+)$/mg)
	{
		$ran{"$1 of $2, as $3"} = 1 if $2 ne $3;
	}
	is(join("\n", sort keys %ran),
		'', "nothing planted is called with other rights: $when");
	is( query(
			$node,
			q{SELECT string_agg(rolname, ' ') FROM pg_roles WHERE rolsuper AND oid <> 10}
		),
		'',
		"no role becomes a superuser: $when");
	is( query(
			$node,
			q{SELECT string_agg(member::regrole::text, ' ') FROM pg_auth_members WHERE roleid = 'group_of_owner'::regrole}
		),
		'owner',
		"no role becomes a member of the owner's group: $when");
	query($node, "ALTER ROLE $_ NOSUPERUSER") foreach qw(owner mallory);
	query($node, 'REVOKE group_of_owner FROM mallory');
	return;
}

#---- The surface ----

# A value for each argument by its name, or else by its type.  A new argument
# needs a line here.
my %value = (
	id            => "'2124696200530788326'",
	count         => "'3'",
	ts            => "'2026-11-22 12:00Z'",
	created_at    => "'2026-11-22 12:00Z'",
	layout        => "'twitter'",
	base32        => "'0ARYZVZXW377R'",
	base62        => "'AzL8n0Y58m7'",
	code          => "'AB'",
	utc_offset    => "'+08'",
	check_digits  => "'false'",
	serial        => "'AB2026112220000000001010000'",
	datacenter_id => "'1'",
	worker_id     => "'1'",
	sequence      => "'1'",
	parent        => q{'"My Shop"."Events"'},
	step          => "'1 day'",
	ahead         => "'1'",
	keep          => "'1 day'",
	schema        => q{'"My Shop"'},
	tag           => "'none'",
	force         => "'false'",
	snowid        => "'0ARYZVZXW377R'",
	cstring       => "'0ARYZVZXW377R'",
	int8          => "'1'",
	int4          => "'1'",
	int2          => "'1'",
	text          => "'1'",
	timestamptz   => "'2026-11-22 12:00Z'",
	bool          => "'true'",

	# of managed/ alone
	ms        => "'1795348800000'",
	epoch     => "'2020-01-01T00:00:00Z'",
	in_one_ms => "'true'",
	lowest    => "'0'",
	str       => "'0ARYZVZXW377R'",
	base      => "'32'",
	length    => "'13'",);

# Errors that are right, even for a superuser.
my $refused = qr/
	there.is.no.clock.jump|there.is.no.layout.change|does.not.come.from.Redis|
	segment."none".has.no.(?:periods|format)|
	snowid\.public_key_file.is.not.set|without.OpenSSL
/x;

# Calls of all functions and operators, each with the exact types.  Calls in CALL
# commit, so each is a command of its own.
sub surface
{
	my ($db, $schema, $where) = @_;
	my $rows = $node->safe_psql($db, <<~EOS);
		SET search_path = pg_catalog;
		SELECT prokind, proname, pronargs, array_to_string(ARRAY(
			SELECT coalesce(proargnames[i], '') || '=' || quote_ident(nspname) || '.' || typname
			FROM unnest(proargtypes) WITH ORDINALITY u(t, i) JOIN pg_type t ON t.oid = u.t
				JOIN pg_namespace n ON n.oid = typnamespace ORDER BY i), ' ')
		FROM pg_proc WHERE $where AND prorettype NOT IN ('internal'::regtype, 'trigger'::regtype)
			AND NOT 'internal'::regtype = ANY (proargtypes::oid[])
		ORDER BY proname, pronargs
		EOS
	my @calls;
	foreach my $row (split /\n/, $rows)
	{
		my ($kind, $name, undef, $arguments) = split /\|/, $row, -1;
		my @values;
		foreach my $argument (split / /, $arguments)
		{
			my ($argument_name, $type) = $argument =~ /^(\w*)=(.*)$/;
			my $value = $value{$argument_name}
			  // $value{ $type =~ s/.*\.//r };
			die "give $argument of $name a value" unless defined $value;
			push @values, "CAST($value AS $type)";
		}
		my $call = "$schema.$name(" . join(', ', @values) . ')';
		push @calls, $kind eq 'p'
		  ? "CALL $call"
		  : "SELECT * FROM $call" =~
		  s/.*/$kind eq 'a' ? "SELECT $call" : $&/er;
	}
	return @calls;
}

# Runs them as a role; the errors.
sub errors_of
{
	my ($db, $role, $path, @calls) = @_;
	my ($out, $err);
	$node->psql(
		$db,
		join('', map { "$_;\n" } "SET search_path = $path", @calls),
		stderr        => \$err,
		on_error_stop => 0,
		extra_params  => [ '-U', $role ]);
	return grep { /ERROR:/ } split /\n/, $err // '';
}

sub try_the_surface
{
	my ($db, $schema, $where, $how, @paths) = @_;
	my $superuser = query($node, 'SELECT current_user');
	my @calls     = surface($db, $schema, $where);

	cmp_ok(scalar @calls, '>', 20, "$db: there are calls");
	foreach my $path (@paths)
	{
		foreach my $role ($superuser, 'owner', 'clerk')
		{
			my @errors = errors_of($db, $role, $path, @calls);
			@errors = grep { !/permission denied|must be owner/ } @errors
			  if $role ne $superuser;
			is( join("\n", grep { !/$refused/ } @errors),
				'',
				"$db: all calls of \"$role\" with search_path $path are answered"
			) if $how eq 'answered';
			nobody_has_got_a_right("$db, calls of $role, search_path $path");
		}
	}
	return;
}

#---- The library ----

# mallory may create in public, as in a database from before PostgreSQL 15; the
# owner is hostile to superusers.
query($node, 'CREATE DATABASE shop OWNER owner');

sub as
{
	my ($db, $role, $sql) = @_;
	return $node->safe_psql($db, $sql, extra_params => [ '-U', $role ]);
}
$node->safe_psql('shop', <<~EOS);
	GRANT CREATE ON SCHEMA public TO mallory;
	CREATE SCHEMA mallory AUTHORIZATION mallory;
	CREATE SCHEMA owner AUTHORIZATION owner;
	GRANT USAGE ON SCHEMA mallory, owner TO PUBLIC;
	EOS
as('shop', $_, $trap =~ s/CREATOR/$_/gr) foreach qw(mallory owner);

# Before the extension is there.
cmp_ok(plant('shop', 'mallory', 'public', 'core'),
	'>', 1000, 'traps are planted in the schema of the extension');
cmp_ok(plant('shop', 'owner', 'owner', 'core'),
	'>', 1000, 'traps are planted in a schema before that of the extension');
as('shop', 'owner',
	'ALTER DATABASE shop SET search_path = owner, mallory, public, pg_catalog'
);
as('shop', 'owner', "CREATE EXTENSION $_ SCHEMA public") foreach @extensions;
nobody_has_got_a_right('CREATE EXTENSION');

# Whose are the casts and operators of the type?
foreach my $command (
	'CREATE CAST (pg_catalog.text AS public.snowid) WITH INOUT AS IMPLICIT',
	'CREATE CAST (public.snowid AS pg_catalog.timestamptz) WITH INOUT',
	'ALTER TYPE public.snowid OWNER TO owner',
	'ALTER OPERATOR public.= (public.snowid, public.snowid) SET (RESTRICT = NONE)',
	'CREATE OPERATOR CLASS owner.mine FOR TYPE public.snowid USING btree AS OPERATOR 1 public.<',
	'ALTER OPERATOR FAMILY public.snowid_ops USING btree DROP OPERATOR 3 (public.snowid, public.snowid)'
  )
{
	my (undef, undef, $err) =
	  $node->psql('shop', $command, extra_params => [ '-U', 'owner' ]);
	like(
		$err,
		qr/must be (?:owner|superuser)/,
		"the extension's owner is refused: $command");
}

# Now overloads of its own functions, with its types, too.
cmp_ok(plant('shop', @$_, 'ours', 'public'),
	'>', 500, "@$_: traps for our own functions")
  foreach [ 'mallory', 'public' ], [ 'mallory', 'mallory' ],
  [ 'owner', 'owner' ];
$node->safe_psql('shop', <<~'EOS');
	SET search_path = pg_catalog;
	CREATE SCHEMA "My Shop" AUTHORIZATION owner;
	GRANT USAGE ON SCHEMA "My Shop" TO PUBLIC;
	CREATE TABLE "My Shop"."Events" (id bigint PRIMARY KEY DEFAULT public.snowid_next()) PARTITION BY RANGE (id);
	CREATE TABLE "My Shop"."Orders" (id bigserial PRIMARY KEY);
	EOS
my $members =
  q{EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	WHERE d.classid = 'pg_proc'::regclass AND d.objid = pg_proc.oid AND d.deptype = 'e' AND extname ~ '^snowid')};
as('shop', 'owner',
	q{INSERT INTO public.snowid_segments (biz_tag, step) VALUES ('none', 1)});
my @shop = ('shop', 'public', $members);
try_the_surface(@shop, 'answered', 'public',
	'owner, mallory, public, pg_catalog');
is( $node->safe_psql(
		'shop',
		q{SELECT pg_catalog.count(*) FROM pg_catalog.pg_inherits WHERE inhparent OPERATOR(pg_catalog.=) '"My Shop"."Events"'::pg_catalog.regclass}
	),
	2,
	'the partitions are made');
plant('shop', 'mallory', 'public', 'ambiguous', 'public');
try_the_surface(@shop, 'perhaps ambiguous', 'public');

#---- managed/ ----

query($node, 'CREATE DATABASE shop_in_sql OWNER owner');
$node->safe_psql('shop_in_sql', <<~EOS);
	CREATE SCHEMA keys AUTHORIZATION owner;
	CREATE SCHEMA mallory AUTHORIZATION mallory;
	CREATE SCHEMA owner AUTHORIZATION owner;
	GRANT CREATE ON SCHEMA keys TO mallory;
	GRANT USAGE ON SCHEMA keys, mallory, owner TO PUBLIC;
	EOS
as('shop_in_sql', $_, $trap =~ s/CREATOR/$_/gr) foreach qw(mallory owner);
plant('shop_in_sql', @$_, 'core')
  foreach [ 'mallory', 'keys' ], [ 'mallory', 'mallory' ],
  [ 'owner', 'owner' ];
run_script($node, 'shop_in_sql', 'keys, owner, mallory, pg_catalog');
nobody_has_got_a_right('the script of managed/');
cmp_ok(plant('shop_in_sql', @$_, 'ours', 'keys'),
	'>', 500, "@$_: traps for the functions of managed/")
  foreach [ 'mallory', 'keys' ], [ 'mallory', 'mallory' ],
  [ 'owner', 'owner' ];
as('shop_in_sql', 'owner',
	'SELECT keys.snowid_setup(0::pg_catalog.int4, 7::pg_catalog.int4)');
my @in_sql = (
	'shop_in_sql', 'keys',
	q{pronamespace = 'keys'::regnamespace AND proname ~ '^snowid_' AND pg_get_userbyid(proowner) = 'owner'}
);
try_the_surface(
	@in_sql, 'answered', 'keys',
	'owner, mallory, keys, pg_catalog',
	'mallory, keys, pg_catalog');
plant('shop_in_sql', 'mallory', 'keys', 'ambiguous', 'keys');
try_the_surface(@in_sql, 'perhaps ambiguous', 'keys');

$node->stop;
done_testing();
