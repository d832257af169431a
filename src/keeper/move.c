/*
 * move.c
 *		When a claimed worker ID is left for another one: where the clock was set
 *		back so far behind its keys that every caller would be refused.
 *
 * For the snowid keeper alone.  It only decides, and tells the snowid registry
 * that the ID is not wanted any more.  The registry claims another one, and the
 * gate is opened with that as with any other.  The one that is left keeps its
 * ceiling: in the WAL, in the registry, and among the past claims.
 *
 * The clock must have been behind for a while: longer, the more IDs were left
 * that are still ahead of it.  So a clock that goes back and forth does not use
 * up the registry, over restarts, too.  After snowid_advance() keys wait: an ID
 * is not left as long as the clock is that far behind.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/timestamp.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/identity.h"
#include "keeper/move.h"
#include "registry/claim.h"
#include "units.h"

/* The clock is behind for so long before the first ID is left. */
#define FIRST_MS 500

/* And for so long before the second one; it doubles with each further one. */
#define SECOND_MS (10 * 1000)

/* How often it is looked at meanwhile. */
#define LOOK_MS 200

/* Since when the clock is behind, by monotonic_ms(); 0: it is not. */
static int64 behind_since = 0;

/* The claim that is not wanted any more, by this turn, and where its keys end. */
static uint64 unwanted = 0;
static int64 unwanted_ms = 0;

/* The last claim that was not wanted; no ownership: it was opened again. */
static Claim left;
static int64 left_ms;

/* May another ID be claimed, if the clock is behind?  Not before its keys. */
static bool
is_possible(int64 now)
{
	return claim_from_redis() && last_unit_of(identity_advanced_ms()) <= generator_reach(now);
}

/* The ms for which the clock must have been behind. */
static int64
patience_ms(int64 now)
{
	int			before = identity_count_past(unix_ms_from_units(generator_reach(now)));

	return before == 0 ? FIRST_MS : SECOND_MS << (before - 1);
}

/* Says in err where the keys end, and what has come of another ID. */
static void
describe(const Claim *claim, int64 patience, char *err)
{
	char		why[GATE_DETAIL_LEN];
	int			len;

	len = snprintf(err, GATE_DETAIL_LEN, "The keys of worker ID %d of datacenter %d end at %s",
				   claim->worker_id, claim->datacenter_id,
				   timestamptz_to_str(timestamptz_from_unix_ms(left_ms)));
	if (unwanted == 0)
		snprintf(err + len, GATE_DETAIL_LEN - len, "; another one is claimed when the clock has been behind for " INT64_FORMAT " ms.",
				 patience);
	else if (claim_why_no_other(why))
		snprintf(err + len, GATE_DETAIL_LEN - len, ", and no other one could be claimed: %.300s", why);
	else
		snprintf(err + len, GATE_DETAIL_LEN - len, "; another one is being claimed.");
}

/*
 * Is the clock so far behind the pair's keys that every caller would be refused,
 * and may another worker ID be claimed?  Then the gate is to be closed, with what
 * is in err.  The pair is known.
 */
bool
move_is_needed(const Pair *pair, bool is_open, int64 now, char *err)
{
	GeneratorProgress progress;
	int64		last = pair->floor;
	int64		patience;
	int64		lasted;

	generator_progress(&progress);
	if (is_open)
		last = progress.last;
	if (last <= generator_reach(now) || !is_possible(now))
	{
		behind_since = 0;
		if (left.ownership == pair->claim.ownership)
			left.ownership = 0;
		return false;
	}
	if (behind_since == 0)
		behind_since = monotonic_ms();
	lasted = monotonic_ms() - behind_since;
	patience = patience_ms(now);
	left = pair->claim;
	left_ms = unix_ms_from_units(last);
	if (lasted >= patience)
	{
		unwanted = pair->claim.ownership;
		unwanted_ms = left_ms;
	}
	describe(&pair->claim, patience, err);
	return !is_open || lasted >= FIRST_MS;
}

/* Tells the registry and callers what this turn has found. */
void
move_end_turn(int64 now)
{
	generator_may_move(is_possible(now));
	claim_unwanted(unwanted, unwanted_ms);
	unwanted = 0;
}

/* The ms until it is to be looked at again. */
long
move_pause(void)
{
	return behind_since == 0 ? LONG_MAX : LOOK_MS;
}

/* The gate was opened with this claim: says whether an ID was left for it. */
void
move_opened(const Claim *claim)
{
	if (left.ownership != 0 && left.ownership != claim->ownership)
	{
		generator_count_move();
		ereport(LOG,
				(errmsg("snowid left worker ID %d of datacenter %d, whose keys are ahead of the clock",
						left.worker_id, left.datacenter_id),
				 errdetail("They end at %s; keys are below them until the clock is there.",
						   timestamptz_to_str(timestamptz_from_unix_ms(left_ms)))));
	}
	left.ownership = 0;
}
