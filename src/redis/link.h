/*
 * link.h
 *		A connection to one Redis: what the library snowid_redis gives to snowid.
 *
 * The two libraries know of each other what is in this file, and nothing else.
 */
#ifndef SNOWID_REDIS_LINK_H
#define SNOWID_REDIS_LINK_H

#include "compat.h"
#include "net.h"

/* Two libraries that work together have the same. */
#define LINK_BUILD LIBRARY_VERSION " for PostgreSQL " PG_MAJORVERSION

typedef struct LinkTarget
{
	const char *address;		/* numeric, or the path of a socket */
	int			port;			/* 0: it is a path */
	const char *tls_name;		/* the name in the certificate; NULL: no TLS */
	const char *ca_file;		/* "": the system's */
} LinkTarget;

/*
 * Waits until the descriptor is ready for WL_SOCKET_READABLE or _WRITEABLE.  False: it
 * is not in time, and err has the reason.
 */
typedef bool (*LinkWait) (int fd, int event, char *err);

/*
 * A reply, in the memory context of the call.  Its type: '+' status, '-' error, ':'
 * number, '$' string, '*' array of strings, '?' another.
 */
typedef struct LinkReply
{
	char		type;
	int			count;			/* of the texts: the array's, one, or none */
	char	  **texts;
} LinkReply;

/*
 * There is one connection at most.  An error is in err, of NET_ERR_LEN bytes, and may
 * have bytes of any kind; after it, the caller closes the connection.
 */
typedef struct RedisLink
{
	char		build[64];		/* LINK_BUILD; the first, whatever follows */
	bool		(*open) (const LinkTarget *target, LinkWait wait, char *err);
	bool		(*is_quiet) (void); /* open, and there is nothing to read */
	LinkReply  *(*ask) (int argc, const char **argv, char *err);	/* NULL: it failed */
	void		(*close) (void);
} RedisLink;

#endif							/* SNOWID_REDIS_LINK_H */
