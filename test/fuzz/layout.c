/*
 * layout.c
 *		Layouts and epochs from any text: what is read is written and read again,
 *		and its first and last keys come back.
 */
#include "fuzz.h"

#include "key/layout.h"

void
fuzz_one(const char *data, size_t size)
{
	Layout		layout;
	Layout		again;
	int64		epoch;
	char		text[LAYOUT_TEXT_LEN];

	if (layout_read_epoch(data, &epoch) == NULL)
		fuzz_check(epoch >= INT64CONST(-62135596800000) && epoch <= INT64CONST(253402300799999));
	if (layout_read(data, &layout) != NULL)
		return;
	fuzz_check(layout_timestamp_bits(&layout) >= 1 && layout_timestamp_bits(&layout) <= 63);
	fuzz_check(layout_last_ms(&layout) >= layout.epoch);
	if (!layout.sequence_above && layout.tick == 1)
	{
		layout_describe(&layout, text);
		fuzz_check(strlen(text) < sizeof(text) - 1);
		fuzz_check(layout_read(text, &again) == NULL && layout_equal(&layout, &again));
	}
	for (int last = 0; last <= 1; last++)
	{
		int64		unix_ms = last ? layout_last_ms(&layout) : layout.epoch;
		int64		low = layout_key_at(&layout, unix_ms, false);
		int64		high = layout_key_at(&layout, unix_ms, true);
		Parts		parts;

		fuzz_check(low >= 0 && low <= high);
		layout_unpack(&layout, high, &parts);
		fuzz_check(layout_pack(&layout, &parts) == high);
		fuzz_check(parts.unix_ms <= unix_ms && parts.unix_ms > unix_ms - layout.tick);
	}
}
