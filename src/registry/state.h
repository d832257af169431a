/*
 * state.h
 *		What the snowid registry shares with the snowid keeper and with
 *		administrators' sessions; for claim.c and registry*.c alone.
 */
#ifndef SNOWID_REGISTRY_STATE_H
#define SNOWID_REGISTRY_STATE_H

#include "storage/lwlock.h"

#include "mailbox.h"
#include "registry/claim.h"

/* Times in Unix ms are at most this, which is exact as a number of Lua's. */
#define MAX_MS INT64CONST(9000000000000000)

/*
 * What servers bring back to Redis for ever is bounded more closely, as in
 * registry.lua: the longest span, and the highest generation, which must leave
 * room for those above it.
 */
#define MAX_SPAN_MS INT64CONST(999999999)
#define MAX_HIGH INT64CONST(90000000000000)

typedef enum ClaimState
{
	CLAIM_NONE,					/* the registry is to claim a worker ID */
	CLAIM_HELD,
	CLAIM_LOST					/* the keeper is to forget it */
} ClaimState;

typedef struct Registry
{
	/* registry_lock protects the following fields only */
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
	int64		limit_ms;		/* no key may be above this */
	int64		renewed_at;		/* when it was asked for, by monotonic_ms() */
	int64		span_ms;		/* as the registry gave them; see registry.lua */
	int64		high;
	Claim		leaving;		/* to be released; ownership 0: none */
	bool		refused;		/* Redis refused; false: it did not answer */
	char		detail[GATE_DETAIL_LEN];	/* why there is no claim */
	char		no_other[GATE_DETAIL_LEN];	/* why there is none in place of
											 * an unwanted one */
	char		last_error[NET_ERR_LEN];
	TimestampTz last_error_at;	/* 0: never */
	TimestampTz last_ok;		/* the same */
} Registry;

/* A REQUEST_LIST is answered by "list" and so many records of so many columns. */
#define REGISTRY_PAGE 20
#define RECORD_COLUMNS 9

typedef enum RegistryOperation
{
	REQUEST_LIST,				/* claims of a datacenter, from a worker ID on */
	REQUEST_RELEASE,			/* a worker ID is given back */
	REQUEST_RECLAIM				/* this server wants another one */
} RegistryOperation;

/* An administrator's request, and the answer: strings, each with its NUL. */
typedef struct RegistryRequest
{
	RegistryOperation operation;
	int			datacenter_id;
	int			worker_id;
	bool		force;
	int			count;
	char		answer[4096];
	bool		refused;		/* Redis answered, and "error" is its reason */
	char		error[GATE_DETAIL_LEN]; /* "": it was answered */
} RegistryRequest;

typedef struct RegistryMail
{
	Mailbox		box;
	RegistryRequest request;
} RegistryMail;

extern Registry *registry;
extern RegistryMail *registry_mail;
extern LWLock *registry_lock;

#endif							/* SNOWID_REGISTRY_STATE_H */
