/*
 * trigger.c
 *		The triggers of the tables snowid_segments and snowid_segment_periods.
 *
 * max_id only rises, whoever writes: a number that was handed out would come
 * again.  The commit is durable, whatever the writer set.  What is changed by hand
 * is seen by the next number here: at commit, what this server has of the tag in
 * memory is lost.  A statement that sets max_id to what it is already says that the
 * numbers up to there are used, so it becomes one more: else another server, whose
 * range ends there, could give it back.
 *
 * The process "snowid segments" writes these tables without SQL, so no trigger fires.
 * update_time tells what other servers do that have them as a source: 'infinity' is
 * a range that is taken, '-infinity' one that is given back.  The time takes its place.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "guard.h"
#include "segment/segment.h"
#include "segment/source.h"
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
 * the row: from here on no number from before is handed out here.  Before COMMIT it is
 * told, too: a process that finds the changed row must not give a range back to it.
 */
static void
at_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_COMMIT ||
		event == XACT_EVENT_PREPARE)
	{
		for (Change *change = changes; change; change = change->next)
		{
			if (change->key.len > 0)
				segment_forget(&change->key, change->period);
			else
				segment_forget_table(change->key.relid, change->period);
		}
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE || event == XACT_EVENT_ABORT)
		changes = NULL;
}

/* At the end of the transaction, the tag is to be forgotten; NULL: all tags. */
static void
note_change(Oid relid, const text *tag, DateADT period)
{
	static bool registered = false;
	Change	   *change;
	int			len = tag ? VARSIZE_ANY_EXHDR(tag) : 0;

	if (!library_is_preloaded || snowid_max_segments == 0 || len > TAG_LEN)
		return;
	if (!registered)
		RegisterXactCallback(at_end, NULL);
	registered = true;
	change = MemoryContextAlloc(TopTransactionContext, sizeof(Change));
	segment_make_key(&change->key, relid, tag ? VARDATA_ANY(tag) : "", len);
	change->period = period;
	change->next = changes;
	changes = change;
}

/*---- The trigger ----*/

static const char *
text_of(HeapTuple tuple, TupleDesc desc, const char *name)
{
	bool		isnull;
	Datum		value = column(tuple, desc, name, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/*
 * What cannot be resolved here is an error, but where a dump is restored or a change is
 * replicated: a row that gives no numbers is better than a table that is lost.  The
 * process says why it gives none.
 */
static int
level_of_problem(void)
{
	return !check_function_bodies ||
		SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ? WARNING : ERROR;
}

/* Who names a source must have the rights on it; the row gets its full name. */
static HeapTuple
check_source(HeapTuple new, TupleDesc desc, PeriodKind kind)
{
	const char *name = text_of(new, desc, "source");
	char	   *full_name = NULL;
	Oid			relid = name ? source_find(name, true, &full_name) : InvalidOid;
	const char *problem = OidIsValid(relid) ? source_problem(relid) : "Its source does not exist";

	if (name == NULL)
		return new;
	if (problem)
		ereport(level_of_problem(),
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be the source of a segment", name),
				 errdetail("%s.", problem),
				 errhint("A source is a foreign table of postgres_fdw.")));
	else if (!source_is_allowed(relid, GetUserId(), kind != PERIOD_NONE))
		ereport(level_of_problem(),
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for the source of a segment"),
				 errdetail("A table that is a segment's source needs SELECT and UPDATE, and INSERT for periods.")));
	if (full_name == NULL || strcmp(full_name, name) == 0)
		return new;
	return with_column(new, desc, "source", CStringGetTextDatum(full_name));
}

static void
check_role(HeapTuple new, TupleDesc desc)
{
	const char *role = text_of(new, desc, "role");

	if (role && !OidIsValid(get_role_oid(role, true)))
		ereport(level_of_problem(),
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", role)));
}

/* What a row says of its periods. */
static PeriodKind
check_period(HeapTuple new, TupleDesc desc)
{
	const char *period = text_of(new, desc, "period");
	const char *zone = text_of(new, desc, "zone");
	const char *format = text_of(new, desc, "format");
	const char *problem;
	PeriodKind	kind = PERIOD_NONE;

	if (period && !period_kind(period, &kind))
		ereport(level_of_problem(),
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid period of a segment: \"%s\"", period),
				 errdetail("It is none, day, month or year.")));
	if (zone && pg_tzset(zone) == NULL)
		ereport(level_of_problem(),
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", zone)));
	problem = format ? period_check_format(kind, format) : NULL;
	if (problem)
		ereport(level_of_problem(),
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid format of a segment: \"%s\"", format),
				 errdetail("%s", problem)));
	return kind;
}

/* Checks what is not checked by constraints; the source, where another row of it is named. */
static HeapTuple
check_row(HeapTuple new, TupleDesc desc, bool source_is_new, bool role_is_new)
{
	PeriodKind	kind = check_period(new, desc);

	if (role_is_new)
		check_role(new, desc);
	return source_is_new ? check_source(new, desc, kind) : new;
}

/*
 * What was taken from a source is not known here: a row that leaves it needs a max_id
 * that somebody has looked up, or is sure of.
 */
static void
check_move(HeapTuple old, HeapTuple new, TupleDesc desc)
{
	bool		had_none;
	bool		is_sure;

	(void) column(old, desc, "source", &had_none);
	if (!had_none && differs(old, new, desc, "source") &&
		max_id_of(new, desc) <= max_id_of(old, desc) &&
		!is_process(new, desc, &is_sure) &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("source of segment \"%s\" cannot be changed without its max_id",
						text_of(old, desc, "biz_tag")),
				 errdetail("Numbers above " INT64_FORMAT " may have been handed out from its source.",
						   max_id_of(old, desc)),
				 errhint("Raise max_id in the same statement, to that of the source at least.")));
}

/* The row as it is to be written, by a statement that sets max_id or does not. */
static HeapTuple
guard_update(HeapTuple old, HeapTuple new, TupleDesc desc, bool sets_max_id, bool *by_hand)
{
	bool		is_replica = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
	bool		gives_back;
	bool		is_ours = is_process(new, desc, &gives_back);
	int64		old_id = max_id_of(old, desc);
	bool		is_lowered = max_id_of(new, desc) < old_id && !gives_back;

	if (is_lowered && !is_replica)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_id of segment \"%s\" cannot be lowered",
						text_of(old, desc, "biz_tag")),
				 errdetail("Numbers up to " INT64_FORMAT " may have been handed out.", old_id)));
	if (is_lowered)
		new = with_column(new, desc, "max_id", Int64GetDatum(old_id));
	else if (sets_max_id && !is_ours && !is_replica && max_id_of(new, desc) == old_id &&
			 old_id < PG_INT64_MAX)
		new = with_column(new, desc, "max_id", Int64GetDatum(old_id + 1));
	if (is_ours || !is_replica)
		new = with_column(new, desc, "update_time", TimestampTzGetDatum(GetCurrentTimestamp()));
	*by_hand = !is_ours;
	return new;
}

/* Does it change what is in memory? */
static bool
counts(HeapTuple old, HeapTuple new, TupleDesc desc, const char *const *columns)
{
	for (; *columns; columns++)
	{
		if (differs(old, new, desc, *columns))
			return true;
	}
	return false;
}

/* Of a row that is inserted. */
static HeapTuple
guard_insert(HeapTuple new, TupleDesc desc, bool of_period, bool *by_hand)
{
	bool		ignored;

	*by_hand = of_period && !is_process(new, desc, &ignored);
	if (!of_period)
		return check_row(new, desc, true, true);
	if (*by_hand)
		return new;
	return with_column(new, desc, "update_time", TimestampTzGetDatum(GetCurrentTimestamp()));
}

/* Of a row that is changed. */
static HeapTuple
guard_change(TriggerData *data, TupleDesc desc, bool of_period, bool *by_hand)
{
	static const char *const of_tags[] = {
		"max_id", "limit_id", "source", "role", "biz_tag", "period", "zone", "format", NULL
	};
	static const char *const of_periods[] = {"max_id", "biz_tag", "period", NULL};
	HeapTuple	old = data->tg_trigtuple;
	HeapTuple	new;

	if (!of_period)
		check_move(old, data->tg_newtuple, desc);
	new = guard_update(old, data->tg_newtuple, desc,
					   bms_is_member(SPI_fnumber(desc, "max_id") -
									 FirstLowInvalidHeapAttributeNumber,
									 data->tg_updatedcols),
					   by_hand);
	if (!of_period)
		new = check_row(new, desc,
						differs(old, new, desc, "source") ||
						differs(old, new, desc, "period") ||
						differs(old, new, desc, "biz_tag"),
						differs(old, new, desc, "role"));
	*by_hand = *by_hand && counts(old, new, desc, of_period ? of_periods : of_tags);
	return new;
}

/*
 * Before INSERT, UPDATE or DELETE of a row, or TRUNCATE: of snowid_segments, or
 * with an argument of snowid_segment_periods beside it.
 */
Datum
snowid_segments_guard(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	row;
	Oid			relid;
	bool		of_period;
	DateADT		period = ALL_PERIODS;
	bool		by_hand = true;
	bool		isnull;
	Datum		tag;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("snowid_segments_guard() was not called as a trigger")));
	of_period = data->tg_trigger->tgnargs > 0;
	relid = of_period ?
		get_relname_relid("snowid_segments", RelationGetNamespace(data->tg_relation)) :
		RelationGetRelid(data->tg_relation);
	if (TRIGGER_FIRED_BY_TRUNCATE(data->tg_event))
	{
		note_change(relid, NULL, ALL_PERIODS);
		return PointerGetDatum(NULL);
	}
	desc = RelationGetDescr(data->tg_relation);
	row = data->tg_trigtuple;
	if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
		row = guard_insert(row, desc, of_period, &by_hand);
	else if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		row = guard_change(data, desc, of_period, &by_hand);
	else if (of_period)
		period = DatumGetDateADT(column(row, desc, "period", &isnull));
	tag = column(data->tg_trigtuple, desc, "biz_tag", &isnull);
	if (by_hand && !isnull)		/* null, the row is refused */
		note_change(relid, DatumGetTextPP(tag), period);
	/* what a number is durable by, whatever the writer set */
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	return PointerGetDatum(row);
}
