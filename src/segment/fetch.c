/*
 * fetch.c
 *		Ranges, taken from their table and given back, in transactions.
 *
 * - A range is published only when its transaction has been committed, and
 *	 synchronous_commit is not off: numbers that a client alone has seen are not
 *	 handed out again after a crash.
 * - What was taken is published or counted as lost.  It is given back once, when the
 *	 process leaves or its place is wanted; what that does not reach is lost.
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
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "process.h"
#include "segment/fetch.h"
#include "segment/source.h"
#include "segment/table.h"

/* What a central server has for one range, connection included. */
#define CENTRAL_MS 3000

/* What all of them have to take back what is left, when the process leaves. */
#define RETURN_MS 500

/* In the commit, which may wait for a standby: no cancel ends that. */
static volatile bool is_committing = false;

/*---- Signals ----*/

/*
 * SIGTERM: the main loop gives back what is left, and leaves.  Nothing that it is in
 * the middle of takes long, but for a standby that is away, and that wait ends here.
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
	static char logged[SEGMENT_ERROR_LEN];

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
run(void (*statements) (void *what, int n), void *what, int n, Reason *reason)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		MemoryContextSwitchTo(context);
		statements(what, n);
		PopActiveSnapshot();
		is_committing = true;
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

static void
fail(Fetch *fetch, const char *why)
{
	fetch->outcome = OUTCOME_FAILED;
	(void) reason_is(&fetch->reason, true, "%s", why);
}

/* A range that lasted less than "cover" is followed by a longer one. */
static int64
next_step(const Fetch *fetch, int64 least)
{
	int64		step = fetch->last_step;

	if (step == 0)
		return least;
	if (fetch->lasted_ms < fetch->row.cover_ms)
		step = step * 2;
	else if (fetch->lasted_ms > 2 * fetch->row.cover_ms)
		step = step / 2;
	return Min(Max(step, least), MAX_STEP);
}

/* Is there room for a range behind these numbers, and how much? */
static bool
has_room(Fetch *fetch, int64 max_id, int64 here, int64 *n)
{
	if (max_id < 0)
	{
		fetch->outcome = OUTCOME_FAILED;
		return reason_is(&fetch->reason, true, "Its max_id is negative");
	}
	if (max_id < fetch->high)
	{
		fetch->outcome = OUTCOME_FAILED;
		return reason_is(&fetch->reason, true,
						 "Its max_id was lowered: numbers up to " INT64_FORMAT " were handed out here",
						 fetch->high);
	}
	if (max_id < here)
	{
		fetch->outcome = OUTCOME_FAILED;
		return reason_is(&fetch->reason, true,
						 "Its source is behind: numbers up to " INT64_FORMAT " were handed out here",
						 here);
	}
	if (max_id >= fetch->row.limit)
	{
		fetch->outcome = OUTCOME_USED_UP;
		return false;
	}
	*n = Min(Max(fetch->step, fetch->wish), fetch->row.limit - max_id);
	return true;
}

static void
set_range(Fetch *fetch, int64 last, int64 n)
{
	fetch->outcome = OUTCOME_RANGE;
	fetch->range.last = last;
	fetch->range.first = last - n + 1;
}

/*
 * Locks the row of a tag and reads it; false: there is no range, and the outcome says
 * why.
 */
static bool
begin(Fetch *fetch, bool is_central, TagRow *tag, LockedRow *locked)
{
	Found		found = table_lock_tag(&fetch->key, is_central, tag, locked);

	fetch->range.period.label = NO_PERIOD;
	fetch->range.period.until = DT_NOEND;
	if (found == ABSENT)
		fetch->outcome = OUTCOME_ABSENT;
	else if (found == LOCKED)
		fail(fetch, "Its row is locked");
	if (found != FOUND)
		return false;
	fetch->row = tag->row;
	fetch->step = next_step(fetch, tag->step);
	fetch->known = true;
	if (tag->problem)
		fail(fetch, tag->problem);
	else if ((tag->row.source[0] != '\0') != is_central)
		fetch->outcome = OUTCOME_MOVED;
	if (fetch->outcome == OUTCOME_NONE)
		return true;
	table_release(locked);
	return false;
}

/* The period of now, or the newest one that was seen, if that is later. */
static void
set_period(Fetch *fetch, const TagRow *tag, DateADT newest)
{
	fetch->range.period = period_at(tag->row.kind, GetCurrentTimestamp(), pg_tzset(tag->zone),
									Max(newest, fetch->newest));
	if (fetch->range.period.label != fetch->newest)
		fetch->high = 0;
}

/*---- From the tables here ----*/

static void
take_of_row(Fetch *fetch, LockedRow *locked)
{
	int64		max_id = locked->max_id;
	int64		n = 0;

	if (has_room(fetch, max_id, 0, &n))
	{
		table_set_max_id(locked, max_id + n);
		set_range(fetch, max_id + n, n);
	}
	table_release(locked);
}

static void
take_of_period(Fetch *fetch, const TagRow *tag)
{
	DateADT		newest;
	DateADT		label = NO_PERIOD;
	LockedRow	locked;
	Found		found = table_newest_period(&fetch->key, &newest);
	int64		n = 0;

	if (found == FOUND)
	{
		set_period(fetch, tag, newest);
		label = fetch->range.period.label;
		found = table_lock_period(&fetch->key, label, &locked);
	}
	if (found == LOCKED)
		fail(fetch, "The row of its period is locked");
	else if (found == FOUND)
		take_of_row(fetch, &locked);
	else if (label <= Max(newest, fetch->newest))
		fail(fetch, "The row of its newest period was deleted");
	else if (has_room(fetch, 0, 0, &n))
	{
		if (table_add_period(&fetch->key, label, n))
			set_range(fetch, n, n);
		else
			fail(fetch, "The row of its period is locked");
	}
}

static void
take_here(void *what, int n)
{
	for (Fetch *fetch = what; n > 0; fetch++, n--)
	{
		TagRow		tag;
		LockedRow	locked;

		fetch->outcome = OUTCOME_NONE;
		fetch->reason.why[0] = '\0';
		if (!begin(fetch, false, &tag, &locked))
			continue;
		if (tag.row.kind == PERIOD_NONE)
			take_of_row(fetch, &locked);
		else
		{
			take_of_period(fetch, &tag);
			table_release(&locked);
		}
	}
}

/*---- From a central server ----*/

/* Of its statements: $1 tag, $2 numbers, $3 above these, $4 limit, $5 period. */
static bool
ask(Source *source, Fetch *fetch, const char *statement, int64 n, int64 above, SourceRow *row)
{
	char		numbers[3][32];
	char		period[32];
	int			y,
				m,
				d;
	const char *params[SOURCE_PARAMS] = {
		pnstrdup(fetch->key.tag, fetch->key.len), numbers[0], numbers[1], numbers[2], NULL
	};

	snprintf(numbers[0], sizeof(numbers[0]), INT64_FORMAT, n);
	snprintf(numbers[1], sizeof(numbers[1]), INT64_FORMAT, above);
	snprintf(numbers[2], sizeof(numbers[2]), INT64_FORMAT, fetch->row.limit);
	if (fetch->range.period.label != NO_PERIOD)
	{
		j2date(fetch->range.period.label + POSTGRES_EPOCH_JDATE, &y, &m, &d);
		snprintf(period, sizeof(period), "%04d-%02d-%02d", y, m, d);
		params[4] = period;
	}
	if (source_run(source, statement, params, row, &fetch->reason))
		return true;
	fetch->outcome = OUTCOME_FAILED;
	return false;
}

/*
 * Takes a range of n numbers there, unless the limit leaves less, or the server has
 * forgotten what it gave to this one.  False: there is no answer, and what may have
 * been taken is lost.
 */
static bool
take_there(Source *source, Fetch *fetch, int64 n, int64 above)
{
	SourceRow	row;

	if (!ask(source, fetch, fetch->range.period.label == NO_PERIOD ?
			 "UPDATE %s SET max_id = max_id + $2, update_time = 'infinity' WHERE biz_tag = $1"
			 " AND max_id >= $3 AND max_id <= coalesce(limit_id, 9223372036854775807) - $2"
			 " RETURNING max_id" :
			 "UPDATE %s SET max_id = max_id + $2, update_time = 'infinity' WHERE biz_tag = $1"
			 " AND period = $5 AND max_id >= $3 AND max_id <= $4 - $2"
			 " RETURNING max_id", n, above, &row))
	{
		fetch->in_doubt = source->is_lost ? n : 0;
		return false;
	}
	if (!row.found)
		return true;
	if (row.number[0] < n || row.number[0] - n < above)
		fail(fetch, "Its source returned numbers that are not above the previous ones");
	else
		set_range(fetch, row.number[0], n);
	return true;
}

/* The row of the tag there, or of its period; false: there is no range. */
static bool
read_there(Source *source, Fetch *fetch, int64 *max_id)
{
	SourceRow	row;

	if (!ask(source, fetch, "SELECT max_id, coalesce(limit_id, 9223372036854775807)"
			 " FROM %s WHERE biz_tag = $1", 0, 0, &row))
		return false;
	if (!row.found)
	{
		fetch->outcome = OUTCOME_ABSENT;
		return reason_is(&fetch->reason, true, "Its source has no such row");
	}
	*max_id = row.number[0];
	fetch->row.limit = row.number[1];
	return true;
}

/*
 * The row of a period there, which is made where there is none; but none that was
 * deleted after it was seen: numbers would begin there again.
 */
static bool
read_period_there(Source *source, Fetch *fetch, bool was_seen, int64 here, int64 *max_id)
{
	SourceRow	row;

	if (!ask(source, fetch, "SELECT max_id FROM %s WHERE biz_tag = $1 AND period = $5",
			 0, 0, &row))
		return false;
	*max_id = row.number[0];
	if (row.found || fetch->high > 0)
		return true;
	if (was_seen)
	{
		fail(fetch, "The row of its newest period was deleted");
		return false;
	}
	*max_id = here;
	return ask(source, fetch, "INSERT INTO %s (biz_tag, period, max_id, update_time)"
			   " VALUES ($1, $5, $3, 'infinity') ON CONFLICT DO NOTHING", 0, here, &row);
}

/* The newest period there. */
static bool
read_newest_there(Source *source, Fetch *fetch, DateADT *newest)
{
	SourceRow	row;

	/* a number, if it is a date; of a time, the day would depend on a zone */
	if (!ask(source, fetch, "SELECT max(period) - date '2000-01-01' FROM %s WHERE biz_tag = $1",
			 0, 0, &row))
		return false;
	*newest = row.is_null ? NO_PERIOD : (DateADT) row.number[0];
	return true;
}

/* What was taken of the period from the table here, before the tag got its source. */
static bool
read_period_here(Fetch *fetch, int64 *here)
{
	LockedRow	locked;
	Found		found = table_lock_period(&fetch->key, fetch->range.period.label, &locked);

	*here = 0;
	if (found == LOCKED)
	{
		fail(fetch, "The row of its period is locked");
		return false;
	}
	if (found == FOUND)
	{
		*here = locked.max_id;
		table_release(&locked);
	}
	return true;
}

static void
take_of_source(Fetch *fetch, const TagRow *tag)
{
	bool		in_period = tag->row.kind != PERIOD_NONE;
	int64		here = tag->max_id;
	int64		max_id = 0;
	int64		n = 0;
	DateADT		newest = NO_PERIOD;
	Source		source;

	if (!source_open(tag->row.source, in_period, &source, &fetch->reason))
	{
		fetch->outcome = OUTCOME_FAILED;
		return;
	}
	if (in_period)
	{
		if (!read_newest_there(&source, fetch, &newest))
			return;
		set_period(fetch, tag, newest);
		if (!read_period_here(fetch, &here))
			return;
	}
	n = Max(fetch->step, fetch->wish);
	if (!take_there(&source, fetch, n, Max(fetch->high, here)) || fetch->outcome != OUTCOME_NONE)
		return;
	if (!(in_period ? read_period_there(&source, fetch, fetch->range.period.label <= fetch->newest ||
										fetch->range.period.label <= newest, here, &max_id) :
		  read_there(&source, fetch, &max_id)))
		return;
	if (has_room(fetch, max_id, here, &n) &&
		take_there(&source, fetch, n, Max(fetch->high, here)) && fetch->outcome == OUTCOME_NONE)
		fail(fetch, "Its row keeps changing");
}

static void
take_central(void *what, int n)
{
	Fetch	   *fetch = what;
	TagRow		tag;
	LockedRow	locked;

	fetch->outcome = OUTCOME_NONE;
	fetch->reason.why[0] = '\0';
	if (!begin(fetch, true, &tag, &locked))
		return;
	table_release(&locked);		/* not its lock */
	take_of_source(fetch, &tag);
}

/*---- Many ranges ----*/

/* A transaction failed, and what was taken in it is lost, where that was durable. */
static void
fail_all(Fetch *fetches, int n, const Reason *reason, bool was_taken)
{
	for (int i = 0; i < n; i++)
	{
		if (was_taken && fetches[i].outcome == OUTCOME_RANGE)
			fetches[i].in_doubt = range_length(&fetches[i].range);
		fetches[i].outcome = OUTCOME_FAILED;
		fetches[i].reason = *reason;
	}
}

static void
finish_all(Fetch *fetches, int n, int64 began)
{
	const char *failure = "";

	for (int i = 0; i < n; i++)
	{
		if (fetches[i].outcome == OUTCOME_FAILED)
			failure = fetches[i].reason.why;
		segment_finish(&fetches[i], 1000 * (monotonic_ms() - began));
	}
	log_failure(failure);
}

/* Those here in one transaction; where that fails, one by one. */
static void
fetch_here(Fetch *fetches, int n)
{
	Reason		reason;
	int64		began = monotonic_ms();

	if (!run(take_here, fetches, n, &reason))
	{
		if (n > 1 && !ShutdownRequestPending)
		{
			for (int i = 0; i < n; i++)
				fetch_here(&fetches[i], 1);
			return;
		}
		fail_all(fetches, n, &reason, reason.is_ours);
	}
	finish_all(fetches, n, began);
}

/* Fetches what is wanted, as far as it may stay. */
void
fetch_all(FetcherKind fetcher, Fetch *fetches, int n, bool (*must_end) (void))
{
	if (fetcher == FETCHER_HERE)
	{
		if (n > 0)
			fetch_here(fetches, n);
		return;
	}
	for (int i = 0; i < n && !must_end(); i++)
	{
		Reason		reason;
		int64		began = monotonic_ms();

		source_set_deadline(CENTRAL_MS, must_end);
		if (!run(take_central, &fetches[i], 1, &reason))
			fail_all(&fetches[i], 1, &reason, true);
		finish_all(&fetches[i], 1, began);
	}
	source_close_old();
}

/*---- Giving back ----*/

static void
return_here(void *what, int n)
{
	for (Return *r = what; n > 0; r++, n--)
	{
		DateADT		label = r->range.period.label;
		TagRow		tag;
		LockedRow	locked;

		r->done = false;
		if (range_length(&r->range) == 0 ||
			(label == NO_PERIOD ? table_lock_tag(&r->key, false, &tag, &locked) :
			 table_lock_period(&r->key, label, &locked)) != FOUND)
			continue;
		if (locked.max_id == r->range.last && segment_is_as_before(r))
		{
			table_set_max_id(&locked, r->range.first - 1);
			r->done = true;
		}
		table_release(&locked);
	}
}

static void
return_central(void *what, int n)
{
	for (Return *r = what; n > 0; r++, n--)
	{
		Fetch		fetch = {.key = r->key,.range = r->range};
		Source		source;
		SourceRow	row;

		r->done = range_length(&r->range) > 0 && segment_is_as_before(r) &&
			source_open(r->source, r->range.period.label != NO_PERIOD, &source, &fetch.reason) &&
			ask(&source, &fetch, r->range.period.label == NO_PERIOD ?
				"UPDATE %s SET max_id = $2, update_time = '-infinity'"
				" WHERE biz_tag = $1 AND max_id = $3 RETURNING 1" :
				"UPDATE %s SET max_id = $2, update_time = '-infinity'"
				" WHERE biz_tag = $1 AND period = $5 AND max_id = $3 RETURNING 1",
				r->range.first - 1, r->range.last, &row) && row.found;
	}
}

/* Gives back what is left, once; what is not reached in time is lost. */
void
fetch_return(FetcherKind fetcher, Return *returns, int n, bool (*must_end) (void))
{
	Reason		reason;

	if (n == 0)
		return;
	source_set_deadline(RETURN_MS, must_end);
	if (!run(fetcher == FETCHER_HERE ? return_here : return_central, returns, n, &reason) &&
		!reason.is_ours)
	{
		for (int i = 0; i < n; i++)
			returns[i].done = false;
		log_failure(reason.why);
	}
	for (int i = 0; i < n; i++)
		segment_end_return(&returns[i]);
}
