# managed/pg_tle.sql against a stub of pgtle.install_extension(), on a PostgreSQL
# without the library; from there to the library by dump and restore, and back.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidTest;
use Test::More;

my ($install_path, $extensions) = installation_without_library();
my $managed_server =
  PostgreSQL::Test::Cluster->new('managed', install_path => $install_path);
$managed_server->init;
$managed_server->start;
my $server = snowid_cluster('library', 'snowid.worker_id = 2');
$server->start;

like(
	sql_error($managed_server, 'CREATE EXTENSION snowid'),
	qr/extension "snowid" is not available/,
	'a server without the library');

# What pg_tle does: the text becomes the script of an extension that anybody may
# create who may create what is in it; it cannot be moved to another schema.
query($managed_server, <<~EOF);
	CREATE ROLE owner LOGIN CREATEDB;
	CREATE ROLE app LOGIN;
	CREATE SCHEMA pgtle;
	CREATE FUNCTION pgtle.install_extension(name text, version text, description text, ext text, requires text[] DEFAULT NULL)
		RETURNS boolean LANGUAGE plpgsql AS \$\$
	DECLARE
		script oid := lo_from_bytea(0, convert_to(ext, 'UTF8'));
		control oid := lo_from_bytea(0, convert_to(format(E'default_version = %L\\ncomment = %L\\nrelocatable = false\\nsuperuser = false\\ntrusted = false\\n',
			version, description), 'UTF8'));
	BEGIN
		PERFORM lo_export(script, format('$extensions/%s--%s.sql', name, version));
		PERFORM lo_export(control, format('$extensions/%s.control', name));
		RETURN true;
	END \$\$;
	EOF
$managed_server->command_ok(
	[
		'sh',
		'-c',
		"cd '$managed' && psql -Xq -v ON_ERROR_STOP=1 -d \"\$1\" -f pg_tle.sql",
		'sh',
		$managed_server->connstr('postgres')
	],
	'the text for pg_tle can be run');
my $known =
  q{SELECT default_version, comment FROM pg_available_extensions WHERE name = 'snowid'};
is( query($managed_server, $known),
	query($server,         $known),
	'name, version and comment are those of the library');

sub as_owner
{
	my ($node, $db, $sql) = @_;
	return $node->safe_psql($db, $sql, extra_params => [ '-U', 'owner' ]);
}

query($managed_server,
	'CREATE DATABASE shop OWNER owner; CREATE DATABASE back OWNER owner');
as_owner($managed_server, 'shop', <<~'EOF');
	CREATE SCHEMA "Keys";
	CREATE EXTENSION snowid SCHEMA "Keys";
	SELECT "Keys".snowid_setup(0, 1);
	SET search_path = public, "Keys";
	CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowid_next(), customer text,
		no text GENERATED ALWAYS AS (snowid_serial('O', id, '+08', 'twitter')) STORED);
	CREATE TABLE lines (id bigint PRIMARY KEY DEFAULT snowid_next(), order_id bigint REFERENCES orders,
		code text DEFAULT snowid_serial('L', snowid_next()));
	CREATE INDEX ON orders (snowid_timestamp(id, 'twitter'));
	CREATE VIEW today AS SELECT * FROM orders WHERE id >= snowid_min(date_trunc('day', now()));
	WITH o AS (INSERT INTO orders (customer) SELECT 'c' || n FROM generate_series(1, 1000) n RETURNING id)
	INSERT INTO lines (order_id) SELECT id FROM o;
	GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO app;
	GRANT USAGE ON SCHEMA "Keys" TO app;
	EOF
my $sum =
  q{SELECT count(*), max(id), md5(string_agg(o::text, ',' ORDER BY id)), (SELECT md5(string_agg(l::text, ',' ORDER BY id)) FROM lines l),
	(SELECT count(*) FROM today), bool_and("Keys".snowid_to_base32(id) < 'Z') FROM orders o};
my $before = $managed_server->safe_psql('shop', $sum);
is( $managed_server->safe_psql(
		'shop',
		q{INSERT INTO lines DEFAULT VALUES RETURNING (SELECT worker_id FROM "Keys".snowid_decode(id))},
		extra_params => [ '-U', 'app' ]),
	'1',
	'an application that may not do more makes keys');
$managed_server->safe_psql('shop',
	'DELETE FROM lines WHERE order_id IS NULL');
like(
	$managed_server->safe_psql(
		'shop', q{SELECT string_agg(x.i, ' ') FROM
		(SELECT identity AS i FROM pg_depend, pg_identify_object(classid, objid, objsubid)
		 WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowid') AND identity ~ 'turn|snowid_next\(') x}
	),
	qr/snowid_turn.*snowid_next\(\)|snowid_next\(\).*snowid_turn/,
	'functions that the set-up replaced are still of the extension');

#---- To the library ----

query($server,
	'CREATE ROLE owner LOGIN CREATEDB; CREATE ROLE app LOGIN; CREATE DATABASE shop OWNER owner'
);
restore_dump($managed_server, 'shop', $server, 'shop');
is($server->safe_psql('shop', $sum), $before, 'all is there');
is( $server->safe_psql(
		'shop', q{SELECT probin FROM pg_proc WHERE proname = 'snowid_next'}),
	'$libdir/snowid',
	"the functions are the library's");
$server->poll_query_until('shop',
	'SELECT is_open FROM "Keys".snowid_status()');
is( $server->safe_psql(
		'shop', q{SELECT "Keys".snowid_advance(max(id)) FROM orders;
		INSERT INTO orders DEFAULT VALUES RETURNING id > (SELECT max(id) FROM orders), (SELECT worker_id FROM "Keys".snowid_decode(id))}
	),
	"\nt|2",
	'keys continue with the worker ID of that server');
$server->safe_psql('shop', 'DELETE FROM orders WHERE customer IS NULL');

#---- And back ----

restore_dump($server, 'shop', $managed_server, 'back');
is($managed_server->safe_psql('back', $sum), $before, 'all is there');
like(
	sql_error($managed_server, "\\c back\nINSERT INTO orders DEFAULT VALUES"),
	qr/^55000: snowid has no worker ID in this database/,
	'no key before it is set up');
is( $managed_server->safe_psql(
		'back',
		q{SELECT "Keys".snowid_setup(0, 3); SELECT "Keys".snowid_advance(max(id)) FROM orders;
		INSERT INTO orders DEFAULT VALUES RETURNING id > (SELECT max(id) FROM orders), (SELECT worker_id FROM "Keys".snowid_decode(id))}
	),
	"\n\nt|3",
	'keys continue above the restored ones');
query($server, 'CREATE DATABASE again OWNER owner');

# once more to the library, which a superuser had created
restore_dump($managed_server, 'back', $server, 'again');
is( $managed_server->safe_psql(
		'back',
		q{DROP EXTENSION snowid CASCADE; SELECT count(*) FROM pg_class WHERE relname ~ '^snowid'}
	),
	'0',
	'nothing is left of it when it is dropped');

#---- pg_upgrade, which managed servers do in place ----

my $new =
  PostgreSQL::Test::Cluster->new('upgraded', install_path => $install_path);
$new->init;
my $last = $managed_server->safe_psql('shop', 'SELECT "Keys".snowid_next()');
$managed_server->stop;
pg_upgrade($managed_server, $new);
$new->start;
is( $new->safe_psql(
		'shop',
		qq{SELECT k > $last, worker_id FROM "Keys".snowid_next() k, "Keys".snowid_decode(k)}
	),
	't|1',
	'keys continue without another set-up');

$_->stop foreach $new, $server;
done_testing();
