/*
 * number.h
 *		Numbers from segments, as callers get them.
 */
#ifndef SNOWID_SEGMENT_NUMBER_H
#define SNOWID_SEGMENT_NUMBER_H

#include "fmgr.h"

#include "compat.h"
#include "segment/segment.h"

#pragma GCC visibility push(hidden)

/* What a function wants of a tag. */
typedef enum TagUse
{
	USE_NUMBER,
	USE_PERIOD,					/* a number in a period */
	USE_SERIAL					/* and its format */
} TagUse;

#define TAG_USES (USE_SERIAL + 1)

typedef struct KnownTag KnownTag;

/* What a call site remembers from call to call. */
typedef struct TagSite
{
	Oid			relid;			/* the table snowid_segments of the function */
	KnownTag   *known;
	uint64		stamp;			/* of its tag, if that is a constant; or 0 */
	bool		is_constant;
	TagUse		use;
} TagSite;

extern void number_init_site(TagSite *site, TagUse use, Oid function);
extern TagSite *number_site(FunctionCallInfo fcinfo, TagUse use);
extern int64 number_next(FunctionCallInfo fcinfo);
extern int64 number_next_range(FunctionCallInfo fcinfo, int64 length);
extern int64 number_next_in_period(FunctionCallInfo fcinfo, TagUse use, DateADT *period,
								   const char **format);
extern void number_refuse_absent(const char *tag, const char *reason) pg_attribute_noreturn();
extern void number_refuse_format(const char *tag) pg_attribute_noreturn();

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_NUMBER_H */
