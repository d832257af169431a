# The manifests of doc/kubernetes/: a server with their settings makes keys, by the
# number of its pod or from the Redis that one of them starts; and the probes ask the
# right server, in time.
# needs: libyaml-libyaml-perl redis-server
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis ();
use SnowidTest;
use Test::More;

plan skip_all => 'YAML::XS is not installed' if !eval { require YAML::XS };

my $folder = abs_path(dirname(__FILE__) . '/../../..') . '/doc/kubernetes';
my $dir    = PostgreSQL::Test::Utils::tempdir;
my %yaml   = map { $_ => [ YAML::XS::Load(slurp_file("$folder/$_.yaml")) ] }
  qw(statefulset deployment redis cloudnativepg);

# The workload of a manifest, and its container
sub workload
{
	return (grep { $_->{spec}{template} } @{ $yaml{ $_[0] } })[0];
}

sub container
{
	return workload($_[0])->{spec}{template}{spec}{containers}[0];
}

#---- Each manifest ----

foreach my $name (qw(statefulset deployment redis))
{
	my $spec      = workload($name)->{spec};
	my $template  = $spec->{template};
	my ($service) = grep { $_->{kind} eq 'Service' } @{ $yaml{$name} };

	is_deeply(
		$spec->{selector}{matchLabels},
		$template->{metadata}{labels},
		"$name: the selector finds its pods");
	is_deeply(
		$service->{spec}{selector},
		$template->{metadata}{labels},
		"$name: its service finds its pods");
	is_deeply(
		[ sort map { $_->{name} } @{ container($name)->{volumeMounts} } ],
		[
			sort map { $_->{name} // $_->{metadata}{name} }
			  @{ $template->{spec}{volumes} // [] },
			@{ $spec->{volumeClaimTemplates} // [] }
		],
		"$name: each mount has its volume");
	cmp_ok($_->{timeoutSeconds},
		'>=', 5, "$name: a probe gives a loaded server time")
	  foreach grep { defined }
	  map { container($name)->{"${_}Probe"} } qw(startup liveness readiness);
}

# The probes of a server with a database and a role of the user's own, with the
# programs as stand-ins that print their arguments.
mkdir "$dir/bin";
foreach my $program (qw(psql pg_isready))
{
	append_to_file("$dir/bin/$program",
		qq(#!/bin/sh\necho "\$@" >>$dir/asked\necho t\n));
	chmod 0755, "$dir/bin/$program";
}
foreach my $name (qw(statefulset deployment))
{
	cmp_ok(
		workload($name)
		  ->{spec}{template}{spec}{terminationGracePeriodSeconds},
		'>=', 120, "$name: a server may end with a long checkpoint");
	foreach my $probe (qw(startup liveness readiness))
	{
		unlink "$dir/asked";
		local $ENV{PATH}          = "$dir/bin:$ENV{PATH}";
		local $ENV{POSTGRES_USER} = 'chief';
		local $ENV{POSTGRES_DB}   = 'stock';
		ok( IPC::Run::run(
				container($name)->{"${probe}Probe"}{exec}{command}, '>',
				\my $out),
			"$name: the $probe probe succeeds if its program does");
		my $asked = slurp_file("$dir/asked");
		like(
			$asked,
			qr/-U chief -d stock/,
			"$name: the $probe probe asks the user's database as its role");
		is( $asked =~ /is_open FROM snowid\.snowid_status\(\)/ ? 1 : 0,
			$probe eq 'readiness'                              ? 1 : 0,
			"$name: whether keys are made is asked by the readiness probe alone"
		);
	}
}

#---- Servers ----

# The settings of a server's arguments
sub settings
{
	my ($name) = @_;
	return { map { /^(snowid\.\w+)=(.*)$/ ? ($1 => $2) : () }
		  @{ container($name)->{args} } };
}

sub lines
{
	my ($settings) = @_;
	return join("\n", map { "$_ = '$settings->{$_}'" } sort keys %$settings);
}

# A server with these settings, on a host of this name: the worker ID of its keys
sub worker_id
{
	my ($name, $host, $settings) = @_;
	my $node = snowid_cluster($name, lines($settings));

	append_to_file("$node->{skew_file}.hostname", "$host\n");
	start_and_open($node);
	my $id = query($node, 'SELECT (snowid_decode(snowid_next())).worker_id');
	$node->stop;
	return $id;
}

is(worker_id('statefulset', 'shop-2', settings('statefulset')),
	2, 'statefulset: the number of the pod is the worker ID');
my ($cluster) = grep { $_->{kind} eq 'Cluster' } @{ $yaml{cloudnativepg} };
my $parameters = $cluster->{spec}{postgresql}{parameters};
is(join(' ', grep { ref || !/\D/ } values %$parameters),
	'0', 'cloudnativepg: the parameters are text');
is(worker_id('cnpg', 'shop-200', $parameters),
	200, 'cloudnativepg: the number of the instance is the worker ID');

my ($database) = grep { $_->{kind} eq 'Database' } @{ $yaml{cloudnativepg} };
is( $database->{spec}{cluster}{name},
	$cluster->{metadata}{name},
	'cloudnativepg: the database is of the cluster');
is_deeply($cluster->{spec}{postgresql}{shared_preload_libraries},
	['snowid'], 'cloudnativepg: the library is preloaded');

#---- Redis ----

# The command of the manifest, with a port and an address of the test's own.
my $port   = PostgreSQL::Test::Cluster::get_free_port();
my $server = $ENV{REDIS_SERVER} || 'redis-server';
chomp(my $real = qx(sh -c 'command -v $server'));
append_to_file("$dir/bin/redis-server",
	qq(#!/bin/sh\nexec $real "\$@" --port $port --bind 127.0.0.1 --dir $dir\n)
);
chmod 0755, "$dir/bin/redis-server";
my $redis;
{
	local $ENV{PATH}     = "$dir/bin:$ENV{PATH}";
	local $ENV{PASSWORD} = 'a secret';
	$redis = IPC::Run::start(container('redis')->{command},
		'<', '/dev/null', '>&', "$dir/redis.log");
}
append_to_file("$dir/password", "a secret\n");
chmod 0600, "$dir/password";
my $settings = settings('deployment');
ok($settings->{'snowid.redis_url'} =~ s/\@redis:6379$/\@127.0.0.1:$port/,
	'deployment: the Redis is that of redis.yaml');
is_deeply(
	[ map { $_->{metadata}{name} } @{ $yaml{redis} } ],
	[ 'redis', 'redis' ],
	'redis: it has that name');
$settings->{'snowid.redis_password_file'} = "$dir/password";
$settings->{'snowid.redis_lease'}         = '5s';
is( worker_id('deployment', 'shop-7d9f8b6c5-x2x4k', $settings),
	0,
	'deployment: a server claims its worker ID from the Redis of redis.yaml');

my $as_its_user = bless {
	port => $port,
	cli  => [ qw(--user snowid --pass), 'a secret' ]
  },
  'SnowidRedis';
is($as_its_user->query('DEL', 'snowid'),
	1, 'redis: its user can delete the hash');
$redis->signal('TERM');
$redis->finish;

done_testing();
