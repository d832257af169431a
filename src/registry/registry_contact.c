/*
 * registry_contact.c
 *		Whether Redis can be used: what is said when it cannot, and when it is
 *		called again.
 *
 * Logs once when Redis can no longer be used, and once when it can be again; the
 * reason of each failure is in the status.  Calls that fail are tried again after
 * pauses that grow up to the interval of the marks.  When Redis cannot be used at
 * the start, a claim for good that is in the state file is used without it.
 */
#include "postgres.h"

#include <unistd.h>

#include "common/pg_prng.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "process.h"
#include "registry/redis.h"
#include "registry/registry_contact.h"
#include "registry/registry_view.h"
#include "settings.h"

static bool logged_failure;		/* by the log, Redis cannot be used */
static char logged_policy[64];

/* The ms between two marks; a lease is renewed at a third of it. */
int
registry_mark_interval(void)
{
	if (snowid_redis_lease > 0)
		return Min(snowid_redis_mark_interval, snowid_redis_lease / 3);
	return snowid_redis_mark_interval;
}

/* The server's name, for people. */
const char *
registry_server_name(void)
{
	static char name[SERVER_NAME_LEN + 1];
	char		host[SERVER_NAME_LEN - 6] = "";

	if (snowid_server_name[0])
		return snowid_server_name;
	if (gethostname(host, sizeof(host)) < 0)
		strlcpy(host, "unknown", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	snprintf(name, sizeof(name), "%s:%d", host, PostPortNumber);
	return name;
}

/* Says why there is no claim. */
void
registry_set_detail(bool refused, const char *detail)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	registry->refused = refused;
	strlcpy(registry->detail, detail, GATE_DETAIL_LEN);
	LWLockRelease(registry_lock);
	process_notify(PROCESS_KEEPER);
}

/* Puts the next call off, by pauses that grow, with jitter. */
void
registry_try_later(void)
{
	backoff = Min(Max(2 * backoff, FIRST_PAUSE_MS), registry_mark_interval());
	next_contact = monotonic_ms() + backoff / 2 +
		(int64) pg_prng_uint64_range(&pg_global_prng_state, 0, backoff / 2);
}

/* A claim from the state file may be older than the layout. */
bool
registry_settings_allow(const Claim *claim)
{
	return claim->datacenter_id == snowid_datacenter_id &&
		claim->worker_id >> server_layout.worker_bits == 0;
}

/* May the claim in the state file be used without Redis? */
static bool
may_use_remembered(void)
{
	const Claim *claim = &seen.identity.claim;

	/*
	 * Not while a record is watched, since another server may have the ID;
	 * nor if the claim may be of another registry.
	 */
	return seen.state == CLAIM_NONE && !watching && seen.identity.home == claim_home() &&
		claim->ownership != 0 && claim->lease_ms == 0 && snowid_redis_lease == 0 && registry_settings_allow(claim);
}

/* Redis gave no answer, or none that can be used. */
void
registry_no_answer(const char *err)
{
	char		detail[GATE_DETAIL_LEN];
	bool		remembered = may_use_remembered();
	TimestampTz now = GetCurrentTimestamp();

	answered = false;
	if (ShutdownRequestPending)
		return;
	snprintf(detail, sizeof(detail), "Redis cannot be used: %s.", err);
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	registry->last_error_at = now;
	strlcpy(registry->last_error, err, sizeof(registry->last_error));
	registry->refused = false;
	memcpy(registry->detail, detail, sizeof(detail));
	if (remembered && registry->state == CLAIM_NONE)
	{
		registry->state = CLAIM_HELD;
		registry->claim = seen.identity.claim;
		registry->limit_ms = PG_INT64_MAX;
	}
	LWLockRelease(registry_lock);
	process_notify(PROCESS_KEEPER);

	if (remembered)
	{
		logged_failure = true;
		ereport(WARNING,
				(errmsg("snowid continues with previously claimed worker ID %d",
						seen.identity.claim.worker_id),
				 errdetail("%s", detail),
				 errhint("It checks the claim as soon as Redis can be used.")));
	}
	else if (!logged_failure && process_may_log())
	{
		logged_failure = true;
		ereport(LOG, (errmsg("Redis cannot be used"), errdetail("%s.", err)));
	}
	registry_try_later();
}

/* Redis has answered in this turn. */
void
registry_all_is_well(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (logged_failure)
		ereport(LOG, (errmsg("Redis can be used again")));
	logged_failure = false;
	if (strcmp(logged_policy, redis_may_evict()) != 0 && redis_may_evict()[0])
		ereport(WARNING,
				(errmsg("Redis may evict snowid's registry"),
				 errdetail("Its maxmemory-policy is \"%s\".", redis_may_evict()),
				 errhint("Use a Redis with maxmemory-policy noeviction or one of volatile-*.")));
	strlcpy(logged_policy, redis_may_evict(), sizeof(logged_policy));
	backoff = 0;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	registry->last_ok = now;
	LWLockRelease(registry_lock);
}
