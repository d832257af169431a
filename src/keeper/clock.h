/*
 * clock.h
 *		Steps and jumps of the clock.
 */
#ifndef SNOWID_KEEPER_CLOCK_H
#define SNOWID_KEEPER_CLOCK_H

extern void clock_shmem_init(void);
extern bool clock_accept(void);
extern bool clock_read(int64 *now);

#endif							/* SNOWID_KEEPER_CLOCK_H */
