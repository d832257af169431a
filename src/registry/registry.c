/*
 * registry.c
 *		The process "snowid registry": claims this server's worker ID from Redis,
 *		marks it, gives it back.  Here are its turns.
 *
 * Runs only with snowid.redis_url.  It alone talks to Redis; it makes no key,
 * opens no gate and writes no file.  It says in shared memory which pair may be
 * used and up to when, and the snowid keeper acts on it.  A claim takes effect in
 * this order: answered by Redis, written to the state file, gate opened.  It ends
 * in this one: gate closed, removed from the file, released in Redis.
 *
 * The rules of the registry are in registry.lua.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/resowner.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "process.h"
#include "registry/link.h"
#include "registry/registry.h"
#include "registry/registry_claim.h"
#include "registry/registry_contact.h"
#include "registry/registry_request.h"
#include "registry/registry_view.h"
#include "settings.h"

/* The pause between turns when nothing is due. */
#define IDLE_MS 1000

/* How long a shutdown waits for the keeper to close the gate. */
#define CLOSE_MS 1000

/*
 * Withdraws a lease that is not in use, so that no gate opens with it any more.
 * False: it is in use or in the state file, or there is none.
 */
static bool
withdraw_lease(void)
{
	bool		withdrawn;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	withdrawn = registry->state == CLAIM_HELD && registry->confirmed &&
		registry->claim.lease_ms > 0 && registry->entered == 0 &&
		registry->identity.claim.ownership != registry->claim.ownership;
	if (withdrawn)
	{
		registry->state = CLAIM_NONE;
		registry->confirmed = false;
	}
	LWLockRelease(registry_lock);
	return withdrawn;
}

/*---- The process ----*/

static Pause
registry_turn(bool news, bool reloaded)
{
	Pause		pause = {.ms = IDLE_MS};
	bool		ready;

	/* for PostgreSQL's hash functions */
	if (CurrentResourceOwner == NULL)
		CurrentResourceOwner = ResourceOwnerCreate(NULL, "snowid registry");
	if (reloaded)
	{
		link_close();			/* password and certificates may be new */
		next_contact = 0;
	}
	answered = false;
	if (registry_look(true))
	{
		registry_serve_request();
		(void) registry_look(false);
	}
	/* not before the keeper has read file and clock, or closed the gate */
	ready = seen.has_identity && seen.proposed_ms != 0 && seen.state != CLAIM_LOST;
	if (ready)
		registry_tend_claim();
	if (answered)
		registry_all_is_well();
	if (ready)
		pause.ms = ms_until(next_contact);
	return pause;
}

static Pause
registry_recover(const ErrorData *error)
{
	Pause		pause = {.ms = IDLE_MS};

	EmitErrorReport();
	link_close();
	registry_try_later();
	return pause;
}

/*
 * A shutdown gives a lease back, when the gate is closed and if Redis answered
 * the last call.
 */
static void
registry_stop(void)
{
	int64		ends = monotonic_ms() + CLOSE_MS;

	(void) registry_look(false);
	while (seen.state == CLAIM_HELD && seen.claim.lease_ms > 0 &&
		   (seen.entered != 0 || seen.identity.claim.ownership == seen.claim.ownership) &&
		   monotonic_ms() < ends)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 10, own_wait(WAIT_REGISTRY_MAIN));
		ResetLatch(MyLatch);
		(void) registry_look(false);
	}
	if (withdraw_lease() && backoff == 0)
	{
		(void) registry_look(false);
		(void) registry_release(&seen.claim, true);
	}
}

static const Process process = {
	.id = PROCESS_REGISTRY,
	.name = "snowid registry",
	.function = "snowid_registry_main",
	.wait = WAIT_REGISTRY_MAIN,
	.turn = registry_turn,
	.recover = registry_recover,
	.stop = registry_stop,
	.leave = link_close
};

/* Runs in the postmaster, if a Redis is configured. */
void
registry_register(void)
{
	process_register(&process);
}

void
snowid_registry_main(Datum main_arg)
{
	process_run(&process);
}
