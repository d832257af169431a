/*
 * generator.c
 *		The hot path: one generator of keys for the whole server, and the SQL
 *		functions that make keys.
 *
 * The generator hands out units of 1/2^sequence_bits ms since the epoch: a
 * unit is the timestamp and the sequence of a key.  The rule is
 *
 *		next = Max(last + 1, now)
 *
 * (get_real_time_ns_ascending() of PostgreSQL 18's uuidv7; RFC 9562 section
 * 6.2, method 3).  Invariants:
 *
 * - "last", the highest unit ever taken, only rises.  So units strictly
 *	 increase in the order in which they are taken, in all sessions.
 * - No unit above "usable_until" is taken.  Only the snowid keeper raises it,
 *	 once the new value is durable.  So neither a refused caller nor a wrong
 *	 reading of the clock can move "last" far away.
 * - A unit is due when its millisecond leads the clock by at most
 *	 snowid.max_lead.  A caller takes a unit first and then sleeps until it is
 *	 due: first come, first served.  A unit that is due later than
 *	 snowid.max_wait allows is not taken; the caller gets an error.
 * - The gate is closed by exchanging a sentinel above all units into "last".
 *	 The pair changes only while the gate is closed, and every opening has a
 *	 number: a unit is thrown away if its pair was read under another opening
 *	 than the unit was taken under, or if the opening is over before it is due.
 *
 * wait.c has waits and refusals, gate.c the keeper's side, state.h the shared
 * state.  test/memory/generator.pml is a model of it, for all interleavings.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "generator/state.h"
#include "generator/wait.h"
#include "units.h"

PG_FUNCTION_INFO_V1(snowid_next);
PG_FUNCTION_INFO_V1(snowid_next_support);
PG_FUNCTION_INFO_V1(snowid_next_batch);
PG_FUNCTION_INFO_V1(snowid_next_batch_support);
PG_FUNCTION_INFO_V1(snowid_next_array);
PG_FUNCTION_INFO_V1(snowid_next_block);

/* A block of a batch spans at most this, so that other callers wait briefly. */
#define BLOCK_MS 16

/* The most keys of one allocation, after an array's header. */
#define MAX_ARRAY_KEYS \
	((int64) ((MaxAllocSize - ARR_OVERHEAD_NONULLS(1)) / sizeof(int64)))

/* Consecutive units that belong to the caller. */
typedef struct UnitBlock
{
	int64		next;			/* the next unit to hand out */
	int64		end;			/* the last one; next > end: used up */
	uint64		pair_bits;		/* the pair, shifted into position */
} UnitBlock;

Counters   *my_counters = NULL;

/*---- One key ----*/

/*
 * Takes "least" consecutive units, or up to "most" if lead and ceiling allow,
 * and waits until they are due.  If least > 1, they are of one ms.
 */
static UnitBlock
take(int64 least, int64 most)
{
	Generator  *g = generator;
	int64		now = clock_units();
	instr_time	since;
	UnitBlock	block;
	bool		ahead = false;

	INSTR_TIME_SET_ZERO(since);
	if (unlikely(my_counters == NULL))
		begin_to_count();
	for (;;)
	{
		uint64		opening = g->opening;
		uint64		last;
		int64		usable;
		int64		reach;

		pg_read_barrier();
		last = pg_atomic_read_u64(&g->last);
		usable = (int64) pg_atomic_read_u64(&g->usable_until);
		reach = Min((now + units_from_ms(snowid_max_lead)) | unit_format.sequence_mask,
					usable);
		block.next = block.end = Max((int64) last + 1, now);
		if (last != GATE_CLOSED)
		{
			/* too few are left of this ms: take the next one, and leave a gap */
			if ((block.next & unit_format.sequence_mask) + least > units_from_ms(1))
				block.next = (block.next | unit_format.sequence_mask) + 1;
			block.end = block.next + least - 1;
		}
		if (likely(block.end <= reach))
			block.end += Min(most - least, reach - block.end);
		else
		{
			if (!may_take_ahead((int64) last, now, block.end, &since))
			{
				now = clock_units();
				continue;
			}
			ahead = true;

			/*
			 * All units of a ms are due together.  The first caller to wait
			 * for the next ms may take all of it.  Later callers take no more
			 * than they must, or batches would queue far ahead.
			 */
			if (block.next <= reach + units_from_ms(1))
				block.end = Max(block.end,
								Min(Min(block.next | unit_format.sequence_mask, usable),
									block.next + most - 1));
		}
		block.pair_bits = g->pair_bits;
		if (unlikely(!pg_atomic_compare_exchange_u64(&g->last, &last, block.end)) ||
			unlikely(g->opening != opening))
			continue;
		if (unlikely(block.end > (int64) pg_atomic_read_u64(&g->ask_above)))
			ask_for_grant();
		if (likely(!ahead) || wait_until_due(block.next, opening, &since))
			break;
		ahead = false;
		now = clock_units();
	}
	if (unlikely(!INSTR_TIME_IS_ZERO(since)))
		count_wait(since);
	count(&my_counters->keys, block.end - block.next + 1);
	return block;
}

static pg_noinline int64
next_in_turn(void)
{
	UnitBlock	block;

	require_preloaded();
	block = take(1, 1);
	return key_from_unit(block.next, block.pair_bits);
}

/*
 * The next key of this server.  Throws if none can be made within max_wait.
 * This is the whole hot path: take(1, 1) in one step, if the caller need not
 * wait.
 */
static inline int64
generator_next(void)
{
	Generator  *g = generator;
	int64		now;
	int64		reach;
	int64		unit;
	uint64		opening;
	uint64		last;
	uint64		pair_bits;

	if (unlikely(my_counters == NULL))
		return next_in_turn();

	now = clock_units();
	reach = (now + units_from_ms(snowid_max_lead)) | unit_format.sequence_mask;
	opening = g->opening;
	pg_read_barrier();
	last = pg_atomic_read_u64(&g->last);
	unit = Max((int64) last + 1, now);
	pair_bits = g->pair_bits;
	if (unlikely(unit > reach) ||
		unlikely(unit > (int64) pg_atomic_read_u64(&g->usable_until)) ||
		unlikely(unit > (int64) pg_atomic_read_u64(&g->ask_above)) ||
		unlikely(!pg_atomic_compare_exchange_u64(&g->last, &last, unit)) ||
		unlikely(g->opening != opening))
		return next_in_turn();
	count(&my_counters->keys, 1);
	return key_from_unit(unit, pair_bits);
}

Datum
snowid_next(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(generator_next());
}

/*---- COPY ----*/

static AclResult
may_execute(Oid function)
{
	return object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
}

/*
 * The support function of snowid_next(), for COPY.  BeginCopyFrom() lets a table
 * take many rows at a time only if contain_volatile_functions_not_nextval() finds
 * nothing in the defaults.  So snowid_next() becomes
 *
 *		COALESCE(snowid_next_support(its OID), NextValueExpr)
 *
 * of which the first part is STABLE, and makes a key whenever it is evaluated.  It
 * is never null, so the second part, of no sequence, is never evaluated.  It is
 * there for contain_volatile_functions() and contain_mutable_functions(): they
 * find it, and so ADD COLUMN still rewrites the table, and indexes, generated
 * columns and partition keys still refuse the expression.
 *
 * Only expression_planner() and others that call eval_const_expressions() without
 * a PlannerInfo get this answer.  Their callers evaluate the expression for each
 * row, or once.  The planner of queries does have a PlannerInfo; it may evaluate a
 * STABLE function once for many rows (index conditions), or to estimate.
 */
static Node *
next_for_each_row(Oid support, SupportRequestSimplify *request)
{
	Oid			next = request->fcall->funcid;
	NextValueExpr *never;
	CoalesceExpr *key;

	/* nobody has read what later majors do with this */
	if (PG_VERSION_NUM >= 200000 || request->root != NULL)
		return NULL;
	/* the executor asks for both rights, too */
	if (may_execute(next) != ACLCHECK_OK || may_execute(support) != ACLCHECK_OK)
		return NULL;
	never = makeNode(NextValueExpr);
	never->typeId = INT8OID;
	key = makeNode(CoalesceExpr);
	key->coalescetype = INT8OID;
	key->args = list_make2(makeFuncExpr(support, INT8OID,
										list_make1(makeConst(INTERNALOID, -1, InvalidOid, sizeof(Datum),
															 ObjectIdGetDatum(next), false, true)),
										InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL),
						   never);
	key->location = -1;
	return (Node *) key;
}

/*
 * Called by the planner, without an expression; and by the executor in the
 * expression above, whose result is a bigint.  Nobody else can call it: there are no
 * values of the type internal.
 */
Datum
snowid_next_support(PG_FUNCTION_ARGS)
{
	FmgrInfo   *call = fcinfo->flinfo;
	Node	   *request;

	if (call->fn_expr != NULL && exprType(call->fn_expr) == INT8OID)
	{
		/* a domain's CHECK may have been planned for another role */
		if (unlikely(call->fn_extra == NULL))
		{
			Oid			next = PG_GETARG_OID(0);
			AclResult	right = may_execute(next);

			if (right != ACLCHECK_OK)
				aclcheck_error(right, OBJECT_FUNCTION, get_func_name(next));
			call->fn_extra = call;
		}
		PG_RETURN_INT64(generator_next());
	}
	request = (Node *) PG_GETARG_POINTER(0);
	PG_RETURN_POINTER(IsA(request, SupportRequestSimplify) ?
					  next_for_each_row(call->fn_oid, (SupportRequestSimplify *) request) : NULL);
}

/*---- Many keys: blocks of consecutive units ----*/

/* A batch, between two of its keys. */
typedef struct Batch
{
	UnitBlock	block;
	int64		left;			/* keys that are in no block yet */
} Batch;

/* Up to "wanted" units, but at most BLOCK_MS. */
static UnitBlock
take_block(int64 wanted)
{
	return take(1, Min(wanted, units_from_ms(BLOCK_MS)));
}

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
		batch->block = take_block(batch->left);
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
			request->rows = DatumGetInt64(((Const *) count)->constvalue);
			PG_RETURN_POINTER(request);
		}
	}
	PG_RETURN_POINTER(NULL);
}

/*
 * Writes all keys of a block, and returns the address after them; does not throw.  Keys
 * of one ms are consecutive integers.
 */
static int64 *
write_keys(const UnitBlock *block, int64 *keys)
{
	int64		unit = block->next;

	while (unit <= block->end)
	{
		int64		last = Min(unit | unit_format.sequence_mask, block->end);
		uint64		key = key_from_unit(unit, block->pair_bits);

		/* after the greatest possible key this does not overflow */
		for (; unit <= last; unit++)
			*keys++ = (int64) key++;
	}
	return keys;
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
		/* a cancel is seen in its waits for the keeper */
		UnitBlock	block = take_block(left);

		left -= block.end - block.next + 1;
		keys = write_keys(&block, keys);
	}
	PG_RETURN_ARRAYTYPE_P(array);
}

/* The first of so many keys that are consecutive integers: of one ms. */
Datum
snowid_next_block(PG_FUNCTION_ARGS)
{
	int64		count = PG_GETARG_INT64(0);
	UnitBlock	block;

	require_preloaded();
	if (count < 1 || count > units_from_ms(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a block cannot have " INT64_FORMAT " keys", count),
				 errdetail("It has from 1 to " INT64_FORMAT ", the keys of one millisecond.",
						   units_from_ms(1))));
	block = take(count, count);
	PG_RETURN_INT64(key_from_unit(block.next, block.pair_bits));
}
