# What tests ask of keys: whose they are, and that they increase and none is
# there twice.

package SnowidKeys;

use strict;
use warnings;
use Exporter 'import';
use Test::More;
use Time::HiRes qw(time);

use SnowidTest;

our @EXPORT = qw($last_key $last_ms %highest now_ms key_of makes_keys_as keys_are_right);

our ($last_key, $last_ms);    # of key_of(): the key, and its time in Unix ms
our %highest;                 # the last key of each server, by its name

sub now_ms { return int(time * 1000); }

# The worker ID that a new key carries.
sub key_of
{
	my ($node) = @_;
	(my $worker_id, $last_ms, $last_key) = split /\|/, $node->safe_psql('postgres', <<~EOF);
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
	cmp_ok($last_key, '>', $highest{ $node->name } // 0, "$name: and keys go on increasing");
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
		my $last = 0;
		foreach my $key (stop_client($client))
		{
			$disorder++ if $key <= $last;
			$last = $key;
			$keys++;
			$seen{$key} = 1;
		}
	}
	ok($keys > 100 && $disorder == 0 && keys %seen == $keys, $name)
	  or diag("$keys keys, $disorder out of order, " . keys(%seen) . ' different ones');
	return;
}

1;
