/*
 * origin.h
 *		What the keeper asks about replication origins; for ceiling.c, inquiry.c
 *		and origin.c alone.
 */
#ifndef SNOWID_ORIGIN_H
#define SNOWID_ORIGIN_H

#include "snowid.h"

#pragma GCC visibility push(hidden)

/* A question to the process that reads the catalog of origins. */
typedef struct OriginQuestion
{
	int			datacenter_id;	/* whose origin is wanted */
	int			worker_id;
	int			old_datacenter_id;	/* whose ceiling as well, or -1 */
	int			old_worker_id;
	uint16		owned;			/* 0, or: is this still that pair's origin? */
	bool		has_position;	/* the owned one had a position */

	/* the same question may be asked again with others of these */
	int64		reach_ms;		/* how far ahead ceilings mean anything */
	int64		max_jump;		/* ms by which the clock may be wrong */
} OriginQuestion;

/* inquiry.c, for the keeper */
extern bool inquiry_ask(const OriginQuestion *question, Ceiling *answer,
						char *err, Size errlen);

/* origin.c, for the process that answers */
extern Ceiling origin_look_up(const OriginQuestion *question);
extern void origin_require_owned(const OriginQuestion *question);
extern void origin_find_old(const OriginQuestion *question);
extern void origin_drop_old(void);

#pragma GCC visibility pop

#endif							/* SNOWID_ORIGIN_H */
