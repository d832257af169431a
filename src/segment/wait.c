/*
 * wait.c
 *		Where there is no number at once: who may have one, how long a caller waits
 *		for it, and what a refused one is told.
 *
 * segment.c takes the numbers.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "segment/fetcher.h"
#include "segment/pool.h"
#include "segment/wait.h"
#include "settings.h"

/* max_wait is about keys, too; for a process to come, callers wait so long. */
#define LEAST_WAIT_MS 1000

/* How soon a caller who waits looks whether there is a process. */
#define CALL_MS 100

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
				 errdetail("There are %d, and all are in use.", snowid_max_segments),
				 errhint("Raise snowid.max_segments and restart the server.")));
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
bool
segment_get_ready(KnownTag *known, int64 length, TimestampTz now, Wait *wait, int64 *first)
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
