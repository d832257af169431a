/*
 * protocol.h
 *		Calls of the registry's script: the arguments, and the answers.
 */
#ifndef SNOWID_REGISTRY_PROTOCOL_H
#define SNOWID_REGISTRY_PROTOCOL_H

#include "registry/state.h"

typedef struct RegistryCall
{
	const char *operation;
	const Claim *claim;			/* that it concerns; NULL: none */
	int			count;
	const char *args[80];		/* names and values, in turn */
} RegistryCall;

/* The kinds of answers to a claim or a mark. */
typedef enum AnswerKind
{
	ANSWER_NONE,				/* there is none, or none that tells more */
	ANSWER_UNREADABLE,			/* it is no silence, but no answer of the
								 * script, or the registry is damaged */
	ANSWER_GIVEN,				/* a claim, its limit, and marks */
	ANSWER_OK,					/* of a mark: a limit, and marks */
	ANSWER_MORE,				/* a part of the IDs was looked at: ask again */
	ANSWER_SILENCE,				/* perhaps in so many ms */
	ANSWER_SETTLING,			/* the same, at that time */
	ANSWER_REFUSED,				/* why */
	ANSWER_OTHER_LAYOUT,		/* the same */
	ANSWER_GONE,				/* the lease lapsed, or Redis forgot it */
	ANSWER_REVOKED,
	ANSWER_LOST,				/* why */
	ANSWER_LOST_TO_CLONE		/* another server runs as this very one */
} AnswerKind;

typedef struct RegistryAnswer
{
	AnswerKind	kind;
	Claim		claim;
	int64		limit_ms;		/* Unix */
	int64		span_ms;		/* the marks; see registry.lua */
	int64		high;
	int64		wait_ms;
	int64		until_ms;		/* Unix, by Redis' clock */
	const char *why;			/* or why there is no answer */
} RegistryAnswer;

/* "seen" is a copy of the shared state. */
extern char *protocol_number(int64 value);
extern char *protocol_hex(uint64 value);
extern const char *protocol_field(const Claim *claim);
extern int	protocol_mark_interval(void);
extern const char *protocol_server_name(void);
extern void protocol_begin(RegistryCall *call, const ClaimBoard *seen, const char *operation,
						   int datacenter_id, const Claim *claim);
extern bool protocol_has_left(const ClaimBoard *seen);
extern bool protocol_resumes(const ClaimBoard *seen, const Claim *claim, int64 now);
extern void protocol_add_claim(RegistryCall *call, const ClaimBoard *seen, const Claim *claim,
							   int64 now);
extern void protocol_add(RegistryCall *call, const char *name, const char *value);
extern bool protocol_call(RegistryCall *call, char ***answer, int *count,
						  char *err);
extern void protocol_ask(const ClaimBoard *seen, RegistryCall *call, RegistryAnswer *answer);
extern bool protocol_check_time(const ClaimBoard *seen, const Claim *claim, int64 unix_ms,
								char *err);
extern char *protocol_layout_conflict(char **answer);

#endif							/* SNOWID_REGISTRY_PROTOCOL_H */
