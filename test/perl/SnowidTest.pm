# What snowid's TAP tests share: a server with snowid preloaded and a wall
# clock of its own that the test can step.

package SnowidTest;

use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter 'import';
use Fcntl;
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(snowid_cluster set_skew sql_error);

my $shim = abs_path(dirname(__FILE__) . '/../skew.so');

# Adds $seconds (fraction and sign allowed) to the wall clock of a server; at
# once, in each of its processes.
sub set_skew
{
	my ($node, $seconds) = @_;
	sysopen(my $file, $node->{skew_file}, O_WRONLY | O_CREAT, 0644)
	  or die "$node->{skew_file}: $!";
	syswrite($file, pack('q<', int($seconds * 1e9))) == 8 or die "$!";
	close($file);
	return;
}

# A server, initialised but not started: $node->start runs it under a clock
# that set_skew() steps.  Settings as lines of postgresql.conf.
sub snowid_cluster
{
	my ($name, $settings, %init) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%init);
	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'snowid'\n" . ($settings // ''));
	give_clock($node);
	return $node;
}

# Gives a server (new, or made from a backup) its own clock.
sub give_clock
{
	my ($node) = @_;
	$node->{skew_file} = $node->basedir . '/skew';
	set_skew($node, 0);
	return;
}

# Cluster.pm's start and restart, with the shim preloaded.
{
	no warnings 'redefine';
	foreach my $method (qw(start restart promote))
	{
		my $original = PostgreSQL::Test::Cluster->can($method);
		no strict 'refs';
		*{"PostgreSQL::Test::Cluster::$method"} = sub {
			my ($node, @args) = @_;
			return $original->($node, @args) unless $node->{skew_file};
			local $ENV{LD_PRELOAD} = $shim;
			local $ENV{SKEW_FILE} = $node->{skew_file};
			return $original->($node, @args);
		};
	}
}

# The error that a statement ends with, SQLSTATE first; '' where there is none.
sub sql_error
{
	my ($node, $sql) = @_;
	my ($rc, $out, $err) =
	  $node->psql('postgres', "\\set VERBOSITY verbose\n$sql",
		timeout => $PostgreSQL::Test::Utils::timeout_default);
	return '' if $rc == 0 && $err eq '';
	$err =~ s/^.*?(?:ERROR|FATAL):\s+//s;
	return $err;
}

1;
