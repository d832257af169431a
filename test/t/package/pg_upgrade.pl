# pg_upgrade carries neither the ceiling nor snowid/state: the steps of
# doc/operations.md, and the reasons for them.  OLD_INSTALL=/usr/lib/postgresql/NN
# upgrades from the snowid of that major; else from this major to itself.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidRedis;
use SnowidTest;
use Test::More;

my @old   = (install_path => $ENV{OLD_INSTALL});
my $ahead = 600;                                   # s

# what majors do not have in common by default
my @alike =
  $ENV{OLD_INSTALL} ? (extra => [ '--data-checksums', '--locale', 'C' ]) : ();

# A server of the old major whose clock is this far ahead, with rows that have
# keys; stopped.  Returns it, and its last key.
sub old_server
{
	my ($name, $settings, $ahead) = @_;
	my $node = snowid_cluster($name, $settings, @old, @alike);

	set_skew($node, $ahead);
	start_and_open($node);
	query($node, $_)
	  foreach
	  'CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowid_next())',
	  'INSERT INTO made SELECT FROM generate_series(1, 1000)';
	query($node, $_)
	  foreach 'CREATE EXTENSION snowid_segments',
	  q{INSERT INTO snowid_segments (biz_tag) VALUES ('a')},
	  q{SELECT snowid_number('a')};
	my $last = status($node, 'last_key');
	$node->stop;
	return ($node, $last);
}

# The server that takes its place, not started
sub upgraded
{
	my ($old, $name, $settings) = @_;
	my $new = snowid_cluster($name, $settings, @alike);
	pg_upgrade($old, $new);
	return $new;
}

my $mine = "SELECT count(*) FROM @{[ ceilings() ]}";

#---- A fixed worker ID ----

my ($old, $last) = old_server('old', 'snowid.worker_id = 5', 0);
my $new = upgraded($old, 'new', 'snowid.worker_id = 5');
ok(-e $old->data_dir . '/snowid/state',  'the old directory has a state');
ok(!-e $new->data_dir . '/snowid/state', 'the new one has none');
$new->start;
server_is_open($new);
is(query($new, $mine), 1, 'the only ceiling is the new one');
cmp_ok(next_key($new), '>', $last, 'new keys are above the old ones');
is( query($new, 'INSERT INTO made DEFAULT VALUES; SELECT count(*) FROM made'),
	1001,
	'defaults make them');
is(query($new, q{SELECT snowid_number('a')}),
	2, 'numbers of a tag continue after pg_upgrade');
$new->stop;

#---- The layout was forgotten ----

($old, $last) = old_server(
	'laid_out',
	"snowid.worker_id = 7\nsnowid.layout = 'epoch=2005-01-01T00:00:00Z worker=10 sequence=12'",
	0);
$new = upgraded($old, 'forgotten', 'snowid.worker_id = 7');
$new->start;
server_is_open($new);
like(
	sql_error($new, "SELECT snowid_advance($last)"),
	qr/^22023: key $last leads the clock by \d{12,} ms.*HINT:  Is it a key of this layout\?/s,
	'if the layout was forgotten on the way, the step of the manual shows it'
);
$new->stop;

#---- A dump, restored ----

($old, $last) = old_server('dumped', 'snowid.worker_id = 8', 0);
$old->start;
server_is_open($old);
$new = snowid_cluster('restored', 'snowid.worker_id = 8', @alike);
start_and_open($new);
query($new, 'DROP EXTENSION snowid');
restore_dump($old, 'postgres', $new, 'postgres', 'p');
is(query($new, 'INSERT INTO made DEFAULT VALUES RETURNING id > ' . $last),
	't', 'keys continue above those of the dump');
is(query($new, q{SELECT snowid_number('a')}),
	2, 'numbers of a tag continue after the dump');

#---- A dump of a central database, restored ----

my ($grants) =
  slurp_file('doc/segment.md') =~
  /^(GRANT USAGE ON SCHEMA snowid .*?)^```$/ms;
foreach my $node ($old, $new)
{
	query($node, $_)
	  foreach 'CREATE ROLE owner LOGIN', 'CREATE ROLE segments',
	  'CREATE DATABASE central OWNER owner';
}
$old->safe_psql('central', <<~EOF, extra_params => [ '-U', 'owner' ]);
	CREATE SCHEMA snowid;
	CREATE EXTENSION snowid_segments SCHEMA snowid;
	SET search_path = snowid;
	$grants
	EOF
restore_dump($old, 'central', $new, 'central', 'p');
is( $new->safe_psql(
		'central',
		q{SELECT has_function_privilege('segments', oid, 'EXECUTE') FROM pg_proc WHERE proname = 'snowid_segment_take'}
	),
	't',
	'other servers may take ranges after the restore, as its owner granted');
$_->stop foreach $old, $new;

#---- The clock was set back ----

($old, $last) = old_server('ahead', 'snowid.worker_id = 6', $ahead);
$new = upgraded($old, 'set_back', 'snowid.worker_id = 6');
$new->start;
server_is_open($new);
cmp_ok(next_key($new), '<', $last,
	'a clock that was set back: new keys are below the old ones');
query($new, "SELECT snowid_advance($last)");
set_skew($new, $ahead);
server_is_open($new);
cmp_ok(next_key($new), '>', $last, 'not after snowid_advance()');
$new->stop;

#---- Claimed from Redis ----

my $redis = SnowidRedis->start('redis');
($old, $last) =
  old_server('claimed', claim_settings('server', $redis), $ahead);

my $other = claiming_cluster('other', $redis);
start_and_open($other);
$new = upgraded($old, 'claims', claim_settings('server', $redis));
$new->start;
wait_for_claim($new);
is(worker_id($new), 2, 'another directory: another worker ID');
wait_for($other,
	"SELECT state = 'silent' FROM snowid_claims() WHERE worker_id = 0");
is(query($other, 'SELECT snowid_release(0, 0)'),
	'released', 'the old one is given back');
isnt(query($new, 'SELECT snowid_reclaim()'),
	0, 'the old one is not given out below the ceiling in Redis');
set_skew($new, $ahead);
wait_until(
	'the old worker ID',
	sub {
		(eval { query($new, 'SELECT snowid_reclaim()') } // -1) == 0;
	});
wait_for_claim($new);
cmp_ok(next_key($new), '>', $last,
	'the old one, taken by its number: above the ceiling in Redis');

$_->stop foreach $new, $other;
done_testing();
