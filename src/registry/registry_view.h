/*
 * registry_view.h
 *		What the parts of the process "snowid registry" share: the shared state as
 *		the turn began, and when Redis is asked next.
 */
#ifndef SNOWID_REGISTRY_REGISTRY_VIEW_H
#define SNOWID_REGISTRY_REGISTRY_VIEW_H

#include "registry/state.h"

#pragma GCC visibility push(hidden)

extern Registry seen;			/* a copy, as the turn began */
extern int64 next_contact;		/* monotonic ms */
extern int64 backoff;			/* ms; 0: the last call went well */
extern bool answered;			/* in this turn Redis did, and sensibly */
extern char silent_key[64];		/* a record that is watched for silence */
extern int64 silent_since;		/* PG_INT64_MAX: to be watched anew */

extern bool registry_look(bool take_request);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_VIEW_H */
