/*
 * units.h
 *		The clock of the keys, in units of 1/2^sequence_bits ms since the epoch.
 *		A unit is a key without its pair: timestamp and sequence.
 */
#ifndef SNOWID_UNITS_H
#define SNOWID_UNITS_H

#include <time.h>

#include "settings.h"

#pragma GCC visibility push(hidden)

/* What follows from the settings of the layout, ready for the hot path. */
typedef struct UnitFormat
{
	int64		clock_mask;		/* leaves whole ms of a reading, or all of it */
	int64		sequence_mask;
	int64		time_mask;		/* the rest of a unit */
	int			pair_width;		/* of datacenter and worker, in bits */
} UnitFormat;

extern UnitFormat unit_format;

extern void units_init(void);

static inline int64
units_from_ms(int64 ms)
{
	return (int64) ((uint64) ms << server_layout.sequence_bits);
}

/* Rounded up. */
static inline int64
ms_from_units(int64 units)
{
	return (units + units_from_ms(1) - 1) >> server_layout.sequence_bits;
}

static inline int64
unix_ms_from_units(int64 units)
{
	return server_layout.epoch + (units >> server_layout.sequence_bits);
}

/*
 * A reading of the wall clock in units; negative before the epoch.  Nothing
 * overflows here or in a sum of two: see layout_unusable().
 */
static inline int64
units_from_timespec(const struct timespec *time)
{
	uint64		ms = (uint64) ((int64) time->tv_sec * 1000 - server_layout.epoch);
	uint64		ns = (uint64) time->tv_nsec;

	return (int64) ((ms << server_layout.sequence_bits) +
					(ns << server_layout.sequence_bits) / 1000000) &
		unit_format.clock_mask;
}

static inline int64
clock_units(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return units_from_timespec(&now);
}

static inline int64
key_from_unit(int64 unit, uint64 pair_bits)
{
	return (unit & unit_format.time_mask) << unit_format.pair_width |
		pair_bits | (unit & unit_format.sequence_mask);
}

#pragma GCC visibility pop

#endif							/* SNOWID_UNITS_H */
