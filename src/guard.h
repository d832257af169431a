/*
 * guard.h
 *		Checks that SQL functions make first: is the library preloaded, and does
 *		it match the SQL script?
 */
#ifndef SNOWID_GUARD_H
#define SNOWID_GUARD_H

#include "access/tupdesc.h"
#include "fmgr.h"

#pragma GCC visibility push(hidden)

/* The postmaster has loaded the library, so its shared memory exists. */
extern bool library_is_preloaded;

extern void require_preloaded(void);
extern void require_columns(FunctionCallInfo fcinfo, TupleDesc row,
							const Oid *types, int n);

#pragma GCC visibility pop

#endif							/* SNOWID_GUARD_H */
