# The functions that read keys by this server's layout fail while that layout is
# not that of its last keys: if it is refused, on a standby, before the gate was
# ever open, and if there is no keeper at all.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $layout_1 =
  'epoch=2020-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my $lower =
  'epoch=2021-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my $higher =
  'epoch=2010-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my @calls = (
	'snowid_decode(1)',              'snowid_timestamp(1)',
	'snowid_min(now())',             'snowid_max(now())',
	'snowid_encode(now(), 1, 1, 1)', 'snowid_bits(1)');

sub settings
{
	my ($layout, $more) = @_;
	return
	  "snowid.layout = '$layout'\n"
	  . ($more // 'snowid.worker_id = 1') . "\n";
}

# Which of the functions fail with this.
sub fail_with
{
	my ($node, $error) = @_;
	return scalar grep { sql_error($node, "SELECT $_") =~ $error } @calls;
}

sub all_work
{
	my ($name, $node) = @_;
	is(fail_with($node, qr/^$/), 6, "$name: they work");
	return;
}

# They fail, and name both layouts.
sub none_works
{
	my ($name, $node, $ours, $theirs, $message) = @_;
	my $both =
	  "The settings make \"$ours\", and this server's last keys have \"$theirs\".";

	is(fail_with($node, qr/^55000: \Q$message\E\nDETAIL:  \Q$both\E/),
		6, "$name: they fail, with the reason");
	is( sql_error(
			$node, 'SELECT ' . join(', ', map { s/\)$/, '$theirs')/r } @calls)
		),
		'',
		"$name: by a layout that is given they work");
	return;
}

my $cannot  = 'snowid cannot use this layout';
my $changed = "snowid's layout was changed";

sub restart_with
{
	my ($node, $settings) = @_;
	configure($node, $settings);
	$node->restart;
	return;
}

sub closed_with
{
	my ($node, $reason) = @_;
	$node->poll_query_until('postgres',
		"SELECT NOT is_open AND reason ~ '$reason' FROM snowid_status()")
	  or die;
	return;
}

#---- A server that never made a key ----

my $node =
  snowid_cluster('primary', settings($layout_1, ''), allows_streaming => 1);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
closed_with($node, 'no worker ID');
all_work('no key was made yet', $node);
restart_with($node, settings($lower, ''));
closed_with($node, 'no worker ID');
all_work('no key was made yet, in another layout', $node);

#---- Its layout is refused ----

restart_with($node, settings($layout_1));
server_is_open($node);
all_work('open', $node);
my $key = $node->safe_psql('postgres', 'SELECT snowid_next()');
$node->backup('backup');

restart_with($node, settings($lower));
closed_with($node, $cannot);
none_works('refused', $node, $lower, $layout_1, $cannot);
is($node->safe_psql('postgres', 'SELECT errors FROM snowid_status()'),
	0, 'functions that fail do not count as errors of keys');

# one session, over the consent
restart_with($node, settings($higher));
closed_with($node, 'was changed');
none_works('waiting for consent', $node, $higher, $layout_1, $changed);
is( $node->safe_psql('postgres',
		<<~EOF), "refused\n\nt", 'a session sees the consent');
	CREATE FUNCTION read() RETURNS text LANGUAGE plpgsql AS \$\$
	BEGIN RETURN snowid_min('2023-01-01Z') = snowid_min('2023-01-01Z', '$higher');
	EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN 'refused'; END \$\$;
	SELECT read();
	SELECT snowid_accept_layout();
	DO \$\$ BEGIN
		WHILE NOT (SELECT is_open FROM snowid_status()) LOOP PERFORM pg_sleep(0.02); END LOOP;
	END \$\$;
	SELECT left(read(), 1);
	EOF
all_work('after the consent', $node);

#---- No keeper has judged it ----

foreach my $case (
	[ 'no worker ID', '', 'no worker ID' ],
	[
		'no worker process',
		"snowid.worker_id = 1\nmax_worker_processes = 0",
		'not ready'
	],
	[
		'the clock is before the epoch',
		'snowid.worker_id = 1',
		'before',
		'epoch=2240-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12'
	])
{
	my ($name, $settings, $reason, $epoch) = @$case;

	restart_with($node, settings($epoch // $layout_1, $settings));
	closed_with($node, $reason);
	none_works($name, $node, $epoch // $layout_1, $higher, $cannot);
	next if $epoch;
	restart_with($node, settings($higher, $settings));
	closed_with($node, $reason);
	all_work("$name, but the layout of the last keys", $node);
}

#---- On a standby, the primary's ----

restart_with($node, settings($higher));
server_is_open($node);
$node->backup('later');

sub standby
{
	my ($name, $layout) = @_;
	my $standby = server_from_backup($name, $node, 'later', settings($layout),
		has_streaming => 1);
	$standby->start;
	closed_with($standby, 'recovery');
	$node->safe_psql('postgres', 'SELECT snowid_next()');
	$node->wait_for_catchup($standby);
	return $standby;
}
my $same = standby('same', $higher);
all_work('a standby', $same);
my $before = standby('before', $layout_1);
none_works('a standby with another layout',
	$before, $layout_1, $higher, $cannot);
is( $before->safe_psql(
		'postgres', "SELECT snowid_decode($key, '$layout_1') IS NOT NULL"),
	't',
	'a standby with another layout reads by the layout that it is given');

# the primary changes its layout, and standbys with the next one wait for it
my $highest =
  'epoch=2000-01-01T00:00:00.000Z datacenter=5 worker=5 sequence=12';
my $next = standby('next', $highest);
none_works('a standby with the layout that comes next',
	$next, $highest, $higher, $cannot);
restart_with($node, settings($highest));
closed_with($node, 'was changed');
$node->safe_psql('postgres', 'SELECT snowid_accept_layout()');
server_is_open($node);
$node->safe_psql('postgres', 'SELECT snowid_next()');
$node->wait_for_catchup($_) foreach $next, $same;
all_work('when the primary has it, too', $next);
none_works('a standby with the former layout',
	$same, $higher, $highest, $cannot);
$next->promote;
server_is_open($next);
all_work('promoted', $next);

$_->stop foreach $next, $same, $before, $node;
done_testing();
