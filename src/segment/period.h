/*
 * period.h
 *		Days, months and years of a time zone, each of which has numbers from 1; and
 *		serials, which are a period and a number as text.
 */
#ifndef SNOWID_SEGMENT_PERIOD_H
#define SNOWID_SEGMENT_PERIOD_H

#include "pgtime.h"
#include "utils/date.h"
#include "utils/datetime.h"

/* The label of what is in no period; below all others. */
#define NO_PERIOD DATEVAL_NOBEGIN

/* Serials have years of four digits. */
#define LAST_PERIOD (date2j(9999, 12, 31) - POSTGRES_EPOCH_JDATE)

#define FORMAT_LEN 64			/* bytes */
#define NUMBER_DIGITS 18

/* Each field of a format is shorter than what it stands for by that at most. */
#define PERIOD_SERIAL_LEN (FORMAT_LEN + NUMBER_DIGITS + 1)

typedef enum PeriodKind
{
	PERIOD_NONE,
	PERIOD_DAY,
	PERIOD_MONTH,
	PERIOD_YEAR
} PeriodKind;

typedef struct Period
{
	DateADT		label;			/* its first day */
	TimestampTz until;			/* when the next one begins */
} Period;

extern const char *period_name(PeriodKind kind);
extern bool period_kind(const char *name, PeriodKind *kind);
extern Period period_at(PeriodKind kind, TimestampTz now, pg_tz *zone, DateADT newest);
extern const char *period_check_format(PeriodKind kind, const char *format, int64 *last);
extern void period_write(const char *format, DateADT label, int64 number, char *buf);
extern const char *period_read(const char *format, const char *serial,
							   DateADT *label, int64 *number);

#endif							/* SNOWID_SEGMENT_PERIOD_H */
