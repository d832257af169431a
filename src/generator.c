/*
 * generator.c
 *		The hot path: one generator for the whole server.
 *
 * Owns the shared state; no other file touches its fields.
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
 * - A unit is handed out only when its millisecond leads the clock by
 *	 snowid.max_drift at most, and never above "usable_until".
 * - Take, then wait: who has taken a unit too far ahead waits for its moment.
 *	 What would take longer than snowid.max_wait is refused before anything is
 *	 taken, so that nobody can drive "last" away.
 * - The gate is closed by exchanging a sentinel into "last" that is above
 *	 everything usable.  The pair changes only behind the closed gate, and the
 *	 gate opens with a "last" above every value it had before, so that a
 *	 compare-and-swap that was prepared with the old pair fails.
 *
 * The spinlock covers loads, compares and stores only; clock, waits and
 * errors are outside it.  What every key touches is an atomic beside it, since
 * a holder that is descheduled would stall all callers.
 */
#include "postgres.h"

#include <time.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "access/xlog.h"

#include "snowid.h"

/* Above every unit that is usable, and one can be added to it. */
#define GATE_CLOSED (PG_INT64_MAX - 1)

/* The longest block of a batch, so that others' waits stay short. */
#define BLOCK_MS 16

/* Slack for a clock that is slewed while a caller waits. */
#define SLEW_MS 10

/*
 * What one backend has counted; written by its owner alone, so that counting
 * costs no contention.  A later backend with the same number counts on.
 */
typedef struct Counters
{
	pg_atomic_uint64 keys;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 wait_us;
	pg_atomic_uint64 errors;
	char		padding[PG_CACHE_LINE_SIZE - 4 * sizeof(pg_atomic_uint64)];
} Counters;

typedef struct Generator
{
	pg_atomic_uint64 last;		/* highest unit ever taken, or GATE_CLOSED */
	pg_atomic_uint64 usable_until;	/* no unit above is handed out */
	uint64		node_bits;		/* the pair in its place; see above */
	char		padding[PG_CACHE_LINE_SIZE - 3 * sizeof(uint64)];

	ConditionVariable reason_changed;

	slock_t		mutex;			/* protects the following fields only */
	GateReason	reason;			/* GATE_OPEN, or why the gate is closed */
	char		detail[GATE_DETAIL_LEN];
	bool		has_pair;
	int			datacenter_id;
	int			worker_id;
	int64		resume_above;	/* "last" of the closed gate */
	int64		floor;			/* "last" when the gate was first opened */
	int			worker_procno;	/* the snowid worker's, or -1 */
	int64		steps_back;

	Counters	counters[FLEXIBLE_ARRAY_MEMBER];	/* one a backend */
} Generator;

static Generator *generator = NULL;

/* What a refused caller is told; where "passes", it waits up to max_wait. */
static const struct
{
	const char *message;
	const char *hint;
	bool		passes;
}			gate_reasons[] =
{
	[GATE_OPEN] = {"", NULL, true},
	[GATE_STARTING] = {"snowid is not ready yet",
		"Try again. If it lasts, see the server log: the \"snowid worker\" process needs a free place in max_worker_processes.",
	true},
	[GATE_STOPPING] = {"snowid is shutting down", NULL, true},
	[GATE_RECOVERY] = {"snowid makes no keys during recovery",
	"Ask the primary server, or promote this one.", false},
	[GATE_NO_WORKER_ID] = {"snowid has no worker ID",
		"Set snowid.worker_id, a number that no other server uses, and reload the configuration.",
	false},
	[GATE_LAYOUT] = {"snowid cannot use this layout",
		"Correct the settings of the layout and restart the server.",
	false},
	[GATE_FILE] = {"snowid cannot use its state file",
	"Mend the cause; snowid tries again by itself.", false}
};

/*---- Shared memory ----*/

Size
generator_shmem_size(void)
{
	return add_size(offsetof(Generator, counters),
					mul_size(MaxBackends, sizeof(Counters)));
}

/* Does not throw once the memory is there; called with AddinShmemInitLock. */
void
generator_shmem_init(void)
{
	bool		found;
	int64		end_of_range;

	generator = ShmemInitStruct("snowid", generator_shmem_size(), &found);
	if (found)
		return;

	memset(generator, 0, generator_shmem_size());
	end_of_range = layout_last_ms(&server_layout) - server_layout.epoch;
	if (end_of_range >= GATE_CLOSED >> server_layout.sequence_bits)
		end_of_range = GATE_CLOSED - 1;
	else
		end_of_range = ((end_of_range + 1) << server_layout.sequence_bits) - 1;
	pg_atomic_init_u64(&generator->last, GATE_CLOSED);
	pg_atomic_init_u64(&generator->usable_until, end_of_range);
	ConditionVariableInit(&generator->reason_changed);
	SpinLockInit(&generator->mutex);
	generator->reason = GATE_STARTING;
	generator->worker_procno = -1;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u64(&generator->counters[i].keys, 0);
		pg_atomic_init_u64(&generator->counters[i].waits, 0);
		pg_atomic_init_u64(&generator->counters[i].wait_us, 0);
		pg_atomic_init_u64(&generator->counters[i].errors, 0);
	}
}

bool
generator_attached(void)
{
	return generator != NULL;
}

/*---- The clock, and what follows from the layout ----*/

static inline int64
sequence_mask(void)
{
	return (INT64CONST(1) << server_layout.sequence_bits) - 1;
}

/*
 * The wall clock in units; negative before the epoch.  The kernel's clock
 * ends in 2262, 2^43 ms after 1970: with 18 sequence bits, the most that the
 * setting takes, nothing overflows here or in a sum of two.
 */
int64
generator_clock(void)
{
	struct timespec now;
	int64		ms;
	uint64		rest;

	clock_gettime(CLOCK_REALTIME, &now);
	ms = (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000 - server_layout.epoch;
	if (snowid_sequence_start == SEQUENCE_ZERO)
		return units_from_ms(ms);
	rest = (uint64) (now.tv_nsec % 1000000);
	return units_from_ms(ms) +
		(int64) ((rest << server_layout.sequence_bits) / 1000000);
}

static inline int64
key_from_unit(int64 unit, uint64 node_bits)
{
	int			bits = server_layout.sequence_bits;

	return (unit >> bits) << (63 - layout_timestamp_bits(&server_layout)) |
		node_bits | (unit & sequence_mask());
}

static inline void
count(pg_atomic_uint64 *counter, int64 n)
{
	pg_atomic_write_u64(counter, pg_atomic_read_u64(counter) + n);
}

static inline Counters *
my_counters(void)
{
	return &generator->counters[MyProcNumber];
}

/*---- Waits and refusals ----*/

static int64
elapsed_ms(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

static void
count_wait(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	count(&my_counters()->waits, 1);
	count(&my_counters()->wait_us, (int64) INSTR_TIME_GET_MICROSEC(now));
}

const char *
gate_message(GateReason reason)
{
	return gate_reasons[reason].message;
}

static void
refuse_closed(GateReason reason, const char *detail)
{
	count(&my_counters()->errors, 1);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s", gate_message(reason)),
			 detail[0] ? errdetail("%s", detail) : 0,
			 gate_reasons[reason].hint ? errhint("%s", gate_reasons[reason].hint) : 0));
}

static void
refuse_lead(int64 lead, int64 wait)
{
	count(&my_counters()->errors, 1);
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("the next key would lead the clock by " INT64_FORMAT " ms", lead),
			 errdetail("snowid.max_drift allows %d ms, and to wait " INT64_FORMAT " ms for the clock is more than snowid.max_wait, %d ms.",
					   snowid_max_drift, wait, snowid_max_wait),
			 errhint("The clock was set back, or keys are asked for faster than the layout can number them; see the view snowid_status.")));
}

/* Waits until the gate is open; refuses where that would take too long. */
static void
wait_for_gate(void)
{
	instr_time	start;
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];

	INSTR_TIME_SET_CURRENT(start);
	ConditionVariablePrepareToSleep(&generator->reason_changed);
	for (;;)
	{
		int			procno;
		int64		left = snowid_max_wait - elapsed_ms(start);

		SpinLockAcquire(&generator->mutex);
		reason = generator->reason;
		memcpy(detail, generator->detail, sizeof(detail));
		procno = generator->worker_procno;
		SpinLockRelease(&generator->mutex);

		if (reason == GATE_OPEN)
			break;
		/* a promotion that the worker has not seen yet passes, too */
		if (reason == GATE_RECOVERY && !RecoveryInProgress())
		{
			if (procno >= 0)
				SetLatch(&ProcGlobal->allProcs[procno].procLatch);
		}
		else if (!gate_reasons[reason].passes)
			left = 0;
		if (left <= 0)
			refuse_closed(reason, detail);
		(void) ConditionVariableTimedSleep(&generator->reason_changed, left,
										   PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
	count_wait(start);
}

/*
 * May the caller take this unit, which no clock reading covers yet?  Refuses
 * where its moment is further away than max_wait; the clock is read again
 * first, for the caller may have been descheduled since its reading.
 */
static void
require_in_reach(int64 unit)
{
	int64		now = generator_clock();
	int64		wait;

	if (unit > (int64) pg_atomic_read_u64(&generator->usable_until))
	{
		count(&my_counters()->errors, 1);
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("the timestamp's range of the snowid layout has ended"),
				 errhint("Settings with a later epoch or with more bits for the timestamp make a new layout.")));
	}
	if (now < 0)
	{
		count(&my_counters()->errors, 1);
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("the clock is before snowid.epoch"),
				 errhint("Set the clock of this machine.")));
	}
	wait = ms_from_units((unit & ~sequence_mask()) -
						 units_from_ms(snowid_max_drift) - now);
	if (wait > snowid_max_wait)
		refuse_lead(ms_from_units(unit - now), wait);
}

/*
 * Waits until this unit, taken already, leads the clock by max_drift at most.
 * Each turn reads the wall clock; how long it takes in all is counted by the
 * monotonic one.  A caller who leaves in an error or a cancel leaves a gap.
 */
static void
wait_for_moment(int64 unit)
{
	int64		moment = (unit & ~sequence_mask()) - units_from_ms(snowid_max_drift);
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	for (;;)
	{
		int64		now = generator_clock();
		int64		left = moment - now;
		int64		left_ms;

		if (left <= 0)
			break;
		left_ms = ms_from_units(left);
		/* longer than was agreed to: the clock was set back meanwhile */
		if (elapsed_ms(start) + left_ms > (int64) snowid_max_wait + SLEW_MS)
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
	count_wait(start);
}

/*---- Taking numbers ----*/

/*
 * Takes up to "wanted" consecutive units: as many as the lead leaves, but at
 * least one, for which it waits.  The whole hot path is here.
 */
static inline Block
take(int64 wanted)
{
	Generator  *g = generator;
	int64		now = generator_clock();
	Block		block;
	int64		reach;

	for (;;)
	{
		uint64		last = pg_atomic_read_u64(&g->last);

		pg_read_barrier();		/* the pair is that of this last, or later */
		block.node_bits = g->node_bits;
		block.next = Max((int64) last + 1, now);
		reach = Min((now + units_from_ms(snowid_max_drift)) | sequence_mask(),
					(int64) pg_atomic_read_u64(&g->usable_until));
		block.end = Min(block.next + wanted - 1, reach);
		if (unlikely(block.next > reach))
		{
			if ((int64) last == GATE_CLOSED)
			{
				wait_for_gate();
				now = generator_clock();
				continue;
			}
			require_in_reach(block.next);
			block.end = block.next;
		}
		if (likely(pg_atomic_compare_exchange_u64(&g->last, &last, block.end)))
			break;
	}
	if (unlikely(block.next > reach))
		wait_for_moment(block.next);
	count(&my_counters()->keys, block.end - block.next + 1);
	return block;
}

/* The next key of this server.  Throws where none can be made in max_wait. */
int64
generator_next(void)
{
	Block		block = take(1);

	return key_from_unit(block.next, block.node_bits);
}

/* Gives a used-up block up to "wanted" new numbers, 16 ms of them at most. */
void
generator_refill(Block *block, int64 wanted)
{
	*block = take(Min(wanted, units_from_ms(BLOCK_MS)));
}

/* The next key of a block that is not used up; does not throw. */
int64
block_next(Block *block)
{
	return key_from_unit(block->next++, block->node_bits);
}

/*
 * From here on every key is greater than id, whatever pair made it: the
 * generator goes on behind its millisecond.
 */
void
generator_advance(int64 id)
{
	Parts		parts;
	int64		unit;

	layout_unpack(&server_layout, id, &parts);
	unit = units_from_ms(parts.unix_ms - server_layout.epoch) | sequence_mask();
	if (unit > (generator_clock() + units_from_ms(snowid_max_jump)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key " INT64_FORMAT " leads the clock by " INT64_FORMAT " ms, more than snowid.max_jump",
						id, ms_from_units(unit - generator_clock())),
				 errdetail("No key could be made until the clock is there."),
				 errhint("Is it a key of this layout? If so, raise snowid.max_jump.")));
	for (;;)
	{
		uint64		last = pg_atomic_read_u64(&generator->last);

		if ((int64) last == GATE_CLOSED)
		{
			wait_for_gate();
			continue;
		}
		if ((int64) last >= unit ||
			pg_atomic_compare_exchange_u64(&generator->last, &last, unit))
			break;
	}
}

/*---- The gate, for the snowid worker ----*/

void
generator_attach_worker(void)
{
	SpinLockAcquire(&generator->mutex);
	generator->worker_procno = MyProcNumber;
	SpinLockRelease(&generator->mutex);
}

void
generator_detach_worker(void)
{
	SpinLockAcquire(&generator->mutex);
	generator->worker_procno = -1;
	SpinLockRelease(&generator->mutex);
}

/* The gate's state, and the pair that it was last opened with. */
GateReason
generator_gate(bool *has_pair, int *datacenter_id, int *worker_id)
{
	GateReason	reason;

	SpinLockAcquire(&generator->mutex);
	reason = generator->reason;
	*has_pair = generator->has_pair;
	*datacenter_id = generator->datacenter_id;
	*worker_id = generator->worker_id;
	SpinLockRelease(&generator->mutex);
	return reason;
}

/* Closes the gate, or gives a closed gate another reason.  Does not throw. */
void
generator_close(GateReason reason, const char *detail)
{
	uint64		last = pg_atomic_exchange_u64(&generator->last, GATE_CLOSED);

	SpinLockAcquire(&generator->mutex);
	if ((int64) last != GATE_CLOSED)
		generator->resume_above = last;
	generator->reason = reason;
	strlcpy(generator->detail, detail ? detail : "", GATE_DETAIL_LEN);
	SpinLockRelease(&generator->mutex);
	ConditionVariableBroadcast(&generator->reason_changed);
}

/*
 * Opens the closed gate for a pair whose ID fits, above the unit "floor" and
 * above all that was taken before.  Under another pair it goes on with the
 * next ms, for the pair stands above the sequence in the key.
 */
void
generator_open(int datacenter_id, int worker_id, int64 floor)
{
	SpinLockAcquire(&generator->mutex);
	Assert(generator->reason != GATE_OPEN);
	if (generator->has_pair && (generator->datacenter_id != datacenter_id ||
								generator->worker_id != worker_id))
		/* one more than needed, lest "last" return to a value it had */
		generator->resume_above = (generator->resume_above | sequence_mask()) + 1;
	if (!generator->has_pair || generator->resume_above < floor)
		generator->resume_above = Max(floor, -1);	/* none before the epoch */
	if (!generator->has_pair)
		generator->floor = floor;
	generator->has_pair = true;
	generator->datacenter_id = datacenter_id;
	generator->worker_id = worker_id;
	generator->node_bits =
		((uint64) datacenter_id << server_layout.worker_bits | (uint64) worker_id)
		<< server_layout.sequence_bits;
	generator->reason = GATE_OPEN;
	generator->detail[0] = '\0';
	SpinLockRelease(&generator->mutex);

	/* a full barrier: the pair is there before the numbers are */
	pg_atomic_exchange_u64(&generator->last, generator->resume_above);
	ConditionVariableBroadcast(&generator->reason_changed);
}

void
generator_count_step_back(void)
{
	SpinLockAcquire(&generator->mutex);
	generator->steps_back++;
	SpinLockRelease(&generator->mutex);
}

/*---- Status ----*/

void
generator_status(GeneratorStatus *status)
{
	int64		last = (int64) pg_atomic_read_u64(&generator->last);
	int64		now = generator_clock();
	int64		floor;
	uint64		node_bits;

	memset(status, 0, sizeof(*status));
	SpinLockAcquire(&generator->mutex);
	status->reason = generator->reason;
	memcpy(status->detail, generator->detail, GATE_DETAIL_LEN);
	status->has_pair = generator->has_pair;
	status->datacenter_id = generator->datacenter_id;
	status->worker_id = generator->worker_id;
	status->steps_back = generator->steps_back;
	if (last == GATE_CLOSED)
		last = generator->resume_above;
	floor = generator->floor;
	node_bits = generator->node_bits;
	SpinLockRelease(&generator->mutex);

	status->has_last = status->has_pair && last > floor;
	if (status->has_last)
	{
		status->last_key = key_from_unit(last, node_bits);
		status->last_unix_ms = server_layout.epoch +
			(last >> server_layout.sequence_bits);
		status->lead_ms = last > now ?
			(double) (last - now) / (double) (sequence_mask() + 1) : 0;
	}
	for (int i = 0; i < MaxBackends; i++)
	{
		Counters   *c = &generator->counters[i];

		status->keys += pg_atomic_read_u64(&c->keys);
		status->waits += pg_atomic_read_u64(&c->waits);
		status->wait_us += pg_atomic_read_u64(&c->wait_us);
		status->errors += pg_atomic_read_u64(&c->errors);
	}
}
