/*
 * wait.h
 *		Waits and refusals of the generator's callers, and snowid_advance().
 */
#ifndef SNOWID_GENERATOR_WAIT_H
#define SNOWID_GENERATOR_WAIT_H

#include "portability/instr_time.h"

#include "generator/gate.h"

/*
 * snowid.max_wait is about the clock, and may be shorter than a flush of the
 * WAL.  A caller waits at least this long for the keeper.
 */
#define KEEPER_WAIT_MS 1000

/* A caller that waits for the keeper looks again after this time. */
#define ASK_MS 20

/* How long a caller has waited in this call. */
typedef struct Patience
{
	bool		started;
	instr_time	start;
} Patience;

extern int64 waited_ms(Patience *patience);
extern void count_wait(const Patience *patience);
extern void ask_for_grant(void);
extern bool may_take_ahead(int64 last, int64 now, int64 unit, Patience *patience);
extern bool wait_until_due(int64 unit, Patience *patience);
extern bool look_at_gate(GateReason *reason, char *detail);
extern void refuse_key(GateReason reason, const char *detail);
extern void refuse_late(GateReason reason, char *detail, int64 waited);
extern void generator_refuse(GateReason reason, const char *detail);
extern bool generator_require_layout(void);
extern void generator_advance(int64 id);

#endif							/* SNOWID_GENERATOR_WAIT_H */
