# Text and answers of Redis that libFuzzer makes, under ASan and UBSan: nothing is
# read out of bounds, nothing overflows, and accepted text is written as it was
# read.  test/fuzz/ has a file for each target; SNOWID_FUZZ_SECONDS says how long (without
# it, 5,000 inputs), and SNOWID_FUZZ_KEEP=1 keeps the inputs that reach more in
# test/fuzz/corpus.
# needs: clang? libclang-rt-dev?
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

my $clang    = $ENV{CLANG} // 'clang';
my $seconds  = $ENV{SNOWID_FUZZ_SECONDS};
my $how_long = $seconds ? "-max_total_time=$seconds" : '-runs=5000';
my $build    = PostgreSQL::Test::Utils::tempdir('fuzz');
my ($out, $err);

append_to_file("$build/none.c",
	"int LLVMFuzzerTestOneInput(void) { return 0; }\n");
plan skip_all => 'there is no clang with libFuzzer'
  if !eval {
	IPC::Run::run(
		[
			$clang, '-fsanitize=fuzzer,address',
			'-o',   "$build/none",
			"$build/none.c"
		],
		'>&',
		\$err);
  };

IPC::Run::run(
	[
		'make',         '-s', '-f', 'test/fuzz/Makefile',
		"CLANG=$clang", "BUILD=$build",
		'PG_CONFIG=' . ($ENV{PG_CONFIG} // 'pg_config')
	],
	'>&',
	\$out) or die $out;

# A corpus is a file, with an input in each line: other bytes than printable ASCII,
# and \, are written as \xHH.
sub unpack_corpus
{
	my ($file, $dir) = @_;
	my $n = 0;

	mkdir $dir;
	foreach my $line (split /\n/, slurp_file($file))
	{
		append_to_file("$dir/" . $n++, $line =~ s/\\x(..)/chr(hex($1))/ger);
	}
	return;
}

sub pack_corpus
{
	my ($dir, $file) = @_;
	open(my $out, '>', $file) or die "$file: $!";
	print $out map { "$_\n" }
	  sort
	  map { slurp_file($_) =~ s/([^ -~]|\\)/sprintf('\\x%02x', ord($1))/ger }
	  glob "$dir/*";
	close($out);
	return;
}

local $ENV{ASAN_OPTIONS}  = 'detect_leaks=0';
local $ENV{UBSAN_OPTIONS} = 'print_stacktrace=1';
foreach my $program (sort glob "$build/fuzz-*")
{
	my ($target) = $program =~ /fuzz-(\w+)$/;
	my $corpus   = "test/fuzz/corpus/$target";
	my $dict     = "test/fuzz/$target.dict";
	my $inputs   = "$build/$target.inputs";

	unpack_corpus($corpus, $inputs);
	my $good = IPC::Run::run(
		[
			$program,
			$how_long,
			'-max_len=2048',
			'-print_final_stats=1',
			"-artifact_prefix=$build/$target.bad.",
			(-e $dict ? "-dict=$dict" : ()),
			$inputs
		],
		'<',
		'/dev/null',
		'>&',
		\$out);
	my ($runs) = $out =~ /number_of_executed_units: (\d+)/;
	ok($good, "$target: " . ($runs // 'some') . ' inputs');
	diag(
		$out =~ s/^#\d+\t.*\n//mgr,
		map { "$_: " . unpack('H*', slurp_file($_)) . "\n" }
		  glob "$build/$target.bad.*") if !$good;

	if ($ENV{SNOWID_FUZZ_KEEP})
	{
		mkdir "$inputs.least";
		IPC::Run::run(
			[ $program, '-set_cover_merge=1', "$inputs.least", $inputs ],
			'<', '/dev/null', '>&', \$out)
		  and pack_corpus("$inputs.least", $corpus);
	}
}
done_testing();
