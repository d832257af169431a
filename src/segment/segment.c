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
 * the process "snowid segments".
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "guard.h"
#include "segment/fetcher.h"
#include "segment/pool.h"
#include "segment/segment.h"
#include "settings.h"

/* max_wait is about keys, too; for a process to come, callers wait so long. */
#define LEAST_WAIT_MS 1000

/* How soon a caller who waits looks whether there is a process. */
#define CALL_MS 100

/* Not a segment's: the rights are not checked yet. */
#define UNCHECKED PG_UINT64_MAX

/* Tags that this backend knows, by their hash. */
#define KNOWN_TAGS 1024
static KnownTag *known_tags[TAG_USES][KNOWN_TAGS];

/* How long a caller waits, and for what. */
typedef struct Wait
{
	Segment    *segment;		/* NULL: it does not wait yet */
	int64		ends;			/* monotonic_ms() */
	uint64		attempt;		/* looks at the table that had begun before */
	bool		has_place;		/* the process is there, or comes */
} Wait;

/*---- Tags ----*/

/* The table is the one beside the function, in whatever schema. */
void
segment_init_site(TagSite *site, TagUse use, Oid function)
{
	require_preloaded();
	if (snowid_segments == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("segments are switched off"),
				 errhint("Set snowid.segments and restart the server.")));
	site->known = NULL;
	site->use = use;
	site->relid = get_relname_relid("snowid_segments", get_func_namespace(function));
}

TagSite *
segment_site(FunctionCallInfo fcinfo, TagUse use)
{
	TagSite    *site = fcinfo->flinfo->fn_extra;

	if (unlikely(site == NULL))
	{
		site = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(TagSite));
		segment_init_site(site, use, fcinfo->flinfo->fn_oid);
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

/*---- The hot path ----*/

/*
 * Takes up to so many numbers, this many at least; returns how many, 0: look at
 * what is wrong.  Where the caller wants their period, it must last now.
 */
static pg_attribute_always_inline int64
take(Segment *segment, uint64 incarnation, int64 wanted, int64 least,
	 TimestampTz now, DateADT *period, int64 *first, bool *ask)
{
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);

	for (;;)
	{
		const int64 offset = cursor_offset(cursor);
		Slot	   *slot = &segment->slot[cursor_generation(cursor) & 1];
		Term	   *term = &segment->term[cursor_generation(cursor) & 1];
		int64		length;
		int64		n;

		pg_read_barrier();
		length = (int64) pg_atomic_read_u64(&slot->length);
		*first = (int64) pg_atomic_read_u64(&slot->base) + offset;
		n = Min(wanted, length - offset);
		if (period)
		{
			*period = (DateADT) pg_atomic_read_u64(&term->label);
			if (now >= (TimestampTz) pg_atomic_read_u64(&term->until))
				return 0;
		}
		if (pg_atomic_read_u64(&segment->incarnation) != incarnation || n < least)
			return 0;
		if (likely(pg_atomic_compare_exchange_u64(&segment->cursor, &cursor, cursor + n)))
		{
			*ask = (uint64) (offset + n) > pg_atomic_read_u64(&slot->ask_at);
			return n;
		}
	}
}

/* The next range is wanted, before this one is used up. */
static pg_noinline void
ask_for_next(Segment *segment)
{
	(void) fetcher_call(segment_ask(segment, 0));
}

/*---- What a caller waits for ----*/

static const char *
tag_of(const KnownTag *known)
{
	return pnstrdup(known->key.tag, known->key.len);
}

static void
refuse(const KnownTag *known, const Answer *answer, const Wait *wait)
{
	switch (answer->outcome)
	{
		case OUTCOME_ABSENT:
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("segment \"%s\" does not exist", tag_of(known)),
					 answer->error[0] ? errdetail("%s.", answer->error) :
					 errdetail("A row of snowid_segments that is not committed yet is not seen.")));
			break;
		case OUTCOME_USED_UP:
			ereport(ERROR,
					(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
					 errmsg("the numbers of \"%s\" are used up", tag_of(known)),
					 answer->format[0] && answer->limit == period_last_number(answer->format) ?
					 errdetail("Its format has room for numbers up to " INT64_FORMAT ".",
							   answer->limit) :
					 errdetail("Its limit_id is " INT64_FORMAT ".", answer->limit)));
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("no number of \"%s\" is reserved", tag_of(known)),
					 !wait->has_place ?
					 errdetail("No process could be started to reserve some.") :
					 answer->error[0] ? errdetail("The last error was: %s.", answer->error) :
					 errdetail("The process \"snowid segments\" has not answered yet; see the server log."),
					 wait->has_place ? 0 : errhint("Raise max_worker_processes.")));
	}
}

void
segment_refuse_format(const char *tag)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("segment \"%s\" has no format", tag),
			 errhint("Set \"format\" in its row of snowid_segments.")));
}

/* Is the row what the function is for? */
static void
check_use(const KnownTag *known, const Answer *answer)
{
	if ((known->use == USE_NUMBER) != (answer->kind == PERIOD_NONE))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 answer->kind == PERIOD_NONE ?
				 errmsg("segment \"%s\" has no periods", tag_of(known)) :
				 errmsg("segment \"%s\" has periods", tag_of(known)),
				 answer->kind == PERIOD_NONE ?
				 errhint("Call snowid_number(), or set \"period\" in its row.") :
				 errhint("Call snowid_period_number() or snowid_period_serial().")));
	if (known->use == USE_SERIAL && answer->format[0] == '\0')
		segment_refuse_format(tag_of(known));
}

/* Finds the segment of the tag anew. */
static uint64
look_up(KnownTag *known)
{
	uint64		incarnation;

	known->incarnation = UNCHECKED;
	known->segment = pool_find(&known->key, true, &incarnation);
	if (known->segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("there is no room for another segment"),
				 errdetail("There are %d, and all are in use.", snowid_segments),
				 errhint("Raise snowid.segments and restart the server.")));
	return incarnation;
}

static void
start_wait(Wait *wait, Segment *segment)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a standby hands out no numbers")));
	if (wait->segment == NULL)
		wait->ends = monotonic_ms() + Max(snowid_max_wait, LEAST_WAIT_MS);
	wait->segment = segment;
	SpinLockAcquire(&segment->mutex);
	wait->attempt = segment->attempt;
	segment->waits++;
	SpinLockRelease(&segment->mutex);
	ConditionVariablePrepareToSleep(&segment->changed);
}

/*
 * What is wrong where there is no number at once: checks the rights, goes on to
 * the next range, or waits for it.  Returns true where it took a range of this
 * length itself, for which the current range and the next are needed.
 */
static bool
get_ready(KnownTag *known, int64 length, TimestampTz now, Wait *wait, int64 *first)
{
	uint64		incarnation = look_up(known);
	Segment    *segment = known->segment;
	Answer		answer;
	int64		left;

	if (wait->segment && wait->segment != segment)
		start_wait(wait, segment);
	segment_answer(segment, incarnation, &answer);
	if (answer.loaded)
	{
		if (OidIsValid(answer.role) && !has_privs_of_role(GetUserId(), answer.role))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for segment \"%s\"", tag_of(known)),
					 errdetail("Its row in snowid_segments names another role.")));
		check_use(known, &answer);
		memcpy(known->format, answer.format, sizeof(known->format));
		known->incarnation = incarnation;
		switch (segment_advance(segment, incarnation, now, length, first))
		{
			case ADVANCED:
				return false;
			case TAKEN:
				return true;
			case EXHAUSTED:
				break;
		}
	}
	if (wait->segment == NULL)
	{
		start_wait(wait, segment);
		return false;			/* look once more, now that we would be woken */
	}
	if (answer.attempt > wait->attempt &&
		(answer.outcome == OUTCOME_ABSENT || answer.outcome == OUTCOME_USED_UP))
		refuse(known, &answer, wait);
	left = wait->ends - monotonic_ms();
	if (left <= 0)
		refuse(known, &answer, wait);
	wait->has_place = fetcher_call(segment_ask(segment, length));
	(void) ConditionVariableTimedSleep(&segment->changed, Min(left, CALL_MS),
									   own_wait(WAIT_SEGMENT));
	return false;
}

/* Off the hot path: as many numbers as take() would. */
static pg_noinline int64
take_slowly(KnownTag *known, int64 wanted, int64 length, DateADT *period, int64 *first)
{
	Wait		wait = {.has_place = true};
	int64		n = 0;
	bool		ask = false;

	while (n == 0)
	{
		TimestampTz now = period ? GetCurrentTimestamp() : 0;

		CHECK_FOR_INTERRUPTS();
		if (get_ready(known, length, now, &wait, first))
			n = length;
		else if (known->incarnation != UNCHECKED)
			n = take(known->segment, known->incarnation, wanted, length, now, period,
					 first, &ask);
	}
	if (wait.segment)
		ConditionVariableCancelSleep();
	if (ask)
		ask_for_next(known->segment);
	return n;
}

/* Up to so many consecutive numbers, this many at least; returns how many. */
static pg_attribute_always_inline int64
next(KnownTag *known, int64 wanted, int64 least, DateADT *period, int64 *first)
{
	TimestampTz now = period ? GetCurrentTimestamp() : 0;
	bool		ask = false;
	int64		n = 0;

	if (likely(known->incarnation != UNCHECKED))
		n = take(known->segment, known->incarnation, wanted, least, now, period, first, &ask);
	if (unlikely(n == 0))
		return take_slowly(known, wanted, least, period, first);
	if (unlikely(ask))
		ask_for_next(known->segment);
	return n;
}

int64
segment_next(TagSite *site, const text *tag)
{
	int64		first;

	(void) next(known_tag(site, tag), 1, 1, NULL, &first);
	return first;
}

int64
segment_next_block(TagSite *site, const text *tag, int64 wanted, int64 *first)
{
	return next(known_tag(site, tag), Min(wanted, OFFSET_MASK), 1, NULL, first);
}

int64
segment_next_range(TagSite *site, const text *tag, int64 length)
{
	int64		first;

	(void) next(known_tag(site, tag), length, length, NULL, &first);
	return first;
}

/* A number in its period; and the format of the tag, until the next call. */
int64
segment_next_in_period(TagSite *site, const text *tag, DateADT *period, const char **format)
{
	KnownTag   *known = known_tag(site, tag);
	int64		first;

	(void) next(known, 1, 1, period, &first);
	*format = known->format;
	return first;
}
