/*
 * pair.h
 *		Which pair this server has, and where its keys may begin.
 */
#ifndef SNOWID_KEEPER_PAIR_H
#define SNOWID_KEEPER_PAIR_H

#include "generator/gate.h"
#include "keeper/ceiling.h"
#include "registry/claim.h"

#pragma GCC visibility push(hidden)

/* What is known of this server's pair. */
typedef struct Pair
{
	bool		looked_up;		/* "ceiling" belongs to this claim's IDs */
	bool		known;			/* so does the rest: the gate may open */
	Claim		claim;
	Ceiling		ceiling;
	int64		limit;			/* unit; on lease, no key is above it */
	bool		found;			/* the next two belong to this claim */
	int64		found_at;		/* unit; since when it is ours */
	int64		found_mono;		/* the same by monotonic_ms() */
	bool		waits;			/* others may have used it until found_at */
	int64		opens_at;		/* unit; the clock must have passed it */
	int64		floor;			/* unit; keys begin above it */
	bool		is_new;			/* the state file does not have it yet */
	bool		new_layout;		/* the last keys have another, which is left */
} Pair;

extern Size pair_shmem_size(void);
extern void pair_shmem_init(void);
extern void pair_accept_layout(void);
extern const Layout *pair_server_layout(bool first);
extern int64 last_unit_of(int64 unix_ms);
extern GateReason pair_wanted(Claim *wanted, int64 *limit_ms, char *err);
extern GateReason pair_find(Pair *pair, const Claim *wanted, int64 now, char *err);
extern void pair_settle_opening(Pair *pair, int64 now);
extern GateReason pair_leave_layouts(Pair *pair, char *err);
extern void pair_opened(Pair *pair);
extern bool pair_remember(Pair *pair, char *err);
extern bool pair_remember_early(const Claim *claim, int64 now, char *err);
extern GateReason pair_forget(char *err);
extern GateReason pair_leave_source(char *err);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_PAIR_H */
