/*
 * spare.c
 *		The spare worker ID: with which of its pairs this server makes keys.
 *
 * Called by the snowid keeper alone.  Opens and closes nothing itself.
 *
 * The spare is used while the clock is so far behind the own pair's keys that
 * callers are refused; the own pair again once the clock has passed its ceiling.
 * Each has its ceiling in an origin of its own.  The spare gets one when it is
 * taken, before it is needed: it was not this server's before, so it makes no
 * keys of earlier times.
 */
#include "postgres.h"

#include <limits.h>

#include "compat.h"
#include "generator/gate.h"
#include "keeper/ceiling.h"
#include "keeper/clock.h"
#include "keeper/spare.h"
#include "key/layout.h"
#include "process.h"
#include "settings.h"
#include "units.h"

/* The clock is behind for so long before keys continue with the spare. */
#define BEHIND_MS 500

/* A spare that could not be taken is tried again after so long. */
#define RETRY_MS (20 * 1000)

/* Since when the clock is behind, by monotonic_ms(); 0: it is not. */
static int64 behind_since = 0;

/* The spare beside a pair, by the settings; -1: there is none. */
static int
spare_of(const Claim *own)
{
	static bool logged = false;
	bool		is_same = snowid_spare_worker_id >= 0 &&
	snowid_spare_worker_id == own->worker_id;

	if (is_same && !logged)
		ereport(LOG,
				(errmsg("snowid has no spare worker ID"),
				 errdetail("snowid.spare_worker_id is snowid.worker_id, too.")));
	logged = is_same;
	return is_same ? -1 : snowid_spare_worker_id;
}

/* The own pair is known: is the spare to be used instead? */
static bool
is_due(const Pair *pair, bool is_open, int64 now)
{
	GeneratorProgress progress;
	int64		reach = reach_of(now);

	generator_progress(&progress);
	if ((is_open ? progress.last : pair->floor) <= reach ||
		pair->ceiling.twin_ms == 0 || last_unit_of(pair->ceiling.twin_ms) > reach)
	{
		behind_since = 0;
		return false;
	}
	if (behind_since == 0)
		behind_since = monotonic_ms();
	return !is_open || monotonic_ms() - behind_since >= BEHIND_MS;
}

/*
 * Which pair should be used now, by what is known of the pair that was looked up;
 * if nothing is, the one in use, or the server's own.
 */
void
spare_choose(const Pair *pair, const Claim *own, int64 now, bool clock_is_good,
			 Choice *choice)
{
	Claim		spare = *own;
	Claim		in_use = {0};
	bool		has_pair;
	bool		is_open = generator_gate(&has_pair, &in_use.datacenter_id, &in_use.worker_id) == GATE_OPEN;
	bool		is_known = pair->known && clock_is_good;

	spare.worker_id = spare_of(own);
	if (spare.worker_id < 0)
		choice->is_spare = false;
	else if (is_known && same_pair(&pair->claim, own))
		choice->is_spare = same_pair(&pair->twin, &spare) && is_due(pair, is_open, now);
	else if (is_known && same_pair(&pair->claim, &spare))
		choice->is_spare = same_pair(&pair->twin, own) && now <= last_unit_of(pair->ceiling.twin_ms);
	else
		choice->is_spare = is_open && same_pair(&in_use, &spare);
	choice->claim = choice->is_spare ? spare : *own;
	choice->twin = choice->is_spare ? *own : spare;
	if (spare.worker_id < 0 || choice->is_spare)
		behind_since = 0;
}

/* The ms until it is to be looked at again. */
long
spare_pause(void)
{
	return behind_since == 0 ? LONG_MAX :
		Max(behind_since + BEHIND_MS - monotonic_ms(), 1);
}

/* Raises the twin's ceiling.  False: the reason is in err. */
bool
spare_raise(Pair *pair, int64 unix_ms, char *err)
{
	return pair->ceiling.twin_ms >= unix_ms ||
		ceiling_raise_idle(&pair->twin, &pair->claim, unix_ms,
						   &pair->ceiling.twin_ms, err, GATE_DETAIL_LEN);
}

/*
 * Sees to it that the spare is this server's, while the own pair is in use;
 * "anew": others may have used it until now.  False: the reason is in err.
 */
bool
spare_take(Pair *pair, const Choice *choice, bool anew, int64 now, char *err)
{
	int64		taken_ms = unix_ms_from_units(now) + snowid_max_lead + snowid_reserve;

	if (choice->is_spare)
		return true;
	if (!same_pair(&pair->twin, &choice->twin))
	{
		pair->twin = choice->twin;
		pair->ceiling.twin_ms = 0;
	}
	if (choice->twin.worker_id < 0 || (pair->ceiling.twin_ms != 0 && !anew))
		return true;
	if (!spare_raise(pair, Min(taken_ms, layout_last_ms(&server_layout)), err))
		return false;
	ereport(LOG,
			(errmsg("snowid has worker ID %d of datacenter %d as a spare",
					choice->twin.worker_id, choice->twin.datacenter_id)));
	return true;
}

/* What the spare needs while the gate is open. */
void
spare_tend(Pair *pair, const Choice *choice, int64 now)
{
	static Claim tried = {.worker_id = -1};
	static int64 retry_at = 0;
	static char logged_detail[GATE_DETAIL_LEN];
	char		err[GATE_DETAIL_LEN];

	if (choice->is_spare)
		clock_expect(pair->ceiling.twin_ms);
	if (same_pair(&tried, &choice->twin) && monotonic_ms() < retry_at)
		return;
	tried.worker_id = -1;
	if (spare_take(pair, choice, false, now, err))
		err[0] = '\0';
	else
	{
		tried = choice->twin;
		retry_at = monotonic_ms() + RETRY_MS;
		if (strcmp(err, logged_detail) != 0 && process_may_log())
			ereport(LOG,
					(errmsg("snowid could not take its spare worker ID %d",
							choice->twin.worker_id),
					 errdetail("%s", err)));
	}
	strlcpy(logged_detail, err, sizeof(logged_detail));
	generator_set_spare(choice->is_spare ? choice->claim.worker_id :
						pair->ceiling.twin_ms != 0 ? pair->twin.worker_id : -1,
						choice->is_spare);
}
