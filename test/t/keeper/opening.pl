# May keys be made, with which pair, and above what?  test/lib/opening.c goes through the
# combinations of the facts, and checks each decision against the invariants.
# test/release/mutations shows that each condition is needed.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

my ($out, $err) = run_command(['test/lib/opening']);
ok(!/^not so: /, "the opening: $_") foreach grep { !/^  / } split /\n/, $out;
like(
	$out,
	qr/\n\d{7} combinations of the facts$/,
	'the program that checks the opening ends') or diag($err);
done_testing();
