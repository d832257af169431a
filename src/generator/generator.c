/*
 * generator.c
 *		The hot path: one generator of keys for the whole server.
 *
 * The generator hands out units of 1/2^sequence_bits ms since the epoch: a
 * unit is the timestamp and the sequence of a key.  The rule is
 *
 *		next = Max(last + 1, now)
 *
 * (get_real_time_ns_ascending() of PostgreSQL 18's uuidv7; RFC 9562 section
 * 6.2, method 3).  Invariants:
 *
 * - "last", the highest unit ever taken, only rises.  So units strictly
 *	 increase in the order in which they are taken, in all sessions.
 * - No unit above "usable_until" is taken.  Only the snowid keeper raises it,
 *	 once the new value is durable.  So neither a refused caller nor a wrong
 *	 reading of the clock can move "last" far away.
 * - A unit is due when its millisecond leads the clock by at most
 *	 snowid.max_lead.  A caller takes a unit first and then sleeps until it is
 *	 due: first come, first served.  A unit that is due later than
 *	 snowid.max_wait allows is not taken; the caller gets an error.
 * - The gate is closed by exchanging a sentinel above all units into "last".
 *	 The pair changes only while the gate is closed, and every opening has a
 *	 number: a unit is thrown away if its pair was read under another opening
 *	 than the unit was taken under.
 *
 * wait.c has waits and refusals, gate.c the keeper's side, state.h the shared
 * state.  test/memory/generator.pml is a model of it, for all interleavings.
 */
#include "postgres.h"

#include "storage/proc.h"

#include "compat.h"
#include "generator/generator.h"
#include "generator/state.h"
#include "generator/wait.h"
#include "guard.h"
#include "units.h"

/* A block of a batch spans at most this, so that other callers wait briefly. */
#define BLOCK_MS 16

Counters   *my_counters = NULL;

/*
 * Takes "least" consecutive units, or up to "most" if lead and ceiling allow,
 * and waits until they are due.  If least > 1, they are of one ms.
 */
static UnitBlock
take(int64 least, int64 most)
{
	Generator  *g = generator;
	int64		now = clock_units();
	Patience	patience = {false};
	UnitBlock	block;
	bool		ahead = false;

	my_counters = &g->counters[MyProcNumber];
	for (;;)
	{
		uint64		opening = g->opening;
		uint64		last;
		int64		usable;
		int64		reach;

		pg_read_barrier();
		last = pg_atomic_read_u64(&g->last);
		usable = (int64) pg_atomic_read_u64(&g->usable_until);
		reach = Min((now + units_from_ms(snowid_max_lead)) | unit_format.sequence_mask,
					usable);
		block.next = block.end = Max((int64) last + 1, now);
		if (least > 1 && last != GATE_CLOSED)
		{
			/* too few are left of this ms: take the next one, and leave a gap */
			if ((block.next & unit_format.sequence_mask) + least > units_from_ms(1))
				block.next = (block.next | unit_format.sequence_mask) + 1;
			block.end = block.next + least - 1;
		}
		if (likely(block.end <= reach))
			block.end += Min(most - least, reach - block.end);
		else
		{
			if (!may_take_ahead((int64) last, now, block.end, &patience))
			{
				now = clock_units();
				continue;
			}
			ahead = true;

			/*
			 * All units of a ms are due together.  The first caller to wait
			 * for the next ms may take all of it.  Later callers take no more
			 * than they must, or batches would queue far ahead.
			 */
			if (block.next <= reach + units_from_ms(1))
				block.end = Max(block.end,
								Min(Min(block.next | unit_format.sequence_mask, usable),
									block.next + most - 1));
		}
		block.pair_bits = g->pair_bits;
		if (unlikely(!pg_atomic_compare_exchange_u64(&g->last, &last, block.end)) ||
			unlikely(g->opening != opening))
			continue;
		if (unlikely(block.end > (int64) pg_atomic_read_u64(&g->ask_above)))
			ask_for_grant();
		if (likely(!ahead) || wait_until_due(block.next, &patience))
			break;
		/* the clock was set back so far that there will be another pair */
		ahead = false;
		now = clock_units();
	}
	if (unlikely(patience.started))
		count_wait(&patience);
	count(&my_counters->keys, block.end - block.next + 1);
	return block;
}

static pg_noinline int64
next_in_turn(void)
{
	UnitBlock	block;

	require_preloaded();
	block = take(1, 1);
	return key_from_unit(block.next, block.pair_bits);
}

/*
 * The next key of this server.  Throws if none can be made within max_wait.
 * This is the whole hot path: take(1, 1) in one step, if the caller need not
 * wait.
 */
int64
generator_next(void)
{
	Generator  *g = generator;
	int64		now;
	int64		reach;
	int64		unit;
	uint64		opening;
	uint64		last;
	uint64		pair_bits;

	if (unlikely(my_counters == NULL))
		return next_in_turn();

	now = clock_units();
	reach = (now + units_from_ms(snowid_max_lead)) | unit_format.sequence_mask;
	opening = g->opening;
	pg_read_barrier();
	last = pg_atomic_read_u64(&g->last);
	unit = Max((int64) last + 1, now);
	pair_bits = g->pair_bits;
	if (unlikely(unit > reach) ||
		unlikely(unit > (int64) pg_atomic_read_u64(&g->usable_until)) ||
		unlikely(unit > (int64) pg_atomic_read_u64(&g->ask_above)) ||
		unlikely(!pg_atomic_compare_exchange_u64(&g->last, &last, unit)) ||
		unlikely(g->opening != opening))
		return next_in_turn();
	count(&my_counters->keys, 1);
	return key_from_unit(unit, pair_bits);
}

/*---- Many keys ----*/

/* Gives a used-up block up to "wanted" new units, but at most BLOCK_MS. */
void
generator_refill(UnitBlock *block, int64 wanted)
{
	*block = take(1, Min(wanted, units_from_ms(BLOCK_MS)));
}

/*
 * Writes all keys that are left in a block, and returns the address after them;
 * does not throw.  Keys of one ms are consecutive integers.
 */
int64 *
block_spill(const UnitBlock *block, int64 *keys)
{
	int64		unit = block->next;

	while (unit <= block->end)
	{
		int64		last = Min(unit | unit_format.sequence_mask, block->end);
		uint64		key = key_from_unit(unit, block->pair_bits);

		/* after the greatest possible key this does not overflow */
		for (; unit <= last; unit++)
			*keys++ = (int64) key++;
	}
	return keys;
}

/*
 * The first of so many keys that are consecutive integers: units of one ms, of
 * which "wanted" is at most all.  Throws as generator_next() does.
 */
int64
generator_next_block(int64 wanted)
{
	UnitBlock	block = take(wanted, wanted);

	return key_from_unit(block.next, block.pair_bits);
}
