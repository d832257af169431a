/*
 * redis.c
 *		The choice of a Redis, the connection to it, and the registry's script.
 *
 * Only the snowid registry calls it.  Functions return codes and fill the
 * caller's error buffer, which begins with the address; they do not log and decide
 * nothing.  The connection itself is of the library snowid_redis (redis/link.c); each
 * call has one deadline (net.c).  After an error the connection is closed.  No reply is
 * used before its type and number are checked.  No password gets into an error: for a
 * refused AUTH it has only known words, since a server may repeat the arguments.
 */
#include "postgres.h"

#include <ctype.h>

#include <openssl/sha.h>

#include "compat.h"
#include "registry/library.h"
#include "registry/redis.h"
#include "secrets.h"
#include "settings.h"

/* The most bytes that are read of a password file. */
#define MAX_PASSWORD 1024

static const char script[] =
#include "registry/registry.lua.h"
		   ;

static const RedisLink *library = NULL; /* NULL: not loaded yet */
static char linked_to[300];		/* the address, for people: errors name it */

static char run_id[64];			/* of the Redis that is connected, */
static bool is_cluster;			/* and whether it is a node of a cluster */
static int64 clock_ahead;		/* Redis' clock less monotonic_ms(), in Unix
								 * ms */

/*---- A connection ----*/

void
redis_close(void)
{
	if (library)
		library->close();
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

/* A reply of a type that it must not have.  Returns NULL. */
static LinkReply *
bad_reply(const LinkReply *reply, const char *what, char *err)
{
	if (reply->type == '-')
		redis_failed(err, "%s: %.200s", what, reply->texts[0]);
	else
		redis_failed(err, "%s: unexpected type of reply", what);
	return NULL;
}

/* Sends one command and returns its reply; NULL: it failed. */
static LinkReply *
command(int argc, const char **argv, char *err)
{
	char		reason[NET_ERR_LEN];
	LinkReply  *reply = library->ask(argc, argv, reason);

	if (!reply)
		redis_failed(err, "%s", reason);
	return reply;
}

/* The same, with a reply that must be of this type. */
static LinkReply *
call_redis(int argc, const char **argv, char type, char *err)
{
	LinkReply  *reply = command(argc, argv, err);

	return reply && reply->type != type ? bad_reply(reply, argv[0], err) : reply;
}

/* Connects to one numeric address, or to the local socket. */
static bool
open_link(const Address *address, const char *numeric, char *err)
{
	LinkTarget	target = {.address = numeric,.ca_file = snowid_redis_ca_file};
	char		reason[NET_ERR_LEN];

	if (!address->local)
		target.port = address->port;
	if (address->tls)
		target.tls_name = address->host;
	return library->open(&target, net_wait, reason) || redis_failed(err, "%s", reason);
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
	static const char *const known[] = {"WRONGPASS", "NOAUTH", "NOPERM", "ERR"};
	const char *word = "a reply that is not from Redis";
	char		password[MAX_PASSWORD];
	char		reason[NET_ERR_LEN];
	const char *argv[3] = {"AUTH"};
	int			argc = 1;
	LinkReply  *reply;

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
	if (reply->type == '+' && strcmp(reply->texts[0], "OK") == 0)
		return true;
	for (int i = 0; reply->type == '-' && i < lengthof(known); i++)
		if (strncmp(reply->texts[0], known[i], strlen(known[i])) == 0)
			word = known[i];
	return redis_failed(err, "the password was refused: %s", word);
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
look_at_clock(char *err)
{
	const char *argv[1] = {"TIME"};
	int64		asked_at = monotonic_ms();
	LinkReply  *reply = call_redis(1, argv, '*', err);

	if (reply && reply->count != 2)
		reply = bad_reply(reply, "TIME", err);
	if (!reply)
		return false;
	clock_ahead = strtoll(reply->texts[0], NULL, 10) * 1000 +
		strtoll(reply->texts[1], NULL, 10) / 1000 - asked_at;
	return true;
}

/* Asks which Redis this is.  A replica is refused: it takes no writes. */
static bool
introduce(const Address *address, char *err)
{
	const char *info_argv[1] = {"INFO"};
	LinkReply  *reply;
	char	   *info;
	char		role[16];
	char		number[16];
	char		mode[16];

	if (address->database != 0)
	{
		const char *select_argv[2] = {"SELECT", number};

		snprintf(number, sizeof(number), "%d", address->database);
		if (!call_redis(2, select_argv, '+', err))
			return false;
	}
	/* a verbatim string would be RESP3, which was not requested */
	reply = call_redis(1, info_argv, '$', err);
	if (!reply)
		return false;
	info = psprintf("\n%s", reply->texts[0]);
	info_value(info, "run_id", run_id, sizeof(run_id));
	info_value(info, "role", role, sizeof(role));
	info_value(info, "redis_mode", mode, sizeof(mode));
	is_cluster = strcmp(mode, "cluster") == 0;
	if (run_id[0] == '\0' || role[0] == '\0')
		return redis_failed(err, "the reply to INFO is not from Redis");
	if (strcmp(role, "master") != 0)
		return redis_failed(err, "this is a replica");
	return look_at_clock(err);
}

/* Tries each numeric address of a URL's host, with a deadline of its own. */
static bool
try_address(const char *url, const char *end, char *err)
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

	library = library_load(err);
	if (!library)
		return false;
	/* there is something to read if it has ended */
	if (library->is_quiet())
		return true;
	for (; (urls = url_next(urls, &end)) != NULL; urls = end)
	{
		size_t		used = strlen(reasons);

		if (try_address(urls, end, err))
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
	char		ignored[NET_ERR_LEN];

	if (url_count(snowid_redis_url) < 2)
		return true;
	library = library_load(ignored);
	if (!library)
		return true;			/* the next call says why */
	for (; (urls = url_next(urls, &end)) != NULL; urls = end)
	{
		if (!try_address(urls, end, ignored) || is_cluster)
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
	LinkReply  *reply;
	long long	confirmed;

	if (snowid_redis_wait_replicas == 0)
		return true;
	snprintf(count, sizeof(count), "%d", snowid_redis_wait_replicas);
	snprintf(timeout, sizeof(timeout), "%d", Max(snowid_redis_timeout / 2, 1));
	reply = call_redis(3, argv, ':', err);
	if (!reply)
		return false;
	confirmed = strtoll(reply->texts[0], NULL, 10);
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
	LinkReply  *reply;

	if (sha1[0] == '\0')
		script_sha1(sha1);
	argv[0] = "EVALSHA";
	argv[1] = sha1;
	argv[2] = "1";
	argv[3] = key;
	memcpy(argv + 4, args, nargs * sizeof(char *));
	net_set_deadline(snowid_redis_timeout);
	reply = command(nargs + 4, argv, err);
	if (reply && reply->type == '-' && strncmp(reply->texts[0], "NOSCRIPT", 8) == 0)
	{
		argv[0] = "EVAL";
		argv[1] = script;
		reply = command(nargs + 4, argv, err);
	}
	if (reply && (reply->type != '*' || reply->count == 0))
		reply = bad_reply(reply, "the registry's script", err);
	if (!reply)
		return false;
	*count = reply->count;
	*answer = reply->texts;
	return true;
}
