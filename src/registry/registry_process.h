/*
 * registry_process.h
 *		What the parts of the process "snowid registry" share; for registry*.c
 *		alone.
 */
#ifndef SNOWID_REGISTRY_PROCESS_H
#define SNOWID_REGISTRY_PROCESS_H

#include "registry/state.h"

#pragma GCC visibility push(hidden)

/* The first pause after a failure; it doubles up to the interval of marks. */
#define FIRST_PAUSE_MS 100

/*---- registry.c ----*/

extern Registry seen;			/* a copy, as the turn began */
extern int64 next_contact;		/* monotonic ms */
extern int64 backoff;			/* ms; 0: the last call went well */
extern bool answered;			/* in this turn Redis did, and sensibly */

extern bool registry_look(bool take_request);

/*---- registry_call.c ----*/

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

/*---- registry_contact.c ----*/

extern int	registry_mark_interval(void);
extern const char *registry_node_name(void);
extern bool registry_may_log(void);
extern void registry_set_detail(bool refused, const char *detail);
extern void registry_try_later(void);
extern bool registry_settings_allow(const Claim *claim);
extern void registry_no_answer(const char *err);
extern void registry_all_is_well(void);

/*---- registry_claim.c ----*/

extern void registry_watch_anew(void);
extern bool registry_is_watching(void);
extern const char *registry_reclaim(void);
extern void registry_tend_claim(void);
extern bool registry_release(const Claim *claim, bool last_call);

/*---- registry_request.c ----*/

extern void registry_serve_request(void);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_PROCESS_H */
