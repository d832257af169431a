# The spare worker ID under load, and over a promotion: no key is made twice, each
# session's keys go down at a change to the spare only, and a promoted standby
# begins above the keys in its rows with either worker ID.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidTest;
use Test::More;

my ($minute, $hour, $day) = (60, 3600, 86400);
my $settings =
  "snowid.worker_id = 1\nsnowid.spare_worker_id = 2\nsnowid.max_lead = 200ms\nsnowid.max_wait = 300ms";
my $node  = snowid_cluster('primary', $settings, allows_streaming => 1);
my $clock = -$day;

set_skew($node, $clock);
start_and_open($node);
poll($node, 'spare_worker_id = 2');
query($node,
	'CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowid_next())');

sub step
{
	my ($seconds) = @_;
	$clock += $seconds;
	set_skew($node, $clock);
	return;
}

#---- Under load ----

my @clients = map { start_client($node, $_) } (
	('SELECT snowid_next();') x 3,
	'SELECT snowid_next_batch(3000);',
	'INSERT INTO made DEFAULT VALUES RETURNING id;');
my $steps = 4;

# Waits until each has got a key of this worker ID, the last one that it wrote,
# that was made after the clock's last step.
sub clients_get_keys_of
{
	my ($id) = @_;
	my $step = query($node, 'SELECT snowid_min(clock_timestamp())');
	foreach my $file (map { $_->{keys} } @clients)
	{
		wait_until(
			"a key of worker ID $id",
			sub {
				my ($key) = qx(tail -c 64 $file) =~ /^(\d{18,})\n[^\n]*\z/m;
				return $key && key_worker_id($key) == $id && $key >= $step;
			});
	}
	return;
}

clients_get_keys_of(1);
for (1 .. $steps)
{
	step(60);
	clients_get_keys_of(1);
	step(-30);
	clients_get_keys_of(2);
	step(30);
	clients_get_keys_of(1);
}
is(status($node, 'spare_uses'), $steps, "$steps steps back and forth");
my (%made, $twice, $wrong);
foreach my $client (@clients)
{
	my $before = 0;
	my $down   = 0;
	foreach my $key (stop_client($client))
	{
		$twice++ if $made{$key}++;
		if ($key <= $before)
		{
			$down++;
			$wrong++
			  if key_worker_id($before) != 1 || key_worker_id($key) != 2;
		}
		$before = $key;
	}
	is($down, $steps, 'the keys of a session go down once for each of them');
	unlike(
		slurp_file($client->{errors}),
		qr/ERROR:  (?!the next key would lead the clock by)/,
		'and it is refused for the clock alone');
}
is($twice // 0, 0, 'no key was made twice');
is($wrong // 0,
	0, 'no key is below the one before but at a change to the spare');
note scalar(keys %made), ' keys';

#---- Promotion ----

# Inserts rows and returns the highest key.
sub highest_row
{
	query($node,
		'INSERT INTO made SELECT snowid_next_batch(1000) ON CONFLICT (id) DO UPDATE SET id = -1'
	);
	is(query($node, 'SELECT count(*) FROM made WHERE id < 0'),
		0, 'no key is in a row already');
	return query($node,
		'SELECT max(id) FROM made WHERE (id >> 12) & 31 = '
		  . status($node, 'worker_id'));
}

my $primary = $node;
$primary->backup('backup');
my %standby = map {
	$_ => server_from_backup($_, $primary, 'backup', $settings,
		has_streaming => 1)
} ('behind', 'right', 'crashed');
foreach (values %standby)
{
	set_skew($_, $clock + $hour);
	$_->start;
}
step($hour / 2);
my $own = highest_row();
step(-$hour / 3);
wait_for_worker_id($primary, 2);
my $spare = highest_row();
$primary->wait_for_catchup($_, 'replay', $primary->lsn('insert'))
  foreach keys %standby;
$primary->stop('immediate');

foreach my $name (sort keys %standby)
{
	$node = $standby{$name};
	my $is_right = $name eq 'right';

	set_skew($node, $is_right ? $clock + $hour : $clock - 2 * $minute);
	$node->promote;
	if (!$is_right)
	{
		server_is_open($node);
		like(
			sql_error($node, 'SELECT snowid_next()'),
			qr/^58000: the next key would lead the clock/,
			"$name: promoted with its clock behind both, it makes no key");
		if ($name eq 'crashed')
		{
			$node->stop('immediate');
			$node->start;
			server_is_open($node);
		}

		# the clock only just behind the keys of the spare
		configure($node, $settings =~ s/max_lead = 200ms/max_lead = 10min/r);
		$node->reload;
		stop_clock($node, key_ms($spare) - 900);
		wait_for_worker_id($node, 2);
		is( query(
				$node,
				"SELECT key > $spare, clock_timestamp() < snowid_timestamp($spare) FROM snowid_next() key"
			),
			't|t',
			"$name: behind the own keys alone, the spare goes on above its own"
		);
		configure($node, $settings);
		$node->reload;

		if ($name eq 'crashed')
		{
			$node->stop('immediate');
			$node->start;
		}
		set_skew($node, $clock);
		wait_for_worker_id($node, 2);
		highest_row();
		set_skew($node, $clock + $hour);
	}
	wait_for_worker_id($node, 1);
	cmp_ok(next_key($node), '>', $own,
		"$name: with its clock right, the own worker ID makes keys above all"
	);
	highest_row();
	$node->stop;
}
done_testing();
