/*
 * registry_claim.h
 *		Claims, marks and releases the worker ID.
 */
#ifndef SNOWID_REGISTRY_REGISTRY_CLAIM_H
#define SNOWID_REGISTRY_REGISTRY_CLAIM_H

#include "registry/claim.h"

#pragma GCC visibility push(hidden)

extern const char *registry_reclaim(void);
extern void registry_tend_claim(void);
extern bool registry_release(const Claim *claim, bool last_call);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_CLAIM_H */
