/*
 * claim.c
 *		The claim in shared memory: as the snowid keeper and administrators'
 *		sessions see it.
 *
 * Creates the state that is in state.h.  It decides nothing; the snowid registry
 * does.  A lost claim is not used, because the gate opens only through
 * claim_enter(), under the lock under which a claim is withdrawn; and a claim
 * that is withdrawn while the gate is open stays CLAIM_LOST until the keeper has
 * closed the gate and removed it from the state file.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "key/layout.h"
#include "mailbox.h"
#include "process.h"
#include "registry/claim.h"
#include "registry/state.h"
#include "settings.h"

/* For so long after the start the registry process may be missing. */
#define START_MS 2000

/* A caller looks again after this time whether it can ask. */
#define ASK_MS 20

Registry   *registry = NULL;
RegistryMail *registry_mail = NULL;
LWLock	   *registry_lock = NULL;

/*---- Shared memory ----*/

void
claim_shmem_request(void)
{
	RequestAddinShmemSpace(add_size(MAXALIGN(sizeof(Registry)),
									MAXALIGN(sizeof(RegistryMail))));
	RequestNamedLWLockTranche("snowid_registry", 1);
}

void
claim_shmem_init(void)
{
	bool		found;

	registry_lock = &GetNamedLWLockTranche("snowid_registry")->lock;
	registry = ShmemInitStruct("snowid registry", sizeof(Registry), &found);
	registry_mail = ShmemInitStruct("snowid registry's mail", sizeof(RegistryMail), &found);
	if (found)
		return;
	memset(registry, 0, sizeof(Registry));
	registry->limit_ms = PG_INT64_MAX;
	memset(registry_mail, 0, sizeof(RegistryMail));
	mailbox_init(&registry_mail->box);
}

bool
claim_from_redis(void)
{
	return snowid_redis_url[0] != '\0';
}

/* A random number, used by no other server; never 0. */
uint64
random_id(void)
{
	uint64		id;

	if (!pg_strong_random(&id, sizeof(id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	return id | 1;				/* 0 stands for none */
}

/* The registry's place by the settings, as a hash; 0: there is none. */
uint64
claim_home(void)
{
	char	   *where;

	if (!claim_from_redis())
		return 0;
	where = psprintf("%s\n%s", snowid_redis_url, snowid_redis_prefix);
	return hash_bytes_extended((unsigned char *) where, strlen(where), 0) | 1;
}

/*---- The snowid keeper's side ----*/

/* The registry's last span and generation, which must outlive Redis. */
void
claim_marks(int64 *span_ms, int64 *high)
{
	LWLockAcquire(registry_lock, LW_SHARED);
	*span_ms = registry->span_ms;
	*high = registry->high;
	LWLockRelease(registry_lock);
}

/*
 * Does the registry know which server this is?  And has it lost the claim to a
 * clone of this server?
 */
bool
claim_has_identity(bool *clone)
{
	bool		has_identity;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	has_identity = registry->has_identity;
	*clone = registry->state == CLAIM_LOST && registry->clone;
	LWLockRelease(registry_lock);
	return has_identity;
}

/*
 * The identity as it is in the state file now.  The first one, or one with
 * another ID, begins a start.  A lost claim must have left the file.
 */
void
claim_set_identity(const Identity *identity, const char *boot, bool is_start)
{
	uint64		token = random_id();
	int64		now = monotonic_ms();

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (!registry->has_identity || memcmp(registry->identity.id, identity->id, sizeof(identity->id)) != 0)
	{
		registry->token = token;
		registry->n = 0;
		registry->state = CLAIM_LOST;
		strlcpy(registry->boot, boot, sizeof(registry->boot));
	}
	registry->identity = *identity;
	if (!registry->has_identity)
	{
		registry->known_since = now;
		registry->span_ms = identity->span_ms;
		registry->high = identity->high;
	}
	registry->has_identity = true;
	if (registry->state == CLAIM_LOST && (is_start || identity->claim.ownership == 0))
	{
		registry->state = CLAIM_NONE;
		registry->clone = false;
	}
	LWLockRelease(registry_lock);
	process_wake(PROCESS_REGISTRY);
}

/*
 * The pair that may be used, and up to which Unix ms; or the reason why there is
 * none.  GATE_CLAIM_LOST: the keeper must close the gate and forget the claim.
 */
GateReason
claim_held(Claim *claim, int64 *limit_ms, char *err)
{
	GateReason	reason = GATE_MAY_OPEN;
	bool		has_process;
	int64		now = monotonic_ms();

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	has_process = process_is_there(PROCESS_REGISTRY) || now < registry->known_since + START_MS ||
		!registry->has_identity;
	*claim = registry->claim;
	*limit_ms = registry->limit_ms;
	if (registry->state != CLAIM_HELD)
	{
		memcpy(err, registry->detail, GATE_DETAIL_LEN);
		reason = registry->state == CLAIM_LOST ? GATE_CLAIM_LOST :
			registry->refused ? GATE_CLAIM_REFUSED : GATE_CLAIM;
	}
	LWLockRelease(registry_lock);
	if (reason == GATE_CLAIM && (err[0] == '\0' || !has_process))
		strlcpy(err, has_process ? "Redis has not answered yet." :
				"The \"snowid registry\" process is not running; increase max_worker_processes.",
				GATE_DETAIL_LEN);
	return reason;
}

/*
 * The keeper's clock is at now_ms.  wish_ms is a higher ceiling than the usual
 * one, or 0; "hurry": the present limit is too low.
 */
void
claim_propose(int64 now_ms, int64 wish_ms, bool hurry)
{
	int64		horizon = snowid_redis_lease > 0 ? snowid_redis_lease :
	2 * (int64) snowid_redis_mark_interval;
	int64		proposed = Max(now_ms + snowid_max_lead + RESERVE_MS + horizon, wish_ms);
	bool		wake;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	wake = hurry || registry->proposed_ms == 0;
	registry->proposed_ms = Max(Min(proposed, Min(MAX_MS, layout_last_ms(&server_layout))), 0);
	registry->reach_ms = Max(now_ms + snowid_max_lead, 0);
	registry->hurry |= hurry;
	LWLockRelease(registry_lock);
	if (wake)
		process_wake(PROCESS_REGISTRY);
}

/*
 * The gate is about to open with this claim, with keys up to used_ms.  False: the
 * claim was lost.
 */
bool
claim_enter(const Claim *claim, int64 used_ms)
{
	bool		held;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	held = !claim_from_redis() ||
		(registry->state == CLAIM_HELD && registry->claim.ownership == claim->ownership);
	if (held)
	{
		registry->entered = claim->ownership;
		registry->used_ms = Max(Min(used_ms, MAX_MS), 0);
	}
	LWLockRelease(registry_lock);
	return held;
}

/* Keys up to used_ms are about to be granted. */
void
claim_use(int64 used_ms)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (registry->entered != 0)
		registry->used_ms = Max(registry->used_ms, Min(used_ms, MAX_MS));
	LWLockRelease(registry_lock);
}

/* The claim that the gate is open with; 0: the gate is closed. */
uint64
claim_entered(void)
{
	uint64		entered;

	LWLockAcquire(registry_lock, LW_SHARED);
	entered = registry->entered;
	LWLockRelease(registry_lock);
	return entered;
}

/* The gate was closed; no key of its claim is above used_ms. */
void
claim_leave(int64 used_ms)
{
	bool		was_entered;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	was_entered = registry->entered != 0;
	if (was_entered)
	{
		registry->left.ownership = registry->entered;
		registry->left.used_ms = Max(Min(used_ms, MAX_MS), 0);
		registry->entered = 0;
	}
	LWLockRelease(registry_lock);
	if (was_entered)
		process_wake(PROCESS_REGISTRY);
}

/*
 * The Unix ms above which there is no key of a claim.  False: that is not known,
 * since the gate is open with it, or was not since the server's start.
 */
bool
claim_used(const Claim *claim, int64 *used_ms)
{
	bool		found;

	LWLockAcquire(registry_lock, LW_SHARED);
	found = claim->ownership != 0 && registry->entered != claim->ownership &&
		registry->left.ownership == claim->ownership;
	*used_ms = registry->left.used_ms;
	LWLockRelease(registry_lock);
	return found;
}

/*
 * The keeper wants another worker ID in place of this ownership's, whose keys end
 * far ahead of the clock; 0: it wants none.
 */
void
claim_unwanted(uint64 ownership, int64 end_ms)
{
	bool		is_new;

	if (!claim_from_redis())
		return;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	is_new = registry->unwanted != ownership;
	registry->unwanted = ownership;
	registry->unwanted_ms = Max(Min(end_ms, MAX_MS), 0);
	if (is_new)
		registry->no_other[0] = '\0';
	LWLockRelease(registry_lock);
	if (is_new && ownership != 0)
		process_wake(PROCESS_REGISTRY);
}

/* The reason why no other worker ID could be claimed; false: it is not known (yet). */
bool
claim_why_no_other(char *why)
{
	LWLockAcquire(registry_lock, LW_SHARED);
	memcpy(why, registry->confirmed ? registry->no_other : registry->detail, GATE_DETAIL_LEN);
	LWLockRelease(registry_lock);
	return why[0] != '\0';
}

/*---- Requests of administrators ----*/

void
claim_status(RegistryStatus *status)
{
	LWLockAcquire(registry_lock, LW_SHARED);
	status->is_asking = registry->has_identity && process_is_there(PROCESS_REGISTRY);
	status->held = registry->state == CLAIM_HELD;
	status->confirmed = registry->confirmed;
	status->lease_ms = registry->claim.lease_ms;
	status->limit_ms = registry->limit_ms;
	status->last_ok = registry->last_ok;
	status->last_error_at = registry->last_error_at;
	memcpy(status->detail, registry->detail, GATE_DETAIL_LEN);
	memcpy(status->last_error, registry->last_error, NET_ERR_LEN);
	LWLockRelease(registry_lock);
}

static void
stop_asking(int code, Datum arg)
{
	mailbox_leave(&registry_mail->box);
}

/*
 * Has the registry carry out a request, and waits up to snowid.redis_timeout.
 * False: there is no answer; the request may still be carried out.
 */
bool
claim_ask(RegistryRequest *request)
{
	int64		ends = monotonic_ms() + snowid_redis_timeout;
	volatile bool answered = false;

	PG_ENSURE_ERROR_CLEANUP(stop_asking, (Datum) 0);
	{
		while (!answered && monotonic_ms() < ends)
		{
			if (mailbox_place(&registry_mail->box, &registry_mail->request, request, sizeof(*request)))
				process_wake(PROCESS_REGISTRY);
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(ms_until(ends), ASK_MS), own_wait(WAIT_REGISTRY));
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			answered = mailbox_look(&registry_mail->box) == MAIL_ANSWERED;
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_asking, (Datum) 0);
	if (answered)
		*request = registry_mail->request;
	mailbox_leave(&registry_mail->box);
	return answered;
}
