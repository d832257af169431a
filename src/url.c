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

static const char *
parse_number(const char *s, const char *end, int max, int *number)
{
	*number = 0;
	if (s == end)
		return "a number is missing";
	for (; s < end; s++)
	{
		if (!isdigit((unsigned char) *s) || *number > max)
			return "a port or database is not a number";
		*number = *number * 10 + (*s - '0');
	}
	return *number > max ? "a port or database is out of range" : NULL;
}

static const char *
read_user(const char *s, const char *end, Address *address)
{
	if (memchr(s, ':', end - s))
		return "it must not contain a password";
	if (!address->local && memchr(s, '%', end - s))
		return "a user name is taken as it is, without % escapes";
	if (end - s >= sizeof(address->user))
		return "a user name is too long";
	memcpy(address->user, s, end - s);
	return NULL;
}

/* Behind unix:// */
static const char *
read_socket(const char *s, const char *end, Address *address)
{
	const char *at = memchr(s, '@', end - s);
	const char *error = NULL;

	address->local = true;
	if (at && at < (const char *) memchr(s, '/', end - s))
	{
		error = read_user(s, at, address);
		s = at + 1;
	}
	if (!error && memchr(s, '?', end - s))
		error = "it must not contain parameters";
	if (!error && (*s != '/' || end - s >= sizeof(((struct sockaddr_un *) 0)->sun_path)))
		error = "unix:// needs the absolute path of a socket, of at most 107 bytes";
	if (!error)
		memcpy(address->host, s, end - s);
	return error;
}

/* A host's name, or an address in brackets, and a port. */
static const char *
read_host(const char *s, const char *end, Address *address)
{
	bool		brackets = s < end && *s == '[';
	const char *host_end = memchr(s, brackets ? ']' : ':', end - s);
	const char *colon;

	if (brackets && !host_end)
		return "a bracket is not closed";
	if (!host_end)
		host_end = end;
	colon = host_end + brackets;
	s += brackets;
	if (host_end - s >= sizeof(address->host))
		return "a host name is too long";
	memcpy(address->host, s, host_end - s);
	if (colon < end && *colon != ':')
		return "a colon is missing before a port";
	if (address->host[0] == '\0')
		return "a host name is missing";
	if (address->host[strspn(address->host, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:%_-")])
		return "a host name contains an invalid character";
	if (colon < end)
		return parse_number(colon + 1, end, 65535, &address->port);
	return NULL;
}

/* Reads one URL, from s up to end.  Returns its problem, or NULL. */
const char *
url_parse(const char *s, const char *end, Address *address)
{
	const char *at;
	const char *slash;
	const char *error = NULL;

	memset(address, 0, sizeof(*address));
	address->port = 6379;
	if (end - s > 7 && strncmp(s, "unix://", 7) == 0)
		return read_socket(s + 7, end, address);
	if (end - s > 8 && strncmp(s, "redis://", 8) == 0)
		s += 8;
	else if (end - s > 9 && strncmp(s, "rediss://", 9) == 0)
	{
		address->tls = true;
		s += 9;
	}
	else
		return "it must be redis://[user@]host[:port][/database], rediss://..., or unix:///path; several are separated by commas";

	if (memchr(s, '?', end - s))
		return "it must not contain parameters";
	for (at = end; at > s && at[-1] != '@'; at--)
		;
	if (at > s)
	{
		error = read_user(s, at - 1, address);
		s = at;
	}
	slash = memchr(s, '/', end - s);
	if (!error)
		error = read_host(s, slash ? slash : end, address);
	if (!error && slash && slash + 1 < end)
		error = parse_number(slash + 1, end, 1000000, &address->database);
	if (!error && address->port == 0)
		error = "a port must be from 1 to 65535";
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
