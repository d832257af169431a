/*
 * table.h
 *		The rows of snowid_segments and snowid_segment_periods.
 */
#ifndef SNOWID_SEGMENT_TABLE_H
#define SNOWID_SEGMENT_TABLE_H

#include "access/htup.h"
#include "nodes/lockoptions.h"

#include "segment/segment.h"

typedef enum Found
{
	FOUND,
	ABSENT,
	LOCKED						/* by another transaction: nothing here waits */
} Found;

/* A row of either table. */
typedef struct TableRow
{
	const struct TableKind *kind;
	HeapTuple	tuple;			/* NULL: there is none */
	Datum	   *values;
	bool	   *nulls;
	int64		max_id;			/* 0, if it is null */
} TableRow;

/* A row of snowid_segments. */
typedef struct TagRow
{
	TableRow	stored;
	int64		step;
	int64		cover_ms;
	Row			row;
	pg_tz	   *zone;
	const char *problem;		/* NULL, or why it gives no numbers */
} TagRow;

/* A row is only read. */
#define UNLOCKED ((LockTupleMode) -1)

extern Found table_find_tag(const SegmentKey *key, LockTupleMode mode, TagRow *tag);
extern Found table_newest_period(const SegmentKey *key, DateADT *newest);
extern Found table_lock_row(const SegmentKey *key, DateADT period, TableRow *row);
extern void table_set_max_id(TableRow *row, int64 max_id);
extern bool table_add_period(const SegmentKey *key, DateADT period, int64 max_id);

#endif							/* SNOWID_SEGMENT_TABLE_H */
