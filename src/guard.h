/*
 * guard.h
 *		What the SQL functions ask before they answer.
 */
#ifndef SNOWID_GUARD_H
#define SNOWID_GUARD_H

#include "access/tupdesc.h"
#include "fmgr.h"

#pragma GCC visibility push(hidden)

/* The postmaster has loaded the library; its shared memory is there. */
extern bool library_is_preloaded;

extern void require_preloaded(void);
extern void require_columns(FunctionCallInfo fcinfo, TupleDesc row,
							const Oid *types, int n);

#pragma GCC visibility pop

#endif							/* SNOWID_GUARD_H */
