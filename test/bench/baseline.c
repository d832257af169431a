/*
 * baseline.c
 *		What snowid_next() is compared with: the least that a function of its
 *		shape can cost.  And what SQL cannot measure.
 *
 * Built and loaded by test/bench/run alone; never installed with the
 * extension.
 */
#include "postgres.h"

#include <time.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_nothing);
PG_FUNCTION_INFO_V1(bench_clock);
PG_FUNCTION_INFO_V1(bench_call);

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

static int64
monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000000000 + now.tv_nsec;
}

/*
 * What a call of a function costs, in ns on average of n: called with a bigint,
 * or without an argument.  What it allocates is freed after each tenth.
 */
Datum
bench_call(PG_FUNCTION_ARGS)
{
	int32		n = PG_GETARG_INT32(2);
	FmgrInfo	function;
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "bench_call",
												 ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	int64		start;
	int64		end;

	fmgr_info_cxt(PG_GETARG_OID(0), &function, caller);
	start = monotonic_ns();
	for (int i = 0; i < n; i++)
	{
		LOCAL_FCINFO(call, 1);

		InitFunctionCallInfoData(*call, &function, function.fn_nargs, InvalidOid,
								 NULL, NULL);
		call->args[0].value = PG_GETARG_DATUM(1);
		call->args[0].isnull = false;
		(void) FunctionCallInvoke(call);
		if (i % 10 == 9)
			MemoryContextReset(memory);
	}
	end = monotonic_ns();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	PG_RETURN_FLOAT8((double) (end - start) / n);
}
