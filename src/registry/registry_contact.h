/*
 * registry_contact.h
 *		Whether Redis can be used, and when it is called next.
 */
#ifndef SNOWID_REGISTRY_REGISTRY_CONTACT_H
#define SNOWID_REGISTRY_REGISTRY_CONTACT_H

#include "registry/claim.h"

#pragma GCC visibility push(hidden)

/* The first pause after a failure; it doubles up to the interval of marks. */
#define FIRST_PAUSE_MS 100

extern int	registry_mark_interval(void);
extern const char *registry_server_name(void);
extern void registry_set_detail(bool refused, const char *detail);
extern void registry_try_later(void);
extern bool registry_settings_allow(const Claim *claim);
extern void registry_no_answer(const char *err);
extern void registry_all_is_well(void);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_CONTACT_H */
