# hiredis is in a library of its own, snowid_redis, which the registry's process alone
# loads.  A server without it, or without hiredis, starts and makes keys with a number; its
# registry names what it lacks, and continues once that is there, without a restart.
use strict;
use warnings;

use File::Basename qw(basename dirname);
use File::Copy;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidManaged;
use SnowidRedis;
use SnowidTest;
use Test::More;

#---- An installation whose snowid_redis a test can change ----

my ($pkglibdir) = run_command([ 'pg_config', '--pkglibdir' ]);
my ($sharedir)  = run_command([ 'pg_config', '--sharedir' ]);
my ($install_path, $extensions, $libraries) = installation_without_library();
foreach my $path ("$pkglibdir/snowid.so", glob "$sharedir/extension/snowid*")
{
	my $folder = $path =~ /\.so$/ ? $libraries : $extensions;
	symlink $path, "$folder/" . basename($path) or die "$path: $!";
}
my $library = "$libraries/snowid_redis.so";
my $good    = slurp_file("$pkglibdir/snowid_redis.so");

# Puts a library there, as a package would: another file with the same name.
sub install
{
	my ($content) = @_;
	replace_file($library, $content);
	return;
}

# The library with another text in place of one of the same length
sub altered
{
	my ($text, $other) = @_;
	my $library = $good;

	$library =~ s/\Q$text\E/$other/g or die "there is no $text";
	return $library;
}

# What a process maps of a library
sub maps
{
	my ($pid, $name) = @_;
	return slurp_file("/proc/$pid/maps") =~ m{/[^/\n]*\Q$name\E} ? 1 : 0;
}

sub cluster
{
	my ($name, $settings) = @_;
	return snowid_cluster($name, $settings, install_path => $install_path);
}

#---- A number needs no library ----

my $numbered = cluster('numbered', 'snowid.worker_id = 1');
start_and_open($numbered);
like(next_key($numbered), qr/^\d+$/,
	'a server with a number makes keys without snowid_redis');
$numbered->stop;
unlike(slurp_file($numbered->logfile),
	qr/hiredis|snowid_redis/, 'its log says nothing of the library');

#---- The registry says what it lacks, until it is there ----

my $redis  = SnowidRedis->start('redis');
my $server = cluster(
	'server',
	claim_settings(
		'server',
		join(',', ($redis->url) x 2),
		'snowid.max_wait = 1s'));
my ($hiredis) = $good =~ /\0(libhiredis\.so[.\d]*)\0/ or die 'no hiredis';
my $build = '0.1 for PostgreSQL ' . $server->pg_version->major;

$server->start;
query($server, 'CREATE EXTENSION snowid');
my $postmaster = $server->{_pid};
my $process    = process_pid($server, 'snowid registry');

# Waits until the status has this error and reason; callers get it, too.
sub lacks
{
	my ($error, $name) = @_;

	poll($server,
		"registry_error ~ '^snowid_redis $error\$' AND reason ~ ': Redis cannot be used: snowid_redis $error\\.\$'"
	);
	like(
		sql_error($server, 'SELECT snowid_next()'),
		qr/^55000: snowid has not claimed a worker ID yet\nDETAIL:  Redis cannot be used: snowid_redis $error\.\n/,
		"status and callers say: $name");
	return;
}
my $not_loaded =
  'could not be loaded \(install hiredis, or build snowid with it\)';

# a long path is cut off, so the rest of these is not compared
lacks("$not_loaded: /.*", 'there is no snowid_redis');
install(altered($hiredis, $hiredis =~ s/lib/Lib/r));
lacks(
	"$not_loaded: L"
	  . substr($hiredis, 1)
	  . ': cannot open shared object file: No such file or directory',
	'hiredis is gone');
install('not a library');
lacks("$not_loaded: /.*", 'snowid_redis is damaged');
foreach my $other ($build =~ s/0\.1/9.1/r, $build =~ s/(\d)$/($1 + 1) % 10/er)
{
	install(altered($build, $other));
	lacks(
		"is of snowid $other, and this server runs $build: restart it after an upgrade",
		"snowid_redis is of $other");
}
install(altered('snowid_redis', 'SNOWID_REDIS'));
lacks("$not_loaded: /.*", 'snowid_redis is another library');
is(maps($process, 'snowid_redis'), 0,
	'a library that is refused is not kept');
install($good);
wait_for_claim($server);
like(next_key($server), qr/^\d+$/,
	'keys are made once the right library is there');
is($server->{_pid}, $postmaster, 'the server was not restarted');
is(process_pid($server, 'snowid registry'),
	$process, 'the registry was not restarted');
is( () =
	  slurp_file($server->logfile) =~
	  /LOG:  Redis cannot be used\n.*snowid_redis/g,
	1,
	'the log names it once');

#---- No other process has it ----

my $session = $server->background_psql('postgres');
my $backend = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe('SELECT snowid_next(), is_open FROM snowid_status()');
my %pid = (
	postmaster => $postmaster,
	backend    => $backend,
	keeper     => keeper_pid($server),
	registry   => $process);
foreach my $who (sort keys %pid)
{
	my $is = $who eq 'registry' ? 1 : 0;

	is(maps($pid{$who}, 'snowid.so'), 1, "the $who maps snowid");
	is(maps($pid{$who}, $_), $is, "the $who maps " . ($is ? '' : 'no ') . $_)
	  foreach 'snowid_redis.so', 'libhiredis';
}
$session->quit;

#---- A server that had a claim starts without the library ----

my $id = worker_id($server);
unlink $library or die "$!";
$server->restart;
poll($server, "is_open AND registry = 'remembered'");
is(worker_id($server), $id,
	'a server whose hiredis is gone continues with its claim');
install($good);
wait_for_claim($server);
is(worker_id($server), $id, 'the claim is confirmed once hiredis is there');
$server->stop;

done_testing();
