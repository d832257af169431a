/*
 * layout_text.c
 *		Layouts as text: named ones, and ones that are spelled out.
 *
 * Depends on its arguments only, so that its callers can be IMMUTABLE.
 */
#include "postgres.h"

#include <ctype.h>

#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "key/layout_text.h"
#include "key/text.h"

#define MAX_WIDTH 31

/* 0001-01-01 and the end of 9999, in Unix ms */
#define FIRST_EPOCH_MS INT64CONST(-62135596800000)
#define LAST_EPOCH_MS INT64CONST(253402300799999)

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

/* The i-th named layout and its name; NULL past the last. */
const char *
layout_named(int i, Layout *layout)
{
	if (i >= lengthof(named_layouts))
		return NULL;
	*layout = named_layouts[i].layout;
	return named_layouts[i].name;
}

/*---- Reading ----*/

/* Reads exactly n digits at *p and moves *p past them; -1: there are fewer. */
static int
digits(const char **p, int n)
{
	int			value = 0;

	for (; n > 0; n--, (*p)++)
	{
		if (!isdigit((unsigned char) **p))
			return -1;
		value = value * 10 + (**p - '0');
	}
	return value;
}

/* Moves *p past the character c; false: there is another one. */
static bool
literal(const char **p, char c)
{
	if (**p != c)
		return false;
	(*p)++;
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
	const char *p = str;
	int			year,
				month,
				day,
				hour,
				minute,
				second,
				check_year,
				check_month,
				check_day,
				ms = 0,
				zone = 0;

	if ((year = digits(&p, 4)) < 0 || !literal(&p, '-') ||
		(month = digits(&p, 2)) < 0 || !literal(&p, '-') ||
		(day = digits(&p, 2)) < 0 || !(literal(&p, 'T') || literal(&p, ' ')) ||
		(hour = digits(&p, 2)) < 0 || !literal(&p, ':') ||
		(minute = digits(&p, 2)) < 0 || !literal(&p, ':') ||
		(second = digits(&p, 2)) < 0)
		return not_a_time;
	if (literal(&p, '.'))
	{
		int			scale = 100;

		if (!isdigit((unsigned char) *p))
			return not_a_time;
		for (; isdigit((unsigned char) *p) && scale > 0; p++, scale /= 10)
			ms += (*p - '0') * scale;
	}
	if (!literal(&p, 'Z'))
	{
		int			sign = *p == '-' ? -1 : 1;
		int			zone_hour,
					zone_minute = 0;

		if (!(literal(&p, '+') || literal(&p, '-')) ||
			(zone_hour = digits(&p, 2)) < 0)
			return not_a_time;
		if (*p && (literal(&p, ':'), (zone_minute = digits(&p, 2)) < 0))
			return not_a_time;
		if (zone_hour > 15 || zone_minute > 59)
			return not_a_time;
		zone = sign * (zone_hour * 60 + zone_minute);
	}
	if (*p || year < 1 || month < 1 || month > 12 || day < 1 ||
		hour > 23 || minute > 59 || second > 59)
		return not_a_time;
	j2date(date2j(year, month, day), &check_year, &check_month, &check_day);
	if (check_month != month || check_day != day)
		return not_a_time;

	minute += 60 * hour - zone;
	*unix_ms = (date2j(year, month, day) - UNIX_EPOCH_JDATE) * INT64CONST(86400000) +
		minute * INT64CONST(60000) + second * 1000 + ms;
	if (*unix_ms < FIRST_EPOCH_MS || *unix_ms > LAST_EPOCH_MS)
		return "not in the years from 0001 to 9999 (UTC)";
	return NULL;
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
	char	   *rest = pstrdup(str);
	char	   *word;
	bool		has_epoch = false;
	Layout		named;
	const char *name;
	struct
	{
		const char *key;
		int		   *width;
		bool		seen;
	}			fields[] =
	{
		{"datacenter=", &layout->datacenter_bits, false},
		{"worker=", &layout->worker_bits, false},
		{"sequence=", &layout->sequence_bits, false}
	};

	for (int i = 0; (name = layout_named(i, &named)) != NULL; i++)
	{
		if (pg_strcasecmp(str, name) == 0)
		{
			*layout = named;
			return NULL;
		}
	}

	memset(layout, 0, sizeof(Layout));
	layout->tick = 1;
	while ((word = strsep(&rest, " \t\n")) != NULL)
	{
		const char *problem = "neither a named layout nor epoch=, datacenter=, worker= or sequence=";

		if (*word == '\0')
			continue;
		if (strncmp(word, "epoch=", 6) == 0)
		{
			problem = has_epoch ? "given twice" :
				layout_read_epoch(word + 6, &layout->epoch);
			has_epoch = true;
		}
		for (int i = 0; i < lengthof(fields); i++)
		{
			size_t		len = strlen(fields[i].key);
			char	   *end;
			long		width;

			if (strncmp(word, fields[i].key, len) != 0)
				continue;
			width = isdigit((unsigned char) word[len]) ?
				strtol(word + len, &end, 10) : -1;
			if (fields[i].seen)
				problem = "given twice";
			else if (width < 0 || width > MAX_WIDTH || *end)
				problem = "not a width from 0 to 31 bits";
			else
				problem = NULL;
			*fields[i].width = (int) width;
			fields[i].seen = true;
		}
		if (problem)
			return psprintf("\"%s\" is %s.", text_shown(word, strlen(word)), problem);
	}
	if (!has_epoch)
		return "The epoch is missing.";
	if (layout_timestamp_bits(layout) < 1)
		return "The widths leave no bit of 63 for the timestamp.";
	return NULL;
}

/* Reads a layout for an SQL function: throws if it is not one. */
void
layout_parse(text *spec, Layout *layout)
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

/*---- Writing ----*/

/* Writes a layout so that layout_read() can read it. */
void
layout_describe(const Layout *layout, char *buf)
{
	int64		days = layout->epoch / 86400000;
	int64		ms = layout->epoch % 86400000;
	int			year,
				month,
				day;

	if (ms < 0)
	{
		ms += 86400000;
		days--;
	}
	j2date((int) days + UNIX_EPOCH_JDATE, &year, &month, &day);
	snprintf(buf, LAYOUT_TEXT_LEN,
			 "epoch=%04d-%02d-%02dT%02d:%02d:%02d.%03dZ datacenter=%d worker=%d sequence=%d",
			 year, month, day, (int) (ms / 3600000), (int) (ms / 60000 % 60),
			 (int) (ms / 1000 % 60), (int) (ms % 1000),
			 layout->datacenter_bits, layout->worker_bits,
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
