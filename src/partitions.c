/*
 * partitions.c
 *		snowid_make_partitions(): partitions of a table by the time of its keys.
 *
 * It owns the periods and the names of these partitions, and the commands that
 * make and detach them.  It finds all commands first, then runs and commits each.
 *
 * No code of another role runs with the caller's rights: a table has expressions
 * (checks, defaults, indexes) that its owner wrote, and ALTER TABLE can evaluate
 * them.  So after the table is opened everything runs as its owner, under the
 * restrictions of REINDEX, which refuse SET ROLE and RESET ROLE.  If the name
 * becomes another table's meanwhile, the rights are still those of that owner.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/tablespace.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "key/layout.h"

PG_FUNCTION_INFO_V1(snowid_make_partitions);

/*
 * Less than deadlock_timeout, so that this session gives up in a deadlock, and
 * sessions that wait for it do not wait long.
 */
#define LOCK_TIMEOUT "500ms"

/* A bound that a partition does not have. */
#define NO_LOW PG_INT64_MIN
#define NO_HIGH PG_INT64_MAX

/* A step, and the period that it leads to. */
typedef struct Unit
{
	const char *name;
	Interval	step;
	const char *suffix;			/* of a partition's name, for to_char() */
} Unit;

static const Unit units[] = {
	{"day", {.day = 1}, "_YYYYMMDD"},
	{"week", {.day = 7}, "_IYYY\"w\"IW"},	/* from Monday */
	{"month", {.month = 1}, "_YYYYMM"}
};

/* A partition: its keys are from low to high, which is excluded. */
typedef struct Part
{
	int64		low;
	int64		high;
	char	   *name;			/* qualified and quoted */
} Part;

/* A call: its arguments, and the table, read once. */
typedef struct Call
{
	const Unit *unit;
	int			ahead;
	Interval   *keep;			/* or NULL */
	const Layout *layout;
	Oid			owner;
	char	   *name;			/* qualified and quoted */
	char	   *schema;			/* quoted */
	char	   *bare_name;
	char	   *place;			/* USING and TABLESPACE of its partitions */
	Part	   *parts;			/* in the order of their keys */
	int			nparts;
} Call;

/* The rights and settings before as_owner(). */
typedef struct Before
{
	Oid			user;
	int			context;
	int			guc_level;
} Before;

/*---- Periods ----*/

/* The start of the period that is n periods after that of a time, in UTC. */
static Timestamp
period_of(const Unit *unit, Timestamp ts, int n)
{
	Interval	steps = {.day = n * unit->step.day,.month = n * unit->step.month};
	Datum		start = DirectFunctionCall2(timestamp_trunc, CStringGetTextDatum(unit->name),
											TimestampGetDatum(ts));

	return DatumGetTimestamp(DirectFunctionCall2(timestamp_pl_interval, start,
												 IntervalPGetDatum(&steps)));
}

static char *
formatted(Timestamp ts, const char *format)
{
	return TextDatumGetCString(DirectFunctionCall2(timestamp_to_char, TimestampGetDatum(ts),
												   CStringGetTextDatum(format)));
}

static Timestamp
time_of_key(const Layout *layout, int64 key)
{
	Parts		parts;

	layout_unpack(layout, key, &parts);
	return timestamptz_from_unix_ms(parts.unix_ms);
}

/*---- The commands ----*/

/* The command that makes a period's partition, for the keys from low to high. */
static char *
make_command(const Call *call, Timestamp period, int64 low, int64 high)
{
	const char *bare_name = psprintf("%s%s", call->bare_name,
									 formatted(period, call->unit->suffix));
	const char *name = psprintf("%s.%s", call->schema, quote_identifier(bare_name));

	if (strlen(bare_name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("the name of a partition is too long: %s", bare_name),
				 errhint("Give the table a shorter name.")));

	/*
	 * PARTITION OF would lock out readers of the table.  ATTACH locks out
	 * writers of a table that a foreign key refers to.
	 */
	return psprintf("CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS"
					" INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION)%s; "
					"ALTER TABLE %s ATTACH PARTITION %s FOR VALUES"
					" FROM (" INT64_FORMAT "::bigint) TO (" INT64_FORMAT "::bigint)",
					name, call->name, call->place, call->name, name, low, high);
}

/* The first partition that has keys from low to high; or NULL. */
static const Part *
part_of(const Call *call, int64 low, int64 high)
{
	for (int i = 0; i < call->nparts; i++)
		if (call->parts[i].low < high && call->parts[i].high > low)
			return &call->parts[i];
	return NULL;
}

/*
 * The commands to run now, in their order.
 *
 * A partition that ends in the first day of the layout has other numbers, such as
 * old serial keys: second_day is the first key above all of these.
 */
static List *
commands_for(const Call *call)
{
	const Unit *unit = call->unit;
	const Layout *layout = call->layout;
	Timestamp	now = GetCurrentTransactionStartTimestamp();
	Timestamp	epoch = time_of_key(layout, 0);
	int64		second_day = layout_bound(layout, period_of(&units[0], epoch, 1), false);
	int64		first_key = 0;
	Timestamp	period = period_of(unit, now, 0);
	Timestamp	last = period_of(unit, now, call->ahead);
	Timestamp	oldest = period;
	Timestamp	next;
	List	   *commands = NIL;

	/* from the end of the first partition, so that no gap remains */
	for (int i = call->nparts - 1; i >= 0; i--)
	{
		int64		high = call->parts[i].high;

		if (high < second_day)
			first_key = Max(first_key, high);
		else if (high != NO_HIGH)
			period = Min(period, period_of(unit, time_of_key(layout, high), 0));
	}
	if (call->keep)
	{
		Datum		from = DirectFunctionCall2(timestamp_mi_interval, TimestampGetDatum(now),
											   IntervalPGetDatum(call->keep));

		oldest = period_of(unit, DatumGetTimestamp(from), 0);
		period = Max(period, oldest);
	}
	for (; period <= last; period = next)
	{
		int64		low = Max(layout_bound(layout, Max(period, epoch), false), first_key);
		int64		high;
		const Part *part;

		next = period_of(unit, period, 1);
		high = layout_bound(layout, next, false);
		part = part_of(call, low, high);
		if (part == NULL)
			commands = lappend(commands, make_command(call, period, low, high));
		else if (part->low > low || part->high < high)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("partition %s holds some keys of the %s of %s, but not all",
							part->name, unit->name, formatted(period, "YYYY-MM-DD")),
					 errdetail("The %s is from " INT64_FORMAT " to " INT64_FORMAT ".",
							   unit->name, low, high),
					 errhint("Use the step with which the partition was made.")));
	}
	if (call->keep && oldest > epoch)
	{
		int64		low = layout_bound(layout, oldest, false);

		for (int i = 0; i < call->nparts; i++)
			if (call->parts[i].high >= second_day && call->parts[i].high <= low)
				commands = lappend(commands,
								   psprintf("ALTER TABLE %s DETACH PARTITION %s",
											call->name, call->parts[i].name));
	}
	return commands;
}

/*---- The table ----*/

static char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

/*
 * Is a table partitioned by range of one column that is a bigint or a snowid?  By
 * the catalogs: to load its key would evaluate the expressions of a hostile one.
 */
static bool
is_partitioned_by_key(Oid relid, Oid snowid_type)
{
	HeapTuple	tuple = SearchSysCache1(PARTRELID, ObjectIdGetDatum(relid));
	Form_pg_partitioned_table form;
	bool		result = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_partitioned_table) GETSTRUCT(tuple);
	if (form->partstrat == PARTITION_STRATEGY_RANGE && form->partnatts == 1 &&
		form->partattrs.values[0] != 0)
	{
		Oid			type = get_atttype(relid, form->partattrs.values[0]);

		result = type == INT8OID || type == snowid_type;
	}
	ReleaseSysCache(tuple);
	return result;
}

/* The partitions of a table that is open, in the order of their keys. */
static void
read_parts(Relation rel, Call *call)
{
	PartitionDesc desc = RelationGetPartitionDesc(rel, true);
	PartitionBoundInfo info = desc->boundinfo;

	call->parts = palloc_array(Part, desc->nparts + 1);
	call->nparts = 0;
	if (info == NULL)
		return;
	if (partition_bound_has_default(info))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s has the default partition %s", call->name,
						qualified_name(desc->oids[info->default_index])),
				 errdetail("Keys that it holds cannot get a partition, and each new partition would read it under a lock."),
				 errhint("Detach it, make the partitions, and insert its rows again.")));

	/* a partition is between its bound and the one before */
	for (int i = 1; i < info->ndatums; i++)
	{
		Part	   *part = &call->parts[call->nparts];

		if (info->indexes[i] < 0)
			continue;
		part->low = info->kind[i - 1][0] == PARTITION_RANGE_DATUM_VALUE ?
			DatumGetInt64(info->datums[i - 1][0]) : NO_LOW;
		part->high = info->kind[i][0] == PARTITION_RANGE_DATUM_VALUE ?
			DatumGetInt64(info->datums[i][0]) : NO_HIGH;
		part->name = qualified_name(desc->oids[info->indexes[i]]);
		call->nparts++;
	}
}

/* USING and TABLESPACE, which only PARTITION OF would take from the parent. */
static char *
storage_of(Relation rel)
{
	char	   *method = get_am_name(rel->rd_rel->relam);
	char	   *tablespace = get_tablespace_name(rel->rd_rel->reltablespace);

	return psprintf("%s%s%s%s",
					method ? " USING " : "", method ? quote_identifier(method) : "",
					tablespace ? " TABLESPACE " : "",
					tablespace ? quote_identifier(tablespace) : "");
}

/* Takes the rights of this role, and waits for locks but shortly, until as_before(). */
static Before
as_owner(Oid owner)
{
	Before		before;

	GetUserIdAndSecContext(&before.user, &before.context);
	SetUserIdAndSecContext(owner, before.context | SECURITY_RESTRICTED_OPERATION);
	before.guc_level = NewGUCNestLevel();
	(void) set_config_option("lock_timeout", LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return before;
}

static void
as_before(Before before)
{
	AtEOXact_GUC(false, before.guc_level);
	SetUserIdAndSecContext(before.user, before.context);
}

/* Opens a table and finds the commands, as its owner. */
static List *
plan(Oid relid, Oid snowid_type, Call *call)
{
	Before		before = as_owner(GetUserId());
	Relation	rel = try_relation_open(relid, AccessShareLock);
	List	   *commands;

	/* one that is made at this moment may be there for the second look alone */
	if (rel == NULL || !is_partitioned_by_key(relid, snowid_type))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("%s is not partitioned by range of a key",
						rel ? qualified_name(relid) : psprintf("%u", relid)),
				 errdetail("Its partition key must be one column of type bigint or snowid.")));
	call->owner = rel->rd_rel->relowner;
	if (!member_can_set_role(GetUserId(), call->owner))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, RelationGetRelationName(rel));
	(void) as_owner(call->owner);	/* "before" undoes it, too */
	call->name = qualified_name(relid);
	call->schema = pstrdup(quote_identifier(get_namespace_name(RelationGetNamespace(rel))));
	call->bare_name = pstrdup(RelationGetRelationName(rel));
	call->place = storage_of(rel);
	read_parts(rel, call);
	commands = commands_for(call);
	relation_close(rel, AccessShareLock);
	as_before(before);
	return commands;
}

/*---- The procedure ----*/

/* Reads the arguments; throws if one is not valid. */
static void
read_arguments(FunctionCallInfo fcinfo, Call *call)
{
	Interval	zero = {0};

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("parent, step and ahead must not be null")));
	/* for interval_eq() a month would have 30 days */
	call->unit = NULL;
	for (int i = 0; i < lengthof(units); i++)
		if (memcmp(PG_GETARG_INTERVAL_P(1), &units[i].step, sizeof(Interval)) == 0)
			call->unit = &units[i];
	if (call->unit == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("step cannot be %s",
						DatumGetCString(DirectFunctionCall1(interval_out,
															PG_GETARG_DATUM(1)))),
				 errdetail("It must be one day, one week or one month.")));
	call->ahead = PG_GETARG_INT32(2);
	if (call->ahead < 0 || call->ahead > 1000)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ahead must be from 0 to 1000")));
	call->keep = PG_ARGISNULL(3) ? NULL : PG_GETARG_INTERVAL_P(3);
	if (call->keep && DatumGetBool(DirectFunctionCall2(interval_lt, PG_GETARG_DATUM(3),
													   IntervalPGetDatum(&zero))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("keep must not be negative")));
	call->layout = layout_of_call(fcinfo, PG_NARGS());
}

Datum
snowid_make_partitions(PG_FUNCTION_ARGS)
{
	Call		call;
	bool		atomic = !(fcinfo->context && IsA(fcinfo->context, CallContext) &&
						   !castNode(CallContext, fcinfo->context)->atomic);
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	Oid			snowid_type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
											  CStringGetDatum("snowid"),
											  ObjectIdGetDatum(schema));
	List	   *commands;
	ListCell   *lc;

	read_arguments(fcinfo, &call);
	/* even if there is nothing to make now: another day there is */
	if (atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("snowid_make_partitions() cannot be called inside a transaction or a function"),
				 errhint("Call it by itself: it commits each partition.")));

	/* allocations from here on outlive a COMMIT */
	(void) SPI_connect_ext(SPI_OPT_NONATOMIC);
	commands = plan(PG_GETARG_OID(0), snowid_type, &call);
	foreach(lc, commands)
	{
		Before		before = as_owner(call.owner);

		if (SPI_execute(lfirst(lc), false, 0) < 0)
			elog(ERROR, "SPI_execute failed: %s", (char *) lfirst(lc));
		as_before(before);
		SPI_commit();
	}
	SPI_finish();
	PG_RETURN_VOID();
}
