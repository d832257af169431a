/*
 * layout.h
 *		The fields of a key: arithmetic, layouts as text, and the layout that a call
 *		of an SQL function uses.
 */
#ifndef SNOWID_KEY_LAYOUT_H
#define SNOWID_KEY_LAYOUT_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/date.h"

/* Longest text of a layout that layout_describe() writes, with its NUL. */
#define LAYOUT_TEXT_LEN 128

#define LAYOUT_HINT \
	"A layout is a name that snowid_layouts() lists, or spelled out, for instance \"epoch=2020-01-01T00:00:00Z datacenter=5 worker=5 sequence=12\"."

/*
 * From the sign bit down: 0, timestamp, datacenter, worker, sequence.  The
 * timestamp has the rest of the 63 bits.
 */
typedef struct Layout
{
	int64		epoch;			/* Unix ms at timestamp 0 */
	int			tick;			/* ms in a step of the timestamp */
	int			datacenter_bits;	/* 0: there is no such field */
	int			worker_bits;
	int			sequence_bits;
	bool		sequence_above; /* Sonyflake: sequence above worker */
} Layout;

/* The fields that say which server made a key. */
typedef struct PairId
{
	int32		datacenter;
	int32		worker;
} PairId;

/* The fields of a key. */
typedef struct Parts
{
	int64		unix_ms;
	int			datacenter;
	int			worker;
	int			sequence;
} Parts;

static inline bool
same_pair(PairId a, PairId b)
{
	return a.datacenter == b.datacenter && a.worker == b.worker;
}

extern const char *layout_unusable(const Layout *layout);
extern bool layout_equal(const Layout *a, const Layout *b);
extern int	layout_timestamp_bits(const Layout *layout);
extern int64 layout_last_ms(const Layout *layout);
extern DateADT layout_last_day(const Layout *layout);
extern bool layout_ends_soon(const Layout *layout, int64 unix_ms);
extern int64 layout_pack(const Layout *layout, const Parts *parts);
extern void layout_unpack(const Layout *layout, int64 id, Parts *parts);
extern int64 layout_key_at(const Layout *layout, int64 unix_ms, bool greatest);
extern int64 layout_bound(const Layout *layout, TimestampTz ts, bool greatest);
extern int64 unix_ms_from_timestamptz(TimestampTz ts);
extern TimestampTz timestamptz_from_unix_ms(int64 unix_ms);
extern bool unix_ms_has_year(int64 unix_ms);
extern const char *layout_read_epoch(const char *str, int64 *unix_ms);
extern const char *layout_read(const char *str, Layout *layout);
extern void layout_describe(const Layout *layout, char *buf);
extern char *layout_difference(const Layout *ours, const Layout *theirs);
extern const char *not_a_digit(const char *str, int len, int at, int base);
extern char *text_shown(const char *str, int len);

/*
 * Returns the server's layout, or throws if it is refused; set when the library
 * is preloaded.  "first": it is the call site's first call.
 */
extern const Layout *(*decode_server_layout) (bool first);

extern const Layout *layout_of_call(FunctionCallInfo fcinfo, int layout_arg);

#endif							/* SNOWID_KEY_LAYOUT_H */
