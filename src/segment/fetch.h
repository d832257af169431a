/*
 * fetch.h
 *		Ranges, taken from their table and given back.
 */
#ifndef SNOWID_SEGMENT_FETCH_H
#define SNOWID_SEGMENT_FETCH_H

#include "segment/segment.h"

#pragma GCC visibility push(hidden)

extern void fetch_init(void);
extern void fetch_all(FetcherKind fetcher, Fetch *fetches, int n, bool (*must_end) (void));
extern void fetch_return(FetcherKind fetcher, Return *returns, int n, bool (*must_end) (void));

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_FETCH_H */
