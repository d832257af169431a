/*
 * pool.h
 *		The segments of all tags: found, published, closed, and who fetches for
 *		them.
 */
#ifndef SNOWID_SEGMENT_POOL_H
#define SNOWID_SEGMENT_POOL_H

#include "datatype/timestamp.h"

#include "segment/state.h"

#pragma GCC visibility push(hidden)

/* What was found for a segment. */
typedef struct Answer
{
	bool		loaded;			/* role and limit are of this incarnation */
	Oid			role;
	int64		limit;
	Outcome		outcome;
	uint64		attempt;		/* that found it */
	char		error[SEGMENT_ERROR_LEN];
} Answer;

typedef enum Advance
{
	EXHAUSTED,					/* a range must be fetched */
	ADVANCED,					/* try again */
	TAKEN						/* and from here on they are the caller's */
} Advance;

/* A look at a segment's row, to fetch a range. */
typedef struct Fetch
{
	Segment    *segment;
	SegmentKey	key;
	uint64		incarnation;
	uint64		attempt;
	int64		wish;			/* least length */
	int64		step;			/* of the last range; 0: there was none */
	int64		lasted_ms;		/* since the last fetch */
	int64		high;			/* a range begins above it */
	bool		alone;			/* in a transaction of its own */

	/* what was found */
	Outcome		outcome;
	bool		moved;			/* "source" is another one's to fetch from */
	Oid			source;
	Range		range;
	Oid			role;
	int64		limit;
	int64		cover_ms;
	char		error[SEGMENT_ERROR_LEN];
} Fetch;

/* A segment, for the status. */
typedef struct SegmentStatus
{
	SegmentKey	key;
	Oid			source;
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

extern void pool_shmem_request(void);
extern void pool_shmem_init(void);

extern int64 segment_left(Segment *segment, int64 *next, int64 *left_next);
extern void segment_answer(Segment *segment, uint64 incarnation, Answer *answer);
extern Advance segment_advance(Segment *segment, uint64 incarnation, int64 length,
							   int64 *first);
extern void segment_close(Segment *segment);
extern bool segment_begin(Segment *segment, Fetch *fetch, long *pause);
extern void segment_finish(const Fetch *fetch, int64 took_us);
extern int	segment_take_tails(Segment *segment, uint64 *incarnation, Range *ranges);
extern void segment_keep(Segment *segment, uint64 incarnation, const Range *ranges, int n);
extern void segment_count_lost(Segment *segment, int64 n);
extern void segment_lower_high(Segment *segment, uint64 incarnation, int64 high);
extern Oid	segment_ask(Segment *segment, int64 wish);

extern void pool_make_key(SegmentKey *key, Oid relid, const char *tag, int len);
extern Segment *pool_find(const SegmentKey *key, bool create, uint64 *incarnation);
extern void pool_forget(const SegmentKey *key);
extern void pool_forget_table(Oid relid);

extern bool pool_status(int index, Oid relid, SegmentStatus *status);

extern bool pool_call_fetcher(Oid source);
extern bool pool_attach(Oid database, Oid source);
extern void pool_detach(void);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_POOL_H */
