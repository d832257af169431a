/*
 * advance.c
 *		snowid_advance(): the caller asks, the keeper carries it out.
 *
 * Only the keeper raises the ceiling and opens the gate, so it does the work.  A
 * call that ends before the keeper has taken the request (mailbox.c) has changed
 * nothing; one that ends before the keeper has answered does not know the outcome.
 */
#include "postgres.h"

#include "storage/proc.h"

#include "compat.h"
#include "generator/advance.h"
#include "generator/state.h"
#include "generator/wait.h"
#include "key/layout.h"
#include "mailbox.h"
#include "process.h"
#include "units.h"

/*---- The caller's side ----*/

/*
 * From here on every key is greater than id, whichever pair made it, even after
 * a crash: the generator continues after its millisecond.
 */
void
generator_advance(int64 id)
{
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];
	MailState	state;
	AdvanceLetter letter = {0};
	Parts		parts;
	int64		wait_ms = Max(snowid_max_wait, KEEPER_WAIT_MS);
	int64		now = clock_units();

	my_counters = &generator->counters[MyProcNumber];
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
	state = mailbox_ask(&generator->advance, &generator->advance_letter, &letter, sizeof(letter),
						PROCESS_KEEPER, wait_ms, WAIT_ADVANCE);
	if (state == MAIL_TAKEN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the outcome of snowid_advance() is unknown"),
				 errdetail("The process \"snowid keeper\" is busy or hangs, and may still carry it out."),
				 errhint("Call it again; twice does no harm.")));
	(void) look_at_gate(&reason, detail);
	if (state == MAIL_NONE)
		refuse_late(reason, detail, wait_ms);
	if (!letter.done)
		refuse_key(reason, detail);
	now = clock_units();
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
