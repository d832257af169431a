/*
 * process.c
 *		Our background processes: how to find and wake them, what one asks another,
 *		and their common loop.
 *
 * The postmaster times restarts by the wall clock, which may be set back at that
 * very moment.  So a process that leaves registers a successor, which starts at once
 * unless the server shuts down, and ends for good.  If there is no slot for it, the
 * postmaster restarts the first one after a second.  One that a caller started has
 * no successor.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "process.h"

typedef struct ProcessState
{
	pg_atomic_uint32 news;
	pg_atomic_uint64 turn_at;	/* start of its last turn, by monotonic_ms() */
	pg_atomic_uint32 procno;	/* or NO_PROC */
} ProcessState;

/*
 * A process may log this many lines at once, and then one in each pause, so that
 * a state that changes all the time does not fill the disk.
 */
#define LOG_BURST 30
#define LOG_PAUSE_MS (10 * 1000)

#define NO_PROC PG_UINT32_MAX

/* Those of which a server has one: all but the last. */
#define PROCESSES PROCESS_SEGMENTS

#ifdef EXEC_BACKEND
#error "processes must inherit the postmaster's memory"
#endif

/* One for each of these, by its ProcessId, in shared memory. */
static ProcessState *processes = NULL;

/* The calling process's; one of many has its own, which is not shared. */
static ProcessState *mine = NULL;
static ProcessState alone;

/*---- Wait events ----*/

static const char *const wait_names[OWN_WAITS] =
{
	[WAIT_CLOCK] = "SnowidClock",
	[WAIT_KEEPER] = "SnowidKeeper",
	[WAIT_ADVANCE] = "SnowidAdvance",
	[WAIT_REGISTRY] = "SnowidRegistry",
	[WAIT_NETWORK] = "SnowidNetwork",
	[WAIT_SEGMENT] = "SnowidSegment",
	[WAIT_MAIN] = "SnowidMain"
};

static uint32 own_waits[OWN_WAITS];

uint32
own_wait(OwnWait which)
{
	return own_waits[which];
}

/*---- Shared memory ----
 *
 * In the postmaster alone: the others inherit the addresses.  Each module has one
 * function that is called twice: to reserve its room, and then to fill it, after a
 * crash again.
 */

/* An area of zeros; NULL while it is only reserved. */
void *
shmem_area(bool reserve, const char *name, Size size)
{
	bool		found;

	if (reserve)
	{
		RequestAddinShmemSpace(CACHELINEALIGN(size));
		return NULL;
	}
	return memset(ShmemInitStruct(name, size, &found), 0, size);
}

static void
init_state(ProcessState *state)
{
	pg_atomic_init_u32(&state->news, 0);
	pg_atomic_init_u64(&state->turn_at, 0);
	pg_atomic_init_u32(&state->procno, NO_PROC);
}

void
process_shmem(bool reserve)
{
	processes = shmem_area(reserve, "snowid processes", PROCESSES * sizeof(ProcessState));
	if (reserve)
		return;
	for (int i = 0; i < PROCESSES; i++)
		init_state(&processes[i]);
	for (int i = 0; i < OWN_WAITS; i++)
		own_waits[i] = WaitEventExtensionNew(wait_names[i]);
}

/*---- Finding and waking ----*/

/* Its PROC number, or -1. */
static int
procno_of(ProcessId id)
{
	return (int) pg_atomic_read_u32(&processes[id].procno);
}

bool
process_is_there(ProcessId id)
{
	return procno_of(id) >= 0;
}

/*
 * Its PID, or 0; and the ms since it began a turn, or -1 if it did not since the server
 * started, or crashed.
 */
int
process_pid(ProcessId id, int64 *still_ms)
{
	int64		turn_at = (int64) pg_atomic_read_u64(&processes[id].turn_at);
	int			procno = procno_of(id);

	*still_ms = turn_at == 0 ? -1 : monotonic_ms() - turn_at;
	return procno < 0 ? 0 : ProcGlobal->allProcs[procno].pid;
}

void
process_set_latch(int procno)
{
	SetLatch(&ProcGlobal->allProcs[procno].procLatch);
}

void
process_wake(ProcessId id)
{
	int			procno = procno_of(id);

	if (procno >= 0)
		process_set_latch(procno);
}

/* Has it begin a turn at once, even in the pause after a failure. */
void
process_notify(ProcessId id)
{
	pg_atomic_write_u32(&processes[id].news, 1);
	process_wake(id);
}

/*---- Starting ----*/

static void
describe_worker(BackgroundWorker *worker, const Process *process)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* the others on a standby, too: to be ready for a promotion */
	worker->bgw_start_time = process->is_one_of_many ? BgWorkerStart_RecoveryFinished :
		BgWorkerStart_ConsistentState;
	/* not 0: a fork() that fails would be tried again at once, and logged */
	worker->bgw_restart_time = 1;
	strlcpy(worker->bgw_library_name, "snowid", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, "snowid_process_main", BGW_MAXLEN);
	strlcpy(worker->bgw_name, process->name, BGW_MAXLEN);
	strlcpy(worker->bgw_type, process->name, BGW_MAXLEN);
	worker->bgw_main_arg = Int32GetDatum(process->id);
}

/* Runs in the postmaster. */
void
process_register(const Process *process)
{
	BackgroundWorker worker;

	describe_worker(&worker, process);
	RegisterBackgroundWorker(&worker);
}

/* Starts one of many, with a number.  After its exit it is not started again. */
bool
process_start(const Process *process, int number)
{
	BackgroundWorker worker;

	Assert(process->is_one_of_many);
	describe_worker(&worker, process);
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	memcpy(worker.bgw_extra, &number, sizeof(number));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* With which number was the calling process started?  0, if the postmaster did. */
int
process_number(void)
{
	int			number;

	memcpy(&number, MyBgworkerEntry->bgw_extra, sizeof(number));
	return number;
}

/*---- The loop ----*/

/* May the calling process log a line, or has it logged too many? */
bool
process_may_log(void)
{
	static int64 spent = PG_INT64_MIN;	/* by monotonic_ms() */
	int64		now = monotonic_ms();

	spent = Max(spent, now - LOG_BURST * LOG_PAUSE_MS) + LOG_PAUSE_MS;
	if (spent <= now)
		return true;
	spent -= LOG_PAUSE_MS;
	return false;
}

/* From here on, what process_notify() tells is for the next turn. */
static void
begin_turn(void)
{
	pg_atomic_write_u64(&mine->turn_at, (uint64) monotonic_ms());
	(void) pg_atomic_exchange_u32(&mine->news, 0);
}

/* Registers the caller as this process; false: another one is running. */
static bool
attach(const Process *process)
{
	uint32		nobody = NO_PROC;

	mine = process->is_one_of_many ? &alone : &processes[process->id];
	if (process->is_one_of_many)
		init_state(mine);
	if (!pg_atomic_compare_exchange_u32(&mine->procno, &nobody, MyProcNumber))
		return false;
	begin_turn();
	return true;
}

static void
detach(int code, Datum process)
{
	/* not again at the exit, when a successor may be there */
	if (mine == NULL)
		return;
	((const Process *) DatumGetPointer(process))->leave();
	pg_atomic_write_u32(&mine->procno, NO_PROC);
	mine = NULL;
}

/* Ends the process, and starts its successor. */
static void
leave_for_successor(const Process *process)
{
	BackgroundWorker worker;

	detach(0, PointerGetDatum(process));
	describe_worker(&worker, process);
	/* after 0 the postmaster forgets it; after 1 it starts it again */
	proc_exit(MyBgworkerEntry->bgw_restart_time == BGW_NEVER_RESTART ||
			  RegisterDynamicBackgroundWorker(&worker, NULL) ? 0 : 1);
}

/* SIGTERM */
static void
stop(const Process *process)
{
	PG_TRY();
	{
		if (process->stop)
			process->stop();
	}
	PG_CATCH();
	{
		EmitErrorReport();
		FlushErrorState();
		LWLockReleaseAll();
	}
	PG_END_TRY();
	leave_for_successor(process);
}

/* Settings that the owner of its database may have changed must not count. */
static void
settle(const char *synchronous_commit)
{
	const char *const forced[][2] = {
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"exit_on_error", "off"},	/* each failure would end the process */
		{"synchronous_commit", synchronous_commit},
		{"transaction_timeout", "0"},
	};

	for (int i = 0; i < lengthof(forced); i++)
	{
		/* not in all majors */
		if (GetConfigOption(forced[i][0], true, false))
			SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
}

/*
 * Connects to a database.  From here on SIGTERM ends the wait for a lock, that of the
 * database first.  A process that fails to connect cannot try again, so it exits.
 */
void
process_connect(Oid database, const char *synchronous_commit)
{
	MemoryContext turn_context = CurrentMemoryContext;

	pqsignal(SIGTERM, die);
	MemoryContextSwitchTo(TopMemoryContext);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	MemoryContextSwitchTo(turn_context);
	settle(synchronous_commit);
}

/*
 * Waits for the next turn.  After a failure a mere wake-up does not end the
 * pause: callers would cause retries all the time.
 */
static void
rest(Pause pause)
{
	int64		until = monotonic_ms() + pause.ms;

	do
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 pause.ms, own_wait(WAIT_MAIN));
		ResetLatch(MyLatch);
		pause.ms = until - monotonic_ms();
	} while (pause.after_failure && pause.ms > 0 &&
			 pg_atomic_read_u32(&mine->news) == 0 &&
			 !InterruptPending && !ConfigReloadPending && !ShutdownRequestPending);
}

void
process_run(const Process *process)
{
	MemoryContext turn_context;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	ConfigReloadPending = true; /* one since the fork was not noticed */
	/* a lock's timeout is a SIGINT, too; elsewhere there is nothing to cancel */
	if (!process->is_one_of_many)
		pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	if (!process->is_one_of_many)
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	if (!attach(process))
		proc_exit(0);			/* one is enough; this one is not restarted */
	before_shmem_exit(detach, PointerGetDatum(process));

	turn_context = AllocSetContextCreate(TopMemoryContext, "snowid turn",
										 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		volatile Pause pause;

		if (ShutdownRequestPending)
			stop(process);

		MemoryContextSwitchTo(turn_context);
		PG_TRY();
		{
			bool		reloaded;

			CHECK_FOR_INTERRUPTS();
			begin_turn();
			reloaded = ConfigReloadPending;
			if (reloaded)
			{
				ConfigReloadPending = false;
				ProcessConfigFile(PGC_SIGHUP);
			}
			pause = process->turn(reloaded);
		}
		PG_CATCH();
		{
			HOLD_INTERRUPTS();
			MemoryContextSwitchTo(turn_context);
			LWLockReleaseAll();
			pause = process->recover(CopyErrorData());
			/* the connection to its database failed */
			pause.leave |= IsInitProcessingMode();
			FlushErrorState();
			AbortCurrentTransaction();
			/* a signal that threw, SIGFPE, is blocked since then */
			BackgroundWorkerUnblockSignals();
			RESUME_INTERRUPTS();
		}
		PG_END_TRY();
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(turn_context);

		if (pause.leave)
			leave_for_successor(process);
		rest(pause);
	}
}

/*---- Mailboxes: what one process asks another ----
 *
 * A box has a state, and a letter: the question, and then the answer.  The lock is
 * held for moments: a letter belongs to the process whose turn it is, and is read and
 * written without the lock by the one that has taken it.
 *
 *		NONE -> PLACED -> TAKEN -> ANSWERED -> NONE
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

/* An asker looks again after this time whether it can ask. */
#define ASK_MS 20

void
mailbox_init(Mailbox *box, LWLock *lock, void *letter, Size size)
{
	box->lock = lock;
	box->letter = letter;
	box->size = size;
	box->asker = -1;
}

/* for the process that asks */

/*
 * Places a question; the caller then wakes the process that answers.  False:
 * there is another one.
 */
bool
mailbox_place(Mailbox *box, const void *question)
{
	bool		is_free;

	LWLockAcquire(box->lock, LW_EXCLUSIVE);
	is_free = box->state == MAIL_NONE;
	if (is_free)
	{
		memcpy(box->letter, question, box->size);
		box->state = MAIL_PLACED;
		box->asker = MyProcNumber;
	}
	LWLockRelease(box->lock);
	return is_free;
}

static bool
has_answer(Mailbox *box)
{
	bool		is_there;

	LWLockAcquire(box->lock, LW_SHARED);
	is_there = box->asker == MyProcNumber && box->state == MAIL_ANSWERED;
	LWLockRelease(box->lock);
	return is_there;
}

/*
 * The caller does not ask any more.  Returns how far its question came, and copies the
 * answer, if it has one.
 */
static MailState
mailbox_leave(Mailbox *box, void *answer)
{
	MailState	state = MAIL_NONE;

	LWLockAcquire(box->lock, LW_EXCLUSIVE);
	if (box->asker == MyProcNumber)
	{
		state = box->state;
		if (state == MAIL_ANSWERED && answer)
			memcpy(answer, box->letter, box->size);
		if (state != MAIL_TAKEN)
			box->state = MAIL_NONE;
		box->asker = -1;
	}
	LWLockRelease(box->lock);
	return state;
}

static void
leave(int code, Datum box)
{
	(void) mailbox_leave((Mailbox *) DatumGetPointer(box), NULL);
}

/*
 * Has a process carry out a question, and waits for so many ms.  MAIL_ANSWERED: the
 * answer is in its place.  MAIL_TAKEN: it may still be carried out; otherwise it is not.
 */
MailState
mailbox_ask(Mailbox *box, void *question, ProcessId process, int64 ms, OwnWait wait)
{
	int64		ends = monotonic_ms() + ms;

	PG_ENSURE_ERROR_CLEANUP(leave, PointerGetDatum(box));
	{
		while (!has_answer(box) && monotonic_ms() < ends)
		{
			if (mailbox_place(box, question))
				process_notify(process);
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(ms_until(ends), ASK_MS), own_wait(wait));
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave, PointerGetDatum(box));
	return mailbox_leave(box, question);
}

/* for the process that answers */

/* Takes the question, to answer it now; false: there is none. */
bool
mailbox_take(Mailbox *box)
{
	bool		is_placed;

	LWLockAcquire(box->lock, LW_EXCLUSIVE);
	is_placed = box->state == MAIL_PLACED;
	if (is_placed)
		box->state = MAIL_TAKEN;
	LWLockRelease(box->lock);
	return is_placed;
}

/* Nothing was done for the question that was taken; it may be withdrawn. */
void
mailbox_put_back(Mailbox *box)
{
	LWLockAcquire(box->lock, LW_EXCLUSIVE);
	box->state = box->asker < 0 ? MAIL_NONE : MAIL_PLACED;
	LWLockRelease(box->lock);
}

/* Has the caller a question that it has not answered?  Nobody else takes or answers. */
bool
mailbox_has_taken(Mailbox *box)
{
	return box->state == MAIL_TAKEN;
}

/* The answer is in the letter. */
void
mailbox_answer(Mailbox *box)
{
	int			asker;

	LWLockAcquire(box->lock, LW_EXCLUSIVE);
	asker = box->asker;
	box->state = asker < 0 ? MAIL_NONE : MAIL_ANSWERED;
	LWLockRelease(box->lock);
	if (asker >= 0)
		process_set_latch(asker);
}
