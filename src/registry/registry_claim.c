/*
 * registry_claim.c
 *		Claims, marks and releases the worker ID.
 *
 * Acts on what the script answers (the rules are in registry.lua), and says in
 * shared memory what the snowid keeper may use.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "key/layout.h"
#include "process.h"
#include "registry/redis.h"
#include "registry/registry_call.h"
#include "registry/registry_claim.h"
#include "registry/registry_contact.h"
#include "registry/registry_view.h"
#include "settings.h"

static bool untidy;				/* a second ID may have been claimed by a call
								 * without an answer */
static bool settling;			/* said Redis, the last time: it does not help
								 * to hurry */
static bool revoked;			/* the next call is to release revoked_claim */
static Claim revoked_claim;
static uint64 asked_for;		/* the unwanted claim in whose place another
								 * ID was asked for, or 0 */
static char refusal[GATE_DETAIL_LEN];	/* why Redis refused the last time */
static char logged_refusal[GATE_DETAIL_LEN];

/*
 * The ceiling of the keys made with a claim since the start; 0: there are none,
 * or it is not known.
 */
static int64
used_of(const Claim *claim)
{
	if (claim->ownership != 0 && seen.entered == claim->ownership)
		return seen.used_ms;
	if (claim->ownership != 0 && seen.left.ownership == claim->ownership)
		return seen.left.used_ms;
	return 0;
}

/*
 * May the claim be resumed where Redis forgot it?  "now": it is in use and cannot
 * have lapsed, and Redis heard of it without a gap.  "held": it is in use.
 * "settled": after the settling.  "record": only if its record is still there.
 */
static const char *
resume(const Claim *claim, int64 now)
{
	bool		for_good = claim->lease_ms == 0 && snowid_redis_lease == 0;
	bool		connected = seen.confirmed && now - seen.renewed_at < 2 * registry_interval();

	if (seen.state == CLAIM_HELD && claim->ownership == seen.claim.ownership &&
		(for_good || (seen.confirmed && now - seen.renewed_at < snowid_redis_lease)))
		return connected || !for_good ? "now" : "held";
	return for_good && !watching ? "settled" : "record";
}

/*
 * Redis refuses a worker ID, and will be asked again, since one may become free.
 * A server that only wanted to change ("change") keeps the one it has.
 */
static void
refuse(bool change, const char *detail)
{
	strlcpy(refusal, detail, sizeof(refusal));
	if (change)
	{
		if (strcmp(logged_refusal, detail) != 0 && process_may_log())
			ereport(LOG,
					(errmsg("snowid keeps worker ID %d of datacenter %d",
							seen.claim.worker_id, seen.claim.datacenter_id),
					 errdetail("%s", detail)));
		strlcpy(logged_refusal, detail, sizeof(logged_refusal));
		return;
	}
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (registry->state == CLAIM_HELD || registry->identity.claim.ownership != 0)
	{
		/* nor may the claim in the state file be used */
		registry->state = CLAIM_LOST;
		registry->confirmed = false;
	}
	LWLockRelease(registry_lock);
	registry_set_detail(true, detail);
}

/* The claim is lost.  The keeper closes the gate before another is claimed. */
static void
lose(bool clone, const char *detail)
{
	static int64 last_loss = PG_INT64_MIN / 2;
	int64		now = monotonic_ms();

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	registry->state = CLAIM_LOST;
	registry->confirmed = false;
	registry->clone = clone;
	LWLockRelease(registry_lock);
	registry_set_detail(false, detail);
	watching = false;
	/* the next claim is tried at once, unless this happens again and again */
	next_contact = now < last_loss + 10 * registry_mark_interval() ? now + registry_mark_interval() : 0;
	last_loss = now;
}

/*
 * Another server has the record, or nobody.  If it took the ID as the same server
 * while this server had it, then both are alive: from now on this one is another.
 */
static void
lose_to(char **answer, const Claim *claim)
{
	lose(seen.confirmed && strcmp(answer[2], "server") == 0,
		 psprintf("Worker ID %d of datacenter %d was released, or is now held by \"%.64s\".",
				  claim->worker_id, claim->datacenter_id, answer[1]));
}

static void
got_claim(const Claim *claim, int64 ceiling_ms, int64 asked_at, const Claim *known)
{
	bool		is_new;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	is_new = registry->state != CLAIM_HELD || !registry->confirmed ||
		registry->claim.ownership != claim->ownership;
	/* the old claim is released when the keeper uses the new one */
	if (known->ownership != 0 && !same_pair(known, claim))
		registry->leaving = *known;
	registry->claim = *claim;
	registry->limit_ms = claim->lease_ms > 0 ? ceiling_ms : PG_INT64_MAX;
	registry->renewed_at = asked_at;
	registry->state = CLAIM_HELD;
	registry->confirmed = true;
	registry->refused = false;
	registry->detail[0] = '\0';
	LWLockRelease(registry_lock);
	watching = false;
	logged_refusal[0] = '\0';
	memset(&revoked_claim, 0, sizeof(revoked_claim));
	process_notify(PROCESS_KEEPER);
	if (is_new)
		ereport(LOG,
				(errmsg("snowid claimed worker ID %d of datacenter %d as \"%s\"",
						claim->worker_id, claim->datacenter_id, registry_server_name())));
}

/*
 * Takes what says that the claim is lost, with a claim or a mark.  False: the
 * answer says something else.
 */
static bool
is_lost(char **answer, int count, const Claim *claim)
{
	const char *outcome = answer[0];

	if (strcmp(outcome, "lost") == 0 && count == 3)
		lose_to(answer, claim);
	else if (strcmp(outcome, "late") == 0)
		lose(true, "Another server runs from a copy of this one's memory.");
	else if (strcmp(outcome, "older") == 0)
		lose(true, "This data directory was started later by another server: this is an old copy, or that is one.");
	else if (strcmp(outcome, "twin") == 0)
		lose(true, "Another server uses a copy of this data directory, or has not given its lease back.");
	else if (strcmp(outcome, "other") == 0)
		lose(false, psprintf("Worker ID %d of datacenter %d was claimed from another registry.",
							 claim->worker_id, claim->datacenter_id));
	else
		return false;
	return true;
}

/* Two Redis would give the same ID to two servers: no new one, until one is left. */
static void
refuse_two(bool change, const char *masters)
{
	static char logged[NET_ERR_LEN];

	if (strcmp(logged, masters) != 0)
		ereport(WARNING,
				(errmsg("snowid claims no worker ID while two of its Redis are masters"),
				 errdetail("%s.", masters),
				 errhint("Make one of them a replica of the other, or stop it.")));
	strlcpy(logged, masters, sizeof(logged));
	refuse(change, psprintf("%s.", masters));
	next_contact = monotonic_ms() + registry_mark_interval();
}

/*
 * Claims a worker ID: the one that the server has or remembers, if the settings
 * allow it; with "move", another one.
 */
static void
claim_worker_id(bool move)
{
	const Claim *known = seen.state == CLAIM_HELD ? &seen.claim : &seen.identity.claim;
	bool		change = seen.state == CLAIM_HELD && (move || !registry_settings_allow(&seen.claim));
	int64		began = monotonic_ms();
	RegistryCall call;
	char	  **answer;
	int			count;
	Claim		claim;
	int64		ceiling_ms;
	int64		ms;
	char	   *text;
	char		err[NET_ERR_LEN];

	/* prefers another ID to the one that was revoked */
	if (seen.state == CLAIM_NONE && revoked_claim.ownership != 0)
	{
		known = &revoked_claim;
		move = true;
	}
	if ((known->ownership == 0 || move) && !redis_is_one(err))
	{
		untidy |= change;
		refuse_two(change, err);
		return;
	}
	registry_begin_call(&call, "claim", snowid_datacenter_id, known);
	registry_argument(&call, "count", registry_number(INT64CONST(1) << server_layout.worker_bits));
	registry_argument(&call, "fresh", registry_hex(random_id()));
	registry_argument(&call, "ceiling", registry_number(seen.proposed_ms));
	/* the clock may have been set back since the keeper looked */
	registry_argument(&call, "reach",
					  registry_number(Max(Min(seen.reach_ms,
											  unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_lead), 0)));
	registry_argument(&call, "known", registry_field(known));
	registry_argument(&call, "ownership", registry_hex(known->ownership));
	registry_argument(&call, "generation", registry_number(known->generation));
	registry_argument(&call, "floor", registry_number(Max(known->floor_ms, 0)));
	registry_argument(&call, "used", registry_number(used_of(known)));
	registry_argument(&call, "resume", resume(known, began));
	registry_argument(&call, "up", registry_number(began - seen.known_since));
	registry_argument(&call, "move", move ? "1" : "0");
	registry_argument(&call, "leaving", registry_field(&seen.leaving));
	registry_argument(&call, "past", registry_past());
	if (!registry_call(&call, false, &answer, &count, NULL))
	{
		untidy |= change;
		return;
	}
	untidy = false;
	settling = strcmp(answer[0], "settling") == 0;

	next_contact = monotonic_ms() + registry_mark_interval();
	if (strcmp(answer[0], "yours") == 0 && count == 9 &&
		registry_parse_claim(answer, &claim, &ceiling_ms) && registry_keep_marks(answer + 7))
	{
		if (registry_check_time(&claim, Max(claim.floor_ms, ceiling_ms)))
			got_claim(&claim, ceiling_ms, began, known == &revoked_claim ? &seen.identity.claim : known);
	}
	else if (is_lost(answer, count, known))
		return;
	else if (strcmp(answer[0], "silence") == 0 && count == 2 &&
			 registry_parse_number(answer[1], MAX_MS, &ms))
	{
		watching = true;
		registry_set_detail(false, "The worker ID that this data directory had before the machine was restarted is taken back when no other server uses it.");
		next_contact = Min(next_contact, monotonic_ms() + Max(ms, FIRST_PAUSE_MS));
	}
	else if (strcmp(answer[0], "settling") == 0 && count == 3 &&
			 registry_parse_number(answer[1], MAX_MS, &ms) && registry_parse_number(answer[2], MAX_MS, &ceiling_ms))
	{
		snprintf(refusal, sizeof(refusal), "The registry is empty, or Redis was restarted: until %s, by its clock, only servers that already have a worker ID get it.",
				 timestamptz_to_str(timestamptz_from_unix_ms(ceiling_ms)));
		if (!change)
			registry_set_detail(false, refusal);
		/* not all at the same moment */
		next_contact = Min(next_contact, monotonic_ms() + ms + 1 +
						   (int64) pg_prng_uint64_range(&pg_global_prng_state, 0, registry_mark_interval()));
	}
	else if ((text = registry_refusal(answer, count)) !=NULL)
	{
		/* there is no other: it may have that one again when it is free */
		if (known == &revoked_claim)
			memset(&revoked_claim, 0, sizeof(revoked_claim));
		refuse(change && strcmp(answer[0], "layout") != 0, text);
	}
	else
		registry_nonsense("claim");
}

/* Tells Redis that the server is alive and what it has; renews a lease. */
static void
mark(void)
{
	int64		began = monotonic_ms();
	RegistryCall call;
	char	  **answer;
	int			count;
	int64		ceiling_ms;

	registry_begin_call(&call, "mark", seen.claim.datacenter_id, &seen.claim);
	registry_argument(&call, "worker", registry_number(seen.claim.worker_id));
	registry_argument(&call, "ownership", registry_hex(seen.claim.ownership));
	registry_argument(&call, "generation", registry_number(seen.claim.generation));
	registry_argument(&call, "floor", registry_number(Max(seen.claim.floor_ms, 0)));
	registry_argument(&call, "ceiling", registry_number(seen.proposed_ms));
	registry_argument(&call, "used", registry_number(used_of(&seen.claim)));
	registry_argument(&call, "resume", resume(&seen.claim, began));
	registry_argument(&call, "past", registry_past());
	if (!registry_call(&call, false, &answer, &count, NULL))
		return;
	next_contact = monotonic_ms() + registry_mark_interval();
	if (strcmp(answer[0], "ok") == 0 && count == 5 && registry_parse_number(answer[1], MAX_MS, &ceiling_ms) &&
		registry_keep_marks(answer + 3))
	{
		if (!registry_check_time(&seen.claim, ceiling_ms))
			return;
		LWLockAcquire(registry_lock, LW_EXCLUSIVE);
		if (seen.claim.lease_ms > 0)
			registry->limit_ms = ceiling_ms;
		registry->hurry = false;
		registry->renewed_at = began;
		registry->detail[0] = '\0';
		LWLockRelease(registry_lock);
		settling = false;
		if (seen.claim.lease_ms > 0)
			process_notify(PROCESS_KEEPER);
	}
	else if (is_lost(answer, count, &seen.claim))
		return;
	else if (strcmp(answer[0], "gone") == 0 && registry_settings_allow(&seen.claim))
		claim_worker_id(false);
	else if (strcmp(answer[0], "gone") == 0)
		lose(false, psprintf("The lease of worker ID %d of datacenter %d has lapsed, and the settings want another datacenter.",
							 seen.claim.worker_id, seen.claim.datacenter_id));
	else if (strcmp(answer[0], "revoked") == 0)
	{
		revoked = true;
		revoked_claim = seen.claim;
		lose(false, psprintf("Worker ID %d of datacenter %d was revoked by snowid_release().",
							 seen.claim.worker_id, seen.claim.datacenter_id));
	}
	else if (strcmp(answer[0], "layout") == 0 && count == 3)
		refuse(false, registry_layout_conflict(answer));
	else
		registry_nonsense("mark");
}

/*
 * Gives back a claim with which no more keys are made, with the ceiling that the
 * state file has.  True: done.
 */
bool
registry_release(const Claim *claim, bool last_call)
{
	RegistryCall call;
	char	  **answer;
	int			count;
	char		err[NET_ERR_LEN];
	const PastClaim *past = NULL;

	for (int i = 0; i < PAST_CLAIMS && !past; i++)
		if (seen.identity.past[i].ownership == claim->ownership)
			past = &seen.identity.past[i];
	registry_begin_call(&call, "release", claim->datacenter_id, claim);
	registry_argument(&call, "worker", registry_number(claim->worker_id));
	registry_argument(&call, "ownership", registry_hex(claim->ownership));
	/* a claim that was never in the file was never used */
	registry_argument(&call, "ceiling", registry_number(past ? past->ceiling_ms : 0));
	registry_argument(&call, "exact", past && past->exact ? "1" : "0");
	if (!registry_call(&call, last_call, &answer, &count, err))
	{
		if (!last_call)
			registry_no_answer(err);
		return false;
	}
	if (strcmp(answer[0], "ok") == 0)
		ereport(LOG,
				(errmsg("snowid released worker ID %d of datacenter %d",
						claim->worker_id, claim->datacenter_id)));
	else if (strcmp(answer[0], "lost") != 0 && strcmp(answer[0], "late") != 0)
	{
		registry_nonsense("release");
		return false;
	}
	return true;
}

/*
 * Claims another worker ID for an administrator.  Returns why Redis refused, or
 * "".
 */
const char *
registry_reclaim(void)
{
	refusal[0] = '\0';
	if (seen.state == CLAIM_HELD && seen.confirmed && seen.leaving.ownership == 0)
		claim_worker_id(true);
	return refusal;
}

/* Does the keeper want another ID than that of the claim? */
static bool
is_unwanted(void)
{
	return seen.unwanted != 0 && seen.unwanted == seen.claim.ownership;
}

/*
 * Claims another worker ID for the keeper, or because the settings do not allow
 * the present one.  If that is refused, the present one is marked all the same.
 */
static void
change_worker_id(void)
{
	uint64		before = seen.claim.ownership;

	refusal[0] = '\0';
	asked_for = seen.unwanted;
	claim_worker_id(is_unwanted());
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (registry->unwanted == before)
		strlcpy(registry->no_other, refusal[0] ? refusal : registry->detail, GATE_DETAIL_LEN);
	LWLockRelease(registry_lock);
	process_notify(PROCESS_KEEPER);
	(void) registry_look(false);
	if (answered && seen.state == CLAIM_HELD && seen.claim.ownership == before)
		mark();
}

/* Does what the claim needs now, if anything. */
void
registry_tend_claim(void)
{
	bool		due = monotonic_ms() >= next_contact;

	if (seen.unwanted == 0)
		asked_for = 0;
	if (revoked && (due || backoff == 0))
		revoked = !registry_release(&revoked_claim, false);
	else if (seen.state == CLAIM_NONE || !seen.confirmed || (untidy && due))
	{
		if (due)
			claim_worker_id(false);
	}
	else if (seen.leaving.ownership != 0 && (due || backoff == 0) &&
			 seen.identity.claim.ownership == seen.claim.ownership)
	{
		if (registry_release(&seen.leaving, false))
		{
			LWLockAcquire(registry_lock, LW_EXCLUSIVE);
			memset(&registry->leaving, 0, sizeof(Claim));
			LWLockRelease(registry_lock);
		}
	}
	else if (seen.leaving.ownership == 0 &&
			 ((is_unwanted() && asked_for != seen.unwanted && backoff == 0) ||
			  (due && (is_unwanted() || !registry_settings_allow(&seen.claim)))))
		change_worker_id();
	else if (due || (seen.hurry && backoff == 0 && !settling))
		mark();
}
