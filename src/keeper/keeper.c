/*
 * keeper.c
 *		The process "snowid keeper": keeps the durable ceiling ahead of use, and
 *		opens and closes the gate.
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

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/ceiling.h"
#include "keeper/clock.h"
#include "keeper/grant.h"
#include "keeper/identity.h"
#include "keeper/keeper.h"
#include "keeper/origin.h"
#include "keeper/pair.h"
#include "key/layout.h"
#include "process.h"
#include "registry/claim.h"
#include "settings.h"
#include "units.h"

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

/* The last logged state, so that each change is logged once. */
static GateReason logged_reason = GATE_OPEN;
static char logged_detail[GATE_DETAIL_LEN];

static void
log_state(GateReason reason, const char *detail)
{
	if ((reason == logged_reason && strcmp(detail, logged_detail) == 0) || !process_may_log())
		return;
	logged_reason = reason;
	strlcpy(logged_detail, detail, sizeof(logged_detail));
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
		identity_remember_ceiling(pair.claim.ownership, unix_ms_from_units(last));
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
	GeneratorProgress progress;

	generator_progress(&progress);
	if (progress.gate.reason != GATE_OPEN && progress.gate.reason != GATE_CEILING)
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
	GeneratorProgress progress;

	generator_progress(&progress);
	if (pair.ceiling.own_ms < unix_ms_from_units(progress.usable_until))
		ceiling_raise(&pair.ceiling, unix_ms_from_units(progress.usable_until));
	pair.stage = PAIR_IN_USE;
}

/* Returns 0 if the gate is open, or the ms until the next look. */
static long
open_gate(const Decision *decision, int64 now)
{
	GeneratorProgress progress;
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
	grant_start_slowly();
	grant_first(&pair, now, floor);
	generator_progress(&progress);
	if (!claim_enter(&pair.claim, unix_ms_from_units(progress.usable_until)))
		return retry_pause();	/* it was lost meanwhile */
	generator_open(pair.claim.datacenter_id, pair.claim.worker_id, floor, decision->forget_order);
	pair.stage = PAIR_IN_USE;

	logged_reason = GATE_OPEN;
	logged_detail[0] = '\0';
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
 */
static long
give_up(const char *why)
{
	bool		lost = why != NULL;
	char		err[GATE_DETAIL_LEN];
	char		both[GATE_DETAIL_LEN];
	GateReason	reason = lost ? identity_introduce(err) : GATE_MAY_OPEN;

	if (reason == GATE_MAY_OPEN)
		reason = pair_give_up(err);
	if (reason == GATE_MAY_OPEN)
		return AGAIN;
	awaits_answer = reason == GATE_STARTING;
	if (lost)
		snprintf(both, sizeof(both), "%.250s %.250s", why, err);
	if (!awaits_answer)
		close_gate(lost ? GATE_CLAIM_LOST : reason, lost ? both : err);
	return awaits_answer ? ANSWER_MS : retry_pause();
}

/*
 * Carries out a decision.  Returns 0 if the gate is open, AGAIN if the facts have
 * changed, or the ms until the next look.
 */
static long
act(const Decision *decision, const Facts *facts, const Claim *wanted, int64 now,
	char *detail)
{
	GeneratorProgress progress;
	bool		still_lost;

	generator_progress(&progress);
	still_lost = progress.gate.reason == GATE_CLAIM_LOST && decision->action == OPENING_GIVE_UP;
	/* on a standby, whose gate is closed: in advance; if it fails, again */
	if (facts->recovery && decision->remember)
		(void) pair_remember(wanted, NULL, decision->floor_ms, detail);
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
			return 0;
		case OPENING_STAY_OPEN:
			return 0;
		case OPENING_OPEN:
			break;
	}
	return open_gate(decision, now);
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
	bool		clock_is_good = clock_read(&now);
	long		pause;
	bool		granted;

	if (claim_from_redis() && clock_is_good)
		claim_propose(unix_ms_from_units(now), 0, false);
	awaits_answer = false;
	pause = settle_gate(now, clock_is_good);
	if (pause > 0)
		return pause;
	pause = grant_renew(&pair, now, &granted);
	if (granted && (logged_reason != GATE_OPEN || logged_detail[0]))
	{
		logged_reason = GATE_OPEN;
		logged_detail[0] = '\0';
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
	GeneratorProgress progress;

	snprintf(detail, sizeof(detail), "%s.%s%s", error->message,
			 error->hint ? " " : "", error->hint ? error->hint : "");
	if (strcmp(detail, logged_detail) != 0 && process_may_log())
	{
		EmitErrorReport();
		strlcpy(logged_detail, detail, sizeof(logged_detail));
	}
	generator_progress(&progress);
	if (RecoveryInProgress() || progress.gate.reason == GATE_OPEN)
		generator_no_grant(detail);
	else
		(void) generator_close(GATE_CEILING, detail);
	generator_advance_end(false, detail);
	pause.ms = retry_pause();
	pause.after_failure = true;
	return pause;
}

/* Closes the gate first of all. */
static void
keeper_stop(void)
{
	char		err[GATE_DETAIL_LEN];

	close_gate(GATE_STOPPING, "");
	if (claim_from_redis() && identity_claim()->lease_ms > 0)
		(void) pair_give_up(err);
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
