/*
 * advance.c
 *		snowid_advance(): the caller asks, the keeper carries it out.
 *
 * Only the keeper raises the ceiling and opens the gate, so it does the work.
 * Until the keeper takes the request (mailbox.c), the caller can withdraw it, and
 * a call that fails has changed nothing.  Then the caller waits for the result;
 * when cancelled, it leaves a keeper that hangs, without knowing the outcome.
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
#include "mailbox.h"
#include "process.h"
#include "units.h"

/* A caller that is cancelled leaves a keeper that hangs after this time. */
#define ABANDON_MS 10000

/*---- The caller's side ----*/

/* Leaves a request that the keeper has taken and does not end. */
static void
leave_hung_keeper(void)
{
	mailbox_leave(&generator->advance);
	ereport(WARNING,
			(errmsg("the outcome of snowid_advance() is unknown"),
			 errdetail("The process \"snowid keeper\" hangs, and may still carry it out.")));
}

static void
refuse_too_far(int64 id, int64 unix_ms, int64 now)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("key " INT64_FORMAT " leads the clock by " INT64_FORMAT " ms, more than snowid.max_jump",
					id, unix_ms - unix_ms_from_units(now)),
			 errdetail("No key could be made until the clock reaches it."),
			 errhint("Is it a key of this layout? If so, raise snowid.max_jump.")));
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
	MailState	state;
	AdvanceLetter letter = {0};
	Parts		parts;
	int64		now;
	int64		taken_since = PG_INT64_MAX;

	my_counters = &generator->counters[MyProcNumber];
	layout_unpack(&server_layout, id, &parts);
	letter.unit = units_from_ms(parts.unix_ms - server_layout.epoch) | unit_format.sequence_mask;

	/* once the keeper has taken the request, wait for its result */
	HOLD_INTERRUPTS();
	while ((state = mailbox_look(&generator->advance)) != MAIL_ANSWERED)
	{
		int64		waited = waited_ms(&patience);
		bool		temporary = look_at_gate(&reason, detail);
		bool		too_far;
		bool		give_up;

		now = clock_units();
		too_far = letter.unit > now + units_from_ms(snowid_max_jump);
		give_up = !temporary || waited > Max(snowid_max_wait, KEEPER_WAIT_MS);
		taken_since = state == MAIL_TAKEN ? Min(taken_since, waited) : PG_INT64_MAX;
		if ((QueryCancelPending || ProcDiePending) && waited - taken_since > ABANDON_MS)
		{
			leave_hung_keeper();
			state = MAIL_NONE;
		}
		if ((too_far || give_up || InterruptPending) &&
			(state == MAIL_NONE || mailbox_withdraw(&generator->advance)))
		{
			RESUME_INTERRUPTS();
			CHECK_FOR_INTERRUPTS();
			if (too_far)
				refuse_too_far(id, parts.unix_ms, now);
			if (!temporary)
				refuse_key(reason, detail);
			if (give_up)
				refuse_late(reason, detail, waited);
			HOLD_INTERRUPTS();
			state = MAIL_NONE;
		}
		if (state == MAIL_NONE &&
			mailbox_place(&generator->advance, &generator->advance_letter, &letter, sizeof(letter)))
			process_notify(PROCESS_KEEPER);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ASK_MS, own_wait(WAIT_ADVANCE));
		ResetLatch(MyLatch);
	}
	letter = generator->advance_letter;
	mailbox_leave(&generator->advance);
	now = clock_units();
	/* a cancel came too late, as in a commit that is being flushed */
	if (letter.done)
		QueryCancelPending = false;
	RESUME_INTERRUPTS();
	if (!letter.done)
	{
		(void) look_at_gate(&reason, detail);
		refuse_key(reason, detail);
	}
	if (letter.unit > now + units_from_ms(snowid_max_lead))
		ereport(NOTICE,
				(errmsg("keys wait until the clock has come within snowid.max_lead of key " INT64_FORMAT ", in " INT64_FORMAT " ms",
						id, ms_from_units(letter.unit - now) - snowid_max_lead)));
}

/*---- The keeper's side; nothing here throws ----*/

/* Takes a request: the unit that a caller wants keys to be above, or -1. */
int64
generator_advance_take(void)
{
	return mailbox_take(&generator->advance) ? generator->advance_letter.unit : -1;
}

/* The request that was taken cannot be carried out yet; its caller may withdraw it. */
void
generator_advance_later(void)
{
	mailbox_put_back(&generator->advance);
}

/*
 * Ends the request that was taken, if there is one.  "durable": a ceiling above
 * its unit is durable and the gate is open, so keys continue above it.
 */
void
generator_advance_end(bool durable)
{
	AdvanceLetter *letter = &generator->advance_letter;

	if (!mailbox_has_taken(&generator->advance))
		return;
	if (durable)
	{
		uint64		last = pg_atomic_read_u64(&generator->last);

		while ((int64) last < letter->unit &&
			   !pg_atomic_compare_exchange_u64(&generator->last, &last, letter->unit))
			;
	}
	letter->done = durable;
	mailbox_answer(&generator->advance);
}
