/*
 * segment.h
 *		Numbers from segments, as callers get them.
 */
#ifndef SNOWID_SEGMENT_SEGMENT_H
#define SNOWID_SEGMENT_SEGMENT_H

#include "fmgr.h"

#include "segment/wait.h"

#pragma GCC visibility push(hidden)

/* What a call site remembers from call to call. */
typedef struct TagSite
{
	Oid			relid;			/* the table snowid_segments of the function */
	KnownTag   *known;
	uint64		stamp;			/* of its tag, if that is a constant; or 0 */
	bool		is_constant;
	TagUse		use;
} TagSite;

extern void segment_init_site(TagSite *site, TagUse use, Oid function);
extern TagSite *segment_site(FunctionCallInfo fcinfo, TagUse use);
extern int64 segment_next(FunctionCallInfo fcinfo);
extern int64 segment_next_range(TagSite *site, const text *tag, int64 length);
extern int64 segment_next_in_period(FunctionCallInfo fcinfo, TagUse use, DateADT *period,
									const char **format);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_SEGMENT_H */
