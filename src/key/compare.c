/*
 * compare.c
 *		Comparisons of a snowid and a bigint, for the planner.
 *
 * Their operators belong to the families of the type snowid, so an index of a
 * snowid column can serve them.  The support function here lets an index of a
 * bigint column serve them, too, through core's operator of the same meaning.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(snowid_compare_support);

/* Core's operator of bigint of this btree strategy, if the index has it; or 0. */
static Oid
operator_of_index(const SupportRequestIndexCondition *request, int strategy)
{
	Oid			opno;

	if (strategy == InvalidStrategy)
		return InvalidOid;
	if (request->indexarg == 1)
		strategy = BTCommuteStrategyNumber(strategy);
	opno = get_opfamily_member(INTEGER_BTREE_FAM_OID, INT8OID, INT8OID, strategy);
	return op_in_opfamily(opno, request->opfamily) ? opno : InvalidOid;
}

Datum
snowid_compare_support(PG_FUNCTION_ARGS)
{
	SupportRequestIndexCondition *request =
	(SupportRequestIndexCondition *) PG_GETARG_POINTER(0);
	OpExpr	   *clause;
	Expr	   *column;
	Node	   *value;
	Oid			family;
	Oid			opno;

	if (!IsA(request, SupportRequestIndexCondition) || !IsA(request->node, OpExpr))
		PG_RETURN_POINTER(NULL);
	clause = (OpExpr *) request->node;
	column = list_nth(clause->args, request->indexarg);
	value = list_nth(clause->args, 1 - request->indexarg);
	if (exprType((Node *) column) != INT8OID ||
		!is_pseudo_constant_for_index(request->root, value, request->index))
		PG_RETURN_POINTER(NULL);
	family = lookup_type_cache(exprType(value), TYPECACHE_BTREE_OPFAMILY)->btree_opf;
	opno = operator_of_index(request, get_op_opfamily_strategy(clause->opno, family));
	if (!OidIsValid(opno))
		PG_RETURN_POINTER(NULL);
	value = applyRelabelType(value, INT8OID, -1, InvalidOid, COERCE_IMPLICIT_CAST,
							 -1, false);
	request->lossy = false;
	PG_RETURN_POINTER(list_make1(make_opclause(opno, BOOLOID, false, column,
											   (Expr *) value, InvalidOid,
											   InvalidOid)));
}
