/*
 * segment.h
 *		Numbers from segments, as callers get them.
 */
#ifndef SNOWID_SEGMENT_SEGMENT_H
#define SNOWID_SEGMENT_SEGMENT_H

#include "fmgr.h"

#include "segment/state.h"

#pragma GCC visibility push(hidden)

/* What a function wants of a tag. */
typedef enum TagUse
{
	USE_NUMBER,
	USE_PERIOD,					/* a number in a period */
	USE_SERIAL					/* and its format */
} TagUse;

#define TAG_USES (USE_SERIAL + 1)

/* A tag that this backend knows; another one may take its place. */
typedef struct KnownTag
{
	Segment    *segment;
	uint64		incarnation;	/* of the segment, when the rights were
								 * checked */
	Oid			user;			/* whose they are */
	SegmentKey	key;
	TagUse		use;
	char		format[FORMAT_LEN + 1]; /* of this incarnation */
} KnownTag;

/* What a call site remembers from call to call. */
typedef struct TagSite
{
	Oid			relid;			/* the table snowid_segments of the function */
	KnownTag   *known;
	TagUse		use;
} TagSite;

extern void segment_init_site(TagSite *site, TagUse use, Oid function);
extern TagSite *segment_site(FunctionCallInfo fcinfo, TagUse use);
extern int64 segment_next(TagSite *site, const text *tag);
extern int64 segment_next_block(TagSite *site, const text *tag, int64 wanted, int64 *first);
extern int64 segment_next_range(TagSite *site, const text *tag, int64 length);
extern int64 segment_next_in_period(TagSite *site, const text *tag, DateADT *period,
									const char **format);
extern void segment_refuse_format(const char *tag);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_SEGMENT_H */
