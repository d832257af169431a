/*
 * grant.h
 *		The reservation of keys ahead of use.
 */
#ifndef SNOWID_KEEPER_GRANT_H
#define SNOWID_KEEPER_GRANT_H

#include "keeper/pair.h"

extern void grant_start_slowly(void);
extern void grant_first(const Pair *pair, int64 now, int64 begin);
extern long grant_renew(Pair *pair, int64 now, bool *granted);

#endif							/* SNOWID_KEEPER_GRANT_H */
