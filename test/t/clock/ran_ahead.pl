# The clock once ran ahead: a glitch to next year costs nothing once it is over;
# a jump that was right is accepted; and a server whose clock stood a year ahead
# continues from today's time under another worker ID, and repeats no key.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

my $year = 365 * 86400;
my $node =
  snowid_cluster('ahead', "snowid.worker_id = 1\nsnowid.max_wait = 200ms");
start_and_open($node);

my $jumped = qr/LOG:  the clock jumped ahead by \d+ ms/;

# Every key of this test.
my %made;
my $twice = 0;

sub note_keys
{
	$twice += $made{$_}++ ? 1 : 0 foreach @_;
	return;
}

# A key; those of a batch after it are noted only.
sub first_of_batch
{
	my @keys = split /\n/, query($node, 'SELECT snowid_next_batch(1000)');
	note_keys(@keys);
	return $keys[0];
}

my $epoch =
  query($node, 'SELECT extract(epoch FROM snowid_timestamp(0)) * 1000');

# How far, in s, the time of a key is from now.
sub distance { return (($_[0] >> 22) + $epoch) / 1000 - time }

sub is_at
{
	my ($seconds, $name) = @_;
	my $distance = distance(first_of_batch());
	ok(abs($distance - $seconds) < 60, $name) or diag("$distance s from now");
	return;
}

sub set_worker_id
{
	my ($id, $max_wait) = @_;
	reload_with(
		$node,
		'snowid.worker_id' => $id,
		'snowid.max_wait'  => $max_wait // '200ms');
	gate_is_open($node, $id);
	return;
}

sub is_refused
{
	my ($seconds, $name) = @_;
	my $error = sql_error($node, 'SELECT snowid_next()');
	my ($lead) =
	  $error =~ /^58000: the next key would lead the clock by (\d+) ms\n/;
	ok($lead && abs($lead / 1000 - $seconds) < 120, $name) or diag($error);
	return;
}

#---- A glitch ----

set_worker_id(1, '1min');
my $log     = -s $node->logfile;
my @clients = map { start_client($node) } 1 .. 3;
clients_go_on(@clients);
set_skew($node, $year);
usleep(200_000);
set_skew($node, 0);
my $began = time;
clients_go_on(@clients);
my $pause = time - $began;
cmp_ok($pause, '<', 30,
	'a glitch of the clock to next year: keys continue once it is over');
note "after $pause s";
$node->wait_for_log(qr/LOG:  the clock is back after its jump ahead/, $log);
my $disorder = 0;

foreach my $client (@clients)
{
	my @keys = stop_client($client);
	note_keys(@keys);
	$disorder += grep { $keys[$_] <= $keys[ $_ - 1 ] } 1 .. $#keys;
	is(slurp_file($client->{errors}), '', 'no caller gets an error');
}
is($disorder,                    0, 'keys increase throughout');
is(logged($node, $log, $jumped), 1, 'the log has one line for it');
is_at(0, 'keys have the time of today');
is(status($node, "abs(extract(epoch FROM ceiling - now())) < 60"),
	't', 'the ceiling has the time of today');

set_worker_id(1);

# Nobody makes keys while it lasts; the keeper may see it or not.
foreach my $length (0.2, 1.5)
{
	set_skew($node, $year);
	usleep($length * 1e6);
	set_skew($node, 0);
	is_at(0,
		"a glitch of $length s while no caller makes keys costs nothing");
}

#---- A jump that was right ----

$log = -s $node->logfile;
set_skew($node, $year);
my $error = sql_error($node, 'SELECT snowid_next()');
like(
	$error,
	qr/^55000: snowid could not reserve more keys\nDETAIL:  The clock jumped ahead by more than snowid.max_jump. Set it right, and do not reboot before; if it is right, call snowid_accept_clock\(\)/,
	'a jump that lasts: keys stop, and the error says what to do');
is(query($node, 'SELECT snowid_accept_clock()'),
	'', 'snowid_accept_clock() accepts the jump');
poll($node, 'reason IS NULL');
is_at($year, 'keys continue at the time that was accepted');
is(logged($node, $log, $jumped), 1, 'the log has the jump once');
like(
	slurp_file($node->logfile, $log),
	qr/LOG:  the jump of the clock was accepted/,
	'the log has that the jump was accepted');
my $ahead = first_of_batch();

#---- It was not right ----

set_skew($node, 0);
is_refused($year, 'back to today: no key below those of next year');
like(
	sql_error($node, 'SELECT snowid_accept_clock()'),
	qr/^55000: there is no clock jump to accept\nHINT:  If keys are refused, snowid_status\(\) has another reason/,
	'back to today: the hint of snowid_accept_clock() leads to the reason');
set_worker_id(2);
is_at(0, 'under another worker ID keys have the time of today, at once');
my $today = first_of_batch();
set_worker_id(1);
is_refused($year, 'under the old one there are none, still');
$node->restart;
gate_is_open($node);
is_refused($year, 'under the old one there are none after a restart, either');
set_worker_id(2);
$node->stop('immediate');
$node->start;
server_is_open($node);
cmp_ok(first_of_batch(), '>', $today,
	'under the other one they continue above its own after a crash, too');
is_at(0, 'at the time of today');

# When the time has come.
configure($node, 'snowid.worker_id = 1');
$node->stop;
set_skew($node, $year);
$node->start;
server_is_open($node);
cmp_ok(first_of_batch(), '>', $ahead,
	'when the time has come keys continue above the last');

is($twice, 0, 'no key was made twice') or diag("$twice");
note scalar(keys %made), ' keys';
$node->stop;

done_testing();
