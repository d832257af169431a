/*
 * table.c
 *		The rows of snowid_segments and snowid_segment_periods, and the triggers of
 *		these tables.
 *
 * Callers only read, without SQL.  Rows are locked and written by two functions of the
 * extension's script, which were parsed when it was created: so no name, operator or
 * schema of somebody else counts.  They run as their owner, and only while they and the
 * tables are a superuser's: so no trigger, rule, policy, constraint, default or index of
 * another role is computed by them.  A row that is locked is skipped; a lock of another
 * kind is waited for half a second at most.
 *
 * The triggers are for all who write.  max_id only rises: a number that was handed out
 * would come again.  The commit is durable, whatever the writer set.  The next number
 * here sees a change by hand: at commit, what this server has of the tag in memory is
 * lost.  A range sets update_time to 'infinity': this is no change by hand.  The trigger
 * replaces it by the time.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "segment/source.h"
#include "segment/table.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_segments_guard);
PG_FUNCTION_INFO_V1(snowid_segment_take);

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
	int			max_id;
	int			update_time;
	int			n;
	Oid			types[TAG_COLUMNS];
} TableKind;

/* A row of either table. */
typedef struct TableRow
{
	const TableKind *kind;
	HeapTuple	tuple;			/* NULL: there is none */
	Datum	   *values;
	bool	   *nulls;
	int64		max_id;			/* 0, if it is null */
} TableRow;

/* The process gives back what nobody has, before it ends. */
static bool may_lower = false;

static const TableKind table_tags = {
	"snowid_segments", TAG_MAX_ID, TAG_UPDATE_TIME, TAG_COLUMNS,
	{TEXTOID, INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID, INT8OID, INTERVALOID, TEXTOID,
	REGROLEOID, TEXTOID, TEXTOID, TEXTOID}
};

static const TableKind table_periods = {
	"snowid_segment_periods", PERIOD_MAX_ID, PERIOD_UPDATE_TIME, PERIOD_COLUMNS,
	{TEXTOID, DATEOID, INT8OID, TIMESTAMPTZOID}
};

/*---- The tables ----*/

/* The table is the one beside the function, in whatever schema. */
Oid
table_of(Oid function)
{
	return get_relname_relid(table_tags.name, get_func_namespace(function));
}

static void
refuse_table(const TableKind *kind)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("definition of table \"%s\" does not match the snowid_segments extension", kind->name),
			 errdetail("Its name, its columns or its primary key were changed."),
			 errhint("Undo that.")));
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

static bool
lock_to_read(Oid relid, bool waits)
{
	if (!waits)
		return ConditionalLockRelationOid(relid, AccessShareLock);
	LockRelationOid(relid, AccessShareLock);
	return true;
}

/*
 * Reads the row of a tag as it is now, which a parallel worker sees only by a snapshot for
 * catalogs, without SQL: nothing is computed with the caller's rights.
 */
static Found
find_row(const SegmentKey *key, bool waits, TableRow *row)
{
	Relation	rel;
	Relation	index;
	ScanKeyData scan_key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(key->relid))
		return ABSENT;
	if (!lock_to_read(key->relid, waits))
		return LOCKED;
	rel = try_relation_open(key->relid, NoLock);
	if (rel == NULL)			/* dropped, while the caller waited */
		return ABSENT;
	check_columns(rel, &table_tags);
	(void) RelationGetIndexList(rel);
	if (!OidIsValid(rel->rd_pkindex))
		refuse_table(&table_tags);
	if (!lock_to_read(rel->rd_pkindex, waits))
	{
		table_close(rel, NoLock);
		return LOCKED;
	}
	/* the column is the table's here, and not the index's */
	ScanKeyEntryInitialize(&scan_key, 0, TAG_BIZ_TAG + 1, BTEqualStrategyNumber, TEXTOID,
						   TupleDescAttr(RelationGetDescr(rel), 0)->attcollation, F_TEXTEQ,
						   PointerGetDatum(cstring_to_text_with_len(key->tag, key->len)));
	index = index_open(rel->rd_pkindex, NoLock);
	scan = systable_beginscan_ordered(rel, index, NULL, 1, &scan_key);
	tuple = systable_getnext_ordered(scan, ForwardScanDirection);
	if (tuple)
		*row = row_of(&table_tags, heap_copytuple(tuple), RelationGetDescr(rel));
	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return tuple ? FOUND : ABSENT;
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
	const char *format = text_of(stored, TAG_FORMAT);
	const char *source = text_of(stored, TAG_SOURCE);
	const char *zone = text_of(stored, TAG_ZONE);
	Interval   *cover = stored->nulls[TAG_COVER] ? NULL : DatumGetIntervalP(values[TAG_COVER]);
	int64		last;

	*tag = (TagRow)
	{
		.max_id = stored->max_id,.zone = pg_tzset(zone),.newest = NO_PERIOD
	};
	tag->step = stored->nulls[TAG_STEP] ? 0 : DatumGetInt32(values[TAG_STEP]);
	if (cover)
		tag->cover_ms = (cover->time + cover->day * USECS_PER_DAY) / 1000;
	row->limit = stored->nulls[TAG_LIMIT_ID] ? PG_INT64_MAX : DatumGetInt64(values[TAG_LIMIT_ID]);
	strlcpy(row->source, source, pg_mbcliplen(source, strlen(source), NAMEDATALEN - 1) + 1);
	if (!period_kind(text_of(stored, TAG_PERIOD), &row->kind))
		tag->problem = "Its period must be none, day, month or year";
	else if (tag->zone == NULL)
		tag->problem = "Its time zone is not known here";
	else if (format[0])
		tag->problem = period_check_format(row->kind, format, &last);
	if (tag->problem == NULL && format[0])
	{
		strlcpy(row->format, format, sizeof(row->format));
		row->limit = Min(row->limit, last);
	}
	/* its serials can be read, though */
	if (!stored->nulls[TAG_ROLE])
	{
		row->role = DatumGetObjectId(values[TAG_ROLE]);
		if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(row->role)))
			tag->problem = "Its role does not exist";
	}
	row->is_valid = tag->problem == NULL;
}

/* The row of a tag, as it is now; waits for locks of others, or says LOCKED. */
Found
table_find_tag(const SegmentKey *key, bool waits, TagRow *tag)
{
	TableRow	row;
	Found		found = find_row(key, waits, &row);

	if (found == FOUND)
		read_columns(&row, tag);
	return found;
}

/*---- The functions that lock and write ----*/

/* A function of the extension's script, with the first so many of the types. */
static Oid
function_beside(Oid relid, const char *name, int n)
{
	static const Oid types[TAKE_ARGS] = TAKE_TYPES;

	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(buildoidvector(types, n)),
						   ObjectIdGetDatum(get_rel_namespace(relid)));
}

static Oid
owner_of(Oid function)
{
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(proc))
	{
		owner = ((Form_pg_proc) GETSTRUCT(proc))->proowner;
		ReleaseSysCache(proc);
	}
	return owner;
}

/*
 * Locks both tables.  NULL, or why none of the functions may be called: what the owner of a
 * table or a function has put there, or somebody who may create triggers, would be done
 * with a superuser's rights.
 */
static const char *
tables_problem(Oid relid, Oid function)
{
	Oid			relids[] = {
		relid, get_relname_relid(table_periods.name, get_rel_namespace(relid))
	};
	Oid			guard = function_beside(relid, "snowid_segments_guard", 0);
	bool		good = superuser_arg(owner_of(function)) && superuser_arg(owner_of(guard));

	/* without the functions, there may be no tables */
	for (int i = 0; good && i < lengthof(relids); i++)
	{
		Relation	rel;

		/* the guard was found beside the first */
		if (!OidIsValid(relids[i]))
			refuse_table(&table_periods);
		if (!ConditionalLockRelationOid(relids[i], RowExclusiveLock))
			return "locked";
		rel = table_open(relids[i], NoLock);
		good = superuser_arg(rel->rd_rel->relowner);
		for (int j = 0; rel->trigdesc && j < rel->trigdesc->numtriggers; j++)
		{
			const Trigger *trigger = &rel->trigdesc->triggers[j];

			good = good && (trigger->tgisinternal ||
							(trigger->tgfoid == guard && trigger->tgqual == NULL));
		}
		table_close(rel, NoLock);
	}
	return good ? NULL : "owner";
}

/*
 * Calls a function of the script as its owner; it has the first so many of the types.  A
 * row, or NULL if there is none.
 */
static HeapTupleHeader
call_function(Oid relid, const char *name, FmgrInfo *function, int n, const NullableDatum *args,
			  const char **problem)
{
	LOCAL_FCINFO(fcinfo, TAKE_ARGS);
	Datum		result;
	Oid			id = function_beside(relid, name, n);
	Oid			user;
	int			context;

	*problem = tables_problem(relid, id);
	if (*problem)
		return NULL;
	if (function->fn_oid != id)
		fmgr_info(id, function);
	InitFunctionCallInfoData(*fcinfo, function, n, InvalidOid, NULL, NULL);
	memcpy(fcinfo->args, args, n * sizeof(NullableDatum));
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(owner_of(id), context | SECURITY_LOCAL_USERID_CHANGE);
	result = FunctionCallInvoke(fcinfo);
	SetUserIdAndSecContext(user, context);
	return fcinfo->isnull ? NULL : DatumGetHeapTupleHeader(result);
}

/* A column of the row, or what stands for NULL. */
static Datum
column_of(HeapTupleHeader row, int number, Datum if_null)
{
	bool		isnull;
	Datum		value = GetAttributeByNum(row, number, &isnull);

	return isnull ? if_null : value;
}

static NullableDatum
text_arg(const char *s, int len)
{
	return (NullableDatum)
	{
		.value = PointerGetDatum(cstring_to_text_with_len(s, len))
	};
}

/*
 * Locks the row of a tag to the end of the transaction, and reads it, and the newest
 * period here.
 */
Found
table_lock_tag(Calls *calls, const SegmentKey *key, TagRow *tag)
{
	NullableDatum arg = text_arg(key->tag, key->len);
	const char *problem;
	HeapTupleHeader row = call_function(key->relid, "snowid_segment_lock", &calls->lock, 1,
										&arg, &problem);
	Found		found = table_find_tag(key, false, tag);

	if (found != FOUND)
		return found;
	if (problem && strcmp(problem, "locked") != 0)
		tag->problem = "The tables or their functions are not a superuser's, or have triggers of others";
	else if (row == NULL)
		return LOCKED;
	else
	{
		tag->newest = DatumGetDateADT(column_of(row, 1, DateADTGetDatum(NO_PERIOD)));
		tag->newest_max_id = DatumGetInt64(column_of(row, 2, Int64GetDatum(0)));
	}
	return FOUND;
}

static NullableDatum
label_arg(DateADT label)
{
	return (NullableDatum)
	{
		.value = DateADTGetDatum(label),.isnull = label == NO_PERIOD
	};
}

/* Takes a range of the tables here. */
Taken
table_take(Calls *calls, const SegmentKey *key, const Take *take)
{
	Taken		taken = {0};
	const char *kind = period_name(take->kind);
	NullableDatum args[TAKE_ARGS] = {
		text_arg(key->tag, key->len), text_arg(kind, strlen(kind)), label_arg(take->label),
		label_arg(take->seen), {Int64GetDatum(take->high), false},
		{Int64GetDatum(take->upto), false}, {Int64GetDatum(take->length), false}
	};
	const char *problem;
	HeapTupleHeader row = call_function(key->relid, "snowid_segment_take_row", &calls->take,
										TAKE_ARGS, args, &problem);
	Datum		said;

	if (row)
	{
		taken.first = DatumGetInt64(column_of(row, 1, Int64GetDatum(0)));
		taken.last = DatumGetInt64(column_of(row, 2, Int64GetDatum(0)));
		taken.period = DatumGetDateADT(column_of(row, 3, DateADTGetDatum(NO_PERIOD)));
		said = column_of(row, 4, (Datum) 0);
		problem = said ? TextDatumGetCString(said) : "";
	}
	strlcpy(taken.problem, problem, sizeof(taken.problem));
	return taken;
}

/* The same for another server. */
Datum
snowid_segment_take(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {INT8OID, INT8OID, INT4OID, TEXTOID};
	TupleDesc	desc = require_row(fcinfo, columns, lengthof(columns));
	Datum		values[lengthof(columns)] = {0};
	bool		nulls[lengthof(columns)] = {true, true, true, false};
	FmgrInfo	function = {0};
	const char *problem;
	HeapTupleHeader row = call_function(table_of(fcinfo->flinfo->fn_oid), "snowid_segment_take_row",
										&function, TAKE_ARGS, fcinfo->args, &problem);

	if (row)
		PG_RETURN_HEAPTUPLEHEADER(row);
	values[3] = CStringGetTextDatum(problem);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/* Gives back what is left of a segment: while its row is locked, nobody else changes it. */
void
table_give_back(Calls *calls, const Look *look)
{
	const SegmentKey *key = &look->state.key;
	NullableDatum arg = text_arg(key->tag, key->len);
	const char *problem;
	Range		rest;
	Take		take;

	if (call_function(key->relid, "snowid_segment_lock", &calls->lock, 1, &arg, &problem) == NULL)
		return;
	rest = segment_drop(look);
	if (rest.length == 0)
		return;
	take = (Take)
	{
		.kind = look->state.row.kind,.label = rest.period.label,.seen = rest.period.label,
			.high = rest.first + (rest.length - 1),.upto = PG_INT64_MAX,.length = -rest.length
	};
	may_lower = true;
	(void) table_take(calls, key, &take);
	may_lower = false;
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
 * may use.
 */
static void
check_row(const TableRow *new)
{
	TagRow		tag;
	const char *problem;

	if (new->nulls[TAG_BIZ_TAG])
		return;					/* the row is refused */
	read_columns(new, &tag);
	problem = tag.problem;
	if (problem == NULL && !new->nulls[TAG_SOURCE])
		problem = source_problem(text_of(new, TAG_SOURCE));
	if (problem)
		ereport(!check_function_bodies ||
				SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ? WARNING : ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("segment \"%s\" would have no numbers",
						text_of(new, TAG_BIZ_TAG)),
				 errdetail("%s.", problem),
				 errhint("See doc/segment.md in snowid's manual.")));
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
						text_of(old, TAG_BIZ_TAG)),
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
	if (old->tuple && new->max_id < old->max_id && !may_lower)
	{
		if (!is_replica)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_id of segment \"%s\" cannot be lowered",
							text_of(old, TAG_BIZ_TAG)),
					 errdetail("Numbers up to " INT64_FORMAT " may have been handed out.",
							   old->max_id)));
		set_column(new, desc, kind->max_id, Int64GetDatum(old->max_id));
	}
	if (kind == &table_tags && !is_ours)
		check_row(new);
	if (is_ours || (old->tuple && !is_replica))
		set_column(new, desc, kind->update_time, TimestampTzGetDatum(GetCurrentTimestamp()));
	return !is_ours && (old->tuple || kind == &table_periods);
}

/*
 * Before INSERT, UPDATE or DELETE of a row, or TRUNCATE, which is the one that is called
 * for a statement: of snowid_segments, or with an argument of snowid_segment_periods
 * beside it.
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
				 errmsg("snowid_segments_guard() was not called as a trigger"),
				 errdetail("It is the trigger of snowid_segments.")));
	kind = data->tg_trigger->tgnargs > 0 ? &table_periods : &table_tags;
	relid = kind == &table_tags ? RelationGetRelid(data->tg_relation) :
		get_relname_relid(table_tags.name, RelationGetNamespace(data->tg_relation));
	if (TRIGGER_FIRED_FOR_STATEMENT(data->tg_event))
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
