/*
 * pair.c
 *		Which pair this server has, and where its keys may begin: by settings,
 *		claim, state file, layout, and origins in the WAL.
 *
 * Only the snowid keeper calls it, before it opens the gate.  The answer is a
 * reason to keep the gate closed, or the floor above which keys may be made.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "port/atomics.h"
#include "postmaster/interrupt.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "generator/wait.h"
#include "keeper/ceiling.h"
#include "keeper/identity.h"
#include "keeper/origin.h"
#include "keeper/pair.h"
#include "keeper/statefile.h"
#include "key/layout_text.h"
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

/* The administrator consents to the change of the layout. */
void
pair_accept_layout(void)
{
	pg_atomic_write_u32(accept_layout, 1);
	process_notify(PROCESS_KEEPER);
}

/*
 * For sessions: the layout of this server.  Throws if the keeper refuses it, or,
 * if the keeper has not decided yet, if the WAL says that the last keys have
 * another one.
 */
const Layout *
pair_server_layout(bool first)
{
	Layout		other;

	if (!generator_require_layout() && first && origin_other_layout(&other))
		generator_refuse(GATE_LAYOUT, layout_difference(&server_layout, &other));
	return &server_layout;
}

/* The last unit of a Unix ms; -1 before the epoch. */
int64
last_unit_of(int64 unix_ms)
{
	return Max(units_from_ms(unix_ms - server_layout.epoch + 1) - 1, -1);
}

/*
 * The claim that the settings grant: the one in the state file if that has this
 * pair, else a new one.
 */
static void
claim_by_settings(Claim *wanted)
{
	static Claim fresh = {0};
	const Claim *remembered = identity_claim();

	if (fresh.ownership == 0 || fresh.datacenter_id != snowid_datacenter_id ||
		fresh.worker_id != snowid_worker_id)
	{
		fresh.ownership = random_id();
		fresh.datacenter_id = snowid_datacenter_id;
		fresh.worker_id = snowid_worker_id;
	}
	*wanted = remembered->ownership != 0 && same_pair(remembered, &fresh) ? *remembered : fresh;
	wanted->floor_ms = 0;		/* the ceilings say more */
}

/*
 * The claim that the settings or Redis grant, and the Unix ms up to which.
 * Returns what pair_find() does.
 */
GateReason
pair_wanted(Claim *wanted, int64 *limit_ms, char *err)
{
	if (claim_from_redis())
		return claim_held(wanted, limit_ms, err);
	err[0] = '\0';
	if (snowid_worker_from_host && snowid_worker_id < 0)
		snprintf(err, GATE_DETAIL_LEN, "The host name \"%s\" does not end in a number.",
				 snowid_host_name);
	*limit_ms = PG_INT64_MAX;
	if (snowid_worker_id < 0)
		return GATE_NO_WORKER_ID;
	claim_by_settings(wanted);
	return GATE_MAY_OPEN;
}

/*
 * Did this server make its last keys with this claim?  If not, or if nothing is
 * known of its keys, others may have used the pair until now.  A position that
 * vanished from the origins is the state file's, unless another layout's.
 */
static void
settle_claim(Pair *pair)
{
	bool		same_terms;
	bool		remembers = identity_remembers(&pair->claim, &same_terms);

	pair->is_new = !remembers || !same_terms;
	pair->waits = !remembers || pair->ceiling.own_ms == 0;
	if (!pair->new_layout)
		pair->floor = Max(pair->floor, last_unit_of(identity_known_ms(&pair->claim)));
}

/*
 * The Unix ms above which the claim in the state file, which is out of use, has
 * no key.  Known from when it was left, or from its origin if that was looked
 * up.  False: a guess.
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
	*used_ms = unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_lead + RESERVE_MS;
	return false;
}

/*
 * Writes the pair into the state file if it is new there; must come before its
 * first key.  False: the reason is in err.
 */
bool
pair_remember(Pair *pair, char *err)
{
	static bool warned = false;
	int64		used_ms;
	bool		exact;

	if (pair->new_layout && !identity_forget_ceilings(err))
		return false;
	if (!pair->is_new)
		return true;
	if (identity_was_copied() && !claim_from_redis() && !warned)
	{
		ereport(WARNING,
				(errmsg("this data directory is a copy, or was restored"),
				 errdetail("Its keys are made as datacenter %d, worker %d.",
						   pair->claim.datacenter_id, pair->claim.worker_id),
				 errhint("Make sure that no other server has this worker ID.")));
		warned = true;
	}
	exact = used_before(&pair->ceiling, &used_ms);
	pair->claim.floor_ms = unix_ms_from_units(pair->floor);
	if (!identity_remember(&pair->claim, used_ms, exact, err))
		return false;
	pair->is_new = false;
	return true;
}

/* The claim in the state file; NULL: there is none. */
static const Claim *
old_claim(void)
{
	const Claim *claim = identity_claim();

	return claim->ownership != 0 ? claim : NULL;
}

/* What is to be told of a question to "snowid origin"; GATE_STARTING: wait for it. */
static GateReason
reason_of(OriginAnswer result)
{
	return result == ORIGIN_ANSWERED ? GATE_MAY_OPEN :
		result == ORIGIN_PENDING ? GATE_STARTING : GATE_CEILING;
}

/*
 * Removes the claim from the state file; the gate is closed.  Returns what
 * pair_find() does.
 */
GateReason
pair_forget(char *err)
{
	const Claim *claim = identity_claim();
	Ceiling		ceiling;
	int64		used_ms = 0;
	bool		exact = false;

	if (claim->ownership != 0)
	{
		memset(&ceiling, 0, sizeof(ceiling));
		if (!claim_used(claim, &used_ms) && !RecoveryInProgress() && !ShutdownRequestPending)
		{
			GateReason	reason = reason_of(ceiling_find(claim, claim, PG_INT64_MAX, &ceiling,
														err, GATE_DETAIL_LEN));

			if (reason != GATE_MAY_OPEN)
				return reason;
		}
		exact = used_before(&ceiling, &used_ms);
	}
	return identity_remember(NULL, used_ms, exact, err) ? GATE_MAY_OPEN : GATE_FILE;
}

/*
 * Gives up a claim that another source granted than the present one, before
 * anything else: it is never resumed.  Returns what pair_find() does.
 */
GateReason
pair_leave_source(char *err)
{
	return identity_changed_source() ? pair_forget(err) : GATE_MAY_OPEN;
}

/* What pair_remember() does, in advance, on a standby. */
bool
pair_remember_early(const Claim *claim, int64 now, char *err)
{
	Claim		early = *claim;
	int64		used_ms;
	bool		exact;
	bool		same_terms;
	bool		remembers;

	if (!claim_from_redis())
		return true;
	remembers = identity_remembers(claim, &same_terms);
	if (remembers && same_terms)
		return true;
	if (!remembers)
		early.floor_ms = Max(early.floor_ms,
							 unix_ms_from_units(now + units_from_ms(snowid_max_lead)));
	exact = used_before(NULL, &used_ms);
	return identity_remember(&early, used_ms, exact, err);
}

/*
 * May this layout be used?  Yes, if the last keys in the WAL have it.  If there
 * are none, its range must not end soon.  If they have another layout, every new
 * key must also be greater than every old one, and an administrator must have
 * consented.
 */
static GateReason
settle_layout(Pair *pair, int64 now, char *err)
{
	static bool warned = false;
	const Ceiling *ceiling = &pair->ceiling;
	int64		now_ms = unix_ms_from_timestamptz(GetCurrentTimestamp());
	bool		made_last;
	char		ours[LAYOUT_TEXT_LEN];

	pair->new_layout = false;
	/* a ceiling that is far ahead does not tell which layout came last */
	made_last = ceiling->others_ms > ceiling->other_layout_ms ||
		(ceiling->own_ms > ceiling->other_layout_ms &&
		 last_unit_of(ceiling->own_ms) <= generator_reach(now));

	layout_describe(&server_layout, ours);
	if (now_ms < server_layout.epoch)
	{
		err[0] = '\0';
		return GATE_BEFORE_EPOCH;
	}
	if (layout_ends_soon(&server_layout, now_ms))
	{
		const char *end = timestamptz_to_str(timestamptz_from_unix_ms(layout_last_ms(&server_layout)));

		/* if the range ended long ago, the present time may have no unit */
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
		int64		used_ms = Max(now_ms + snowid_max_lead + RESERVE_MS,
								  ceiling->other_layout_ms);
		bool		above = layout_key_at(&server_layout, now_ms, false) >
		Max(layout_key_at(&ceiling->other_layout, used_ms, true), ceiling->other_layout_key);

		snprintf(err, GATE_DETAIL_LEN, "%s%s",
				 layout_difference(&server_layout, &ceiling->other_layout),
				 above ? "" : " New keys would not be above the old ones.");
		if (!above || pg_atomic_read_u32(accept_layout) == 0)
			return above ? GATE_LAYOUT_CONSENT : GATE_LAYOUT;

		/* so older keys of this layout are below the floor, too */
		pair->floor = Max(pair->floor, last_unit_of(now_ms));
		pair->new_layout = true;
	}
	return GATE_MAY_OPEN;
}

/*
 * Decides when the pair may begin, if others may have used it: they did so until
 * found_at, up to max_lead ahead of the clock.  Called again while the pair
 * waits, since both the setting and the clock may change.  Setting the clock,
 * ahead or back, does not shorten the wait.  If it is set back by more than the
 * pair has waited, everything found by the old clock is void.
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

/*
 * Records the consent to a new layout, just before its first key.  The ceiling
 * comes first: from then on every layout's new keys must be above those of all
 * that are left here, this one's or a former one's that comes back.  So their
 * ceilings are not needed any more.  Returns what pair_find() does; until then
 * the consent still holds.
 */
GateReason
pair_leave_layouts(Pair *pair, char *err)
{
	GateReason	reason;

	if (!pair->new_layout)
		return GATE_MAY_OPEN;
	ceiling_raise(&pair->ceiling, unix_ms_from_units(pair->floor));
	reason = reason_of(ceiling_leave_layouts(&pair->claim, old_claim(), err, GATE_DETAIL_LEN));
	pair->new_layout = reason != GATE_MAY_OPEN;
	return reason;
}

/* The gate was opened with the pair: clears what was for this opening only. */
void
pair_opened(Pair *pair)
{
	pair->found = false;
	pg_atomic_write_u32(accept_layout, 0);
}

/*
 * Finds out where the keys of a claim's pair may begin.  Returns why the gate
 * must stay closed, with the detail in err; GATE_STARTING, until "snowid origin"
 * has answered; or GATE_MAY_OPEN.
 */
GateReason
pair_find(Pair *pair, const Claim *wanted, int64 now, char *err)
{
	GateReason	reason;

	pair->known = false;
	if (!pair->found || !same_pair(&pair->claim, wanted) ||
		pair->claim.ownership != wanted->ownership || now < pair->found_at)
	{
		pair->looked_up = false;
		pair->found_at = now;
		pair->found_mono = monotonic_ms();
	}
	pair->claim = *wanted;
	pair->found = true;
	if (!statefile_lock(err, GATE_DETAIL_LEN))
		return GATE_FILE;
	if (!pair->looked_up)
	{
		reason = reason_of(ceiling_find(wanted, old_claim(), unix_ms_from_units(generator_reach(now)),
										&pair->ceiling, err, GATE_DETAIL_LEN));
		if (reason != GATE_MAY_OPEN)
			return reason;
		pair->looked_up = true;
	}

	/* above the keys of this server's other pairs that are within reach */
	pair->floor = Max(last_unit_of(pair->ceiling.own_ms),
					  last_unit_of(pair->ceiling.others_ms));
	pair->floor = Max(pair->floor, last_unit_of(wanted->floor_ms));
	if (claim_from_redis() && last_unit_of(identity_advanced_ms()) <= generator_reach(now))
		pair->floor = Max(pair->floor, last_unit_of(identity_advanced_ms()));

	reason = settle_layout(pair, now, err);
	settle_claim(pair);
	pair_settle_opening(pair, now);
	pair->known = reason == GATE_MAY_OPEN;
	return reason;
}
