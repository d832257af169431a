/*
 * identity.h
 *		The server's identity, and the claim in its state file.
 */
#ifndef SNOWID_KEEPER_IDENTITY_H
#define SNOWID_KEEPER_IDENTITY_H

#include "generator/gate.h"
#include "registry/claim.h"

/* The content of the state file; zeros before it was loaded. */
extern const Identity *const identity;

/* GATE_MAY_OPEN: done.  Otherwise nothing was written, and the reason is in err. */
extern GateReason identity_load(char *err);
extern GateReason identity_introduce(char *err);
extern GateReason identity_forget_ceilings(char *err);
extern GateReason identity_advance(int64 unix_ms, char *err);
extern GateReason identity_remember(const Claim *claim, int64 floor_ms, int64 old_ms, char *err);

extern void identity_remember_ceiling(int64 unix_ms);
extern void identity_unlock(void);

#endif							/* SNOWID_KEEPER_IDENTITY_H */
