# Answers are lost, Redis executes commands late, loses its data or goes back in
# time: no claim leaks, no recorded ceiling falls, and owners put back the claims
# that Redis has forgotten.
use strict;
use warnings;

use File::Path qw(rmtree);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidFaults;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

$SIG{PIPE} = 'IGNORE';

#---- The first start, and answers that are lost ----

my $primary = SnowidRedis->start(
	'primary',
	'appendonly yes',
	'repl-diskless-sync-delay 0');
my $replica = SnowidRedis->start('replica');
$_->stop foreach $primary, $replica;
my $proxy = SnowidRedis->proxy($primary);
my $urls  = $replica->url . ',' . $proxy->url;

my $first = hasty('first', $urls, 'snowid.max_wait = 700ms');
my $error;
cmp_ok(duration(sub { $error = sql_error($first, 'SELECT snowid_next();') }),
	'>', 0.7, 'without any claim a caller waits');
like(
	$error,
	qr/^55000: snowid has not claimed a worker ID yet\nDETAIL:  Redis cannot be used: 127\.0\.0\.1 port $replica->{port}: Connection refused; 127\.0\.0\.1 port $proxy->{port}: Server closed the connection\.$/m,
	'a waiting caller gets the last error');

# How often an operation was called, from an offset on.
sub calls
{
	my ($operation, $from) = @_;
	return
	  grep { $_->[0] eq 'EVALSHA' && $_->[7] eq $operation }
	  $proxy->requests($from);
}

sub wait_for_calls
{
	my ($operation, $count) = @_;
	my $from = $proxy->requests_size;
	wait_until("$count calls of $operation",
		sub { calls($operation, $from) >= $count });
	return;
}

sub pairs
{
	return join ' ', sort grep { /^(?:meta|\d+:\d+)$/ } split /\n/,
	  $primary->query('HKEYS', 'snowid');
}

# on a busy machine a first call may need more than the half second
settings($first, "snowid.max_wait = '700ms'");
$first->reload;
$proxy->mode('lose');
$primary->run;
wait_until('the claim', sub { pairs() =~ /:/ });
settings($first, $short . "snowid.max_wait = '700ms'");
$first->reload;
wait_for_calls('claim', 4);
is(pairs(), '0:0 meta',
	'a claim whose answer is lost does not leak a second ID');
like(
	sql_error($first, 'SELECT snowid_next();'),
	qr/^55000: .*no answer within/s,
	'a claim whose answer is lost is not used');
settings($first, $short . "snowid.max_wait = '20s'");
$first->reload;
my $client =
  start_client($first, 'SELECT snowid_next() FROM pg_sleep(0.002);');
wait_for_calls('claim', 1);
$proxy->mode('');
clients_go_on($client);
is( status($first, 'registry, worker_id') . ' ' . pairs(),
	'claimed|0 0:0 meta',
	'as soon as Redis can be used, waiting callers get their keys');

sub record
{
	my @values = map { $primary->record('0:0', $_) } @_;
	return wantarray ? @values : $values[0];
}

my $last = record('ceiling');
$proxy->mode('lose');
wait_for_calls('mark', 4);
cmp_ok(record('ceiling'), '>', $last, 'a mark whose answer is lost counts');
$proxy->mode('');
answered($first);

# late commands: all that were sent, in any order
$proxy->mode('silent');
wait_for_calls('mark', 1);
foreach
  my $call (reverse(calls('mark')), calls('claim'), reverse(calls('mark')))
{
	my ($n, $ceiling) = record('n', 'ceiling');
	my $answer = $primary->query(@$call);
	my ($n_now, $ceiling_now) = record('n', 'ceiling');
	next
	  if $ceiling_now >= $ceiling && ($n_now >= $n || $call->[4] eq 'claim');
	fail("late: @$call: $answer");
}
is(pairs(), '0:0 meta',
	'calls that are executed late claim nothing, and lower no ceiling');
$proxy->mode('');
answered($first);
is(status($first, 'registry, worker_id'),
	'claimed|0', 'calls that are executed late do not end the claim');

#---- Possible faults in Redis' data ----

# not a late answer, where the machine is slow
my $refused =
  qr/LOG:  Redis cannot be used\n.*DETAIL:  (?!.*: no answer within)/;
my $log = log_size($first);
$primary->query('SCRIPT', 'FLUSH');
answered($first);
is(logged($first, $log, $refused), 0, 'the script may be flushed');

my $ownership = record('claim');
$primary->query('SET', 'snowid', 'x');
error_is($first, "the registry's script: .*WRONGTYPE");
is(status($first, 'is_open, registry'),
	't|claimed', 'another type at our key is an error');
$primary->query('DEL', 'snowid');
answered($first);
is( join(' ', pairs(), record('claim')),
	"0:0 meta $ownership",
	'when it is gone the record is put back');

#---- Redis lost its data, or went back in time ----

# The pair that the record of a server has, or none, and the server's own.
sub owners
{
	return join ' ', map {
		my $node = $_;
		$node->name . '=' . worker_id($node) . '/' . join(
			',',
			map { s/0://r } grep {
					 $_ ne 'meta'
				  && $primary->record($_, 'owner') ne ''
				  && $primary->record($_, 'name') eq $node->name
			} split / /,
			pairs())
	} @_;
}

# A server that never had a claim, started beside them.
sub newcomer { return hasty($_[0], $urls, $_[1]); }

# Owners are slow when Redis is back, so that a new server is there before them.
my $slow = "snowid.redis_timeout = '300ms'\n";
settings($first, $slow . "snowid.max_wait = '20s'");
marks_every($first, 700);
$first->reload;
answered($first);
my $old = $primary->copy_data;
($ownership, my $since) = record('claim', 'since');

settings($first, $short . "snowid.max_wait = '20s'");
marks_every($first, 300);
$first->reload;

# it is flushed at each moment of the newcomer's claim
my $flushing =
  IPC::Run::start([ $primary->client, '-r', 75, '-i', '0.02', 'FLUSHALL' ],
	'>', '/dev/null');
my $second = newcomer('second');
$flushing->finish;
wait_for_claim($second);
is( owners($first, $second) . ' ' . record('claim'),
	"first=0/0 second=1/1 $ownership",
	'flushed under load while a newcomer claims: owners first, with the same claim'
);
settings($first, $slow . "snowid.max_wait = '20s'");
$first->reload;
settings($second, $slow);
$second->reload;
marks_every($_, 700) foreach $first, $second;
answered($_)         foreach $first, $second;
($ownership, $since) = record('claim', 'since');
$primary->stop('KILL');
$primary->run;
answered($first);
is( join(' ', owners($first, $second), record('claim', 'since')),
	"first=0/0 second=1/1 $ownership $since",
	'Redis was restarted with its data');
$primary->go_back;
answered($_) foreach $first, $second;
is( owners($first, $second),
	'first=0/0 second=1/1',
	'Redis was restarted without its data: the owners put their records back'
);

my $third;
$primary->go_back(
	$old,
	sub {
		$third = newcomer('third');
		usleep(1_000_000);
	});
wait_for_claim($third);
answered($_) foreach $first, $second;
is( owners($first, $second, $third),
	'first=0/0 second=1/1 third=2/2',
	'Redis was restarted with old data: a new server does not get the forgotten ID'
);

#---- Replicas ----

settings($first, $slow . 'snowid.redis_wait_replicas = 1');
$first->reload;
error_is($first,
	': 0 of the 1 replicas that snowid\.redis_wait_replicas asks for have confirmed'
);
pass('a missing replica is an error');
$replica->run;
$replica->query('REPLICAOF', '127.0.0.1', $primary->{port});
answered($first);
pass('a missing replica is no error any more when there is one');
settings($first, $slow);
$log = log_size($first);
$first->reload;
answered($first);
is(logged($first, $log, $refused), 0, 'a replica is skipped');

# the replica misses the last claim, and is promoted
$replica->query('REPLICAOF', '127.0.0.1', '1');
my $fourth = newcomer('fourth');
wait_for_claim($fourth);
is(worker_id($fourth), 3, 'a newcomer makes a claim that the replica misses');
keys_are_right('keys were right', $client);
my $fifth = claiming_cluster('fifth', $urls, $short);
my @clients =
  map { start_client($_, 'SELECT snowid_next() FROM pg_sleep(0.002);') }
  $first, $fourth;
clients_go_on(@clients);
$primary->stop('KILL');
$fifth->start;
create_extension($fifth);
settings($fourth, $slow);
$fourth->reload;
usleep(1_000_000);
$replica->query('REPLICAOF', 'NO', 'ONE');
push @clients,
  start_client($fifth, 'SELECT snowid_next() FROM pg_sleep(0.002);');
wait_for_claim($fifth);
answered($_) foreach $first, $second, $third, $fourth;
is( join(' ', map { worker_id($_) } $first, $second, $third, $fourth, $fifth),
	'0 1 2 3 4',
	'a replica that missed a claim was promoted: no server gets the claimed ID'
);
clients_go_on(@clients);
keys_are_right('keys were right', @clients);
$_->stop foreach $second, $third, $fourth;

#---- Redis Cluster ----

# Redis 6 takes the port 10,000 above its own for the cluster.
my $cluster = SnowidRedis->start(
	'cluster',
	'cluster-enabled yes',
	$replica->query('INFO', 'server') =~ /^redis_version:[0-6]\./m
	? ()
	: 'cluster-port ' . PostgreSQL::Test::Cluster::get_free_port());
$fifth->stop;
configure(
	$fifth,
	SnowidRedis::claim_settings(
		'fifth', $cluster, $short . 'snowid.max_wait = 0'));
rmtree($fifth->data_dir . '/snowid');
$fifth->start;
error_is($fifth,
	"^127.0.0.1 port $cluster->{port}: the registry's script: CLUSTERDOWN Hash slot not served\$"
);
like(
	sql_error($fifth, 'SELECT snowid_next()'),
	qr/^55000: .*CLUSTERDOWN/s,
	'a cluster that is down is an error');
$cluster->query('CLUSTER', 'ADDSLOTSRANGE', 0, 16383);
wait_for_claim($fifth);
is(worker_id($fifth), 0, 'a cluster will do, at the node that has the key');

done_testing();
