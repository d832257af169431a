/*
 * table.h
 *		The rows of snowid_segments and snowid_segment_periods.
 */
#ifndef SNOWID_SEGMENT_TABLE_H
#define SNOWID_SEGMENT_TABLE_H

#include "executor/tuptable.h"
#include "utils/rel.h"

#include "segment/segment.h"

/* Columns of the tables, as the extension's script makes them; biz_tag is the first. */
typedef enum TagColumn
{
	TAG_BIZ_TAG,
	TAG_MAX_ID,
	TAG_STEP,
	TAG_DESCRIPTION,
	TAG_UPDATE_TIME,
	TAG_LIMIT_ID,
	TAG_COVER,
	TAG_SOURCE,
	TAG_ROLE,
	TAG_PERIOD,
	TAG_ZONE,
	TAG_FORMAT,
	TAG_COLUMNS
} TagColumn;

typedef enum PeriodColumn
{
	PERIOD_BIZ_TAG,
	PERIOD_PERIOD,
	PERIOD_MAX_ID,
	PERIOD_UPDATE_TIME,
	PERIOD_COLUMNS
} PeriodColumn;

typedef struct TableKind
{
	const char *name;
	int			keys;			/* columns of the primary key */
	int			max_id;
	int			update_time;
	int			n;
	Oid			types[TAG_COLUMNS];
} TableKind;

extern const TableKind table_tags;
extern const TableKind table_periods;

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
	const TableKind *kind;
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

extern void table_require_columns(Relation rel, const TableKind *kind);
extern void table_read_columns(Datum *values, bool *nulls, TagRow *tag);
extern Found table_read_tag(const SegmentKey *key, TagRow *tag);
extern Found table_lock_tag(const SegmentKey *key, bool share, TagRow *tag,
							LockedRow *locked);
extern Found table_newest_period(const SegmentKey *key, DateADT *newest);
extern Found table_lock_period(const SegmentKey *key, DateADT period, LockedRow *locked);
extern void table_set_max_id(LockedRow *locked, int64 max_id);
extern void table_release(LockedRow *locked);
extern bool table_add_period(const SegmentKey *key, DateADT period, int64 max_id);

#endif							/* SNOWID_SEGMENT_TABLE_H */
