/*
 * pool.h
 *		The segments of all tags.
 */
#ifndef SNOWID_SEGMENT_POOL_H
#define SNOWID_SEGMENT_POOL_H

#include "segment/row.h"

#pragma GCC visibility push(hidden)

extern void pool_shmem_request(void);
extern void pool_shmem_init(void);

extern void pool_make_key(SegmentKey *key, Oid relid, const char *tag, int len);
extern Segment *pool_find(const SegmentKey *key, bool create, uint64 *incarnation);
extern void pool_forget(const SegmentKey *key, Gone gone);
extern void pool_forget_table(Oid relid, Gone gone);
extern bool pool_status(int index, Oid relid, SegmentStatus *status);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_POOL_H */
