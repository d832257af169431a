/*
 * process.h
 *		Our background processes: how to find and wake them, and their common
 *		loop; and memory that all processes share.
 */
#ifndef SNOWID_PROCESS_H
#define SNOWID_PROCESS_H

typedef enum ProcessId
{
	PROCESS_KEEPER,
	PROCESS_ORIGIN,
	PROCESS_REGISTRY
} ProcessId;

#define PROCESSES (PROCESS_REGISTRY + 1)

/*
 * The pause until the next turn.  After a failure only news and signals end it
 * early; otherwise any wake-up does.
 */
typedef struct Pause
{
	long		ms;
	bool		after_failure;
	bool		leave;			/* instead: exit, to be started again */
} Pause;

/* A process that runs the common loop. */
typedef struct Process
{
	ProcessId	id;
	const char *name;
	bool		connects_itself;	/* to a database */

	/* "reloaded": settings may differ */
	Pause		(*turn) (bool reloaded);
	/* after an error in a turn; no lock is held */
	Pause		(*recover) (const ErrorData *error);
	/* at a shutdown, or after pg_terminate_backend() */
	void		(*stop) (void);
	/* at any exit; may run twice */
	void		(*leave) (void);
} Process;

struct BackgroundWorker;

extern void *shmem_zeroed(const char *name, Size size);
extern Size process_shmem_size(void);
extern void process_shmem_init(void);
extern void process_describe(struct BackgroundWorker *worker, const char *name,
							 const char *function, int arg);
extern void process_register(const Process *process);
extern bool process_replace(const Process *process);
extern void process_notice_reloads(void);
extern void process_settle(const char *synchronous_commit);
extern void process_run(const Process *process);
extern bool process_may_log(void);
extern bool process_is_there(ProcessId id);
extern int	process_pid(ProcessId id, int64 *still_ms);
extern void process_wake(ProcessId id);
extern void process_notify(ProcessId id);
extern void process_set_latch(int procno);

#endif							/* SNOWID_PROCESS_H */
