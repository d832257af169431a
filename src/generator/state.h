/*
 * state.h
 *		The generator's state in shared memory; for the files of this folder
 *		alone.
 *
 * Fields that every key touches are atomics: under a lock, a holder that loses its
 * CPU would stall all callers.  Fields that change rarely are under an LWLock.
 */
#ifndef SNOWID_GENERATOR_STATE_H
#define SNOWID_GENERATOR_STATE_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

#include "generator/gate.h"
#include "process.h"

#pragma GCC visibility push(hidden)

/* A sentinel above every usable unit; adding 1 does not overflow. */
#define GATE_CLOSED (PG_INT64_MAX - 1)

/*
 * One backend's counters.  Only their owner writes them, so counting causes no
 * contention.  The next backend with the same number continues them.
 */
typedef struct Counters
{
	pg_atomic_uint64 keys;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 wait_us;
	pg_atomic_uint64 errors;
	char		padding[PG_CACHE_LINE_SIZE - 4 * sizeof(pg_atomic_uint64)];
} Counters;

/* The keeper begins a turn each second; after so many ms it is stuck. */
#define STUCK_MS 2500

/* A call of snowid_advance(), which the keeper carries out. */
typedef struct AdvanceLetter
{
	int64		unit;			/* keys must be above it */
	bool		done;			/* the answer; false: nothing was changed ... */
	char		error[GATE_DETAIL_LEN]; /* ... for this reason, if any */
} AdvanceLetter;

typedef struct Generator
{
	pg_atomic_uint64 last;		/* highest unit ever taken, or GATE_CLOSED */
	pg_atomic_uint64 usable_until;	/* no unit above is taken */
	pg_atomic_uint64 ask_above; /* a unit above it wakes the keeper */
	uint64		pair_bits;		/* the pair, shifted into position */
	uint64		opening;		/* how often the gate was opened */
	char		padding[PG_CACHE_LINE_SIZE - 5 * sizeof(uint64)];

	ConditionVariable changed;	/* the gate, or usable_until */

	Mailbox		advance;
	AdvanceLetter advance_letter;

	Gate		gate;			/* generator_lock protects it */

	Counters	counters[FLEXIBLE_ARRAY_MEMBER];	/* one for each backend */
} Generator;

extern Generator *generator;
extern LWLock *generator_lock;

/* This backend's counters; NULL until its first key. */
extern Counters *my_counters;

static inline void
count(pg_atomic_uint64 *counter, int64 n)
{
	pg_atomic_write_u64(counter, pg_atomic_read_u64(counter) + n);
}

/* The error that callers get; if the reason is temporary, after waiting. */
typedef struct GateText
{
	bool		temporary;
	const char *message;
	const char *hint;
	int			sqlstate;		/* 0: not in the state for it */
} GateText;

extern const GateText gate_texts[];

/* The outlook of a caller that wants a unit. */
typedef enum Prospect
{
	UNIT_USABLE,				/* it can be taken, perhaps after a wait */
	UNIT_NEEDS_GRANT,			/* the same, once the keeper has granted it */
	UNIT_TOO_FAR,				/* it is due later than the caller may wait */
	UNIT_BEYOND_RANGE,			/* of the layout's timestamp */
	UNIT_BEFORE_EPOCH			/* the clock is */
} Prospect;

extern Prospect generator_judge(int64 unit, int64 now, int64 usable_until, int64 may_wait_ms);
extern GateReason generator_reason(GateReason reason);
extern bool generator_keeper_trouble(int64 patience, char *detail);

#pragma GCC visibility pop

#endif							/* SNOWID_GENERATOR_STATE_H */
