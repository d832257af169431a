/*
 * row.h
 *		What is known here of a segment's row; what is wanted of it, and what was
 *		found.
 */
#ifndef SNOWID_SEGMENT_ROW_H
#define SNOWID_SEGMENT_ROW_H

#include "datatype/timestamp.h"

#include "segment/range.h"

#pragma GCC visibility push(hidden)

/* What was found for a segment. */
typedef struct Answer
{
	bool		loaded;			/* role and limit are of this incarnation */
	Oid			role;
	int64		limit;
	PeriodKind	kind;
	char		format[FORMAT_LEN + 1];
	Outcome		outcome;
	uint64		attempt;		/* that found it */
	char		error[SEGMENT_ERROR_LEN];
} Answer;

/* A look at a segment's row, to fetch a range. */
typedef struct Fetch
{
	Segment    *segment;
	SegmentKey	key;
	uint64		incarnation;
	uint64		attempt;
	int64		wish;			/* least length */
	int64		last_step;		/* of the last range; 0: there was none */
	int64		lasted_ms;		/* since the last fetch */
	int64		high;			/* a range begins above it ... */
	DateADT		newest;			/* in this period, and is of none before it */
	bool		alone;			/* in a transaction of its own */
	bool		unusable;		/* what was fetched is not to be handed out */

	/* what was found */
	Outcome		outcome;
	bool		moved;			/* "source" is another one's to fetch from */
	Oid			source;
	int64		here;			/* the greatest number from before it had one */
	DateADT		latest;			/* the newest period, in the table or here */
	Range		range;
	Oid			role;
	int64		limit;
	int64		cover_ms;
	int64		step;
	PeriodKind	kind;
	char		format[FORMAT_LEN + 1];
	char		error[SEGMENT_ERROR_LEN];
} Fetch;

/* A segment, for the status. */
typedef struct SegmentStatus
{
	SegmentKey	key;
	Oid			source;
	DateADT		period;			/* of "next"; NO_PERIOD: the tag has none */
	int64		next;
	int64		left;
	int64		left_next;
	int64		step;
	double		rate;			/* numbers a second; 0: not known */
	TimestampTz fetched_at;
	int64		fetch_us;
	int64		fetches;
	int64		waits;
	int64		lost;
	char		error[SEGMENT_ERROR_LEN];
} SegmentStatus;

extern void segment_answer(Segment *segment, uint64 incarnation, Answer *answer);
extern Oid	segment_ask(Segment *segment, int64 wish);
extern void segment_forget(Segment *segment, Gone gone);
extern void segment_renew(Segment *segment);
extern void segment_touch(Segment *segment);
extern bool segment_is_idle(Segment *segment, int64 now);
extern void segment_status(Segment *segment, SegmentStatus *status);

/* for who fetches */
extern bool segment_begin(Segment *segment, Fetch *fetch, long *pause);
extern void segment_unask(Segment *segment);
extern void segment_finish(const Fetch *fetch, int64 took_us);
extern bool segment_was_replaced(Segment *segment, uint64 incarnation);
extern void segment_lower_high(Segment *segment, uint64 incarnation, const Range *range);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_ROW_H */
