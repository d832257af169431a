/*
 * source.c
 *		Central servers: which table is a source, and statements there.
 *
 * A source is a foreign table of postgres_fdw.  It says where the rows are, and with
 * which options and user mapping its server is reached: those of the table's owner.
 * Statements go to that server by a connection of our own, and not by the executor:
 * so no trigger, default, domain or policy of the foreign table is computed here, and
 * each wait ends at a deadline by the monotonic clock, or when the process must leave.
 * (postgres_fdw of PostgreSQL 15 connects without looking at signals.)
 * A connection that did not answer in time is closed, with whatever is under way there.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "foreign/foreign.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "net.h"
#include "segment/source.h"

/* How often it looks, while it waits, whether the process must leave. */
#define LOOK_MS 200

/* After a failure of a server nothing is tried there for so long. */
#define PAUSE_MS 1000

typedef struct Failure
{
	uint32		hash;			/* of the server's identity */
	int64		retry_at;		/* not before */
	Reason		reason;
} Failure;

/* Of the servers that failed last. */
static Failure failures[64];

/* The server that was asked last, which alone is connected. */
static struct
{
	char	   *identity;		/* all options; NULL: there was none */
	PGconn	   *conn;			/* NULL: closed */
}			server;

static int64 deadline;
static bool (*process_must_end) (void);

/* Says why, and returns false. */
bool
reason_is(Reason *reason, bool is_ours, const char *format,...)
{
	va_list		args;
	int			len;

	va_start(args, format);
	vsnprintf(reason->why, REASON_LEN, format, args);
	va_end(args);
	len = pg_mbcliplen(reason->why, strlen(reason->why), REASON_LEN - 1);
	while (len > 0 && strchr(".\n ", reason->why[len - 1]))
		len--;
	if (len == 0)
		len = strlcpy(reason->why, "unknown error", REASON_LEN);
	reason->why[len] = '\0';
	reason->is_ours = is_ours;
	return false;
}

static bool
is_late(Reason *reason)
{
	return reason_is(reason, true, "The central server did not answer in time");
}

/*---- Which table is a source ----*/

static ForeignServer *
server_of(Oid relid)
{
	return GetForeignServer(GetForeignTable(relid)->serverid);
}

/* By its full name; by hand, a name without a schema is looked for in search_path. */
Oid
source_find(const char *name, bool by_path)
{
	List	   *names;

	if (!SplitIdentifierString(pstrdup(name), '.', &names))
		return InvalidOid;
	if (list_length(names) == 2)
		return get_relname_relid(lsecond(names), get_namespace_oid(linitial(names), true));
	return by_path && list_length(names) == 1 ? RelnameGetRelid(linitial(names)) : InvalidOid;
}

/* NULL: there is no such table. */
static Form_pg_class
class_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(relid));

	return HeapTupleIsValid(tuple) ? (Form_pg_class) GETSTRUCT(tuple) : NULL;
}

/*
 * NULL, or why a table is no source.  Only a superuser can make a foreign data wrapper,
 * and so give it the name of postgres_fdw.
 */
const char *
source_problem(Oid relid)
{
	Form_pg_class form = class_of(relid);

	if (form == NULL)
		return "Its source does not exist";
	if (form->relkind != RELKIND_FOREIGN_TABLE ||
		strcmp(GetForeignDataWrapper(server_of(relid)->fdwid)->fdwname, "postgres_fdw") != 0)
		return "Its source is no foreign table of postgres_fdw";
	if (form->relhastriggers || form->relhasrules || form->relrowsecurity)
		return "Its source has triggers, rules or row security, which would be ignored";
	return NULL;
}

/* The database's owner decides what is in the table of tags, so must have these rights. */
static bool
owner_is_allowed(Oid relid, bool with_periods)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	AclMode		rights = ACL_SELECT | ACL_UPDATE | (with_periods ? ACL_INSERT : 0);
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for database %u", MyDatabaseId);
	owner = ((Form_pg_database) GETSTRUCT(tuple))->datdba;
	ReleaseSysCache(tuple);
	return pg_class_aclmask(relid, owner, rights, ACLMASK_ALL) == rights;
}

/*---- Options ----*/

static List *
add_option(List *options, char *name, const char *value)
{
	return lappend(options, makeDefElem(name, (Node *) makeString(pstrdup(value)), -1));
}

/* The last one of this name, which counts; or NULL. */
static const char *
option_of(List *options, const char *name)
{
	const char *value = NULL;
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			value = defGetString(option);
	}
	return value;
}

/*
 * As postgres_fdw has it: with the mapping of the table's owner.  An owner who is not a
 * superuser needs a password there: else this server's own identity would open the door.
 */
static List *
collect_options(Oid relid, bool *needs_password)
{
	ForeignServer *foreign = server_of(relid);
	List	   *options = add_option(NIL, "application_name", "snowid segments");
	Oid			owner = class_of(relid)->relowner;	/* it is locked */
	const char *required;
	bool		is_required = true;

	options = list_concat(options, foreign->options);
	options = list_concat(options, GetUserMapping(owner, foreign->serverid)->options);
	required = option_of(options, "password_required");
	if (required)
		(void) parse_bool(required, &is_required);
	*needs_password = !superuser_arg(owner) && is_required;
	return add_option(options, "client_encoding", GetDatabaseEncodingName());
}

/*
 * Names of hosts become addresses here, each with its host and port: libpq looks them up
 * without a deadline.
 */
static bool
resolve_hosts(List **options, Reason *reason)
{
	const char *hosts = option_of(*options, "host");
	const char *ports = option_of(*options, "port");
	const char *lists[3] = {"", "", ""};
	int			n = 0;

	if (hosts == NULL || hosts[0] == '\0' || option_of(*options, "hostaddr"))
		return true;
	for (;;)
	{
		char	   *host = pnstrdup(hosts, strcspn(hosts, ","));
		int			port_len = ports ? strcspn(ports, ",") : 0;
		char		found[NET_ADDRESSES_LEN] = "";
		char		error[NET_ERR_LEN];
		const char *address = found;

		net_set_deadline(ms_until(deadline));
		if (host[0] && !strchr("/@", host[0]) && !net_resolve(host, found, error))
			(void) (monotonic_ms() >= deadline ? is_late(reason) :
					reason_is(reason, false, "%s", error));
		else
		{
			do
			{
				const char *comma = n++ > 0 ? "," : "";

				lists[0] = psprintf("%s%s%s", lists[0], comma, host);
				lists[1] = psprintf("%s%s%s", lists[1], comma, address);
				lists[2] = psprintf("%s%s%.*s", lists[2], comma, port_len, ports ? ports : "");
				address += strlen(address) + 1;
			} while (found[0] && address[0]);
		}
		hosts += strlen(host);
		if (*hosts++ == '\0')
			break;
		if (ports && ports[port_len])	/* a single one is for all */
			ports += port_len + 1;
	}
	*options = add_option(*options, "host", lists[0]);
	*options = add_option(*options, "hostaddr", lists[1]);
	*options = add_option(*options, "port", lists[2]);
	return n > 0;
}

/*
 * libpq reads these files without a look at our signals.  A pipe, such as one of
 * /proc/self/fd, would hold the process up for ever.
 */
static bool
names_a_pipe(List *options)
{
	static const char *const files[] = {
		"passfile", "servicefile", "sslcert", "sslcrl", "sslkey", "sslrootcert"
	};

	for (int i = 0; i < lengthof(files); i++)
	{
		const char *path = option_of(options, files[i]);
		struct stat st;

		if (path && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
			return true;
	}
	return false;
}

/*---- Connections ----*/

/* From here on, all waits end after so many ms, or when the process must end. */
void
source_set_deadline(int ms, bool (*must_end) (void))
{
	deadline = monotonic_ms() + ms;
	process_must_end = must_end;
}

/* Waits until a socket is ready; false: it is too late. */
static bool
wait_for_socket(PGconn *conn, int event, Reason *reason)
{
	char		error[NET_ERR_LEN];

	do
	{
		if (monotonic_ms() >= deadline)
			return is_late(reason);
		if (process_must_end())
			return reason_is(reason, true, "The process is shutting down");
		net_set_deadline(Min(ms_until(deadline), LOOK_MS));
	} while (!net_wait(PQsocket(conn), event, error));
	return true;
}

static void
close_connection(void)
{
	if (server.conn == NULL)
		return;
	PQfinish(server.conn);
	ReleaseExternalFD();
	server.conn = NULL;
}

/* A server's last failure; if it has none, the oldest one of all. */
static Failure *
find_failure(uint32 hash)
{
	Failure    *found = &failures[0];

	for (int i = 0; i < lengthof(failures); i++)
	{
		if (failures[i].hash == hash)
			return &failures[i];
		if (failures[i].retry_at < found->retry_at)
			found = &failures[i];
	}
	return found;
}

/* Nothing is tried there for a while. */
static bool
fail_connection(Reason *reason)
{
	uint32		hash = string_hash(server.identity, INT_MAX);

	if (reason->why[0] == '\0')
		(void) reason_is(reason, true, "The central server gave no result");
	close_connection();
	*find_failure(hash) = (Failure)
	{
		.hash = hash,.retry_at = monotonic_ms() + PAUSE_MS,.reason = *reason
	};
	return false;
}

/* False: it failed a moment ago, and the reason says why. */
static bool
choose_server(const char *identity, Reason *reason)
{
	uint32		hash = string_hash(identity, INT_MAX);
	const Failure *failure = find_failure(hash);

	if (failure->hash == hash && monotonic_ms() < failure->retry_at)
	{
		*reason = failure->reason;
		return false;
	}
	if (server.identity && strcmp(server.identity, identity) == 0)
		return true;
	close_connection();
	if (server.identity)
		pfree(server.identity);
	server.identity = MemoryContextStrdup(TopMemoryContext, identity);
	return true;
}

/* The result of the statement that was sent, or NULL. */
static PGresult *
await_result(PGconn *conn, Reason *reason)
{
	PGresult   *last = NULL;
	PGresult   *next;

	do
	{
		while (PQisBusy(conn))
		{
			if (!wait_for_socket(conn, WL_SOCKET_READABLE, reason))
			{
				PQclear(last);
				return NULL;
			}
			if (!PQconsumeInput(conn))
				break;			/* PQgetResult() says so */
		}
		next = PQgetResult(conn);
		if (next)
		{
			PQclear(last);
			last = next;
		}
		/* nobody asked for COPY, which would have no end */
	} while (next && PQresultStatus(last) != PGRES_COPY_IN &&
			 PQresultStatus(last) != PGRES_COPY_OUT && PQresultStatus(last) != PGRES_COPY_BOTH);
	return last;
}

/* Another server's notices are not for our log. */
static void
ignore_notice(void *arg, const char *message)
{
}

/* A session needs these there, whatever is set for it. */
#define SETTINGS \
	"SELECT pg_catalog.set_config(name, value, false) FROM (VALUES ('search_path', 'pg_catalog')," \
	" ('lock_timeout', '1s'), ('statement_timeout', '3s'), ('default_transaction_read_only', 'off')," \
	" ('default_transaction_isolation', 'read committed')) AS s (name, value)"

/* NULL: out of memory. */
static PGconn *
start_connection(List *options)
{
	PQconninfoOption *known = PQconndefaults();
	const char **names = palloc0((list_length(options) + 1) * sizeof(char *));
	const char **values = palloc0((list_length(options) + 1) * sizeof(char *));
	int			n = 0;
	PGconn	   *conn;

	if (known == NULL)
		return NULL;
	/* postgres_fdw has looked at those of its own */
	for (PQconninfoOption *option = known; option->keyword; option++)
	{
		values[n] = option_of(options, option->keyword);
		if (values[n])
			names[n++] = option->keyword;
	}
	conn = PQconnectStartParams(names, values, false);
	PQconninfoFree(known);
	return conn;
}

static bool
connect_to(List *options, bool needs_password, Reason *reason)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	const char *password = option_of(options, "password");
	SourceRow	row;
	PGconn	   *conn;

	if (needs_password && (password == NULL || password[0] == '\0'))
		return reason_is(reason, true, "The user mapping of its source has no password");
	if (names_a_pipe(options))
		return reason_is(reason, false, "A file that its source names is no regular file");
	if (!resolve_hosts(&options, reason))
		return false;
	if (!AcquireExternalFD())
		return reason_is(reason, false, "no file descriptor is left");
	conn = server.conn = start_connection(options);
	if (conn == NULL)
	{
		ReleaseExternalFD();
		return reason_is(reason, false, "out of memory");
	}
	(void) PQsetNoticeProcessor(conn, ignore_notice, NULL);
	/* otherwise what does not fit is waited for without end */
	(void) PQsetnonblocking(conn, 1);
	if (PQstatus(conn) == CONNECTION_BAD)
		status = PGRES_POLLING_FAILED;
	while (status == PGRES_POLLING_READING || status == PGRES_POLLING_WRITING)
	{
		if (!wait_for_socket(conn, status == PGRES_POLLING_READING ? WL_SOCKET_READABLE :
							 WL_SOCKET_WRITEABLE, reason))
			return false;
		status = PQconnectPoll(conn);
	}
	if (status != PGRES_POLLING_OK)
		return reason_is(reason, false, "%s", PQerrorMessage(conn));
	if (needs_password && !PQconnectionUsedPassword(conn))
		return reason_is(reason, true, "The central server of its source does not ask for a password");
	return source_run(SETTINGS, NULL, NULL, &row, reason);
}

/*
 * Opens a source, and says how its server knows the table; false: the reason says why.
 * Rights and options are looked at each time, since they may have changed.
 */
bool
source_open(const char *name, bool with_periods, char **there, Reason *reason)
{
	Oid			relid = source_find(name, false);
	const char *problem;
	List	   *options;
	List	   *of_table;
	bool		needs_password;
	const char *schema;
	const char *table;

	if (OidIsValid(relid) && !ConditionalLockRelationOid(relid, AccessShareLock))
		problem = "Its source is locked";
	else
		problem = source_problem(relid);
	if (problem == NULL && !owner_is_allowed(relid, with_periods))
		problem = "The database's owner has no privileges on its source";
	if (problem)
		return reason_is(reason, true, "%s", problem);
	options = collect_options(relid, &needs_password);
	of_table = GetForeignTable(relid)->options;
	schema = option_of(of_table, "schema_name");
	table = option_of(of_table, "table_name");
	*there = quote_qualified_identifier(schema ? schema :
										get_namespace_name(get_rel_namespace(relid)),
										table ? table : get_rel_name(relid));
	return choose_server(psprintf("%s %d", nodeToString(options), needs_password), reason) &&
		(server.conn != NULL || connect_to(options, needs_password, reason) ||
		 fail_connection(reason));
}

/*---- Statements ----*/

/* The numbers of the first row; false: it has others than numbers. */
static bool
read_row(PGresult *result, SourceRow *row)
{
	row->found = PQntuples(result) > 0;
	for (int i = 0; row->found && i < Min(PQnfields(result), 2); i++)
	{
		char	   *digits = PQgetvalue(result, 0, i);
		char	   *end;

		errno = 0;
		row->number[i] = strtoll(digits, &end, 10);
		if (errno != 0 || *end != '\0')
			return false;
	}
	return true;
}

/*
 * Runs a statement in a transaction of its own; $1 is the tag, $2 the period.  False: it
 * may have been done all the same where the connection is gone.
 */
bool
source_run(const char *statement, const char *tag, const char *period, SourceRow *row,
		   Reason *reason)
{
	static const Oid types[2] = {TEXTOID, DATEOID};
	const char *const params[2] = {tag, period};
	PGconn	   *conn = server.conn;
	PGresult   *result = NULL;
	ExecStatusType status;
	bool		good;

	memset(row, 0, sizeof(*row));
	if (!PQsendQueryParams(conn, statement, tag ? 2 : 0, types, params, NULL, NULL, 0))
		(void) reason_is(reason, false, "%s", PQerrorMessage(conn));
	else if (PQflush(conn) != 0)
		(void) is_late(reason); /* it does not read */
	else
		result = await_result(conn, reason);
	status = PQresultStatus(result);
	good = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
	if (result && !good)
		(void) reason_is(reason, false, "%s", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) ?
						 PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : PQerrorMessage(conn));
	if (result == NULL || PQstatus(conn) == CONNECTION_BAD ||
		PQtransactionStatus(conn) != PQTRANS_IDLE)
		good = fail_connection(reason);
	if (good && tag && !read_row(result, row))
		good = reason_is(reason, true, "The columns of its source have the wrong types");
	PQclear(result);
	return good;
}
