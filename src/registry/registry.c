/*
 * registry.c
 *		The background worker "snowid registry": claims this server's worker ID
 *		from Redis, marks it, gives it back.  Here are its turns.
 *
 * There with snowid.redis_url only.  Alone talks to Redis; makes no key, opens
 * no gate and writes no file: it says in shared memory which pair may be used
 * and up to where, and the snowid keeper acts on it.  The order in which a
 * claim takes effect: answered here, in the state file, gate opened.  In which
 * it ends: gate closed, out of the file, released here.
 *
 * What Redis executes late or twice does no harm: each call carries the start's
 * token and a number that rises.  The rules of the registry are in
 * registry.lua; how a call is made, in redis.c.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/resowner.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "process.h"
#include "registry/redis.h"
#include "registry/registry.h"
#include "registry/registry_claim.h"
#include "registry/registry_contact.h"
#include "registry/registry_request.h"
#include "registry/registry_view.h"

/* How often it looks, where nobody wakes it and nothing is due. */
#define IDLE_MS 1000

/* How long a shutdown waits for gate and file, before it releases. */
#define CLOSE_MS 1000

/*
 * No gate opens with a lease from here on; false: one is open, the file still
 * has it, or there is none.
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
		redis_disconnect();		/* secrets and certificates may be new */
		next_contact = 0;
	}
	answered = false;
	if (registry_look(true))
	{
		registry_serve_request();
		(void) registry_look(false);
	}
	/* the keeper comes first: file and clock, and a lost claim's gate */
	ready = seen.has_identity && seen.proposed_ms != 0 && seen.state != CLAIM_LOST;
	if (ready)
		registry_tend_claim();
	if (answered)
		registry_all_is_well();
	if (ready)
		pause.ms = Max(next_contact - monotonic_ms(), 1);
	return pause;
}

static Pause
registry_recover(const ErrorData *error)
{
	Pause		pause = {.ms = IDLE_MS};

	EmitErrorReport();
	redis_disconnect();
	registry_try_later();
	return pause;
}

/*
 * In a shutdown a lease is given back, once the gate is closed and if Redis
 * answered the last time.
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
	.leave = redis_disconnect
};

/* Runs in the postmaster, where a Redis is configured. */
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
