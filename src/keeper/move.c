/*
 * move.c
 *		Leaving a claimed worker ID for another one, after the clock was set back
 *		so far behind its keys that every caller would be refused.
 *
 * For the snowid keeper alone.  opening.c decides; the keeper then asks the snowid
 * registry for another ID, with which it opens the gate as with any other.  The one
 * that is left keeps its ceiling: in the WAL, in the registry, and among the past
 * claims.
 *
 * The clock must have been behind for a while: longer, the more IDs were left
 * that are still ahead of it.  So a clock that goes back and forth does not use
 * up the registry, over restarts, too.  After snowid_advance() keys wait: an ID
 * is not left as long as the clock is that far behind.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/identity.h"
#include "keeper/move.h"
#include "key/layout.h"
#include "registry/claim.h"

/*
 * The clock is behind for so long before a second ID is left; twice as long with
 * each further one.
 */
#define SECOND_MS (10 * 1000)

/* Since when the clock is behind, by monotonic_ms(); 0: it is not. */
static int64 behind_since = 0;

/* The last claim that the clock was behind; no ownership: it is not any more. */
static Claim left;
static int64 left_ms;

/* For how long the clock has been behind, and must be before an ID is left. */
void
move_observe(Facts *facts)
{
	int			before = identity_count_past(facts->reach_ms);

	facts->behind_ms = behind_since == 0 ? 0 : monotonic_ms() - behind_since;
	facts->patience_ms = before == 0 ? BEHIND_MS : SECOND_MS << (before - 1);
}

/* Notes the decision about this claim, and publishes it for registry and callers. */
void
move_note(const Claim *claim, const Decision *decision)
{
	generator_may_move(decision->may_move);
	claim_unwanted(decision->unwanted ? claim->ownership : 0, decision->end_ms);
	if (decision->behind)
	{
		if (behind_since == 0)
			behind_since = monotonic_ms();
		left = *claim;
		left_ms = decision->end_ms;
	}
	else if (decision->is_known)
	{
		behind_since = 0;
		if (left.ownership != 0 && left.ownership != claim->ownership)
		{
			generator_count_move();
			ereport(LOG,
					(errmsg("snowid left worker ID %d of datacenter %d, whose keys are ahead of the clock",
							left.worker_id, left.datacenter_id),
					 errdetail("They end at %s; new keys are below them until then.",
							   timestamptz_to_str(timestamptz_from_unix_ms(left_ms)))));
		}
		left.ownership = 0;
	}
}

/* Says in err where the keys end, and why there is no other ID yet. */
void
move_describe(const Claim *claim, const Decision *decision, int64 patience_ms, char *err)
{
	Registry	seen;
	const char *why;
	int			len;

	claim_look(&seen);
	why = seen.confirmed ? seen.no_other : seen.detail;
	len = snprintf(err, GATE_DETAIL_LEN, "The keys of worker ID %d of datacenter %d end at %s",
				   claim->worker_id, claim->datacenter_id,
				   timestamptz_to_str(timestamptz_from_unix_ms(decision->end_ms)));
	if (!decision->unwanted)
		snprintf(err + len, GATE_DETAIL_LEN - len, "; another one is claimed when the clock has been behind for " INT64_FORMAT " ms.",
				 patience_ms);
	else if (why[0])
		snprintf(err + len, GATE_DETAIL_LEN - len, ", and no other one could be claimed: %.300s", why);
	else
		snprintf(err + len, GATE_DETAIL_LEN - len, "; another one is being claimed.");
}
