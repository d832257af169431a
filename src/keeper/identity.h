/*
 * identity.h
 *		Which server this is, and the claim in its state file.
 */
#ifndef SNOWID_KEEPER_IDENTITY_H
#define SNOWID_KEEPER_IDENTITY_H

#include "generator/gate.h"
#include "registry/claim.h"

#pragma GCC visibility push(hidden)

extern GateReason identity_load(bool *is_new, bool *is_copy, char *err);
extern GateReason identity_introduce(char *err);
extern bool identity_remembers(const Claim *claim, bool *same_terms);
extern const Claim *identity_claim(void);
extern bool identity_remember(const Claim *claim, int64 used_ms, bool exact, char *err);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_IDENTITY_H */
