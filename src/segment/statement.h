/*
 * statement.h
 *		Statements about a table that is known by its OID.
 */
#ifndef SNOWID_SEGMENT_STATEMENT_H
#define SNOWID_SEGMENT_STATEMENT_H

#pragma GCC visibility push(hidden)

extern int	statement_run(const char *statement, Oid relid, int n, Oid *types, Datum *values,
						  bool read_only);

#pragma GCC visibility pop

#endif							/* SNOWID_SEGMENT_STATEMENT_H */
