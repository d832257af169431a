/*
 * pair.c
 *		The pair that this server should have: the facts about it from settings,
 *		claim, state file, layout, and ceilings in the WAL; and leaving a claimed
 *		worker ID for another one.
 *
 * For the snowid keeper alone.  It observes and acts; opening.c decides.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "generator/wait.h"
#include "keeper/identity.h"
#include "keeper/pair.h"
#include "key/layout.h"
#include "registry/claim.h"
#include "settings.h"
#include "units.h"

/*
 * For sessions: the layout of this server.  Throws if the keeper refuses it, or,
 * if the keeper has not decided yet, if the WAL says that the last keys have
 * another one.
 */
const Layout *
pair_server_layout(bool first)
{
	Layout		other;

	if (!generator_require_layout() && first && ceiling_other_layout(&other))
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
 * pair and was always wanted, else a new one.
 */
static void
claim_by_settings(Claim *wanted)
{
	static Claim fresh = {0};
	const Claim *remembered = &identity->claim;
	uint64		given_up = claim_given_up();
	PairId		pair = {snowid_datacenter_id, snowid_worker_id};

	if (fresh.ownership == 0 || fresh.ownership == given_up || !same_pair(fresh.pair, pair))
	{
		fresh.ownership = random_id();
		fresh.pair = pair;
	}
	*wanted = remembered->ownership != 0 && same_pair(remembered->pair, pair) ? *remembered : fresh;
	wanted->floor_ms = 0;		/* the ceilings say more */
}

/*
 * The claim that the settings or Redis grant, and up to which Unix ms.  Returns
 * NO_REASON, or the reason why there is none.
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
	return NO_REASON;
}

/*
 * The gate was opened.  Are keys of a primary before, or of a wrong clock, above?  Does the
 * layout's range end soon, although the last keys have it?
 */
void
pair_warn(const Pair *pair, int64 floor_ms)
{
	if (pair->ceiling.beyond_ms > floor_ms)
		ereport(LOG,
				(errmsg("new keys may be below keys that another worker ID made in this database"),
				 errdetail("Those end at %s, too far ahead of the clock to wait for them.",
						   timestamptz_to_str(timestamptz_from_unix_ms(pair->ceiling.beyond_ms)))));
	if (layout_ends_soon(&server_layout, unix_ms_from_timestamptz(GetCurrentTimestamp())))
		ereport(WARNING,
				(errmsg("the timestamp's range of the snowid layout ends at %s",
						timestamptz_to_str(timestamptz_from_unix_ms(layout_last_ms(&server_layout)))),
				 errhint("Plan a new layout; see doc/layouts.md in snowid's manual.")));
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

/* Notes the decision about the claim, and publishes it for registry and callers. */
void
pair_note(Pair *pair, const Decision *decision)
{
	const Claim *claim = &pair->claim;
	const Claim *left = &pair->behind;
	bool		is_over = decision->is_known && !decision->behind;
	bool		has_moved = is_over && left->ownership != 0 && left->ownership != claim->ownership;

	generator_note_move(decision->may_move, has_moved);
	claim_unwanted(decision->unwanted ? claim->ownership : 0, decision->end_ms);
	if (has_moved)
		ereport(LOG,
				(errmsg("snowid left worker ID %d of datacenter %d, whose keys are ahead of the clock",
						left->pair.worker, left->pair.datacenter),
				 errdetail("They end at %s; new keys are below them until then.",
						   timestamptz_to_str(timestamptz_from_unix_ms(pair->behind_ms)))));
	if (is_over)
		pair->behind.ownership = 0;
	else if (decision->behind)
	{
		if (left->ownership == 0)
			pair->behind_since = monotonic_ms();
		pair->behind = *claim;
		pair->behind_ms = decision->end_ms;
	}
}

/* Says in err where the keys end, and why there is no other ID yet. */
static void
describe_move(const Claim *claim, const Decision *decision, int64 patience_ms, char *err)
{
	ClaimBoard	seen;
	const char *why;
	int			len;

	claim_look(&seen);
	why = seen.confirmed ? seen.no_other : seen.detail;
	len = snprintf(err, GATE_DETAIL_LEN, "The keys of worker ID %d of datacenter %d end at %s",
				   claim->pair.worker, claim->pair.datacenter,
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

static LayoutRange
range_of(int64 now_ms)
{
	if (now_ms < server_layout.epoch)
		return RANGE_BEFORE_EPOCH;
	return layout_ends_soon(&server_layout, now_ms) ? RANGE_ENDS_SOON : RANGE_GOOD;
}

/* Would new keys be above all of the last layout? */
static bool
is_above(const Ceiling *ceiling, int64 now_ms)
{
	int64		used_ms = Max(now_ms + snowid_max_lead + RESERVE_MS, ceiling->layout_ms);

	return layout_key_at(&server_layout, now_ms, false) > layout_key_at(&ceiling->layout, used_ms, true);
}

/* Is what the file knows of this claim's keys about those of this layout? */
static bool
has_ceiling(const Claim *claim)
{
	return claim->generation != 0 || identity->layout == ceiling_layout();
}

/*
 * Facts from the state file, which was read: about its claim, the wanted pair's ceiling,
 * and the IDs that were left and are still ahead of the clock.
 */
static void
observe_file(const Pair *pair, const Claim *wanted, Facts *facts)
{
	const Claim *claim = &identity->claim;
	bool		is_other;
	int			ahead = 0;

	/* while the registry has not answered, nothing else is wanted */
	is_other = claim->ownership == claim_given_up() ||
		(claim->generation != 0) != facts->from_registry ||
		((facts->source == NO_REASON || !facts->from_registry) &&
		 claim->ownership != wanted->ownership);
	facts->file = claim->ownership == 0 ? FILE_WITHOUT_CLAIM :
		is_other ? FILE_OTHER_CLAIM : FILE_WANTED_CLAIM;
	if (claim->ownership != 0 && same_pair(claim->pair, wanted->pair) && has_ceiling(claim))
		facts->known_ms = identity->ceiling_ms;
	for (int i = 0; i < PAST_CLAIMS; i++)
	{
		const Claim *past = &identity->past[i];

		if (same_pair(past->pair, wanted->pair) && has_ceiling(past))
			facts->known_ms = Max(facts->known_ms, past->floor_ms);
		if (past->ownership != 0 && past->floor_ms > facts->reach_ms)
			ahead++;
	}
	facts->advanced_ms = identity->layout == ceiling_layout() ? identity->advanced_ms : 0;
	facts->behind_ms = pair->behind.ownership == 0 ? 0 : monotonic_ms() - pair->behind_since;
	facts->patience_ms = ahead == 0 ? BEHIND_MS : SECOND_MS << (ahead - 1);
}

/* Facts about the gate, and the claim that it was opened with last. */
static void
observe_gate(const Claim *wanted, Facts *facts)
{
	const Gate *gate = generator_gate();
	bool		same = gate->has_pair && same_pair(gate->pair, wanted->pair);

	if (gate->reason == GATE_OPEN)
		facts->gate = same && claim_entered() == wanted->ownership ? OPEN_FOR_WANTED : OPEN_FOR_OTHER;
	else
		facts->gate = gate->has_pair && !same ? SHUT_AFTER_OTHER : SHUT;
	facts->consent = gate->accepts_layout;
	facts->last_ms = unix_ms_from_units(generator_last());
}

/* Facts from the WAL, by the one reading of the clock that all facts have. */
static void
observe_ceilings(Pair *pair, const Claim *wanted, Facts *facts)
{
	Ceiling    *ceiling = &pair->ceiling;

	*ceiling = ceiling_read(wanted->pair, facts->reach_ms);
	facts->own_ms = ceiling->own_ms;
	facts->others_ms = ceiling->others_ms;
	facts->layout = !ceiling->has_layout ? LAYOUT_OF_NO_KEYS :
		layout_equal(&ceiling->layout, &server_layout) ? LAYOUT_IS_OURS :
		is_above(ceiling, facts->now_ms) ? LAYOUT_IS_BELOW : LAYOUT_IS_ABOVE;
	facts->range = range_of(facts->now_ms);
}

/*
 * Since when the wanted pair is this server's: until then others may have had it.  If it
 * is another claim, or the clock was set back, that is now.  The clock is read again each
 * time, so setting it, ahead or back, does not shorten the wait.
 */
static void
observe_others(Pair *pair, const Claim *wanted, Facts *facts)
{
	int64		mono = monotonic_ms();

	if (facts->gate == OPEN_FOR_OTHER || facts->gate == OPEN_FOR_WANTED)
	{
		if (facts->gate == OPEN_FOR_WANTED)
			pair->claim = *wanted;
		return;
	}
	if (facts->source != NO_REASON || pair->claim.ownership != wanted->ownership)
		pair->found_ms = 0;		/* another server may use it meanwhile */
	pair->claim = *wanted;
	if (facts->source == NO_REASON && !facts->recovery)
	{
		if (pair->found_ms == 0 || facts->now_ms < pair->found_ms)
		{
			pair->found_ms = facts->now_ms;
			pair->found_mono = mono;
		}
		pair->found_ms = Max(pair->found_ms, facts->now_ms - (mono - pair->found_mono));
	}
	facts->others_until_ms = pair->found_ms;
}

/*
 * Gathers the facts.  The pair's claim is the wanted one, if they have no reason against
 * that, and the gate is not open for another.
 */
void
pair_observe(Pair *pair, int64 now, bool believed, Facts *facts)
{
	Claim		wanted = {0};
	int64		limit_ms;

	memset(facts, 0, sizeof(*facts));
	facts->from_registry = claim_from_redis();
	facts->recovery = RecoveryInProgress();
	facts->believed = believed;
	facts->now_ms = unix_ms_from_units(now);
	facts->reach_ms = unix_ms_from_units(generator_reach(now));
	facts->max_lead_ms = snowid_max_lead;
	facts->file = identity_load(pair->said[DETAIL_FILE]);
	facts->source = wanted_claim(&wanted, &limit_ms, pair->said[DETAIL_SOURCE]);
	if (facts->file == FILE_WITHOUT_CLAIM)
		observe_file(pair, &wanted, facts);
	/* one that was lost, or is of another source, leaves the file before that */
	if ((facts->file == FILE_WITHOUT_CLAIM || facts->file == FILE_WANTED_CLAIM) &&
		facts->from_registry && facts->source != GATE_CLAIM_LOST &&
		!identity_introduce(pair->said[DETAIL_FILE]))
		facts->file = FILE_UNUSABLE;
	facts->claim_floor_ms = wanted.floor_ms;
	observe_gate(&wanted, facts);
	observe_ceilings(pair, &wanted, facts);
	observe_others(pair, &wanted, facts);
	if (facts->source == NO_REASON)
		pair->limit = limit_ms == PG_INT64_MAX ? PG_INT64_MAX : last_unit_of(limit_ms);
}

/*---- Texts ----*/

/* Writes the detail of a decision. */
void
pair_explain(const Pair *pair, const Facts *facts, const Decision *decision, char *err)
{
	char		layout[LAYOUT_TEXT_LEN];

	err[0] = '\0';
	switch (decision->detail)
	{
		case DETAIL_NONE:
			break;
		case DETAIL_SOURCE:
		case DETAIL_FILE:
			strlcpy(err, pair->said[decision->detail], GATE_DETAIL_LEN);
			break;
		case DETAIL_CLOCK:
			strlcpy(err, "The clock jumped ahead by more than snowid.max_jump. Set it right, and do not reboot before; if it is right, call snowid_accept_clock().",
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
					 layout_difference(&server_layout, &pair->ceiling.layout),
					 facts->layout == LAYOUT_IS_BELOW ? "" : " New keys would not be above the old ones.");
			break;
		case DETAIL_WAIT:
			/* in whole seconds, since a slewed clock moves it */
			snprintf(err, GATE_DETAIL_LEN, "A pair that is new to this server can be used when the clock has passed %s.",
					 timestamptz_to_str(timestamptz_from_unix_ms(decision->opens_ms / 1000 * 1000 + 1000)));
			break;
		case DETAIL_BEHIND:
			describe_move(&pair->claim, decision, facts->patience_ms, err);
			break;
	}
}
