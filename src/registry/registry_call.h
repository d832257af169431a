/*
 * registry_call.h
 *		Calls of the registry's script, and what its answers say.
 */
#ifndef SNOWID_REGISTRY_REGISTRY_CALL_H
#define SNOWID_REGISTRY_REGISTRY_CALL_H

#include "registry/claim.h"

#pragma GCC visibility push(hidden)

/* Names and values of the arguments, in turn. */
typedef struct RegistryCall
{
	int			count;
	const char *args[80];
} RegistryCall;

extern char *registry_number(int64 value);
extern char *registry_hex(uint64 value);
extern bool registry_parse_number(const char *text, int64 max, int64 *value);
extern void registry_argument(RegistryCall *call, const char *name, const char *value);
extern int64 registry_interval(void);
extern void registry_begin_call(RegistryCall *call, const char *operation, int datacenter_id,
								const Claim *claim);
extern char *registry_past(void);
extern bool registry_call(RegistryCall *call, bool last_call, char ***answer, int *count,
						  char *err);
extern const char *registry_field(const Claim *claim);
extern void registry_nonsense(const char *operation);
extern bool registry_keep_marks(char **marks);
extern char *registry_layout_conflict(char **answer);
extern bool registry_parse_claim(char **answer, Claim *claim, int64 *ceiling_ms);
extern bool registry_check_time(const Claim *claim, int64 unix_ms);
extern char *registry_refusal(char **answer, int count);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_CALL_H */
