/*
 * redis.h
 *		The choice of a Redis, the connection to it, and the registry's script.
 */
#ifndef SNOWID_REGISTRY_REDIS_H
#define SNOWID_REGISTRY_REDIS_H

#include "net.h"

extern bool redis_connect(char *err);
extern void redis_close(void);
extern bool redis_failed(char *err, const char *format,...) pg_attribute_printf(2, 3);
extern bool redis_is_one(char *err);
extern int64 redis_now_ms(void);
extern bool redis_run_script(const char *key, const char **args, int nargs,
							 char ***answer, int *count, char *err);
extern bool redis_wait_for_replicas(char *err);

#endif							/* SNOWID_REGISTRY_REDIS_H */
