/*
 * process.h
 *		Our background processes: how to find and wake them, what one asks another,
 *		and their common loop.
 */
#ifndef SNOWID_PROCESS_H
#define SNOWID_PROCESS_H

#include "storage/lwlock.h"

/*
 * The wait events of callers and of our processes.  pg_stat_activity shows the
 * names from PostgreSQL 17 on, and "Extension" before.
 */
typedef enum OwnWait
{
	WAIT_CLOCK,					/* a caller: until its key is due */
	WAIT_KEEPER,				/* a caller: for a grant, or for the gate */
	WAIT_ADVANCE,				/* snowid_advance(): for the keeper */
	WAIT_REGISTRY,				/* an administrator: for the registry */
	WAIT_NETWORK,				/* registry and segments: for an answer */
	WAIT_SEGMENT,				/* a caller: for a range of numbers */
	WAIT_MAIN					/* each process: for its next turn */
} OwnWait;

#define OWN_WAITS (WAIT_MAIN + 1)

extern uint32 own_wait(OwnWait which);

typedef enum ProcessId
{
	PROCESS_KEEPER,
	PROCESS_REGISTRY,
	PROCESS_SEGMENTS			/* one of many */
} ProcessId;

/*
 * The pause until the next turn.  After a failure only news and signals end it
 * early; otherwise any wake-up does.
 */
typedef struct Pause
{
	long		ms;
	bool		after_failure;
	bool		leave;			/* instead: it has done what it was for */
} Pause;

/* A process that runs the common loop. */
typedef struct Process
{
	ProcessId	id;
	const char *name;
	bool		is_one_of_many; /* connects itself to a database, and runs on
								 * no standby */

	/* "reloaded": settings may differ */
	Pause		(*turn) (bool reloaded);
	/* after an error in a turn; no lock is held */
	Pause		(*recover) (const ErrorData *error);
	/* at a shutdown, or after pg_terminate_backend() */
	void		(*stop) (void);
	/* at any exit */
	void		(*leave) (void);
} Process;

extern void *shmem_area(bool reserve, const char *name, Size size);
extern void process_shmem(bool reserve);
extern void process_register(const Process *process);
extern bool process_start(const Process *process, int number);
extern int	process_number(void);
extern void process_connect(Oid database, const char *synchronous_commit);
extern void process_run(const Process *process);
extern bool process_may_log(void);
extern bool process_is_there(ProcessId id);
extern int	process_pid(ProcessId id, int64 *still_ms);
extern void process_wake(ProcessId id);
extern void process_notify(ProcessId id);
extern void process_set_latch(int procno);

/*---- Mailboxes: questions in shared memory, one at a time ----*/

/* Whose turn it is: the letter belongs to that process. */
typedef enum MailState
{
	MAIL_NONE,					/* nobody's: there is no question */
	MAIL_PLACED,				/* nobody's: it may be withdrawn, or be taken */
	MAIL_TAKEN,					/* the taker's, which must answer */
	MAIL_ANSWERED				/* the asker's, until it leaves */
} MailState;

typedef struct Mailbox
{
	LWLock	   *lock;			/* protects state and asker */
	void	   *letter;			/* the question, and then the answer */
	Size		size;
	MailState	state;
	int			asker;			/* PROC number; -1: it has left */
} Mailbox;

extern void mailbox_init(Mailbox *box, LWLock *lock, void *letter, Size size);

/* for the process that asks */
extern bool mailbox_place(Mailbox *box, const void *question);
extern MailState mailbox_ask(Mailbox *box, void *question, ProcessId process, int64 ms, OwnWait wait);

/* for the process that answers */
extern bool mailbox_take(Mailbox *box);
extern void mailbox_put_back(Mailbox *box);
extern bool mailbox_has_taken(Mailbox *box);
extern void mailbox_answer(Mailbox *box);

#endif							/* SNOWID_PROCESS_H */
