# Shared by the tests of managed/: the script, and a PostgreSQL that cannot load
# the library.

package SnowidManaged;

use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(basename dirname);
use File::Path     qw(mkpath);
use PostgreSQL::Test::Utils;

our @EXPORT = qw($managed run_script installation_without_library);

our $managed = abs_path(dirname(__FILE__) . '/../../managed');

# Runs the script in a schema of a database, as an administrator would.
sub run_script
{
	my ($node, $db, $schema) = @_;
	$node->command_ok(
		[
			'psql', '-XqAt1',
			'-v',   'ON_ERROR_STOP=1',
			'-c',   "SET search_path = $schema",
			'-f',   "$managed/snowid--0.1.sql",
			'-d',   $node->connstr($db)
		],
		"the script runs in $schema of $db");
	return;
}

# A copy of the installation, its own to write into, without a trace of snowid:
# its path, for PostgreSQL::Test::Cluster->new(install_path => ...), and its
# directories of extensions and of libraries.
sub installation_without_library
{
	my $root = PostgreSQL::Test::Utils::tempdir;
	my %dir  = map { $_ => (run_command([ 'pg_config', "--$_" ]))[0] }
	  qw(bindir pkglibdir sharedir);

	mkpath(
		[
			dirname("$root$dir{bindir}"), map { "$root$_" } $dir{pkglibdir},
			"$dir{sharedir}/extension"
		]);

	# the programs find the rest from where they are
	system('cp', '-r', $dir{bindir}, "$root$dir{bindir}") == 0
	  or die "cp: $?";
	foreach
	  my $from ($dir{pkglibdir}, $dir{sharedir}, "$dir{sharedir}/extension")
	{
		foreach my $path (glob "$from/*")
		{
			my $name = basename($path);
			next if $name =~ /^snowid/ || -e "$root$from/$name";
			symlink $path, "$root$from/$name" or die "$path: $!";
		}
	}
	return (
		dirname("$root$dir{bindir}"),
		"$root$dir{sharedir}/extension",
		"$root$dir{pkglibdir}");
}

1;
