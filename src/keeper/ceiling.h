/*
 * ceiling.h
 *		The durable ceilings: positions of replication origins that have a number and
 *		no name.
 */
#ifndef SNOWID_KEEPER_CEILING_H
#define SNOWID_KEEPER_CEILING_H

#include "key/layout.h"

/* The facts about keys in the WAL; times are in Unix ms, 0: none. */
typedef struct Ceiling
{
	int64		own_ms;			/* of a pair */
	int64		others_ms;		/* greatest of this layout's other pairs that
								 * is within reach ... */
	int64		beyond_ms;		/* ... and greatest that is not */
	bool		has_layout;		/* keys were made, the last with this layout */
	Layout		layout;
	int64		layout_ms;		/* if it is another one than this server's: no
								 * key of it is above this time */
} Ceiling;

extern Ceiling ceiling_read(PairId pair, int64 reach_ms);
extern int64 ceiling_of(PairId pair);
extern bool ceiling_other_layout(Layout *other);
extern uint64 ceiling_layout(void);

/* for the snowid keeper only */
extern void ceiling_set(PairId pair, int64 unix_ms);

#endif							/* SNOWID_KEEPER_CEILING_H */
