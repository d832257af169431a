/*
 * wait.c
 *		The slow path of a caller: waits and refusals; and an administrator's three
 *		words to the keeper: snowid_advance(), and consent to a clock or a layout.
 *
 * A caller waits for the clock, or for the keeper: for a grant, or for the
 * gate to open.  All waits can be cancelled, and end after snowid.max_wait by a
 * steady clock.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_replication_origin.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "generator/state.h"
#include "generator/wait.h"
#include "key/layout.h"
#include "process.h"
#include "units.h"

PG_FUNCTION_INFO_V1(snowid_advance);
PG_FUNCTION_INFO_V1(snowid_accept_clock);
PG_FUNCTION_INFO_V1(snowid_accept_layout);

/*
 * snowid.max_wait is about the clock, and may be shorter than a flush of the
 * WAL.  A caller waits at least this long for the keeper.
 */
#define KEEPER_WAIT_MS 1000

/* A caller that waits for the keeper looks again after this time. */
#define ASK_MS 20

/* A caller looks again after this time whether another pair was taken. */
#define LOOK_MS 100

/* Tolerance for a clock that is slewed while a caller waits. */
#define SLEW_MS 10

/*---- The time spent waiting ----*/

/* Starts the wait, or returns how many ms of it have passed. */
static int64
waited_ms(instr_time *since)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	if (INSTR_TIME_IS_ZERO(*since))
		*since = now;
	INSTR_TIME_SUBTRACT(now, *since);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

void
count_wait(instr_time since)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, since);
	count(&my_counters->waits, 1);
	count(&my_counters->wait_us, (int64) INSTR_TIME_GET_MICROSEC(now));
}

/*---- The first key of a session ----*/

/*
 * Throws if somebody gave one of our numbers of replication origins a row in the catalog:
 * by its name, SQL could move or drop a ceiling.
 */
static void
require_no_row(void)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	/* a key waits for nobody who has locked the catalog */
	if (!ConditionalLockRelationOid(ReplicationOriginRelationId, AccessShareLock))
		return;
	rel = table_open(ReplicationOriginRelationId, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Oid			number = ((Form_pg_replication_origin) GETSTRUCT(tuple))->roident;
		bool		isnull;

		if (number >= LOWEST_ORIGIN && number <= HIGHEST_ORIGIN)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("replication origin \"%s\" has a number that snowid uses",
							TextDatumGetCString(heap_getattr(tuple, Anum_pg_replication_origin_roname,
															 RelationGetDescr(rel), &isnull))),
					 errdetail("Its number is %u; snowid keeps its ceilings in the positions of %d to %d.",
							   number, LOWEST_ORIGIN, HIGHEST_ORIGIN),
					 errhint("Delete its row from pg_replication_origin; dropping it would drop a ceiling.")));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

pg_noinline void
begin_to_count(void)
{
	require_no_row();
	my_counters = &generator->counters[MyProcNumber];
}

/*---- Refusals ----*/

/* May the detail of a reason have an address or a path of the settings? */
static bool
is_of_redis(GateReason reason)
{
	return reason == GATE_BEHIND || reason == GATE_CLAIM || reason == GATE_CLAIM_LOST ||
		reason == GATE_CLAIM_REFUSED || (reason == GATE_OPEN && snowid_redis_url[0]);
}

/* Throws the error of a reason. */
void
generator_refuse(GateReason reason, const char *detail)
{
	if (detail[0] && is_of_redis(reason) && !may_read_settings())
		detail = "See the server log.";
	ereport(ERROR,
			(errcode(gate_texts[reason].sqlstate ? gate_texts[reason].sqlstate :
					 ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s", gate_texts[reason].message),
			 detail[0] ? errdetail("%s", detail) : 0,
			 errhint("%s", gate_texts[reason].hint)));
}

/* Throws the error of a reason, and counts it: the caller wanted a key. */
static void
refuse_key(GateReason reason, const char *detail)
{
	count(&my_counters->errors, 1);
	generator_refuse(reason, detail);
}

/* Refuses a key after a wait for the keeper, which may be the reason. */
static void
refuse_late(GateReason reason, char *detail, int64 waited)
{
	(void) generator_keeper_trouble(detail[0] ? STUCK_MS : waited, detail);
	refuse_key(reason, detail);
}

static void
refuse_lead(int64 lead, int64 wait)
{
	count(&my_counters->errors, 1);
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("the next key would lead the clock by " INT64_FORMAT " ms", lead),
			 errdetail("snowid.max_lead is %d ms, so the key is due in " INT64_FORMAT " ms, but snowid.max_wait is %d ms.",
					   snowid_max_lead, wait, snowid_max_wait),
			 errhint("The clock was set back, or keys are requested faster than the layout can number them; see snowid_status().")));
}

/*
 * Is the unit so far ahead that the clock must have been set back, and does the
 * keeper then take another pair?
 */
static bool
is_left_soon(int64 unit, int64 now)
{
	return *(volatile bool *) &generator->gate.may_move && unit > generator_reach(now);
}

/*
 * Refuses a unit beyond the range of timestamps, or one that is due too late.
 * Reads the clock again: the caller may have lost its CPU since.  False: there
 * may be another pair by now, so start again.
 */
static bool
require_in_reach(int64 unit, instr_time *since)
{
	int64		now = clock_units();
	int64		may_wait = snowid_max_wait - waited_ms(since);
	Prospect	prospect = generator_judge(unit, now, generator_usable_until(), may_wait);

	if (prospect == UNIT_USABLE || prospect == UNIT_NEEDS_GRANT)
		return true;
	if (prospect != UNIT_TOO_FAR)
		refuse_key(prospect == UNIT_BEFORE_EPOCH ? GATE_BEFORE_EPOCH : GATE_RANGE_ENDED, "");
	if (may_wait <= 0 || !is_left_soon(unit, now))
		refuse_lead(ms_from_units(unit - now), generator_due_in(unit, now));
	/* until the keeper has seen the clock, and closes the gate */
	process_wake(PROCESS_KEEPER);
	ConditionVariablePrepareToSleep(&generator->changed);
	(void) ConditionVariableTimedSleep(&generator->changed, Min(may_wait, LOOK_MS),
									   own_wait(WAIT_KEEPER));
	ConditionVariableCancelSleep();
	return false;
}

/*
 * For sessions that read keys: throws if the server's layout is refused, since
 * its answer might be wrong.  Returns true if the gate is open: then the last
 * keys are known to have this layout.  Called for each key, so it takes no
 * lock: the reason is one word, and any call may be a moment too early.
 */
bool
generator_require_layout(void)
{
	GateReason	reason = *(volatile GateReason *) &generator->gate.reason;

	if (unlikely(reason == GATE_LAYOUT || reason == GATE_LAYOUT_CONSENT))
	{
		GeneratorStatus status;

		generator_status(&status, PG_INT64_MAX);
		if (status.gate.reason == reason)
			generator_refuse(reason, status.gate.detail);
	}
	return reason == GATE_OPEN;
}

/*---- Waiting for the keeper ----*/

/* A grant is wanted: wakes the keeper, once for each grant. */
pg_noinline void
ask_for_grant(void)
{
	if (pg_atomic_exchange_u64(&generator->ask_above, GATE_CLOSED) != GATE_CLOSED)
		process_wake(PROCESS_KEEPER);
}

/* The reason why no keys are made.  Returns true if it is temporary: callers wait. */
static bool
look_at_gate(GateReason *reason, char *detail)
{
	LWLockAcquire(generator_lock, LW_SHARED);
	*reason = generator->gate.reason;
	memcpy(detail, generator->gate.detail, GATE_DETAIL_LEN);
	LWLockRelease(generator_lock);
	if (generator_reason(*reason) != *reason)
	{
		*reason = generator_reason(*reason);
		process_notify(PROCESS_KEEPER);
	}
	return gate_texts[*reason].temporary;
}

/*
 * Waits until the keeper opens the gate, or grants this unit.  May return
 * early, so that the clock is read again.  Throws when the wait is over.
 */
static void
wait_for_keeper(int64 unit, instr_time *since)
{
	int64		waited = waited_ms(since);
	int64		left = Max(snowid_max_wait, KEEPER_WAIT_MS) - waited;
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];
	bool		temporary;

	ConditionVariablePrepareToSleep(&generator->changed);
	temporary = look_at_gate(&reason, detail);
	if (unit > generator_usable_until())
	{
		if (!temporary)
			refuse_key(reason, detail);
		if (left <= 0)
			refuse_late(reason, detail, waited);
		/* while the gate is closed, the keeper knows when to look */
		if (reason == GATE_OPEN)
			ask_for_grant();
		(void) ConditionVariableTimedSleep(&generator->changed,
										   reason == GATE_OPEN ? ASK_MS : left,
										   own_wait(WAIT_KEEPER));
	}
	ConditionVariableCancelSleep();
}

/*---- Waiting for the clock ----*/

/*
 * May a unit be taken that is out of reach?  True: take it, and wait until it is
 * due.  False: start again with a new reading of the clock.  Throws if the wait
 * would be too long.  "now" is the caller's reading of the clock.
 */
pg_noinline bool
may_take_ahead(int64 last, int64 now, int64 unit, instr_time *since)
{
	if (last != GATE_CLOSED)
	{
		/* a wrong reading that is over is no reason to refuse */
		if (now > clock_units())
			return false;
		if (!require_in_reach(unit, since))
			return false;
		if (unit <= (int64) pg_atomic_read_u64(&generator->usable_until))
			return true;
	}
	wait_for_keeper(unit, since);
	return false;
}

/*
 * Sleeps until a unit, which was taken under this opening, leads the clock by at
 * most max_lead.  False: do not use it.  Then the opening is over, and its pair may be
 * another server's, which begins where the clock is; or the clock was set back, and
 * the keeper takes another pair.  If the wait becomes too long and there will be no
 * other pair, it throws.  A caller that does not use the unit leaves a gap.
 */
pg_noinline bool
wait_until_due(int64 unit, uint64 opening, instr_time *since)
{
	int64		due = (unit & ~unit_format.sequence_mask) - units_from_ms(snowid_max_lead);

	for (;;)
	{
		int64		now = clock_units();
		int64		left = due - now;
		int64		left_ms = ms_from_units(left);

		if (pg_atomic_read_u64(&generator->last) == GATE_CLOSED ||
			generator->opening != opening)
			return false;
		if (left <= 0)
			return true;
		if (waited_ms(since) + left_ms > (int64) snowid_max_wait + SLEW_MS)
		{
			if (is_left_soon(unit, now))
				return false;
			refuse_lead(ms_from_units(unit - now), left_ms);
		}

		CHECK_FOR_INTERRUPTS();
		if (left_ms > 2)
		{
			(void) WaitLatch(MyLatch,
							 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(left_ms - 1, 1000), own_wait(WAIT_CLOCK));
			ResetLatch(MyLatch);
		}
		else
		{
			/* a latch's timeout is in whole ms, and a ms has many keys */
			pgstat_report_wait_start(own_wait(WAIT_CLOCK));
			pg_usleep((left * 1000 >> server_layout.sequence_bits) + 1);
			pgstat_report_wait_end();
		}
	}
}

/*---- snowid_advance() ----
 *
 * Only the keeper raises the ceiling and opens the gate, so it does the work (gate.c).  A
 * call that ends before the keeper has taken the request (process.c) has changed nothing;
 * one that ends before the keeper has answered does not know the outcome.
 */

/*
 * From here on every key is greater than this one, whichever pair made it, even after
 * a crash: the generator continues after its millisecond.
 */
Datum
snowid_advance(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];
	MailState	state;
	AdvanceLetter letter = {0};
	Parts		parts;
	int64		wait_ms = Max(snowid_max_wait, KEEPER_WAIT_MS);
	int64		now;

	require_preloaded();
	now = clock_units();
	if (my_counters == NULL)
		begin_to_count();
	layout_unpack(&server_layout, id, &parts);
	letter.unit = units_from_ms(parts.unix_ms - server_layout.epoch) | unit_format.sequence_mask;
	if (letter.unit > now + units_from_ms(snowid_max_jump))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key " INT64_FORMAT " leads the clock by " INT64_FORMAT " ms, more than snowid.max_jump",
						id, parts.unix_ms - unix_ms_from_units(now)),
				 errdetail("No key could be made until the clock reaches it."),
				 errhint("Is it a key of this layout? If so, raise snowid.max_jump.")));
	if (!look_at_gate(&reason, detail))
		refuse_key(reason, detail);
	state = mailbox_ask(&generator->advance, &letter, PROCESS_KEEPER, wait_ms, WAIT_ADVANCE);
	if (state == MAIL_TAKEN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the outcome of snowid_advance() is unknown"),
				 errdetail("The process \"snowid keeper\" is busy or hangs, and may still carry it out."),
				 errhint("Call it again; twice does no harm.")));
	(void) look_at_gate(&reason, detail);
	if (state != MAIL_ANSWERED)
		refuse_late(reason, detail, wait_ms);
	if (!letter.done)
		refuse_key(reason, letter.error[0] ? letter.error : detail);
	now = clock_units();
	if (letter.unit > now + units_from_ms(snowid_max_lead))
		ereport(NOTICE,
				(errmsg("keys wait until the clock has come within snowid.max_lead of key " INT64_FORMAT ", in " INT64_FORMAT " ms",
						id, ms_from_units(letter.unit - now) - snowid_max_lead)));
	PG_RETURN_VOID();
}

/*---- Consent, which the keeper looks for in each turn ----*/

static void
consent(bool is_asked, const char *refusal, const char *hint)
{
	if (!is_asked)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s", refusal),
				 errhint("%s", hint)));
	process_notify(PROCESS_KEEPER);
}

/* The administrator accepts the clock as it is. */
Datum
snowid_accept_clock(PG_FUNCTION_ARGS)
{
	bool		is_asked;

	require_preloaded();
	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	is_asked = generator->gate.clock_jumped;
	generator->gate.accepts_clock |= is_asked;
	LWLockRelease(generator_lock);
	consent(is_asked, "there is no clock jump to accept",
			"If keys are refused, snowid_status() has another reason; if the clock jumped just now, call it again.");
	PG_RETURN_VOID();
}

/* The administrator consents to the change of the layout, until the next restart. */
Datum
snowid_accept_layout(PG_FUNCTION_ARGS)
{
	bool		is_asked;

	require_preloaded();
	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	is_asked = generator->gate.reason == GATE_LAYOUT_CONSENT;
	generator->gate.accepts_layout |= is_asked;
	LWLockRelease(generator_lock);
	consent(is_asked, "there is no layout change to accept",
			"If keys are refused, snowid_status() has another reason; perhaps the change was accepted before.");
	PG_RETURN_VOID();
}
