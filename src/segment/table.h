/*
 * table.h
 *		The rows of snowid_segments and snowid_segment_periods.
 */
#ifndef SNOWID_SEGMENT_TABLE_H
#define SNOWID_SEGMENT_TABLE_H

#include "fmgr.h"

#include "segment/segment.h"

typedef enum Found
{
	FOUND,
	ABSENT,
	LOCKED						/* by another transaction */
} Found;

/* A row of snowid_segments. */
typedef struct TagRow
{
	int64		max_id;
	int64		step;
	int64		cover_ms;
	Row			row;
	pg_tz	   *zone;
	const char *problem;		/* NULL, or why it gives no numbers */

	/* if it was locked: the newest period in the table here */
	DateADT		newest;
	int64		newest_max_id;
} TagRow;

/* The functions that one transaction calls again and again: each is planned once. */
typedef struct Calls
{
	FmgrInfo	lock;
	FmgrInfo	take;
} Calls;

extern Oid	table_of(Oid function);
extern Found table_find_tag(const SegmentKey *key, bool waits, TagRow *tag);
extern Found table_lock_tag(Calls *calls, const SegmentKey *key, TagRow *tag);
extern Taken table_take(Calls *calls, const SegmentKey *key, const Take *take);
extern void table_give_back(Calls *calls, const Look *look);

#endif							/* SNOWID_SEGMENT_TABLE_H */
