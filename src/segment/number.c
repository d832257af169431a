/*
 * number.c
 *		Numbers from segments, as callers get them: the hot path, and what a caller
 *		does that gets no number at once.
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
 *	 segment.c's lock.  So a CAS that succeeds proves that the base was g's.
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
 * the process "snowid segments", and waited for.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "guard.h"
#include "segment/fetcher.h"
#include "segment/number.h"
#include "segment/table.h"
#include "settings.h"

/* Not a segment's: the rights are not checked yet. */
#define UNCHECKED PG_UINT64_MAX

/* max_wait is about keys, too; for a process to come, callers wait so long. */
#define LEAST_WAIT_MS 1000

/* How soon a caller that waits looks whether there is a process. */
#define CALL_MS 100

/* A tag that this backend knows; another one may take its place. */
struct KnownTag
{
	Segment    *segment;
	uint64		incarnation;	/* of the segment, when the rights were
								 * checked */
	Oid			user;			/* whose they are */
	uint64		stamp;			/* from 1 on; another one for another tag */
	SegmentKey	key;
	TagUse		use;
	char		format[FORMAT_LEN + 1]; /* of this incarnation */
};

/* How long a caller waits, and for what. */
typedef struct Wait
{
	bool		has_begun;
	int64		ends;			/* monotonic_ms() */
	Segment    *segment;		/* that would wake it, or NULL */
	uint64		attempt;		/* looks at the table that had begun before */
	bool		has_process;	/* it is there, or comes */
} Wait;

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
number_init_site(TagSite *site, TagUse use, Oid function)
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
number_site(FunctionCallInfo fcinfo, TagUse use)
{
	TagSite    *site = fcinfo->flinfo->fn_extra;

	if (unlikely(site == NULL))
	{
		site = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(TagSite));
		number_init_site(site, use, fcinfo->flinfo->fn_oid);
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
	segment_make_key(&site->known->key, site->relid, tag, len);
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
	TagSite    *site = number_site(fcinfo, use);
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

/*---- Where there is no number at once ----*/

static const char *
tag_of(const KnownTag *known)
{
	return pnstrdup(known->key.tag, known->key.len);
}

/* There is no row of the tag here; or, for this reason, not at its source. */
void
number_refuse_absent(const char *tag, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("segment \"%s\" does not exist", tag),
			 reason[0] ? errdetail("%s.", reason) :
			 errdetail("A row of snowid_segments that is not committed yet is not seen."),
			 reason[0] ? 0 : errhint("To make it: INSERT INTO snowid_segments (biz_tag) VALUES (%s).",
									 quote_literal_cstr(tag))));
}

void
number_refuse_format(const char *tag)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("segment \"%s\" has no format", tag),
			 errhint("Set \"format\" in its row of snowid_segments.")));
}

/* What another server said is not for callers, who need no right on it. */
static void
refuse(const KnownTag *known, const Look *look, const Wait *wait)
{
	const Reason *reason = &look->reason;

	if (look->outcome == OUTCOME_ABSENT)
		number_refuse_absent(tag_of(known), reason->why);
	if (look->outcome == OUTCOME_USED_UP)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("the numbers of \"%s\" are used up", tag_of(known)),
				 look->row.format[0] && look->row.limit == period_last_number(look->row.format) ?
				 errdetail("Its format has room for numbers up to " INT64_FORMAT ".",
						   look->row.limit) :
				 errdetail("Its limit_id is " INT64_FORMAT ".", look->row.limit)));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no numbers available for segment \"%s\"", tag_of(known)),
			 !wait->has_process ?
			 errdetail("No process could be started to reserve some.") :
			 reason->why[0] == '\0' ?
			 errdetail("The process \"snowid segments\" has not answered yet; see the server log.") :
			 reason->is_ours ? errdetail("The last error was: %s.", reason->why) :
			 errdetail("Its table or its source failed; see the server log, or snowid_segment_status()."),
			 wait->has_process ? 0 : errhint("Increase max_worker_processes.")));
}

static void
check_role(const KnownTag *known, const Row *row)
{
	if (OidIsValid(row->role) && !has_privs_of_role(GetUserId(), row->role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for segment \"%s\"", tag_of(known)),
				 errdetail("Its row in snowid_segments names another role.")));
}

/* Is the row what the function is for? */
static void
check_use(const KnownTag *known, const Row *row)
{
	if ((known->use == USE_NUMBER) != (row->kind == PERIOD_NONE))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 row->kind == PERIOD_NONE ?
				 errmsg("segment \"%s\" has no periods", tag_of(known)) :
				 errmsg("segment \"%s\" has periods", tag_of(known)),
				 row->kind == PERIOD_NONE ?
				 errhint("Call snowid_number(), or set \"period\" in its row.") :
				 errhint("Call snowid_period_number() or snowid_period_serial().")));
	if (known->use == USE_SERIAL && row->format[0] == '\0')
		number_refuse_format(tag_of(known));
}

static void
begin_wait(Wait *wait)
{
	if (wait->has_begun)
		return;
	wait->has_begun = true;
	wait->ends = monotonic_ms() + Max(snowid_max_wait, LEAST_WAIT_MS);
}

/*
 * A place for a tag that has none.  It is looked for here first: what does not exist, or
 * is not for this role, takes none.  Where there is no room, the caller waits for some.
 */
static void
get_place(const KnownTag *known, Wait *wait)
{
	TagRow		tag;
	Found		found = IsInParallelMode() ? LOCKED : table_read_tag(&known->key, NULL, &tag);

	if (found == ABSENT)
		number_refuse_absent(tag_of(known), "");
	if (found == FOUND)
		check_role(known, &tag.row);
	if (segment_create(&known->key, found == FOUND && tag.row.source[0] ?
					   FETCHER_CENTRAL : FETCHER_HERE))
		return;
	begin_wait(wait);
	if (monotonic_ms() >= wait->ends)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("there is no room for another segment"),
				 errdetail("There are %d, and all are in use.", snowid_max_segments),
				 errhint("Raise snowid.max_segments and restart the server.")));
	segment_wait_for_room(CALL_MS / 10);
}

/* From here on a change of the segment wakes the caller, who looks once more. */
static void
wait_for(Wait *wait, const Look *look)
{
	begin_wait(wait);
	wait->segment = look->segment;
	wait->attempt = look->attempt;
	segment_begin_wait(look->segment);
	ConditionVariablePrepareToSleep(&look->segment->changed);
}

/*
 * What is wrong where there is no number at once: checks the rights, goes on to
 * the next range, or waits for it.  Returns true where it took a range of this
 * length itself, for which the current range and the next are needed.
 */
static bool
get_ready(KnownTag *known, int64 length, TimestampTz now, Wait *wait, int64 *first)
{
	Look		look;
	int64		left;

	known->incarnation = UNCHECKED;
	segment_look(&known->key, &look);
	known->segment = look.segment;
	if (look.segment == NULL)
	{
		get_place(known, wait);
		return false;
	}
	if (look.known)
		check_role(known, &look.row);
	if (look.known && look.row.is_valid)
	{
		check_use(known, &look.row);
		memcpy(known->format, look.row.format, sizeof(known->format));
		known->incarnation = look.incarnation;
		switch (segment_advance(&look, now, length, first))
		{
			case ADVANCED:
				return false;
			case TAKEN:
				return true;
			case EXHAUSTED:
				break;
		}
	}
	if (wait->segment != look.segment)
	{
		wait_for(wait, &look);
		return false;
	}
	left = wait->ends - monotonic_ms();
	if (left <= 0 ||
		(look.outcome_attempt > wait->attempt &&
		 (look.outcome == OUTCOME_ABSENT || look.outcome == OUTCOME_USED_UP)))
		refuse(known, &look, wait);
	wait->has_process = fetcher_call(segment_ask(look.segment, length));
	(void) ConditionVariableTimedSleep(&look.segment->changed, Min(left, CALL_MS),
									   own_wait(WAIT_SEGMENT));
	return false;
}

/*---- The hot path ----*/

/*
 * Takes so many consecutive numbers; false: look at what is wrong.  Where the caller
 * wants their period, it must last now.
 */
static pg_attribute_always_inline bool
take(Segment *segment, uint64 incarnation, int64 n, TimestampTz now, DateADT *period,
	 int64 *first, bool *ask)
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
		if (pg_atomic_read_u64(&segment->incarnation) != incarnation || n > length - offset)
			return false;
		if (likely(pg_atomic_compare_exchange_u64(&segment->cursor, &cursor, cursor + n)))
		{
			*ask = (uint64) (offset + n) > pg_atomic_read_u64(&slot->ask_at);
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

/* Off the hot path: so many consecutive numbers. */
static pg_noinline void
take_slowly(KnownTag *known, int64 length, DateADT *period, int64 *first)
{
	Wait		wait = {.has_process = true};
	bool		done = false;
	bool		ask = false;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a standby hands out no numbers")));
	while (!done)
	{
		TimestampTz now = period ? GetCurrentTimestamp() : 0;

		CHECK_FOR_INTERRUPTS();
		done = get_ready(known, length, now, &wait, first) ||
			(known->incarnation != UNCHECKED &&
			 take(known->segment, known->incarnation, length, now, period, first, &ask));
	}
	if (wait.segment)
		ConditionVariableCancelSleep();
	if (ask)
		ask_for_next(known->segment);
}

int64
number_next(FunctionCallInfo fcinfo)
{
	KnownTag   *known = tag_of_call(fcinfo, USE_NUMBER);
	int64		number;
	bool		ask = false;

	if (unlikely(known->incarnation == UNCHECKED) ||
		unlikely(!take(known->segment, known->incarnation, 1, 0, NULL, &number, &ask)))
		take_slowly(known, 1, NULL, &number);
	if (unlikely(ask))
		ask_for_next(known->segment);
	return number;
}

/* So many consecutive numbers; the first of them. */
int64
number_next_range(FunctionCallInfo fcinfo, int64 length)
{
	KnownTag   *known = tag_of_call(fcinfo, USE_NUMBER);
	int64		first;
	bool		ask = false;

	if (known->incarnation == UNCHECKED ||
		!take(known->segment, known->incarnation, length, 0, NULL, &first, &ask))
		take_slowly(known, length, NULL, &first);
	if (ask)
		ask_for_next(known->segment);
	return first;
}

/* A number in its period; and the format of the tag, until the next call. */
int64
number_next_in_period(FunctionCallInfo fcinfo, TagUse use, DateADT *period,
					  const char **format)
{
	KnownTag   *known = tag_of_call(fcinfo, use);
	TimestampTz now = GetCurrentTimestamp();
	int64		number;
	bool		ask = false;

	if (known->incarnation == UNCHECKED ||
		!take(known->segment, known->incarnation, 1, now, period, &number, &ask))
		take_slowly(known, 1, period, &number);
	if (ask)
		ask_for_next(known->segment);
	*format = known->format;
	return number;
}
