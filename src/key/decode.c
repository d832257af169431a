/*
 * decode.c
 *		The SQL functions that read and write the fields of keys.
 *
 * Each has two forms: with this server's layout (STABLE; needs the library
 * preloaded, and a layout that is not refused), and with a layout given as text
 * (IMMUTABLE; needs nothing).  One C function serves both, and distinguishes them
 * by the number of arguments.  It gets the server's layout through a hook.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "key/decode.h"
#include "key/layout.h"

PG_FUNCTION_INFO_V1(snowid_decode);
PG_FUNCTION_INFO_V1(snowid_timestamp);
PG_FUNCTION_INFO_V1(snowid_min);
PG_FUNCTION_INFO_V1(snowid_max);
PG_FUNCTION_INFO_V1(snowid_encode);
PG_FUNCTION_INFO_V1(snowid_bits);
PG_FUNCTION_INFO_V1(snowid_layouts);

const Layout *(*decode_server_layout) (bool first) = NULL;

/* The memory of a call site, from row to row. */
typedef struct CallSite
{
	Layout		layout;
	text	   *spec;			/* the text of the layout */
	TupleDesc	tupdesc;		/* snowid_decode's row */
} CallSite;

/* The call site's memory, with the layout to use. */
static CallSite *
call_site(FunctionCallInfo fcinfo, int layout_arg)
{
	CallSite   *site = fcinfo->flinfo->fn_extra;
	bool		is_first = site == NULL;
	text	   *spec;

	if (is_first)
		site = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(CallSite));
	if (PG_NARGS() <= layout_arg)
	{
		require_preloaded();
		site->layout = *decode_server_layout(is_first);
		fcinfo->flinfo->fn_extra = site;
		return site;
	}
	fcinfo->flinfo->fn_extra = site;

	spec = PG_GETARG_TEXT_PP(layout_arg);
	if (site->spec == NULL ||
		VARSIZE_ANY_EXHDR(site->spec) != VARSIZE_ANY_EXHDR(spec) ||
		memcmp(VARDATA_ANY(site->spec), VARDATA_ANY(spec),
			   VARSIZE_ANY_EXHDR(spec)) != 0)
	{
		Layout		layout;
		text	   *copy;

		layout_parse(spec, &layout);
		copy = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, VARSIZE_ANY(spec));
		memcpy(copy, spec, VARSIZE_ANY(spec));
		if (site->spec)
			pfree(site->spec);
		site->spec = copy;
		site->layout = layout;
	}
	return site;
}

/* The layout of an argument, or the server's. */
const Layout *
layout_of_call(FunctionCallInfo fcinfo, int layout_arg)
{
	return &call_site(fcinfo, layout_arg)->layout;
}

Datum
snowid_decode(PG_FUNCTION_ARGS)
{
	CallSite   *site = call_site(fcinfo, 1);
	Layout	   *layout = &site->layout;
	static const Oid columns[] = {TIMESTAMPTZOID, INT4OID, INT4OID, INT4OID};
	Parts		parts;
	Datum		values[lengthof(columns)];
	bool		nulls[lengthof(columns)] = {false};

	if (site->tupdesc == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		site->tupdesc = require_row(fcinfo, columns, lengthof(columns));
		MemoryContextSwitchTo(old);
	}
	layout_unpack(layout, PG_GETARG_INT64(0), &parts);
	values[0] = TimestampTzGetDatum(timestamptz_from_unix_ms(parts.unix_ms));
	values[1] = Int32GetDatum(parts.datacenter);
	values[2] = Int32GetDatum(parts.worker);
	values[3] = Int32GetDatum(parts.sequence);
	nulls[1] = layout->datacenter_bits == 0;
	nulls[2] = layout->worker_bits == 0;
	nulls[3] = layout->sequence_bits == 0;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(site->tupdesc, values,
													  nulls)));
}

Datum
snowid_timestamp(PG_FUNCTION_ARGS)
{
	Parts		parts;

	layout_unpack(&call_site(fcinfo, 1)->layout, PG_GETARG_INT64(0), &parts);
	PG_RETURN_TIMESTAMPTZ(timestamptz_from_unix_ms(parts.unix_ms));
}

Datum
snowid_min(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(layout_bound(&call_site(fcinfo, 1)->layout,
								 PG_GETARG_TIMESTAMPTZ(0), false));
}

Datum
snowid_max(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(layout_bound(&call_site(fcinfo, 1)->layout,
								 PG_GETARG_TIMESTAMPTZ(0), true));
}

Datum
snowid_encode(PG_FUNCTION_ARGS)
{
	Layout	   *layout = &call_site(fcinfo, 4)->layout;
	TimestampTz ts = PG_GETARG_TIMESTAMPTZ(0);
	Parts		parts;

	(void) layout_bound(layout, ts, false); /* throws at infinity */
	parts.unix_ms = unix_ms_from_timestamptz(ts);
	parts.datacenter = PG_GETARG_INT32(1);
	parts.worker = PG_GETARG_INT32(2);
	parts.sequence = PG_GETARG_INT32(3);
	PG_RETURN_INT64(layout_pack(layout, &parts));
}

/* The bits from the sign down, a space between the fields. */
Datum
snowid_bits(PG_FUNCTION_ARGS)
{
	Layout	   *layout = &call_site(fcinfo, 1)->layout;
	int64		id = PG_GETARG_INT64(0);
	int			both = layout->worker_bits + layout->sequence_bits;
	int			ends[4] = {		/* the lowest bit of a field */
		63, both + layout->datacenter_bits, both,
		layout->sequence_above ? layout->worker_bits : layout->sequence_bits
	};
	char		buf[64 + lengthof(ends) + 1];
	char	   *p = buf;
	Parts		parts;

	layout_unpack(layout, id, &parts);	/* throws if it is no key */
	for (int bit = 63; bit >= 0; bit--)
	{
		*p++ = id >> bit & 1 ? '1' : '0';
		for (int i = 0; i < lengthof(ends); i++)
			if (bit == ends[i] && bit > 0 && p[-1] != ' ')
				*p++ = ' ';
	}
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf, p - buf));
}

/* The named layouts. */
Datum
snowid_layouts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	static const Oid columns[] = {
		TEXTOID, TIMESTAMPTZOID, INT4OID, INT4OID, INT4OID, INT4OID, INT4OID, DATEOID
	};
	Layout		layout;
	const char *name;

	InitMaterializedSRF(fcinfo, 0);
	require_columns(fcinfo, rsinfo->setDesc, columns, lengthof(columns));
	for (int i = 0; (name = layout_named(i, &layout)) != NULL; i++)
	{
		Datum		values[lengthof(columns)];
		bool		nulls[lengthof(columns)] = {false};

		values[0] = CStringGetTextDatum(name);
		values[1] = TimestampTzGetDatum(timestamptz_from_unix_ms(layout.epoch));
		values[2] = Int32GetDatum(layout.tick);
		values[3] = Int32GetDatum(layout_timestamp_bits(&layout));
		values[4] = Int32GetDatum(layout.datacenter_bits);
		values[5] = Int32GetDatum(layout.worker_bits);
		values[6] = Int32GetDatum(layout.sequence_bits);
		values[7] = DateADTGetDatum(layout_last_day(&layout));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
