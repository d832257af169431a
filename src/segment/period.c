/*
 * period.c
 *		Days, months and years of a time zone, each of which has numbers from 1; and
 *		serials, which are a period and a number as text.
 *
 * A period's label is the date of its first day.  The label counts and not how long the
 * day is: a named zone has days of 23 and 25 hours.
 *
 * A format is plain characters and fields in braces: {YYYY}, {MM} and {DD}, which
 * may share a pair of braces, and {N:digits}.  It has those fields once each that
 * tell one period from another, and its fields have fixed widths: so no two
 * numbers of a tag have one serial, and a serial can be read.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "segment/period.h"

/* The parts of a format. */
typedef enum FormatField
{
	FIELD_YEAR,
	FIELD_MONTH,
	FIELD_DAY,
	FIELD_NUMBER,
	FIELD_CHARACTER,
	FIELD_END,
	FIELD_BAD
} FormatField;

static const char *const kind_names[] = {"none", "day", "month", "year"};

const char *
period_name(PeriodKind kind)
{
	return kind_names[kind];
}

/* False: there is no such period. */
bool
period_kind(const char *name, PeriodKind *kind)
{
	for (int i = 0; i < lengthof(kind_names); i++)
	{
		*kind = (PeriodKind) i;
		if (strcmp(name, kind_names[i]) == 0)
			return true;
	}
	return false;
}

/*---- Periods ----*/

static DateADT
first_day(PeriodKind kind, int year, int month, int day)
{
	return date2j(year, kind == PERIOD_YEAR ? 1 : month, kind == PERIOD_DAY ? day : 1) -
		POSTGRES_EPOCH_JDATE;
}

/* The label of the period that this time is in. */
static DateADT
label_at(PeriodKind kind, TimestampTz at, pg_tz *zone)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;

	if (timestamp2tm(at, &tz, &tm, &fsec, NULL, zone) != 0)
		elog(ERROR, "timestamp out of range");
	return first_day(kind, tm.tm_year, tm.tm_mon, tm.tm_mday);
}

/* The period of this time, or the newest one, if that is later; LAST_PERIOD at most. */
Period
period_at(PeriodKind kind, TimestampTz now, pg_tz *zone, DateADT newest)
{
	Period		period = {.label = label_at(kind, now, zone)};
	TimestampTz low = now - now % USECS_PER_SEC;
	TimestampTz high;
	int			year,
				month,
				day;

	if (newest != NO_PERIOD)
	{
		j2date(newest + POSTGRES_EPOCH_JDATE, &year, &month, &day);
		period.label = Max(period.label, first_day(kind, year, month, day));
	}

	/* zones change at whole seconds; none is more than a week from UTC */
	high = (period.label + (kind == PERIOD_DAY ? 9 : kind == PERIOD_MONTH ? 39 : 374)) *
		USECS_PER_DAY;
	while (high - low > USECS_PER_SEC)
	{
		TimestampTz middle = low + (high - low) / USECS_PER_SEC / 2 * USECS_PER_SEC;

		if (label_at(kind, middle, zone) > period.label)
			high = middle;
		else
			low = middle;
	}
	period.until = high;
	return period;
}

/*---- Serials ----*/

/* The field at *p, and how wide it is written; moves *p past it. */
static FormatField
next_field(const char **p, bool *in_braces, int *width)
{
	static const struct
	{
		const char *name;
		int			width;
	}			dates[] = {{"YYYY", 4}, {"MM", 2}, {"DD", 2}};
	const char *at = *p;

	if (*in_braces && *at == '}')
	{
		*in_braces = false;
		at++;
	}
	if (!*in_braces && *at == '{')
	{
		int			len = 0;

		at++;
		/* without the brace *p stays before the colon, which is no character */
		if (sscanf(at, "N:%2d}%n", width, &len) == 1 && at[2] >= '0')
		{
			*p = at + len;
			return *width >= 1 && *width <= NUMBER_DIGITS ? FIELD_NUMBER : FIELD_BAD;
		}
		*in_braces = true;
	}
	if (*in_braces)
	{
		for (int i = 0; i < lengthof(dates); i++)
		{
			if (strncmp(at, dates[i].name, dates[i].width) == 0)
			{
				*p = at + dates[i].width;
				*width = dates[i].width;
				return (FormatField) i;
			}
		}
		return FIELD_BAD;
	}
	*p = at + 1;
	*width = 1;
	if (*at == '\0')
		return FIELD_END;
	return (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'Z') ||
		(*at >= 'a' && *at <= 'z') || strchr("-/_", *at) ? FIELD_CHARACTER : FIELD_BAD;
}

/* NULL, or what is wrong with a format; and the greatest number that it has room for. */
const char *
period_check_format(PeriodKind kind, const char *format, int64 *last)
{
	int			n[FIELD_BAD + 1] = {0};
	FormatField field;
	bool		in_braces = false;
	int			width;

	*last = 0;
	if (kind == PERIOD_NONE)
		return "A tag without periods has no format";
	if (strlen(format) > FORMAT_LEN)
		return psprintf("Its format has more than %d bytes", FORMAT_LEN);
	do
	{
		field = next_field(&format, &in_braces, &width);
		n[field]++;
		for (int i = 0; field == FIELD_NUMBER && n[field] == 1 && i < width; i++)
			*last = 10 * *last + 9;
	} while (field < FIELD_END);
	if (field == FIELD_BAD)
		return "Its format must consist of digits, letters, -, /, _, and fields: {YYYY}, {MM}, {DD} or several of them, and {N:6} with 1 to 18 digits";
	if (n[FIELD_NUMBER] != 1 || n[FIELD_YEAR] != 1 ||
		n[FIELD_MONTH] != (kind != PERIOD_YEAR) || n[FIELD_DAY] != (kind == PERIOD_DAY))
		return psprintf("Its format must have these fields, once each: %s{N:6}",
						kind == PERIOD_DAY ? "{YYYYMMDD}" :
						kind == PERIOD_MONTH ? "{YYYYMM}" : "{YYYY}");
	return NULL;
}

/* Writes a serial into PERIOD_SERIAL_LEN bytes; the number has room in it. */
void
period_write(const char *format, DateADT label, int64 number, char *buf)
{
	bool		in_braces = false;
	int			parts[FIELD_NUMBER];

	j2date(label + POSTGRES_EPOCH_JDATE, &parts[FIELD_YEAR], &parts[FIELD_MONTH],
		   &parts[FIELD_DAY]);
	for (;;)
	{
		int			width;
		FormatField field = next_field(&format, &in_braces, &width);

		if (field == FIELD_CHARACTER)
			*buf++ = format[-1];
		else if (field < FIELD_CHARACTER)
			buf += sprintf(buf, "%0*lld", width,
						   (long long) (field == FIELD_NUMBER ? number : parts[field]));
		else
			break;
	}
	*buf = '\0';
}

/* Reads a serial.  NULL, or what is wrong with it. */
const char *
period_read(const char *format, const char *serial, DateADT *label, int64 *number)
{
	static const char *const malformed = "It is not of the tag's format \"%s\".";
	const char *f = format;
	const char *s = serial;
	bool		in_braces = false;
	int64		values[] = {[FIELD_YEAR] = 0,[FIELD_MONTH] = 1,[FIELD_DAY] = 1,[FIELD_NUMBER] = 0};
	FormatField field;

	do
	{
		int			width;
		int64		value = 0;

		field = next_field(&f, &in_braces, &width);
		if (field == FIELD_CHARACTER && *s++ != f[-1])
			return psprintf(malformed, format);
		if (field >= FIELD_CHARACTER)
			continue;
		for (int i = 0; i < width; i++, s++)
		{
			if (*s < '0' || *s > '9')
				return psprintf(malformed, format);
			value = value * 10 + *s - '0';
		}
		values[field] = value;
	} while (field < FIELD_END);
	if (*s != '\0')
		return psprintf(malformed, format);
	if (values[FIELD_YEAR] < 1 || values[FIELD_MONTH] < 1 || values[FIELD_MONTH] > 12 ||
		values[FIELD_DAY] < 1 ||
		values[FIELD_DAY] > day_tab[isleap(values[FIELD_YEAR])][values[FIELD_MONTH] - 1])
		return "There is no such day.";
	if (values[FIELD_NUMBER] < 1)
		return "Numbers start at 1.";
	*label = date2j(values[FIELD_YEAR], values[FIELD_MONTH], values[FIELD_DAY]) -
		POSTGRES_EPOCH_JDATE;
	*number = values[FIELD_NUMBER];
	return NULL;
}
