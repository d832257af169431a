/*
 * transfer.c
 *		Ranges, fetched from a source and given back, in transactions.
 *
 * - A range is published only when its transaction has been committed, and
 *	 synchronous_commit is not off: numbers that a client alone has seen are not
 *	 handed out again after a crash.
 * - What was fetched is published, or given back, or counted as lost.  A range is
 *	 given back once at most, for after that it may be another server's.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "process.h"
#include "segment/fetcher.h"
#include "segment/source.h"
#include "segment/transfer.h"

/* Somebody else was faster, so often in a row. */
#define CONFLICTS 10

/* How often it looks, in a transaction, whether somebody is too late. */
#define TICK_MS 100

/* A lock is waited for until that many looks in a row have seen it. */
#define LOCK_TICKS 2

static Oid	my_source;
static bool source_is_remote = false;

/* In a transaction that may be cancelled. */
static volatile bool may_cancel = false;

/* In its commit, which waits for a standby: no cancel ends that. */
static volatile bool is_committing = false;

/* A lock has been waited for at the last looks, and then for too long. */
static volatile int lock_ticks = 0;
static volatile bool was_locked = false;

/* The connection to the source failed: nothing else is tried in this turn. */
static bool line_failed = false;

/* A COMMIT failed: another server may have done it all the same. */
static bool in_doubt = false;

/* The fetch that is being done. */
static Fetch *current = NULL;

static char logged[SEGMENT_ERROR_LEN];

/* In a signal handler. */
static void
tick(void)
{
	source_cut_off();
	if (MyProc && MyProc->waitStatus == PROC_WAIT_STATUS_WAITING)
		lock_ticks++;
	else
		lock_ticks = 0;
	if (lock_ticks >= LOCK_TICKS && !is_committing)
	{
		was_locked = true;
		transfer_cancel();
		SetLatch(MyLatch);
	}
}

void
transfer_init(Oid source)
{
	my_source = source;
	compat_tick_init(tick);
	StartTransactionCommand();
	source_is_remote = source_is_foreign(source);
	CommitTransactionCommand();

	/* here only a lock is committed: no standby needs that */
	if (source_is_remote)
		SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
}

void
transfer_begin_turn(void)
{
	line_failed = false;
}

/* In a signal handler: ends what waits for a lock, a standby or another server. */
void
transfer_hurry(void)
{
	source_hurry();
	if (may_cancel)
		InterruptPending = QueryCancelPending = true;
}

/* In a signal handler: ends a statement, as PostgreSQL's time-outs do. */
void
transfer_cancel(void)
{
	if (!is_committing)
		InterruptPending = QueryCancelPending = true;
}

/*---- Transactions ----*/

/* Logs what went wrong, each change once; what it says is without its period. */
static void
note_error(const ErrorData *error, char *why)
{
	if (source_was_cut())
		strlcpy(why, "The source did not answer in time", SEGMENT_ERROR_LEN);
	else if (was_locked)
		strlcpy(why, "Its row is locked", SEGMENT_ERROR_LEN);
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
	was_locked = false;
	lock_ticks = 0;
	PG_TRY();
	{
		compat_tick_every(TICK_MS);
		may_cancel = !source_is_remote && !ShutdownRequestPending;
		source_begin(relid, my_source);
		statements(what, n);
		is_committing = true;
		CHECK_FOR_INTERRUPTS();
		in_doubt = source_is_remote;
		source_end();
		in_doubt = false;
		logged[0] = '\0';
	}
	PG_CATCH();
	{
		ErrorData  *error;

		may_cancel = false;
		is_committing = false;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		source_disarm();
		QueryCancelPending = false; /* lest the log entry throw it */
		note_error(error, why);
		sqlstate = error->sqlerrcode;
	}
	PG_END_TRY();
	compat_tick_every(0);
	may_cancel = false;
	is_committing = false;
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

/* The same, unless the connection has failed in this turn. */
static int
attempt_in_turn(void (*statements) (void *what, int n), Oid relid, void *what, int n,
				char *why)
{
	int			sqlstate;

	in_doubt = false;
	if (line_failed)
		return ERRCODE_CONNECTION_FAILURE;
	sqlstate = attempt_all(statements, relid, what, n, why);
	line_failed = sqlstate != 0 &&
		(source_was_cut() || ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_CONNECTION_EXCEPTION);
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
void
transfer_fetch(Fetch *fetches, int n)
{
	static char why[SEGMENT_ERROR_LEN];
	int64		began = monotonic_ms();
	int			sqlstate = attempt_in_turn(take_all, fetches[0].key.relid, fetches, n, why);

	if (sqlstate != 0 && current && (n == 1 || source_was_cut()))
		current->alone = true;
	current = NULL;
	for (int i = 0; i < n && in_doubt; i++)
	{
		if (fetches[i].outcome == OUTCOME_RANGE)
			segment_count_lost(fetches[i].segment, range_length(&fetches[i].range));
	}
	if (sqlstate != 0 && n > 1 && !line_failed && !ShutdownRequestPending)
	{
		for (int i = 0; i < n; i++)
			transfer_fetch(&fetches[i], 1);
		return;
	}
	if (sqlstate != 0)
		fail_all(fetches, n, why);

	/*
	 * Told to leave, or without a postmaster, it did not wait for a standby:
	 * nobody may use these.
	 */
	for (int i = 0; i < n && (ShutdownRequestPending || ProcDiePending); i++)
		fetches[i].unusable = true;
	finish_all(fetches, n, began);
	for (int i = 0; i < n; i++)
	{
		if (fetches[i].moved)
			(void) fetcher_call(fetches[i].source);
	}
}

/*---- Giving back ----*/

/*
 * From the last to the first: each makes room for the one before.  To a row that
 * took another's place, nothing is given back.
 */
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
			if (segment_was_replaced(r->segment, r->incarnation))
			{
				source_take_back(&r->key, &r->range[j]);
				break;
			}
			r->given++;
		}
	}
}

/*
 * Gives back what is to be.  What cannot be given back is used on; where it is
 * not known whether it was given back, it is lost: to try again could take the
 * numbers from another server.
 */
void
transfer_give_back(Return *returns, int n)
{
	char		why[SEGMENT_ERROR_LEN] = "";
	int			sqlstate = attempt_in_turn(give_all, returns[0].key.relid, returns, n, why);

	if (sqlstate != 0 && n > 1 && !in_doubt && !line_failed)
	{
		for (int i = 0; i < n; i++)
			transfer_give_back(&returns[i], 1);
		return;
	}
	for (int i = 0; i < n; i++)
	{
		Return	   *r = &returns[i];
		int64		lost = 0;

		if (sqlstate != 0 && !in_doubt)
			r->given = 0;
		for (; r->given > 0; r->given--)
		{
			Range	   *range = &r->range[--r->n];

			segment_lower_high(r->segment, r->incarnation, range);
			if (in_doubt)
				lost += range_length(range);
		}
		segment_keep(r->segment, r->stale ? PG_UINT64_MAX : r->incarnation, r->range, r->n,
					 sqlstate == 0 || in_doubt || sqlstate == ERRCODE_UNDEFINED_TABLE);
		segment_count_lost(r->segment, lost);
	}
}
