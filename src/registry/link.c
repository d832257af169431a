/*
 * link.c
 *		A connection to one Redis: socket, TLS, a command and its reply.
 *
 * hiredis is driven without blocking, since its blocking calls hang under
 * signals; every wait ends at the deadline that the caller has set (net.c).
 * After an error the connection is closed.  Functions return codes and fill the
 * caller's error buffer, which begins with the address.
 */
#include "postgres.h"

#include <ctype.h>
#include <sys/socket.h>

#include <hiredis/hiredis.h>
#ifdef SNOWID_TLS
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

#include "storage/fd.h"
#include "storage/latch.h"

#include "registry/link.h"
#include "registry/net.h"
#include "settings.h"

/* The largest reply: in bytes, and in elements. */
#define MAX_REPLY (256 * 1024)
#define MAX_ELEMENTS 1000

#if HIREDIS_MAJOR < 1
typedef int ElementCount;
#else
typedef size_t ElementCount;
#endif

static redisContext *connection = NULL;
static char linked_to[300];		/* the address, for people */
#ifdef SNOWID_TLS
static SSL *tls = NULL;			/* the connection's, which frees it */
#endif

/* From here on, errors name this address. */
void
link_to(const Address *address)
{
	if (address->local)
		strlcpy(linked_to, address->host, sizeof(linked_to));
	else
		snprintf(linked_to, sizeof(linked_to), "%s port %d", address->host, address->port);
}

const char *
link_name(void)
{
	return linked_to;
}

void
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

bool
link_is_open(void)
{
	return connection != NULL;
}

/* Puts the address before the error, and closes the connection.  Returns false. */
bool
link_failed(char *err, const char *format,...)
{
	char		reason[NET_ERR_LEN];
	va_list		args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	/* a server may send anything, and this goes into a log */
	for (char *p = reason; *p; p++)
		if (!isprint((unsigned char) *p))
			*p = '?';
	snprintf(err, NET_ERR_LEN, "%s: %s", linked_to, reason);
	link_close();
	return false;
}

/* The reason why reading or writing failed; hiredis does not have that of TLS. */
static const char *
io_error(void)
{
#ifdef SNOWID_TLS
	if (tls && SSL_get_verify_result(tls) != X509_V_OK)
		return psprintf("TLS: the certificate was refused: %s",
						X509_verify_cert_error_string(SSL_get_verify_result(tls)));
	if (tls && ERR_peek_last_error() != 0)
	{
		const char *reason = ERR_reason_error_string(ERR_peek_last_error());

		return psprintf("TLS: %s", reason ? reason : "unknown error");
	}
#endif
	return connection->errstr;
}

/* Frees a wrong reply.  Returns NULL. */
redisReply *
link_bad_reply(redisReply *reply, const char *what, char *err)
{
	if (reply->type == REDIS_REPLY_ERROR)
		link_failed(err, "%s: %.200s", what, reply->str);
	else
		link_failed(err, "%s: unexpected type of reply", what);
	freeReplyObject(reply);
	return NULL;
}

/* The next reply, of any type; NULL: it failed. */
static redisReply *
receive(char *err)
{
	void	   *reply = NULL;
	size_t		received = connection->reader->len;

	for (;;)
	{
		char		reason[NET_ERR_LEN];
		int			event = WL_SOCKET_READABLE;
		size_t		before;

#ifdef SNOWID_TLS
		if (tls && SSL_want_write(tls))
			event = WL_SOCKET_WRITEABLE;
#endif
		if (redisReaderGetReply(connection->reader, &reply) != REDIS_OK)
		{
			link_failed(err, "%s", connection->reader->err == REDIS_ERR_OOM ?
						"a reply is too long" : connection->reader->errstr);
			return NULL;
		}
		if (reply)
			return reply;
		/* the buffer alone does not tell: hiredis drops what it has parsed */
		if (received > MAX_REPLY)
		{
			link_failed(err, "a reply is too long");
			return NULL;
		}
		if (!net_wait(connection->fd, event, reason))
		{
			link_failed(err, "%s", reason);
			return NULL;
		}
		before = connection->reader->len;
		if (redisBufferRead(connection) != REDIS_OK)
		{
			link_failed(err, "%s", io_error());
			return NULL;
		}
		received += connection->reader->len - before;
	}
}

/* Sends one command and returns its reply, to be freed; NULL: it failed. */
redisReply *
link_command(int argc, const char **argv, char *err)
{
	int			done = 0;

	if (redisAppendCommandArgv(connection, argc, argv, NULL) != REDIS_OK)
	{
		link_failed(err, "out of memory");
		return NULL;
	}
	for (;;)
	{
		char		reason[NET_ERR_LEN];
		int			event = WL_SOCKET_WRITEABLE;

		if (redisBufferWrite(connection, &done) != REDIS_OK)
		{
			link_failed(err, "%s", io_error());
			return NULL;
		}
		if (done)
			return receive(err);
#ifdef SNOWID_TLS
		/* a TLS handshake also reads */
		if (tls && SSL_want_read(tls))
			event = WL_SOCKET_READABLE;
#endif
		if (!net_wait(connection->fd, event, reason))
		{
			link_failed(err, "%s", reason);
			return NULL;
		}
	}
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

#ifdef SNOWID_TLS
/* Both the chain and the host name are checked. */
static bool
start_tls(const Address *address, char *err)
{
	static SSL_CTX *context = NULL;
	const char *ca = snowid_redis_ca_file;

	if (context)
		SSL_CTX_free(context);
	context = SSL_CTX_new(TLS_client_method());
	if (context &&
		(ca[0] ? SSL_CTX_load_verify_locations(context, ca, NULL) :
		 SSL_CTX_set_default_verify_paths(context)) != 1)
		return link_failed(err, "could not load the certificates in \"%s\"", ca[0] ? ca : "the system's store");
	if (context)
	{
		SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
		tls = SSL_new(context);
	}
	if (!tls)
		return link_failed(err, "could not set up TLS");
	ERR_clear_error();
	if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), address->host) != 1 &&
		(SSL_set1_host(tls, address->host) != 1 ||
		 SSL_set_tlsext_host_name(tls, address->host) != 1))
	{
		SSL_free(tls);
		tls = NULL;
		return link_failed(err, "could not set up TLS");
	}
	ERR_clear_error();
	if (redisInitiateSSL(connection, tls) != REDIS_OK)
	{
		const char *reason = io_error();

		SSL_free(tls);			/* hiredis has not taken it */
		return link_failed(err, "%s", reason);
	}
	return true;
}
#endif

/* Connects to one numeric address, or to the local socket. */
bool
link_open(const Address *address, const char *numeric, char *err)
{
	int			error = 0;
	socklen_t	len = sizeof(error);
	char		reason[NET_ERR_LEN];

	if (!AcquireExternalFD())
	{
		snprintf(err, NET_ERR_LEN, "%s: no file descriptor is left", linked_to);
		return false;
	}
	connection = address->local ? redisConnectUnixNonBlock(numeric) :
		redisConnectNonBlock(numeric, address->port);
	if (!connection)
	{
		ReleaseExternalFD();
		snprintf(err, NET_ERR_LEN, "%s: out of memory", linked_to);
		return false;
	}
	if (connection->err)
		return link_failed(err, "%s", connection->errstr);
	limit_arrays(connection->reader);
	if (!net_wait(connection->fd, WL_SOCKET_WRITEABLE, reason))
		return link_failed(err, "%s", reason);
	if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error)
		return link_failed(err, "%s", strerror(error));
#ifdef SNOWID_TLS
	if (address->tls)
		return start_tls(address, err);
#endif
	return true;
}
