# README's own steps, in both languages: from the first role and createdb on to the
# application's program, every block as it is printed, with ordinary roles.  The
# container's script, too, makes a role that can do all of it.
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $top  = abs_path(dirname(__FILE__) . '/../../..');
my $node = snowid_cluster('readme', 'snowid.worker_id = 1');
$node->append_conf('postgresql.conf', "listen_addresses = 'localhost'");
start_and_open($node);

# In place of sudo: what it runs is run by the database's superuser.  The services
# are not restarted, since the server has the two lines of configuration.
my $bin = PostgreSQL::Test::Utils::tempdir;
append_to_file("$bin/sudo", <<~'EOF');
	#!/bin/sh
	[ "$1" != -u ] || shift 2
	PGUSER=$SUPERUSER exec "$@"
	EOF
append_to_file("$bin/systemctl", "#!/bin/sh\n");
chmod 0755, "$bin/sudo", "$bin/systemctl";
chomp(my $superuser = qx(id -un));

my $has_psycopg = system("python3 -c 'import psycopg' 2>/dev/null") == 0;

# Runs a command as the user of this name, with an input.  Returns what it prints,
# and what is wrong, or ''.
sub run_as
{
	my ($user, $input, @command) = @_;
	my ($out, $err) = ('', '');
	local $ENV{PATH}       = "$bin:$ENV{PATH}";
	local $ENV{PGHOST}     = $node->host;
	local $ENV{PGPORT}     = $node->port;
	local $ENV{USER}       = $user;
	local $ENV{PGUSER}     = $user;
	local $ENV{SUPERUSER}  = $superuser;
	local $ENV{PGOPTIONS}  = '-c client_min_messages=warning';
	local $ENV{PSQLRC}     = '/dev/null';
	local $ENV{PYTHONUTF8} = 1;
	IPC::Run::run(\@command, '<', \$input, '>', \$out, '2>', \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return ($out, $err);
}

# One value, or PostgreSQL's message, in a session of this user
sub ask
{
	my ($user, $db, $sql) = @_;
	my ($out, $err) = run_as($user, $sql, 'psql', '-XAtq', $db);
	return ($err || $out) =~ s/\n\z//r;
}

foreach my $name ('README.md', 'README.zh-CN.md')
{
	# what comes from the first role on, with what is typed into the last psql
	my $page = slurp_file("$top/$name");
	my @blocks;
	while ($page =~ /((?:^<!--.*-->\n)?)^```(sh|sql|python)\n(.*?)^```$/gms)
	{
		my ($comment, $language, $text) = ($1, $2, $3);
		push @blocks, [ $language, $text ]
		  if $comment eq ''
		  && (@blocks ? $text !~ /\b(?:make|apt-get) / : $text =~ /createdb/);
	}
	is(join(' ', map { $_->[0] } @blocks[ 0, 1 ]),
		'sh sql', "$name: after createdb there is SQL");
	splice @blocks, 0, 2, [ 'sh', $blocks[0][1], $blocks[1][1] ];
	cmp_ok(scalar(grep { $_->[0] eq 'python' } @blocks),
		'==', 1, "$name: one of its programs is in Python");

	my $python;
	foreach my $block (@blocks)
	{
		my ($language, $text, $input) = @$block;
		my ($first) = $text =~ /^(.*)$/m;

	  SKIP:
		{
			if ($language eq 'python')
			{
				skip 'psycopg 3 (python3-psycopg) is not installed', 2
				  if !$has_psycopg;
				my ($out, $err) = run_as('program', $text, 'python3', '-');
				is($err, '', "$name: the program in Python runs");
				like(
					$out,
					qr/^stored order \d+ with lines \d+ \d+$/,
					"$name: the program in Python stores an order");
				next;
			}
			my (undef, $err) =
			  $language eq 'sh'
			  ? run_as('dba', $input // '', 'bash', '-euc', $text)
			  : run_as('dba', $text, 'psql', '-v', 'ON_ERROR_STOP=1', 'shop');
			is($err, '', "$name: the block \"$first\" runs");
		}
	}
	is( ask('dba', 'shop', 'SELECT count(*) FROM order_lines'),
		$has_psycopg ? 4 : 2,
		"$name: the lines are stored");
	like(ask('app', 'shop', 'SELECT snowid_next_array(3)'),
		qr/^\{\d+,\d+,\d+\}$/, "$name: the application's role gets keys");
	like(
		ask('app', 'shop',
			"INSERT INTO orders (customer) VALUES ('Eve') RETURNING id"),
		qr/^\d+$/,
		"$name: the application's role inserts by the default");
	is( ask('app',
			'shop',
			"SELECT count(*) FROM orders WHERE id >= snowid_min(now() - interval '1 hour')"
		),
		$has_psycopg ? 3 : 2,
		"$name: the application's role asks for a range of time");
	is( ask($superuser,
			'postgres',
			q{SELECT string_agg(rolname, ' ') FROM pg_roles WHERE rolsuper AND rolname IN ('dba', 'app')}
		),
		'',
		"$name: its roles are no superusers");
	$node->safe_psql('postgres', $_)
	  foreach 'DROP DATABASE shop', 'DROP ROLE dba', 'DROP ROLE app';
}

#---- The example of a configuration ----

# as it is, and with every line that is a comment of a setting
my $example = slurp_file("$top/doc/snowid.conf");
my @hidden  = $example =~ /^#((?:snowid)\.\S+ = \S+)/mg;
cmp_ok(scalar @hidden, '>', 5, 'doc/snowid.conf has settings as comments');
foreach my $line (grep { !/worker_id|redis_|layout/ } @hidden)
{
	my ($setting, $value) = $line =~ /^(\S+) = '?(.*?)'?$/;
	is($node->safe_psql('postgres', "SHOW $setting"),
		$value, "doc/snowid.conf: $setting = $value is the default");
}
my $other = PostgreSQL::Test::Cluster->new('example');
$other->init;
$other->append_conf('postgresql.conf', $example);
$other->start;
create_extension($other);
$other->poll_query_until('postgres', 'SELECT is_open FROM snowid_status()');
is( $other->safe_psql(
		'postgres',
		q{SELECT count(*) FROM pg_settings WHERE name LIKE 'snowid.%' AND name IN (}
		  . join(', ', map { /^(\S+)/ ? "'$1'" : () } @hidden) . ')'),
	scalar(keys %{ { map { /^(\S+)/ ? ($1 => 1) : () } @hidden } }),
	'doc/snowid.conf: its comments name settings');
like($other->safe_psql('postgres', 'SELECT snowid_next()'),
	qr/^\d+$/, 'a server with doc/snowid.conf makes keys');
$other->stop;

#---- The container's script ----

my $script = "$top/docker/create-extension.sql";
foreach my $password (q{se'cret}, undef)
{
	my $who = defined $password ? 'app' : $superuser;

	$node->safe_psql('postgres', 'CREATE DATABASE "my-shop"');
	delete local $ENV{APP_PASSWORD};
	local $ENV{APP_PASSWORD} = $password if defined $password;
	my (undef, $err) = run_as($superuser, '', 'psql', '-X', '-q', '-v',
		'ON_ERROR_STOP=1', '-f', $script, 'my-shop');
	is($err, '', "docker: the script runs for $who");
	is( ask($who,
			'my-shop',
			'CREATE TABLE t (id bigint DEFAULT snowid_next()); INSERT INTO t DEFAULT VALUES; SELECT cardinality(snowid_next_array(3))'
		),
		3,
		"docker: $who makes a table with keys");
	is( ask($superuser,
			'my-shop',
			q{SELECT pg_get_userbyid(datdba), (SELECT rolsuper FROM pg_roles WHERE oid = datdba) FROM pg_database WHERE datname = current_database()}
		),
		defined $password ? 'app|f' : "$superuser|t",
		"docker: $who owns the database");
	$node->safe_psql('postgres', 'DROP DATABASE "my-shop"');
}

$node->stop;
done_testing();
