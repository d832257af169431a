/*
 * trigger.c
 *		The triggers of the tables snowid_segments and snowid_segment_periods.
 *
 * max_id only rises, for all who write: a number that was handed out would come again.
 * The commit is durable, whatever the writer set.  The next number here sees a change by
 * hand: at commit, what this server has of the tag in memory is lost.
 *
 * The process "snowid segments" writes these tables without SQL, so no trigger fires.
 * Other servers that have them as a source set update_time to 'infinity' when they take
 * a range: this is no change by hand.  The trigger replaces it by the time.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "guard.h"
#include "segment/segment.h"
#include "segment/source.h"
#include "segment/table.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_segments_guard);

/* Changed in this transaction, in TopTransactionContext. */
typedef struct Change
{
	struct Change *next;
	SegmentKey	key;			/* len 0: the whole table */
	DateADT		period;			/* whose row was deleted, or ALL_PERIODS */
} Change;

static Change *changes = NULL;

/* A row of either table. */
typedef struct Version
{
	HeapTuple	tuple;			/* NULL: there is none */
	Datum	   *values;
	bool	   *nulls;
} Version;

/*---- What is changed by hand ----*/

/*
 * At COMMIT the change is visible, and at PREPARE its lock keeps everybody from the row:
 * from here on no number from before is handed out here.  Before COMMIT the numbers are
 * dropped, too: a process that finds the changed row must not give a range back to it.
 */
static void
at_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_COMMIT ||
		event == XACT_EVENT_PREPARE)
	{
		for (Change *change = changes; change; change = change->next)
			segment_forget(&change->key, change->period);
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE || event == XACT_EVENT_ABORT)
		changes = NULL;
}

/* At the end of the transaction, the tag is dropped from memory; "": all tags. */
static void
note_change(Oid relid, const char *tag, int len, DateADT period)
{
	static bool registered = false;
	Change	   *change;

	if (!library_is_preloaded || snowid_max_segments == 0 || len > TAG_LEN)
		return;
	if (!registered)
		RegisterXactCallback(at_end, NULL);
	registered = true;
	change = MemoryContextAlloc(TopTransactionContext, sizeof(Change));
	segment_make_key(&change->key, relid, tag, len);
	change->period = period;
	change->next = changes;
	changes = change;
}

/*---- Rows ----*/

static Version
version_of(HeapTuple tuple, TupleDesc desc)
{
	Version		version = {.tuple = tuple};

	version.values = palloc(desc->natts * sizeof(Datum));
	version.nulls = palloc(desc->natts * sizeof(bool));
	if (tuple)
		heap_deform_tuple(tuple, desc, version.values, version.nulls);
	return version;
}

static void
set_column(Version *version, TupleDesc desc, int column, Datum value)
{
	int			number = column + 1;
	bool		isnull = false;

	*version = version_of(heap_modify_tuple_by_cols(version->tuple, desc, 1, &number, &value,
													&isnull), desc);
}

static int64
max_id_of(const Version *version, const TableKind *kind)
{
	return version->nulls[kind->max_id] ? 0 : DatumGetInt64(version->values[kind->max_id]);
}

/* Is a column of a row another one than before? */
static bool
differs(const Version *old, const Version *new, TupleDesc desc, int column)
{
	Form_pg_attribute attribute = TupleDescAttr(desc, column);

	return old->nulls[column] != new->nulls[column] ||
		(!old->nulls[column] && !datumIsEqual(old->values[column], new->values[column],
											  attribute->attbyval, attribute->attlen));
}

/*---- The trigger ----*/

/*
 * A column that cannot be resolved here is an error, but if a dump is restored or a change
 * is replicated: a row that gives no numbers, and says why, is better than a table that is
 * lost.  A role that may write the table may name any source that the database's owner
 * may use.  The source gets its full name.
 */
static void
resolve(Version *new, TupleDesc desc)
{
	TagRow		tag;
	const char *problem;

	if (new->nulls[TAG_BIZ_TAG] || new->nulls[TAG_MAX_ID])
		return;					/* the row is refused */
	table_read_columns(new->values, new->nulls, &tag);
	problem = tag.problem;
	if (tag.row.source[0])
	{
		Oid			relid = source_find(tag.row.source, true);

		if (problem == NULL)
			problem = source_problem(relid);
		if (OidIsValid(relid))
			set_column(new, desc, TAG_SOURCE,
					   CStringGetTextDatum(quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
																	  get_rel_name(relid))));
	}
	if (problem)
		ereport(!check_function_bodies ||
				SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ? WARNING : ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("segment \"%s\" would have no numbers",
						TextDatumGetCString(new->values[TAG_BIZ_TAG])),
				 errdetail("%s.", problem)));
}

/*
 * The numbers that were taken from a source are not known here: a row that leaves it needs
 * a max_id from its statement, which must not be below the source's.
 */
static void
check_move(const Version *old, const Version *new, TupleDesc desc)
{
	int64		max_id = max_id_of(old, &table_tags);

	if (!old->nulls[TAG_SOURCE] && differs(old, new, desc, TAG_SOURCE) &&
		max_id_of(new, &table_tags) <= max_id &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("source of segment \"%s\" cannot be changed without its max_id",
						TextDatumGetCString(old->values[TAG_BIZ_TAG])),
				 errdetail("Numbers above " INT64_FORMAT " may have been handed out from its source.",
						   max_id),
				 errhint("Raise max_id in the same statement, to that of the source at least.")));
}

static void
keep_from_falling(const Version *old, Version *new, TupleDesc desc, const TableKind *kind)
{
	int64		max_id = max_id_of(old, kind);

	if (max_id_of(new, kind) >= max_id)
		return;
	if (SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_id of segment \"%s\" cannot be lowered",
						TextDatumGetCString(old->values[TAG_BIZ_TAG])),
				 errdetail("Numbers up to " INT64_FORMAT " may have been handed out.", max_id)));
	set_column(new, desc, kind->max_id, Int64GetDatum(max_id));
}

/* Checks and completes the new row; returns whether it is changed by hand. */
static bool
check_change(const Version *old, Version *new, TupleDesc desc, const TableKind *kind)
{
	bool		is_ours = !new->nulls[kind->update_time] &&
	TIMESTAMP_IS_NOEND(DatumGetTimestampTz(new->values[kind->update_time]));

	if (old->tuple && kind == &table_tags)
		check_move(old, new, desc);
	if (old->tuple)
		keep_from_falling(old, new, desc, kind);
	if (kind == &table_tags)
		resolve(new, desc);
	if (is_ours || (old->tuple && SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA))
		set_column(new, desc, kind->update_time, TimestampTzGetDatum(GetCurrentTimestamp()));
	return !is_ours && (old->tuple || kind == &table_periods);
}

/*
 * Before INSERT, UPDATE or DELETE of a row, or TRUNCATE: of snowid_segments, or
 * with an argument of snowid_segment_periods beside it.
 */
Datum
snowid_segments_guard(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	const TableKind *kind;
	TupleDesc	desc;
	Version		old;
	Version		new;
	Oid			relid;
	bool		by_hand = true;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("snowid_segments_guard() was not called as a trigger")));
	kind = data->tg_trigger->tgnargs > 0 ? &table_periods : &table_tags;
	relid = kind == &table_tags ? RelationGetRelid(data->tg_relation) :
		get_relname_relid(table_tags.name, RelationGetNamespace(data->tg_relation));
	if (TRIGGER_FIRED_BY_TRUNCATE(data->tg_event))
	{
		note_change(relid, "", 0, ALL_PERIODS);
		return PointerGetDatum(NULL);
	}
	table_require_columns(data->tg_relation, kind);
	desc = RelationGetDescr(data->tg_relation);
	old = version_of(TRIGGER_FIRED_BY_INSERT(data->tg_event) ? NULL : data->tg_trigtuple, desc);
	new = version_of(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple :
					 data->tg_trigtuple, desc);
	if (!TRIGGER_FIRED_BY_DELETE(data->tg_event))
		by_hand = check_change(&old, &new, desc, kind);
	/* the row that had numbers; a new one whose tag is null is refused */
	if (old.tuple == NULL)
		old = new;
	if (by_hand && !old.nulls[0])
	{
		const text *tag = DatumGetTextPP(old.values[0]);

		note_change(relid, VARDATA_ANY(tag), VARSIZE_ANY_EXHDR(tag),
					TRIGGER_FIRED_BY_DELETE(data->tg_event) && kind == &table_periods ?
					DatumGetDateADT(old.values[PERIOD_PERIOD]) : ALL_PERIODS);
	}
	/* numbers are as durable as this commit, whatever the writer set */
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	return PointerGetDatum(new.tuple);
}
