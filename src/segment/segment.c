/*
 * segment.c
 *		Segments in shared memory: the ranges of a tag, what is known of its row, and
 *		what is wanted of it.
 *
 * Two slots: numbers are taken from the one of the cursor's generation, and the
 * process that fetches fills the other.  A slot is written under the lock, and only
 * while the cursor is in the generation before (number.c has the proof).  What every
 * number touches are atomics; all else is under one lock for all segments, which is
 * taken about once in a range, and shared once in a statement.
 *
 * A segment never moves.  Its place is given to another tag when there is no room:
 * that of the tag that was unused longest, of the database that has most places.  So
 * no database can take the places of the others.  What is in memory of it is lost.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "segment/segment.h"
#include "settings.h"

#define LOCK_NAME "snowid_segments"

/* What failed is not tried again before; callers wait longer. */
#define RETRY_MS 200

/* What a caller waits for does not make room for another tag of its database. */
#define RECENT_MS 1000

typedef struct Place
{
	SegmentKey	key;
	int			index;
} Place;

static Segment *segments = NULL;	/* as many as snowid_max_segments says */
static LWLock *segments_lock = NULL;
static HTAB *places = NULL;		/* under segments_lock */

/*---- Shared memory ----*/

static Size
segments_size(void)
{
	return add_size(mul_size(snowid_max_segments, sizeof(Segment)), PG_CACHE_LINE_SIZE);
}

void
segment_shmem_request(void)
{
	if (snowid_max_segments == 0)
		return;
	RequestAddinShmemSpace(segments_size());
	RequestAddinShmemSpace(hash_estimate_size(snowid_max_segments, sizeof(Place)));
	RequestNamedLWLockTranche(LOCK_NAME, 1);
}

static void
init_segment(Segment *segment)
{
	memset(segment, 0, sizeof(*segment));
	pg_atomic_init_u64(&segment->cursor, 0);
	pg_atomic_init_u64(&segment->incarnation, 0);
	for (int i = 0; i < lengthof(segment->slot); i++)
	{
		pg_atomic_init_u64(&segment->slot[i].base, 0);
		pg_atomic_init_u64(&segment->slot[i].length, 0);
		pg_atomic_init_u64(&segment->slot[i].ask_at, 0);
		pg_atomic_init_u64(&segment->slot[i].label, 0);
		pg_atomic_init_u64(&segment->slot[i].until, 0);
	}
	ConditionVariableInit(&segment->changed);
}

/* Called with AddinShmemInitLock. */
void
segment_shmem_init(void)
{
	HASHCTL		info = {.keysize = sizeof(SegmentKey),.entrysize = sizeof(Place)};
	bool		found;

	if (snowid_max_segments == 0)
		return;
	segments_lock = &GetNamedLWLockTranche(LOCK_NAME)->lock;
	places = shmem_hash("snowid segments by tag", snowid_max_segments, &info,
						HASH_ELEM | HASH_BLOBS);
	segments = (Segment *) TYPEALIGN(PG_CACHE_LINE_SIZE,
									 ShmemInitStruct("snowid segments", segments_size(), &found));
	for (int i = 0; !found && i < snowid_max_segments; i++)
		init_segment(&segments[i]);
}

void
segment_make_key(SegmentKey *key, Oid relid, const char *tag, int len)
{
	Assert(len <= TAG_LEN);
	memset(key, 0, sizeof(*key));
	key->database = MyDatabaseId;
	key->relid = relid;
	key->len = len;
	memcpy(key->tag, tag, len);
}

/*---- Ranges: the lock is held ----*/

/* What nobody has taken of the slot in use (0), or of the next one (1). */
static Range
range_of(Segment *segment, int which)
{
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);
	Slot	   *slot = &segment->slot[(cursor_generation(cursor) + which) & 1];
	uint64		base = pg_atomic_read_u64(&slot->base);
	Range		range;

	range.first = (int64) (base + (which == 0 ? cursor_offset(cursor) : 0));
	range.last = (int64) (base + pg_atomic_read_u64(&slot->length) - 1);
	range.period.label = (DateADT) pg_atomic_read_u64(&slot->label);
	range.period.until = (TimestampTz) pg_atomic_read_u64(&slot->until);
	return range;
}

/* Puts a range into the slot that is not in use. */
static void
put_range(Segment *segment, const Range *range)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor)) + 1;
	Slot	   *slot = &segment->slot[generation & 1];
	int64		length = range_length(range);

	Assert(!segment->state.ready && length > 0 && length <= OFFSET_MASK);
	pg_atomic_write_u64(&slot->base, (uint64) range->first);
	pg_atomic_write_u64(&slot->length, (uint64) length);
	pg_atomic_write_u64(&slot->ask_at, (uint64) length / 10);
	pg_atomic_write_u64(&slot->label, (uint64) range->period.label);
	pg_atomic_write_u64(&slot->until, (uint64) range->period.until);
	segment->state.ready = true;
}

/*
 * From here on no number of the two ranges is taken.  Returns their end, which the
 * table has seen last; what is before a gap is lost.
 */
static Range
close_ranges(Segment *segment)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	bool		has_next = segment->state.ready;
	Range		next = range_of(segment, 1);
	Range		rest = range_of(segment, 0);
	uint64		cursor;

	segment->state.ready = false;
	pg_atomic_write_u64(&segment->slot[(generation + 1) & 1].length, 0);
	cursor = pg_atomic_exchange_u64(&segment->cursor, cursor_start(generation + 1));
	rest.first = (int64) (pg_atomic_read_u64(&segment->slot[generation & 1].base) +
						  cursor_offset(cursor));
	if (!has_next)
		return rest;
	if (rest.period.label == next.period.label && rest.last == next.first - 1)
		next.first = rest.first;
	else
		segment->state.lost += range_length(&rest);
	return next;
}

/* Forgets what is known of the row. */
static void
forget_row(Segment *segment)
{
	Range		rest = close_ranges(segment);
	SegmentState *state = &segment->state;

	state->lost += range_length(&rest);
	pg_atomic_fetch_add_u64(&segment->incarnation, 1);
	state->outcome = OUTCOME_NONE;
	state->reason.why[0] = '\0';
	state->known = false;
	state->high = 0;
	state->newest = NO_PERIOD;
	state->step = 0;
}

/*---- Places: the lock is held exclusively ----*/

/* The database that has most places; where several have, this one, if it is one. */
static Oid
greediest_database(void)
{
	Oid		   *owners = palloc(snowid_max_segments * sizeof(Oid));
	Oid			greediest = InvalidOid;
	int			most = 0;

	for (int i = 0; i < snowid_max_segments; i++)
		owners[i] = segments[i].state.key.database;
	qsort(owners, snowid_max_segments, sizeof(Oid), oid_cmp);
	for (int i = 0, n = 1; i < snowid_max_segments; i++, n++)
	{
		if (i > 0 && owners[i] != owners[i - 1])
			n = 1;
		if (n > most || (n == most && owners[i] == MyDatabaseId))
		{
			most = n;
			greediest = owners[i];
		}
	}
	pfree(owners);
	return greediest;
}

/*
 * A free place, or that of the tag of a database that was unused longest; each
 * statement looks at its tag.  NULL: all are waited for.
 */
static Segment *
find_place(int64 now)
{
	Segment    *found = NULL;
	Oid			database;

	for (int i = 0; i < snowid_max_segments; i++)
	{
		if (!segments[i].state.in_use)
			return &segments[i];
	}
	database = greediest_database();
	for (int i = 0; i < snowid_max_segments; i++)
	{
		SegmentState *state = &segments[i].state;

		if (state->key.database == database &&
			(database != MyDatabaseId || !state->asked || now - state->used_at > RECENT_MS) &&
			(found == NULL || state->used_at < found->state.used_at))
			found = &segments[i];
	}
	return found;
}

/* From here on it is another tag's: what is still fetched for the former one is lost. */
static void
give_place(Segment *segment, const SegmentKey *key, FetcherKind fetcher, int64 now)
{
	SegmentState *state = &segment->state;
	uint64		attempt = state->attempt;

	if (state->in_use)
		(void) hash_search(places, &state->key, HASH_REMOVE, NULL);
	((Place *) hash_search(places, key, HASH_ENTER, NULL))->index = segment - segments;
	forget_row(segment);
	memset(state, 0, sizeof(*state));
	state->in_use = true;
	state->key = *key;
	state->fetcher = fetcher;
	state->used_at = now;
	state->attempt = attempt;
	state->newest = NO_PERIOD;
}

static Segment *
find_segment(const SegmentKey *key)
{
	Place	   *place = hash_search(places, key, HASH_FIND, NULL);

	return place ? &segments[place->index] : NULL;
}

/*---- For callers ----*/

/* What is in memory of a tag.  Who looks at the same time notes the same time of use. */
void
segment_look(const SegmentKey *key, Look *look)
{
	LWLockAcquire(segments_lock, LW_SHARED);
	look->segment = find_segment(key);
	if (look->segment)
	{
		look->segment->state.used_at = monotonic_ms();
		look->incarnation = pg_atomic_read_u64(&look->segment->incarnation);
		look->state = look->segment->state;
	}
	LWLockRelease(segments_lock);
}

/* A place for a tag that has none; false: not now. */
bool
segment_create(const SegmentKey *key, FetcherKind fetcher)
{
	Segment    *segment;
	int64		now = monotonic_ms();

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	segment = find_segment(key);
	if (segment == NULL)
	{
		segment = find_place(now);
		if (segment)
			give_place(segment, key, fetcher, now);
	}
	LWLockRelease(segments_lock);
	return segment != NULL;
}

/* The next range becomes the current one, at this offset. */
static bool
switch_slot(Segment *segment, uint64 cursor, int64 offset)
{
	uint64		next = cursor_start(cursor_generation(cursor) + 1) + offset;

	if (!pg_atomic_compare_exchange_u64(&segment->cursor, &cursor, next))
		return false;
	segment->state.ready = false;
	return true;
}

/*
 * Switches to the next range if the current one has fewer than so many
 * numbers, or its period has ended.  What is left of it is a part of what is
 * wanted if the next range continues it, and else is lost.
 */
Advance
segment_advance(const Look *look, TimestampTz now, int64 length, int64 *first)
{
	Segment    *segment = look->segment;
	SegmentState *state = &segment->state;
	Advance		result = ADVANCED;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	while (result == ADVANCED && pg_atomic_read_u64(&segment->incarnation) == look->incarnation)
	{
		uint64		cursor = pg_atomic_read_u64(&segment->cursor);
		Slot	   *slot = &segment->slot[cursor_generation(cursor) & 1];
		uint64		base = pg_atomic_read_u64(&slot->base);
		int64		left = (int64) pg_atomic_read_u64(&slot->length) - cursor_offset(cursor);
		Range		next = range_of(segment, 1);
		bool		has_ended = left > 0 &&
		now >= (TimestampTz) pg_atomic_read_u64(&slot->until);

		*first = (int64) (base + cursor_offset(cursor));
		if (left >= length && !has_ended)
			break;
		if (has_ended && (!state->ready || now >= next.period.until))
		{
			Range		rest = close_ranges(segment);

			state->lost += range_length(&rest);
		}
		if (!state->ready)
			result = EXHAUSTED;
		else if (left > 0 && !has_ended && next.last - *first + 1 >= length &&
				 *first + left == next.first)
		{
			if (switch_slot(segment, cursor, length - left))
				result = TAKEN;
		}
		else if (switch_slot(segment, cursor, 0))
			state->lost += left;
	}
	LWLockRelease(segments_lock);
	return result;
}

/* Another range is wanted, of such a length at least; returns who fetches. */
FetcherKind
segment_ask(Segment *segment, int64 wish, bool begins_to_wait)
{
	SegmentState *state = &segment->state;
	FetcherKind fetcher;
	uint64		generation;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	pg_atomic_write_u64(&segment->slot[generation & 1].ask_at, PG_UINT64_MAX);
	state->asked = state->in_use && (state->asked || !state->ready);
	state->wish = Max(state->wish, wish);
	state->waits += begins_to_wait;
	fetcher = state->fetcher;
	LWLockRelease(segments_lock);
	return fetcher;
}

/*
 * A tag's row was changed by hand, or that of a period deleted: what is in memory of it,
 * or of all tags of the table where the key has none, is forgotten; but not where there
 * are only numbers of later periods.  Does not throw.
 */
void
segment_forget(const SegmentKey *key, DateADT period)
{
	Segment    *segment;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (int i = 0; key->len == 0 && i < snowid_max_segments; i++)
	{
		if (segments[i].state.in_use && segments[i].state.key.database == key->database &&
			segments[i].state.key.relid == key->relid)
			forget_row(&segments[i]);
	}
	segment = find_segment(key);
	if (segment && period >= range_of(segment, 0).period.label)
		forget_row(segment);
	LWLockRelease(segments_lock);
}

/* False: there is none of this table at this place. */
bool
segment_status(int index, Oid relid, SegmentState *state, Range *left, int64 *left_next)
{
	Segment    *segment = &segments[index];
	Range		next;

	LWLockAcquire(segments_lock, LW_SHARED);
	*state = segment->state;
	*left = range_of(segment, 0);
	next = range_of(segment, 1);
	*left_next = state->ready ? range_length(&next) : 0;
	LWLockRelease(segments_lock);
	return state->in_use && state->key.database == MyDatabaseId && state->key.relid == relid;
}

/*---- For the processes that fetch ----*/

static void
begin_fetch(Segment *segment, Fetch *fetch)
{
	memset(fetch, 0, sizeof(*fetch));
	segment->state.attempt++;
	fetch->segment = segment;
	fetch->incarnation = pg_atomic_read_u64(&segment->incarnation);
	fetch->state = segment->state;
}

/* Begins to fetch what is wanted; returns how many, and when others may be tried. */
int
segment_begin_fetches(FetcherKind fetcher, Fetch *fetches, int max, long *pause)
{
	static int	from = 0;		/* in turn, where there are more */
	int64		now = monotonic_ms();
	int			n = 0;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (int i = 0; i < snowid_max_segments && n < max; i++)
	{
		Segment    *segment = &segments[from];
		SegmentState *state = &segment->state;

		from = (from + 1) % snowid_max_segments;
		if (!state->in_use || state->key.database != MyDatabaseId ||
			state->fetcher != fetcher || !state->asked)
			continue;
		if (now < state->retry_at)
			*pause = Min(*pause, state->retry_at - now);
		else
			begin_fetch(segment, &fetches[n++]);
	}
	LWLockRelease(segments_lock);
	return n;
}

/* A range was fetched; the lock is held. */
static void
publish(Segment *segment, const Fetch *fetch, int64 now, int64 took_ms)
{
	SegmentState *state = &segment->state;

	put_range(segment, &fetch->range);
	state->high = fetch->range.last;
	state->newest = fetch->range.period.label;
	state->step = fetch->step;
	state->last_ms = state->fetched_at ? now - state->fetched_at : 0;
	state->last_length = range_length(&fetch->range);
	state->fetched_at = now;
	state->fetched_time = GetCurrentTimestamp();
	state->fetch_ms = took_ms;
	state->fetches++;
}

/* What was found counts for callers; the lock is held. */
static void
note_outcome(Segment *segment, const Fetch *fetch, int64 now)
{
	SegmentState *state = &segment->state;
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	bool		failed = fetch->outcome == OUTCOME_FAILED;

	state->outcome = fetch->outcome;
	state->outcome_attempt = fetch->state.attempt;
	state->reason = fetch->reason;

	/*
	 * what failed is tried again for who waits, and else for who takes a
	 * number
	 */
	state->asked = failed && now - state->used_at <= RECENT_MS;
	if (failed && !state->asked)
		pg_atomic_write_u64(&segment->slot[generation & 1].ask_at, 0);
	state->retry_at = failed ? now + RETRY_MS : 0;
	state->wish = 0;
	if (fetch->known)
	{
		state->known = true;
		state->row = fetch->row;
	}
}

/*
 * Publishes what was fetched, and is durable.  Where the row was changed by hand
 * since the fetch began, the range is lost, and another one is fetched.
 */
void
segment_finish(const Fetch *fetch, int64 took_ms)
{
	Segment    *segment = fetch->segment;
	SegmentState *state = &segment->state;
	int64		now = monotonic_ms();
	int64		lost = fetch->in_doubt;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (!segment_is_as_before(fetch))
		lost += fetch->outcome == OUTCOME_RANGE ? range_length(&fetch->range) : 0;
	else if (fetch->outcome == OUTCOME_MOVED)
	{							/* the caller calls the other process */
		state->fetcher = fetch->row.source[0] ? FETCHER_CENTRAL : FETCHER_HERE;
		state->high = 0;
		state->newest = NO_PERIOD;
	}
	else
	{
		if (fetch->outcome == OUTCOME_RANGE)
			publish(segment, fetch, now, took_ms);
		note_outcome(segment, fetch, now);
	}
	if (memcmp(&state->key, &fetch->state.key, sizeof(SegmentKey)) == 0)
		state->lost += lost;
	LWLockRelease(segments_lock);
	ConditionVariableBroadcast(&segment->changed);
}

/* Closes the segments of the tables here, from a place on; returns how many there are. */
int
segment_begin_returns(Fetch *returns, int max, int *at)
{
	int			n = 0;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (; *at < snowid_max_segments && n < max; (*at)++)
	{
		Segment    *segment = &segments[*at];
		Fetch	   *r = &returns[n];

		if (!segment->state.in_use || segment->state.key.database != MyDatabaseId ||
			segment->state.fetcher != FETCHER_HERE)
			continue;
		begin_fetch(segment, r);
		r->range = close_ranges(segment);
		if (range_length(&r->range) > 0)
			n++;
	}
	LWLockRelease(segments_lock);
	return n;
}

/* Is the row that of before?  To another one, nothing is given back. */
bool
segment_is_as_before(const Fetch *fetch)
{
	return pg_atomic_read_u64(&fetch->segment->incarnation) == fetch->incarnation;
}

/* A range was given back, or is lost. */
void
segment_end_return(const Fetch *fetch)
{
	SegmentState *state = &fetch->segment->state;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (segment_is_as_before(fetch))
	{
		if (!fetch->returned)
			state->lost += range_length(&fetch->range);
		else if (state->newest == fetch->range.period.label)
			state->high = Min(state->high, fetch->range.first - 1);
	}
	LWLockRelease(segments_lock);
}
