# Keys that outsiders see: the cipher by itself; secrets that are replaced day by day
# on a primary and its standby; a file that cannot be used; errors that depend on the
# role; and no secret in a log, an error, a setting or the memory of a session.
use strict;
use warnings;

use File::Path qw(rmtree);
use POSIX      ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSession;
use SnowidTest;
use Test::More;

my $id = '2124696200530788326';

# Of 128 and 256 bits, with capital letters and without.
my @hex = (
	'9F0cA1d2b3E4f5A69788790a1b2C3d4E5f60718293a4B5c6D7e8F90a1b2c3d4e',
	'0a1b2c3d4e5f60718293a4b5c6d7e8f9',
	'77c0ffee11223344556677889900aabbccddeeff0123456789abcdef0badf00d',
	'FEDCBA9876543210FEDCBA9876543210');

#---- The cipher ----

my ($out, $err) = run_command(['test/lib/ff1']);
ok(!/^not so: /, "the cipher: $_") foreach split /\n/, $out;
like(
	$out,
	qr/NIST's samples 1 to 9\n.*in half of the cases$/s,
	'the program that checks the cipher ends') or diag($err);

#---- Servers ----

my $node = snowid_cluster('public', '', allows_streaming => 1);
my $file = $node->basedir . '/secrets';
my @said;

$node->append_conf('postgresql.conf', <<~'EOF');
	log_min_messages = debug5
	log_statement = all
	log_min_error_statement = debug5
	log_parameter_max_length_on_error = -1
	EOF

# The file of secrets, as it is from here on.
sub write_file
{
	my ($path, $text, $mode) = @_;
	rmtree($path);
	replace_file($path, $text, $mode // 0600);
	return;
}

# The same of a file that belongs to root.
sub roots_file
{
	my ($mode) = @_;
	write_file($file, "1 $hex[0]\n", $mode);
	append_to_file("$node->{skew_file}.root", '');
	return;
}

# The error of a statement, which is kept to look for secrets in it.
sub error_of
{
	my ($server, $sql) = @_;
	push @said, sql_error($server, $sql);
	return $said[-1];
}

# The setting, for every new session.
sub use_file
{
	my ($path) = @_;
	configure($node, "snowid.public_key_file = '$path'");
	$node->reload;
	wait_for($node,
		"SELECT current_setting('snowid.public_key_file') = '$path'");
	return;
}

sub form
{
	my ($server, $prefix) = @_;
	return query($server,
		"SELECT snowid_to_public($id, '@{[ $prefix // 'ord' ]}')");
}

sub key_of
{
	my ($server, $form) = @_;
	return query($server, "SELECT snowid_from_public('$form', 'ord')");
}

$node->start;
create_extension($node);
like(
	error_of($node, "SELECT snowid_to_public($id, 'ord')"),
	qr/^55000: snowid\.public_key_file is not set/,
	'without a file snowid_to_public() says so');
like(
	error_of($node, "SELECT snowid_from_public('ord_0', 'ord')"),
	qr/^55000: snowid\.public_key_file is not set/,
	'without a file snowid_from_public() says so');

write_file($file, "1 $hex[0]\n");
use_file($file);
my $first = form($node);
like(
	$first,
	qr/^ord_1[0-9a-hjkmnp-tv-z]{15}$/,
	'a server without a worker ID writes a public form');
is(key_of($node, $first), $id, 'a server without a worker ID reads it');

#---- When the file is read ----

my $session = SnowidSession->new($node, 'postgres');
my $ask     = "SELECT snowid_to_public($id, 'ord')";

is($session->query($ask), $first, 'every session writes the same form');
write_file($file, "1 $hex[0]\n2 $hex[1]\n");
is($session->query($ask),
	$first, 'a session that has read the file does not read it again');
like(form($node), qr/^ord_2/, 'a new session reads the file as it is');
$node->reload;
wait_until('the reload', sub { return $session->query($ask) =~ /^ord_2/ });
pass('after a reload the session reads it again');
is($session->query("SELECT snowid_from_public('$first', 'ord')"),
	$id, 'a form that another secret of the file wrote is read');

# Another file by the setting
write_file("$file.other", "3 $hex[2]\n");
use_file("$file.other");
wait_until('the other file',
	sub { return $session->query($ask) =~ /^ord_3/ });
pass('after a reload the session reads another file');
like(
	error_of($node, "SELECT snowid_from_public('$first', 'ord')"),
	qr/^22P02: invalid public form of a key: "$first".*This server has no secret with its number, 1\./s,
	'the form of a secret that is not in the file is refused');

# In the data directory
write_file($node->data_dir . '/secrets', "4 $hex[3]\n");
use_file('secrets');
like(form($node), qr/^ord_4/,
	'a path that is not absolute is in the data directory');

#---- Files that cannot be used; public.sql has more, by what is in them ----

my @refused = (
	[
		sub { write_file($file, "1 $hex[0]\n", 0640) },
		'has group or world access; its permissions should be'
	],
	[
		sub { write_file($file, "1 $hex[0]\n", 0604) },
		'has group or world access'
	],
	[
		sub { write_file($file, "1 $hex[0]\n", 0620) },
		'has group or world access'
	],
	[
		sub { rmtree($file) },
		'could not open file "FILE": No such file or directory\.'
	],
	[
		sub { write_file($file, "1 $hex[0]\n", 0000) },
		'could not open file "FILE": Permission denied\.'
	],
	[ sub { rmtree($file); mkdir $file }, 'is not a regular file' ],
	[
		sub { rmtree($file); POSIX::mkfifo($file, 0600) },
		'is not a regular file'
	],
	[
		sub { rmtree($file); symlink('/proc/self/mem', $file) },
		'could not read file "FILE": Input/output error\.'
	],
	[
		sub {
			write_file($file, "1 $hex[0]\n");
			append_to_file("$node->{skew_file}.stranger", '');
		},
		'file "FILE" must be owned by the server.s user or root'
	],
	[
		sub { write_file($file, "1 $hex[0]\n" . '#' x 8192) },
		'file "FILE" is longer than 8191 bytes'
	],
	[
		sub { write_file($file, "1 $hex[0]\n2 $hex[1]") },
		'',
		'the last line needs no newline'
	],
	[ sub { roots_file(0640) }, '', 'the group may read a file of root' ],
	[ sub { roots_file(0660) }, 'has group or world access' ],
	[ sub { roots_file(0650) }, 'has group or world access' ],
	[ sub { roots_file(0604) }, 'has group or world access' ],
	[
		sub { write_file($file, "1 $hex[0]\n2 $hex[1]0\n") },
		'line 2 of file "FILE" is not a number from 0 to 31, then 32 or 64 hexadecimal digits'
	],
	[
		sub { write_file($file, "1 $hex[0]\n\0\n") },
		'line 2 of file "FILE" is not'
	]);

write_file($file, "1 $hex[0]\n");
use_file($file);
query($node,
	'CREATE ROLE clerk; CREATE ROLE auditor IN ROLE pg_read_all_settings');
foreach my $case (@refused)
{
	my ($spoil, $told, $claim) = @$case;
	$spoil->();
	my $error = error_of($node, $ask);
	unlink map { "$node->{skew_file}.$_" } qw(stranger root);
	if ($told eq '')
	{
		is($error, '', $claim);
		next;
	}
	$told =~ s/FILE/\Q$file\E/;
	like(
		$error,
		qr/^F0000: the file of snowid\.public_key_file cannot be used\nDETAIL:  .*$told/,
		"refused: $told");
}
like(
	error_of($node, 'SET ROLE auditor;' . $ask),
	qr/DETAIL:  line 2 of file/,
	'a role that may see the setting learns the fault of the file');
my $log   = -s $node->logfile;
my $error = error_of($node, 'SET ROLE clerk;' . $ask);
like(
	$error,
	qr/^F0000: the file of snowid\.public_key_file cannot be used\n/,
	'an ordinary role learns that the file cannot be used');
like(
	$error,
	qr/DETAIL:  See the server log\.\n/,
	'an ordinary role is referred to the log');
unlike($error, qr/\Q$file\E/, 'an ordinary role does not learn the path');
like(
	slurp_file($node->logfile, $log),
	qr/DETAIL:  line 2 of file "\Q$file\E" is not/,
	'the log has the path');

# A session that had a good file before
$node->reload;
wait_until(
	'the reload',
	sub {
		return !eval { $session->query($ask) }
	});
push @said, $@;
like($@, qr/F0000/,
	'a session does not keep secrets of a file that was good before');
write_file($file, "1 $hex[0]\n");
is(form($node), $first, 'a file that is good again needs no reload');

# A session whose setting is emptied
$session = SnowidSession->new($node, 'postgres');
is($session->query($ask), $first, 'a new session has the file');
use_file('');
wait_until(
	'the reload',
	sub {
		return !eval { $session->query($ask) }
	});
like(
	$@,
	qr/55000: snowid\.public_key_file is not set/,
	'a session keeps no secrets when the setting is emptied');
use_file($file);

#---- An ordinary role; a parallel query ----

is( query(
		$node,
		"SET ROLE clerk; SELECT snowid_from_public(snowid_to_public($id, 'ord'), 'ord')"
	),
	$id,
	'an ordinary role writes and reads public forms');
like(error_of($node, 'SET ROLE clerk; SHOW snowid.public_key_file'),
	qr/^42501/, 'an ordinary role does not see the setting');

query($node, <<~'EOF');
	CREATE TABLE ids AS SELECT (n * 92233720368547)::bigint + n AS id FROM generate_series(0, 39999) n;
	ALTER TABLE ids SET (parallel_workers = 2)
	EOF
my $plan = query($node, <<~'EOF');
	SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off;
	EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
		SELECT count(*) FROM ids WHERE snowid_from_public(snowid_to_public(id, 'ord'), 'ord') = id;
	EOF
like(
	$plan,
	qr/Workers Launched: [12].*Parallel Seq Scan on ids \(actual rows=/s,
	'parallel workers write and read public forms');
unlike($plan, qr/Rows Removed by Filter/, 'all of them come back');

#---- Another secret, day by day ----

$node->backup('copy');
my $standby_file = "$file.standby";
my $standby      = server_from_backup(
	'public_standby', $node, 'copy',
	"snowid.public_key_file = '$standby_file'",
	has_streaming => 1);
write_file($standby_file, "1 $hex[0]\n");
$standby->start;
is(form($standby), $first,
	'a standby with the same file writes the same form');
is(key_of($standby, $first), $id, 'a standby reads it');

# In the order in which the servers come, and the other way, each can read at any
# time what the other one writes.
my %path = ($node->name => $file, $standby->name => $standby_file);

sub all_are_read
{
	my ($when) = @_;
	foreach my $writer ($node, $standby)
	{
		my $form = form($writer);
		is( key_of($_, $form),
			$id,
			"$when: " . $_->name . ' reads what ' . $writer->name . ' writes'
		) foreach $node, $standby;
	}
	return;
}

foreach my $step (
	[ 'the first day', "1 $hex[0]\n2 $hex[1] read\n", $node,    $standby ],
	[ 'the next day',  "1 $hex[0]\n2 $hex[1]\n",      $standby, $node ])
{
	my ($day, $text, @order) = @$step;
	foreach my $server (@order)
	{
		write_file($path{ $server->name }, $text);
		$server->reload;
		all_are_read("$day, " . $server->name . ' reloaded');
	}
}
like(form($_), qr/^ord_2/, $_->name . ' writes with the new secret')
  foreach $node, $standby;
is(key_of($_, $first), $id, $_->name . ' reads what the old secret wrote')
  foreach $node, $standby;

# The end of the old secret; and the number after 31
write_file($_, "31 $hex[1] read\n0 $hex[2]\n") foreach values %path;
$_->reload foreach $node, $standby;
all_are_read('after number 31');
like(form($node), qr/^ord_0/, 'number 0 writes if 31 only reads');
like(error_of($standby, "SELECT snowid_from_public('$first', 'ord')"),
	qr/^22P02/, 'a form of a secret that was removed is refused');

#---- Nothing of a secret anywhere ----

# The writable memory of a process: has it one of these texts?
sub memory_has
{
	my ($pid, @texts) = @_;
	my $found = 0;
	no warnings 'portable';
	open(my $memory, '<:raw', "/proc/$pid/mem") or return 0;
	foreach my $line (split /\n/, slurp_file("/proc/$pid/maps"))
	{
		my ($from, $to) = $line =~ /^([0-9a-f]+)-([0-9a-f]+) rw.p/ or next;
		my $piece = '';

		# the shadow of a sanitizer
		next if hex($to) - hex($from) > 2**28;
		sysseek($memory, hex($from), 0)                 or next;
		sysread($memory, $piece, hex($to) - hex($from)) or next;
		$found += grep { index($piece, $_) >= 0 } @texts;
	}
	return $found;
}

# Behind comments, so that what the session allocates next does not cover it.
write_file($file, ("#\n" x 3000) . "0 $hex[3]\n");
my $reader = SnowidSession->new($node, 'postgres');
my $marker = join('', 'a marker ', 'in the memory');
my $pid    = $reader->query('SELECT pg_backend_pid()');
like(
	$reader->query(
		"SET application_name = '$marker'; SELECT snowid_to_public($id, 'ord')"
	),
	qr/^ord_0/,
	'a session has read the file');
SKIP:
{
	skip 'the memory of a process cannot be read', 2
	  if !memory_has($pid, $marker);
	is(memory_has($pid, $hex[3], lc($hex[3])),
		0, 'the text of the file does not stay in the memory of a session');
	skip 'this OpenSSL does not keep a secret as it is', 1
	  if !memory_has($pid, pack('H*', $hex[3]));
	write_file($file, "1 $hex[0]\n");
	$node->reload;
	wait_until(
		'the reload',
		sub {
			return $reader->query("SELECT snowid_to_public($id, 'ord')") =~
			  /^ord_1/;
		});
	is( memory_has($pid, pack('H*', $hex[3])),
		0,
		'a secret that left the file does not stay in the memory of a session'
	);
}

push @said,
  query($_,
	'SELECT * FROM pg_settings; SELECT * FROM pg_file_settings; SELECT * FROM pg_stat_activity'
  ) foreach $node, $standby;
$_->stop foreach $node, $standby;
my %text = (
	'errors and settings' => join("\n", @said),
	map { 'the log of ' . $_->name => slurp_file($_->logfile) } $node,
	$standby);
foreach my $where (sort keys %text)
{
	cmp_ok(length $text{$where},
		'>', 1000, "$where: there is something to look at");
	ok( !(  grep { $text{$where} =~ /$_/i }
			map  { substr($_, 0, 12), substr($_, -12) } @hex),
		"$where: no secret, nor a part of one");
}

done_testing();
