/*
 * fetcher.h
 *		Which process "snowid segments" fetches, and how it is called.
 */
#ifndef SNOWID_SEGMENT_FETCHER_H
#define SNOWID_SEGMENT_FETCHER_H

#include "storage/lwlock.h"

#pragma GCC visibility push(hidden)

extern Size fetcher_shmem_size(void);
extern void fetcher_shmem_init(LWLock *lock);
extern bool fetcher_call(Oid source);
extern bool fetcher_attach(Oid database, Oid source);
extern void fetcher_detach(void);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_FETCHER_H */
