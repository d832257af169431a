/*
 * worker.c
 *		The process "snowid segments": fetches ranges for the tags of a database
 *		from a source, and gives back what was not used.
 *
 * There is one for each database and source in use, lest a server that cannot be
 * reached stop the numbers of the table here.  A caller starts it; it leaves when
 * it has had no work for a while, or when somebody wants the database for himself.
 *
 * - A range is published only when its transaction has been committed, and
 *	 synchronous_commit is not off: numbers that a client alone has seen are not
 *	 handed out again after a crash.
 * - What was fetched is published, or given back, or counted as lost.  A range is
 *	 given back once at most, for after that it may be another server's.
 * - It goes with nothing in memory that it could give back: so a clean stop loses
 *	 no number, unless another server has taken a range since.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "process.h"
#include "segment/source.h"
#include "segment/worker.h"
#include "settings.h"

/* How often it looks for what nobody tells it. */
#define TURN_MS 1000

/* A tag of which no number was taken for so long is idle. */
#define IDLE_MS 10000

/* It leaves when it has nothing to do for so long. */
#define LINGER_MS 2000

/* Ranges fetched in one transaction. */
#define BATCH 500

/* Somebody else was faster, so often in a row. */
#define CONFLICTS 10

/* A range that is to be given back. */
typedef struct Return
{
	Segment    *segment;
	SegmentKey	key;
	uint64		incarnation;
	int			n;
	Range		range[TAILS];
	int			given;			/* the last so many of them are */
} Return;

static Oid	my_source;
static bool source_is_remote = false;

/* In a transaction that may be cancelled. */
static volatile bool may_cancel = false;

/* The connection to the source failed: nothing else is tried in this turn. */
static bool line_failed = false;

/* A COMMIT failed: another server may have done it all the same. */
static bool in_doubt = false;

/* The fetch that is being done. */
static Fetch *current = NULL;

static char logged[SEGMENT_ERROR_LEN];

/* SIGTERM: ends what waits for a lock, a standby or another server. */
static void
handle_stop(SIGNAL_ARGS)
{
	int			save_errno = errno;

	ShutdownRequestPending = true;
	source_hurry();
	if (may_cancel)
		InterruptPending = QueryCancelPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/*---- Transactions ----*/

/* Logs what went wrong, each change once; what it says is without its period. */
static void
note_error(const ErrorData *error, char *why)
{
	if (source_was_cut())
		strlcpy(why, "The source did not answer in time", SEGMENT_ERROR_LEN);
	else if (error->detail)
		snprintf(why, SEGMENT_ERROR_LEN, "%s: %s", error->message, error->detail);
	else
		strlcpy(why, error->message, SEGMENT_ERROR_LEN);
	why[pg_mbcliplen(why, strlen(why), SEGMENT_ERROR_LEN - 1)] = '\0';

	while (why[0] && strchr(".\n ", why[strlen(why) - 1]))
		why[strlen(why) - 1] = '\0';

	if (strcmp(why, logged) == 0 || !process_may_log())
		return;
	strlcpy(logged, why, sizeof(logged));
	ereport(LOG, (errmsg("snowid segments cannot reserve numbers: %s", why)));
}

/* Runs a transaction; its SQLSTATE, and what the error says, or 0. */
static int
attempt(void (*statements) (void *what, int n), Oid relid, void *what, int n, char *why)
{
	MemoryContext context = CurrentMemoryContext;
	volatile int sqlstate = 0;

	in_doubt = false;
	PG_TRY();
	{
		may_cancel = !source_is_remote && !ShutdownRequestPending;
		source_begin(relid, my_source);
		statements(what, n);
		in_doubt = source_is_remote;
		source_end();
		in_doubt = false;
		logged[0] = '\0';
	}
	PG_CATCH();
	{
		ErrorData  *error;

		may_cancel = false;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		source_disarm();
		note_error(error, why);
		sqlstate = error->sqlerrcode;
	}
	PG_END_TRY();
	may_cancel = false;
	QueryCancelPending = false;
	MemoryContextSwitchTo(context);
	return sqlstate;
}

static bool
is_conflict(int sqlstate)
{
	return sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/* The same, again where another server was faster: that undoes all of it. */
static int
attempt_all(void (*statements) (void *what, int n), Oid relid, void *what, int n, char *why)
{
	int			sqlstate = attempt(statements, relid, what, n, why);

	for (int i = 0; i < CONFLICTS && is_conflict(sqlstate) && !ShutdownRequestPending; i++)
	{
		pg_usleep(1000 * (1 + pg_prng_uint64_range(&pg_global_prng_state, 0, 4 << Min(i, 4))));
		sqlstate = attempt(statements, relid, what, n, why);
	}
	return sqlstate;
}

/*---- Fetching ----*/

static void
take_all(void *what, int n)
{
	Fetch	   *fetches = what;

	for (int i = 0; i < n; i++)
	{
		current = &fetches[i];
		source_take(current);
	}
	current = NULL;
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

static void
finish_all(const Fetch *fetches, int n, int64 began)
{
	for (int i = 0; i < n; i++)
		segment_finish(&fetches[i], 1000 * (monotonic_ms() - began));
}

static void
fail_all(Fetch *fetches, int n, const char *why)
{
	for (int i = 0; i < n; i++)
	{
		fetches[i].outcome = OUTCOME_FAILED;
		fetches[i].moved = false;
		strlcpy(fetches[i].error, why, SEGMENT_ERROR_LEN);
	}
}

/*
 * Fetches for tags of one table in one transaction; where that fails, one by
 * one, unless it is the connection that failed.
 */
static void
fetch_all(Fetch *fetches, int n)
{
	static char why[SEGMENT_ERROR_LEN];
	int64		began = monotonic_ms();
	int			sqlstate = 0;

	if (!line_failed)
	{
		sqlstate = attempt_all(take_all, fetches[0].key.relid, fetches, n, why);
		line_failed = sqlstate != 0 &&
			(source_was_cut() || ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_CONNECTION_EXCEPTION);
	}
	if (sqlstate != 0 && current && (n == 1 || source_was_cut()))
		current->alone = true;
	current = NULL;
	if (sqlstate != 0 && n > 1 && !line_failed && !ShutdownRequestPending)
	{
		for (int i = 0; i < n; i++)
			fetch_all(&fetches[i], 1);
		return;
	}
	if (sqlstate != 0 || line_failed)
		fail_all(fetches, n, why);
	/* told to leave, it did not wait for a standby: nobody may use these */
	for (int i = 0; i < n && ShutdownRequestPending; i++)
		fetches[i].incarnation = PG_UINT64_MAX;
	finish_all(fetches, n, began);
	for (int i = 0; i < n; i++)
	{
		if (fetches[i].moved)
			(void) pool_call_fetcher(fetches[i].source);
	}
}

/*---- Giving back ----*/

/* From the last to the first: each makes room for the one before. */
static void
give_all(void *what, int n)
{
	Return	   *returns = what;

	for (int i = 0; i < n; i++)
	{
		Return	   *r = &returns[i];

		r->given = 0;
		for (int j = r->n - 1; j >= 0; j--)
		{
			if (!source_give_back(&r->key, &r->range[j]))
				break;
			r->given++;
		}
	}
}

/*
 * Gives back what is to be.  What cannot be given back is used on; where it is
 * not known whether it was given back, it is lost: to try again could take the
 * numbers from another server.
 */
static void
give_back(Return *returns, int n)
{
	char		why[SEGMENT_ERROR_LEN] = "";
	int			sqlstate = attempt_all(give_all, returns[0].key.relid, returns, n, why);

	if (sqlstate != 0 && n > 1 && !in_doubt && !source_was_cut())
	{
		for (int i = 0; i < n; i++)
			give_back(&returns[i], 1);
		return;
	}
	for (int i = 0; i < n; i++)
	{
		Return	   *r = &returns[i];
		int64		lost = 0;

		if (sqlstate == 0 && r->given > 0)
			segment_lower_high(r->segment, r->incarnation,
							   r->range[r->n - r->given].first - 1);
		if (sqlstate != 0)
			r->given = 0;
		r->n -= r->given;
		if (!in_doubt)
			segment_keep(r->segment, r->incarnation, r->range, r->n);
		else
		{
			for (int j = 0; j < r->n; j++)
				lost += r->range[j].last - r->range[j].first + 1;
			segment_count_lost(r->segment, lost);
		}
	}
}

/*---- Turns ----*/

/* Is this segment looked after by this process?  segments_lock is held. */
static bool
is_mine(Segment *segment)
{
	return segment->in_use && segment->key.database == MyDatabaseId &&
		segment->source == my_source;
}

/* Fetches what is wanted; returns how many, and for how long others must wait. */
static int
serve_wishes(long *pause)
{
	Fetch	   *fetches = palloc(BATCH * sizeof(Fetch));
	int			n = 0;
	int			same;

	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_segments && n < BATCH; i++)
	{
		if (is_mine(&segments[i]) && segment_begin(&segments[i], &fetches[n], pause))
			fetches[n++].key = segments[i].key;
	}
	LWLockRelease(segments_lock);
	qsort(fetches, n, sizeof(Fetch), compare_fetches);
	line_failed = false;
	for (int i = 0; i < n; i += same)
	{
		for (same = 1; i + same < n && !fetches[i + same].alone &&
			 fetches[i + same].key.relid == fetches[i].key.relid; same++)
			;
		fetch_all(&fetches[i], same);
	}
	return n;
}

/* No number of it was taken for a while, and there are some. */
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
	return now - segment->idle_since >= IDLE_MS && !segment->kept &&
		segment_left(segment, &next, &left_next) + left_next > 0;
}

/*
 * Gives back what is cut off, and what is idle or, when the process leaves, all.
 */
static void
return_ranges(bool leaving)
{
	Return	   *returns = palloc(BATCH * sizeof(Return));
	int			n;
	int			same;
	int64		now = monotonic_ms();

	do
	{
		n = 0;
		LWLockAcquire(segments_lock, LW_SHARED);
		for (int i = 0; i < snowid_segments && n < BATCH; i++)
		{
			Return	   *r = &returns[n];

			if (!is_mine(&segments[i]))
				continue;
			if (leaving || is_idle(&segments[i], now))
				segment_close(&segments[i]);
			r->n = segment_take_tails(&segments[i], &r->incarnation, r->range);
			if (r->n > 0)
			{
				r->segment = &segments[i];
				r->key = segments[i].key;
				n++;
			}
		}
		LWLockRelease(segments_lock);
		for (int i = 0; i < n; i += same)
		{
			for (same = 1; i + same < n && returns[i + same].key.relid == returns[i].key.relid; same++)
				;
			give_back(&returns[i], same);
		}
	} while (n == BATCH);
}

/* Is there anything that this process has to stay for? */
static bool
may_leave(void)
{
	bool		idle = true;

	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_segments && idle; i++)
	{
		int64		next;
		int64		left_next;

		if (is_mine(&segments[i]))
			idle = !segments[i].asked && segments[i].tails == 0 &&
				(segments[i].kept ||
				 segment_left(&segments[i], &next, &left_next) + left_next <= 0);
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

/*---- The process ----*/

static void
leave(int code, Datum arg)
{
	pool_detach();
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
		{"lock_timeout", "100ms"},
	};

	for (int i = 0; i < lengthof(forced); i++)
		SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
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
	if (!pool_attach(database, my_source))
		proc_exit(0);
	before_shmem_exit(leave, 0);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	settle_settings();
	source_init();
	StartTransactionCommand();
	source_is_remote = source_is_foreign(my_source);
	CommitTransactionCommand();
	pqsignal(SIGTERM, handle_stop);

	turn_context = AllocSetContextCreate(TopMemoryContext, "snowid segments",
										 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(turn_context);
	for (;;)
	{
		long		pause = TURN_MS;

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
		if (ShutdownRequestPending || database_is_wanted())
		{
			return_ranges(true);
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
						 pause, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	proc_exit(0);
}
