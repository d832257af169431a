/*
 * source.c
 *		Central servers: which server is a source, and ranges from there.
 *
 * A source is a foreign server of postgres_fdw, of which only the options are used, with
 * the user mapping of the database's owner.  A range is taken there by one call of
 * snowid_segment_take(), in a schema of the same name as here, and in a transaction of its
 * own: behind a pooler nothing of it stays in the connection.
 *
 * libpq is called in a child process alone (net.c).  Whatever the other server says, or
 * does not say, costs no more than the time up to the deadline; its text is ASCII before
 * it is kept, and has a bounded length.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/htup_details.h"
#include "catalog/pg_database.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "net.h"
#include "segment/source.h"

/* A central server has so long for a range, connection included. */
#define CENTRAL_MS 3000

/* After a failure of a server nothing is tried there for so long. */
#define PAUSE_MS 1000

/*
 * A row that is locked there is tried so often, in these intervals: when a day begins, all
 * servers want a range of it at once.
 */
#define TRIES 50
#define TRY_MS 20

typedef struct Failure
{
	Oid			server;
	int64		retry_at;		/* not before */
	Reason		reason;
} Failure;

/* By the server's OID; the last one of those that share a place. */
static Failure failures[64];

/* The task of a child. */
typedef struct Request
{
	List	   *options;
	bool		needs_password;
	char	   *statement;
	char	   *args[TAKE_ARGS];
} Request;

/* Its answer. */
typedef struct Answer
{
	Reason		reason;			/* none: the range was taken, or has a problem */
	Taken		taken;
} Answer;

StaticAssertDecl(sizeof(Answer) <= NET_ANSWER_LEN, "an answer must go through the pipe whole");

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
	reason->why[len] = '\0';
	reason->outcome = is_ours ? OUTCOME_FAILED_PUBLICLY : OUTCOME_FAILED;
	return false;
}

/*---- Which server is a source ----*/

/* NULL, or why a server is no source.  Only a superuser can make a foreign data wrapper. */
const char *
source_problem(const char *name)
{
	ForeignServer *server = GetForeignServerByName(name, true);

	if (server == NULL)
		return "Its source does not exist";
	if (strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, "postgres_fdw") != 0)
		return "Its source is no foreign server of postgres_fdw";
	return NULL;
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

/* The first one of this name, which counts; or NULL. */
static const char *
option_of(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			return defGetString(option);
	}
	return NULL;
}

/*
 * As postgres_fdw has it: an owner who is not a superuser needs a password there, else
 * this server's own identity would open the door.  False: the reason says why.
 */
static bool
collect_options(const ForeignServer *server, Oid owner, Request *request, Reason *reason)
{
	List	   *options = list_concat_copy(GetUserMapping(owner, server->serverid)->options,
										   server->options);
	const char *required = option_of(options, "password_required");
	const char *password = option_of(options, "password");
	bool		is_required = true;

	if (required)
		(void) parse_bool(required, &is_required);
	request->options = options;
	request->needs_password = !superuser_arg(owner) && is_required;
	if (request->needs_password && (password == NULL || password[0] == '\0'))
		return reason_is(reason, true, "The user mapping of its source has no password");
	return true;
}

/*---- In the child process ----*/

/* Another server's words are kept as ASCII: every client can read them. */
static bool
reason_is_theirs(Reason *reason, const char *words)
{
	(void) reason_is(reason, false, "%.*s", REASON_LEN - 1, words);
	for (char *c = reason->why; *c; c++)
	{
		if (*c < ' ' || *c > '~')
			*c = strchr("\n\t", *c) ? ' ' : '?';
	}
	return false;
}

/* Of the options, those that are libpq's; postgres_fdw has looked at its own. */
static PGconn *
connect_there(const Request *request)
{
	PQconninfoOption *known = PQconndefaults();
	const char **names;
	const char **values;
	int			n = 0;

	if (known == NULL)
		return NULL;
	for (PQconninfoOption *option = known; option->keyword; option++)
		n++;
	names = palloc0((n + 1) * sizeof(char *));
	values = palloc0((n + 1) * sizeof(char *));
	n = 0;
	for (PQconninfoOption *option = known; option->keyword; option++)
	{
		values[n] = strcmp(option->keyword, "application_name") == 0 ? "snowid segments" :
			strcmp(option->keyword, "client_encoding") == 0 ? GetDatabaseEncodingName() :
			option_of(request->options, option->keyword);
		if (values[n])
			names[n++] = option->keyword;
	}
	return PQconnectdbParams(names, values, false);
}

static bool
has_result(PGconn *conn, PGresult *result, ExecStatusType status, Reason *reason)
{
	const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (PQresultStatus(result) == status)
		return true;
	return reason_is_theirs(reason, words ? words : PQerrorMessage(conn));
}

static int64
number_at(const PGresult *result, int column, int64 if_null)
{
	return PQgetisnull(result, 0, column) ? if_null :
		strtoll(PQgetvalue(result, 0, column), NULL, 10);
}

/* Calls the function there, in a transaction that is open. */
static bool
call_there(PGconn *conn, const Request *request, Answer *answer)
{
	Taken	   *taken = &answer->taken;
	static const Oid types[TAKE_ARGS] = TAKE_TYPES;
	PGresult   *result = PQexecParams(conn, request->statement, TAKE_ARGS, types,
									  (const char *const *) request->args, NULL, NULL, 0);

	if (!has_result(conn, result, PGRES_TUPLES_OK, &answer->reason))
		return false;
	if (PQntuples(result) != 1 || PQnfields(result) != 4)
		return reason_is(&answer->reason, true, "Its source gave no result");
	taken->first = number_at(result, 0, 0);
	taken->last = number_at(result, 1, 0);
	taken->period = number_at(result, 2, NO_PERIOD);
	strlcpy(taken->problem, PQgetvalue(result, 0, 3), sizeof(taken->problem));
	return true;
}

static bool
ask_there(PGconn *conn, const Request *request, Answer *answer)
{
	PGresult   *result;

	if (PQstatus(conn) != CONNECTION_OK)
		return reason_is_theirs(&answer->reason, PQerrorMessage(conn));
	if (request->needs_password && !PQconnectionUsedPassword(conn))
		return reason_is(&answer->reason, true, "The central server of its source does not ask for a password");
	/* whatever is set for this user there */
	if (!has_result(conn, PQexec(conn, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
					PGRES_COMMAND_OK, &answer->reason))
		return false;
	for (int i = 0; i < TRIES; i++)
	{
		if (!call_there(conn, request, answer))
			return false;
		if (strcmp(answer->taken.problem, "locked") != 0)
			break;
		(void) usleep(TRY_MS * 1000);
	}
	result = PQexec(conn, "COMMIT");
	if (!has_result(conn, result, PGRES_COMMAND_OK, &answer->reason))
		return false;
	if (strcmp(PQcmdStatus(result), "COMMIT") != 0)
		return reason_is(&answer->reason, true, "Its source did not commit");
	return true;
}

static size_t
ask_as_child(const void *arg, char *buf)
{
	PGconn	   *conn = connect_there(arg);
	Answer		answer = {0};

	(void) ask_there(conn, arg, &answer);
	/* so that it is no lost connection there */
	PQfinish(conn);
	memcpy(buf, &answer, sizeof(answer));
	return sizeof(answer);
}

/*---- In the process that fetches ----*/

static char *
label_text(DateADT label)
{
	return label == NO_PERIOD ? NULL : psprintf("%d", label);
}

static bool
ask_in_child(const Request *request, bool (*must_end) (void), Taken *taken, Reason *reason)
{
	Answer		answer;
	char		buf[NET_ANSWER_LEN];
	char		error[NET_ERR_LEN];
	int64		ends = monotonic_ms() + CENTRAL_MS;

	net_set_deadline(CENTRAL_MS);
	if (net_ask_child(ask_as_child, request, must_end, buf, error) != sizeof(answer))
		return monotonic_ms() >= ends ?
			reason_is(reason, true, "The central server did not answer in time") :
			must_end() ? reason_is(reason, true, "The process is shutting down") :
			reason_is(reason, false, "%s", error);
	memcpy(&answer, buf, sizeof(answer));
	*reason = answer.reason;
	*taken = answer.taken;
	return reason->outcome == OUTCOME_NONE;
}

/*
 * Takes a range of a source; false: the reason says why, and if a range was taken there,
 * it is lost.  Rights and options are looked at each time, since they may have changed.
 */
bool
source_take(const char *name, const SegmentKey *key, const Take *take, Taken *taken,
			bool (*must_end) (void), Reason *reason)
{
	const char *problem = source_problem(name);
	Oid			owner = database_owner();
	ForeignServer *server;
	Failure    *failure;
	Request		request = {
		.statement = psprintf("SELECT first, last, period, problem FROM %s.snowid_segment_take($1, $2, $3, $4, $5, $6, $7)",
							  quote_identifier(get_namespace_name(get_rel_namespace(key->relid)))),
		.args = {
			pnstrdup(key->tag, key->len), pstrdup(period_name(take->kind)), label_text(take->label),
			label_text(take->seen), psprintf(INT64_FORMAT, take->high),
			psprintf(INT64_FORMAT, take->upto), psprintf(INT64_FORMAT, take->length)
		}
	};

	if (problem)
		return reason_is(reason, true, "%s", problem);
	server = GetForeignServerByName(name, false);
	if (!may_use_server(server->serverid, owner))
		return reason_is(reason, true, "The database's owner may not use its source");
	failure = &failures[server->serverid % lengthof(failures)];
	if (failure->server == server->serverid && monotonic_ms() < failure->retry_at)
		*reason = failure->reason;
	else if (!collect_options(server, owner, &request, reason))
		return false;
	else if (ask_in_child(&request, must_end, taken, reason))
		return true;
	else
		*failure = (Failure)
	{
		.server = server->serverid,.retry_at = monotonic_ms() + PAUSE_MS,.reason = *reason
	};
	return false;
}
