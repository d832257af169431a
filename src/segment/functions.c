/*
 * functions.c
 *		The SQL functions of segments.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "guard.h"
#include "key/text.h"
#include "segment/pool.h"
#include "segment/segment.h"
#include "segment/statement.h"
#include "segment/wait.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_number);
PG_FUNCTION_INFO_V1(snowid_number_range);
PG_FUNCTION_INFO_V1(snowid_period_number);
PG_FUNCTION_INFO_V1(snowid_period_serial);
PG_FUNCTION_INFO_V1(snowid_period_parse);
PG_FUNCTION_INFO_V1(snowid_segment_forget);
PG_FUNCTION_INFO_V1(snowid_segment_status);

static const Oid range_columns[] = {INT8OID, INT8OID};

static const Oid period_columns[] = {DATEOID, INT8OID};

static const Oid status_columns[] = {
	TEXTOID, REGCLASSOID, DATEOID, INT8OID, INT8OID, INT8OID, INT8OID, FLOAT8OID,
	FLOAT8OID, TIMESTAMPTZOID, FLOAT8OID, INT8OID, INT8OID, INT8OID, TEXTOID
};

Datum
snowid_number(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(segment_next(fcinfo));
}

/* A row of two columns. */
static Datum
pair_of(FunctionCallInfo fcinfo, const Oid *columns, Datum *values)
{
	TupleDesc	tupdesc;
	bool		nulls[2] = {false, false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	require_columns(fcinfo, tupdesc, columns, 2);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}

Datum
snowid_number_range(PG_FUNCTION_ARGS)
{
	int32		count = PG_GETARG_INT32(1);
	Datum		values[2];

	if (count < 1 || count > MAX_STEP)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a range cannot have %d numbers", count),
				 errdetail("It has from 1 to %d.", MAX_STEP)));
	values[0] = Int64GetDatum(segment_next_range(segment_site(fcinfo, USE_NUMBER),
												 PG_GETARG_TEXT_PP(0), count));
	values[1] = Int64GetDatum(DatumGetInt64(values[0]) + (count - 1));
	PG_RETURN_DATUM(pair_of(fcinfo, range_columns, values));
}

Datum
snowid_period_number(PG_FUNCTION_ARGS)
{
	DateADT		period;
	const char *format;
	Datum		values[2];

	values[1] = Int64GetDatum(segment_next_in_period(fcinfo, USE_PERIOD, &period, &format));
	values[0] = DateADTGetDatum(period);
	PG_RETURN_DATUM(pair_of(fcinfo, period_columns, values));
}

Datum
snowid_period_serial(PG_FUNCTION_ARGS)
{
	DateADT		period;
	const char *format;
	int64		number = segment_next_in_period(fcinfo, USE_SERIAL, &period, &format);
	char		buf[PERIOD_SERIAL_LEN];

	period_write(format, period, number, buf);
	PG_RETURN_TEXT_P(cstring_to_text(buf));
}

/* The format of a tag, as its row has it for this transaction. */
static char *
read_format(FunctionCallInfo fcinfo, const text *tag)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {PointerGetDatum(tag)};
	MemoryContext caller = CurrentMemoryContext;
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	char	   *format;

	SPI_connect();
	if (statement_run("SELECT format FROM %s WHERE biz_tag OPERATOR(pg_catalog.=) $1",
					  get_relname_relid("snowid_segments", schema), 1, types, values, true) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("segment \"%s\" does not exist",
						text_shown(VARDATA_ANY(tag), VARSIZE_ANY_EXHDR(tag)))));
	format = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (format == NULL)
		segment_refuse_format(text_to_cstring(tag));
	format = MemoryContextStrdup(caller, format);
	SPI_finish();
	return format;
}

Datum
snowid_period_parse(PG_FUNCTION_ARGS)
{
	text	   *tag = PG_GETARG_TEXT_PP(0);
	char	   *serial = text_to_cstring(PG_GETARG_TEXT_PP(1));
	DateADT		period = 0;
	int64		number = 0;
	Datum		values[2];
	const char *problem = period_read(read_format(fcinfo, tag), serial, &period, &number);

	if (problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid serial: \"%s\"",
						text_shown(serial, strlen(serial))),
				 errdetail("%s", problem)));
	values[0] = DateADTGetDatum(period);
	values[1] = Int64GetDatum(number);
	PG_RETURN_DATUM(pair_of(fcinfo, period_columns, values));
}

Datum
snowid_segment_forget(PG_FUNCTION_ARGS)
{
	TagSite    *site = segment_site(fcinfo, USE_NUMBER);
	const text *tag = PG_GETARG_TEXT_PP(0);
	SegmentKey	key;

	if (VARSIZE_ANY_EXHDR(tag) <= TAG_LEN)
	{
		pool_make_key(&key, site->relid, VARDATA_ANY(tag), VARSIZE_ANY_EXHDR(tag));
		pool_forget(&key, NOTHING_GONE);
	}
	PG_RETURN_VOID();
}

/* The segments of this database that are in memory. */
Datum
snowid_segment_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TagSite		site;

	segment_init_site(&site, USE_NUMBER, fcinfo->flinfo->fn_oid);
	InitMaterializedSRF(fcinfo, 0);
	require_columns(fcinfo, rsinfo->setDesc, status_columns, lengthof(status_columns));
	for (int i = 0; i < snowid_max_segments; i++)
	{
		SegmentStatus status;
		Datum		values[lengthof(status_columns)];
		bool		nulls[lengthof(status_columns)] = {false};
		int			n = 0;

		if (!pool_status(i, site.relid, &status))
			continue;
		values[n++] = PointerGetDatum(cstring_to_text_with_len(status.key.tag, status.key.len));
		nulls[n] = !OidIsValid(status.source);
		values[n++] = ObjectIdGetDatum(status.source);
		nulls[n] = status.period == NO_PERIOD;
		values[n++] = DateADTGetDatum(status.period);
		nulls[n] = status.left == 0;
		values[n++] = Int64GetDatum(status.next);
		values[n++] = Int64GetDatum(status.left);
		values[n++] = Int64GetDatum(status.left_next);
		nulls[n] = status.step == 0;
		values[n++] = Int64GetDatum(status.step);
		nulls[n] = nulls[n + 1] = status.rate == 0;
		values[n++] = Float8GetDatum(status.rate);
		values[n++] = Float8GetDatum((status.left + status.left_next) / Max(status.rate, 1e-9));
		nulls[n] = nulls[n + 1] = status.fetches == 0;
		values[n++] = TimestampTzGetDatum(status.fetched_at);
		values[n++] = Float8GetDatum(status.fetch_us / 1000.0);
		values[n++] = Int64GetDatum(status.fetches);
		values[n++] = Int64GetDatum(status.waits);
		values[n++] = Int64GetDatum(status.lost);
		nulls[n] = status.error[0] == '\0';
		values[n++] = CStringGetTextDatum(status.error);
		Assert(n == lengthof(values));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
