/*
 * units.h
 *		Time in units of 1/2^sequence_bits ms since the epoch.  A unit is the
 *		timestamp and the sequence of a key, in one number.
 */
#ifndef SNOWID_UNITS_H
#define SNOWID_UNITS_H

#include <time.h>

#include "settings.h"

#pragma GCC visibility push(hidden)

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
 * A wall-clock time in units; negative before the epoch.  The sum of two of these
 * does not overflow: see layout_unusable().
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

/* Reads the wall clock. */
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
