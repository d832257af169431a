/*
 * pool.c
 *		The segments of all tags, in shared memory.
 *
 * A segment never moves.  One that has nothing left is given to another tag when
 * there is no room; its generation goes on, and its incarnation is another one
 * before it is usable again.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "segment/fetcher.h"
#include "segment/pool.h"
#include "settings.h"

#define LOCK_NAME "snowid_segments"

typedef struct PoolEntry
{
	SegmentKey	key;
	int			index;
} PoolEntry;

Segment    *segments = NULL;
LWLock	   *segments_lock = NULL;

/* In shared memory, under segments_lock. */
static HTAB *pool = NULL;

/*---- Shared memory ----*/

static Size
segments_size(void)
{
	return add_size(mul_size(snowid_max_segments, sizeof(Segment)), PG_CACHE_LINE_SIZE);
}

void
pool_shmem_request(void)
{
	if (snowid_max_segments == 0)
		return;
	RequestAddinShmemSpace(segments_size());
	RequestAddinShmemSpace(fetcher_shmem_size());
	RequestAddinShmemSpace(hash_estimate_size(snowid_max_segments, sizeof(PoolEntry)));
	RequestNamedLWLockTranche(LOCK_NAME, 2);
}

/* Called with AddinShmemInitLock. */
void
pool_shmem_init(void)
{
	HASHCTL		info = {.keysize = sizeof(SegmentKey),.entrysize = sizeof(PoolEntry)};
	void	   *memory;
	bool		found;

	if (snowid_max_segments == 0)
		return;
	segments_lock = &GetNamedLWLockTranche(LOCK_NAME)[0].lock;
	fetcher_shmem_init(&GetNamedLWLockTranche(LOCK_NAME)[1].lock);
	pool = shmem_hash("snowid segments by tag", snowid_max_segments, &info,
					  HASH_ELEM | HASH_BLOBS);
	memory = ShmemInitStruct("snowid segments", segments_size(), &found);
	segments = (Segment *) TYPEALIGN(PG_CACHE_LINE_SIZE, memory);
	if (!found)
	{
		memset(memory, 0, segments_size());
		for (int i = 0; i < snowid_max_segments; i++)
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

/* A free segment, or one that is idle; NULL: none is. */
static Segment *
find_room(void)
{
	static int	clock = 0;
	int64		now = monotonic_ms();

	for (int i = 0; i < snowid_max_segments; i++)
	{
		Segment    *segment = &segments[clock];

		clock = (clock + 1) % snowid_max_segments;
		if (!segment->in_use)
			return segment;
		if (segment_is_idle(segment, now))
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
	segment_renew(segment);
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
		segment_touch(segment);
	}
	LWLockRelease(segments_lock);
	return segment;
}

/*
 * What the row's change by hand makes wrong is forgotten: of one tag, or of all
 * of a table.  Does not throw.
 */
void
pool_forget(const SegmentKey *key, Gone gone)
{
	PoolEntry  *entry;

	LWLockAcquire(segments_lock, LW_SHARED);
	entry = hash_search(pool, key, HASH_FIND, NULL);
	if (entry)
		segment_forget(&segments[entry->index], gone);
	LWLockRelease(segments_lock);
}

void
pool_forget_table(Oid relid, Gone gone)
{
	LWLockAcquire(segments_lock, LW_SHARED);
	for (int i = 0; i < snowid_max_segments; i++)
	{
		if (segments[i].in_use && segments[i].key.database == MyDatabaseId &&
			segments[i].key.relid == relid)
			segment_forget(&segments[i], gone);
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
		segment_status(segment, status);
	}
	LWLockRelease(segments_lock);
	return is_there;
}
