/*
 * source.c
 *		Ranges from a table, here or on another server, by SQL.
 *
 * Runs in the process "snowid segments", in a transaction of the caller's.  A
 * range is its own only when that has been committed.
 *
 * What the database's owner may have built must not run as a superuser: each
 * statement is run with the rights of its table's owner, restricted as in
 * maintenance commands, with search_path set, and about that table alone, whatever
 * has its name.
 *
 * Where numbers begin anew in each period, the row of snowid_segments says so, and
 * each (tag, period) has its number in a row of snowid_segment_periods, or of the
 * source.  No range is taken of a period that is older than the newest one there:
 * so periods do not go back with a clock, also over a crash.
 *
 * update_time tells the table's trigger who writes: 'infinity' a process that
 * takes a range, '-infinity' one that gives back what it did not use.  The
 * trigger puts the time in its place.
 *
 * libpq waits without end for a server that hangs, also when it cancels a query.
 * So who is too late is cut off: its socket is shut down, from a signal handler,
 * and libpq reports a lost connection.
 */
#include "postgres.h"

#include <sys/socket.h>

#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "segment/source.h"
#include "segment/statement.h"

/* What a foreign server has for all that is asked of it in one transaction. */
#define FOREIGN_MS 5000

/* The same where somebody waits for the process to leave. */
#define HURRY_MS 1000

/* The tables of this transaction. */
static Oid	local_table;
static Oid	source_table;		/* 0: the same */
static bool extension_is_there;
static Oid	saved_user;
static int	saved_context;

/* When a foreign server is cut off, monotonic_ms(); 0: not. */
static volatile int64 cut_at = 0;
static volatile bool was_cut = false;

/*---- Cutting off ----*/

/*
 * In a signal handler, again and again: cuts off who is too late.  The sockets of
 * a process of ours are those of foreign servers.
 */
void
source_cut_off(void)
{
	int64		at = cut_at;

	if (at == 0 || monotonic_ms() < at)
		return;
	was_cut = true;
	for (int fd = 3; fd < 256; fd++)
	{
		int			type;
		socklen_t	len = sizeof(type);

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM)
			(void) shutdown(fd, SHUT_RDWR);
	}
}

/* Told to leave: does not wait for a foreign server much longer. */
void
source_hurry(void)
{
	if (cut_at != 0)
		cut_at = Min(cut_at, monotonic_ms() + HURRY_MS);
}

bool
source_was_cut(void)
{
	return was_cut;
}

bool
source_is_foreign(Oid source)
{
	return OidIsValid(source) && get_rel_relkind(source) == RELKIND_FOREIGN_TABLE;
}

/*
 * Throws unless it can be a source.  In a view, or a partitioned table, another
 * server's rows may be, and nobody would know that a commit is in doubt; where a table
 * has children, its statements are about its own rows only.
 */
void
source_check(Oid source)
{
	char		kind = get_rel_relkind(source);

	if (kind != RELKIND_RELATION && kind != RELKIND_FOREIGN_TABLE && kind != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be the source of a segment", get_rel_name(source)),
				 errdetail("A source is an ordinary table or a foreign table."),
				 errhint("Name the table that has the rows.")));
}

/*---- Statements ----*/

/* What a statement is about: $1, the tag, to $5. */
typedef struct Arguments
{
	const SegmentKey *key;
	int64		n;
	int64		high;
	int64		limit;
	DateADT		period;
} Arguments;

/*
 * Runs with the rights of the owner of the table that is named by %s.  What a trigger
 * of his sets does not last.
 */
static int
run(const char *statement, Oid relid, Arguments about)
{
	Oid			types[] = {TEXTOID, INT8OID, INT8OID, INT8OID, DATEOID};
	Datum		values[lengthof(types)];
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	int			nest_level = NewGUCNestLevel();
	int			rows;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the table that is the source does not exist")));
	SetUserIdAndSecContext(((Form_pg_class) GETSTRUCT(tuple))->relowner,
						   saved_context | SECURITY_RESTRICTED_OPERATION);
	ReleaseSysCache(tuple);
	values[0] = PointerGetDatum(cstring_to_text_with_len(about.key->tag, about.key->len));
	values[1] = Int64GetDatum(about.n);
	values[2] = Int64GetDatum(about.high);
	values[3] = Int64GetDatum(about.limit);
	values[4] = DateADTGetDatum(about.period);
	rows = statement_run(statement, relid, lengthof(values), types, values, false);
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(saved_user, saved_context);
	return rows;
}

/* A column of the row that was found. */
static Datum
column(int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, isnull);
}

static int64
number_column(int number)
{
	bool		isnull;

	return DatumGetInt64(column(number, &isnull));
}

static Oid
oid_column(int number)
{
	bool		isnull;
	Datum		value = column(number, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(value);
}

static char *
text_column(int number)
{
	bool		isnull;
	Datum		value = column(number, &isnull);

	return isnull ? "" : TextDatumGetCString(value);
}

static Oid
periods_here(void)
{
	return get_relname_relid("snowid_segment_periods", get_rel_namespace(local_table));
}

/* The table of the numbers: the source, or of those here the one of this job. */
static Oid
table_of(DateADT period)
{
	if (OidIsValid(source_table))
		return source_table;
	return period == NO_PERIOD ? local_table : periods_here();
}

/*
 * From here to the end of the transaction, who wants the database for himself waits
 * for its lock: only when he has that, his 5 s begin in which all others must leave.
 * False: somebody waits already, or has it.
 */
static bool
hold_database(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	return LockAcquire(&tag, RowExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Begins a transaction: of a table snowid_segments, and its source, or 0. */
void
source_begin(Oid relid, Oid source)
{
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	GetUserIdAndSecContext(&saved_user, &saved_context);
	local_table = relid;
	source_table = source;
	extension_is_there =
		getExtensionOfObject(RelationRelationId, relid) == get_extension_oid("snowid_segments", true);
	was_cut = false;
	source_check(source);
	if (source_is_foreign(source))
		cut_at = monotonic_ms() + (hold_database() ? FOREIGN_MS : HURRY_MS);
}

/* From here on no socket is cut off. */
void
source_disarm(void)
{
	cut_at = 0;
}

void
source_end(void)
{
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	source_disarm();
}

/*---- Ranges ----*/

/* A range that lasted less than "cover" is followed by a longer one. */
static int64
next_step(const Fetch *fetch, int64 least)
{
	int64		step = fetch->last_step;

	if (step == 0)
		return least;
	if (fetch->lasted_ms < fetch->cover_ms)
		step = step * 2;
	else if (fetch->lasted_ms > 2 * fetch->cover_ms)
		step = step / 2;
	return Min(Max(step, least), MAX_STEP);
}

/* The newest period that the table knows, or NO_PERIOD. */
static DateADT
read_newest(Fetch *fetch)
{
	Arguments	about = {.key = &fetch->key};
	bool		isnull;
	Datum		newest;

	(void) run("SELECT max(period) FROM ONLY %s WHERE biz_tag = $1",
			   table_of(DATEVAL_NOEND), about);
	/* a cast would go by the zone of this process */
	if (SPI_gettypeid(SPI_tuptable->tupdesc, 1) != DATEOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the periods of a segment's source must be of type date")));
	newest = column(1, &isnull);
	return isnull ? NO_PERIOD : DatumGetDateADT(newest);
}

static int
select_row(const SegmentKey *key)
{
	Arguments	about = {.key = key};

	return run("SELECT max_id, coalesce(limit_id, 9223372036854775807), step::int8,"
			   " (extract(epoch FROM cover) * 1000)::int8, source::oid, role::oid,"
			   " period, zone, format FROM ONLY %s WHERE biz_tag = $1 FOR SHARE",
			   local_table, about);
}

/*
 * What is known of the tag here; false: it is not for this process.  The row is locked:
 * so nothing is fetched between a change by hand and its COMMIT PREPARED.
 */
static bool
read_row(Fetch *fetch, int64 *max_id)
{
	Period	   *period = &fetch->range.period;

	/* a row that took the place of one that was waited for is seen only then */
	if (select_row(&fetch->key) == 0 && select_row(&fetch->key) == 0)
	{
		fetch->outcome = OUTCOME_ABSENT;
		return false;
	}
	*max_id = number_column(1);
	fetch->limit = number_column(2);
	fetch->cover_ms = number_column(4);
	fetch->step = next_step(fetch, number_column(3));
	fetch->source = oid_column(5);
	fetch->role = oid_column(6);
	fetch->kind = period_kind(text_column(7));
	strlcpy(fetch->format, text_column(9), sizeof(fetch->format));
	fetch->moved = fetch->source != source_table;
	period->label = NO_PERIOD;
	period->until = DT_NOEND;
	if (!fetch->moved && fetch->kind != PERIOD_NONE)
	{
		pg_tz	   *zone = period_zone(text_column(8));

		if (fetch->format[0])
			fetch->limit = Min(fetch->limit, period_last_number(fetch->format));
		fetch->latest = read_newest(fetch);
		fetch->latest = Max(fetch->latest, fetch->newest);
		*period = period_at(fetch->kind, GetCurrentTimestamp(), zone, fetch->latest);
	}
	if (period->label != fetch->newest)
		fetch->high = 0;
	return !fetch->moved;
}

/*
 * The greatest number that was taken from the table here, before the tag moved to its
 * source; of the period, where it has some.
 */
static int64
read_here(Fetch *fetch, int64 max_id)
{
	DateADT		label = fetch->range.period.label;
	Arguments	about = {.key = &fetch->key,.period = label};

	if (!OidIsValid(source_table))
		return 0;
	if (label == NO_PERIOD)
		return max_id;
	return run("SELECT max_id FROM ONLY %s WHERE biz_tag = $1 AND period = $5",
			   periods_here(), about) > 0 ? number_column(1) : 0;
}

/*
 * The row of a period, which is made where there is none; but none that was deleted
 * after it was seen: numbers would begin there anew.
 */
static bool
read_period(Fetch *fetch, int64 *max_id)
{
	DateADT		label = fetch->range.period.label;
	Arguments	about = {.key = &fetch->key,.high = fetch->here,.period = label};

	*max_id = 0;
	if (run("SELECT max_id::int8 FROM ONLY %s WHERE biz_tag = $1 AND period = $5",
			table_of(label), about) > 0)
		*max_id = number_column(1);
	else if (fetch->high == 0)
	{
		if (label <= fetch->latest && read_newest(fetch) != fetch->latest)
		{
			strlcpy(fetch->error, "The row of its newest period was deleted",
					sizeof(fetch->error));
			return false;
		}
		(void) run("INSERT INTO %s (biz_tag, period, max_id, update_time)"
				   " VALUES ($1, $5, $3, 'infinity') ON CONFLICT DO NOTHING",
				   table_of(label), about);
		*max_id = fetch->here;
	}
	return true;
}

/* The source's own row. */
static bool
read_source(Fetch *fetch, int64 *max_id)
{
	Arguments	about = {.key = &fetch->key};

	if (run("SELECT max_id::int8, coalesce(limit_id::int8, 9223372036854775807)"
			" FROM ONLY %s WHERE biz_tag = $1",
			source_table, about) == 0)
	{
		fetch->outcome = OUTCOME_ABSENT;
		strlcpy(fetch->error, "Its source has no such row", sizeof(fetch->error));
		return false;
	}
	*max_id = number_column(1);
	fetch->limit = number_column(2);
	return true;
}

/*
 * Takes a range of n numbers, unless the limit leaves less, or the source has
 * forgotten what it gave to this server.
 */
static bool
take_range(Fetch *fetch, int64 n)
{
	DateADT		label = fetch->range.period.label;
	int64		high = Max(fetch->high, fetch->here);
	Arguments	about = {&fetch->key, n, high, fetch->limit, label};

	if (run(label == NO_PERIOD ?
			"UPDATE ONLY %s SET max_id = max_id + $2, update_time = 'infinity' WHERE biz_tag = $1"
			" AND max_id >= $3 AND max_id <= coalesce(limit_id, 9223372036854775807) - $2"
			" RETURNING max_id::int8" :
			"UPDATE ONLY %s SET max_id = max_id + $2, update_time = 'infinity' WHERE biz_tag = $1"
			" AND period = $5 AND max_id >= $3 AND max_id <= $4 - $2"
			" RETURNING max_id::int8", table_of(label), about) == 0)
		return false;
	fetch->range.last = number_column(1);
	fetch->range.first = fetch->range.last - n + 1;
	fetch->range.before = high;
	fetch->outcome = OUTCOME_RANGE;
	return true;
}

/* Takes a range; "outcome" says what was found. */
void
source_take(Fetch *fetch)
{
	int64		max_id;
	int64		n;
	bool		in_period;

	fetch->outcome = OUTCOME_FAILED;
	fetch->moved = false;
	fetch->error[0] = '\0';
	if (!extension_is_there)
		fetch->outcome = OUTCOME_ABSENT;
	if (!extension_is_there || !read_row(fetch, &max_id))
		return;
	n = Max(fetch->step, fetch->wish);
	in_period = fetch->range.period.label != NO_PERIOD;
	fetch->here = read_here(fetch, max_id);
	if ((in_period || OidIsValid(source_table)) && take_range(fetch, n))
		return;
	if (in_period ? !read_period(fetch, &max_id) :
		OidIsValid(source_table) && !read_source(fetch, &max_id))
		return;
	if (max_id < fetch->high)
		snprintf(fetch->error, sizeof(fetch->error),
				 "Its max_id was lowered: numbers up to " INT64_FORMAT " were handed out here",
				 fetch->high);
	else if (max_id < fetch->here)
		snprintf(fetch->error, sizeof(fetch->error),
				 "Its source is behind: numbers up to " INT64_FORMAT " were handed out here",
				 fetch->here);
	else if (max_id >= fetch->limit)
		fetch->outcome = OUTCOME_USED_UP;
	else if (!take_range(fetch, Min(n, fetch->limit - max_id)))
		strlcpy(fetch->error, "Its row is changed all the time", sizeof(fetch->error));
}

/* Changes max_id; false: it was not "from". */
static bool
change_max_id(const SegmentKey *key, DateADT label, int64 from, int64 to)
{
	Arguments	about = {key, to, from,.period = label};

	return extension_is_there &&
		run(label == NO_PERIOD ?
			"UPDATE ONLY %s SET max_id = $2, update_time = '-infinity'"
			" WHERE biz_tag = $1 AND max_id = $3" :
			"UPDATE ONLY %s SET max_id = $2, update_time = '-infinity'"
			" WHERE biz_tag = $1 AND period = $5 AND max_id = $3",
			table_of(label), about) > 0;
}

/* Gives a range back where nobody has taken one since; false: somebody has. */
bool
source_give_back(const SegmentKey *key, const Range *range)
{
	return change_max_id(key, range->period.label, range->last, range->first - 1);
}

/* Undoes that, in the same transaction. */
void
source_take_back(const SegmentKey *key, const Range *range)
{
	(void) change_max_id(key, range->period.label, range->first - 1, range->last);
}
