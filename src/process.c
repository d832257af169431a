/*
 * process.c
 *		Our background processes: how to find and wake them, and their common
 *		loop.
 *
 * The postmaster times restarts by the wall clock, which may be set back at that
 * very moment.  So a process that gets SIGTERM registers a successor, which starts
 * at once unless the server shuts down.  The postmaster later restarts the first
 * one, too: the second to start finds the other and ends for good.  A process that
 * starts late, and was replaced, ends in the same way.
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

#ifdef EXEC_BACKEND
#error "processes must inherit the postmaster's memory"
#endif

/* One for each ProcessId, in shared memory. */
static ProcessState *processes = NULL;

/*---- Shared memory ----*/

/* Runs in the postmaster alone: the others inherit the address. */
void *
shmem_zeroed(const char *name, Size size)
{
	bool		found;
	void	   *memory = ShmemInitStruct(name, size, &found);

	Assert(!found);
	return memset(memory, 0, size);
}

Size
process_shmem_size(void)
{
	return MAXALIGN(PROCESSES * sizeof(ProcessState));
}

void
process_shmem_init(void)
{
	processes = shmem_zeroed("snowid processes", process_shmem_size());
	for (int i = 0; i < PROCESSES; i++)
	{
		pg_atomic_init_u32(&processes[i].news, 0);
		pg_atomic_init_u64(&processes[i].turn_at, 0);
		pg_atomic_init_u32(&processes[i].procno, NO_PROC);
	}
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

/* Its PID, or 0; and the ms since it began a turn. */
int
process_pid(ProcessId id, int64 *still_ms)
{
	int			procno;

	*still_ms = monotonic_ms() - (int64) pg_atomic_read_u64(&processes[id].turn_at);
	procno = procno_of(id);
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

void
process_describe(BackgroundWorker *worker, const char *name, const char *function, int arg)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* on a standby, too: to be ready for a promotion */
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = 0;
	strlcpy(worker->bgw_library_name, "snowid", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
	strlcpy(worker->bgw_name, name, BGW_MAXLEN);
	strlcpy(worker->bgw_type, name, BGW_MAXLEN);
	worker->bgw_main_arg = Int32GetDatum(arg);
}

/* Runs in the postmaster. */
void
process_register(const Process *process)
{
	BackgroundWorker worker;

	process_describe(&worker, process->name, "snowid_process_main", process->id);
	RegisterBackgroundWorker(&worker);
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
begin_turn(ProcessState *state)
{
	pg_atomic_write_u64(&state->turn_at, (uint64) monotonic_ms());
	(void) pg_atomic_exchange_u32(&state->news, 0);
}

/* Registers the caller as this process; false: another one is running. */
static bool
attach(ProcessState *state)
{
	uint32		nobody = NO_PROC;
	bool		attached = pg_atomic_compare_exchange_u32(&state->procno, &nobody, MyProcNumber);

	if (attached)
		begin_turn(state);
	return attached;
}

static void
detach(int code, Datum arg)
{
	const Process *process = (const Process *) DatumGetPointer(arg);
	uint32		me = MyProcNumber;

	process->leave();
	(void) pg_atomic_compare_exchange_u32(&processes[process->id].procno, &me, NO_PROC);
}

/* Starts another one in place of the one that is there, if any. */
bool
process_replace(const Process *process)
{
	BackgroundWorker worker;

	pg_atomic_write_u32(&processes[process->id].procno, NO_PROC);
	process_describe(&worker, process->name, "snowid_process_main", process->id);
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

static void
leave_for_successor(const Process *process)
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
	detach(0, PointerGetDatum(process));
	(void) process_replace(process);
	proc_exit(1);				/* after 0 it would never be restarted */
}

/* A reload since the fork was not noticed, since SIGHUP was ignored. */
void
process_notice_reloads(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	ConfigReloadPending = true;
}

/* Settings that the owner of its database may have changed must not count. */
void
process_settle(const char *synchronous_commit)
{
	const char *const forced[][2] = {
		{"default_transaction_deferrable", "off"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"exit_on_error", "off"},	/* each failure would end the process */
		{"statement_timeout", "0"},
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
 * Waits for the next turn.  After a failure a mere wake-up does not end the
 * pause: callers, or the exit of "snowid origin", would cause retries all the
 * time.
 */
static void
rest(const Process *process, Pause pause)
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
			 pg_atomic_read_u32(&processes[process->id].news) == 0 &&
			 !InterruptPending && !ConfigReloadPending && !ShutdownRequestPending);
}

void
process_run(const Process *process)
{
	ProcessState *state = &processes[process->id];
	MemoryContext turn_context;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	process_notice_reloads();
	/* a lock's timeout is a SIGINT, too; elsewhere there is nothing to cancel */
	if (!process->connects_itself)
		pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	if (!process->connects_itself)
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	if (!attach(state))
		proc_exit(0);			/* one is enough; this one is not restarted */
	before_shmem_exit(detach, PointerGetDatum(process));

	turn_context = AllocSetContextCreate(TopMemoryContext, "snowid turn",
										 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		volatile Pause pause;

		if (ShutdownRequestPending)
			leave_for_successor(process);
		if (procno_of(process->id) != MyProcNumber)
			proc_exit(0);		/* it was replaced */

		MemoryContextSwitchTo(turn_context);
		PG_TRY();
		{
			bool		reloaded;

			CHECK_FOR_INTERRUPTS();
			begin_turn(state);
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
			proc_exit(1);
		rest(process, pause);
	}
}
