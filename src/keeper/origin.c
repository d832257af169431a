/*
 * origin.c
 *		The durable ceilings, which are positions of replication origins; and the
 *		process "snowid origin", which reads and changes their catalog for the keeper.
 *
 * A pair's ceiling is the position, in Unix ms, of a replication origin named
 * after layout and pair.  It is in the WAL before it is used, so it precedes
 * every row with a key below it.  Crash recovery, standbys, promotion and base
 * backups carry it without code of ours; pg_replication_origin_status shows it.
 *
 * While the gate may be open, the keeper owns the origin as a session does: then no
 * other session can drop it, move it, or get its number.
 *
 * The catalog needs a connection to a database.  The keeper has none, because it
 * would keep sessions from dropping the database.  So this process waits without a
 * connection, in a worker slot of its own that parallel queries cannot take.  When
 * the keeper asks (process.c), it connects, answers and exits, and the postmaster
 * starts it again.  The postmaster times that by the wall clock: if it takes too
 * long, the keeper starts another one.  It does not run during recovery.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_database.h"
#include "catalog/pg_replication_origin.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "keeper/identity.h"
#include "keeper/origin.h"
#include "process.h"
#include "settings.h"

#define DAY_MS (INT64CONST(24) * 3600 * 1000)

/* So many besides the pair's own may stay while there is room. */
#define FEW 3

/* The lock for a drop is held for a moment, or until a transaction ends. */
#define LOCK_MS 500

/* A question to the process that reads the catalog of origins. */
typedef struct OriginQuestion
{
	int			datacenter_id;	/* whose origin is wanted */
	int			worker_id;
	int			old_datacenter_id;	/* its ceiling is wanted, too; or -1 */
	int			old_worker_id;
	uint16		owned;			/* 0, or: is this still the pair's origin? */
	bool		has_position;	/* the owned one had a position */
	bool		leave_layouts;	/* other layouts' origins are to go */

	/* these may differ when the same question is asked again */
	int64		reach_ms;		/* ceilings further ahead are ignored */
	Oid			database;		/* to connect to */
} OriginQuestion;

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

/* Reads layout and pair from an origin's name; false: it is not ours. */
static bool
read_name(const char *name, Origin *origin)
{
	Layout	   *layout = &origin->layout;
	char		again[NAMEDATALEN];
	long long	epoch = 0;

	/* another name is not the same when it is made again */
	memset(origin, 0, sizeof(*origin));
	(void) sscanf(name, "snowid_%lld_%d_%d_%d_%d_%d", &epoch,
				  &layout->datacenter_bits, &layout->worker_bits,
				  &layout->sequence_bits, &origin->datacenter_id,
				  &origin->worker_id);
	layout->epoch = epoch;
	layout->tick = 1;
	origin_name(again, layout, origin->datacenter_id, origin->worker_id);
	return strcmp(name, again) == 0 && layout_unusable(layout) == NULL &&
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

/* A position that no keeper wrote; arithmetic with it could overflow. */
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

/* All of our origins, oldest first, and the number of all origins. */
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

/*---- The catalog ----*/

/*
 * Keeps others from creating and dropping origins until the transaction ends.
 * Throws if another transaction does the same for longer than LOCK_MS.
 */
static void
lock_origins(void)
{
	for (int waited = 0; !ConditionalLockRelationOid(ReplicationOriginRelationId, ExclusiveLock); waited += 10)
	{
		if (waited >= LOCK_MS)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("another transaction that created or dropped a replication origin is still in progress")));
		pg_usleep(10 * 1000);
	}
}

/*
 * The names of origins that may be dropped, of pairs that this server no longer
 * uses: not the pair's own.  Their ceiling must be a day in the past, both by
 * the clock, which may be wrong, and by the newest ceiling within reach.  If room
 * for origins is short, or there are more than a few, max_jump in the past is
 * enough; and if pairs come from Redis, whose records have the ceiling too, any
 * time in the past.  The newest one stays: it tells which layout came last, and how
 * far its keys went.
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
		if (origin->ms > question->reach_ms)
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

		if (is_pair(origin, question->datacenter_id, question->worker_id) ||
			is_pair(origin, question->old_datacenter_id, question->old_worker_id))
			continue;
		if (count > max_active_replication_origins - 2 || others > FEW)
			may_go = may_go || origin->ms < past_ms - snowid_max_jump ||
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

/* Drops an origin unless it is in use; false: the catalog is locked. */
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

/*
 * The facts from our origins, for a question about a pair.  A wild one throws; or it is
 * not looked at, for sessions.
 */
static Ceiling
sum_up(List *origins, const OriginQuestion *question, bool for_session)
{
	Ceiling		answer;
	ListCell   *cell;

	memset(&answer, 0, sizeof(answer));
	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		if (is_wild(origin) && for_session)
			continue;
		if (is_wild(origin))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("the position of replication origin \"%s\" is " INT64_FORMAT ", which is not a Unix time in milliseconds in the range of its layout",
							origin->name, origin->ms)));
		if (!layout_equal(&origin->layout, &server_layout))
		{
			if (origin->ms > answer.other_layout_ms)
			{
				answer.other_layout = origin->layout;
				answer.other_layout_ms = origin->ms;
			}
			if (origin->ms != 0)
				answer.other_layout_key = Max(answer.other_layout_key,
											  layout_key_at(&origin->layout, origin->ms, true));
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
	return answer;
}

/*
 * Reads all of our origins; creates the pair's own if it is missing.  Lists those
 * that may be dropped, in the caller's context: once keys are made the newest
 * ceiling could be as wrong as the clock.
 */
static Ceiling
look_up(const OriginQuestion *question, List **old)
{
	char		own_name[NAMEDATALEN];
	int			count;
	List	   *origins = read_origins(&count);
	Ceiling		answer = sum_up(origins, question, false);

	if (answer.origin == InvalidRepOriginId)
	{
		origin_name(own_name, &server_layout, question->datacenter_id,
					question->worker_id);
		lock_origins();
		answer.origin = replorigin_create(own_name);
		count++;
	}
	*old = list_old(question, origins, count);
	return answer;
}

/*
 * Drops the origins of all other layouts; throws if that cannot be done.  The
 * ceiling of this layout is durable, and above all of their keys.
 *
 * A crash, or a drop that throws, may leave some of them.  The one with the newest
 * ceiling is dropped last: if its layout comes back, its keys start above that
 * ceiling, and so above those of the dropped ones.
 */
static void
leave_layouts(void)
{
	int			ignored;
	ListCell   *cell;
	List	   *origins;

	lock_origins();
	origins = read_origins(&ignored);
	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		if (!layout_equal(&origin->layout, &server_layout))
			replorigin_drop_by_name(origin->name, true, true);
	}
}

/*
 * Throws unless the origin that the keeper owns is the pair's.  An owned origin
 * cannot be dropped, but a drop that started earlier may not have changed the
 * catalog yet.  Such a drop has removed the position already; if there was none,
 * taking the lock proves that no drop is under way.
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
				 errmsg("replication origin \"%s\" was concurrently dropped", own_name)));
}

/*
 * Do the last keys in the WAL have another layout than the settings?  For
 * sessions, when the keeper has not decided: on a standby, before its first
 * look-up after a start, or if there is no pair.
 */
bool
origin_other_layout(Layout *other)
{
	static const OriginQuestion of_no_pair = {
		.datacenter_id = -1,.old_datacenter_id = -1,.reach_ms = PG_INT64_MAX
	};
	int			ignored;
	Ceiling		found = sum_up(read_origins(&ignored), &of_no_pair, true);

	*other = found.other_layout;
	return found.other_layout_ms > found.others_ms;
}

/*---- The question and its answer ----*/

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
typedef struct OriginMail
{
	Mailbox		box;
	OriginQuestion question;
	Ceiling		answer;
	char		error[GATE_DETAIL_LEN]; /* "": the answer is valid */
} OriginMail;

static OriginMail *mail = NULL;

void
origin_shmem(bool reserve)
{
	mail = shmem_area(reserve, "snowid origin", sizeof(OriginMail));
	if (!reserve)
		mailbox_init(&mail->box);
}

/*---- The process ----*/

/* Once connected it exits then, if there is no other question; by monotonic_ms(). */
static int64 leave_at;

/* Gives the keeper the answer, or the reason why there is none. */
static void
end_work(const char *error)
{
	/* as a sentence */
	snprintf(mail->error, sizeof(mail->error), error[0] ? "%s." : "", error);
	mail->error[0] = pg_toupper((unsigned char) mail->error[0]);
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
	ListCell   *cell;

	if (!mailbox_take(&mail->box))
		return (Pause)
	{
		.ms = OidIsValid(MyDatabaseId) ? ms_until(leave_at) : IDLE_MS,
			.leave = OidIsValid(MyDatabaseId) && monotonic_ms() >= leave_at
	};
	/* durable here is enough: a synchronous standby may be down */
	if (!OidIsValid(MyDatabaseId))
		process_connect(mail->question.database, "local");
	question = mail->question;
	StartTransactionCommand();
	MemoryContextSwitchTo(turn_context);
	if (question.owned != 0)
		require_owned(&question);
	else if (question.leave_layouts)
		leave_layouts();
	else
		answer = look_up(&question, &old);
	CommitTransactionCommand();
	foreach(cell, old)
	{
		if (!drop(lfirst(cell)))
			break;
	}
	mail->answer = answer;
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

/*---- The keeper's side: questions ----*/

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

/*
 * Asks a question, or looks whether it was answered; never waits.  Returns
 * GATE_MAY_OPEN with the answer, GATE_CEILING with the reason why there is none, or
 * GATE_STARTING: the keeper repeats the question in its next turns.
 */
static GateReason
origin_ask(const OriginQuestion *question, Ceiling *answer, char *err)
{
	static OriginQuestion asked;
	static int64 asked_at = PG_INT64_MIN;	/* by monotonic_ms() */
	static bool has_second;		/* a second process was tried ... */
	static bool no_second;		/* ... in vain */
	int64		now = monotonic_ms();
	MailState	state;

	/* the answer before is not needed any more, or is of another time */
	if (asked_at == PG_INT64_MIN ||
		memcmp(question, &asked, offsetof(OriginQuestion, reach_ms)) != 0 ||
		llabs(question->reach_ms - asked.reach_ms) > REACH_MS)
	{
		(void) mailbox_leave(&mail->box);
		asked = *question;
		asked_at = now;
		has_second = no_second = false;
	}
	state = mailbox_look(&mail->box);
	if (state == MAIL_ANSWERED)
	{
		asked_at = PG_INT64_MIN;
		*answer = mail->answer;
		strlcpy(err, mail->error, GATE_DETAIL_LEN);
		return err[0] ? GATE_CEILING : GATE_MAY_OPEN;
	}
	if (state == MAIL_NONE)
	{
		asked.database = some_database();
		if (!OidIsValid(asked.database))
		{
			asked_at = PG_INT64_MIN;
			strlcpy(err, "Another session has locked the catalog pg_database.", GATE_DETAIL_LEN);
			return GATE_CEILING;
		}
		/* one that the keeper has left may be at work yet */
		if (mailbox_place(&mail->box, &mail->question, &asked, sizeof(asked)))
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

/*---- The keeper's side: ceilings ----*/

/* The origin that this process owns, if any. */
static RepOriginId owned = InvalidRepOriginId;

/* Releases the origin, if there is one; no key is made with it. */
void
ceiling_let_go(void)
{
	if (owned == InvalidRepOriginId)
		return;
	owned = InvalidRepOriginId;
	replorigin_session_reset();
}

/* Begins a question about a pair, and about that of the claim in the state file. */
static void
ask_about(OriginQuestion *question, const Claim *pair)
{
	const Claim *old = &identity->claim;

	memset(question, 0, sizeof(*question));
	question->datacenter_id = pair->datacenter_id;
	question->worker_id = pair->worker_id;
	question->old_datacenter_id = old->ownership != 0 ? old->datacenter_id : -1;
	question->old_worker_id = old->ownership != 0 ? old->worker_id : -1;
}

/*
 * Finds the ceiling of a pair, and of the state file's.  Creates the pair's origin if
 * there is none, and takes ownership of it; so it must not be called during
 * recovery, when replay moves it.  Returns the result of origin_ask().
 *
 * Before it is owned, the origin may be dropped and its number be given to
 * another one.  So its name is looked up again once it is owned.  After a
 * failure it is released by the next call, or by ceiling_let_go().
 */
GateReason
ceiling_find(const Claim *pair, int64 reach_ms, Ceiling *ceiling, char *err)
{
	static OriginQuestion second;	/* the name is looked up again */
	static Ceiling found;
	OriginQuestion question;
	Ceiling		ignored;
	GateReason	reason;

	Assert(!RecoveryInProgress());
	if (max_active_replication_origins == 0)
	{
		strlcpy(err, "No replication origin slot is free; increase max_replication_slots (max_active_replication_origins from PostgreSQL 18 on).",
				GATE_DETAIL_LEN);
		return GATE_CEILING;
	}
	ask_about(&question, pair);
	question.reach_ms = reach_ms;
	if (second.owned == InvalidRepOriginId || second.owned != owned ||
		memcmp(&question, &second, offsetof(OriginQuestion, owned)) != 0)
	{
		second.owned = InvalidRepOriginId;
		ceiling_let_go();
		reason = origin_ask(&question, &found, err);
		if (reason != GATE_MAY_OPEN)
			return reason;
		replorigin_session_setup_here(found.origin);
		owned = found.origin;
		if (found.own_ms != (int64) replorigin_session_get_progress(false))
		{
			strlcpy(err, "Its position was changed concurrently.", GATE_DETAIL_LEN);
			return GATE_CEILING;
		}
		second = question;
		second.owned = owned;
		second.has_position = found.own_ms != 0;
	}
	reason = origin_ask(&second, &ignored, err);
	if (reason == GATE_STARTING)
		return reason;
	second.owned = InvalidRepOriginId;
	*ceiling = found;
	return reason;
}

/*
 * Raises a ceiling; it is durable when this returns.  If it throws, the ceiling
 * may be raised or not, and both are safe.
 *
 * The position in shared memory is set before the record is written.  A
 * checkpoint first fixes where replay begins and then stores the position: it
 * stores the new one, or replay reads the record.
 */
void
ceiling_raise(const Ceiling *ceiling, int64 unix_ms)
{
	xl_replorigin_set record;

	Assert(owned != InvalidRepOriginId && owned == ceiling->origin);
	replorigin_session_advance((XLogRecPtr) unix_ms, InvalidXLogRecPtr);
	memset(&record, 0, sizeof(record));
	record.remote_lsn = (XLogRecPtr) unix_ms;
	record.node_id = owned;
	record.force = false;
	XLogBeginInsert();
	XLogRegisterData((char *) &record, sizeof(record));
	XLogFlush(XLogInsert(RM_REPLORIGIN_ID, XLOG_REPLORIGIN_SET));
}

/*
 * Drops the origins of all other layouts, so that this one came last in any
 * case, even below their ceilings.  The pair's ceiling is durable, and above all of their
 * keys.  If it fails, some may be gone.
 */
GateReason
ceiling_leave_layouts(const Claim *pair, char *err)
{
	OriginQuestion question;
	Ceiling		ignored;

	ask_about(&question, pair);
	question.leave_layouts = true;
	return origin_ask(&question, &ignored, err);
}

/*
 * Lowers the ceiling to what was used, and releases the origin; the gate is
 * closed.  PostgreSQL cannot lower an origin that is owned, so a lock keeps
 * others from dropping it in between.  If a transaction that drops some origin
 * holds that lock, or this throws, the ceiling stays as it is; and so it does after
 * a crash before the WAL is flushed, which is safe.
 */
void
ceiling_leave(const Ceiling *ceiling, int64 unix_ms)
{
	MemoryContext context = CurrentMemoryContext;

	StartTransactionCommand();
	if (owned == ceiling->origin &&
		ConditionalLockRelationOid(ReplicationOriginRelationId, ExclusiveLock))
	{
		ceiling_let_go();
		replorigin_advance(ceiling->origin, (XLogRecPtr) unix_ms,
						   InvalidXLogRecPtr, true, true);
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
}
