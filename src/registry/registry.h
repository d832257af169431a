/*
 * registry.h
 *		The process "snowid registry".
 */
#ifndef SNOWID_REGISTRY_REGISTRY_H
#define SNOWID_REGISTRY_REGISTRY_H

/* PostgreSQL looks it up by name. */
extern PGDLLEXPORT void snowid_registry_main(Datum main_arg);

extern void registry_register(void);

#endif							/* SNOWID_REGISTRY_REGISTRY_H */
