/*
 * net.c
 *		Addresses of other servers, names, and waits for them without hanging.
 *
 * Every wait ends at the deadline that net_set_deadline() has set, by the
 * monotonic clock.  Meanwhile it serves latch and interrupts; a shutdown ends it
 * at once.  Functions return codes and fill the caller's error buffer.
 *
 * A library that may hang, or need any amount of memory, is called in a child process,
 * which is killed at the deadline, or when the caller must leave.
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>
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
read_decimal(const char *s, long min, long max, int *number)
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
		if (!read_decimal(port, 1, 65535, &address->port))
			return "a port must be a number from 1 to 65535";
	}
	if (*s == '\0')
		return "a host name is missing";
	if (s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:%_-")])
		return "a host name contains an invalid character";
	if (strlcpy(address->host, s, sizeof(address->host)) >= sizeof(address->host))
		return "a host name is too long";
	if (database && *database && !read_decimal(database, 0, 1000000, &address->database))
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
								   fd, left, own_wait(WAIT_NETWORK));
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

/*---- Child processes ----*/

/* A child may use so much memory beyond what it was born with. */
#define CHILD_MEMORY (16 * 1024 * 1024)

/* How soon the caller is asked whether it must leave. */
#define LOOK_MS 200

static void
limit_memory(void)
{
	FILE	   *file = fopen("/proc/self/statm", "r");
	struct rlimit limit;
	unsigned long pages;

	if (file == NULL)
		return;
	if (fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) == 1 &&
		getrlimit(RLIMIT_DATA, &limit) == 0)
	{
		limit.rlim_cur = Min(limit.rlim_cur, (rlim_t) pages * sysconf(_SC_PAGESIZE) + CHILD_MEMORY);
		(void) setrlimit(RLIMIT_DATA, &limit);
	}
	(void) fclose(file);
}

/* In the child: its answer goes into the pipe. */
static void
answer_and_exit(NetJob job, const void *arg, int fd, unsigned int seconds)
{
	char		answer[NET_ANSWER_LEN] = "";
	int			null = open("/dev/null", O_WRONLY);
	sigset_t	alarm_only;

	/* the child must not keep the shared memory of a dead server in use */
	PGSharedMemoryDetach();
	/* nor outlive its parent for long, or write into the log */
	pqsignal(SIGALRM, PG_SIG_DFL);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
	(void) alarm(seconds);
	if (null >= 0)
		(void) dup2(null, STDERR_FILENO);
	limit_memory();
	_exit(write(fd, answer, job(arg, answer)) < 0 ? 1 : 0);
}

static void
end_child(pid_t child, int fd)
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
 * Has a child process do this; returns the length of its answer, of NET_ANSWER_LEN bytes at
 * most, or 0 and the reason.  If must_leave() says so, it is not waited for.
 */
size_t
net_ask_child(NetJob job, const void *arg, bool (*must_leave) (void), char *answer, char *err)
{
	int64		ends = deadline;
	volatile ssize_t len = 0;
	volatile bool ready = false;
	int			pipe_fds[2];
	pid_t		child;

	if (pipe(pipe_fds) < 0)
	{
		snprintf(err, NET_ERR_LEN, "could not create a pipe: %s", strerror(errno));
		return 0;
	}
	ReserveExternalFD();
	sigprocmask(SIG_SETMASK, &BlockSig, NULL);
	child = fork();
	if (child == 0)
		answer_and_exit(job, arg, pipe_fds[1], 2 + ms_until(ends) / 1000);
	sigprocmask(SIG_SETMASK, &UnBlockSig, NULL);
	close(pipe_fds[1]);
	PG_TRY();
	{
		if (child < 0)
			snprintf(err, NET_ERR_LEN, "could not fork: %s", strerror(errno));
		else
			do
			{
				/* once in any case, for the reason */
				net_set_deadline(must_leave ? Min(ms_until(ends), LOOK_MS) : ms_until(ends));
				ready = net_wait(pipe_fds[0], WL_SOCKET_READABLE, err);
			} while (!ready && monotonic_ms() < ends && !ShutdownRequestPending &&
					 !(must_leave && must_leave()));
		if (ready)
		{
			len = read(pipe_fds[0], answer, NET_ANSWER_LEN);
			snprintf(err, NET_ERR_LEN, "the process that was to ask has ended");
		}
	}
	PG_FINALLY();
	{
		end_child(child, pipe_fds[0]);
	}
	PG_END_TRY();
	return Max(len, 0);
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

/* In a child: the addresses, or a NUL and the reason. */
static size_t
look_up_there(const void *host, char *answer)
{
	const char *reason;
	size_t		len = look_up(host, 0, answer, &reason);

	return len > 0 ? len : strlcpy(answer + 1, reason, NET_ADDRESSES_LEN - 1) + 1;
}

/*
 * The numeric addresses of a host, each with its NUL; the list ends with an
 * empty one.  getaddrinfo() has no deadline and cannot be interrupted.
 */
bool
net_resolve(const char *host, char *addresses, char *err)
{
	const char *reason;

	memset(addresses, 0, NET_ADDRESSES_LEN);
	if (look_up(host, AI_NUMERICHOST, addresses, &reason) > 0)
		return true;
	if (net_ask_child(look_up_there, host, NULL, addresses, err) > 0 && addresses[0] == '\0')
		snprintf(err, NET_ERR_LEN, "the name \"%s\" could not be looked up: %s",
				 host, addresses + 1);
	return addresses[0] != '\0';
}
