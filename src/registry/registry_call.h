/*
 * registry_call.h
 *		One call of the registry's script, and what it answers.
 */
#ifndef SNOWID_REGISTRY_REGISTRY_CALL_H
#define SNOWID_REGISTRY_REGISTRY_CALL_H

#include "registry/claim.h"

#pragma GCC visibility push(hidden)

/* Names and values, in turn. */
typedef struct RegistryCall
{
	int			count;
	const char *args[80];
} RegistryCall;

extern char *registry_number(int64 value);
extern char *registry_hex(uint64 value);
extern bool registry_parse_number(const char *text, int64 max, int64 *value);
extern void registry_argument(RegistryCall *call, const char *name, const char *value);
extern void registry_begin_call(RegistryCall *call, const char *operation, int datacenter_id);
extern char *registry_past(void);
extern bool registry_call(RegistryCall *call, bool last_call, char ***answer, int *count,
						  char *err);
extern const char *registry_field(const Claim *claim);
extern void registry_nonsense(const char *operation);
extern char *registry_layout_conflict(char **answer);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_CALL_H */
