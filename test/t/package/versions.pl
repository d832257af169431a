# An SQL script and a library of different versions: every function that returns
# a row checks how it is declared, and a script newer than the library that the
# server runs says so before it creates anything.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = snowid_cluster('versions', 'snowid.worker_id = 1');
start_and_open($node);

# The C function as a script of another version would declare it: arguments,
# then columns.
sub result_of
{
	my ($symbol, $arguments, $call, @columns) = @_;
	my $n = 0;
	my $declared = join ', ', @$arguments,
	  map { "OUT c" . ++$n . " $_" } @columns;

	return sql_error($node, <<~EOF);
		CREATE FUNCTION pg_temp.f($declared)
			RETURNS @{[ $symbol =~ /layouts|claims/ ? 'SETOF record' : 'record' ]}
			AS '\$libdir/snowid', '$symbol' LANGUAGE C;
		SELECT * FROM pg_temp.f($call);
		EOF
}

my $restart =
  'Restart the server, so that it loads the library that is installed.';
my $update = 'Run ALTER EXTENSION snowid UPDATE.';

foreach my $function (
	[ 'snowid_status',  [],                   '' ],
	[ 'snowid_layouts', [],                   '' ],
	[ 'snowid_claims',  [],                   '' ],
	[ 'snowid_decode',  ['bigint'],           '0' ],
	[ 'snowid_decode',  [ 'bigint', 'text' ], "0, 'twitter'" ])
{
	my ($symbol, $arguments, $call) = @$function;
	my @columns = split /\|/, $node->safe_psql('postgres', <<~EOF);
		SELECT string_agg(type::regtype::text, '|' ORDER BY n)
		FROM pg_proc, unnest(proallargtypes[pronargs + 1:]) WITH ORDINALITY t(type, n)
		WHERE proname = '$symbol' AND pronargs = @{[ scalar @$arguments ]}
		EOF
	my $count = @columns;
	my $name  = "$symbol(@$arguments)";

	like(
		result_of($symbol, $arguments, $call, @columns),
		$symbol eq 'snowid_claims'
		? qr/worker ID does not come from Redis/
		: qr/^$/,
		"$name, $count columns");
	foreach my $case (
		[ 'a column more',   $restart, @columns, 'int' ],
		[ '40 columns more', $restart, @columns, ('text') x 40 ],
		[ 'a column less',   $update,  @columns[ 0 .. $#columns - 1 ] ],
		[
			'a text for a number',
			"$restart If that does not help: $update",
			map { /^(integer|boolean)$/ ? 'text' : $_ } @columns
		])
	{
		my ($what, $hint, @declared) = @$case;
		my $declared = @declared;

		like(
			result_of($symbol, $arguments, $call, @declared),
			qr/^55000: declaration of (pg_temp(_\d+)?\.)?f\(.*\) does not match the snowid library\nDETAIL:  It is declared with $declared columns, and the library has $count\.\nHINT:  \Q$hint\E\n/,
			"$name, $what");
	}
}

query($node,
	q(CREATE EXTENSION snowid_segments; INSERT INTO snowid_segments (biz_tag) VALUES ('a'))
);
foreach my $function (
	[ 'snowid_status',       '',          '' ],
	[ 'snowid_decode',       'bigint',    '0' ],
	[ 'snowid_number_range', 'text, int', q('a', 1) ])
{
	my ($symbol, $arguments, $call) = @$function;
	like(
		sql_error($node, <<~EOF),
			CREATE FUNCTION f($arguments) RETURNS int
				AS '\$libdir/snowid', '$symbol' LANGUAGE C;
			SELECT f($call);
			EOF
		qr/^XX000: return type must be a row type\n/,
		"$symbol($arguments), declared as one number");
}

# The first statement of each script.
my $script_version;
foreach my $script (
	glob(`pg_config --sharedir` =~ s/\n//r . '/extension/snowid*--*.sql'))
{
	($script_version) = $script =~ /--([\d.]+)\.sql$/;
	my ($first) = slurp_file($script) =~ /^(CREATE .*?;\nSELECT .*?;\n)/ms;
	like(
		$first,
		qr/^CREATE FUNCTION snowid_require_library\([^;]*;\nSELECT snowid_require_library\('\Q$script_version\E'/,
		"$script asks for its version first");
}
$node->safe_psql('postgres',
	"CREATE FUNCTION require(text) RETURNS void AS '\$libdir/snowid', 'snowid_require_library' LANGUAGE C"
);
is(sql_error($node, "SELECT require('$script_version')"),
	'', 'the version that a script asks for is that of this library');
foreach my $newer ($script_version . '0', '0.99', '99.0', 'new')
{
	like(
		sql_error($node, "SELECT require('$newer')"),
		qr/^55000: the snowid library that is loaded is older than version $newer of the extension\nDETAIL:  It is of version \Q$script_version\E\.\nHINT:  $restart\n/,
		"version $newer of the script needs another library");
}

$node->stop;
done_testing();
