/*
 * table.c
 *		The rows of snowid_segments and snowid_segment_periods, and the triggers of
 *		these tables.
 *
 * Read, locked and written as PostgreSQL does with its catalogs, without SQL: so no
 * trigger, rule, policy, constraint or default is computed, and nobody's code runs in
 * the process that fetches, even if the tables have another owner.  An index could have an
 * expression; so there may be none but of the primary key's columns.
 *
 * Nothing here waits for a lock of another transaction: the answer is LOCKED, and the
 * caller tries again later.
 *
 * The triggers are for all others who write.  max_id only rises: a number that was handed
 * out would come again.  The commit is durable, whatever the writer set.  The next number
 * here sees a change by hand: at commit, what this server has of the tag in memory is lost.
 * Other servers that have the table as a source set update_time to 'infinity' when they
 * take a range: this is no change by hand.  The trigger replaces it by the time.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "mb/pg_wchar.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "segment/source.h"
#include "segment/table.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_segments_guard);

/* A role that does not exist: superusers alone have its rights. */
#define NOBODY ((Oid) -1)

/* Columns of the tables, as the extension's script makes them; biz_tag is the first. */
typedef enum TagColumn
{
	TAG_BIZ_TAG,
	TAG_MAX_ID,
	TAG_STEP,
	TAG_DESCRIPTION,
	TAG_UPDATE_TIME,
	TAG_LIMIT_ID,
	TAG_COVER,
	TAG_SOURCE,
	TAG_ROLE,
	TAG_PERIOD,
	TAG_ZONE,
	TAG_FORMAT,
	TAG_COLUMNS
} TagColumn;

typedef enum PeriodColumn
{
	PERIOD_BIZ_TAG,
	PERIOD_PERIOD,
	PERIOD_MAX_ID,
	PERIOD_UPDATE_TIME,
	PERIOD_COLUMNS
} PeriodColumn;

typedef struct TableKind
{
	const char *name;
	int			keys;			/* columns of the primary key */
	int			max_id;
	int			update_time;
	int			n;
	Oid			types[TAG_COLUMNS];
} TableKind;

static const TableKind table_tags = {
	"snowid_segments", 1, TAG_MAX_ID, TAG_UPDATE_TIME, TAG_COLUMNS,
	{TEXTOID, INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID, INT8OID, INTERVALOID, TEXTOID,
	TEXTOID, TEXTOID, TEXTOID, TEXTOID}
};

static const TableKind table_periods = {
	"snowid_segment_periods", 2, PERIOD_MAX_ID, PERIOD_UPDATE_TIME, PERIOD_COLUMNS,
	{TEXTOID, DATEOID, INT8OID, TIMESTAMPTZOID}
};

/*---- The tables ----*/

static void
refuse_table(const TableKind *kind)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("definition of table \"%s\" does not match the snowid_segments extension", kind->name),
			 errdetail("Its columns, primary key or persistence were changed, or it has an index of other columns.")));
}

static void
check_columns(Relation rel, const TableKind *kind)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < kind->n; i++)
	{
		if (i >= desc->natts || TupleDescAttr(desc, i)->atttypid != kind->types[i])
			refuse_table(kind);
	}
}

/* Is it the primary key of the script, or has it the same columns? */
static bool
is_of_key(Oid relid, const TableKind *kind)
{
	Relation	index = index_open(relid, NoLock);
	Form_pg_index form = index->rd_index;
	bool		good = form->indimmediate && !form->indisexclusion &&
	form->indnkeyatts == kind->keys &&
	heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);

	for (int i = 0; good && i < kind->keys; i++)
		good = form->indkey.values[i] == i + 1;
	index_close(index, AccessShareLock);
	return good;
}

/*
 * Opens a table with a lock that is kept.  ABSENT: it is none of the extension's.  Other
 * indexes must be like that of its key: REINDEX CONCURRENTLY makes such a one, and leaves
 * it if it fails.  LOCKED: another transaction has the table, or REINDEX an index.
 */
static Found
open_table(const TableKind *kind, const SegmentKey *key, LOCKMODE mode, Relation *rel)
{
	/* the table of the periods is beside that of the tags */
	Oid			relid = kind == &table_tags ? key->relid :
	get_relname_relid(kind->name, get_rel_namespace(key->relid));
	Oid			extension = get_extension_oid("snowid_segments", true);
	bool		good;
	ListCell   *cell;

	if (!ConditionalLockRelationOid(relid, mode))
		return LOCKED;
	if (!OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return ABSENT;
	*rel = relation_open(relid, NoLock);
	check_columns(*rel, kind);
	good = (*rel)->rd_rel->relkind == RELKIND_RELATION &&
		(*rel)->rd_rel->relam == HEAP_TABLE_AM_OID &&
		(*rel)->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT;
	foreach(cell, RelationGetIndexList(*rel))
	{
		if (!ConditionalLockRelationOid(lfirst_oid(cell), AccessShareLock))
		{
			relation_close(*rel, NoLock);
			return LOCKED;
		}
		good = is_of_key(lfirst_oid(cell), kind) && good;
	}
	if (!good || !OidIsValid((*rel)->rd_pkindex))
		refuse_table(kind);
	return FOUND;
}

/*---- Rows ----*/

static TableRow
row_of(const TableKind *kind, HeapTuple tuple, TupleDesc desc)
{
	TableRow	row = {.kind = kind,.tuple = tuple};

	row.values = palloc(desc->natts * sizeof(Datum));
	row.nulls = palloc(desc->natts * sizeof(bool));
	if (tuple == NULL)
		return row;
	heap_deform_tuple(tuple, desc, row.values, row.nulls);
	if (!row.nulls[kind->max_id])
		row.max_id = DatumGetInt64(row.values[kind->max_id]);
	return row;
}

static void
set_column(TableRow *row, TupleDesc desc, int column, Datum value)
{
	int			number = column + 1;
	bool		isnull = false;

	*row = row_of(row->kind, heap_modify_tuple_by_cols(row->tuple, desc, 1, &number, &value,
													   &isnull), desc);
}

/* Is it still a row of this tag, and of this period? */
static bool
is_same_row(const TableRow *row, const SegmentKey *key, const DateADT *period)
{
	text	   *tag = DatumGetTextPP(row->values[0]);

	return VARSIZE_ANY_EXHDR(tag) == key->len &&
		memcmp(VARDATA_ANY(tag), key->tag, key->len) == 0 &&
		(period == NULL || DatumGetDateADT(row->values[PERIOD_PERIOD]) == *period);
}

/* Locks the newest version of a row to the end of the transaction; NULL: not now. */
static HeapTuple
lock_tuple(Relation rel, SysScanDesc scan, HeapTuple tuple, LockTupleMode mode)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ItemPointerData tid = tuple->t_self;
	TM_FailureData failure;
	TM_Result	result = table_tuple_lock(rel, &tid, scan->snapshot, slot,
										  GetCurrentCommandId(true), mode, LockWaitSkip,
										  TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS |
										  TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);

	tuple = result == TM_Ok ? ExecCopySlotHeapTuple(slot) : NULL;
	ExecDropSingleTupleTableSlot(slot);
	return tuple;
}

/*
 * Reads the row of a tag, or of this period, or else of its newest one; or locks it.  By
 * a snapshot of the caller's, or NULL: as it is now, which a parallel worker sees only by
 * one for catalogs.  If the newest version of one to lock is another tag's, because the
 * row was renamed meanwhile, the answer is LOCKED, too: the caller looks for it again
 * later.
 */
static Found
find_row(const TableKind *kind, const SegmentKey *key, const DateADT *period,
		 Snapshot snapshot, LockTupleMode mode, TableRow *row)
{
	bool		reads = mode == UNLOCKED;
	Relation	rel;
	Found		found = open_table(kind, key, reads ? AccessShareLock : RowExclusiveLock, &rel);
	Relation	index;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	if (found != FOUND)
		return found;
	/* the column is the table's here, and not the index's */
	ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, TEXTOID,
						   TupleDescAttr(RelationGetDescr(rel), 0)->attcollation, F_TEXTEQ,
						   PointerGetDatum(cstring_to_text_with_len(key->tag, key->len)));
	if (period)
		ScanKeyEntryInitialize(&keys[1], 0, PERIOD_PERIOD + 1, BTEqualStrategyNumber, DATEOID,
							   InvalidOid, F_DATE_EQ, DateADTGetDatum(*period));
	index = index_open(rel->rd_pkindex, AccessShareLock);
	scan = systable_beginscan_ordered(rel, index, snapshot, period ? 2 : 1, keys);
	tuple = systable_getnext_ordered(scan, BackwardScanDirection);
	if (tuple == NULL)
		found = ABSENT;
	else
	{
		tuple = reads ? heap_copytuple(tuple) : lock_tuple(rel, scan, tuple, mode);
		if (tuple)
			*row = row_of(kind, tuple, RelationGetDescr(rel));
		if (tuple == NULL || !is_same_row(row, key, period))
			found = LOCKED;
	}
	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
	relation_close(rel, reads ? AccessShareLock : NoLock);
	return found;
}

static const char *
text_of(const TableRow *row, TagColumn column)
{
	return row->nulls[column] ? "" : TextDatumGetCString(row->values[column]);
}

/*
 * Reads the columns of a row; one that cannot be resolved is its problem.  The table's
 * owner may have taken its constraints away.
 */
static void
read_columns(const TableRow *stored, TagRow *tag)
{
	const Datum *values = stored->values;
	Row		   *row = &tag->row;
	const char *role = text_of(stored, TAG_ROLE);
	const char *format = text_of(stored, TAG_FORMAT);
	const char *source = text_of(stored, TAG_SOURCE);
	const char *zone = text_of(stored, TAG_ZONE);
	Interval   *cover = stored->nulls[TAG_COVER] ? NULL : DatumGetIntervalP(values[TAG_COVER]);
	int64		last;

	*tag = (TagRow)
	{
		.stored = *stored,.zone = pg_tzset(zone)
	};
	tag->step = Min(Max(DatumGetInt32(values[TAG_STEP]), 1), MAX_STEP);
	if (cover)
		tag->cover_ms = (cover->time + cover->day * USECS_PER_DAY) / 1000;
	row->limit = stored->nulls[TAG_LIMIT_ID] ? PG_INT64_MAX : DatumGetInt64(values[TAG_LIMIT_ID]);
	strlcpy(row->source, source, pg_mbcliplen(source, strlen(source), SOURCE_LEN - 1) + 1);
	row->role = role[0] ? get_role_oid(role, true) : InvalidOid;
	if (role[0] && !OidIsValid(row->role))
	{
		row->role = NOBODY;
		tag->problem = "Its role does not exist";
	}
	if (!period_kind(text_of(stored, TAG_PERIOD), &row->kind))
		tag->problem = "Its period must be none, day, month or year";
	else if (tag->zone == NULL)
		tag->problem = "Its time zone is not known here";
	else if (format[0])
		tag->problem = period_check_format(row->kind, format, &last);
	row->is_valid = tag->problem == NULL;
	if (row->is_valid && format[0])
	{
		strlcpy(row->format, format, sizeof(row->format));
		row->limit = Min(row->limit, last);
	}
}

/* The row of a tag, as it is now; it may be locked to the end of the transaction. */
Found
table_find_tag(const SegmentKey *key, LockTupleMode mode, TagRow *tag)
{
	TableRow	row;
	Found		found = find_row(&table_tags, key, NULL, NULL, mode, &row);

	if (found == FOUND)
		read_columns(&row, tag);
	return found;
}

/* The newest period of which there is a row; or NO_PERIOD. */
Found
table_newest_period(const SegmentKey *key, DateADT *newest)
{
	TableRow	row;
	Found		found = find_row(&table_periods, key, NULL, NULL, UNLOCKED, &row);

	*newest = found == FOUND ? DatumGetDateADT(row.values[PERIOD_PERIOD]) : NO_PERIOD;
	return found;
}

/* Locks the row that has the numbers of a period, or of a tag without periods. */
Found
table_lock_row(const SegmentKey *key, DateADT period, TableRow *row)
{
	bool		in_period = period != NO_PERIOD;

	return find_row(in_period ? &table_periods : &table_tags, key, in_period ? &period : NULL,
					NULL, LockTupleNoKeyExclusive, row);
}

/* Writes a row that is locked. */
void
table_set_max_id(TableRow *row, int64 max_id)
{
	Relation	rel = relation_open(row->tuple->t_tableOid, NoLock);
	TupleDesc	desc = RelationGetDescr(rel);

	set_column(row, desc, row->kind->max_id, Int64GetDatum(max_id));
	set_column(row, desc, row->kind->update_time, TimestampTzGetDatum(GetCurrentTimestamp()));
	CatalogTupleUpdate(rel, &row->tuple->t_self, row->tuple);
	relation_close(rel, NoLock);
}

/*
 * Makes the row of a period; false: another transaction does, which is not at its end,
 * or holds the table.
 */
bool
table_add_period(const SegmentKey *key, DateADT period, int64 max_id)
{
	Relation	rel;
	SnapshotData dirty;
	TableRow	row;
	TupleDesc	desc;
	Datum	   *values;
	bool	   *nulls;

	InitDirtySnapshot(dirty);
	if (find_row(&table_periods, key, &period, &dirty, UNLOCKED, &row) != ABSENT ||
		open_table(&table_periods, key, RowExclusiveLock, &rel) != FOUND)
		return false;
	desc = RelationGetDescr(rel);
	values = palloc0(desc->natts * sizeof(Datum));
	nulls = palloc0(desc->natts * sizeof(bool));
	for (int i = PERIOD_COLUMNS; i < desc->natts; i++)
	{
		nulls[i] = true;
		/* jit trusts it: a null there crashes a reader */
		if (TupleDescAttr(desc, i)->attnotnull)
			refuse_table(&table_periods);
	}
	values[PERIOD_BIZ_TAG] = PointerGetDatum(cstring_to_text_with_len(key->tag, key->len));
	values[PERIOD_PERIOD] = DateADTGetDatum(period);
	values[PERIOD_MAX_ID] = Int64GetDatum(max_id);
	values[PERIOD_UPDATE_TIME] = TimestampTzGetDatum(GetCurrentTimestamp());
	CatalogTupleInsert(rel, heap_form_tuple(desc, values, nulls));
	relation_close(rel, NoLock);
	return true;
}

/*---- Changes by hand ----*/

/* Changed in this transaction, in TopTransactionContext. */
typedef struct Change
{
	struct Change *next;
	SegmentKey	key;			/* len 0: the whole table */
	DateADT		period;			/* whose row was deleted, or ALL_PERIODS */
} Change;

static Change *changes = NULL;

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

/*---- The triggers ----*/

/*
 * A column that cannot be resolved here is an error, but if a dump is restored or a change
 * is replicated: a row that gives no numbers, and says why, is better than a table that is
 * lost.  A role that may write the table may name any source that the database's owner
 * may use.  The source gets its full name.
 */
static void
resolve(TableRow *new, TupleDesc desc)
{
	TagRow		tag;
	const char *problem;

	if (new->nulls[TAG_BIZ_TAG] || new->nulls[TAG_MAX_ID])
		return;					/* the row is refused */
	read_columns(new, &tag);
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
check_move(const TableRow *old, const TableRow *new)
{
	const char *source = text_of(old, TAG_SOURCE);

	if (source[0] && strcmp(source, text_of(new, TAG_SOURCE)) != 0 &&
		new->max_id <= old->max_id &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("source of segment \"%s\" cannot be changed without its max_id",
						TextDatumGetCString(old->values[TAG_BIZ_TAG])),
				 errdetail("Numbers above " INT64_FORMAT " may have been handed out from its source.",
						   old->max_id),
				 errhint("Raise max_id in the same statement, to that of the source at least.")));
}

/* Checks and completes the new row; returns whether it is changed by hand. */
static bool
check_change(const TableRow *old, TableRow *new, TupleDesc desc)
{
	const TableKind *kind = new->kind;
	bool		is_replica = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
	bool		is_ours = !new->nulls[kind->update_time] &&
	TIMESTAMP_IS_NOEND(DatumGetTimestampTz(new->values[kind->update_time]));

	if (old->tuple && kind == &table_tags)
		check_move(old, new);
	if (old->tuple && new->max_id < old->max_id)
	{
		if (!is_replica)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_id of segment \"%s\" cannot be lowered",
							TextDatumGetCString(old->values[0])),
					 errdetail("Numbers up to " INT64_FORMAT " may have been handed out.",
							   old->max_id)));
		set_column(new, desc, kind->max_id, Int64GetDatum(old->max_id));
	}
	if (kind == &table_tags)
		resolve(new, desc);
	if (is_ours || (old->tuple && !is_replica))
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
	TableRow	old;
	TableRow	new;
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
	check_columns(data->tg_relation, kind);
	desc = RelationGetDescr(data->tg_relation);
	old = row_of(kind, TRIGGER_FIRED_BY_INSERT(data->tg_event) ? NULL : data->tg_trigtuple, desc);
	new = row_of(kind, TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple :
				 data->tg_trigtuple, desc);
	if (!TRIGGER_FIRED_BY_DELETE(data->tg_event))
		by_hand = check_change(&old, &new, desc);
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
