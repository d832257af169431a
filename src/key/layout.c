/*
 * layout.c
 *		The fields of a key: pack, unpack, bounds.
 *
 * Pure arithmetic: reads no setting, no clock and no shared memory, so that its
 * callers can be IMMUTABLE.  A value out of range is an error; nothing ever wraps.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "key/layout.h"

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

/* Can this Unix ms be that of a key?  Then arithmetic of units does not wrap. */
bool
layout_has_time(const Layout *layout, int64 unix_ms)
{
	return unix_ms >= layout->epoch && unix_ms <= layout_last_ms(layout) &&
		unix_ms - layout->epoch < PG_INT64_MAX >> layout->sequence_bits;
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

	require_fits("datacenter_id", parts->datacenter, layout->datacenter_bits);
	require_fits("worker_id", parts->worker, layout->worker_bits);
	require_fits("sequence", parts->sequence, layout->sequence_bits);
	return timestamp_field(layout, parts->unix_ms) |
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
				 errmsg("timestamp of key " INT64_FORMAT " is out of range", id)));
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
 * of the layout's range, or infinite.
 */
int64
layout_bound(const Layout *layout, TimestampTz ts, bool greatest)
{
	int64		unix_ms;

	if (TIMESTAMP_IS_NOBEGIN(ts))
		unix_ms = PG_INT64_MIN;
	else if (TIMESTAMP_IS_NOEND(ts))
		unix_ms = PG_INT64_MAX;
	else
		unix_ms = unix_ms_from_timestamptz(ts);
	(void) timestamp_field(layout, unix_ms);
	return layout_key_at(layout, unix_ms, greatest);
}
