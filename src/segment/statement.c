/*
 * statement.c
 *		Statements about a table that is known by its OID.
 *
 * SQL knows a table by its name alone.  Who owns the schema can give that name to a
 * table of his own at any time, and what he built there would run with the rights of
 * whoever runs the statement.  So it is run only where its name has come to mean that
 * very table.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

#include "segment/statement.h"

/* The table's name, as it was last known here. */
static const char *
name_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class form;
	const char *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	form = (Form_pg_class) GETSTRUCT(tuple);
	name = quote_qualified_identifier(get_namespace_name(form->relnamespace),
									  NameStr(form->relname));
	ReleaseSysCache(tuple);
	return name;
}

/*
 * Is this the table that is named in the plan?  It is before all others, also where it
 * has rules.  A plan that is not saved is not analysed again.
 */
static bool
names(SPIPlanPtr plan, Oid relid)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	Query	   *query = source->query_list ? linitial_node(Query, source->query_list) : NULL;

	return query && query->rtable &&
		linitial_node(RangeTblEntry, query->rtable)->relid == relid;
}

/*
 * Runs a statement about the table that is named by %s, and by no other name; returns
 * how many rows there were.  Connected to SPI.
 */
int
statement_run(const char *statement, Oid relid, int n, Oid *types, Datum *values, bool read_only)
{
	StringInfoData sql;
	SPIPlanPtr	plan;
	int			result;

	initStringInfo(&sql);
	appendStringInfo(&sql, statement, name_of(relid));
	plan = SPI_prepare(sql.data, n, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	if (!names(plan, relid))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the table of a segment was renamed meanwhile")));
	result = SPI_execute_plan(plan, values, NULL, read_only, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
	SPI_freeplan(plan);
	return (int) SPI_processed;
}
