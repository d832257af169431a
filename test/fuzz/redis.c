/*
 * redis.c
 *		Answers of Redis of any bytes, to all that the registry asks for: whatever
 *		they are, a claim that is held is one that keys can be made with.
 *
 * The first line says what is asked, a letter each: of the URL u(ser) and
 * d(atabase); w(ait for a replica), l(ease), n(arrow layout); h(eld claim);
 * and an administrator's request: R(elease), L(ist), M(ove).  The answers
 * follow, with 0xFF between those of two connections.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "storage/latch.h"
#include "storage/proc.h"

#include "key/layout.h"
#include "registry/library.h"

/* with its static parts */
#include "registry/registry.c"

static const char *answers;		/* for the connections to come */
static size_t left;
static int	other_end = -1;		/* of the connection that there is */

/*---- In place of hiredis' and of net.c ----*/

redisContext *
redisConnectNonBlock(const char *ip, int port)
{
	const char *end = memchr(answers, 0xFF, left);
	size_t		len = end ? end - answers : left;
	int			fds[2];
	redisContext *context;

	if (other_end >= 0)
		close(other_end);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0 || write(fds[1], answers, len) != len)
		abort();
	shutdown(fds[1], SHUT_WR);
	other_end = fds[1];
	answers += len + (end != NULL);
	left -= len + (end != NULL);
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	context = redisConnectFd(fds[0]);
	context->flags &= ~REDIS_BLOCK;
	return context;
}

bool
net_wait(int fd, int event, char *err)
{
	struct pollfd p = {fd, event == WL_SOCKET_READABLE ? POLLIN : POLLOUT, 0};

	if (poll(&p, 1, 0) == 1)
		return true;
	strcpy(err, "no answer");
	return false;
}

void
net_set_deadline(int timeout_ms)
{
}

bool
net_resolve(const char *host, char *addresses, char *err)
{
	memset(addresses, 0, NET_ADDRESSES_LEN);
	strcpy(addresses, host);
	return true;
}

/* It is linked. */
const RedisLink *
library_load(char *err)
{
	extern const RedisLink snowid_redis;

	return &snowid_redis;
}

/*---- In place of the server's ----*/

volatile sig_atomic_t ShutdownRequestPending = false;

void
ReserveExternalFD(void)
{
}

void
ReleaseExternalFD(void)
{
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	return true;
}

void
LWLockRelease(LWLock *lock)
{
}

static PGPROC me;
PGPROC	   *MyProc = &me;
#ifndef MyProcNumber
ProcNumber	MyProcNumber = 0;		/* from PostgreSQL 17 on */
#endif

void
process_set_latch(int procno)
{
}

void
process_wake(ProcessId id)
{
}

void
process_notify(ProcessId id)
{
}

bool
process_may_log(void)
{
	return false;
}

uint64
random_id(void)
{
	return 7;
}

TimestampTz
GetCurrentTimestamp(void)
{
	return INT64CONST(800000000000000);
}

/*---- The target ----*/

static void
begin(const char *mode)
{
	static ClaimBoard shared;
	static RegistryMail mail;
	static char url[64];

	board = &shared;
	memset(&shared, 0, sizeof(shared));
	registry_mail = &mail;
	memset(&mail, 0, sizeof(mail));
	mailbox_init(&mail.box, NULL, &mail.request, sizeof(mail.request));
	snprintf(url, sizeof(url), "redis://%s127.0.0.1/%s",
			 strchr(mode, 'u') ? "user@" : "", strchr(mode, 'd') ? "7" : "");
	layout_read(strchr(mode, 'n') ? "epoch=2020-01-01T00:00:00Z worker=1 sequence=18" : "twitter",
				&server_layout);
	snowid_redis_url = url;
	snowid_redis_password_file = "";
	snowid_redis_prefix = "snowid";
	snowid_server_name = "fuzz";
	snowid_redis_wait_replicas = strchr(mode, 'w') != NULL;
	snowid_redis_lease = strchr(mode, 'l') ? 30000 : 0;
	snowid_redis_timeout = 1000;
	snowid_datacenter_id = 0;
	snowid_worker_id = -1;

	board->has_identity = true;
	board->identity.id[0] = 1;
	board->proposed_ms = board->reach_ms = INT64CONST(1746684800000);
	if (strchr(mode, 'h'))
	{
		board->state = CLAIM_HELD;
		board->confirmed = true;
		board->claim.ownership = 7;
		board->claim.lease_ms = snowid_redis_lease;
		board->identity.claim = board->claim;
	}
	if (strpbrk(mode, "RLM"))
	{
		RegistryRequest request = {.pair.worker = 1};

		request.operation = strchr(mode, 'R') ? REQUEST_RELEASE :
			strchr(mode, 'L') ? REQUEST_LIST : REQUEST_RECLAIM;
		(void) mailbox_place(&mail.box, &request);
	}
	backoff = 0;
	settling = false;
}

static void
check(void)
{
	const RegistryRequest *request = &registry_mail->request;

	fuzz_check(memchr(board->detail, '\0', sizeof(board->detail)) != NULL);
	fuzz_check(memchr(board->last_error, '\0', sizeof(board->last_error)) != NULL);
	fuzz_check(!mailbox_has_taken(&registry_mail->box));
	fuzz_check(memchr(request->error, '\0', sizeof(request->error)) != NULL);
	if (board->state != CLAIM_HELD)
		return;
	fuzz_check(board->claim.ownership != 0);
	fuzz_check(board->claim.pair.datacenter == 0);
	fuzz_check(board->claim.pair.worker >= 0 &&
			   board->claim.pair.worker < 1 << server_layout.worker_bits);
	fuzz_check(board->claim.floor_ms >= 0 &&
			   board->claim.floor_ms <= layout_last_ms(&server_layout));
	fuzz_check(board->claim.lease_ms == 0 ||
			   board->limit_ms <= layout_last_ms(&server_layout));
}

/* Three turns of the registry. */
static Datum
turns(PG_FUNCTION_ARGS)
{
	for (int i = 0; i < 3; i++)
	{
		next_contact = 0;
		(void) registry_turn(false);
		check();
	}
	return (Datum) 0;
}

void
fuzz_one(const char *data, size_t size)
{
	const char *end = data + size;
	Datum		result;

	begin(fuzz_line(&data));
	answers = data;
	left = data < end ? end - data : 0;
	(void) fuzz_call(turns, &result, 0);
	redis_close();
}
