/*
 * source.h
 *		Central servers: which table is a source, and statements there.
 */
#ifndef SNOWID_SEGMENT_SOURCE_H
#define SNOWID_SEGMENT_SOURCE_H

#include "segment/segment.h"

/* Two numbers of a row; those that are NULL are 0. */
typedef struct SourceRow
{
	bool		found;
	int64		number[2];
} SourceRow;

extern Oid	source_find(const char *name, bool by_path);
extern const char *source_problem(Oid relid);
extern bool source_open(const char *name, bool with_periods, char **there, Reason *reason);
extern bool source_run(const char *statement, const char *tag, const char *period,
					   SourceRow *row, Reason *reason);
extern void source_set_deadline(int ms, bool (*must_end) (void));
extern bool reason_is(Reason *reason, bool is_ours, const char *format,...) pg_attribute_printf(3, 4);

#endif							/* SNOWID_SEGMENT_SOURCE_H */
