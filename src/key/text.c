/*
 * text.c
 *		Keys as text, in base32 and base62, and the type snowid.
 *
 * Base32 is Douglas Crockford's (crockford.com/base32.html), as the TSID
 * libraries write 64-bit numbers: 13 digits without I, L, O, U.  It is read in
 * either case, with O as 0, I and L as 1, and hyphens are ignored.  Base62 has
 * its digits in the order of ASCII.  Both have a fixed width, so that under
 * COLLATE "C" the text sorts as the keys do.
 *
 * A value of the type is a bigint, and casts do not check it.  So a negative value,
 * which is no key, also has a text, for dumps: a minus and 19 decimal digits, which
 * differ from all digits of base32.  All is IMMUTABLE: it reads no setting and no
 * shared memory.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "common/int.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "key/layout.h"
#include "key/text.h"

PG_FUNCTION_INFO_V1(snowid_in);
PG_FUNCTION_INFO_V1(snowid_out);
PG_FUNCTION_INFO_V1(snowid_to_base32);
PG_FUNCTION_INFO_V1(snowid_from_base32);
PG_FUNCTION_INFO_V1(snowid_to_base62);
PG_FUNCTION_INFO_V1(snowid_from_base62);
PG_FUNCTION_INFO_V1(snowid_compare_support);

/* How many digits the text of a negative value has. */
#define NEGATIVE_DIGITS 19

/* How numbers are written; known to the compiler wherever it is used. */
typedef struct Notation
{
	unsigned int base;
	int			length;
	const char *digits;
	int			(*digit_of) (char c);
} Notation;

static inline int
digit_of_base62(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'Z')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 36;
	return NO_DIGIT;
}

static const Notation base32 = {
	32, 13, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", digit_of_base32
};
static const Notation base62 = {
	62, 11, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", digit_of_base62
};

static inline void
write_number(const Notation *n, char *buf, uint64 value)
{
	for (int i = n->length - 1; i >= 0; i--)
	{
		buf[i] = n->digits[value % n->base];
		value /= n->base;
	}
}

/* Reads a key.  Returns NULL, or the problem of the text. */
static inline const char *
read_number(const Notation *n, const char *str, int len, int64 *id)
{
	uint64		value = 0;
	int			digits = 0;
	bool		overflow = false;

	for (int i = 0; i < len; i++)
	{
		int			digit = n->digit_of(str[i]);

		if (digit == SKIPPED)
			continue;
		if (digit == NO_DIGIT)
			return psprintf("\"%.*s\" at position %d is not a digit of base %d.",
							Min(pg_mblen(str + i), len - i), str + i,
							pg_mbstrlen_with_len(str, i) + 1, n->base);
		digits++;
		overflow |= pg_mul_u64_overflow(value, n->base, &value) |
			pg_add_u64_overflow(value, digit, &value);
	}
	if (digits != n->length)
		return psprintf("It has %d digits instead of %d.", digits, n->length);
	if (overflow || value > PG_INT64_MAX)
		return "It is greater than the greatest key.";
	*id = (int64) value;
	return NULL;
}

/*---- The type ----*/

/* Reads a negative value as snowid_out() writes it; false: the text is another. */
static bool
read_negative(const char *str, int64 *value)
{
	if (str[0] != '-' || strspn(str + 1, "0123456789") != NEGATIVE_DIGITS ||
		str[1 + NEGATIVE_DIGITS] != '\0')
		return false;
	errno = 0;
	*value = strtoll(str, NULL, 10);
	return errno == 0 && *value < 0;
}

Datum
snowid_in(PG_FUNCTION_ARGS)
{
	char	   *str = PG_GETARG_CSTRING(0);
	int64		value = 0;
	const char *problem;

	if (unlikely(str[0] == '-') && read_negative(str, &value))
		PG_RETURN_INT64(value);
	problem = read_number(&base32, str, strlen(str), &value);
	if (problem)
		ereturn(fcinfo->context, (Datum) 0,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid input syntax for type %s: \"%s\"", "snowid",
						text_shown(str, strlen(str))),
				 errdetail("%s", problem)));
	PG_RETURN_INT64(value);
}

Datum
snowid_out(PG_FUNCTION_ARGS)
{
	int64		value = PG_GETARG_INT64(0);
	char	   *str;

	if (unlikely(value < 0))
		PG_RETURN_CSTRING(psprintf("-%0*llu", NEGATIVE_DIGITS,
								   (unsigned long long) -(uint64) value));
	str = palloc(base32.length + 1);
	write_number(&base32, str, (uint64) value);
	str[base32.length] = '\0';
	PG_RETURN_CSTRING(str);
}

/*---- Functions ----*/

static inline Datum
to_text(const Notation *n, int64 id)
{
	char		buf[64];

	if (id < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key must not be negative")));
	write_number(n, buf, (uint64) id);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf, n->length));
}

static inline Datum
from_text(const Notation *n, const text *str)
{
	int64		id = 0;
	const char *problem = read_number(n, VARDATA_ANY(str), VARSIZE_ANY_EXHDR(str), &id);

	if (problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid key in base %d: \"%s\"", n->base,
						text_shown(VARDATA_ANY(str), VARSIZE_ANY_EXHDR(str))),
				 errdetail("%s", problem)));
	PG_RETURN_INT64(id);
}

Datum
snowid_to_base32(PG_FUNCTION_ARGS)
{
	return to_text(&base32, PG_GETARG_INT64(0));
}

Datum
snowid_from_base32(PG_FUNCTION_ARGS)
{
	return from_text(&base32, PG_GETARG_TEXT_PP(0));
}

Datum
snowid_to_base62(PG_FUNCTION_ARGS)
{
	return to_text(&base62, PG_GETARG_INT64(0));
}

Datum
snowid_from_base62(PG_FUNCTION_ARGS)
{
	return from_text(&base62, PG_GETARG_TEXT_PP(0));
}

/*---- Comparisons of a snowid and a bigint, for the planner ----*/

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

/*
 * The operators of such comparisons belong to the families of the type snowid, so an
 * index of a snowid column can serve them.  This lets an index of a bigint column
 * serve them, too, through core's operator of the same meaning.
 */
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
