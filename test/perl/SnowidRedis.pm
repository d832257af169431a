# A Redis of a test's own, on a free port; and what servers share that claim
# their worker IDs from it.  REDIS_SERVER=valkey-server tests with Valkey.

package SnowidRedis;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use SnowidTest;

our @EXPORT = qw(claiming_cluster claim_settings worker_id claim_state wait_for_claim
  waits_for_redis);

my $program = $ENV{REDIS_SERVER} // 'redis-server';
my $client = $program =~ s/server$/cli/r;
my @all;

# Starts a Redis: SnowidRedis->start('name', 'maxmemory 100mb', ...), with lines
# of redis.conf.  Nothing persists unless they say so.
sub start
{
	my ($class, $name, @config) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir($name);
	my $self = bless {
		name => $name,
		dir => $dir,
		port => PostgreSQL::Test::Cluster::get_free_port(),
		socket => PostgreSQL::Test::Utils::tempdir_short() . '/redis',
		cli => [],
	}, $class;

	append_to_file("$dir/redis.conf", join("\n",
		"port $self->{port}", 'bind 127.0.0.1', "unixsocket $self->{socket}",
		"dir $dir", "logfile $dir/log", 'save ""', @config, ''));
	push @all, $self;
	$self->run;
	return $self;
}

# Starts it again, after stop(); with what it has kept.
sub run
{
	my ($self) = @_;
	$self->{handle} = IPC::Run::start([ $program, "$self->{dir}/redis.conf" ],
		'<', '/dev/null', '>&', "$self->{dir}/out");
	for (1 .. 500)
	{
		return if ($self->query('PING') // '') =~ /PONG|NOAUTH|NOPERM|LOADING/;
		usleep(10_000);
	}
	die "redis $self->{name} does not start: " . slurp_file("$self->{dir}/log");
}

# Ends it: with TERM it saves first, if it is to save at all.
sub stop
{
	my ($self, $signal) = @_;
	return if !$self->{handle};
	$self->{handle}->signal($signal // 'TERM');
	$self->{handle}->signal('CONT');
	$self->{handle}->finish;
	delete $self->{handle};
	return;
}

sub freeze { $_[0]{handle}->signal('STOP'); return; }
sub resume { $_[0]{handle}->signal('CONT'); return; }

# What redis-cli prints for a command, without the last newline.
sub query
{
	my ($self, @command) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run(
		[ $client, '-p', $self->{port}, @{ $self->{cli} }, @command ],
		'<', '/dev/null', '>', \$out, '2>', \$err);
	chomp $out;
	return $out;
}

sub url { return "redis://127.0.0.1:$_[0]{port}"; }

# The field of a record in the registry; undef where there is no such record.
sub record
{
	my ($self, $pair, $field, $key) = @_;
	my $json = $self->query('HGET', $key // 'snowid', $pair);
	return $json =~ /"\Q$field\E":"([^"]*)"/ ? $1 : undef;
}

# Changes fields of a record (or of "meta") in one step.
sub edit
{
	my ($self, $pair, @fields) = @_;
	my $answer = $self->query('EVAL', <<~'EOF', 1, 'snowid', $pair, @fields);
		local r = cjson.decode(redis.call('HGET', KEYS[1], ARGV[1]))
		for i = 2, #ARGV, 2 do r[ARGV[i]] = ARGV[i + 1] end
		return redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(r))
		EOF
	$answer eq '0' or die "edit: $answer";
	return;
}

# How many records have this name, and an owner.
sub owned
{
	my ($self, $name) = @_;
	my @records = grep { /"name":"\Q$name\E"/ && !/"node":""/ } split /\n/, $self->query('HVALS', 'snowid');
	return scalar @records;
}

END
{
	local $?;
	$_->stop('KILL') foreach @all;
}

# A server that claims its worker ID from a Redis, not started; with intervals
# that suit a test.
sub claiming_cluster
{
	my ($name, $redis, $settings, %init) = @_;
	return snowid_cluster($name, claim_settings($name, $redis, $settings), %init);
}

sub claim_settings
{
	my ($name, $redis, $settings) = @_;
	my $url = ref $redis ? $redis->url : $redis;
	return <<~EOF . ($settings // '');
		snowid.redis_url = '$url'
		snowid.node_name = '$name'
		snowid.redis_check_interval = '300ms'
		snowid.redis_timeout = '500ms'
		snowid.max_drift = '200ms'
		EOF
}

sub worker_id
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT worker_id FROM snowid_status');
}

# 'claimed', 'remembered', or what the claim waits for.
sub claim_state
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT registry FROM snowid_status');
}

# Waits until the server makes keys with a claim that Redis has confirmed.
sub wait_for_claim
{
	my ($node) = @_;
	$node->poll_query_until('postgres',
		"SELECT is_open AND registry = 'claimed' FROM snowid_status")
	  or die 'no worker ID is claimed: ' . claim_state($node);
	return;
}

# No key within snowid.max_wait, for Redis does not answer.
sub waits_for_redis
{
	my ($node, $name) = @_;
	my $began = time;
	like(sql_error($node, 'SELECT snowid_next()'),
		qr/^55000: snowid has not claimed a worker ID yet\nDETAIL:  Redis (cannot be used: 127\.0\.0\.1 port \d+: .+|has not answered yet\.)\nHINT:  snowid tries again by itself/,
		$name);
	cmp_ok(time - $began, '>', 0.9, "$name: after snowid.max_wait");
	return;
}

1;
