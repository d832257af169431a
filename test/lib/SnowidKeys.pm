# Checks of keys: the pair that made them, and that they increase and none
# repeats.

package SnowidKeys;

use strict;
use warnings;
use Exporter 'import';
use Test::More;
use Time::HiRes qw(time);

use SnowidTest;

our @EXPORT =
  qw($last_key $last_ms %highest now_ms key_ms key_worker_id key_of
  makes_keys_as keys_are_right disorder highest);

our ($last_key, $last_ms);    # of key_of(): the key, and its time in Unix ms
our %highest;                 # the last key of each server, by its name

sub now_ms { return int(time * 1000); }

# What a key of the default layout carries: its time in Unix ms, and its pair's
# number, which is the worker ID in datacenter 0.
sub key_ms        { return ($_[0] >> 22) + 1288834974657; }
sub key_worker_id { return ($_[0] >> 12) & 1023; }

# How many of these keys are not above the one before.
sub disorder
{
	return scalar(grep { $_[$_] <= $_[ $_ - 1 ] } 1 .. $#_);
}

sub highest
{
	return (sort { $b <=> $a } @_)[0];
}

# The worker ID that a new key carries.
sub key_of
{
	my ($node) = @_;
	(my $worker_id, $last_ms, $last_key) = split /\|/,
	  $node->safe_psql('postgres', <<~EOF);
		SELECT worker_id, (extract(epoch FROM created_at) * 1000)::bigint, id
		FROM (SELECT snowid_next() AS id OFFSET 0) made, LATERAL snowid_decode(id)
		EOF
	return $worker_id;
}

# Keys carry this ID and are above all that this server made before.
sub makes_keys_as
{
	my ($node, $id, $name) = @_;
	is(key_of($node), $id, $name);
	cmp_ok(
		$last_key, '>',
		$highest{ $node->name } // 0,
		"$name: keys increase");
	$highest{ $node->name } = $last_key;
	return;
}

# All the keys of clients: each client's increase, and none is there twice.
sub keys_are_right
{
	my ($name, @clients) = @_;
	my ($keys, $disorder, %seen) = (0, 0);

	foreach my $client (@clients)
	{
		my @made = stop_client($client);
		$disorder += disorder(@made);
		$keys     += @made;
		@seen{@made} = ();
	}
	ok($keys > 0 && $disorder == 0 && keys %seen == $keys, $name)
	  or diag("$keys keys, $disorder out of order, " .
		  keys(%seen) . ' different ones');
	return;
}

1;
