/*
 * table.c
 *		The rows of snowid_segments and snowid_segment_periods.
 *
 * Read, locked and written as PostgreSQL does with its catalogs, without SQL: so no
 * trigger, rule, policy, constraint, default or expression of an index is computed,
 * and nobody's code runs in the process that fetches, whoever owns the tables.
 *
 * Nothing here waits for a lock of another transaction.  What is locked is said to
 * be, and the caller tries again later.
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
#include "catalog/pg_index.h"
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

/* Columns of the tables, as the extension's script makes them. */
enum TagColumn
{
	TAG_BIZ_TAG = 1,
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
	TAG_FORMAT
};

enum PeriodColumn
{
	PERIOD_BIZ_TAG = 1,
	PERIOD_PERIOD,
	PERIOD_MAX_ID,
	PERIOD_UPDATE_TIME
};

/* A role that does not exist: superusers alone have its rights. */
#define NOBODY ((Oid) -1)

struct TableKind
{
	const char *name;
	int			keys;			/* columns of the primary key */
	int			max_id;
	int			update_time;
	int			n;
	Oid			types[TAG_FORMAT];
};

static const TableKind tags = {
	"snowid_segments", 1, TAG_MAX_ID, TAG_UPDATE_TIME, TAG_FORMAT,
	{TEXTOID, INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID, INT8OID, INTERVALOID, TEXTOID,
	TEXTOID, TEXTOID, TEXTOID, TEXTOID}
};

static const TableKind periods = {
	"snowid_segment_periods", 2, PERIOD_MAX_ID, PERIOD_UPDATE_TIME, PERIOD_UPDATE_TIME,
	{TEXTOID, DATEOID, INT8OID, TIMESTAMPTZOID}
};

/*---- The tables ----*/

static bool
has_columns(TupleDesc desc, const TableKind *kind)
{
	bool		same = desc->natts >= kind->n;

	for (int i = 0; same && i < kind->n; i++)
		same = TupleDescAttr(desc, i)->atttypid == kind->types[i] &&
			!TupleDescAttr(desc, i)->attisdropped;
	return same;
}

/* Is an index one of plain columns, that can be written without the executor? */
static bool
is_plain_index(Oid oid)
{
	Relation	index = index_open(oid, AccessShareLock);
	HeapTuple	tuple = index->rd_indextuple;
	bool		plain;

	plain = index->rd_index->indimmediate && !index->rd_index->indisexclusion &&
		heap_attisnull(tuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
	index_close(index, AccessShareLock);
	return plain;
}

/* Has it the primary key of the script, and else indexes of plain columns? */
static bool
has_indexes(Relation rel, const TableKind *kind, bool writes)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		good = OidIsValid(rel->rd_pkindex);
	ListCell   *cell;

	if (good)
	{
		Relation	index = index_open(rel->rd_pkindex, AccessShareLock);

		good = index->rd_index->indnkeyatts == kind->keys;
		for (int i = 0; good && i < kind->keys; i++)
			good = index->rd_index->indkey.values[i] == i + 1;
		index_close(index, AccessShareLock);
	}
	foreach(cell, indexes)
		good = good && (!writes || is_plain_index(lfirst_oid(cell)));
	list_free(indexes);
	return good;
}

/*
 * Opens a table with a lock that is kept to the end of the transaction, where it is to
 * be written.  ABSENT: it is none of the extension's.
 */
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
		UnlockRelationOid(relid, mode);
		return ABSENT;
	}
	if ((*rel)->rd_rel->relkind != RELKIND_RELATION ||
		(*rel)->rd_rel->relam != HEAP_TABLE_AM_OID ||
		(*rel)->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		!has_columns(RelationGetDescr(*rel), kind) ||
		!has_indexes(*rel, kind, mode != AccessShareLock))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("definition of table \"%s\" does not match the snowid_segments extension",
						kind->name),
				 errdetail("It has other columns, another primary key, or an index that is not of plain columns, or its rows are not kept durably.")));
	return FOUND;
}

/* The table of the periods, which is beside that of the tags. */
static Oid
periods_of(const SegmentKey *key)
{
	return get_relname_relid(periods.name, get_rel_namespace(key->relid));
}

/*---- Rows ----*/

static void
init_tag_key(ScanKey scan_key, Relation rel, const SegmentKey *key)
{
	/* the column is the table's here, and not the index's */
	ScanKeyEntryInitialize(scan_key, 0, 1, BTEqualStrategyNumber, TEXTOID,
						   TupleDescAttr(RelationGetDescr(rel), 0)->attcollation, F_TEXTEQ,
						   PointerGetDatum(cstring_to_text_with_len(key->tag, key->len)));
}

/* Looks for the row of a tag, or of one of its periods. */
static SysScanDesc
begin_scan(Relation rel, Snapshot snapshot, const SegmentKey *key, const DateADT *period)
{
	ScanKeyData keys[2];

	init_tag_key(&keys[0], rel, key);
	if (period)
		ScanKeyEntryInitialize(&keys[1], 0, PERIOD_PERIOD, BTEqualStrategyNumber, DATEOID,
							   InvalidOid, F_DATE_EQ, DateADTGetDatum(*period));
	return systable_beginscan(rel, rel->rd_pkindex, true, snapshot, period ? 2 : 1, keys);
}

/* Is it still a row of this tag, and of this period? */
static bool
is_of(TupleTableSlot *slot, const SegmentKey *key, const DateADT *period)
{
	bool		isnull;
	text	   *tag = DatumGetTextPP(slot_getattr(slot, 1, &isnull));

	return VARSIZE_ANY_EXHDR(tag) == key->len &&
		memcmp(VARDATA_ANY(tag), key->tag, key->len) == 0 &&
		(period == NULL || DatumGetDateADT(slot_getattr(slot, PERIOD_PERIOD, &isnull)) == *period);
}

/*
 * Locks the newest version of a row.  Where that is another tag's, since the row was
 * renamed meanwhile, it is as if it were locked: it is looked for again later.
 */
static Found
lock_row(Relation rel, const TableKind *kind, const SegmentKey *key, const DateADT *period,
		 LockTupleMode mode, LockedRow *locked)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = begin_scan(rel, snapshot, key, period);
	HeapTuple	tuple = systable_getnext(scan);
	Found		found = HeapTupleIsValid(tuple) ? LOCKED : ABSENT;

	if (found == LOCKED)
	{
		ItemPointerData tid = tuple->t_self;
		TupleTableSlot *slot = table_slot_create(rel, NULL);
		TM_FailureData failure;
		bool		isnull;

		if (table_tuple_lock(rel, &tid, snapshot, slot, GetCurrentCommandId(true),
							 mode, LockWaitSkip,
							 TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS |
							 TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure) == TM_Ok &&
			is_of(slot, key, period))
		{
			found = FOUND;
			locked->rel = rel;
			locked->kind = kind;
			locked->slot = slot;
			locked->max_id = DatumGetInt64(slot_getattr(slot, kind->max_id, &isnull));
		}
		else
			ExecDropSingleTupleTableSlot(slot);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	return found;
}

static const char *
text_of(Datum *values, bool *nulls, enum TagColumn column)
{
	return nulls[column - 1] ? "" : TextDatumGetCString(values[column - 1]);
}

/*
 * What a row says; what cannot be resolved is its problem.  The table's owner may have
 * taken its constraints away.
 */
static void
read_columns(Datum *values, bool *nulls, TagRow *tag)
{
	Row		   *row = &tag->row;
	const char *role = text_of(values, nulls, TAG_ROLE);
	const char *format = text_of(values, nulls, TAG_FORMAT);

	memset(tag, 0, sizeof(*tag));
	tag->max_id = DatumGetInt64(values[TAG_MAX_ID - 1]);
	tag->step = Min(Max(DatumGetInt32(values[TAG_STEP - 1]), 1), MAX_STEP);
	row->limit = nulls[TAG_LIMIT_ID - 1] ? PG_INT64_MAX : DatumGetInt64(values[TAG_LIMIT_ID - 1]);
	if (!nulls[TAG_COVER - 1])
	{
		Interval   *cover = DatumGetIntervalP(values[TAG_COVER - 1]);

		row->cover_ms = (cover->time + cover->day * USECS_PER_DAY) / 1000;
	}
	strlcpy(row->source, text_of(values, nulls, TAG_SOURCE), SOURCE_LEN);
	tag->zone = text_of(values, nulls, TAG_ZONE);
	if (role[0])
	{
		row->role = get_role_oid(role, true);
		if (!OidIsValid(row->role))
		{
			row->role = NOBODY;
			tag->problem = "Its role does not exist";
		}
	}
	if (!period_kind(text_of(values, nulls, TAG_PERIOD), &row->kind))
		tag->problem = "Its period is none of none, day, month and year";
	else if (pg_tzset(tag->zone) == NULL)
		tag->problem = "Its time zone is not known here";
	else if (format[0] && period_check_format(row->kind, format))
		tag->problem = "Its format is not valid";
	row->is_valid = tag->problem == NULL;
	if (row->is_valid && format[0])
	{
		strlcpy(row->format, format, sizeof(row->format));
		row->limit = Min(row->limit, period_last_number(format));
	}
}

/*
 * What is known of a tag, for a caller; nothing is locked.  As this snapshot has it, and
 * then a lock of the table is waited for; or NULL: as it is now.
 */
Found
table_read_tag(const SegmentKey *key, Snapshot as_of, TagRow *tag)
{
	Relation	rel;
	Found		found;
	Snapshot	snapshot;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (as_of)
		LockRelationOid(key->relid, AccessShareLock);
	found = open_table(key->relid, &tags, AccessShareLock, &rel);
	if (found != FOUND)
		return found;
	snapshot = RegisterSnapshot(as_of ? as_of : GetLatestSnapshot());
	scan = begin_scan(rel, snapshot, key, NULL);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		TupleDesc	desc = RelationGetDescr(rel);
		Datum	   *values = palloc(desc->natts * sizeof(Datum));
		bool	   *nulls = palloc(desc->natts * sizeof(bool));

		heap_deform_tuple(tuple, desc, values, nulls);
		read_columns(values, nulls, tag);
	}
	else
		found = ABSENT;
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	relation_close(rel, AccessShareLock);
	return found;
}

/* The same, and the row is locked to the end of the transaction. */
Found
table_lock_tag(const SegmentKey *key, bool share, TagRow *tag, LockedRow *locked)
{
	Relation	rel;
	Found		found = open_table(key->relid, &tags, RowExclusiveLock, &rel);

	if (found != FOUND)
		return found;
	found = lock_row(rel, &tags, key, NULL, share ? LockTupleShare : LockTupleNoKeyExclusive,
					 locked);
	if (found == FOUND)
	{
		slot_getallattrs(locked->slot);
		read_columns(locked->slot->tts_values, locked->slot->tts_isnull, tag);
	}
	else
		relation_close(rel, NoLock);
	return found;
}

/* The newest period of which there is a row, or NO_PERIOD. */
Found
table_newest_period(const SegmentKey *key, DateADT *newest)
{
	Relation	rel;
	Relation	index;
	Snapshot	snapshot;
	ScanKeyData of_tag;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		isnull;

	*newest = NO_PERIOD;
	if (open_table(periods_of(key), &periods, RowExclusiveLock, &rel) != FOUND)
		return LOCKED;
	index = index_open(rel->rd_pkindex, AccessShareLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	init_tag_key(&of_tag, rel, key);
	scan = systable_beginscan_ordered(rel, index, snapshot, 1, &of_tag);
	tuple = systable_getnext_ordered(scan, BackwardScanDirection);
	if (HeapTupleIsValid(tuple))
		*newest = DatumGetDateADT(heap_getattr(tuple, PERIOD_PERIOD, RelationGetDescr(rel),
											   &isnull));
	systable_endscan_ordered(scan);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
	relation_close(rel, NoLock);
	return FOUND;
}

Found
table_lock_period(const SegmentKey *key, DateADT period, LockedRow *locked)
{
	Relation	rel;
	Found		found = open_table(periods_of(key), &periods, RowExclusiveLock, &rel);

	if (found != FOUND)
		return LOCKED;
	found = lock_row(rel, &periods, key, &period, LockTupleNoKeyExclusive, locked);
	if (found != FOUND)
		relation_close(rel, NoLock);
	return found;
}

/* Writes a row that is locked, and releases what is kept of it; its lock remains. */
void
table_set_max_id(LockedRow *locked, int64 max_id)
{
	int			columns[] = {locked->kind->max_id, locked->kind->update_time};
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

/* What is kept of a row that is locked. */
void
table_release(LockedRow *locked)
{
	if (locked->slot == NULL)
		return;
	ExecDropSingleTupleTableSlot(locked->slot);
	relation_close(locked->rel, NoLock);
	locked->slot = NULL;
}

/* Is such a row being inserted, in a transaction that is not at its end? */
static bool
is_being_inserted(Relation rel, const SegmentKey *key, DateADT period)
{
	SnapshotData dirty;
	SysScanDesc scan;
	bool		found;

	InitDirtySnapshot(dirty);
	scan = begin_scan(rel, &dirty, key, &period);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return found;
}

/* Makes the row of a period; false: another transaction does, or holds the table. */
bool
table_add_period(const SegmentKey *key, DateADT period, int64 max_id)
{
	Relation	rel;
	bool		added;

	if (open_table(periods_of(key), &periods, RowExclusiveLock, &rel) != FOUND)
		return false;
	added = !is_being_inserted(rel, key, period);
	if (added)
	{
		TupleDesc	desc = RelationGetDescr(rel);
		Datum	   *values = palloc0(desc->natts * sizeof(Datum));
		bool	   *nulls = palloc(desc->natts * sizeof(bool));

		memset(nulls, true, desc->natts * sizeof(bool));
		memset(nulls, false, PERIOD_UPDATE_TIME * sizeof(bool));
		values[PERIOD_BIZ_TAG - 1] = PointerGetDatum(cstring_to_text_with_len(key->tag, key->len));
		values[PERIOD_PERIOD - 1] = DateADTGetDatum(period);
		values[PERIOD_MAX_ID - 1] = Int64GetDatum(max_id);
		values[PERIOD_UPDATE_TIME - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
		CatalogTupleInsert(rel, heap_form_tuple(desc, values, nulls));
	}
	relation_close(rel, NoLock);
	return added;
}
