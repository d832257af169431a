/*
 * state.h
 *		Segments in shared memory; for the files of this folder alone.
 *
 * A segment is what this server has in memory of one tag: the range that numbers
 * are taken from, and the next one.  What every number touches are the atomics
 * on its first cache line (segment.c has the proof); the rest is under the
 * segment's spinlock, which covers loads, compares and stores only.  Which tag a
 * segment has changes under segments_lock only.
 */
#ifndef SNOWID_SEGMENT_STATE_H
#define SNOWID_SEGMENT_STATE_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

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
#define MAX_STEP 1000000		/* the greatest range; fits an offset */

/* first to last, of a period; none: first is the one after last */
typedef struct Range
{
	int64		first;
	int64		last;
	int64		before;			/* the greatest number of this server below it */
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
	int64		before;			/* the range's; under the mutex */
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
	OUTCOME_FAILED				/* tried again while somebody waits */
} Outcome;

/* Ranges that are to be given back: of a range cut short, and the next one. */
#define TAILS 4

typedef struct Segment
{
	pg_atomic_uint64 cursor;
	pg_atomic_uint64 incarnation;	/* another tag, or other rights: look anew */
	Slot		slot[2];		/* slot[generation & 1] is in use */
	Term		term[2];

	/* segments_lock protects the following fields */
	bool		in_use pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	SegmentKey	key;

	ConditionVariable changed;

	slock_t		mutex;			/* protects the following fields only */
	Oid			source;			/* who fetches; 0: from the table here */
	uint64		replaced;		/* the incarnation since which the row is
								 * another one */
	bool		ready;			/* the slot that is not in use has the next
								 * range */
	bool		asked;			/* a range is wanted; cleared once it is there */
	int64		wish;			/* length that a caller needs at once */
	int64		used_at;		/* when it was last looked up, monotonic_ms() */
	int64		retry_at;		/* not before; monotonic_ms() */
	int64		retry_ms;		/* the pause since it last failed; 0: it did
								 * not */
	bool		alone;			/* it failed by itself, and must not fail
								 * others */
	int			tails;
	Oid			tail_source;	/* whose they are */
	bool		returning;		/* that is being done with some ... */
	DateADT		returning_from; /* of this period, and of later ones */
	bool		stale;			/* and not to be used, if that cannot be done */
	Range		tail[TAILS];

	/* the row, as it was last seen */
	Outcome		outcome;
	uint64		attempt;		/* looks that have begun */
	uint64		outcome_attempt;	/* the one that found the outcome */
	char		error[SEGMENT_ERROR_LEN];	/* "": none since the last range */
	bool		loaded;			/* the following is of this incarnation */
	Oid			role;			/* 0: everybody */
	int64		limit;			/* the last number */
	int64		cover_ms;
	int64		step;			/* of the next range */
	int64		high;			/* no later range begins at or below it ... */
	DateADT		newest;			/* of this period, and none is of an older one */
	PeriodKind	kind;
	char		format[FORMAT_LEN + 1]; /* of serials; "": it has none */

	/* for the status */
	int64		fetched_at;		/* monotonic_ms(); 0: never */
	int64		fetched_unix_us;	/* a TimestampTz */
	int64		fetch_us;		/* how long the last one took */
	int64		last_ms;		/* between the last two */
	int64		last_length;	/* of the range before the last */
	int64		fetches;
	int64		waits;
	int64		lost;

	/* the process's own */
	uint64		idle_cursor;
	int64		idle_since;
	bool		kept;			/* what is left could not be given back ... */
	bool		refused;		/* ... and cannot be later */
} Segment;

extern Segment *segments;		/* as many as snowid_max_segments says */
extern LWLock *segments_lock;

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_STATE_H */
