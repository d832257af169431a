/*
 * state.h
 *		The shared state of the generator; for generator.c and gate.c alone.
 *
 * The spinlock covers loads, compares and stores only; clock, waits and
 * errors are outside it.  What is larger, and changes rarely, has a lock with a
 * queue.  What every key touches is an atomic beside them, since a holder that
 * is descheduled would stall all callers.
 */
#ifndef SNOWID_GENERATOR_STATE_H
#define SNOWID_GENERATOR_STATE_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "generator/gate.h"

#pragma GCC visibility push(hidden)

/* Above every unit that is usable, and one can be added to it. */
#define GATE_CLOSED (PG_INT64_MAX - 1)

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

/* The keeper begins a turn each second; after so many ms it is stuck. */
#define STUCK_MS 2500

/* A call of snowid_advance(), which the keeper carries out; one at a time. */
typedef enum AdvanceState
{
	ADVANCE_NONE,
	ADVANCE_WAITING,			/* the caller may withdraw it */
	ADVANCE_RUNNING,			/* the keeper has taken it */
	ADVANCE_DONE,				/* for the caller to see */
	ADVANCE_FAILED				/* the same; nothing was changed */
} AdvanceState;

typedef struct Generator
{
	pg_atomic_uint64 last;		/* highest unit ever taken, or GATE_CLOSED */
	pg_atomic_uint64 usable_until;	/* no unit above is taken */
	pg_atomic_uint64 ask_above; /* the keeper is to be woken from here on */
	uint64		pair_bits;		/* the pair in its place in the key */
	uint64		opening;		/* number of times the gate was opened */
	char		padding[PG_CACHE_LINE_SIZE - 5 * sizeof(uint64)];

	ConditionVariable changed;	/* the gate, or usable_until */

	slock_t		mutex;			/* protects the following fields only */
	AdvanceState advance;
	int			advance_procno; /* the caller's */
	int64		advance_unit;

	/* generator_lock protects the following fields */
	GateReason	reason;			/* GATE_OPEN, or why the gate is closed */
	char		detail[GATE_DETAIL_LEN];	/* of the reason, or why no grant */
	bool		has_pair;
	int			datacenter_id;
	int			worker_id;
	int64		resume_above;	/* "last" of the closed gate */
	int64		floor;			/* "last" when the gate was first opened */
	int64		steps_back;
	bool		is_spare;		/* the pair is the spare */
	int			spare_worker_id;	/* -1: there is none */
	int64		spare_uses;		/* changes to it */

	Counters	counters[FLEXIBLE_ARRAY_MEMBER];	/* one a backend */
} Generator;

extern Generator *generator;
extern LWLock *generator_lock;

/* What the refused are told; where the reason passes, callers wait first. */
typedef struct GateText
{
	int			sqlstate;
	bool		passes;
	const char *message;
	const char *hint;
} GateText;

extern const GateText gate_texts[];

extern bool generator_keeper_trouble(int64 patience, char *detail);

#pragma GCC visibility pop

#endif							/* SNOWID_GENERATOR_STATE_H */
