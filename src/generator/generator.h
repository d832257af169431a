/*
 * generator.h
 *		Keys, for the functions that hand them out.
 */
#ifndef SNOWID_GENERATOR_GENERATOR_H
#define SNOWID_GENERATOR_GENERATOR_H

/* Consecutive units that belong to the caller. */
typedef struct UnitBlock
{
	int64		next;			/* the next unit to hand out */
	int64		end;			/* the last one; next > end: used up */
	uint64		pair_bits;		/* the pair, shifted into position */
} UnitBlock;

extern int64 generator_next(void);
extern void generator_refill(UnitBlock *block, int64 wanted);
extern int64 *block_spill(const UnitBlock *block, int64 *keys);
extern int64 generator_next_block(int64 wanted);

#endif							/* SNOWID_GENERATOR_GENERATOR_H */
