/*
 * keeper.h
 *		The process "snowid keeper".
 */
#ifndef SNOWID_KEEPER_KEEPER_H
#define SNOWID_KEEPER_KEEPER_H

/* PostgreSQL looks it up by name. */
extern PGDLLEXPORT void snowid_keeper_main(Datum main_arg);

#pragma GCC visibility push(hidden)

extern void keeper_register(void);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_KEEPER_H */
