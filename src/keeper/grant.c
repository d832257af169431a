/*
 * grant.c
 *		The reservation of keys ahead of use: grants, and snowid_advance().
 *
 * A grant raises the ceiling, and is published once it is durable: first the
 * claim's record in shared memory, then the WAL, then usable_until.  It is
 * renewed when half of it is used, or when a caller asks.  For the snowid keeper
 * alone.
 */
#include "postgres.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/ceiling.h"
#include "keeper/grant.h"
#include "keeper/identity.h"
#include "registry/claim.h"
#include "settings.h"
#include "units.h"

/* Grants are renewed until this long after the last key. */
#define ACTIVE_MS (60 * 1000)

/* The keeper looks again after at least so many ms, and at most so many. */
#define SHORTEST_MS 20
#define LONGEST_MS 1000

/*
 * The first grants after an opening are smaller by this power of 2, so that a
 * server that crashes again and again does not run ahead of the clock.
 */
#define SLOW_START 3

static int	slow_start;

void
grant_start_slowly(void)
{
	slow_start = SLOW_START;
}

/* The size of a grant now, in units. */
static int64
step(void)
{
	return units_from_ms(RESERVE_MS) >> slow_start;
}

/* Keys end at the limit of the lease: publishes the reason for callers. */
static void
explain_lease(const Pair *pair)
{
	Registry	seen;
	char		detail[GATE_DETAIL_LEN];

	claim_look(&seen);
	snprintf(detail, sizeof(detail), "The lease of worker ID %d has not been renewed: %.400s",
			 pair->claim.worker_id, seen.detail[0] ? seen.detail : "Redis has not answered yet.");
	generator_no_grant(detail);
}

/*
 * A grant reaches RESERVE_MS past the clock or the last unit, whichever is
 * greater, but at most max_lead more ahead of the clock.  snowid_advance() needs
 * "least".  On lease, it never exceeds what Redis has recorded.
 * False: there is nothing to grant yet.
 */
static bool
grant(const Pair *pair, int64 now, int64 last, int64 usable_until, int64 least)
{
	int64		until = Max(now, last) + step();

	until = Min(until, now + units_from_ms((int64) snowid_max_lead + RESERVE_MS));
	until = Max(until, least);
	until = Min(last_unit_of(unix_ms_from_units(until)), generator_range_end());
	if (until > pair->limit)
		claim_propose(unix_ms_from_units(now), unix_ms_from_units(until), true);
	until = Min(until, pair->limit);
	if (until <= Max(last, usable_until))
	{
		if (until == pair->limit)
			explain_lease(pair);
		else					/* callers that wait ask again */
			generator_ask_above(usable_until - step() / 2);
		return false;
	}
	claim_use(unix_ms_from_units(until));
	ceiling_raise(&pair->ceiling, unix_ms_from_units(until));
	generator_grant(until, until - step() / 2);
	if (slow_start > 0)
		slow_start--;
	return true;
}

/* The first grant, above the unit "begin", while the gate is closed. */
void
grant_first(const Pair *pair, int64 now, int64 begin)
{
	generator_grant(begin, begin);	/* nothing yet */
	(void) grant(pair, now, begin, begin, 0);
}

/*
 * Carries out a snowid_advance() while the gate is open: the ceiling first.  The
 * caller can withdraw a request that clock or lease do not allow yet.
 */
static bool
advance(Pair *pair, int64 now)
{
	int64		unit = generator_advance_take();
	GeneratorProgress progress;
	char		err[GATE_DETAIL_LEN];
	bool		granted = false;

	if (unit < 0)
		return false;
	if (unit > now + units_from_ms(snowid_max_jump) || unit > pair->limit)
	{
		if (unit > pair->limit)
			claim_propose(unix_ms_from_units(now), unix_ms_from_units(unit), true);
		generator_advance_later();
		return false;
	}
	/* another worker ID makes no keys below it either */
	if (!identity_advance(unix_ms_from_units(unit), err))
	{
		generator_advance_end(false, err);
		return false;
	}
	generator_progress(&progress);
	if (unit > progress.usable_until)
		granted = grant(pair, now, progress.last, progress.usable_until, unit);
	generator_advance_end(true, "");
	return granted;
}

/*
 * Gives a grant if one is due.  Returns the ms until the next may be.
 */
long
grant_renew(Pair *pair, int64 now, bool *granted)
{
	static int64 last_seen = 0;
	static int64 active_until = 0;	/* by monotonic_ms() */
	GeneratorProgress progress;
	int64		mono = monotonic_ms();

	*granted = advance(pair, now);
	generator_progress(&progress);
	if (progress.last != last_seen)
		active_until = mono + ACTIVE_MS;
	last_seen = progress.last;
	if (!progress.asked && mono > active_until)
		return LONGEST_MS;

	if (progress.asked ||
		progress.usable_until - step() / 2 <= Max(now, progress.last))
	{
		*granted |= grant(pair, now, progress.last, progress.usable_until, 0);
		generator_progress(&progress);
		/* the registry wakes the keeper when the lease is renewed */
		if (progress.asked)
			return LONGEST_MS;
	}
	return Min(Max(ms_from_units(progress.usable_until - step() / 2 -
								 Max(now, progress.last)), SHORTEST_MS), LONGEST_MS);
}
