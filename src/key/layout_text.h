/*
 * layout_text.h
 *		Layouts as text.
 */
#ifndef SNOWID_KEY_LAYOUT_TEXT_H
#define SNOWID_KEY_LAYOUT_TEXT_H

#include "key/layout.h"

/* Longest text of a layout that layout_describe() writes, with its NUL. */
#define LAYOUT_TEXT_LEN 128

#define LAYOUT_HINT \
	"A layout is a name that snowid_layouts() lists, or spelled out, for instance \"epoch=2020-01-01T00:00:00Z datacenter=5 worker=5 sequence=12\"."

extern const char *layout_read_epoch(const char *str, int64 *unix_ms);
extern const char *layout_read(const char *str, Layout *layout);
extern void layout_parse(text *spec, Layout *layout);
extern void layout_describe(const Layout *layout, char *buf);
extern char *layout_difference(const Layout *ours, const Layout *theirs);
extern const char *layout_named(int i, Layout *layout);

#endif							/* SNOWID_KEY_LAYOUT_TEXT_H */
