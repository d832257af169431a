/*
 * table.c
 *		The rows of snowid_segments and snowid_segment_periods.
 *
 * Read, locked and written as PostgreSQL does with its catalogs, without SQL: so no
 * trigger, rule, policy, constraint or default is computed, and nobody's code runs in
 * the process that fetches, even if the tables have another owner.  An index could have an
 * expression; so there may be none but of the primary key's columns.
 *
 * Nothing here waits for a lock of another transaction: the answer is LOCKED, and the
 * caller tries again later.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "nodes/lockoptions.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "segment/table.h"

/* A role that does not exist: superusers alone have its rights. */
#define NOBODY ((Oid) -1)

const TableKind table_tags = {
	"snowid_segments", 1, TAG_MAX_ID, TAG_UPDATE_TIME, TAG_COLUMNS,
	{TEXTOID, INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID, INT8OID, INTERVALOID, TEXTOID,
	TEXTOID, TEXTOID, TEXTOID, TEXTOID}
};

const TableKind table_periods = {
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

void
table_require_columns(Relation rel, const TableKind *kind)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < kind->n; i++)
	{
		if (i >= desc->natts || TupleDescAttr(desc, i)->atttypid != kind->types[i])
			refuse_table(kind);
	}
}

/*
 * Is the primary key that of the script, and has each other index the same columns?
 * REINDEX CONCURRENTLY makes such an index, and leaves it if it fails.
 */
static bool
has_only_its_key(Relation rel, const TableKind *kind)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		good = OidIsValid(rel->rd_pkindex);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		Form_pg_index form = index->rd_index;

		good = good && form->indimmediate && !form->indisexclusion &&
			form->indnkeyatts == kind->keys &&
			heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
		for (int i = 0; good && i < kind->keys; i++)
			good = form->indkey.values[i] == i + 1;
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return good;
}

/* Opens a table with a lock that is kept.  ABSENT: it is none of the extension's. */
static Found
open_table(Oid relid, const TableKind *kind, LOCKMODE mode, Relation *rel)
{
	Oid			extension = get_extension_oid("snowid_segments", true);

	if (!ConditionalLockRelationOid(relid, mode))
		return LOCKED;
	*rel = try_relation_open(relid, NoLock);
	if (*rel == NULL || !OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
	{
		if (*rel)
			relation_close(*rel, NoLock);
		return ABSENT;
	}
	table_require_columns(*rel, kind);
	if ((*rel)->rd_rel->relkind != RELKIND_RELATION ||
		(*rel)->rd_rel->relam != HEAP_TABLE_AM_OID ||
		(*rel)->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		!has_only_its_key(*rel, kind))
		refuse_table(kind);
	return FOUND;
}

/* The table of the periods, which is beside that of the tags. */
static Oid
periods_of(const SegmentKey *key)
{
	return get_relname_relid(table_periods.name, get_rel_namespace(key->relid));
}

/*---- Rows ----*/

/* A look at the rows of a tag, by the primary key. */
typedef struct RowScan
{
	Relation	index;
	Snapshot	snapshot;		/* NULL: the caller's */
	SysScanDesc desc;
} RowScan;

/*
 * Returns the row of a tag, or of this period, or else of its newest one; or NULL.  By a
 * snapshot of the caller's, or NULL: as it is now, which a parallel worker sees only by
 * one for catalogs.
 */
static HeapTuple
begin_scan(RowScan *scan, Relation rel, Snapshot dirty, const SegmentKey *key,
		   const DateADT *period)
{
	ScanKeyData keys[2];

	/* the column is the table's here, and not the index's */
	ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, TEXTOID,
						   TupleDescAttr(RelationGetDescr(rel), 0)->attcollation, F_TEXTEQ,
						   PointerGetDatum(cstring_to_text_with_len(key->tag, key->len)));
	if (period)
		ScanKeyEntryInitialize(&keys[1], 0, PERIOD_PERIOD + 1, BTEqualStrategyNumber, DATEOID,
							   InvalidOid, F_DATE_EQ, DateADTGetDatum(*period));
	scan->index = index_open(rel->rd_pkindex, AccessShareLock);
	scan->snapshot = dirty ? NULL : RegisterSnapshot(GetCatalogSnapshot(RelationGetRelid(rel)));
	scan->desc = systable_beginscan_ordered(rel, scan->index, dirty ? dirty : scan->snapshot,
											period ? 2 : 1, keys);
	return systable_getnext_ordered(scan->desc, BackwardScanDirection);
}

static void
end_scan(RowScan *scan)
{
	systable_endscan_ordered(scan->desc);
	index_close(scan->index, AccessShareLock);
	if (scan->snapshot)
		UnregisterSnapshot(scan->snapshot);
}

/* Is it still a row of this tag, and of this period? */
static bool
is_same_row(TupleTableSlot *slot, const SegmentKey *key, const DateADT *period)
{
	text	   *tag;

	slot_getallattrs(slot);
	tag = DatumGetTextPP(slot->tts_values[0]);
	return VARSIZE_ANY_EXHDR(tag) == key->len &&
		memcmp(VARDATA_ANY(tag), key->tag, key->len) == 0 &&
		(period == NULL || DatumGetDateADT(slot->tts_values[PERIOD_PERIOD]) == *period);
}

/*
 * Locks the newest version of a row.  If that is another tag's, because the row was
 * renamed meanwhile, the answer is LOCKED, too: the caller looks for it again later.
 */
static Found
lock_row(Oid relid, const TableKind *kind, const SegmentKey *key, const DateADT *period,
		 LockTupleMode mode, LockedRow *locked)
{
	Found		found = open_table(relid, kind, RowExclusiveLock, &locked->rel);
	RowScan		scan;
	HeapTuple	tuple;
	TM_FailureData failure;

	locked->slot = NULL;
	if (found != FOUND)
		return found;
	tuple = begin_scan(&scan, locked->rel, NULL, key, period);
	if (HeapTupleIsValid(tuple))
	{
		ItemPointerData tid = tuple->t_self;

		locked->kind = kind;
		locked->slot = table_slot_create(locked->rel, NULL);
		if (table_tuple_lock(locked->rel, &tid, scan.snapshot, locked->slot, GetCurrentCommandId(true),
							 mode, LockWaitSkip,
							 TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS |
							 TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure) != TM_Ok ||
			!is_same_row(locked->slot, key, period))
			found = LOCKED;
		else
			locked->max_id = DatumGetInt64(locked->slot->tts_values[kind->max_id]);
	}
	else
		found = ABSENT;
	end_scan(&scan);
	if (found != FOUND)
		table_release(locked);
	return found;
}

static const char *
text_of(Datum *values, bool *nulls, TagColumn column)
{
	return nulls[column] ? "" : TextDatumGetCString(values[column]);
}

/*
 * Reads a row; a column that cannot be resolved is its problem.  The table's owner may have
 * taken its constraints away.
 */
void
table_read_columns(Datum *values, bool *nulls, TagRow *tag)
{
	Row		   *row = &tag->row;
	const char *role = text_of(values, nulls, TAG_ROLE);
	const char *format = text_of(values, nulls, TAG_FORMAT);
	Interval   *cover = nulls[TAG_COVER] ? NULL : DatumGetIntervalP(values[TAG_COVER]);
	int64		last;

	memset(tag, 0, sizeof(*tag));
	tag->max_id = DatumGetInt64(values[TAG_MAX_ID]);
	tag->step = Min(Max(DatumGetInt32(values[TAG_STEP]), 1), MAX_STEP);
	if (cover)
		tag->cover_ms = (cover->time + cover->day * USECS_PER_DAY) / 1000;
	row->limit = nulls[TAG_LIMIT_ID] ? PG_INT64_MAX : DatumGetInt64(values[TAG_LIMIT_ID]);
	strlcpy(row->source, text_of(values, nulls, TAG_SOURCE), SOURCE_LEN);
	tag->zone = text_of(values, nulls, TAG_ZONE);
	row->role = role[0] ? get_role_oid(role, true) : InvalidOid;
	if (role[0] && !OidIsValid(row->role))
	{
		row->role = NOBODY;
		tag->problem = "Its role does not exist";
	}
	if (!period_kind(text_of(values, nulls, TAG_PERIOD), &row->kind))
		tag->problem = "Its period must be none, day, month or year";
	else if (pg_tzset(tag->zone) == NULL)
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

/* Reads a tag for a caller, as it is now; nothing is locked. */
Found
table_read_tag(const SegmentKey *key, TagRow *tag)
{
	Relation	rel;
	Found		found = open_table(key->relid, &table_tags, AccessShareLock, &rel);
	RowScan		scan;
	HeapTuple	tuple;

	if (found != FOUND)
		return found;
	tuple = begin_scan(&scan, rel, NULL, key, NULL);
	if (HeapTupleIsValid(tuple))
	{
		Datum	   *values = palloc(RelationGetDescr(rel)->natts * sizeof(Datum));
		bool	   *nulls = palloc(RelationGetDescr(rel)->natts * sizeof(bool));

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		table_read_columns(values, nulls, tag);
	}
	else
		found = ABSENT;
	end_scan(&scan);
	relation_close(rel, AccessShareLock);
	return found;
}

/* The same, and the row is locked to the end of the transaction. */
Found
table_lock_tag(const SegmentKey *key, bool share, TagRow *tag, LockedRow *locked)
{
	Found		found = lock_row(key->relid, &table_tags, key, NULL,
								 share ? LockTupleShare : LockTupleNoKeyExclusive, locked);

	if (found == FOUND)
		table_read_columns(locked->slot->tts_values, locked->slot->tts_isnull, tag);
	return found;
}

/* The newest period of which there is a row; or NO_PERIOD. */
Found
table_newest_period(const SegmentKey *key, DateADT *newest)
{
	Relation	rel;
	RowScan		scan;
	HeapTuple	tuple;
	bool		isnull;

	*newest = NO_PERIOD;
	if (open_table(periods_of(key), &table_periods, RowExclusiveLock, &rel) != FOUND)
		return LOCKED;
	tuple = begin_scan(&scan, rel, NULL, key, NULL);
	if (HeapTupleIsValid(tuple))
		*newest = DatumGetDateADT(heap_getattr(tuple, PERIOD_PERIOD + 1, RelationGetDescr(rel),
											   &isnull));
	end_scan(&scan);
	relation_close(rel, NoLock);
	return FOUND;
}

Found
table_lock_period(const SegmentKey *key, DateADT period, LockedRow *locked)
{
	return lock_row(periods_of(key), &table_periods, key, &period, LockTupleNoKeyExclusive,
					locked);
}

/* Writes a row that is locked, and releases its memory; its lock remains. */
void
table_set_max_id(LockedRow *locked, int64 max_id)
{
	int			columns[] = {locked->kind->max_id + 1, locked->kind->update_time + 1};
	Datum		values[] = {
		Int64GetDatum(max_id), TimestampTzGetDatum(GetCurrentTimestamp())
	};
	bool		nulls[] = {false, false};
	HeapTuple	old = ExecFetchSlotHeapTuple(locked->slot, false, NULL);
	HeapTuple	new = heap_modify_tuple_by_cols(old, locked->slot->tts_tupleDescriptor,
												2, columns, values, nulls);

	CatalogTupleUpdate(locked->rel, &locked->slot->tts_tid, new);
	table_release(locked);
}

/* Releases the memory of a row that is locked; its lock remains. */
void
table_release(LockedRow *locked)
{
	if (locked->slot)
		ExecDropSingleTupleTableSlot(locked->slot);
	locked->slot = NULL;
	relation_close(locked->rel, NoLock);
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
	RowScan		scan;
	bool		is_free;

	if (open_table(periods_of(key), &table_periods, RowExclusiveLock, &rel) != FOUND)
		return false;
	InitDirtySnapshot(dirty);
	is_free = !HeapTupleIsValid(begin_scan(&scan, rel, &dirty, key, &period));
	end_scan(&scan);
	if (is_free)
	{
		TupleDesc	desc = RelationGetDescr(rel);
		Datum	   *values = palloc0(desc->natts * sizeof(Datum));
		bool	   *nulls = palloc(desc->natts * sizeof(bool));

		for (int i = 0; i < desc->natts; i++)
		{
			nulls[i] = i >= PERIOD_COLUMNS;
			/* jit trusts it: a null there crashes a reader */
			if (nulls[i] && TupleDescAttr(desc, i)->attnotnull)
				refuse_table(&table_periods);
		}
		values[PERIOD_BIZ_TAG] = PointerGetDatum(cstring_to_text_with_len(key->tag, key->len));
		values[PERIOD_PERIOD] = DateADTGetDatum(period);
		values[PERIOD_MAX_ID] = Int64GetDatum(max_id);
		values[PERIOD_UPDATE_TIME] = TimestampTzGetDatum(GetCurrentTimestamp());
		CatalogTupleInsert(rel, heap_form_tuple(desc, values, nulls));
	}
	relation_close(rel, NoLock);
	return is_free;
}
