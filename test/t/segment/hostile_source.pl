# Central servers that are not what they should be: one that has SCRAM computed without
# end, that answers or notes without end, that says what is no text, whose name is a
# hundred thousand names, whose certificate is a pipe, that gives no row or does not
# commit.  Each attempt ends at its deadline, and the process within a second of SIGTERM;
# memory stays bounded, numbers of the table here continue, and every client can read the
# status.
use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use SnowidSegments;
use SnowidTest;
use Test::More;
use Time::HiRes 'usleep';

my $node = snowid_cluster('hostile', 'snowid.max_wait = 1s');
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->start;
query($node,
	"CREATE EXTENSION snowid_segments; CREATE EXTENSION postgres_fdw; INSERT INTO snowid_segments (biz_tag, step, cover) VALUES ('here', 1, '0')"
);

#---- The servers ----

sub message
{
	my ($type, $content) = @_;
	return $type . pack('N', 4 + length $content) . $content;
}

my $ready   = message('Z', 'I');
my $welcome = message('R', pack('N', 0)) . $ready;
my $begun   = message('C', "BEGIN\0");
my $failed  = message('E', "SERROR\0C57014\0Mnot today\0\0");
my $columns =
	message('1', '')
  . message('2', '')
  . message('T',
	pack('n (Z*NnNnNn)4', 4, map { $_, 0, 0, 25, -1, -1, 0 } 1 .. 4));
my $taken =
	$columns
  . message('D', pack('n (N/a*)2 N N', 4, 1, 1000, 0xffffffff, 0))
  . message('C', "SELECT 1\0");

# Gives these answers, one after the other.
sub answers
{
	my @answers = @_;
	return sub {
		my ($client) = @_;
		syswrite($client, $welcome);
		foreach my $answer (@answers)
		{
			sysread($client, my $question, 10000) or last;
			syswrite($client, $answer . $ready);
		}
		sysread($client, my $end, 10000);
	};
}

# The behavior of a server after the startup packet.
my %servers = (
	scram => sub {
		my ($client) = @_;
		syswrite($client, message('R', pack('N', 10) . "SCRAM-SHA-256\0\0"));
		sysread($client, my $first, 10000);
		my ($nonce) = $first =~ /r=(\S+)$/;
		syswrite($client,
			message('R', pack('N', 11) . "r=${nonce}xyz,s=YWJj,i=2147483647")
		);
		sleep 600;
	},
	answers => sub {
		my ($client) = @_;
		my $row = message('D', pack('nN', 1, 1000) . 'x' x 1000) x 100;
		syswrite($client, $welcome);
		sysread($client, my $query, 10000);
		syswrite($client,
			message('T', pack('nZ*NnNnNn', 1, 'a', 0, 0, 25, -1, -1, 0)));
		1 while syswrite($client, $row);
	},
	notices => sub {
		my ($client) = @_;
		my $notice =
		  message('N', "SWARNING\0MMuch to say." . 'x' x 900 . "\0\0") x 100;
		syswrite($client, $welcome);
		1 while syswrite($client, $notice);
	},
	no_begin    => answers($failed),
	no_row      => answers($begun, $columns . message('C', "SELECT 0\0")),
	no_commit   => answers($begun, $taken, $failed),
	rolled_back => answers($begun, $taken, message('C', "ROLLBACK\0")),
	silent      => sub { sleep 600 },
	dribbling   => sub {
		my ($client) = @_;
		syswrite($client, 'E' . pack('N', 20_000));
		usleep(50_000) while syswrite($client, 'x');
	},
	tls    => sub { sleep 600 },
	mute   => answers(message('E', "SERROR\0C57014\0M\n .\n\0\0")),
	babble => sub {
		my ($client) = @_;
		syswrite(
			$client,
			message(
				'E',
				"SFATAL\0C28000\0M\xff\xfe\xc3 d\xc3\xa9j\xc3\xa0\n vu\0\0"));
	});

# Each has a port, and a process for each connection.
my %port;
my @pids;
foreach my $name (sort keys %servers)
{
	my $listener =
	  IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1')
	  or die "$!";
	$port{$name} = $listener->sockport;
	push @pids, fork // die "$!";
	next if $pids[-1];
	local $SIG{CHLD} = 'IGNORE';
	local $SIG{PIPE} = 'IGNORE';
	setpgrp;
	while (my $client = $listener->accept)
	{
		next if fork;
		$listener->close;

		# the requests for TLS and GSSAPI are refused
		while (sysread($client, my $packet, 10000))
		{
			last if length $packet > 8;
			syswrite($client, $name eq 'tls' ? 'S' : 'N');
		}
		$servers{$name}->($client);
		POSIX::_exit(0);
	}
	POSIX::_exit(0);
}
END { kill '-KILL', @pids if @pids }

# It reads nothing, not even the startup packet.
my $deaf = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1')
  or die "$!";
setsockopt($deaf, SOL_SOCKET, SO_RCVBUF, 4096) or die "$!";
my $pipe = PostgreSQL::Test::Utils::tempdir . '/pipe';
POSIX::mkfifo($pipe, 0600) or die "mkfifo: $!";
my ($theirs, $ours) =
  map { PostgreSQL::Test::Utils::tempdir . "/$_" } qw(server mapping);
append_to_file($_, 'no certificate') foreach $theirs, $ours;
my %options = (
	(map { $_ => "host '127.0.0.1', port '$port{$_}'" } keys %port),
	pipe =>
	  "host '127.0.0.1', port '$port{tls}', sslmode 'verify-ca', sslrootcert '$pipe', sslcert '$pipe'",
	twice =>
	  "host '127.0.0.1', port '$port{tls}', sslmode 'require', sslcert '$theirs'",
	deaf =>
	  "host '127.0.0.1', port '@{[ $deaf->sockport ]}', sslmode 'disable', gssencmode 'disable', options '-c a.b=@{[ 'x' x 2_000_000 ]}'",
	names => "host '" . join(',', ('127.0.0.1') x 100_000) . "', port '1'");

foreach my $name (sort keys %options)
{
	query($node, <<~EOF);
		CREATE SERVER $name FOREIGN DATA WRAPPER postgres_fdw OPTIONS ($options{$name});
		CREATE USER MAPPING FOR CURRENT_USER SERVER $name OPTIONS (user 'x', password 'y');
		INSERT INTO snowid_segments (biz_tag, source) VALUES ('$name', '$name');
		EOF
}
query($node,
	"ALTER USER MAPPING FOR CURRENT_USER SERVER twice OPTIONS (ADD sslcert '$ours')"
);

#---- What they cost ----

# The process for central servers, and the kB of memory that it has of its own.
sub anonymous_kb
{
	my ($pid) = @_;
	my ($kb) =
	  (eval { slurp_file("/proc/$pid/status") } // '') =~
	  /^RssAnon:\s+(\d+)/m;
	return $kb // 0;
}

sub child_of
{
	my ($parent) = @_;
	my ($pid)    = split ' ',
	  (eval { slurp_file("/proc/$parent/task/$parent/children") } // '');
	return $pid;
}

# That one has a child while it asks.
sub asking_pids
{
	my ($pid, $child);
	wait_until(
		'a child that asks',
		sub {
			foreach (split /\n/, query($node, 'SELECT pid ' . fetchers()))
			{
				$child = child_of($_);
				$pid   = $_;
				return 1 if $child;
			}
			return 0;
		});
	return ($pid, $child);
}

# ASan ends a process at its limit of memory
my $limit =
  slurp_file("/proc/$node->{_pid}/maps") =~ /libasan/
  ? 'memory|ended'
  : 'memory';
my %errors = (
	answers =>
	  qr/^The central server did not answer in time$|$limit|^Its source gave no result$/,
	notices => qr/^The central server did not answer in time$|$limit/,
	names   => qr/^The central server did not answer in time$|memory|ended/,
	babble  => qr/\?\?\? d\?\?j\?\?  vu$/,
	(   map { $_ => qr/^The central server did not answer in time$/ }
		  qw(scram silent dribbling deaf tls pipe)),
	(map { $_ => qr/^not today$/ } qw(no_begin no_commit)),
	twice       => qr/could not read certificate file "\Q$ours"/,
	no_row      => qr/^Its source gave no result$/,
	rolled_back => qr/^Its source did not commit$/);
foreach my $name (sort keys %errors)
{
	my $caller = ask_in_background($node, "SELECT snowid_number('$name')");
	my $watch  = SnowidSession->new($node, 'postgres');
	my $most   = 0;
	my $error  = '';
	wait_until(
		"$name: an error",
		sub {
			foreach (1 .. 20)
			{
				usleep(20_000);
				foreach my $pid (split /\n/,
					$watch->query('SELECT pid ' . fetchers()))
				{
					my $child = child_of($pid) or next;
					my $more  = anonymous_kb($child) - anonymous_kb($pid);
					$most = $more if $more > $most;
				}
			}
			$error = segment_status($node, $name, 'error');
			return 1 if $error =~ $errors{$name};

			# this one answers, if there is time
			sql_error($node, "SELECT snowid_number('$name')")
			  if $name eq 'babble';
			return 0;
		});
	like($error, $errors{$name}, "$name: the attempt ends, with a reason");
	cmp_ok($most, '<', 20_000, "$name: the memory of the attempt is bounded");
	like(
		$caller->outcome,
		qr/no numbers available for segment "$name"/,
		"$name: the caller gets its error");
	wait_for($node, "SELECT snowid_number('here') > 0");
	pass("$name: numbers of the table here continue");
}
is( query(
		$node,
		"SELECT count(*) FROM snowid_segment_status() WHERE error ~ '[^ -~]'"
	),
	0,
	'the status has no character that a client might not know');
unlike(
	slurp_file($node->logfile),
	qr/Much to say/,
	'notices of another server are not in the log');

# Of its words nothing is left.
wait_until(
	'an attempt',
	sub {
		sql_error($node, "SELECT snowid_number('mute')") =~
		  /Its table or its source failed/;
	});
is(segment_status($node, 'mute', 'error IS NULL'),
	't', 'a server whose words are none has no error to show');

# Failures are remembered by the server's OID, in one of 64 places.
query($node, <<~EOF);
	DO \$\$ BEGIN LOOP
	    CREATE SERVER twin FOREIGN DATA WRAPPER postgres_fdw OPTIONS ($options{silent});
	    EXIT WHEN (SELECT count(DISTINCT oid::bigint % 64) = 1 FROM pg_foreign_server WHERE srvname IN ('no_begin', 'twin'));
	    DROP SERVER twin;
	END LOOP; END \$\$;
	CREATE USER MAPPING FOR CURRENT_USER SERVER twin;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('twin', 'twin');
	SELECT snowid_segment_forget('no_begin');
	EOF
my $first = ask_in_background($node, "SELECT snowid_number('no_begin')");
wait_until('a failure',
	sub { segment_status($node, 'no_begin', 'error') eq 'not today' });
my $error;
wait_until(
	'a failure of a server with the same place',
	sub {
		sql_error($node, "SELECT snowid_number('twin')");
		$error = segment_status($node, 'twin', 'error');
	});
is( $error,
	'The central server did not answer in time',
	'a server is asked while another one with its place in memory is left alone'
);

#---- What ends ----

foreach my $name (qw(scram silent dribbling pipe answers))
{
	my $loop = SnowidSession->new($node, 'postgres');
	exits_in_time(
		$node,
		"a process whose source is $name",
		sub {
			$loop->ask("SELECT snowid_number('$name')") foreach 1 .. 3;
			my ($pid) = asking_pids();
			return (sub { kill 'TERM', @_ }, $pid);
		});
}

# A child does not outlive its parent for long.
my $last = ask_in_background($node, "SELECT snowid_number('silent')");
my ($pid, $child) = asking_pids();
kill 'KILL', $pid;
wait_until('the end of the child', sub { !kill 0, $child });
pass('a child whose parent was killed ends by itself');
wait_for($node, 'SELECT true');
$node->stop;

done_testing();
