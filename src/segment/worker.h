/*
 * worker.h
 *		The process "snowid segments".
 */
#ifndef SNOWID_SEGMENT_WORKER_H
#define SNOWID_SEGMENT_WORKER_H

#pragma GCC visibility push(hidden)

extern void worker_register(void);

#pragma GCC visibility pop

extern PGDLLEXPORT void snowid_segments_main(Datum main_arg);

#endif							/* SNOWID_SEGMENT_WORKER_H */
