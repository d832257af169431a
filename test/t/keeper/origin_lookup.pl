# Between the look-up of its origin and the moment in which the keeper owns it,
# others may drop it and get its number, move it, take it, or have begun to drop it:
# the keeper finds out, touches nothing that is another's, and makes keys with an
# origin of its own.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidHold;
use SnowidKeys;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('lookup', 'snowid.max_lead = 10ms');
let_hold($node);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');

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

# Keys are made, and their ceiling is where it belongs.
sub keys_are_made
{
	my ($worker_id, $position) = @_;

	wait_for_worker_id($node, $worker_id);
	my $own = name_of($worker_id);
	query($node, 'SELECT snowid_next()');
	is(position_of('thief'), $position, 'the other origin is not touched');
	like(sql_error($node, "SELECT pg_replication_origin_drop('$own')"),
		qr/^55006: /, 'the keeper owns its own');
	makes_keys_as($node, $worker_id, 'keys are made');
	query($node, q(SELECT pg_replication_origin_drop('thief')));
	return;
}

note 'a new origin, which has no position yet';
hold_behind_lookup(1);
is(steal(name_of(1)), '', 'it has none');
let_go($node);
keys_are_made(1, '');

note 'one with a position, which the other one gets, too';
close_gate();
hold_behind_lookup(1);
my $position = steal(name_of(1));
query($node, "SELECT pg_replication_origin_advance('thief', '$position')");
let_go($node);
keys_are_made(1, $position);

note 'one that is moved';
close_gate();
hold_behind_lookup(1);
my $name = name_of(1);
query($node,
	"SELECT pg_replication_origin_advance('$name', pg_replication_origin_progress('$name', false) + 4000)"
);
my $moved = query($node,
	"SELECT pg_replication_origin_progress('$name', false) - '0/0'");
let_go($node);
server_is_open($node);
is(key_of($node), 1, 'keys are made');
cmp_ok($last_ms, '>', $moved, 'above where it was moved to');

note 'one that another session has taken, while another pair was waited for';
set_worker_id(2, '1h');
poll($node, q(reason ~ 'begins when'));
hold_behind_lookup(1);
my $session = $node->background_psql('postgres');
$session->query_safe("SELECT pg_replication_origin_session_setup('$name')");
let_go($node);
poll($node, q(is_open OR reason ~ 'already active for PID'));
is(status($node, 'is_open'), 'f', 'while it has it, no keys are made');
$session->query_safe('SELECT pg_replication_origin_session_reset()');
makes_keys_as($node, 1, 'the session has left: keys are made');

note 'one that is being dropped';
close_gate();
$session = $node->background_psql('postgres');
$session->query_safe("BEGIN; SELECT pg_replication_origin_drop('$name')");
set_worker_id(1);
poll($node, q(is_open OR reason ~ 'has created or dropped'));
is(status($node, 'is_open'),
	'f', 'while the transaction is open, no keys are made');
$session->query_safe('COMMIT');
server_is_open($node);
$session->query_safe(q(SELECT pg_replication_origin_create('thief')));
keys_are_made(1, '');
$session->quit;
$node->stop;
done_testing();
