# Faults of Redis and of the network: keys, start, shutdown, reload and sessions
# are unaffected, each change of state is reported once, and it continues by itself.  The
# log stays short whatever Redis says, and a process that is held up between two
# readings of the clock waits no longer than it should.
use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidProxy;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

$SIG{PIPE} = 'IGNORE';

# Such calls as no test could wait for.
my $long    = "snowid.redis_timeout = '1min'\n";
my $reloads = 0;

#---- Redis is away, while keys are made ----

my $redis = SnowidRedis->start('redis');

# Its settings are these, in every session and process.
sub calls_take
{
	my ($node, $settings) = @_;
	my $max_wait = 2000 + ++$reloads;

	settings($node, $settings . "snowid.max_wait = '${max_wait}ms'");
	$node->reload;
	wait_for($node,
		"SELECT current_setting('snowid.max_wait') = '${max_wait}ms'");
	return;
}

# A fault that begins and ends, at a server that has its claim.
sub survives
{
	my ($name, $node, $begin, $end, $error) = @_;
	answered($node);    # the fault before, too, has ended for it
	my $id     = worker_id($node);
	my $client = start_client($node);
	my ($log, $ok_at);

	# until the fault is there no call may take too long, and none may begin that
	# meets it
	calls_take($node, $long);
	answered($node);
	marks_every($node, 10_000);
	$ok_at = status($node, 'registry_ok_at');
	poll($node, "registry_ok_at > '$ok_at'");
	$log = log_size($node);
	clients_go_on($client);
	$begin->();
	marks_every($node, 300);
	calls_take($node, $short);
	error_is($node, $error);
	wait_until('the log', sub { logged($node, $log, $gone) });
	$ok_at = status($node, 'registry_ok_at');
	clients_go_on($client);
	usleep(300_000);    # some more tries
	is( status($node, 'is_open, registry, worker_id, registry_ok_at'),
		"t|claimed|$id|$ok_at",
		"$name: keys continue, and the status shows since when");
	is(logged($node, $log, $gone), 1, "$name: it is logged once");

	# within one call, which could last for long
	settings($node, $long . "snowid.max_wait = '4321ms'");
	cmp_ok(
		duration(
			sub {
				$node->reload;
				wait_for($node,
					"SELECT current_setting('snowid.max_wait') = '4321ms'");
				clients_go_on($client);
			}),
		'<',
		30,
		"$name: a reload takes effect at once");
	usleep(200_000);
	cmp_ok(duration(sub { $node->stop('fast') }),
		'<', 30, "$name: a shutdown waits for nothing");
	$log = log_size($node);
	settings($node, $short);
	cmp_ok(duration(sub { $node->start; server_is_open($node); }),
		'<', 30, "$name: a start waits for nothing");
	is(status($node, 'registry, worker_id'),
		"remembered|$id", "$name: a start has the same ID");
	keys_are_right("$name: the keys were right", $client);

	$client = start_client($node);
	clients_go_on($client);
	usleep(300_000);
	$end->();
	wait_for_claim($node);
	is(worker_id($node), $id, "$name: it goes by itself");

	# what comes later is a slow machine's
	my ($said) = slurp_file($node->logfile, $log) =~ /\A(.*?$back)/s;
	is( join(',', $said =~ /$gone|$back|WARNING:  snowid continues/g),
		'WARNING:  snowid continues,LOG:  Redis can be used again',
		"$name: each change is logged once");
	keys_are_right("$name: the keys were right", $client);
	return;
}

my $direct  = hasty('direct', $redis);
my $proxy   = SnowidRedis->proxy($redis);
my $proxied = hasty('proxied', $proxy);
my $named   = hasty('named',   "redis://name.hangs:$redis->{port}");
my $way     = SnowidProxy->start($redis);
my $far     = claiming('far', $way);
wait_for_claim($_) foreach $direct, $proxied, $named, $far;

# The sockets of a server's registry process.
sub sockets_of
{
	my $pid = process_pid($_[0], 'snowid registry');
	return join ' ',
	  grep { /^socket:/ } map { readlink($_) // '' } glob("/proc/$pid/fd/*");
}

calls_take($far, $long);
answered($far);
my $sockets = sockets_of($far);
answered($far);
is(sockets_of($far), $sockets, 'one connection serves all calls');

# a connection that ends while it waits for the next call is no fault
my $unnoticed = log_size($far);
foreach (1 .. 5)
{
	$way->drop;
	answered($far);
}
is(logged($far, $unnoticed, $gone),
	0, 'a connection that is reset between two calls: it is made again');
$far->stop;

survives(
	'refused', $direct,
	sub { $redis->stop },
	sub { $redis->run },
	'Connection refused');
survives(
	'stopped', $direct,
	sub { $redis->freeze },
	sub { $redis->resume },
	'no answer within');
answered($named);

# a name is looked up for each new connection
survives(
	'name server',
	$named,
	sub { append_to_file("$named->{skew_file}.hangs", '') },
	sub { unlink "$named->{skew_file}.hangs"; },
	'name.hangs port .*no answer within');

# no name server knows it
my $nameless = claiming('nameless', 'redis://a..b');
error_is($nameless,
	'^a\.\.b port 6379: the name "a\.\.b" could not be looked up: [^:]+$');
pass('a name that does not exist');
$nameless->stop;

# the time is over before anybody looks
my $late = claiming_cluster(
	'late',
	"redis://name.hangs:$redis->{port}",
	"snowid.redis_timeout = '10ms'\n");
append_to_file("$late->{skew_file}.$_", '') foreach 'hangs', 'forks_late';
$late->start;
create_extension($late);
error_is($late,
	"^name\\.hangs port $redis->{port}: no answer within snowid\\.redis_timeout\$"
);
pass('a look-up that begins late: the error says so');
$late->stop;

#---- A server that is not Redis, or sends nonsense ----

# The answer to each request, and the error.
my @not_redis = (
	"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" =>
	  'Protocol error',
	"+OK\r\n"              => 'INFO: unexpected type of reply$',
	"*0\r\n"               => 'INFO: unexpected type of reply$',
	"\$-1\r\n"             => 'INFO: unexpected type of reply$',
	"*-1\r\n"              => 'INFO: unexpected type of reply$',
	strings('role:master') => 'INFO: unexpected type of reply$',
	"\$5\r\nhello\r\n"     => 'the reply to INFO is not from Redis$',
	"\$24\r\nrole:master\0\r\nrun_id:abc\r\n" =>
	  'INFO: unexpected type of reply$',
	"\$12\r\nrole:master\n\r\n" => 'the reply to INFO is not from Redis$',
	"\$21\r\nrole:slave\nrun_id:abc\r\n" => 'this is a replica$',
	"\$9999999999\r\n"                   => 'no answer within',
	"\$1000000\r\n" . 'x' x 300_000      => 'a reply is too long$',
	'$1' . '0' x 300_000                 => 'a reply is too long$',
	"*500000000\r\n"                     => 'a reply is too long$',
	"*1\r\n" x 100                       => 'nested|no answer',
	"-ERR not now\r\n"                   => 'INFO: ERR not now$',
	"-ERR \e[31mred\a\r\n"               => 'INFO: ERR \?\[31mred\?$',
	"-\r\n"                              => 'INFO: $');

# Errors in place of the script's answer.
my @not_the_script = (
	"-LOADING Redis is loading the dataset in memory\r\n" =>
	  "the registry's script: LOADING Redis is loading",
	"-MOVED 1234 10.0.0.1:6379\r\n" =>
	  "the registry's script: MOVED 1234 10.0.0.1:6379",
	"-NOSCRIPT\r\n" => "the registry's script: NOSCRIPT");

# Sees each of these answers cause its error, while keys continue.
sub are_errors
{
	my ($node, $prefix, @answers) = @_;
	my $fake    = $node->{redis};
	my $command = $prefix eq 'all:' ? 'INFO' : 'EVALSHA';
	my ($log, $is_fault, @wrong);

	calls_take($node, $long);
	answered($node);
	$log = log_size($node);

	while (my ($answer, $error) = splice @answers, 0, 2)
	{
		my $began = time;
		$fake->mode("$prefix$answer");

		# a call is tried twice: when a third has begun, the first call is through; where
		# the machine is slow it may have had no answer in time
		my $from = $fake->requests_size;
		usleep(10_000)
		  while (grep { $_->[0] eq $command } $fake->requests($from)) < 3
		  && time < $began + 180;
		my $found = status($node, 'registry_error');
		while ($found =~ /no answer within/
			&& $found !~ /$error/
			&& time < $began + 180)
		{
			usleep(100_000);
			$found = status($node, 'registry_error');
		}
		$found = sprintf('%.1f s', time - $began) if time > $began + 180;
		push @wrong, (substr($answer, 0, 40) =~ s/[^ -~]/./gr) . ": $found"
		  if $found !~ /$error/;
		calls_take($node, $short) if !$is_fault++;
	}
	is(join("\n", @wrong), '', 'each has its error');
	calls_take($node, $long);
	is(logged($node, $log, $gone) . logged($node, $log, $back),
		'10', 'the fault is logged once');
	$fake->mode('');
	answered($node);
	is(logged($node, $log, $back), 1, 'the end of the fault is logged once');
	return;
}

# it has lasted for as long as calls might take
$redis->end_settling;
marks_every($proxied, 100);
my $client =
  start_client($proxied, 'SELECT snowid_next() FROM pg_sleep(0.002);');
are_errors($proxied, 'all:', @not_redis);
are_errors($proxied, '',     @not_the_script);
$proxy->mode(strings('late'));
my ($from, $began) = ($proxy->requests_size, time);
usleep(500_000);
my $asked = $proxy->requests($from);
cmp_ok($asked / (time - $began),
	'<', 40, 'nonsense answers cause no storm of requests');
$proxy->mode('');
answered($proxied);
clients_go_on($client);

# An answer that comes late must not be taken for that to the next call.
$proxy->mode('lose');
calls_take($proxied, $short);
my @asked;
$from = $proxy->requests_size;
wait_until(
	'calls without an answer',
	sub {
		@asked = map { $_->[0] } $proxy->requests($from);
		return 3 < grep { /^EVAL/ } @asked;
	});
shift @asked while $asked[0] !~ /^EVAL/;
unlike(
	"@asked[1 .. $#asked]",
	qr/EVALSHA EVALSHA/,
	'after a call without an answer the next one has a connection of its own'
);
$proxy->mode('');
answered($proxied);
keys_are_right('keys do not mind', $client);

#---- An error that is another one each time, asked again and again ----

{
	my $asked = 300;

	my $count = 0;
	my $fake  = SnowidRedis->fake(
		sub {
			$count++;
			return "-ERR trouble number $count\r\n";
		});
	my $node = snowid_cluster('asks', <<~EOF);
		snowid.redis_url = 'redis://127.0.0.1:$fake->{port}'
		EOF
	marks_every($node, 20);
	$node->start;
	create_extension($node);
	poll($node, "registry_error ~ 'trouble number'");

	my $before = () = $fake->requests(0);
	my $log    = -s $node->logfile;
	my $began  = time;
	wait_until('the tries that were asked for',
		sub { (() = $fake->requests(0)) >= $before + $asked });
	my $lines = () = slurp_file($node->logfile, $log) =~
	  /(?:LOG|WARNING|ERROR|FATAL):  |DETAIL:  /g;

	# two processes, each 30 lines with a detail, and then one each 10 s
	cmp_ok(
		$lines, '<=',
		2 * 2 * (31 + (time - $began) / 10),
		"of $asked different errors few are logged");
	cmp_ok($lines, '<', $asked, 'fewer than there were');
	poll($node, "registry_error ~ 'trouble number'");
	pass('the status has the last one all the same');
	$node->stop;
}

#---- A process that is held up between two readings of the clock ----

# Says that the registry is empty, and may be asked again after so many ms.
sub settling
{
	my ($ms) = @_;
	return strings('settling', $ms, 1700000000000);
}

{
	my $fake = SnowidRedis->proxy(SnowidRedis->start('redis'), sub { $_[0] });
	my $node = claiming_cluster('slow', $fake, $short);
	$fake->mode('claim only:' . settling(1));
	append_to_file("$node->{skew_file}.slow", '');
	$node->start;
	create_extension($node);
	poll($node, "registry ~ 'The registry is empty'");

	foreach my $ms (1 .. 20)
	{
		$fake->mode('claim only:' . settling($ms));
		answered($node);
	}
	pass('a process that is held up calls Redis again and again');
	unlink "$node->{skew_file}.slow";
	$fake->mode('');
	wait_for_claim($node);
	pass('a process that was held up claims a worker ID at last');
	$node->stop;
}

#---- An address that does not even take connections ----

{
	my $full = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)
	  or die "$!";
	my @waiting = map {
		IO::Socket::INET->new(
			PeerAddr => '127.0.0.1',
			PeerPort => $full->sockport,
			Blocking => 0)
	} 1 .. 4;
	my $node =
	  claiming('no_room', 'redis://127.0.0.1:' . $full->sockport, $short);
	poll($node,
		"registry_error ~ '^127.0.0.1 port [0-9]+: no answer within snowid.redis_timeout'"
	);
	pass('a connection that is not taken ends at snowid.redis_timeout');
	$node->stop;
}

done_testing();
