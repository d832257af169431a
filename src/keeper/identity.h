/*
 * identity.h
 *		The server's identity, and the claim in its state file.
 */
#ifndef SNOWID_KEEPER_IDENTITY_H
#define SNOWID_KEEPER_IDENTITY_H

#include "keeper/opening.h"
#include "state_file.h"

/* The content of the state file; zeros before it was loaded. */
extern const Identity *const identity;

/* FILE_WITHOUT_CLAIM: it was read, whatever it has.  Otherwise err says what is wrong. */
extern FileState identity_load(char *err);

/* False: nothing was written, and err says why. */
extern bool identity_introduce(char *err);
extern bool identity_advance(int64 unix_ms, int64 now_ms, char *err);
extern bool identity_begin_layout(int64 floor_ms, char *err);
extern bool identity_give_up(int64 old_ms, char *err);
extern bool identity_remember(const Claim *claim, int64 floor_ms, char *err);

extern uint64 identity_boot(void);
extern void identity_believe(const Belief *belief, int64 reach_ms);
extern void identity_remember_ceiling(int64 unix_ms);
extern void identity_unlock(void);

#endif							/* SNOWID_KEEPER_IDENTITY_H */
