/*
 * range.h
 *		A segment's ranges.
 */
#ifndef SNOWID_SEGMENT_RANGE_H
#define SNOWID_SEGMENT_RANGE_H

#include "segment/state.h"

#pragma GCC visibility push(hidden)

/* The periods, first to last, whose rows were deleted. */
typedef struct Gone
{
	DateADT		first;
	DateADT		last;
} Gone;

#define NOTHING_GONE ((Gone) {1, 0})
#define ALL_GONE ((Gone) {NO_PERIOD, DATEVAL_NOEND})

typedef enum Advance
{
	EXHAUSTED,					/* a range must be fetched */
	ADVANCED,					/* try again */
	TAKEN						/* and from here on they are the caller's */
} Advance;

/*
 * How many numbers it has.  What is left of a used-up range begins after its last
 * number, which may be the greatest of all: so this wraps, and is 0.
 */
static inline int64
range_length(const Range *range)
{
	return (int64) ((uint64) range->last - (uint64) range->first + 1);
}

extern int64 segment_left(Segment *segment, int64 *next, int64 *left_next);
extern Advance segment_advance(Segment *segment, uint64 incarnation, TimestampTz now,
							   int64 length, int64 *first);
extern void segment_close(Segment *segment);
extern int	segment_take_tails(Segment *segment, Oid source, uint64 *incarnation,
							   bool *stale, Range *ranges);
extern void segment_keep(Segment *segment, uint64 incarnation, const Range *ranges, int n,
						 bool refused);
extern void segment_count_lost(Segment *segment, int64 n);

/* under the mutex */
extern int64 range_left(Segment *segment, int64 *next, int64 *left_next);
extern void range_put(Segment *segment, const Range *range);
extern void range_add_tail(Segment *segment, const Range *range, Oid source);
extern void range_close(Segment *segment);
extern void range_drop_tails(Segment *segment, Gone gone);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_RANGE_H */
