/*
 * segment.c
 *		Segments in shared memory: the ranges of a tag, what is known of its row, and
 *		whether a range is wanted.
 *
 * Numbers are taken from the slot of the cursor's generation.  The process that fetches
 * leaves the range after it beside the slots; the next generation's slot is written when
 * the cursor enters it (number.c has the proof).  Every number touches only atomics; all
 * else is under one lock for all segments, which is taken about once in a range, and
 * shared once in a statement.
 *
 * A segment never moves.  If there is no room for a tag, it gets the place that was
 * unused longest in the database that has most places.  So no database can take the
 * places of the others.  The numbers in memory of the former tag are lost.
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
#include "process.h"
#include "segment/segment.h"
#include "settings.h"

/* After a failure nothing is tried for so long; callers wait longer. */
#define RETRY_MS 200

/* A tag that a caller waits for does not make room for another one of its database. */
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
	RequestAddinShmemSpace(segments_size());
	RequestAddinShmemSpace(hash_estimate_size(snowid_max_segments, sizeof(Place)));
	RequestNamedLWLockTranche(SEGMENT_LOCKS, 2);
}

static void
init_segment(Segment *segment)
{
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

	segments_lock = &GetNamedLWLockTranche(SEGMENT_LOCKS)[0].lock;
	places = shmem_hash("snowid segments by tag", snowid_max_segments, &info,
						HASH_ELEM | HASH_BLOBS);
	segments = (Segment *) TYPEALIGN(PG_CACHE_LINE_SIZE,
									 shmem_zeroed("snowid segments", segments_size()));
	for (int i = 0; i < snowid_max_segments; i++)
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

/*---- Ranges and places: the lock is held ----*/

/* The numbers that are left where the cursor is. */
static Range
rest_at(Segment *segment, uint64 cursor)
{
	Slot	   *slot = &segment->slot[cursor_generation(cursor) & 1];
	Range		rest;

	rest.first = (int64) (pg_atomic_read_u64(&slot->base) + cursor_offset(cursor));
	rest.length = (int64) pg_atomic_read_u64(&slot->length) - cursor_offset(cursor);
	rest.period.label = (DateADT) pg_atomic_read_u64(&slot->label);
	rest.period.until = (TimestampTz) pg_atomic_read_u64(&slot->until);
	return rest;
}

static Range
current_range(Segment *segment)
{
	return rest_at(segment, pg_atomic_read_u64(&segment->cursor));
}

/*
 * The next range, or none, becomes the current one.  From here on no number of the former
 * one is taken; returns what was left of it.
 */
static Range
switch_range(Segment *segment)
{
	Range	   *next = &segment->state.next;
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor)) + 1;
	Slot	   *slot = &segment->slot[generation & 1];
	uint64		former;

	pg_atomic_write_u64(&slot->base, (uint64) next->first);
	pg_atomic_write_u64(&slot->length, (uint64) next->length);
	pg_atomic_write_u64(&slot->ask_at, (uint64) next->length / 10);
	pg_atomic_write_u64(&slot->label, (uint64) next->period.label);
	pg_atomic_write_u64(&slot->until, (uint64) next->period.until);
	former = pg_atomic_exchange_u64(&segment->cursor, cursor_start(generation));
	memset(next, 0, sizeof(*next));
	return rest_at(segment, former);
}

/*
 * Frees a place, and changes its incarnation: what is being fetched for it is lost.
 * Returns the end of the numbers in memory; those before a gap are lost.
 */
static Range
drop_segment(Segment *segment)
{
	Range		next = segment->state.next;
	Range		rest;

	memset(&segment->state.next, 0, sizeof(Range));
	rest = switch_range(segment);
	pg_atomic_fetch_add_u64(&segment->incarnation, 1);
	(void) hash_search(places, &segment->state.key, HASH_REMOVE, NULL);
	memset(&segment->state, 0, sizeof(SegmentState));
	if (next.length == 0)
		return rest;
	if (rest.period.label == next.period.label && rest.first == next.first - rest.length)
	{
		next.first = rest.first;
		next.length += rest.length;
	}
	return next;
}

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

/* After a failure its callers have to wake up before they ask again. */
static bool
is_waited_for(const SegmentState *state, int64 now)
{
	return (state->asked || now < state->retry_at) && now - state->used_at <= RECENT_MS;
}

/*
 * A free place, or the one that was unused longest in a database: each statement looks at
 * its tag.  NULL: callers wait for all of them.
 */
static Segment *
find_place(int64 now)
{
	Segment    *found = NULL;
	Oid			database;

	for (int i = 0; i < snowid_max_segments; i++)
	{
		if (segments[i].state.key.len == 0)
			return &segments[i];
	}
	database = greediest_database();
	for (int i = 0; i < snowid_max_segments; i++)
	{
		SegmentState *state = &segments[i].state;

		if (state->key.database == database &&
			(database != MyDatabaseId || !is_waited_for(state, now)) &&
			(found == NULL || state->used_at < found->state.used_at))
			found = &segments[i];
	}
	return found;
}

static Segment *
find_segment(const SegmentKey *key)
{
	Place	   *place = hash_search(places, key, HASH_FIND, NULL);

	return place ? &segments[place->index] : NULL;
}

/*---- For callers ----*/

/* Looks a tag up in memory.  Callers that do so at the same time write the same time. */
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
	SegmentState fresh = {.key = *key,.fetcher = fetcher,.used_at = now,.newest = NO_PERIOD};

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	segment = find_segment(key);
	if (segment == NULL)
	{
		segment = find_place(now);
		if (segment)
		{
			if (segment->state.key.len > 0)
				(void) drop_segment(segment);
			((Place *) hash_search(places, key, HASH_ENTER, NULL))->index = segment - segments;
			segment->state = fresh;
		}
	}
	LWLockRelease(segments_lock);
	return segment != NULL;
}

/*
 * Switches to the next range if the current one has fewer than so many numbers, or its
 * period has ended; the rest of it is lost.  False: a range must be fetched.
 */
bool
segment_advance(const Look *look, TimestampTz now, int64 length)
{
	Segment    *segment = look->segment;
	bool		good = true;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u64(&segment->incarnation) == look->incarnation)
	{
		Range	   *next = &segment->state.next;
		Range		current = current_range(segment);
		bool		has_ended = current.length > 0 && now >= current.period.until;

		if (now >= next->period.until)
			memset(next, 0, sizeof(*next));
		if (current.length < length || has_ended)
		{
			good = next->length >= length;
			if (next->length > 0 || has_ended)
				(void) switch_range(segment);
		}
	}
	LWLockRelease(segments_lock);
	return good;
}

/* Another range is wanted, of such a length at least; returns which process fetches. */
FetcherKind
segment_ask(Segment *segment, int64 needed, bool begins_to_wait)
{
	SegmentState *state = &segment->state;
	FetcherKind fetcher;
	uint64		generation;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	pg_atomic_write_u64(&segment->slot[generation & 1].ask_at, PG_UINT64_MAX);
	state->asked = state->key.len > 0 && state->next.length == 0;
	state->needed = Max(state->needed, needed);
	state->waits += begins_to_wait;
	fetcher = state->fetcher;
	LWLockRelease(segments_lock);
	return fetcher;
}

/*
 * A tag's row was changed by hand, or that of a period deleted: what is in memory of it,
 * or of all tags of the table if the key has none, is dropped; but not if only numbers
 * of later periods are left.  Does not throw.
 */
void
segment_forget(const SegmentKey *key, DateADT period)
{
	Segment    *segment;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (int i = 0; key->len == 0 && i < snowid_max_segments; i++)
	{
		const SegmentKey *other = &segments[i].state.key;

		if (other->len > 0 && other->database == key->database && other->relid == key->relid)
			(void) drop_segment(&segments[i]);
	}
	segment = find_segment(key);
	if (segment && period >= current_range(segment).period.label)
		(void) drop_segment(segment);
	LWLockRelease(segments_lock);
}

/* False: there is none of this table at this place. */
bool
segment_status(int index, Oid relid, SegmentState *state, Range *current)
{
	LWLockAcquire(segments_lock, LW_SHARED);
	*state = segments[index].state;
	*current = current_range(&segments[index]);
	LWLockRelease(segments_lock);
	return state->key.len > 0 && state->key.database == MyDatabaseId && state->key.relid == relid;
}

/*---- For the processes that fetch ----*/

static bool
is_fetched_by(const Segment *segment, FetcherKind fetcher)
{
	return segment->state.key.len > 0 && segment->state.key.database == MyDatabaseId &&
		segment->state.fetcher == fetcher;
}

static void
begin_fetch(Segment *segment, Fetch *fetch)
{
	memset(fetch, 0, sizeof(*fetch));
	segment->state.looks++;
	fetch->segment = segment;
	fetch->incarnation = pg_atomic_read_u64(&segment->incarnation);
	fetch->state = segment->state;
	fetch->row = segment->state.row;
}

/* Is it the same tag, and was its row not changed by hand since? */
static bool
is_as_before(const Fetch *fetch)
{
	return pg_atomic_read_u64(&fetch->segment->incarnation) == fetch->incarnation;
}

/* Begins to fetch what is wanted; returns how many. */
int
segment_begin_fetches(FetcherKind fetcher, Fetch *fetches, int max)
{
	static int	from = 0;		/* in turn, if there are more */
	int64		now = monotonic_ms();
	int			n = 0;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (int i = 0; i < snowid_max_segments && n < max; i++)
	{
		Segment    *segment = &segments[from];

		from = (from + 1) % snowid_max_segments;
		if (is_fetched_by(segment, fetcher) && segment->state.asked &&
			now >= segment->state.retry_at)
			begin_fetch(segment, &fetches[n++]);
	}
	LWLockRelease(segments_lock);
	return n;
}

/* Callers see what was found; the lock is held. */
static void
note_outcome(Segment *segment, const Fetch *fetch)
{
	SegmentState *state = &segment->state;
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	int64		now = monotonic_ms();

	if (fetch->outcome == OUTCOME_RANGE)
	{
		Assert(state->next.length == 0 && fetch->range.length <= OFFSET_MASK);
		state->next = fetch->range;
		state->high = fetch->range.first + (fetch->range.length - 1);
		state->newest = fetch->range.period.label;
		state->step = fetch->step;
		state->last_ms = state->fetched_at ? now - state->fetched_at : 0;
		state->last_length = fetch->range.length;
		state->fetched_at = now;
	}
	state->outcome_of = fetch->state.looks;
	state->outcome = fetch->outcome;
	state->reason = fetch->reason;
	state->row = fetch->row;
	state->asked = false;
	state->needed = 0;
	state->retry_at = 0;
	if (fetch->outcome == OUTCOME_FAILED)
	{
		/* the next number asks again, as do callers that wait */
		state->retry_at = now + RETRY_MS;
		pg_atomic_write_u64(&segment->slot[generation & 1].ask_at, 0);
	}
}

/*
 * Publishes what was fetched, and is durable.  If the row was changed by hand since the
 * fetch began, the range is lost, and another one is fetched.
 */
void
segment_finish(const Fetch *fetch)
{
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (is_as_before(fetch) && fetch->outcome == OUTCOME_MOVED)
		(void) drop_segment(fetch->segment);	/* callers look at the table */
	else if (is_as_before(fetch))
		note_outcome(fetch->segment, fetch);
	LWLockRelease(segments_lock);
	ConditionVariableBroadcast(&fetch->segment->changed);
}

/* False: nothing of this place can be given back to the tables here. */
bool
segment_begin_return(int index, Fetch *fetch)
{
	Segment    *segment = &segments[index];
	bool		found;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	found = is_fetched_by(segment, FETCHER_HERE) &&
		current_range(segment).length + segment->state.next.length > 0;
	if (found)
		begin_fetch(segment, fetch);
	LWLockRelease(segments_lock);
	return found;
}

/*
 * The range that can be given back, when its row is locked: nobody takes numbers of it
 * any more.  None, if the row was changed by hand before.
 */
Range
segment_end_return(const Fetch *fetch)
{
	Range		rest = {0};

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (is_as_before(fetch))
		rest = drop_segment(fetch->segment);
	LWLockRelease(segments_lock);
	return rest;
}
