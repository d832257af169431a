/*
 * pair.c
 *		Which pair is this server's, and where it may begin: what settings,
 *		claim, state file, origins in the WAL and layout say to it.
 *
 * Called by the snowid keeper alone, before it opens the gate.  Opens and
 * closes nothing itself: answers with the reason to keep the gate closed, or
 * with the floor above which keys may be made.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "port/atomics.h"
#include "postmaster/interrupt.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "generator/generator.h"
#include "keeper/ceiling.h"
#include "keeper/identity.h"
#include "keeper/origin.h"
#include "keeper/pair.h"
#include "keeper/statefile.h"
#include "key/layout.h"
#include "process.h"
#include "registry/claim.h"
#include "settings.h"
#include "units.h"

/* Set by snowid_accept_layout(), in shared memory. */
static pg_atomic_uint32 *accept_layout = NULL;

Size
pair_shmem_size(void)
{
	return MAXALIGN(sizeof(pg_atomic_uint32));
}

void
pair_shmem_init(void)
{
	bool		found;

	accept_layout = ShmemInitStruct("snowid pair", pair_shmem_size(), &found);
	if (!found)
		pg_atomic_init_u32(accept_layout, 0);
}

/* The administrator means the change of the layout. */
void
pair_accept_layout(void)
{
	pg_atomic_write_u32(accept_layout, 1);
	process_notify(PROCESS_KEEPER);
}

/*
 * For sessions: the layout of this server.  Throws where it is refused, by the
 * keeper, or, where that has not judged, by what the WAL knows of the last keys.
 */
const Layout *
pair_server_layout(bool first)
{
	Layout		other;

	if (!generator_require_layout() && first && origin_other_layout(&other))
		generator_refuse(GATE_LAYOUT, layout_difference(&server_layout, &other));
	return &server_layout;
}

/* The last unit of a Unix ms; -1 for what lies before the epoch. */
int64
last_unit_of(int64 unix_ms)
{
	return Max(units_from_ms(unix_ms - server_layout.epoch + 1) - 1, -1);
}

/* The furthest ahead of the clock that keys go, by the settings; a unit. */
int64
reach_of(int64 now)
{
	return now + units_from_ms((int64) snowid_max_lead + snowid_max_wait +
							   snowid_reserve);
}

/*
 * Which pair is this server's, and up to which Unix ms: by the settings, or by
 * a claim.  Returns as pair_find().
 */
GateReason
pair_wanted(Claim *wanted, int64 *limit_ms, char *err)
{
	if (claim_from_redis())
		return claim_held(wanted, limit_ms, err);
	err[0] = '\0';
	*limit_ms = PG_INT64_MAX;
	memset(wanted, 0, sizeof(*wanted));
	wanted->datacenter_id = snowid_datacenter_id;
	wanted->worker_id = snowid_worker_id;
	return snowid_worker_id < 0 ? GATE_NO_WORKER_ID : GATE_MAY_OPEN;
}

/*
 * Is the pair this directory's since long?  If not, what is known of it here
 * may be old: it begins as a pair of which nothing is known.
 */
static GateReason
settle_directory(Pair *pair, char *err)
{
	static bool warned = false;
	bool		is_copy = false;
	bool		same_terms = true;
	bool		is_new;

	if (claim_from_redis())
		is_new = !identity_remembers(&pair->claim, &same_terms);
	else
	{
		GateReason	reason = identity_load(&is_new, &is_copy, err);

		if (reason != GATE_MAY_OPEN)
			return reason;
	}
	pair->is_new = is_new || !same_terms;
	pair->waits |= is_copy || (is_new && claim_from_redis());
	if (is_copy && !warned)
	{
		ereport(WARNING,
				(errmsg("this data directory is a copy, or was restored"),
				 errdetail("Its keys are made as datacenter %d, worker %d.",
						   pair->claim.datacenter_id, pair->claim.worker_id),
				 errhint("Make sure that no other server has this worker ID.")));
		warned = true;
	}
	return GATE_MAY_OPEN;
}

/*
 * Above which Unix ms no key of the claim lies that the file remembers, which
 * makes no more: known since it was left, or from its origin, where that was
 * looked up.  False: a guess.
 */
static bool
used_before(const Ceiling *ceiling, int64 *used_ms)
{
	if (claim_used(identity_claim(), used_ms))
		return true;
	if (ceiling && ceiling->old_ms != 0)
	{
		*used_ms = ceiling->old_ms;
		return true;
	}
	*used_ms = unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_lead + snowid_reserve;
	return false;
}

/*
 * Writes the pair into the state file where it is new there; called before it
 * begins.  False: the reason is in err.
 */
bool
pair_remember(Pair *pair, char *err)
{
	int64		used_ms;
	bool		exact;

	if (!pair->is_new)
		return true;
	exact = used_before(&pair->ceiling, &used_ms);
	pair->claim.floor_ms = unix_ms_from_units(pair->floor);
	if (!identity_remember(&pair->claim, used_ms, exact, err))
		return false;
	pair->is_new = false;
	return true;
}

/*
 * The same in advance, for a server that makes no keys yet.
 */
bool
pair_remember_early(const Claim *claim, int64 now, char *err)
{
	Claim		early = *claim;
	int64		used_ms;
	bool		exact;
	bool		same_terms;
	bool		remembers = identity_remembers(claim, &same_terms);

	if (claim->ownership == 0 || (remembers && same_terms))
		return true;
	if (!remembers)
		early.floor_ms = Max(early.floor_ms,
							 unix_ms_from_units(now + units_from_ms(snowid_max_lead)));
	exact = used_before(NULL, &used_ms);
	return identity_remember(&early, used_ms, exact, err);
}

/* Takes the claim out of the file; behind a closed gate. */
bool
pair_forget(char *err)
{
	const Claim *claim = identity_claim();
	Ceiling		ceiling;
	int64		used_ms;
	bool		exact;

	if (claim->ownership == 0)
		return identity_remember(NULL, 0, false, err);
	memset(&ceiling, 0, sizeof(ceiling));
	if (!claim_used(claim, &used_ms) && !RecoveryInProgress() && !ShutdownRequestPending &&
		!ceiling_find(claim, claim, NULL, PG_INT64_MAX, &ceiling, err, GATE_DETAIL_LEN))
		return false;
	exact = used_before(&ceiling, &used_ms);
	return identity_remember(NULL, used_ms, exact, err);
}

/*
 * May this layout be used?  Yes where it made the last keys, by what the WAL
 * says; where no other made any and it lasts; or where it lasts, every new key
 * is greater than every old one, and the change was consented to.
 */
static GateReason
settle_layout(Pair *pair, int64 now, char *err)
{
	static bool warned = false;
	const Ceiling *ceiling = &pair->ceiling;
	int64		now_ms = unix_ms_from_timestamptz(GetCurrentTimestamp());
	bool		made_last;
	char		ours[LAYOUT_TEXT_LEN];

	/* a ceiling that lies far ahead says nothing about who came last */
	made_last = ceiling->others_ms > ceiling->other_layout_ms ||
		(ceiling->own_ms > ceiling->other_layout_ms &&
		 last_unit_of(ceiling->own_ms) <= reach_of(now));

	layout_describe(&server_layout, ours);
	if (now_ms < server_layout.epoch)
	{
		err[0] = '\0';
		return GATE_BEFORE_EPOCH;
	}
	if (layout_ends_soon(&server_layout, now_ms))
	{
		const char *end = timestamptz_to_str(timestamptz_from_unix_ms(layout_last_ms(&server_layout)));

		/* of a range that ended long ago, units of now may not be had */
		if (!made_last || now < 0)
		{
			snprintf(err, GATE_DETAIL_LEN,
					 "The timestamp's range of \"%s\" ends at %s, in less than ten years.",
					 ours, end);
			return GATE_LAYOUT;
		}
		if (!warned)
			ereport(WARNING,
					(errmsg("the timestamp's range of the snowid layout ends at %s",
							end)));
		warned = true;
	}
	if (!made_last && ceiling->other_layout_ms != 0)
	{
		int64		used_ms = Max(now_ms + snowid_max_lead + snowid_reserve,
								  ceiling->other_layout_ms);
		bool		above = layout_key_at(&server_layout, now_ms, false) >
		layout_key_at(&ceiling->other_layout, used_ms, true);

		snprintf(err, GATE_DETAIL_LEN, "%s%s",
				 layout_difference(&server_layout, &ceiling->other_layout),
				 above ? "" : " New keys would not be above the old ones.");
		if (!above || pg_atomic_read_u32(accept_layout) == 0)
			return above ? GATE_LAYOUT_CONSENT : GATE_LAYOUT;

		/*
		 * What this layout made in former times lies below; and from here on
		 * its ceiling is the greater one, as far as that is within reach.
		 */
		pair->floor = Max(pair->floor, now);
		pair->floor = Max(pair->floor,
						  Min(last_unit_of(ceiling->other_layout_ms),
							  now + units_from_ms((int64) snowid_max_lead + snowid_reserve)));
	}
	return GATE_MAY_OPEN;
}

/*
 * When a pair that others may have used may begin: they did so until it was
 * found, up to max_lead ahead of the clock.  By setting and clock as they are
 * now, both of which may be corrected while it waits: a clock that is set ahead
 * does not shorten the wait, nor does one that is set back; and where that is by
 * more than it has waited, what was found out by that clock is void.
 */
void
pair_settle_opening(Pair *pair, int64 now)
{
	int64		waited = units_from_ms(monotonic_ms() - pair->found_mono);

	pair->opens_at = PG_INT64_MIN;
	if (!pair->waits)
		return;
	if (now < pair->found_at)
		pair->known = false;
	pair->found_at = Max(pair->found_at, now - waited);
	pair->opens_at = pair->found_at + units_from_ms(snowid_max_lead);
}

/* The gate was opened with it: what was for this opening only is done with. */
void
pair_opened(Pair *pair)
{
	pair->found = false;
	pg_atomic_write_u32(accept_layout, 0);
}

/*
 * Finds out where the pair of a claim may begin, and what its twin's ceiling
 * is.  Returns why the gate must be closed, with the detail in err, or
 * GATE_MAY_OPEN.
 */
GateReason
pair_find(Pair *pair, const Claim *wanted, const Claim *twin, int64 now, char *err)
{
	GateReason	reason;
	const Claim *old = identity_claim();

	pair->known = false;
	if (!pair->found || !same_pair(&pair->claim, wanted) ||
		pair->claim.ownership != wanted->ownership || now < pair->found_at)
	{
		pair->looked_up = false;
		pair->found_at = now;
		pair->found_mono = monotonic_ms();
	}
	if (!same_pair(&pair->twin, twin))
		pair->looked_up = false;
	pair->claim = *wanted;
	pair->twin = *twin;
	pair->found = true;
	if (!statefile_lock(err, GATE_DETAIL_LEN))
		return GATE_FILE;
	if (!pair->looked_up)
	{
		if (!ceiling_find(wanted, old->ownership != 0 ? old : NULL,
						  twin->worker_id >= 0 ? twin : NULL,
						  unix_ms_from_units(reach_of(now)), &pair->ceiling,
						  err, GATE_DETAIL_LEN))
			return GATE_CEILING;
		pair->looked_up = true;
	}

	/* Keys of this server's other pairs are below, as far as within reach. */
	pair->waits = pair->ceiling.own_ms == 0;
	pair->floor = Max(last_unit_of(pair->ceiling.own_ms),
					  last_unit_of(pair->ceiling.others_ms));
	pair->floor = Max(pair->floor, last_unit_of(wanted->floor_ms));

	reason = settle_layout(pair, now, err);
	if (reason == GATE_MAY_OPEN)
		reason = settle_directory(pair, err);
	pair_settle_opening(pair, now);
	pair->known = reason == GATE_MAY_OPEN;
	return reason;
}
