/*
 * guard.h
 *		Checks that SQL functions make first: is the library preloaded, and does
 *		it match the SQL script?
 */
#ifndef SNOWID_GUARD_H
#define SNOWID_GUARD_H

#include "access/tupdesc.h"
#include "fmgr.h"

/* The library's version: that of the newest SQL script that it can serve. */
#define LIBRARY_MAJOR 0
#define LIBRARY_MINOR 1
#define LIBRARY_VERSION CppAsString2(LIBRARY_MAJOR) "." CppAsString2(LIBRARY_MINOR)

/* The postmaster has loaded the library, so its shared memory exists. */
extern bool library_is_preloaded;

extern void require_preloaded(void);
extern bool may_read_settings(void);
extern void require_columns(FunctionCallInfo fcinfo, TupleDesc row,
							const Oid *types, int n);
extern TupleDesc require_row(FunctionCallInfo fcinfo, const Oid *types, int n);

#endif							/* SNOWID_GUARD_H */
