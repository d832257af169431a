/*
 * source.c
 *		Central servers: which table is a source, and statements there.
 *
 * A source is a foreign table of postgres_fdw.  It says where the rows are, and with
 * which options and user mapping its server is reached: those of the table's owner.
 * Statements go to that server by a connection of our own, and not by the executor:
 * so no trigger, default, domain or policy of the foreign table is computed here, and
 * each wait ends at a deadline by the monotonic clock, or when the process must leave.
 * A connection that did not answer in time is closed, with whatever is under way there.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
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
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "registry/net.h"
#include "segment/source.h"

/* How often it looks, while it waits, whether the process must leave. */
#define LOOK_MS 200

/* After a failure of a connection nothing is tried for a pause that doubles. */
#define FIRST_PAUSE_MS 100
#define LAST_PAUSE_MS 2000

/* One that was not used for so long is closed. */
#define UNUSED_MS (60 * 1000)

/* The options of a server or of a user that count here. */
static const char *const known_options[] = {
	"host", "hostaddr", "port", "dbname", "user", "password", "options", "application_name",
	"connect_timeout", "tcp_user_timeout", "keepalives", "keepalives_idle",
	"keepalives_interval", "keepalives_count", "target_session_attrs",
	"sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslcrldir",
	"sslsni", "sslcompression", "ssl_min_protocol_version", "ssl_max_protocol_version",
	"channel_binding", "gssencmode", "krbsrvname", "gsslib", "requirepeer", "service"
};

/* A connection's options; the last ones are ours. */
#define MOST_OPTIONS (2 * lengthof(known_options) + 4)

typedef struct Options
{
	int			n;
	const char *names[MOST_OPTIONS + 1];
	const char *values[MOST_OPTIONS + 1];
	bool		needs_password;
} Options;

typedef struct Connection
{
	char	   *identity;		/* all options; NULL: free */
	PGconn	   *conn;			/* NULL: closed */
	int64		used_at;		/* monotonic_ms() */
	int64		retry_at;		/* not before, after a failure */
	int64		retry_ms;
	Reason		reason;			/* of the failure */
} Connection;

static Connection connections[8];

static int64 deadline;
static bool (*process_must_end) (void);

/* Says why, and returns false. */
bool
reason_is(Reason *reason, bool is_ours, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(reason->why, SEGMENT_ERROR_LEN, format, args);
	va_end(args);
	reason->why[pg_mbcliplen(reason->why, strlen(reason->why), SEGMENT_ERROR_LEN - 1)] = '\0';
	while (reason->why[0] && strchr(".\n ", reason->why[strlen(reason->why) - 1]))
		reason->why[strlen(reason->why) - 1] = '\0';
	reason->is_ours = is_ours;
	return false;
}

/*---- Which table is a source ----*/

/*
 * The table of this name, or 0.  A name without a schema is looked for in search_path,
 * and the full name is given, by which the process finds it; or not at all.
 */
Oid
source_find(const char *name, bool by_path, char **full_name)
{
	List	   *names;
	Oid			relid = InvalidOid;

	if (!SplitIdentifierString(pstrdup(name), '.', &names))
		return InvalidOid;
	if (list_length(names) == 2)
	{
		Oid			schema = get_namespace_oid(linitial(names), true);

		if (OidIsValid(schema))
			relid = get_relname_relid(lsecond(names), schema);
	}
	else if (list_length(names) == 1 && by_path)
		relid = RelnameGetRelid(linitial(names));
	if (OidIsValid(relid) && full_name)
		*full_name = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
												get_rel_name(relid));
	return relid;
}

/* Is this the wrapper postgres_fdw?  Only a superuser can make another one. */
static bool
is_postgres_fdw(Oid wrapper)
{
	Oid			handler = GetForeignDataWrapper(wrapper)->fdwhandler;
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(handler));
	bool		isnull;
	Datum		source;
	bool		is;

	if (!HeapTupleIsValid(tuple))
		return false;
	source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	is = ((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId && !isnull &&
		strcmp(TextDatumGetCString(source), "postgres_fdw_handler") == 0;
	ReleaseSysCache(tuple);
	return is;
}

/* NULL, or why a table is no source. */
const char *
source_problem(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	const char *problem = NULL;
	Form_pg_class form;

	if (!HeapTupleIsValid(tuple))
		return "Its source does not exist";
	form = (Form_pg_class) GETSTRUCT(tuple);
	if (form->relkind != RELKIND_FOREIGN_TABLE ||
		!is_postgres_fdw(GetForeignServer(GetForeignTable(relid)->serverid)->fdwid))
		problem = "Its source is no foreign table of postgres_fdw";
	else if (form->relhastriggers || form->relhasrules || form->relrowsecurity)
		problem = "Its source has triggers, rules or row security, which would be ignored";
	else if (form->relispartition || form->relhassubclass || has_superclass(relid))
		problem = "Its source is a partition, or inherits, or is inherited from";
	ReleaseSysCache(tuple);
	return problem;
}

/* May a role have it as a source? */
bool
source_is_allowed(Oid relid, Oid user, bool with_periods)
{
	return pg_class_aclcheck(relid, user, ACL_SELECT) == ACLCHECK_OK &&
		pg_class_aclcheck(relid, user, ACL_UPDATE) == ACLCHECK_OK &&
		(!with_periods || pg_class_aclcheck(relid, user, ACL_INSERT) == ACLCHECK_OK);
}

static Oid
database_owner(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for database %u", MyDatabaseId);
	owner = ((Form_pg_database) GETSTRUCT(tuple))->datdba;
	ReleaseSysCache(tuple);
	return owner;
}

/*---- Options ----*/

static void
add_option(Options *options, const char *name, const char *value)
{
	Assert(options->n < MOST_OPTIONS);
	options->names[options->n] = name;
	options->values[options->n] = value;
	options->names[++options->n] = NULL;
	options->values[options->n] = NULL;
}

static void
add_known(Options *options, List *list)
{
	ListCell   *cell;

	foreach(cell, list)
	{
		DefElem    *element = lfirst_node(DefElem, cell);

		for (int i = 0; i < lengthof(known_options); i++)
		{
			if (strcmp(element->defname, known_options[i]) == 0)
				add_option(options, known_options[i], defGetString(element));
		}
	}
}

/* The last one that counts, or NULL. */
static const char *
option_of(const Options *options, const char *name)
{
	const char *value = NULL;

	for (int i = 0; i < options->n; i++)
	{
		if (strcmp(options->names[i], name) == 0 && options->values[i][0])
			value = options->values[i];
	}
	return value;
}

static const char *
option_in(List *list, const char *name, const char *otherwise)
{
	ListCell   *cell;

	foreach(cell, list)
	{
		DefElem    *element = lfirst_node(DefElem, cell);

		if (strcmp(element->defname, name) == 0)
			return defGetString(element);
	}
	return otherwise;
}

/*
 * As postgres_fdw has it: with the mapping of the table's owner.  An owner who is not a
 * superuser needs a password there: else this server's own identity would open the door.
 */
static void
collect_options(Oid relid, Options *options)
{
	ForeignTable *table = GetForeignTable(relid);
	ForeignServer *server = GetForeignServer(table->serverid);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;
	UserMapping *mapping;
	const char *required;
	bool		is_required = true;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	mapping = GetUserMapping(owner, server->serverid);
	options->n = 0;
	add_option(options, "application_name", "snowid segments");
	add_known(options, server->options);
	add_known(options, mapping->options);
	add_option(options, "client_encoding", GetDatabaseEncodingName());
	required = option_in(mapping->options, "password_required", NULL);
	if (required)
		(void) parse_bool(required, &is_required);
	options->needs_password = !superuser_arg(owner) && is_required;
}

static char *
identity_of(const Options *options)
{
	StringInfoData all;

	initStringInfo(&all);
	for (int i = 0; i < options->n; i++)
		appendStringInfo(&all, "%s=%s\n", options->names[i], options->values[i]);
	appendStringInfo(&all, "%d", options->needs_password);
	return all.data;
}

/* The next member of a list with commas, which is NULL after the last one. */
static char *
next_member(const char **list)
{
	size_t		length = strcspn(*list, ",");
	char	   *member = pnstrdup(*list, length);

	*list = (*list)[length] == ',' ? *list + length + 1 : NULL;
	return member;
}

/* Hosts, each with its address and port, as libpq wants them. */
typedef struct Hosts
{
	StringInfoData host;
	StringInfoData address;
	StringInfoData port;
	int			n;
} Hosts;

static void
add_host(Hosts *hosts, const char *host, const char *address, const char *port)
{
	const char *comma = hosts->n++ > 0 ? "," : "";

	appendStringInfo(&hosts->host, "%s%s", comma, host);
	appendStringInfo(&hosts->address, "%s%s", comma, address);
	appendStringInfo(&hosts->port, "%s%s", comma, port);
}

static void
add_addresses(Hosts *hosts, const char *host, const char *port, Reason *reason)
{
	char		found[NET_ADDRESSES_LEN];
	char		error[NET_ERR_LEN];

	net_set_deadline(ms_until(deadline), false);
	if (net_resolve(host, found, error))
	{
		for (const char *address = found; *address; address += strlen(address) + 1)
			add_host(hosts, host, address, port);
	}
	else if (monotonic_ms() >= deadline)
		(void) reason_is(reason, false, "the name \"%s\" was not looked up in time", host);
	else
		(void) reason_is(reason, false, "%s", error);
}

/* Names of hosts become addresses here: libpq looks them up without a deadline. */
static bool
resolve_hosts(Options *options, Reason *reason)
{
	const char *names = option_of(options, "host");
	const char *ports = option_of(options, "port");
	char	   *port = "";
	Hosts		hosts = {.n = 0};

	if (names == NULL || option_of(options, "hostaddr"))
		return true;
	initStringInfo(&hosts.host);
	initStringInfo(&hosts.address);
	initStringInfo(&hosts.port);
	while (names)
	{
		char	   *host = next_member(&names);

		if (ports)				/* a single one is for all */
			port = next_member(&ports);
		if (host[0] == '/' || host[0] == '@' || host[0] == '\0')
			add_host(&hosts, host, "", port);
		else
			add_addresses(&hosts, host, port, reason);
	}
	if (hosts.n == 0)
		return false;
	add_option(options, "host", hosts.host.data);
	add_option(options, "hostaddr", hosts.address.data);
	add_option(options, "port", hosts.port.data);
	return true;
}

/*---- Waiting ----*/

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
	bool		latch_was_set = false;
	bool		ready = false;

	while (!ready)
	{
		int64		left = deadline - monotonic_ms();
		int			events;

		if (left <= 0)
			return reason_is(reason, true, "The central server did not answer in time");
		if (process_must_end())
			return reason_is(reason, true, "The process is shutting down");
		events = WaitLatchOrSocket(MyLatch,
								   WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | event,
								   PQsocket(conn), Min(left, LOOK_MS),
								   own_wait(WAIT_SEGMENTS_MAIN));
		if (events & WL_LATCH_SET)
		{
			latch_was_set = true;
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		ready = (events & event) != 0;
	}
	if (latch_was_set)			/* for the process's own loop */
		SetLatch(MyLatch);
	return true;
}

/*---- Connections ----*/

static void
close_connection(Connection *connection)
{
	if (connection->conn == NULL)
		return;
	PQfinish(connection->conn);
	ReleaseExternalFD();
	connection->conn = NULL;
}

/* Nothing is tried for a while. */
static bool
fail_connection(Connection *connection, const Reason *reason)
{
	close_connection(connection);
	connection->reason = *reason;
	connection->retry_ms = Min(Max(2 * connection->retry_ms, FIRST_PAUSE_MS), LAST_PAUSE_MS);
	connection->retry_at = monotonic_ms() + connection->retry_ms;
	return false;
}

/* The connection with these options, which may be closed. */
static Connection *
find_connection(const Options *options)
{
	char	   *identity = identity_of(options);
	Connection *oldest = &connections[0];

	for (int i = 0; i < lengthof(connections); i++)
	{
		Connection *connection = &connections[i];

		if (connection->identity && strcmp(connection->identity, identity) == 0)
			return connection;
		if (connection->used_at < oldest->used_at)
			oldest = connection;
	}
	close_connection(oldest);
	if (oldest->identity)
		pfree(oldest->identity);
	memset(oldest, 0, sizeof(*oldest));
	oldest->identity = MemoryContextStrdup(TopMemoryContext, identity);
	return oldest;
}

/* Goes through the beginning of a connection. */
static bool
poll_connection(PGconn *conn, Reason *reason)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	if (PQstatus(conn) == CONNECTION_BAD)
		status = PGRES_POLLING_FAILED;
	while (status == PGRES_POLLING_READING || status == PGRES_POLLING_WRITING)
	{
		if (!wait_for_socket(conn, status == PGRES_POLLING_READING ? WL_SOCKET_READABLE :
							 WL_SOCKET_WRITEABLE, reason))
			return false;
		status = PQconnectPoll(conn);
	}
	return status == PGRES_POLLING_OK || reason_is(reason, false, "%s", PQerrorMessage(conn));
}

/* The last result of what was sent, or NULL. */
static PGresult *
await_result(PGconn *conn, Reason *reason)
{
	PGresult   *last = NULL;
	PGresult   *next;

	for (;;)
	{
		int			left = PQflush(conn);

		while (left > 0 || (left == 0 && PQisBusy(conn)))
		{
			if (!wait_for_socket(conn, left > 0 ? WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE :
								 WL_SOCKET_READABLE, reason))
			{
				PQclear(last);
				return NULL;
			}
			if (!PQconsumeInput(conn))
				left = -1;
			else if (left > 0)
				left = PQflush(conn);
		}
		next = left < 0 ? NULL : PQgetResult(conn);
		if (left < 0)
			(void) reason_is(reason, false, "%s", PQerrorMessage(conn));
		if (next == NULL)
			break;
		PQclear(last);
		last = next;
		if (PQresultStatus(last) == PGRES_COPY_IN || PQresultStatus(last) == PGRES_COPY_OUT ||
			PQresultStatus(last) == PGRES_COPY_BOTH)
			break;				/* nobody asked for that */
	}
	return last;
}

/* What another server has to say beside its answers is not for our log. */
static void
ignore_notice(void *arg, const char *message)
{
}

/* What its sessions need there, whatever is set for them. */
#define SETTINGS \
	"SET search_path = pg_catalog; SET lock_timeout = '1s'; SET statement_timeout = '3s';" \
	" SET default_transaction_isolation = 'read committed';" \
	" SET default_transaction_read_only = off"

static bool
set_up(PGconn *conn, Reason *reason)
{
	PGresult   *result;
	bool		good;

	if (PQsetnonblocking(conn, 1) != 0 || !PQsendQuery(conn, SETTINGS))
		return reason_is(reason, false, "%s", PQerrorMessage(conn));
	result = await_result(conn, reason);
	if (result == NULL)
		return false;
	good = PQresultStatus(result) == PGRES_COMMAND_OK ||
		reason_is(reason, false, "%s", PQresultErrorMessage(result));
	PQclear(result);
	return good;
}

static bool
connect_to(Connection *connection, Options *options, Reason *reason)
{
	if (options->needs_password && !option_of(options, "password"))
		return reason_is(reason, true, "The user mapping of its source has no password");
	if (!resolve_hosts(options, reason))
		return false;
	if (!AcquireExternalFD())
		return reason_is(reason, false, "no file descriptor is left");
	connection->conn = PQconnectStartParams(options->names, options->values, false);
	if (connection->conn == NULL)
	{
		ReleaseExternalFD();
		return reason_is(reason, false, "out of memory");
	}
	(void) PQsetNoticeProcessor(connection->conn, ignore_notice, NULL);
	if (!poll_connection(connection->conn, reason))
		return false;
	if (options->needs_password && !PQconnectionUsedPassword(connection->conn))
		return reason_is(reason, true, "The central server of its source does not ask for a password");
	return set_up(connection->conn, reason);
}

/* Closes what was not used for a while. */
void
source_close_old(void)
{
	for (int i = 0; i < lengthof(connections); i++)
	{
		if (connections[i].conn && monotonic_ms() - connections[i].used_at > UNUSED_MS)
			close_connection(&connections[i]);
	}
}

/*
 * Opens a source; false: the reason says why.  What may have changed since it was named
 * is looked at each time: the database's owner must still have the rights.
 */
bool
source_open(const char *name, bool with_periods, Source *source, Reason *reason)
{
	Oid			relid = source_find(name, false, NULL);
	const char *problem = OidIsValid(relid) ? NULL : "Its source does not exist";
	Options		options;
	List	   *table_options;

	if (problem == NULL && !ConditionalLockRelationOid(relid, AccessShareLock))
		problem = "Its source is locked";
	if (problem == NULL)
		problem = source_problem(relid);
	if (problem == NULL && !source_is_allowed(relid, database_owner(), with_periods))
		problem = "The database's owner has no privileges on its source";
	if (problem)
		return reason_is(reason, true, "%s", problem);
	collect_options(relid, &options);
	table_options = GetForeignTable(relid)->options;
	source->table = quote_qualified_identifier(option_in(table_options, "schema_name",
														 get_namespace_name(get_rel_namespace(relid))),
											   option_in(table_options, "table_name",
														 get_rel_name(relid)));
	source->is_lost = false;
	source->connection = find_connection(&options);
	if (monotonic_ms() < source->connection->retry_at)
	{							/* nothing new */
		*reason = source->connection->reason;
		return false;
	}
	source->connection->used_at = monotonic_ms();
	if (source->connection->conn && PQstatus(source->connection->conn) == CONNECTION_BAD)
		close_connection(source->connection);
	return source->connection->conn != NULL ||
		connect_to(source->connection, &options, reason) ||
		fail_connection(source->connection, reason);
}

/*---- Statements ----*/

/* A number of the first row; false: it is none. */
static bool
read_number(PGresult *result, int column, int64 *number)
{
	char	   *end;
	const char *digits = PQgetvalue(result, 0, column);

	errno = 0;
	*number = strtoll(digits, &end, 10);
	return errno == 0 && end != digits && *end == '\0';
}

static bool
read_row(PGresult *result, SourceRow *row, Reason *reason)
{
	row->found = PQntuples(result) > 0;
	row->is_null = row->found && PQnfields(result) > 0 && PQgetisnull(result, 0, 0);
	for (int i = 0; row->found && i < Min(PQnfields(result), 2); i++)
	{
		if (!PQgetisnull(result, 0, i) && !read_number(result, i, &row->number[i]))
			return reason_is(reason, true, "The columns of its source have the wrong types");
	}
	return true;
}

/*
 * Runs a statement about the source's table, which %s stands for, in a transaction of
 * its own.  False: it may have been done all the same where the connection is gone.
 */
bool
source_run(Source *source, const char *statement, const char *const params[SOURCE_PARAMS],
		   SourceRow *row, Reason *reason)
{
	static const Oid types[SOURCE_PARAMS] = {TEXTOID, INT8OID, INT8OID, INT8OID, DATEOID};
	PGconn	   *conn = source->connection->conn;
	PGresult   *result = NULL;
	ExecStatusType status;
	bool		good;

	memset(row, 0, sizeof(*row));
	if (PQsendQueryParams(conn, psprintf(statement, source->table), SOURCE_PARAMS, types,
						  params, NULL, NULL, 0))
		result = await_result(conn, reason);
	else
		(void) reason_is(reason, false, "%s", PQerrorMessage(conn));
	status = PQresultStatus(result);
	good = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
	if (result && !good)
		(void) reason_is(reason, false, "%s", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) ?
						 PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : PQerrorMessage(conn));
	source->is_lost = result == NULL || PQstatus(conn) == CONNECTION_BAD ||
		PQtransactionStatus(conn) != PQTRANS_IDLE;
	if (source->is_lost)
		good = fail_connection(source->connection, reason);
	else
		source->connection->retry_ms = 0;
	good = good && read_row(result, row, reason);
	PQclear(result);
	return good;
}
