/*
 * text.c
 *		Keys as text: in base32 and base62, the type snowid, and serials.
 *
 * Base32 is Douglas Crockford's (crockford.com/base32.html), as the TSID
 * libraries write 64-bit numbers: 13 digits without I, L, O, U.  It is read in
 * either case, with O as 0, I and L as 1, and hyphens are ignored.  Base62 has
 * its digits in the order of ASCII.  Both have a fixed width, so that under
 * COLLATE "C" the text sorts as the keys do.
 *
 * A value of the type is a bigint, and casts do not check it.  So a negative value,
 * which is no key, also has a text, for dumps: a minus and 19 decimal digits, which
 * differ from all digits of base32.
 *
 * A serial is a key for people:
 *
 *		code | yyyymmddhhmissms | fields of the pair and the sequence | check
 *
 * Every field is decimal and as wide as its greatest value (absent if the layout
 * has no such field), and the fields are in the order of the key.  So serials
 * with the same code and offset sort as their keys do, in every collation.  Each
 * key has one serial: a serial that is read is written again and compared.  The time
 * has a fixed offset from UTC: in a named zone local times repeat once a year, and
 * the rules change.  The check digits are ISO 7064 MOD 97-10 over all before them,
 * with letters as in an IBAN (A 10 ... Z 35).
 *
 * Nothing here reads a setting or shared memory, but for the layout of a serial if
 * no argument gives it.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "common/int.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
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
PG_FUNCTION_INFO_V1(snowid_serial);
PG_FUNCTION_INFO_V1(snowid_serial_id);

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
			return not_a_digit(str, len, i, n->base);
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

	if (unlikely(read_negative(str, &value)))
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
	int			strategy;

	if (!IsA(request, SupportRequestIndexCondition) || !IsA(request->node, OpExpr))
		PG_RETURN_POINTER(NULL);
	clause = (OpExpr *) request->node;
	column = list_nth(clause->args, request->indexarg);
	value = list_nth(clause->args, 1 - request->indexarg);
	/* of an operator: the value is the same for the whole scan */
	if (exprType((Node *) column) != INT8OID)
		PG_RETURN_POINTER(NULL);
	family = lookup_type_cache(exprType(value), TYPECACHE_BTREE_OPFAMILY)->btree_opf;
	strategy = get_op_opfamily_strategy(clause->opno, family);
	if (request->indexarg == 1)
		strategy = BTCommuteStrategyNumber(strategy);

	/* core's operator of bigint of the same strategy, if the index has it */
	opno = get_opfamily_member(INTEGER_BTREE_FAM_OID, INT8OID, INT8OID, strategy);
	if (!op_in_opfamily(opno, request->opfamily))
		PG_RETURN_POINTER(NULL);
	value = applyRelabelType(value, INT8OID, -1, InvalidOid, COERCE_IMPLICIT_CAST,
							 -1, false);
	request->lossy = false;
	PG_RETURN_POINTER(list_make1(make_opclause(opno, BOOLOID, false, column,
											   (Expr *) value, InvalidOid,
											   InvalidOid)));
}

/*---- Serials ----*/

#define DAY_MS (INT64CONST(24) * 3600 * 1000)

#define CODE_LEN 8
#define TIME_LEN 17

/* Code, time, three fields of 10 digits at most, check digits, NUL. */
#define SERIAL_LEN (CODE_LEN + TIME_LEN + 3 * 10 + 2 + 1)

/* The form of a serial. */
typedef struct SerialForm
{
	const char *code;
	int64		offset_ms;		/* of the local time */
	bool		check_digits;
	const Layout *layout;
} SerialForm;

/* A field after the time. */
typedef struct Field
{
	int		   *value;
	int			bits;
} Field;

/* The fields of "parts" in the order of the key. */
static void
list_fields(const Layout *layout, Parts *parts, Field fields[3])
{
	Field		datacenter = {&parts->datacenter, layout->datacenter_bits};
	Field		worker = {&parts->worker, layout->worker_bits};
	Field		sequence = {&parts->sequence, layout->sequence_bits};

	fields[0] = datacenter;
	fields[1] = layout->sequence_above ? sequence : worker;
	fields[2] = layout->sequence_above ? worker : sequence;
}

/* The number of digits of 2^bits - 1; 0 for 0 bits. */
static int
field_width(int bits)
{
	int			width = 0;

	for (int64 max = (INT64CONST(1) << bits) - 1; max > 0; max /= 10)
		width++;
	return width;
}

/* The whole text as one decimal number, modulo 97. */
static int
remainder_97(const char *str)
{
	int			remainder = 0;

	for (; *str; str++)
	{
		if (*str >= '0' && *str <= '9')
			remainder = (remainder * 10 + *str - '0') % 97;
		else
			remainder = (remainder * 100 + *str - 'A' + 10) % 97;
	}
	return remainder;
}

/* Writes the serial of a key; throws if its year does not have four digits. */
static void
write_serial(const SerialForm *form, int64 id, char *buf)
{
	Parts		parts;
	Field		fields[3];
	int64		local;
	struct pg_tm tm;
	fsec_t		us;
	char	   *p = buf;

	layout_unpack(form->layout, id, &parts);
	local = parts.unix_ms + form->offset_ms;
	if (!unix_ms_has_year(local))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_FIELD_OVERFLOW),
				 errmsg("time of key " INT64_FORMAT " has no year of four digits", id),
				 errhint("The key is of another layout.")));
	(void) timestamp2tm(timestamptz_from_unix_ms(local), NULL, &tm, &us, NULL, NULL);

	p += sprintf(p, "%s%04d%02d%02d%02d%02d%02d%03d", form->code, tm.tm_year, tm.tm_mon,
				 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, us / 1000);
	list_fields(form->layout, &parts, fields);
	for (int i = 0; i < lengthof(fields); i++)
	{
		if (fields[i].bits > 0)
			p += sprintf(p, "%0*d", field_width(fields[i].bits), *fields[i].value);
	}
	if (form->check_digits)
	{
		strcpy(p, "00");
		sprintf(p, "%02d", 98 - remainder_97(buf));
	}
}

/* Reads the key of a serial.  Returns NULL, or the problem of the serial. */
static const char *
read_serial(const SerialForm *form, const char *serial, int64 *id)
{
	int			code_len = strlen(form->code);
	int			len = code_len + TIME_LEN + (form->check_digits ? 2 : 0);
	const char *p;
	Parts		parts;
	Field		fields[3];
	int			year,
				month,
				day,
				hour,
				minute,
				ms;
	int64		local;
	char		again[SERIAL_LEN];

	list_fields(form->layout, &parts, fields);
	for (int i = 0; i < lengthof(fields); i++)
		len += field_width(fields[i].bits);
	if (strncmp(serial, form->code, code_len) != 0)
		return psprintf("It does not begin with the code \"%s\".", form->code);
	p = serial + code_len;
	if (strspn(p, "0123456789") != strlen(p))
		return "After its code it has other characters than digits.";
	if (strlen(serial) != len)
		return psprintf("It has %d characters instead of %d.",
						(int) strlen(serial), len);

	sscanf(p, "%4d%2d%2d%2d%2d%5d", &year, &month, &day, &hour, &minute, &ms);
	p += TIME_LEN;
	local = (date2j(year, month, day) - UNIX_EPOCH_JDATE) * DAY_MS +
		(60 * hour + minute) * 60000 + ms;
	parts.unix_ms = local - form->offset_ms;
	if (!unix_ms_has_year(local) || parts.unix_ms < form->layout->epoch ||
		parts.unix_ms > layout_last_ms(form->layout))
		return "Its time is out of the range of the layout.";
	for (int i = 0; i < lengthof(fields); i++)
	{
		int64		value = 0;

		for (int width = field_width(fields[i].bits); width > 0; width--)
			value = value * 10 + *p++ - '0';
		if (value >> fields[i].bits != 0)
			return psprintf("Its field %d does not fit into %d bits of the layout.",
							i + 1, fields[i].bits);
		*fields[i].value = (int) value;
	}
	*id = layout_pack(form->layout, &parts);
	write_serial(form, *id, again);
	if (strcmp(serial, again) == 0)
		return NULL;
	if (strncmp(serial, again, code_len + TIME_LEN) != 0)
		return "The layout has no such time.";
	return "Its check digits do not match.";
}

/* Reads the local time's offset from UTC: Z, or +hh or -hh, also with mm. */
static int64
parse_offset(const char *str)
{
	int64		unix_ms = 0;

	if ((*str != 'Z' && *str != '+' && *str != '-') ||
		layout_read_epoch(psprintf("1970-01-01T00:00:00%s", str), &unix_ms) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid offset from UTC: \"%s\"",
						text_shown(str, strlen(str))),
				 errdetail("It must be a fixed offset of less than 16 hours: in a named zone times repeat at the end of summer time, and so would serials."),
				 errhint("Write it as \"+08\" or \"-05:30\", or \"Z\" for UTC.")));
	return -unix_ms;
}

/*
 * The form of a call's arguments: the code; as the third the offset, then the layout
 * in IMMUTABLE functions only, and whether there are check digits.
 */
static SerialForm
form_of_call(FunctionCallInfo fcinfo, int code_arg)
{
	SerialForm	form;
	int			last = PG_NARGS() - 1;
	char	   *code = text_to_cstring(PG_GETARG_TEXT_PP(code_arg));

	if (strlen(code) > CODE_LEN ||
		strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != strlen(code))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid code of a serial: \"%s\"",
						text_shown(code, strlen(code))),
				 errdetail("It has up to %d characters, digits and capital letters from A to Z.",
						   CODE_LEN)));
	form.code = code;
	form.offset_ms = parse_offset(text_to_cstring(PG_GETARG_TEXT_PP(2)));
	form.check_digits = PG_GETARG_BOOL(last);
	form.layout = layout_of_call(fcinfo, last > 3 ? 3 : PG_NARGS());
	return form;
}

Datum
snowid_serial(PG_FUNCTION_ARGS)
{
	SerialForm	form = form_of_call(fcinfo, 0);
	char		buf[SERIAL_LEN];

	write_serial(&form, PG_GETARG_INT64(1), buf);
	PG_RETURN_TEXT_P(cstring_to_text(buf));
}

Datum
snowid_serial_id(PG_FUNCTION_ARGS)
{
	char	   *serial = text_to_cstring(PG_GETARG_TEXT_PP(0));
	SerialForm	form = form_of_call(fcinfo, 1);
	int64		id = 0;
	const char *problem = read_serial(&form, serial, &id);

	if (problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid serial: \"%s\"",
						text_shown(serial, strlen(serial))),
				 errdetail("%s", problem)));
	PG_RETURN_INT64(id);
}
