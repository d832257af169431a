/*
 * net.c
 *		Waiting for the network without hanging: sockets and name servers.
 *
 * Every wait ends at the deadline that net_set_deadline() has set, by the
 * monotonic clock.  Meanwhile it serves latch and interrupts; a shutdown ends it
 * at once.  Functions return codes and fill the caller's error buffer.
 */
#include "postgres.h"

#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/pg_shmem.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "process.h"
#include "registry/net.h"

static int64 deadline;

/* By then all waits of a last call end; a shutdown does not end them before. */
static int64 last_call_ends = PG_INT64_MAX;

/* The deadline of all waits from here on. */
void
net_set_deadline(int timeout_ms)
{
	deadline = Min(monotonic_ms() + timeout_ms, last_call_ends);
}

/* The process exits, and makes its last call. */
void
net_begin_last_call(int64 ends)
{
	last_call_ends = ends;
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
			if (ShutdownRequestPending && last_call_ends == PG_INT64_MAX)
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
