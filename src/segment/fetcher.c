/*
 * fetcher.c
 *		The processes "snowid segments", which fetch what is wanted for the tags of a
 *		database, and how they are called.
 *
 * A database has two at most: one for its own tables, and one for its central servers,
 * so that one of those that hangs does not stop the numbers of the tables here.  A
 * caller starts them, and they stay for minutes.
 *
 * One place is reserved: the process that the postmaster has started there waits
 * without a database, until one needs it for its own tables.  Parallel queries cannot
 * take that.  If it and all other places are in use, another process makes room: one for
 * central servers, or one that has nothing to do, or that was there long enough for all to
 * have their turn.
 *
 * A process leaves if it had no work for minutes, if another database needs its place, or
 * if its database is dropped, renamed or copied.  It then gives back what is in memory of
 * the tables here, once, but not if it only makes room: callers still take that.
 *
 * Nothing that it does is computed by SQL, waits for a lock, or waits for another
 * server longer than a look at its signals: so it leaves within a second of SIGTERM.
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "process.h"
#include "segment/fetch.h"
#include "segment/fetcher.h"
#include "settings.h"

/* A process that was started and did not come within this is started again. */
#define COME_MS 2000

/* A process of the tables here that has work stays so long, even if its place is wanted. */
#define MIN_TURN_MS 500

/* It looks this often for changes of which no process informs it. */
#define LOOK_MS 1000

/* It leaves when it has nothing to do for so long. */
#define LINGER_MS (5 * 60 * 1000)

typedef struct Fetcher
{
	Oid			database;		/* 0: free, or the reserve that waits */
	FetcherKind kind;
	int			procno;			/* or -1: it was called, or there is none */
	int64		called_at;		/* monotonic_ms(); since when it is there */
	bool		must_go;		/* its place is wanted */
} Fetcher;

/* In shared memory, under fetchers_lock. */
typedef struct FetcherList
{
	/* the place that becomes free is this database's, until then */
	Oid			promised_to;
	int64		promised_until; /* monotonic_ms() */
	Fetcher		fetchers[FLEXIBLE_ARRAY_MEMBER];	/* the reserve, and then
													 * one for each place */
} FetcherList;

static FetcherList *list = NULL;
static LWLock *fetchers_lock = NULL;

#define FETCHERS (max_worker_processes + 1)

/* A caller's call, for the process that it starts; 0 for the reserve. */
typedef struct FetcherCall
{
	Oid			database;
	FetcherKind kind;
} FetcherCall;

/* This process's, or NULL. */
static Fetcher *mine = NULL;

static bool is_connected = false;

/* If it has no work by then, it leaves; by monotonic_ms(). */
static int64 leave_at;

static Size
list_size(void)
{
	return add_size(offsetof(FetcherList, fetchers), mul_size(FETCHERS, sizeof(Fetcher)));
}

void
fetcher_shmem_request(void)
{
	RequestAddinShmemSpace(list_size());
}

/* Called with AddinShmemInitLock. */
void
fetcher_shmem_init(void)
{
	fetchers_lock = &GetNamedLWLockTranche(SEGMENT_LOCKS)[1].lock;
	list = shmem_zeroed("snowid segments' processes", list_size());
	for (int i = 0; i < FETCHERS; i++)
		list->fetchers[i].procno = -1;
}

/*---- The list: its lock is held ----*/

static Fetcher *
find_fetcher(Oid database, FetcherKind kind)
{
	for (int i = 0; i < FETCHERS; i++)
	{
		if (list->fetchers[i].database == database && list->fetchers[i].kind == kind)
			return &list->fetchers[i];
	}
	return NULL;
}

/* Was it called, and did it not come? */
static bool
is_overdue(const Fetcher *fetcher)
{
	return fetcher->procno < 0 && monotonic_ms() - fetcher->called_at > COME_MS;
}

/* An entry for a process to start; NULL: there are as many as can be. */
static Fetcher *
free_fetcher(void)
{
	for (int i = 1; i < FETCHERS; i++)
	{
		Fetcher    *fetcher = &list->fetchers[i];

		if (fetcher->database == InvalidOid || is_overdue(fetcher))
			return fetcher;
	}
	return NULL;
}

static void
assign(Fetcher *fetcher, Oid database, FetcherKind kind, int procno)
{
	fetcher->database = database;
	fetcher->kind = kind;
	fetcher->procno = procno;
	fetcher->called_at = monotonic_ms();
	fetcher->must_go = false;
	if (procno >= 0 && list->promised_to == database)
		list->promised_until = 0;
}

/* Is the next place that becomes free another database's? */
static bool
is_promised(void)
{
	return list->promised_to != MyDatabaseId && monotonic_ms() < list->promised_until;
}

/*
 * Asks another process to make room: one for central servers first, and of each kind the
 * one that is there longest.  It looks itself whether it can.  The place is promised to
 * this database: else callers of the former one could take it again.
 */
static void
ask_for_room(FetcherKind kind)
{
	Fetcher    *found = NULL;

	/* the reserve is for the tables here */
	for (int i = kind == FETCHER_HERE ? 0 : 1; i < FETCHERS; i++)
	{
		Fetcher    *fetcher = &list->fetchers[i];

		if (OidIsValid(fetcher->database) &&
			(fetcher->database != MyDatabaseId || fetcher->kind != kind) &&
			fetcher->procno >= 0 && !fetcher->must_go &&
			(found == NULL || fetcher->kind > found->kind ||
			 (fetcher->kind == found->kind && fetcher->called_at < found->called_at)))
			found = fetcher;
	}
	if (found == NULL || is_promised())
		return;
	list->promised_to = MyDatabaseId;
	list->promised_until = monotonic_ms() + COME_MS;
	found->must_go = true;
	process_set_latch(found->procno);
}

/*---- For callers ----*/

/*
 * Wakes the process that fetches for this database, or starts it; false: there is no
 * place for it now, and another one makes room.
 */
bool
fetcher_call(FetcherKind kind)
{
	Fetcher    *reserve = &list->fetchers[0];
	Fetcher    *fetcher;
	FetcherCall call = {MyDatabaseId, kind};
	bool		comes = true;

	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	fetcher = find_fetcher(MyDatabaseId, kind);
	if (fetcher == NULL && kind == FETCHER_HERE && reserve->procno >= 0 &&
		!OidIsValid(reserve->database) && !is_promised())
	{
		fetcher = reserve;
		assign(fetcher, MyDatabaseId, kind, fetcher->procno);
	}
	if (fetcher && fetcher->procno >= 0)
		process_set_latch(fetcher->procno);
	else if (fetcher == NULL || is_overdue(fetcher))
	{
		if (fetcher == NULL && !is_promised())
			fetcher = free_fetcher();
		comes = fetcher && process_start(&segments_process, &call, sizeof(call));
		if (comes)
			assign(fetcher, MyDatabaseId, kind, -1);
		else
		{
			if (fetcher)
				fetcher->database = InvalidOid;
			ask_for_room(kind);
		}
	}
	LWLockRelease(fetchers_lock);
	return comes;
}

/*---- The process ----*/

/* False: another process fetches. */
static bool
enter_list(const FetcherCall *call)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	mine = OidIsValid(call->database) ? find_fetcher(call->database, call->kind) :
		&list->fetchers[0];
	if (mine == NULL)
		mine = free_fetcher();
	if (mine && mine->procno >= 0)
		mine = NULL;
	if (mine)
		assign(mine, call->database, call->kind, MyProcNumber);
	LWLockRelease(fetchers_lock);
	return mine != NULL;
}

static void
leave_list(void)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	if (mine)
		assign(mine, InvalidOid, FETCHER_HERE, -1);
	mine = NULL;
	LWLockRelease(fetchers_lock);
}

/* From here on it may wait for a lock, which SIGTERM must end. */
static void
begin_work(void)
{
	pqsignal(SIGTERM, die);
	MemoryContextSwitchTo(TopMemoryContext);
	BackgroundWorkerInitializeConnectionByOid(mine->database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	/* of central servers, only a lock is committed here */
	process_settle(mine->kind == FETCHER_CENTRAL ? "off" : "on");
	/* for what is not tried without waiting */
	SetConfigOption("lock_timeout", "200ms", PGC_SUSET, PGC_S_OVERRIDE);
	fetch_init();
	is_connected = true;
	leave_at = monotonic_ms() + LINGER_MS;
}

/* Must it make room for another process?  No lock: a change wakes it. */
static bool
must_make_room(bool is_idle)
{
	return mine->must_go && (is_idle || mine->kind == FETCHER_CENTRAL ||
							 monotonic_ms() - mine->called_at > MIN_TURN_MS);
}

/* Does another session drop the database, or need it alone? */
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

/* Must it stop waiting for a central server? */
static bool
must_end(void)
{
	return ShutdownRequestPending || must_make_room(false) || database_is_wanted();
}

/* Before it leaves, but not if it only makes room. */
static void
segments_stop(void)
{
	if (is_connected && mine->kind == FETCHER_HERE)
		fetch_return_all();
}

static Pause
segments_turn(bool reloaded)
{
	Pause		pause = {.ms = LOOK_MS};
	FetcherCall call;

	memcpy(&call, MyBgworkerEntry->bgw_extra, sizeof(call));
	if (mine == NULL && !enter_list(&call))
		proc_exit(0);
	/* in the reserved place it waits for a call */
	if (!OidIsValid(mine->database))
	{
		pause.ms = LINGER_MS;
		return pause;
	}
	if (!is_connected)
		begin_work();
	pause.leave = monotonic_ms() >= leave_at || database_is_wanted();
	if (pause.leave)
		segments_stop();
	else
	{
		bool		is_busy = fetch_wanted(mine->kind, must_end);

		if (is_busy)
		{
			leave_at = monotonic_ms() + LINGER_MS;
			pause.ms = 0;
		}
		pause.leave = must_make_room(!is_busy);
		pgstat_report_stat(false);
	}
	if (pause.leave && OidIsValid(call.database))
		proc_exit(0);			/* it is not started again */
	return pause;
}

static Pause
segments_recover(const ErrorData *error)
{
	EmitErrorReport();
	return (Pause)
	{
		.ms = LOOK_MS,.after_failure = true
	};
}

const Process segments_process = {
	.id = PROCESS_SEGMENTS,
	.name = "snowid segments",
	.connects_itself = true,
	.is_one_of_many = true,
	.turn = segments_turn,
	.recover = segments_recover,
	.stop = segments_stop,
	.leave = leave_list
};
