/*
 * move.h
 *		Leaving a claimed worker ID for another one.
 */
#ifndef SNOWID_KEEPER_MOVE_H
#define SNOWID_KEEPER_MOVE_H

#include "keeper/opening.h"
#include "registry/claim.h"

extern void move_observe(Facts *facts);
extern void move_note(const Claim *claim, const Decision *decision);
extern void move_describe(const Claim *claim, const Decision *decision, int64 patience_ms,
						  char *err);

#endif							/* SNOWID_KEEPER_MOVE_H */
