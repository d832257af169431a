/*
 * keeper.h
 *		The process "snowid keeper".
 */
#ifndef SNOWID_KEEPER_KEEPER_H
#define SNOWID_KEEPER_KEEPER_H

/* PostgreSQL looks it up by name. */
extern PGDLLEXPORT void snowid_keeper_main(Datum main_arg);

extern void keeper_register(void);

#endif							/* SNOWID_KEEPER_KEEPER_H */
