/*
 * pair.h
 *		The pair that this server should have: the facts about it, the steps
 *		before its first key, and leaving it for another one.
 */
#ifndef SNOWID_KEEPER_PAIR_H
#define SNOWID_KEEPER_PAIR_H

#include "generator/gate.h"
#include "keeper/origin.h"
#include "keeper/opening.h"
#include "registry/claim.h"

/* The pair of this server, as far as it is known. */
typedef struct Pair
{
	PairStage	stage;
	Claim		claim;
	int64		found_ms;		/* Unix; since when it is this server's */
	int64		found_mono;		/* the same by monotonic_ms() */
	Ceiling		ceiling;
	int64		limit;			/* unit; on lease, no key is above it */
} Pair;

extern const Layout *pair_server_layout(bool first);
extern int64 last_unit_of(int64 unix_ms);
extern void pair_observe(Pair *pair, int64 now, bool believed, Claim *wanted, Facts *facts);
extern void pair_explain(const Pair *pair, const Claim *wanted, const Facts *facts,
						 const Decision *decision, char *err);
extern void pair_note(const Claim *claim, const Decision *decision);
extern void pair_look_up(Pair *pair, const Claim *wanted, const Facts *facts);
extern GateReason pair_begin(Pair *pair, const Decision *decision, char *err);

#endif							/* SNOWID_KEEPER_PAIR_H */
