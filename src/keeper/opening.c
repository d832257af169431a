/*
 * opening.c
 *		May keys be made, with which pair, and above which time?
 *
 * One pure function: the keeper observes the facts, asks, and carries out the
 * decision.  After OPENING_GIVE_UP, which changes the facts, it asks again.
 * test/lib/opening.c goes through the combinations of the facts and holds each decision
 * against what must be so.
 */
#include "postgres.h"

#include "keeper/opening.h"

/* "reason" closes the gate first; NO_REASON: it is left as it is. */
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

static bool
is_open(const Facts *facts)
{
	return facts->gate == OPEN_FOR_OTHER || facts->gate == OPEN_FOR_WANTED;
}

static bool
is_usable(FileState file)
{
	return file != FILE_UNUSABLE && file != FILE_DAMAGED;
}

/*
 * In recovery a claim of the registry is remembered in advance, with a floor
 * above all that others may have made with it.
 */
static Decision
in_recovery(const Facts *facts)
{
	Decision	d = closed(GATE_RECOVERY, DETAIL_NONE);

	d.remember = facts->from_registry && facts->source == NO_REASON && facts->believed;
	d.floor_ms = facts->claim_floor_ms;
	if (facts->file != FILE_WANTED_CLAIM)
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
	Decision	d = decide(OPENING_OPEN, NO_REASON, DETAIL_NONE);

	if (facts->range == RANGE_BEFORE_EPOCH)
		return closed(GATE_BEFORE_EPOCH, DETAIL_NONE);
	if (facts->range == RANGE_ENDS_SOON && facts->layout != LAYOUT_IS_OURS)
		return closed(GATE_LAYOUT, DETAIL_RANGE);
	if (facts->layout == LAYOUT_OF_NO_KEYS || facts->layout == LAYOUT_IS_OURS)
		return d;
	if (facts->layout == LAYOUT_IS_ABOVE)
		return closed(GATE_LAYOUT, DETAIL_LAYOUT);
	return facts->consent ? d : closed(GATE_LAYOUT_CONSENT, DETAIL_LAYOUT);
}

/*
 * Above all keys of the pair that this server made, above those of its other pairs that
 * are within reach, and above snowid_advance().
 */
static int64
own_past(const Facts *facts)
{
	/* the keys of another layout are all below those from now on */
	if (facts->layout == LAYOUT_IS_BELOW)
		return Max(facts->claim_floor_ms, facts->now_ms);
	return Max(Max(Max(facts->own_ms, facts->known_ms), facts->claim_floor_ms),
			   Max(facts->others_ms, facts->advanced_ms));
}

/*
 * Above all keys of the pair that others made, which are up to max_lead ahead of the
 * clock.  The clock must have passed it, too.  0: they made none, since this server made
 * its last keys with this claim, and has its ceiling.
 */
static int64
others_past(const Facts *facts)
{
	if (facts->file == FILE_WANTED_CLAIM && facts->own_ms != 0)
		return 0;
	return facts->others_until_ms + facts->max_lead_ms;
}

/* The claim is this server's, and the clock is believed. */
static Decision
by_ceilings(const Facts *facts)
{
	Decision	d = is_open(facts) ? decide(OPENING_STAY_OPEN, NO_REASON, DETAIL_NONE) : by_layout(facts);

	if (d.action == OPENING_CLOSE)
		return d;
	d.floor_ms = own_past(facts);
	d.is_known = true;
	d.end_ms = is_open(facts) ? facts->last_ms : d.floor_ms;
	d.behind = may_move(facts) && d.end_ms > facts->reach_ms;
	d.unwanted = d.behind && facts->behind_ms >= facts->patience_ms;
	if (d.behind && (!is_open(facts) || facts->behind_ms >= BEHIND_MS))
	{
		d.action = OPENING_CLOSE;
		d.reason = GATE_BEHIND;
		d.detail = DETAIL_BEHIND;
		return d;
	}
	if (is_open(facts))
		return d;
	d.opens_ms = others_past(facts);
	if (facts->now_ms <= d.opens_ms)
	{
		d.action = OPENING_CLOSE;
		d.reason = GATE_STARTING;
		d.detail = DETAIL_WAIT;
		return d;
	}
	d.floor_ms = Max(d.floor_ms, d.opens_ms);
	d.forget_order = facts->gate == SHUT_AFTER_OTHER && facts->last_ms > facts->reach_ms;
	return d;
}

/* A primary may have had a standby's number since; a claim in Redis is the standby's own. */
static bool
is_of_standby(const Facts *facts)
{
	return facts->recovery && !facts->from_registry && facts->file == FILE_WANTED_CLAIM;
}

static Decision
by_source(const Facts *facts)
{
	/* a claim that is not this server's any more is never resumed */
	if (facts->source == GATE_CLAIM_LOST)
		return decide(is_usable(facts->file) ? OPENING_GIVE_UP : OPENING_CLOSE,
					  GATE_CLAIM_LOST, DETAIL_SOURCE);
	if (facts->file == FILE_OTHER_CLAIM || is_of_standby(facts))
		return decide(OPENING_GIVE_UP, is_open(facts) ? GATE_STARTING : NO_REASON, DETAIL_NONE);
	/* a standby whose worker ID is a number needs no file yet */
	if (!is_usable(facts->file) && (facts->from_registry || !facts->recovery))
		return closed(facts->file == FILE_DAMAGED ? GATE_FILE_DAMAGED : GATE_FILE, DETAIL_FILE);
	if (facts->recovery)
		return in_recovery(facts);
	if (facts->source != NO_REASON)
		return closed(facts->source, DETAIL_SOURCE);
	if (facts->gate == OPEN_FOR_OTHER)
		return closed(GATE_STARTING, DETAIL_NONE);
	if (!facts->believed)
		return is_open(facts) ? decide(OPENING_HOLD, NO_REASON, DETAIL_CLOCK) :
			closed(GATE_STARTING, DETAIL_CLOCK);
	return by_ceilings(facts);
}

Decision
opening_decide(const Facts *facts)
{
	Decision	d = by_source(facts);

	d.may_move = may_move(facts);
	return d;
}
