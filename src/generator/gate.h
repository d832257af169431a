/*
 * gate.h
 *		The gate, as the keeper opens and closes it; the reasons for a closed
 *		gate; grants and status.
 */
#ifndef SNOWID_GENERATOR_GATE_H
#define SNOWID_GENERATOR_GATE_H

#include "datatype/timestamp.h"

#include "key/layout.h"

/* The reasons why no key can be made; gate.c has their messages. */
typedef enum GateReason
{
	GATE_OPEN,
	GATE_STARTING,				/* temporary: callers wait */
	GATE_BEHIND,				/* the same */
	GATE_STOPPING,
	GATE_RECOVERY,
	GATE_SINGLE_USER,
	GATE_NO_WORKER_ID,
	GATE_CLAIM,					/* temporary */
	GATE_CLAIM_LOST,
	GATE_CLAIM_REFUSED,
	GATE_BEFORE_EPOCH,
	GATE_LAYOUT,
	GATE_LAYOUT_CONSENT,
	GATE_FILE,
	GATE_FILE_DAMAGED,
	GATE_CEILING,
	GATE_RANGE_ENDED,			/* of a caller, while the gate is open */
	NO_REASON = -1				/* as an answer: none to keep it closed */
} GateReason;

#define GATE_DETAIL_LEN 512

/* The state that changes rarely. */
typedef struct Gate
{
	GateReason	reason;			/* GATE_OPEN, or why it is closed */
	char		detail[GATE_DETAIL_LEN];	/* of the reason, or why no grant */
	bool		has_pair;		/* it was open with this one before */
	PairId		pair;
	bool		accepts_layout; /* an administrator consents to a change */
	bool		clock_jumped;	/* ahead, and is not believed */
	bool		accepts_clock;	/* an administrator says that it is right */
	int64		resume_above;	/* "last" while it is closed */
	int64		floor;			/* "last" when it was opened: no key has it */
	int64		steps_back;
	int64		granted_at;		/* by monotonic_ms(); 0: never */
	TimestampTz stats_reset;
	int64		moves;			/* worker IDs that were left */
	bool		may_move;		/* if the clock is too far behind */
} Gate;

typedef struct GeneratorStatus
{
	Gate		gate;
	bool		is_open;		/* a call made now would get a key */
	const char *message;		/* why not, or why soon not */
	bool		has_last;		/* a key was made with the pair */
	int64		last_key;
	int64		last_unix_ms;
	int64		ceiling_ms;		/* Unix ms */
	double		lead_ms;		/* of the last key, of any start, or 0 */
	int64		keys;
	int64		waits;
	int64		wait_us;
	int64		errors;
	int64		grant_age_ms;	/* -1: there was no grant */
} GeneratorStatus;

extern void generator_shmem(bool reserve);
extern int64 generator_range_end(void);
extern int64 generator_reach(int64 now);
extern int64 generator_due_in(int64 unit, int64 now);
extern const char *gate_message(GateReason reason);
extern void generator_status(GeneratorStatus *status, int64 lease_end_ms);

/*
 * For the keeper, which reads the gate without its lock: sessions write nothing of it
 * but the consent.
 */
extern const Gate *generator_gate(void);
extern int64 generator_last(void);
extern int64 generator_usable_until(void);
extern bool generator_is_asked(void);

extern void generator_close(GateReason reason, const char *detail);
extern void generator_open(PairId pair, int64 floor, bool forget);
extern void generator_grant(int64 usable_until, int64 ask_above);
extern void generator_ask_above(int64 unit);
extern void generator_no_grant(const char *detail);
extern void generator_note_clock(bool jumped, bool set_back);
extern void generator_note_move(bool may_move, bool has_moved);
extern int64 generator_advance_take(void);
extern void generator_advance_later(void);
extern void generator_advance_end(bool durable, const char *error);

#endif							/* SNOWID_GENERATOR_GATE_H */
