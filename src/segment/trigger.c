/*
 * trigger.c
 *		The trigger of the table snowid_segments.
 *
 * max_id only rises, whoever writes: a number that was handed out would come
 * again.  The commit is durable, whatever the writer set.  What is changed by hand
 * is seen by the next number here: at commit, what this server has of the tag in
 * memory is cut off.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "guard.h"
#include "segment/pool.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_segments_guard);

/* Changed in this transaction, in TopTransactionContext. */
typedef struct Change
{
	struct Change *next;
	SegmentKey	key;			/* len 0: the whole table */
} Change;

static Change *changes = NULL;

static Datum
column(HeapTuple tuple, TupleDesc desc, const char *name, bool *isnull)
{
	int			number = SPI_fnumber(desc, name);

	if (number <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("the table of segments has no column \"%s\"", name)));
	return heap_getattr(tuple, number, desc, isnull);
}

static int64
max_id_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Datum		value = column(tuple, desc, "max_id", &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static HeapTuple
with_column(HeapTuple tuple, TupleDesc desc, const char *name, Datum value)
{
	int			number = SPI_fnumber(desc, name);
	bool		isnull = false;

	return heap_modify_tuple_by_cols(tuple, desc, 1, &number, &value, &isnull);
}

/* A process writes: what it takes, or gives back. */
static bool
is_process(HeapTuple tuple, TupleDesc desc, bool *gives_back)
{
	bool		isnull;
	TimestampTz time = DatumGetTimestampTz(column(tuple, desc, "update_time", &isnull));

	*gives_back = !isnull && TIMESTAMP_IS_NOBEGIN(time);
	return !isnull && TIMESTAMP_NOT_FINITE(time);
}

/* Is a column of a row another one than before? */
static bool
differs(HeapTuple old, HeapTuple new, TupleDesc desc, const char *name)
{
	bool		was_null;
	bool		is_null;
	Datum		was = column(old, desc, name, &was_null);
	Datum		is = column(new, desc, name, &is_null);
	Form_pg_attribute attribute = TupleDescAttr(desc, SPI_fnumber(desc, name) - 1);

	return was_null != is_null ||
		(!is_null && !datumIsEqual(was, is, attribute->attbyval, attribute->attlen));
}

/*---- What is changed by hand ----*/

/*
 * At COMMIT the change is visible, and at PREPARE its lock keeps everybody from
 * the row: from here on no number from before is handed out here.
 */
static void
at_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
	{
		for (Change *change = changes; change; change = change->next)
		{
			if (change->key.len > 0)
				pool_forget(&change->key);
			else
				pool_forget_table(change->key.relid);
		}
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE || event == XACT_EVENT_ABORT)
		changes = NULL;
}

/* At the end of the transaction, the tag is to be forgotten; NULL: all tags. */
static void
note_change(Oid relid, const text *tag)
{
	static bool registered = false;
	Change	   *change;
	int			len = tag ? VARSIZE_ANY_EXHDR(tag) : 0;

	if (!library_is_preloaded || snowid_segments == 0 || len > TAG_LEN)
		return;
	if (!registered)
		RegisterXactCallback(at_end, NULL);
	registered = true;
	change = MemoryContextAlloc(TopTransactionContext, sizeof(Change));
	pool_make_key(&change->key, relid, tag ? VARDATA_ANY(tag) : "", len);
	change->next = changes;
	changes = change;
}

/*---- The trigger ----*/

/*
 * To write to its source, a segment's process takes the rights of the table's
 * owner: who names it must have them.
 */
static void
check_source(HeapTuple new, TupleDesc desc)
{
	bool		isnull;
	Oid			source = DatumGetObjectId(column(new, desc, "source", &isnull));

	if (!isnull &&
		(pg_class_aclcheck(source, GetUserId(), ACL_SELECT) != ACLCHECK_OK ||
		 pg_class_aclcheck(source, GetUserId(), ACL_UPDATE) != ACLCHECK_OK))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for the source of a segment"),
				 errdetail("A table that is a segment's source needs SELECT and UPDATE.")));
}

/* The row as it is to be written. */
static HeapTuple
guard_update(HeapTuple old, HeapTuple new, Relation rel, bool *by_hand)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		is_replica = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
	bool		gives_back;
	bool		isnull;
	bool		is_ours = is_process(new, desc, &gives_back);
	int64		old_id = max_id_of(old, desc);
	bool		is_lowered = max_id_of(new, desc) < old_id && !gives_back;

	if (is_lowered && !is_replica)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_id of segment \"%s\" cannot be lowered",
						TextDatumGetCString(column(old, desc, "biz_tag", &isnull))),
				 errdetail("Numbers up to " INT64_FORMAT " may have been handed out.", old_id)));
	if (is_lowered)
		new = with_column(new, desc, "max_id", Int64GetDatum(old_id));
	if (is_ours || !is_replica)
		new = with_column(new, desc, "update_time", TimestampTzGetDatum(GetCurrentTimestamp()));
	if (differs(old, new, desc, "source"))
		check_source(new, desc);
	*by_hand = !is_ours &&
		(differs(old, new, desc, "max_id") || differs(old, new, desc, "limit_id") ||
		 differs(old, new, desc, "source") || differs(old, new, desc, "role") ||
		 differs(old, new, desc, "biz_tag"));
	return new;
}

/* Before INSERT, UPDATE or DELETE of a row, or TRUNCATE. */
Datum
snowid_segments_guard(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	row;
	bool		by_hand = true;
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("snowid_segments_guard() was not called as a trigger")));
	if (TRIGGER_FIRED_BY_TRUNCATE(data->tg_event))
	{
		note_change(RelationGetRelid(data->tg_relation), NULL);
		return PointerGetDatum(NULL);
	}
	desc = RelationGetDescr(data->tg_relation);
	row = data->tg_trigtuple;
	if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
	{
		check_source(row, desc);
		by_hand = false;
	}
	else if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		row = guard_update(row, data->tg_newtuple, data->tg_relation, &by_hand);
	if (by_hand)
		note_change(RelationGetRelid(data->tg_relation),
					DatumGetTextPP(column(data->tg_trigtuple, desc, "biz_tag", &isnull)));
	/* what a number is durable by, whatever the writer set */
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	return PointerGetDatum(row);
}
