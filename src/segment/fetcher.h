/*
 * fetcher.h
 *		The processes "snowid segments", and how they are called.
 */
#ifndef SNOWID_SEGMENT_FETCHER_H
#define SNOWID_SEGMENT_FETCHER_H

#include "storage/lwlock.h"

#pragma GCC visibility push(hidden)

/* Who fetches: one process for the tables here, one for all central servers. */
typedef enum FetcherKind
{
	FETCHER_HERE,
	FETCHER_CENTRAL
} FetcherKind;

extern Size fetcher_shmem_size(void);
extern void fetcher_shmem_init(LWLock *lock);
extern bool fetcher_call(FetcherKind kind);
extern bool fetcher_is_there(FetcherKind kind);

/* for the process itself */
extern bool fetcher_attach(Oid database, FetcherKind kind);
extern void fetcher_attach_reserve(void);
extern bool fetcher_take_call(Oid *database);
extern bool fetcher_must_go(bool is_idle);
extern void fetcher_detach(void);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_FETCHER_H */
