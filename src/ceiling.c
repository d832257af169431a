/*
 * ceiling.c
 *		The durable ceiling: how far a pair's keys may go, in the WAL.
 *
 * A pair's ceiling is the position of a replication origin of its own, in Unix
 * ms, named after layout and pair.  It goes into the WAL before it is used, so
 * it precedes there every row that holds a key below it; crash recovery,
 * standbys, promotion and base backups carry it with no code of ours.
 * pg_replication_origin_status shows it.
 *
 * Called by the snowid worker alone.  Names stand in a catalog, and catalogs
 * need a connection to a database, which the worker does not have, lest it
 * keep one from being dropped: a short-lived helper process looks them up.
 * Positions need none.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_database.h"
#include "catalog/pg_replication_origin.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "snowid.h"

#define DAY_MS (INT64CONST(24) * 3600 * 1000)

/*
 * What the worker asks its helper, and the answer.  One process writes at a
 * time: the worker until it starts the helper, which then does until it ends.
 */
typedef struct Request
{
	int			datacenter_id;
	int			worker_id;
	int			old_datacenter_id;
	int			old_worker_id;
	int64		reach_ms;
	Ceiling		answer;
	char		error[GATE_DETAIL_LEN]; /* "": the answer is there */
} Request;

static Request *request = NULL;

Size
ceiling_shmem_size(void)
{
	return MAXALIGN(sizeof(Request));
}

void
ceiling_shmem_init(void)
{
	bool		found;

	request = ShmemInitStruct("snowid ceiling", ceiling_shmem_size(), &found);
	if (!found)
		memset(request, 0, sizeof(Request));
}

static void
origin_name(char *name, const Layout *layout, int datacenter_id, int worker_id)
{
	snprintf(name, NAMEDATALEN, "snowid_" INT64_FORMAT "_%d_%d_%d_%d_%d",
			 layout->epoch, layout->datacenter_bits, layout->worker_bits,
			 layout->sequence_bits, datacenter_id, worker_id);
}

/* Reads the layout in an origin's name; false: it is not one of ours. */
static bool
origin_layout(const char *name, Layout *layout)
{
	int			datacenter_id;
	int			worker_id;
	char		again[NAMEDATALEN];
	long long	epoch;

	memset(layout, 0, sizeof(*layout));
	if (sscanf(name, "snowid_%lld_%d_%d_%d_%d_%d", &epoch,
			   &layout->datacenter_bits, &layout->worker_bits,
			   &layout->sequence_bits, &datacenter_id, &worker_id) != 6)
		return false;
	layout->epoch = epoch;
	layout->tick = 1;
	origin_name(again, layout, datacenter_id, worker_id);
	return strcmp(name, again) == 0;
}

/* A pair left behind, perhaps. */
typedef struct Other
{
	char	   *name;
	int64		ms;
} Other;

/*
 * Reads all of our origins, and creates the pair's own where it is missing.
 * Where room for origins gets short, drops those of pairs left behind whose
 * ceiling is a day in the past: by the clock, and by the newest of them all,
 * for the clock may be wrong; and not before, for both may be.
 */
static Ceiling
look_up(void)
{
	Ceiling		answer;
	char		own_name[NAMEDATALEN];
	char		old_name[NAMEDATALEN];
	List	   *others = NIL;
	int64		now_ms = unix_ms_from_timestamptz(GetCurrentTimestamp());
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	ListCell   *cell;
	int			count = 0;
	int64		newest_ms = 0;

	memset(&answer, 0, sizeof(answer));
	origin_name(own_name, &server_layout, request->datacenter_id,
				request->worker_id);
	origin_name(old_name, &server_layout, request->old_datacenter_id,
				request->old_worker_id);
	rel = table_open(ReplicationOriginRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Layout		layout;
		bool		isnull;
		char	   *name = TextDatumGetCString(heap_getattr(tuple, Anum_pg_replication_origin_roname,
															RelationGetDescr(rel), &isnull));
		RepOriginId id = (RepOriginId)
		((Form_pg_replication_origin) GETSTRUCT(tuple))->roident;
		Other	   *other;
		int64		ms;

		count++;
		if (!origin_layout(name, &layout))
			continue;
		ms = (int64) replorigin_get_progress(id, false);
		newest_ms = Max(newest_ms, ms);
		if (strcmp(name, old_name) == 0)
			answer.old_ms = ms;
		if (!layout_equal(&layout, &server_layout) &&
			ms > answer.other_layout_ms)
		{
			answer.other_layout = layout;
			answer.other_layout_ms = ms;
		}
		if (strcmp(name, own_name) == 0)
		{
			answer.origin = id;
			answer.own_ms = ms;
			continue;
		}
		if (layout_equal(&layout, &server_layout) && ms <= request->reach_ms)
			answer.others_ms = Max(answer.others_ms, ms);
		other = palloc(sizeof(Other));
		other->name = name;
		other->ms = ms;
		others = lappend(others, other);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);

	foreach(cell, others)
	{
		Other	   *other = lfirst(cell);

		if (count >= max_active_replication_origins - 2 &&
			other->ms < Min(now_ms, newest_ms) - DAY_MS)
			replorigin_drop_by_name(other->name, true, true);
	}
	if (answer.origin == InvalidRepOriginId)
		answer.origin = replorigin_create(own_name);
	return answer;
}

/* The helper process: answers one request and ends. */
void
snowid_origin_main(Datum main_arg)
{
	MemoryContext context = CurrentMemoryContext;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(main_arg),
											  InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	/* durable here is enough; a synchronous standby may be away */
	SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
	PG_TRY();
	{
		Ceiling		answer;

		StartTransactionCommand();
		answer = look_up();
		CommitTransactionCommand();
		request->answer = answer;
		request->error[0] = '\0';
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		snprintf(request->error, sizeof(request->error), "%s", error->message);
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	proc_exit(0);
}

/*
 * A database to connect to: template1, in which nobody works, or any other.
 * Its catalog can be read without a connection.
 */
static Oid
some_database(void)
{
	Oid			found = InvalidOid;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		bool		is_template1 =
		strcmp(NameStr(database->datname), "template1") == 0;

		/* a limit of -2 is what an interrupted DROP DATABASE leaves */
		if (database->datconnlimit != -2 && (is_template1 || !OidIsValid(found)))
			found = database->oid;
		if (is_template1)
			break;
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	return found;
}

/*
 * What the WAL knows of a pair, and of an old one where that is not -1; creates
 * the pair's origin where there is none.  False: the reason is in err.
 */
bool
ceiling_find(int datacenter_id, int worker_id,
			 int old_datacenter_id, int old_worker_id, int64 reach_ms,
			 Ceiling *ceiling, char *err, Size errlen)
{
	BackgroundWorker helper;
	BackgroundWorkerHandle *handle;

	memset(request, 0, sizeof(Request));
	request->datacenter_id = datacenter_id;
	request->worker_id = worker_id;
	request->old_datacenter_id = old_datacenter_id;
	request->old_worker_id = old_worker_id;
	request->reach_ms = reach_ms;
	strlcpy(request->error, "The helper process \"snowid origin\" failed; see the server log.",
			sizeof(request->error));

	memset(&helper, 0, sizeof(helper));
	helper.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	helper.bgw_start_time = BgWorkerStart_RecoveryFinished;
	helper.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(helper.bgw_library_name, "snowid", BGW_MAXLEN);
	strlcpy(helper.bgw_function_name, "snowid_origin_main", BGW_MAXLEN);
	strlcpy(helper.bgw_name, "snowid origin", BGW_MAXLEN);
	strlcpy(helper.bgw_type, "snowid origin", BGW_MAXLEN);
	helper.bgw_main_arg = ObjectIdGetDatum(some_database());
	helper.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&helper, &handle))
	{
		strlcpy(err, "No process could be started to read it; raise max_worker_processes.", errlen);
		return false;
	}
	(void) WaitForBackgroundWorkerShutdown(handle);
	pfree(handle);
	if (request->error[0])
	{
		strlcpy(err, request->error, errlen);
		return false;
	}
	*ceiling = request->answer;
	return true;
}

/*
 * Makes a ceiling durable; "lower" where it may be less than the one before,
 * which is right only behind a closed gate.  Throws, and is then not durable.
 *
 * Takes no lock on the catalog of origins, as core would against a concurrent
 * drop: a transaction that drops some origin holds its lock to its end, and
 * would stop the keys of this server so long.
 */
void
ceiling_write(const Ceiling *ceiling, int64 unix_ms, bool lower)
{
	replorigin_advance(ceiling->origin, (XLogRecPtr) unix_ms,
					   InvalidXLogRecPtr, lower, true);
	XLogFlush(XactLastRecEnd);
}
