/*
 * compat.h
 *		Differences between PostgreSQL majors; between operating systems, Linux and
 *		macOS; and between library and SQL script.
 */
#ifndef SNOWID_COMPAT_H
#define SNOWID_COMPAT_H

#include <time.h>

#include "access/tupdesc.h"
#include "fmgr.h"

/*---- PostgreSQL majors ----*/

#if PG_VERSION_NUM < 150000
#error "snowid needs PostgreSQL 15 or later"
#endif
#if PG_VERSION_NUM < 170000
#define MyProcNumber (MyProc->pgprocno)
#define WaitEventExtensionNew(name) ((void) (name), PG_WAIT_EXTENSION)
#endif
#if PG_VERSION_NUM < 180000
#define max_active_replication_origins max_replication_slots
#define PG_MODULE_MAGIC_EXT(...) PG_MODULE_MAGIC
#endif
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 190000
#define RepOriginId ReplOriginId
#define InvalidRepOriginId InvalidReplOriginId
#define shmem_hash(name, n, info, flags) ShmemInitHash(name, n, info, flags)
#else
#define PG_SIG_DFL SIG_DFL
#define PG_SIG_IGN SIG_IGN
#define shmem_hash(name, n, info, flags) ShmemInitHash(name, n, n, info, flags)
#endif
#if PG_VERSION_NUM < 160000

/* As from 16 on: nothing is exported but the functions that PostgreSQL looks up. */
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(name) \
	extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
	extern PGDLLEXPORT const Pg_finfo_record *pg_finfo_##name(void); \
	const Pg_finfo_record * \
	pg_finfo_##name(void) \
	{ \
		static const Pg_finfo_record info = {1}; \
		return &info; \
	} \
	extern int no_such_variable

#define object_aclcheck(class, function, role, mode) pg_proc_aclcheck(function, role, mode)
#define ereturn(context, dummy, ...) ereport(ERROR, __VA_ARGS__)
#define all_settings(n) (*(n) = GetNumConfigOptions(), get_guc_variables())
#define member_can_set_role(member, role) is_member_of_role(member, role)
#define may_use_server(server, role) \
	(pg_foreign_server_aclcheck(server, role, ACL_USAGE) == ACLCHECK_OK)
#else
#define may_use_server(server, role) \
	(object_aclcheck(ForeignServerRelationId, server, role, ACL_USAGE) == ACLCHECK_OK)
#define all_settings(n) get_guc_variables(n)
#endif

/*---- Operating systems ----*/

/* A steady clock; if possible, one that also runs during a suspend. */
#ifdef CLOCK_BOOTTIME
#define STEADY_CLOCK CLOCK_BOOTTIME
#else
#define STEADY_CLOCK CLOCK_MONOTONIC
#endif

static inline int64
monotonic_ms(void)
{
	struct timespec now;

	clock_gettime(STEADY_CLOCK, &now);
	return now.tv_sec * INT64CONST(1000) + now.tv_nsec / 1000000;
}

/*
 * How long to wait for that monotonic_ms(), 1 at least.  Not Max(at - monotonic_ms(), 1),
 * which reads the clock twice: a time-out below 0 never ends.
 */
static inline long
ms_until(int64 at)
{
	int64		left = at - monotonic_ms();

	return Max(left, 1);
}

/*---- SQL scripts ----*/

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

#endif							/* SNOWID_COMPAT_H */
