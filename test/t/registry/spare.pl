# The spare worker ID: where the clock steps back so far that callers would be
# refused, keys go on at the clock's time with the spare, and with the own ID
# when the clock has passed its keys.  No key is made twice, whatever comes in
# between: a crash, the keeper's end, a clean stop, another step.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidSpare;
use SnowidTest;
use Test::More;

my ($hour, $year) = (3600, 365 * 86400);
my $node = snowid_cluster('spare',
	"snowid.worker_id = 1\nsnowid.spare_worker_id = 2\nsnowid.max_lead = 100ms\nsnowid.max_wait = 200ms\nsnowid.max_jump = 2min\n"
);

# The server has its spare for longer than any of its steps.
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
use_server($node, -2 * $year);
start_and_open($node);
poll($node, 'spare_worker_id = 2');
$node->stop;
use_server($node, 0);
$node->start;
server_is_open($node);

#---- Steps back, and back again ----

goes_back_and_forth(1, 2);
is(status($node, 'worker_id_source, spare_worker_id'),
	'setting|2', 'in the end the status has the own and the spare');

#---- A time that is before the spare's own keys ----

step_clock(-30 - $year);
is_refused('a step to before the keys of the spare: callers are refused');
is(status($node, 'worker_id'), 1, 'by the own worker ID');
step_clock(60);
changes_to(2, 'when the clock has passed them: the spare');

# While the spare is used the clock steps back once more.
my $highest = last_key();
step_clock(-60);
is_refused('a step back beyond the keys of both is refused');
step_clock(60);
keys_are_of(2, 'until the clock is there');
cmp_ok(last_key(), '>', $highest, 'above the others of the spare');

#---- Crashes, and the keeper's end ----

# With the clock behind, and with the clock set right.
my %interruption = interruptions();
step_clock($year);
changes_to(1, 'the clock is right');
foreach my $what (sort keys %interruption)
{
	foreach my $right (0, 1)
	{
		let_pass($hour + 60);
		keys_are_of(1, "$what: the own worker ID");
		step_clock(-$hour);
		changes_to(2, "$what: the spare");
		step_clock($hour) if $right;
		$interruption{$what}->();
		changes_to(1 + !$right,
			"$what, with the clock " . ($right ? 'set right' : 'behind'));
		step_clock($hour) if !$right;
		changes_to(1, "$what: the own worker ID in the end");
	}
}
$node->stop;
done_testing();
