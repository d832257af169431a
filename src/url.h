/*
 * url.h
 *		The addresses of Redis in snowid.redis_url.
 */
#ifndef SNOWID_URL_H
#define SNOWID_URL_H

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
extern const char *url_check(const char *urls);
extern int	url_count(const char *urls);

#endif							/* SNOWID_URL_H */
