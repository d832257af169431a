# How Redis is reached, and secrets: each form of URL; ACL users with the least
# rights; the password file; and no password in a log, a setting, the status, a
# process title or an error.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $secret = 'hunter2Secret';
my @least  = qw(info evalsha eval time hget hset hdel);

my $redis = SnowidRedis->start(
	'redis',
	'user admin on >opener ~* &* +@all',
	'user default off',
	"user snowid on >$secret ~snowid "
	  . join(' ', map { "+$_" } @least, 'select', 'wait'));
$redis->{cli} =
  [ '--user', 'admin', '--pass', 'opener', '--no-auth-warning' ];

my $file = PostgreSQL::Test::Utils::tempdir('secrets') . '/password';

# The password file, as it is from here on.
sub password_file
{
	my ($content, $mode) = @_;
	unlink $file;
	append_to_file($file, $content);
	chmod($mode // 0600, $file) or die "$!";
	return;
}

sub use_url
{
	my ($node, $url, $more) = @_;
	$node->{redis} = $url;
	settings($node, "snowid.redis_password_file = '$file'\n" . ($more // ''));
	return;
}

# Waits until Redis has answered after this moment.
sub answered
{
	my ($node) = @_;
	for (1 .. 2)
	{
		my $last = status($node, 'registry_ok_at');
		poll($node, "registry_ok_at > '$last'");
	}
	$node->{good_until} = -s $node->logfile;
	return;
}

# Reloads, which connects again, and waits for this error, the first since all
# was well; with it goes the status.
sub error_is
{
	my ($node, $error, $name) = @_;
	$node->reload;
	my $line = qr/LOG:  Redis cannot be used\n.*DETAIL:  .*$error/m;
	ok(eval { $node->wait_for_log($line, $node->{good_until} // 0) }, $name)
	  or diag($error . ': ' . status($node, 'registry_error'));
	return;
}

sub works
{
	my ($node, $name) = @_;
	$node->reload;
	answered($node);
	pass($name);
	return;
}

# The places that show a secret; '' for none.
my @errors;

sub leaks
{
	my (@nodes) = @_;
	my @found;
	foreach my $node (@nodes)
	{
		push @found, 'log' if slurp_file($node->logfile) =~ /$secret/i;
		next if !defined $node->{_pid};
		push @found, 'settings'
		  if query($node, 'SELECT s::text FROM pg_settings s') =~ /$secret/i;
		push @found, 'SHOW'
		  if query($node, 'SHOW ALL') =~ /$secret/i;
		push @found, 'status'
		  if status($node, 'snowid_status::text') =~ /$secret/i;
		push @found, 'activity'
		  if query($node, 'SELECT a::text FROM pg_stat_activity a') =~
		  /$secret/i;
	}
	push @found, 'error' if grep { /$secret/i } @errors;
	my @titles = grep { /postgres/ } `ps axww -o command`;
	die 'ps does not list processes' if !@titles;
	push @found, 'process title' if grep { /$secret/i } @titles;
	return join ', ', @found;
}

#---- An ACL user, a database, a socket ----

password_file("$secret\n");
my $node = snowid_cluster('node');
my $url  = "redis://snowid\@127.0.0.1:$redis->{port}/3";
use_url($node, $url);
$node->start;
create_extension($node);
wait_for_claim($node);
is($redis->query('-n', 3, 'HGET', 'snowid', '0:0') =~ /"name":"node"/,
	1, 'an ACL user claims, in database 3');
is(query($node, 'SELECT count(*) FROM snowid_claims()'),
	1, 'an ACL user may list the claims');

my $local = snowid_cluster('local');
use_url($local, "unix://snowid\@$redis->{socket}");
$local->start;
create_extension($local);
wait_for_claim($local);
is($redis->record('0:0', 'name'), 'local',
	'a server claims through a socket');

# each of these rights is needed, and its lack is reported; hdel is when the last ID of a
# server is given back
foreach my $command (grep({ $_ ne 'hdel' } @least), 'select')
{
	$redis->query('ACL', 'SETUSER', 'snowid', "-$command");
	$redis->query('SCRIPT', 'FLUSH');
	$redis->query('FLUSHALL');

	error_is(
		$node,
		"(NOPERM .*'$command'|The user executing the script can't run|no permissions to run the|NOPERM)",
		"without $command there is an error");
	$redis->query('ACL', 'SETUSER', 'snowid', "+$command");
	works($node, "$command is allowed again: there is no error");
}
is(status($node, 'is_open, registry, worker_id'),
	't|claimed|0', 'the keys continue');
use_url($node, $url, 'snowid.redis_wait_replicas = 1');
error_is($node, '0 of the 1 replicas', 'WAIT is allowed');
use_url($node, $url);
works($node, 'without them it continues');
$redis->query('ACL', 'SETUSER', 'snowid', '-wait');
works($node, 'WAIT is not needed otherwise');
use_url($node, $url, 'snowid.redis_wait_replicas = 1');
error_is($node, 'NOPERM', 'WAIT is needed for replicas');
use_url($node, $url);
works($node, 'no wait for a replica: it continues');
$redis->query('ACL', 'SETUSER', 'snowid', 'resetkeys', '~snowidx', '~other');
error_is($node, 'NOPERM.*key', 'without our key there is an error');
$redis->query('ACL', 'SETUSER', 'snowid', 'resetkeys', '~snowid');
works($node, 'the user may use our key again: there is no error');

#---- The password file ----

# forms/public.pl has the other files that are refused.
my @refused = (
	[
		sub { password_file("$secret\n", 0640) },
		'has group or world access; its permissions should be'
	],
	[ sub { password_file('') }, 'the first line of file ".*" is empty' ],
	[
		sub { password_file("\n$secret\n") },
		'the first line of file ".*" is empty'
	],
	[
		sub { password_file($secret x 100) },
		'the first line of file ".*" is too long'
	],
	[
		sub { password_file("x$secret\n") },
		'the password was refused: WRONGPASS\.$'
	],
	[
		sub {
			$redis->query('ACL', 'SETUSER', 'snowid', 'off');
			password_file($secret);
		},
		'the password was refused: WRONGPASS\.$'
	]);
foreach my $case (@refused)
{
	my ($make, $error) = @$case;
	$make->();
	error_is($node, $error, "a password file is refused: $error");
	password_file("$secret\r\nsecond line\n", 0400);
	$redis->query('ACL', 'SETUSER', 'snowid', 'on');
	answered($node);    # without a reload: read at each connect
}
pass('the file is read at each connect');

# rotated
$redis->query('ACL', 'SETUSER', 'snowid', '>Another', "<$secret");
error_is($node, 'WRONGPASS', 'another password in Redis is refused');
password_file('Another');
works($node, 'is taken with a reload');
$redis->query('ACL', 'SETUSER', 'snowid', ">$secret", '<Another');
password_file("$secret\n");
works($node, 'the password is put back: it continues');

use_url($node, $url, 'snowid.redis_password_file = \'\'');
error_is(
	$node,
	'the password was refused: WRONGPASS\.$',
	'a user without a password is refused');
use_url($node, $url);
works($node, 'the password file is set again: it continues');

# one that has no users
$redis->query(
	'ACL',       'SETUSER',  'default', 'on',
	'resetpass', ">$secret", '~*',      '&*',
	'+@all');
$local->stop;
use_url($local, "unix://$redis->{socket}");
$local->start;
wait_for_claim($local);
is(worker_id($local), 0, 'a password without a user');
use_url($local, "unix://$redis->{socket}",
	'snowid.redis_password_file = \'\'');
error_is(
	$local,
	"\Q$redis->{socket}\E: INFO: NOAUTH",
	'without one there is an error');
$local->stop;

#---- A server that repeats what it gets ----

my $parrot = SnowidRedis->fake(
	sub {
		my ($mode, @words) = @_;
		return $mode =~ s/%/$words[-1]/gr if $words[0] eq 'AUTH';
		return "-NOAUTH Authentication required.\r\n";
	});
use_url($local, 'redis://snowid@127.0.0.1:' . $parrot->{port});
$parrot->mode("+OK\r\n");
$local->start;
my @parrots = (
	"-ERR unknown command 'AUTH', with args beginning with: '%'\r\n" =>
	  'the password was refused: ERR$',
	"-%\r\n" => 'the password was refused: a reply that is not from Redis$',
	"-% is wrong\r\n" =>
	  'the password was refused: a reply that is not from Redis$',
	"-\r\n"  => 'the password was refused: a reply that is not from Redis$',
	"+%\r\n" => 'the password was refused: a reply that is not from Redis$',
	"\$13\r\n%\r\n" =>
	  'the password was refused: a reply that is not from Redis$',
	"%\r\n"        => 'Protocol error, got "h" as reply type byte$',
	"*1\r\n-%\r\n" =>
	  'the password was refused: a reply that is not from Redis$',
	"+OK\r\n" => 'INFO: NOAUTH Authentication required\.$');
while (my ($answer, $error) = splice @parrots, 0, 2)
{
	$parrot->mode($answer);
	my $from = $parrot->requests_size;
	wait_until(
		'two calls of AUTH',
		sub {
			2 <= grep { $_->[0] eq 'AUTH' } $parrot->requests($from);
		});
	like(status($local, 'registry_error'),
		qr/$error/, "an answer to AUTH is not repeated: $error");
	push @errors, status($local, 'registry_error'),
	  sql_error($local, 'SELECT snowid_claims();');
}
is(leaks($node, $local), '', 'the password is nowhere');

#---- Which role sees addresses and paths ----

query($local, <<~'EOF');
	CREATE ROLE anybody;
	CREATE ROLE reader IN ROLE pg_read_all_settings;
	CREATE ROLE monitor IN ROLE pg_monitor;
	GRANT EXECUTE ON FUNCTION snowid_reclaim() TO anybody;
	EOF
$local->stop;
unlink $local->data_dir . '/snowid/state' or die "$!";
use_url(
	$local,
	'redis://snowid@127.0.0.1:' . $parrot->{port},
	"snowid.max_wait = '1s'\n");
$local->start;

# An error as a role sees it, in one line.
sub error_for
{
	my ($role, $call) = @_;
	return sql_error($local, "SET ROLE $role; SELECT $call") =~ s/\n/ /gr;
}

foreach my $refused (
	[
		sub { $parrot->mode("+OK\r\n") },
		'Redis cannot be used: 127\.0\.0\.1 port \d+: INFO'
	],
	[
		sub { password_file("$secret\n", 0604) },
		"file \"\Q$file\E\" has group"
	])
{
	my ($make, $detail) = @$refused;
	$make->();
	poll($local, "reason ~ \$_\$$detail\$_\$");
	like(error_for($_, 'snowid_next()'),
		qr/$detail/, "the error of snowid_next() shows $_: $detail")
	  foreach qw(reader monitor);
	like(
		error_for('anybody', 'snowid_next()'),
		qr/^55000: snowid has not claimed a worker ID yet DETAIL:  See the server log\. HINT/,
		"an ordinary role is referred to the log: $detail");
	unlike(error_for('anybody', 'snowid_reclaim()'),
		qr/$detail/,
		"snowid_reclaim() shows an ordinary role nothing of: $detail");
}
password_file("$secret\n");
$local->stop;

#---- URLs ----

# Starts with this URL; returns what the log says of it, '' where it starts.
sub start_error
{
	my ($bad) = @_;
	my $log = -s $local->logfile;
	use_url($local, $bad);
	if ($local->start(fail_ok => 1))
	{
		$local->stop;
		return '';
	}
	my ($warning, $hint) = slurp_file($local->logfile, $log) =~
	  /WARNING:  invalid value for parameter "snowid.redis_url": (.*)\n(?:.*HINT:  (A password belongs in the file that snowid.redis_password_file names.)\n)?/;
	push @errors, $warning // '';
	return 'no hint' if ($warning =~ /must not contain/) != defined $hint;
	return $warning;
}

my $form     = qr{^it must be redis://\[user@\]host};
my $password = qr/^it must not contain a password$/;
my $port     = qr/^a port must be a number from 1 to 65535$/;
my $database = qr/^a database must be a number from 0 to 1000000$/;
my @bad      = (
	"redis://:$secret\@localhost"            => $password,
	"redis://snowid:${secret}\@x\@localhost" => $password,
	"redis://snowid:${secret}/x\@localhost"  => $password,
	"unix://snowid:$secret\@/tmp/x"          => $password,
	"redis://a,redis://:$secret\@localhost"  => $password,
	"redis://localhost?password=$secret"     =>
	  qr/^it must not contain parameters$/,
	"unix:///tmp/x?password=$secret" => qr/^it must not contain parameters$/,
	$secret                          => $form,
	'redis:/localhost'               => $form,
	'redis:///3'                     => qr/^a host name is missing$/,
	'redis://user@'                  => qr/^a host name is missing$/,
	'redis://localhost:'             => $port,
	'redis://localhost:0'            => $port,
	'redis://localhost:65536'        => $port,
	'redis://localhost:-1'           => $port,
	'redis://localhost/1000001'      => $database,
	'redis://localhost/3/4'          => $database,
	'redis://[::1'                   => qr/^a bracket is not closed$/,
	'redis://[::1]6379' => qr/^a colon is missing before a port$/,
	'redis://' . 'x' x 200 . '@localhost' => qr/^a user name is too long$/,
	'unix://tmp/x'                        =>
	  qr/^unix:\/\/ needs the absolute path of a socket, of at most 107 bytes$/,
	'unix:///' . 'x' x 107    => qr/^unix:\/\/ needs the absolute path/,
	'redis://a%40b@localhost' =>
	  qr/^a user name is taken as it is, without % escapes$/,
	'redis://[' . '1' x 300 . ']' => qr/^a host name is too long$/,
	'redis://a_b!' => qr/^a host name contains an invalid character$/,
	'redis://a redis://b:x' => $port,
	' , '                   => qr/^it must have an address$/,
	'redis://' . 'a' x 600  => qr/^it is too long$/);
while (my ($bad, $error) = splice @bad, 0, 2)
{
	like(start_error($bad), $error,
		'a URL is refused: ' . substr($bad, 0, 60));
}
is(start_error($_), '', "a URL is taken: $_")
  foreach 'redis://[::1]:6379/0, redis://user@a.b-c_d', 'rediss://localhost',
  "unix://$redis->{socket}";

# a reload cannot change it, and does not tell it
my $log = -s $node->logfile;
use_url($node, "redis://:$secret\@localhost");
$node->reload;
$node->wait_for_log(qr/snowid\.redis_url/, $log);
use_url($node, $url);
works($node, 'a URL with a password is refused in a reload');
push @errors,
  sql_error($node,
	"SET log_min_error_statement = panic; SET snowid.redis_url = 'redis://:$secret\@localhost'"
  );
is(leaks($node, $local), '', 'the password is nowhere');

done_testing();
