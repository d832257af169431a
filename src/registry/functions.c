/*
 * functions.c
 *		The SQL functions about worker IDs in Redis: list the claims, give an ID
 *		back, change this server's own.
 *
 * They ask the snowid registry process, which alone talks to Redis.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "guard.h"
#include "key/layout.h"
#include "registry/claim.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_claims);
PG_FUNCTION_INFO_V1(snowid_release);
PG_FUNCTION_INFO_V1(snowid_reclaim);

/* The columns of snowid_claims(): those of a record but the last. */
static const Oid claims_columns[] = {
	INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, TEXTOID, BOOLOID
};

/* Throws if the registry or Redis does not answer in time. */
static void
ask(RegistryRequest *request)
{
	RegistryStatus status;

	require_preloaded();
	if (!claim_from_redis())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this server's worker ID does not come from Redis"),
				 errhint("Set snowid.redis_url and restart the server.")));
	if (!claim_ask(request))
	{
		claim_status(&status);
		if (!status.is_asking)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the snowid registry process is not ready"),
					 errhint("\"reason\" in snowid_status() says why.")));
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("Redis did not answer within snowid.redis_timeout"),
				 !status.last_error[0] ? 0 :
				 may_read_settings() ? errdetail("The last error was: %s.", status.last_error) :
				 errdetail("See the server log."),
				 errhint("The request may still be carried out; see snowid_claims().")));
	}
	if (request->error[0])
		ereport(ERROR,
				(errcode(request->refused ? ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE :
						 ERRCODE_CONNECTION_FAILURE),
				 request->refused && request->operation == REQUEST_RECLAIM ?
				 errmsg("no other worker ID could be claimed") :
				 errmsg("Redis cannot be used"),
				 errdetail("%s", request->refused || may_read_settings() ? request->error : "See the server log.")));
}

/* No script of ours gives such an answer. */
static void
nonsense(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("unexpected reply from Redis"),
			 errhint("Is something else using snowid.redis_prefix?")));
}

static int64
whole_number(const char *text)
{
	return strtoll(text, NULL, 10);
}

/* A time in Unix ms; throws if timestamptz has no such time. */
static Datum
time_datum(const char *text, bool *isnull)
{
	int64		unix_ms = whole_number(text);

	*isnull = text[0] == '\0';	/* of a damaged record */

	if (unix_ms < 0 || unix_ms > INT64CONST(9000000000000000))
		nonsense();
	return TimestampTzGetDatum(timestamptz_from_unix_ms(unix_ms));
}

Datum
snowid_claims(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	RegistryRequest request = {.operation = REQUEST_LIST};
	int			records;

	InitMaterializedSRF(fcinfo, 0);
	require_columns(fcinfo, rsinfo->setDesc, claims_columns, lengthof(claims_columns));
	do
	{
		const char *p = request.answer;

		request.datacenter_id = snowid_datacenter_id;
		ask(&request);
		records = (request.count - 1) / RECORD_COLUMNS;
		if (strcmp(p, "list") != 0 || request.count != 1 + records * RECORD_COLUMNS)
			nonsense();
		p += strlen(p) + 1;
		for (int i = 0; i < records; i++)
		{
			const char *field[RECORD_COLUMNS];
			Datum		values[lengthof(claims_columns)];
			bool		nulls[lengthof(claims_columns)] = {false};
			int64		worker_id;

			for (int j = 0; j < RECORD_COLUMNS; j++)
			{
				field[j] = p;
				p += strlen(p) + 1;
			}
			worker_id = whole_number(field[0]);
			if (worker_id < request.worker_id || worker_id > PG_INT32_MAX - 1)
				nonsense();
			request.worker_id = (int) worker_id + 1;
			values[0] = Int32GetDatum((int32) worker_id);
			values[1] = CStringGetTextDatum(field[1]);
			nulls[1] = field[4][0] == '\0';
			for (int j = 2; j <= 4; j++)
				values[j] = time_datum(field[j], &nulls[j]);
			nulls[5] = field[5][0] == '\0';
			values[5] = Int64GetDatum(whole_number(field[5]));
			values[6] = CStringGetTextDatum(field[6]);
			values[7] = BoolGetDatum(field[7][0] == '1');
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	} while (records == REGISTRY_PAGE);
	return (Datum) 0;
}

Datum
snowid_release(PG_FUNCTION_ARGS)
{
	RegistryRequest request = {.operation = REQUEST_RELEASE};
	const char *outcome = request.answer;
	const char *name;

	require_preloaded();
	request.datacenter_id = PG_GETARG_INT32(0);
	request.worker_id = PG_GETARG_INT32(1);
	request.force = PG_GETARG_BOOL(2);
	if (request.datacenter_id < 0 || request.datacenter_id >> server_layout.datacenter_bits != 0 ||
		request.worker_id < 0 || request.worker_id >> server_layout.worker_bits != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("datacenter ID or worker ID is out of range"),
				 errdetail("The layout has %d datacenter bits and %d worker bits.",
						   server_layout.datacenter_bits, server_layout.worker_bits)));
	ask(&request);
	name = outcome + strlen(outcome) + 1;
	if (strcmp(outcome, "free") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker ID %d of datacenter %d is not claimed",
						request.worker_id, request.datacenter_id)));
	if (strcmp(outcome, "own") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker ID %d of datacenter %d is this server's own",
						request.worker_id, request.datacenter_id),
				 errhint("Use snowid_reclaim() to change it.")));
	if (strcmp(outcome, "live") == 0 && request.count == 3)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker ID %d of datacenter %d is in use",
						request.worker_id, request.datacenter_id),
				 errdetail("\"%s\" was seen %s ms ago.", name, name + strlen(name) + 1),
				 errhint("Stop that server first, or use force.")));
	if (strcmp(outcome, "released") != 0 && strcmp(outcome, "revoked") != 0)
		nonsense();
	PG_RETURN_TEXT_P(cstring_to_text(outcome));
}

Datum
snowid_reclaim(PG_FUNCTION_ARGS)
{
	RegistryRequest request = {.operation = REQUEST_RECLAIM};

	require_preloaded();
	ask(&request);
	PG_RETURN_INT32(request.worker_id);
}
