/*
 * ceiling.c
 *		The durable ceiling of a pair, in the WAL.
 *
 * A pair's ceiling is the position, in Unix ms, of a replication origin named
 * after layout and pair.  It is in the WAL before it is used, so it precedes
 * every row with a key below it.  Crash recovery, standbys, promotion and base
 * backups carry it without code of ours; pg_replication_origin_status shows it.
 *
 * Only the keeper calls this.  While the gate may be open, it owns the origin as
 * a session does: then no other session can drop it, move it, or get its number.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_replication_origin.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/lmgr.h"

#include "compat.h"
#include "keeper/ceiling.h"
#include "keeper/identity.h"
#include "keeper/origin.h"
#include "settings.h"

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
	const Claim *old = identity_claim();

	memset(question, 0, sizeof(*question));
	question->datacenter_id = pair->datacenter_id;
	question->worker_id = pair->worker_id;
	question->old_datacenter_id = old->ownership != 0 ? old->datacenter_id : -1;
	question->old_worker_id = old->ownership != 0 ? old->worker_id : -1;
	question->max_jump = snowid_max_jump;
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

	if (owned == InvalidRepOriginId || owned != ceiling->origin)
		elog(ERROR, "replication origin with ID %d is not owned", ceiling->origin);
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
