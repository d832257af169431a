/*
 * net.c
 *		Addresses of other servers, names, and waits for them without hanging.
 *
 * Every wait ends at the deadline that net_set_deadline() has set, by the
 * monotonic clock.  Meanwhile it serves latch and interrupts; a shutdown ends it
 * at once.  Functions return codes and fill the caller's error buffer.
 */
#include "postgres.h"

#include <ctype.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/pg_shmem.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "net.h"
#include "process.h"

/*---- Addresses of Redis ----*/

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

/*---- Waits ----*/

static int64 deadline;

/* The deadline of all waits from here on. */
void
net_set_deadline(int timeout_ms)
{
	deadline = monotonic_ms() + timeout_ms;
}

/*
 * Waits until the descriptor is ready for WL_SOCKET_READABLE or _WRITEABLE.  Sets
 * the latch again, if it was set, for the process's own loop.
 */
bool
net_wait(int fd, int event, char *err)
{
	bool		latch_was_set = false;
	bool		ready = false;

	while (!ready)
	{
		int64		left = deadline - monotonic_ms();
		int			events;

		if (left <= 0)
		{
			snprintf(err, NET_ERR_LEN, "no answer within snowid.redis_timeout");
			break;
		}
		events = WaitLatchOrSocket(MyLatch,
								   WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | event,
								   fd, left, own_wait(WAIT_REDIS));
		if (events & WL_LATCH_SET)
		{
			latch_was_set = true;
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			if (ShutdownRequestPending)
			{
				snprintf(err, NET_ERR_LEN, "the server is shutting down");
				break;
			}
		}
		ready = (events & event) != 0;
	}
	if (latch_was_set)
		SetLatch(MyLatch);
	return ready;
}

/*---- Names ----*/

/*
 * Writes the numeric addresses of a host, each with its NUL, into buf, and returns
 * their length; or 0 and the reason.
 */
static size_t
look_up(const char *host, int flags, char *buf, const char **reason)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,.ai_flags = flags};
	struct addrinfo *found = NULL;
	size_t		used = 0;
	int			error = getaddrinfo(host, NULL, &hints, &found);

	*reason = error ? gai_strerror(error) : "no address";
	if (error)
		return 0;
	for (struct addrinfo *a = found; a != NULL; a = a->ai_next)
	{
		if (NET_ADDRESSES_LEN - used <= NET_ADDRESS_LEN ||
			getnameinfo(a->ai_addr, a->ai_addrlen, buf + used, NET_ADDRESS_LEN,
						NULL, 0, NI_NUMERICHOST) != 0)
			break;
		used += strlen(buf + used) + 1;
	}
	freeaddrinfo(found);
	return used;
}

/* In the child process: the addresses, or a NUL and the reason, go into the pipe. */
static void
answer_and_exit(const char *host, int fd)
{
	char		answer[NET_ADDRESSES_LEN] = "";
	const char *reason;
	size_t		len;

	/* the child must not keep the shared memory of a dead server in use */
	PGSharedMemoryDetach();
	len = look_up(host, 0, answer, &reason);
	if (len == 0)
		len = strlcpy(answer + 1, reason, sizeof(answer) - 1) + 1;
	if (write(fd, answer, len) < 0)
		_exit(1);
	_exit(0);
}

static void
end_look_up(pid_t child, int fd)
{
	if (child > 0)
	{
		kill(child, SIGKILL);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close(fd);
	ReleaseExternalFD();
}

/*
 * The numeric addresses of a host, each with its NUL; the list ends with an
 * empty one.  getaddrinfo() has no deadline and cannot be interrupted, so a child
 * process looks the name up, and is killed when it takes too long.
 */
bool
net_resolve(const char *host, char *addresses, char *err)
{
	const char *reason;
	int			pipe_fds[2];
	pid_t		child;

	memset(addresses, 0, NET_ADDRESSES_LEN);
	if (look_up(host, AI_NUMERICHOST, addresses, &reason) > 0)
		return true;

	if (pipe(pipe_fds) < 0)
	{
		snprintf(err, NET_ERR_LEN, "could not create a pipe: %s", strerror(errno));
		return false;
	}
	ReserveExternalFD();
	sigprocmask(SIG_SETMASK, &BlockSig, NULL);
	child = fork();
	if (child == 0)
		answer_and_exit(host, pipe_fds[1]);
	sigprocmask(SIG_SETMASK, &UnBlockSig, NULL);
	close(pipe_fds[1]);
	PG_TRY();
	{
		if (child < 0)
			snprintf(err, NET_ERR_LEN, "could not fork: %s", strerror(errno));
		else if (net_wait(pipe_fds[0], WL_SOCKET_READABLE, err))
		{
			(void) !read(pipe_fds[0], addresses, NET_ADDRESSES_LEN - 1);
			snprintf(err, NET_ERR_LEN, "the name \"%s\" could not be looked up: %s",
					 host, addresses + 1);
		}
	}
	PG_FINALLY();
	{
		end_look_up(child, pipe_fds[0]);
	}
	PG_END_TRY();
	return addresses[0] != '\0';
}
