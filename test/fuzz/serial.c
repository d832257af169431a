/*
 * serial.c
 *		Serials from any text: lines with the layout, the code, the offset, the
 *		serial and a key.  What is read is written as it was, and the other way.
 */
#include "fuzz.h"

#include "utils/builtins.h"

#include "key/layout.h"

extern Datum snowid_serial(PG_FUNCTION_ARGS);
extern Datum snowid_serial_id(PG_FUNCTION_ARGS);

static Layout layout;

/* In place of that of layout.c, which keeps it from row to row. */
const Layout *
layout_of_call(FunctionCallInfo fcinfo, int layout_arg)
{
	return &layout;
}

void
fuzz_one(const char *data, size_t size)
{
	const char *problem = layout_read(fuzz_line(&data), &layout);
	Datum		code = PointerGetDatum(cstring_to_text(fuzz_line(&data)));
	Datum		offset = PointerGetDatum(cstring_to_text(fuzz_line(&data)));
	Datum		serial = PointerGetDatum(cstring_to_text(fuzz_line(&data)));
	Datum		key = Int64GetDatum(strtoll(fuzz_line(&data), NULL, 10));

	if (problem)
		return;
	for (int check = 0; check <= 1; check++)
	{
		Datum		digits = BoolGetDatum(check);
		Datum		result;
		Datum		again;

		if (fuzz_call(snowid_serial_id, &result, 4, serial, code, offset, digits))
		{
			fuzz_check(DatumGetInt64(result) >= 0);
			fuzz_check(fuzz_call(snowid_serial, &again, 4, code, result, offset, digits));
			fuzz_check(strcmp(TextDatumGetCString(serial), TextDatumGetCString(again)) == 0);
		}
		if (fuzz_call(snowid_serial, &result, 4, code, key, offset, digits))
		{
			fuzz_check(fuzz_call(snowid_serial_id, &again, 4, result, code, offset, digits));
			fuzz_check(key == again);
		}
	}
}
