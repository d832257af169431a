# Shared by snowid's TAP tests: a server with snowid preloaded and a wall clock
# of its own that the test can step.

package SnowidTest;

use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter 'import';
use Fcntl;
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSession;
use Test::More;
use Time::HiRes qw(time usleep);

our @EXPORT =
  qw(snowid_cluster server_from_backup has_own_address give_clock clock_env set_skew stop_clock set_clock_back
  time_passes put_beside hold_syncs
  restore_dump pg_upgrade sql_error query next_key status poll wait_for configure reload_with
  wait_for_worker_id
  start_pgbench stop_pgbench out_of_order
  start_client clients_go_on stop_client
  create_extension refused_start server_is_open gate_is_open start_and_open keeper_pid wait_for_successor process_pid waits_of
  keeper_turns stop_process
  processes freeze kill_all wait_until exits_in_time logged
  origin_places ceilings old_strings has_assertions write_state replace_file);

my $shim = abs_path(dirname(__FILE__) . '/skew.so');

# Adds $seconds (fraction and sign allowed) to the wall clock of a server, which
# continues; at once, in each of its processes.  The clock of a server that does not run
# is set while its machine boots.
sub set_skew
{
	my ($node, $seconds) = @_;
	write_clock($node, 0, int($seconds * 1e9));
	write_clock($node, 8, 0);
	return;
}

# Its wall clock stands still at this time, in Unix ms, until set_skew().  For
# what must not depend on how fast the test is.  No timeout of PostgreSQL's
# ends meanwhile.
sub stop_clock
{
	my ($node, $ms) = @_;
	write_clock($node, 8, int($ms) * 1_000_000);
	return;
}

# The same, at a time before the present one; until the keeper has seen that.
sub set_clock_back
{
	my ($node, $ms) = @_;
	my $log = -s $node->logfile;
	stop_clock($node, $ms);
	$node->wait_for_log(qr/the clock was set back/, $log);
	return;
}

# Beside a clock that stands: it stands at this Unix ms from now on, and the steady clock
# advances by so many seconds.
sub time_passes
{
	my ($node, $ms, $seconds) = @_;
	$node->{slept} += $seconds;
	put_beside($node, 'slept', $node->{slept});
	stop_clock($node, $ms);
	return;
}

sub write_clock
{
	my ($node, $offset, $value) = @_;
	boot($node) if $node->can('data_dir') && !$node->{_pid};
	sysopen(my $file, $node->{skew_file}, O_WRONLY | O_CREAT, 0644)
	  or die "$node->{skew_file}: $!";
	sysseek($file, $offset, 0)               or die "$!";
	syswrite($file, pack('q<', $value)) == 8 or die "$!";
	close($file);
	return;
}

# The machine of a server that does not run boots: the belief about the clock in its state
# file is that of another boot.
sub boot
{
	my ($node) = @_;
	my $file = $node->data_dir . '/snowid/state';

	return if !-f $file;
	my $state = slurp_file($file);
	return if length($state) != 604;
	substr($state, 560, 8) = pack('q<', 1);
	write_state($node, $state);
	return;
}

# Replaces a file by another one: a reader sees all of the one, or of the other.
sub replace_file
{
	my ($name, $content, $mode) = @_;
	open(my $file, '>:raw', "$name.new") or die "$name.new: $!";
	print $file $content;
	close($file)               or die "$name.new: $!";
	chmod($mode, "$name.new")  or die "$name.new: $!" if defined $mode;
	rename("$name.new", $name) or die "$name: $!";
	return;
}

# Replaces the state file, with a CRC that fits.
sub write_state
{
	my ($node, $state) = @_;
	replace_file($node->data_dir . '/snowid/state',
		substr($state, 0, 600) . pack('V', crc32c(substr($state, 0, 600))));
	return;
}

# Replaces one of the files that test/lib/skew.c looks for beside the clock's.
sub put_beside
{
	my ($node, $suffix, $text) = @_;
	replace_file("$node->{skew_file}.$suffix", $text);
	return;
}

# From here on, no process of a server ends a write to the disk that it waits for;
# or they do again.
sub hold_syncs
{
	my ($node, $hold) = @_;
	my $file = "$node->{skew_file}.syncs";
	unlink $file;
	append_to_file($file, '') if $hold;
	return;
}

# A server, initialised but not started: $node->start runs it under a clock
# that set_skew() steps.  Settings as lines of postgresql.conf; it may be of
# another installation (install_path).
sub snowid_cluster
{
	my ($name, $settings, %init) = @_;
	my $path = delete $init{install_path};
	my $node = PostgreSQL::Test::Cluster->new($name,
		$path ? (install_path => $path) : ());

	$node->init(%init);
	$node->append_conf('postgresql.conf', <<~EOF);
		shared_preload_libraries = 'snowid'
		include_if_exists = 'snowid.conf'
		log_statement = none
		synchronous_commit = off
		autovacuum = off
		jit = off
		EOF
	configure($node, $settings // '');
	give_clock($node);
	return $node;
}

# A server made from a backup of another one, not started, with settings and a
# clock of its own; %params as for init_from_backup().
sub server_from_backup
{
	my ($name, $from, $backup, $settings, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($from, $backup, %params);
	configure($node, $settings);
	give_clock($node);
	return $node;
}

# Replaces the server's snowid settings, as lines of postgresql.conf; they count
# from the next start or reload.
sub configure
{
	my ($node, $settings) = @_;
	replace_file($node->data_dir . '/snowid.conf', "$settings\n");
	return;
}

# The same by a reload, with settings as a hash: in force for every new session
# when this returns.
sub reload_with
{
	my ($node, %settings) = @_;

	configure($node,
		join("\n", map { "$_ = $settings{$_}" } sort keys %settings));
	$node->reload;
	wait_for($node, "SELECT current_setting('$_') = '$settings{$_}'")
	  foreach keys %settings;
	return;
}

# Restores a dump of a database into another one, which is there and empty: in pg_dump's
# custom format, or as plain SQL ('p').  The programs are those of the other server, which may
# be of a later major.
sub restore_dump
{
	my ($from, $from_db, $to, $to_db, $format) = @_;
	$format //= 'c';
	my $file = $from->basedir . '/dump';
	my @restore =
	  $format eq 'p'
	  ? ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file)
	  : ('pg_restore', '-e', $file);
	$to->command_ok(
		[
			'pg_dump', '-F', $format, '-f',
			$file,     '-d', $from->connstr($from_db)
		],
		"$from_db is dumped without error");
	$to->command_ok([ @restore, '-d', $to->connstr($to_db) ],
		"the dump of $from_db is restored in $to_db without error");
	return;
}

# Upgrades a server that is stopped to a new one, which is initialised and not started.
sub pg_upgrade
{
	my ($old, $new) = @_;
	$new->command_ok(
		[
			'sh',
			'-c',
			'cd "$1" && shift && pg_upgrade "$@" || { cat *.log */*/*/*.log; false; }',
			'sh',
			PostgreSQL::Test::Utils::tempdir,
			'-b',
			$old->config_data('--bindir'),
			'-B',
			$new->config_data('--bindir'),
			'-d',
			$old->data_dir,
			'-D',
			$new->data_dir,
			'-p',
			$old->port,
			'-P',
			$new->port,
			'-s',
			$new->host,
			'--no-sync'
		],
		'pg_upgrade from ' . $old->pg_version . ' to ' . $new->pg_version);
	return;
}

# The result of a query.
sub query
{
	my ($node, $sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub next_key
{
	my ($node) = @_;
	return query($node, 'SELECT snowid_next()');
}

# A column of the status, or several.
sub status
{
	my ($node, $column) = @_;
	return query($node, "SELECT $column FROM snowid_status()");
}

# Waits for an answer of the server to this query.
sub wait_for
{
	my ($node, $sql, $answer) = @_;
	$node->poll_query_until('postgres', $sql, $answer // 't')
	  or die "never: $sql";
	return;
}

# Waits until this is so in the status.
sub poll
{
	my ($node, $condition) = @_;
	$node->poll_query_until('postgres',
		"SELECT $condition FROM snowid_status()")
	  or die "never: $condition; " . status($node, 'snowid_status::text');
	return;
}

# Waits until the server makes keys with this worker ID.
sub wait_for_worker_id
{
	my ($node, $id) = @_;
	poll($node, "is_open AND worker_id = $id");
	return;
}

# Gives a server whose directory is a copy an address of its own.
sub has_own_address
{
	my ($node) = @_;
	$node->append_conf('postgresql.conf',
			'port = '
		  . $node->port
		  . "\nunix_socket_directories = '"
		  . $node->host
		  . "'");
	return;
}

# Gives a server (new, or made from a backup) its own clock.
sub give_clock
{
	my ($node) = @_;
	$node->{skew_file} = $node->basedir . '/skew';
	set_skew($node, 0);
	return;
}

# The environment of a program that has the clock of a server, or of what else give_clock() was
# called for.
sub clock_env
{
	my ($node) = @_;
	return (
		LD_PRELOAD => join(' ', $shim, $node->{preload} // ()),
		SKEW_FILE  => $node->{skew_file});
}

# Cluster.pm's start and restart, with the shim preloaded, and what else the
# server is given: SnowidHold.pm's.
{
	no warnings 'redefine';
	foreach my $method (qw(start restart promote))
	{
		my $original = PostgreSQL::Test::Cluster->can($method);
		no strict 'refs';    ## no critic (ProhibitNoStrict)
		*{"PostgreSQL::Test::Cluster::$method"} = sub {
			my ($node, @args) = @_;
			return $original->($node, @args) unless $node->{skew_file};
			local %ENV = (
				%ENV, clock_env($node), HOLD_FILE => $node->{hold_file} // ''
			);
			return $original->($node, @args);
		};
	}
}

# Cluster.pm's, without a psql for each try; the server may come back meanwhile.
sub poll_in_session
{
	my ($node, $database, $sql, $expected) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my ($session, $answer);

	for (;;)
	{
		$answer = eval {
			$session //= SnowidSession->new($node, $database);
			$session->query($sql);
		};
		return 1 if ($answer // $@) eq ($expected // 't');
		if (time > $deadline)
		{
			diag("asked in vain: $sql\nlast answer: ", $answer // $@);
			return 0;
		}
		undef $session unless defined $answer;
		usleep(50_000);
	}
}

# Nor for one statement, which needs nothing of psql's.
sub needs_psql { return $_[0] =~ /\\|;\s*\S|^\s*COPY/i; }

{
	no warnings 'redefine';
	my $safe_psql = PostgreSQL::Test::Cluster->can('safe_psql');
	*PostgreSQL::Test::Cluster::poll_query_until = \&poll_in_session;
	*PostgreSQL::Test::Cluster::safe_psql        = sub {
		my ($node, $database, $sql, %params) = @_;
		return $safe_psql->(@_)
		  if %params || needs_psql($sql);
		my $rows =
		  eval { SnowidSession->new($node, $database)->query($sql) };
		return $rows // die "error running SQL: $@ with $sql";
	};
}

# The error that a statement ends with, SQLSTATE first; '' where there is none.
sub sql_error
{
	my ($node, $sql) = @_;
	my $err = '';
	if (needs_psql($sql))
	{
		$node->psql(
			'postgres', "\\set VERBOSITY verbose\n$sql",
			stderr  => \$err,
			timeout => $PostgreSQL::Test::Utils::timeout_default);
	}
	else
	{
		my $session;
		my $error = eval {
			$session = SnowidSession->new($node, 'postgres');
			$session->query($sql);
			1;
		} ? '' : $@;
		$err = ($session ? $session->{notices} : '') . $error;
	}
	$err =~ s/^.*?(?:ERROR|FATAL):\s+//s;
	return $err;
}

# How long we wait for a program in the background, from when we do.
sub patience
{
	return IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
}

# pgbench in the background, without vacuum; %scripts: name@weight => script.
# In a script, :n counts the transactions of each client.
sub start_pgbench
{
	my ($node, $db, $options, %scripts) = @_;
	my @files;

	foreach my $name (sort keys %scripts)
	{
		my ($file, $weight) = split /@/, "$name\@1";
		my $path = $node->basedir . "/$db.$file.sql";
		unlink $path;
		append_to_file($path, "\\set n :n + 1\n$scripts{$name}\n");
		push @files, '-f', "$path\@$weight";
	}
	my $run = { out => '', timeout => patience() };
	$run->{handle} = IPC::Run::start(
		[
			'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-D',
			'n=0',     split(' ', $options),
			@files,    $db
		],
		'<',
		'/dev/null',
		'>&',
		\$run->{out},
		$run->{timeout});
	return $run;
}

# Ends a pgbench, at once or with 'finish' after its own time.  True where no
# transaction of it failed; what it said is in $run->{out}.
sub stop_pgbench
{
	my ($run, $how) = @_;
	$run->{handle}->signal('INT') unless ($how // '') eq 'finish';
	$run->{timeout}->start;
	my $done = $run->{handle}->finish;
	return ($how // '') eq 'finish' ? $done : $run->{out} !~ /aborted|error/i;
}

# A session in the background that makes one key after the other and reports
# each to a file outside of the server, until it is stopped or the server goes.  It
# asks a thousand times a second; a hasty one without a pause, for what lasts
# microseconds: that takes a processor from other tests.
my $clients = 0;
my $asking  = <<~'EOF';
	$| = 1;
	select(undef, undef, undef, 0.005) while print "$ARGV[0]\n" x 5;
	EOF

sub start_client
{
	my ($node, $sql, $hasty) = @_;
	my $file   = $node->basedir . '/client' . ++$clients;
	my $client = {
		keys    => "$file.keys",
		errors  => "$file.errors",
		timeout => patience()
	};
	$client->{handle} = IPC::Run::start(
		[
			$hasty ? 'yes' : ($^X, '-e', $asking),
			$sql // 'SELECT snowid_next();'
		],
		'|',
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'>',
		$client->{keys},
		'2>',
		$client->{errors},
		$client->{timeout});
	return $client;
}

# Waits until each of these has got some keys that were made from here on.
sub clients_go_on
{
	my (@clients) = @_;
	my %enough    = map { $_->{keys} => (-s $_->{keys}) + 100 } @clients;
	my $deadline  = time + $PostgreSQL::Test::Utils::timeout_default;

	while (grep { -s $_ < $enough{$_} } keys %enough)
	{
		die 'a client gets no keys' if time > $deadline;
		usleep(10_000);
	}
	return;
}

# Ends it.  Returns the keys that it has received, in their order.
sub stop_client
{
	my ($client) = @_;
	$client->{handle}->signal('TERM');
	$client->{timeout}->start;
	$client->{handle}->finish;
	return slurp_file($client->{keys}) =~ /^(\d+)\n/mg;
}

# Waits until the server makes keys.
sub server_is_open
{
	my ($node) = @_;
	poll($node, 'is_open');
	return;
}

# Waits until its gate is open, with this worker ID where it is given; the clock may be
# too far behind for keys.
sub gate_is_open
{
	my ($node, $id) = @_;
	poll($node,
		"worker_id = @{[ $id // 'worker_id' ]} AND (is_open OR reason ~ 'the next key would lead the clock')"
	);
	return;
}

# Starts a server with these settings, which must fail; returns its log, '' if it starts.
sub refused_start
{
	my ($node, $settings) = @_;
	my $log = -s $node->logfile // 0;

	configure($node, $settings);
	if ($node->start(fail_ok => 1))
	{
		$node->stop;
		return '';
	}
	return slurp_file($node->logfile, $log);
}

# Over a crash that comes at once, too.
sub create_extension
{
	my ($node) = @_;
	$node->safe_psql('postgres',
		'SET synchronous_commit = local; CREATE EXTENSION snowid');
	return;
}

# Starts a new server, up to its first key.
sub start_and_open
{
	my ($node) = @_;
	$node->start;
	create_extension($node);
	server_is_open($node);
	return;
}

# The process of this type; '' where there is none.
sub process_pid
{
	my ($node, $type) = @_;
	return query($node,
		"SELECT pid FROM pg_stat_activity WHERE backend_type = '$type'");
}

sub keeper_pid { return process_pid($_[0], 'snowid keeper'); }

# Waits until there is no other keeper than one after this.
sub wait_for_successor
{
	my ($node, $keeper) = @_;
	wait_for($node,
		"SELECT count(*) = 1 AND min(pid) <> $keeper FROM pg_stat_activity WHERE backend_type = 'snowid keeper'"
	);
	return;
}

# How often these processes have waited so far: one of ours once a turn, or more.
sub waits_of
{
	my $waits = 0;
	foreach my $pid (@_)
	{
		slurp_file("/proc/$pid/status") =~
		  /^voluntary_ctxt_switches:\s+(\d+)$/m
		  or die "process $pid does not tell how often it waited";
		$waits += $1;
	}
	return $waits;
}

# Until the keeper has ended a turn that began after the call.
sub keeper_turns
{
	my ($node) = @_;
	my $keeper = keeper_pid($node);
	my $waits  = waits_of($keeper);
	wait_until('a turn of the keeper',
		sub { waits_of($keeper) > $waits + 2 });
	return;
}

# Waits for what no query can tell; dies where it does not come.
sub wait_until
{
	my ($what, $check) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	until ($check->())
	{
		die "it did not come: $what" if time > $deadline;
		usleep(20_000);
	}
	return;
}

# How many lines of the log match, from an offset on.
sub logged
{
	my ($node, $offset, $pattern) = @_;
	my @lines = slurp_file($node->logfile, $offset) =~ /$pattern/g;
	return scalar @lines;
}

# Stops a process of snowid's where it waits: elsewhere it may have a lock, and hold
# up what has nothing to do with it, and this query.
sub stop_process
{
	my ($node, $pid) = @_;
	wait_until(
		'a process that waits',
		sub {
			kill 'STOP', $pid or die "$pid: $!";
			usleep(1_000) until slurp_file("/proc/$pid/stat") =~ /\) [TZ] /;
			$node->psql(
				'postgres',
				"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid",
				stdout    => \my $waits,
				timeout   => 5,
				timed_out => \my $held_up);
			return 1 if !$held_up && $waits eq 't';
			kill 'CONT', $pid;
			return 0;
		});
	return;
}

# All processes of a server, the postmaster first.
sub processes
{
	my ($node)   = @_;
	my @children = split ' ', qx(ps -o pid= --ppid $node->{_pid});

	die 'ps does not list the processes of a server; is procps installed?'
	  if !@children;
	return ($node->{_pid}, @children);
}

# Stops all processes of a server, so that its files stay as they are; returns them.
sub freeze
{
	my ($node) = @_;

	# so that the postmaster does not start another process, which would continue
	kill 'STOP', $node->{_pid};
	wait_until('the postmaster stopped', sub { stands_still($node->{_pid}) });
	my @pids = processes($node);
	kill 'STOP', @pids;
	wait_until('all processes stopped', sub { stands_still(@pids) });
	return @pids;
}

# Have these processes stopped, or ended?  A signal takes a moment.
sub stands_still
{
	my @states = split ' ', qx(ps -o stat= -p @{[ join ',', @_ ]});
	return !grep { !/^[TZ]/ } @states;
}

# Ends a server and all its processes at once.
sub kill_all
{
	my ($node) = @_;

	my @pids = freeze($node);
	kill 'KILL', @pids;
	$node->{_pid} = undef;
	wait_until('the end of the server', sub { !kill 0, @pids });
	return;
}

# That processes exit within a second of a signal.  A machine may be slow, so the
# second counts from the exits of idle sessions that get the signal at the same
# moment, and the best of five trials counts.  $trial returns a function that
# sends the signal to the PIDs that it is given, and the PIDs of the processes.
sub exits_in_time
{
	my ($node, $name, $trial) = @_;
	my $best;

	for (1 .. 5)
	{
		my ($tell, @processes) = $trial->();
		my @sessions = map { SnowidSession->new($node, 'postgres') } 1 .. 3;
		my @idle =
		  map { $_->query('SELECT pg_backend_pid()') } @sessions;
		my %exit;
		$tell->(@idle, @processes);
		wait_until(
			"$name: the exits",
			sub {
				$exit{$_} //= time
				  foreach grep { !-e "/proc/$_" } @idle, @processes;
				return keys %exit == @idle + @processes;
			});
		my ($late) = sort { $b <=> $a } @exit{@processes};
		my ($last) = sort { $b <=> $a } @exit{@idle};
		$best = $late - $last if !defined $best || $late - $last < $best;
		last if $best < 1;
	}
	cmp_ok($best, '<', 1, "$name: exits within a second of the signal");
	return;
}

# The setting that limits the number of replication origins.
sub origin_places
{
	my ($node) = @_;
	return $node->pg_version >= 18
	  ? 'max_active_replication_origins'
	  : 'max_replication_slots';
}

# For FROM: the ceilings in the WAL, of the default layout, or of one with so many bits of
# the sequence: the number of the origin, the greatest key, its pair, and ms since 1970.
sub ceilings
{
	my ($sequence) = @_;
	my $bits = $sequence // 12;
	return <<~EOF;
		(SELECT local_id, highest, (highest >> $bits + 5 & 31)::int AS datacenter_id, (highest >> $bits & 31)::int AS worker_id, (highest >> $bits + 10) + 1288834974657 AS ms
			FROM (SELECT local_id, mod(remote_lsn - '0/0', 9223372036854775808)::bigint AS highest
				FROM pg_replication_origin_status
				WHERE local_id BETWEEN 65530 AND 65533 AND remote_lsn <> '0/0') positions) ceilings
		EOF
}

# Makes backslashes in strings escapes, for what must not depend on that.
# PostgreSQL 19 no longer has such strings.
sub old_strings
{
	my ($node) = @_;
	return $node->pg_version->major < 19
	  ? 'SET standard_conforming_strings = off;'
	  : '';
}

# Is the library built with assertions?  What measures is run without them, too.
sub has_assertions
{
	my ($dir) = run_command([ 'pg_config', '--pkglibdir' ]);
	return slurp_file("$dir/snowid.so") =~ /ExceptionalCondition/;
}

# The checksum of a state file.
sub crc32c
{
	my $crc = 0xffffffff;
	foreach my $byte (unpack 'C*', $_[0])
	{
		$crc ^= $byte;
		$crc = ($crc >> 1) ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}

# How many keys of the table "made" are not above every key that was returned
# before the call began that made them.  $began and $ended are its columns.
sub out_of_order
{
	my ($node, $db, $began, $ended) = @_;
	return $node->safe_psql($db, <<~EOF);
		SELECT count(*) FROM (
			SELECT key, max(returned) OVER (ORDER BY at, key IS NULL
				ROWS UNBOUNDED PRECEDING) AS highest
			FROM (
				SELECT $began AS at, key, NULL::bigint AS returned FROM made
				UNION ALL SELECT $ended, NULL, key FROM made) events) checked
		WHERE key <= highest
		EOF
}

1;
