/*
 * wait.h
 *		Waits and refusals of the generator's callers; an administrator's words to the
 *		keeper.
 */
#ifndef SNOWID_GENERATOR_WAIT_H
#define SNOWID_GENERATOR_WAIT_H

#include "portability/instr_time.h"

#include "generator/gate.h"

/* "since" is the begin of a caller's first wait in this call; zero: there was none. */
extern void begin_to_count(void);
extern void count_wait(instr_time since);
extern void ask_for_grant(void);
extern bool may_take_ahead(int64 last, int64 now, int64 unit, instr_time *since);
extern bool wait_until_due(int64 unit, uint64 opening, instr_time *since);
extern void generator_refuse(GateReason reason, const char *detail);
extern bool generator_require_layout(void);

#endif							/* SNOWID_GENERATOR_WAIT_H */
