/*
 * wait.h
 *		Waits and refusals of the generator's callers, and snowid_advance().
 */
#ifndef SNOWID_GENERATOR_WAIT_H
#define SNOWID_GENERATOR_WAIT_H

#include "portability/instr_time.h"

#include "generator/gate.h"

/* How long a caller has waited in this call. */
typedef struct Patience
{
	bool		started;
	instr_time	start;
} Patience;

extern void count_wait(const Patience *patience);
extern void ask_for_grant(void);
extern bool may_take_ahead(int64 last, int64 now, int64 unit, Patience *patience);
extern bool wait_until_due(int64 unit, Patience *patience);
extern void generator_refuse(GateReason reason, const char *detail);
extern bool generator_require_layout(void);

#endif							/* SNOWID_GENERATOR_WAIT_H */
