# bench.pl - the benchmark's rows: measures in turns, and reports ratios.
#
#	bench.pl DIRECTORY RESULTS [ROW ...]		called by run, which owns the servers
#
# Absolute times mean nothing on a shared machine.  The cases of a row are
# measured one after the other, again and again (A B C A B C ...); a figure is a
# ratio of medians, followed by the middle half of the ratios of the single
# turns.  Times only give an idea.

use strict;
use warnings;
use IPC::Open2;
use List::Util  qw(max min sum);
use POSIX       qw(strftime);
use Time::HiRes qw(sleep time);

my ($dir, $results, @rows) = @ARGV;
my $quick        = $ENV{QUICK};
my %port         = (default => 1, wide => 2, tags => 3);
my $bench        = 'test/bench';
my $redis_server = $ENV{REDIS_SERVER} || 'redis-server';
my ($markdown, @bars);
$| = 1;

# The first; with QUICK=1 the second.
sub full { return $_[ $quick ? 1 : 0 ] }

#---- Statistics ----

sub quantile
{
	my ($q, @values) = @_;
	my @sorted = sort { $a <=> $b } @values;
	my $at     = $q * $#sorted;
	my $low    = $sorted[ int($at) ];
	return $low +
	  ($sorted[ min(int($at) + 1, $#sorted) ] - $low) * ($at - int($at));
}

sub median { return quantile(0.5, @_) }

# Measures cases, [name, code that returns a number], in turns.
sub turns
{
	my ($n, @cases) = @_;
	my %values;
	foreach my $turn (1 .. $n)
	{
		foreach my $case (@cases)
		{
			push @{ $values{ $case->[0] } }, $case->[1]->();
		}
	}
	return %values;
}

# A figure: its value, and the middle half of that of the single turns.
sub ratio
{
	my ($a, $b) = @_;
	my @single = map { $a->[$_] / ($b->[$_] || 1e-9) } 0 .. $#$a;
	return [
		median(@$a) / median(@$b),
		quantile(0.25, @single),
		quantile(0.75, @single)
	];
}

# The same of what is above a floor.
sub own_ratio
{
	my ($a, $b, $floor) = @_;
	my @own = map {
		my $v = $_;
		[ map { $v->[$_] - $floor->[$_] } 0 .. $#$v ]
	} $a, $b;
	return ratio(@own);
}

sub digits
{
	my ($x) = @_;
	return sprintf(
		abs($x) < 9.995 ? '%.2f' : abs($x) < 99.95 ? '%.1f' : '%.0f',
		$x);
}

sub show
{
	return sprintf('%s (%s-%s)', map { digits($_) } @{ $_[0] });
}

sub percent { return sprintf('%.1f %%', 100 * $_[0]) }

#---- The report ----

sub say_so
{
	my $text = join('', @_);
	print $text;
	$markdown .= $text;
	return;
}

sub heading { say_so("\n## $_[0]\n\n"); return }

sub paragraph { say_so(join(' ', @_), "\n\n"); return }

sub table
{
	my ($head, @lines) = @_;
	my @width = map {
		my $i = $_;
		max(map { length($_->[$i]) } $head, @lines)
	} 0 .. $#$head;
	foreach my $line ($head, [ map { '-' x $_ } @width ], @lines)
	{
		say_so(
			'| ',
			join(' | ',
				map { sprintf('%-*s', $width[$_], $line->[$_]) }
				  0 .. $#width),
			" |\n");
	}
	say_so("\n");
	return;
}

# A bar: what is asked for, what was measured, and whether it is met.
sub bar
{
	my ($what, $asked, $measured, $met) = @_;
	push @bars, [ $what, $asked, $measured, $met ? 'met' : '**not met**' ];
	return;
}

#---- PostgreSQL ----

# A session, in which statements are timed.
sub session
{
	my ($server, $database) = @_;
	my $session = {};
	$session->{pid} = open2(
		$session->{out}, $session->{in},
		'psql',          qw(-XqAt -v ON_ERROR_STOP=1),
		'-h',            $dir,
		'-p',            $port{$server},
		'-U',            'postgres',
		$database // 'postgres');
	return $session;
}

sub leave
{
	my ($session) = @_;
	close($session->{in});
	waitpid($session->{pid}, 0);
	return;
}

# The answer to a statement.
sub ask
{
	my ($session, $sql) = @_;
	start($session, $sql);
	return answer($session);
}

sub start
{
	my ($session, $sql) = @_;
	$session->{sql} = $sql;
	print { $session->{in} } "$sql;\n\\echo __end\n";
	$session->{in}->flush;
	return;
}

sub answer
{
	my ($session) = @_;
	my @lines;
	while (defined(my $line = readline($session->{out})))
	{
		chomp($line);
		return join("\n", @lines) if $line eq '__end';
		push @lines, $line;
	}
	die "psql failed: $session->{sql}\n";
}

# How many ns a statement takes.
sub timed
{
	my ($session, $sql) = @_;
	my $out = ask($session, "\\timing on\n$sql;\n\\timing off\nSELECT 1");
	$out =~ /^Time: ([\d.]+) ms/m or die "no time: $out\n";
	return $1 * 1e6;
}

# pgbench with one script.  Returns transactions a second; the longest in ms; the
# least number of a client as a share of the average.
sub pgbench
{
	my ($server, $clients, $seconds, $sql) = @_;
	my $script = "$dir/tmp/script.sql";
	my $log    = "$dir/tmp/log";
	open(my $file, '>', $script) or die "$script: $!\n";
	print $file "$sql;\n";
	close($file);
	my $out =
	  qx(cd $dir/tmp && pgbench -n -h $dir -p $port{$server} -U postgres -c $clients -j @{[ min($clients, 2) ]} -T $seconds -f $script -l --log-prefix=$log postgres 2>&1);
	$out =~ /tps = ([\d.]+) \(without/ or die "pgbench failed: $out\n";
	my $rate = $1;
	my (%count, $longest);

	foreach my $name (glob("$log.*"))
	{
		open($file, '<', $name) or die "$name: $!\n";
		while (my $line = readline($file))
		{
			my ($client, undef, $us) = split(' ', $line);
			$count{$client}++;
			$longest = max($longest // 0, $us);
		}
		close($file);
		unlink($name);
	}
	my @counts = (values %count, (0) x ($clients - keys %count));
	return {
		rate    => $rate,
		longest => $longest / 1000,
		fair    => min(@counts) / (sum(@counts) / $clients)
	};
}

# The client: turns a second; over a network that adds so many us to a round trip.
sub client
{
	my ($job, $connections, $time, $depth, $delay) = @_;
	my $out =
	  qx($bench/client $job $connections $time $depth $delay "host=$dir port=$port{default} user=postgres dbname=postgres" $dir/redis/socket);
	$? == 0 or die "client $job failed\n";
	my ($turns, $seconds) = split(' ', $out);
	return $turns / $seconds;
}

sub read_file
{
	my ($name) = @_;
	open(my $file, '<', $name) or die "$name: $!\n";
	local $/;
	return scalar readline($file);
}

# CPU time of a process, in s.
sub cpu_time
{
	return (split(' ', read_file("/proc/$_[0]/schedstat")))[0] / 1e9;
}

#---- The rows ----

my $default;    # a session in the first server

sub prepare
{
	$default = session('default');
	ask($default, <<~END);
		CREATE EXTENSION snowid;
		CREATE EXTENSION snowid_segments;
		CREATE FUNCTION bench_nothing() RETURNS bigint AS '$dir/snowid/$bench/baseline' LANGUAGE C VOLATILE;
		CREATE FUNCTION bench_clock() RETURNS bigint AS '$dir/snowid/$bench/baseline' LANGUAGE C VOLATILE;
		CREATE SEQUENCE cache1;
		CREATE SEQUENCE cache32 CACHE 32;
		CREATE SEQUENCE cache1000 CACHE 1000;
		SELECT format('CREATE SEQUENCE own_%s', i) FROM generate_series(0, 31) i \\gexec
		SELECT snowid_next()
		END
	my $wide = session('wide');
	ask($wide, 'CREATE EXTENSION snowid');
	leave($wide);
	return;
}

sub each_row
{
	my ($f, $n) = @_;
	return "SELECT count($f) FROM generate_series(1, $n)";
}

# ns a row of each function, in turns, $n rows a statement.
sub row_costs
{
	my ($times, $n, @functions) = @_;
	return turns(
		$times,
		map {
			my $f = $_;
			[ $f, sub { timed($default, each_row($f, $n)) / $n } ]
		} @functions);
}

sub row1
{
	my $n         = 20_000;    # shorter than the scheduler's turns
	my @functions = (
		'bench_nothing()',    'bench_clock()',
		'snowid_next()',      "nextval('cache1')",
		"nextval('cache32')", "nextval('cache1000')",
		'gen_random_uuid()',  'clock_timestamp()');
	my $waits = ask($default, 'SELECT waits FROM snowid_status()');
	timed($default, each_row($_, $n)) foreach @functions;
	my %ns = row_costs(full(501, 7), $n, @functions);
	my ($nothing, $clock, $next) =
	  @ns{qw(bench_nothing() bench_clock() snowid_next())};
	$waits -= ask($default, 'SELECT waits FROM snowid_status()');

	heading('1. One key in SQL');
	paragraph(
		"`SELECT count(f()) FROM generate_series(1, $n)` in one session. A function's own cost is the row's",
		'cost less that of `bench_nothing()`. A turn makes keys for 5 ms, fewer than the format has in the',
		"time of a turn, and no call waited ($waits waits), so the cap of 4,096 keys a ms hides nothing."
	);
	table(
		[
			'function', 'ns a row',
			'row, against snowid_next()',
			'own cost, against that of the clock read'
		],
		map {
			[
				"`$_`",
				digits(median(@{ $ns{$_} })),
				show(ratio($ns{$_}, $next)),
				$_ eq 'bench_nothing()'
				? ''
				: show(own_ratio($ns{$_}, $clock, $nothing))
			]
		} @functions);

	my $own = own_ratio($next, $clock, $nothing);
	my $row = ratio($next, $clock);
	bar('own cost of `snowid_next()` against that of the clock read',
		'at most 1.5', show($own), $own->[0] <= 1.5);
	bar('the row of `snowid_next()` against that of the clock read',
		'at most 1.12', show($row), $row->[0] <= 1.12);
	foreach ([ 1, 5 ], [ 1000, 2 ])
	{
		my ($cache, $times) = @$_;
		my $figure =
		  own_ratio($ns{"nextval('cache$cache')"}, $next, $nothing);
		bar("own cost of `nextval` CACHE $cache against ours",
			"at least $times",
			show($figure), $figure->[0] >= $times);
	}
	my $uuid = ratio($ns{'gen_random_uuid()'}, $next);
	bar('row of `gen_random_uuid()` against ours',
		'at least 8', show($uuid), $uuid->[0] >= 8);
	return;
}

# Makes keys until they lead the clock by max_lead (1s).
sub use_up_lead
{
	ask($default,
		'SELECT count(*) FROM (SELECT snowid_next_batch(1000000)) keys')
	  until ask($default, 'SELECT lead_ms FROM snowid_status()') > 950;
	return;
}

sub row2
{
	my $n    = 1000;
	my %case = (
		'snowid, 12 bits' => [ 'default', 'snowid_next()' ],
		'snowid, 16 bits' => [ 'wide',    'snowid_next()' ],
		'one sequence'    => [ 'default', "nextval('cache1')" ],
		'a sequence each' => [ 'default', "nextval('own_:client_id')" ]);
	my @names = sort keys %case;
	my @lines;

	heading('2. Many sessions');
	paragraph(
		'pgbench, one session a client; keys a second, against those of one sequence with CACHE 1.',
		"`SELECT count(f()) FROM generate_series(1, $n)`. Fairness: the slowest client's share of the average.",
		'With 12 sequence bits the lead is used up before each turn, so that the format\'s cap',
		'of 4,096 keys a ms holds from the start.');
	foreach my $clients (full([ 1, 2, 4, 8, 32 ], [ 2, 32 ])->@*)
	{
		my (%longest, %fair);
		my %rate = turns(
			full($clients == 2 ? 5 : $clients =~ /^[48]$/ ? 2 : 3, 1),
			map {
				my $name = $_;
				my ($server, $f) = $case{$name}->@*;
				[
					$name,
					sub {
						use_up_lead() if $name =~ /12 bits/;
						my $run =
						  pgbench($server, $clients, 1, each_row($f, $n));
						push $longest{$name}->@*, $run->{longest};
						push $fair{$name}->@*,    $run->{fair};
						return $run->{rate} * $n;
					}
				]
			} @names);
		foreach my $name (@names)
		{
			push @lines,
			  [
				$clients,
				$name,
				show(ratio($rate{$name}, $rate{'one sequence'})),
				sprintf('%.0f', median(@{ $rate{$name} })),
				digits(max(@{ $longest{$name} })),
				percent(min(@{ $fair{$name} }))
			  ];
		}
		if ($clients == 2)
		{
			foreach my $case ([ 'one sequence', 3 ], [ 'a sequence each', 1 ])
			{
				my ($theirs, $times) = @$case;
				my $figure = ratio($rate{'snowid, 16 bits'}, $rate{$theirs});
				bar("2 clients, 16 sequence bits, against $theirs",
					"at least $times",
					show($figure), $figure->[0] >= $times);
			}
		}
		if ($clients == 32)
		{
			foreach my $name (grep { /snowid/ } @names)
			{
				my ($ms, $share) =
				  (max(@{ $longest{$name} }), min(@{ $fair{$name} }));
				bar("32 sessions, $name: slowest call",
					'under 100 ms', digits($ms) . ' ms',
					$ms < 100);
				bar('the same: least share of a session',
					'at least half of the fair share',
					percent($share), $share >= 0.5);
			}
		}
	}
	table(
		[
			'clients',
			'keys by',
			'against one sequence',
			'keys/s',
			'slowest call, ms',
			'least share'
		],
		@lines);
	return;
}

# Orders with lines, whose keys have this default.
sub order_tables
{
	my ($default_clause) = @_;
	ask($default, <<~END);
		SET client_min_messages = warning;
		DROP TABLE IF EXISTS lines, orders;
		CREATE TABLE orders (id bigint $default_clause PRIMARY KEY, customer int, at timestamptz DEFAULT now());
		CREATE TABLE lines (id bigint $default_clause PRIMARY KEY, order_id bigint REFERENCES orders, item int, quantity int)
		END
	return;
}

sub row5
{
	my @schemes = (
		[ 'keys first, then a pipeline', 'keys-pipeline', '' ],
		[
			'DEFAULT snowid_next() + RETURNING',
			'returning',
			'DEFAULT snowid_next()'
		],
		[
			'identity + RETURNING',
			'returning',
			'GENERATED ALWAYS AS IDENTITY'
		],
		[
			'identity, one CTE statement',
			'cte',
			'GENERATED ALWAYS AS IDENTITY'
		]);
	my $basis = $schemes[2][0];
	my @lines;

	heading('5. The real job');
	paragraph(
		'An order with ten lines in one transaction, from prepared statements: transactions a second against',
		'those with identity and RETURNING, which takes two round trips. Keys first: in one more round trip for',
		'each 100 orders, then one an order. A network that adds 1 ms to each round trip, so that one (`SELECT 1`)',
		sprintf('takes %.2f ms.', 1000 / client('select-1', 1, 0.5, 1, 1000))
	);
	foreach my $clients (1, 8)
	{
		foreach my $commit (qw(on off))
		{
			next if $quick && ($clients == 8) != ($commit eq 'off');
			local $ENV{PGOPTIONS} = "-c synchronous_commit=$commit";
			my %rate = turns(
				full(5, 1),
				map {
					my ($name, $job, $column) = @$_;
					[
						$name,
						sub {
							order_tables($column);
							client($job, $clients, 0.25, 1, 1000);
						}
					]
				} @schemes);
			push @lines, map {
				[
					$clients,
					$commit,
					$_->[0],
					show(ratio($rate{ $_->[0] }, $rate{$basis})),
					sprintf('%.0f', median(@{ $rate{ $_->[0] } }))
				]
			} @schemes;
			my $figure = ratio($rate{ $schemes[0][0] }, $rate{$basis});
			bar("keys for 100 orders, then one round trip an order, $clients client(s), synchronous_commit $commit, against identity + RETURNING",
				'at least 1.5',
				show($figure),
				$figure->[0] >= 1.5);
		}
	}
	table(
		[
			'clients', 'synchronous_commit',
			'scheme',  'against identity + RETURNING',
			'transactions/s'
		],
		@lines);
	return;
}

# How many ns it takes until all of these sessions have ended the statement.
sub at_once
{
	my ($sql, @sessions) = @_;
	return timed(@sessions, $sql) if @sessions == 1;
	my $begin = time();
	start($_, $sql) foreach @sessions;
	answer($_) foreach @sessions;
	return 1e9 * (time() - $begin);
}

sub row6
{
	my $n    = full(2_000_000, 20_000);
	my %keys = (
		'snowid'    => 'bigint DEFAULT snowid_next()',
		'bigserial' => 'bigserial',
		'identity'  => 'bigint GENERATED BY DEFAULT AS IDENTITY',
		'segment'   => "bigint DEFAULT snowid_number('bulk')",
		'UUID v4'   => 'uuid DEFAULT gen_random_uuid()');
	my @four    = map { session('default') } 1 .. 4;
	my $wide    = 'v int, w text';
	my $fill    = "repeat(md5(i::text), 10)";
	my $quarter = $n / 4;
	my %file = map { $_ => "$dir/tmp/$_" } qw(values keys quarter wide wider);

	# statement, columns beside the key, sessions
	my %load = (
		'INSERT ... SELECT' => [
			"INSERT INTO bulk (v) SELECT i FROM generate_series(1, $n) i",
			'v int', $default
		],
		'COPY' => [ "COPY bulk (v) FROM '$file{values}'", 'v int', $default ],
		'COPY, 4 sessions' =>
		  [ "COPY bulk (v) FROM '$file{quarter}'", 'v int', @four ],
		'COPY, rows of 0.3 kB' =>
		  [ "COPY bulk (v, w) FROM '$file{wide}'", $wide, $default ],
		'COPY, rows of 0.3 kB, 4 sessions' =>
		  [ "COPY bulk (v, w) FROM '$file{wider}'", $wide, @four ],
		'COPY, keys in the file' =>
		  [ "COPY bulk (id, v) FROM '$file{keys}'", 'v int', $default ]);
	my %rows      = map { $_ => /kB/ ? $quarter : $n } keys %load;
	my $with_file = 'COPY, keys in the file';
	my @cases;
	my %wal;

	foreach my $how (sort grep { $_ ne $with_file } keys %load)
	{
		push @cases, map { [ $how, $_ ] } sort keys %keys;
	}
	foreach my $made (
		[ values  => $n,           'i' ],
		[ quarter => $quarter,     'i' ],
		[ wide    => $quarter,     "i, $fill" ],
		[ wider   => $quarter / 4, "i, $fill" ])
	{
		my ($file, $count, $columns) = @$made;
		ask($default,
			"COPY (SELECT $columns FROM generate_series(1, $count) i) TO '$file{$file}'"
		);
	}
	ask($default, "COPY (SELECT snowid_next_batch($n), 1) TO '$file{keys}'");
	ask($default,
		"INSERT INTO snowid_segments (biz_tag, step) VALUES ('bulk', 100000)"
	);
	my %ns = turns(
		full(3, 1),
		map {
			my ($how, $key) = @$_;
			my ($sql, $columns, @sessions) = @{ $load{$how} };
			[
				"$how, $key",
				sub {
					ask($default,
						"SET client_min_messages = warning; DROP TABLE IF EXISTS bulk; CREATE TABLE bulk (id $keys{$key} PRIMARY KEY, $columns); CHECKPOINT"
					);
					my $lsn =
					  ask($default, 'SELECT pg_current_wal_insert_lsn()');
					my $time = at_once($sql, @sessions);
					push @{ $wal{"$how, $key"} },
					  ask($default,
						"SELECT pg_current_wal_insert_lsn() - '$lsn'");
					return $time;
				}
			]
		} @cases,
		[ $with_file, 'snowid' ]);
	ask($default, 'DROP TABLE bulk');
	leave($_) foreach @four;

	my %basis =
	  map { $_ => ($_ eq $with_file ? 'COPY' : $_) . ', bigserial' }
	  keys %load;
	heading('6. Bulk');
	paragraph(
		"$n rows into a table with a primary key and an int;",
		"$quarter if they have a text of 0.3 kB, too.");
	table(
		[
			'load, key',
			'time, against bigserial',
			'WAL, against bigserial',
			'rows/s'
		],
		map {
			my ($how,  $key)   = @$_;
			my ($case, $basis) = ("$how, $key", $basis{$how});
			[
				$case,
				show(ratio($ns{$case},  $ns{$basis})),
				show(ratio($wal{$case}, $wal{$basis})),
				sprintf('%.0f', 1e9 * $rows{$how} / median(@{ $ns{$case} }))
			]
		} @cases,
		[ $with_file, 'snowid' ]);
	paragraph(
		'COPY puts many rows into a page at a time if the default is `nextval` or `snowid_next()`, and one by',
		'one for any other volatile default: that costs time, and WAL for each row.'
	);
	return;
}

sub row7
{
	my %redis = (
		'INCR'                              => 'redis-incr',
		'INCR on a key for each ms, EXPIRE' => 'redis-timed',
		'the whole ID by Lua'               => 'redis-lua');
	my $depth = 100;
	my @lines;

	heading("7. The articles' schemes");
	paragraph(
		'Keys a second by a round trip to Redis each, against those of the generator;',
		"both over a local socket. Pipelined: $depth keys a round trip; the generator's pipeline is $depth statements,",
		"its batch one `snowid_next_batch($depth)`. No key: the same round trips with a function that does nothing",
		'(`bench_nothing()`), which is what PostgreSQL leaves for a key.');
	foreach my $clients (1, 8)
	{
		foreach my $pipelined (0, 1)
		{
			my @ours =
			  $pipelined
			  ? (
				[ 'snowid, batch'    => 'batch' ],
				[ 'snowid, pipeline' => 'next' ])
			  : ([ 'snowid, next' => 'next' ], [ 'no key' => 'nothing' ]);
			my $keys = $pipelined ? $depth : 1;
			my %rate = turns(
				full(7, 1),
				map {
					my ($name, $job) = @$_;
					[
						$name,
						sub {
							$keys * client($job, $clients, full(0.3, 0.05),
								$keys, 0);
						}
					]
				} @ours,
				map { [ $_, $redis{$_} ] } sort keys %redis);
			foreach my $theirs (sort keys %redis)
			{
				push @lines, map {
					[
						$clients,
						$pipelined ? "$depth" : '1',
						$theirs,
						$_->[0],
						show(ratio($rate{ $_->[0] }, $rate{$theirs})),
						sprintf('%.0f', median(@{ $rate{$theirs} }))
					]
				} @ours;
			}
		}
	}
	table(
		[
			'connections',
			'keys a round trip',
			'Redis',
			'against it',
			'times as many keys',
			"Redis' keys/s"
		],
		@lines);
	return;
}

# The functions in SQL alone, in a schema of the same server, under a pair of
# their own.
sub row13
{
	ask($default, 'CREATE SCHEMA managed; SET search_path = managed');
	ask($default, "BEGIN;\n\\i $dir/snowid/managed/snowid--0.1.sql\nCOMMIT");
	ask($default, 'SELECT snowid_setup(1, 7); RESET search_path');

	my @functions = (
		'bench_nothing()',   'snowid_next()',
		'gen_random_uuid()', 'managed.snowid_next()');
	my %ns = row_costs(full(101, 3), 2000, @functions);

	heading('13. Managed servers');
	paragraph(
		'A key of `managed/`, in SQL alone, beside those of the library: rows as in 1, in one session.'
	);
	table(
		[
			'function',
			'ns a row',
			'against snowid_next()',
			'against gen_random_uuid()'
		],
		map {
			[
				"`$_`",
				digits(median(@{ $ns{$_} })),
				show(ratio($ns{$_}, $ns{'snowid_next()'})),
				show(ratio($ns{$_}, $ns{'gen_random_uuid()'}))
			]
		} @functions);
	ask($default,
		'SET client_min_messages = warning; DROP SCHEMA managed CASCADE');
	return;
}

#---- All of it ----

sub machine
{
	my ($cpu) = read_file('/proc/cpuinfo') =~ /^model name\s*:\s*(.*)/m;
	my $cpus  = () = read_file('/proc/cpuinfo') =~ /^processor/mg;
	my ($memory) = read_file('/proc/meminfo')   =~ /^MemTotal:\s*(\d+)/m;
	my ($os)     = read_file('/etc/os-release') =~ /^PRETTY_NAME="(.*)"/m;
	chomp(my $kernel = qx(uname -sr));
	chomp(my $redis  = qx($redis_server --version));
	my $clock =
	  -r '/sys/devices/system/clocksource/clocksource0/current_clocksource'
	  ? read_file(
		'/sys/devices/system/clocksource/clocksource0/current_clocksource')
	  =~ s/\s+//r
	  : 'unknown';
	say_so("# What a key costs\n\n");
	paragraph(
		'By `test/bench/run`, '
		  . strftime('%Y-%m-%d %H:%M UTC', gmtime) . '.',
		'A figure is a ratio of medians, measured in turns, followed by the middle half of the ratios of the',
		'single turns. Times in ns and rates are those of this machine on this day.'
	);
	table(
		[ 'what', 'which' ],
		[
			'machine',
			sprintf(
				'%s, %d CPUs, %.0f GB',
				$cpu // 'unknown',
				$cpus, $memory / 2**20)
		],
		[ 'system',            "$os, $kernel, clock source $clock" ],
		[ 'load when started', (split(' ', read_file('/proc/loadavg')))[0] ],
		[ 'PostgreSQL',        ask($default, 'SELECT version()') ],
		[ 'Redis',             $redis =~ s/ sha.*//r ],
		[
			'settings',
			join(', ',
				map { "$_ = " . ask($default, "SHOW $_") }
				  qw(shared_buffers max_wal_size checkpoint_timeout autovacuum jit fsync synchronous_commit)
			)
		],
		[
			'snowid',
			join(', ',
				map { "$_ = " . ask($default, "SHOW snowid.$_") }
				  qw(layout sequence_start max_lead max_wait))
		],
		[
			'second server',
			'16 sequence bits: 65,536 keys a ms, so that the cap does not hide the cost'
		]);
	return;
}

# The recipes of the manual, and what they stand against.
sub row12
{
	my $page = read_file('doc/segment.md');
	foreach my $title ('Numbered at COMMIT', 'Numbered after COMMIT')
	{
		my ($sql) = $page =~ /^### \Q$title\E\n.*?^```sql\n(.*?)^```/ms
		  or die "the manual has no recipe \"$title\"\n";
		ask($default, $sql);
	}
	ask($default, <<~END);
		CREATE TABLE first (id bigint PRIMARY KEY DEFAULT snowid_next(), number bigint UNIQUE, customer text);
		CREATE TABLE serial (id bigint PRIMARY KEY DEFAULT snowid_next(), number bigserial UNIQUE, customer text);
		CREATE TABLE bill_lines (id bigint PRIMARY KEY DEFAULT snowid_next(), bill bigint);
		INSERT INTO counters VALUES ('first', 0)
		END
	my $line = 'INSERT INTO bill_lines (bill) VALUES (1)';
	my %sql  = (
		'UPDATE of a counter first' =>
		  "BEGIN;\nUPDATE counters SET last = last + 1 WHERE tag = 'first' RETURNING last \\gset\nINSERT INTO first (number) VALUES (:last);\n$line;\nCOMMIT",
		'numbered at COMMIT' =>
		  "BEGIN;\nINSERT INTO bills (customer) VALUES ('x');\n$line;\nCOMMIT",
		'numbered after COMMIT' =>
		  "BEGIN;\nINSERT INTO invoices (customer) VALUES ('x');\n$line;\nCOMMIT",
		'bigserial, with gaps' =>
		  "BEGIN;\nINSERT INTO serial (customer) VALUES ('x');\n$line;\nCOMMIT"
	);
	my $numberer = session('default');
	my %rate     = turns(
		full(7, 1),
		map {
			my $way = $_;
			[
				$way,
				sub {
					my $seconds = full(3, 1);
					my $rate;
					if ($way =~ /after/)
					{
						print { $numberer->{in} }
						  "SELECT number_invoices() FROM pg_sleep(1);\n" x
						  $seconds;
						$numberer->{in}->flush;
					}
					$rate =
					  pgbench('default', 8, $seconds, $sql{$way})->{rate};
					ask($numberer, 'SELECT 1') if $way =~ /after/;
					return $rate;
				}
			]
		} sort keys %sql);
	leave($numberer);

	heading('12. Numbers without gaps');
	paragraph(
		'Transactions of an invoice and a line, eight sessions, each COMMIT flushed: transactions a second.'
	);
	table(
		[ 'way', 'transactions/s', 'against `bigserial`' ],
		map {
			[
				$_,
				digits(median(@{ $rate{$_} })),
				show(ratio($rate{$_}, $rate{'bigserial, with gaps'}))
			]
		} sort keys %sql);
	return;
}

# The processes "snowid segments" that have a database.
sub segment_processes
{
	my ($session) = @_;
	return split /\n/,
	  ask($session,
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowid segments'"
	  );
}

# How long the last of these processes needs to end, in ms.
sub ends_in
{
	my (@pids) = @_;
	my $began = time();
	sleep(0.005) while grep { -d "/proc/$_" } @pids;
	return 1000 * (time() - $began);
}

# The first numbers of tags, by so many sessions; returns processor time of these and of
# the process, in ms a tag.
sub take_tags
{
	my ($n, $from, $to) = @_;
	my @sessions = map { session('tags', 'many') } 1 .. $n;
	ask($sessions[0], "SELECT snowid_number('first')");
	my @pids = (
		segment_processes($sessions[0]),
		map { ask($_, 'SELECT pg_backend_pid()') } @sessions);
	my $before = sum(map { cpu_time($_) } @pids);
	foreach my $i (0 .. $#sessions)
	{
		start($sessions[$i],
			"SELECT count(snowid_number('t' || i)) FROM generate_series($from + $i, $to, $n) i"
		);
	}
	answer($_) foreach @sessions;
	my $seconds = sum(map { cpu_time($_) } @pids) - $before;
	leave($_) foreach @sessions;
	return 1000 * $seconds / ($to - $from + 1);
}

# For how long at a time, in ms, a session waits for our locks while the code runs: one
# that asks for a few numbers of two tags in turn in each statement.
# Another session looks all the time whether it waits; the time between two looks counts
# for a ms at most, since the one that looks did not run then.  Also how often it looked.
sub waits_for_locks
{
	my ($beside) = @_;
	my ($hot, $observer, $end) = map { session('tags') } 1 .. 3;
	my ($pid, $eye) =
	  map { ask($_, 'SELECT pg_backend_pid()') } $hot, $observer;
	start($hot, <<~END);
		DO \$\$ BEGIN LOOP
			EXECUTE 'SELECT count(snowid_number(''hot'' || i % 2)) FROM generate_series(1, 4) i';
		END LOOP; EXCEPTION WHEN query_canceled THEN END \$\$
		END
	start($observer, <<~END);
		CREATE TEMP TABLE seen (longest float8, looks int);
		DO \$\$ DECLARE
			backend int := (SELECT i FROM pg_stat_get_backend_idset() i WHERE pg_stat_get_backend_pid(i) = $pid);
			now timestamptz := clock_timestamp();
			before timestamptz;
			waits boolean;
			waited interval := '0';
			longest interval := '0';
			looks int := 0;
		BEGIN
			LOOP
				waits := pg_stat_get_backend_wait_event(backend) = 'snowid_segments';
				before := now;
				now := clock_timestamp();
				waited := CASE WHEN waits THEN waited + least(now - before, '1 ms') ELSE '0' END;
				longest := greatest(longest, waited);
				looks := looks + 1;
			END LOOP;
		EXCEPTION WHEN query_canceled THEN
			INSERT INTO seen VALUES (1000 * extract(epoch FROM longest), looks);
		END \$\$;
		SELECT longest, looks FROM seen
		END
	$beside->();
	ask($end,
		"SELECT pg_cancel_backend(pid) FROM unnest(ARRAY[$pid, $eye]) pid");
	answer($hot);
	my @seen = split /\|/, answer($observer);
	leave($_) foreach $hot, $observer, $end;
	return @seen;
}

# As many tags in memory as there is room for, and more.
sub row15
{
	my $room   = full(100_000, 600);
	my $more   = full(10_000,  100);
	my @pg_ctl = ('pg_ctl', '-w', '-s', '-D', "$dir/tags");
	system(@pg_ctl, '-l', "$dir/tags.log", '-o',
		"-c snowid.max_segments=$room", 'start') == 0
	  or die "the server with many tags does not start\n";
	my $many = session('tags');
	ask($many, <<~END);
		SET client_min_messages = warning;
		CREATE EXTENSION snowid_segments;
		INSERT INTO snowid_segments (biz_tag) VALUES ('hot0'), ('hot1');
		CREATE DATABASE many
		END
	leave($many);
	$many = session('tags', 'many');
	ask($many, <<~END);
		CREATE EXTENSION snowid_segments;
		INSERT INTO snowid_segments (biz_tag, step)
		SELECT 't' || i, 1000000 FROM generate_series(1, $room + 4 * $more) i;
		INSERT INTO snowid_segments (biz_tag) VALUES ('first')
		END

	my ($to, %cost) = (0);
	foreach my $step (
		[ alone => 1,  $more ],
		[ fill  => 20, $room - 2 * $more ],
		[ many  => 20, $more ],
		[ alone => 1,  $more ],
		[ many  => 20, $more ])
	{
		my ($name, $n, $tags) = @$step;
		push @{ $cost{$name} }, take_tags($n, $to + 1, $to + $tags);
		$to += $tags;
	}

	my ($waited, $looks) = waits_for_locks(
		sub {
			take_tags(1,  $to + 1,         $to + $more);
			take_tags(20, $to + $more + 1, $to + 2 * $more);
		});

	my @ended;
	foreach my $turn (1 .. full(5, 1))
	{
		ask($many, "SELECT snowid_number('t' || $room + $turn)");
		my @there = segment_processes($many);
		kill 'TERM', @there;
		push @ended, ends_in(@there);
	}
	ask($many, "SELECT snowid_number('t1')");
	my @there = segment_processes($many);
	leave($many);
	kill 'INT', read_file("$dir/tags/postmaster.pid") =~ /^(\d+)/;
	my $stopped = ends_in(@there);
	ends_in(read_file("$dir/tags/postmaster.pid") =~ /^(\d+)/);

	heading('15. Many tags');
	paragraph(
		"$room tags in memory, which is all that `snowid.max_segments` has room for.",
		'Processor time of the sessions and of the process for the first number of a tag, with its range, which is committed: while there is room, and beyond it, where each pushes another one out.',
		'The hot tag is one of two in another database that a session asks for in turn, four numbers a statement, beside new tags of one and of 20 sessions; another session looks all the time whether it waits for our lock, which it needs about once a range. A wait is longer if a session that holds the lock, for microseconds, loses its processor meanwhile, and until the one that waits gets one.'
	);
	table(
		[ 'ms a tag',    'while there is room', 'beyond the room' ],
		[ 'one session', map { digits($_) } @{ $cost{alone} } ],
		[ '20 sessions', map { digits($_) } @{ $cost{many} } ]);

	foreach my $case ([ alone => 'one session' ], [ many => '20 sessions' ])
	{
		my ($name, $sessions) = @$case;
		my $more = $cost{$name}[1] - $cost{$name}[0];
		bar("processor time that a tag beyond the room costs more, $sessions",
			'at most 0.2 ms',
			sprintf('%.3f ms', $more),
			$more <= 0.2);
	}
	bar('a hot tag beside new tags waits for our locks, at a time',
		'at most 20 ms',
		sprintf('%.1f ms (%d looks)', $waited, $looks),
		$waited <= 20);
	bar("a process that is terminated, with $room tags in memory, ends within",
		'1000 ms',
		sprintf('%.0f ms', max(@ended)),
		max(@ended) <= 1000);
	bar('a fast stop waits for it for',
		'at most 1000 ms',
		sprintf('%.0f ms', $stopped),
		$stopped <= 1000);
	return;
}

# A row keeps its number when another one goes.
my %rows = (
	1  => \&row1,
	2  => \&row2,
	5  => \&row5,
	6  => \&row6,
	7  => \&row7,
	12 => \&row12,
	13 => \&row13,
	15 => \&row15);
my $all = !@rows;
@rows = sort { $a <=> $b } keys %rows if $all;
prepare();
machine();
my %took;
foreach my $row (@rows)
{
	my $start = time();
	($rows{$row} // die "no row $row\n")->();
	$took{$row} = time() - $start;
}
heading('The bars');
table([ 'what', 'bar', 'measured', '' ], @bars);
print 'seconds: ',
  join(', ', map { sprintf('row %d %.0f', $_, $took{$_}) } @rows), "\n";
if ($all)
{
	open(my $file, '>', "$results/results.md") or die "$!\n";
	print $file $markdown;
	close($file);
}
