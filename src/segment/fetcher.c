/*
 * fetcher.c
 *		Which process "snowid segments" fetches for a database from a source, and
 *		how it is called.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "compat.h"
#include "process.h"
#include "segment/fetcher.h"

/* A process that was started and did not come within this is started again. */
#define COME_MS 2000

/* One process "snowid segments": it fetches for a database from a source. */
typedef struct Fetcher
{
	Oid			database;		/* 0: free */
	Oid			source;
	int			procno;			/* or -1: it was called */
	int64		called_at;		/* monotonic_ms() */
} Fetcher;

/* max_worker_processes of them, in shared memory, under fetchers_lock. */
static Fetcher *fetchers = NULL;
static LWLock *fetchers_lock = NULL;

Size
fetcher_shmem_size(void)
{
	return mul_size(max_worker_processes, sizeof(Fetcher));
}

/* Called with AddinShmemInitLock. */
void
fetcher_shmem_init(LWLock *lock)
{
	bool		found;

	fetchers_lock = lock;
	fetchers = ShmemInitStruct("snowid segments' processes", fetcher_shmem_size(), &found);
	if (!found)
		memset(fetchers, 0, fetcher_shmem_size());
}

/* fetchers_lock is held. */
static Fetcher *
find_fetcher(Oid database, Oid source)
{
	for (int i = 0; i < max_worker_processes; i++)
	{
		if (fetchers[i].database == database &&
			(database == InvalidOid || fetchers[i].source == source))
			return &fetchers[i];
	}
	return NULL;
}

/* fetchers_lock is held exclusively; NULL: there are as many as there can be. */
static Fetcher *
add_fetcher(Oid database, Oid source)
{
	Fetcher    *fetcher = find_fetcher(database, source);

	if (fetcher == NULL)
		fetcher = find_fetcher(InvalidOid, InvalidOid);
	for (int i = 0; fetcher == NULL && i < max_worker_processes; i++)
	{
		if (fetchers[i].procno < 0 && monotonic_ms() - fetchers[i].called_at > COME_MS)
			fetcher = &fetchers[i];
	}
	if (fetcher && (fetcher->database != database || fetcher->source != source))
	{
		fetcher->database = database;
		fetcher->source = source;
		fetcher->procno = -1;
		fetcher->called_at = 0;
	}
	return fetcher;
}

/*
 * Wakes the process that fetches from this source for this database, or starts
 * it; false: there is no place for it.
 */
bool
fetcher_call(Oid source)
{
	Fetcher    *fetcher;
	BackgroundWorker worker;
	int			procno = -1;
	bool		start = false;

	LWLockAcquire(fetchers_lock, LW_SHARED);
	fetcher = find_fetcher(MyDatabaseId, source);
	if (fetcher)
		procno = fetcher->procno;
	LWLockRelease(fetchers_lock);
	if (procno < 0)
	{
		LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
		fetcher = add_fetcher(MyDatabaseId, source);
		if (fetcher)
		{
			procno = fetcher->procno;
			start = procno < 0 && (fetcher->called_at == 0 ||
								   monotonic_ms() - fetcher->called_at > COME_MS);
			if (start)
				fetcher->called_at = monotonic_ms();
		}
		LWLockRelease(fetchers_lock);
		if (fetcher == NULL)
			return false;
	}
	if (procno >= 0)
		process_set_latch(procno);
	if (!start)
		return true;

	process_describe(&worker, "snowid segments", "snowid_segments_main");
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(source);
	memcpy(worker.bgw_extra, &MyDatabaseId, sizeof(Oid));
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
		return true;
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	fetcher = find_fetcher(MyDatabaseId, source);
	if (fetcher && fetcher->procno < 0)
		fetcher->database = InvalidOid;
	LWLockRelease(fetchers_lock);
	return false;
}

/* Makes the caller the one who fetches; false: another process is. */
bool
fetcher_attach(Oid database, Oid source)
{
	Fetcher    *fetcher;
	bool		attached;

	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	fetcher = add_fetcher(database, source);
	attached = fetcher && fetcher->procno < 0;
	if (attached)
		fetcher->procno = MyProcNumber;
	LWLockRelease(fetchers_lock);
	return attached;
}

void
fetcher_detach(void)
{
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	for (int i = 0; i < max_worker_processes; i++)
	{
		if (fetchers[i].database != InvalidOid && fetchers[i].procno == MyProcNumber)
			fetchers[i].database = InvalidOid;
	}
	LWLockRelease(fetchers_lock);
}
