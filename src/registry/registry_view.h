/*
 * registry_view.h
 *		What the parts of the registry process share: a copy of the shared
 *		state, and when to call Redis next.
 */
#ifndef SNOWID_REGISTRY_REGISTRY_VIEW_H
#define SNOWID_REGISTRY_REGISTRY_VIEW_H

#include "registry/state.h"

#pragma GCC visibility push(hidden)

extern Registry seen;			/* the copy, by the last registry_look() */
extern int64 next_contact;		/* monotonic ms */
extern int64 backoff;			/* ms; 0: the last call went well */
extern bool answered;			/* Redis gave a valid reply in this turn */
extern bool watching;			/* the record may be another server's */

extern bool registry_look(bool take_request);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_VIEW_H */
