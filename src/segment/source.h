/*
 * source.h
 *		Ranges from a table, here or on another server, by SQL.
 */
#ifndef SNOWID_SEGMENT_SOURCE_H
#define SNOWID_SEGMENT_SOURCE_H

#include "segment/row.h"

#pragma GCC visibility push(hidden)

extern void source_begin(Oid relid, Oid source);
extern void source_end(void);
extern void source_disarm(void);
extern void source_take(Fetch *fetch);
extern bool source_give_back(const SegmentKey *key, const Range *range);
extern void source_take_back(const SegmentKey *key, const Range *range);
extern bool source_is_foreign(Oid source);
extern void source_check(Oid source);
extern void source_hurry(void);
extern void source_cut_off(void);
extern bool source_was_cut(void);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_SOURCE_H */
