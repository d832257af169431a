/*
 * transfer.h
 *		Ranges, fetched from a source and given back.
 */
#ifndef SNOWID_SEGMENT_TRANSFER_H
#define SNOWID_SEGMENT_TRANSFER_H

#include "segment/row.h"

#pragma GCC visibility push(hidden)

/* Ranges of a tag that are to be given back. */
typedef struct Return
{
	Segment    *segment;
	SegmentKey	key;
	uint64		incarnation;
	bool		stale;			/* what cannot be given back is lost */
	int			n;
	Range		range[TAILS];
	int			given;			/* the last so many of them are */
} Return;

extern void transfer_init(Oid source);
extern void transfer_begin_turn(void);
extern void transfer_hurry(void);
extern void transfer_cancel(void);
extern void transfer_fetch(Fetch *fetches, int n);
extern void transfer_give_back(Return *returns, int n);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_TRANSFER_H */
