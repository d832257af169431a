/*
 * keys.c
 *		The SQL functions that make keys.
 */
#include "postgres.h"

#include "funcapi.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"

#include "snowid.h"

PG_FUNCTION_INFO_V1(snowid_next);
PG_FUNCTION_INFO_V1(snowid_next_batch);
PG_FUNCTION_INFO_V1(snowid_next_batch_support);
PG_FUNCTION_INFO_V1(snowid_advance);

Datum
snowid_next(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(generator_next());
}

/* What a batch remembers from key to key. */
typedef struct Batch
{
	UnitBlock	block;
	int64		left;			/* keys beyond the block */
} Batch;

Datum
snowid_next_batch(PG_FUNCTION_ARGS)
{
	FuncCallContext *funcctx;
	Batch	   *batch;

	if (SRF_IS_FIRSTCALL())
	{
		int64		count = PG_GETARG_INT64(0);

		require_preloaded();
		if (count < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("count of keys must not be negative")));
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
	SRF_RETURN_NEXT(funcctx, Int64GetDatum(block_next(&batch->block)));
}

/* Tells the planner the number of rows: it is the argument. */
Datum
snowid_next_batch_support(PG_FUNCTION_ARGS)
{
	SupportRequestRows *request = (SupportRequestRows *) PG_GETARG_POINTER(0);

	if (IsA(request, SupportRequestRows) && is_funcclause(request->node))
	{
		List	   *args = ((FuncExpr *) request->node)->args;
		Node	   *count = estimate_expression_value(request->root,
													  linitial(args));

		if (IsA(count, Const) && !((Const *) count)->constisnull)
		{
			request->rows = Max(DatumGetInt64(((Const *) count)->constvalue), 0);
			PG_RETURN_POINTER(request);
		}
	}
	PG_RETURN_POINTER(NULL);
}

Datum
snowid_advance(PG_FUNCTION_ARGS)
{
	require_preloaded();
	generator_advance(PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}
