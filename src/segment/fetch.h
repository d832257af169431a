/*
 * fetch.h
 *		Ranges, taken from their table and given back.
 */
#ifndef SNOWID_SEGMENT_FETCH_H
#define SNOWID_SEGMENT_FETCH_H

#include "segment/segment.h"

extern void fetch_init(void);
extern bool fetch_wanted(FetcherKind fetcher, bool (*must_end) (void));
extern void fetch_return_all(void);

#endif							/* SNOWID_SEGMENT_FETCH_H */
