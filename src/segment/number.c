/*
 * number.c
 *		Numbers from segments, as callers get them: the hot path, what a caller does
 *		that gets no number at once, and the SQL functions.
 *
 * A number is one value of a segment's cursor, which has a generation and an
 * offset:
 *
 *		c = cursor; first, length = range[c.generation & 1]; incarnation as known?
 *		c.offset < length and CAS(cursor, c, c + 1): the number is first + c.offset
 *
 * Proof that no number is handed out twice:
 *
 * - Generations only rise, and offsets within one.  So the cursor never has a
 *	 value again that it has left, and a CAS that finds c proves that it was c all
 *	 the time since it was read.
 * - range[g & 1] is written only while the cursor is in generation g - 1, under
 *	 segment.c's lock.  So a CAS that succeeds proves that what was read of it was g's,
 *	 and all of it.
 * - Ranges come from committed changes of max_id, and their numbers are above all
 *	 numbers of the ranges before: numbers rise in the order of the CASs.
 * - A place that is given to another tag keeps its generation, and gets a new
 *	 incarnation before its cursor is usable.  A caller reads the cursor first and
 *	 then the incarnation: either it sees the new one, or its CAS fails.
 * - The period is part of the range, so it is that of generation g, too.  Periods rise
 *	 from range to range, and numbers within one.  A number is taken while its period
 *	 lasts, by the clock that was read before the cursor.
 * - A range that is given back is cut off first, by exchanging a new generation
 *	 of no length into the cursor; the value that the exchange returns says where.
 *
 * Nothing here writes a table or waits for a disk: callers ask the process "snowid
 * segments" for a range, and wait for it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "key/layout.h"
#include "process.h"
#include "segment/fetcher.h"
#include "segment/segment.h"
#include "segment/table.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_number);
PG_FUNCTION_INFO_V1(snowid_number_range);
PG_FUNCTION_INFO_V1(snowid_period_number);
PG_FUNCTION_INFO_V1(snowid_period_serial);
PG_FUNCTION_INFO_V1(snowid_period_parse);
PG_FUNCTION_INFO_V1(snowid_segment_forget);
PG_FUNCTION_INFO_V1(snowid_segment_status);

/* Not a segment's: the rights are not checked yet. */
#define UNCHECKED PG_UINT64_MAX

/* max_wait is about keys, too; for a process to come, callers wait so long. */
#define LEAST_WAIT_MS 1000

/* How soon a caller that waits looks whether there is a process, or room. */
#define CALL_MS 100
#define ROOM_MS 10

/* A session remembers so many tags. */
#define KNOWN_TAGS 256

/* A call site remembers this of its last tag from call to call. */
typedef struct TagSite
{
	SegmentKey	key;
	Look	   *look;			/* what the session remembers of it */
	bool		is_constant;	/* its tag is the same in each call */
	bool		in_serial;		/* the number becomes a serial */
	Oid			user;			/* whose rights were checked */
	uint64		incarnation;	/* of the segment, when they were */
	Segment    *segment;
	char		format[FORMAT_LEN + 1]; /* of this incarnation */
} TagSite;

typedef struct Wait
{
	int64		began;			/* monotonic_ms() */
	int64		ends;
	bool		asked;			/* for a range */
	bool		has_process;	/* it is there, or comes */
} Wait;

/*
 * Looks at tags, by a hash: so statements, and rows of several tags in turn, need segment.c's
 * lock only if the tag is new in this session, or its row was changed.
 */
static Look known[KNOWN_TAGS];

static const Oid status_columns[] = {
	TEXTOID, TEXTOID, DATEOID, INT8OID, INT8OID, INT8OID, INT8OID, FLOAT8OID,
	FLOAT8OID, INT8OID, TEXTOID
};

/*---- Tags ----*/

static void
require_segments(void)
{
	require_preloaded();
	if (snowid_max_segments == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("segments are switched off"),
				 errhint("Set snowid.max_segments and restart the server.")));
}

static bool
tag_is_constant(const FmgrInfo *function)
{
	Node	   *call = function->fn_expr;

	return call && IsA(call, FuncExpr) &&
		IsA(linitial(((FuncExpr *) call)->args), Const);
}

static pg_attribute_always_inline bool
is_of_tag(const TagSite *site, const text *tag)
{
	int			len = VARSIZE_ANY_EXHDR(tag);

	return site->key.len == len && memcmp(site->key.tag, VARDATA_ANY(tag), len) == 0;
}

/* The tag of a call, which the call site remembers from here on. */
static pg_noinline TagSite *
find_tag(FunctionCallInfo fcinfo)
{
	FmgrInfo   *function = fcinfo->flinfo;
	TagSite    *site = function->fn_extra;
	const text *tag = PG_GETARG_TEXT_PP(0);
	int			len = VARSIZE_ANY_EXHDR(tag);
	Oid			relid;

	if (len < 1 || len > TAG_LEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a tag cannot have %d bytes", len),
				 errdetail("It has from 1 to %d.", TAG_LEN)));
	if (site == NULL)
	{
		require_segments();
		site = MemoryContextAllocZero(function->fn_mcxt, sizeof(TagSite));
		site->key.relid = table_of(function->fn_oid);
		site->is_constant = tag_is_constant(function);
	}
	relid = site->key.relid;
	site->user = GetUserId();
	site->incarnation = UNCHECKED;
	segment_make_key(&site->key, relid, VARDATA_ANY(tag), len);
	site->look = &known[hash_bytes((const unsigned char *) VARDATA_ANY(tag), len) % KNOWN_TAGS];
	function->fn_extra = site;
	return site;
}

/* The tag that a function was called with. */
static pg_attribute_always_inline TagSite *
tag_of_call(FunctionCallInfo fcinfo)
{
	TagSite    *site = fcinfo->flinfo->fn_extra;

	if (likely(site && site->user == GetUserId() &&
			   (site->is_constant || is_of_tag(site, PG_GETARG_TEXT_PP(0)))))
		return site;
	return find_tag(fcinfo);
}

/*---- Where there is no number at once ----*/

static const char *
tag_of(const TagSite *site)
{
	return pnstrdup(site->key.tag, site->key.len);
}

static void
refuse_absent(const char *tag)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("segment \"%s\" does not exist", tag),
			 errdetail("A row of snowid_segments that is not committed yet is not seen."),
			 errhint("To make it: INSERT INTO snowid_segments (biz_tag) VALUES (%s).",
					 quote_literal_cstr(tag))));
}

static void
check_format(const char *tag, const char *format)
{
	if (format[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("segment \"%s\" has no format", tag),
				 errhint("Set \"format\" in its row of snowid_segments.")));
}

/* Callers need no right on another server, so do not see its words. */
static void
refuse_number(const TagSite *site, const SegmentState *state, const Wait *wait)
{
	const Reason *reason = &state->reason;
	const Row  *row = &state->row;

	if (reason->outcome == OUTCOME_ABSENT)
		refuse_absent(tag_of(site));
	if (reason->outcome == OUTCOME_USED_UP)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("the numbers of \"%s\" are used up", tag_of(site)),
				 errdetail("By its limit_id and format, the last one is " INT64_FORMAT ".", row->limit),
				 errhint("Raise limit_id, or give {N:...} of the format more digits; see doc/segment.md in snowid's manual.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no numbers available for segment \"%s\"", tag_of(site)),
			 !wait->has_process ?
			 errdetail("No process could be started to reserve some.") :
			 reason->outcome == OUTCOME_NONE ?
			 errdetail("The process \"snowid segments\" has not answered yet; see the server log.") :
			 reason->outcome == OUTCOME_FAILED_PUBLICLY ? errdetail("The last error was: %s.", reason->why) :
			 errdetail("Its table or its source failed; see the server log, or snowid_segment_status()."),
			 wait->has_process ? 0 : errhint("Increase max_worker_processes.")));
}

static void
check_role(const TagSite *site, const Row *row)
{
	if (OidIsValid(row->role) && !has_privs_of_role(GetUserId(), row->role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for segment \"%s\"", tag_of(site)),
				 errdetail("Its row in snowid_segments names another role.")));
}

/* Is the row what the function is for? */
static void
check_use(const TagSite *site, bool in_period, const Row *row)
{
	if (in_period != (row->kind != PERIOD_NONE))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 row->kind == PERIOD_NONE ?
				 errmsg("segment \"%s\" has no periods", tag_of(site)) :
				 errmsg("segment \"%s\" has periods", tag_of(site)),
				 row->kind == PERIOD_NONE ?
				 errhint("Call snowid_number(), or set \"period\" in its row.") :
				 errhint("Call snowid_period_number() or snowid_period_serial().")));
	if (site->in_serial)
		check_format(tag_of(site), row->format);
}

/*
 * A place for a tag that has none.  The caller looks at its row first: a tag that does not
 * exist, or is not for this role, takes none.  If there is no room, the caller waits.
 */
static void
get_place(const TagSite *site, Wait *wait)
{
	TagRow		tag;
	Found		found = table_find_tag(&site->key, false, &tag);

	if (found == ABSENT)
		refuse_absent(tag_of(site));
	if (found == FOUND)
		check_role(site, &tag.row);
	if (segment_create(&site->key, found == FOUND ? tag.row.source : ""))
		return;
	if (monotonic_ms() >= wait->ends)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("there is no room for another segment"),
				 errdetail("There are %d, and all are in use.", snowid_max_segments),
				 errhint("Raise snowid.max_segments and restart the server.")));
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ROOM_MS,
					 own_wait(WAIT_SEGMENT));
	ResetLatch(MyLatch);
}

/*
 * Waits for another range.  The first time, PostgreSQL only notes which change is to wake
 * the caller, and this returns at once: the caller looks once more.
 */
static void
wait_for_range(const TagSite *site, const Look *look, int64 length, Wait *wait)
{
	const SegmentState *state = &look->state;
	int64		left = wait->ends - monotonic_ms();

	if (left <= 0 ||
		((state->reason.outcome == OUTCOME_ABSENT || state->reason.outcome == OUTCOME_USED_UP) &&
		 state->looked_at > wait->began))
		refuse_number(site, state, wait);
	wait->has_process = fetcher_call(segment_ask(look->segment, look->incarnation, length,
												 !wait->asked));
	wait->asked = true;
	(void) ConditionVariableTimedSleep(&look->segment->changed, Min(left, CALL_MS),
									   own_wait(WAIT_SEGMENT));
}

/*
 * If there is no number at once: checks the rights; or, if numbers were tried with them,
 * switches to the next range, or waits for it.
 */
static void
get_ready(TagSite *site, int64 length, bool in_period, TimestampTz now, Wait *wait)
{
	Look	   *look = site->look;
	uint64		tried = site->incarnation;

	site->incarnation = UNCHECKED;
	if (tried != UNCHECKED || !segment_is_known(&site->key, look, wait->began))
		segment_look(&site->key, look);
	site->segment = look->segment;
	if (look->segment == NULL)
	{
		get_place(site, wait);
		return;
	}
	check_role(site, &look->state.row);
	if (look->state.row.is_valid)
	{
		check_use(site, in_period, &look->state.row);
		memcpy(site->format, look->state.row.format, sizeof(site->format));
		site->incarnation = look->incarnation;
		if (tried != look->incarnation || segment_advance(look, now, length))
			return;
	}
	wait_for_range(site, look, length, wait);
}

/*---- The hot path ----*/

/*
 * Takes so many consecutive numbers; false: look at what is wrong.  If the caller wants
 * their period, it must last now.
 */
static pg_attribute_always_inline bool
take_numbers(const TagSite *site, int64 n, TimestampTz now, DateADT *period, int64 *first,
			 bool *ask)
{
	Segment    *segment = site->segment;
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);

	for (;;)
	{
		const int64 offset = cursor_offset(cursor);
		const volatile Range *range = &segment->range[cursor_generation(cursor) & 1];
		int64		length;

		pg_read_barrier();
		length = range->length;
		*first = range->first + offset;
		if (period)
		{
			*period = range->period.label;
			if (now >= range->period.until)
				return false;
		}
		if (pg_atomic_read_u64(&segment->incarnation) != site->incarnation || n > length - offset)
			return false;
		if (likely(pg_atomic_compare_exchange_u64(&segment->cursor, &cursor, cursor + n)))
		{
			*ask = (uint64) (offset + n) > pg_atomic_read_u64(&segment->ask_at);
			return true;
		}
	}
}

/* The next range is wanted, before this one is used up. */
static pg_noinline void
ask_for_next(const TagSite *site)
{
	(void) fetcher_call(segment_ask(site->segment, site->incarnation, 1, false));
}

/* Off the hot path: so many consecutive numbers. */
static pg_noinline void
take_slowly(TagSite *site, int64 length, DateADT *period, int64 *first, bool *ask)
{
	int64		began = monotonic_ms();
	Wait		wait = {
		.began = began,.ends = began + Max(snowid_max_wait, LEAST_WAIT_MS),.has_process = true
	};
	TimestampTz now;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a standby hands out no numbers"),
				 errhint("Ask the primary server.")));
	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowid hands out no numbers in single-user mode"),
				 errhint("Start the server as usual.")));
	do
	{
		CHECK_FOR_INTERRUPTS();
		now = GetCurrentTimestamp();
		get_ready(site, length, period != NULL, now, &wait);
	} while (site->incarnation == UNCHECKED ||
			 !take_numbers(site, length, now, period, first, ask));
	if (wait.asked)
		ConditionVariableCancelSleep();
}

/* So many consecutive numbers of a tag: the first of them, and their period if wanted. */
static pg_attribute_always_inline int64
next_number(TagSite *site, int64 n, DateADT *period)
{
	int64		first;
	bool		ask = false;

	if (unlikely(site->incarnation == UNCHECKED) ||
		unlikely(!take_numbers(site, n, period ? GetCurrentTimestamp() : 0, period, &first, &ask)))
		take_slowly(site, n, period, &first, &ask);
	if (unlikely(ask))
		ask_for_next(site);
	return first;
}

/*---- The SQL functions ----*/

Datum
snowid_number(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(next_number(tag_of_call(fcinfo), 1, NULL));
}

/* A row of two columns. */
static Datum
pair_of(FunctionCallInfo fcinfo, Oid type, Datum first, Datum second)
{
	Oid			columns[2] = {type, INT8OID};
	Datum		values[2] = {first, second};
	bool		nulls[2] = {false, false};

	return HeapTupleGetDatum(heap_form_tuple(require_row(fcinfo, columns, 2), values, nulls));
}

Datum
snowid_number_range(PG_FUNCTION_ARGS)
{
	int32		count = PG_GETARG_INT32(1);
	int64		first;

	if (count < 1 || count > MAX_STEP)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a range cannot have %d numbers", count),
				 errdetail("It has from 1 to %d.", MAX_STEP)));
	first = next_number(tag_of_call(fcinfo), count, NULL);
	PG_RETURN_DATUM(pair_of(fcinfo, INT8OID, Int64GetDatum(first),
							Int64GetDatum(first + (count - 1))));
}

Datum
snowid_period_number(PG_FUNCTION_ARGS)
{
	DateADT		period;
	int64		number = next_number(tag_of_call(fcinfo), 1, &period);

	PG_RETURN_DATUM(pair_of(fcinfo, DATEOID, DateADTGetDatum(period),
							Int64GetDatum(number)));
}

Datum
snowid_period_serial(PG_FUNCTION_ARGS)
{
	TagSite    *site = tag_of_call(fcinfo);
	DateADT		period;
	int64		number;
	char		buf[PERIOD_SERIAL_LEN];

	site->in_serial = true;
	number = next_number(site, 1, &period);
	period_write(site->format, period, number, buf);
	PG_RETURN_TEXT_P(cstring_to_text(buf));
}

/* The present format of a tag. */
static char *
read_format(FunctionCallInfo fcinfo, const text *tag)
{
	Oid			relid = table_of(fcinfo->flinfo->fn_oid);
	int			len = VARSIZE_ANY_EXHDR(tag);
	SegmentKey	key;
	TagRow		row;

	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, "snowid_segments");
	/* no tag is as long as that, and none is empty */
	segment_make_key(&key, relid, VARDATA_ANY(tag), len <= TAG_LEN ? len : 0);
	if (table_find_tag(&key, true, &row) != FOUND)
		refuse_absent(text_shown(VARDATA_ANY(tag), len));
	check_format(text_shown(VARDATA_ANY(tag), len), row.row.format);
	return pstrdup(row.row.format);
}

Datum
snowid_period_parse(PG_FUNCTION_ARGS)
{
	char	   *serial = text_to_cstring(PG_GETARG_TEXT_PP(1));
	DateADT		period = 0;
	int64		number = 0;
	const char *problem = period_read(read_format(fcinfo, PG_GETARG_TEXT_PP(0)), serial,
									  &period, &number);

	if (problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid serial: \"%s\"", text_shown(serial, strlen(serial))),
				 errdetail("%s", problem)));
	PG_RETURN_DATUM(pair_of(fcinfo, DATEOID, DateADTGetDatum(period),
							Int64GetDatum(number)));
}

Datum
snowid_segment_forget(PG_FUNCTION_ARGS)
{
	segment_forget(&find_tag(fcinfo)->key, ALL_PERIODS);
	PG_RETURN_VOID();
}

/* The segments of this database that are in memory. */
Datum
snowid_segment_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			relid = table_of(fcinfo->flinfo->fn_oid);

	require_segments();
	InitMaterializedSRF(fcinfo, 0);
	require_columns(fcinfo, rsinfo->setDesc, status_columns, lengthof(status_columns));
	for (int i = 0; i < snowid_max_segments; i++)
	{
		Look		look;
		const SegmentState *state = &look.state;
		Range		current;
		Datum		values[lengthof(status_columns)];
		bool		nulls[lengthof(status_columns)] = {false};
		int			n = 0;

		if (!segment_at(i, &look, &current) || state->key.relid != relid)
			continue;
		values[n++] = PointerGetDatum(cstring_to_text_with_len(state->key.tag, state->key.len));
		nulls[n] = state->row.source[0] == '\0';
		values[n++] = CStringGetTextDatum(state->row.source);
		nulls[n] = state->newest == NO_PERIOD;
		values[n++] = DateADTGetDatum(state->newest);
		nulls[n] = current.length == 0;
		values[n++] = Int64GetDatum(current.first);
		values[n++] = Int64GetDatum(current.length);
		values[n++] = Int64GetDatum(state->next.length);
		nulls[n] = state->step == 0;
		values[n++] = Int64GetDatum(state->step);
		nulls[n] = nulls[n + 1] = state->rate == 0;
		values[n++] = Float8GetDatum(state->rate);
		values[n++] = Float8GetDatum((current.length + state->next.length) / Max(state->rate, 1e-9));
		values[n++] = Int64GetDatum(state->waits);
		nulls[n] = state->reason.why[0] == '\0';
		values[n++] = CStringGetTextDatum(state->reason.why);
		Assert(n == lengthof(values));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
