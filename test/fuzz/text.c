/*
 * text.c
 *		Base32, base62 and the type from any text: what is read is written as it
 *		was, but for the ways to write a digit of base32; a negative value of the type
 *		as it was.
 */
#include "fuzz.h"

#include "utils/builtins.h"

extern Datum snowid_in(PG_FUNCTION_ARGS);
extern Datum snowid_out(PG_FUNCTION_ARGS);
extern Datum snowid_to_base32(PG_FUNCTION_ARGS);
extern Datum snowid_from_base32(PG_FUNCTION_ARGS);
extern Datum snowid_to_base62(PG_FUNCTION_ARGS);
extern Datum snowid_from_base62(PG_FUNCTION_ARGS);

void
fuzz_one(const char *data, size_t size)
{
	Datum		input = PointerGetDatum(cstring_to_text_with_len(data, size));
	Datum		key;
	Datum		again;
	Datum		written;

	if (fuzz_call(snowid_from_base62, &key, 1, input))
	{
		fuzz_check(DatumGetInt64(key) >= 0);
		fuzz_check(fuzz_call(snowid_to_base62, &written, 1, key));
		fuzz_check(VARSIZE_ANY_EXHDR(DatumGetPointer(written)) == size);
		fuzz_check(memcmp(VARDATA_ANY(DatumGetPointer(written)), data, size) == 0);
	}
	if (fuzz_call(snowid_from_base32, &key, 1, input))
	{
		fuzz_check(DatumGetInt64(key) >= 0);
		fuzz_check(fuzz_call(snowid_to_base32, &written, 1, key));
		fuzz_check(fuzz_call(snowid_from_base32, &again, 1, written));
		fuzz_check(key == again);
		fuzz_check(fuzz_call(snowid_in, &again, 1, CStringGetDatum(data)) == (strlen(data) == size));
	}
	if (fuzz_call(snowid_in, &key, 1, CStringGetDatum(data)))
	{
		fuzz_check(fuzz_call(snowid_out, &written, 1, key));
		fuzz_check(strlen(DatumGetCString(written)) == (DatumGetInt64(key) < 0 ? 20 : 13));
		fuzz_check(fuzz_call(snowid_in, &again, 1, written));
		fuzz_check(key == again);
	}
}
