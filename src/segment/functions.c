/*
 * functions.c
 *		The SQL functions of segments.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "guard.h"
#include "key/text.h"
#include "segment/number.h"
#include "segment/table.h"
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
	TEXTOID, TEXTOID, DATEOID, INT8OID, INT8OID, INT8OID, INT8OID, FLOAT8OID,
	FLOAT8OID, TIMESTAMPTZOID, FLOAT8OID, INT8OID, INT8OID, INT8OID, TEXTOID
};

Datum
snowid_number(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(number_next(fcinfo));
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
	values[0] = Int64GetDatum(number_next_range(fcinfo, count));
	values[1] = Int64GetDatum(DatumGetInt64(values[0]) + (count - 1));
	PG_RETURN_DATUM(pair_of(fcinfo, range_columns, values));
}

Datum
snowid_period_number(PG_FUNCTION_ARGS)
{
	DateADT		period;
	const char *format;
	Datum		values[2];

	values[1] = Int64GetDatum(number_next_in_period(fcinfo, USE_PERIOD, &period, &format));
	values[0] = DateADTGetDatum(period);
	PG_RETURN_DATUM(pair_of(fcinfo, period_columns, values));
}

Datum
snowid_period_serial(PG_FUNCTION_ARGS)
{
	DateADT		period;
	const char *format;
	int64		number = number_next_in_period(fcinfo, USE_SERIAL, &period, &format);
	char		buf[PERIOD_SERIAL_LEN];

	period_write(format, period, number, buf);
	PG_RETURN_TEXT_P(cstring_to_text(buf));
}

/* The format of a tag, as its row has it for this statement. */
static char *
read_format(FunctionCallInfo fcinfo, const text *tag)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	Oid			relid = get_relname_relid("snowid_segments", schema);
	int			len = VARSIZE_ANY_EXHDR(tag);
	SegmentKey	key;
	TagRow		row;

	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, "snowid_segments");
	if (len > 0 && len <= TAG_LEN)
		segment_make_key(&key, relid, VARDATA_ANY(tag), len);
	if (len < 1 || len > TAG_LEN || table_read_tag(&key, GetActiveSnapshot(), &row) != FOUND)
		number_refuse_absent(text_shown(VARDATA_ANY(tag), len), "");
	if (row.row.format[0] == '\0')
		number_refuse_format(text_shown(VARDATA_ANY(tag), len));
	return pstrdup(row.row.format);
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
	TagSite    *site = number_site(fcinfo, USE_NUMBER);
	const text *tag = PG_GETARG_TEXT_PP(0);
	SegmentKey	key;

	if (VARSIZE_ANY_EXHDR(tag) <= TAG_LEN)
	{
		segment_make_key(&key, site->relid, VARDATA_ANY(tag), VARSIZE_ANY_EXHDR(tag));
		segment_forget(&key, ALL_PERIODS);
	}
	PG_RETURN_VOID();
}

/* The segments of this database that are in memory. */
Datum
snowid_segment_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TagSite		site;

	number_init_site(&site, USE_NUMBER, fcinfo->flinfo->fn_oid);
	InitMaterializedSRF(fcinfo, 0);
	require_columns(fcinfo, rsinfo->setDesc, status_columns, lengthof(status_columns));
	for (int i = 0; i < snowid_max_segments; i++)
	{
		SegmentStatus status;
		Datum		values[lengthof(status_columns)];
		bool		nulls[lengthof(status_columns)] = {false};
		int			n = 0;

		if (!segment_status(i, site.relid, &status))
			continue;
		values[n++] = PointerGetDatum(cstring_to_text_with_len(status.key.tag, status.key.len));
		nulls[n] = status.source[0] == '\0';
		values[n++] = CStringGetTextDatum(status.source);
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
