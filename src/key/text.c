/*
 * text.c
 *		Keys as text, in base32 and base62, and the type snowid.
 *
 * Base32 is Douglas Crockford's (crockford.com/base32.html), as the TSID
 * libraries write a 64-bit number: 13 digits, no I, L, O, U; read in either
 * case, O as 0, I and L as 1, hyphens left out.  Base62 has the digits in the
 * order of ASCII.  Both have a fixed width, so that under COLLATE "C" text sorts
 * as keys do.
 *
 * A value of the type is a bigint.  Nothing looks at it on its way in from
 * there, so all 64 bits are written and read; the functions take keys only.
 * Reads no setting and no shared memory: all is IMMUTABLE.
 */
#include "postgres.h"

#include "common/int.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(snowid_in);
PG_FUNCTION_INFO_V1(snowid_out);
PG_FUNCTION_INFO_V1(snowid_to_base32);
PG_FUNCTION_INFO_V1(snowid_from_base32);
PG_FUNCTION_INFO_V1(snowid_to_base62);
PG_FUNCTION_INFO_V1(snowid_from_base62);

#define BASE32_LEN 13
#define BASE62_LEN 11

#define NO_DIGIT (-1)
#define SKIPPED (-2)

static const char base32_digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
static const char base62_digits[] =
"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/* What the letters from A to Z stand for in base32. */
static const int8 base32_letters[] =
{
	10, 11, 12, 13, 14, 15, 16, 17, 1, 18, 19, 1, 20,
	21, 0, 22, 23, 24, 25, 26, NO_DIGIT, 27, 28, 29, 30, 31
};

/* Writes a number with so many digits; base and length are constants. */
static inline void
write_digits(char *buf, uint64 value, const char *digits, unsigned int base,
			 int length)
{
	for (int i = length - 1; i >= 0; i--)
	{
		buf[i] = digits[value % base];
		value /= base;
	}
}

static inline int
digit_of_base32(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'Z')
		return base32_letters[c - 'A'];
	if (c >= 'a' && c <= 'z')
		return base32_letters[c - 'a'];
	return c == '-' ? SKIPPED : NO_DIGIT;
}

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

/*
 * Reads a number of so many digits, "greatest" at most.  NULL, or what is wrong
 * with the text.
 */
static inline const char *
read_digits(const char *str, int len, int (*digit_of) (char), int base,
			int length, uint64 greatest, uint64 *value)
{
	int			n = 0;
	bool		overflow = false;

	*value = 0;
	for (int i = 0; i < len; i++)
	{
		int			digit = digit_of(str[i]);

		if (digit == SKIPPED)
			continue;
		if (digit == NO_DIGIT)
			return psprintf("\"%.*s\" at position %d is not a digit of base %d.",
							pg_mblen(str + i), str + i,
							pg_mbstrlen_with_len(str, i) + 1, base);
		n++;
		overflow |= pg_mul_u64_overflow(*value, base, value) |
			pg_add_u64_overflow(*value, digit, value);
	}
	if (n != length)
		return psprintf("It has %d digits instead of %d.", n, length);
	if (overflow || *value > greatest)
		return "It is greater than the greatest key.";
	return NULL;
}

/*---- The type ----*/

Datum
snowid_in(PG_FUNCTION_ARGS)
{
	char	   *str = PG_GETARG_CSTRING(0);
	uint64		value;
	const char *problem = read_digits(str, strlen(str), digit_of_base32, 32,
									  BASE32_LEN, PG_UINT64_MAX, &value);

	if (problem)
		ereturn(fcinfo->context, (Datum) 0,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid input syntax for type %s: \"%s\"", "snowid", str),
				 errdetail("%s", problem)));
	PG_RETURN_INT64((int64) value);
}

Datum
snowid_out(PG_FUNCTION_ARGS)
{
	char	   *str = palloc(BASE32_LEN + 1);

	write_digits(str, (uint64) PG_GETARG_INT64(0), base32_digits, 32, BASE32_LEN);
	str[BASE32_LEN] = '\0';
	PG_RETURN_CSTRING(str);
}

/*---- Functions ----*/

/* The first argument, a key. */
static uint64
key_argument(FunctionCallInfo fcinfo)
{
	int64		id = PG_GETARG_INT64(0);

	if (id < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key must not be negative")));
	return (uint64) id;
}

static void
refuse_text(const text *str, int base, const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid key in base %d: \"%s\"", base, text_to_cstring(str)),
			 errdetail("%s", problem)));
}

Datum
snowid_to_base32(PG_FUNCTION_ARGS)
{
	char		buf[BASE32_LEN];

	write_digits(buf, key_argument(fcinfo), base32_digits, 32, BASE32_LEN);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf, BASE32_LEN));
}

Datum
snowid_from_base32(PG_FUNCTION_ARGS)
{
	text	   *str = PG_GETARG_TEXT_PP(0);
	uint64		value;
	const char *problem = read_digits(VARDATA_ANY(str), VARSIZE_ANY_EXHDR(str),
									  digit_of_base32, 32, BASE32_LEN,
									  PG_INT64_MAX, &value);

	if (problem)
		refuse_text(str, 32, problem);
	PG_RETURN_INT64((int64) value);
}

Datum
snowid_to_base62(PG_FUNCTION_ARGS)
{
	char		buf[BASE62_LEN];

	write_digits(buf, key_argument(fcinfo), base62_digits, 62, BASE62_LEN);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf, BASE62_LEN));
}

Datum
snowid_from_base62(PG_FUNCTION_ARGS)
{
	text	   *str = PG_GETARG_TEXT_PP(0);
	uint64		value;
	const char *problem = read_digits(VARDATA_ANY(str), VARSIZE_ANY_EXHDR(str),
									  digit_of_base62, 62, BASE62_LEN,
									  PG_INT64_MAX, &value);

	if (problem)
		refuse_text(str, 62, problem);
	PG_RETURN_INT64((int64) value);
}
