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

#include <sys/mman.h>
#include <time.h>

#include "access/xlog.h"
#include "port/atomics.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "keeper/identity.h"
#include "keeper/keeper.h"
#include "keeper/pair.h"
#include "settings.h"
#include "units.h"

PG_FUNCTION_INFO_V1(snowid_accept_clock);

/* How often the clock is read. */
#define TURN_MS 1000

/*
 * The pause before a retry doubles from the first to the last, which is less
 * than any caller waits.
 */
#define FIRST_RETRY_MS 20
#define LAST_RETRY_MS 500

/* It looks after this time whether "snowid origin" has come. */
#define ANSWER_MS 500

/* Instead of a pause: decide again at once. */
#define AGAIN (-1)

/* The pair that this keeper looks after. */
static Pair pair;

/* This turn ended before a decision: the answer of "snowid origin" is missing. */
static bool awaits_answer = false;

/* The pause after the last failure; 0: the last turn succeeded. */
static long retry_ms = 0;

/*---- The clock ----
 *
 * Compares the wall clock with a steady one (STEADY_CLOCK, which also runs during
 * a suspend).  Steps back are logged and counted.  A jump ahead by more than
 * snowid.max_jump is not believed until it is over or an administrator accepts
 * it.  The belief survives the keeper and a crash restart.  Only the keeper writes
 * it, and never from a clock that has jumped.
 */

/* A smaller step back may be an inexact reading. */
#define STEP_BACK_US (5 * 1000)

typedef struct ClockWatch
{
	/* positions of the wall clock: in us, from STEADY_CLOCK to it */
	int64		believed;
	int64		former;			/* it was set back from there ... */
	int64		former_until;	/* ... and may return until this second */

	bool		jumped;
	pg_atomic_uint32 accept;	/* set by snowid_accept_clock() */
} ClockWatch;

/* For so long a clock that was set back may return to its former position. */
#define RETURN_S 3600

/*
 * On a page of its own, which every process inherits from the postmaster: a
 * crash restart clears the server's shared memory.
 */
static ClockWatch *watch = NULL;

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

/* Runs in the postmaster, at the start and after a crash. */
void
keeper_shmem_init(void)
{
	struct timespec ignored;

	if (watch == NULL)
	{
		void	   *page = mmap(NULL, sizeof(ClockWatch), PROT_READ | PROT_WRITE,
								MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			ereport(FATAL,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("could not map a page for snowid: %m")));
		watch = page;			/* of zeros */
		watch->believed = read_both(&ignored);
	}
	watch->jumped = false;
	pg_atomic_init_u32(&watch->accept, 0);
}

/* The administrator accepts the clock as it is. */
Datum
snowid_accept_clock(PG_FUNCTION_ARGS)
{
	require_preloaded();
	if (!watch->jumped)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("there is no clock jump to accept")));
	pg_atomic_write_u32(&watch->accept, 1);
	process_notify(PROCESS_KEEPER);
	PG_RETURN_VOID();
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
	return distance <= watch->believed || is_near(watch->believed, distance) ||
		(steady_s < watch->former_until && is_near(watch->former, distance));
}

/*
 * The clock was set back: it may return to its former position; after several
 * steps, to the foremost one.
 */
static void
note_step_back(int64 steady_s)
{
	if (steady_s >= watch->former_until || watch->believed > watch->former)
		watch->former = watch->believed;
	else if (!is_near(watch->former, watch->believed))
		return;
	watch->former_until = steady_s + RETURN_S;
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

	*now = units_from_timespec(&wall);
	if (pg_atomic_exchange_u32(&watch->accept, 0) != 0 && watch->jumped)
	{
		ereport(LOG, (errmsg("the jump of the clock was accepted")));
		watch->believed = distance;
		watch->jumped = false;
	}

	steady_s = monotonic_ms() / 1000;
	if (!is_believed(distance, steady_s))
	{
		if (!watch->jumped)
			ereport(LOG,
					(errmsg("the clock jumped ahead by " INT64_FORMAT " ms, more than snowid.max_jump",
							(distance - watch->believed) / 1000),
					 errdetail("Keys stop at the ceiling until the clock is back."),
					 errhint("If this is the right time, call snowid_accept_clock().")));
		watch->jumped = true;
		return false;
	}
	if (watch->jumped)
		ereport(LOG, (errmsg("the clock is back after its jump ahead")));
	watch->jumped = false;
	if (distance < watch->believed - STEP_BACK_US)
	{
		int64		back = watch->believed - distance;

		note_step_back(steady_s);
		generator_count_step_back();
		ereport(LOG,
				(errmsg("the clock was set back by " INT64_FORMAT " ms",
						back / 1000),
				 errdetail("Keys stay in order, up to snowid.max_lead ahead of the clock.")));
	}
	watch->believed = distance;
	return true;
}

/*---- Grants ----
 *
 * A grant raises the ceiling, and is published once it is durable: first the
 * claim's record in shared memory, then the WAL, then usable_until.  It is
 * renewed when half of it is used, or when a caller asks.
 */

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
	Registry	seen;
	char		detail[GATE_DETAIL_LEN];

	claim_look(&seen);
	snprintf(detail, sizeof(detail), "The lease of worker ID %d has not been renewed: %.400s",
			 pair.claim.worker_id, seen.detail[0] ? seen.detail : "Redis has not answered yet.");
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
	ceiling_raise(&pair.ceiling, unix_ms_from_units(until));
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
	GateReason	reason;

	if (unit < 0)
		return;
	if (unit > now + units_from_ms(snowid_max_jump) || unit > pair.limit)
	{
		if (unit > pair.limit)
			claim_propose(unix_ms_from_units(now), unix_ms_from_units(unit), true);
		generator_advance_later();
		return;
	}
	/* another worker ID makes no keys below it either */
	reason = identity_advance(unix_ms_from_units(unit), err);
	if (reason == GATE_MAY_OPEN && unit > generator_usable_until())
		grant(now, generator_last(), unit);
	generator_advance_end(reason == GATE_MAY_OPEN, err);
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
		return LONGEST_MS;

	if (generator_is_asked() || generator_usable_until() - step() / 2 <= Max(now, last))
	{
		grant(now, last, 0);
		/* the registry wakes the keeper when the lease is renewed */
		if (generator_is_asked())
			return LONGEST_MS;
	}
	return Min(Max(ms_from_units(generator_usable_until() - step() / 2 - Max(now, generator_last())),
				   SHORTEST_MS), LONGEST_MS);
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
	int64		last = generator_close(reason, detail);

	log_state(reason, detail);
	if (pair.stage == PAIR_IN_USE)
	{
		pair.stage = PAIR_NONE;
		ceiling_leave(&pair.ceiling, unix_ms_from_units(last));
		generator_grant(last, last);
		Assert(identity->claim.ownership == pair.claim.ownership);
		identity_remember_ceiling(unix_ms_from_units(last));
	}
	claim_leave(unix_ms_from_units(last));
}

/* Lengthens the pause before a retry, and returns it. */
static long
retry_pause(void)
{
	retry_ms = Min(Max(2 * retry_ms, FIRST_RETRY_MS), LAST_RETRY_MS);
	return retry_ms;
}

/* The gate is closed: the ms until the next look. */
static long
closed_pause(const Decision *decision, int64 now)
{
	if (decision->detail == DETAIL_WAIT)
		return Min(decision->opens_ms + 1 - unix_ms_from_units(now), TURN_MS);
	return decision->reason == GATE_RECOVERY ? TURN_MS : retry_pause();
}

/*
 * "snowid origin" has not answered yet, and wakes the keeper when it does.  Callers
 * wait, unless a failure before is more to the point.
 */
static long
wait_for_answer(void)
{
	GateReason	reason = generator_gate()->reason;

	if (reason != GATE_OPEN && reason != GATE_CEILING)
		(void) generator_close(GATE_STARTING, "");
	awaits_answer = true;
	return ANSWER_MS;
}

/* No grant is possible now; keys continue up to the ceiling. */
static long
hold_gate(const Decision *decision, const char *detail)
{
	if (decision->detail == DETAIL_LOOK_UP)
		log_state(GATE_CEILING, detail);
	generator_no_grant(detail);
	return retry_pause();
}

/*
 * A predecessor left the gate open, and keys were made since.  The origin may
 * have been dropped or moved while it had no owner, so first of all the ceiling
 * is raised again above all keys.
 */
static void
take_over(void)
{
	int64		used_ms = unix_ms_from_units(generator_usable_until());

	if (pair.ceiling.own_ms < used_ms)
		ceiling_raise(&pair.ceiling, used_ms);
	pair.stage = PAIR_IN_USE;
}

/* Returns 0 if the gate is open, or the ms until the next look. */
static long
open_gate(const Decision *decision, int64 now)
{
	int64		floor = last_unit_of(decision->floor_ms);
	char		err[GATE_DETAIL_LEN];
	char		layout[LAYOUT_TEXT_LEN];
	GateReason	reason = pair_begin(&pair, decision, err);

	if (reason == GATE_STARTING)
		return wait_for_answer();
	if (reason != GATE_MAY_OPEN)
	{
		close_gate(reason, err);
		return retry_pause();
	}
	slow_start = SLOW_START;
	generator_grant(floor, floor);	/* nothing yet */
	grant(now, floor, 0);
	if (!claim_enter(&pair.claim, unix_ms_from_units(generator_usable_until())))
		return retry_pause();	/* it was lost meanwhile */
	generator_open(pair.claim.datacenter_id, pair.claim.worker_id, floor, decision->forget_order);
	pair.stage = PAIR_IN_USE;

	logged[0] = '\0';
	layout_describe(&server_layout, layout);
	ereport(LOG,
			(errmsg("snowid makes keys as datacenter %d, worker %d",
					pair.claim.datacenter_id, pair.claim.worker_id),
			 errdetail("The layout is \"%s\".", layout)));
	return 0;
}

/*
 * Removes the claim from the state file; a failure is tried again.  "why" the claim was
 * lost comes before the failure; NULL: it was not.
 *
 * The end of its keys is known if the gate was closed with it: then it leaves the file
 * at once.  Otherwise its origin says it, and the catalog may be locked for long; a
 * server that started meanwhile without Redis would resume the claim.
 */
static long
give_up(const char *why)
{
	bool		lost = why != NULL;
	char		err[GATE_DETAIL_LEN];
	Ceiling		ceiling = {0};
	Registry	seen;
	GateReason	reason = lost ? identity_introduce(err) : GATE_MAY_OPEN;

	claim_look(&seen);
	if (reason == GATE_MAY_OPEN && identity->claim.ownership != seen.left &&
		identity->claim.ownership != 0 && !RecoveryInProgress())
		reason = ceiling_find(&identity->claim, PG_INT64_MAX, &ceiling, err);
	if (reason == GATE_MAY_OPEN)
		reason = identity_remember(NULL, 0, ceiling.old_ms, err);
	if (reason == GATE_MAY_OPEN)
		return AGAIN;
	if (reason == GATE_STARTING)
	{
		awaits_answer = true;
		return ANSWER_MS;
	}
	close_gate(lost ? GATE_CLAIM_LOST : reason, lost ? psprintf("%.250s %.250s", why, err) : err);
	return retry_pause();
}

/*
 * Carries out a decision.  Returns 0 if the gate is open, AGAIN if the facts have
 * changed, or the ms until the next look.
 */
static long
act(const Decision *decision, const Facts *facts, const Claim *wanted, int64 now,
	char *detail)
{
	bool		still_lost = generator_gate()->reason == GATE_CLAIM_LOST &&
	decision->action == OPENING_GIVE_UP;

	/* on a standby, whose gate is closed: in advance; if it fails, again */
	if (facts->recovery && decision->remember)
		(void) identity_remember(wanted, decision->floor_ms, 0, detail);
	/* give_up() has said why */
	if (decision->reason != GATE_OPEN && !still_lost)
		close_gate(decision->reason, detail);
	switch (decision->action)
	{
		case OPENING_GIVE_UP:
			return give_up(decision->reason == GATE_CLAIM_LOST ? detail : NULL);
		case OPENING_LOOK_UP:
			pair_look_up(&pair, wanted, facts);
			return AGAIN;
		case OPENING_AWAIT:
			return wait_for_answer();
		case OPENING_CLOSE:
			if (pair.stage == PAIR_NONE)
				ceiling_let_go();
			return closed_pause(decision, now);
		case OPENING_HOLD:
			return hold_gate(decision, detail);
		case OPENING_TAKE_OVER:
			take_over();
			break;
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
	Claim		wanted;
	char		detail[GATE_DETAIL_LEN];
	long		pause;

	if (pair.stage == PAIR_ASKED || pair.stage == PAIR_FAILED)
		pair.stage = PAIR_FOUND;
	do
	{
		pair_observe(&pair, now, believed, &wanted, &facts);
		decision = opening_decide(&facts);
		if (facts.stage != PAIR_NONE)
			pair.found_ms = decision.found_ms;
		pair_explain(&pair, &wanted, &facts, &decision, detail);
		if (decision.action > OPENING_AWAIT)
			pair_note(&wanted, &decision);
		pause = act(&decision, &facts, &wanted, now, detail);
	} while (pause == AGAIN);
	return pause;
}

/* One turn.  Returns the ms until the next. */
static long
take_turn(void)
{
	int64		now;
	bool		clock_is_good = read_clock(&now);
	int64		usable_until;
	long		pause;

	if (claim_from_redis() && clock_is_good)
		claim_propose(unix_ms_from_units(now), 0, false);
	awaits_answer = false;
	pause = settle_gate(now, clock_is_good);
	if (pause > 0)
		return pause;
	usable_until = generator_usable_until();
	pause = renew_grant(now);
	if (logged[0] && generator_usable_until() > usable_until)
	{
		logged[0] = '\0';
		ereport(LOG, (errmsg("snowid reserves keys again")));
	}
	retry_ms = 0;
	return pause;
}

/*---- The process ----*/

static Pause
keeper_turn(bool reloaded)
{
	Pause		pause = {0};

	pause.ms = take_turn();
	/* an answer is taken at once: its origin has no owner yet */
	pause.after_failure = retry_ms > 0 && !awaits_answer;
	return pause;
}

/*
 * Logs an error once, and publishes it for callers.  An open gate stays open: keys
 * continue up to the ceiling.  A closed one has the reason of an earlier turn,
 * which has passed, except for recovery.
 */
static Pause
keeper_recover(const ErrorData *error)
{
	Pause		pause = {0};
	char		detail[GATE_DETAIL_LEN];

	snprintf(detail, sizeof(detail), "%s.%s%s", error->message,
			 error->hint ? " " : "", error->hint ? error->hint : "");
	if (strcmp(detail, logged) != 0 && process_may_log())
	{
		EmitErrorReport();
		strlcpy(logged, detail, sizeof(logged));
	}
	if (RecoveryInProgress() || generator_gate()->reason == GATE_OPEN)
		generator_no_grant(detail);
	else
		(void) generator_close(GATE_CEILING, detail);
	generator_advance_end(false, detail);
	pause.ms = retry_pause();
	pause.after_failure = true;
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
	origin_leave_question();
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
