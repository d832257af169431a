/*
 * keeper.c
 *		The process "snowid keeper": watches the clock, keeps the durable ceiling
 *		ahead of use, and opens and closes the gate.
 *
 * It observes, asks opening.c whether keys may be made, with which pair and above
 * which time, and acts; it alone writes the state file and the ceiling.  It makes no
 * keys and never talks to the network.  Failed steps are tried again.
 *
 * To open: state file synced, ceiling flushed to the WAL, usable_until set,
 * gate opened.  To close: gate closed, then the exact last unit stored.  A
 * keeper that dies does not close the gate: keys stop at the ceiling.  Its
 * successor finds everything in shared memory and in the WAL.
 */
#include "postgres.h"

#include <time.h>

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "keeper/identity.h"
#include "keeper/keeper.h"
#include "keeper/pair.h"
#include "registry/claim.h"
#include "settings.h"
#include "units.h"

/* How often the clock is read. */
#define TURN_MS 1000

/* The pause before a retry: less than any caller waits. */
#define RETRY_MS 500

/* Instead of a pause: decide again at once. */
#define AGAIN (-1)

/* The pair that this keeper looks after. */
static Pair pair;

/*---- The clock ----
 *
 * Compares the wall clock with a steady one (STEADY_CLOCK, which also runs during
 * a suspend).  Steps back are logged and counted.  A jump ahead by more than
 * snowid.max_jump is not believed until it is over or an administrator accepts
 * it.  The belief is in the state file, so it survives a crash and a restart on the same
 * boot.
 */

/* A smaller step back may be an inexact reading. */
#define STEP_BACK_US (5 * 1000)

/* For so long a clock that was set back may return to its former position. */
#define RETURN_S 3600

/* As in the state file, once that could be read. */
static Belief belief;
static bool has_belief = false;

/* One reading of the wall clock, and its distance in us. */
static int64
read_both(struct timespec *wall)
{
	int64		distance = 0;

	/* readings too far apart tell nothing: try again */
	for (int i = 0; i < 10; i++)
	{
		struct timespec before,
					after;

		clock_gettime(STEADY_CLOCK, &before);
		clock_gettime(CLOCK_REALTIME, wall);
		clock_gettime(STEADY_CLOCK, &after);
		distance = (wall->tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(wall->tv_nsec - before.tv_nsec) / 1000;
		if ((after.tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(after.tv_nsec - before.tv_nsec) / 1000 < STEP_BACK_US / 5)
			break;
	}
	return distance;
}

/* Begins with the belief of the state file, or, on another boot, with this reading. */
static void
begin_belief(int64 distance)
{
	char		err[GATE_DETAIL_LEN];
	uint64		boot;

	if (has_belief || identity_load(err) != FILE_WITHOUT_CLAIM)
		return;
	has_belief = true;
	boot = identity_boot();
	belief = identity->belief;
	if (boot != 0 && belief.boot == boot)
		return;
	memset(&belief, 0, sizeof(belief));
	belief.boot = boot;
	belief.believed = distance;
}

/* Is a clock at this distance near a position?  Whole seconds, as max_jump may be exact. */
static bool
is_near(int64 position, int64 distance)
{
	return llabs(distance - position) / 1000000 <= snowid_max_jump / 1000;
}

/*
 * May the clock be at this distance?  Yes, if it is behind, has not jumped ahead
 * by more than max_jump, or is near the position from which it was set back.
 */
static bool
is_believed(int64 distance, int64 steady_s)
{
	return distance <= belief.believed || is_near(belief.believed, distance) ||
		(steady_s < belief.former_until && is_near(belief.former, distance));
}

/*
 * The clock was set back: it may return to its former position; after several
 * steps, to the foremost one.
 */
static void
note_step_back(int64 steady_s)
{
	if (steady_s >= belief.former_until || belief.believed > belief.former)
		belief.former = belief.believed;
	else if (!is_near(belief.former, belief.believed))
		return;
	belief.former_until = steady_s + RETURN_S;
}

/*
 * Reads the wall clock, in units.  False: it has jumped ahead, and must not be
 * used.  (Backends cannot detect steps: even of a steady clock, two backends'
 * readings are often out of order.)
 */
static bool
read_clock(int64 *now)
{
	struct timespec wall;
	int64		steady_s;
	int64		distance = read_both(&wall);
	bool		jumped = generator_gate()->clock_jumped;
	bool		is_accepted = generator_gate()->accepts_clock;
	bool		set_back;

	*now = units_from_timespec(&wall);
	begin_belief(distance);
	/* without a file the gate stays shut */
	if (!has_belief)
		return true;
	if (is_accepted)
	{
		ereport(LOG, (errmsg("the jump of the clock was accepted")));
		belief.believed = distance;
	}

	steady_s = monotonic_ms() / 1000;
	if (!is_believed(distance, steady_s))
	{
		if (!jumped)
			ereport(LOG,
					(errmsg("the clock jumped ahead by " INT64_FORMAT " ms, more than snowid.max_jump",
							(distance - belief.believed) / 1000),
					 errdetail("Keys stop at the ceiling until the clock is back."),
					 errhint("Set the clock right, and do not reboot before. If this is the right time, call snowid_accept_clock().")));
		generator_note_clock(true, false);
		return false;
	}
	if (jumped && !is_accepted)
		ereport(LOG, (errmsg("the clock is back after its jump ahead")));
	set_back = distance < belief.believed - STEP_BACK_US;
	if (set_back)
	{
		note_step_back(steady_s);
		ereport(LOG,
				(errmsg("the clock was set back by " INT64_FORMAT " ms",
						(belief.believed - distance) / 1000),
				 errdetail("Keys stay in order, up to snowid.max_lead ahead of the clock.")));
	}
	if (jumped || set_back)
		generator_note_clock(false, set_back);
	belief.believed = distance;
	identity_believe(&belief, unix_ms_from_units(generator_reach(*now)));
	return true;
}

/*---- Grants ----
 *
 * A grant raises the ceiling, and is published once it is durable: first the
 * claim's record in shared memory, then the WAL, then usable_until.  It is
 * renewed when half of it is used, or when a caller asks.
 */

/*
 * Grants are renewed until this long after the last key.  A caller that comes later waits
 * for a flush, as its COMMIT does.
 */
#define ACTIVE_MS (3 * 1000)

/* The keeper looks again after at least so many ms. */
#define SHORTEST_MS 20

/*
 * The first grants after an opening are smaller by this power of 2, so that a
 * server that crashes again and again does not run ahead of the clock.
 */
#define SLOW_START 3

static int	slow_start;

/* The size of a grant now, in units. */
static int64
step(void)
{
	return units_from_ms(RESERVE_MS) >> slow_start;
}

/* Keys end at the limit of the lease: publishes the reason for callers. */
static void
explain_lease(void)
{
	ClaimBoard	seen;
	char		detail[GATE_DETAIL_LEN];

	claim_look(&seen);
	snprintf(detail, sizeof(detail), "The lease of worker ID %d has not been renewed: %.400s",
			 pair.claim.pair.worker, seen.detail[0] ? seen.detail : "Redis has not answered yet.");
	generator_no_grant(detail);
}

/*
 * A grant reaches RESERVE_MS past the clock or the last unit, whichever is
 * greater, but at most max_lead more ahead of the clock.  snowid_advance() needs
 * "least".  On lease, it never exceeds what Redis has recorded.
 */
static void
grant(int64 now, int64 last, int64 least)
{
	int64		usable_until = generator_usable_until();
	int64		until = Max(now, last) + step();

	until = Min(until, now + units_from_ms((int64) snowid_max_lead + RESERVE_MS));
	until = Max(until, least);
	/* whole ms: just half of the next, larger one would be due at once */
	until = Min(last_unit_of(unix_ms_from_units(until)), generator_range_end());
	if (until > pair.limit)
		claim_propose(unix_ms_from_units(now), unix_ms_from_units(until), true);
	until = Min(until, pair.limit);
	if (until <= Max(last, usable_until))
	{
		if (until == pair.limit)
			explain_lease();
		else					/* callers that wait ask again */
			generator_ask_above(usable_until - step() / 2);
		return;
	}
	claim_use(unix_ms_from_units(until));
	ceiling_set(pair.claim.pair, unix_ms_from_units(until));
	XLogFlush(XactLastRecEnd);
	generator_grant(until, until - step() / 2);
	if (slow_start > 0)
		slow_start--;
}

/*
 * Carries out a snowid_advance() while the gate is open: the ceiling first.  The
 * caller can withdraw a request that clock or lease do not allow yet.
 */
static void
advance(int64 now)
{
	int64		unit = generator_advance_take();
	char		err[GATE_DETAIL_LEN] = "";
	bool		done;

	if (unit < 0)
		return;
	if (unit > now + units_from_ms(snowid_max_jump) || unit > pair.limit)
	{
		if (unit > pair.limit)
			claim_propose(unix_ms_from_units(now), unix_ms_from_units(unit), true);
		generator_advance_later();
		return;
	}
	/* if the ceiling cannot be set, the call fails before the file has it */
	ceiling_set(pair.claim.pair, unix_ms_from_units(generator_usable_until()));
	/* another worker ID makes no keys below it either */
	done = identity_advance(unix_ms_from_units(unit), unix_ms_from_units(now), err);
	if (done && unit > generator_usable_until())
		grant(now, generator_last(), unit);
	generator_advance_end(done, err);
}

/*
 * Gives a grant if one is due.  Returns the ms until the next may be.
 */
static long
renew_grant(int64 now)
{
	static int64 last_seen = 0;
	static int64 active_until = 0;	/* by monotonic_ms() */
	int64		mono = monotonic_ms();
	int64		last;

	advance(now);
	last = generator_last();
	if (last != last_seen)
		active_until = mono + ACTIVE_MS;
	last_seen = last;
	if (!generator_is_asked() && mono > active_until)
	{
		/* the status says why a caller would get no grant */
		if (now > pair.limit)
			explain_lease();
		return TURN_MS;
	}

	if (generator_is_asked() || generator_usable_until() - step() / 2 <= Max(now, last))
	{
		grant(now, last, 0);
		/* the registry wakes the keeper when the lease is renewed */
		if (generator_is_asked())
			return TURN_MS;
	}
	return Min(Max(ms_from_units(generator_usable_until() - step() / 2 - Max(now, generator_last())),
				   SHORTEST_MS), TURN_MS);
}

/*---- The gate ----*/

/* The last logged state, so that each change is logged once; "": keys are made. */
static char logged[GATE_DETAIL_LEN + 16];

static void
log_state(GateReason reason, const char *detail)
{
	char		state[sizeof(logged)];

	snprintf(state, sizeof(state), "%d: %s", reason, detail);
	if (strcmp(state, logged) == 0 || !process_may_log())
		return;
	strlcpy(logged, state, sizeof(logged));
	ereport(LOG,
			(errmsg("%s", gate_message(reason)),
			 detail[0] ? errdetail("%s", detail) : 0));
}

/*
 * Closes the gate.  If it was open, stores the exact last unit, so that keys
 * continue right after it at the next opening.
 */
static void
close_gate(GateReason reason, const char *detail)
{
	const Gate *gate = generator_gate();
	bool		was_open = gate->reason == GATE_OPEN;
	int64		last;
	int64		last_ms;

	generator_close(reason, detail);
	last = generator_last();
	last_ms = unix_ms_from_units(last);
	log_state(reason, detail);
	if (was_open)
	{
		ceiling_set(gate->pair, last_ms);
		generator_grant(last, last);
		if (identity->claim.ownership == claim_entered())
			identity_remember_ceiling(last_ms);
	}
	claim_leave(last_ms);
}

/* Returns 0 if the gate is open, or the ms until the next look. */
static long
open_gate(const Decision *decision, int64 now)
{
	int64		floor = last_unit_of(decision->floor_ms);
	char		err[GATE_DETAIL_LEN];
	char		layout[LAYOUT_TEXT_LEN];

	if (!identity_remember(&pair.claim, decision->floor_ms, err))
	{
		close_gate(GATE_FILE, err);
		return RETRY_MS;
	}
	slow_start = SLOW_START;
	generator_grant(floor, floor);	/* nothing yet */
	grant(now, floor, 0);
	if (!identity_begin_layout(decision->floor_ms, err))
	{
		close_gate(GATE_FILE, err);
		return RETRY_MS;
	}
	if (!claim_enter(&pair.claim, unix_ms_from_units(generator_usable_until())))
		return RETRY_MS;		/* it was lost meanwhile */
	generator_open(pair.claim.pair, floor, decision->forget_order);

	logged[0] = '\0';
	layout_describe(&server_layout, layout);
	ereport(LOG,
			(errmsg("snowid makes keys as datacenter %d, worker %d",
					pair.claim.pair.datacenter, pair.claim.pair.worker),
			 errdetail("The layout is \"%s\".", layout)));
	pair_warn(&pair, decision->floor_ms);
	return 0;
}

/*
 * Removes the claim from the state file; a failure is tried again.  "why" the claim was
 * lost comes before the failure; NULL: it was not.
 */
static long
give_up(const char *why)
{
	const Claim *claim = &identity->claim;
	char		err[GATE_DETAIL_LEN];

	claim_give_up(claim->ownership);
	if ((why == NULL || identity_introduce(err)) &&
		identity_give_up(ceiling_of(claim->pair), err))
		return AGAIN;
	close_gate(why ? GATE_CLAIM_LOST : GATE_FILE, why ? psprintf("%.250s %.250s", why, err) : err);
	return RETRY_MS;
}

/*
 * Carries out a decision.  Returns 0 if the gate is open, AGAIN if the facts have
 * changed, or the ms until the next look.
 */
static long
act(const Decision *decision, int64 now, char *detail)
{
	bool		still_lost = generator_gate()->reason == GATE_CLAIM_LOST &&
	decision->action == OPENING_GIVE_UP;

	/* on a standby; if it fails, again */
	if (decision->remember)
		(void) identity_remember(&pair.claim, decision->floor_ms, detail);
	/* give_up() has said why */
	if (decision->reason != NO_REASON && !still_lost)
		close_gate(decision->reason, detail);
	switch (decision->action)
	{
		case OPENING_GIVE_UP:
			return give_up(decision->reason == GATE_CLAIM_LOST ? detail : NULL);
		case OPENING_CLOSE:
			if (decision->detail == DETAIL_WAIT)
				return Min(decision->opens_ms + 1 - unix_ms_from_units(now), TURN_MS);
			return RETRY_MS;
		case OPENING_HOLD:
			generator_no_grant(detail); /* keys continue up to the ceiling */
			return RETRY_MS;
		case OPENING_STAY_OPEN:
			break;
		case OPENING_OPEN:
			return open_gate(decision, now);
	}
	return 0;
}

/*
 * Opens or closes the gate, as opening.c decides.  Returns 0 if it is open, or
 * the ms until the next look.
 */
static long
settle_gate(int64 now, bool believed)
{
	Facts		facts;
	Decision	decision;
	char		detail[GATE_DETAIL_LEN];
	long		pause;

	do
	{
		pair_observe(&pair, now, believed, &facts);
		decision = opening_decide(&facts);
		pair_explain(&pair, &facts, &decision, detail);
		pair_note(&pair, &decision);
		pause = act(&decision, now, detail);
	} while (pause == AGAIN);
	return pause;
}

/*---- The process ----*/

static Pause
keeper_turn(bool reloaded)
{
	Pause		pause = {0};
	int64		now;
	bool		clock_is_good = read_clock(&now);
	int64		usable_until;

	if (claim_from_redis() && clock_is_good)
		claim_propose(unix_ms_from_units(now), 0, false);
	pause.ms = settle_gate(now, clock_is_good);
	pause.after_failure = pause.ms > 0;
	if (pause.after_failure)
		return pause;
	usable_until = generator_usable_until();
	pause.ms = renew_grant(now);
	if (logged[0] && generator_usable_until() > usable_until)
	{
		logged[0] = '\0';
		ereport(LOG, (errmsg("snowid reserves keys again")));
	}
	return pause;
}

/*
 * Logs an error once, and publishes it for callers.  An open gate stays open: keys
 * continue up to the ceiling.  A closed one has the reason of an earlier turn.
 */
static Pause
keeper_recover(const ErrorData *error)
{
	Pause		pause = {.ms = RETRY_MS,.after_failure = true};
	char		detail[GATE_DETAIL_LEN];

	snprintf(detail, sizeof(detail), "%s.%s%s", error->message,
			 error->hint ? " " : "", error->hint ? error->hint : "");
	if (strcmp(detail, logged) != 0 && process_may_log())
	{
		EmitErrorReport();
		strlcpy(logged, detail, sizeof(logged));
	}
	if (generator_gate()->reason == GATE_OPEN)
		generator_no_grant(detail);
	else
		generator_close(GATE_CEILING, detail);
	generator_advance_end(false, detail);
	return pause;
}

static void
keeper_stop(void)
{
	close_gate(GATE_STOPPING, "");
}

static void
keeper_leave(void)
{
	generator_advance_end(false, "");
	identity_unlock();
}

const Process keeper_process = {
	.id = PROCESS_KEEPER,
	.name = "snowid keeper",
	.turn = keeper_turn,
	.recover = keeper_recover,
	.stop = keeper_stop,
	.leave = keeper_leave
};
