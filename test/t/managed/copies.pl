# managed/: no copy makes keys before its set-up; another pair; attacks of roles that
# own the database, the schema or an object in it, or have no rights; a second run.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidSession;
use SnowidTest;
use Test::More;

my $no_pair = qr/^55000: snowid has no worker ID in this database/;

sub server
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init;
	give_clock($node);
	$node->start;
	query($node, 'CREATE DATABASE shop');
	return $node;
}

sub sql
{
	my ($node, $sql) = @_;
	return $node->safe_psql('shop', $sql);
}

sub error
{
	my ($node, $db, $sql) = @_;
	return sql_error($node, "\\c $db\n$sql");
}

#---- A restored dump of a restored dump ----

# A server that is restored into while it is new gives all objects the same OIDs.
my $oids =
  q{SELECT string_agg(oid::text, ' ' ORDER BY relname) FROM pg_class WHERE relname ~ '^snowid_'};
my ($first, $second, $third) = map { server($_) } 'first', 'second', 'third';
run_script($first, 'shop', 'public');
sql($first, 'SELECT snowid_setup(0, 7)');
restore_dump($first, 'shop', $second, 'shop');
like(error($second, 'shop', 'SELECT snowid_next()'),
	$no_pair, 'a restored dump makes no key');
sql($second, 'SELECT snowid_setup(0, 8)');
restore_dump($second, 'shop', $third, 'shop');
is(sql($third, $oids), sql($second, $oids), 'the same OIDs');

foreach my $call ('next()', 'next_block(1)', 'next_batch(1)', 'next_array(0)')
{
	like(error($third, 'shop', "SELECT snowid_$call"),
		$no_pair, "no key: $call");
}
sql($third, 'SELECT snowid_setup(0, 9)');
is(sql($third, 'SELECT worker_id FROM snowid_decode(snowid_next())'),
	'9', 'before its set-up');
$_->stop foreach $first, $second;

#---- Databases that change their names ----

my $node = $third;

# Lets keys lead a clock that stands still, so that nobody has to jump to it.
sub lead
{
	my $ms = sql($node,
		q{SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) + 59 * 60000}
	);
	sql($node,
		"SELECT snowid_advance(snowid_encode(to_timestamp($ms / 1000.0), 0, 0, 0))"
	);
	stop_clock($node, $ms - 500);
	return sql($node, 'SELECT snowid_next()');
}

sub names
{
	my ($from, $to) = @_;
	query($node, "ALTER DATABASE $from RENAME TO $to");
	return;
}
lead();
query($node, 'CREATE DATABASE copy TEMPLATE shop');
names('shop', 'original');
names('copy', 'shop');
like(error($node, 'shop', 'SELECT snowid_next()'),
	$no_pair, 'a copy under the name of the original makes no key');
is( $node->safe_psql(
		'original', 'SELECT worker_id FROM snowid_decode(snowid_next())'),
	'9',
	'the original does, under another name');
names('shop',     'copy');
names('original', 'shop');

#---- Another pair ----

sql($node, 'SELECT snowid_setup(31, 31)');
my $last = sql($node, 'SELECT max(k) FROM snowid_next_batch(2) k');
my $old  = SnowidSession->new($node, 'shop');
$old->query('BEGIN');
$old->query(
	'DECLARE keys CURSOR FOR SELECT snowid_next() FROM generate_series(1, 100)'
);
my $of_old = $old->query('FETCH keys');
cmp_ok($of_old, '>', $last,
	'a statement that began before the set-up makes a key above the last');
sql($node, 'SELECT snowid_setup(0, 0)');
my $of_new = sql($node, 'SELECT snowid_next()');
cmp_ok($of_new, '>', $of_old,
	'a lower pair does not make lower keys in the same millisecond');
$last = $old->query('FETCH keys');
cmp_ok($last, '>', $of_new,
	'a statement that began before does not continue in that millisecond');
is(sql($node, "SELECT worker_id FROM snowid_decode($last)"),
	'0', 'the statement that began before has the new pair');
is( $old->query('FETCH 3 FROM keys'),
	join("\n", map { $last + $_ } 1 .. 3),
	'the statement continues unit by unit');
undef $old;
sql($node, 'BEGIN; SELECT snowid_setup(31, 31), snowid_next(); ROLLBACK');
is(sql($node, "SELECT worker_id FROM snowid_decode(snowid_next())"),
	'0', 'a set-up that is rolled back leaves nothing');

#---- A clock that was far ahead ----

$last = lead();
set_skew($node, 0);
like(error($node, 'shop', 'SELECT snowid_next()'),
	qr/^58000:/, 'no key if the clock was far ahead');
my ($remedy) = slurp_file("$managed/../doc/managed.md") =~
  /keys are refused until it reaches that time.*?```sql\n(.*?)```/s;
like($remedy, qr/setval/, 'the manual has the remedy');
sql($node, $remedy);
cmp_ok(sql($node, 'SELECT snowid_next()'),
	'<', $last, 'keys have the present time');
isnt(sql($node, 'SELECT worker_id FROM snowid_decode(snowid_next())'),
	'0', 'keys carry another worker ID');

#---- The script again ----

my @script = ('-f', "$managed/snowid--0.1.sql");

sub run_psql
{
	my ($db, @arguments) = @_;
	IPC::Run::run([ 'psql', '-XqAt', '-d', $node->connstr($db), @arguments ],
		'>', \my $out, '2>', \my $err);
	return "$out$err";
}
lead();
$last = sql($node, 'SELECT snowid_next()');
like(
	run_psql('shop', @script),
	qr/ERROR:  schema "public" already contains snowid/,
	'a second run says that the script has run');
cmp_ok(sql($node, 'SELECT snowid_next()'),
	'>', $last, 'a second run changes nothing');

# A function that runs as a superuser would call what is in the schema "@schema@"
# until the last statement of the script.
query($node, 'CREATE DATABASE statements');
like(
	run_psql('statements', @script),
	qr/ERROR:  the script of snowid must run in one transaction\nHINT:  Drop what it has created, and run it with "psql -1"\./,
	'statement by statement it is refused');
is( $node->safe_psql(
		'statements',
		q{SELECT count(*) FILTER (WHERE prosecdef), count(*) > 20
			FROM pg_proc WHERE proname ~ '^snowid_'}
	),
	'0|t',
	'functions that it leaves run with the rights of their callers');

#---- Roles ----

query($node,
	'CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN; CREATE DATABASE theirs OWNER mallory'
);

sub refused
{
	my ($schema, $message, $what) = @_;
	like(
		run_psql('theirs', '-1', '-c', "SET search_path = $schema", @script),
		qr/ERROR:  $message/,
		$what);
	is( $node->safe_psql(
			'theirs',
			q{SELECT count(*) FROM pg_class WHERE relname = 'snowid_turn'}),
		'0',
		'nothing is left');
	return;
}
$node->safe_psql('theirs', <<~'EOF');
	SET SESSION AUTHORIZATION mallory;
	CREATE SCHEMA x;
	SET check_function_bodies = off;
	CREATE FUNCTION x.snowid_trap() RETURNS void LANGUAGE plpgsql AS $trap$
	BEGIN
	END $function"@schema@"$;
	ALTER ROLE mallory SUPERUSER;
	SELECT $function"@schema@"$ $trap$;
	RESET SESSION AUTHORIZATION;
	CREATE SCHEMA "o'brien";
	CREATE SCHEMA "100%";
	CREATE SCHEMA shared;
	GRANT ALL ON SCHEMA shared TO mallory;
	SET SESSION AUTHORIZATION mallory;
	CREATE FUNCTION shared.snowid_reserve(int) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
	EOF
refused(
	'x',
	qr/"snowid_trap" in schema "x" belongs to another role than/,
	'a function that would run with the script');
refused(
	'shared',
	qr/"snowid_reserve" in schema "shared" belongs to another role than/,
	'a function of another role');
foreach my $schema ("o'brien", '100%')
{
	refused(
		qq{"$schema"},
		qr/invalid name of a schema for snowid: "\Q$schema\E"/,
		"a name that would be more than a name: $schema");
}
is( run_psql(
		'theirs',
		'-1',
		'-v',
		'ON_ERROR_STOP=1',
		@script,
		'-c',
		q{SELECT snowid_setup(0, 12); SELECT worker_id FROM snowid_decode(snowid_next())}
	),
	"\n12\n",
	'the script runs as one transaction in the schema public');
my $of_others =
  q{SELECT count(*), count(*) FILTER (WHERE o <> 'mallory'::regrole) FROM
	(SELECT proowner AS o FROM pg_proc WHERE proname ~ '^snowid_' AND pronamespace = 'public'::regnamespace
	UNION ALL SELECT relowner FROM pg_class WHERE relname ~ '^snowid_' AND relnamespace = 'public'::regnamespace) x};
like($node->safe_psql('theirs', $of_others),
	qr/^[1-9]\d+\|0$/, 'all of it belongs to the role that could replace it');
is( run_psql(
		'theirs',
		'-c',
		'SET ROLE mallory',
		'-c',
		'SELECT snowid_setup(0, 13); SELECT worker_id FROM snowid_decode(snowid_next())'
	),
	"\n13\n",
	'the role that owns all of it can set it up');

sub keys_are_made
{
	my ($what) = @_;
	is( error(
			$node,
			'shop',
			"SET statement_timeout = '60s';\nSELECT snowid_next_block(1::bigint) \\gset"
		),
		'', $what);
	return;
}

my $idle = SnowidSession->new($node, 'shop');
$idle->query('SET SESSION AUTHORIZATION app');
$idle->query("SELECT pg_advisory_lock($_), pg_advisory_lock($_, 0)")
  foreach split /\n/,
  sql($node, q{SELECT oid FROM pg_class WHERE relname ~ '^snowid_'});
like(
	error(
		$node,
		'shop',
		"SET SESSION AUTHORIZATION app;\nBEGIN;\nLOCK TABLE snowid_lock IN ACCESS SHARE MODE"
	),
	qr/^42501: permission denied for view snowid_lock/,
	'the lock is not for everybody');
keys_are_made('a lock that any role can take does not delay keys');


# who does not read what the server says while it has the lock, here of a subtransaction's end
foreach my $padding (1 .. 20)
{
	my $silent = SnowidSession->new($node, 'shop');
	my ($pid) = $silent->query('SELECT pg_backend_pid()');
	$silent->query(
		'SET SESSION AUTHORIZATION app; SET client_min_messages = debug5');
	$silent->ask('SELECT repeat($$x$$, '
		  . $padding * 131
		  . '); SELECT count(snowid_next_block(1::bigint)) FROM generate_series(1, 3000)'
	);
	wait_until(
		'it waits for its client, or is done',
		sub {
			sql($node,
				"SELECT state = 'idle' OR wait_event = 'ClientWrite' FROM pg_stat_activity WHERE pid = $pid"
			) eq 't';
		});
	push @{ $idle->{silent} }, $silent;
}
keys_are_made('clients that read nothing do not hold keys up');
undef $idle;
my $analyst = SnowidSession->new($node, 'shop');
$analyst->query('BEGIN');
$analyst->query('ANALYZE');
keys_are_made('ANALYZE does not hold keys up');
undef $analyst;

#---- Rights that come by themselves ----

# The rights that a role has on what is not for everybody.
my $rights =
  q{SELECT concat_ws(' ', string_agg(proname, ' ' ORDER BY proname) FILTER (WHERE has_function_privilege('app', p.oid, 'EXECUTE')),
		(SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname ~ '^snowid_(home|turn|units|lock)'
			AND CASE relkind WHEN 'S' THEN has_sequence_privilege('app', oid, 'USAGE, SELECT, UPDATE') ELSE has_table_privilege('app', oid, 'SELECT, INSERT, UPDATE') END))
	FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND proname = ANY ('{snowid_pair,snowid_reserve,snowid_compile,snowid_secure,snowid_setup,snowid_advance,snowid_next}')};
query($node, 'CREATE DATABASE given OWNER mallory');
$node->safe_psql('given', <<~'EOF');
	ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO app, PUBLIC;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO app;
	EOF
run_script($node, 'given', 'public');
is($node->safe_psql('given', $rights),
	'snowid_next', 'default privileges give away nothing');
$node->safe_psql('given', 'SELECT snowid_setup(0, 14)');
query($node, 'CREATE DATABASE moved OWNER mallory');
$node->command_ok(
	[
		'sh', '-c',
		'pg_dump -O -x -d "$1" | psql -Xq -v ON_ERROR_STOP=1 -d "$2"',
		'sh',
		$node->connstr('given'),
		$node->connstr('moved')
	],
	'a dump without rights and owners');
$node->safe_psql('moved', 'SELECT snowid_setup(0, 15)');
is($node->safe_psql('moved', $rights),
	'snowid_next',
	'default privileges give away nothing from the set-up on, either');
like($node->safe_psql('moved', $of_others),
	qr/^[1-9]\d+\|0$/, "all objects belong to the schema's owner");

$node->stop;
done_testing();
