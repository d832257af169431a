/*
 * origin.c
 *		The process "snowid origin": reads and writes the catalog of replication
 *		origins for the keeper.
 *
 * Names stand in a catalog, and catalogs need a connection to a database, which
 * the keeper does not have, lest it keep one from being dropped.  So this
 * process waits without one, in a place of its own that parallel queries cannot
 * take.  When the keeper asks, it connects, answers and leaves, and the
 * postmaster starts it again in its place.  The postmaster times that by the
 * wall clock: where it does not come soon, the keeper starts a second one.
 *
 * One question at a time.  During recovery nothing is created or dropped.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "catalog/pg_replication_origin.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "origin.h"

#define DAY_MS (INT64CONST(24) * 3600 * 1000)

/* Others than the pair's own that may stay where there is room for them. */
#define FEW 3

/* The keeper waits so long for an answer, and then asks again. */
#define ANSWER_MS 2000

/* So long for the process to come, before it starts a second one. */
#define COME_MS 1000

/* An answer that nobody took is not taken later than that. */
#define STALE_MS 30000

/* The process waits so long for another question, once it is connected. */
#define LINGER_MS 10000

/* A lock that a drop needs is held for a moment, or until a transaction ends. */
#define LOCK_MS 500

/* Whose turn it is. */
typedef enum Stage
{
	STAGE_IDLE,					/* the keeper's */
	STAGE_ASKED,				/* that of the process that comes first */
	STAGE_WORKING,				/* that of the process which took it */
	STAGE_ANSWERED				/* the keeper's */
} Stage;

typedef struct Inquiry
{
	slock_t		mutex;			/* protects the following fields only */
	Stage		stage;
	int64		asked_at;		/* monotonic ms */
	int			procno;			/* of the process that waits, or -1 */

	/* belong to whose turn it is */
	OriginQuestion question;
	Oid			database;		/* to connect to */
	Ceiling		answer;
	char		error[GATE_DETAIL_LEN]; /* "": the answer is there */
} Inquiry;

static Inquiry *inquiry = NULL;

/* Names of origins that may go. */
static MemoryContext old_context = NULL;
static List *old = NIL;

/* This process has taken a question and not answered yet. */
static bool working = false;

Size
origin_shmem_size(void)
{
	return MAXALIGN(sizeof(Inquiry));
}

void
origin_shmem_init(void)
{
	bool		found;

	inquiry = ShmemInitStruct("snowid origin", origin_shmem_size(), &found);
	if (found)
		return;
	memset(inquiry, 0, sizeof(Inquiry));
	SpinLockInit(&inquiry->mutex);
	inquiry->procno = -1;
}

/*---- Names ----*/

/* One of our origins. */
typedef struct Origin
{
	char	   *name;
	RepOriginId id;
	Layout		layout;
	int			datacenter_id;
	int			worker_id;
	int64		ms;				/* its position; 0: none */
} Origin;

static void
origin_name(char *name, const Layout *layout, int datacenter_id, int worker_id)
{
	snprintf(name, NAMEDATALEN, "snowid_" INT64_FORMAT "_%d_%d_%d_%d_%d",
			 layout->epoch, layout->datacenter_bits, layout->worker_bits,
			 layout->sequence_bits, datacenter_id, worker_id);
}

/*
 * Reads layout and pair in an origin's name; false: it is not one of ours, for
 * no server can have them.
 */
static bool
read_name(const char *name, Origin *origin)
{
	Layout	   *layout = &origin->layout;
	char		again[NAMEDATALEN];
	long long	epoch;

	memset(origin, 0, sizeof(*origin));
	if (sscanf(name, "snowid_%lld_%d_%d_%d_%d_%d", &epoch,
			   &layout->datacenter_bits, &layout->worker_bits,
			   &layout->sequence_bits, &origin->datacenter_id,
			   &origin->worker_id) != 6)
		return false;
	layout->epoch = epoch;
	layout->tick = 1;
	origin_name(again, layout, origin->datacenter_id, origin->worker_id);
	return strcmp(name, again) == 0 && layout_is_possible(layout) &&
		origin->datacenter_id >= 0 && origin->worker_id >= 0 &&
		origin->datacenter_id >> layout->datacenter_bits == 0 &&
		origin->worker_id >> layout->worker_bits == 0;
}

static bool
is_pair(const Origin *origin, int datacenter_id, int worker_id)
{
	return layout_equal(&origin->layout, &server_layout) &&
		origin->datacenter_id == datacenter_id && origin->worker_id == worker_id;
}

/* A position that no keeper wrote: it must not be calculated with. */
static bool
is_wild(const Origin *origin)
{
	return origin->ms != 0 &&
		(origin->ms < 0 || !layout_has_time(&origin->layout, origin->ms));
}

static int
by_time(const ListCell *a, const ListCell *b)
{
	int64		ms_a = ((Origin *) lfirst(a))->ms;
	int64		ms_b = ((Origin *) lfirst(b))->ms;

	return ms_a < ms_b ? -1 : ms_a > ms_b;
}

/* All of our origins, the oldest first, and how many there are of anybody's. */
static List *
read_origins(int *count)
{
	List	   *origins = NIL;
	Relation	rel = table_open(ReplicationOriginRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	*count = 0;
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		char	   *name = TextDatumGetCString(heap_getattr(tuple, Anum_pg_replication_origin_roname,
															RelationGetDescr(rel), &isnull));
		Origin	   *origin = palloc(sizeof(Origin));

		(*count)++;
		if (!read_name(name, origin))
			continue;
		origin->name = name;
		origin->id = (RepOriginId)
			((Form_pg_replication_origin) GETSTRUCT(tuple))->roident;
		origin->ms = (int64) replorigin_get_progress(origin->id, false);
		origins = lappend(origins, origin);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	list_sort(origins, by_time);
	return origins;
}

/*---- What the process does ----*/

/*
 * Keeps others from creating and dropping origins, until the transaction ends.
 * Throws where somebody else does and does not end soon.
 */
static void
lock_origins(void)
{
	for (int waited = 0; !ConditionalLockRelationOid(ReplicationOriginRelationId, ExclusiveLock); waited += 10)
	{
		CHECK_FOR_INTERRUPTS();
		if (waited >= LOCK_MS)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("another transaction has created or dropped a replication origin and not ended yet")));
		pg_usleep(10 * 1000);
	}
}

/*
 * Names of the pair's left behind that may go, in a new list; nothing of the
 * pair's own.  They are those whose ceiling is a day in the past: by the clock,
 * and by the newest ceiling that it has not to be doubted for, since the clock
 * may be wrong.  Where room for origins is short, or there are more than a few,
 * those whose ceiling is past by more than max_jump; and where pairs come from
 * Redis, those whose ceiling is past, since its records have it.  The newest
 * stays: it says which layout came last, and how far keys went.
 */
static List *
list_old(const OriginQuestion *question, List *origins, int count)
{
	int64		now_ms = unix_ms_from_timestamptz(GetCurrentTimestamp());
	int64		newest_ms = 0;
	int64		newest_own_ms = 0;	/* of this layout */
	int			others = 0;
	List	   *list = NIL;
	ListCell   *cell;

	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		if (!is_pair(origin, question->datacenter_id, question->worker_id))
			others++;
		if (is_wild(origin) || origin->ms > question->reach_ms)
			continue;
		newest_ms = Max(newest_ms, origin->ms);
		if (layout_equal(&origin->layout, &server_layout))
			newest_own_ms = Max(newest_own_ms, origin->ms);
	}
	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);
		int64		past_ms = Min(now_ms, newest_ms);
		bool		may_go = origin->ms == 0 || origin->ms < past_ms - DAY_MS;

		if (is_wild(origin) ||
			is_pair(origin, question->datacenter_id, question->worker_id) ||
			is_pair(origin, question->old_datacenter_id, question->old_worker_id))
			continue;
		if (count > max_active_replication_origins - 2 || others > FEW)
			may_go = may_go || origin->ms < past_ms - question->max_jump ||
				(claim_from_redis() &&
				 layout_equal(&origin->layout, &server_layout) &&
				 origin->ms < Min(now_ms, newest_own_ms));
		if (!may_go)
			continue;
		list = lappend(list, origin->name);
		count--;
		others--;
	}
	return list;
}

/* Drops one that nobody has in use; false: the catalog is locked. */
static bool
drop(const char *name)
{
	volatile bool locked = false;

	PG_TRY();
	{
		StartTransactionCommand();
		lock_origins();
		locked = true;
		replorigin_drop_by_name(name, true, true);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(TopMemoryContext);
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	return locked;
}

/* Finds what may go, as it is now: once keys are made, the clock is believed. */
static void
find_old(const OriginQuestion *question)
{
	List	   *origins;
	int			count;

	if (old_context == NULL)
		old_context = AllocSetContextCreate(TopMemoryContext, "snowid origin",
											ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(old_context);
	StartTransactionCommand();
	MemoryContextSwitchTo(old_context);
	origins = read_origins(&count);
	old = list_old(question, origins, count);
	CommitTransactionCommand();
}

/* Drops what was found; what cannot be dropped now stays. */
static void
drop_old(void)
{
	ListCell   *cell;

	foreach(cell, old)
	{
		if (!drop(lfirst(cell)))
			break;
	}
	old = NIL;
}

/* Refuses a position that is out of its layout's range. */
static void
require_time(const Origin *origin)
{
	if (is_wild(origin))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the position of replication origin \"%s\" is " INT64_FORMAT ", which is not a Unix time in milliseconds in the range of its layout",
						origin->name, origin->ms)));
}

/* Reads all of our origins; creates the pair's own where it is missing. */
static Ceiling
look_up(const OriginQuestion *question)
{
	Ceiling		answer;
	char		own_name[NAMEDATALEN];
	int			count;
	List	   *origins = read_origins(&count);
	ListCell   *cell;

	memset(&answer, 0, sizeof(answer));
	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		require_time(origin);
		if (!layout_equal(&origin->layout, &server_layout))
		{
			if (origin->ms > answer.other_layout_ms)
			{
				answer.other_layout = origin->layout;
				answer.other_layout_ms = origin->ms;
			}
			continue;
		}
		if (is_pair(origin, question->old_datacenter_id, question->old_worker_id))
			answer.old_ms = origin->ms;
		if (is_pair(origin, question->datacenter_id, question->worker_id))
		{
			answer.origin = origin->id;
			answer.own_ms = origin->ms;
		}
		else if (origin->ms <= question->reach_ms)
			answer.others_ms = Max(answer.others_ms, origin->ms);
	}
	if (answer.origin == InvalidRepOriginId && !TransactionStartedDuringRecovery())
	{
		origin_name(own_name, &server_layout, question->datacenter_id,
					question->worker_id);
		lock_origins();
		answer.origin = replorigin_create(own_name);
	}
	return answer;
}

/*
 * Is the origin that the keeper owns the pair's?  It cannot be dropped from
 * when the keeper got it; but a drop that began before may not have come to
 * the catalog yet.  That has taken its position; where it had none, the lock
 * tells that nobody is about to drop it.
 */
static void
require_owned(const OriginQuestion *question)
{
	char		own_name[NAMEDATALEN];

	origin_name(own_name, &server_layout, question->datacenter_id,
				question->worker_id);
	if (!question->has_position)
		lock_origins();
	if (replorigin_by_name(own_name, true) != question->owned)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("replication origin \"%s\" was dropped meanwhile", own_name)));
}

/* Answers the question; true: the keeper has got what it needs. */
static bool
answer_question(void)
{
	MemoryContext context = CurrentMemoryContext;
	OriginQuestion question = inquiry->question;
	volatile bool done = false;

	PG_TRY();
	{
		Ceiling		answer;

		memset(&answer, 0, sizeof(answer));
		StartTransactionCommand();
		if (question.owned != InvalidRepOriginId)
			require_owned(&question);
		else
			answer = look_up(&question);
		done = question.owned != InvalidRepOriginId ||
			TransactionStartedDuringRecovery();
		CommitTransactionCommand();
		if (!RecoveryInProgress())
			find_old(&question);
		if (answer.own_ms == 0 && !done)
			drop_old();
		inquiry->answer = answer;
		inquiry->error[0] = '\0';
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		/* as a sentence */
		snprintf(inquiry->error, sizeof(inquiry->error), "%s.", error->message);
		inquiry->error[0] = pg_toupper((unsigned char) inquiry->error[0]);
		done = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return done;
}

/* Gives the turn back to the keeper. */
static void
hand_back(void)
{
	working = false;
	SpinLockAcquire(&inquiry->mutex);
	inquiry->stage = STAGE_ANSWERED;
	SpinLockRelease(&inquiry->mutex);
	generator_wake_worker();
}

/* Takes the question that is asked; false: there is none. */
static bool
take_question(void)
{
	SpinLockAcquire(&inquiry->mutex);
	working = inquiry->stage == STAGE_ASKED;
	if (working)
		inquiry->stage = STAGE_WORKING;
	else
		inquiry->procno = MyProcNumber;
	SpinLockRelease(&inquiry->mutex);
	if (working)
		strlcpy(inquiry->error, "The process \"snowid origin\" failed; see the server log.",
				sizeof(inquiry->error));
	return working;
}

/* Runs when the process leaves, in whatever way. */
static void
leave(int code, Datum arg)
{
	SpinLockAcquire(&inquiry->mutex);
	if (inquiry->procno == MyProcNumber)
		inquiry->procno = -1;
	SpinLockRelease(&inquiry->mutex);
	if (working)
		hand_back();
}

void
snowid_origin_main(Datum main_arg)
{
	/* the second one, which is not started again */
	bool		is_second = DatumGetBool(main_arg);
	bool		is_connected = false;
	int64		leave_at = net_now_ms() + LINGER_MS;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	before_shmem_exit(leave, 0);
	while (!ShutdownRequestPending)
	{
		bool		may_leave = is_connected || is_second;
		int64		left = leave_at - net_now_ms();

		CHECK_FOR_INTERRUPTS();
		if (!take_question())
		{
			if (may_leave && left <= 0)
				break;
			(void) WaitLatch(MyLatch,
							 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (may_leave ? WL_TIMEOUT : 0),
							 left, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			continue;
		}
		if (!is_connected)
		{
			pqsignal(SIGTERM, die);
			BackgroundWorkerInitializeConnectionByOid(inquiry->database, InvalidOid,
													  BGWORKER_BYPASS_ALLOWCONN);
			/* durable here is enough; a synchronous standby may be away */
			SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
			is_connected = true;
		}
		if (answer_question())
		{
			hand_back();
			drop_old();
			break;
		}
		hand_back();
		leave_at = net_now_ms() + LINGER_MS;
	}
	proc_exit(is_second ? 0 : 1);	/* 0 would end it for good */
}

static void
describe(BackgroundWorker *worker, bool is_second)
{
	worker_describe(worker, "snowid origin", "snowid_origin_main");
	worker->bgw_main_arg = BoolGetDatum(is_second);
	if (is_second)
		worker->bgw_restart_time = BGW_NEVER_RESTART;
}

/* Runs in the postmaster. */
void
origin_register(void)
{
	BackgroundWorker worker;

	describe(&worker, false);
	RegisterBackgroundWorker(&worker);
}

/*---- The keeper's side ----*/

/*
 * A database to connect to: template1, in which nobody works, or any other.
 * Its catalog can be read without a connection.
 */
static Oid
some_database(void)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			found = InvalidOid;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		bool		is_template1 =
		strcmp(NameStr(database->datname), "template1") == 0;

		/* a limit of -2 is what an interrupted DROP DATABASE leaves */
		if (database->datconnlimit != -2 && (is_template1 || !OidIsValid(found)))
			found = database->oid;
		if (is_template1)
			break;
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return found;
}

/*
 * Asks, unless the same question is asked already, and takes the answer, whose
 * is the question; false: it is not there yet.  Another question waits for the
 * end of the one before.
 */
static bool
ask_once(const OriginQuestion *question, Oid database, bool *is_asked)
{
	bool		answered = false;
	int			procno;
	int64		now = net_now_ms();

	SpinLockAcquire(&inquiry->mutex);
	if (inquiry->stage != STAGE_WORKING)
	{
		bool		same = memcmp(question, &inquiry->question,
								  offsetof(OriginQuestion, reach_ms)) == 0 &&
			now - inquiry->asked_at < STALE_MS;

		answered = inquiry->stage == STAGE_ANSWERED && same;
		if (answered)
			inquiry->stage = STAGE_IDLE;
		else if (inquiry->stage != STAGE_ASKED || !same)
		{
			inquiry->question = *question;
			inquiry->asked_at = now;
			inquiry->database = database;
			inquiry->stage = STAGE_ASKED;
		}
	}
	*is_asked = inquiry->stage == STAGE_ASKED;
	procno = inquiry->procno;
	SpinLockRelease(&inquiry->mutex);
	if (*is_asked && procno >= 0)
		SetLatch(&ProcGlobal->allProcs[procno].procLatch);
	return answered;
}

/*
 * Has the process answer a question of the keeper; false: the reason is in
 * err.  Where that takes long, the next call with the same question waits on.
 */
bool
origin_ask(const OriginQuestion *question, Ceiling *answer, char *err, Size errlen)
{
	int64		began = net_now_ms();
	Oid			database = some_database();
	bool		is_asked;
	bool		has_tried = false;

	strlcpy(err, "The process \"snowid origin\" has not answered yet.", errlen);
	while (!ask_once(question, database, &is_asked))
	{
		int64		waited = net_now_ms() - began;
		BackgroundWorker second;

		if (waited >= ANSWER_MS || ShutdownRequestPending)
		{
			SetLatch(MyLatch);	/* for what came meanwhile */
			return false;
		}
		if (is_asked && !has_tried && waited >= COME_MS)
		{
			has_tried = true;
			describe(&second, true);
			if (!RegisterDynamicBackgroundWorker(&second, NULL))
				strlcpy(err, "No process could be started to read it; raise max_worker_processes.", errlen);
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(ANSWER_MS - waited, 100), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	SetLatch(MyLatch);
	if (inquiry->error[0])
	{
		strlcpy(err, inquiry->error, errlen);
		return false;
	}
	*answer = inquiry->answer;
	return true;
}
