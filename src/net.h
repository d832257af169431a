/*
 * net.h
 *		Addresses of other servers, names, and waits for them without hanging.
 */
#ifndef SNOWID_NET_H
#define SNOWID_NET_H

#define NET_ERR_LEN 256
#define NET_ADDRESS_LEN 64		/* of a numeric address, with its NUL */
#define NET_ADDRESSES_LEN 512
#define NET_ANSWER_LEN NET_ADDRESSES_LEN	/* of a child */

/* Runs in a child process: writes its answer, and returns the length of that. */
typedef size_t (*NetJob) (const void *arg, char *answer);

/* One of the addresses in snowid.redis_url. */
typedef struct Address
{
	bool		tls;
	bool		local;			/* "host" is the path of a socket */
	char		host[256];
	int			port;
	char		user[128];
	int			database;
} Address;

extern const char *url_parse(const char *s, const char *end, Address *address);
extern const char *url_next(const char *urls, const char **end);
extern int	url_count(const char *urls);
extern void net_set_deadline(int timeout_ms);
extern bool net_wait(int fd, int event, char *err);
extern size_t net_ask_child(NetJob job, const void *arg, bool (*must_leave) (void),
							char *answer, char *err);
extern bool net_resolve(const char *host, char *addresses, char *err);

#endif							/* SNOWID_NET_H */
