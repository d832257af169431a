/*
 * origin.h
 *		The durable ceilings, which are positions of replication origins; and the
 *		process "snowid origin".
 */
#ifndef SNOWID_KEEPER_ORIGIN_H
#define SNOWID_KEEPER_ORIGIN_H

#include "generator/gate.h"
#include "key/layout.h"
#include "process.h"
#include "registry/claim.h"

/* The facts from the origins; times are in Unix ms, 0: none. */
typedef struct Ceiling
{
	uint16		origin;			/* the pair's own; 0: none, during recovery */
	int64		own_ms;			/* the pair's own ceiling */
	int64		old_ms;			/* that of the question's old pair */
	int64		others_ms;		/* greatest of other pairs within reach */
	int64		other_layout_ms;	/* greatest of other layouts ... */
	Layout		other_layout;	/* ... and that layout */
	int64		other_layout_key;	/* no key of any other layout is above it */
} Ceiling;

extern const Process origin_process;

extern void origin_shmem(bool reserve);
extern bool origin_other_layout(Layout *other);

/* for the snowid keeper only */
extern void origin_leave_question(void);
extern GateReason ceiling_find(const Claim *pair, int64 reach_ms, Ceiling *ceiling, char *err);
extern GateReason ceiling_leave_layouts(const Claim *pair, char *err);
extern void ceiling_raise(const Ceiling *ceiling, int64 unix_ms);
extern void ceiling_let_go(void);
extern void ceiling_leave(const Ceiling *ceiling, int64 unix_ms);

#endif							/* SNOWID_KEEPER_ORIGIN_H */
