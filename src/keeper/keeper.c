/*
 * keeper.c
 *		The process "snowid keeper": keeps the durable ceiling ahead of use, and
 *		opens and closes the gate.
 *
 * It alone decides whether keys may be made, with which pair and how far; it
 * alone writes the state file and the ceiling.  It makes no keys and never
 * talks to the network.  What fails is tried again.
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
#include "generator/advance.h"
#include "generator/gate.h"
#include "keeper/ceiling.h"
#include "keeper/clock.h"
#include "keeper/grant.h"
#include "keeper/identity.h"
#include "keeper/keeper.h"
#include "keeper/move.h"
#include "keeper/origin_worker.h"
#include "keeper/pair.h"
#include "keeper/statefile.h"
#include "key/layout_text.h"
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

/* The pair that this keeper looks after. */
static Pair pair;

/* This turn ended before anything was decided: "snowid origin" is to answer. */
static bool awaits_answer = false;

/* The pause after the last failure; 0: the last turn succeeded. */
static long retry_ms = 0;

/* What was logged last, so that each change is logged once. */
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
	bool		has_pair;
	int			ignored;
	bool		was_open = generator_gate(&has_pair, &ignored, &ignored) == GATE_OPEN;
	int64		last = generator_close(reason, detail);

	log_state(reason, detail);
	if (was_open && pair.known)
	{
		pair.known = pair.looked_up = false;
		ceiling_leave(&pair.ceiling, unix_ms_from_units(last));
		generator_grant(last, last);
		identity_remember_ceiling(pair.claim.ownership, unix_ms_from_units(last));
	}
	pair.known = false;
	claim_leave(unix_ms_from_units(last));
}

static bool
open_gate(int64 now)
{
	GeneratorProgress progress;
	bool		has_pair;
	Claim		before = {0};
	bool		other_pair;
	bool		forget;
	int64		begin;
	char		layout[LAYOUT_TEXT_LEN];

	(void) generator_gate(&has_pair, &before.datacenter_id, &before.worker_id);
	generator_progress(&progress);
	other_pair = has_pair && !same_pair(&before, &pair.claim);

	/* order is given up only if another pair's keys are out of reach */
	forget = other_pair && progress.last > generator_reach(now);
	begin = forget || !has_pair ? pair.floor : Max(pair.floor, progress.last);

	grant_first(&pair, now, begin);
	generator_progress(&progress);
	if (!claim_enter(&pair.claim, unix_ms_from_units(progress.usable_until)))
		return false;			/* it was lost meanwhile */
	generator_open(pair.claim.datacenter_id, pair.claim.worker_id, pair.floor, forget);

	logged_reason = GATE_OPEN;
	logged_detail[0] = '\0';
	pair_opened(&pair);
	move_opened(&pair.claim);
	layout_describe(&server_layout, layout);
	ereport(LOG,
			(errmsg("snowid makes keys as datacenter %d, worker %d",
					pair.claim.datacenter_id, pair.claim.worker_id),
			 errdetail("The layout is \"%s\".", layout)));
	return true;
}

/* Lengthens the pause before a retry, and returns it. */
static long
retry_pause(void)
{
	retry_ms = Min(Max(2 * retry_ms, FIRST_RETRY_MS), LAST_RETRY_MS);
	return retry_ms;
}

/* Closes the gate until a later turn opens it. */
static long
stay_closed(GateReason reason, const char *detail)
{
	close_gate(reason, detail);
	return retry_pause();
}

/*
 * "snowid origin" has not answered yet, and wakes the keeper when it does.  Callers
 * wait, unless a failure before is more to the point.
 */
static long
wait_for_answer(void)
{
	bool		has_pair;
	int			ignored;
	GateReason	reason = generator_gate(&has_pair, &ignored, &ignored);

	if (reason != GATE_OPEN && reason != GATE_CEILING)
		(void) generator_close(GATE_STARTING, "");
	awaits_answer = true;
	return ANSWER_MS;
}

/* The ceiling cannot be raised now; keys go on up to it. */
static long
wait_for_ceiling(const char *detail)
{
	if (strcmp(detail, logged_detail) != 0)
		ereport(LOG,
				(errmsg("%s", gate_message(GATE_CEILING)),
				 errdetail("%s", detail)));
	strlcpy(logged_detail, detail, sizeof(logged_detail));
	generator_no_grant(detail);
	return TURN_MS;
}

/*
 * A predecessor left the gate open, and keys were made since.  The origin may
 * have been dropped or moved while it had no owner, so first of all the ceiling
 * is raised again above all keys.
 */
static void
renew_ceiling(void)
{
	GeneratorProgress progress;

	generator_progress(&progress);
	pair.known = false;			/* in case it throws */
	if (pair.ceiling.own_ms < unix_ms_from_units(progress.usable_until))
		ceiling_raise(&pair.ceiling, unix_ms_from_units(progress.usable_until));
	pair.known = true;
}

/*
 * Opens or closes the gate, as settings, claim, recovery and clock demand.
 * Returns 0 if it is open, or the ms until the next look.
 */
static long
settle_gate(int64 now, bool clock_is_good)
{
	GateReason	reason;
	GateReason	why_closed;
	char		err[GATE_DETAIL_LEN];
	char		err_buf[GATE_DETAIL_LEN];
	Claim		wanted;
	int64		limit_ms;
	bool		has_pair;
	Claim		in_use = {0};
	bool		is_wanted;

	reason = identity_load(err_buf);
	if (reason == GATE_MAY_OPEN)
		reason = pair_leave_source(err_buf);
	if (reason == GATE_STARTING)
		return wait_for_answer();
	why_closed = pair_wanted(&wanted, &limit_ms, err);
	if (why_closed == GATE_CLAIM_LOST)
	{
		/* in this order; the next turn repeats what fails */
		close_gate(why_closed, err);
		if (reason == GATE_MAY_OPEN && identity_introduce(err) == GATE_MAY_OPEN)
			return pair_forget(err) == GATE_STARTING ? ANSWER_MS : TURN_MS;
		return TURN_MS;
	}
	if (reason == GATE_MAY_OPEN && claim_from_redis())
		reason = identity_introduce(err_buf);
	if (reason != GATE_MAY_OPEN && (claim_from_redis() || !RecoveryInProgress()))
		return stay_closed(reason, err_buf);
	if (RecoveryInProgress())
	{
		close_gate(GATE_RECOVERY, "");
		if (why_closed == GATE_MAY_OPEN && clock_is_good &&
			!pair_remember_early(&wanted, now, err))
			log_state(GATE_FILE, err);
		return TURN_MS;
	}
	if (why_closed != GATE_MAY_OPEN)
	{
		pair.found = false;		/* another server may use it meanwhile */
		return stay_closed(why_closed, err);
	}
	pair.limit = limit_ms == PG_INT64_MAX ? PG_INT64_MAX : last_unit_of(limit_ms);

	reason = generator_gate(&has_pair, &in_use.datacenter_id, &in_use.worker_id);
	is_wanted = same_pair(&in_use, &wanted) && claim_entered() == wanted.ownership;
	if (!clock_is_good)
	{
		static const char *const detail = "The clock jumped ahead by more than snowid.max_jump; if it is right, call snowid_accept_clock().";

		/* a pair that is no longer wanted is left all the same */
		if (reason != GATE_OPEN || !is_wanted)
			return stay_closed(GATE_STARTING, detail);
		generator_no_grant(detail);
		return retry_pause();
	}
	if (reason != GATE_OPEN)
		pair_settle_opening(&pair, now);
	if (!pair.known || !same_pair(&pair.claim, &wanted) ||
		pair.claim.ownership != wanted.ownership)
	{
		/* a gate that a predecessor opened with this claim stays open */
		if (reason == GATE_OPEN && !is_wanted)
			close_gate(GATE_STARTING, "");
		why_closed = pair_find(&pair, &wanted, now, err);
		reason = generator_gate(&has_pair, &in_use.datacenter_id, &in_use.worker_id);
		if (why_closed == GATE_STARTING)
			return wait_for_answer();
		if (why_closed == GATE_CEILING && reason == GATE_OPEN)
			return wait_for_ceiling(err);
		if (why_closed != GATE_MAY_OPEN)
			return stay_closed(why_closed, err);
		grant_start_slowly();
		if (reason == GATE_OPEN)
			renew_ceiling();
	}
	if (move_is_needed(&pair, reason == GATE_OPEN, now, err))
	{
		close_gate(GATE_BEHIND, err);
		return move_pause();
	}
	if (reason == GATE_OPEN)
		return 0;
	if (now < pair.opens_at)
	{
		/* in whole seconds, since a slewed clock moves it */
		snprintf(err, sizeof(err), "A pair that is new to this server can be used when the clock has passed %s.",
				 timestamptz_to_str(timestamptz_from_unix_ms(unix_ms_from_units(pair.opens_at) / 1000 * 1000 + 1000)));
		generator_close(GATE_STARTING, err);
		log_state(GATE_STARTING, err);
		return Min(ms_from_units(pair.opens_at - now), TURN_MS);
	}
	pair.floor = Max(pair.floor, pair.opens_at);
	if (!pair_remember(&pair, err))
		return stay_closed(GATE_FILE, err);
	reason = pair_leave_layouts(&pair, err);
	if (reason == GATE_STARTING)
		return wait_for_answer();
	if (reason != GATE_MAY_OPEN)
		return stay_closed(reason, err);
	return open_gate(now) ? 0 : retry_pause();
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
	if (!awaits_answer)
		move_end_turn(now);
	if (pause > 0)
		return pause;
	pause = grant_renew(&pair, now, &granted);
	if (granted && logged_reason == GATE_OPEN && logged_detail[0])
	{
		logged_detail[0] = '\0';
		ereport(LOG, (errmsg("snowid reserves keys again")));
	}
	retry_ms = 0;
	return Min(pause, move_pause());
}

/*---- The process ----*/

static Pause
keeper_turn(bool news, bool reloaded)
{
	Pause		pause;

	if (news || reloaded)
		retry_ms = 0;
	pause.ms = take_turn();
	/* an answer is taken at once: its origin has no owner yet */
	pause.after_failure = retry_ms > 0 && !awaits_answer;
	return pause;
}

/*
 * Logs an error once, and tells callers.  An open gate stays open: keys go on up
 * to the ceiling.  A closed one has the reason of an earlier turn, which has
 * passed, except for recovery.
 */
static Pause
keeper_recover(const ErrorData *error)
{
	Pause		pause;
	char		detail[GATE_DETAIL_LEN];
	bool		has_pair;
	int			ignored;

	snprintf(detail, sizeof(detail), "%s.%s%s", error->message,
			 error->hint ? " " : "", error->hint ? error->hint : "");
	if (strcmp(detail, logged_detail) != 0 && process_may_log())
	{
		EmitErrorReport();
		strlcpy(logged_detail, detail, sizeof(logged_detail));
	}
	if (RecoveryInProgress() || generator_gate(&has_pair, &ignored, &ignored) == GATE_OPEN)
		generator_no_grant(detail);
	else
		(void) generator_close(GATE_CEILING, detail);
	generator_advance_end(false);
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
		(void) pair_forget(err);
}

static void
keeper_leave(void)
{
	generator_advance_end(false);
	origin_leave_question();
	statefile_unlock();
}

static const Process keeper = {
	.id = PROCESS_KEEPER,
	.name = "snowid keeper",
	.function = "snowid_keeper_main",
	.wait = WAIT_KEEPER_MAIN,
	.turn = keeper_turn,
	.recover = keeper_recover,
	.stop = keeper_stop,
	.leave = keeper_leave
};

/* Runs in the postmaster. */
void
keeper_register(void)
{
	process_register(&keeper);
}

void
snowid_keeper_main(Datum main_arg)
{
	process_run(&keeper);
}
