/*
 * source.h
 *		Central servers: which table is a source, and statements there.
 */
#ifndef SNOWID_SEGMENT_SOURCE_H
#define SNOWID_SEGMENT_SOURCE_H

#include "segment/segment.h"

#pragma GCC visibility push(hidden)

typedef struct Source
{
	struct Connection *connection;
	char	   *table;			/* as the central server knows it */
	bool		is_lost;		/* the answer to the last statement */
} Source;

/* Two numbers of a row; those that are NULL are 0. */
typedef struct SourceRow
{
	bool		found;
	bool		is_null;		/* the first is */
	int64		number[2];
} SourceRow;

#define SOURCE_PARAMS 5

extern Oid	source_find(const char *name, bool by_path, char **full_name);
extern const char *source_problem(Oid relid);
extern bool source_is_allowed(Oid relid, Oid user, bool with_periods);

extern bool source_open(const char *name, bool with_periods, Source *source, Reason *reason);
extern bool source_run(Source *source, const char *statement,
					   const char *const params[SOURCE_PARAMS], SourceRow *row,
					   Reason *reason);
extern void source_set_deadline(int ms, bool (*must_end) (void));
extern void source_close_old(void);
extern bool reason_is(Reason *reason, bool is_ours, const char *format,...) pg_attribute_printf(3, 4);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_SOURCE_H */
