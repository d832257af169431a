/*
 * fetcher.c
 *		The processes "snowid segments", and how they are called.
 *
 * A database has two at most: one for its own tables, and one for its central servers,
 * so that one of those that hangs does not stop the numbers of the tables here.  A
 * caller starts them, and they stay for minutes.
 *
 * One place is reserved: the process that the postmaster has started there waits
 * without a database, until one needs it for its own tables.  Parallel queries cannot
 * take that.  Where it and all other places are in use, another process makes room: one
 * for central servers, or one that has nothing to do, or that was there long enough for
 * all to have their turn.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "compat.h"
#include "process.h"
#include "segment/fetcher.h"

/* A process that was started and did not come within this is started again. */
#define COME_MS 2000

/* One that has work stays so long at least, where its place is wanted. */
#define TURN_MS 500

typedef struct Fetcher
{
	Oid			database;		/* 0: free, or the reserve that waits */
	FetcherKind kind;
	int			procno;			/* or -1: it was called, or there is none */
	int64		called_at;		/* monotonic_ms(); since when it is there */
	bool		must_go;		/* its place is wanted */
} Fetcher;

/* The place that becomes free is this database's, until then. */
typedef struct Promise
{
	Oid			database;
	int64		until;			/* monotonic_ms() */
} Promise;

/* In shared memory, under fetchers_lock: the reserve, and then one for each place. */
static Fetcher *fetchers = NULL;
static Promise *promise = NULL;
static LWLock *fetchers_lock = NULL;

#define FETCHERS (max_worker_processes + 1)

/* This process's, or NULL. */
static Fetcher *mine = NULL;

Size
fetcher_shmem_size(void)
{
	return add_size(MAXALIGN(sizeof(Promise)), mul_size(FETCHERS, sizeof(Fetcher)));
}

/* Called with AddinShmemInitLock. */
void
fetcher_shmem_init(LWLock *lock)
{
	bool		found;

	fetchers_lock = lock;
	promise = ShmemInitStruct("snowid segments' processes", fetcher_shmem_size(), &found);
	fetchers = (Fetcher *) ((char *) promise + MAXALIGN(sizeof(Promise)));
	if (found)
		return;
	memset(promise, 0, fetcher_shmem_size());
	for (int i = 0; i < FETCHERS; i++)
		fetchers[i].procno = -1;
}

/*---- The list: its lock is held ----*/

static Fetcher *
find_fetcher(Oid database, FetcherKind kind)
{
	for (int i = 0; i < FETCHERS; i++)
	{
		if (fetchers[i].database == database && fetchers[i].kind == kind)
			return &fetchers[i];
	}
	return NULL;
}

/* An entry for a process that is to be started; NULL: there are as many as can be. */
static Fetcher *
free_fetcher(void)
{
	for (int i = 1; i < FETCHERS; i++)
	{
		Fetcher    *fetcher = &fetchers[i];

		if (fetcher->database == InvalidOid ||
			(fetcher->procno < 0 && monotonic_ms() - fetcher->called_at > COME_MS))
			return fetcher;
	}
	return NULL;
}

static void
assign(Fetcher *fetcher, Oid database, FetcherKind kind)
{
	fetcher->database = database;
	fetcher->kind = kind;
	fetcher->called_at = monotonic_ms();
	fetcher->must_go = false;
}

static bool
reserve_waits(void)
{
	return fetchers[0].database == InvalidOid && fetchers[0].procno >= 0;
}

/* Is the next place that becomes free another database's? */
static bool
is_promised(void)
{
	return OidIsValid(promise->database) && promise->database != MyDatabaseId &&
		monotonic_ms() < promise->until;
}

/*
 * Another process is to make room: one for central servers first, and of each kind the
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
		Fetcher    *fetcher = &fetchers[i];

		if (OidIsValid(fetcher->database) && fetcher->database != MyDatabaseId &&
			fetcher->procno >= 0 && !fetcher->must_go &&
			(found == NULL || fetcher->kind > found->kind ||
			 (fetcher->kind == found->kind && fetcher->called_at < found->called_at)))
			found = fetcher;
	}
	if (found == NULL || is_promised())
		return;
	promise->database = MyDatabaseId;
	promise->until = monotonic_ms() + COME_MS;
	found->must_go = true;
	process_set_latch(found->procno);
}

/*---- For callers ----*/

bool
fetcher_is_there(FetcherKind kind)
{
	Fetcher    *fetcher;
	bool		is_there;

	LWLockAcquire(fetchers_lock, LW_SHARED);
	fetcher = find_fetcher(MyDatabaseId, kind);
	is_there = fetcher && fetcher->procno >= 0;
	LWLockRelease(fetchers_lock);
	return is_there;
}

static bool
start_process(FetcherKind kind)
{
	BackgroundWorker worker;

	process_describe(&worker, "snowid segments", "snowid_segments_main");
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = Int32GetDatum(kind);
	memcpy(worker.bgw_extra, &MyDatabaseId, sizeof(Oid));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* There is no place: another process makes room. */
static void
give_up(Fetcher *started, FetcherKind kind)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	if (started && started->procno < 0 && started->database == MyDatabaseId)
		started->database = InvalidOid;
	if (find_fetcher(MyDatabaseId, kind) == NULL)
		ask_for_room(kind);
	LWLockRelease(fetchers_lock);
}

/*
 * Wakes the process that fetches for this database, or starts it; false: there is no
 * place for it now.
 */
bool
fetcher_call(FetcherKind kind)
{
	Fetcher    *fetcher;
	int			procno = -1;
	bool		start = false;

	LWLockAcquire(fetchers_lock, LW_SHARED);
	fetcher = find_fetcher(MyDatabaseId, kind);
	if (fetcher)
		procno = fetcher->procno;
	LWLockRelease(fetchers_lock);
	if (procno >= 0)
	{
		process_set_latch(procno);
		return true;
	}
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	fetcher = find_fetcher(MyDatabaseId, kind);
	start = fetcher == NULL ||
		(fetcher->procno < 0 && monotonic_ms() - fetcher->called_at > COME_MS);
	if (fetcher == NULL && !is_promised())
	{
		if (kind == FETCHER_HERE && reserve_waits())
		{
			assign(&fetchers[0], MyDatabaseId, kind);
			process_set_latch(fetchers[0].procno);
			start = false;
		}
		else
			fetcher = free_fetcher();
	}
	if (start && fetcher)
	{
		assign(fetcher, MyDatabaseId, kind);
		fetcher->procno = -1;
	}
	LWLockRelease(fetchers_lock);
	if (!start || (fetcher && start_process(kind)))
		return true;
	give_up(fetcher, kind);
	return false;
}

/*---- For the process itself ----*/

/* Makes the caller the one who fetches; false: another process is. */
bool
fetcher_attach(Oid database, FetcherKind kind)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	mine = find_fetcher(database, kind);
	if (mine == NULL)
		mine = free_fetcher();
	if (mine && mine->procno >= 0)
		mine = NULL;
	if (mine)
	{
		assign(mine, database, kind);
		mine->procno = MyProcNumber;
		if (promise->database == database)
			promise->database = InvalidOid;
	}
	LWLockRelease(fetchers_lock);
	return mine != NULL;
}

/* Makes the caller the reserve, which waits for a call. */
void
fetcher_attach_reserve(void)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	mine = &fetchers[0];
	assign(mine, InvalidOid, FETCHER_HERE);
	mine->procno = MyProcNumber;
	LWLockRelease(fetchers_lock);
}

/* For which database? */
bool
fetcher_take_call(Oid *database)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	*database = mine->database;
	if (promise->database == *database)
		promise->database = InvalidOid;
	LWLockRelease(fetchers_lock);
	return OidIsValid(*database);
}

/* Must it make room for another process? */
bool
fetcher_must_go(bool is_idle)
{
	/* no lock: a change wakes it, or is seen the next time */
	return mine->must_go &&
		(is_idle || mine->kind == FETCHER_CENTRAL || monotonic_ms() - mine->called_at > TURN_MS);
}

void
fetcher_detach(void)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	if (mine && mine->procno == MyProcNumber)
	{
		mine->database = InvalidOid;
		mine->procno = -1;
	}
	mine = NULL;
	LWLockRelease(fetchers_lock);
}
