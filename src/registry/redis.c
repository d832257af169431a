/*
 * redis.c
 *		The choice of a Redis, the connection to it, and the registry's script.
 *
 * Only the snowid registry calls it.  Functions return codes and fill the
 * caller's error buffer, which begins with the address; they do not log and decide
 * nothing.  hiredis is driven without blocking, since its blocking calls hang under
 * signals; each call has one deadline (net.c).  After an error the connection is
 * closed.  No reply is used before its type, length and number are checked.  No
 * password gets into an error: for a refused AUTH it has only known words, since a
 * server may repeat the arguments.
 */
#include "postgres.h"

#include <ctype.h>
#include <poll.h>
#include <sys/socket.h>

#include <hiredis/hiredis.h>
#include <openssl/sha.h>
#ifdef SNOWID_TLS
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

#include "storage/fd.h"
#include "storage/latch.h"

#include "compat.h"
#include "registry/redis.h"
#include "secrets.h"
#include "settings.h"

/* The most bytes that are read of a password file. */
#define MAX_PASSWORD 1024

/* The largest reply: in bytes, and in elements. */
#define MAX_REPLY (256 * 1024)
#define MAX_ELEMENTS 1000

#if HIREDIS_MAJOR < 1
typedef int ElementCount;
#else
typedef size_t ElementCount;
#endif

static const char script[] =
#include "registry/registry.lua.h"
		   ;

static redisContext *connection = NULL;
static char linked_to[300];		/* the address, for people: errors name it */
#ifdef SNOWID_TLS
static SSL *tls = NULL;			/* the connection's, which frees it */
#endif

static char run_id[64];			/* of the Redis that is connected, */
static bool is_cluster;			/* and whether it is a node of a cluster */
static int64 clock_ahead;		/* Redis' clock less monotonic_ms(), in Unix
								 * ms */

/*---- A connection ----*/

void
redis_close(void)
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

/* Puts the address before the error, and closes the connection.  Returns false. */
bool
redis_failed(char *err, const char *format,...)
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
	redis_close();
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
static redisReply *
bad_reply(redisReply *reply, const char *what, char *err)
{
	if (reply->type == REDIS_REPLY_ERROR)
		redis_failed(err, "%s: %.200s", what, reply->str);
	else
		redis_failed(err, "%s: unexpected type of reply", what);
	freeReplyObject(reply);
	return NULL;
}

/* Waits until the connection is ready; if it is not in time, closes it. */
static bool
wait_for(int event, char *err)
{
	char		reason[NET_ERR_LEN];

#ifdef SNOWID_TLS
	/* to write, TLS may have to read before, and the other way */
	if (tls && SSL_want_read(tls))
		event = WL_SOCKET_READABLE;
	else if (tls && SSL_want_write(tls))
		event = WL_SOCKET_WRITEABLE;
#endif
	return net_wait(connection->fd, event, reason) || redis_failed(err, "%s", reason);
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
			redis_failed(err, "%s", io_error());
			return NULL;
		}
		received += reader->len - before;
	}
	redis_failed(err, "%s", reader->err == 0 || reader->err == REDIS_ERR_OOM ?
				 "a reply is too long" : reader->errstr);
	return NULL;
}

/* Sends one command and returns its reply, to be freed; NULL: it failed. */
static redisReply *
command(int argc, const char **argv, char *err)
{
	int			done = 0;

	/* if this fails, the next call tells */
	(void) redisAppendCommandArgv(connection, argc, argv, NULL);
	while (redisBufferWrite(connection, &done) == REDIS_OK)
	{
		if (done)
			return receive(err);
		if (!wait_for(WL_SOCKET_WRITEABLE, err))
			return NULL;
	}
	redis_failed(err, "%s", io_error());
	return NULL;
}

/* The same, with a reply that must be of this type. */
static redisReply *
ask(int argc, const char **argv, int type, char *err)
{
	redisReply *reply = command(argc, argv, err);

	return reply && reply->type != type ? bad_reply(reply, argv[0], err) : reply;
}

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
		return redis_failed(err, "could not load the certificates in \"%s\"", ca[0] ? ca : "the system's store");
	if (context)
	{
		SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
		tls = SSL_new(context);
	}
	if (!tls)
		return redis_failed(err, "could not set up TLS");
	ERR_clear_error();
	if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), address->host) != 1 &&
		(SSL_set1_host(tls, address->host) != 1 ||
		 SSL_set_tlsext_host_name(tls, address->host) != 1))
	{
		SSL_free(tls);
		tls = NULL;
		return redis_failed(err, "could not set up TLS");
	}
	ERR_clear_error();
	if (redisInitiateSSL(connection, tls) != REDIS_OK)
	{
		const char *reason = io_error();

		SSL_free(tls);			/* hiredis has not taken it */
		return redis_failed(err, "%s", reason);
	}
	return true;
}
#endif

/* Connects to one numeric address, or to the local socket. */
static bool
open_link(const Address *address, const char *numeric, char *err)
{
	int			error = 0;
	socklen_t	len = sizeof(error);

	connection = address->local ? redisConnectUnixNonBlock(numeric) :
		redisConnectNonBlock(numeric, address->port);
	if (!connection)
		return redis_failed(err, "out of memory");
	ReserveExternalFD();
	if (connection->err)
		return redis_failed(err, "%s", connection->errstr);
	limit_arrays(connection->reader);
	if (!wait_for(WL_SOCKET_WRITEABLE, err))
		return false;
	if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error)
		return redis_failed(err, "%s", strerror(error));
#ifdef SNOWID_TLS
	if (address->tls)
		return start_tls(address, err);
#endif
	return true;
}

/*---- Secrets ----*/

/* Reads the password: the first line of the file, if one is configured. */
static bool
read_password(char *password, char *err)
{
	const char *path = snowid_redis_password_file;
	ssize_t		len;
	size_t		line;

	password[0] = '\0';
	if (path[0] == '\0')
		return true;
	len = secret_file_read(path, password, MAX_PASSWORD - 1, err, NET_ERR_LEN);
	if (len < 0)
		return false;
	password[len] = '\0';
	line = strcspn(password, "\r\n");
	if (line > 0 && line < MAX_PASSWORD - 1)
	{
		password[line] = '\0';
		return true;
	}
	explicit_bzero(password, MAX_PASSWORD);
	snprintf(err, NET_ERR_LEN, "the first line of file \"%s\" is %s", path,
			 line == 0 ? "empty" : "too long");
	return false;
}

/*---- Connecting ----*/

static bool
authenticate(const Address *address, char *err)
{
	char		password[MAX_PASSWORD];
	char		reason[NET_ERR_LEN];
	const char *argv[3] = {"AUTH"};
	int			argc = 1;
	redisReply *reply;
	bool		ok;

	if (!read_password(password, reason))
		return redis_failed(err, "%s", reason);
	if (password[0] == '\0' && address->user[0] == '\0')
		return true;
	if (address->user[0])
		argv[argc++] = address->user;
	argv[argc++] = password;
	reply = command(argc, argv, err);
	explicit_bzero(password, sizeof(password));
	if (!reply)
		return false;
	ok = reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
	if (!ok)
	{
		static const char *const known[] = {"WRONGPASS", "NOAUTH", "NOPERM", "ERR"};
		const char *word = "a reply that is not from Redis";

		for (int i = 0; reply->type == REDIS_REPLY_ERROR && i < lengthof(known); i++)
			if (strncmp(reply->str, known[i], strlen(known[i])) == 0)
				word = known[i];
		redis_failed(err, "the password was refused: %s", word);
	}
	freeReplyObject(reply);
	return ok;
}

/* The value of a line "name:value" of INFO, or "". */
static void
info_value(const char *info, const char *name, char *value, size_t size)
{
	const char *line = strstr(info, psprintf("\n%s:", name));

	value[0] = '\0';
	if (line == NULL)
		return;
	line += strlen(name) + 2;
	strlcpy(value, line, Min(size, strcspn(line, "\r\n") + 1));
}

/*
 * Redis' clock now, by its reading when the connection was made; not too early,
 * unless that clock was stepped.
 */
int64
redis_now_ms(void)
{
	return clock_ahead + monotonic_ms();
}

/* Asks for Redis' clock. */
static bool
read_clock(char *err)
{
	const char *argv[1] = {"TIME"};
	int64		asked_at = monotonic_ms();
	redisReply *reply = ask(1, argv, REDIS_REPLY_ARRAY, err);

	if (reply && (reply->elements != 2 ||
				  reply->element[0]->type != REDIS_REPLY_STRING ||
				  reply->element[1]->type != REDIS_REPLY_STRING))
		reply = bad_reply(reply, "TIME", err);
	if (!reply)
		return false;
	clock_ahead = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
		strtoll(reply->element[1]->str, NULL, 10) / 1000 - asked_at;
	freeReplyObject(reply);
	return true;
}

/* Asks which Redis this is.  A replica is refused: it takes no writes. */
static bool
introduce(const Address *address, char *err)
{
	const char *info_argv[1] = {"INFO"};
	redisReply *reply;
	char	   *info;
	char		role[16];
	char		number[16];
	char		mode[16];

	if (address->database != 0)
	{
		const char *select_argv[2] = {"SELECT", number};

		snprintf(number, sizeof(number), "%d", address->database);
		reply = ask(2, select_argv, REDIS_REPLY_STATUS, err);
		if (!reply)
			return false;
		freeReplyObject(reply);
	}
	/* a verbatim string would be RESP3, which was not requested */
	reply = ask(1, info_argv, REDIS_REPLY_STRING, err);
	if (reply && strlen(reply->str) != reply->len)
		reply = bad_reply(reply, "INFO", err);
	if (!reply)
		return false;
	info = psprintf("\n%s", reply->str);
	freeReplyObject(reply);
	info_value(info, "run_id", run_id, sizeof(run_id));
	info_value(info, "role", role, sizeof(role));
	info_value(info, "redis_mode", mode, sizeof(mode));
	is_cluster = strcmp(mode, "cluster") == 0;
	if (run_id[0] == '\0' || role[0] == '\0')
		return redis_failed(err, "the reply to INFO is not from Redis");
	if (strcmp(role, "master") != 0)
		return redis_failed(err, "this is a replica");
	return read_clock(err);
}

/* Tries each numeric address of a URL's host, with a deadline of its own. */
static bool
connect_to(const char *url, const char *end, char *err)
{
	Address		address;
	char		addresses[NET_ADDRESSES_LEN] = "";
	char		reason[NET_ERR_LEN];

	(void) url_parse(url, end, &address);	/* the setting was checked */
	net_set_deadline(snowid_redis_timeout);
	if (address.local)
	{
		strlcpy(linked_to, address.host, sizeof(linked_to));
		strlcpy(addresses, address.host, sizeof(addresses));
	}
	else
	{
		snprintf(linked_to, sizeof(linked_to), "%s port %d", address.host, address.port);
		if (!net_resolve(address.host, addresses, reason))
			return redis_failed(err, "%s", reason);
	}
	for (const char *a = addresses; a < addresses + sizeof(addresses) && *a; a += strlen(a) + 1)
	{
		net_set_deadline(snowid_redis_timeout);
		if (open_link(&address, a, err) && authenticate(&address, err) && introduce(&address, err))
			return true;
	}
	return false;
}

/*
 * Connects to the first URL whose Redis takes writes.  False: the reasons, of each
 * URL, are in err.
 */
bool
redis_connect(char *err)
{
	const char *urls = snowid_redis_url;
	const char *end;
	char		reasons[NET_ERR_LEN] = "";

	if (connection)
	{
		struct pollfd idle = {.fd = connection->fd,.events = POLLIN};

		/* there is something to read if it has ended */
		if (poll(&idle, 1, 0) == 0)
			return true;
		redis_close();
	}
	for (; (urls = url_next(urls, &end)) != NULL; urls = end)
	{
		size_t		used = strlen(reasons);

		if (connect_to(urls, end, err))
			return true;
		snprintf(reasons + used, sizeof(reasons) - used, "%s%s", used ? "; " : "", err);
	}
	strlcpy(err, reasons, NET_ERR_LEN);
	return false;
}

/*
 * Is at most one of the addresses a master?  An old master that came back as one
 * would be a second registry.  False: the reason is in err.  Closes the connection.
 */
bool
redis_is_one(char *err)
{
	const char *urls = snowid_redis_url;
	const char *end;
	char		first_run[64] = "";
	char		first_name[NET_ERR_LEN] = "";

	if (url_count(snowid_redis_url) < 2)
		return true;
	for (; (urls = url_next(urls, &end)) != NULL; urls = end)
	{
		char		ignored[NET_ERR_LEN];

		redis_close();
		if (!connect_to(urls, end, ignored) || is_cluster)
			continue;
		if (first_run[0] && strcmp(first_run, run_id) != 0)
		{
			snprintf(err, NET_ERR_LEN, "%s and %s are both masters", first_name, linked_to);
			redis_close();
			return false;
		}
		strlcpy(first_run, run_id, sizeof(first_run));
		strlcpy(first_name, linked_to, sizeof(first_name));
	}
	redis_close();
	return true;
}

/*---- The script ----*/

static void
script_sha1(char hex[2 * SHA_DIGEST_LENGTH + 1])
{
	unsigned char digest[SHA_DIGEST_LENGTH];

	if (!SHA1((const unsigned char *) script, strlen(script), digest))
		elog(ERROR, "could not compute a SHA-1 hash");
	for (int i = 0; i < SHA_DIGEST_LENGTH; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

/*
 * Waits until as many replicas as snowid.redis_wait_replicas have the script's
 * writes; with the deadline of its call.
 */
bool
redis_wait_for_replicas(char *err)
{
	char		count[16];
	char		timeout[16];
	const char *argv[3] = {"WAIT", count, timeout};
	redisReply *reply;
	long long	confirmed;

	if (snowid_redis_wait_replicas == 0)
		return true;
	snprintf(count, sizeof(count), "%d", snowid_redis_wait_replicas);
	snprintf(timeout, sizeof(timeout), "%d", Max(snowid_redis_timeout / 2, 1));
	reply = ask(3, argv, REDIS_REPLY_INTEGER, err);
	if (!reply)
		return false;
	confirmed = reply->integer;
	freeReplyObject(reply);
	if (confirmed >= snowid_redis_wait_replicas)
		return true;
	snprintf(err, NET_ERR_LEN, "%s: %lld of the %d replicas that snowid.redis_wait_replicas asks for have confirmed",
			 linked_to, confirmed, snowid_redis_wait_replicas);
	return false;
}

/*
 * Runs the registry's script with these arguments, within snowid.redis_timeout.
 * There must be a connection.  The answer, an array of strings, is in the current
 * memory context.  False: the script may have been run or not; the reason is in
 * err.
 */
bool
redis_run_script(const char *key, const char **args, int nargs,
				 char ***answer, int *count, char *err)
{
	static char sha1[2 * SHA_DIGEST_LENGTH + 1] = "";
	const char **argv = palloc((nargs + 4) * sizeof(char *));
	redisReply *reply;

	if (sha1[0] == '\0')
		script_sha1(sha1);
	argv[0] = "EVALSHA";
	argv[1] = sha1;
	argv[2] = "1";
	argv[3] = key;
	memcpy(argv + 4, args, nargs * sizeof(char *));
	net_set_deadline(snowid_redis_timeout);
	reply = command(nargs + 4, argv, err);
	if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0)
	{
		freeReplyObject(reply);
		argv[0] = "EVAL";
		argv[1] = script;
		reply = command(nargs + 4, argv, err);
	}
	if (reply && (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0))
		reply = bad_reply(reply, "the registry's script", err);
	if (!reply)
		return false;
	*count = (int) reply->elements;
	*answer = palloc(*count * sizeof(char *));
	for (int i = 0; i < *count; i++)
	{
		const redisReply *element = reply->element[i];

		if (element->type != REDIS_REPLY_STRING || strlen(element->str) != element->len)
		{
			bad_reply(reply, "the registry's script", err);
			return false;
		}
		(*answer)[i] = pstrdup(element->str);
	}
	freeReplyObject(reply);
	return true;
}
