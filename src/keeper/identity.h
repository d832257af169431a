/*
 * identity.h
 *		The server's identity, and the claim in its state file.
 */
#ifndef SNOWID_KEEPER_IDENTITY_H
#define SNOWID_KEEPER_IDENTITY_H

#include "generator/gate.h"
#include "registry/claim.h"

extern GateReason identity_load(char *err);
extern void identity_unlock(void);
extern GateReason identity_introduce(char *err);
extern bool identity_remembers(const Claim *claim, bool *same_terms);
extern const Claim *identity_claim(void);
extern bool identity_changed_source(void);
extern int64 identity_known_ms(const Claim *pair);
extern bool identity_forget_ceilings(char *err);
extern void identity_remember_ceiling(uint64 ownership, int64 unix_ms);
extern int	identity_count_past(int64 unix_ms);
extern int64 identity_advanced_ms(void);
extern bool identity_advance(int64 unix_ms, char *err);
extern bool identity_remember(const Claim *claim, int64 used_ms, bool exact, char *err);

#endif							/* SNOWID_KEEPER_IDENTITY_H */
