/*
 * status.c
 *		The status of this server, as one row.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "generator/gate.h"
#include "key/layout.h"
#include "registry/claim.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_status);

static const Oid status_columns[] = {
	INT4OID, INT4OID, TEXTOID, BOOLOID, TEXTOID,	/* ... reason */
	TEXTOID, DATEOID,			/* ... last_day */
	INT8OID, TIMESTAMPTZOID, FLOAT8OID, TIMESTAMPTZOID, /* ... ceiling */
	INT8OID, INT8OID, FLOAT8OID, INT8OID, INT8OID,	/* ... errors */
	TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID,	/* ... lease_ceiling */
	TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, INT8OID
};

/* The text that callers get. */
static const char *
reason_text(const GeneratorStatus *status)
{
	if (status->gate.detail[0] == '\0')
		return status->message;
	return psprintf("%s: %s", status->message, status->gate.detail);
}

Datum
snowid_status(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	GeneratorStatus status;
	ClaimBoard	registry;
	Datum		values[lengthof(status_columns)];
	bool		nulls[lengthof(status_columns)] = {false};
	int			n = 0;
	bool		held;
	bool		on_lease;
	bool		has_pair;
	char		layout[LAYOUT_TEXT_LEN];

	require_preloaded();
	tupdesc = require_row(fcinfo, status_columns, lengthof(status_columns));
	claim_look(&registry);
	held = registry.state == CLAIM_HELD;
	on_lease = registry.claim.lease_ms > 0;
	generator_status(&status, held && on_lease ? registry.limit_ms : PG_INT64_MAX);

	/* a standby has a claim before it has made a key */
	has_pair = status.gate.has_pair || held;
	nulls[n] = !has_pair;
	values[n++] = Int32GetDatum(status.gate.has_pair ? status.gate.pair.datacenter :
								registry.claim.pair.datacenter);
	nulls[n] = !has_pair;
	values[n++] = Int32GetDatum(status.gate.has_pair ? status.gate.pair.worker : registry.claim.pair.worker);
	nulls[n] = !has_pair;
	values[n++] = CStringGetTextDatum(claim_from_redis() ?
									  (on_lease ? "lease" : "claim") :
									  snowid_worker_from_host ? "hostname" : "setting");
	values[n++] = BoolGetDatum(status.is_open);
	nulls[n] = status.is_open && status.gate.detail[0] == '\0';
	values[n++] = CStringGetTextDatum(reason_text(&status));
	layout_describe(&server_layout, layout);
	values[n++] = CStringGetTextDatum(layout);
	values[n++] = DateADTGetDatum(layout_last_day(&server_layout));
	nulls[n] = !status.has_last;
	values[n++] = Int64GetDatum(status.last_key);
	nulls[n] = !status.has_last;
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(status.last_unix_ms));
	values[n++] = Float8GetDatum(status.lead_ms);
	nulls[n] = !status.gate.has_pair;
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(status.ceiling_ms));
	values[n++] = Int64GetDatum(status.keys);
	values[n++] = Int64GetDatum(status.waits);
	values[n++] = Float8GetDatum((double) status.wait_us / 1000.0);
	values[n++] = Int64GetDatum(status.gate.steps_back);
	values[n++] = Int64GetDatum(status.errors);
	nulls[n] = !claim_from_redis();
	values[n++] = CStringGetTextDatum(held && on_lease &&
									  timestamptz_from_unix_ms(registry.limit_ms) < GetCurrentTimestamp() ?
									  "the lease has ended" :
									  registry.confirmed ? "claimed" :
									  held ? "remembered" :
									  registry.detail[0] ? registry.detail : "starting");
	nulls[n] = registry.last_error[0] == '\0';
	values[n++] = CStringGetTextDatum(registry.last_error);
	nulls[n] = registry.last_ok == 0;
	values[n++] = TimestampTzGetDatum(registry.last_ok);
	nulls[n] = !held || !on_lease;
	values[n++] = TimestampTzGetDatum(timestamptz_from_unix_ms(on_lease ? registry.limit_ms : 0));
	nulls[n] = registry.last_error_at == 0;
	values[n++] = TimestampTzGetDatum(registry.last_error_at);
	nulls[n] = status.grant_age_ms < 0;
	values[n++] = Int64GetDatum(status.grant_age_ms);
	values[n++] = TimestampTzGetDatum(status.gate.stats_reset);
	values[n++] = Int64GetDatum(status.gate.moves);
	Assert(n == lengthof(values));

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}
