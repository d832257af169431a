/*
 * fetch.c
 *		Ranges, taken from their table and given back, in transactions.
 *
 * - A range is published only when its transaction has been committed, and
 *	 synchronous_commit is not off: numbers that a client alone has seen are not
 *	 handed out again after a crash.
 * - What was taken is published or lost.  When the process leaves, it gives back what is
 *	 left to the tables here, once.
 * - The row of a tag is locked while a range of it is taken, also from a central
 *	 server: so nothing is taken between a change by hand and its COMMIT PREPARED.
 * - No range is taken of a period that is older than the newest one of which there is
 *	 a row: so periods do not go back with a clock, also over a crash.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "storage/latch.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "process.h"
#include "segment/fetch.h"
#include "segment/source.h"
#include "segment/table.h"
#include "settings.h"

/* A central server has so long for a range, connection included. */
#define CENTRAL_MS 3000

/* Ranges fetched in one transaction. */
#define BATCH 100

/* In the commit, which may wait for a standby: no cancel ends that. */
static volatile bool is_committing = false;

/*---- Signals ----*/

/*
 * SIGTERM: the main loop gives back what is left, and leaves.  Nothing else takes long
 * but the wait for a standby that is away, and that ends here.
 */
static void
handle_stop(SIGNAL_ARGS)
{
	int			save_errno = errno;

	ShutdownRequestPending = true;
	if (is_committing)
		ProcDiePending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* SIGINT: a time-out of PostgreSQL's, or an administrator's cancel. */
static void
handle_cancel(SIGNAL_ARGS)
{
	if (!is_committing)
		InterruptPending = QueryCancelPending = true;
	SetLatch(MyLatch);
}

void
fetch_init(void)
{
	pqsignal(SIGTERM, handle_stop);
	pqsignal(SIGINT, handle_cancel);
}

/*---- Transactions ----*/

/* Logs what went wrong, each change once. */
static void
log_failure(const char *what)
{
	static char logged[REASON_LEN];

	if (strcmp(what, logged) == 0 || (what[0] && !process_may_log()))
		return;
	strlcpy(logged, what, sizeof(logged));
	if (what[0])
		ereport(LOG, (errmsg("snowid segments cannot reserve numbers: %s", what)));
}

static bool
waits_for_standby(void)
{
	return SyncRepRequested() && SyncRepStandbyNames && SyncRepStandbyNames[0];
}

/*
 * Runs a transaction; false: it failed, or did not wait for a standby, and nobody may
 * use what it took.
 */
static bool
run(void (*statements) (Fetch *fetches, int n), Fetch *fetches, int n, Reason *reason)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		MemoryContextSwitchTo(context);
		statements(fetches, n);
		PopActiveSnapshot();
		is_committing = true;
		/* one that came before would end the wait for a standby, too */
		QueryCancelPending = false;
		ProcDiePending = ShutdownRequestPending;
		CommitTransactionCommand();
		done = !ProcDiePending || !waits_for_standby();
		if (!done)
			(void) reason_is(reason, true, "The process is shutting down");
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		is_committing = false;
		ProcDiePending = QueryCancelPending = false;
		AbortCurrentTransaction();
		(void) reason_is(reason, false, "%s", error->message);
	}
	PG_END_TRY();
	is_committing = false;
	ProcDiePending = QueryCancelPending = false;
	MemoryContextSwitchTo(context);
	return done;
}

/*---- A range of a row ----*/

static bool
fail(Fetch *fetch, const char *why)
{
	fetch->outcome = OUTCOME_FAILED;
	return reason_is(&fetch->reason, true, "%s", why);
}

static bool
fail_locked(Fetch *fetch)
{
	return fail(fetch, "Its row is locked");
}

/* A range that lasted less than "cover" is followed by a longer one. */
static int64
next_step(const SegmentState *state, const TagRow *tag)
{
	int64		lasted_ms = monotonic_ms() - state->fetched_at;
	int64		step = state->step;

	if (step > 0 && lasted_ms < tag->cover_ms)
		step *= 2;
	else if (lasted_ms > 2 * tag->cover_ms)
		step /= 2;
	return Min(Max(step, tag->step), MAX_STEP);
}

/*
 * How many numbers to take after max_id; false: none.  Numbers up to "here" were taken of
 * the table here, before the tag got its source.
 */
static bool
choose_length(Fetch *fetch, int64 max_id, int64 here, int64 *n)
{
	int64		above = Max(fetch->state.high, here);

	if (max_id < above)
	{
		fetch->outcome = OUTCOME_FAILED;
		return reason_is(&fetch->reason, true,
						 "Its max_id is behind: numbers up to " INT64_FORMAT " were handed out here",
						 above);
	}
	if (max_id >= fetch->row.limit)
	{
		fetch->outcome = OUTCOME_USED_UP;
		return false;
	}
	*n = Min(Max(fetch->step, fetch->state.needed), fetch->row.limit - max_id);
	return true;
}

static void
set_range(Fetch *fetch, int64 last, int64 n)
{
	fetch->outcome = OUTCOME_RANGE;
	fetch->range.first = last - n + 1;
	fetch->range.length = n;
}

/*
 * Returns the label of the period of now, or of the newest one that has a row or was
 * seen, if that is later.  A row with a later label may be there: of a day, if the tag
 * had days and now has months.
 */
static DateADT
choose_period(Fetch *fetch, const TagRow *tag, DateADT newest)
{
	DateADT		known = fetch->state.newest;

	fetch->range.period = period_at(tag->row.kind, GetCurrentTimestamp(), pg_tzset(tag->zone),
									Max(newest, known));
	if (fetch->range.period.label != known)
		fetch->state.high = 0;
	return fetch->range.period.label;
}

/* Numbers of a period that was seen would begin again. */
static bool
fail_deleted(Fetch *fetch)
{
	return fail(fetch, "The row of its newest period was deleted");
}

/*
 * Locks the row of a tag and reads it; false: there is no range, and the outcome says
 * why.
 */
static bool
begin_range(Fetch *fetch, bool is_central, TagRow *tag, LockedRow *locked)
{
	Found		found = table_lock_tag(&fetch->state.key, is_central, tag, locked);

	fetch->outcome = found == ABSENT ? OUTCOME_ABSENT : OUTCOME_NONE;
	fetch->reason.why[0] = '\0';
	fetch->range.period.label = NO_PERIOD;
	fetch->range.period.until = DT_NOEND;
	if (found == LOCKED)
		(void) fail_locked(fetch);
	if (found != FOUND)
		return false;
	fetch->row = tag->row;
	fetch->step = next_step(&fetch->state, tag);
	if (tag->problem)
		(void) fail(fetch, tag->problem);
	else if ((tag->row.source[0] != '\0') != is_central)
		fetch->outcome = OUTCOME_MOVED;
	if (fetch->outcome != OUTCOME_NONE)
		table_release(locked);
	return fetch->outcome == OUTCOME_NONE;
}

/*---- From the tables here ----*/

static void
take_of_row(Fetch *fetch, LockedRow *locked)
{
	int64		last = locked->max_id;
	int64		n = 0;

	if (choose_length(fetch, last, 0, &n))
	{
		table_set_max_id(locked, last + n);
		set_range(fetch, last + n, n);
	}
	else
		table_release(locked);
}

static void
take_of_period(Fetch *fetch, const TagRow *tag)
{
	const SegmentKey *key = &fetch->state.key;
	DateADT		newest;
	DateADT		label;
	int64		n = 0;
	Found		found;
	LockedRow	locked;

	if (table_newest_period(key, &newest) != FOUND)
	{
		(void) fail_locked(fetch);
		return;
	}
	label = choose_period(fetch, tag, newest);
	found = table_lock_period(key, label, &locked);
	if (found == FOUND)
		take_of_row(fetch, &locked);
	else if (found == LOCKED || label == newest)
		(void) fail_locked(fetch);
	else if (label == fetch->state.newest)
		(void) fail_deleted(fetch);
	else if (choose_length(fetch, 0, 0, &n))
	{
		if (table_add_period(key, label, n))
			set_range(fetch, n, n);
		else
			(void) fail_locked(fetch);
	}
}

static void
take_here(Fetch *fetches, int n)
{
	for (int i = 0; i < n; i++)
	{
		TagRow		tag;
		LockedRow	locked;

		if (!begin_range(&fetches[i], false, &tag, &locked))
			continue;
		if (tag.row.kind == PERIOD_NONE)
			take_of_row(&fetches[i], &locked);
		else
		{
			take_of_period(&fetches[i], &tag);
			table_release(&locked);
		}
	}
}

/*---- From a central server ----*/

/* Runs a statement there about the row. */
static bool
ask_there(Fetch *fetch, const char *statement, SourceRow *row)
{
	const SegmentKey *key = &fetch->state.key;
	DateADT		label = fetch->range.period.label;
	char		period[PERIOD_SERIAL_LEN];

	if (label != NO_PERIOD)
		period_write("{YYYY}-{MM}-{DD}", label, 0, period);
	fetch->outcome = OUTCOME_FAILED;
	if (!source_run(statement, pnstrdup(key->tag, key->len),
					label != NO_PERIOD ? period : NULL, row, &fetch->reason))
		return false;
	fetch->outcome = OUTCOME_NONE;
	return true;
}

/* Reads the row of the period there, which is made if the period begins. */
static bool
read_period_there(const char *table, Fetch *fetch, const TagRow *tag, int64 *max_id, int64 *here)
{
	const SegmentKey *key = &fetch->state.key;
	DateADT		newest_here;
	DateADT		newest;
	DateADT		label;
	Found		found;
	LockedRow	locked;
	SourceRow	row;

	/* a number, if it is a date; of a time, the day would depend on a zone */
	if (!ask_there(fetch, psprintf("SELECT max_id, period - date '2000-01-01' FROM %s"
								   " WHERE biz_tag = $1 ORDER BY period DESC LIMIT 1", table), &row))
		return false;
	newest = row.found ? (DateADT) row.number[1] : NO_PERIOD;
	if (table_newest_period(key, &newest_here) != FOUND)
		return fail_locked(fetch);
	label = choose_period(fetch, tag, Max(newest, newest_here));
	found = table_lock_period(key, label, &locked);
	if (found == LOCKED)
		return fail_locked(fetch);
	*here = 0;
	if (found == FOUND)
	{
		*here = locked.max_id;
		table_release(&locked);
	}
	if (label != newest && label != fetch->state.newest &&
		!ask_there(fetch, psprintf("INSERT INTO %s (biz_tag, period, max_id, update_time) VALUES"
								   " ($1, $2, " INT64_FORMAT ", 'infinity') ON CONFLICT DO NOTHING",
								   table, *here), &row))
		return false;
	if (label != newest &&
		!ask_there(fetch, psprintf("SELECT max_id FROM %s WHERE biz_tag = $1 AND period = $2", table),
				   &row))
		return false;
	*max_id = row.number[0];
	return row.found || fail_deleted(fetch);
}

/* Reads the row there; false: there is no range. */
static bool
read_there(const char *table, Fetch *fetch, const TagRow *tag, int64 *max_id, int64 *here)
{
	SourceRow	row;

	if (tag->row.kind != PERIOD_NONE)
		return read_period_there(table, fetch, tag, max_id, here);
	if (!ask_there(fetch, psprintf("SELECT max_id, coalesce(limit_id, 9223372036854775807) FROM %s"
								   " WHERE biz_tag = $1", table), &row))
		return false;
	*max_id = row.number[0];
	*here = tag->max_id;
	fetch->row.limit = row.number[1];
	return row.found || fail(fetch, "Its source has no such row");
}

static void
take_of_source(Fetch *fetch, const TagRow *tag)
{
	bool		in_period = tag->row.kind != PERIOD_NONE;
	int64		max_id = 0;
	int64		here = 0;
	int64		n = 0;
	char	   *table;
	SourceRow	row;

	fetch->outcome = OUTCOME_FAILED;
	if (!source_open(tag->row.source, in_period, &table, &fetch->reason) ||
		!read_there(table, fetch, tag, &max_id, &here) ||
		!choose_length(fetch, max_id, here, &n))
		return;
	if (!ask_there(fetch, psprintf("UPDATE %s SET max_id = max_id + " INT64_FORMAT
								   ", update_time = 'infinity' WHERE biz_tag = $1%s AND max_id >= "
								   INT64_FORMAT " AND max_id <= " INT64_FORMAT " RETURNING max_id",
								   table, n, in_period ? " AND period = $2" : "",
								   Max(fetch->state.high, here), fetch->row.limit - n), &row))
		return;					/* if it was taken, it is lost */
	if (!row.found)
		(void) fail(fetch, "Its row keeps changing");
	else if (row.number[0] < n || row.number[0] - n < Max(fetch->state.high, here) ||
			 row.number[0] > fetch->row.limit)
		(void) fail(fetch, "Its source returned numbers that were not asked for");
	else
		set_range(fetch, row.number[0], n);
}

static void
take_central(Fetch *fetch, int n)
{
	TagRow		tag;
	LockedRow	locked;

	if (!begin_range(fetch, true, &tag, &locked))
		return;
	table_release(&locked);		/* not its lock */
	take_of_source(fetch, &tag);
}

/*---- Many ranges ----*/

/* Fetches these in one transaction; returns whether it did not fail. */
static bool
fetch_some(void (*take) (Fetch *fetches, int n), Fetch *fetches, int n)
{
	Reason		reason;
	const char *failure = "";
	bool		done = run(take, fetches, n, &reason);

	if (!done && n > 1)
		return false;
	for (int i = 0; i < n; i++)
	{
		Fetch	   *fetch = &fetches[i];

		if (!done)
		{						/* what was taken may be durable, and is lost */
			fetch->outcome = OUTCOME_FAILED;
			fetch->reason = reason;
		}
		if (fetch->outcome == OUTCOME_FAILED)
			failure = fetch->reason.why;
		segment_finish(fetch);
	}
	log_failure(failure);
	return true;
}

/*
 * Fetches what is wanted, as far as it may stay; returns whether there was something.
 * Ranges of the tables here are taken in one transaction, or in one each if that fails.
 */
bool
fetch_wanted(FetcherKind fetcher, bool (*must_end) (void))
{
	Fetch	   *fetches = palloc(BATCH * sizeof(Fetch));
	int			n = segment_begin_fetches(fetcher, fetches, BATCH);

	if (fetcher == FETCHER_HERE && n > 0 && fetch_some(take_here, fetches, n))
		return true;
	for (int i = 0; i < n && !must_end(); i++)
	{
		source_set_deadline(CENTRAL_MS, must_end);
		(void) fetch_some(fetcher == FETCHER_HERE ? take_here : take_central, &fetches[i], 1);
	}
	return n > 0;
}

/*---- Giving back ----*/

/* A change by hand locks the row, and drops what is in memory before it commits. */
static void
return_here(Fetch *fetch, int n)
{
	for (int i = 0; i < snowid_max_segments; i++)
	{
		const SegmentKey *key = &fetch->state.key;
		DateADT		newest;
		TagRow		tag;
		LockedRow	locked;
		Range		rest;

		if (!segment_begin_return(i, fetch))
			continue;
		newest = fetch->state.newest;
		if ((newest == NO_PERIOD ? table_lock_tag(key, false, &tag, &locked) :
			 table_lock_period(key, newest, &locked)) != FOUND)
			continue;
		rest = segment_end_return(fetch);
		if (rest.length > 0 && rest.period.label == newest &&
			locked.max_id == rest.first + (rest.length - 1))
			table_set_max_id(&locked, rest.first - 1);
		else
			table_release(&locked);
	}
}

/* Gives back what is left of the tables here, once; what that does not reach is lost. */
void
fetch_return_all(void)
{
	Fetch		fetch;
	Reason		reason;

	/* nobody has these numbers, whatever a standby knows */
	SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
	if (!run(return_here, &fetch, 1, &reason))
		log_failure(reason.why);
}
