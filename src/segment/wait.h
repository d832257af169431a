/*
 * wait.h
 *		What a caller does who gets no number at once, and the tags that callers know.
 */
#ifndef SNOWID_SEGMENT_WAIT_H
#define SNOWID_SEGMENT_WAIT_H

#include "datatype/timestamp.h"

#include "segment/state.h"

#pragma GCC visibility push(hidden)

/* Not a segment's: the rights are not checked yet. */
#define UNCHECKED PG_UINT64_MAX

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
	uint64		stamp;			/* from 1 on; another one for another tag */
	SegmentKey	key;
	TagUse		use;
	char		format[FORMAT_LEN + 1]; /* of this incarnation */
} KnownTag;

/* How long a caller waits, and for what. */
typedef struct Wait
{
	Segment    *segment;		/* NULL: it does not wait yet */
	int64		ends;			/* monotonic_ms() */
	uint64		attempt;		/* looks at the table that had begun before */
	bool		has_place;		/* the process is there, or comes */
} Wait;

extern bool segment_get_ready(KnownTag *known, int64 length, TimestampTz now, Wait *wait,
							  int64 *first);
extern void segment_refuse_format(const char *tag);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_WAIT_H */
