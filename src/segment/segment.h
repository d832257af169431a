/*
 * segment.h
 *		Segments in shared memory: the ranges of a tag, what is known of its row, and
 *		what is wanted of it.
 */
#ifndef SNOWID_SEGMENT_SEGMENT_H
#define SNOWID_SEGMENT_SEGMENT_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"

#include "segment/fetcher.h"
#include "segment/period.h"

#pragma GCC visibility push(hidden)

/* A cursor is the range's generation, and behind it the offset in the range. */
#define OFFSET_BITS 24
#define OFFSET_MASK ((UINT64CONST(1) << OFFSET_BITS) - 1)
#define cursor_generation(cursor) ((cursor) >> OFFSET_BITS)
#define cursor_offset(cursor) ((int64) ((cursor) & OFFSET_MASK))
#define cursor_start(generation) ((generation) << OFFSET_BITS)

#define TAG_LEN 128				/* bytes */
#define SEGMENT_ERROR_LEN 256
#define SOURCE_LEN (4 * NAMEDATALEN)	/* schema and name, quoted */
#define MAX_STEP 1000000		/* the greatest range; fits an offset */

/* first to last, of a period; none: first is the one after last */
typedef struct Range
{
	int64		first;
	int64		last;
	Period		period;
} Range;

typedef struct Slot
{
	pg_atomic_uint64 base;		/* the number at offset 0 */
	pg_atomic_uint64 length;
	pg_atomic_uint64 ask_at;	/* the offset from which on the next is wanted */
} Slot;

/* The period of the range in the slot of the same place. */
typedef struct Term
{
	pg_atomic_uint64 label;
	pg_atomic_uint64 until;
} Term;

/* Unused bytes are 0. */
typedef struct SegmentKey
{
	Oid			database;
	Oid			relid;			/* its table snowid_segments */
	int32		len;
	char		tag[TAG_LEN];
} SegmentKey;

/* What the last look at the table found. */
typedef enum Outcome
{
	OUTCOME_NONE,
	OUTCOME_RANGE,
	OUTCOME_ABSENT,				/* there is no row */
	OUTCOME_USED_UP,			/* limit_id is reached */
	OUTCOME_MOVED,				/* the other process fetches */
	OUTCOME_FAILED				/* tried again while a caller waits */
} Outcome;

/* What a row says of the numbers that are handed out. */
typedef struct Row
{
	Oid			role;			/* 0: everybody */
	bool		is_valid;		/* the rest can be resolved here */
	int64		limit;			/* the last number */
	int64		cover_ms;
	PeriodKind	kind;
	char		format[FORMAT_LEN + 1]; /* of serials; "": it has none */
	char		source[SOURCE_LEN]; /* "": the table here */
} Row;

/* Why there is no range. */
typedef struct Reason
{
	bool		is_ours;		/* callers may read it */
	char		why[SEGMENT_ERROR_LEN]; /* without a period; "": none */
} Reason;

typedef struct Segment
{
	/* what every number touches: number.c has the rules */
	pg_atomic_uint64 cursor;
	pg_atomic_uint64 incarnation;	/* another tag, or another row: look again */
	Slot		slot[2];		/* slot[generation & 1] is in use */
	Term		term[2];

	ConditionVariable changed pg_attribute_aligned(PG_CACHE_LINE_SIZE);

	/* the rest is under segment.c's lock */
	bool		in_use;
	SegmentKey	key;
	FetcherKind fetcher;
	bool		ready;			/* the slot that is not in use has the next
								 * range */
	bool		asked;			/* a range is wanted; cleared once it is there */
	bool		must_go;		/* its place is wanted by another tag */
	int64		wish;			/* length that a caller needs at once */
	int64		used_at;		/* last seen in use; monotonic_ms() */
	uint64		seen_cursor;	/* where it was then */
	int64		retry_at;		/* not before; monotonic_ms() */
	int64		retry_ms;		/* the pause since it last failed; 0: it did
								 * not */

	/* the row, as it was last seen */
	Outcome		outcome;
	uint64		attempt;		/* looks that have begun */
	uint64		outcome_attempt;	/* the one that found the outcome */
	Reason		reason;			/* of the last failure since the last range */
	bool		known;			/* "row" is of this incarnation */
	Row			row;
	int64		step;			/* of the last range; 0: there was none */
	int64		high;			/* no later range begins at or below it ... */
	DateADT		newest;			/* of this period, and none is of an older one */

	/* for the status */
	int64		fetched_at;		/* monotonic_ms(); 0: never */
	TimestampTz fetched_time;
	int64		fetch_us;		/* how long the last one took */
	int64		last_ms;		/* between the last two */
	int64		last_length;	/* of the range before the last */
	int64		fetches;
	int64		waits;
	int64		lost;
} Segment;

/* What a caller finds. */
typedef struct Look
{
	Segment    *segment;		/* NULL: it is not in memory */
	uint64		incarnation;
	bool		known;			/* "row" is of this incarnation */
	Row			row;
	Outcome		outcome;
	uint64		attempt;		/* looks at the table that have begun */
	uint64		outcome_attempt;	/* the one that found the outcome */
	Reason		reason;
} Look;

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
	int64		last_step;		/* of the last range; 0: there was none */
	int64		lasted_ms;		/* since the last fetch */
	int64		high;			/* a range begins above it ... */
	DateADT		newest;			/* in this period, and is of none before it */

	/* what was found */
	Outcome		outcome;
	bool		known;			/* "row" was read */
	Row			row;
	int64		step;
	Range		range;
	int64		in_doubt;		/* so many numbers may be taken, and are lost */
	Reason		reason;
} Fetch;

/* A range that is given back; the segment has none from here on. */
typedef struct Return
{
	Segment    *segment;
	SegmentKey	key;
	uint64		incarnation;
	char		source[SOURCE_LEN];
	Range		range;
	bool		done;
} Return;

/* A segment, for the status. */
typedef struct SegmentStatus
{
	SegmentKey	key;
	char		source[SOURCE_LEN];
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

/*
 * How many numbers it has.  What is left of a used-up range begins after its last
 * number, which may be the greatest of all: so this wraps, and is 0.
 */
static inline int64
range_length(const Range *range)
{
	return (int64) ((uint64) range->last - (uint64) range->first + 1);
}

/* A deleted row of no single period: all is forgotten. */
#define ALL_PERIODS DATEVAL_NOEND

extern void segment_shmem_request(void);
extern void segment_shmem_init(void);
extern void segment_make_key(SegmentKey *key, Oid relid, const char *tag, int len);

/* for callers */
extern void segment_look(const SegmentKey *key, Look *look);
extern bool segment_create(const SegmentKey *key, FetcherKind fetcher);
extern void segment_wait_for_room(long ms);
extern Advance segment_advance(const Look *look, TimestampTz now, int64 length,
							   int64 *first);
extern void segment_begin_wait(Segment *segment);
extern FetcherKind segment_ask(Segment *segment, int64 wish);
extern void segment_forget(const SegmentKey *key, DateADT period);
extern void segment_forget_table(Oid relid, DateADT period);
extern bool segment_status(int index, Oid relid, SegmentStatus *status);

/* for the processes that fetch */
extern int	segment_begin_fetches(FetcherKind fetcher, Fetch *fetches, int max,
								  long *pause);
extern void segment_finish(const Fetch *fetch, int64 took_us);
extern int	segment_begin_returns(FetcherKind fetcher, bool all, Return *returns,
								  int max, int *at);
extern bool segment_is_as_before(const Return *r);
extern void segment_end_return(const Return *r);
extern bool segment_is_idle(FetcherKind fetcher);
extern void segment_unask(FetcherKind fetcher);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_SEGMENT_H */
