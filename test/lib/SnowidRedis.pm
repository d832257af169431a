# A Redis of a test's own, on a free port, and helpers for servers that claim
# their worker IDs from it.  REDIS_SERVER=valkey-server tests with Valkey.

package SnowidRedis;

use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter 'import';
use IO::Select;
use IO::Socket::INET;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use SnowidProtocol;
use SnowidTest
  qw(snowid_cluster has_own_address give_clock clock_env create_extension configure put_beside replace_file sql_error
  status poll wait_for wait_until);

our @EXPORT =
  qw(claiming_cluster claiming claimed copy_of claim_settings marks_every settings worker_id
  claim_state wait_for_claim release_silent waits_for_redis);

my $program = $ENV{REDIS_SERVER} // 'redis-server';
my $client  = $program =~ s/server$/cli/r;
my @all;

# Starts a Redis: SnowidRedis->start('name', 'maxmemory 100mb', ...), with lines
# of redis.conf.  Nothing persists unless they say so.
sub start
{
	my ($class, $name, @config) = @_;
	my $dir  = abs_path(PostgreSQL::Test::Utils::tempdir($name));
	my $self = bless {
		name   => $name,
		dir    => $dir,
		port   => PostgreSQL::Test::Cluster::get_free_port(),
		socket => PostgreSQL::Test::Utils::tempdir_short() . '/redis',
		cli    => [],
	}, $class;

	append_to_file(
		"$dir/redis.conf",
		join("\n",
			"port $self->{port}",
			'bind 127.0.0.1',
			"unixsocket $self->{socket}",
			"dir $dir", "logfile $dir/log",
			'save ""',  @config, ''));
	push @all, $self;
	$self->run;

	$self->settle if !grep { /^(?:user |cluster-enabled)/ } @config;
	return $self;
}

# It has run for long: servers need not wait for the end of a settling.  What was in it
# is gone.
sub settle
{
	my ($self)   = @_;
	my ($run_id) = $self->query('INFO', 'server') =~ /^run_id:(\w{40})/m;
	my ($replid) =
	  $self->query('INFO', 'replication') =~ /^master_replid:(\w{16})/m;

	$self->query('FLUSHALL');
	$self->edit(
		'meta',
		v        => 4,
		name     => 'abcdef0123456789',
		rank     => 2,
		instance => "$run_id/$replid",
		map({ $_ => '' } qw(layout pinned_by)),
		map { $_ => 0 } qw(since span longest window heard beat offset high));
	return;
}

# As if it had run for that long already.
sub end_settling
{
	my ($self) = @_;
	$self->edit('meta', since => 0, span => 0);
	return;
}

# Where give_clock() puts its clock, which counts from the next start on.
sub basedir { return $_[0]{dir}; }

# Starts it again, after stop(); with what it has kept.
sub run
{
	my ($self) = @_;
	{
		local %ENV = (%ENV, $self->{skew_file} ? clock_env($self) : ());
		$self->{handle} =
		  IPC::Run::start([ $program, "$self->{dir}/redis.conf" ],
			'<', '/dev/null', '>&', "$self->{dir}/out");
	}
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return
		  if ($self->query('PING') // '') =~ /PONG|NOAUTH|NOPERM/;
		usleep(100_000);
	}
	die "redis $self->{name} does not start: "
	  . slurp_file("$self->{dir}/log");
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

# A copy of its append-only file, for go_back().
sub copy_data
{
	my ($self) = @_;
	my $copy = "$self->{dir}/copy" . ++$self->{copies};

	system_or_bail('cp', '-a', (glob "$self->{dir}/append*")[0], $copy);
	return $copy;
}

# A crash: it is killed, and starts again with the data of then, or with none.  The code
# is run meanwhile.
sub go_back
{
	my ($self, $copy, $code) = @_;
	my $data = (glob "$self->{dir}/append*")[0];

	$self->stop('KILL');
	$code->() if $code;
	system_or_bail('rm', '-r', $data);
	system_or_bail('cp', '-a', $copy, $data) if $copy;
	$self->run;
	return;
}

sub freeze { $_[0]{handle}->signal('STOP'); return; }
sub resume { $_[0]{handle}->signal('CONT'); return; }

# The command line of redis-cli for this Redis, to be followed by a command
sub client
{
	my ($self) = @_;
	return ($client, '-p', $self->{port}, @{ $self->{cli} });
}

# The answer to a command as redis-cli prints it, without the last newline.  redis-cli
# itself runs only if there are options, because it costs a hundred times as much.
sub query
{
	my ($self, @command) = @_;
	my ($out,  $err)     = ('', '');

	if (@{ $self->{cli} } || $command[0] =~ /^-/)
	{
		IPC::Run::run([ $self->client, @command ],
			'<', '/dev/null', '>', \$out, '2>', \$err);
		chomp $out;
		return $out;
	}
	return eval {
		my $socket = IO::Socket::INET->new("127.0.0.1:$self->{port}")
		  or die "$!\n";
		local $SIG{PIPE} = 'IGNORE';
		print $socket strings(@command);
		$socket->flush;
		my $reply = _read_reply($socket);
		join("\n", @{ take_strings(\$reply) });
	} // '';
}

sub url { return "redis://127.0.0.1:$_[0]{port}"; }

# Reads a record (or "meta") with its marks, which are in a field of their own.
my $read = <<~'EOF';
	local names = ARGV[1] == 'meta' and {'beat'} or {'n', 'seen', 'ceiling'}
	local r = cjson.decode(redis.call('HGET', KEYS[1], ARGV[1]) or '{}')
	local marks = redis.call('HGET', KEYS[1], 'mark:' .. ARGV[1]) or ''
	local next_mark = string.gmatch(marks, '%S+')
	for _, name in ipairs(names) do r[name] = next_mark() end
	EOF

# All fields of a record in the registry.
sub fields
{
	my ($self, $pair, $key) = @_;
	my $json = $self->query('EVAL', "$read return cjson.encode(r)",
		1, $key // 'snowid', $pair);
	return $json =~ s{\\/}{/}gr =~ /"(\w+)":"([^"]*)"/g;
}

# A field of a record; undef where there is no such record.
sub record
{
	my ($self, $pair, $field, $key) = @_;
	my %record = $self->fields($pair, $key);
	return $record{$field};
}

# Changes fields of a record (or of "meta") in one step.
sub edit
{
	my ($self, $pair, @fields) = @_;
	my $answer =
	  $self->query('EVAL', $read . <<~'EOF', 1, 'snowid', $pair, @fields);
		for i = 2, #ARGV, 2 do r[ARGV[i]] = ARGV[i + 1] end
		for i, name in ipairs(names) do names[i], r[name] = r[name] or '', nil end
		redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(r),
			'mark:' .. ARGV[1], table.concat(names, ' '))
		return 'done'
		EOF
	$answer eq 'done' or die "edit: $answer";
	return;
}

# Writes a record that looks as if a server with this ID had claimed it.
sub plant
{
	my ($self, $pair, %record) = @_;
	my ($dc, $worker) = split /:/, $pair;
	my $index = "server:$record{owner}";
	my $taken = $self->query('HGET', 'snowid', "taken:$dc:0");

	$self->edit($pair, %record);
	$taken .= '0' x ($worker + 1 - length $taken);
	substr($taken, $worker, 1) = $record{lease} ? '2' : '1';
	$self->query('HSET', 'snowid', "taken:$dc:0", $taken);
	$self->query('HSET', 'snowid', $index,
		$self->query('HGET', 'snowid', $index) . " $pair");
	return;
}

# Other servers have these worker IDs, each with the fields of this record, and with
# others, if any.
sub occupy
{
	my ($self, $like, $dc, $ids, @fields) = @_;
	my %record = $self->fields($like);

	foreach my $id (@$ids)
	{
		$self->plant(
			"$dc:$id", %record,
			owner => sprintf('%032x', $id + 1),
			name  => "other$id",
			place => '',
			token => 'f' x 16,
			claim => sprintf('%016x', $id + 1),
			@fields);
	}
	return;
}

# As if a worker ID had never been claimed.
sub forget
{
	my ($self, $pair) = @_;
	my ($dc, $worker) = split /:/, $pair;
	my $taken = $self->query('HGET', 'snowid', "taken:$dc:0");

	substr($taken, $worker, 1) = '0';
	$self->query('HDEL', 'snowid', $pair);
	$self->query('HSET', 'snowid', "taken:$dc:0", $taken);
	return;
}

# From here on another server, "thief", has this worker ID; with other fields, if any.
sub take_away
{
	my ($self, $pair, @fields) = @_;
	$self->edit(
		$pair,
		owner => 'f' x 32,
		place => '',
		name  => 'thief',
		token => 'f' x 16,
		claim => 'f' x 16,
		@fields);
	return;
}

# Waits until this worker ID has no owner.
sub wait_until_free
{
	my ($self, $pair) = @_;
	wait_until("$pair without an owner",
		sub { $self->record($pair, 'owner') eq '' });
	return;
}

# How many records have this name, and an owner.
sub owned
{
	my ($self, $name) = @_;
	my @records = grep { /"name":"\Q$name\E"/ && !/"owner":""/ } split /\n/,
	  $self->query('HVALS', 'snowid');
	return scalar @records;
}

END
{
	local $?;
	$_->stop('KILL') foreach @all;
}

# A server that claims its worker ID from a Redis, not started; with intervals
# that suit a test, or, with marks => N, that marks every N ms.
sub claiming_cluster
{
	my ($name, $redis, $settings, %init) = @_;
	my $marks = delete $init{marks};
	my $node =
	  snowid_cluster($name, claim_settings($name, $redis, $settings), %init);

	$node->{redis} = $redis;
	marks_every($node, $marks) if $marks;
	return $node;
}

# The same, running; and with a claim that Redis has confirmed.
sub claiming
{
	my $node = claiming_cluster(@_);

	$node->start;
	create_extension($node);
	return $node;
}

sub claimed
{
	my $node = claiming(@_);

	wait_for_claim($node);
	return $node;
}

# A server with a copy of another one's files, as they are now; not started.
sub copy_of
{
	my ($name, $from, $settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	mkdir $node->basedir;
	system_or_bail('cp', '-a', $from->data_dir, $node->data_dir);
	unlink $node->data_dir . '/postmaster.pid';
	has_own_address($node);
	$node->{redis} = $from->{redis};
	settings($node, $settings);
	give_clock($node);
	return $node;
}

# From here on it marks its claim every so many ms; the product does every 5,000.
sub marks_every
{
	my ($node, $ms) = @_;
	put_beside($node, 'marks', $ms);
	return;
}

# Its settings from here on, beside those of the claim; from the next start or
# reload on.
sub settings
{
	my ($node, $settings) = @_;
	configure($node, claim_settings($node->name, $node->{redis}, $settings));
	return;
}

sub claim_settings
{
	my ($name, $redis, $settings) = @_;
	my $url = ref $redis ? $redis->url : $redis;
	return <<~EOF . ($settings // '');
		snowid.redis_url = '$url'
		snowid.server_name = '$name'
		snowid.redis_timeout = '4s'
		snowid.max_lead = '200ms'
		EOF
}

sub worker_id
{
	my ($node) = @_;
	return status($node, 'worker_id');
}

# 'claimed', 'remembered', or what the claim waits for.
sub claim_state
{
	my ($node) = @_;
	return status($node, 'registry');
}

# Waits until the server makes keys with a claim that Redis has confirmed.
sub wait_for_claim
{
	my ($node) = @_;
	poll($node, "is_open AND registry = 'claimed'");
	return;
}

# Has this server release the ID of another one, once that is silent.
sub release_silent
{
	my ($node, $worker_id) = @_;
	wait_for($node,
		"SELECT state = 'silent' FROM snowid_claims() WHERE worker_id = $worker_id"
	);
	is( $node->safe_psql('postgres', "SELECT snowid_release(0, $worker_id)"),
		'released',
		'the ID of a silent server is released');
	return;
}

# No key within snowid.max_wait, for Redis does not answer: once the server knows that,
# for then it uses the claim that it remembers, if it may.
sub waits_for_redis
{
	my ($node, $name) = @_;
	poll($node, 'registry_error IS NOT NULL');
	my $began = time;
	like(
		sql_error($node, 'SELECT snowid_next()'),
		qr/^55000: snowid has not claimed a worker ID yet\nDETAIL:  Redis cannot be used: 127\.0\.0\.1 port \d+: .+\nHINT:  snowid tries again by itself/,
		$name);
	cmp_ok(time - $began, '>', 0.9, "$name: after snowid.max_wait");
	return;
}

#---- Servers of the test's own: what is not Redis, or stands before one ----

my @fakes;

# Takes connections on a free port.  For each request $answer is called with the
# mode of the moment and the words of the request, in a process of its own; it
# returns the bytes to send, undef for none, or dies to end all connections.
sub fake
{
	my ($class, $answer) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir('fake');
	my $listener =
	  IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 16)
	  or die "$!";
	my $self = bless {
		port      => $listener->sockport,
		mode_file => "$dir/mode",
		requests  => "$dir/requests"
	}, $class;

	$self->mode('');
	append_to_file($self->{requests}, '');
	$self->{pid} = fork() // die "$!";
	if ($self->{pid} == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(TERM INT ALRM);
		$SIG{PIPE} = 'IGNORE';
		eval { _serve($self, $listener, $answer); 1 } or warn $@;
		POSIX::_exit(1);
	}
	push @fakes, $self;
	return $self;
}

# Stands before a Redis.  Modes: '': passes all on; 'silent': nothing; 'lose':
# the script is run, but its answer is lost; 'all:' and bytes: these answer each
# request; 'spoil': what $spoil makes of each answer; other bytes answer each call
# of the script, with 'mark only:' before them those of this operation.
sub proxy
{
	my ($class, $redis, $spoil) = @_;
	my $upstream;

	return $class->fake(
		sub {
			my ($mode, @words) = @_;
			my $is_script = $words[0] =~ /^EVAL/;

			return    if $mode eq 'silent';
			return $1 if $mode =~ /\Aall:(.*)\z/s;
			if ($mode =~ s/\A(\w+) only://)
			{
				$mode = '' if !$is_script || $words[7] ne $1;
			}
			return $mode if $is_script && $mode !~ /\A(?:lose|spoil|)\z/;
			my $answer = eval {
				$upstream //=
				  IO::Socket::INET->new("127.0.0.1:$redis->{port}")
				  or die "$!\n";
				print $upstream strings(@words);
				$upstream->flush;
				_read_reply($upstream);
			};
			undef $upstream          if !defined $answer;
			die "no upstream\n"      if !defined $answer;
			return $spoil->($answer) if $mode eq 'spoil';
			return
				 $is_script
			  && $mode eq 'lose'
			  && $answer !~ /^-NOSCRIPT/ ? undef : $answer;
		});
}

# The answers to the next requests.
sub mode
{
	my ($self, $mode) = @_;
	replace_file($self->{mode_file}, $mode);
	return;
}

# The requests so far, from an offset of their file on: each a reference to its
# words, in which spaces are as one.
sub requests
{
	my ($self, $offset) = @_;
	return map { [ split /\t/, $_, -1 ] } split /\n/,
	  slurp_file($self->{requests}, $offset);
}

sub requests_size { return -s $_[0]->{requests}; }

sub _serve
{
	my ($self, $listener, $answer) = @_;
	my $select = IO::Select->new($listener);
	my %buffer;

	while (my @ready = $select->can_read)
	{
		my @closed;
		foreach my $socket (@ready)
		{
			if ($socket == $listener)
			{
				$select->add(scalar $listener->accept);
				next;
			}
			push @closed,
			  $socket
			  if !
			  sysread($socket, $buffer{$socket}, 65536,
				length($buffer{$socket} // ''));
			while (defined(my $words = take_strings(\$buffer{$socket})))
			{
				append_to_file($self->{requests},
					join("\t", map { s/\s+/ /gr } @$words) . "\n");
				my $bytes =
				  eval { $answer->(slurp_file($self->{mode_file}), @$words) };
				@closed = grep { $_ != $listener } $select->handles if $@;
				syswrite($socket, $bytes) if defined $bytes;
			}
			last if @closed;
		}
		foreach my $socket (@closed)
		{
			$select->remove($socket);
			delete $buffer{$socket};
			close($socket);
		}
	}
	return;
}

# One reply of Redis, as its bytes.
sub _read_reply
{
	my ($socket) = @_;
	local $/ = "\r\n";
	my $reply = <$socket> // die 'closed';

	if ($reply =~ /^\$(\d+)/)
	{
		read($socket, $reply, $1 + 2, length $reply) or die 'closed';
	}
	elsif ($reply =~ /^\*(\d+)/)
	{
		$reply .= _read_reply($socket) for 1 .. $1;
	}
	return $reply;
}

END
{
	local $?;
	foreach my $fake (grep { $_->{pid} } @fakes)
	{
		kill 'KILL', $fake->{pid};
		waitpid $fake->{pid}, 0;
	}
}

1;
