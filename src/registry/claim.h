/*
 * claim.h
 *		The identity of a server and its claim, as the keeper and
 *		administrators' sessions see it.
 */
#ifndef SNOWID_REGISTRY_CLAIM_H
#define SNOWID_REGISTRY_CLAIM_H

#include "datatype/timestamp.h"

#include "generator/gate.h"
#include "net.h"
#include "state_file.h"

#define BOOT_LEN 64

typedef enum ClaimState
{
	CLAIM_NONE,					/* the registry is to claim a worker ID */
	CLAIM_HELD,
	CLAIM_LOST					/* the keeper is to forget it */
} ClaimState;

/* The state that keeper and registry share. */
typedef struct ClaimBoard
{
	/* from the snowid keeper */
	bool		has_identity;
	int64		known_since;	/* by monotonic_ms() */
	Identity	identity;		/* as the state file has it */
	char		boot[BOOT_LEN];
	uint64		token;			/* of this start */
	uint64		n;				/* number of the last write to Redis */
	int64		proposed_ms;	/* ceiling that is wanted; 0: not known yet */
	int64		highest_ms;		/* the highest that was wanted since the start */
	int64		reach_ms;		/* keys may begin up to here */
	int64		used_ms;		/* ceiling of the keys made with "entered" */
	uint64		entered;		/* ownership that the gate is open with, or 0 */
	uint64		left;			/* the one that it was open with before, or 0 */
	uint64		given_up;		/* the last one that was not wanted any more */
	int64		left_ms;		/* no key of that is above this */
	bool		hurry;			/* the keys come near limit_ms */
	uint64		unwanted;		/* ownership in whose place another ID is
								 * wanted; 0: none */
	int64		unwanted_ms;	/* where its keys end */

	/* from the registry */
	ClaimState	state;
	bool		clone;			/* another server runs as this very one */
	bool		confirmed;		/* by Redis, since the start */
	Claim		claim;
	int64		limit_ms;		/* no key on lease may be above this */
	int64		renewed_at;		/* when it was asked for, by monotonic_ms() */
	int64		span_ms;		/* as the registry gave them; see registry.lua */
	int64		high;
	bool		watching;		/* the remembered claim's record may be
								 * another server's */
	bool		unreadable;		/* the last answer could not be read */
	Claim		leaving;		/* to be released; ownership 0: none */
	bool		refused;		/* Redis refused; false: it did not answer */
	char		detail[GATE_DETAIL_LEN];	/* why there is no claim */
	char		no_other[GATE_DETAIL_LEN];	/* why there is none in place of
											 * an unwanted one */
	char		last_error[NET_ERR_LEN];
	TimestampTz last_error_at;	/* 0: never */
	TimestampTz last_ok;		/* the same */
} ClaimBoard;

extern uint64 random_id(void);
extern void claim_shmem(bool reserve);
extern bool claim_from_redis(void);
extern void claim_look(ClaimBoard *seen);
extern bool claim_in_doubt(const ClaimBoard *seen);

/* for the snowid keeper only */
extern uint64 claim_home(void);
extern void claim_set_identity(const Identity *identity, const char *boot, bool is_start);
extern GateReason claim_held(Claim *claim, int64 *limit_ms, char *err);
extern void claim_propose(int64 now_ms, int64 wish_ms, bool hurry);
extern bool claim_enter(const Claim *claim, int64 used_ms);
extern void claim_use(int64 used_ms);
extern uint64 claim_entered(void);
extern void claim_leave(int64 used_ms);
extern void claim_give_up(uint64 ownership);
extern uint64 claim_given_up(void);
extern void claim_unwanted(uint64 ownership, int64 end_ms);

#endif							/* SNOWID_REGISTRY_CLAIM_H */
