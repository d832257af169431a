/*
 * pair.c
 *		The pair that this server should have: the facts about it from settings,
 *		claim, state file, layout, and origins in the WAL; the steps before its
 *		first key; and leaving a claimed worker ID for another one.
 *
 * For the snowid keeper alone.  It observes and acts; opening.c decides.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "generator/wait.h"
#include "keeper/identity.h"
#include "keeper/origin.h"
#include "keeper/pair.h"
#include "key/layout.h"
#include "registry/claim.h"
#include "settings.h"
#include "units.h"

/* The last texts of source, file and look-up, by OpeningDetail. */
static char said[DETAIL_LOOK_UP + 1][GATE_DETAIL_LEN];

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
	const Claim *remembered = &identity->claim;

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
 * The claim that the settings or Redis grant, and up to which Unix ms.  Returns
 * GATE_MAY_OPEN, or the reason why there is none.
 */
static GateReason
wanted_claim(Claim *wanted, int64 *limit_ms, char *err)
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

/* Warns once if the layout's range ends soon, although the last keys have it. */
static void
warn_of_end(void)
{
	static bool warned = false;

	if (!warned && layout_ends_soon(&server_layout, unix_ms_from_timestamptz(GetCurrentTimestamp())))
	{
		ereport(WARNING,
				(errmsg("the timestamp's range of the snowid layout ends at %s",
						timestamptz_to_str(timestamptz_from_unix_ms(layout_last_ms(&server_layout))))));
		warned = true;
	}
}

/*
 * The steps before the first key.  Returns GATE_MAY_OPEN if they are done, or the
 * result of origin_ask(), or GATE_FILE.
 *
 * The other layouts are left, with consent, just before the first key of the new
 * one.  The ceiling comes first: from then on every layout's new keys must be above
 * those of all that are left here, this one's or a former one's that comes back.
 * So their ceilings are not needed any more.
 */
GateReason
pair_begin(Pair *pair, const Decision *decision, char *err)
{
	GateReason	reason = GATE_MAY_OPEN;

	warn_of_end();
	if (decision->leave_layouts)
		reason = identity_forget_ceilings(err);
	if (reason == GATE_MAY_OPEN && decision->remember)
		reason = identity_remember(&pair->claim, decision->floor_ms, pair->ceiling.old_ms, err);
	if (reason != GATE_MAY_OPEN || !decision->leave_layouts)
		return reason;
	ceiling_raise(&pair->ceiling, decision->floor_ms);
	pair->ceiling.own_ms = decision->floor_ms;
	return ceiling_leave_layouts(&pair->claim, err);
}

/*---- Leaving a claimed worker ID for another one ----
 *
 * When the clock was set back so far behind a claimed ID's keys that every caller would
 * be refused, the registry is asked for another ID, with which the gate is opened as with
 * any other.  The one that is left keeps its ceiling: in the WAL, in the registry, and
 * among the past claims.
 *
 * The clock must have been behind for a while: longer, the more IDs were left that are
 * still ahead of it.  So a clock that goes back and forth does not use up the registry,
 * over restarts, too.  After snowid_advance() keys wait: an ID is not left as long as the
 * clock is that far behind.
 */

/*
 * The clock is behind for so long before a second ID is left; twice as long with
 * each further one.
 */
#define SECOND_MS (10 * 1000)

/* The last claim that the clock was behind; no ownership: it is not any more. */
static Claim left;
static int64 left_ms;			/* where its keys end */
static int64 behind_since;		/* by monotonic_ms() */

/* Notes the decision about this claim, and publishes it for registry and callers. */
void
pair_note(const Claim *claim, const Decision *decision)
{
	bool		is_over = decision->is_known && !decision->behind;
	bool		has_moved = is_over && left.ownership != 0 && left.ownership != claim->ownership;

	generator_note_move(decision->may_move, has_moved);
	claim_unwanted(decision->unwanted ? claim->ownership : 0, decision->end_ms);
	if (has_moved)
		ereport(LOG,
				(errmsg("snowid left worker ID %d of datacenter %d, whose keys are ahead of the clock",
						left.worker_id, left.datacenter_id),
				 errdetail("They end at %s; new keys are below them until then.",
						   timestamptz_to_str(timestamptz_from_unix_ms(left_ms)))));
	if (is_over)
		left.ownership = 0;
	else if (decision->behind)
	{
		if (left.ownership == 0)
			behind_since = monotonic_ms();
		left = *claim;
		left_ms = decision->end_ms;
	}
}

/* Says in err where the keys end, and why there is no other ID yet. */
static void
describe_move(const Claim *claim, const Decision *decision, int64 patience_ms, char *err)
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

/*---- Observing ----*/

/*
 * Finds the ceilings of the wanted claim's pair, or looks whether they have come.
 * If it is another claim, or the clock was set back, it was found just now.
 */
void
pair_look_up(Pair *pair, const Claim *wanted, const Facts *facts)
{
	GateReason	reason;

	if (facts->stage == PAIR_NONE || facts->now_ms < facts->found_ms)
	{
		pair->found_ms = facts->now_ms;
		pair->found_mono = monotonic_ms();
	}
	pair->claim = *wanted;
	pair->stage = PAIR_FOUND;	/* in case it throws */
	reason = ceiling_find(wanted, facts->reach_ms, &pair->ceiling, said[DETAIL_LOOK_UP]);
	pair->stage = reason == GATE_MAY_OPEN ? PAIR_KNOWN :
		reason == GATE_STARTING ? PAIR_ASKED : PAIR_FAILED;
}

static LayoutRange
range_of(int64 now, int64 now_ms)
{
	if (now_ms < server_layout.epoch)
		return RANGE_BEFORE_EPOCH;
	if (!layout_ends_soon(&server_layout, now_ms))
		return RANGE_GOOD;
	/* if the range ended long ago, the present time may have no unit */
	return now < 0 ? RANGE_OVER : RANGE_ENDS_SOON;
}

/* Would new keys be above all of the other layouts? */
static bool
is_above(const Ceiling *ceiling, int64 now_ms)
{
	int64		used_ms = Max(now_ms + snowid_max_lead + RESERVE_MS, ceiling->other_layout_ms);

	return layout_key_at(&server_layout, now_ms, false) >
		Max(layout_key_at(&ceiling->other_layout, used_ms, true), ceiling->other_layout_key);
}

/*
 * Facts from the state file: about its claim, the wanted pair's ceiling, and the IDs
 * that were left and are still ahead of the clock.
 */
static void
observe_file(const Claim *wanted, Facts *facts)
{
	const Claim *claim = &identity->claim;
	int			ahead = 0;
	Registry	seen;

	claim_look(&seen);
	facts->remembers = claim->ownership == wanted->ownership;
	facts->same_terms = claim->lease_ms == wanted->lease_ms && identity->home == claim_home() &&
		identity->span_ms >= seen.span_ms;
	if (claim->ownership != 0 && same_pair(claim, wanted))
		facts->known_ms = identity->ceiling_ms;
	for (int i = 0; i < PAST_CLAIMS; i++)
	{
		const Claim *past = &identity->past[i];

		if (same_pair(past, wanted))
			facts->known_ms = Max(facts->known_ms, past->floor_ms);
		if (past->ownership != 0 && past->floor_ms > facts->reach_ms)
			ahead++;
	}
	facts->advanced_ms = identity->advanced_ms;
	facts->furthest_ms = facts->now_ms + snowid_max_jump;
	facts->behind_ms = left.ownership == 0 ? 0 : monotonic_ms() - behind_since;
	facts->patience_ms = ahead == 0 ? BEHIND_MS : SECOND_MS << (ahead - 1);
}

/* Facts about the gate, and the claim that it was opened with last. */
static void
observe_gate(const Claim *wanted, Facts *facts)
{
	const Gate *gate = generator_gate();

	facts->is_open = gate->reason == GATE_OPEN;
	facts->other_pair = gate->has_pair && (gate->datacenter_id != wanted->datacenter_id ||
										   gate->worker_id != wanted->worker_id);
	facts->is_ours = gate->has_pair && !facts->other_pair && claim_entered() == wanted->ownership;
	facts->consent = gate->accepts_layout;
	facts->last_ms = unix_ms_from_units(generator_last());
}

/* Facts about the wanted claim, if it is the pair's. */
static void
observe_pair(const Pair *pair, int64 now, Facts *facts)
{
	const Ceiling *ceiling = &pair->ceiling;
	int64		now_ms = unix_ms_from_timestamptz(GetCurrentTimestamp());

	facts->stage = pair->stage;
	facts->found_ms = pair->found_ms;
	facts->waited_ms = monotonic_ms() - pair->found_mono;
	facts->own_ms = ceiling->own_ms;
	facts->others_ms = ceiling->others_ms;
	facts->other_layout_ms = ceiling->other_layout_ms;
	facts->is_above = ceiling->other_layout_ms != 0 && is_above(ceiling, now_ms);
	facts->range = range_of(now, now_ms);
}

/*
 * Gathers the facts, as far as they count.  The claim that is wanted is valid if
 * the facts have no reason against it.
 */
void
pair_observe(Pair *pair, int64 now, bool believed, Claim *wanted, Facts *facts)
{
	int64		limit_ms;

	memset(facts, 0, sizeof(*facts));
	memset(wanted, 0, sizeof(*wanted));
	facts->from_registry = claim_from_redis();
	facts->recovery = RecoveryInProgress();
	facts->believed = believed;
	facts->now_ms = unix_ms_from_units(now);
	facts->reach_ms = unix_ms_from_units(generator_reach(now));
	facts->max_lead_ms = snowid_max_lead;
	facts->file = identity_load(said[DETAIL_FILE]);
	facts->left_source = identity->claim.ownership != 0 &&
		(identity->claim.generation != 0) != facts->from_registry;
	facts->source = wanted_claim(wanted, &limit_ms, said[DETAIL_SOURCE]);
	/* a claim that was lost leaves the file before that */
	if (facts->file == GATE_MAY_OPEN && facts->from_registry && !facts->left_source &&
		facts->source != GATE_CLAIM_LOST)
		facts->file = identity_introduce(said[DETAIL_FILE]);
	facts->claim_floor_ms = wanted->floor_ms;
	observe_file(wanted, facts);
	observe_gate(wanted, facts);
	if (facts->source == GATE_MAY_OPEN)
		pair->limit = limit_ms == PG_INT64_MAX ? PG_INT64_MAX : last_unit_of(limit_ms);
	else if (!facts->is_open)
		pair->stage = PAIR_NONE;	/* another server may use it meanwhile */
	if (same_pair(&pair->claim, wanted) && pair->claim.ownership == wanted->ownership)
		observe_pair(pair, now, facts);
}

/*---- Texts ----*/

/* Writes the detail of a decision. */
void
pair_explain(const Pair *pair, const Claim *wanted, const Facts *facts,
			 const Decision *decision, char *err)
{
	char		layout[LAYOUT_TEXT_LEN];

	err[0] = '\0';
	switch (decision->detail)
	{
		case DETAIL_NONE:
			break;
		case DETAIL_SOURCE:
		case DETAIL_FILE:
		case DETAIL_LOOK_UP:
			strlcpy(err, said[decision->detail], GATE_DETAIL_LEN);
			break;
		case DETAIL_CLOCK:
			strlcpy(err, "The clock jumped ahead by more than snowid.max_jump; if it is right, call snowid_accept_clock().",
					GATE_DETAIL_LEN);
			break;
		case DETAIL_RANGE:
			layout_describe(&server_layout, layout);
			snprintf(err, GATE_DETAIL_LEN,
					 "The timestamp's range of \"%s\" ends at %s, in less than ten years.", layout,
					 timestamptz_to_str(timestamptz_from_unix_ms(layout_last_ms(&server_layout))));
			break;
		case DETAIL_LAYOUT:
			snprintf(err, GATE_DETAIL_LEN, "%s%s",
					 layout_difference(&server_layout, &pair->ceiling.other_layout),
					 facts->is_above ? "" : " New keys would not be above the old ones.");
			break;
		case DETAIL_WAIT:
			/* in whole seconds, since a slewed clock moves it */
			snprintf(err, GATE_DETAIL_LEN, "A pair that is new to this server can be used when the clock has passed %s.",
					 timestamptz_to_str(timestamptz_from_unix_ms(decision->opens_ms / 1000 * 1000 + 1000)));
			break;
		case DETAIL_BEHIND:
			describe_move(wanted, decision, facts->patience_ms, err);
			break;
	}
}
