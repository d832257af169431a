/*
 * compat.h
 *		What differs between PostgreSQL majors, and between operating systems: what
 *		Linux has, and what does for it on macOS, FreeBSD and with musl.
 */
#ifndef SNOWID_COMPAT_H
#define SNOWID_COMPAT_H

#include <time.h>

/*---- PostgreSQL majors ----*/

#if PG_VERSION_NUM < 150000
#error "snowid needs PostgreSQL 15 or later"
#endif
#if PG_VERSION_NUM < 170000
#define MyProcNumber (MyProc->pgprocno)
#endif
#if PG_VERSION_NUM < 180000
#define max_active_replication_origins max_replication_slots
#endif
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 190000
#define RepOriginId ReplOriginId
#define InvalidRepOriginId InvalidReplOriginId
#else
#define PG_SIG_IGN SIG_IGN
#endif
#if PG_VERSION_NUM < 160000
#define ereturn(context, dummy, ...) ereport(ERROR, __VA_ARGS__)
#define replorigin_session_setup_here(origin) replorigin_session_setup(origin)
#define all_settings(n) (*(n) = GetNumConfigOptions(), get_guc_variables())
#else
#define replorigin_session_setup_here(origin) replorigin_session_setup(origin, 0)
#define all_settings(n) get_guc_variables(n)
#endif

#pragma GCC visibility push(hidden)

/*---- Operating systems ----*/

/* A clock that nobody sets, and that counts through a suspend where it can. */
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

extern bool compat_birth(const char *path, uint64 *inode, int64 *birth_ns);
extern uint64 compat_file_system(const char *path);
extern void compat_die_with_parent(void);

#pragma GCC visibility pop

#endif							/* SNOWID_COMPAT_H */
