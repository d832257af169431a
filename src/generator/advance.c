/*
 * advance.c
 *		snowid_advance(): the caller asks, the keeper carries it out.
 *
 * Only the keeper raises the ceiling and opens the gate, so it does the work.
 * One request at a time; its state is under the spinlock.  Until the keeper has
 * accepted it, the caller can withdraw it, and a call that fails has changed
 * nothing.  Then the caller waits for the result; it leaves a keeper that hangs,
 * when it is told to, without knowing the outcome.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "generator/advance.h"
#include "generator/state.h"
#include "generator/wait.h"
#include "key/layout.h"
#include "process.h"
#include "units.h"

/* A caller that is cancelled leaves a keeper that hangs after this time. */
#define ABANDON_MS 10000

/*---- The caller's side ----*/

/*
 * The state of this caller's request.  Places it if there is none of anybody's;
 * "withdraw" takes it back instead, if the keeper has not accepted it.  Its
 * result is returned once.
 */
static AdvanceState
tend_advance(int64 unit, bool withdraw)
{
	AdvanceState state = ADVANCE_NONE;
	bool		asks = false;

	SpinLockAcquire(&generator->mutex);
	if (generator->advance == ADVANCE_NONE)
	{
		if (!withdraw)
		{
			generator->advance = state = ADVANCE_WAITING;
			generator->advance_procno = MyProcNumber;
			generator->advance_unit = unit;
			asks = true;
		}
	}
	else if (generator->advance_procno == MyProcNumber)
	{
		state = generator->advance;
		if (state == ADVANCE_WAITING && withdraw)
			generator->advance = state = ADVANCE_NONE;
		if (state == ADVANCE_DONE || state == ADVANCE_FAILED)
			generator->advance = ADVANCE_NONE;
	}
	SpinLockRelease(&generator->mutex);
	if (asks)
		process_notify(PROCESS_KEEPER);
	return state;
}

/*
 * Leaves a request that the keeper has accepted and does not end; false: it has
 * ended.
 */
static bool
abandon_advance(void)
{
	bool		is_running;

	SpinLockAcquire(&generator->mutex);
	is_running = generator->advance == ADVANCE_RUNNING && generator->advance_procno == MyProcNumber;
	if (is_running)
		generator->advance_procno = -1;
	SpinLockRelease(&generator->mutex);
	return is_running;
}

/*
 * From here on every key is greater than id, whichever pair made it, even after
 * a crash: the generator continues after its millisecond.
 */
void
generator_advance(int64 id)
{
	Patience	patience = {false};
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];
	AdvanceState state;
	Parts		parts;
	int64		unit;
	int64		now;
	int64		running_since = PG_INT64_MAX;

	my_counters = &generator->counters[MyProcNumber];
	layout_unpack(&server_layout, id, &parts);
	unit = units_from_ms(parts.unix_ms - server_layout.epoch) | unit_format.sequence_mask;

	/* one with our number may have ended without seeing its result */
	(void) tend_advance(unit, true);
	/* once the keeper has accepted the request, wait for its result */
	HOLD_INTERRUPTS();
	for (;;)
	{
		int64		waited = waited_ms(&patience);
		bool		temporary = look_at_gate(&reason, detail);
		bool		too_far;
		bool		give_up;

		now = clock_units();
		too_far = unit > now + units_from_ms(snowid_max_jump);
		give_up = !temporary || waited > Max(snowid_max_wait, KEEPER_WAIT_MS);
		state = tend_advance(unit, too_far || give_up || InterruptPending);
		if (state == ADVANCE_DONE || state == ADVANCE_FAILED)
			break;
		if (state == ADVANCE_RUNNING)
			running_since = Min(running_since, waited);
		if ((QueryCancelPending || ProcDiePending) &&
			waited - running_since > ABANDON_MS && abandon_advance())
		{
			ereport(WARNING,
					(errmsg("the outcome of snowid_advance() is unknown"),
					 errdetail("The process \"snowid keeper\" hangs, and may still carry it out.")));
			RESUME_INTERRUPTS();
			CHECK_FOR_INTERRUPTS();
			HOLD_INTERRUPTS();
		}
		if (state == ADVANCE_NONE)
		{
			RESUME_INTERRUPTS();
			CHECK_FOR_INTERRUPTS();
			if (too_far)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("key " INT64_FORMAT " leads the clock by " INT64_FORMAT " ms, more than snowid.max_jump",
								id, parts.unix_ms - unix_ms_from_units(now)),
						 errdetail("No key could be made until the clock reaches it."),
						 errhint("Is it a key of this layout? If so, raise snowid.max_jump.")));
			if (!temporary)
				refuse_key(reason, detail);
			if (give_up)
				refuse_late(reason, detail, waited);
			HOLD_INTERRUPTS();
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ASK_MS, own_wait(WAIT_ADVANCE));
		ResetLatch(MyLatch);
	}
	/* a cancel came too late, as in a commit that is being flushed */
	if (state == ADVANCE_DONE)
		QueryCancelPending = false;
	RESUME_INTERRUPTS();
	if (state == ADVANCE_FAILED)
	{
		(void) look_at_gate(&reason, detail);
		refuse_key(reason, detail);
	}
	if (unit > now + units_from_ms(snowid_max_lead))
		ereport(NOTICE,
				(errmsg("keys wait until the clock has come within snowid.max_lead of key " INT64_FORMAT ", in " INT64_FORMAT " ms",
						id, ms_from_units(unit - now) - snowid_max_lead)));
}

/*---- The keeper's side; nothing here throws ----*/

/* The unit that a caller wants keys to be above, or -1. */
int64
generator_advance_asked(void)
{
	int64		unit;

	SpinLockAcquire(&generator->mutex);
	unit = generator->advance == ADVANCE_WAITING ? generator->advance_unit : -1;
	SpinLockRelease(&generator->mutex);
	return unit;
}

/* Accepts the request; false: it was withdrawn, or is another one by now. */
bool
generator_advance_begin(int64 unit)
{
	bool		begun;

	SpinLockAcquire(&generator->mutex);
	begun = generator->advance == ADVANCE_WAITING && generator->advance_unit == unit;
	if (begun)
		generator->advance = ADVANCE_RUNNING;
	SpinLockRelease(&generator->mutex);
	return begun;
}

/*
 * Ends the accepted request, if there is one.  "durable": a ceiling above its
 * unit is durable and the gate is open, so keys continue above it.
 */
void
generator_advance_end(bool durable)
{
	bool		running;
	int			procno;

	SpinLockAcquire(&generator->mutex);
	running = generator->advance == ADVANCE_RUNNING;
	SpinLockRelease(&generator->mutex);
	if (!running)
		return;
	if (durable)
	{
		uint64		last = pg_atomic_read_u64(&generator->last);

		while ((int64) last < generator->advance_unit &&
			   !pg_atomic_compare_exchange_u64(&generator->last, &last, generator->advance_unit))
			;
	}
	SpinLockAcquire(&generator->mutex);
	procno = generator->advance_procno;
	generator->advance = procno < 0 ? ADVANCE_NONE : durable ? ADVANCE_DONE : ADVANCE_FAILED;
	SpinLockRelease(&generator->mutex);
	if (procno >= 0)
		process_set_latch(procno);
}
