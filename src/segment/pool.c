/*
 * pool.c
 *		The segments of all tags: found, published, closed, and who fetches for
 *		them.
 *
 * A segment never moves.  One that has nothing left is given to another tag when
 * there is no room; its generation goes on, and its incarnation is another one
 * before it is usable again.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "process.h"
#include "segment/pool.h"
#include "settings.h"

#define LOCK_NAME "snowid_segments"

/* A process that was started and did not come within this is started again. */
#define COME_MS 2000

/* What failed is tried again after a pause that doubles; callers wait longer. */
#define FIRST_RETRY_MS 50
#define LAST_RETRY_MS 500

/* A range is tried to be fetched until so long after somebody wanted a number. */
#define WANTED_MS 10000

/* A segment that was looked up within this is not given away. */
#define RECENT_MS 1000

/* One process "snowid segments": it fetches for a database from a source. */
typedef struct Fetcher
{
	Oid			database;		/* 0: free */
	Oid			source;
	int			procno;			/* or -1: it was called */
	int64		called_at;		/* monotonic_ms() */
} Fetcher;

typedef struct PoolEntry
{
	SegmentKey	key;
	int			index;
} PoolEntry;

Segment    *segments = NULL;
LWLock	   *segments_lock = NULL;

/* In shared memory, under segments_lock. */
static Fetcher *fetchers = NULL;
static HTAB *pool = NULL;

/*---- Shared memory ----*/

static Size
segments_size(void)
{
	return add_size(mul_size(snowid_segments, sizeof(Segment)), PG_CACHE_LINE_SIZE);
}

static Size
fetchers_size(void)
{
	return mul_size(max_worker_processes, sizeof(Fetcher));
}

void
pool_shmem_request(void)
{
	if (snowid_segments == 0)
		return;
	RequestAddinShmemSpace(segments_size());
	RequestAddinShmemSpace(fetchers_size());
	RequestAddinShmemSpace(hash_estimate_size(snowid_segments, sizeof(PoolEntry)));
	RequestNamedLWLockTranche(LOCK_NAME, 1);
}

/* Called with AddinShmemInitLock. */
void
pool_shmem_init(void)
{
	HASHCTL		info = {.keysize = sizeof(SegmentKey),.entrysize = sizeof(PoolEntry)};
	void	   *memory;
	bool		found;

	if (snowid_segments == 0)
		return;
	segments_lock = &GetNamedLWLockTranche(LOCK_NAME)->lock;
	pool = ShmemInitHash("snowid segments by tag", snowid_segments, snowid_segments,
						 &info, HASH_ELEM | HASH_BLOBS);
	memory = ShmemInitStruct("snowid segments", segments_size(), &found);
	segments = (Segment *) TYPEALIGN(PG_CACHE_LINE_SIZE, memory);
	if (!found)
	{
		memset(memory, 0, segments_size());
		for (int i = 0; i < snowid_segments; i++)
		{
			Segment    *segment = &segments[i];

			pg_atomic_init_u64(&segment->cursor, 0);
			pg_atomic_init_u64(&segment->incarnation, 0);
			for (int j = 0; j < lengthof(segment->slot); j++)
			{
				pg_atomic_init_u64(&segment->slot[j].base, 0);
				pg_atomic_init_u64(&segment->slot[j].length, 0);
				pg_atomic_init_u64(&segment->slot[j].ask_at, 0);
			}
			ConditionVariableInit(&segment->changed);
			SpinLockInit(&segment->mutex);
		}
	}
	fetchers = ShmemInitStruct("snowid segments' processes", fetchers_size(), &found);
	if (!found)
		memset(fetchers, 0, fetchers_size());
}

/*---- A segment ----*/

/* What nobody has taken, of both slots; the mutex is held. */
static int64
count_left(Segment *segment, int64 *next, int64 *left_next)
{
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);
	uint64		generation = cursor_generation(cursor);
	Slot	   *slot = &segment->slot[generation & 1];

	*next = (int64) pg_atomic_read_u64(&slot->base) + cursor_offset(cursor);
	*left_next = segment->ready ?
		(int64) pg_atomic_read_u64(&segment->slot[(generation + 1) & 1].length) : 0;
	return (int64) pg_atomic_read_u64(&slot->length) - cursor_offset(cursor);
}

int64
segment_left(Segment *segment, int64 *next, int64 *left_next)
{
	int64		left;

	SpinLockAcquire(&segment->mutex);
	left = count_left(segment, next, left_next);
	SpinLockRelease(&segment->mutex);
	return left;
}

/* Puts a range into the slot that is not in use; the mutex is held. */
static void
put_ready(Segment *segment, const Range *range)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor)) + 1;
	Slot	   *slot = &segment->slot[generation & 1];
	int64		length = range->last - range->first + 1;

	Assert(!segment->ready && length > 0 && length <= OFFSET_MASK);
	pg_atomic_write_u64(&slot->base, (uint64) range->first);
	pg_atomic_write_u64(&slot->length, (uint64) length);
	pg_atomic_write_u64(&slot->ask_at, (uint64) length / 10);
	segment->ready = true;
}

/* The next range becomes the current one, at this offset; the mutex is held. */
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
 * Goes on to the next range where the current one has fewer than so many
 * numbers.  What is left of it is a part of what is wanted if the next range
 * continues it, and else is lost.
 */
Advance
segment_advance(Segment *segment, uint64 incarnation, int64 length, int64 *first)
{
	Advance		result = ADVANCED;

	SpinLockAcquire(&segment->mutex);
	while (pg_atomic_read_u64(&segment->incarnation) == incarnation)
	{
		uint64		cursor = pg_atomic_read_u64(&segment->cursor);
		uint64		generation = cursor_generation(cursor);
		Slot	   *current = &segment->slot[generation & 1];
		Slot	   *next = &segment->slot[(generation + 1) & 1];
		int64		left = (int64) pg_atomic_read_u64(&current->length) - cursor_offset(cursor);
		int64		left_next = (int64) pg_atomic_read_u64(&next->length);

		*first = (int64) pg_atomic_read_u64(&current->base) + cursor_offset(cursor);
		if (left >= length)
			break;
		if (!segment->ready)
		{
			result = EXHAUSTED;
			break;
		}
		if (left > 0 && left + left_next >= length &&
			(int64) pg_atomic_read_u64(&next->base) == *first + left)
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
	SpinLockRelease(&segment->mutex);
	return result;
}

void
segment_answer(Segment *segment, uint64 incarnation, Answer *answer)
{
	SpinLockAcquire(&segment->mutex);
	answer->loaded = segment->loaded &&
		pg_atomic_read_u64(&segment->incarnation) == incarnation;
	answer->role = segment->role;
	answer->limit = segment->limit;
	answer->outcome = segment->outcome;
	answer->attempt = segment->outcome_attempt;
	memcpy(answer->error, segment->error, sizeof(answer->error));
	SpinLockRelease(&segment->mutex);
}

/* In order, since they are given back from the last on; the mutex is held. */
static void
add_tail(Segment *segment, int64 first, int64 last)
{
	Range	   *tail = segment->tail;
	int			n = segment->tails;
	int			i = 0;

	if (last < first)
		return;
	while (i < n && tail[i].first < first)
		i++;
	if (i > 0 && tail[i - 1].last == first - 1)
		tail[i - 1].last = last;
	else if (i < n && tail[i].first == last + 1)
		tail[i].first = first;
	else if (n < TAILS)
	{
		memmove(&tail[i + 1], &tail[i], (n - i) * sizeof(Range));
		tail[i].first = first;
		tail[i].last = last;
		segment->tails++;
	}
	else
		segment->lost += last - first + 1;
}

/*
 * From here on no number of the two ranges is taken; they are to be given back.
 * The mutex is held.
 */
static void
close_cursor(Segment *segment)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	Slot	   *current = &segment->slot[generation & 1];
	Slot	   *next = &segment->slot[(generation + 1) & 1];
	int64		base = (int64) pg_atomic_read_u64(&current->base);
	int64		next_base = (int64) pg_atomic_read_u64(&next->base);
	int64		next_length = segment->ready ? (int64) pg_atomic_read_u64(&next->length) : 0;
	uint64		cursor;

	segment->ready = false;
	pg_atomic_write_u64(&next->length, 0);
	cursor = pg_atomic_exchange_u64(&segment->cursor, cursor_start(generation + 1));
	add_tail(segment, base + cursor_offset(cursor),
			 base + (int64) pg_atomic_read_u64(&current->length) - 1);
	add_tail(segment, next_base, next_base + next_length - 1);
}

/* The same. */
void
segment_close(Segment *segment)
{
	SpinLockAcquire(&segment->mutex);
	close_cursor(segment);
	SpinLockRelease(&segment->mutex);
}

/* Forgets what is known of the row; the mutex is held. */
static void
forget_row(Segment *segment)
{
	close_cursor(segment);
	segment->stale = segment->tails > 0;
	pg_atomic_fetch_add_u64(&segment->incarnation, 1);
	segment->source = InvalidOid;
	segment->outcome = OUTCOME_NONE;
	segment->error[0] = '\0';
	segment->loaded = false;
	segment->high = 0;
	segment->step = 0;
}

/*---- A segment, as who fetches sees it ----*/

/* Begins to fetch; false: nothing is wanted, or it is, after a pause of ms. */
bool
segment_begin(Segment *segment, Fetch *fetch, long *pause)
{
	int64		now = monotonic_ms();
	bool		begins = false;

	SpinLockAcquire(&segment->mutex);
	if (segment->asked && now < segment->retry_at)
		*pause = Min(*pause, segment->retry_at - now);
	else if (segment->asked)
	{
		begins = true;
		fetch->segment = segment;
		fetch->incarnation = pg_atomic_read_u64(&segment->incarnation);
		fetch->attempt = ++segment->attempt;
		fetch->wish = segment->wish;
		fetch->step = segment->step;
		fetch->lasted_ms = now - segment->fetched_at;
		fetch->high = segment->high;
		fetch->alone = segment->alone;
	}
	SpinLockRelease(&segment->mutex);
	return begins;
}

/*
 * Publishes what was fetched, and is durable.  Where the row was changed by hand
 * since the fetch began, the range is given back and another one is fetched.
 */
void
segment_finish(const Fetch *fetch, int64 took_us)
{
	Segment    *segment = fetch->segment;
	int64		now = monotonic_ms();
	TimestampTz now_us = GetCurrentTimestamp();
	bool		has_range = fetch->outcome == OUTCOME_RANGE;
	int64		ignored;
	int64		left_next;

	SpinLockAcquire(&segment->mutex);
	if (pg_atomic_read_u64(&segment->incarnation) != fetch->incarnation || segment->ready)
	{
		if (has_range)
			add_tail(segment, fetch->range.first, fetch->range.last);
		segment->stale = segment->tails > 0;
	}
	else if (fetch->moved)
		segment->source = fetch->source;
	else
	{
		segment->outcome = fetch->outcome;
		segment->outcome_attempt = fetch->attempt;
		segment->alone = fetch->alone;
		segment->retry_ms = fetch->outcome == OUTCOME_FAILED ?
			Min(Max(2 * segment->retry_ms, FIRST_RETRY_MS), LAST_RETRY_MS) : 0;
		segment->retry_at = now + segment->retry_ms;
		memcpy(segment->error, fetch->error, sizeof(segment->error));
		if (fetch->outcome == OUTCOME_RANGE || fetch->outcome == OUTCOME_USED_UP)
		{
			segment->loaded = true;
			segment->role = fetch->role;
			segment->limit = fetch->limit;
			segment->cover_ms = fetch->cover_ms;
		}
		if (has_range)
		{
			put_ready(segment, &fetch->range);
			segment->high = fetch->range.last;
			segment->step = fetch->step;
			segment->last_ms = segment->fetched_at ? now - segment->fetched_at : 0;
			segment->last_length = fetch->range.last - fetch->range.first + 1;
			segment->fetched_at = now;
			segment->fetched_unix_us = now_us;
			segment->fetch_us = took_us;
			segment->fetches++;
			segment->kept = false;
		}
		/* what failed is tried again while it may be needed */
		if (fetch->outcome != OUTCOME_FAILED ||
			(now - segment->used_at > WANTED_MS &&
			 count_left(segment, &ignored, &left_next) <= 0))
		{
			segment->asked = false;
			segment->wish = 0;
		}
	}
	SpinLockRelease(&segment->mutex);
	ConditionVariableBroadcast(&segment->changed);
}

/* What is to be given back, which is the caller's from here on; returns how many. */
int
segment_take_tails(Segment *segment, uint64 *incarnation, Range *ranges)
{
	int			n;

	SpinLockAcquire(&segment->mutex);
	*incarnation = pg_atomic_read_u64(&segment->incarnation) - segment->stale;
	segment->stale = false;
	n = segment->tails;
	memcpy(ranges, segment->tail, n * sizeof(Range));
	segment->tails = 0;
	SpinLockRelease(&segment->mutex);
	return n;
}

/*
 * What could not be given back is used, unless the row was changed by hand
 * meanwhile.
 */
void
segment_keep(Segment *segment, uint64 incarnation, const Range *ranges, int n)
{
	SpinLockAcquire(&segment->mutex);
	for (int i = 0; i < n; i++)
	{
		int64		length = ranges[i].last - ranges[i].first + 1;

		if (pg_atomic_read_u64(&segment->incarnation) != incarnation ||
			i >= lengthof(segment->slot) || length > OFFSET_MASK)
		{
			segment->lost += length;
			continue;
		}
		if (segment->ready)
			(void) switch_slot(segment, pg_atomic_read_u64(&segment->cursor), 0);
		put_ready(segment, &ranges[i]);
		segment->kept = true;
		segment->asked = false;
	}
	SpinLockRelease(&segment->mutex);
	ConditionVariableBroadcast(&segment->changed);
}

void
segment_count_lost(Segment *segment, int64 n)
{
	SpinLockAcquire(&segment->mutex);
	segment->lost += n;
	SpinLockRelease(&segment->mutex);
}

/* Numbers above this one were given back: the next range may begin there. */
void
segment_lower_high(Segment *segment, uint64 incarnation, int64 high)
{
	SpinLockAcquire(&segment->mutex);
	if (pg_atomic_read_u64(&segment->incarnation) == incarnation)
		segment->high = high;
	SpinLockRelease(&segment->mutex);
}

/* Another range is wanted, of such a length at least; returns who fetches. */
Oid
segment_ask(Segment *segment, int64 wish)
{
	Oid			source;
	uint64		generation;

	SpinLockAcquire(&segment->mutex);
	generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	pg_atomic_write_u64(&segment->slot[generation & 1].ask_at, PG_UINT64_MAX);
	segment->asked = segment->asked || !segment->ready;
	segment->wish = Max(segment->wish, wish);
	source = segment->source;
	SpinLockRelease(&segment->mutex);
	return source;
}

/*---- Tags ----*/

void
pool_make_key(SegmentKey *key, Oid relid, const char *tag, int len)
{
	Assert(len <= TAG_LEN);
	memset(key, 0, sizeof(*key));
	key->database = MyDatabaseId;
	key->relid = relid;
	key->len = len;
	memcpy(key->tag, tag, len);
}

/*
 * Can it be given to another tag?  One that has numbers which cannot be given
 * back counts as idle when it was not looked up lately: it loses them.
 */
static bool
is_idle(Segment *segment, int64 now)
{
	int64		ignored;
	int64		left_next;
	bool		idle;

	SpinLockAcquire(&segment->mutex);
	idle = !segment->asked && segment->tails == 0 && now - segment->used_at > RECENT_MS &&
		(segment->kept || (count_left(segment, &ignored, &left_next) <= 0 && left_next == 0));
	SpinLockRelease(&segment->mutex);
	return idle;
}

/* A free segment, or one that is idle; NULL: none is. */
static Segment *
find_room(void)
{
	static int	clock = 0;
	int64		now = monotonic_ms();

	for (int i = 0; i < snowid_segments; i++)
	{
		Segment    *segment = &segments[clock];

		clock = (clock + 1) % snowid_segments;
		if (!segment->in_use)
			return segment;
		if (is_idle(segment, now))
		{
			(void) hash_search(pool, &segment->key, HASH_REMOVE, NULL);
			segment->in_use = false;
			return segment;
		}
	}
	return NULL;
}

/* A tag's first look-up; NULL: there is no room. */
static Segment *
create_segment(const SegmentKey *key)
{
	Segment    *segment = find_room();
	PoolEntry  *entry;

	if (segment == NULL)
		return NULL;
	entry = hash_search(pool, key, HASH_ENTER_NULL, NULL);
	if (entry == NULL)
		return NULL;
	entry->index = segment - segments;
	SpinLockAcquire(&segment->mutex);
	forget_row(segment);
	segment->tails = 0;
	segment->stale = false;
	segment->asked = segment->kept = segment->alone = false;
	segment->wish = segment->retry_at = segment->retry_ms = 0;
	segment->fetched_at = segment->fetch_us = segment->last_ms = segment->last_length = 0;
	segment->fetches = segment->waits = segment->lost = 0;
	segment->used_at = monotonic_ms();
	SpinLockRelease(&segment->mutex);
	segment->key = *key;
	segment->in_use = true;
	return segment;
}

/* NULL: it is not there, and there is no room for it. */
Segment *
pool_find(const SegmentKey *key, bool create, uint64 *incarnation)
{
	PoolEntry  *entry;
	Segment    *segment = NULL;

	LWLockAcquire(segments_lock, LW_SHARED);
	entry = hash_search(pool, key, HASH_FIND, NULL);
	if (entry == NULL && create)
	{
		LWLockRelease(segments_lock);
		LWLockAcquire(segments_lock, LW_EXCLUSIVE);
		entry = hash_search(pool, key, HASH_FIND, NULL);
		if (entry == NULL)
			segment = create_segment(key);
	}
	if (entry)
		segment = &segments[entry->index];
	if (segment)
	{
		*incarnation = pg_atomic_read_u64(&segment->incarnation);
		SpinLockAcquire(&segment->mutex);
		segment->used_at = monotonic_ms();
		SpinLockRelease(&segment->mutex);
	}
	LWLockRelease(segments_lock);
	return segment;
}

/*
 * What the row's change by hand makes wrong is forgotten: of one tag, or of all
 * of a table.  Does not throw.
 */
void
pool_forget(const SegmentKey *key)
{
	PoolEntry  *entry;

	LWLockAcquire(segments_lock, LW_SHARED);
	entry = hash_search(pool, key, HASH_FIND, NULL);
	if (entry)
	{
		SpinLockAcquire(&segments[entry->index].mutex);
		forget_row(&segments[entry->index]);
		SpinLockRelease(&segments[entry->index].mutex);
	}
	LWLockRelease(segments_lock);
}

void
pool_forget_table(Oid relid)
{
	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_segments; i++)
	{
		if (!segments[i].in_use || segments[i].key.database != MyDatabaseId ||
			segments[i].key.relid != relid)
			continue;
		SpinLockAcquire(&segments[i].mutex);
		forget_row(&segments[i]);
		SpinLockRelease(&segments[i].mutex);
	}
	LWLockRelease(segments_lock);
}

/* False: there is none of this table at this place. */
bool
pool_status(int index, Oid relid, SegmentStatus *status)
{
	Segment    *segment = &segments[index];
	bool		is_there;

	LWLockAcquire(segments_lock, LW_SHARED);
	is_there = segment->in_use && segment->key.database == MyDatabaseId &&
		segment->key.relid == relid;
	if (is_there)
	{
		status->key = segment->key;
		SpinLockAcquire(&segment->mutex);
		status->source = segment->source;
		status->left = count_left(segment, &status->next, &status->left_next);
		status->step = segment->step;
		status->rate = segment->last_ms > 0 ?
			1000.0 * segment->last_length / segment->last_ms : 0;
		status->fetched_at = segment->fetched_unix_us;
		status->fetch_us = segment->fetch_us;
		status->fetches = segment->fetches;
		status->waits = segment->waits;
		status->lost = segment->lost;
		memcpy(status->error, segment->error, sizeof(status->error));
		SpinLockRelease(&segment->mutex);
	}
	LWLockRelease(segments_lock);
	return is_there;
}

/*---- Who fetches ----*/

/* segments_lock is held. */
static Fetcher *
find_fetcher(Oid database, Oid source)
{
	for (int i = 0; i < max_worker_processes; i++)
	{
		if (fetchers[i].database == database &&
			(database == InvalidOid || fetchers[i].source == source))
			return &fetchers[i];
	}
	return NULL;
}

/* segments_lock is held exclusively; NULL: there are as many as there can be. */
static Fetcher *
add_fetcher(Oid database, Oid source)
{
	Fetcher    *fetcher = find_fetcher(database, source);

	if (fetcher == NULL)
		fetcher = find_fetcher(InvalidOid, InvalidOid);
	for (int i = 0; fetcher == NULL && i < max_worker_processes; i++)
	{
		if (fetchers[i].procno < 0 && monotonic_ms() - fetchers[i].called_at > COME_MS)
			fetcher = &fetchers[i];
	}
	if (fetcher && (fetcher->database != database || fetcher->source != source))
	{
		fetcher->database = database;
		fetcher->source = source;
		fetcher->procno = -1;
		fetcher->called_at = 0;
	}
	return fetcher;
}

/*
 * Wakes the process that fetches from this source for this database, or starts
 * it; false: there is no place for it.
 */
bool
pool_call_fetcher(Oid source)
{
	Fetcher    *fetcher;
	BackgroundWorker worker;
	int			procno = -1;
	bool		start = false;

	LWLockAcquire(segments_lock, LW_SHARED);
	fetcher = find_fetcher(MyDatabaseId, source);
	if (fetcher)
		procno = fetcher->procno;
	LWLockRelease(segments_lock);
	if (procno < 0)
	{
		LWLockAcquire(segments_lock, LW_EXCLUSIVE);
		fetcher = add_fetcher(MyDatabaseId, source);
		if (fetcher)
		{
			procno = fetcher->procno;
			start = procno < 0 && (fetcher->called_at == 0 ||
								   monotonic_ms() - fetcher->called_at > COME_MS);
			if (start)
				fetcher->called_at = monotonic_ms();
		}
		LWLockRelease(segments_lock);
		if (fetcher == NULL)
			return false;
	}
	if (procno >= 0)
		process_set_latch(procno);
	if (!start)
		return true;

	process_describe(&worker, "snowid segments", "snowid_segments_main");
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(source);
	memcpy(worker.bgw_extra, &MyDatabaseId, sizeof(Oid));
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
		return true;
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	fetcher = find_fetcher(MyDatabaseId, source);
	if (fetcher && fetcher->procno < 0)
		fetcher->database = InvalidOid;
	LWLockRelease(segments_lock);
	return false;
}

/* Makes the caller the one who fetches; false: another process is. */
bool
pool_attach(Oid database, Oid source)
{
	Fetcher    *fetcher;
	bool		attached;

	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	fetcher = add_fetcher(database, source);
	attached = fetcher && fetcher->procno < 0;
	if (attached)
		fetcher->procno = MyProcNumber;
	LWLockRelease(segments_lock);
	return attached;
}

void
pool_detach(void)
{
	LWLockAcquire(segments_lock, LW_EXCLUSIVE);
	for (int i = 0; i < max_worker_processes; i++)
	{
		if (fetchers[i].database != InvalidOid && fetchers[i].procno == MyProcNumber)
			fetchers[i].database = InvalidOid;
	}
	LWLockRelease(segments_lock);
}
