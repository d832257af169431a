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
 *
 * It comes from the settings, or is a claim of its own.  Then it is used only if
 * its state file has it, and the ceiling comes first.
 */
#include "postgres.h"

#include <limits.h>

#include "access/xlog.h"
#include "postmaster/interrupt.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/ceiling.h"
#include "keeper/clock.h"
#include "keeper/identity.h"
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

/* Says once why there is no spare; "": there is one, or is to be none. */
static void
log_none(const char *detail)
{
	static char logged[GATE_DETAIL_LEN];

	if (detail[0] && strcmp(detail, logged) != 0 && process_may_log())
		ereport(LOG, (errmsg("snowid has no spare worker ID"), errdetail("%s", detail)));
	strlcpy(logged, detail, sizeof(logged));
}

/*
 * The spare beside a pair, by the settings or by a claim (no worker ID, -1:
 * none), and the Unix ms up to which it may be used.  GATE_CLAIM_LOST: the claim
 * must not be used any more, and spare_forget() is to be called.
 */
GateReason
spare_wanted(const Claim *own, Claim *spare, int64 *limit_ms, char *err)
{
	GateReason	reason = GATE_MAY_OPEN;

	*spare = *own;
	*limit_ms = PG_INT64_MAX;
	err[0] = '\0';
	if (!claim_from_redis())
	{
		spare->worker_id = snowid_spare_worker_id;
		if (spare->worker_id >= 0 && spare->worker_id == own->worker_id)
		{
			spare->worker_id = -1;
			strlcpy(err, "snowid.spare_worker_id is snowid.worker_id, too.", GATE_DETAIL_LEN);
		}
	}
	else if (!snowid_redis_spare)
		spare->worker_id = -1;
	else
	{
		reason = identity_introduce(ROLE_SPARE, err);
		if (reason == GATE_MAY_OPEN)
			reason = claim_held(ROLE_SPARE, spare, limit_ms, err);
		if (reason != GATE_MAY_OPEN && reason != GATE_CLAIM_LOST)
			spare->worker_id = -1;
		else if (identity_claim(ROLE_SPARE)->ownership == spare->ownership)
			spare->floor_ms = Max(spare->floor_ms, identity_claim(ROLE_SPARE)->floor_ms);
		/* Redis forgot one of them, and one will be lost */
		if (reason == GATE_MAY_OPEN && same_pair(spare, own))
		{
			spare->worker_id = -1;
			strlcpy(err, "It was claimed twice.", GATE_DETAIL_LEN);
		}
	}
	log_none(err);
	return reason;
}

/* Is it in its state file? */
static bool
is_remembered(const Claim *spare)
{
	bool		same_terms;

	return spare->ownership == 0 || identity_remembers(ROLE_SPARE, spare, &same_terms);
}

/* The own pair is known: is the spare to be used instead? */
static bool
is_due(const Pair *pair, bool is_open, int64 now)
{
	GeneratorProgress progress;
	int64		reach = reach_of(now);

	generator_progress(&progress);
	if ((is_open ? progress.last : pair->floor) <= reach ||
		pair->ceiling.twin_ms == 0 || !is_remembered(&pair->twin) ||
		last_unit_of(Max(pair->ceiling.twin_ms, pair->twin.floor_ms)) > reach)
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
spare_choose(const Pair *pair, const Claim *own, const Claim *spare, int64 now,
			 bool clock_is_good, Choice *choice)
{
	Claim		in_use = {0};
	bool		has_pair;
	bool		is_open = generator_gate(&has_pair, &in_use.datacenter_id, &in_use.worker_id) == GATE_OPEN;
	bool		is_known = pair->known && clock_is_good;

	if (spare->worker_id < 0)
		choice->is_spare = false;
	else if (is_known && same_pair(&pair->claim, own))
		choice->is_spare = same_pair(&pair->twin, spare) && is_due(pair, is_open, now);
	else if (is_known && same_pair(&pair->claim, spare))
		choice->is_spare = same_pair(&pair->twin, own) && now <= last_unit_of(pair->ceiling.twin_ms);
	else
		choice->is_spare = is_open && same_pair(&in_use, spare);
	choice->claim = choice->is_spare ? *spare : *own;
	choice->twin = choice->is_spare ? *own : *spare;
	if (spare->worker_id < 0 || choice->is_spare)
		behind_since = 0;
}

/* The ms until it is to be looked at again. */
long
spare_pause(void)
{
	return behind_since == 0 ? LONG_MAX : ms_until(behind_since + BEHIND_MS);
}

/* The Unix ms up to which others may have used a spare that is taken now. */
static int64
taken_ms(const Pair *pair, int64 now)
{
	int64		unix_ms = unix_ms_from_units(now) + snowid_max_lead + RESERVE_MS;

	return Min(Max(unix_ms, pair->twin.floor_ms), layout_last_ms(&server_layout));
}

/*
 * Raises the twin's ceiling.  One that had none is taken by that.  False: the
 * reason is in err.
 */
bool
spare_raise(Pair *pair, int64 unix_ms, int64 now, char *err)
{
	if (pair->ceiling.twin_ms == 0)
		unix_ms = Max(unix_ms, taken_ms(pair, now));
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
	if (choice->is_spare)
		return true;
	if (!same_pair(&pair->twin, &choice->twin))
		pair->ceiling.twin_ms = 0;
	pair->twin = choice->twin;
	if (pair->twin.worker_id < 0)
		return true;
	/* a claim from before this start may have its ceiling already */
	if (pair->twin.ownership != 0 && pair->ceiling.twin_ms == 0 && !anew &&
		!ceiling_raise_idle(&pair->twin, &pair->claim, 0, &pair->ceiling.twin_ms, err, GATE_DETAIL_LEN))
		return false;
	if (pair->ceiling.twin_ms != 0 && !anew)
		return true;
	if (!spare_raise(pair, taken_ms(pair, now), now, err))
		return false;
	ereport(LOG,
			(errmsg("snowid has worker ID %d of datacenter %d as a spare",
					choice->twin.worker_id, choice->twin.datacenter_id)));
	return true;
}

/*
 * The Unix ms above which the claim in the spare's state file, which is not in
 * use, has no key.  False: it cannot be found out now; the reason is in err.
 */
static bool
used_before(const Pair *pair, int64 *used_ms, bool *exact, char *err)
{
	const Claim *claim = identity_claim(ROLE_SPARE);

	*exact = true;
	if (claim->ownership == 0 || claim_used(claim, used_ms))
		return true;
	*used_ms = pair->ceiling.twin_ms;
	if (same_pair(&pair->twin, claim) && *used_ms != 0)
		return true;
	if (!RecoveryInProgress() && !ShutdownRequestPending)
	{
		if (!ceiling_raise_idle(claim, &pair->claim, 0, used_ms, err, GATE_DETAIL_LEN))
			return false;
		if (*used_ms != 0)
			return true;
	}
	*exact = false;
	*used_ms = pair_guess_used();
	return true;
}

/* Writes the spare's claim into its state file, after its ceiling. */
static bool
remember(const Pair *pair, char *err)
{
	Claim		claim = pair->twin;
	int64		used_ms = 0;
	bool		exact;

	if (is_remembered(&claim))
		return true;
	claim.floor_ms = pair->ceiling.twin_ms;
	return used_before(pair, &used_ms, &exact, err) &&
		identity_remember(ROLE_SPARE, &claim, used_ms, exact, err);
}

/* Removes the spare's claim from its state file; the gate is not open with it. */
bool
spare_forget(const Pair *pair, char *err)
{
	int64		used_ms = 0;
	bool		exact;

	return identity_introduce(ROLE_SPARE, err) == GATE_MAY_OPEN &&
		used_before(pair, &used_ms, &exact, err) &&
		identity_remember(ROLE_SPARE, NULL, used_ms, exact, err);
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
	if (spare_take(pair, choice, !is_remembered(&choice->twin), now, err) &&
		(choice->is_spare || choice->twin.worker_id < 0 || remember(pair, err)))
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
						pair->ceiling.twin_ms != 0 && is_remembered(&pair->twin) ? pair->twin.worker_id : -1,
						choice->is_spare);
}
