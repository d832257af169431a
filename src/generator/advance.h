/*
 * advance.h
 *		snowid_advance(): the caller asks, the keeper carries it out.
 */
#ifndef SNOWID_GENERATOR_ADVANCE_H
#define SNOWID_GENERATOR_ADVANCE_H

extern void generator_advance(int64 id);

/* for the keeper only */
extern int64 generator_advance_take(void);
extern void generator_advance_later(void);
extern void generator_advance_end(bool durable);

#endif							/* SNOWID_GENERATOR_ADVANCE_H */
