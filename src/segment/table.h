/*
 * table.h
 *		The rows of snowid_segments and snowid_segment_periods.
 */
#ifndef SNOWID_SEGMENT_TABLE_H
#define SNOWID_SEGMENT_TABLE_H

#include "executor/tuptable.h"
#include "utils/rel.h"

#include "segment/segment.h"

typedef enum Found
{
	FOUND,
	ABSENT,
	LOCKED						/* by another transaction: nothing here waits */
} Found;

/* A row that this transaction has locked. */
typedef struct LockedRow
{
	Relation	rel;
	const struct TableKind *kind;
	TupleTableSlot *slot;		/* NULL: there is none */
	int64		max_id;
} LockedRow;

/* A row of snowid_segments. */
typedef struct TagRow
{
	int64		max_id;
	int64		step;
	int64		cover_ms;
	Row			row;
	const char *zone;
	const char *problem;		/* NULL, or why it gives no numbers */
} TagRow;

extern Found table_read_tag(const SegmentKey *key, TagRow *tag);
extern Found table_lock_tag(const SegmentKey *key, bool share, TagRow *tag,
							LockedRow *locked);
extern Found table_newest_period(const SegmentKey *key, DateADT *newest);
extern Found table_lock_period(const SegmentKey *key, DateADT period, LockedRow *locked);
extern void table_set_max_id(LockedRow *locked, int64 max_id);
extern void table_release(LockedRow *locked);
extern bool table_add_period(const SegmentKey *key, DateADT period, int64 max_id);

#endif							/* SNOWID_SEGMENT_TABLE_H */
