/*
 * spare.h
 *		The spare worker ID: with which of its pairs this server makes keys.
 */
#ifndef SNOWID_KEEPER_SPARE_H
#define SNOWID_KEEPER_SPARE_H

#include "keeper/pair.h"

#pragma GCC visibility push(hidden)

typedef struct Choice
{
	Claim		claim;			/* the pair to use */
	Claim		twin;			/* the other one; no worker ID (-1): none */
	bool		is_spare;		/* the former is the spare */
} Choice;

extern void spare_choose(const Pair *pair, const Claim *own, int64 now,
						 bool clock_is_good, Choice *choice);
extern long spare_pause(void);
extern bool spare_raise(Pair *pair, int64 unix_ms, char *err);
extern bool spare_take(Pair *pair, const Choice *choice, bool anew, int64 now,
					   char *err);
extern void spare_tend(Pair *pair, const Choice *choice, int64 now);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_SPARE_H */
