/*
 * segment.h
 *		Segments in shared memory: the ranges of a tag, what is known of its row, and
 *		whether a range is wanted.
 */
#ifndef SNOWID_SEGMENT_SEGMENT_H
#define SNOWID_SEGMENT_SEGMENT_H

#include "datatype/timestamp.h"
#include "lib/ilist.h"
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

/* Unused bytes are 0. */
typedef struct SegmentKey
{
	Oid			database;
	Oid			relid;			/* its table snowid_segments */
	int32		len;
	char		tag[TAG_LEN];
} SegmentKey;

/* The outcome of a look at a row. */
typedef enum Outcome
{
	OUTCOME_NONE,
	OUTCOME_ABSENT,				/* there is no row */
	OUTCOME_USED_UP,			/* limit_id is reached */
	/* it is tried again while a caller waits, and nothing else found counts */
	OUTCOME_FAILED,
	OUTCOME_FAILED_PUBLICLY		/* callers may read why */
} Outcome;

typedef struct Reason
{
	Outcome		outcome;
	char		why[REASON_LEN];	/* it failed, without a period; else "" */
} Reason;

/*
 * The part of a row that is about the numbers handed out.  Until the process has read it,
 * only the source is there, by which callers choose the process.
 */
typedef struct Row
{
	Oid			role;			/* 0: everybody */
	bool		is_valid;		/* the rest can be resolved here */
	int64		limit;			/* the last number */
	PeriodKind	kind;
	char		format[FORMAT_LEN + 1]; /* of serials; "": it has none */
	char		source[NAMEDATALEN];	/* a server; "": the table here */
} Row;

/* Under segment.c's lock, and copied for callers and processes. */
typedef struct SegmentState
{
	SegmentKey	key;			/* all is 0: a free place */
	Range		next;			/* follows the one in use */
	int64		wanted;			/* a range of such a length at least; 0: none
								 * is */
	int64		used_at;		/* last seen in use; monotonic_ms() */

	/* the row, as it was last seen */
	int64		looked_at;		/* when the look began, or when it failed;
								 * monotonic_ms() */
	Reason		reason;			/* why there is no range */
	Row			row;
	int64		step;			/* of the last range; 0: there was none */
	int64		high;			/* no later range begins at or below it ... */
	DateADT		newest;			/* of this period, and none is of an older one */

	/* for the status */
	int64		fetched_at;		/* monotonic_ms(); 0: never */
	double		rate;			/* numbers a second, by the last two ranges */
	int64		waits;
} SegmentState;

typedef struct Segment
{
	/* what every number touches: number.c has the rules */
	pg_atomic_uint64 cursor;
	pg_atomic_uint64 incarnation;	/* another tag, or another row: look again */
	pg_atomic_uint64 ask_at;	/* the offset from which on the next range is
								 * wanted */
	Range		range[2];		/* range[generation & 1] is in use */

	ConditionVariable changed pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	dlist_node	node;			/* among those that are free, or wanted */
	SegmentState state;
} Segment;

/*
 * A segment, as a caller or a process sees it.  A process that looks at the row writes
 * here what it finds: the row, and the next range, or why there is none.
 */
typedef struct Look
{
	Segment    *segment;		/* NULL: it is not in memory */
	uint64		incarnation;
	SegmentState state;
} Look;

/* The arguments of snowid_segment_take(): the tag, and a Take. */
#define TAKE_ARGS 7
#define TAKE_TYPES {TEXTOID, TEXTOID, INT4OID, INT4OID, INT8OID, INT8OID, INT8OID}

/* A range, as it is asked for ... */
typedef struct Take
{
	PeriodKind	kind;
	DateADT		label;			/* of the period of now */
	DateADT		seen;			/* the newest period that was seen */
	int64		high;			/* of it, numbers up to this were handed out */
	int64		upto;			/* the last one that may be */
	int64		length;
} Take;

/* ... and as it was taken. */
typedef struct Taken
{
	int64		first;			/* 0: they are used up, or there is a problem */
	int64		last;
	DateADT		period;
	char		problem[16];	/* "": none */
} Taken;

/* A row of no single period. */
#define ALL_PERIODS DATEVAL_NOEND

extern void segment_shmem(bool reserve);
extern void segment_make_key(SegmentKey *key, Oid relid, const char *tag, int len);

/* for callers */
extern void segment_look(const SegmentKey *key, Look *look);
extern bool segment_is_known(const SegmentKey *key, const Look *look, int64 now);
extern bool segment_create(const SegmentKey *key, const char *source);
extern bool segment_advance(const Look *look, TimestampTz now, int64 length);
extern FetcherKind segment_ask(Segment *segment, uint64 incarnation, int64 length,
							   bool begins_to_wait);
extern void segment_forget(const SegmentKey *key, DateADT period);

/* for the status, and for the processes that fetch */
extern bool segment_at(int index, Look *look, Range *current);
extern bool segment_next_in_line(bool (*has_process) (Oid database, FetcherKind kind),
								 bool here_only, Oid *database, FetcherKind *kind);
extern void segment_end_turn(Oid database, FetcherKind kind);
extern int	segment_begin_looks(FetcherKind fetcher, Look *looks, int max);
extern void segment_finish(const Look *look);
extern Range segment_drop(const Look *look);

#endif							/* SNOWID_SEGMENT_SEGMENT_H */
