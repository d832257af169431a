# The keeper owns its origin as a session does: while keys are made no session
# drops it, moves it, or uses it.  An origin that is dropped while no keeper runs is
# found missing, and its number is never taken for another's, even if a session
# drops it, and takes its number, again and again while keepers start and end.
# Between its look-up and the moment in which the keeper owns it, and between one
# keeper and the next, others may drop it, move it or take it: the keeper finds
# out, touches nothing that is another's, and makes keys with an origin of its own.
# A clean stop stores the last key, but for a lock that may last.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $settings = "snowid.worker_id = 1\nsnowid.max_lead = 10ms";
my $node     = snowid_cluster('owned', $settings);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
let_hold($node);
start_and_open($node);

sub keys_go_on
{
	server_is_open($node);
	return makes_keys_as($node, 1, @_);
}

my $name = query($node,
	q(SELECT roname FROM pg_replication_origin WHERE roname LIKE 'snowid\_%')
);

# The origin's position in the WAL, in ms; empty if there is none.
sub position
{
	return query($node,
		"SELECT remote_lsn - '0/0' FROM pg_replication_origin_status WHERE external_id = '$name'"
	);
}

#---- While keys are made ----

my $pid    = keeper_pid($node);
my $client = start_client($node);
clients_go_on($client);
like(
	sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: could not drop replication origin with ID \d+, in use by PID $pid\n/,
	'a drop is refused, and the error names the process');
like(
	sql_error(
		$node,
		q(SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname LIKE 'snowid\_%')
	),
	qr/^55006: could not drop /,
	'a drop of all origins of snowid is refused');
like(
	sql_error($node, "SELECT pg_replication_origin_advance('$name', '0/1')"),
	qr/^55006: .*already active for PID $pid\n/,
	'the origin cannot be moved');
like(
	sql_error($node, "SELECT pg_replication_origin_session_setup('$name')"),
	qr/^55006: .*already active for PID $pid\n/,
	'the origin cannot be used by a session');
query($node, "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'snowid keeper' AND pid <> $pid"
) or die;
clients_go_on($client);
$pid = keeper_pid($node);
like(
	sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: .* in use by PID $pid\n/,
	'a new keeper owns it, too');
keys_are_right('keys are as they should be', $client);
keys_go_on('keys continue after the attempts');

# Each grant is in the WAL: a crash finds it.
query($node, 'CHECKPOINT') foreach 1 .. 3;
keys_go_on('keys continue after checkpoints');
my $ceiling = position();
$node->stop('immediate');
$node->start;
cmp_ok(position(), '>=', $ceiling, 'a crash finds the ceiling');
keys_go_on('keys continue after a crash');

#---- A clean stop ----

sub last_ms
{
	return query($node,
		"SELECT trunc(extract(epoch FROM snowid_timestamp($_[0])) * 1000)");
}

$node->stop;
configure($node, 'snowid.worker_id = -1');
$node->start;
is(position(), last_ms($last_key), 'a clean stop stores the last key');
configure($node, $settings);
$node->reload;
keys_go_on('keys continue after the key of the clean stop');

query($node, q(SELECT pg_replication_origin_create('somebody_else')));
my $idle = $node->background_psql('postgres');
$idle->query_safe(
	q(BEGIN; SELECT pg_replication_origin_drop('somebody_else')));
keys_go_on('while a transaction that dropped an origin is open');
configure($node, 'snowid.worker_id = -1');
$node->reload;
$node->poll_query_until('postgres',
	"SELECT reason ~ 'no worker ID' FROM snowid_status()")
  or die;
cmp_ok(position(), '>=', last_ms($last_key),
	'an open transaction does not keep the gate from closing, and the ceiling stays'
);
configure($node, $settings);
$node->reload;
keys_go_on('keys again, though it is open yet');
$idle->quit;

#---- Dropped while no keeper runs ----

$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
query($node,
	"SELECT pg_replication_origin_drop('$name'); SELECT pg_replication_origin_create('thief')"
);
is(query($node, q(SELECT pg_replication_origin_progress('thief', false))),
	'', 'a subscription with its number gets no ceiling');
query($node, q(SELECT pg_replication_origin_advance('thief', '0/10')));
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowid'");
$node->start;
keys_go_on('dropped while no keeper ran: it is made again');
is( query(
		$node,
		q(SELECT pg_replication_origin_progress('thief', false) = '0/10')),
	't',
	'the origin that has the number now is not touched');
query($node, q(SELECT pg_replication_origin_drop('thief')));

#---- Dropped again and again, while keepers start and end ----

# A thief of the number stays for a moment, and says what it has got.
my $thief = start_client($node, <<~EOF =~ s/\n//gr, 'hasty');
	DO \$\$ DECLARE got pg_lsn; BEGIN
		BEGIN
			PERFORM pg_replication_origin_drop('$name');
			PERFORM pg_replication_origin_create('thief');
			RAISE WARNING 'dropped %', (SELECT roident FROM pg_replication_origin WHERE roname = 'thief');
		EXCEPTION WHEN undefined_object OR object_in_use THEN NULL;
		END;
		COMMIT;
		got := pg_replication_origin_progress('thief', false);
		IF got IS NOT NULL THEN RAISE WARNING 'got %', got; END IF;
		PERFORM pg_replication_origin_drop('thief');
	EXCEPTION WHEN undefined_object THEN NULL;
	END \$\$;
	EOF
$client = start_client($node);
my @stolen;
for (1 .. 400)
{
	clients_go_on($client);
	query($node,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'snowid keeper'"
	);
	@stolen = slurp_file($thief->{errors}) =~ /dropped/g;
	last if @stolen >= 5;
}
cmp_ok(scalar @stolen, '>=', 5, 'the origin was dropped between keepers');
clients_go_on($client);
stop_client($thief);
like(sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: /,
	'dropped between keepers: the origin is there and owned now');
unlike(slurp_file($thief->{errors}),
	qr/got /, 'a subscription with its number never got a ceiling');
keys_are_right('increasing, none twice', $client);
keys_go_on('the keys continue');

#---- Between its look-up and the moment in which it is owned ----

sub set_worker_id
{
	my ($worker_id, $max_lead) = @_;
	configure($node,
			'snowid.max_lead = '
		  . ($max_lead // '10ms')
		  . "\nsnowid.worker_id = $worker_id");
	$node->reload;
	return;
}

# The name of the origin of a worker ID; its number, and its position.
sub name_of
{
	return query($node,
		"SELECT roname FROM pg_replication_origin WHERE roname ~ '^snowid_.*_$_[0]\$'"
	);
}

sub number_of
{
	return query($node,
		"SELECT roident FROM pg_replication_origin WHERE roname = '$_[0]'");
}

sub position_of
{
	return query($node,
		"SELECT pg_replication_origin_progress('$_[0]', false)");
}

# Keeps the gate closed, with the origin given up.
sub close_gate
{
	set_worker_id(-1);
	poll($node, q(reason ~ 'no worker ID'));
	return;
}

# Has the keeper stand between the two.
sub hold_behind_lookup
{
	my ($worker_id) = @_;
	hold_keeper($node, 'replorigin_session_setup');
	set_worker_id($worker_id);
	held_keeper($node);
	return;
}

# Drops the origin and gives its number to another one, which is the lowest that
# is free; returns its position.
sub steal
{
	my ($name)   = @_;
	my $number   = number_of($name);
	my $position = position_of($name);

	query($node, <<~EOF);
		SELECT pg_replication_origin_create('other' || i) FROM generate_series(1, $number) i
		WHERE i NOT IN (SELECT roident FROM pg_replication_origin);
		SELECT pg_replication_origin_drop('$name');
		SELECT pg_replication_origin_create('thief');
		EOF
	is(number_of('thief'), $number, 'another origin has the number');
	return $position;
}

# Keys are made, and their ceiling is in the right origin.
sub keys_are_made
{
	my ($worker_id, $position) = @_;

	wait_for_worker_id($node, $worker_id);
	my $own = name_of($worker_id);
	query($node, 'SELECT snowid_next()');
	is(position_of('thief'), $position, 'the other origin is not touched');
	like(sql_error($node, "SELECT pg_replication_origin_drop('$own')"),
		qr/^55006: /, 'the keeper owns its own');
	makes_keys_as($node, $worker_id, 'dropped before it is owned');
	query($node, q(SELECT pg_replication_origin_drop('thief')));
	return;
}

close_gate();
is(status($node, q(ceiling - last_key_time < '2 ms')),
	't', 'the ceiling of a closed gate is its last key');
hold_behind_lookup(3);
is( status($node, 'reason'),
	'snowid is not ready yet',
	'a gate whose origin is looked up is closed for a moment only');
is(steal(name_of(3)), '', 'a new origin has no position');
let_go($node);
keys_are_made(3, '');

# The other one gets its position, too.
close_gate();
hold_behind_lookup(3);
my $position = steal(name_of(3));
query($node, "SELECT pg_replication_origin_advance('thief', '$position')");
let_go($node);
keys_are_made(3, $position);

close_gate();
hold_behind_lookup(3);
$name = name_of(3);
query($node,
	"SELECT pg_replication_origin_advance('$name', pg_replication_origin_progress('$name', false) + 4000)"
);
my $moved = query($node,
	"SELECT pg_replication_origin_progress('$name', false) - '0/0'");
my $log = -s $node->logfile;
let_go($node);
server_is_open($node);
like(
	slurp_file($node->logfile, $log),
	qr/DETAIL:  Its position was changed concurrently\./,
	'an origin that is moved: the log says so');
is(key_of($node), 3, 'an origin that is moved: keys are made');
cmp_ok($last_ms, '>', $moved,
	'an origin that is moved: keys are above its new position');

# A number that is another's by then is not kept.
close_gate();
hold_behind_lookup(3);
steal(name_of(3));
query($node, q(SELECT pg_replication_origin_advance('thief', '0/10')));
set_worker_id(-1);
let_go($node);
poll($node, q(reason ~ 'no worker ID'));
is( sql_error($node, q(SELECT pg_replication_origin_session_setup('thief'))),
	'',
	'another origin that got the number can be used at once');
query($node, q(SELECT pg_replication_origin_drop('thief')));
set_worker_id(3);
server_is_open($node);

# Another session takes it, while another pair is waited for.
set_worker_id(2, '1h');
poll($node, q(reason ~ 'can be used when'));
hold_behind_lookup(3);
my $session = $node->background_psql('postgres');
$session->query_safe("SELECT pg_replication_origin_session_setup('$name')");
let_go($node);
poll($node, q(is_open OR reason ~ 'already active for PID'));
is(status($node, 'is_open'),
	'f', 'while another session has the origin no keys are made');
$session->query_safe('SELECT pg_replication_origin_session_reset()');
makes_keys_as($node, 3,
	'the session that had the origin has left: keys are made');

# It is being dropped.
close_gate();
$session = $node->background_psql('postgres');
$session->query_safe("BEGIN; SELECT pg_replication_origin_drop('$name')");
set_worker_id(3);
poll($node, q(is_open OR reason ~ 'that created or dropped'));
is(status($node, 'is_open'),
	'f',
	'while a transaction that drops the origin is open no keys are made');
$session->query_safe('COMMIT');
server_is_open($node);
$session->query_safe(q(SELECT pg_replication_origin_create('thief')));
keys_are_made(3, '');
$session->quit;

#---- The origin is dropped before a successor owns it, and the gate is open ----

$name = name_of(3);
my $ceiling_ms = q(floor(extract(epoch FROM ceiling) * 1000));
my $of_wal     = qq(SELECT coalesce((SELECT remote_lsn - '0/0'
	FROM pg_replication_origin_status WHERE external_id = '$name'), 0));

# Nothing is used up, so that no grant becomes due.
reload_with(
	$node,
	'snowid.worker_id' => 3,
	'snowid.max_lead'  => '1s');
makes_keys_as($node, 3, 'an origin that is owned');
stop_clock($node, now_ms());
hold_successor($node);
query($node, "SELECT pg_replication_origin_drop('$name')");
is(status($node, 'is_open'),
	't', 'dropped between two keepers: the gate stays open');
let_go($node);
wait_for($node,
	"SELECT ($of_wal) >= (SELECT $ceiling_ms FROM snowid_status())");
pass('dropped between two keepers: the ceiling is above all keys again');
like(sql_error($node, "SELECT pg_replication_origin_drop('$name')"),
	qr/^55006: /, 'dropped between two keepers: the new origin is owned');
makes_keys_as($node, 3, 'dropped between two keepers');
$node->stop('immediate');
$node->start;
server_is_open($node);
makes_keys_as($node, 3, 'dropped between two keepers, and a crash');
set_skew($node, 0);

#---- A session takes it from a keeper that leaves ----

# So the keeper cannot store its last key.
hold_keeper($node, 'replorigin_advance');
my $keeper = keeper_pid($node);
query($node, "SELECT pg_terminate_backend($keeper)");
held_keeper($node);
$log     = -s $node->logfile;
$session = $node->background_psql('postgres');
$session->query_safe("SELECT pg_replication_origin_session_setup('$name')");
let_go($node);
my $taken = qr/replication origin with (?:ID|OID) \d+ is already active/;
$node->wait_for_log(qr/\[$keeper\].* ERROR:  $taken/, $log);
poll($node, q(reason ~ 'already active for PID'));
isnt(keeper_pid($node), $keeper,
	'a keeper that fails as it leaves has a successor');
$session->query_safe('SELECT pg_replication_origin_session_reset()');
$session->quit;
server_is_open($node);
makes_keys_as($node, 3, 'the successor makes keys with the origin');
$node->stop;
done_testing();
