/*
 * inquiry.c
 *		The process "snowid origin", and how the keeper asks it.
 *
 * The names of origins are in a catalog, which needs a connection to a database.
 * The keeper has none, because nobody could drop that database.  So this process
 * waits without a connection, in a worker slot of its own that parallel queries
 * cannot take.  When the keeper asks, it connects, answers and exits, and the
 * postmaster starts it again.  The postmaster times that by the wall clock: if
 * it takes too long, the keeper starts a second one.  One question at a time.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/inquiry.h"
#include "process.h"

/* The keeper reports that there is no answer after this time. */
#define ANSWER_MS 2000

/* If the process does not come within this time, the keeper starts a second one. */
#define COME_MS 1000

/*
 * A late answer leaves out what was out of reach when it was asked for.  It is
 * not used when the clock or the settings have moved the reach by more than this.
 */
#define REACH_MS 30000

/*
 * Once connected, the process waits this long for another question: longer than
 * the keeper does before a retry, since the log has a line for each process.
 */
#define LINGER_MS 2000

/* Whose turn it is. */
typedef enum Stage
{
	STAGE_IDLE,					/* the keeper's */
	STAGE_ASKED,				/* the first free process' */
	STAGE_WORKING,				/* that of the process that took it */
	STAGE_ANSWERED				/* the keeper's */
} Stage;

typedef struct Inquiry
{
	slock_t		mutex;			/* protects the following fields only */
	Stage		stage;
	int			procno;			/* of the waiting process, or -1 */

	/* for whoever's turn it is */
	OriginQuestion question;
	Oid			database;		/* to connect to */
	Ceiling		answer;
	char		error[GATE_DETAIL_LEN]; /* "": the answer is valid */
} Inquiry;

static Inquiry *inquiry = NULL;

/* This process has taken a question that it has not answered yet. */
static bool working = false;

Size
inquiry_shmem_size(void)
{
	return MAXALIGN(sizeof(Inquiry));
}

void
inquiry_shmem_init(void)
{
	bool		found;

	inquiry = ShmemInitStruct("snowid origin", inquiry_shmem_size(), &found);
	if (found)
		return;
	memset(inquiry, 0, sizeof(Inquiry));
	SpinLockInit(&inquiry->mutex);
	inquiry->procno = -1;
}

/*---- The process ----*/

/* Answers the question; true: the keeper will not ask another one soon. */
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
		if (question.owned != 0)
			origin_require_owned(&question);
		else if (question.leave_layouts)
			origin_leave_layouts();
		else
			answer = origin_look_up(&question);
		done = question.owned != 0 || question.leave_layouts;
		CommitTransactionCommand();
		origin_find_old(&question);
		if (answer.own_ms == 0 && !done)
			origin_drop_old();
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

/* Returns the turn to the keeper. */
static void
hand_back(void)
{
	working = false;
	SpinLockAcquire(&inquiry->mutex);
	inquiry->stage = STAGE_ANSWERED;
	SpinLockRelease(&inquiry->mutex);
	process_wake(PROCESS_KEEPER);	/* it waits for nothing else */
}

/* Takes the question; false: there is none. */
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

/* Runs at every exit of the process. */
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
	/* a second one is not started again */
	bool		is_second = DatumGetBool(main_arg);
	bool		is_connected = false;
	int64		leave_at = monotonic_ms() + LINGER_MS;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	before_shmem_exit(leave, 0);
	while (!ShutdownRequestPending)
	{
		bool		may_leave = is_connected || is_second;
		int64		left = leave_at - monotonic_ms();

		CHECK_FOR_INTERRUPTS();
		if (!take_question())
		{
			if (may_leave && left <= 0)
				break;
			(void) WaitLatch(MyLatch,
							 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (may_leave ? WL_TIMEOUT : 0),
							 left, own_wait(WAIT_ORIGIN_MAIN));
			ResetLatch(MyLatch);
			continue;
		}
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		/* at work it may wait for a lock */
		pqsignal(SIGTERM, die);
		if (!is_connected)
		{
			BackgroundWorkerInitializeConnectionByOid(inquiry->database, InvalidOid,
													  BGWORKER_BYPASS_ALLOWCONN);
			/* durable here is enough: a synchronous standby may be down */
			SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
			is_connected = true;
		}
		if (answer_question())
		{
			hand_back();
			origin_drop_old();
			break;
		}
		/* from here on it leaves without an error */
		pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
		hand_back();
		leave_at = monotonic_ms() + LINGER_MS;
	}
	proc_exit(is_second ? 0 : 1);	/* after 0 it is not started again */
}

static void
describe(BackgroundWorker *worker, bool is_second)
{
	process_describe(worker, "snowid origin", "snowid_origin_main");
	worker->bgw_main_arg = BoolGetDatum(is_second);
	if (is_second)
		worker->bgw_restart_time = BGW_NEVER_RESTART;
}

/* Runs in the postmaster. */
void
inquiry_register(void)
{
	BackgroundWorker worker;

	describe(&worker, false);
	RegisterBackgroundWorker(&worker);
}

/*---- The keeper's side ----*/

/*
 * A database to connect to: postgres, or else template1, or else any other.
 * CREATE DATABASE needs template1 without connections, and the keeper may ask
 * again and again.  This catalog can be read without a connection.  InvalidOid:
 * a session has locked it, and the keeper waits for no session.
 */
static Oid
some_database(void)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			found = InvalidOid;
	int			best = 0;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	if (!ConditionalLockRelationOid(DatabaseRelationId, AccessShareLock))
	{
		AbortCurrentTransaction();
		MemoryContextSwitchTo(context);
		return InvalidOid;
	}
	rel = table_open(DatabaseRelationId, NoLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		const char *name = NameStr(database->datname);
		int			rank = strcmp(name, "postgres") == 0 ? 3 : strcmp(name, "template1") == 0 ? 2 : 1;

		/* a limit of -2 is what an interrupted DROP DATABASE leaves */
		if (database->datconnlimit != -2 && rank > best)
		{
			found = database->oid;
			best = rank;
		}
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return found;
}

/*
 * Asks the question unless it is asked already, and takes its answer; false:
 * there is none yet.  If another question is being answered, this one waits.
 */
static bool
ask_once(const OriginQuestion *question, Oid database, bool *is_asked)
{
	bool		answered = false;
	int			procno;

	SpinLockAcquire(&inquiry->mutex);
	if (inquiry->stage != STAGE_WORKING)
	{
		int64		moved_ms = question->reach_ms - inquiry->question.reach_ms;
		bool		old_one = moved_ms > REACH_MS || moved_ms < -REACH_MS ||
		memcmp(question, &inquiry->question, offsetof(OriginQuestion, reach_ms)) != 0;

		answered = inquiry->stage == STAGE_ANSWERED && !old_one;
		if (answered)
			inquiry->stage = STAGE_IDLE;
		else if (inquiry->stage != STAGE_ASKED || old_one)
		{
			inquiry->question = *question;
			inquiry->database = database;
			inquiry->stage = STAGE_ASKED;
		}
	}
	*is_asked = inquiry->stage == STAGE_ASKED;
	procno = inquiry->procno;
	SpinLockRelease(&inquiry->mutex);
	if (*is_asked && procno >= 0)
		process_set_latch(procno);
	return answered;
}

/*
 * Asks a question, or looks whether it was answered; never waits.  The keeper
 * repeats the same question in its next turns while it is pending.
 */
InquiryResult
inquiry_ask(const OriginQuestion *question, Ceiling *answer, char *err, Size errlen)
{
	static OriginQuestion asked;
	static int64 asked_at = PG_INT64_MIN;	/* by monotonic_ms() */
	static bool has_second;		/* a second process was tried ... */
	static bool no_second;		/* ... in vain */
	Oid			database = some_database();
	int64		now = monotonic_ms();
	bool		is_asked;
	BackgroundWorker second;

	if (!OidIsValid(database))
	{
		strlcpy(err, "Another session has locked the catalog pg_database.", errlen);
		return INQUIRY_FAILED;
	}
	if (asked_at == PG_INT64_MIN ||
		memcmp(question, &asked, offsetof(OriginQuestion, reach_ms)) != 0)
	{
		asked = *question;
		asked_at = now;
		has_second = no_second = false;
	}
	if (ask_once(question, database, &is_asked))
	{
		asked_at = PG_INT64_MIN;
		if (inquiry->error[0] == '\0')
		{
			*answer = inquiry->answer;
			return INQUIRY_ANSWERED;
		}
		strlcpy(err, inquiry->error, errlen);
		return INQUIRY_FAILED;
	}
	if (is_asked && !has_second && now - asked_at >= COME_MS)
	{
		has_second = true;
		describe(&second, true);
		no_second = !RegisterDynamicBackgroundWorker(&second, NULL);
	}
	strlcpy(err, no_second ? "No process could be started to read it; increase max_worker_processes." :
			"The process \"snowid origin\" has not answered yet.", errlen);
	return now - asked_at < ANSWER_MS ? INQUIRY_PENDING : INQUIRY_FAILED;
}
