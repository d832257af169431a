/*
 * spare.h
 *		The spare worker ID: with which of its pairs this server makes keys.
 */
#ifndef SNOWID_KEEPER_SPARE_H
#define SNOWID_KEEPER_SPARE_H

#include "keeper/pair.h"

#pragma GCC visibility push(hidden)

extern GateReason spare_wanted(const Claim *own, Claim *spare, int64 *limit_ms, char *err);
extern void spare_choose(const Pair *pair, const Claim *own, const Claim *spare,
						 int64 now, bool clock_is_good, Choice *choice);
extern long spare_pause(void);
extern bool spare_raise(Pair *pair, int64 unix_ms, int64 now, char *err);
extern bool spare_take(Pair *pair, const Choice *choice, bool anew, int64 now,
					   char *err);
extern void spare_tend(Pair *pair, const Choice *choice, int64 now);
extern bool spare_forget(const Pair *pair, char *err);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_SPARE_H */
