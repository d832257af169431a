/*
 * worker.c
 *		The process "snowid segments": fetches what is wanted for the tags of a
 *		database, from its own tables or from central servers.
 *
 * It leaves when it had no work for minutes, when another database needs its place, or
 * when somebody wants the database, and no session is in it.  When it leaves in order,
 * it gives back what is in memory, once; but not where it only makes room: then numbers
 * are taken on from memory.
 *
 * Nothing that it does is computed by SQL, waits for a lock, or waits for another
 * server longer than a look at its signals: so it leaves within a second of SIGTERM.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "process.h"
#include "segment/fetch.h"
#include "segment/fetcher.h"
#include "segment/worker.h"
#include "settings.h"

/* How often it looks for what nobody tells it. */
#define TURN_MS 1000

/* It leaves when it has nothing to do for so long. */
#define LINGER_MS (5 * 60 * 1000)

/* How often it looks whether the sessions have gone for which another process waits. */
#define WANTED_MS 100

/* Ranges fetched in one transaction. */
#define BATCH 100

static FetcherKind my_kind;

/*---- When it must leave ----*/

/* Somebody drops the database, or does what needs it for himself. */
static bool
database_is_wanted(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	if (LockAcquire(&tag, RowExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	(void) LockRelease(&tag, RowExclusiveLock, true);
	return false;
}

/* The sessions that keep it from who wants it; not his own, where that is in it. */
static int
sessions_in_the_way(void)
{
	int			sessions = CountDBConnections(MyDatabaseId);
	VirtualTransactionId *holders;
	LOCKTAG		tag;
	int			n;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	holders = GetLockConflicts(&tag, RowExclusiveLock, &n);
	for (int i = 0; i < n; i++)
	{
		PGPROC	   *holder = proc_of(holders[i]);

		if (holder && holder->databaseId == MyDatabaseId)
			sessions--;
	}
	pfree(holders);
	return sessions;
}

/* Is no answer of a central server waited for any more? */
static bool
must_end(void)
{
	return ShutdownRequestPending || fetcher_must_go(false) || database_is_wanted();
}

static bool
never(void)
{
	return false;
}

/*---- Turns ----*/

/* Gives back the ranges whose places are wanted, or all. */
static void
return_ranges(bool all)
{
	Return	   *returns = palloc(BATCH * sizeof(Return));
	int			at = 0;

	while (at < snowid_max_segments)
	{
		int			n = segment_begin_returns(my_kind, all, returns, BATCH, &at);

		fetch_return(my_kind, returns, n, all ? never : must_end);
	}
}

/* Fetches what is wanted; returns whether there was something. */
static bool
serve_wishes(long *pause)
{
	Fetch	   *fetches = palloc(BATCH * sizeof(Fetch));
	int			n = segment_begin_fetches(my_kind, fetches, BATCH, pause);

	fetch_all(my_kind, fetches, n, must_end);
	return n > 0;
}

/*---- The process ----*/

static void
leave(int code, Datum arg)
{
	static bool has_left = false;

	if (has_left)
		return;
	has_left = true;
	if (OidIsValid(MyDatabaseId))
		segment_unask(my_kind);
	fetcher_detach();
}

/* Was it set for a database or a role, and not by us? */
static bool
is_set_by_owner(const char *name)
{
	int			n;
	struct config_generic **setting = all_settings(&n);

	while (strcmp((*setting)->name, name) != 0)
		setting++;
	return (*setting)->source >= PGC_S_DATABASE && (*setting)->source < PGC_S_OVERRIDE;
}

/* What the database's owner may have set must not count here. */
static void
settle_settings(void)
{
	static const char *const forced[][2] = {
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"statement_timeout", "0"},
		{"lock_timeout", "200ms"},	/* what is not tried without waiting */
		{"transaction_timeout", "0"},
	};

	for (int i = 0; i < lengthof(forced); i++)
	{
		/* not in all majors */
		if (GetConfigOption(forced[i][0], true, false))
			SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
	/* of central servers, only a lock is committed here */
	if (my_kind == FETCHER_CENTRAL)
		SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	else if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF ||
			 (synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH &&
			  is_set_by_owner("synchronous_commit")))
		SetConfigOption("synchronous_commit", "on", PGC_USERSET, PGC_S_OVERRIDE);
}

/* Waits in the reserved place for a call. */
static Oid
await_call(void)
{
	Oid			database;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	fetcher_attach_reserve();
	while (!fetcher_take_call(&database))
	{
		if (ShutdownRequestPending)
			proc_exit(1);
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, 0,
						 own_wait(WAIT_SEGMENTS_MAIN));
		ResetLatch(MyLatch);
	}
	return database;
}

/* Returns when it leaves. */
static void
serve(void)
{
	int64		leave_at = monotonic_ms() + LINGER_MS;

	for (;;)
	{
		long		pause = TURN_MS;
		bool		is_wanted;

		CHECK_FOR_INTERRUPTS(); /* barriers: DROP DATABASE waits for them */
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			settle_settings();
		}
		is_wanted = database_is_wanted();
		if (is_wanted)
			pause = WANTED_MS;
		/* while a session is in it, nobody gets it */
		if (ShutdownRequestPending || monotonic_ms() >= leave_at ||
			(is_wanted && sessions_in_the_way() == 0))
		{
			SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
			return_ranges(true);
			return;
		}
		return_ranges(false);
		if (serve_wishes(&pause))
		{
			leave_at = monotonic_ms() + LINGER_MS;
			pause = 0;			/* there may be more */
		}
		if (fetcher_must_go(segment_is_idle(my_kind)))
			return;
		pgstat_report_stat(false);
		MemoryContextReset(CurrentMemoryContext);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 pause, own_wait(WAIT_SEGMENTS_MAIN));
		ResetLatch(MyLatch);
	}
}

void
snowid_segments_main(Datum main_arg)
{
	Oid			database;
	bool		is_reserve;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	is_reserve = !OidIsValid(database);
	my_kind = (FetcherKind) DatumGetInt32(main_arg);
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	before_shmem_exit(leave, 0);
	if (is_reserve)
		database = await_call();
	else if (!fetcher_attach(database, my_kind))
		proc_exit(0);
	pqsignal(SIGTERM, die);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	settle_settings();
	fetch_init();
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "snowid segments",
												ALLOCSET_DEFAULT_SIZES));
	serve();
	proc_exit(is_reserve ? 1 : 0);	/* after 0 it is not started again */
}

/* Runs in the postmaster. */
void
worker_register(void)
{
	BackgroundWorker worker;

	if (snowid_max_segments == 0)
		return;
	process_describe(&worker, "snowid segments", "snowid_segments_main");
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	RegisterBackgroundWorker(&worker);
}
