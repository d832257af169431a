/*
 * redis.c
 *		The connection to Redis: addresses, secrets, and the registry's script.
 *
 * The only file that includes hiredis.  Only the snowid registry calls it.
 * Functions return codes and fill the caller's error buffer; they do not log
 * and decide nothing.  hiredis is driven non-blocking, for its blocking calls
 * hang under signals; each call has one deadline (net.c).  No reply is used
 * before its type, length and number are checked.  No password gets into an
 * error: of a refused AUTH only known words are told, since a server may
 * repeat the arguments.
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <hiredis/hiredis.h>
#ifdef SNOWID_TLS
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

#include "common/cryptohash.h"
#include "common/sha1.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "registry/redis.h"
#include "settings.h"
#include "url.h"

/* What a reply may be at most, and a password file. */
#define MAX_REPLY (256 * 1024)
#define MAX_PASSWORD 1024

/* Elements of a reply: a page of records, at most. */
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
static char connected_to[300];
static const char *other_urls = ""; /* in the setting, behind the one in use */
static const char *first_url = NULL;	/* to begin with, if not the first */
static char may_evict[64];
#ifdef SNOWID_TLS
static SSL *tls = NULL;			/* the connection's; hiredis frees it */
#endif

/*---- Secrets ----*/

/*
 * Reads the password, the file's first line, if there is a file.  It is held
 * to what PostgreSQL asks of its own key files.
 */
static bool
read_password(char *password, char *err)
{
	const char *path = snowid_redis_password_file;
	struct stat st;
	int			fd;
	ssize_t		len;
	size_t		line;

	password[0] = '\0';
	if (path[0] == '\0')
		return true;
	fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0 || fstat(fd, &st) < 0)
	{
		snprintf(err, NET_ERR_LEN, "could not open password file \"%s\": %s", path, strerror(errno));
		if (fd >= 0)
			CloseTransientFile(fd);
		return false;
	}
	len = -1;
	if (!S_ISREG(st.st_mode))
		snprintf(err, NET_ERR_LEN, "password file \"%s\" is not a regular file", path);
	else if (st.st_uid != geteuid() && st.st_uid != 0)
		snprintf(err, NET_ERR_LEN, "password file \"%s\" must be owned by the server's user or root", path);
	else if (st.st_mode & (st.st_uid == 0 ? (S_IWGRP | S_IXGRP | S_IRWXO) : (S_IRWXG | S_IRWXO)))
		snprintf(err, NET_ERR_LEN, "password file \"%s\" has group or world access; its permissions should be u=rw (0600) or less, or u=rw,g=r (0640) or less if owned by root", path);
	else if ((len = read(fd, password, MAX_PASSWORD - 1)) < 0)
		snprintf(err, NET_ERR_LEN, "could not read password file \"%s\": %s", path, strerror(errno));
	CloseTransientFile(fd);
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
	snprintf(err, NET_ERR_LEN, "the first line of password file \"%s\" is %s", path,
			 line == 0 ? "empty" : "too long");
	return false;
}

/*---- Calls ----*/

void
redis_disconnect(void)
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
redis_is_connected(void)
{
	return connection != NULL;
}

/* The policy by which it may evict the registry, or "". */
const char *
redis_may_evict(void)
{
	return may_evict;
}

/* Puts the address before the error, and gives the connection up. */
static bool
			failed(char *err, const char *format,...) pg_attribute_printf(2, 3);

static bool
failed(char *err, const char *format,...)
{
	char		reason[NET_ERR_LEN];
	va_list		args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	/* what a server says goes into a log */
	for (char *p = reason; *p; p++)
		if (!isprint((unsigned char) *p))
			*p = '?';
	snprintf(err, NET_ERR_LEN, "%s: %s", connected_to, reason);
	redis_disconnect();
	return false;
}

/* What reading or writing failed for; of TLS hiredis tells nothing. */
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

static redisReply *
bad_reply(redisReply *reply, const char *what, char *err)
{
	if (reply->type == REDIS_REPLY_ERROR)
		failed(err, "%s: %.200s", what, reply->str);
	else
		failed(err, "%s: an answer of an unexpected type", what);
	freeReplyObject(reply);
	return NULL;
}

/* The next reply, whatever it is; NULL: the connection is gone. */
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
			failed(err, "%s", connection->reader->err == REDIS_ERR_OOM ?
				   "an answer is too long" : connection->reader->errstr);
			return NULL;
		}
		if (reply)
			return reply;
		/* of the whole answer: what was understood has left the buffer */
		if (received > MAX_REPLY)
		{
			failed(err, "an answer is too long");
			return NULL;
		}
		if (!net_wait(connection->fd, event, reason))
		{
			failed(err, "%s", reason);
			return NULL;
		}
		before = connection->reader->len;
		if (redisBufferRead(connection) != REDIS_OK)
		{
			failed(err, "%s", io_error());
			return NULL;
		}
		received += connection->reader->len - before;
	}
}

/* Sends one command and returns its reply, as above. */
static redisReply *
command(int argc, const char **argv, char *err)
{
	int			done = 0;

	if (redisAppendCommandArgv(connection, argc, argv, NULL) != REDIS_OK)
	{
		failed(err, "out of memory");
		return NULL;
	}
	for (;;)
	{
		char		reason[NET_ERR_LEN];
		int			event = WL_SOCKET_WRITEABLE;

		if (redisBufferWrite(connection, &done) != REDIS_OK)
		{
			failed(err, "%s", io_error());
			return NULL;
		}
		if (done)
			return receive(err);
#ifdef SNOWID_TLS
		/* a handshake reads, too */
		if (tls && SSL_want_read(tls))
			event = WL_SOCKET_READABLE;
#endif
		if (!net_wait(connection->fd, event, reason))
		{
			failed(err, "%s", reason);
			return NULL;
		}
	}
}

/*---- Connecting ----*/

static redisReplyObjectFunctions reply_functions;
static void *(*create_any_array) (const redisReadTask *task, ElementCount elements);

/* hiredis would allocate, and walk through, what an array only claims to have. */
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
		return failed(err, "could not load the certificates in \"%s\"", ca[0] ? ca : "the system's store");
	if (context)
	{
		SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
		tls = SSL_new(context);
	}
	if (!tls)
		return failed(err, "could not set up TLS");
	ERR_clear_error();
	if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), address->host) != 1 &&
		(SSL_set1_host(tls, address->host) != 1 ||
		 SSL_set_tlsext_host_name(tls, address->host) != 1))
	{
		SSL_free(tls);
		tls = NULL;
		return failed(err, "could not set up TLS");
	}
	ERR_clear_error();
	if (redisInitiateSSL(connection, tls) != REDIS_OK)
		return failed(err, "%s", io_error());
	return true;
}
#endif

/* Opens the socket to one numeric address, or to the local socket. */
static bool
open_socket(const Address *address, const char *numeric, char *err)
{
	int			error = 0;
	socklen_t	len = sizeof(error);
	char		reason[NET_ERR_LEN];

	if (!AcquireExternalFD())
	{
		snprintf(err, NET_ERR_LEN, "%s: no file descriptor is left", connected_to);
		return false;
	}
	connection = address->local ? redisConnectUnixNonBlock(numeric) :
		redisConnectNonBlock(numeric, address->port);
	if (!connection)
	{
		ReleaseExternalFD();
		snprintf(err, NET_ERR_LEN, "%s: out of memory", connected_to);
		return false;
	}
	if (connection->err)
		return failed(err, "%s", connection->errstr);
	limit_arrays(connection->reader);
	if (!net_wait(connection->fd, WL_SOCKET_WRITEABLE, reason))
		return failed(err, "%s", reason);
	if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error)
		return failed(err, "%s", strerror(error));
#ifdef SNOWID_TLS
	if (address->tls)
		return start_tls(address, err);
#endif
	return true;
}

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
		return failed(err, "%s", reason);
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
		const char *word = "an answer that is not one of Redis";

		for (int i = 0; reply->type == REDIS_REPLY_ERROR && i < lengthof(known); i++)
			if (strncmp(reply->str, known[i], strlen(known[i])) == 0)
				word = known[i];
		failed(err, "the password was refused: %s", word);
	}
	freeReplyObject(reply);
	return ok;
}

/* The value of a line "name:value" of INFO, or "". */
static void
info_value(const char *info, const char *name, char *value, size_t size)
{
	size_t		len = strlen(name);

	value[0] = '\0';
	for (const char *line = info; *line;)
	{
		size_t		line_len = strcspn(line, "\r\n");

		if (line_len > len && strncmp(line, name, len) == 0 && line[len] == ':' &&
			line_len - len - 1 < size)
		{
			memcpy(value, line + len + 1, line_len - len - 1);
			value[line_len - len - 1] = '\0';
		}
		line += line_len;
		line += strspn(line, "\r\n");
	}
}

/* Who is this?  Replicas are skipped: they would refuse what is written. */
static bool
introduce(const Address *address, char *err)
{
	const char *info_argv[1] = {"INFO"};
	redisReply *reply;
	char		role[16];
	char		policy[64];
	char		number[16];
	char		run_id[64];

	if (address->database != 0)
	{
		const char *select_argv[2] = {"SELECT", number};

		snprintf(number, sizeof(number), "%d", address->database);
		reply = command(2, select_argv, err);
		if (reply && reply->type != REDIS_REPLY_STATUS)
			reply = bad_reply(reply, "SELECT", err);
		if (!reply)
			return false;
		freeReplyObject(reply);
	}
	reply = command(1, info_argv, err);
	/* a verbatim string where RESP3 is spoken; hiredis 0.14 knows no such */
	if (reply && (reply->type != REDIS_REPLY_STRING || strlen(reply->str) != reply->len))
		reply = bad_reply(reply, "INFO", err);
	if (!reply)
		return false;
	info_value(reply->str, "run_id", run_id, sizeof(run_id));
	info_value(reply->str, "role", role, sizeof(role));
	info_value(reply->str, "maxmemory_policy", policy, sizeof(policy));
	freeReplyObject(reply);
	if (run_id[0] == '\0' || role[0] == '\0')
		return failed(err, "the answer to INFO is not one of Redis");
	if (strcmp(role, "master") != 0)
		return failed(err, "this is a replica");
	strlcpy(may_evict, strncmp(policy, "allkeys", 7) == 0 ? policy : "", sizeof(may_evict));
	return true;
}

/* Each numeric address of a host has a deadline of its own. */
static bool
connect_to(const Address *address, bool last_call, char *err)
{
	char		addresses[NET_ADDRESSES_LEN] = "";
	char		reason[NET_ERR_LEN];

	net_set_deadline(snowid_redis_timeout, last_call);
	if (address->local)
	{
		snprintf(connected_to, sizeof(connected_to), "%s", address->host);
		return open_socket(address, address->host, err) &&
			authenticate(address, err) && introduce(address, err);
	}
	snprintf(connected_to, sizeof(connected_to), "%s port %d", address->host, address->port);
	if (!net_resolve(address->host, addresses, reason))
		return failed(err, "%s", reason);
	for (const char *a = addresses; a < addresses + sizeof(addresses) && *a; a += strlen(a) + 1)
	{
		net_set_deadline(snowid_redis_timeout, last_call);
		if (open_socket(address, a, err) && authenticate(address, err) && introduce(address, err))
			return true;
	}
	return false;
}

/*
 * Connects to the first address that is a Redis which takes writes.  False: the
 * reason is in err, of each address.
 */
bool
redis_connect(bool last_call, char *err)
{
	const char *urls = first_url ? first_url : snowid_redis_url;
	const char *end;
	char		reasons[NET_ERR_LEN] = "";

	if (connection)
		return true;
	for (; (urls = url_next(urls, &end)) != NULL; urls = end)
	{
		Address		address;
		size_t		used = strlen(reasons);

		if (url_parse(urls, end, &address) != NULL)
			continue;			/* cannot be: the setting was checked */
		other_urls = end;
		if (connect_to(&address, last_call, err))
			return true;
		snprintf(reasons + used, sizeof(reasons) - used, "%s%s", used ? "; " : "", err);
	}
	first_url = NULL;
	strlcpy(err, reasons, NET_ERR_LEN);
	return false;
}

/*---- The script ----*/

static void
script_sha1(char hex[2 * SHA1_DIGEST_LENGTH + 1])
{
	uint8		digest[SHA1_DIGEST_LENGTH];
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA1);

	if (!ctx || pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) script, strlen(script)) < 0 ||
		pg_cryptohash_final(ctx, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute a SHA-1 hash");
	pg_cryptohash_free(ctx);
	for (int i = 0; i < SHA1_DIGEST_LENGTH; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

/* Waits for the replicas that snowid.redis_wait_replicas asks for. */
static bool
wait_for_replicas(char *err)
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
	reply = command(3, argv, err);
	if (reply && reply->type != REDIS_REPLY_INTEGER)
		reply = bad_reply(reply, "WAIT", err);
	if (!reply)
		return false;
	confirmed = reply->integer;
	freeReplyObject(reply);
	if (confirmed >= snowid_redis_wait_replicas)
		return true;
	snprintf(err, NET_ERR_LEN, "%s: %lld of the %d replicas that snowid.redis_wait_replicas asks for have confirmed",
			 connected_to, confirmed, snowid_redis_wait_replicas);
	return false;
}

/*
 * Runs the registry's script with these arguments, within
 * snowid.redis_timeout; the connection must be there.  The answer, an array of
 * strings, is in the current memory context.  False: it is not known whether
 * the script was run; the reason is in err.  "last_call" is not ended by a
 * shutdown.
 */
bool
redis_run_script(const char *key, const char **args, int nargs, bool last_call,
				 char ***answer, int *count, char *err)
{
	static char sha1[2 * SHA1_DIGEST_LENGTH + 1] = "";
	const char **argv = palloc((nargs + 4) * sizeof(char *));
	redisReply *reply;

	if (sha1[0] == '\0')
		script_sha1(sha1);
	argv[0] = "EVALSHA";
	argv[1] = sha1;
	argv[2] = "1";
	argv[3] = key;
	memcpy(argv + 4, args, nargs * sizeof(char *));
	net_set_deadline(snowid_redis_timeout, last_call);
	reply = command(nargs + 4, argv, err);
	if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0)
	{
		freeReplyObject(reply);
		argv[0] = "EVAL";
		argv[1] = script;
		reply = command(nargs + 4, argv, err);
	}
	if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "MOVED", 5) == 0)
	{
		const char *end;

		first_url = url_next(other_urls, &end);
		failed(err, "another node of the Redis Cluster has the key \"%s\"; name that one in snowid.redis_url, too", key);
		freeReplyObject(reply);
		return false;
	}
	if (reply && (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0))
		reply = bad_reply(reply, "the registry's script", err);
	for (size_t i = 0; reply && i < reply->elements; i++)
	{
		const redisReply *element = reply->element[i];

		if (element->type != REDIS_REPLY_STRING || strlen(element->str) != element->len)
			reply = bad_reply(reply, "the registry's script", err);
	}
	if (!reply)
		return false;
	*count = (int) reply->elements;
	*answer = palloc(*count * sizeof(char *));
	for (int i = 0; i < *count; i++)
		(*answer)[i] = pstrdup(reply->element[i]->str);
	freeReplyObject(reply);
	return wait_for_replicas(err);
}
