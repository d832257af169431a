/*
 * url.c
 *		The addresses of Redis in snowid.redis_url.
 *
 * Also runs in the postmaster, so it only reads text.
 */
#include "postgres.h"

#include <ctype.h>
#include <sys/un.h>

#include "url.h"

static bool
read_number(const char *s, long min, long max, int *number)
{
	char	   *end;
	long		value = strtol(s, &end, 10);

	*number = (int) value;
	return isdigit((unsigned char) *s) && *end == '\0' && value >= min && value <= max;
}

static const char *
read_user(const char *s, Address *address)
{
	if (strchr(s, ':'))
		return "it must not contain a password";
	if (!address->local && strchr(s, '%'))
		return "a user name is taken as it is, without % escapes";
	if (strlcpy(address->user, s, sizeof(address->user)) >= sizeof(address->user))
		return "a user name is too long";
	return NULL;
}

/* A host's name, or an address in brackets; a port; a database.  Changes the text. */
static const char *
read_host(char *s, Address *address)
{
	char	   *database = strchr(s, '/');
	char	   *port;

	if (database)
		*database++ = '\0';
	if (*s == '[')
	{
		port = strchr(++s, ']');
		if (port == NULL)
			return "a bracket is not closed";
		*port++ = '\0';
		if (*port && *port != ':')
			return "a colon is missing before a port";
	}
	else
		port = s + strcspn(s, ":");
	if (*port)
	{
		*port++ = '\0';
		if (!read_number(port, 1, 65535, &address->port))
			return "a port must be a number from 1 to 65535";
	}
	if (*s == '\0')
		return "a host name is missing";
	if (s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:%_-")])
		return "a host name contains an invalid character";
	if (strlcpy(address->host, s, sizeof(address->host)) >= sizeof(address->host))
		return "a host name is too long";
	if (database && *database && !read_number(database, 0, 1000000, &address->database))
		return "a database must be a number from 0 to 1000000";
	return NULL;
}

/* Reads one URL, from s up to end.  Returns its problem, or NULL. */
const char *
url_parse(const char *s, const char *end, Address *address)
{
	char		url[512];
	char	   *rest;
	char	   *at;
	const char *error = NULL;

	memset(address, 0, sizeof(*address));
	address->port = 6379;
	if (end - s >= sizeof(url))
		return "it is too long";
	strlcpy(url, s, end - s + 1);
	address->local = strncmp(url, "unix://", 7) == 0;
	address->tls = strncmp(url, "rediss://", 9) == 0;
	if (!address->local && !address->tls && strncmp(url, "redis://", 8) != 0)
		return "it must be redis://[user@]host[:port][/database], rediss://..., or unix:///path; several are separated by commas";
	rest = strchr(url, '/') + 2;

	if (strchr(rest, '?'))
		return "it must not contain parameters";
	at = address->local ? memchr(rest, '@', strcspn(rest, "/")) : strrchr(rest, '@');
	if (at)
	{
		*at = '\0';
		error = read_user(rest, address);
		rest = at + 1;
	}
	if (error)
		return error;
	if (!address->local)
		error = read_host(rest, address);
	else if (*rest != '/' || strlen(rest) >= sizeof(((struct sockaddr_un *) 0)->sun_path))
		error = "unix:// needs the absolute path of a socket, of at most 107 bytes";
	else
		strcpy(address->host, rest);
#ifndef SNOWID_TLS
	if (!error && address->tls)
		error = "this snowid was built without TLS (hiredis_ssl), so it cannot use rediss://";
#endif
	return error;
}

/* The next URL of a list; NULL after the last. */
const char *
url_next(const char *urls, const char **end)
{
	while (*urls == ' ' || *urls == ',')
		urls++;
	*end = urls + strcspn(urls, ", ");
	return *urls ? urls : NULL;
}

/* The problem of a list of URLs, or NULL; runs in the postmaster. */
const char *
url_check(const char *urls)
{
	const char *end;
	const char *error = NULL;
	Address		address;

	for (; !error && (urls = url_next(urls, &end)) != NULL; urls = end)
		error = url_parse(urls, end, &address);
	return error;
}

/* The number of URLs. */
int
url_count(const char *urls)
{
	const char *end;
	int			count = 0;

	for (; (urls = url_next(urls, &end)) != NULL; urls = end)
		count++;
	return count;
}
