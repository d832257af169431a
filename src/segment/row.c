/*
 * row.c
 *		What is known here of a segment's row; what is wanted of it, and what was
 *		found.
 *
 * A change by hand makes it unknown: that is another incarnation.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "segment/row.h"

/* What failed is tried again after a pause that doubles; callers wait longer. */
#define FIRST_RETRY_MS 50
#define LAST_RETRY_MS 500

/* A range is tried to be fetched until so long after somebody wanted a number. */
#define WANTED_MS 10000

/* A segment that was looked up within this is not given away. */
#define RECENT_MS 1000

/*---- For callers ----*/

void
segment_answer(Segment *segment, uint64 incarnation, Answer *answer)
{
	SpinLockAcquire(&segment->mutex);
	answer->loaded = segment->loaded &&
		pg_atomic_read_u64(&segment->incarnation) == incarnation;
	answer->role = segment->role;
	answer->limit = segment->limit;
	answer->kind = segment->kind;
	memcpy(answer->format, segment->format, sizeof(answer->format));
	answer->outcome = segment->outcome;
	answer->attempt = segment->outcome_attempt;
	memcpy(answer->error, segment->error, sizeof(answer->error));
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

/*
 * Forgets what is known of the row.  What was kept is not tried again: the process of
 * its source may have left.  The mutex is held.
 */
static void
forget_row(Segment *segment)
{
	range_close(segment);
	if (segment->kept && OidIsValid(segment->source))
		range_drop_tails(segment, ALL_GONE);
	segment->kept = segment->refused = false;
	segment->stale = segment->tails > 0;
	pg_atomic_fetch_add_u64(&segment->incarnation, 1);
	segment->source = InvalidOid;
	segment->outcome = OUTCOME_NONE;
	segment->error[0] = '\0';
	segment->loaded = false;
	segment->high = 0;
	segment->newest = NO_PERIOD;
	segment->step = 0;
}

/*
 * Were only periods deleted that are older than all of which there are ranges here, or
 * on their way?  The mutex is held.
 */
static bool
is_over(Segment *segment, Gone gone)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	Term	   *term = &segment->term[generation & 1];
	DateADT		oldest = (DateADT) pg_atomic_read_u64(&term->label);

	return gone.first > NO_PERIOD && gone.first <= gone.last &&
		gone.last < Min(oldest, segment->newest) &&
		(!segment->returning || gone.last < segment->returning_from) &&
		!OidIsValid(segment->source);
}

/* What the row's change by hand makes wrong is forgotten.  Does not throw. */
void
segment_forget(Segment *segment, Gone gone)
{
	SpinLockAcquire(&segment->mutex);
	if (!is_over(segment, gone))
	{
		forget_row(segment);
		if (gone.first <= gone.last)
			segment->replaced = pg_atomic_read_u64(&segment->incarnation);
	}
	range_drop_tails(segment, gone);
	SpinLockRelease(&segment->mutex);
}

/* From here on it is another tag's: what is still fetched for the former one is lost. */
void
segment_renew(Segment *segment)
{
	int64		now = monotonic_ms();

	SpinLockAcquire(&segment->mutex);
	forget_row(segment);
	segment->replaced = pg_atomic_read_u64(&segment->incarnation);
	segment->tails = 0;
	segment->stale = false;
	segment->asked = segment->alone = false;
	segment->wish = segment->retry_at = segment->retry_ms = 0;
	segment->fetched_at = segment->fetch_us = segment->last_ms = segment->last_length = 0;
	segment->fetches = segment->waits = segment->lost = 0;
	segment->used_at = now;
	SpinLockRelease(&segment->mutex);
}

/* It was looked up. */
void
segment_touch(Segment *segment)
{
	int64		now = monotonic_ms();

	SpinLockAcquire(&segment->mutex);
	segment->used_at = now;
	SpinLockRelease(&segment->mutex);
}

/*
 * Can it be given to another tag?  One that has numbers which cannot be given
 * back counts as idle when it was not looked up lately: it loses them.
 */
bool
segment_is_idle(Segment *segment, int64 now)
{
	int64		ignored;
	int64		left_next;
	bool		idle;

	SpinLockAcquire(&segment->mutex);
	idle = !segment->asked && segment->tails == 0 && !segment->returning &&
		now - segment->used_at > RECENT_MS &&
		(segment->kept || (range_left(segment, &ignored, &left_next) <= 0 && left_next == 0));
	SpinLockRelease(&segment->mutex);
	return idle;
}

void
segment_status(Segment *segment, SegmentStatus *status)
{
	SpinLockAcquire(&segment->mutex);
	status->source = segment->source;
	status->left = range_left(segment, &status->next, &status->left_next);
	status->period = segment->newest;
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

/*---- For who fetches ----*/

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
		fetch->last_step = segment->step;
		fetch->lasted_ms = now - segment->fetched_at;
		fetch->high = segment->high;
		fetch->newest = segment->newest;
		fetch->alone = segment->alone;
		fetch->unusable = false;
	}
	SpinLockRelease(&segment->mutex);
	return begins;
}

/* Nothing is wanted any more, nor is being fetched. */
void
segment_unask(Segment *segment)
{
	SpinLockAcquire(&segment->mutex);
	segment->asked = false;
	segment->wish = 0;
	SpinLockRelease(&segment->mutex);
}

/*
 * Publishes what was fetched, and is durable.  Where the row was changed by hand
 * since the fetch began, the range is given back and another one is fetched; it is
 * lost where there is another row.
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
	if (pg_atomic_read_u64(&segment->incarnation) != fetch->incarnation ||
		fetch->unusable || segment->ready)
	{
		if (has_range && fetch->incarnation < segment->replaced)
			segment->lost += range_length(&fetch->range);
		else if (has_range)
			range_add_tail(segment, &fetch->range, fetch->source);
		segment->stale = segment->tails > 0;
	}
	else if (fetch->moved)
	{
		segment->source = fetch->source;
		segment->high = 0;
		segment->newest = NO_PERIOD;
	}
	else
	{
		segment->outcome = fetch->outcome;
		segment->outcome_attempt = fetch->attempt;
		segment->alone = fetch->alone && fetch->outcome == OUTCOME_FAILED;
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
			segment->kind = fetch->kind;
			memcpy(segment->format, fetch->format, sizeof(segment->format));
		}
		if (has_range)
		{
			range_put(segment, &fetch->range);
			segment->high = fetch->range.last;
			segment->newest = fetch->range.period.label;
			segment->step = fetch->step;
			segment->last_ms = segment->fetched_at ? now - segment->fetched_at : 0;
			segment->last_length = range_length(&fetch->range);
			segment->fetched_at = now;
			segment->fetched_unix_us = now_us;
			segment->fetch_us = took_us;
			segment->fetches++;
			segment->kept = segment->refused = false;
		}
		/* what failed is tried again while it may be needed */
		if (fetch->outcome != OUTCOME_FAILED ||
			(now - segment->used_at > WANTED_MS &&
			 range_left(segment, &ignored, &left_next) <= 0))
		{
			segment->asked = false;
			segment->wish = 0;
		}
	}
	SpinLockRelease(&segment->mutex);
	ConditionVariableBroadcast(&segment->changed);
}

/* Is the row another one than it was then? */
bool
segment_was_replaced(Segment *segment, uint64 incarnation)
{
	bool		replaced;

	SpinLockAcquire(&segment->mutex);
	replaced = incarnation < segment->replaced;
	SpinLockRelease(&segment->mutex);
	return replaced;
}

/*
 * A range was given back.  So may others be that lie below it: the next range begins
 * behind what this server has handed out.
 */
void
segment_lower_high(Segment *segment, uint64 incarnation, const Range *range)
{
	SpinLockAcquire(&segment->mutex);
	if (pg_atomic_read_u64(&segment->incarnation) == incarnation &&
		segment->newest == range->period.label)
		segment->high = Min(segment->high, range->before);
	SpinLockRelease(&segment->mutex);
}
