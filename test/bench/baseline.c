/*
 * baseline.c
 *		What snowid_next() is compared with: the least that a function of its
 *		shape can cost.
 *
 * Built and loaded by test/bench/run alone; never installed with the
 * extension.
 */
#include "postgres.h"

#include <time.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_nothing);
PG_FUNCTION_INFO_V1(bench_clock);

/* Does nothing. */
Datum
bench_nothing(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(1);
}

/* Reads the clock, in ns. */
Datum
bench_clock(PG_FUNCTION_ARGS)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	PG_RETURN_INT64((int64) now.tv_sec * 1000000000 + now.tv_nsec);
}
