/*
 * segment.c
 *		Segments in shared memory: the ranges of a tag, what is known of its row, and
 *		whether a range is wanted.
 *
 * Numbers are taken from the range of the cursor's generation.  The process that fetches
 * leaves the next one in the state; it becomes that of the next generation when the
 * cursor enters it (number.c has the proof).  Every number touches only atomics; all
 * else is under one lock for all segments, which is taken about once in a range, and
 * shared when a session meets a tag, or its row was changed.
 *
 * Those of which a range is wanted are in a list, in the order in which they began to be.
 *
 * A segment never moves.  If there is no room for a tag, some places are looked at in
 * turn: it gets one of the database that has most places, which must be more than the
 * tag's own has, and of those the one that was unused longest.  So no database can take
 * the places of the others, and the cost does not depend on how many there are.  The
 * numbers in memory of the former tag are lost.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "process.h"
#include "segment/segment.h"
#include "settings.h"

/* After a failure nothing is tried for so long; callers wait longer. */
#define RETRY_MS 200

/*
 * Callers that wait ask more often than this.  Their tag does not make room for another
 * one of its database.
 */
#define RECENT_MS 1000

/* So many places are looked at for one that can be given to another tag. */
#define LOOKED_AT 64

typedef struct Place
{
	SegmentKey	key;
	int			index;
} Place;

typedef struct Owner
{
	Oid			database;
	int			places;
} Owner;

typedef struct SegmentLists
{
	dlist_head	free;
	dlist_head	wanted;			/* state.wanted > 0 */
	int			next_place;		/* is looked at next, for room */
} SegmentLists;

static Segment *segments = NULL;	/* as many as snowid_max_segments says */
static LWLock *segments_lock = NULL;

/* under segments_lock */
static SegmentLists *lists = NULL;
static HTAB *places = NULL;
static HTAB *owners = NULL;		/* databases that have places */

/*---- Shared memory ----*/

void
segment_shmem(bool reserve)
{
	HASHCTL		info = {.keysize = sizeof(SegmentKey),.entrysize = sizeof(Place)};
	HASHCTL		owner_info = {.keysize = sizeof(Oid),.entrysize = sizeof(Owner)};
	char	   *area = shmem_area(reserve, "snowid segments",
								  snowid_max_segments * sizeof(Segment) + PG_CACHE_LINE_SIZE);

	lists = shmem_area(reserve, "snowid segments' lists", sizeof(SegmentLists));
	if (reserve)
	{
		RequestAddinShmemSpace(hash_estimate_size(snowid_max_segments, sizeof(Place)));
		RequestAddinShmemSpace(hash_estimate_size(snowid_max_segments + 1, sizeof(Owner)));
		RequestNamedLWLockTranche(SEGMENT_LOCKS, 2);
		return;
	}
	segments_lock = &GetNamedLWLockTranche(SEGMENT_LOCKS)[0].lock;
	places = shmem_hash("snowid segments by tag", snowid_max_segments, &info,
						HASH_ELEM | HASH_BLOBS);
	owners = shmem_hash("snowid segments by database", snowid_max_segments + 1, &owner_info,
						HASH_ELEM | HASH_BLOBS);
	dlist_init(&lists->free);
	dlist_init(&lists->wanted);
	segments = (Segment *) TYPEALIGN(PG_CACHE_LINE_SIZE, area);
	for (int i = 0; i < snowid_max_segments; i++)
	{
		pg_atomic_init_u64(&segments[i].cursor, 0);
		pg_atomic_init_u64(&segments[i].incarnation, 0);
		pg_atomic_init_u64(&segments[i].ask_at, 0);
		ConditionVariableInit(&segments[i].changed);
		dlist_push_tail(&lists->free, &segments[i].node);
	}
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
	Range		rest = segment->range[cursor_generation(cursor) & 1];

	rest.first += cursor_offset(cursor);
	rest.length -= cursor_offset(cursor);
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
	uint64		former;

	segment->range[generation & 1] = *next;
	pg_atomic_write_u64(&segment->ask_at, (uint64) next->length / 10);
	former = pg_atomic_exchange_u64(&segment->cursor, cursor_start(generation));
	memset(next, 0, sizeof(*next));
	return rest_at(segment, former);
}

/* A range of such a length is wanted, or none. */
static void
set_wanted(Segment *segment, int64 length)
{
	Assert(segment->state.key.len > 0);
	if (segment->state.wanted == 0 && length > 0)
		dlist_push_tail(&lists->wanted, &segment->node);
	else if (segment->state.wanted > 0 && length == 0)
		dlist_delete(&segment->node);
	segment->state.wanted = length;
}

/*
 * How many places a database has, when it got so many more.  Those that have none are not
 * in the table, but the one that asks: it has room for one more than there are places.
 */
static int
count_places(Oid database, int more)
{
	bool		found;
	Owner	   *owner = hash_search(owners, &database, HASH_ENTER, &found);
	int			n = (found ? owner->places : 0) + more;

	owner->places = n;
	if (n == 0)
		(void) hash_search(owners, &database, HASH_REMOVE, NULL);
	Assert(hash_get_num_entries(owners) <= snowid_max_segments);
	return n;
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
	set_wanted(segment, 0);
	(void) count_places(segment->state.key.database, -1);
	dlist_push_head(&lists->free, &segment->node);
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

/* A place that is free, or can be given to another tag; NULL: not among those looked at. */
static Segment *
find_place(int64 now)
{
	Segment    *found = NULL;
	int			own = count_places(MyDatabaseId, 0);
	int			most = 0;

	if (!dlist_is_empty(&lists->free))
		return dlist_container(Segment, node, dlist_head_node(&lists->free));
	for (int i = 0; i < LOOKED_AT; i++)
	{
		Segment    *segment = &segments[lists->next_place];
		SegmentState *state = &segment->state;
		bool		is_own = state->key.database == MyDatabaseId;
		int			n = count_places(state->key.database, 0);
		bool		is_waited_for = state->wanted > 0 && now - state->used_at <= RECENT_MS;

		lists->next_place = (lists->next_place + 1) % snowid_max_segments;
		if ((is_own ? !is_waited_for : n > own) &&
			(n > most || (n == most && state->used_at < found->state.used_at)))
		{
			most = n;
			found = segment;
		}
	}
	return found;
}

static Segment *
find_segment(const SegmentKey *key)
{
	Place	   *place = hash_search(places, key, HASH_FIND, NULL);

	return place ? &segments[place->index] : NULL;
}

static void
copy_segment(Segment *segment, Look *look)
{
	look->segment = segment;
	look->incarnation = pg_atomic_read_u64(&segment->incarnation);
	look->state = segment->state;
}

/* Is it the same tag, and was its row not changed by hand since? */
static bool
is_as_before(Segment *segment, uint64 incarnation)
{
	return pg_atomic_read_u64(&segment->incarnation) == incarnation;
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
		copy_segment(look->segment, look);
	}
	LWLockRelease(segments_lock);
}

/*
 * Is it a look at this tag, and still at its place, with a row that callers can use?
 * Without the lock: a place that another tag gets meanwhile is seen by its incarnation.
 */
bool
segment_is_known(const SegmentKey *key, const Look *look, int64 now)
{
	if (look->segment == NULL || memcmp(key, &look->state.key, sizeof(*key)) != 0 ||
		!look->state.row.is_valid || !is_as_before(look->segment, look->incarnation))
		return false;
	look->segment->state.used_at = now;
	return true;
}

/* A place for a tag that has none; false: not now. */
bool
segment_create(const SegmentKey *key, const char *source)
{
	Segment    *segment;
	int64		now = monotonic_ms();
	SegmentState fresh = {.key = *key,.used_at = now,.newest = NO_PERIOD};

	strlcpy(fresh.row.source, source, NAMEDATALEN);
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
			dlist_delete(&segment->node);
			(void) count_places(key->database, 1);
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
	if (is_as_before(look->segment, look->incarnation))
	{
		Range	   *next = &segment->state.next;
		Range		current = current_range(segment);

		if (current.length < length || now >= current.period.until)
		{
			good = next->length >= length;
			if (next->length > 0)
				(void) switch_range(segment);
		}
	}
	LWLockRelease(segments_lock);
	return good;
}

static FetcherKind
fetcher_of(const SegmentState *state)
{
	return state->row.source[0] ? FETCHER_CENTRAL : FETCHER_HERE;
}

/* Another range is wanted, of such a length at least; returns which process fetches. */
FetcherKind
segment_ask(Segment *segment, uint64 incarnation, int64 length, bool begins_to_wait)
{
	SegmentState *state = &segment->state;
	FetcherKind fetcher;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (is_as_before(segment, incarnation))
	{
		pg_atomic_write_u64(&segment->ask_at, PG_UINT64_MAX);
		state->used_at = monotonic_ms();
		if (state->next.length == 0)
			set_wanted(segment, Max(state->wanted, length));
		state->waits += begins_to_wait;
	}
	fetcher = fetcher_of(state);
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

	/* the lock again for each place, so that nobody waits for all */
	for (int i = 0; key->len == 0 && i < snowid_max_segments; i++)
	{
		const SegmentKey *other = &segments[i].state.key;

		LWLockAcquire(segments_lock, LW_EXCLUSIVE);
		if (other->database == key->database && other->relid == key->relid)
			(void) drop_segment(&segments[i]);
		LWLockRelease(segments_lock);
	}
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	segment = find_segment(key);
	if (segment && period >= current_range(segment).period.label)
		(void) drop_segment(segment);
	LWLockRelease(segments_lock);
}

/*---- For the status, and for the processes that fetch ----*/

/* False: there is no tag of this database at this place. */
bool
segment_at(int index, Look *look, Range *current)
{
	LWLockAcquire(segments_lock, LW_SHARED);
	copy_segment(&segments[index], look);
	*current = current_range(&segments[index]);
	LWLockRelease(segments_lock);
	return look->state.key.database == MyDatabaseId;
}

/*
 * The database that waits longest for a process, of those that have none, while callers
 * ask; false: none waits.
 */
bool
segment_next_in_line(bool (*has_process) (Oid database, FetcherKind kind), bool here_only,
					 Oid *database, FetcherKind *kind)
{
	int64		now = monotonic_ms();
	bool		found = false;
	dlist_iter	iter;

	LWLockAcquire(segments_lock, LW_SHARED);
	dlist_foreach(iter, &lists->wanted)
	{
		const SegmentState *state = &dlist_container(Segment, node, iter.cur)->state;

		*database = state->key.database;
		*kind = fetcher_of(state);
		found = now - state->used_at <= RECENT_MS && !(here_only && *kind != FETCHER_HERE) &&
			!has_process(*database, *kind);
		if (found)
			break;
	}
	LWLockRelease(segments_lock);
	return found;
}

/* A database that had its turn waits behind all others. */
void
segment_end_turn(Oid database, FetcherKind kind)
{
	dlist_mutable_iter iter;
	dlist_head	behind;

	dlist_init(&behind);
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	dlist_foreach_modify(iter, &lists->wanted)
	{
		const SegmentState *state = &dlist_container(Segment, node, iter.cur)->state;

		if (state->key.database == database && fetcher_of(state) == kind)
		{
			dlist_delete(iter.cur);
			dlist_push_tail(&behind, iter.cur);
		}
	}
	while (!dlist_is_empty(&behind))
		dlist_push_tail(&lists->wanted, dlist_pop_head_node(&behind));
	LWLockRelease(segments_lock);
}

/* Begins to look at the rows of which a range is wanted; returns how many. */
int
segment_begin_looks(FetcherKind fetcher, Look *looks, int max)
{
	int64		now = monotonic_ms();
	int			n = 0;
	dlist_iter	iter;

	LWLockAcquire(segments_lock, LW_SHARED);
	dlist_foreach(iter, &lists->wanted)
	{
		Segment    *segment = dlist_container(Segment, node, iter.cur);
		const SegmentState *state = &segment->state;

		if (state->key.database != MyDatabaseId || fetcher_of(state) != fetcher ||
			(state->reason.outcome >= OUTCOME_FAILED && now < state->looked_at + RETRY_MS))
			continue;
		copy_segment(segment, &looks[n]);
		looks[n++].state.looked_at = now;
		if (n == max)
			break;
	}
	LWLockRelease(segments_lock);
	return n;
}

/* Callers see what was found; the lock is held. */
static void
note_outcome(Segment *segment, const SegmentState *found)
{
	SegmentState *state = &segment->state;
	bool		has_failed = found->reason.outcome >= OUTCOME_FAILED;
	int64		now = monotonic_ms();

	if (found->next.length > 0 && !has_failed)
	{
		int64		lasted = state->fetched_at ? now - state->fetched_at : 0;

		Assert(state->next.length == 0 && found->next.length <= OFFSET_MASK);
		state->next = found->next;
		state->high = found->next.first + (found->next.length - 1);
		state->newest = found->next.period.label;
		state->step = found->step;
		state->rate = lasted > 0 ? 1000.0 * found->next.length / lasted : 0;
		state->fetched_at = now;
	}
	/* from its end: between two long looks others get the row's lock */
	state->looked_at = has_failed ? now : found->looked_at;
	state->reason = found->reason;
	/* a change that no trigger saw */
	if (state->row.is_valid && memcmp(&state->row, &found->row, sizeof(Row)) != 0)
	{
		pg_atomic_fetch_add_u64(&segment->incarnation, 1);
		/* what is left has no period of that kind */
		if (state->row.kind != found->row.kind)
			(void) switch_range(segment);
	}
	state->row = found->row;
	set_wanted(segment, 0);
	/* the next number asks again, as do callers that wait */
	if (has_failed)
		pg_atomic_write_u64(&segment->ask_at, 0);
}

/*
 * Publishes what was fetched, and is durable.  If the row was changed by hand since the
 * fetch began, the range is lost, and another one is fetched.
 */
void
segment_finish(const Look *look)
{
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (is_as_before(look->segment, look->incarnation))
		note_outcome(look->segment, &look->state);
	LWLockRelease(segments_lock);
	ConditionVariableBroadcast(&look->segment->changed);
}

/*
 * What is left of the ranges in memory, when the row is locked: nobody takes numbers of
 * it any more.  None, if the row was changed by hand before.
 */
Range
segment_drop(const Look *look)
{
	Range		rest = {0};

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (is_as_before(look->segment, look->incarnation))
		rest = drop_segment(look->segment);
	LWLockRelease(segments_lock);
	return rest;
}
