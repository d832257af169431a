/*
 * worker.c
 *		The process "snowid segments": what is to be fetched for the tags of a
 *		database from a source, and what is given back.
 *
 * There is one for each database and source in use, lest a server that cannot be
 * reached stop the numbers of the table here.  A caller starts it; it leaves when
 * it has had no work for a while, or when somebody wants the database for himself
 * and can have it, since no session is in it.
 *
 * It goes with nothing in memory that it could give back: so a clean stop loses no
 * number, unless another server has taken a range since.
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
#include "segment/fetcher.h"
#include "segment/transfer.h"
#include "segment/worker.h"
#include "settings.h"

/* How often it looks for what nobody tells it. */
#define TURN_MS 1000

/* A tag of which no number was taken for so long is idle. */
#define IDLE_MS 10000

/* It leaves when it has nothing to do for so long. */
#define LINGER_MS 2000

/* How often it looks whether those have gone for whom somebody else waits. */
#define WANTED_MS 100

/* Ranges fetched in one transaction. */
#define BATCH 500

static Oid	my_source;

/* SIGTERM: ends what waits for a lock, a standby or another server. */
static void
handle_stop(SIGNAL_ARGS)
{
	int			save_errno = errno;

	ShutdownRequestPending = true;
	transfer_hurry();
	SetLatch(MyLatch);
	errno = save_errno;
}

/* SIGINT: an administrator's cancel, or a time-out of PostgreSQL's. */
static void
handle_cancel(SIGNAL_ARGS)
{
	int			save_errno = errno;

	transfer_cancel();
	SetLatch(MyLatch);
	errno = save_errno;
}

/*---- Turns ----*/

/* Is it one of this database?  segments_lock is held. */
static bool
is_ours(Segment *segment)
{
	return segment->in_use && segment->key.database == MyDatabaseId;
}

/* Is this segment looked after by this process?  segments_lock is held. */
static bool
is_mine(Segment *segment)
{
	return is_ours(segment) && segment->source == my_source;
}

/*
 * By table, and by tag in one order, lest two servers wait for each other; last
 * those that failed by themselves.
 */
static int
compare_fetches(const void *a, const void *b)
{
	const Fetch *x = a;
	const Fetch *y = b;

	if (x->alone != y->alone)
		return x->alone ? 1 : -1;
	if (x->key.relid != y->key.relid)
		return x->key.relid < y->key.relid ? -1 : 1;
	return memcmp(x->key.tag, y->key.tag, TAG_LEN);
}

/* Fetches what is wanted; returns how many, and for how long others must wait. */
static int
serve_wishes(long *pause)
{
	Fetch	   *fetches = palloc(BATCH * sizeof(Fetch));
	int			n = 0;
	int			same;

	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_max_segments && n < BATCH; i++)
	{
		if (is_mine(&segments[i]) && segment_begin(&segments[i], &fetches[n], pause))
			fetches[n++].key = segments[i].key;
	}
	LWLockRelease(segments_lock);
	qsort(fetches, n, sizeof(Fetch), compare_fetches);
	transfer_begin_turn();
	for (int i = 0; i < n; i += same)
	{
		for (same = 1; i + same < n && !fetches[i + same].alone &&
			 fetches[i + same].key.relid == fetches[i].key.relid; same++)
			;
		transfer_fetch(&fetches[i], same);
	}
	return n;
}

/* No number of it was taken or fetched for a while, and there are some. */
static bool
is_idle(Segment *segment, int64 now)
{
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);
	int64		next;
	int64		left_next;

	if (cursor != segment->idle_cursor)
	{
		segment->idle_cursor = cursor;
		segment->idle_since = now;
	}
	return now - Max(segment->idle_since, segment->fetched_at) >= IDLE_MS && !segment->kept &&
		segment_left(segment, &next, &left_next) + left_next > 0;
}

/*
 * Gives back what is cut off, and what is idle or, when the process leaves, all.
 */
static void
return_ranges(bool leaving)
{
	Return	   *returns = palloc(BATCH * sizeof(Return));
	int			at = 0;
	int			n;
	int			same;
	int64		now = monotonic_ms();

	transfer_begin_turn();
	do
	{
		n = 0;
		LWLockAcquire(segments_lock, LW_SHARED);
		for (; at < snowid_max_segments && n < BATCH; at++)
		{
			Segment    *segment = &segments[at];
			Return	   *r = &returns[n];

			if (!is_ours(segment))
				continue;
			if (is_mine(segment) && (leaving || is_idle(segment, now)))
				segment_close(segment);
			r->n = segment_take_tails(segment, my_source, &r->incarnation, &r->stale,
									  r->range);
			if (r->n > 0)
			{
				r->segment = segment;
				r->key = segment->key;
				n++;
			}
		}
		LWLockRelease(segments_lock);
		for (int i = 0; i < n; i += same)
		{
			for (same = 1; i + same < n && returns[i + same].key.relid == returns[i].key.relid; same++)
				;
			transfer_give_back(&returns[i], same);
		}
	} while (at < snowid_max_segments); /* what is kept is not tried again */
}

/* Is there anything that this process has to stay for? */
static bool
may_leave(void)
{
	bool		idle = true;

	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_max_segments && idle; i++)
	{
		int64		next;
		int64		left_next;

		if (is_mine(&segments[i]))
			idle = !segments[i].asked &&
				(segments[i].refused ||
				 segment_left(&segments[i], &next, &left_next) + left_next <= 0);
		if (is_ours(&segments[i]) && segments[i].tails > 0 &&
			segments[i].tail_source == my_source)
			idle = false;
	}
	LWLockRelease(segments_lock);
	return idle;
}

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

/* The sessions that keep it from who wants it; not himself, where he is in it. */
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

/*---- The process ----*/

/* Who still waits asks again; else a wish would keep its segment for ever. */
static void
leave(int code, Datum arg)
{
	static bool has_left = false;

	if (has_left)
		return;
	has_left = true;
	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_max_segments; i++)
	{
		if (is_mine(&segments[i]))
			segment_unask(&segments[i]);
	}
	LWLockRelease(segments_lock);
	fetcher_detach();
}

/*
 * Makes room for another process, which stays for what could not be given back, up to
 * a clean stop; during that one, it does not come.
 */
static void
call_successor(void)
{
	leave(0, 0);
	if (!may_leave())
		(void) fetcher_call(my_source);
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
		{"search_path", "pg_catalog, pg_temp"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"statement_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"lock_timeout", "0"},
		{"transaction_timeout", "0"},
	};

	for (int i = 0; i < lengthof(forced); i++)
	{
		/* not in all majors */
		if (GetConfigOption(forced[i][0], true, false))
			SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF ||
		(synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH &&
		 is_set_by_owner("synchronous_commit")))
		SetConfigOption("synchronous_commit", "on", PGC_USERSET, PGC_S_OVERRIDE);
}

void
snowid_segments_main(Datum main_arg)
{
	Oid			database;
	MemoryContext turn_context;
	int64		leave_at = monotonic_ms() + LINGER_MS;

	my_source = DatumGetObjectId(main_arg);
	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	if (!fetcher_attach(database, my_source))
		proc_exit(0);
	before_shmem_exit(leave, 0);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	settle_settings();
	transfer_init(my_source);
	pqsignal(SIGTERM, handle_stop);
	pqsignal(SIGINT, handle_cancel);

	turn_context = AllocSetContextCreate(TopMemoryContext, "snowid segments",
										 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(turn_context);
	for (;;)
	{
		long		pause = TURN_MS;
		bool		is_wanted;

		QueryCancelPending = false;
		CHECK_FOR_INTERRUPTS(); /* barriers: DROP DATABASE waits for them */
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			settle_settings();
		}
		if (ShutdownRequestPending)
			SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
		is_wanted = database_is_wanted();
		if (is_wanted)
			pause = WANTED_MS;
		/* while a session is in it, nobody gets it */
		if (ShutdownRequestPending ||
			(is_wanted && sessions_in_the_way() == 0))
		{
			return_ranges(true);
			call_successor();
			break;
		}
		return_ranges(false);	/* first: the next range may begin there */
		if (serve_wishes(&pause) > 0)
		{
			leave_at = monotonic_ms() + LINGER_MS;
			pause = 0;			/* there may be more */
		}
		if (!may_leave())
			leave_at = monotonic_ms() + LINGER_MS;
		if (monotonic_ms() >= leave_at)
			break;
		pgstat_report_stat(false);
		MemoryContextReset(turn_context);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 pause, own_wait(WAIT_SEGMENTS_MAIN));
		ResetLatch(MyLatch);
	}
	proc_exit(0);
}
