/*
 * origin.c
 *		snowid's replication origins: their names, and their catalog, in which
 *		snowid looks them up, creates and drops them.
 *
 * For the process "snowid origin" alone, which does not run during recovery;
 * except origin_other_layout().
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_replication_origin.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "keeper/origin.h"
#include "key/layout.h"
#include "registry/claim.h"
#include "settings.h"

#define DAY_MS (INT64CONST(24) * 3600 * 1000)

/* So many besides the pair's own may stay while there is room. */
#define FEW 3

/* The lock for a drop is held for a moment, or until a transaction ends. */
#define LOCK_MS 500

/*---- Names ----*/

/* One of our origins. */
typedef struct Origin
{
	char	   *name;
	RepOriginId id;
	Layout		layout;
	int			datacenter_id;
	int			worker_id;
	int64		ms;				/* its position; 0: none */
} Origin;

static void
origin_name(char *name, const Layout *layout, int datacenter_id, int worker_id)
{
	snprintf(name, NAMEDATALEN, "snowid_" INT64_FORMAT "_%d_%d_%d_%d_%d",
			 layout->epoch, layout->datacenter_bits, layout->worker_bits,
			 layout->sequence_bits, datacenter_id, worker_id);
}

/* Reads layout and pair from an origin's name; false: it is not ours. */
static bool
read_name(const char *name, Origin *origin)
{
	Layout	   *layout = &origin->layout;
	char		again[NAMEDATALEN];
	long long	epoch = 0;

	/* another name is not the same when it is made again */
	memset(origin, 0, sizeof(*origin));
	(void) sscanf(name, "snowid_%lld_%d_%d_%d_%d_%d", &epoch,
				  &layout->datacenter_bits, &layout->worker_bits,
				  &layout->sequence_bits, &origin->datacenter_id,
				  &origin->worker_id);
	layout->epoch = epoch;
	layout->tick = 1;
	origin_name(again, layout, origin->datacenter_id, origin->worker_id);
	return strcmp(name, again) == 0 && layout_unusable(layout) == NULL &&
		origin->datacenter_id >= 0 && origin->worker_id >= 0 &&
		origin->datacenter_id >> layout->datacenter_bits == 0 &&
		origin->worker_id >> layout->worker_bits == 0;
}

static bool
is_pair(const Origin *origin, int datacenter_id, int worker_id)
{
	return layout_equal(&origin->layout, &server_layout) &&
		origin->datacenter_id == datacenter_id && origin->worker_id == worker_id;
}

/* A position that no keeper wrote; arithmetic with it could overflow. */
static bool
is_wild(const Origin *origin)
{
	return origin->ms != 0 &&
		(origin->ms < 0 || !layout_has_time(&origin->layout, origin->ms));
}

static int
by_time(const ListCell *a, const ListCell *b)
{
	int64		ms_a = ((Origin *) lfirst(a))->ms;
	int64		ms_b = ((Origin *) lfirst(b))->ms;

	return ms_a < ms_b ? -1 : ms_a > ms_b;
}

/* All of our origins, oldest first, and the number of all origins. */
static List *
read_origins(int *count)
{
	List	   *origins = NIL;
	Relation	rel = table_open(ReplicationOriginRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	*count = 0;
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		char	   *name = TextDatumGetCString(heap_getattr(tuple, Anum_pg_replication_origin_roname,
															RelationGetDescr(rel), &isnull));
		Origin	   *origin = palloc(sizeof(Origin));

		(*count)++;
		if (!read_name(name, origin))
			continue;
		origin->name = name;
		origin->id = (RepOriginId)
			((Form_pg_replication_origin) GETSTRUCT(tuple))->roident;
		origin->ms = (int64) replorigin_get_progress(origin->id, false);
		origins = lappend(origins, origin);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	list_sort(origins, by_time);
	return origins;
}

/*---- The catalog ----*/

/*
 * Keeps others from creating and dropping origins until the transaction ends.
 * Throws if another transaction does the same for longer than LOCK_MS.
 */
static void
lock_origins(void)
{
	for (int waited = 0; !ConditionalLockRelationOid(ReplicationOriginRelationId, ExclusiveLock); waited += 10)
	{
		if (waited >= LOCK_MS)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("another transaction that created or dropped a replication origin is still in progress")));
		pg_usleep(10 * 1000);
	}
}

/*
 * The names of origins that may be dropped, of pairs that this server no longer
 * uses: not the pair's own.  Their ceiling must be a day in the past, both by
 * the clock, which may be wrong, and by the newest ceiling within reach.  If room
 * for origins is short, or there are more than a few, max_jump in the past is
 * enough; and if pairs come from Redis, whose records have the ceiling too, any
 * time in the past.  The newest one stays: it tells which layout came last, and how
 * far its keys went.
 */
static List *
list_old(const OriginQuestion *question, List *origins, int count)
{
	int64		now_ms = unix_ms_from_timestamptz(GetCurrentTimestamp());
	int64		newest_ms = 0;
	int64		newest_own_ms = 0;	/* of this layout */
	int			others = 0;
	List	   *list = NIL;
	ListCell   *cell;

	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		if (!is_pair(origin, question->datacenter_id, question->worker_id))
			others++;
		if (origin->ms > question->reach_ms)
			continue;
		newest_ms = Max(newest_ms, origin->ms);
		if (layout_equal(&origin->layout, &server_layout))
			newest_own_ms = Max(newest_own_ms, origin->ms);
	}
	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);
		int64		past_ms = Min(now_ms, newest_ms);
		bool		may_go = origin->ms == 0 || origin->ms < past_ms - DAY_MS;

		if (is_pair(origin, question->datacenter_id, question->worker_id) ||
			is_pair(origin, question->old_datacenter_id, question->old_worker_id))
			continue;
		if (count > max_active_replication_origins - 2 || others > FEW)
			may_go = may_go || origin->ms < past_ms - question->max_jump ||
				(claim_from_redis() &&
				 layout_equal(&origin->layout, &server_layout) &&
				 origin->ms < Min(now_ms, newest_own_ms));
		if (!may_go)
			continue;
		list = lappend(list, origin->name);
		count--;
		others--;
	}
	return list;
}

/* Drops an origin unless it is in use; false: the catalog is locked. */
static bool
drop(const char *name)
{
	volatile bool locked = false;

	PG_TRY();
	{
		StartTransactionCommand();
		lock_origins();
		locked = true;
		replorigin_drop_by_name(name, true, true);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(TopMemoryContext);
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	return locked;
}

/* Drops the origins of these names; one that cannot be dropped now stays. */
void
origin_drop_old(List *names)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		if (!drop(lfirst(cell)))
			break;
	}
}

/* Refuses a position that is outside its layout's range. */
static void
require_time(const Origin *origin)
{
	if (is_wild(origin))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the position of replication origin \"%s\" is " INT64_FORMAT ", which is not a Unix time in milliseconds in the range of its layout",
						origin->name, origin->ms)));
}

/*
 * Reads all of our origins; creates the pair's own if it is missing.  Lists those
 * that may be dropped, in the caller's context: once keys are made the newest
 * ceiling could be as wrong as the clock.
 */
Ceiling
origin_look_up(const OriginQuestion *question, List **old)
{
	Ceiling		answer;
	char		own_name[NAMEDATALEN];
	int			count;
	List	   *origins = read_origins(&count);
	ListCell   *cell;

	memset(&answer, 0, sizeof(answer));
	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		require_time(origin);
		if (!layout_equal(&origin->layout, &server_layout))
		{
			if (origin->ms > answer.other_layout_ms)
			{
				answer.other_layout = origin->layout;
				answer.other_layout_ms = origin->ms;
			}
			if (origin->ms != 0)
				answer.other_layout_key = Max(answer.other_layout_key,
											  layout_key_at(&origin->layout, origin->ms, true));
			continue;
		}
		if (is_pair(origin, question->old_datacenter_id, question->old_worker_id))
			answer.old_ms = origin->ms;
		if (is_pair(origin, question->datacenter_id, question->worker_id))
		{
			answer.origin = origin->id;
			answer.own_ms = origin->ms;
		}
		else if (origin->ms <= question->reach_ms)
			answer.others_ms = Max(answer.others_ms, origin->ms);
	}
	if (answer.origin == InvalidRepOriginId)
	{
		origin_name(own_name, &server_layout, question->datacenter_id,
					question->worker_id);
		lock_origins();
		answer.origin = replorigin_create(own_name);
		count++;
	}
	*old = list_old(question, origins, count);
	return answer;
}

/*
 * Drops the origins of all other layouts; throws if that cannot be done.  The
 * ceiling of this layout is durable, and above all of their keys.
 *
 * A crash, or a drop that throws, may leave some of them.  The one with the newest
 * ceiling is dropped last: if its layout comes back, its keys start above that
 * ceiling, and so above those of the dropped ones.
 */
void
origin_leave_layouts(void)
{
	int			ignored;
	ListCell   *cell;
	List	   *origins;

	lock_origins();
	origins = read_origins(&ignored);
	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		if (!layout_equal(&origin->layout, &server_layout))
			replorigin_drop_by_name(origin->name, true, true);
	}
}

/*
 * Throws unless the origin that the keeper owns is the pair's.  An owned origin
 * cannot be dropped, but a drop that started earlier may not have changed the
 * catalog yet.  Such a drop has removed the position already; if there was none,
 * taking the lock proves that no drop is under way.
 */
void
origin_require_owned(const OriginQuestion *question)
{
	char		own_name[NAMEDATALEN];

	origin_name(own_name, &server_layout, question->datacenter_id,
				question->worker_id);
	if (!question->has_position)
		lock_origins();
	if (replorigin_by_name(own_name, true) != question->owned)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("replication origin \"%s\" was concurrently dropped", own_name)));
}

/*
 * Do the last keys in the WAL have another layout than the settings?  For
 * sessions, when the keeper has not decided: on a standby, before its first
 * look-up after a start, or if there is no pair.
 */
bool
origin_other_layout(Layout *other)
{
	int			ignored;
	List	   *origins = read_origins(&ignored);
	ListCell   *cell;
	int64		own_ms = 0;
	int64		other_ms = 0;

	foreach(cell, origins)
	{
		Origin	   *origin = lfirst(cell);

		if (is_wild(origin))
			continue;
		if (layout_equal(&origin->layout, &server_layout))
			own_ms = Max(own_ms, origin->ms);
		else if (origin->ms > other_ms)
		{
			other_ms = origin->ms;
			*other = origin->layout;
		}
	}
	return other_ms > own_ms;
}
