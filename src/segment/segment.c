/*
 * segment.c
 *		The hot path of segments: plain numbers from memory, under a tag.
 *
 * A number is one value of a segment's cursor, which has a generation and an
 * offset:
 *
 *		c = cursor; base, length = slot[c.generation & 1]; incarnation as known?
 *		c.offset < length and CAS(cursor, c, c + 1): the number is base + c.offset
 *
 * Proof that no number is handed out twice:
 *
 * - Generations only rise, and offsets within one.  So the cursor never has a
 *	 value again that it has left, and a CAS that finds c proves that it was c all
 *	 the time since it was read.
 * - slot[g & 1] is written only while the cursor is in generation g - 1, under
 *	 the mutex.  So a CAS that succeeds proves that the base was g's.
 * - Ranges come from committed changes of max_id, and their numbers are above all
 *	 numbers of the ranges before: numbers rise in the order of the CASs.
 * - A segment that is given to another tag keeps its generation, and gets a new
 *	 incarnation before its cursor is usable.  A caller reads the cursor first and
 *	 then the incarnation: either it sees the new one, or its CAS fails.
 * - term[g & 1], the period of the range, is written with the slot, and so is g's,
 *	 too.  Periods rise from range to range, and numbers within one.  A number is
 *	 taken while its period lasts, by the clock that was read before the cursor.
 * - A range that is given back is cut off first, by exchanging a new generation
 *	 of no length into the cursor; what the exchange returns says where.
 *
 * Nothing here writes a table or waits for a disk: what is missing is asked of
 * the process "snowid segments", and wait.c waits for it.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "guard.h"
#include "segment/fetcher.h"
#include "segment/pool.h"
#include "segment/segment.h"
#include "settings.h"

/* Tags that this backend knows, by their hash. */
#define KNOWN_TAGS 1024
static KnownTag *known_tags[TAG_USES][KNOWN_TAGS];

/*---- Tags ----*/

/* Roles, or who is a member of them, have changed: rights are checked anew. */
static void
forget_rights(Datum arg, int cache, uint32 hash)
{
	KnownTag  **known = &known_tags[0][0];

	for (int i = 0; i < TAG_USES * KNOWN_TAGS; i++)
	{
		if (known[i])
			known[i]->incarnation = UNCHECKED;
	}
}

/* The table is the one beside the function, in whatever schema. */
void
segment_init_site(TagSite *site, TagUse use, Oid function)
{
	require_preloaded();
	if (snowid_max_segments == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("segments are switched off"),
				 errhint("Set snowid.max_segments and restart the server.")));
	site->known = NULL;
	site->stamp = 0;
	site->is_constant = false;
	site->use = use;
	site->relid = get_relname_relid("snowid_segments", get_func_namespace(function));
}

/* Is the tag of a call a constant of the statement? */
static bool
tag_is_constant(FmgrInfo *function)
{
	Node	   *call = function->fn_expr;

	return call && IsA(call, FuncExpr) &&
		IsA(linitial(((FuncExpr *) call)->args), Const);
}

TagSite *
segment_site(FunctionCallInfo fcinfo, TagUse use)
{
	TagSite    *site = fcinfo->flinfo->fn_extra;

	if (unlikely(site == NULL))
	{
		site = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(TagSite));
		segment_init_site(site, use, fcinfo->flinfo->fn_oid);
		site->is_constant = tag_is_constant(fcinfo->flinfo);
		fcinfo->flinfo->fn_extra = site;
	}
	return site;
}

static inline bool
is_of(const KnownTag *known, Oid relid, const char *tag, int len)
{
	return known && known->key.len == len && memcmp(known->key.tag, tag, len) == 0 &&
		known->key.relid == relid && known->user == GetUserId();
}

/* Makes the tag the call site's. */
static pg_noinline void
find_tag(TagSite *site, const char *tag, int len)
{
	static uint64 stamps = 0;
	uint32		hash;

	if (len < 1 || len > TAG_LEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a tag cannot have %d bytes", len),
				 errdetail("It has from 1 to %d.", TAG_LEN)));
	hash = hash_bytes((const unsigned char *) tag, len) % KNOWN_TAGS;
	site->known = known_tags[site->use][hash];
	if (is_of(site->known, site->relid, tag, len))
		return;
	if (site->known == NULL)
		site->known = known_tags[site->use][hash] =
			MemoryContextAllocZero(TopMemoryContext, sizeof(KnownTag));
	site->known->use = site->use;
	pool_make_key(&site->known->key, site->relid, tag, len);
	if (stamps == 0)
	{
		CacheRegisterSyscacheCallback(AUTHOID, forget_rights, 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, forget_rights, 0);
	}
	site->known->stamp = ++stamps;
	site->known->user = GetUserId();
	site->known->segment = NULL;
	site->known->incarnation = UNCHECKED;
}

static pg_attribute_always_inline KnownTag *
known_tag(TagSite *site, const text *tag)
{
	const char *bytes = VARDATA_ANY(tag);
	int			len = VARSIZE_ANY_EXHDR(tag);

	if (unlikely(!is_of(site->known, site->relid, bytes, len)))
		find_tag(site, bytes, len);
	return site->known;
}

static pg_noinline KnownTag *
read_tag(FunctionCallInfo fcinfo, TagUse use)
{
	TagSite    *site = segment_site(fcinfo, use);
	KnownTag   *known = known_tag(site, PG_GETARG_TEXT_PP(0));

	if (site->is_constant)
		site->stamp = known->stamp;
	return known;
}

/* The tag that a function was called with: a constant is not read again. */
static pg_attribute_always_inline KnownTag *
tag_of_call(FunctionCallInfo fcinfo, TagUse use)
{
	TagSite    *site = fcinfo->flinfo->fn_extra;
	KnownTag   *known = site ? site->known : NULL;

	if (likely(known && known->stamp == site->stamp && known->user == GetUserId()))
		return known;
	return read_tag(fcinfo, use);
}

/*---- The hot path ----*/

/*
 * Takes so many consecutive numbers; false: look at what is wrong.  Where the caller
 * wants their period, it must last now.
 */
static pg_attribute_always_inline bool
take(Segment *segment, uint64 incarnation, int64 wanted, TimestampTz now,
	 DateADT *period, int64 *first, bool *ask)
{
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);

	for (;;)
	{
		const int64 offset = cursor_offset(cursor);
		Slot	   *slot = &segment->slot[cursor_generation(cursor) & 1];
		Term	   *term = &segment->term[cursor_generation(cursor) & 1];
		int64		length;

		pg_read_barrier();
		length = (int64) pg_atomic_read_u64(&slot->length);
		*first = (int64) (pg_atomic_read_u64(&slot->base) + offset);
		if (period)
		{
			*period = (DateADT) pg_atomic_read_u64(&term->label);
			if (now >= (TimestampTz) pg_atomic_read_u64(&term->until))
				return false;
		}
		if (pg_atomic_read_u64(&segment->incarnation) != incarnation ||
			wanted > length - offset)
			return false;
		if (likely(pg_atomic_compare_exchange_u64(&segment->cursor, &cursor,
												  cursor + wanted)))
		{
			*ask = (uint64) (offset + wanted) > pg_atomic_read_u64(&slot->ask_at);
			return true;
		}
	}
}

/* The next range is wanted, before this one is used up. */
static pg_noinline void
ask_for_next(Segment *segment)
{
	(void) fetcher_call(segment_ask(segment, 0));
}

/* Off the hot path: the first of so many consecutive numbers. */
static pg_noinline int64
take_slowly(KnownTag *known, int64 wanted, DateADT *period)
{
	Wait		wait = {.has_place = true};
	int64		first;
	bool		taken = false;
	bool		ask = false;

	while (!taken)
	{
		TimestampTz now = period ? GetCurrentTimestamp() : 0;

		CHECK_FOR_INTERRUPTS();
		taken = segment_get_ready(known, wanted, now, &wait, &first) ||
			(known->incarnation != UNCHECKED &&
			 take(known->segment, known->incarnation, wanted, now, period, &first, &ask));
	}
	if (wait.segment)
		ConditionVariableCancelSleep();
	if (ask)
		ask_for_next(known->segment);
	return first;
}

int64
segment_next(FunctionCallInfo fcinfo)
{
	KnownTag   *known = tag_of_call(fcinfo, USE_NUMBER);
	int64		number;
	bool		ask;

	if (unlikely(known->incarnation == UNCHECKED) ||
		unlikely(!take(known->segment, known->incarnation, 1, 0, NULL, &number, &ask)))
		return take_slowly(known, 1, NULL);
	if (unlikely(ask))
		ask_for_next(known->segment);
	return number;
}

/* A number in its period; and the format of the tag, until the next call. */
int64
segment_next_in_period(FunctionCallInfo fcinfo, TagUse use, DateADT *period,
					   const char **format)
{
	KnownTag   *known = tag_of_call(fcinfo, use);
	TimestampTz now = GetCurrentTimestamp();
	int64		number;
	bool		ask;

	if (known->incarnation == UNCHECKED ||
		!take(known->segment, known->incarnation, 1, now, period, &number, &ask))
		number = take_slowly(known, 1, period);
	else if (ask)
		ask_for_next(known->segment);
	*format = known->format;
	return number;
}

int64
segment_next_range(TagSite *site, const text *tag, int64 length)
{
	KnownTag   *known = known_tag(site, tag);
	int64		first;
	bool		ask;

	if (known->incarnation == UNCHECKED ||
		!take(known->segment, known->incarnation, length, 0, NULL, &first, &ask))
		return take_slowly(known, length, NULL);
	if (ask)
		ask_for_next(known->segment);
	return first;
}
