/*
 * origin_worker.c
 *		The process "snowid origin", and the keeper's questions to it.
 *
 * The names of origins are in a catalog, which needs a connection to a database.
 * The keeper has none, because it would keep sessions from dropping the database.
 * So this process waits without a connection, in a worker slot of its own that
 * parallel queries cannot take.  When the keeper asks (mailbox.c), it connects,
 * answers and exits, and the postmaster starts it again.  The postmaster times
 * that by the wall clock: if it takes too long, the keeper starts another one.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/origin_worker.h"
#include "mailbox.h"
#include "process.h"

/* The keeper reports that there is no answer after this time. */
#define ANSWER_MS 2000

/* If the process does not come within this time, the keeper starts another one. */
#define COME_MS 1000

/* It is woken when there is a question. */
#define IDLE_MS (60 * 1000)

/*
 * A late answer omits ceilings that were out of reach at the time of the question.
 * It is not used if the clock or the settings have moved the reach by more than this.
 */
#define REACH_MS 30000

/*
 * Once connected, the process waits this long for another question: longer than
 * the keeper does before a retry, since the log has a line for each process.
 */
#define LINGER_MS 2000

/* The keeper's question, and the answer. */
typedef struct OriginLetter
{
	OriginQuestion question;
	Oid			database;		/* to connect to */
	Ceiling		answer;
	char		error[GATE_DETAIL_LEN]; /* "": the answer is valid */
} OriginLetter;

typedef struct OriginMail
{
	Mailbox		box;
	OriginLetter letter;
} OriginMail;

static OriginMail *mail = NULL;

Size
origin_worker_shmem_size(void)
{
	return MAXALIGN(sizeof(OriginMail));
}

void
origin_worker_shmem_init(void)
{
	mail = shmem_zeroed("snowid origin", origin_worker_shmem_size());
	mailbox_init(&mail->box);
}

/*---- The process ----*/

static bool is_connected = false;

/* It exits then, if there is no other question; by monotonic_ms(). */
static int64 leave_at;

/* From here on it may wait for a lock, which SIGTERM must end. */
static void
begin_work(void)
{
	if (is_connected)
		return;
	pqsignal(SIGTERM, die);
	MemoryContextSwitchTo(TopMemoryContext);
	BackgroundWorkerInitializeConnectionByOid(mail->letter.database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	/* durable here is enough: a synchronous standby may be down */
	process_settle("local");
	is_connected = true;
}

/* Gives the keeper the answer, or the reason why there is none. */
static void
end_work(const char *error)
{
	/* as a sentence */
	snprintf(mail->letter.error, sizeof(mail->letter.error), error[0] ? "%s." : "", error);
	mail->letter.error[0] = pg_toupper((unsigned char) mail->letter.error[0]);
	mailbox_answer(&mail->box);
}

/* It waits for another question, unless it must exit. */
static Pause
linger(bool leave)
{
	Pause		pause = {.ms = LINGER_MS,.leave = leave};

	leave_at = monotonic_ms() + LINGER_MS;
	return pause;
}

static Pause
origin_turn(bool reloaded)
{
	MemoryContext turn_context = CurrentMemoryContext;
	OriginQuestion question;
	Ceiling		answer = {0};
	List	   *old = NIL;

	if (!mailbox_take(&mail->box))
		return (Pause)
	{
		.ms = is_connected ? ms_until(leave_at) : IDLE_MS,
			.leave = is_connected && monotonic_ms() >= leave_at
	};
	begin_work();
	question = mail->letter.question;
	StartTransactionCommand();
	MemoryContextSwitchTo(turn_context);
	if (question.owned != 0)
		origin_require_owned(&question);
	else if (question.leave_layouts)
		origin_leave_layouts();
	else
		answer = origin_look_up(&question, &old);
	CommitTransactionCommand();
	origin_drop_old(old);
	mail->letter.answer = answer;
	end_work("");
	/* after these the keeper will not ask another one soon */
	return linger(question.owned != 0 || question.leave_layouts);
}

static Pause
origin_recover(const ErrorData *error)
{
	if (mailbox_has_taken(&mail->box))
		end_work(error->message);
	else
		EmitErrorReport();
	return linger(false);
}

/* At every exit; the keeper learns of that, if it is at work. */
static void
origin_leave(void)
{
	if (mailbox_has_taken(&mail->box))
		end_work("the process \"snowid origin\" failed; see the server log");
}

const Process origin_process = {
	.id = PROCESS_ORIGIN,
	.name = "snowid origin",
	.connects_itself = true,
	.turn = origin_turn,
	.recover = origin_recover,
	.leave = origin_leave
};

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
	if (ConditionalLockRelationOid(DatabaseRelationId, AccessShareLock))
	{
		rel = table_open(DatabaseRelationId, NoLock);
		scan = table_beginscan_catalog(rel, 0, NULL);
		while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
		{
			Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
			const char *name = NameStr(database->datname);
			int			rank = strcmp(name, "postgres") == 0 ? 3 : strcmp(name, "template1") == 0 ? 2 : 1;

			/* an interrupted DROP DATABASE leaves a limit of -2 */
			if (database->datconnlimit != -2 && rank > best)
			{
				found = database->oid;
				best = rank;
			}
		}
		table_endscan(scan);
		table_close(rel, AccessShareLock);
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return found;
}

/* Is it the same question, of about the same time? */
static bool
is_same(const OriginQuestion *a, const OriginQuestion *b)
{
	return memcmp(a, b, offsetof(OriginQuestion, reach_ms)) == 0 &&
		a->reach_ms - b->reach_ms <= REACH_MS && b->reach_ms - a->reach_ms <= REACH_MS;
}

/*
 * Asks a question, or looks whether it was answered; never waits.  Returns
 * GATE_MAY_OPEN with the answer, GATE_CEILING with the reason why there is none, or
 * GATE_STARTING: the keeper repeats the question in its next turns.
 */
GateReason
origin_ask(const OriginQuestion *question, Ceiling *answer, char *err)
{
	static OriginLetter letter;
	static int64 asked_at = PG_INT64_MIN;	/* by monotonic_ms() */
	static bool has_second;		/* a second process was tried ... */
	static bool no_second;		/* ... in vain */
	int64		now = monotonic_ms();
	MailState	state;

	/* the answer before is not needed any more */
	if (asked_at == PG_INT64_MIN || !is_same(question, &letter.question))
	{
		(void) mailbox_leave(&mail->box);
		letter.question = *question;
		asked_at = now;
		has_second = no_second = false;
	}
	state = mailbox_look(&mail->box);
	if (state == MAIL_ANSWERED)
	{
		asked_at = PG_INT64_MIN;
		*answer = mail->letter.answer;
		strlcpy(err, mail->letter.error, GATE_DETAIL_LEN);
		return err[0] ? GATE_CEILING : GATE_MAY_OPEN;
	}
	if (state == MAIL_NONE)
	{
		letter.database = some_database();
		if (!OidIsValid(letter.database))
		{
			asked_at = PG_INT64_MIN;
			strlcpy(err, "Another session has locked the catalog pg_database.", GATE_DETAIL_LEN);
			return GATE_CEILING;
		}
		/* one that the keeper has left may be at work yet */
		if (mailbox_place(&mail->box, &mail->letter, &letter, sizeof(letter)))
			process_wake(PROCESS_ORIGIN);
	}
	if (state == MAIL_PLACED && !has_second && now - asked_at >= COME_MS)
	{
		has_second = true;
		no_second = !process_replace(&origin_process);
	}
	strlcpy(err, no_second ? "No process could be started to read it; increase max_worker_processes." :
			"The process \"snowid origin\" has not answered yet.", GATE_DETAIL_LEN);
	return now - asked_at < ANSWER_MS ? GATE_STARTING : GATE_CEILING;
}

/* The keeper exits. */
void
origin_leave_question(void)
{
	(void) mailbox_leave(&mail->box);
}
