/*
 * source.h
 *		Central servers: which server is a source, and ranges from there.
 */
#ifndef SNOWID_SEGMENT_SOURCE_H
#define SNOWID_SEGMENT_SOURCE_H

#include "segment/segment.h"

extern const char *source_problem(const char *name);
extern bool source_take(const char *name, const SegmentKey *key, const Take *take,
						Taken *taken, bool (*must_end) (void), Reason *reason);
extern bool reason_is(Reason *reason, bool is_ours, const char *format,...) pg_attribute_printf(3, 4);

#endif							/* SNOWID_SEGMENT_SOURCE_H */
