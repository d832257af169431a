/*
 * state.h
 *		The registry's shared memory, and administrators' requests; for the files
 *		of this folder alone.
 */
#ifndef SNOWID_REGISTRY_STATE_H
#define SNOWID_REGISTRY_STATE_H

#include "storage/lwlock.h"

#include "process.h"
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

/* A REQUEST_LIST is answered by "list" and so many records of so many columns. */
#define REGISTRY_PAGE 20
#define RECORD_COLUMNS 9

/* How often a claim is marked, in ms; a lease at a third of it, if that is shorter. */
#define MARK_MS 5000

/*
 * By so much a mark may be late when all is well, with the default time-out and one
 * address.
 */
#define MARK_LATE_MS 1000

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
	PairId		pair;			/* a list begins with this one */
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

extern ClaimBoard *board;		/* under registry_lock */
extern RegistryMail *registry_mail;
extern LWLock *registry_lock;

extern int	mark_ms(void);

#endif							/* SNOWID_REGISTRY_STATE_H */
