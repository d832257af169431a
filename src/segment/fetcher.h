/*
 * fetcher.h
 *		The processes "snowid segments", and how they are called.
 */
#ifndef SNOWID_SEGMENT_FETCHER_H
#define SNOWID_SEGMENT_FETCHER_H

#include "segment/segment.h"

extern void fetcher_shmem_request(void);
extern void fetcher_shmem_init(void);
extern void fetcher_register(void);
extern bool fetcher_call(FetcherKind kind);

extern PGDLLEXPORT void snowid_segments_main(Datum main_arg);

#endif							/* SNOWID_SEGMENT_FETCHER_H */
