/*
 * opening.c
 *		May keys be made, with which pair, and above which time?
 *
 * One pure function: the keeper observes the facts, asks, and carries out the
 * decision.  A step that changes the facts (OPENING_GIVE_UP, OPENING_LOOK_UP) is
 * followed by the next decision.  test/opening.c goes through the combinations
 * of the facts and holds each decision against what must be so.
 */
#include "postgres.h"

#include "keeper/opening.h"

/* "reason" closes the gate first; GATE_OPEN: it is left as it is. */
static Decision
decide(OpeningAction action, GateReason reason, OpeningDetail detail)
{
	Decision	d = {.action = action,.reason = reason,.detail = detail};

	return d;
}

static Decision
closed(GateReason reason, OpeningDetail detail)
{
	return decide(OPENING_CLOSE, reason, detail);
}

/* Must the claim be written into the state file before its first key? */
static bool
is_new(const Facts *facts)
{
	return !facts->remembers || !facts->same_terms;
}

/*
 * In recovery a claim of the registry is remembered in advance, with a floor
 * above all that others may have made with it.
 */
static Decision
in_recovery(const Facts *facts)
{
	Decision	d = closed(GATE_RECOVERY, DETAIL_NONE);

	d.remember = facts->from_registry && facts->source == GATE_MAY_OPEN &&
		facts->believed && is_new(facts);
	d.floor_ms = facts->claim_floor_ms;
	if (!facts->remembers)
		d.floor_ms = Max(d.floor_ms, facts->now_ms + facts->max_lead_ms);
	return d;
}

/* Another worker ID makes no keys below snowid_advance() either. */
static bool
may_move(const Facts *facts)
{
	return facts->from_registry && facts->advanced_ms <= facts->reach_ms;
}

/*
 * The layout may be used if the last keys have it.  If there are none, its range
 * must not end soon.  If they have another layout, every new key must also be
 * above every old one, and an administrator must have consented.
 */
static Decision
by_layout(const Facts *facts)
{
	Decision	d = decide(OPENING_OPEN, GATE_OPEN, DETAIL_NONE);
	bool		made_last;

	/* a ceiling that is far ahead does not show which layout came last */
	made_last = facts->others_ms > facts->other_layout_ms ||
		(facts->own_ms > facts->other_layout_ms && facts->own_ms <= facts->reach_ms);
	if (facts->range == RANGE_BEFORE_EPOCH)
		return closed(GATE_BEFORE_EPOCH, DETAIL_NONE);
	if (facts->range == RANGE_OVER || (facts->range == RANGE_ENDS_SOON && !made_last))
		return closed(GATE_LAYOUT, DETAIL_RANGE);
	if (made_last || facts->other_layout_ms == 0)
		return d;
	if (!facts->is_above)
		return closed(GATE_LAYOUT, DETAIL_LAYOUT);
	if (!facts->consent)
		return closed(GATE_LAYOUT_CONSENT, DETAIL_LAYOUT);
	d.leave_layouts = true;
	return d;
}

/*
 * Above all keys of the pair, above those of this server's other pairs that are
 * within reach, and above snowid_advance().
 */
static int64
floor_of(const Facts *facts, bool new_layout)
{
	int64		floor_ms = Max(facts->own_ms, facts->others_ms);

	floor_ms = Max(floor_ms, facts->claim_floor_ms);
	/* the keys of another layout are all below those from now on */
	if (new_layout)
		return Max(floor_ms, facts->now_ms);
	/* a position that vanished from the origins is the state file's */
	floor_ms = Max(floor_ms, facts->known_ms);
	/* an advance that is further was made by a clock that was wrong */
	if (facts->advanced_ms <= facts->furthest_ms)
		floor_ms = Max(floor_ms, facts->advanced_ms);
	return floor_ms;
}

/*
 * Until when others may have used the pair: until it was found, by the highest
 * reading of the clock since.  So setting the clock, ahead or back, does not shorten
 * the wait.
 */
static int64
others_until(const Facts *facts)
{
	return Max(facts->found_ms, facts->now_ms - facts->waited_ms);
}

/*
 * The time that the clock must have passed: their keys are up to max_lead ahead of
 * it.  They made none if this server made its last keys with this claim, and has its
 * ceiling.
 */
static int64
opens_at(const Facts *facts)
{
	if (facts->remembers && facts->own_ms != 0)
		return 0;
	return others_until(facts) + facts->max_lead_ms;
}

/* The ceilings are known. */
static Decision
by_ceilings(const Facts *facts)
{
	bool		in_use = facts->is_open && facts->stage == PAIR_IN_USE;
	Decision	d = in_use ? decide(OPENING_STAY_OPEN, GATE_OPEN, DETAIL_NONE) : by_layout(facts);

	if (d.action == OPENING_CLOSE)
		return d;
	d.floor_ms = floor_of(facts, d.leave_layouts);
	d.is_known = true;
	d.end_ms = facts->is_open ? facts->last_ms : d.floor_ms;
	d.behind = may_move(facts) && d.end_ms > facts->reach_ms;
	d.unwanted = d.behind && facts->behind_ms >= facts->patience_ms;
	if (d.behind && (!facts->is_open || facts->behind_ms >= BEHIND_MS))
	{
		d.action = OPENING_CLOSE;
		d.reason = GATE_BEHIND;
		d.detail = DETAIL_BEHIND;
		return d;
	}
	if (facts->is_open)
	{
		d.action = in_use ? OPENING_STAY_OPEN : OPENING_TAKE_OVER;
		return d;
	}
	d.opens_ms = opens_at(facts);
	if (facts->now_ms <= d.opens_ms)
	{
		d.action = OPENING_CLOSE;
		d.reason = GATE_STARTING;
		d.detail = DETAIL_WAIT;
		return d;
	}
	d.floor_ms = Max(d.floor_ms, d.opens_ms);
	d.remember = is_new(facts);
	d.forget_order = facts->other_pair && facts->last_ms > facts->reach_ms;
	return d;
}

/* The claim is this server's: are the ceilings of its pair known? */
static Decision
by_stage(const Facts *facts)
{
	/* if the clock was set back below it, times found by it are void */
	if (facts->stage == PAIR_NONE || facts->stage == PAIR_FOUND ||
		(facts->is_open && !facts->is_ours) ||
		(!facts->is_open && facts->now_ms < facts->found_ms))
		return decide(OPENING_LOOK_UP, facts->is_open && !facts->is_ours ? GATE_STARTING : GATE_OPEN,
					  DETAIL_NONE);
	if (facts->stage == PAIR_ASKED)
		return decide(OPENING_AWAIT, GATE_OPEN, DETAIL_NONE);
	if (facts->stage == PAIR_FAILED)
		return facts->is_open ? decide(OPENING_HOLD, GATE_OPEN, DETAIL_LOOK_UP) :
			closed(GATE_CEILING, DETAIL_LOOK_UP);
	return by_ceilings(facts);
}

static Decision
by_source(const Facts *facts)
{
	/* a claim that is not this server's any more is never resumed */
	if (facts->source == GATE_CLAIM_LOST)
		return decide(facts->file == GATE_MAY_OPEN ? OPENING_GIVE_UP : OPENING_CLOSE,
					  GATE_CLAIM_LOST, DETAIL_SOURCE);
	if (facts->file == GATE_MAY_OPEN && facts->left_source)
		return decide(OPENING_GIVE_UP, facts->is_open ? GATE_STARTING : GATE_OPEN, DETAIL_NONE);
	/* a standby whose worker ID is a number needs no file yet */
	if (facts->file != GATE_MAY_OPEN && (facts->from_registry || !facts->recovery))
		return closed(facts->file, DETAIL_FILE);
	if (facts->recovery)
		return in_recovery(facts);
	if (facts->source != GATE_MAY_OPEN)
		return closed(facts->source, DETAIL_SOURCE);
	if (!facts->believed)
		return facts->is_open && facts->is_ours ? decide(OPENING_HOLD, GATE_OPEN, DETAIL_CLOCK) :
			closed(GATE_STARTING, DETAIL_CLOCK);
	return by_stage(facts);
}

Decision
opening_decide(const Facts *facts)
{
	Decision	d = by_source(facts);

	d.may_move = may_move(facts);
	d.found_ms = facts->believed && !facts->is_open ? others_until(facts) : facts->found_ms;
	return d;
}
