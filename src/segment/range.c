/*
 * range.c
 *		A segment's ranges: published, used up, cut off, given back.
 *
 * Two slots: numbers are taken from the one of the cursor's generation, and the
 * process that fetches fills the other.  A slot is written under the mutex, and
 * only while the cursor is in the generation before (segment.c has the proof).
 * What is cut off is a tail until that process has given it back: also what is left
 * of a period that has ended.
 */
#include "postgres.h"

#include "segment/range.h"

/*---- Ranges ----*/

/* What nobody has taken, of both slots; the mutex is held. */
int64
range_left(Segment *segment, int64 *next, int64 *left_next)
{
	uint64		cursor = pg_atomic_read_u64(&segment->cursor);
	uint64		generation = cursor_generation(cursor);
	Slot	   *slot = &segment->slot[generation & 1];

	*next = (int64) (pg_atomic_read_u64(&slot->base) + cursor_offset(cursor));
	*left_next = segment->ready ?
		(int64) pg_atomic_read_u64(&segment->slot[(generation + 1) & 1].length) : 0;
	return (int64) pg_atomic_read_u64(&slot->length) - cursor_offset(cursor);
}

int64
segment_left(Segment *segment, int64 *next, int64 *left_next)
{
	int64		left;

	SpinLockAcquire(&segment->mutex);
	left = range_left(segment, next, left_next);
	SpinLockRelease(&segment->mutex);
	return left;
}

/* The range of a slot, from this offset on; the mutex is held. */
static Range
range_of(Segment *segment, uint64 generation, int64 offset)
{
	Slot	   *slot = &segment->slot[generation & 1];
	Term	   *term = &segment->term[generation & 1];
	uint64		base = pg_atomic_read_u64(&slot->base);
	Range		range;

	range.first = (int64) (base + offset);
	range.last = (int64) (base + pg_atomic_read_u64(&slot->length) - 1);
	range.before = offset > 0 ? (int64) (base + offset - 1) : term->before;
	range.period.label = (DateADT) pg_atomic_read_u64(&term->label);
	range.period.until = (TimestampTz) pg_atomic_read_u64(&term->until);
	return range;
}

/* Puts a range into the slot that is not in use; the mutex is held. */
void
range_put(Segment *segment, const Range *range)
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
	term->before = range->before;
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
 * In order, since they are given back from the last on: to this source, and those of
 * one source at a time.  The mutex is held.
 */
void
range_add_tail(Segment *segment, const Range *range, Oid source)
{
	Range	   *tail = segment->tail;
	int			n = segment->tails;
	int			i = 0;

	if (range_length(range) == 0)
		return;
	if (n > 0 && segment->tail_source != source)
	{
		segment->lost += range_length(range);
		return;
	}
	segment->tail_source = source;
	while (i < n && (tail[i].period.label < range->period.label ||
					 (tail[i].period.label == range->period.label &&
					  tail[i].first < range->first)))
		i++;
	if (i > 0 && tail[i - 1].period.label == range->period.label &&
		tail[i - 1].last == range->first - 1)
		tail[i - 1].last = range->last;
	else if (i < n && tail[i].period.label == range->period.label &&
			 range->last == tail[i].first - 1)
	{
		tail[i].first = range->first;
		tail[i].before = range->before;
	}
	else if (n < TAILS)
	{
		memmove(&tail[i + 1], &tail[i], (n - i) * sizeof(Range));
		tail[i] = *range;
		segment->tails++;
	}
	else
		segment->lost += range_length(range);
}

/*
 * From here on no number of the two ranges is taken; they are to be given back.
 * The mutex is held.
 */
void
range_close(Segment *segment)
{
	uint64		generation = cursor_generation(pg_atomic_read_u64(&segment->cursor));
	Range		next = range_of(segment, generation + 1, 0);
	Range		current;
	uint64		cursor;

	if (!segment->ready)
		next.last = next.first - 1;
	segment->ready = false;
	pg_atomic_write_u64(&segment->slot[(generation + 1) & 1].length, 0);
	cursor = pg_atomic_exchange_u64(&segment->cursor, cursor_start(generation + 1));
	current = range_of(segment, generation, cursor_offset(cursor));
	range_add_tail(segment, &current, segment->source);
	range_add_tail(segment, &next, segment->source);
}

/* What has no row any more is not given back; the mutex is held. */
void
range_drop_tails(Segment *segment, Gone gone)
{
	int			n = 0;

	for (int i = 0; i < segment->tails; i++)
	{
		Range	   *tail = &segment->tail[i];

		if (tail->period.label >= gone.first && tail->period.label <= gone.last)
			segment->lost += range_length(tail);
		else
			segment->tail[n++] = *tail;
	}
	segment->tails = n;
	segment->stale = segment->stale && n > 0;
}

/* The period of both ranges has ended; the mutex is held. */
static void
end_period(Segment *segment)
{
	range_close(segment);
	segment->stale = segment->tails > 0;
	segment->high = 0;			/* what is given back lowers max_id */
}

/*
 * Goes on to the next range where the current one has fewer than so many
 * numbers, or its period has ended.  What is left of it is a part of what is
 * wanted if the next range continues it, is given back where its period has
 * ended, and else is lost.
 */
Advance
segment_advance(Segment *segment, uint64 incarnation, TimestampTz now, int64 length,
				int64 *first)
{
	Advance		result = ADVANCED;

	SpinLockAcquire(&segment->mutex);
	while (pg_atomic_read_u64(&segment->incarnation) == incarnation)
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
			end_period(segment);
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
		{
			if (has_ended)
			{
				range_add_tail(segment, &current, segment->source);
				segment->stale = true;
			}
			else
				segment->lost += left;
		}
	}
	SpinLockRelease(&segment->mutex);
	return result;
}

/* What range_close() does. */
void
segment_close(Segment *segment)
{
	SpinLockAcquire(&segment->mutex);
	range_close(segment);
	SpinLockRelease(&segment->mutex);
}

/*---- Tails, for who fetches ----*/

/*
 * What is to be given back to a source, which is the caller's from here on; returns
 * how many.
 * "stale": if that fails, it must not be used.
 */
int
segment_take_tails(Segment *segment, Oid source, uint64 *incarnation, bool *stale,
				   Range *ranges)
{
	int			n;

	SpinLockAcquire(&segment->mutex);
	n = segment->tail_source == source ? segment->tails : 0;
	if (n > 0)
	{
		*incarnation = pg_atomic_read_u64(&segment->incarnation);
		*stale = segment->stale;
		segment->stale = false;
		segment->returning = true;
		segment->returning_from = segment->tail[0].period.label;
		memcpy(ranges, segment->tail, n * sizeof(Range));
		segment->tails = 0;
	}
	SpinLockRelease(&segment->mutex);
	return n;
}

/*
 * What could not be given back is used, unless the row was changed by hand
 * meanwhile.  "refused": it cannot be later, too.
 */
void
segment_keep(Segment *segment, uint64 incarnation, const Range *ranges, int n,
			 bool refused)
{
	SpinLockAcquire(&segment->mutex);
	segment->returning = false;
	for (int i = 0; i < n; i++)
	{
		int64		length = range_length(&ranges[i]);

		if (pg_atomic_read_u64(&segment->incarnation) != incarnation ||
			i >= lengthof(segment->slot) || length > OFFSET_MASK)
		{
			segment->lost += length;
			continue;
		}
		if (segment->ready)
			(void) switch_slot(segment, pg_atomic_read_u64(&segment->cursor), 0);
		range_put(segment, &ranges[i]);
		segment->kept = true;
		segment->refused = refused;
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
