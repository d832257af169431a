/*
 * delay.c
 *		Joins each connection to one Unix socket with another, and hands on
 *		what comes, either way, a fixed time later.
 *
 *	delay MICROSECONDS LISTEN TARGET
 *
 * Runs until SIGQUIT, as the servers of the benchmark do.  Each piece is timed by itself, so that a pipeline
 * is delayed and not slowed down.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_FLOWS 64			/* two a connection */

typedef struct Piece
{
	struct Piece *next;
	int64_t		due;
	size_t		len;
	char		data[];
} Piece;

/* One direction: flow i and flow i ^ 1 are the two of a connection. */
typedef struct Flow
{
	int			from;			/* -1: unused, or no more comes */
	int			to;
	Piece	   *first;
	Piece	  **last;
} Flow;

static Flow flows[MAX_FLOWS];

static int64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void
fail(const char *what)
{
	perror(what);
	exit(1);
}

/* A socket that listens at the path, or is connected to it. */
static int
open_socket(const char *path, int listening)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (listening ? bind(fd, (struct sockaddr *) &address, sizeof(address)) ||
		listen(fd, 64) : connect(fd, (struct sockaddr *) &address, sizeof(address)))
		fail(path);
	return fd;
}

static void
join(int client, int server)
{
	int			i = 0;

	while (i < MAX_FLOWS && (flows[i].from >= 0 || flows[i + 1].from >= 0))
		i += 2;
	if (i == MAX_FLOWS)
		fail("too many connections");
	flows[i] = (Flow) {client, server, NULL, &flows[i].first};
	flows[i + 1] = (Flow) {server, client, NULL, &flows[i + 1].first};
}

/* Takes what has come; at the end of one direction the connection ends. */
static void
take(int i, int64_t delay)
{
	char		data[65536];
	ssize_t		len = read(flows[i].from, data, sizeof(data));
	Piece	   *piece;

	if (len <= 0)
	{
		close(flows[i].from);
		close(flows[i].to);
		flows[i].from = flows[i ^ 1].from = -1;
		return;
	}
	piece = malloc(sizeof(Piece) + len);
	*piece = (Piece) {NULL, now_ns() + delay, len};
	memcpy(piece->data, data, len);
	*flows[i].last = piece;
	flows[i].last = &piece->next;
}

/* Hands on what is due. */
static void
hand_on(Flow *flow)
{
	while (flow->first && flow->first->due <= now_ns())
	{
		Piece	   *piece = flow->first;
		size_t		sent = 0;

		while (flow->from >= 0 && sent < piece->len)
		{
			ssize_t		n = send(flow->to, piece->data + sent, piece->len - sent,
								 MSG_NOSIGNAL);

			if (n <= 0)
				break;
			sent += n;
		}
		flow->first = piece->next;
		if (flow->first == NULL)
			flow->last = &flow->first;
		free(piece);
	}
}

int
main(int argc, char **argv)
{
	int64_t		delay;
	int			listener;

	if (argc != 4)
		return 2;
	delay = atol(argv[1]) * INT64_C(1000);
	signal(SIGQUIT, _exit);
	listener = open_socket(argv[2], 1);
	prctl(PR_SET_TIMERSLACK, 1UL);
	for (int i = 0; i < MAX_FLOWS; i++)
		flows[i].from = -1;

	for (;;)
	{
		struct pollfd fds[MAX_FLOWS + 1];
		int64_t		due = INT64_MAX;
		struct timespec timeout = {0, 0};

		for (int i = 0; i < MAX_FLOWS; i++)
		{
			fds[i] = (struct pollfd) {flows[i].from, POLLIN, 0};
			if (flows[i].first && flows[i].first->due < due)
				due = flows[i].first->due;
		}
		fds[MAX_FLOWS] = (struct pollfd) {listener, POLLIN, 0};
		if (due != INT64_MAX)
		{
			int64_t		left = due - now_ns();

			timeout.tv_nsec = left > 0 ? left % 1000000000 : 0;
		}
		if (ppoll(fds, MAX_FLOWS + 1, due == INT64_MAX ? NULL : &timeout, NULL) < 0)
			fail("ppoll");
		for (int i = 0; i < MAX_FLOWS; i++)
			if (fds[i].revents && flows[i].from >= 0)
				take(i, delay);
		for (int i = 0; i < MAX_FLOWS; i++)
			hand_on(&flows[i]);
		if (fds[MAX_FLOWS].revents)
			join(accept(listener, NULL, NULL), open_socket(argv[3], 0));
	}
}
