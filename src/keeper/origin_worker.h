/*
 * origin_worker.h
 *		The process "snowid origin", and the keeper's questions to it.
 */
#ifndef SNOWID_KEEPER_ORIGIN_WORKER_H
#define SNOWID_KEEPER_ORIGIN_WORKER_H

#include "generator/gate.h"
#include "keeper/origin.h"
#include "process.h"

extern const Process origin_process;

extern Size origin_worker_shmem_size(void);
extern void origin_worker_shmem_init(void);
extern GateReason origin_ask(const OriginQuestion *question, Ceiling *answer, char *err);
extern void origin_leave_question(void);

#endif							/* SNOWID_KEEPER_ORIGIN_WORKER_H */
