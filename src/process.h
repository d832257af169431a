/*
 * process.h
 *		Our background processes: who is there, how to wake them, and the loop of
 *		those that stay.
 */
#ifndef SNOWID_PROCESS_H
#define SNOWID_PROCESS_H

#pragma GCC visibility push(hidden)

typedef enum ProcessId
{
	PROCESS_KEEPER,
	PROCESS_REGISTRY
} ProcessId;

#define PROCESSES (PROCESS_REGISTRY + 1)

/* Until the next turn; after a failure the pause is kept, unless there are news. */
typedef struct Pause
{
	long		ms;
	bool		after_failure;
} Pause;

/* A process that stays. */
typedef struct Process
{
	ProcessId	id;
	const char *name;
	const char *function;

	/* one turn; "news": it was told so; "reloaded": settings may be new */
	Pause		(*turn) (bool news, bool reloaded);
	/* an error ended the turn; no lock is held */
	Pause		(*recover) (const ErrorData *error);
	/* told to leave: by a shutdown, or by pg_terminate_backend() */
	void		(*stop) (void);
	/* runs when it leaves, in whatever way, twice perhaps */
	void		(*leave) (void);
} Process;

struct BackgroundWorker;

extern Size process_shmem_size(void);
extern void process_shmem_init(void);
extern void process_describe(struct BackgroundWorker *worker, const char *name,
							 const char *function);
extern void process_register(const Process *process);
extern void process_run(const Process *process);
extern bool process_may_log(void);
extern bool process_is_there(ProcessId id);
extern int	process_pid(ProcessId id, int64 *still_ms);
extern void process_wake(ProcessId id);
extern void process_notify(ProcessId id);
extern void process_set_latch(int procno);

#pragma GCC visibility pop

#endif							/* SNOWID_PROCESS_H */
