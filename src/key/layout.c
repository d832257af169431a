/*
 * layout.c
 *		The fields of a key: arithmetic, layouts as text, and the SQL functions
 *		that read and write the fields.
 *
 * Depends on its arguments only: reads no setting, no clock and no shared memory, so
 * that its callers can be IMMUTABLE.  A value out of range is an error; nothing ever
 * wraps.
 *
 * Each SQL function has two forms: with this server's layout (STABLE; needs the
 * library preloaded, and a layout that is not refused), and with a layout given as
 * text (IMMUTABLE; needs nothing).  One C function serves both, and distinguishes
 * them by the number of arguments.  It gets the server's layout through a hook.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "key/layout.h"

PG_FUNCTION_INFO_V1(snowid_decode);
PG_FUNCTION_INFO_V1(snowid_timestamp);
PG_FUNCTION_INFO_V1(snowid_min);
PG_FUNCTION_INFO_V1(snowid_max);
PG_FUNCTION_INFO_V1(snowid_encode);
PG_FUNCTION_INFO_V1(snowid_bits);
PG_FUNCTION_INFO_V1(snowid_layouts);

const Layout *(*decode_server_layout) (bool first) = NULL;

/* How many characters of a text are shown in an error. */
#define SHOWN 100

#define MAX_WIDTH 31

#define UNIX_MS_OF_2000 INT64CONST(946684800000)

/* The last ms of timestamptz. */
#define LAST_UNIX_MS (END_TIMESTAMP / 1000 + UNIX_MS_OF_2000 - 1)

#define TEN_YEARS_MS (INT64CONST(3653) * 24 * 3600 * 1000)

/*
 * These limits keep the kernel's clock and the epoch less than 2^43 ms apart, so
 * that the sum of two units does not overflow.
 */
#define MAX_SERVER_SEQUENCE_BITS 18
#define MAX_SERVER_EPOCH_MS INT64CONST(8772796799999)	/* the end of 2247 */

/*---- Arithmetic ----*/

int64
unix_ms_from_timestamptz(TimestampTz ts)
{
	int64		ms = ts / 1000;

	if (ts % 1000 < 0)
		ms--;					/* floor, also before 2000 */
	return ms + UNIX_MS_OF_2000;
}

TimestampTz
timestamptz_from_unix_ms(int64 unix_ms)
{
	return (unix_ms - UNIX_MS_OF_2000) * 1000;
}

/* Has a time a year of four digits, from 0001 to 9999? */
bool
unix_ms_has_year(int64 unix_ms)
{
	return unix_ms >= INT64CONST(-62135596800000) && unix_ms <= INT64CONST(253402300799999);
}

/* The reason why no server can make keys in this layout; NULL: one can. */
const char *
layout_unusable(const Layout *layout)
{
	if (layout->tick != 1 || layout->sequence_above)
		return "its timestamp is not in milliseconds";
	if (layout->datacenter_bits < 0 || layout->datacenter_bits > 16 ||
		layout->worker_bits < 0 || layout->worker_bits > 22 ||
		layout->sequence_bits < 0 ||
		layout->sequence_bits > MAX_SERVER_SEQUENCE_BITS)
		return "it has more than 16 datacenter bits, 22 worker bits or 18 sequence bits";
	if (layout->epoch < 0 || layout->epoch > MAX_SERVER_EPOCH_MS)
		return "its epoch is not in the years from 1970 to 2247 (UTC)";
	return NULL;
}

/* For layouts that servers can use: the tick is always 1. */
bool
layout_equal(const Layout *a, const Layout *b)
{
	return a->epoch == b->epoch &&
		a->datacenter_bits == b->datacenter_bits &&
		a->worker_bits == b->worker_bits &&
		a->sequence_bits == b->sequence_bits;
}

static int
tail_bits(const Layout *layout)
{
	return layout->datacenter_bits + layout->worker_bits +
		layout->sequence_bits;
}

int
layout_timestamp_bits(const Layout *layout)
{
	return 63 - tail_bits(layout);
}

/* The last Unix ms of the range. */
int64
layout_last_ms(const Layout *layout)
{
	int			bits = layout_timestamp_bits(layout);

	/* beyond 2^53 ms timestamptz ends first, with any epoch */
	if (bits > 53)
		return LAST_UNIX_MS;
	return Min(LAST_UNIX_MS,
			   layout->epoch + (INT64CONST(1) << bits) * layout->tick - 1);
}

/* The last day (UTC) of a range that ends after 1970. */
DateADT
layout_last_day(const Layout *layout)
{
	return (DateADT) (layout_last_ms(layout) / 86400000) +
		UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE;
}

/* Does the range end within ten years from this time? */
bool
layout_ends_soon(const Layout *layout, int64 unix_ms)
{
	return layout_last_ms(layout) - TEN_YEARS_MS < unix_ms;
}

/* The timestamp field, shifted into position; throws if out of range. */
static int64
timestamp_field(const Layout *layout, int64 unix_ms)
{
	if (unix_ms < layout->epoch || unix_ms > layout_last_ms(layout))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_FIELD_OVERFLOW),
				 errmsg("time is out of the range of the layout"),
				 errdetail("The layout's range is from %s to %s.",
						   pstrdup(timestamptz_to_str(timestamptz_from_unix_ms(layout->epoch))),
						   pstrdup(timestamptz_to_str(timestamptz_from_unix_ms(layout_last_ms(layout)))))));
	return (unix_ms - layout->epoch) / layout->tick << tail_bits(layout);
}

static void
require_fits(const char *name, int value, int bits)
{
	if (value < 0 || (int64) value >> bits != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s %d does not fit into %d bits", name, value, bits),
				 errdetail("The layout's range is from 0 to %d.",
						   (int) ((INT64CONST(1) << bits) - 1))));
}

/* The key with these parts; throws if one does not fit. */
int64
layout_pack(const Layout *layout, const Parts *parts)
{
	int64		worker_place = layout->sequence_above ? 0 : layout->sequence_bits;
	int64		sequence_place = layout->sequence_above ? layout->worker_bits : 0;
	int64		time = timestamp_field(layout, parts->unix_ms);

	require_fits("datacenter_id", parts->datacenter, layout->datacenter_bits);
	require_fits("worker_id", parts->worker, layout->worker_bits);
	require_fits("sequence", parts->sequence, layout->sequence_bits);
	return time |
		(int64) parts->datacenter << (layout->worker_bits + layout->sequence_bits) |
		(int64) parts->worker << worker_place |
		(int64) parts->sequence << sequence_place;
}

/* Takes a key apart; throws if it is not one of this layout. */
void
layout_unpack(const Layout *layout, int64 id, Parts *parts)
{
	int64		worker_place = layout->sequence_above ? 0 : layout->sequence_bits;
	int64		sequence_place = layout->sequence_above ? layout->worker_bits : 0;
	int64		ticks = id >> tail_bits(layout);

	if (id < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key must not be negative")));
	/* compare before the multiplication, which could overflow */
	if (ticks > (layout_last_ms(layout) - layout->epoch) / layout->tick)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_FIELD_OVERFLOW),
				 errmsg("timestamp of key " INT64_FORMAT " is out of range", id),
				 errhint("The key is of another layout.")));
	parts->unix_ms = layout->epoch + ticks * layout->tick;
	parts->datacenter = (int)
		(id >> (layout->worker_bits + layout->sequence_bits) &
		 ((INT64CONST(1) << layout->datacenter_bits) - 1));
	parts->worker = (int) (id >> worker_place &
						   ((INT64CONST(1) << layout->worker_bits) - 1));
	parts->sequence = (int) (id >> sequence_place &
							 ((INT64CONST(1) << layout->sequence_bits) - 1));
}

/*
 * The least or the greatest key that any pair can have at a time.  A time out of
 * range counts as the nearest one in range.  Does not throw.
 */
int64
layout_key_at(const Layout *layout, int64 unix_ms, bool greatest)
{
	unix_ms = Max(Min(unix_ms, layout_last_ms(layout)), layout->epoch);
	return timestamp_field(layout, unix_ms) |
		(greatest ? (INT64CONST(1) << tail_bits(layout)) - 1 : 0);
}

/*
 * The least or the greatest key of the ms (the tick) of ts; throws if that is out
 * of the layout's range, as each infinity is.
 */
int64
layout_bound(const Layout *layout, TimestampTz ts, bool greatest)
{
	int64		unix_ms = unix_ms_from_timestamptz(ts);

	(void) timestamp_field(layout, unix_ms);
	return layout_key_at(layout, unix_ms, greatest);
}

/*---- As text ----*/

/* The bytes of the first character; in a database of any encoding it may be UTF-8. */
static int
first_char_len(const char *str, int len)
{
	int			encoding = GetDatabaseEncoding();

	return Min(pg_encoding_mblen(encoding == PG_SQL_ASCII ? PG_UTF8 : encoding, str), len);
}

/* The sentence about the character at this byte of a text, which is no digit. */
const char *
not_a_digit(const char *str, int len, int at, int base)
{
	return psprintf("\"%.*s\" at position %d is not a digit of base %d.",
					first_char_len(str + at, len - at), str + at,
					pg_mbstrlen_with_len(str, at) + 1, base);
}

/*
 * A text as an error shows it: its beginning.  A text from outside can be long, and
 * errors are logged; and it may end within a character.
 */
char *
text_shown(const char *str, int len)
{
	int			shown = 0;

	for (int i = 0; i < SHOWN && shown < len; i++)
		shown += first_char_len(str + shown, len - shown);
	return psprintf("%.*s%s", shown, str, shown < len ? "..." : "");
}

/*
 * Formats that others use.  Discord's worker and process are our datacenter and
 * worker; Instagram's shard, pgEdge's node and Sonyflake's machine our worker.
 * MyBatis-Plus and Hutool have Twitter's.  The epochs of Baidu, ShardingSphere and
 * CosId are midnights of +08.
 */
static const struct
{
	const char *name;
	Layout		layout;
}			named_layouts[] =

{
	{"twitter", {INT64CONST(1288834974657), 1, 5, 5, 12, false}},
	{"discord", {INT64CONST(1420070400000), 1, 5, 5, 12, false}},
	{"instagram", {INT64CONST(1314220021721), 1, 0, 13, 10, false}},
	{"mastodon", {0, 1, 0, 0, 16, false}},
	{"sonyflake", {INT64CONST(1409529600000), 10, 0, 16, 8, true}},
	{"pgedge", {INT64CONST(1672531200000), 1, 0, 10, 12, false}},
	{"leaf", {INT64CONST(1288834974657), 1, 0, 10, 12, false}},
	{"baidu", {INT64CONST(1463673600000), 1000, 0, 22, 13, false}},
	{"shardingsphere", {INT64CONST(1477929600000), 1, 0, 10, 12, false}},
	{"cosid", {INT64CONST(1577203200000), 1, 0, 10, 12, false}},
	{"yitter", {INT64CONST(1582136402000), 1, 0, 6, 6, false}},
	{"pgdog", {INT64CONST(1764184395000), 1, 0, 10, 12, false}}
};

/* Has the text a digit for each 0 of the form, and its other characters? */
static bool
has_form(const char *str, const char *form)
{
	for (; *form; str++, form++)
		if (*form == '0' ? !isdigit((unsigned char) *str) : *str != *form)
			return false;
	return true;
}

/*
 * Reads an RFC 3339 date and time with its zone, "2010-11-04T01:42:54.657Z"; also
 * with a space instead of the T, and with +hh or +hhmm as the zone, as PostgreSQL
 * prints them.  timestamptz_in() is not used: it depends on DateStyle and
 * TimeZone.  The year must be one that layout_describe() can write.  Returns
 * NULL, or a description of the text's fault.
 */
const char *
layout_read_epoch(const char *str, int64 *unix_ms)
{
	static const char *const not_a_time = "not a time with its zone, such as 2020-01-01T00:00:00Z";
	const char *p = str + strlen("0000-00-00T00:00:00");
	int			date[3];
	int			again[3];
	int			hour,
				minute,
				second,
				ms = 0,
				zone_hour = 0,
				zone_minute = 0;

	if (!has_form(str, "0000-00-00T00:00:00") && !has_form(str, "0000-00-00 00:00:00"))
		return not_a_time;
	sscanf(str, "%d-%d-%d%*c%d:%d:%d", &date[0], &date[1], &date[2], &hour, &minute, &second);
	if (has_form(p, ".0"))
		for (int scale = 100; isdigit((unsigned char) *++p) && scale > 0; scale /= 10)
			ms += (*p - '0') * scale;
	if (has_form(p, "+00") || has_form(p, "-00"))
	{
		int			sign = *p == '-' ? -1 : 1;
		const char *rest = p + 3 + (p[3] == ':');

		zone_hour = sign * ((p[1] - '0') * 10 + p[2] - '0');
		if (has_form(rest, "00"))
			zone_minute = sign * atoi(rest);
		p = has_form(rest, "00") ? rest + 2 : p + 3;
	}
	else if (*p++ != 'Z')
		return not_a_time;
	j2date(date2j(date[0], date[1], date[2]), &again[0], &again[1], &again[2]);
	if (*p || date[0] == 0 || memcmp(date, again, sizeof(date)) != 0 || hour > 23 || minute > 59 ||
		second > 59 || abs(zone_hour) > 15 || abs(zone_minute) > 59)
		return not_a_time;

	minute += 60 * (hour - zone_hour) - zone_minute;
	*unix_ms = (date2j(date[0], date[1], date[2]) - UNIX_EPOCH_JDATE) * INT64CONST(86400000) +
		minute * INT64CONST(60000) + second * 1000 + ms;
	return unix_ms_has_year(*unix_ms) ? NULL : "not in the years from 0001 to 9999 (UTC)";
}

/*
 * Reads a layout: a name, or an epoch and widths in bits, in any order, such as
 * "epoch=2020-01-01T00:00:00Z datacenter=5 worker=5 sequence=12".  A missing
 * width is 0: there is no such field.  Returns NULL, or a sentence about the
 * fault.
 */
const char *
layout_read(const char *str, Layout *layout)
{
	char	   *rest;
	char	   *word;
	struct
	{
		const char *key;
		int		   *width;		/* NULL: it is the epoch */
		bool		seen;
	}			fields[] =
	{
		{"epoch=", NULL, false},
		{"datacenter=", &layout->datacenter_bits, false},
		{"worker=", &layout->worker_bits, false},
		{"sequence=", &layout->sequence_bits, false}
	};

	for (int i = 0; i < lengthof(named_layouts); i++)
	{
		if (pg_strcasecmp(str, named_layouts[i].name) == 0)
		{
			*layout = named_layouts[i].layout;
			return NULL;
		}
	}

	memset(layout, 0, sizeof(Layout));
	layout->tick = 1;
	for (word = strtok_r(pstrdup(str), " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest))
	{
		const char *problem = "neither a named layout nor epoch=, datacenter=, worker= or sequence=";

		for (int i = 0; i < lengthof(fields); i++)
		{
			size_t		len = strlen(fields[i].key);
			const char *value = word + len;
			char	   *end;
			long		width;

			if (strncmp(word, fields[i].key, len) != 0)
				continue;
			width = isdigit((unsigned char) *value) ? strtol(value, &end, 10) : -1;
			if (fields[i].seen)
				problem = "given twice";
			else if (fields[i].width == NULL)
				problem = layout_read_epoch(value, &layout->epoch);
			else if (width < 0 || width > MAX_WIDTH || *end)
				problem = "not a width from 0 to 31 bits";
			else
			{
				problem = NULL;
				*fields[i].width = (int) width;
			}
			fields[i].seen = true;
		}
		if (problem)
			return psprintf("\"%s\" is %s.", text_shown(word, strlen(word)), problem);
	}
	if (!fields[0].seen)
		return "The epoch is missing.";
	if (layout_timestamp_bits(layout) < 1)
		return "The widths leave no bit of 63 for the timestamp.";
	return NULL;
}

/* Writes a layout so that layout_read() can read it. */
void
layout_describe(const Layout *layout, char *buf)
{
	struct pg_tm tm;
	fsec_t		us;

	(void) timestamp2tm(timestamptz_from_unix_ms(layout->epoch), NULL, &tm, &us, NULL, NULL);
	snprintf(buf, LAYOUT_TEXT_LEN,
			 "epoch=%04d-%02d-%02dT%02d:%02d:%02d.%03dZ datacenter=%d worker=%d sequence=%d",
			 tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
			 us / 1000, layout->datacenter_bits, layout->worker_bits,
			 layout->sequence_bits);
}

/* A sentence that names both layouts. */
char *
layout_difference(const Layout *ours, const Layout *theirs)
{
	char		our_text[LAYOUT_TEXT_LEN];
	char		their_text[LAYOUT_TEXT_LEN];

	layout_describe(ours, our_text);
	layout_describe(theirs, their_text);
	return psprintf("The settings make \"%s\", and this server's last keys have \"%s\".",
					our_text, their_text);
}

/*---- SQL functions ----*/

/* The memory of a call site, from row to row. */
typedef struct CallSite
{
	Layout		layout;
	text	   *spec;			/* the text of the layout */
	TupleDesc	tupdesc;		/* snowid_decode's row */
} CallSite;

/* Reads a layout for an SQL function: throws if it is not one. */
static void
parse_layout(text *spec, Layout *layout)
{
	char	   *str = text_to_cstring(spec);
	const char *problem = layout_read(str, layout);

	if (problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid layout \"%s\"", text_shown(str, strlen(str))),
				 errdetail("%s", problem),
				 errhint(LAYOUT_HINT)));
	pfree(str);
}

/* The call site's memory, with the layout to use. */
static CallSite *
call_site(FunctionCallInfo fcinfo, int layout_arg)
{
	CallSite   *site = fcinfo->flinfo->fn_extra;
	const Layout *server = NULL;
	text	   *spec;

	if (PG_NARGS() <= layout_arg)
	{
		require_preloaded();
		server = decode_server_layout(site == NULL);
	}
	if (site == NULL)
		site = fcinfo->flinfo->fn_extra =
			MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(CallSite));
	if (server)
	{
		site->layout = *server;
		return site;
	}

	spec = PG_GETARG_TEXT_PP(layout_arg);
	if (site->spec == NULL ||
		VARSIZE_ANY_EXHDR(site->spec) != VARSIZE_ANY_EXHDR(spec) ||
		memcmp(VARDATA_ANY(site->spec), VARDATA_ANY(spec),
			   VARSIZE_ANY_EXHDR(spec)) != 0)
	{
		Layout		layout;
		text	   *copy;

		parse_layout(spec, &layout);
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
	Parts		parts;

	parts.unix_ms = unix_ms_from_timestamptz(PG_GETARG_TIMESTAMPTZ(0));
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

	InitMaterializedSRF(fcinfo, 0);
	require_columns(fcinfo, rsinfo->setDesc, columns, lengthof(columns));
	for (int i = 0; i < lengthof(named_layouts); i++)
	{
		const Layout *layout = &named_layouts[i].layout;
		Datum		values[lengthof(columns)];
		bool		nulls[lengthof(columns)] = {false};

		values[0] = CStringGetTextDatum(named_layouts[i].name);
		values[1] = TimestampTzGetDatum(timestamptz_from_unix_ms(layout->epoch));
		values[2] = Int32GetDatum(layout->tick);
		values[3] = Int32GetDatum(layout_timestamp_bits(layout));
		values[4] = Int32GetDatum(layout->datacenter_bits);
		values[5] = Int32GetDatum(layout->worker_bits);
		values[6] = Int32GetDatum(layout->sequence_bits);
		values[7] = DateADTGetDatum(layout_last_day(layout));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
