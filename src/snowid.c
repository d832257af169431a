/*
 * snowid.c
 *		Module load, settings, shared-memory hooks, and the SQL functions that
 *		make keys or tell about the server.
 *
 * Runs in the postmaster: defines the settings, reserves and initialises the
 * shared memory, registers the worker.  No I/O there.  A setting that is wrong
 * in the configuration file stops the start: PostgreSQL would go on with the
 * default, and a typing error would choose another layout.
 */
#include "postgres.h"

#include <limits.h>

#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/timestamp.h"

#include "snowid.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(snowid_next);
PG_FUNCTION_INFO_V1(snowid_next_batch);
PG_FUNCTION_INFO_V1(snowid_next_batch_support);
PG_FUNCTION_INFO_V1(snowid_advance);
PG_FUNCTION_INFO_V1(snowid_accept_clock);
PG_FUNCTION_INFO_V1(snowid_accept_layout);
PG_FUNCTION_INFO_V1(snowid_status);

/*---- Settings ----*/

static char *epoch_setting;

Layout		server_layout = {.tick = 1};
int			snowid_sequence_start = SEQUENCE_FRACTION;
int			snowid_datacenter_id = 0;
int			snowid_worker_id = -1;
int			snowid_max_drift = 1000;
int			snowid_max_wait = 5000;
int			snowid_max_jump = 3600 * 1000;
int			snowid_reserve = 500;
char	   *snowid_redis_url = "";
char	   *snowid_redis_password_file = "";
char	   *snowid_redis_ca_file = "";
char	   *snowid_redis_prefix = "snowid";
char	   *snowid_node_name = "";
int			snowid_redis_timeout = 1000;
int			snowid_redis_lease = 0;
int			snowid_redis_check_interval = 5000;
int			snowid_redis_wait_replicas = 0;

static const struct config_enum_entry sequence_starts[] =
{
	{"fraction", SEQUENCE_FRACTION, false},
	{"zero", SEQUENCE_ZERO, false},
	{NULL, 0, false}
};

static bool
check_epoch(char **newval, void **extra, GucSource source)
{
	int64		unix_ms;

	if (!layout_parse_epoch(*newval, &unix_ms))
	{
		GUC_check_errdetail("It must be a time with its zone, such as \"2020-01-01 00:00:00Z\".");
		return false;
	}
	return true;
}

/* Does a datacenter or worker ID fit the width, which has been set before? */
static bool
check_fits(int id, int bits)
{
	if (id >= 0 && id >> bits != 0)
	{
		GUC_check_errdetail("The layout's range is from 0 to %d (%d bits).",
							(1 << bits) - 1, bits);
		return false;
	}
	return true;
}

static bool
check_datacenter_id(int *newval, void **extra, GucSource source)
{
	return check_fits(*newval, server_layout.datacenter_bits);
}

static bool
check_worker_id(int *newval, void **extra, GucSource source)
{
	return check_fits(*newval, server_layout.worker_bits);
}

/* The value is not in the message, for there may be a password in it. */
static bool
check_redis_url(char **newval, void **extra, GucSource source)
{
	const char *error = redis_check_urls(*newval);

	if (error == NULL)
		return true;
	GUC_check_errmsg("invalid value for parameter \"snowid.redis_url\": %s", error);
	if (strstr(error, "must not contain"))
		GUC_check_errhint("A password belongs into the file that snowid.redis_password_file names.");
	return false;
}

/* Goes to Redis, and into other servers' messages. */
static bool
check_plain_name(char **newval, void **extra, GucSource source)
{
	if (strlen(*newval) > NODE_NAME_LEN)
	{
		GUC_check_errdetail("It has %d characters at most.", NODE_NAME_LEN);
		return false;
	}
	for (const char *p = *newval; *p; p++)
	{
		if (*p < ' ' || *p > '~')
		{
			GUC_check_errdetail("It must be of printable ASCII characters.");
			return false;
		}
	}
	return true;
}

static bool
check_redis_prefix(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] == '\0')
	{
		GUC_check_errdetail("It must not be empty.");
		return false;
	}
	return check_plain_name(newval, extra, source);
}

static bool
check_redis_lease(int *newval, void **extra, GucSource source)
{
	if (*newval != 0 && *newval < 1000)
	{
		GUC_check_errdetail("A lease lasts at least 1 s; 0 is a claim for good.");
		return false;
	}
	return true;
}

/*
 * For a preloaded library PostgreSQL takes the default where the configured
 * value is bad, with a mere WARNING.  Called before and after a definition.
 */
static char *
configured(const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	return value ? pstrdup(value) : NULL;
}

static void
require_taken(const char *name, const char *value, bool taken)
{
	if (!taken)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for parameter \"%s\": \"%s\"", name, value),
				 errdetail("The server would start with another value than the one that is configured."),
				 errhint("Correct the configuration; see the warning before this message.")));
}

static void
define_string(const char *name, const char *description, char **variable,
			  GucContext context, int flags, GucStringCheckHook check)
{
	char	   *value = configured(name);

	DefineCustomStringVariable(name, description, NULL, variable, *variable,
							   context, flags, check, NULL, NULL);
	if (value)
		require_taken(name, check == check_redis_url ? "..." : value,
					  strcmp(value, *variable) == 0);
}

static void
define_int(const char *name, const char *description, int *variable,
		   int min, int max, GucContext context, int flags,
		   GucIntCheckHook check)
{
	char	   *value = configured(name);
	int			number;

	DefineCustomIntVariable(name, description, NULL, variable, *variable,
							min, max, context, flags, check, NULL, NULL);
	if (value)
		require_taken(name, value,
					  parse_int(value, &number, flags, NULL) &&
					  number == *variable);
}

/* Settings that nobody defined are typing errors, too. */
static void
refuse_unknown_settings(void)
{
	int			n;
	struct config_generic **settings = all_settings(&n);

	for (int i = 0; i < n; i++)
	{
		if (pg_strncasecmp(settings[i]->name, "snowid.", 7) == 0 &&
			(settings[i]->flags & GUC_CUSTOM_PLACEHOLDER))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("unrecognized configuration parameter \"%s\"",
							settings[i]->name)));
	}
}

static void
define_settings(void)
{
	char	   *value;

	value = configured("snowid.epoch");
	DefineCustomStringVariable("snowid.epoch",
							   "Time at which the keys' timestamps begin.",
							   "A time with its zone. The default is Twitter's epoch.",
							   &epoch_setting, "2010-11-04 01:42:54.657Z",
							   PGC_POSTMASTER, 0, check_epoch, NULL, NULL);
	require_taken("snowid.epoch", value,
				  value == NULL || strcmp(value, epoch_setting) == 0);
	layout_parse_epoch(epoch_setting, &server_layout.epoch);

	server_layout.datacenter_bits = 5;
	server_layout.worker_bits = 5;
	server_layout.sequence_bits = 12;
	define_int("snowid.datacenter_bits", "Width of a key's datacenter ID.",
			   &server_layout.datacenter_bits, 0, 16,
			   PGC_POSTMASTER, 0, NULL);
	define_int("snowid.worker_bits", "Width of a key's worker ID.",
			   &server_layout.worker_bits, 0, 22,
			   PGC_POSTMASTER, 0, NULL);
	/* for the upper limit see generator_clock() */
	define_int("snowid.sequence_bits", "Width of a key's sequence.",
			   &server_layout.sequence_bits, 0, 18,
			   PGC_POSTMASTER, 0, NULL);

	value = configured("snowid.sequence_start");
	DefineCustomEnumVariable("snowid.sequence_start",
							 "What the sequence of a millisecond's first key is.",
							 "\"fraction\": the time within the millisecond, so that keys spread evenly. \"zero\": 0, the classic form.",
							 &snowid_sequence_start, snowid_sequence_start,
							 sequence_starts, PGC_POSTMASTER, 0,
							 NULL, NULL, NULL);
	require_taken("snowid.sequence_start", value,
				  value == NULL ||
				  pg_strcasecmp(value, GetConfigOption("snowid.sequence_start", false, false)) == 0);

	define_int("snowid.datacenter_id", "This server's datacenter ID.",
			   &snowid_datacenter_id, 0, INT_MAX,
			   PGC_SIGHUP, 0, check_datacenter_id);
	define_int("snowid.worker_id",
			   "This server's worker ID, which no other server of the datacenter may have; -1: none.",
			   &snowid_worker_id, -1, INT_MAX,
			   PGC_SIGHUP, 0, check_worker_id);
	define_int("snowid.max_drift",
			   "How far a key's timestamp may lead the clock.",
			   &snowid_max_drift, 0, 24 * 3600 * 1000,
			   PGC_SIGHUP, GUC_UNIT_MS, NULL);
	define_int("snowid.max_wait",
			   "How long a caller waits for a key before it gets an error.",
			   &snowid_max_wait, 0, 3600 * 1000,
			   PGC_SIGHUP, GUC_UNIT_MS, NULL);
	define_int("snowid.max_jump",
			   "How far the clock may jump ahead, and snowid_advance() ahead of the clock.",
			   &snowid_max_jump, 1000, INT_MAX,
			   PGC_SIGHUP, GUC_UNIT_MS, NULL);

	define_int("snowid.reserve",
			   "How far ahead of use keys are reserved in the WAL.",
			   &snowid_reserve, 10, 60 * 1000,
			   PGC_SIGHUP, GUC_UNIT_MS, NULL);

	define_string("snowid.redis_url",
				  "Redis from which the worker ID is claimed; several addresses are separated by commas.",
				  &snowid_redis_url, PGC_POSTMASTER, GUC_SUPERUSER_ONLY, check_redis_url);
	define_string("snowid.redis_password_file",
				  "File whose first line is the password for Redis.",
				  &snowid_redis_password_file, PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL);
	define_string("snowid.redis_ca_file",
				  "File with the certificates that rediss:// trusts; empty: the system's.",
				  &snowid_redis_ca_file, PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL);
	define_string("snowid.redis_prefix",
				  "Key in Redis under which the registry is.",
				  &snowid_redis_prefix, PGC_POSTMASTER, 0, check_redis_prefix);
	define_string("snowid.node_name",
				  "Name of this server for people; empty: host name and port.",
				  &snowid_node_name, PGC_SIGHUP, 0, check_plain_name);
	define_int("snowid.redis_timeout",
			   "How long a call of Redis may take.",
			   &snowid_redis_timeout, 10, 60 * 1000,
			   PGC_SIGHUP, GUC_UNIT_MS, NULL);
	define_int("snowid.redis_lease",
			   "How long a claim lasts without renewal; 0: for good.",
			   &snowid_redis_lease, 0, 24 * 3600 * 1000,
			   PGC_POSTMASTER, GUC_UNIT_MS, check_redis_lease);
	define_int("snowid.redis_check_interval",
			   "How often the claim is marked in Redis.",
			   &snowid_redis_check_interval, 100, 3600 * 1000,
			   PGC_SIGHUP, GUC_UNIT_MS, NULL);
	define_int("snowid.redis_wait_replicas",
			   "Number of Redis replicas that must confirm a claim or grant.",
			   &snowid_redis_wait_replicas, 0, 16,
			   PGC_SIGHUP, 0, NULL);

	refuse_unknown_settings();
	MarkGUCPrefixReserved("snowid");
}

/*---- Hooks ----*/

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(generator_shmem_size());
	RequestAddinShmemSpace(pair_shmem_size());
	RequestAddinShmemSpace(clock_shmem_size());
	RequestAddinShmemSpace(ceiling_shmem_size());
	claim_shmem_request();
}

static void
shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	generator_shmem_init();
	pair_shmem_init();
	clock_shmem_init();
	ceiling_shmem_init();
	claim_shmem_init();
	LWLockRelease(AddinShmemInitLock);
}

void
_PG_init(void)
{
	/* in a session the functions that need no server still work */
	if (!process_shared_preload_libraries_in_progress)
		return;

	define_settings();
	if (IsBinaryUpgrade)
		return;

	if (max_active_replication_origins == 0)
		ereport(WARNING,
				(errmsg("there is no room for the replication origins of snowid"),
				 errdetail("This server can make no keys; as a standby it stops with an error at the first ceiling of its primary."),
				 errhint("Raise max_replication_slots (max_active_replication_origins from PostgreSQL 18 on).")));

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
	worker_register();
	if (claim_from_redis())
		registry_register();
}

/*---- SQL functions ----*/

void
require_preloaded(void)
{
	if (unlikely(!generator_attached()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowid is not loaded by this server"),
				 errhint("Add snowid to shared_preload_libraries and restart the server.")));
}

Datum
snowid_next(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(generator_next());
}

/* What a batch remembers from key to key. */
typedef struct Batch
{
	UnitBlock	block;
	int64		left;			/* keys beyond the block */
} Batch;

Datum
snowid_next_batch(PG_FUNCTION_ARGS)
{
	FuncCallContext *funcctx;
	Batch	   *batch;

	if (SRF_IS_FIRSTCALL())
	{
		int32		count = PG_GETARG_INT32(0);

		require_preloaded();
		if (count < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("count of keys must not be negative")));
		funcctx = SRF_FIRSTCALL_INIT();
		batch = MemoryContextAlloc(funcctx->multi_call_memory_ctx,
								   sizeof(Batch));
		batch->block.next = 0;
		batch->block.end = -1;
		batch->left = count;
		funcctx->user_fctx = batch;
	}
	funcctx = SRF_PERCALL_SETUP();
	batch = funcctx->user_fctx;
	if (batch->block.next > batch->block.end)
	{
		if (batch->left == 0)
			SRF_RETURN_DONE(funcctx);
		generator_refill(&batch->block, batch->left);
		batch->left -= batch->block.end - batch->block.next + 1;
	}
	SRF_RETURN_NEXT(funcctx, Int64GetDatum(block_next(&batch->block)));
}

/* Tells the planner the number of rows: it is the argument. */
Datum
snowid_next_batch_support(PG_FUNCTION_ARGS)
{
	SupportRequestRows *request = (SupportRequestRows *) PG_GETARG_POINTER(0);

	if (IsA(request, SupportRequestRows) && is_funcclause(request->node))
	{
		List	   *args = ((FuncExpr *) request->node)->args;
		Node	   *count = estimate_expression_value(request->root,
													  linitial(args));

		if (IsA(count, Const) && !((Const *) count)->constisnull)
		{
			request->rows = Max(DatumGetInt32(((Const *) count)->constvalue), 0);
			PG_RETURN_POINTER(request);
		}
	}
	PG_RETURN_POINTER(NULL);
}

Datum
snowid_advance(PG_FUNCTION_ARGS)
{
	require_preloaded();
	generator_advance(PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}

Datum
snowid_accept_clock(PG_FUNCTION_ARGS)
{
	require_preloaded();
	if (!clock_accept())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no jump of the clock waits to be accepted")));
	PG_RETURN_VOID();
}

Datum
snowid_accept_layout(PG_FUNCTION_ARGS)
{
	GeneratorStatus status;

	require_preloaded();
	generator_status(&status);
	if (status.reason != GATE_LAYOUT_CONSENT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no change of the layout waits for consent")));
	pair_accept_layout();
	PG_RETURN_VOID();
}

/* The row of the view snowid_status. */
Datum
snowid_status(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	GeneratorStatus status;
	RegistryStatus claim;
	Datum		values[26];
	bool		nulls[26] = {false};
	int			n = 0;
	bool		lease_over;
	bool		open;
	char		layout[LAYOUT_TEXT_LEN];

	require_preloaded();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	generator_status(&status);
	claim_status(&claim);
	lease_over = claim.held && claim.lease_ms > 0 &&
		timestamptz_from_unix_ms(claim.limit_ms) < GetCurrentTimestamp();
	open = status.reason == GATE_OPEN && !lease_over;

	nulls[n] = !status.has_pair;
	values[n++] = Int32GetDatum(status.datacenter_id);
	nulls[n] = !status.has_pair;
	values[n++] = Int32GetDatum(status.worker_id);
	nulls[n] = !status.has_pair;
	values[n++] = CStringGetTextDatum(!claim_from_redis() ? "setting" :
									  claim.lease_ms > 0 ? "lease" : "claim");
	values[n++] = BoolGetDatum(open);
	nulls[n] = open && status.detail[0] == '\0';
	values[n++] = CStringGetTextDatum(status.detail[0] == '\0' ?
									  gate_message(status.reason) :
									  psprintf("%s: %s", gate_message(status.reason),
											   status.detail));
	layout_describe(&server_layout, layout);
	values[n++] = CStringGetTextDatum(layout);
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(server_layout.epoch));
	values[n++] = Int32GetDatum(layout_timestamp_bits(&server_layout));
	values[n++] = Int32GetDatum(server_layout.datacenter_bits);
	values[n++] = Int32GetDatum(server_layout.worker_bits);
	values[n++] = Int32GetDatum(server_layout.sequence_bits);
	values[n++] = CStringGetTextDatum(GetConfigOption("snowid.sequence_start", false, false));
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(layout_last_ms(&server_layout)));
	nulls[n] = !status.has_last;
	values[n++] = Int64GetDatum(status.last_key);
	nulls[n] = !status.has_last;
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(status.last_unix_ms));
	values[n++] = Float8GetDatum(status.lead_ms);
	nulls[n] = !status.has_pair;
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(status.ceiling_ms));
	values[n++] = Int64GetDatum(status.keys);
	values[n++] = Int64GetDatum(status.waits);
	values[n++] = Float8GetDatum((double) status.wait_us / 1000.0);
	values[n++] = Int64GetDatum(status.steps_back);
	values[n++] = Int64GetDatum(status.errors);
	nulls[n] = !claim_from_redis();
	values[n++] = CStringGetTextDatum(lease_over ? "the lease has ended" :
									  claim.confirmed ? "claimed" :
									  claim.held ? "remembered" :
									  claim.detail[0] ? claim.detail : "starting");
	nulls[n] = claim.last_error[0] == '\0';
	values[n++] = CStringGetTextDatum(claim.last_error);
	nulls[n] = claim.last_ok == 0;
	values[n++] = TimestampTzGetDatum(claim.last_ok);
	nulls[n] = !claim.held || claim.lease_ms == 0;
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(claim.lease_ms > 0 ? claim.limit_ms : 0));
	Assert(n <= lengthof(values));

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}
