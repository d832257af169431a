/*
 * origin_worker.h
 *		The process "snowid origin", and the keeper's questions to it.
 */
#ifndef SNOWID_KEEPER_ORIGIN_WORKER_H
#define SNOWID_KEEPER_ORIGIN_WORKER_H

#include "keeper/origin.h"
#include "process.h"

extern const Process origin_process;

typedef enum OriginAnswer
{
	ORIGIN_PENDING,
	ORIGIN_ANSWERED,
	ORIGIN_FAILED				/* the reason is in the caller's buffer */
} OriginAnswer;

extern Size origin_worker_shmem_size(void);
extern void origin_worker_shmem_init(void);
extern OriginAnswer origin_ask(const OriginQuestion *question, Ceiling *answer,
							   char *err, Size errlen);
extern void origin_leave_question(void);

#endif							/* SNOWID_KEEPER_ORIGIN_WORKER_H */
