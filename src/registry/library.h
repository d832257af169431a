/*
 * library.h
 *		Loads the library snowid_redis.
 */
#ifndef SNOWID_REGISTRY_LIBRARY_H
#define SNOWID_REGISTRY_LIBRARY_H

#include "redis/link.h"

extern const RedisLink *library_load(char *err);

#endif							/* SNOWID_REGISTRY_LIBRARY_H */
