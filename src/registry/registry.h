/*
 * registry.h
 *		The process "snowid registry".
 */
#ifndef SNOWID_REGISTRY_REGISTRY_H
#define SNOWID_REGISTRY_REGISTRY_H

/* PostgreSQL looks it up by name. */
extern PGDLLEXPORT void snowid_registry_main(Datum main_arg);

#pragma GCC visibility push(hidden)

extern void registry_register(void);

#pragma GCC visibility pop

#endif							/* SNOWID_REGISTRY_REGISTRY_H */
