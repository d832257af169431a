/*
 * segment.h
 *		Segments in shared memory: the ranges of a tag, what is known of its row, and
 *		whether a range is wanted.
 */
#ifndef SNOWID_SEGMENT_SEGMENT_H
#define SNOWID_SEGMENT_SEGMENT_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"

#include "segment/period.h"

/* A cursor is the range's generation, followed by the offset in the range. */
#define OFFSET_BITS 24
#define OFFSET_MASK ((UINT64CONST(1) << OFFSET_BITS) - 1)
#define cursor_generation(cursor) ((cursor) >> OFFSET_BITS)
#define cursor_offset(cursor) ((int64) ((cursor) & OFFSET_MASK))
#define cursor_start(generation) ((generation) << OFFSET_BITS)

#define SEGMENT_LOCKS "snowid_segments" /* segment.c's, and fetcher.c's */

#define TAG_LEN 128				/* bytes */
#define REASON_LEN 256
#define SOURCE_LEN (4 * NAMEDATALEN)	/* schema and name, quoted */
#define MAX_STEP 1000000		/* the greatest range; fits an offset */

/* One process fetches for the tables here, one for all central servers. */
typedef enum FetcherKind
{
	FETCHER_HERE,
	FETCHER_CENTRAL
} FetcherKind;

/* Consecutive numbers of a period; of no length: none. */
typedef struct Range
{
	int64		first;
	int64		length;
	Period		period;
} Range;

typedef struct Slot
{
	pg_atomic_uint64 base;		/* the number at offset 0 */
	pg_atomic_uint64 length;
	pg_atomic_uint64 ask_at;	/* the offset from which on the next is wanted */
	pg_atomic_uint64 label;		/* of the period */
	pg_atomic_uint64 until;
} Slot;

/* Unused bytes are 0. */
typedef struct SegmentKey
{
	Oid			database;
	Oid			relid;			/* its table snowid_segments */
	int32		len;
	char		tag[TAG_LEN];
} SegmentKey;

/* The last look at the table found this. */
typedef enum Outcome
{
	OUTCOME_NONE,
	OUTCOME_RANGE,
	OUTCOME_ABSENT,				/* there is no row */
	OUTCOME_USED_UP,			/* limit_id is reached */
	OUTCOME_MOVED,				/* the other process fetches */
	OUTCOME_FAILED				/* tried again while a caller waits */
} Outcome;

/* The part of a row that is about the numbers handed out; 0 until it is read. */
typedef struct Row
{
	Oid			role;			/* 0: everybody */
	bool		is_valid;		/* the rest can be resolved here */
	int64		limit;			/* the last number */
	PeriodKind	kind;
	char		format[FORMAT_LEN + 1]; /* of serials; "": it has none */
	char		source[SOURCE_LEN]; /* "": the table here */
} Row;

/* Why there is no range. */
typedef struct Reason
{
	bool		is_ours;		/* callers may read it */
	char		why[REASON_LEN];	/* without a period; "": none */
} Reason;

/* Under segment.c's lock, and copied for callers and processes. */
typedef struct SegmentState
{
	SegmentKey	key;			/* len 0: a free place */
	FetcherKind fetcher;
	Range		next;			/* follows the one in the slot */
	bool		asked;			/* a range is wanted; cleared by an outcome */
	int64		needed;			/* length that a caller needs at once */
	int64		used_at;		/* last seen in use; monotonic_ms() */
	int64		retry_at;		/* not before, after a failure */

	/* the row, as it was last seen */
	uint64		looks;			/* so many have begun */
	uint64		outcome_of;		/* the look that found the outcome */
	Outcome		outcome;
	Reason		reason;			/* of a failure since the last range */
	Row			row;
	int64		step;			/* of the last range; 0: there was none */
	int64		high;			/* no later range begins at or below it ... */
	DateADT		newest;			/* of this period, and none is of an older one */

	/* for the status */
	int64		fetched_at;		/* monotonic_ms(); 0: never */
	int64		last_ms;		/* between the last two ranges */
	int64		last_length;
	int64		waits;
} SegmentState;

typedef struct Segment
{
	/* what every number touches: number.c has the rules */
	pg_atomic_uint64 cursor;
	pg_atomic_uint64 incarnation;	/* another tag, or another row: look again */
	Slot		slot[2];		/* slot[generation & 1] is in use */

	ConditionVariable changed pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	SegmentState state;
} Segment;

/* A caller's look at a segment. */
typedef struct Look
{
	Segment    *segment;		/* NULL: it is not in memory */
	uint64		incarnation;
	SegmentState state;
} Look;

/* A look at a segment's row, to fetch a range, or to give one back. */
typedef struct Fetch
{
	Segment    *segment;
	uint64		incarnation;
	SegmentState state;			/* as it was when it began */

	/* what was found */
	Outcome		outcome;
	Reason		reason;
	Row			row;
	int64		step;
	Range		range;
} Fetch;

/* A row of no single period. */
#define ALL_PERIODS DATEVAL_NOEND

extern void segment_shmem_request(void);
extern void segment_shmem_init(void);
extern void segment_make_key(SegmentKey *key, Oid relid, const char *tag, int len);

/* for callers */
extern void segment_look(const SegmentKey *key, Look *look);
extern bool segment_create(const SegmentKey *key, FetcherKind fetcher);
extern bool segment_advance(const Look *look, TimestampTz now, int64 length);
extern FetcherKind segment_ask(Segment *segment, int64 needed, bool begins_to_wait);
extern void segment_forget(const SegmentKey *key, DateADT period);
extern bool segment_status(int index, Oid relid, SegmentState *state, Range *current);

/* for the processes that fetch */
extern int	segment_begin_fetches(FetcherKind fetcher, Fetch *fetches, int max);
extern void segment_finish(const Fetch *fetch);
extern bool segment_begin_return(int index, Fetch *fetch);
extern Range segment_end_return(const Fetch *fetch);

#endif							/* SNOWID_SEGMENT_SEGMENT_H */
