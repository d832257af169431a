/*
 * generator.c
 *		The hot path: one generator for the whole server, as its callers see it.
 *
 * Numbers are taken in units of 1/2^sequence_bits ms since the epoch: a unit
 * is the timestamp and the sequence of a key.  The rule is
 *
 *		next = Max(last + 1, now)
 *
 * (get_real_time_ns_ascending() of PostgreSQL 18's uuidv7; RFC 9562 section
 * 6.2, method 3).  Invariants:
 *
 * - "last", the highest unit ever taken, only rises, so units increase
 *	 strictly in the order in which they were taken, over all sessions.
 * - No unit above "usable_until" is taken.  The snowid keeper alone raises it,
 *	 when the new value is durable.  So neither a refused caller nor a wild
 *	 reading of the clock can drive "last" away.
 * - A unit is handed out only when its millisecond leads the clock by
 *	 snowid.max_lead at most.  Take, then wait: who has taken a unit further
 *	 ahead waits for its moment, first come, first served; what would take
 *	 longer than snowid.max_wait is refused before it is taken.
 * - The gate is closed by exchanging a sentinel into "last" that is above
 *	 everything usable.  The pair changes only behind the closed gate, and each
 *	 opening has a number of its own: a unit that was taken from another
 *	 opening than the one the pair was read in is thrown away.
 *
 * The shared state is in state.h; no files but this one and gate.c, the
 * snowid keeper's side, touch it.  test/memory/generator.pml mirrors how, for
 * all interleavings.
 */
#include "postgres.h"

#include <time.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "generator/generator.h"
#include "generator/state.h"
#include "guard.h"
#include "key/layout.h"
#include "process.h"
#include "units.h"

/* The longest block of a batch, so that others' waits stay short. */
#define BLOCK_MS 16

/* Slack for a clock that is slewed while a caller waits. */
#define SLEW_MS 10

/*
 * max_wait is about the clock, and may be less than a flush of the WAL takes:
 * for the keeper a caller waits this long at least.
 */
#define KEEPER_WAIT_MS 1000

/* How soon a caller who waits for a grant asks again. */
#define ASK_MS 20

/* How long a caller has waited in this call. */
typedef struct Patience
{
	bool		started;
	instr_time	start;
} Patience;

/* This backend's, once it has taken a number. */
static Counters *my_counters = NULL;

/*---- The clock, and what is counted ----*/

static inline int64
clock_units(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return units_from_timespec(&now);
}

static inline void
count(pg_atomic_uint64 *counter, int64 n)
{
	pg_atomic_write_u64(counter, pg_atomic_read_u64(counter) + n);
}

/* Before anything that may count; does not throw. */
static inline void
find_my_counters(void)
{
	my_counters = &generator->counters[MyProcNumber];
}

/*---- Waits and refusals ----*/

/* Starts the wait, or tells how many ms of it have passed. */
static int64
waited_ms(Patience *patience)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	if (!patience->started)
	{
		patience->started = true;
		patience->start = now;
	}
	INSTR_TIME_SUBTRACT(now, patience->start);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

static pg_noinline void
count_wait(const Patience *patience)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, patience->start);
	count(&my_counters->waits, 1);
	count(&my_counters->wait_us, (int64) INSTR_TIME_GET_MICROSEC(now));
}

/* SQLSTATE, message and detail of what a caller is refused for. */
void
generator_refuse(GateReason reason, const char *detail)
{
	ereport(ERROR,
			(errcode(gate_texts[reason].sqlstate),
			 errmsg("%s", gate_texts[reason].message),
			 detail[0] ? errdetail("%s", detail) : 0,
			 gate_texts[reason].hint ? errhint("%s", gate_texts[reason].hint) : 0));
}

/* The same for who wanted a key. */
static void
refuse_reason(GateReason reason, const char *detail)
{
	count(&my_counters->errors, 1);
	generator_refuse(reason, detail);
}

static void
refuse_lead(int64 lead, int64 wait)
{
	count(&my_counters->errors, 1);
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("the next key would lead the clock by " INT64_FORMAT " ms", lead),
			 errdetail("snowid.max_lead allows %d ms, and to wait " INT64_FORMAT " ms for the clock is more than snowid.max_wait, %d ms.",
					   snowid_max_lead, wait, snowid_max_wait),
			 errhint("The clock was set back, or keys are asked for faster than the layout can number them; see snowid_status().")));
}

/* A grant is wanted: wakes the keeper, where nobody did since the last one. */
static pg_noinline void
ask_for_grant(void)
{
	if (pg_atomic_exchange_u64(&generator->ask_above, GATE_CLOSED) != GATE_CLOSED)
		process_wake(PROCESS_KEEPER);
}

/*
 * Why there are no keys, and whether that will pass: then callers wait.  A
 * promotion that the keeper has not seen yet passes, too.
 */
static bool
look_at_gate(GateReason *reason, char *detail)
{
	LWLockAcquire(generator_lock, LW_SHARED);
	*reason = generator->reason;
	memcpy(detail, generator->detail, GATE_DETAIL_LEN);
	LWLockRelease(generator_lock);
	return gate_texts[*reason].passes ||
		(*reason == GATE_RECOVERY && !RecoveryInProgress());
}

/*
 * Waits until the keeper changes something: the gate, where it is closed, or
 * a grant that reaches this unit.  Returns early at times, for the clock to be
 * read again; refuses when the patience is at its end.
 */
static void
wait_for_keeper(int64 unit, Patience *patience)
{
	int64		waited = waited_ms(patience);
	int64		left = Max(snowid_max_wait, KEEPER_WAIT_MS) - waited;
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];
	bool		passes;

	ConditionVariablePrepareToSleep(&generator->changed);
	passes = look_at_gate(&reason, detail);
	if (reason != GATE_OPEN ||
		unit > (int64) pg_atomic_read_u64(&generator->usable_until))
	{
		if (!passes || left <= 0)
		{
			if (passes)
				(void) generator_keeper_trouble(detail[0] ? STUCK_MS : waited, detail);
			refuse_reason(reason, detail);
		}
		/* behind a closed gate, the keeper knows by itself when to look */
		if (reason == GATE_OPEN)
			ask_for_grant();
		else if (reason == GATE_RECOVERY)
			process_notify(PROCESS_KEEPER);
		(void) ConditionVariableTimedSleep(&generator->changed,
										   reason == GATE_OPEN ? ASK_MS : left,
										   PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

/*
 * Refuses a unit that no key may have, or whose moment is too far away.  The
 * clock is read again, for the caller may have been descheduled since.
 */
static void
require_in_reach(int64 unit, Patience *patience)
{
	int64		now = clock_units();
	int64		wait;

	if (now < 0)
		refuse_reason(GATE_BEFORE_EPOCH, "");
	if (unit > generator_range_end())
	{
		count(&my_counters->errors, 1);
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("the timestamp's range of the snowid layout has ended"),
				 errhint("See \"Layouts\" in snowid's manual.")));
	}
	wait = ms_from_units((unit & ~unit_format.sequence_mask) -
						 units_from_ms(snowid_max_lead) - now);
	if (wait > Max(snowid_max_wait - waited_ms(patience), 0))
		refuse_lead(ms_from_units(unit - now), wait);
}

/*
 * Waits until this unit, taken already, leads the clock by max_lead at most.
 * Each turn reads the wall clock; how long it takes in all is counted by the
 * monotonic one.  A caller who leaves in an error or a cancel leaves a gap.
 */
static pg_noinline void
wait_for_moment(int64 unit, Patience *patience)
{
	int64		moment = (unit & ~unit_format.sequence_mask) - units_from_ms(snowid_max_lead);

	for (;;)
	{
		int64		now = clock_units();
		int64		left = moment - now;
		int64		left_ms = ms_from_units(left);

		if (left <= 0)
			break;
		/* longer than was agreed to: the clock was set back meanwhile */
		if (waited_ms(patience) + left_ms > (int64) snowid_max_wait + SLEW_MS)
			refuse_lead(ms_from_units(unit - now), left_ms);

		CHECK_FOR_INTERRUPTS();
		if (left_ms > 2)
		{
			(void) WaitLatch(MyLatch,
							 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(left_ms - 1, 1000), PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
		}
		else
		{
			/* a latch's timeout is in whole ms, which is a lot of keys */
			pgstat_report_wait_start(PG_WAIT_EXTENSION);
			pg_usleep((left * 1000 >> server_layout.sequence_bits) + 1);
			pgstat_report_wait_end();
		}
	}
}

/*---- Taking numbers ----*/

/*
 * What a unit out of reach needs before it may be taken.  True: take it, and
 * wait for its moment; false: look again.
 */
static pg_noinline bool
may_take_ahead(int64 last, int64 unit, Patience *patience)
{
	if (last != GATE_CLOSED)
	{
		/* a wild reading of the clock that is over is no reason to refuse */
		if (unit > last + 1 && unit > clock_units())
			return false;
		require_in_reach(unit, patience);
		if (unit <= (int64) pg_atomic_read_u64(&generator->usable_until))
			return true;
	}
	wait_for_keeper(unit, patience);
	return false;
}

/*
 * Takes up to "wanted" consecutive units: as many as lead and ceiling leave, or
 * else of the ms that comes next, and waits for it.
 */
static UnitBlock
take(int64 wanted)
{
	Generator  *g = generator;
	int64		now = clock_units();
	Patience	patience = {false};
	UnitBlock	block;
	int64		reach;
	int64		usable;
	bool		ahead = false;

	find_my_counters();
	for (;;)
	{
		uint64		opening = g->opening;
		uint64		last;

		pg_read_barrier();
		last = pg_atomic_read_u64(&g->last);
		block.next = Max((int64) last + 1, now);
		reach = Min((now + units_from_ms(snowid_max_lead)) | unit_format.sequence_mask,
					(int64) pg_atomic_read_u64(&g->usable_until));
		if (likely(block.next <= reach))
			block.end = block.next + Min(wanted - 1, reach - block.next);
		else
		{
			if (!may_take_ahead((int64) last, block.next, &patience))
			{
				now = clock_units();
				continue;
			}

			/*
			 * The units of a ms have one moment.  Who is first to wait for
			 * the ms that comes next may have all of it; who comes behind
			 * takes one unit, lest many batches queue up.
			 */
			usable = (int64) pg_atomic_read_u64(&g->usable_until);
			if (block.next > usable)
				continue;		/* another opening's */
			block.end = block.next;
			if (block.next <= reach + units_from_ms(1))
				block.end += Min(Min(block.next | unit_format.sequence_mask, usable) -
								 block.next, wanted - 1);
			ahead = true;
		}
		block.pair_bits = g->pair_bits;
		if (likely(pg_atomic_compare_exchange_u64(&g->last, &last, block.end)) &&
			likely(g->opening == opening))
			break;
	}
	if (unlikely(block.end > (int64) pg_atomic_read_u64(&g->ask_above)))
		ask_for_grant();
	if (unlikely(ahead))
		wait_for_moment(block.next, &patience);
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
	block = take(1);
	return key_from_unit(block.next, block.pair_bits);
}

/*
 * The next key of this server.  Throws where none can be made in max_wait.
 * The whole hot path is here: what take(1) comes to, in one step, where
 * nothing is in the way.
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

/* Gives a used-up block up to "wanted" new numbers, 16 ms of them at most. */
void
generator_refill(UnitBlock *block, int64 wanted)
{
	*block = take(Min(wanted, units_from_ms(BLOCK_MS)));
}

/* The next key of a block that is not used up; does not throw. */
int64
block_next(UnitBlock *block)
{
	return key_from_unit(block->next++, block->pair_bits);
}

/*
 * What has become of the caller's advance to a unit: asks for it, where nobody
 * else's is under way, or withdraws it, so that nothing of it is left; what the
 * keeper has taken is not withdrawn.
 */
static AdvanceState
tend_advance(int64 unit, bool withdraw)
{
	AdvanceState state = ADVANCE_NONE;
	bool		asks = false;

	SpinLockAcquire(&generator->mutex);
	if (generator->advance == ADVANCE_NONE)
	{
		if (!withdraw)
		{
			generator->advance = state = ADVANCE_WAITING;
			generator->advance_procno = MyProcNumber;
			generator->advance_unit = unit;
			asks = true;
		}
	}
	else if (generator->advance_procno == MyProcNumber)
	{
		state = generator->advance;
		if (state == ADVANCE_WAITING && withdraw)
			generator->advance = state = ADVANCE_NONE;
		if (state == ADVANCE_DONE || state == ADVANCE_FAILED)
			generator->advance = ADVANCE_NONE;
	}
	SpinLockRelease(&generator->mutex);
	if (asks)
		process_notify(PROCESS_KEEPER);
	return state;
}

/*
 * From here on every key is greater than id, whatever pair made it, also after
 * a crash: the generator goes on behind its millisecond.  The keeper does it,
 * since it alone raises the ceiling and opens the gate; a call that fails has
 * changed nothing.
 */
void
generator_advance(int64 id)
{
	Patience	patience = {false};
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];
	AdvanceState state;
	Parts		parts;
	int64		unit;
	int64		now;

	find_my_counters();
	layout_unpack(&server_layout, id, &parts);
	unit = units_from_ms(parts.unix_ms - server_layout.epoch) | unit_format.sequence_mask;

	/* of one that ended without seeing its answer */
	(void) tend_advance(unit, true);
	/* from when the keeper has taken it, its outcome is waited for */
	HOLD_INTERRUPTS();
	for (;;)
	{
		int64		waited = waited_ms(&patience);
		bool		passes = look_at_gate(&reason, detail);
		bool		too_far;
		bool		give_up;

		now = clock_units();
		too_far = unit > now + units_from_ms(snowid_max_jump);
		give_up = !passes || waited > Max(snowid_max_wait, KEEPER_WAIT_MS);
		state = tend_advance(unit, too_far || give_up || InterruptPending);
		if (state == ADVANCE_DONE || state == ADVANCE_FAILED)
			break;
		if (state == ADVANCE_NONE)
		{
			RESUME_INTERRUPTS();
			CHECK_FOR_INTERRUPTS();
			if (too_far)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("key " INT64_FORMAT " leads the clock by " INT64_FORMAT " ms, more than snowid.max_jump",
								id, ms_from_units(unit - now)),
						 errdetail("No key could be made until the clock is there."),
						 errhint("Is it a key of this layout? If so, raise snowid.max_jump.")));
			if (give_up)
			{
				if (passes)
					(void) generator_keeper_trouble(detail[0] ? STUCK_MS : waited, detail);
				refuse_reason(reason, detail);
			}
			HOLD_INTERRUPTS();
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ASK_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	/* a cancel came too late, as it does for a commit that is being flushed */
	if (state == ADVANCE_DONE)
		QueryCancelPending = false;
	RESUME_INTERRUPTS();
	if (state == ADVANCE_FAILED)
	{
		(void) look_at_gate(&reason, detail);
		refuse_reason(reason, detail);
	}
	if (unit > now + units_from_ms(snowid_max_lead))
		ereport(NOTICE,
				(errmsg("keys wait until the clock has come within snowid.max_lead of key " INT64_FORMAT ", in " INT64_FORMAT " ms",
						id, ms_from_units(unit - now) - snowid_max_lead)));
}

/*
 * Throws where the server's layout is refused: what it says of a key may be
 * wrong.  Returns whether the gate is open, that is, the layout is known to be
 * the one of the last keys.  For each key that is read, so without the lock;
 * the reason is one word, and a caller may always come a moment too early.
 */
bool
generator_require_layout(void)
{
	GateReason	reason = *(volatile GateReason *) &generator->reason;

	if (unlikely(reason == GATE_LAYOUT || reason == GATE_LAYOUT_CONSENT))
	{
		GeneratorStatus status;

		generator_status(&status);
		if (status.reason == reason)
			generator_refuse(reason, status.detail);
	}
	return reason == GATE_OPEN;
}

/*
 * Writes the keys of a block, all that are left, and returns the place behind
 * them; does not throw.  Keys of one ms are consecutive integers.
 */
int64 *
block_spill(const UnitBlock *block, int64 *keys)
{
	int64		unit = block->next;

	while (unit <= block->end)
	{
		int64		last = Min(unit | unit_format.sequence_mask, block->end);
		int64		key = key_from_unit(unit, block->pair_bits);

		for (; unit <= last; unit++)
			*keys++ = key++;
	}
	return keys;
}

/*
 * The first of so many keys that are consecutive integers: units of one ms,
 * which has as many at least.  Where the ms that comes next has not enough left,
 * it is the one behind it, and the rest is a gap.  Throws as generator_next().
 */
int64
generator_next_block(int64 wanted)
{
	Generator  *g = generator;
	int64		now = clock_units();
	Patience	patience = {false};
	int64		first;
	int64		end;
	uint64		pair_bits;
	bool		ahead;

	find_my_counters();
	for (;;)
	{
		uint64		opening = g->opening;
		uint64		last;
		int64		reach;

		pg_read_barrier();
		last = pg_atomic_read_u64(&g->last);
		first = Max((int64) last + 1, now);
		reach = Min((now + units_from_ms(snowid_max_lead)) | unit_format.sequence_mask,
					(int64) pg_atomic_read_u64(&g->usable_until));
		ahead = first > reach;
		if (ahead && !may_take_ahead((int64) last, first, &patience))
		{
			now = clock_units();
			continue;
		}

		/* not enough is left of the ms */
		if ((first & unit_format.sequence_mask) + wanted > units_from_ms(1))
			first = (first | unit_format.sequence_mask) + 1;
		end = first + wanted - 1;
		if (end > reach)
		{
			require_in_reach(end, &patience);
			if (end > (int64) pg_atomic_read_u64(&g->usable_until))
			{
				wait_for_keeper(end, &patience);
				now = clock_units();
				continue;
			}
			ahead = true;
		}
		pair_bits = g->pair_bits;
		if (pg_atomic_compare_exchange_u64(&g->last, &last, end) &&
			g->opening == opening)
			break;
	}
	if (end > (int64) pg_atomic_read_u64(&g->ask_above))
		ask_for_grant();
	if (ahead)
		wait_for_moment(first, &patience);
	if (patience.started)
		count_wait(&patience);
	count(&my_counters->keys, wanted);
	return key_from_unit(first, pair_bits);
}
