/*
 * guard.c
 *		What the SQL functions ask before they answer.
 */
#include "postgres.h"

#include "snowid.h"

void
require_preloaded(void)
{
	if (unlikely(!generator_attached()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowid is not loaded by this server"),
				 errhint("Add snowid to shared_preload_libraries and restart the server.")));
}
