/*
 * registry.c
 *		The background worker "snowid registry": claims this server's worker ID
 *		from Redis, marks it, gives it back.  Here are its turns.
 *
 * There with snowid.redis_url only.  Alone talks to Redis; makes no key, opens
 * no gate and writes no file: it says in shared memory which pair may be used
 * and up to where, and the snowid worker acts on it.  The order in which a
 * claim takes effect: answered here, in the state file, gate opened.  In which
 * it ends: gate closed, out of the file, released here.
 *
 * What Redis executes late or twice does no harm: each call carries the start's
 * token and a number that rises.  The rules of the registry are in
 * registry.lua; how a call is made, in redis.c.
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "registry/registry_process.h"

/* The first pause after a failure; it doubles up to the interval of marks. */
#define FIRST_PAUSE_MS 100

/* How long a shutdown waits for gate and file, before it releases. */
#define CLOSE_MS 1000

/*---- Of this process ----*/

Registry	seen;
int64		next_contact = 0;
int64		backoff = 0;
bool		answered;

/* Runs in the postmaster, where a Redis is configured. */
void
registry_register(void)
{
	BackgroundWorker worker;

	worker_describe(&worker, "snowid registry", "snowid_registry_main");
	RegisterBackgroundWorker(&worker);
}

/*---- The loop ----*/

/* Copies the shared state; true where a request was taken, to be served. */
bool
registry_look(bool take_request)
{
	int64		now = net_now_ms();
	bool		request;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	request = take_request && registry->has_node &&
		registry->request_state == REQUEST_WAITING &&
		now <= registry->request_ends;
	if (request)
		registry->request_state = REQUEST_RUNNING;
	memcpy(&seen, registry, sizeof(Registry));
	LWLockRelease(registry_lock);
	return request;
}

/* One turn.  Returns the ms until the next. */
static long
turn(void)
{
	bool		ready;

	answered = false;
	if (registry_look(true))
	{
		registry_serve_request();
		(void) registry_look(false);
	}
	/* the worker comes first: file and clock, and a lost claim's gate */
	ready = seen.has_node && seen.proposed_ms != 0 && seen.state != CLAIM_LOST;
	if (ready)
		registry_tend_claim();
	if (answered)
		registry_all_is_well();
	return ready ? Max(next_contact - net_now_ms(), 1) : 1000;
}

static void
leave(int code, Datum arg)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (registry->procno == MyProcNumber)
		registry->procno = -1;
	LWLockRelease(registry_lock);
	redis_disconnect();
}

/*
 * No gate opens with a lease from here on; false: one is open, the file still
 * has it, or there is none.
 */
static bool
withdraw_lease(void)
{
	bool		withdrawn;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	withdrawn = registry->state == CLAIM_HELD && registry->confirmed &&
		registry->claim.lease_ms > 0 && registry->entered == 0 &&
		registry->node.claim.ownership != registry->claim.ownership;
	if (withdrawn)
	{
		registry->state = CLAIM_NONE;
		registry->confirmed = false;
	}
	LWLockRelease(registry_lock);
	return withdrawn;
}

/*
 * Told to leave.  In a shutdown a lease is given back, once the gate is closed
 * and if Redis answered the last time.  As the snowid worker does, it has a
 * successor started, which a shutdown drops.
 */
static void
stop(void)
{
	int64		ends = net_now_ms() + CLOSE_MS;
	BackgroundWorker successor;

	PG_TRY();
	{
		(void) registry_look(false);
		while (seen.state == CLAIM_HELD && seen.claim.lease_ms > 0 &&
			   (seen.entered != 0 || seen.node.claim.ownership == seen.claim.ownership) &&
			   net_now_ms() < ends)
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 10, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			(void) registry_look(false);
		}
		if (withdraw_lease() && backoff == 0)
		{
			(void) registry_look(false);
			(void) registry_release(&seen.claim, true);
		}
	}
	PG_CATCH();
	{
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
	leave(0, 0);
	worker_describe(&successor, "snowid registry", "snowid_registry_main");
	(void) RegisterDynamicBackgroundWorker(&successor, NULL);
	proc_exit(1);
}

void
snowid_registry_main(Datum main_arg)
{
	MemoryContext turn_context;
	bool		attached;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	attached = registry->procno < 0;
	if (attached)
		registry->procno = MyProcNumber;
	LWLockRelease(registry_lock);
	if (!attached)
		proc_exit(0);			/* one is enough: ends this registration */
	before_shmem_exit(leave, 0);

	/* for PostgreSQL's hash functions */
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "snowid registry");
	turn_context = AllocSetContextCreate(TopMemoryContext, "snowid registry",
										 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		volatile long rest = 1000;

		if (ShutdownRequestPending)
			stop();

		MemoryContextSwitchTo(turn_context);
		PG_TRY();
		{
			CHECK_FOR_INTERRUPTS();
			if (ConfigReloadPending)
			{
				ConfigReloadPending = false;
				ProcessConfigFile(PGC_SIGHUP);
				redis_disconnect(); /* secrets and certificates may be new */
				next_contact = 0;
			}
			rest = turn();
		}
		PG_CATCH();
		{
			MemoryContextSwitchTo(turn_context);
			EmitErrorReport();
			FlushErrorState();
			LWLockReleaseAll();
			redis_disconnect();
			registry_try_later();
		}
		PG_END_TRY();
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(turn_context);

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 rest, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
