/*
 * fetcher.c
 *		The processes "snowid segments", which fetch what is wanted for the tags of a
 *		database: how they are called, and how ranges are taken from their table and
 *		given back.
 *
 * A database has two at most: one for its own tables, and one for its central servers,
 * so that one of those that hangs does not stop the numbers of the tables here.  A
 * caller starts them, and they stay for minutes.
 *
 * Databases that want one get theirs in the order in which they began to wait.
 *
 * One place is reserved: the process that the postmaster has started there waits
 * without a database, until one needs it for its own tables.  Parallel queries cannot
 * take that.  If it and all other places are in use, another process makes room: one for
 * central servers, or one that has nothing to do, or that was there for its turn.
 *
 * A process leaves if it had no work for minutes, if another database needs its place, or
 * if its database is dropped, renamed or copied.  It then gives back what is in memory of
 * the tables here, once, but not if it only makes room: callers still take that.
 *
 * Nothing that it does waits for a lock for more than half a second, or for another
 * server longer than a look at its signals: so it leaves within a second of SIGTERM.
 *
 * - A range is published only when its transaction has been committed, and
 *	 synchronous_commit is not off: numbers that a client alone has seen are not
 *	 handed out again after a crash.
 * - What was taken is published, or given back once, or lost.
 * - The row of a tag is locked while a range of it is taken, also from a central
 *	 server: so nothing is taken between a change by hand and its COMMIT PREPARED.
 * - No range is taken of a period that is older than the newest one of which there is
 *	 a row: so periods do not go back with a clock, also over a crash.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "process.h"
#include "segment/fetcher.h"
#include "segment/source.h"
#include "segment/table.h"
#include "settings.h"

/* A process that was started and did not come within this is started again. */
#define COME_MS 2000

/* A process of the tables here that has work stays so long, even if its place is wanted. */
#define MIN_TURN_MS 100

/* A central server has so long for a range, even if the process's place is wanted. */
#define CENTRAL_TURN_MS 1000

/* It looks this often for changes of which no process informs it. */
#define LOOK_MS 1000

/* It leaves when it has nothing to do for so long. */
#define LINGER_MS (5 * 60 * 1000)

/* It gives back for so long; the rest stays in memory. */
#define RETURN_MS 400

/* Ranges fetched in one transaction. */
#define BATCH 100

typedef struct Fetcher
{
	Oid			database;		/* 0: free, or the reserve that waits */
	FetcherKind kind;
	int			procno;			/* or -1: it was called, or there is none */
	int64		called_at;		/* monotonic_ms(); since when it is there */
	bool		must_go;		/* its place is wanted */
} Fetcher;

static Fetcher *fetchers = NULL;	/* the reserve, and then one for each
									 * place */
static LWLock *fetchers_lock = NULL;

#define FETCHERS (max_worker_processes + 1)

/* This process's, or NULL. */
static Fetcher *mine = NULL;

/* When it began to ask a central server; by monotonic_ms(). */
static int64 asked_at;

/* If it has no work by then, it leaves; by monotonic_ms(). */
static int64 leave_at;

/* In the commit, which may wait for a standby: no cancel ends that. */
static volatile bool is_committing = false;

void
fetcher_shmem(bool reserve)
{
	fetchers = shmem_area(reserve, "snowid segments' processes", FETCHERS * sizeof(Fetcher));
	if (reserve)
		return;
	fetchers_lock = &GetNamedLWLockTranche(SEGMENT_LOCKS)[1].lock;
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

/* Is it free, or was it called, and did not come? */
static bool
may_start(const Fetcher *fetcher)
{
	return fetcher->procno < 0 &&
		(!OidIsValid(fetcher->database) || monotonic_ms() - fetcher->called_at > COME_MS);
}

/* An entry for a process to start; NULL: there are as many as can be. */
static Fetcher *
free_fetcher(void)
{
	for (int i = 1; i < FETCHERS; i++)
	{
		if (may_start(&fetchers[i]))
			return &fetchers[i];
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
}

static bool
has_process(Oid database, FetcherKind kind)
{
	const Fetcher *fetcher = find_fetcher(database, kind);

	return fetcher && !may_start(fetcher);
}

/*
 * Asks another process to make room: one for central servers first, and of each kind the
 * one that is there longest.  It looks itself whether it can.
 */
static void
ask_for_room(FetcherKind kind)
{
	Fetcher    *found = NULL;

	/* the reserve is for the tables here */
	for (int i = kind == FETCHER_HERE ? 0 : 1; i < FETCHERS; i++)
	{
		Fetcher    *fetcher = &fetchers[i];

		if (!OidIsValid(fetcher->database) || fetcher->procno < 0)
			continue;
		if (found == NULL || fetcher->kind > found->kind ||
			(fetcher->kind == found->kind && fetcher->called_at < found->called_at))
			found = fetcher;
	}
	if (found == NULL)
		return;
	found->must_go = true;
	process_set_latch(found->procno);
}

/* Starts processes in the order in which databases wait, as far as there are places. */
static void
serve_those_in_line(void)
{
	Fetcher    *reserve = &fetchers[0];
	Oid			database;
	FetcherKind kind;

	if (reserve->procno >= 0 && !OidIsValid(reserve->database) &&
		segment_next_in_line(has_process, true, &database, &kind))
	{
		assign(reserve, database, kind, reserve->procno);
		process_set_latch(reserve->procno);
	}
	while (segment_next_in_line(has_process, false, &database, &kind))
	{
		Fetcher    *fetcher = find_fetcher(database, kind);

		if (fetcher == NULL)
			fetcher = free_fetcher();
		if (fetcher == NULL || !process_start(&segments_process, fetcher - fetchers))
		{
			ask_for_room(kind);
			/* the reserve may be all that another database can have */
			if (kind == FETCHER_CENTRAL && segment_next_in_line(has_process, true, &database, &kind))
				ask_for_room(kind);
			return;
		}
		assign(fetcher, database, kind, -1);
	}
}

/*---- For callers ----*/

/*
 * Wakes the process that fetches for this database, or starts it; false: there is no
 * place for it now, and another one makes room.
 */
bool
fetcher_call(FetcherKind kind)
{
	Fetcher    *fetcher;
	int			procno;

	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	fetcher = find_fetcher(MyDatabaseId, kind);
	procno = fetcher ? fetcher->procno : -1;
	if (fetcher == NULL || may_start(fetcher))
	{
		serve_those_in_line();
		fetcher = find_fetcher(MyDatabaseId, kind);
	}
	LWLockRelease(fetchers_lock);

	/*
	 * not before: who is woken may take the processor of the one that holds
	 * the lock
	 */
	if (procno >= 0)
		process_set_latch(procno);
	return fetcher != NULL;
}

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

/*
 * Runs a transaction; false: it failed, or did not wait for a standby, and nobody may
 * use what it took.
 */
static bool
run(void (*statements) (Look *looks, int n), Look *looks, int n, Reason *reason)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		MemoryContextSwitchTo(context);
		statements(looks, n);
		PopActiveSnapshot();
		is_committing = true;
		/* one that came before would end the wait for a standby, too */
		QueryCancelPending = false;
		ProcDiePending = ShutdownRequestPending;
		CommitTransactionCommand();
		done = !(ProcDiePending && SyncRepRequested() && SyncRepStandbyNames[0]);
		if (!done)
			(void) reason_is(reason, true, "The process is shutting down");
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
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
fail(Look *look, const char *why)
{
	return reason_is(&look->state.reason, true, "%s", why);
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
 * Locks the row of a tag and reads it; false: there is no range, and the state says why,
 * or the other process fetches.
 */
static bool
begin_range(Calls *calls, Look *look, TagRow *tag)
{
	SegmentState *state = &look->state;
	bool		is_central = state->row.source[0] != '\0';
	Found		found = table_lock_tag(calls, &state->key, tag);

	state->reason = (Reason)
	{
		.outcome = found == ABSENT ? OUTCOME_ABSENT : OUTCOME_NONE
	};
	if (found == LOCKED)
		return fail(look, "Its row is locked");
	if (found == ABSENT)
		return false;
	state->row = tag->row;
	state->step = next_step(state, tag);
	if (tag->problem)
		return fail(look, tag->problem);
	return (tag->row.source[0] != '\0') == is_central;
}

/* With all numbers that were handed out as far as is known here. */
static Take
describe_range(const SegmentState *state, const TagRow *tag, TimestampTz now)
{
	bool		in_period = tag->row.kind != PERIOD_NONE;
	Take		take = {
		.kind = tag->row.kind,
		.label = in_period ? period_at(tag->row.kind, now, tag->zone, NO_PERIOD).label : NO_PERIOD,
		.seen = in_period ? Max(state->newest, tag->newest) : NO_PERIOD,
		.upto = tag->row.limit,
		.length = Max(state->step, state->wanted)
	};

	if (take.seen == state->newest)
		take.high = state->high;
	if (!in_period)
		take.high = Max(take.high, tag->max_id);
	else if (take.seen == tag->newest)
		take.high = Max(take.high, tag->newest_max_id);
	return take;
}

static const char *
explain(const char *problem, int64 high)
{
	static const char *const problems[][2] = {
		{"locked", "Its row is locked"},
		{"absent", "Its source has no such row"},
		{"source", "Its source has a source itself"},
		{"period", "Its source has another period"},
		{"owner", "The tables of its source or their functions are not a superuser's, or have triggers of others"}
	};

	if (strcmp(problem, "behind") == 0)
		return psprintf("Its max_id is behind: numbers up to " INT64_FORMAT
						" were handed out here", high);
	for (int i = 0; i < lengthof(problems); i++)
	{
		if (strcmp(problem, problems[i][0]) == 0)
			return problems[i][1];
	}
	return "Its source refused for a reason that is not known here";
}

/* The answer may be another server's, and is looked at. */
static void
use_range(Look *look, const TagRow *tag, const Take *take, const Taken *taken, TimestampTz now)
{
	SegmentState *state = &look->state;
	Period		period = {.label = NO_PERIOD,.until = DT_NOEND};
	bool		may_be = taken->period >= take->label && taken->period <= LAST_PERIOD;

	if (taken->problem[0])
	{
		(void) fail(look, explain(taken->problem, take->high));
		return;
	}
	if (taken->first == 0)
	{
		state->reason.outcome = OUTCOME_USED_UP;
		state->row.limit = taken->last;
		return;
	}
	if (tag->row.kind != PERIOD_NONE && may_be)
		period = period_at(tag->row.kind, now, tag->zone, Max(taken->period, take->seen));
	if (!may_be || period.label != taken->period ||
		taken->first <= (taken->period == take->seen ? take->high : 0) ||
		taken->last < taken->first || taken->last - taken->first >= take->length ||
		taken->last > take->upto)
		(void) fail(look, "Its source returned numbers that were not asked for");
	else
		state->next = (Range)
	{
		taken->first, taken->last - taken->first + 1, period
	};
}

/*---- Reasons to leave ----*/

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

/* Must it stop waiting for a central server?  Of two that need some time, each has it. */
static bool
must_end(void)
{
	return ShutdownRequestPending || database_is_wanted() ||
		(mine->must_go && monotonic_ms() - asked_at > CENTRAL_TURN_MS);
}

/*---- Many ranges ----*/

static void
take_ranges(Look *looks, int n)
{
	Calls		calls = {0};

	for (int i = 0; i < n; i++)
	{
		SegmentState *state = &looks[i].state;
		TimestampTz now = GetCurrentTimestamp();
		TagRow		tag;
		Take		take;
		Taken		taken;

		if (!begin_range(&calls, &looks[i], &tag))
			continue;
		take = describe_range(state, &tag, now);
		if (tag.row.source[0] == '\0')
			taken = table_take(&calls, &state->key, &take);
		else
		{
			asked_at = monotonic_ms();
			if (!source_take(tag.row.source, &state->key, &take, &taken, must_end, &state->reason))
				continue;
		}
		use_range(&looks[i], &tag, &take, &taken, now);
	}
}

/*
 * Fetches some of what is wanted, in one transaction; returns whether there was something.
 * After a failure, and from central servers, they are fetched one by one.
 */
static bool
fetch_wanted(void)
{
	static int	alone = 0;		/* so many failed together */
	Look	   *looks = palloc(BATCH * sizeof(Look));
	int			n = segment_begin_looks(mine->kind, looks,
										mine->kind == FETCHER_CENTRAL || alone > 0 ? 1 : BATCH);
	Reason		reason;
	const char *failure = "";
	bool		done;

	if (n == 0)
		return false;
	done = run(take_ranges, looks, n, &reason);
	if (!done && n > 1)
	{
		alone = n;
		return true;
	}
	alone = Max(alone - 1, 0);
	for (int i = 0; i < n; i++)
	{
		SegmentState *state = &looks[i].state;

		if (!done)				/* what was taken may be durable, and is lost */
			state->reason = reason;
		if (state->reason.why[0])
			failure = state->reason.why;
		segment_finish(&looks[i]);
	}
	log_failure(failure);
	return true;
}

/*---- Giving back ----*/

/* Ranges are lost if their row is locked or was changed by hand. */
static void
return_here(Look *look, int n)
{
	int64		ends = monotonic_ms() + RETURN_MS;
	Calls		calls = {0};

	for (int i = 0; i < snowid_max_segments && monotonic_ms() < ends; i++)
	{
		Range		rest;

		if (segment_at(i, look, &rest) && look->state.row.source[0] == '\0' &&
			rest.length + look->state.next.length > 0)
			table_give_back(&calls, look);
	}
}

/*---- The process ----*/

/* False: another process is there, or has been. */
static bool
enter_list(void)
{
	Fetcher    *entry = &fetchers[process_number()];

	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	if (entry->procno < 0 && (entry == &fetchers[0] || OidIsValid(entry->database)))
	{
		mine = entry;
		assign(mine, mine->database, mine->kind, MyProcNumber);
	}
	LWLockRelease(fetchers_lock);
	return mine != NULL;
}

static void
leave_list(void)
{
	if (mine == NULL)
		return;
	segment_end_turn(mine->database, mine->kind);
	LWLockAcquire(fetchers_lock, LW_EXCLUSIVE);
	assign(mine, InvalidOid, FETCHER_HERE, -1);
	LWLockRelease(fetchers_lock);
	mine = NULL;
}

static void
begin_work(void)
{
	/* for what is not tried without waiting, the lock of the database first */
	SetConfigOption("lock_timeout", "200ms", PGC_SUSET, PGC_S_OVERRIDE);
	/* of central servers, only a lock is committed here */
	process_connect(mine->database, mine->kind == FETCHER_CENTRAL ? "off" : "on");
	pqsignal(SIGTERM, handle_stop);
	pqsignal(SIGINT, handle_cancel);
	leave_at = monotonic_ms() + LINGER_MS;
	CHECK_FOR_INTERRUPTS();		/* what die() noted, run() would forget */
}

/*
 * Before it leaves, but not if it only makes room: gives back what is left of the tables
 * here, once, as far as there is time.
 */
static void
segments_stop(void)
{
	Look		look;
	Reason		reason;

	if (!OidIsValid(MyDatabaseId) || mine->kind != FETCHER_HERE)
		return;
	/* nobody has these numbers, whatever a standby knows */
	SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
	if (!run(return_here, &look, 1, &reason))
		log_failure(reason.why);
}

static Pause
segments_turn(bool reloaded)
{
	Pause		pause = {.ms = LOOK_MS};

	if (mine == NULL && !enter_list())
		proc_exit(0);
	/* in the reserved place it waits for a call */
	if (!OidIsValid(mine->database))
	{
		pause.ms = LINGER_MS;
		return pause;
	}
	if (!OidIsValid(MyDatabaseId))
		begin_work();
	pause.leave = monotonic_ms() >= leave_at || database_is_wanted();
	if (pause.leave)
		segments_stop();
	else
	{
		bool		is_busy = fetch_wanted();

		if (is_busy)
		{
			leave_at = monotonic_ms() + LINGER_MS;
			pause.ms = 0;
		}
		pause.leave = must_make_room(!is_busy);
		pgstat_report_stat(false);
	}
	return pause;
}

static Pause
segments_recover(const ErrorData *error)
{
	if (process_may_log())
		EmitErrorReport();
	return (Pause)
	{
		.ms = LOOK_MS,.after_failure = true
	};
}

const Process segments_process = {
	.id = PROCESS_SEGMENTS,
	.name = "snowid segments",
	.is_one_of_many = true,
	.turn = segments_turn,
	.recover = segments_recover,
	.stop = segments_stop,
	.leave = leave_list
};
