/*
 * compat.c
 *		Checks that SQL functions make first: is the library preloaded, and does
 *		it match the SQL script?
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/regproc.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(snowid_require_library);

#define PRELOAD_HINT "Add snowid to shared_preload_libraries and restart the server."
#define RESTART_HINT "Restart the server, so that it loads the library that is installed."
#define UPDATE_HINT "Run ALTER EXTENSION %s UPDATE."

bool		library_is_preloaded = false;

void
require_preloaded(void)
{
	if (unlikely(!library_is_preloaded))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowid is not loaded by this server"),
				 errhint(PRELOAD_HINT)));
}

/*
 * May the caller see addresses and files of the settings?  Errors refer other
 * callers to the server's log.
 */
bool
may_read_settings(void)
{
	/* pg_monitor has it */
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS);
}

/*
 * Throws unless the SQL script declares the row that the library returns.  The
 * server may still run a library that is older than the script, or the database
 * may have a script that is older than the library.
 */
void
require_columns(FunctionCallInfo fcinfo, TupleDesc row, const Oid *types, int n)
{
	bool		same = row->natts == n;
	Oid			extension;
	const char *name;

	for (int i = 0; same && i < n; i++)
		same = TupleDescAttr(row, i)->atttypid == types[i];
	if (same)
		return;
	extension = getExtensionOfObject(ProcedureRelationId, fcinfo->flinfo->fn_oid);
	name = OidIsValid(extension) ? get_extension_name(extension) : "snowid";
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("declaration of %s does not match the snowid library",
					format_procedure(fcinfo->flinfo->fn_oid)),
			 errdetail("It is declared with %d columns, and the library has %d.",
					   row->natts, n),
			 row->natts > n ? errhint(RESTART_HINT) :
			 row->natts < n ? errhint(UPDATE_HINT, name) :
			 errhint(RESTART_HINT " If that does not help: " UPDATE_HINT, name)));
}

/* The same for a function that returns one row: its descriptor, to form it. */
TupleDesc
require_row(FunctionCallInfo fcinfo, const Oid *types, int n)
{
	TupleDesc	row;

	if (get_call_result_type(fcinfo, NULL, &row) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	require_columns(fcinfo, row, types, n);
	return BlessTupleDesc(row);
}

/*
 * SQL scripts call this first, with their version: a server that still runs an
 * older library lacks functions that they need.  A server that does not preload
 * the library gets a warning now, not an error at its first key; dumps restore there.
 */
Datum
snowid_require_library(PG_FUNCTION_ARGS)
{
	char	   *version = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int			major = 0;
	int			minor = 0;

	if (sscanf(version, "%d.%d", &major, &minor) != 2 ||
		major > LIBRARY_MAJOR ||
		(major == LIBRARY_MAJOR && minor > LIBRARY_MINOR))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the snowid library that is loaded is older than version %s of the extension",
						version),
				 errdetail("It is of version %d.%d.", LIBRARY_MAJOR, LIBRARY_MINOR),
				 errhint(RESTART_HINT)));
	if (!library_is_preloaded)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowid is not loaded by this server"),
				 errdetail("The extension can be used once it is."),
				 errhint(PRELOAD_HINT)));
	PG_RETURN_VOID();
}
