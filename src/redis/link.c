/*
 * link.c
 *		A connection to one Redis: the library snowid_redis.
 *
 * Nothing else uses hiredis.  Only the process "snowid registry" loads this library
 * (registry/library.c), and it calls no function of the other one but the wait that
 * it gets, which ends at the call's deadline.  hiredis is driven without blocking,
 * since its blocking calls hang under signals.  No reply is given on before its type
 * and lengths are checked.
 */
#include "postgres.h"

#include <poll.h>

#include <hiredis/hiredis.h>
#ifdef SNOWID_TLS
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

#include "storage/fd.h"
#include "storage/latch.h"

#include "redis/link.h"

/* The largest reply: in bytes, and in elements. */
#define MAX_REPLY (256 * 1024)
#define MAX_ELEMENTS 1000

#if HIREDIS_MAJOR < 1
typedef int ElementCount;
#else
typedef size_t ElementCount;
#endif

static redisContext *connection = NULL;
static LinkWait wait_until_ready;
#ifdef SNOWID_TLS
static SSL *tls = NULL;			/* the connection's, which frees it */
#endif

static void
link_close(void)
{
	if (!connection)
		return;
	redisFree(connection);
	connection = NULL;
#ifdef SNOWID_TLS
	tls = NULL;
#endif
	ReleaseExternalFD();
}

static bool
link_is_quiet(void)
{
	struct pollfd idle = {.events = POLLIN};

	if (!connection)
		return false;
	idle.fd = connection->fd;
	return poll(&idle, 1, 0) == 0;
}

/* Returns false. */
static bool
failed(char *err, const char *reason)
{
	strlcpy(err, reason, NET_ERR_LEN);
	return false;
}

/* The reason why reading or writing failed; hiredis does not have that of TLS. */
static bool
io_failed(char *err)
{
#ifdef SNOWID_TLS
	if (tls && SSL_get_verify_result(tls) != X509_V_OK)
		return failed(err, psprintf("TLS: the certificate was refused: %s",
									X509_verify_cert_error_string(SSL_get_verify_result(tls))));
	if (tls && ERR_peek_last_error() != 0)
	{
		const char *reason = ERR_reason_error_string(ERR_peek_last_error());

		return failed(err, psprintf("TLS: %s", reason ? reason : "unknown error"));
	}
#endif
	return failed(err, connection->errstr);
}

/*---- Calls ----*/

static bool
wait_for(int event, char *err)
{
#ifdef SNOWID_TLS
	/* to write, TLS may have to read before */
	if (tls && SSL_want_read(tls))
		event = WL_SOCKET_READABLE;
#endif
	return wait_until_ready(connection->fd, event, err);
}

/* Sends a command. */
static bool
send_command(int argc, const char **argv, char *err)
{
	int			done = 0;

	/* if this fails, the next call tells */
	(void) redisAppendCommandArgv(connection, argc, argv, NULL);
	while (redisBufferWrite(connection, &done) == REDIS_OK)
	{
		if (done)
			return true;
		if (!wait_for(WL_SOCKET_WRITEABLE, err))
			return false;
	}
	return io_failed(err);
}

/* The next reply, of any type; NULL: it failed. */
static redisReply *
receive(char *err)
{
	redisReader *reader = connection->reader;
	void	   *reply = NULL;
	size_t		received = reader->len;

	while (redisReaderGetReply(reader, &reply) == REDIS_OK)
	{
		size_t		before = reader->len;

		if (reply)
			return reply;
		/* the buffer alone does not tell: hiredis drops what it has parsed */
		if (received > MAX_REPLY)
			break;
		if (!wait_for(WL_SOCKET_READABLE, err))
			return NULL;
		if (redisBufferRead(connection) != REDIS_OK)
		{
			io_failed(err);
			return NULL;
		}
		received += reader->len - before;
	}
	failed(err, reader->err == 0 || reader->err == REDIS_ERR_OOM ?
		   "a reply is too long" : reader->errstr);
	return NULL;
}

/* Is it a string that a C string can hold? */
static bool
is_text(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_STRING && strlen(reply->str) == reply->len;
}

/* A copy of a reply in our terms. */
static LinkReply *
copy_reply(const redisReply *from)
{
	LinkReply  *to = palloc0(sizeof(LinkReply));
	size_t		texts = 0;

	to->type = '?';
	to->texts = palloc(Max(from->type == REDIS_REPLY_ARRAY ? from->elements : 0, 1) * sizeof(char *));
	if (from->type == REDIS_REPLY_ARRAY)
	{
		while (texts < from->elements && is_text(from->element[texts]))
			texts++;
		if (texts < from->elements)
			return to;
		to->type = '*';
		for (to->count = 0; to->count < texts; to->count++)
			to->texts[to->count] = pstrdup(from->element[to->count]->str);
		return to;
	}
	if (from->type == REDIS_REPLY_STATUS)
		to->type = '+';
	else if (from->type == REDIS_REPLY_ERROR)
		to->type = '-';
	else if (from->type == REDIS_REPLY_INTEGER)
		to->type = ':';
	else if (is_text(from))
		to->type = '$';
	else
		return to;
	to->texts[to->count++] = to->type == ':' ? psprintf("%lld", from->integer) : pstrdup(from->str);
	return to;
}

static LinkReply *
link_ask(int argc, const char **argv, char *err)
{
	redisReply *reply = send_command(argc, argv, err) ? receive(err) : NULL;
	LinkReply  *copy;

	if (!reply)
		return NULL;
	copy = copy_reply(reply);
	freeReplyObject(reply);
	return copy;
}

/*---- Connecting ----*/

static redisReplyObjectFunctions reply_functions;
static void *(*create_any_array) (const redisReadTask *task, ElementCount elements);

/* hiredis would allocate, and walk through, as many elements as an array claims. */
static void *
create_array(const redisReadTask *task, ElementCount elements)
{
	return elements > MAX_ELEMENTS ? NULL : create_any_array(task, elements);
}

static void
limit_arrays(redisReader *reader)
{
	reply_functions = *reader->fn;
	create_any_array = reply_functions.createArray;
	reply_functions.createArray = create_array;
	reader->fn = &reply_functions;
}

/* Both the chain and the host name are checked. */
static bool
start_tls(const char *name, const char *ca, char *err)
{
#ifdef SNOWID_TLS
	static SSL_CTX *context = NULL;
	bool		started;

	SSL_CTX_free(context);
	context = SSL_CTX_new(TLS_client_method());
	if (context &&
		(ca[0] ? SSL_CTX_load_verify_locations(context, ca, NULL) :
		 SSL_CTX_set_default_verify_paths(context)) != 1)
		return failed(err, psprintf("could not load the certificates in \"%s\"", ca[0] ? ca : "the system's store"));
	if (context)
	{
		SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
		tls = SSL_new(context);
	}
	if (!tls ||
		(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), name) != 1 &&
		 (SSL_set1_host(tls, name) != 1 || SSL_set_tlsext_host_name(tls, name) != 1)))
		return failed(err, "could not set up TLS");
	started = redisInitiateSSL(connection, tls) == REDIS_OK;
	if (!started)
	{
		io_failed(err);
		SSL_free(tls);			/* hiredis has not taken it */
	}
	return started;
#else
	return failed(err, "snowid_redis was built without TLS (hiredis_ssl), so it cannot use rediss://");
#endif
}

static bool
link_open(const LinkTarget *target, LinkWait wait, char *err)
{
	link_close();
	wait_until_ready = wait;
	connection = target->port == 0 ? redisConnectUnixNonBlock(target->address) :
		redisConnectNonBlock(target->address, target->port);
	if (!connection)
		return failed(err, "out of memory");
	ReserveExternalFD();
	if (connection->err)
		return failed(err, connection->errstr);
	limit_arrays(connection->reader);
	/* if it is refused, the first call tells */
	if (!wait_for(WL_SOCKET_WRITEABLE, err))
		return false;
	return target->tls_name == NULL || start_tls(target->tls_name, target->ca_file, err);
}

extern PGDLLEXPORT const RedisLink snowid_redis;

const RedisLink snowid_redis = {
	.build = LINK_BUILD,
	.open = link_open,
	.is_quiet = link_is_quiet,
	.ask = link_ask,
	.close = link_close
};
