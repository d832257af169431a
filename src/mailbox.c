/*
 * mailbox.c
 *		Questions of one process to another in shared memory, one at a time.
 *
 * A box has a state, and beside it a letter: the question, and then the answer.
 * The spinlock is for the state alone.  The letter has no lock, so it may be
 * large: it belongs to the process whose turn it is.
 *
 *		NONE -> WRITING -> PLACED -> TAKEN -> ANSWERED -> NONE
 *
 * An answer is never taken for that to another question:
 *
 * - While there is a letter, no other question is placed; so an answer is that
 *	 to the question that was placed last.
 * - The asker leaves the box on each way out: with the answer, at an error, at
 *	 its exit.  A question that is not taken yet is withdrawn then, and is not
 *	 carried out.  One that is taken is carried out, and its answer is thrown
 *	 away.  So a process that gets the number of a former asker finds nothing
 *	 of it.
 * - The taker answers on each way out, at an error and at its exit, too.  So
 *	 the box does not stay taken.
 *
 * An asker with another question leaves, and asks again.  The asker decides
 * whether a late answer still holds.  After the crash of a process there is new
 * shared memory.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "mailbox.h"
#include "process.h"

/* An asker looks again after this time whether it can ask. */
#define ASK_MS 20

void
mailbox_init(Mailbox *box)
{
	SpinLockInit(&box->mutex);
	box->state = MAIL_NONE;
	box->asker = box->taker = -1;
}

/*---- The process that asks ----*/

/*
 * Places a question; the caller then wakes the process that answers.  False:
 * there is another one.
 */
bool
mailbox_place(Mailbox *box, void *letter, const void *question, Size size)
{
	bool		is_free;

	SpinLockAcquire(&box->mutex);
	is_free = box->state == MAIL_NONE;
	if (is_free)
	{
		box->state = MAIL_WRITING;
		box->asker = MyProcNumber;
	}
	SpinLockRelease(&box->mutex);
	if (!is_free)
		return false;
	memcpy(letter, question, size);
	SpinLockAcquire(&box->mutex);
	box->state = MAIL_PLACED;
	SpinLockRelease(&box->mutex);
	return true;
}

/* The state of the caller's question; MAIL_NONE: it has none. */
MailState
mailbox_look(Mailbox *box)
{
	MailState	state;

	SpinLockAcquire(&box->mutex);
	state = box->asker == MyProcNumber ? box->state : MAIL_NONE;
	SpinLockRelease(&box->mutex);
	return state;
}

/*
 * The caller does not ask any more, or has read its answer.  True: its question
 * was taken.
 */
bool
mailbox_leave(Mailbox *box)
{
	bool		was_taken = false;

	SpinLockAcquire(&box->mutex);
	if (box->asker == MyProcNumber)
	{
		was_taken = box->state == MAIL_TAKEN || box->state == MAIL_ANSWERED;
		if (box->state != MAIL_TAKEN)
			box->state = MAIL_NONE;
		box->asker = -1;
	}
	SpinLockRelease(&box->mutex);
	return was_taken;
}

static void
leave(int code, Datum box)
{
	(void) mailbox_leave((Mailbox *) DatumGetPointer(box));
}

/*
 * Has a process carry out a question, and waits for so many ms.  MAIL_ANSWERED: the
 * answer is in its place.  MAIL_TAKEN: it may still be carried out.  MAIL_NONE: it
 * is not.
 */
MailState
mailbox_ask(Mailbox *box, void *letter, void *question, Size size,
			ProcessId process, int64 ms, OwnWait wait)
{
	int64		ends = monotonic_ms() + ms;
	volatile bool answered = false;
	bool		was_taken;

	PG_ENSURE_ERROR_CLEANUP(leave, PointerGetDatum(box));
	{
		while (!answered && monotonic_ms() < ends)
		{
			if (mailbox_place(box, letter, question, size))
				process_notify(process);
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(ms_until(ends), ASK_MS), own_wait(wait));
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			answered = mailbox_look(box) == MAIL_ANSWERED;
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave, PointerGetDatum(box));
	if (answered)
		memcpy(question, letter, size);
	was_taken = mailbox_leave(box);
	return answered ? MAIL_ANSWERED : was_taken ? MAIL_TAKEN : MAIL_NONE;
}

/*---- The process that answers ----*/

/* Takes the question, to answer it now; false: there is none. */
bool
mailbox_take(Mailbox *box)
{
	bool		is_placed;

	SpinLockAcquire(&box->mutex);
	is_placed = box->state == MAIL_PLACED;
	if (is_placed)
	{
		box->state = MAIL_TAKEN;
		box->taker = MyProcNumber;
	}
	SpinLockRelease(&box->mutex);
	return is_placed;
}

/* Nothing was done for the question that was taken; it may be withdrawn. */
void
mailbox_put_back(Mailbox *box)
{
	SpinLockAcquire(&box->mutex);
	box->state = box->asker < 0 ? MAIL_NONE : MAIL_PLACED;
	box->taker = -1;
	SpinLockRelease(&box->mutex);
}

/* Has the caller taken a question that it has not answered? */
bool
mailbox_has_taken(Mailbox *box)
{
	bool		has_taken;

	SpinLockAcquire(&box->mutex);
	has_taken = box->state == MAIL_TAKEN && box->taker == MyProcNumber;
	SpinLockRelease(&box->mutex);
	return has_taken;
}

/* The answer is in the letter. */
void
mailbox_answer(Mailbox *box)
{
	int			asker;

	SpinLockAcquire(&box->mutex);
	asker = box->asker;
	box->state = asker < 0 ? MAIL_NONE : MAIL_ANSWERED;
	box->taker = -1;
	SpinLockRelease(&box->mutex);
	if (asker >= 0)
		process_set_latch(asker);
}
