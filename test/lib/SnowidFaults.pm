# Shared by the tests of Redis' faults: servers with a claim, their status and
# log, and a check of their keys.

package SnowidFaults;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Utils;
use SnowidKeys;
use SnowidProtocol;
use SnowidRedis;
use SnowidTest;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw($short $gone $back strings hasty error_is answered log_size
  no_process_ended duration keys_are_right);

# Short calls, so that a Redis that is silent is found soon; on a busy machine one that is
# there may take longer.
our $short = "snowid.redis_timeout = '500ms'\n";

# A running server that claims, with short calls.
sub hasty
{
	my ($name, $redis, $settings, %init) = @_;
	return claiming($name, $redis, $short . ($settings // ''), %init);
}

# Waits until there is another error, and the last one is this, as a pattern.
sub error_is
{
	my ($node, $error) = @_;
	my $last = status($node, "coalesce(registry_error_at, '-infinity')");
	poll($node,
		"registry_error_at <> '$last' AND registry_error ~ \$_\$$error\$_\$");
	return;
}

# Waits until Redis has answered after this moment, twice, for the first answer
# may be to what was asked before.
sub answered
{
	my ($node) = @_;
	for (1 .. 2)
	{
		my $last = status($node, "coalesce(registry_ok_at, '-infinity')");
		poll($node, "registry_ok_at > '$last'");
	}
	return;
}

sub log_size { return -s $_[0]->logfile; }

# That no process of a server has ended but by a stop.
sub no_process_ended
{
	my ($node, $name) = @_;
	my @ends =
	  grep { !/due to administrator command$/ }
	  slurp_file($node->logfile) =~
	  /^.*(?:PANIC|TRAP|FATAL|terminated by signal|reinitializing).*$/mg;
	is(join("\n", @ends), '', "$name: no process ended");
	return;
}

our $gone = qr/LOG:  Redis cannot be used$/m;
our $back = qr/LOG:  Redis can be used again$/m;

# How long it takes, in s.
sub duration
{
	my ($code) = @_;
	my $began = time;
	$code->();
	return time - $began;
}

1;
