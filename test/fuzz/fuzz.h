/*
 * fuzz.h
 *		What the fuzz targets share: the little of a server that the code under
 *		test calls (server.c), and how a target uses it.
 *
 * A target is one file with fuzz_one(); libFuzzer makes the inputs.
 */
#ifndef SNOWID_FUZZ_H
#define SNOWID_FUZZ_H

#include "postgres.h"

#include <setjmp.h>

#include "fmgr.h"

#include "compat.h"

/* One input, of any bytes, with a NUL behind it. */
extern void fuzz_one(const char *data, size_t size);

/* Calls an SQL function; false: it has thrown. */
extern bool fuzz_call(PGFunction function, Datum *result, int nargs,...);

/* The next part of the input: up to a line's end. */
extern char *fuzz_line(const char **data);

#define fuzz_check(condition) \
	((condition) ? (void) 0 : fuzz_failed(#condition, __FILE__, __LINE__))
extern void fuzz_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

#endif							/* SNOWID_FUZZ_H */
