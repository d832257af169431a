/*
 * identity.h
 *		Which server this is, and the claim in its state file.
 */
#ifndef SNOWID_KEEPER_IDENTITY_H
#define SNOWID_KEEPER_IDENTITY_H

#include "generator/gate.h"
#include "registry/claim.h"

#pragma GCC visibility push(hidden)

extern GateReason identity_load(ClaimRole role, bool *is_new, bool *is_copy, char *err);
extern GateReason identity_introduce(ClaimRole role, char *err);
extern bool identity_remembers(ClaimRole role, const Claim *claim, bool *same_terms);
extern const Claim *identity_claim(ClaimRole role);
extern bool identity_remember(ClaimRole role, const Claim *claim, int64 used_ms, bool exact, char *err);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_IDENTITY_H */
