/*
 * move.h
 *		When a claimed worker ID is left for another one.
 */
#ifndef SNOWID_KEEPER_MOVE_H
#define SNOWID_KEEPER_MOVE_H

#include "keeper/pair.h"

#pragma GCC visibility push(hidden)

extern bool move_is_needed(const Pair *pair, bool is_open, int64 now, char *err);
extern void move_end_turn(int64 now);
extern long move_pause(void);
extern void move_opened(const Claim *claim);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_MOVE_H */
