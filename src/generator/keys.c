/*
 * keys.c
 *		The SQL functions that make keys.
 *
 * Many keys come in blocks of consecutive units.  snowid_next_batch() returns
 * them one by one, snowid_next_array() as one array, and snowid_next_block()
 * only the first of a block within one millisecond.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "compat.h"
#include "generator/generator.h"
#include "generator/wait.h"
#include "guard.h"
#include "units.h"

PG_FUNCTION_INFO_V1(snowid_next);
PG_FUNCTION_INFO_V1(snowid_next_batch);
PG_FUNCTION_INFO_V1(snowid_next_batch_support);
PG_FUNCTION_INFO_V1(snowid_next_array);
PG_FUNCTION_INFO_V1(snowid_next_block);
PG_FUNCTION_INFO_V1(snowid_advance);

/* The most keys of one allocation, after an array's header. */
#define MAX_ARRAY_KEYS \
	((int64) ((MaxAllocSize - ARR_OVERHEAD_NONULLS(1)) / sizeof(int64)))

Datum
snowid_next(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(generator_next());
}

/* A batch, between two of its keys. */
typedef struct Batch
{
	UnitBlock	block;
	int64		left;			/* keys that are in no block yet */
} Batch;

/* The first argument: how many keys. */
static int64
wanted_keys(FunctionCallInfo fcinfo)
{
	int64		count = PG_GETARG_INT64(0);

	require_preloaded();
	if (count < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("count of keys must not be negative")));
	return count;
}

Datum
snowid_next_batch(PG_FUNCTION_ARGS)
{
	FuncCallContext *funcctx;
	Batch	   *batch;

	if (SRF_IS_FIRSTCALL())
	{
		int64		count = wanted_keys(fcinfo);

		funcctx = SRF_FIRSTCALL_INIT();
		batch = MemoryContextAlloc(funcctx->multi_call_memory_ctx,
								   sizeof(Batch));
		batch->block.next = 0;
		batch->block.end = -1;
		batch->left = count;
		funcctx->user_fctx = batch;
	}
	funcctx = SRF_PERCALL_SETUP();
	batch = funcctx->user_fctx;
	if (batch->block.next > batch->block.end)
	{
		if (batch->left == 0)
			SRF_RETURN_DONE(funcctx);
		generator_refill(&batch->block, batch->left);
		batch->left -= batch->block.end - batch->block.next + 1;
	}
	SRF_RETURN_NEXT(funcctx, Int64GetDatum(key_from_unit(batch->block.next++, batch->block.pair_bits)));
}

/* Tells the planner that the number of rows is the last argument. */
Datum
snowid_next_batch_support(PG_FUNCTION_ARGS)
{
	SupportRequestRows *request = (SupportRequestRows *) PG_GETARG_POINTER(0);

	if (IsA(request, SupportRequestRows) && is_funcclause(request->node))
	{
		List	   *args = ((FuncExpr *) request->node)->args;
		Node	   *count = estimate_expression_value(request->root,
													  llast(args));

		if (IsA(count, Const) && !((Const *) count)->constisnull)
		{
			request->rows = Max(DatumGetInt64(((Const *) count)->constvalue), 0);
			PG_RETURN_POINTER(request);
		}
	}
	PG_RETURN_POINTER(NULL);
}

Datum
snowid_next_array(PG_FUNCTION_ARGS)
{
	int64		left = wanted_keys(fcinfo);
	ArrayType  *array;
	int64	   *keys;
	Size		size;

	if (left == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(INT8OID));
	if (left > MAX_ARRAY_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("an array cannot hold " INT64_FORMAT " keys", left),
				 errdetail("It can hold " INT64_FORMAT ".", MAX_ARRAY_KEYS),
				 errhint("Use snowid_next_batch(), which needs no memory.")));

	/* first, so that no keys are lost if there is not enough memory */
	size = ARR_OVERHEAD_NONULLS(1) + left * sizeof(int64);
	array = palloc(size);
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->dataoffset = 0;
	array->elemtype = INT8OID;
	ARR_DIMS(array)[0] = (int) left;
	ARR_LBOUND(array)[0] = 1;
	keys = (int64 *) ARR_DATA_PTR(array);
	while (left > 0)
	{
		UnitBlock	block;

		/* a cancel is seen in its waits for the keeper */
		generator_refill(&block, left);
		left -= block.end - block.next + 1;
		keys = block_spill(&block, keys);
	}
	PG_RETURN_ARRAYTYPE_P(array);
}

Datum
snowid_next_block(PG_FUNCTION_ARGS)
{
	int64		count = PG_GETARG_INT64(0);

	require_preloaded();
	if (count < 1 || count > units_from_ms(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a block cannot have " INT64_FORMAT " keys", count),
				 errdetail("It has from 1 to " INT64_FORMAT ", the keys of one millisecond.",
						   units_from_ms(1))));
	PG_RETURN_INT64(generator_next_block(count));
}

Datum
snowid_advance(PG_FUNCTION_ARGS)
{
	require_preloaded();
	generator_advance(PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}
