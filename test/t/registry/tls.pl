# rediss://: the certificate's chain and its host name are both checked, and calls
# that fail leave nothing in memory.
# Skipped if hiredis, redis-server or openssl cannot do TLS.
# needs: openssl
use strict;
use warnings;

use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir('tls');

sub openssl
{
	my (@args) = @_;
	return IPC::Run::run([ 'openssl', @args ],
		'<', '/dev/null', '>&', "$dir/openssl");
}

plan skip_all => 'no openssl' if !eval { openssl('version') };

# Without TLS a server starts, and says what it lacks.
my $node = snowid_cluster('tls');

sub has_tls
{
	my $redis = SnowidRedis->start('plain');

	configure($node,
		"snowid.redis_url = 'rediss://127.0.0.1:$redis->{port}'");
	$node->start;
	query($node, 'CREATE EXTENSION snowid');
	poll($node, 'registry_error IS NOT NULL');
	my $error = status($node, 'registry_error');
	$node->stop;
	$redis->stop;
	return 1 if $error !~ /without TLS/;
	is( $error,
		"127.0.0.1 port $redis->{port}: snowid_redis was built without TLS (hiredis_ssl), so it cannot use rediss://",
		'without TLS the status says so');
	return 0;
}
if (!has_tls())
{
	done_testing();
	exit;
}

# A certificate authority, and a certificate of it for a name.
sub certify
{
	my ($ca, $name, $subject) = @_;
	openssl(qw(req -x509 -newkey rsa:2048 -nodes -days 2 -subj),
		"/CN=$ca", '-keyout', "$dir/$ca.key", '-out', "$dir/$ca.crt")
	  or die slurp_file("$dir/openssl")
	  if !-e "$dir/$ca.crt";
	append_to_file("$dir/$name.ext", "subjectAltName=$subject\n");
	openssl(
		qw(req -newkey rsa:2048 -nodes -subj), "/CN=$name",
		'-keyout',                             "$dir/$name.key",
		'-out',                                "$dir/$name.csr")
	  && openssl(
		qw(x509 -req -days 2 -CAcreateserial -in), "$dir/$name.csr",
		'-CA',                                     "$dir/$ca.crt",
		'-CAkey',                                  "$dir/$ca.key",
		'-extfile',                                "$dir/$name.ext",
		'-out',                                    "$dir/$name.crt"
	  ) or die slurp_file("$dir/openssl");
	return;
}

# A Redis that shows this certificate on a port of its own.
sub tls_redis
{
	my ($name) = @_;
	my $port   = PostgreSQL::Test::Cluster::get_free_port();
	my $redis  = SnowidRedis->start(
		$name,
		"tls-port $port",
		"tls-cert-file $dir/$name.crt",
		"tls-key-file $dir/$name.key",
		'tls-auth-clients no');
	$redis->{tls_port} = $port;
	return $redis;
}

certify('ca',       'right',   'DNS:localhost,IP:127.0.0.1');
certify('ca',       'other',   'DNS:elsewhere.example');
certify('stranger', 'strange', 'DNS:localhost');

sub connect_with
{
	my ($redis, $host, $ca) = @_;
	my $file = $ca ? "$dir/$ca.crt" : '';
	configure($node, <<~EOF);
		snowid.redis_url = 'rediss://$host:$redis->{tls_port}'
		snowid.redis_ca_file = '$file'
		snowid.redis_timeout = '2s'
		snowid.max_wait = '1s'
		EOF
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowid');
	return;
}

sub refusal
{
	my ($redis, $host, $ca, $expected) = @_;
	connect_with($redis, $host, $ca);
	poll($node,
		"registry_error ~ '@{[ $expected // 'TLS: |certificates' ]}'");
	my $error = sql_error($node, 'SELECT snowid_next()');
	$node->stop;
	return $error;
}

my $right  = tls_redis('right');
my $before = $right->query('HGETALL', 'snowid');
like(
	refusal(tls_redis('other'), 'localhost', 'ca'),
	qr/^55000: .*localhost port \d+: TLS: the certificate was refused: hostname mismatch/s,
	'a certificate for another host is refused');
like(
	refusal(tls_redis('strange'), 'localhost', 'ca'),
	qr/^55000: .*localhost port \d+: TLS: the certificate was refused: unable to /s,
	'a certificate of another authority is refused');
like(
	refusal(
		{ tls_port => $right->{port} }, 'localhost',
		'ca',                           'TLS: |no answer within'),
	qr/^55000: .*localhost port \d+: (?:TLS: (?!unknown)|no answer within)/s,
	'a Redis without TLS is refused, also if it waits for the end of a line');
like(
	refusal($right, 'localhost', 'none'),
	qr/^55000: .*could not load the certificates in "\Q$dir\E\/none\.crt"/s,
	'without the file of certificates the error says so');
is($right->query('HGETALL', 'snowid'),
	$before, 'nothing was written meanwhile');

foreach my $host ('localhost', '127.0.0.1')
{
	connect_with($right, $host, 'ca');
	wait_for_claim($node);
	is(worker_id($node), 0,
		"the right certificate: the worker ID is claimed over TLS from $host"
	);
	$node->stop;
}

# OpenSSL takes this file for the system's certificates.
{
	local $ENV{SSL_CERT_FILE} = "$dir/ca.crt";
	connect_with($right, 'localhost', '');
	wait_for_claim($node);
	pass("without a file the system's certificates count");
	$node->stop;
}

#---- A listener that is no Redis ----

# It listens, and the server calls it by this host.
sub listen_for
{
	my ($host) = @_;
	my $listener = IO::Socket::INET->new(
		Listen    => 5,
		LocalAddr => '127.0.0.1',
		Timeout   => 60) or die $!;
	connect_with({ tls_port => $listener->sockport }, $host, 'ca');
	return $listener;
}

# The first bytes of a call are not enciphered.
foreach my $host ('localhost', '127.0.0.1')
{
	listen_for($host)->accept->sysread(my $hello, 4096) or die "$!";
	is( $hello =~ /\Q$host\E/ ? 1 : 0,
		$host eq 'localhost'  ? 1 : 0,
		"a call of $host names it, if it is a name");
	$node->stop;
}

# It says nothing: the process sleeps, and does not ask the connection again and again.
{
	my $listener = listen_for('127.0.0.1');
	my $called   = $listener->accept or die "$!";
	poll($node, "registry_error ~ 'no answer within'");
	my $pid = process_pid($node, 'snowid registry');
	my ($reads) = slurp_file("/proc/$pid/io") =~ /^syscr: (\d+)/m;
	cmp_ok($reads, '<', 1000,
		'a Redis that does not answer costs no processor time');
	$node->stop;
}

# It hangs up, as a balancer without a server does.
append_to_file("$node->{skew_file}.slow", '');
my $listener = listen_for('127.0.0.1');
my $pid      = process_pid($node, 'snowid registry');

# after so many calls more, in kB
sub memory_after
{
	my ($calls) = @_;
	close($listener->accept || die $!) for 1 .. $calls;
	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : die;
}
my $first  = memory_after(20);
my $growth = memory_after(60) - $first;
cmp_ok($growth, '<', 400, 'calls that fail leave nothing in memory');
$node->stop;

done_testing();
