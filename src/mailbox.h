/*
 * mailbox.h
 *		Questions of one process to another in shared memory, one at a time.
 */
#ifndef SNOWID_MAILBOX_H
#define SNOWID_MAILBOX_H

#include "storage/spin.h"

#include "compat.h"
#include "process.h"

/* Whose turn it is: the letter belongs to that process. */
typedef enum MailState
{
	MAIL_NONE,					/* nobody's; or, for a process, not its own */
	MAIL_WRITING,				/* the asker's */
	MAIL_PLACED,				/* nobody's: it may be withdrawn, or be taken */
	MAIL_TAKEN,					/* the taker's, which must answer */
	MAIL_ANSWERED				/* the asker's, until it leaves */
} MailState;

typedef struct Mailbox
{
	slock_t		mutex;			/* protects the following fields only */
	MailState	state;
	int			asker;			/* PROC number; -1: it has left */
	int			taker;			/* PROC number, while it is taken */
} Mailbox;

extern void mailbox_init(Mailbox *box);

/* for the process that asks */
extern bool mailbox_place(Mailbox *box, void *letter, const void *question, Size size);
extern MailState mailbox_look(Mailbox *box);
extern bool mailbox_leave(Mailbox *box);
extern MailState mailbox_ask(Mailbox *box, void *letter, void *question, Size size,
							 ProcessId process, int64 ms, OwnWait wait);

/* for the process that answers */
extern bool mailbox_take(Mailbox *box);
extern void mailbox_put_back(Mailbox *box);
extern bool mailbox_has_taken(Mailbox *box);
extern void mailbox_answer(Mailbox *box);

#endif							/* SNOWID_MAILBOX_H */
