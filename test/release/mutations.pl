# mutations.pl - the work of test/release/mutations, in its copy of the checkout: PG_CONFIG, and the
# files.
use strict;
use warnings;

use File::Copy  qw(copy);
use Time::HiRes qw(usleep);

# How long a test may take, in s: registry/move takes 250, and a loaded machine more.
my $limit = 1200;

# How many tests run at a time.
my $jobs = $ENV{JOBS} // 8;

$| = 1;
my ($pg_config, @wanted) = @ARGV;

# A text in parentheses, with them.
my $parens = qr{(?<parens>\((?:[^()]++|(?&parens))*\))};

# The tests of a file, quick ones first; sql/keys is one of pg_regress, and test/lib/opening a
# program.
my %tests = (
	'keeper/opening.c'  => 'test/lib/opening',
	'keeper/identity.c' =>
	  'registry/own_claim registry/identity keeper/new_pair keeper/layout_consent restart/state_file registry/settling registry/lease registry/move restart/backups keeper/shortages keeper/advance registry/same_directory',
	'keeper/keeper.c' =>
	  'restart/state_file keeper/advance keeper/new_pair registry/own_claim registry/identity keeper/closed_gate keys/ready keeper/shortages restart/above_all_before keeper/ahead_of_callers standby/promotion registry/lease registry/move clock/belief_survives clock/steps clock/ran_ahead restart/number_twice keys/concurrent',
	'keeper/ceiling.c' =>
	  'keeper/ceiling restart/number_twice keeper/layout_consent restart/above_all_before keeper/ahead_of_callers restart/random_damage keeper/new_pair standby/promotion keys/settings',
	'keeper/pair.c' =>
	  'keeper/new_pair keeper/lent keeper/layout_consent keys/ready keys/host_name registry/own_claim keys/settings restart/state_file registry/claim_crash registry/lease registry/move clock/ran_ahead',
	'process.c' =>
	  'keeper/fork_fails restart/state_file keeper/advance keys/ready segment/queue keeper/shortages registry/own_claim rights/exits registry/requests keeper/stuck segment/numbers segment/connecting restart/crash_points',
	'redis/link.c' =>
	  'registry/own_claim registry/nonsense package/redis_library registry/tls registry/redis_faults registry/lost_data rights/exits',
	'generator/gate.c' =>
	  'keys/concurrent keeper/stuck restart/number_twice keeper/new_pair clock/steps keys/settings keeper/closed_gate keys/ready keeper/ahead_of_callers keeper/advance restart/state_file registry/lease registry/move',
	'generator/generator.c' =>
	  'sql/keys sql/many keys/ready keys/concurrent clock/steps keys/settings keys/many registry/move',
	'generator/wait.c' =>
	  'keys/concurrent clock/steps keys/ready sql/keys keeper/sleeping_caller keeper/advance keeper/stuck keeper/closed_gate keys/settings clock/ran_ahead keeper/layout_consent registry/lease registry/move'
);

# Changes that no test can notice, and why: FILE: FUNCTION: the change: the code.
my @named = (
	[
		qr/: without: pg_atomic_init_u(?:32|64)\(.*, 0\);$/,
		'shared memory begins with zeros; only an emulated atomic needs it'
	],
	[
		qr{^generator/.*: without: pg_(?:read|write)_barrier},
		'the processors of the tests need none; keys/memory has its model'
	],
	[
		qr{^generator/generator.c: generator_next: always: \(unlikely\(my_counters},
		'the way of a session\'s first key makes all of them; keys/cost counts its instructions'
	],
	[
		qr{^keeper/keeper.c: read_both:},
		'two readings between which the process was held up; the log would have a step back'
	],
	[
		qr{^generator/wait.c: consent: without: process_notify},
		'the keeper looks each second; only the wait is longer'
	],
	[
		qr{^process.c: \w+: without: MemoryContextSwitchTo},
		'what a turn leaves would be kept, or what a connection keeps would be freed'
	],
	[
		qr{^keeper/keeper.c: keeper_leave: without: generator_advance_end},
		'a keeper that ends within snowid_advance(); its successor carries it out'
	],
	[
		qr{^generator/gate.c: generator_shmem: without: pg_atomic_init_u64\(&generator->last},
		'no unit is taken either while usable_until is 0'
	],
	[
		qr{^generator/gate.c: generator_(?:open|grant): without: ConditionVariableB},
		'callers look again by themselves; only the wait is longer'
	],
	[
		qr{^generator/(?:gate.c: generator_(?:grant|ask_above): without: .*ask_above,|generator.c: take: .*ask_(?:above|for_grant)|wait.c: ask_for_grant: (?:never|without: process_wake))},
		'the keeper looks by itself when half of its grant is used up by time'
	],
	[
		qr{^generator/wait.c: wait_for_keeper: (?:never: \(reason == |without: (?:process_notify|ask_for_grant))},
		'the keeper looks each second; only the wait is longer'
	],
	[
		qr{^generator/wait.c: .*: without: ConditionVariableCancelSleep},
		'the next sleep ends the one before'
	],
	[
		qr{^generator/wait.c: require_in_reach: without: process_wake},
		'the keeper looks each second; only the wait is longer'
	],
	[
		qr{^generator/wait.c: wait_until_due: never: \(left_ms > 2\)},
		'a signal ends the other sleep, too'
	],
	[
		qr{^generator/wait.c: (?:require_in_reach: without: .*ConditionVariable(?:PrepareTo|Timed)Sleep|wait_until_due: without: ResetLatch)},
		'the wait would use the processor'
	],
	[
		qr{^generator/gate.c: generator_range_end: never},
		'the last unit of the widest range would be that of a closed gate'
	],
	[
		qr{^generator/generator.c: take: never: \(block.next <= reach},
		'a batch at the rate of the format would lose a part of each ms'
	],
	[
		qr{^keeper/identity.c: lock_directory: without: \(void\) could_not\("lock file"},
		'only a file system without locks fails otherwise'
	],
	[
		qr{^generator/gate.c: generator_grant: never: \(open\)},
		'each reason why there is no grant writes its own detail; callers look again'
	],
	[
		qr{^keeper/.*: without: (?:claim_look|layout_describe)},
		'the values would be undefined, and may be right'
	],
	[
		qr{^keeper/keeper.c: grant: never: \(until > pair},
		'the keeper proposes a ceiling in each turn, too'
	],
	[
		qr{^keeper/keeper.c: open_gate: without: grant},
		'the other half, or the grant of the same turn, makes up for it'
	],
	[
		qr{^keeper/keeper.c: advance: never: \(unit < 0},
		'no call of snowid_advance() ends then, and none waits'
	],
	[
		qr{^keeper/identity.c: identity_introduce: always: \(is_start},
		'a start is counted once more'
	],
	[
		qr{^keeper/pair.c: describe_move: without: snprintf\(err \+ len, GATE_DETAIL_LEN - len, "; another one is being claimed},
		'the text is there for a moment'
	],
	[
		qr{^keeper/identity.c: read_boot_id: without: CloseTransientFile},
		'the file would stay open until the process ends'
	],
	[
		qr{^keeper/identity.c: identity_introduce: never: \(is_told},
		'the same would be published in each turn'
	],
	[
		qr{^redis/link.c: start_tls: without: SSL_CTX_set_min_proto_version},
		'what Debian sets for OpenSSL says the same'
	],
	[
		qr{^keeper/identity.c: identity_introduce: never: \(snowid_redis_lease},
		'a crash before the claim is in the file as a lease; then no lease, and no Redis'
	],
	[
		qr{^keeper/identity.c: describe_boot: never: \(!read_boot_id\(},
		'a machine whose boot has no name'
	],
	[
		qr{^keeper/identity.c: (?:read_birth|file_system_of): never: \(stat(?:x|fs)\(},
		'the data directory is there, and Linux has these calls'
	],
	[ qr{^keeper/identity.c: read_birth: \w+: \(stat\(}, 'not on Linux' ]);

# A run that was ended may have left an object of a mutant in KEEP_BUILD.
utime undef, undef, map { "src/$_" } keys %tests;

my %count;
foreach my $file (files())
{
	my $code  = slurp("src/$file");
	my @tests = split ' ', $ENV{TESTS} || $tests{$file}
	  or die "$file has no tests here\n";
	my $alone = noticed(\@tests);
	die "the tests of src/$file fail by themselves: $alone\n" if $alone;
	foreach my $m (mutants($code, $file eq 'keeper/opening.c'))
	{
		my ($line, $at, $length, $new, $name) = @$m;
		my $is_named = grep { "$file: $name" =~ $_->[0] } @named;
		next if !is_wanted($file, $line) || $is_named && $ENV{UNNAMED};
		my $changed = $code;
		substr($changed, $at, $length) = $new;
		put("src/$file", $changed);
		my $said = noticed(\@tests);
		my $result =
			$said     ? 'noticed'
		  : $is_named ? 'named'
		  :             'NOT NOTICED';
		$count{$result}++;
		print "$result: src/$file:$line: $name", $said ? " ($said)" : '',
		  "\n";
		print "    named, but noticed\n" if $said && $is_named;
	}
	put("src/$file", $code);
	$alone = noticed(\@tests);
	die "the tests of src/$file fail by themselves: $alone\n" if $alone;
}
printf "%d noticed, %d named, %d not noticed\n",
  map { $_ // 0 } @count{ 'noticed', 'named', 'NOT NOTICED' };
exit($count{'NOT NOTICED'} ? 1 : 0);

sub files
{
	my %seen;
	my @all = @wanted ? @wanted : sort keys %tests;
	return grep { !$seen{$_}++ } map { m{(?:src/)?([^:]+)} } @all;
}

# Is this line of the file named, or the whole file, or nothing?
sub is_wanted
{
	my ($file, $line) = @_;
	return !@wanted
	  || grep { m{^(?:src/)?\Q$file\E(?::(\d+))?$} && (!$1 || $1 == $line) }
	  @wanted;
}

# The mutants of a file: line, place, length, what stands there instead, name with the
# function.  What a condition calls is still called: calls have mutants of their own.
# The decision on an opening has finer ones.
sub mutants
{
	my ($code, $finer) = @_;
	my @found;
	my $comment = qr{/\*.*?\*/}s;

	# comments are blanked, so that places stay what they are
	my $bare = $code =~ s{($comment)}{$1 =~ tr/\n/ /cr}gser;
	my $add  = sub {
		my ($at, $length, $new, $name) = @_;
		my $line       = 1 + (substr($bare, 0, $at) =~ tr/\n//);
		my $old        = substr($bare, $at, $length) =~ s/\s+/ /gr;
		my ($function) = substr($bare, 0, $at) =~ /.*^(\w+)\(/ms;
		push @found, [ $line, $at, $length, $new, "$function: $name: $old" ];
	};
	while ($bare =~
		/\bif $parens(?=(\s*(?:\{[^{}]*\breturn[^{}]*\}|return\b|continue;|break;))?)/g
	  )
	{
		my ($at, $length, $leaves) = ($-[1], $+[1] - $-[1], $2);
		next if $1 =~ /^\(!?found\)$/;
		$add->($at, $length, "($1 && false)", 'never');
		$add->($at, $length, "($1 || true)",  'always') if $leaves;
	}
	while ($bare =~ /^\t+((?:\(void\) )?(\w+) ?$parens;)/gm)
	{
		next
		  if $2 =~
		  /^(?:if|for|while|switch|return|sizeof|Assert|PG_\w+|\w+_CRC32C|LWLock\w+|pgstat_report_\w+|elog)$/;
		$add->($-[1], length $1, ';', 'without');
	}
	finer($bare, $add) if $finer;
	@found = sort { $a->[0] <=> $b->[0] } @found;
	return @found;
}

# Without one operand, with the first or the second of two values alone, another bound,
# another sign, without a step.
sub finer
{
	my ($bare, $add) = @_;
	my $value   = qr{(?:[^(),;?:]|$parens)+};
	my $name    = qr{\w[\w.]*(?:->\w+)*};
	my $operand = qr{!?(?:$name$parens?|$parens)(?: [<>=!]=? $name)?};
	my %other   = (
		'<'  => '<=',
		'<=' => '<',
		'>'  => '>=',
		'>=' => '>',
		'==' => '!=',
		'!=' => '==');

	while ($bare =~ /(?:&&|\|\|)/g)
	{
		my ($at, $end) = ($-[0], $+[0]);
		$add->($-[0], $end - $-[0], '', 'without')
		  if substr($bare, 0, $at) =~ /$operand\s+$/;
		$add->($at, $+[0] + $end - $at, '', 'without')
		  if substr($bare, $end) =~ /^\s+$operand/;
	}
	while ($bare =~ /\bMax\((?<one>$value),(?<two>$value)\)/g)
	{
		my ($at,  $length) = ($-[0], $+[0] - $-[0]);
		my ($one, $two)    = @+{qw(one two)};
		$add->($at, $length, "($one)", 'first of');
		$add->($at, $length, "($two)", 'second of');
		pos($bare) = $at + 1;
	}
	while ($bare =~ /$operand \?(?<one>$value):(?<two>$value)/g)
	{
		my ($at,  $length) = ($-[0], $+[0] - $-[0]);
		my ($one, $two)    = @+{qw(one two)};
		$add->($at, $length, $one, 'always the first of');
		$add->($at, $length, $two, 'always the second of');
	}
	while ($bare =~ / ([<>=!]=|[<>]) /g)
	{
		$add->($-[1], length $1, $other{$1}, "$other{$1} in place of");
	}
	while ($bare =~ /!(?=[a-z(])/g) { $add->($-[0], 1, ' ', 'without'); }
	while ($bare =~ / (\+) facts/g)
	{
		$add->($-[1], 1, '-', '- in place of');
	}
	while ($bare =~ /\n\t+(d\.\w+ = [^;]*;)/g)
	{
		$add->($-[1], length $1, ';', 'without');
	}
	return;
}

# Names the compiler or the test that notices the change; '': nothing does.  Those of
# pg_regress go first, and the test that noticed the change before.
sub noticed
{
	my ($tests) = @_;
	my @make = (
		'make',                 '-s',
		"PG_CONFIG=$pg_config", 'with_llvm=no',
		'COPT=-DUSE_ASSERT_CHECKING');
	chomp(my $to = qx($pg_config --pkglibdir));

	if ($tests->[0] eq 'test/lib/opening')
	{
		(run_until_failure(@make, $tests->[0]))[0] or return 'the compiler';
		my ($passed, $said) = run_until_failure($tests->[0], 'first');
		return $passed ? '' : $said;
	}
	foreach my $library (qw(snowid snowid_redis))
	{
		(run_until_failure(@make, "$library.so"))[0] or return 'the compiler';
		copy("$library.so", "$to/$library.new")
		  && rename("$to/$library.new", "$to/$library.so")
		  or die "$to: $!";
	}
	foreach my $test (grep { m{^sql/} } @$tests)
	{
		my ($passed, $said) =
		  run_until_failure('timeout', '--kill-after=30', 200, @make,
			'installcheck', 'REGRESS=' . $test =~ s{^sql/}{}r, 'TAP_TESTS=');
		return "$test: $said" if !$passed;
	}
	my @scripts = map { "test/t/$_.pl" } grep { !m{^sql/} } @$tests;
	my ($passed, $said) = run_until_failure(
		@make,
		'installcheck',
		'REGRESS=',
		"PROVE_TESTS=@scripts",
		"PROVE=perl test/lib/tap.pl --until-failure --jobs=$jobs --limit=$limit"
	);
	end_servers();
	return '' if $passed;
	my ($first) = $said =~ m{^([\w/]+):};
	@$tests = ($first, grep { $_ ne $first } @$tests)
	  if $first && grep { $_ eq $first } @$tests;
	return $said;
}

# Runs a command, and ends it when a check fails.  Returns whether it succeeded, and
# what it said about that.
sub run_until_failure
{
	my (@command) = @_;
	my $pid = open(my $out, '-|') // die "$!";
	if (!$pid)
	{
		setpgrp;
		open(STDERR, '>&', \*STDOUT) or die "$!";
		exec(@command)               or die "$!";
	}
	my ($check, $died);
	while (my $text = <$out>)
	{
		$died = $1 if $text =~ /^(.*) at \S+ line \d+\.$/;
		next if $check || $text !~ /^\s*(?:not ok \d+ -|not so:) (.*)/;
		$check = $1;
		kill 'TERM', -$pid;
	}
	my $passed = close($out) && !$check;
	return ($passed, $check // $died // 'it ended');
}

# A test that was ended may leave its servers, and a directory that cannot be written:
# then no test after it could begin.
sub end_servers
{
	my $here =
	  qr{^(?:\Q$ENV{TMPDIR}\E|\Q@{[qx(pwd -P) =~ s/\n//r]}\E/tmp_(?:check|regress))/};
	my @left;
	do
	{
		@left = grep { (readlink("/proc/$_/cwd") // '') =~ $here }
		  map { m{(\d+)} } glob('/proc/[0-9]*');
		kill 'QUIT', @left;
		usleep(100_000);
	} while (@left);
	system('chmod -R u+rwX tmp_check') == 0 or die "$!" if -d 'tmp_check';
	return;
}

sub slurp
{
	my ($name) = @_;
	open(my $in, '<', $name) or die "$name: $!";
	local $/;
	return scalar <$in>;
}

sub put
{
	my ($name, $text) = @_;
	open(my $out, '>', $name) or die "$name: $!";
	print $out $text;
	close($out) or die "$name: $!";
}
