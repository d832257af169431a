/*
 * settings.h
 *		The values of the settings.
 */
#ifndef SNOWID_SETTINGS_H
#define SNOWID_SETTINGS_H

#include "key/layout.h"

#pragma GCC visibility push(hidden)

/* How far ahead of use keys are reserved in the WAL. */
#define RESERVE_MS 500

/* The numbers of replication origins whose positions are ours: see keeper/ceiling.c. */
#define LOWEST_ORIGIN 65530
#define HIGHEST_ORIGIN 65534

#define SERVER_NAME_LEN 64		/* bytes, without the NUL */

/* The layout's numbers for the hot path. */
typedef struct UnitFormat
{
	int64		clock_mask;		/* all bits of a reading, or whole ms only */
	int64		sequence_mask;
	int64		time_mask;		/* the other bits of a unit */
	int			pair_width;		/* bits of datacenter and worker */
} UnitFormat;

extern Layout server_layout;	/* snowid.layout */
extern UnitFormat unit_format;	/* of server_layout */
extern int	snowid_datacenter_id;
extern int	snowid_worker_id;	/* -1: not set */
extern bool snowid_worker_from_host;	/* it is the number of the host's name */
extern char snowid_host_name[256];
extern int	snowid_max_lead;	/* ms */
extern int	snowid_max_wait;	/* ms */
extern int	snowid_max_jump;	/* ms */
extern int	snowid_max_segments;	/* tags in memory; 0: off */
extern char *snowid_public_key_file;	/* "": none */
extern char *snowid_redis_url;	/* "": no Redis */
extern char *snowid_redis_password_file;
extern char *snowid_redis_ca_file;
extern char *snowid_redis_prefix;
extern char *snowid_server_name;	/* "": host name and port */
extern int	snowid_redis_timeout;	/* ms */
extern int	snowid_redis_lease; /* ms; 0: for good */
extern int	snowid_redis_wait_replicas;

extern void settings_define(void);

#pragma GCC visibility pop

#endif							/* SNOWID_SETTINGS_H */
