# The manual is true: every message that needs more than its hint is in
# troubleshooting, every function, setting and column in the reference, and nothing
# that is gone; every SQL block runs and prints what the page says; every link,
# anchor, test, file and function that is named exists.  All of this in Chinese,
# too: the reference, troubleshooting and the guarantees have the same rows in both
# languages.
#
# In the pages, a line "--  text" of an SQL block is a line that psql must print.
# A block after "<!-- not run: why -->" is not run, and a block after
# "<!-- run last -->" is run after the others of its page.
# needs: python3
use strict;
use warnings;

use Cwd 'abs_path';
use Encode         qw(decode encode);
use File::Basename qw(basename dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

my $top   = abs_path(dirname(__FILE__) . '/../../..');
my @names = (
	'README.md',
	'README.zh-CN.md',
	'CONTRIBUTING.md',
	'CHANGELOG.md',
	'SECURITY.md',
	'src/README.md',
	'test/README.md',
	'test/results.md',
	map { substr($_, length($top) + 1) }
	  sort glob("$top/doc/*.md $top/doc/zh/*.md"));
my @languages = ('doc', 'doc/zh');
my %page      = map { $_ => parse_page(slurp_file("$top/$_")) } @names;

# A page's text without its blocks; the blocks; the anchors; the links.
sub parse_page
{
	my ($text) = @_;
	my $page = { blocks => [], anchors => {}, links => [], source => $text };

	$text =~ s{((?:^<!--(?:(?!-->).)*-->\n)?)^```(\w*)\n(.*?)^```$}{
		push @{ $page->{blocks} }, { comment => $1, language => $2, text => $3 }; ''}gmse;
	foreach my $heading ($text =~ /^#+ (.*)$/mg)
	{
		my $slug = lc(decode('UTF-8', $heading =~ s/\[(.*?)\]\(.*?\)/$1/gr));
		$slug =~ s/[^\w\- ]//g;
		$page->{anchors}{ encode('UTF-8', $slug =~ tr/ /-/r) } = 1;
	}
	$page->{links} = [ $text =~ /\]\(([^)\s]+)\)/g ];
	$page->{text}  = $text;
	return $page;
}

# The part of a page below a heading, to the next one as high.
sub section
{
	my ($name, $heading) = @_;
	$page{$name}{text} =~ /^(#+) \Q$heading\E\n(.*?)(?=^#{1,6} |\z)/ms
	  or return '';
	return $2;
}

# The rows of a section's tables: references to their cells, without the heads.
sub rows
{
	my ($text) = @_;
	my @rows;
	foreach my $table ($text =~ /((?:^\|.*\|\n)+)/mg)
	{
		my (undef, undef, @lines) = split /\n/, $table;
		push @rows, map {
			[ map { s/^\s+|\s+$//gr } (split /\|/, $_)[ 1 .. tr/|// - 1 ] ]
		} @lines;
	}
	return @rows;
}

sub spans
{
	my ($text) = @_;
	return $text =~ /`([^`]+)`/g;
}

# Passes if nothing is left over.
sub nothing
{
	my ($what, @left) = @_;
	ok(!@left, $what) or diag(map { "$_\n" } @left);
	return;
}

# No entry of the first list is missing in the second.
sub contained
{
	my ($what, $wanted, $there) = @_;
	my %there = map { $_ => 1 } @$there;
	nothing($what,
		@$wanted
		? grep { !$there{$_} } @$wanted
		: 'there is nothing to compare');
	return;
}

sub same
{
	my ($what, $docs, $server) = @_;
	contained("$what: all are in the manual",   $server, $docs);
	contained("$what: the manual has no other", $docs,   $server);
	return;
}

#---- Messages ----

# Placeholders as one word, no last period, and a small letter to begin with: a
# message may become the detail of another.
sub normal
{
	my ($text) = @_;
	$text =~ s/\.\.\.|\bN\b|<>/\x01/g;
	$text =~ s/\x01[\x01 ]*\x01/\x01/g;
	return lcfirst($text =~ s/(?<=.)\.$//r);
}

my @messages = map { [ split /\t/ ] } split /\n/,
  qx("$^X" "$top/test/sources/messages");
cmp_ok(scalar @messages, '>', 100,
	'test/sources/messages finds the messages');

# Is it among these, perhaps with its end as "..."?
sub is_told
{
	my ($text, @told) = @_;
	my $wanted = normal($text);
	foreach my $told (@told)
	{
		return 1 if $told eq $wanted;
		return 1 if $told =~ /^(.{12,}?) ?\x01$/ && index($wanted, $1) == 0;
	}
	return 0;
}

# A row must open with a message of ours, or a reason.
my @sources = map { normal($_->[2]) } @messages;

sub is_ours
{
	my ($text)  = @_;
	my $told    = normal($text);
	my ($start) = $told =~ /^(.*?) ?\x01?$/;
	return grep { $_ eq $told || index($_, $start) == 0 } @sources;
}

# The reasons of a night are messages, too.
foreach my $name (map { "$_/operations.md" } @languages)
{
	my @reasons =
	  grep { /^[A-Z]/ }
	  map { spans($_->[0]) } grep { @$_ == 4 } rows($page{$name}{text});
	cmp_ok(scalar @reasons, '>', 4, "$name has the reasons of a night");
	nothing("every reason in $name is one of the sources",
		grep { !is_ours($_) } @reasons);
}

foreach my $name (map { "$_/troubleshooting.md" } @languages)
{
	my $ours     = $page{$name}{text} =~ s/^## PostgreSQL.*//msr;
	my @told     = map { normal($_) } spans($ours);
	my @openings = map { (spans($_->[0]))[0] // () } rows($ours);

	nothing(
		"every message without a hint is in $name",
		map    { "$_->[0]: $_->[2]" }
		  grep { $_->[1] eq 'message' && !is_told($_->[2], @told) } @messages
	);
	nothing(
		"every message in $name is one of the sources",
		grep { !is_ours($_) } grep {
			/^\w/
			  && !
			  /^(?:Connection refused|Server closed the connection|Protocol error|INFO: NOAUTH|the registry's script: )/
		} @openings);
}

#---- Links, and names of things ----

foreach my $name (@names)
{
	my @broken;
	foreach my $link (grep { !/^https?:/ } @{ $page{$name}{links} })
	{
		my ($file, $anchor) = $link =~ /^([^#]*)#?(.*)$/;
		my $target =
			$file eq ''           ? $name
		  : dirname($name) eq '.' ? $file
		  :                         dirname($name) . "/$file";
		1 while $target =~ s{[^/]+/\.\./}{};
		push @broken, $link if !-e "$top/$target";
		push @broken, $link
		  if $anchor ne ''
		  && -e "$top/$target"
		  && !($page{$target} && $page{$target}{anchors}{$anchor});
	}
	nothing("$name: every link leads somewhere", @broken);
}

my @files = grep { !/\.lua\.h$/ }
  glob("$top/src/*.[ch] $top/src/*/*.[ch] $top/src/*.lua $top/src/*/*.lua");
my $sources = join(
	"\n",
	map { slurp_file($_) } @files,
	glob(
		"$top/sql/*--*.sql $top/managed/*--*.sql $top/test/lib/*.pm $top/test/t/*/*.pl"
	));
foreach my $name (grep { $_ ne 'CHANGELOG.md' } @names)
{
	my $text = $page{$name}{text};
	my @missing;

	# tests, with the names quoted after them
	while ($text =~
		/`(?:test\/t\/)?((?!test\/)[a-z]+\/\w+\.pl)`(?::((?:,? "[^"]+")+))?/g)
	{
		my ($test, $checks) = ($1, $2 // '');
		my $file = "$top/test/t/$test";
		push(@missing, $test), next if !-e $file;
		push @missing,
		  grep { index(slurp_file($file), $_) < 0 } $checks =~ /"([^"]+)"/g;
	}

	# files of the project; functions of SQL and of the sources
	foreach my $span (spans($text))
	{
		push @missing, $span
		  if $span =~ m{^(?:src|sql|test|doc|\.ci)/[\w./-]+$}
		  && $span !~ /X\.Y/
		  && !-e "$top/$span";
		my ($function) = $span =~ (
			$name =~ m{src/README|CONTRIBUTING}
			? qr/^(\w+)\(\)$/
			: qr/\b(snowid_\w+)\(/);
		push @missing, $span
		  if defined $function && $sources !~ /\b$function\b/;
	}
	nothing("$name: the tests, files and functions that it names are there",
		@missing);
}

nothing(
	'doc/guarantees.md: the tests of pg_regress are there',
	grep { !-e "$top/sql/$_.sql" }
	  map {
		grep { /^\w+$/ }
		  spans($_->[1])
	  } rows($page{'doc/guarantees.md'}{text}));

# The rights in Redis: those of the test, and enough for the script.
my ($least) =
  slurp_file("$top/test/t/registry/access.pl") =~ /\@least\s*=\s*qw\((.*?)\)/;
my @least = split ' ', $least;
foreach my $name (map { "$_/worker-ids.md" } @languages)
{
	my ($rights) =
	  $page{$name}{source} =~ /^redis-cli ACL SETUSER .*? (\+.*)$/m;
	same("$name: rights of the user in Redis",
		[ $rights =~ /\+(\w+)/g ], \@least);
}
contained(
	'they are enough for the script',
	[
		map { lc }
		  slurp_file("$top/src/registry/registry.lua") =~
		  /redis\.call\('(\w+)'/g
	],
	\@least);

# ALTER SYSTEM writes into the data directory, so a copy of it has the same worker ID.
nothing(
	'no page and no hint puts a worker ID where a copy takes it along',
	grep {
		($page{$_} ? $page{$_}{source} : slurp_file($_)) =~
		  /ALTER\s+SYSTEM\s+SET\s+snowid\.\w+_id/i
	} @names,
	@files);

# Hints that send the reader to a page.
my $hints = join('', map { slurp_file($_) } @files);
my @named = $hints =~ /(\S+) in snowid's (?:manual|README)/g;
cmp_ok(scalar @named, '>', 3,
	'hints of the sources name pages of the manual');
nothing('the pages that hints name are in the manual',
	grep { !$page{$_} } @named);

# The names of the locks, as pg_stat_activity shows them.
my @locks =
  $hints =~
  /(?:LOCK_NAME |_LOCKS |RequestNamedLWLockTranche\()"(snowid_\w+)"/g;
foreach my $name (map { "$_/monitoring.md" } @languages)
{
	my ($line) = $page{$name}{text} =~ /^(?!\|)(.*`LWLock`.*)$/m;
	same("$name: locks", [ grep { /^snowid_/ } spans($line) ], \@locks);
}

#---- A server ----

my $redis = SnowidRedis->start('redis');
my $node =
  claiming_cluster('docs', $redis, "snowid.public_key_file = 'public_keys'");
my ($secret) =
  $page{'doc/public.md'}{source} =~ /a secret that tests use: `(.*?)`/;
append_to_file($node->data_dir . '/public_keys', "$secret\n");
chmod 0600, $node->data_dir . '/public_keys';
start_and_open($node);
wait_for_claim($node);
$node->safe_psql('postgres', 'CREATE EXTENSION snowid_segments');

sub lines_of
{
	my ($sql) = @_;
	return split /\n/, $node->safe_psql('postgres', $sql);
}

#---- The reference ----

# A signature as the reference has it: optional arguments make two of it.  Functions
# of other objects of the extension (a type, an operator) are not in the reference.
sub signatures
{
	my ($text) = @_;
	return $text =~ /^(.*?) \[(, .*?)\](.*)$/ ? ("$1$3", "$1$2$3") : ($text);
}

my $types =
  q{replace(replace(replace(replace(replace(%s, 'timestamp with time zone', 'timestamptz'), 'integer', 'int'), 'SETOF', 'setof'), '::text', ''), '::interval', '')};
my $extension =
  q{pg_depend d JOIN pg_extension e ON d.refobjid = e.oid AND d.deptype = 'e' AND e.extname IN ('snowid', 'snowid_segments')};
my @functions = lines_of(
	sprintf(
		<<~'EOF', sprintf($types, 'pg_get_function_arguments(p.oid)'), sprintf($types, 'pg_get_function_result(p.oid)'), sprintf($types, 'format_type(t, NULL)'), $extension));
	SELECT proname || '(' || regexp_replace(%s, '(, )?OUT [^,]*|\mIN ', '', 'g') || ')' ||
		CASE WHEN prokind = 'p' THEN '' ELSE ' → ' END ||
		CASE WHEN prokind = 'p' THEN '' WHEN proretset OR proallargtypes IS NULL OR provolatile = 'v' THEN %s
		ELSE (SELECT '(' || string_agg(n || ' ' || %s, ', ' ORDER BY i) || ')'
			FROM unnest(proallargtypes, proargmodes, proargnames) WITH ORDINALITY AS a (t, m, n, i)
			WHERE m = 'o') END
	FROM pg_proc p JOIN %s ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	WHERE prokind <> 'a' AND obj_description(p.oid) NOT LIKE 'internal: %%' AND NOT EXISTS (SELECT FROM pg_depend u
		WHERE u.refclassid = 'pg_proc'::regclass AND u.refobjid = p.oid AND u.deptype <> 'e')
	EOF

# Roles that may call a function
my %granted = map { split / / } lines_of(
	"SELECT DISTINCT proname || CASE WHEN has_function_privilege('pg_monitor', p.oid, 'EXECUTE') THEN ' pg_monitor' ELSE ' superusers' END
	FROM pg_proc p JOIN $extension ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	WHERE NOT has_function_privilege('pg_read_all_data', p.oid, 'EXECUTE') AND prorettype <> 'trigger'::regtype
		AND obj_description(p.oid) NOT LIKE 'internal: %'"
);
same(
	'functions that are not for everybody',
	[
		map {
			my ($name) = (spans($_->[0]))[0] =~ /^(\w+)/;
			$_->[1] =~ /For (superusers; can be granted|`pg_monitor`)\./
			  ? "$name " . ($1 =~ /(pg_monitor|superusers)/)[0]
			  : ()
		} rows($page{'doc/reference.md'}{text})
	],
	[ map { "$_ $granted{$_}" } keys %granted ]);

my @settings = lines_of(
	q{SELECT name || ' ' || CASE WHEN boot_val = '' THEN 'none'
		WHEN unit IS NULL OR boot_val = '0' THEN boot_val
		WHEN boot_val::bigint % 86400000 = 0 THEN boot_val::bigint / 86400000 || 'd'
		WHEN boot_val::bigint % 3600000 = 0 THEN boot_val::bigint / 3600000 || 'h'
		WHEN boot_val::bigint % 60000 = 0 THEN boot_val::bigint / 60000 || 'min'
		WHEN boot_val::bigint % 1000 = 0 THEN boot_val::bigint / 1000 || 's' ELSE boot_val || 'ms' END
		|| CASE context WHEN 'postmaster' THEN ' restart' WHEN 'sighup' THEN ' reload' ELSE context END
	FROM pg_settings WHERE name LIKE 'snowid.%'});

# The words of the settings' table in Chinese.
my %english = ('无' => 'none', '重启' => 'restart', '重载' => 'reload');

# Once a section: PARALLEL, STRICT, and which functions are IMMUTABLE.
my %attributes;
push @{ $attributes{ (split /\|/)[0] } }, $_
  foreach lines_of(
	"SELECT proname, CASE proparallel WHEN 's' THEN 'SAFE' WHEN 'r' THEN 'RESTRICTED' ELSE 'UNSAFE' END,
		CASE WHEN proisstrict THEN 'STRICT' END,
		CASE WHEN provolatile = 'v' THEN 'VOLATILE' WHEN provolatile = 's' THEN 'STABLE' ELSE 'IMMUTABLE' END,
		CASE WHEN 'layout' = ANY (proargnames) THEN 'layout' END
	FROM pg_proc p JOIN $extension ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid"
  );

sub is_volatile_as
{
	my ($prose, $name, $volatility, $layout) = @_;
	return 1 if $prose !~ /\bSTABLE\b/;
	return $volatility eq
	  ($layout || $name =~ /_base\d+$/ ? 'IMMUTABLE' : 'STABLE');
}

foreach my $reference (map { "$_/reference.md" } @languages)
{
	my @wrong;
	my $sections = 0;
	foreach my $heading ($page{$reference}{text} =~ /^### (.*)$/mg)
	{
		my $prose = section($reference, $heading);
		my ($parallel) = $prose =~ /PARALLEL ([A-Z]+)/ or next;
		$sections++;
		my @names = map { (spans($_->[0]))[0] =~ /^(\w+)/ } rows($prose);

		# of segments, those that take numbers
		foreach my $name (grep { !/_(?:segment_\w+|parse)$/ } @names)
		{
			foreach my $function (@{ $attributes{$name} })
			{
				my (undef, $safe, $strict, $volatility, $layout) =
				  split /\|/, $function;
				push @wrong, "$heading: $function"
				  if $safe ne $parallel
				  || ($prose =~ /\bSTRICT\b/ && !$strict)
				  || !is_volatile_as($prose, $name, $volatility, $layout);
			}
		}
	}
	is($sections, 5, "$reference: five sections say PARALLEL");
	nothing(
		"$reference: functions are PARALLEL, STRICT, STABLE and IMMUTABLE as their section says",
		@wrong);
}

foreach my $reference (map { "$_/reference.md" } @languages)
{
	my @rows = grep { $_->[0] =~ /^`/ } rows($page{$reference}{text});
	my @documented;

	foreach my $row (grep { $_->[0] =~ /^`snowid_\w+\(/ } @rows)
	{
		push @documented, signatures((spans($row->[0]))[0]);
	}
	same("$reference: functions", \@documented, \@functions);

	foreach my $function (
		qw(snowid_status snowid_claims snowid_layouts snowid_segment_status))
	{
		same(
			"$reference: $function()",
			[
				map { spans($_->[0]) }
				  rows(section($reference, "$function()"))
			],
			[
				lines_of(
					"SELECT n FROM pg_proc, unnest(proargnames, proargmodes) AS a (n, m)
				WHERE proname = '$function' AND m = 'o'")
			]);
	}
	same(
		"$reference: settings with default and context",
		[
			map {
				my $default = $_->[1] =~ s/(?::|：).*//r =~ tr/`//dr;

				join(' ',
					(spans($_->[0]))[0],
					map { $english{$_} // $_ } $default,
					$_->[3])
			} grep { $_->[0] =~ /^`snowid\./ } @rows
		],
		\@settings);
}

# Both languages have the same rows.
sub entries
{
	my ($name) = @_;
	return map {
		join(' ', sort { $a cmp $b } spans($_->[0]))
	  }
	  grep { $_->[0] =~ /`/ } rows($page{$name}{text});
}

same('troubleshooting in both languages',
	map { [ entries("$_/troubleshooting.md") ] } @languages);

# Both languages have the same examples, in the same order, and name the same things.
# Chinese texts may stand in quotes and comments.  What is of sequences and of Leaf is
# in Chinese on a page of its own, migration.md; the programs of clients.md are in
# English alone.
sub example
{
	my ($block) = @_;
	my $text = $block->{text} =~ s/(?:--|#).*//gr;

	return "$block->{language} " . join(' ', split ' ', $text);
}

sub same_example
{
	my ($english, $chinese) = @_;
	my $pattern = quotemeta $chinese;
	my $quote   = qr/(?:\\["'])/;

	# quotemeta() has put a backslash before each mark, and each byte of Chinese
	$pattern =~
	  s/($quote)((?:(?!$quote).)*\\[\x80-\xff](?:(?!$quote).)*)\1/$1.*?$1/g;
	return $english =~ /^$pattern$/;
}

my $migration = 'doc/zh/migration.md';
foreach my $chinese (grep { m{^doc/zh/|^README\.zh} } @names)
{
	my $english = $chinese =~ s{^doc/zh/}{doc/}r =~ s/\.zh-CN//r;
	next if !$page{$english} || $english eq 'doc/clients.md';

	my @there = map { example($_) } @{ $page{$chinese}{blocks} };
	my @other = map { example($_) } @{ $page{$migration}{blocks} };
	my @missing;
	foreach my $example (map { example($_) } @{ $page{$english}{blocks} })
	{
		my ($at) =
		  grep { same_example($example, $there[$_]) } 0 .. $#there;
		if (defined $at)
		{
			splice @there, 0, $at + 1;
		}
		else
		{
			push @missing, $example
			  if !grep { same_example($example, $_) } @other;
		}
	}
	nothing("$chinese: it has the examples of $english, in their order",
		@missing);

	my %named =
	  map { $_ => 1 } map { spans($page{$_}{text}) } $chinese, $migration;
	nothing(
		"$chinese: it names what $english names",
		grep { !$named{$_} } spans($page{$english}{text}));
}

# Both languages promise the same: the tests of each row, and the levels of all
# headings and list items, in the same order.
sub outline
{
	my ($name) = @_;
	return $page{$name}{text} =~ /^(#+| *-) /mg,
	  map { join ' ', spans($_->[-1]) } rows($page{$name}{text});
}

my ($promises, $in_chinese) =
  map { [ outline("$_/guarantees.md") ] } @languages;
cmp_ok(scalar(grep { m{/} } map { split / / } @$promises),
	'>', 100, 'doc/guarantees.md names tests');
is_deeply($in_chinese, $promises,
	'doc/zh/guarantees.md has the promises and limits of doc/guarantees.md');

# Wherever "snowid." is written, it is a setting, a function, a table or a file.
my %dotted = map { $_ => 1 } (map { (split / /)[0] } @settings),
  (map { 'snowid.' . (split /\(/)[0] } @functions),
  map { "snowid.$_" }
  qw(c h conf control redis so snowid_segments snowid_segment_periods);
foreach my $name (grep { $_ ne 'CHANGELOG.md' } @names)
{
	nothing(
		"$name: every setting that it names is there",
		grep { !$dotted{$_} }
		  $page{$name}{source} =~ m{(?<![\w/.@])(snowid\.[a-z]\w*)}gi);
	my @layouts = $page{$name}{source} =~ /^snowid\.layout = '(.*?)'/mg;
	nothing(
		"$name: its layouts are layouts",
		grep  { $_ ne '' }
		  map { sql_error($node, "SELECT snowid_timestamp(0, '$_')") }
		  @layouts);
}

#---- SQL blocks ----

# Runs one in a session of its own, with its files beside the server's.  Returns its
# errors, or ''.
sub run_block
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	my @expected = map { s/\s+/ /gr =~ s/^ | $//gr } $sql =~ /^--  (.*)$/mg;

	local $ENV{PGTZ} = 'UTC';
	IPC::Run::run(
		[
			'psql', '-X',        '-v', 'ON_ERROR_STOP=1',
			'-P',   'pager=off', '-d', $node->connstr('shop')
		],
		'<',
		\$sql,
		'>',
		\$out,
		'2>',
		\$err,
		init => sub { chdir $node->basedir or die "$!" },
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default)
	) or return "$sql$err";
	my @lines = map { s/\s+/ /gr =~ s/^ | $//gr } split /\n/, $out;
	while (@expected && @lines)
	{
		shift @expected if $lines[0] eq $expected[0];
		shift @lines;
	}
	return @expected ? "$sql$out: not printed: @expected" : '';
}

# The SQL of a page that runs, in its order
sub sql_of_page
{
	my ($name) = @_;
	my @blocks =
	  grep { $_->{language} eq 'sql' && $_->{comment} !~ /^<!-- not run: / }
	  @{ $page{$name}{blocks} };
	@blocks = sort {
		($a->{comment} =~ /^<!-- run last/)
		  <=> ($b->{comment} =~ /^<!-- run last/)
	} @blocks;
	return map { $_->{text} } @blocks;
}

sub lines_of_shop
{
	my ($sql) = @_;
	return split /\n/, $node->safe_psql('shop', $sql);
}

# A list by the public form, page after page by the page's own query: each row once,
# and in the order of the keys.
sub pages_through
{
	my ($name) = @_;
	my ($query) =
	  grep { /\bLIMIT\b/ } map { $_->{text} } @{ $page{$name}{blocks} };
	my ($form)  = $query =~ /'(ord_\w+)'/;
	my ($after) = lines_of_shop("SELECT snowid_from_public('$form', 'ord')");
	my @listed;

	lines_of_shop('TRUNCATE orders, order_lines');
	lines_of_shop(
		"INSERT INTO orders SELECT $after + i * 4194304, i FROM generate_series(1, 20) AS i"
	);
	while (@listed <= 20 && (my @next = lines_of_shop($query)))
	{
		push @listed, map { (split /\|/)[1] } @next;
		my ($last) = split /\|/, $next[-1];
		$query =~ s/$form/$last/;
		$form = $last;
	}
	is( "@listed",
		join(' ', 1 .. 20),
		"$name: its query pages through 20 rows, each once and in order");
	return;
}

# A new database, or one as the SQL of a README has left it.
sub new_shop
{
	my ($readme) = @_;
	my @commands = 'CREATE DATABASE shop';
	@commands = (
		qq{CREATE DATABASE shop TEMPLATE "$readme"},
		$page{$readme}{source} =~ /^(ALTER DATABASE shop SET .*);$/m
	) if $readme;
	$node->safe_psql('postgres', $_)
	  foreach 'DROP DATABASE IF EXISTS shop', @commands;
	return;
}

# Each page in a database of its own, with the tables of its README, and with the role
# that README makes.
$node->safe_psql('postgres', 'CREATE ROLE app');
foreach my $name (grep { m{^README|^doc/} } @names)
{
	my $readme = $name =~ /\bzh\b/ ? 'README.zh-CN.md' : 'README.md';
	my @blocks = sql_of_page($name);
	new_shop($name ne $readme && $readme) if @blocks;
	nothing("$name: every SQL block runs",
		grep { $_ ne '' } map { run_block($_) } @blocks);
	pages_through($name) if $name =~ /public/;
	if ($name eq $readme)
	{
		$node->safe_psql('postgres',
			qq{ALTER DATABASE shop RENAME TO "$readme"});
		new_shop();
		nothing(
			"$name: its SQL runs as it is pasted from the top",
			grep   { $_ ne '' }
			  map  { run_block($_->{text}) }
			  grep { $_->{language} eq 'sql' } @{ $page{$name}{blocks} });
	}
	nothing(
		"$name: no SQL without its language",
		map    { $_->{text} }
		  grep { $_->{language} eq '' && $_->{text} =~ /\bSELECT\b/ }
		  @{ $page{$name}{blocks} });
}

$node->stop;
done_testing();
