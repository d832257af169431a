/*
 * segment.c
 *		Segments in shared memory: the ranges of a tag, what is known of its row, and
 *		what is wanted of it.
 *
 * Two slots: numbers are taken from the one of the cursor's generation, and the
 * process that fetches fills the other.  A slot is written under the lock, and only
 * while the cursor is in the generation before (number.c has the proof).  What every
 * number touches are atomics; all else is under one lock for all segments, which is
 * taken about once in a range.
 *
 * A segment never moves.  Its place is given to another tag when there is no room:
 * that of the tag that was unused longest, of the database that has most places.  So
 * no database can take the places of the others.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "segment/fetcher.h"
#include "segment/segment.h"
#include "settings.h"

#define LOCK_NAME "snowid_segments"

/* What failed is tried again after a pause that doubles; callers wait longer. */
#define FIRST_RETRY_MS 50
#define LAST_RETRY_MS 500

/* A range is tried to be fetched until so long after a caller wanted a number. */
#define WANTED_MS 10000

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
static ConditionVariable *room = NULL;	/* a place became free */

/*---- Shared memory ----*/

static Size
segments_size(void)
{
	return add_size(mul_size(snowid_max_segments, sizeof(Segment)),
					sizeof(ConditionVariable) + PG_CACHE_LINE_SIZE);
}

void
segment_shmem_request(void)
{
	if (snowid_max_segments == 0)
		return;
	RequestAddinShmemSpace(segments_size());
	RequestAddinShmemSpace(fetcher_shmem_size());
	RequestAddinShmemSpace(hash_estimate_size(snowid_max_segments, sizeof(Place)));
	RequestNamedLWLockTranche(LOCK_NAME, 2);
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
		pg_atomic_init_u64(&segment->term[i].label, 0);
		pg_atomic_init_u64(&segment->term[i].until, 0);
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
	segments_lock = &GetNamedLWLockTranche(LOCK_NAME)[0].lock;
	fetcher_shmem_init(&GetNamedLWLockTranche(LOCK_NAME)[1].lock);
	places = shmem_hash("snowid segments by tag", snowid_max_segments, &info,
						HASH_ELEM | HASH_BLOBS);
	room = ShmemInitStruct("snowid segments", segments_size(), &found);
	segments = (Segment *) TYPEALIGN(PG_CACHE_LINE_SIZE, room + 1);
	if (found)
		return;
	memset(room, 0, segments_size());
	ConditionVariableInit(room);
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

/*---- Ranges: the lock is held ----*/

/* What nobody has taken, of both slots. */
static int64
left_of(Segment *segment, int64 *next, int64 *left_next)
{
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);
	uint64		generation = cursor_generation(cursor);
	Slot	   *slot = &segment->slot[generation & 1];

	*next = (int64) (pg_atomic_read_u64(&slot->base) + cursor_offset(cursor));
	*left_next = segment->ready ?
		(int64) pg_atomic_read_u64(&segment->slot[(generation + 1) & 1].length) : 0;
	return (int64) pg_atomic_read_u64(&slot->length) - cursor_offset(cursor);
}

static bool
has_numbers(Segment *segment)
{
	int64		next;
	int64		left_next;

	return left_of(segment, &next, &left_next) + left_next > 0;
}

/* The range of a slot, from this offset on. */
static Range
range_of(Segment *segment, uint64 generation, int64 offset)
{
	Slot	   *slot = &segment->slot[generation & 1];
	Term	   *term = &segment->term[generation & 1];
	uint64		base = pg_atomic_read_u64(&slot->base);
	Range		range;

	range.first = (int64) (base + offset);
	range.last = (int64) (base + pg_atomic_read_u64(&slot->length) - 1);
	range.period.label = (DateADT) pg_atomic_read_u64(&term->label);
	range.period.until = (TimestampTz) pg_atomic_read_u64(&term->until);
	return range;
}

/* Puts a range into the slot that is not in use. */
static void
put_range(Segment *segment, const Range *range)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor)) + 1;
	Slot	   *slot = &segment->slot[generation & 1];
	Term	   *term = &segment->term[generation & 1];
	int64		length = range_length(range);

	Assert(!segment->ready && length > 0 && length <= OFFSET_MASK);
	pg_atomic_write_u64(&slot->base, (uint64) range->first);
	pg_atomic_write_u64(&slot->length, (uint64) length);
	pg_atomic_write_u64(&slot->ask_at, (uint64) length / 10);
	pg_atomic_write_u64(&term->label, (uint64) range->period.label);
	pg_atomic_write_u64(&term->until, (uint64) range->period.until);
	segment->ready = true;
}

/* The next range becomes the current one, at this offset. */
static bool
switch_slot(Segment *segment, uint64 cursor, int64 offset)
{
	uint64		next = cursor_start(cursor_generation(cursor) + 1) + offset;

	if (!pg_atomic_compare_exchange_u64(&segment->cursor, &cursor, next))
		return false;
	segment->ready = false;
	return true;
}

/*
 * From here on no number of the two ranges is taken.  Returns their end, which the
 * table has seen last; what is before a gap is lost.
 */
static Range
close_ranges(Segment *segment)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	Range		next = range_of(segment, generation + 1, 0);
	bool		has_next = segment->ready;
	Range		rest;
	uint64		cursor;

	segment->ready = false;
	pg_atomic_write_u64(&segment->slot[(generation + 1) & 1].length, 0);
	cursor = pg_atomic_exchange_u64(&segment->cursor, cursor_start(generation + 1));
	rest = range_of(segment, generation, cursor_offset(cursor));
	if (!has_next)
		return rest;
	if (rest.period.label != next.period.label ||
		(uint64) rest.last + 1 != (uint64) next.first)
	{
		segment->lost += range_length(&rest);
		return next;
	}
	rest.last = next.last;
	return rest;
}

static void
lose_ranges(Segment *segment)
{
	Range		rest = close_ranges(segment);

	segment->lost += range_length(&rest);
}

/* Forgets what is known of the row. */
static void
forget_row(Segment *segment)
{
	lose_ranges(segment);
	pg_atomic_fetch_add_u64(&segment->incarnation, 1);
	segment->outcome = OUTCOME_NONE;
	segment->reason.why[0] = '\0';
	segment->known = false;
	segment->high = 0;
	segment->newest = NO_PERIOD;
	segment->step = 0;
}

/*---- Places: the lock is held exclusively ----*/

static void
free_place(Segment *segment)
{
	(void) hash_search(places, &segment->key, HASH_REMOVE, NULL);
	forget_row(segment);
	segment->in_use = false;
	segment->asked = segment->must_go = false;
}

/* How many places a database has. */
typedef struct Share
{
	Oid			database;
	int			n;
} Share;

/* The database that has most places; where several have, this one, if it is one. */
static Oid
greediest_database(void)
{
	Share	   *shares = palloc(64 * sizeof(Share));
	int			n = 0;
	int			at = 0;
	int			most = 0;

	for (int i = 0; i < snowid_max_segments; i++)
	{
		Oid			database = segments[i].key.database;

		if (!segments[i].in_use)
			continue;
		if (n == 0 || shares[at].database != database)
		{
			for (at = 0; at < n && shares[at].database != database; at++)
				;
			if (at == n && n >= 64 && (n & (n - 1)) == 0)
				shares = repalloc(shares, 2 * n * sizeof(Share));
			if (at == n)
			{
				shares[n].database = database;
				shares[n++].n = 0;
			}
		}
		shares[at].n++;
		if (shares[at].n > shares[most].n ||
			(shares[at].n == shares[most].n && database == MyDatabaseId))
			most = at;
	}
	return shares[most].database;
}

/*
 * The tag of a database that was unused longest.  One that is used from memory is
 * known by its cursor.
 */
static Segment *
longest_unused(Oid database, int64 now)
{
	Segment    *found = NULL;

	for (int i = 0; i < snowid_max_segments; i++)
	{
		Segment    *segment = &segments[i];
		uint64		cursor = pg_atomic_read_u64(&segment->cursor);

		if (segment->seen_cursor != cursor)
		{
			segment->seen_cursor = cursor;
			segment->used_at = now;
		}
		if (segment->in_use && segment->key.database == database &&
			(database != MyDatabaseId || !segment->asked ||
			 now - segment->used_at > RECENT_MS) &&
			(found == NULL || segment->used_at < found->used_at))
			found = segment;
	}
	return found;
}

/*
 * A free place; or one that has nothing that could be given back; or that of another
 * database, which loses what it has there.  NULL: the process of this database makes
 * room, or there is nothing that is not waited for.
 */
static Segment *
find_room(int64 now)
{
	static int	clock = 0;
	Segment    *victim;

	for (int i = 0; i < snowid_max_segments; i++)
	{
		Segment    *segment = &segments[clock];

		clock = (clock + 1) % snowid_max_segments;
		if (segment->in_use && !segment->asked && !has_numbers(segment) &&
			now - segment->used_at > RECENT_MS)
			free_place(segment);
		if (!segment->in_use)
			return segment;
	}
	victim = longest_unused(greediest_database(), now);
	if (victim && victim->key.database == MyDatabaseId && has_numbers(victim) &&
		fetcher_is_there(victim->fetcher))
	{
		victim->must_go = true;
		(void) fetcher_call(victim->fetcher);
		return NULL;
	}
	if (victim)
		free_place(victim);
	return victim;
}

/* From here on it is another tag's: what is still fetched for the former one is lost. */
static void
give_place(Segment *segment, const SegmentKey *key, FetcherKind fetcher, int64 now)
{
	Place	   *place = hash_search(places, key, HASH_ENTER, NULL);

	place->index = segment - segments;
	forget_row(segment);
	segment->key = *key;
	segment->in_use = true;
	segment->fetcher = fetcher;
	segment->asked = segment->must_go = false;
	segment->wish = segment->retry_at = segment->retry_ms = 0;
	segment->fetched_at = segment->fetch_us = segment->last_ms = segment->last_length = 0;
	segment->fetches = segment->waits = segment->lost = 0;
	segment->used_at = now;
	segment->seen_cursor = pg_atomic_read_u64(&segment->cursor);
}

static Segment *
find_segment(const SegmentKey *key)
{
	Place	   *place = hash_search(places, key, HASH_FIND, NULL);

	return place ? &segments[place->index] : NULL;
}

/*---- For callers ----*/

/* What is in memory of a tag. */
void
segment_look(const SegmentKey *key, Look *look)
{
	Segment    *segment;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	segment = find_segment(key);
	look->segment = segment;
	if (segment)
	{
		segment->used_at = monotonic_ms();
		look->incarnation = pg_atomic_read_u64(&segment->incarnation);
		look->known = segment->known;
		look->row = segment->row;
		look->outcome = segment->outcome;
		look->attempt = segment->attempt;
		look->outcome_attempt = segment->outcome_attempt;
		look->reason = segment->reason;
	}
	LWLockRelease(segments_lock);
}

/* A place for a tag that has none; false: not now. */
bool
segment_create(const SegmentKey *key, FetcherKind fetcher)
{
	bool		created = true;
	int64		now = monotonic_ms();

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (find_segment(key) == NULL)
	{
		Segment    *segment = find_room(now);

		created = segment != NULL;
		if (created)
			give_place(segment, key, fetcher, now);
	}
	LWLockRelease(segments_lock);
	return created;
}

void
segment_wait_for_room(long ms)
{
	ConditionVariablePrepareToSleep(room);
	(void) ConditionVariableTimedSleep(room, ms, own_wait(WAIT_SEGMENT));
	ConditionVariableCancelSleep();
}

/*
 * Goes on to the next range where the current one has fewer than so many
 * numbers, or its period has ended.  What is left of it is a part of what is
 * wanted if the next range continues it, and else is lost.
 */
Advance
segment_advance(const Look *look, TimestampTz now, int64 length, int64 *first)
{
	Segment    *segment = look->segment;
	Advance		result = ADVANCED;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	while (pg_atomic_read_u64(&segment->incarnation) == look->incarnation)
	{
		uint64		cursor = pg_atomic_read_u64(&segment->cursor);
		uint64		generation = cursor_generation(cursor);
		Range		current = range_of(segment, generation, cursor_offset(cursor));
		Range		next = range_of(segment, generation + 1, 0);
		int64		left = range_length(&current);
		bool		has_ended = left > 0 && now >= current.period.until;

		*first = current.first;
		if (left >= length && !has_ended)
			break;
		if (has_ended && (!segment->ready || now >= next.period.until))
			lose_ranges(segment);
		if (!segment->ready)
		{
			result = EXHAUSTED;
			break;
		}
		if (left > 0 && !has_ended && next.last - current.first + 1 >= length &&
			current.last == next.first - 1)
		{
			if (switch_slot(segment, cursor, length - left))
			{
				result = TAKEN;
				break;
			}
		}
		else if (switch_slot(segment, cursor, 0))
			segment->lost += left;
	}
	LWLockRelease(segments_lock);
	return result;
}

void
segment_begin_wait(Segment *segment)
{
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	segment->waits++;
	LWLockRelease(segments_lock);
}

/* Another range is wanted, of such a length at least; returns who fetches. */
FetcherKind
segment_ask(Segment *segment, int64 wish)
{
	FetcherKind fetcher;
	uint64		generation;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	pg_atomic_write_u64(&segment->slot[generation & 1].ask_at, PG_UINT64_MAX);
	segment->asked = segment->in_use && (segment->asked || !segment->ready);
	segment->wish = Max(segment->wish, wish);
	fetcher = segment->fetcher;
	LWLockRelease(segments_lock);
	return fetcher;
}

/*
 * The row was changed by hand, or the row of a period was deleted.  One that is older
 * than all of which there are numbers here changes nothing.  The lock is held.
 */
static void
forget(Segment *segment, DateADT period)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	DateADT		label = (DateADT) pg_atomic_read_u64(&segment->term[generation & 1].label);

	if (period >= Min(label, segment->newest))
		forget_row(segment);
}

/* What the row's change makes wrong is forgotten.  Does not throw. */
void
segment_forget(const SegmentKey *key, DateADT period)
{
	Segment    *segment;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	segment = find_segment(key);
	if (segment)
		forget(segment, period);
	LWLockRelease(segments_lock);
}

/* The same, of all tags of a table. */
void
segment_forget_table(Oid relid, DateADT period)
{
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (int i = 0; i < snowid_max_segments; i++)
	{
		if (segments[i].in_use && segments[i].key.database == MyDatabaseId &&
			segments[i].key.relid == relid)
			forget(&segments[i], period);
	}
	LWLockRelease(segments_lock);
}

/* False: there is none of this table at this place. */
bool
segment_status(int index, Oid relid, SegmentStatus *status)
{
	Segment    *segment = &segments[index];
	bool		is_there;

	LWLockAcquire(segments_lock, LW_SHARED);
	is_there = segment->in_use && segment->key.database == MyDatabaseId &&
		segment->key.relid == relid;
	if (is_there)
	{
		status->key = segment->key;
		strlcpy(status->source, segment->known ? segment->row.source : "", SOURCE_LEN);
		status->left = left_of(segment, &status->next, &status->left_next);
		status->period = segment->newest;
		status->step = segment->step;
		status->rate = segment->last_ms > 0 ?
			1000.0 * segment->last_length / segment->last_ms : 0;
		status->fetched_at = segment->fetched_time;
		status->fetch_us = segment->fetch_us;
		status->fetches = segment->fetches;
		status->waits = segment->waits;
		status->lost = segment->lost;
		strlcpy(status->error, segment->reason.why, SEGMENT_ERROR_LEN);
	}
	LWLockRelease(segments_lock);
	return is_there;
}

/*---- For the processes that fetch ----*/

/* Is this segment looked after by this process? */
static bool
is_mine(const Segment *segment, FetcherKind fetcher)
{
	return segment->in_use && segment->key.database == MyDatabaseId &&
		segment->fetcher == fetcher;
}

static void
begin_fetch(Segment *segment, Fetch *fetch, int64 now)
{
	memset(fetch, 0, sizeof(*fetch));
	fetch->segment = segment;
	fetch->key = segment->key;
	fetch->incarnation = pg_atomic_read_u64(&segment->incarnation);
	fetch->attempt = ++segment->attempt;
	fetch->wish = segment->wish;
	fetch->last_step = segment->step;
	fetch->lasted_ms = now - segment->fetched_at;
	fetch->high = segment->high;
	fetch->newest = segment->newest;
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

		from = (from + 1) % snowid_max_segments;
		if (!is_mine(segment, fetcher) || !segment->asked)
			continue;
		if (now < segment->retry_at)
			*pause = Min(*pause, segment->retry_at - now);
		else
			begin_fetch(segment, &fetches[n++], now);
	}
	LWLockRelease(segments_lock);
	return n;
}

/* A range was fetched; the lock is held. */
static void
publish(Segment *segment, const Fetch *fetch, int64 now, int64 took_us)
{
	put_range(segment, &fetch->range);
	segment->high = fetch->range.last;
	segment->newest = fetch->range.period.label;
	segment->step = fetch->step;
	segment->last_ms = segment->fetched_at ? now - segment->fetched_at : 0;
	segment->last_length = range_length(&fetch->range);
	segment->fetched_at = now;
	segment->fetched_time = GetCurrentTimestamp();
	segment->fetch_us = took_us;
	segment->fetches++;
}

/* What was found counts for callers; the lock is held. */
static void
note_outcome(Segment *segment, const Fetch *fetch, int64 now)
{
	bool		failed = fetch->outcome == OUTCOME_FAILED;

	segment->outcome = fetch->outcome;
	segment->outcome_attempt = fetch->attempt;
	segment->reason = fetch->reason;
	segment->retry_ms = failed ?
		Min(Max(2 * segment->retry_ms, FIRST_RETRY_MS), LAST_RETRY_MS) : 0;
	segment->retry_at = now + segment->retry_ms;
	if (fetch->known)
	{
		segment->known = true;
		segment->row = fetch->row;
	}
	/* what failed is tried again while it may be needed */
	if (!failed || (now - segment->used_at > WANTED_MS && !has_numbers(segment)))
	{
		segment->asked = false;
		segment->wish = 0;
	}
}

/*
 * Publishes what was fetched, and is durable.  Where the row was changed by hand
 * since the fetch began, the range is lost, and another one is fetched.
 */
void
segment_finish(const Fetch *fetch, int64 took_us)
{
	Segment    *segment = fetch->segment;
	int64		now = monotonic_ms();
	int64		lost = fetch->in_doubt;
	bool		moved = false;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u64(&segment->incarnation) != fetch->incarnation || segment->ready)
		lost += fetch->outcome == OUTCOME_RANGE ? range_length(&fetch->range) : 0;
	else if (fetch->outcome == OUTCOME_MOVED)
	{
		segment->fetcher = fetch->row.source[0] ? FETCHER_CENTRAL : FETCHER_HERE;
		segment->high = 0;
		segment->newest = NO_PERIOD;
		moved = true;
	}
	else
	{
		if (fetch->outcome == OUTCOME_RANGE)
			publish(segment, fetch, now, took_us);
		note_outcome(segment, fetch, now);
	}
	if (memcmp(&segment->key, &fetch->key, sizeof(SegmentKey)) == 0)
		segment->lost += lost;
	LWLockRelease(segments_lock);
	ConditionVariableBroadcast(&segment->changed);
	if (moved)
		(void) fetcher_call(fetch->row.source[0] ? FETCHER_CENTRAL : FETCHER_HERE);
}

/*
 * Closes the segments whose places are wanted, or all, from a place on; returns how
 * many of them there are.
 */
int
segment_begin_returns(FetcherKind fetcher, bool all, Return *returns, int max, int *at)
{
	int			n = 0;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (; *at < snowid_max_segments && n < max; (*at)++)
	{
		Segment    *segment = &segments[*at];
		Return	   *r = &returns[n];

		if (!is_mine(segment, fetcher) || !(segment->must_go || (all && has_numbers(segment))))
			continue;
		r->segment = segment;
		r->key = segment->key;
		r->incarnation = pg_atomic_read_u64(&segment->incarnation);
		strlcpy(r->source, segment->row.source, SOURCE_LEN);
		r->range = close_ranges(segment);
		r->done = false;
		n++;
	}
	LWLockRelease(segments_lock);
	return n;
}

/* Is the row that of which the range was taken?  To another one, nothing is given back. */
bool
segment_is_as_before(const Return *r)
{
	return pg_atomic_read_u64(&r->segment->incarnation) == r->incarnation;
}

/* A range was given back, or is lost; and its place is free, if that is wanted. */
void
segment_end_return(const Return *r)
{
	Segment    *segment = r->segment;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	if (segment_is_as_before(r))
	{
		if (!r->done)
			segment->lost += range_length(&r->range);
		else if (segment->newest == r->range.period.label)
			segment->high = Min(segment->high, r->range.first - 1);
		if (segment->must_go && !segment->asked)
			free_place(segment);
		segment->must_go = false;
	}
	LWLockRelease(segments_lock);
	ConditionVariableBroadcast(room);
}

/* Is nothing wanted of this process? */
bool
segment_is_idle(FetcherKind fetcher)
{
	bool		idle = true;

	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_max_segments && idle; i++)
		idle = !is_mine(&segments[i], fetcher) ||
			!(segments[i].asked || segments[i].must_go);
	LWLockRelease(segments_lock);
	return idle;
}

/* The process leaves: callers that still wait ask again. */
void
segment_unask(FetcherKind fetcher)
{
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (int i = 0; i < snowid_max_segments; i++)
	{
		if (is_mine(&segments[i], fetcher))
			segments[i].asked = segments[i].must_go = false;
	}
	LWLockRelease(segments_lock);
}
