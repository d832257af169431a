/*
 * registry_request.h
 *		Carries out what administrators ask for.
 */
#ifndef SNOWID_REGISTRY_REGISTRY_REQUEST_H
#define SNOWID_REGISTRY_REGISTRY_REQUEST_H

#pragma GCC visibility push(hidden)

extern void registry_serve_request(void);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_REQUEST_H */
