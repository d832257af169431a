/*
 * ceiling.h
 *		The durable ceiling of a pair, in the WAL.
 */
#ifndef SNOWID_KEEPER_CEILING_H
#define SNOWID_KEEPER_CEILING_H

#include "keeper/origin.h"
#include "registry/claim.h"

extern GateReason ceiling_find(const Claim *pair, int64 reach_ms, Ceiling *ceiling, char *err);
extern GateReason ceiling_leave_layouts(const Claim *pair, char *err);
extern void ceiling_raise(const Ceiling *ceiling, int64 unix_ms);
extern void ceiling_let_go(void);
extern void ceiling_leave(const Ceiling *ceiling, int64 unix_ms);

#endif							/* SNOWID_KEEPER_CEILING_H */
