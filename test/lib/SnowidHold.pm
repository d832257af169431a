# A server whose keeper, another process of snowid's, or a "client", a test can hold at a
# call of ours to the server's functions: see test/lib/hold.c, which has their list.

package SnowidHold;

use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter 'import';
use Fcntl          qw(O_CREAT O_RDWR SEEK_SET);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use SnowidTest;

our @EXPORT =
  qw(let_hold hold_keeper held_keeper hold_successor hold_process held_process let_go);

my $shim = abs_path(dirname(__FILE__) . '/hold.so');

# struct Hold
my $layout   = 'Z64 Z64 Z64 l< l<';
my $armed_at = 196;

# For a server that is not started yet.
sub let_hold
{
	my ($node) = @_;
	$node->{preload}   = $shim;
	$node->{hold_file} = $node->basedir . '/hold';
	write_hold($node, pack($layout, '', '', '', 0, 0));
	return;
}

# Has the process "$who" stop before its first call of the function $at, behind one
# of $after where that is given.
sub hold_process
{
	my ($node, $who, $at, $after) = @_;
	write_hold($node, pack($layout, $who, $at, $after // '', 0, 0));
	write_hold($node, pack('l<', 1), $armed_at);
	return;
}

sub hold_keeper
{
	my ($node, $at, $after) = @_;
	hold_process($node, 'snowid keeper', $at, $after);
	return;
}

# Waits until it has; returns its PID.
sub held_process
{
	my ($node) = @_;
	my $pid;

	wait_until(
		'the process at the call before which it is held',
		sub {
			$pid = (unpack $layout, slurp_file($node->{hold_file}))[3];
			return $pid != 0
			  && slurp_file("/proc/$pid/stat") =~ /\) T /;
		});
	return $pid;
}

sub held_keeper { return held_process(@_); }

# Ends the keeper in a wait, and holds its successor before its first turn.  Needs
# exit_on_error.
sub hold_successor
{
	my ($node) = @_;
	my $keeper = keeper_pid($node);
	hold_keeper($node, 'ProcessConfigFile');
	wait_until(
		'the end of a keeper while it waits',
		sub {
			kill('FPE', $keeper);
			process_pid($node, 'snowid keeper') ne $keeper;
		});
	return held_keeper($node);
}

# It continues.
sub let_go
{
	my ($node) = @_;
	kill 'CONT', held_process($node);
	return;
}

sub write_hold
{
	my ($node, $bytes, $offset) = @_;
	sysopen(my $file, $node->{hold_file}, O_RDWR | O_CREAT, 0600)
	  or die "$node->{hold_file}: $!";
	sysseek($file, $offset // 0, SEEK_SET)   or die "$!";
	syswrite($file, $bytes) == length $bytes or die "$!";
	close($file);
	return;
}

1;
