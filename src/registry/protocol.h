/*
 * protocol.h
 *		Calls of the registry's script: the arguments, and the answers.
 */
#ifndef SNOWID_REGISTRY_PROTOCOL_H
#define SNOWID_REGISTRY_PROTOCOL_H

#include "registry/state.h"

/* Names and values of the arguments, in turn. */
typedef struct RegistryCall
{
	int			count;
	const char *args[80];
} RegistryCall;

/* "seen" is a copy of the shared state. */
extern char *protocol_number(int64 value);
extern char *protocol_hex(uint64 value);
extern const char *protocol_field(const Claim *claim);
extern int	protocol_mark_interval(void);
extern const char *protocol_server_name(void);
extern void protocol_begin(RegistryCall *call, const Registry *seen, const char *operation,
						   int datacenter_id, const Claim *claim);
extern bool protocol_resumes(const Registry *seen, const Claim *claim, int64 now, bool watching);
extern void protocol_add_claim(RegistryCall *call, const Registry *seen, const Claim *claim,
							   int64 now, bool watching);
extern void protocol_add(RegistryCall *call, const char *name, const char *value);
extern bool protocol_call(RegistryCall *call, char ***answer, int *count,
						  char *err);
extern bool protocol_read_number(const char *text, int64 max, int64 *value);
extern bool protocol_read_claim(char **answer, Claim *claim, int64 *ceiling_ms);
extern bool protocol_check_time(const Registry *seen, const Claim *claim, int64 unix_ms,
								char *err);
extern char *protocol_layout_conflict(char **answer);
extern bool protocol_is_part(char **answer, int count);
extern char *protocol_refusal(char **answer, int count);

#endif							/* SNOWID_REGISTRY_PROTOCOL_H */
