# Restarts: a clean stop loses nothing, and the next start waits for nothing.  After
# a crash of any kind, keys begin above every key made before.  A clock that was set
# back while the server was down repeats no key, and a loop of crashes does not drive
# keys ahead of the clock.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time usleep);

# 256 keys a millisecond, so that a few sessions can outrun the format.
my $node = snowid_cluster('restart',
	"snowid.worker_id = 1\nsnowid.layout = 'epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=8'"
);

# The WAL is flushed by whom it concerns, or not at all.
$node->append_conf('postgresql.conf',
	"fsync = on\nwal_writer_delay = 10s\nrestart_after_crash = on");
start_and_open($node);

my $epoch =
  query($node, 'SELECT extract(epoch FROM snowid_timestamp(0)) * 1000');
sub ms { return ($_[0] >> 18) + $epoch }

# The server's clock.
my $skew = 0;
sub now_ms { return (time + $skew) * 1000 }

sub step_to
{
	($skew) = @_;
	set_skew($node, $skew);
	return;
}

# The ceiling in the data directory of a server that was stopped, which had one pair:
# the file is magic, then number and position of each origin, as a machine of 64 bits
# has them, then a checksum.
sub stored_ceiling
{
	my $file =
	  slurp_file($node->data_dir . '/pg_logical/replorigin_checkpoint');
	my %position = unpack('x4 (S x6 Q)*', substr($file, 0, -4));
	return ms($position{65533});
}

my $highest = 0;

# Keys of several clients, and of the test, until the server is stopped or
# killed; $highest is above all of them.
sub makes_keys_until
{
	my ($end) = @_;
	my @clients = (
		start_client($node), start_client($node),
		start_client($node, 'SELECT snowid_next_batch(10);'));
	clients_go_on(@clients);
	$end->();
	foreach my $client (@clients)
	{
		foreach my $key (stop_client($client))
		{
			$highest = $key if $key > $highest;
		}
	}
	return;
}

# After a start: the gate opens by itself, and the first key is above all before.
sub first_key_is_above
{
	my ($name) = @_;
	server_is_open($node);
	my $key = next_key($node);
	cmp_ok($key, '>', $highest, "$name: the first key is above all before");
	cmp_ok(status($node, 'wait_ms'), '<', 1000, "$name: no caller waits");
	$highest = $key;
	return $key;
}

# Processes of the killed postmaster remain for a moment.
sub start_when_free
{
	until ($node->start(fail_ok => 1))
	{
		$node->{_pid} = undef;
		usleep(20_000);
	}
	return;
}

#---- Clean stops ----

$highest = next_key($node);
$node->stop('smart');
is(stored_ceiling(), ms($highest),
	'smart stop: the exact last value is stored');
$node->start;
first_key_is_above('smart stop');
makes_keys_until(sub { $node->stop('fast') });
my $stored = stored_ceiling();
ok( $stored >= ms($highest) && $stored <= now_ms(),
	'fast stop under load: the last value is stored'
) or diag("$stored, last key " . ms($highest) . ', clock ' . now_ms());
$node->start;
cmp_ok(ms(first_key_is_above('fast stop')),
	'<=', now_ms(), 'fast stop: nothing is lost');

# A key that leads the clock, which stands still.
stop_clock($node, (time + 1) * 1000);
query($node,
	'SELECT snowid_advance(snowid_max(clock_timestamp() + interval \'0.9 s\'))'
);
my $ahead = $highest =
  query($node, 'SELECT max(key) FROM snowid_next_batch(100) key');
$node->stop;
is(stored_ceiling(), ms($ahead),
	'a value ahead of the clock is stored as it is');
$node->start;
my $key = first_key_is_above('clean stop ahead of the clock');
cmp_ok(ms($key), '<=', ms($ahead) + 1,
	'a clean stop ahead of the clock: the next start continues after the value'
);
set_skew($node, 0);

#---- Crashes ----

sub crash
{
	my ($how) = @_;
	if ($how eq 'immediate stop')
	{
		$node->stop('immediate');
		$node->start;
	}
	elsif ($how eq 'kill -9 of the postmaster')
	{
		kill 'KILL', $node->{_pid};
		$node->{_pid} = undef;
		start_when_free();
	}
	else
	{
		my $log = -s $node->logfile;
		kill 'KILL',
		  query($node,
			"SELECT pid FROM pg_stat_activity WHERE application_name = 'above_all_before.pl' LIMIT 1"
		  );
		$node->wait_for_log(
			qr/all server processes terminated; reinitializing/, $log);
	}
	return;
}

my @crashes =
  ('immediate stop', 'kill -9 of the postmaster', 'kill -9 of a backend');
foreach my $how (@crashes)
{
	poll_lead_below(1);
	makes_keys_until(sub { crash($how) });
	first_key_is_above($how);
	cmp_ok(ms($highest) - now_ms(),
		'<', 600, "$how: at most what is reserved is lost");
}

sub poll_lead_below
{
	my ($ms) = @_;
	poll($node, "lead_ms < $ms");
	return;
}

# Keys as many as the format has, at the greatest lead.
foreach my $how (@crashes)
{
	stop_clock($node, (time + 1) * 1000);
	my @batches =
	  map { start_client($node, 'SELECT snowid_next_batch(10000);') } 1, 2;
	poll($node, 'lead_ms > 990');
	crash($how);
	set_skew($node, 0);
	foreach my $batch (@batches)
	{
		my ($last) = sort { $b <=> $a } stop_client($batch);
		$highest = $last if ($last // 0) > $highest;
	}
	server_is_open($node);
	$key = next_key($node);
	cmp_ok($key, '>', $highest,
		"$how at the cap: the first key is above all before");
	cmp_ok(status($node, 'wait_ms'),
		'<', 30_000, "$how at the cap: it waits for the lead at most");
	cmp_ok(ms($key) - now_ms(),
		'<=', 1001, "$how at the cap: the lead is within max_lead");
	$highest = $key;
}

#---- A crash loop ----

# The time of none of these crashes passes: the clock stands still.
my $loop = snowid_cluster('loop', 'snowid.worker_id = 1');
start_and_open($loop);
my @keys = next_key($loop);
my @leads;
stop_clock($loop, 1000 * time);
foreach my $round (1 .. 5)
{
	push @keys,  sql_error($loop, 'SELECT snowid_next()') || next_key($loop);
	push @leads, status($loop, 'round(lead_ms)');
	$loop->stop('immediate');
	$loop->start;
	server_is_open($loop);
}
note "leads @leads";
ok( !(  grep { $keys[$_] !~ /^\d+$/ || $keys[$_] <= $keys[ $_ - 1 ] }
		1 .. $#keys),
	'a crash loop: each start makes keys above all before') or diag("@keys");
cmp_ok($leads[-1], '<', 800,
	'a crash loop: the grants of five starts lead the clock by less than 800 ms'
);

# The grants after a start are small; a server that stays up gets larger ones.
set_skew($loop, 0);
next_key($loop);
poll($loop,
	"lead_ms = 0 AND ceiling > clock_timestamp() + interval '200 ms'");
pass('the grants of a server that stays up grow again after a crash loop');
$loop->stop;

#---- The clock is set back while the server is down ----

foreach my $mode ('fast', 'immediate')
{
	$highest = next_key($node);
	$node->stop($mode);
	step_to(-3500);
	$node->start;
	gate_is_open($node);
	like(
		sql_error($node, 'SELECT snowid_next()'),
		qr/^58000: the next key would lead the clock by (34\d\d|3500)\d{3} ms/,
		"down while the clock was set back by an hour, $mode stop: no key below the ceiling"
	);
	like(
		status($node, 'is_open, lead_ms > 3400000, reason'),
		qr/^f\|t\|the next key would lead the clock by (34\d\d|3500)\d{3} ms$/,
		"the status says so after a $mode stop: not open, the lead, the reason"
	);
	step_to(0);
	poll($node, 'is_open AND lead_ms = 0 AND reason IS NULL');
	pass("the status says so when the clock is right, $mode stop");
	$key = next_key($node);
	cmp_ok($key, '>', $highest, 'keys continue when the clock is right');
}

$node->stop;
done_testing();
