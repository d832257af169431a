/*
 * fetcher.h
 *		The processes "snowid segments", which fetch ranges, and how they are called.
 */
#ifndef SNOWID_SEGMENT_FETCHER_H
#define SNOWID_SEGMENT_FETCHER_H

#include "process.h"
#include "segment/segment.h"

extern const Process segments_process;

extern void fetcher_shmem(bool reserve);
extern bool fetcher_call(FetcherKind kind);

#endif							/* SNOWID_SEGMENT_FETCHER_H */
