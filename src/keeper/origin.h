/*
 * origin.h
 *		snowid's replication origins, and the process "snowid origin".
 */
#ifndef SNOWID_KEEPER_ORIGIN_H
#define SNOWID_KEEPER_ORIGIN_H

#include "generator/gate.h"
#include "key/layout.h"
#include "process.h"

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

/* A question to the process that reads the catalog of origins. */
typedef struct OriginQuestion
{
	int			datacenter_id;	/* whose origin is wanted */
	int			worker_id;
	int			old_datacenter_id;	/* its ceiling is wanted, too; or -1 */
	int			old_worker_id;
	uint16		owned;			/* 0, or: is this still the pair's origin? */
	bool		has_position;	/* the owned one had a position */
	bool		leave_layouts;	/* other layouts' origins are to go */

	/* these may differ when the same question is asked again */
	int64		reach_ms;		/* ceilings further ahead are ignored */
	int64		max_jump;		/* ms by which the clock may be wrong */
} OriginQuestion;

extern const Process origin_process;

extern bool origin_other_layout(Layout *other);

/* for the snowid keeper only */
extern Size origin_shmem_size(void);
extern void origin_shmem_init(void);
extern GateReason origin_ask(const OriginQuestion *question, Ceiling *answer, char *err);
extern void origin_leave_question(void);

#endif							/* SNOWID_KEEPER_ORIGIN_H */
