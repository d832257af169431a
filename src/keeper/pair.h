/*
 * pair.h
 *		The pair that this server should have: the facts about it, and leaving it
 *		for another one.
 */
#ifndef SNOWID_KEEPER_PAIR_H
#define SNOWID_KEEPER_PAIR_H

#include "generator/gate.h"
#include "keeper/ceiling.h"
#include "keeper/opening.h"
#include "state_file.h"

/* The pair of this server, as far as it is known. */
typedef struct Pair
{
	Claim		claim;			/* the wanted one, or that of the open gate */
	Ceiling		ceiling;
	int64		limit;			/* unit; on lease, no key is above it */

	/* while the gate is shut */
	int64		found_ms;		/* others may have had it until then */
	int64		found_mono;		/* by monotonic_ms(), when that was read */

	/* leaving it for another one */
	Claim		behind;			/* the last claim that the clock was behind;
								 * no ownership: it is not any more */
	int64		behind_ms;		/* where its keys end */
	int64		behind_since;	/* by monotonic_ms() */

	/* the last texts of source and file, by OpeningDetail */
	char		said[DETAIL_FILE + 1][GATE_DETAIL_LEN];
} Pair;

extern const Layout *pair_server_layout(bool first);
extern int64 last_unit_of(int64 unix_ms);
extern void pair_observe(Pair *pair, int64 now, bool believed, Facts *facts);
extern void pair_explain(const Pair *pair, const Facts *facts, const Decision *decision, char *err);
extern void pair_note(Pair *pair, const Decision *decision);
extern void pair_warn(const Pair *pair, int64 floor_ms);

#endif							/* SNOWID_KEEPER_PAIR_H */
