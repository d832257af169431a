/*
 * link.h
 *		A connection to one Redis.
 */
#ifndef SNOWID_REGISTRY_LINK_H
#define SNOWID_REGISTRY_LINK_H

#include "settings.h"

struct redisReply;

extern void link_to(const Address *address);
extern const char *link_name(void);
extern bool link_open(const Address *address, const char *numeric, char *err);
extern bool link_is_open(void);
extern void link_close(void);
extern struct redisReply *link_command(int argc, const char **argv, char *err);
extern struct redisReply *link_bad_reply(struct redisReply *reply, const char *what, char *err);
extern bool link_failed(char *err, const char *format,...) pg_attribute_printf(2, 3);

#endif							/* SNOWID_REGISTRY_LINK_H */
