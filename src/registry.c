/*
 * registry.c
 *		The background worker "snowid registry": claims this server's worker ID
 *		from Redis, marks it, gives it back.
 *
 * There with snowid.redis_url only.  Alone talks to Redis; makes no key, opens
 * no gate and writes no file: it says in shared memory which pair may be used
 * and up to where, and the snowid worker acts on it.  The order in which a
 * claim takes effect: answered here, in the state file, gate opened.  In which
 * it ends: gate closed, out of the file, released here.
 *
 * What Redis executes late or twice does no harm: each call carries the start's
 * token and a number that rises.  The rules of the registry are in
 * registry.lua; how a call is made, in redis.c.
 */
#include "postgres.h"

#include <unistd.h>

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "registry.h"

/* The first pause after a failure; it doubles up to the interval of marks. */
#define FIRST_PAUSE_MS 100

/* How long a shutdown waits for the gate to be closed, before it releases. */
#define CLOSE_MS 1000

/*---- Of this process ----*/

static Registry seen;			/* a copy, as the turn began */
static int64 next_contact = 0;	/* monotonic ms */
static int64 backoff = 0;		/* ms; 0: the last call went well */
static bool answered;			/* in this turn Redis did, and sensibly */
static char silent_key[64];		/* a record that is watched for silence */
static int64 silent_since;		/* PG_INT64_MAX: to be watched anew */
static bool untidy;				/* a second ID may have been claimed */
static bool revoked;			/* the lost claim is to be acknowledged */
static Claim revoked_claim;
static char logged_error[NET_ERR_LEN];
static char logged_policy[64];
static char refusal[GATE_DETAIL_LEN];	/* the last one's reason */
static char logged_refusal[GATE_DETAIL_LEN];

/*---- Small things ----*/

/* Runs in the postmaster, where a Redis is configured. */
void
registry_register(void)
{
	BackgroundWorker worker;

	worker_describe(&worker, "snowid registry", "snowid_registry_main");
	RegisterBackgroundWorker(&worker);
}

/* Between two marks; a lease is renewed at a third of it. */
static int
mark_interval(void)
{
	if (snowid_redis_lease > 0)
		return Min(snowid_redis_check_interval, snowid_redis_lease / 3);
	return snowid_redis_check_interval;
}

/* What people call this server. */
static const char *
node_name(void)
{
	static char name[NODE_NAME_LEN + 1];
	char		host[NODE_NAME_LEN - 6] = "";

	if (snowid_node_name[0])
		return snowid_node_name;
	if (gethostname(host, sizeof(host)) < 0)
		strlcpy(host, "unknown", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	snprintf(name, sizeof(name), "%s:%d", host, PostPortNumber);
	return name;
}

static void
set_detail(bool refused, const char *detail)
{
	SpinLockAcquire(&registry->mutex);
	registry->refused = refused;
	strlcpy(registry->detail, detail, GATE_DETAIL_LEN);
	SpinLockRelease(&registry->mutex);
	generator_wake_worker();
}

/* The next try, with growing pauses and jitter. */
static void
try_later(void)
{
	backoff = Min(Max(2 * backoff, FIRST_PAUSE_MS), mark_interval());
	next_contact = net_now_ms() + backoff / 2 +
		(int64) pg_prng_uint64_range(&pg_global_prng_state, 0, backoff / 2);
}

static bool
settings_allow(const Claim *claim)
{
	return claim->datacenter_id == snowid_datacenter_id &&
		(snowid_worker_id < 0 || snowid_worker_id == claim->worker_id);
}

/* Would the remembered claim do, as far as this server knows? */
static bool
may_use_remembered(void)
{
	const Claim *claim = &seen.node.claim;

	/* nor while somebody else is watched who may have it */
	return seen.state == CLAIM_NONE && silent_key[0] == '\0' &&
		claim->ownership != 0 && claim->lease_ms == 0 && snowid_redis_lease == 0 && settings_allow(claim);
}

/* Redis did not answer, or not as it should. */
static void
no_answer(const char *err)
{
	char		detail[GATE_DETAIL_LEN];
	bool		remembered = may_use_remembered();

	answered = false;
	silent_since = PG_INT64_MAX;
	if (ShutdownRequestPending)
		return;
	snprintf(detail, sizeof(detail), "Redis cannot be used: %s.", err);
	SpinLockAcquire(&registry->mutex);
	strlcpy(registry->last_error, err, sizeof(registry->last_error));
	registry->refused = false;
	memcpy(registry->detail, detail, sizeof(detail));
	if (remembered && registry->state == CLAIM_NONE)
	{
		registry->state = CLAIM_HELD;
		registry->claim = seen.node.claim;
		registry->limit_ms = PG_INT64_MAX;
	}
	SpinLockRelease(&registry->mutex);
	generator_wake_worker();

	if (remembered)
		ereport(WARNING,
				(errmsg("snowid goes on with the worker ID %d that it claimed before",
						seen.node.claim.worker_id),
				 errdetail("%s", detail),
				 errhint("It checks the claim as soon as Redis can be used.")));
	else if (logged_error[0] == '\0')
		ereport(LOG, (errmsg("Redis cannot be used"), errdetail("%s.", err)));
	strlcpy(logged_error, err, sizeof(logged_error));
	try_later();
}

/* Redis answered all that it was asked in this turn. */
static void
all_is_well(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (logged_error[0])
		ereport(LOG, (errmsg("Redis can be used again")));
	logged_error[0] = '\0';
	if (strcmp(logged_policy, redis_may_evict()) != 0 && redis_may_evict()[0])
		ereport(WARNING,
				(errmsg("Redis may evict snowid's registry"),
				 errdetail("Its maxmemory-policy is \"%s\".", redis_may_evict()),
				 errhint("Use a Redis with maxmemory-policy noeviction or one of volatile-*.")));
	strlcpy(logged_policy, redis_may_evict(), sizeof(logged_policy));
	backoff = 0;
	SpinLockAcquire(&registry->mutex);
	registry->last_ok = now;
	SpinLockRelease(&registry->mutex);
}

/*---- Calls of the script ----*/

/* Room for numbers as text, in the memory of one turn. */
static char *
number(int64 value)
{
	return psprintf(INT64_FORMAT, value);
}

static char *
hex(uint64 value)
{
	return psprintf("%016llx", (unsigned long long) value);
}

/* A whole number from 0 to max; false: nonsense. */
static bool
parse_number(const char *text, int64 max, int64 *value)
{
	char	   *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value <= max;
}

/* One try.  False: no answer; the reason is in err. */
static bool
try_call(const char *operation, int datacenter_id, const char **own, int nown,
		 bool last_call, char ***answer, int *count, char *err)
{
	const char *args[32];
	char		layout[LAYOUT_TEXT_LEN];
	uint64		n;

	if (!redis_connect(last_call, err))
		return false;
	SpinLockAcquire(&registry->mutex);
	n = ++registry->n;
	SpinLockRelease(&registry->mutex);
	layout_describe(&server_layout, layout);
	args[0] = operation;
	args[1] = redis_run_id();
	args[2] = layout;
	args[3] = psprintf("%016llx%016llx", (unsigned long long) seen.node.id[0],
					   (unsigned long long) seen.node.id[1]);
	args[4] = node_name();
	args[5] = hex(seen.token);
	args[6] = number((int64) seen.node.starts);
	args[7] = number((int64) n);
	/* the longest that we go unheard when all is well */
	args[8] = number(mark_interval() + redis_count_urls() * (int64) snowid_redis_timeout);
	args[9] = number(snowid_redis_lease);
	args[10] = number(datacenter_id);
	Assert(nown + 11 <= lengthof(args));
	memcpy(args + 11, own, nown * sizeof(char *));
	return redis_run_script(snowid_redis_prefix, args, 11 + nown, last_call,
							answer, count, err);
}

/*
 * Calls an operation with its own arguments.  False: no answer, which has been
 * dealt with unless err is wanted.
 */
static bool
call(const char *operation, int datacenter_id, const char **own, int nown,
	 bool last_call, char ***answer, int *count, char *err)
{
	char		reason[NET_ERR_LEN] = "";
	int64		began = net_now_ms();
	bool		fresh = !redis_is_connected();
	bool		ok = try_call(operation, datacenter_id, own, nown, last_call, answer, count, reason);

	/* a connection that was idle may have ended long ago; twice does no harm */
	if (!ok && !fresh && net_now_ms() - began < snowid_redis_timeout / 2)
		ok = try_call(operation, datacenter_id, own, nown, last_call, answer, count, reason);
	if (ok)
	{
		/* of other nodes' names, what any encoding can show */
		for (int i = 0; i < *count; i++)
			for (char *p = (*answer)[i]; *p; p++)
				if (*p < ' ' || *p > '~')
					*p = '?';
		answered = true;
	}
	else if (err)
		strlcpy(err, reason, NET_ERR_LEN);
	else
		no_answer(reason);
	return ok;
}

/*
 * The ceiling of the keys made with a claim since the start, or 0 where there
 * are none, or it is not known.  *exact: none will be made any more.
 */
static int64
used_of(const Claim *claim, bool *exact)
{
	*exact = false;
	if (claim->ownership != 0 && seen.entered == claim->ownership)
		return seen.used_ms;
	for (int i = 0; i < lengthof(seen.left); i++)
	{
		if (claim->ownership != 0 && seen.left[i].ownership == claim->ownership)
		{
			*exact = true;
			return seen.left[i].used_ms;
		}
	}
	return 0;
}

/* "<dc>:<w>" of a claim, or "" where there is none. */
static const char *
field_of(const Claim *claim)
{
	return claim->ownership == 0 ? "" : psprintf("%d:%d", claim->datacenter_id, claim->worker_id);
}

/* An answer that the script cannot have given. */
static void
nonsense(const char *operation)
{
	redis_disconnect();
	no_answer(psprintf("the answer to \"%s\" makes no sense", operation));
}

/* The layout that others use of this registry. */
static char *
layout_conflict(char **answer)
{
	char		ours[LAYOUT_TEXT_LEN];

	layout_describe(&server_layout, ours);
	return psprintf("The registry \"%s\" is for the layout \"%.120s\", by \"%.64s\"; this server has \"%s\".",
					snowid_redis_prefix, answer[1], answer[2], ours);
}

/*
 * Redis says no; it is asked again, for others may leave.  Who only wanted to
 * change goes on with the claim that is held.
 */
static void
refuse(bool change, const char *detail)
{
	strlcpy(refusal, detail, sizeof(refusal));
	if (change)
	{
		if (strcmp(logged_refusal, detail) != 0)
			ereport(LOG,
					(errmsg("snowid keeps worker ID %d of datacenter %d",
							seen.claim.worker_id, seen.claim.datacenter_id),
					 errdetail("%s", detail)));
		strlcpy(logged_refusal, detail, sizeof(logged_refusal));
		return;
	}
	SpinLockAcquire(&registry->mutex);
	if (registry->state == CLAIM_HELD || registry->node.claim.ownership != 0)
	{
		/* what is remembered is not to be used either */
		registry->state = CLAIM_LOST;
		registry->confirmed = false;
	}
	SpinLockRelease(&registry->mutex);
	set_detail(true, detail);
}

/* The claim is another's, or nobody's: the worker closes the gate first. */
static void
lose(bool clone, const char *detail)
{
	static int64 last_loss = PG_INT64_MIN / 2;
	int64		now = net_now_ms();

	SpinLockAcquire(&registry->mutex);
	registry->state = CLAIM_LOST;
	registry->confirmed = false;
	registry->clone = clone;
	SpinLockRelease(&registry->mutex);
	set_detail(false, detail);
	silent_key[0] = '\0';
	/* the next claim at once, but not again and again */
	next_contact = now < last_loss + 10 * mark_interval() ? now + mark_interval() : 0;
	last_loss = now;
}

static void
got_claim(const Claim *claim, int64 ceiling_ms, int64 asked_at, const Claim *known)
{
	bool		is_new;

	SpinLockAcquire(&registry->mutex);
	is_new = registry->state != CLAIM_HELD || !registry->confirmed ||
		registry->claim.ownership != claim->ownership;
	/* what it had is released when the worker has changed over */
	if (known->ownership != 0 && !same_pair(known, claim))
		registry->leaving = *known;
	registry->claim = *claim;
	registry->limit_ms = claim->lease_ms > 0 ? ceiling_ms : PG_INT64_MAX;
	registry->renewed_at = asked_at;
	registry->state = CLAIM_HELD;
	registry->confirmed = true;
	registry->refused = false;
	registry->detail[0] = '\0';
	SpinLockRelease(&registry->mutex);
	silent_key[0] = '\0';
	logged_refusal[0] = '\0';
	memset(&revoked_claim, 0, sizeof(revoked_claim));
	generator_wake_worker();
	if (is_new)
		ereport(LOG,
				(errmsg("snowid claimed worker ID %d of datacenter %d as \"%s\"",
						claim->worker_id, claim->datacenter_id, node_name())));
}

/* The answer that gives us a worker ID; false: it makes no sense. */
static bool
understand_claim(char **answer, Claim *claim, int64 *ceiling_ms)
{
	int64		worker_id;
	char	   *end;

	memset(claim, 0, sizeof(*claim));
	claim->ownership = strtoull(answer[2], &end, 16);
	claim->datacenter_id = snowid_datacenter_id;
	claim->lease_ms = snowid_redis_lease;
	if (!parse_number(answer[1], (INT64CONST(1) << server_layout.worker_bits) - 1, &worker_id) ||
		(snowid_worker_id >= 0 && worker_id != snowid_worker_id) ||
		strlen(answer[2]) != 16 || *end != '\0' || claim->ownership == 0 ||
		!parse_number(answer[3], MAX_MS, &claim->floor_ms) ||
		!parse_number(answer[4], MAX_MS, ceiling_ms))
		return false;
	claim->worker_id = (int32) worker_id;
	/* what was found out when the claim began holds on */
	if (claim->ownership == seen.node.claim.ownership)
		claim->floor_ms = Max(claim->floor_ms, seen.node.claim.floor_ms);
	return true;
}

/* What Redis refuses a worker ID for, in words; NULL: it does not, or nonsense. */
static char *
understand_refusal(char **answer, int count)
{
	const char *outcome = answer[0];
	int64		until_ms;
	const char *until;

	if (strcmp(outcome, "layout") == 0 && count == 3)
		return layout_conflict(answer);
	if (strcmp(outcome, "taken") == 0 && count == 3)
		return psprintf("Worker ID %d of datacenter %d is held by \"%.64s\".",
						snowid_worker_id, snowid_datacenter_id, answer[2]);
	if (count != 4 || !parse_number(answer[3], MAX_MS, &until_ms))
		return NULL;
	until = timestamptz_to_str(timestamptz_from_unix_ms(until_ms));
	if (strcmp(outcome, "ahead") == 0)
		return psprintf("The keys of worker ID %d lie ahead of this server's clock, up to %s.",
						snowid_worker_id, until);
	if (strcmp(outcome, "full") == 0)
		return psprintf("All %d worker IDs of datacenter %d are in use: %.10s have an owner, and the keys of %.10s lie ahead of this server's clock%s%s.",
						1 << server_layout.worker_bits, snowid_datacenter_id, answer[1], answer[2],
						until_ms > 0 ? ", the nearest up to " : "", until_ms > 0 ? until : "");
	return NULL;
}

/*
 * This directory's record is of another boot of the machine, or of a copy that
 * started as often: it is taken over once nobody has written it for twice its
 * interval, by our clock.
 */
static void
watch_for_silence(const char *record, int64 interval, int64 lease)
{
	if (lease > 0 || strlen(record) >= sizeof(silent_key) ||
		(silent_key[0] && strcmp(silent_key, record) != 0))
	{
		lose(true, "Another server uses a copy of this data directory, or has not given its lease back.");
		return;
	}
	if (silent_key[0] == '\0' || silent_since == PG_INT64_MAX)
		silent_since = net_now_ms() + 2 * interval;
	strlcpy(silent_key, record, sizeof(silent_key));
	set_detail(false, "The worker ID that this data directory had before the machine was restarted is taken back when nobody else uses it.");
	next_contact = Min(next_contact, Max(silent_since + 1, net_now_ms() + FIRST_PAUSE_MS));
}

/*
 * Claims a worker ID: the one that is held or remembered, if the settings allow
 * it, or with "move" another one.
 */
static void
claim_worker_id(bool move)
{
	const Claim *known = seen.state == CLAIM_HELD ? &seen.claim : &seen.node.claim;
	bool		change = seen.state == CLAIM_HELD && (move || !settings_allow(&seen.claim));
	int64		began = net_now_ms();
	const char *own[13];
	char	  **answer;
	int			count;
	Claim		claim;
	int64		ceiling_ms;
	int64		ms;
	int64		lease;
	char	   *text;
	bool		ignored;

	/* what was revoked is for others */
	if (seen.state == CLAIM_NONE && revoked_claim.ownership != 0 && snowid_worker_id < 0)
	{
		known = &revoked_claim;
		move = true;
	}
	own[0] = number(INT64CONST(1) << server_layout.worker_bits);
	own[1] = number(snowid_worker_id);
	own[2] = seen.boot;
	own[3] = hex(random_id());
	own[4] = number(seen.proposed_ms);
	/* the clock may have been set back since the worker looked */
	own[5] = number(Min(seen.reach_ms,
						unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_drift));
	own[6] = field_of(known);
	own[7] = hex(known->ownership);

	/* what is for good cannot lapse, nor a lease that was just renewed */
	own[8] = (known->lease_ms == 0 && snowid_redis_lease == 0 && silent_key[0] == '\0') ||
		(seen.state == CLAIM_HELD && seen.confirmed &&
		 began - seen.renewed_at < 2 * (int64) snowid_redis_lease) ? "1" : "0";
	own[9] = number(used_of(known, &ignored));
	own[10] = silent_key[0] && began > silent_since ? silent_key : "";
	own[11] = move ? "1" : "0";
	own[12] = field_of(&seen.leaving);
	if (!call("claim", snowid_datacenter_id, own, lengthof(own), false, &answer, &count, NULL))
	{
		untidy |= change;
		return;
	}
	untidy = false;

	next_contact = net_now_ms() + mark_interval();
	if (strcmp(answer[0], "yours") == 0 && count == 5 &&
		understand_claim(answer, &claim, &ceiling_ms))
	{
		got_claim(&claim, ceiling_ms, began, known == &revoked_claim ? &seen.node.claim : known);
	}
	else if (strcmp(answer[0], "lost") == 0 && count == 3)
		lose(false, psprintf("Worker ID %d of datacenter %d was given back, or is held by \"%.64s\" now.",
							 known->worker_id, known->datacenter_id, answer[1]));
	else if (strcmp(answer[0], "late") == 0)
		lose(true, "Another server runs from a copy of this one's memory.");
	else if (strcmp(answer[0], "older") == 0)
		lose(true, "This data directory was started later by another server: this is an old copy, or that is one.");
	else if (strcmp(answer[0], "silence") == 0 && count == 4 &&
			 parse_number(answer[2], MAX_MS, &ms) && parse_number(answer[3], MAX_MS, &lease))
		watch_for_silence(answer[1], ms, lease);
	else if (strcmp(answer[0], "settling") == 0 && count == 3 &&
			 parse_number(answer[1], MAX_MS, &ms) && parse_number(answer[2], MAX_MS, &ceiling_ms))
	{
		snprintf(refusal, sizeof(refusal), "The registry is empty, or Redis was restarted: until %s, by its clock, only those who had a worker ID get one.",
				 timestamptz_to_str(timestamptz_from_unix_ms(ceiling_ms)));
		if (!change)
			set_detail(false, refusal);
		next_contact = Min(next_contact, net_now_ms() + ms + 1);
	}
	else if ((text = understand_refusal(answer, count)) !=NULL)
		refuse(change && strcmp(answer[0], "layout") != 0, text);
	else
		nonsense("claim");
}

/* Tells Redis that we are there, and gets the next grant. */
static void
mark(void)
{
	int64		began = net_now_ms();
	const char *own[3];
	char	  **answer;
	int			count;
	int64		ceiling_ms;
	bool		ignored;

	own[0] = number(seen.claim.worker_id);
	own[1] = number(seen.proposed_ms);
	own[2] = number(used_of(&seen.claim, &ignored));
	if (!call("mark", seen.claim.datacenter_id, own, lengthof(own), false, &answer, &count, NULL))
		return;
	next_contact = net_now_ms() + mark_interval();
	if (strcmp(answer[0], "ok") == 0 && count == 2 && parse_number(answer[1], MAX_MS, &ceiling_ms))
	{
		SpinLockAcquire(&registry->mutex);
		if (seen.claim.lease_ms > 0)
			registry->limit_ms = ceiling_ms;
		registry->hurry = false;
		registry->renewed_at = began;
		SpinLockRelease(&registry->mutex);
		if (seen.claim.lease_ms > 0)
			generator_wake_worker();
	}
	else if (strcmp(answer[0], "late") == 0)
		lose(true, "Another server runs from a copy of this one's memory.");
	else if (strcmp(answer[0], "gone") == 0)
		claim_worker_id(false);
	else if (strcmp(answer[0], "lost") == 0 && count == 3)
		lose(answer[2][0] == '1',
			 psprintf("Worker ID %d of datacenter %d was given back, or is held by \"%.64s\" now.",
					  seen.claim.worker_id, seen.claim.datacenter_id, answer[1]));
	else if (strcmp(answer[0], "revoked") == 0)
	{
		revoked = true;
		revoked_claim = seen.claim;
		lose(false, psprintf("Worker ID %d of datacenter %d was revoked by snowid_release().",
							 seen.claim.worker_id, seen.claim.datacenter_id));
	}
	else if (strcmp(answer[0], "layout") == 0 && count == 3)
		refuse(false, layout_conflict(answer));
	else
		nonsense("mark");
}

/* Gives a claim back with which no more keys are made.  True: it is done with. */
static bool
release(const Claim *claim, bool last_call)
{
	const char *own[3];
	char	  **answer;
	int			count;
	char		err[NET_ERR_LEN];
	bool		exact;
	int64		used = used_of(claim, &exact);

	own[0] = number(claim->worker_id);
	own[1] = hex(claim->ownership);
	own[2] = exact ? number(Max(used, claim->floor_ms)) : "";
	if (!call("release", claim->datacenter_id, own, lengthof(own), last_call, &answer, &count, err))
	{
		if (!last_call)
			no_answer(err);
		return false;
	}
	if (strcmp(answer[0], "ok") == 0)
		ereport(LOG,
				(errmsg("snowid gave worker ID %d of datacenter %d back",
						claim->worker_id, claim->datacenter_id)));
	else if (strcmp(answer[0], "lost") != 0 && strcmp(answer[0], "late") != 0)
	{
		nonsense("release");
		return false;
	}
	return true;
}

/*---- Requests, carried out ----*/

/* An administrator gives an ID back, of the owner that has it now. */
static bool
serve_release(const RegistryRequest *request, char ***answer, int *count, char *err)
{
	const char *own[3];

	own[0] = number(request->worker_id);
	own[1] = "1";
	if (!call("list", request->datacenter_id, own, 2, false, answer, count, err))
		return false;
	if (strcmp((*answer)[0], "list") != 0)
		return true;			/* another layout, or nonsense */
	if (*count != 1 + RECORD_COLUMNS || strcmp((*answer)[1], own[0]) != 0)
	{
		(*answer)[0] = "free";	/* there is no such claim */
		*count = 1;
		return true;
	}
	own[1] = (*answer)[RECORD_COLUMNS];
	own[2] = number(request->force);
	return call("free", request->datacenter_id, own, 3, false, answer, count, err);
}

static void
serve_request(void)
{
	RegistryRequest *request = &seen.request;
	uint64		ticket = seen.ticket;
	char	  **answer = NULL;
	int			count = 0;
	bool		ok = true;
	size_t		used = 0;

	request->error[0] = '\0';
	request->refused = false;
	request->count = 0;
	if (request->operation == REQUEST_RECLAIM)
	{
		refusal[0] = '\0';
		if (seen.state == CLAIM_HELD && seen.confirmed && seen.leaving.ownership == 0)
			claim_worker_id(true);
		SpinLockAcquire(&registry->mutex);
		if (registry->state != CLAIM_HELD || registry->claim.ownership == seen.claim.ownership)
		{
			request->refused = answered;
			strlcpy(request->error, refusal[0] ? refusal :
					registry->detail[0] ? registry->detail : "There is no claim that Redis has confirmed, or another one is under way.",
					sizeof(request->error));
		}
		request->worker_id = registry->claim.worker_id;
		SpinLockRelease(&registry->mutex);
	}
	else if (request->operation == REQUEST_RELEASE)
		ok = serve_release(request, &answer, &count, request->error);
	else
	{
		const char *own[2];

		own[0] = number(request->worker_id);
		own[1] = number(REGISTRY_PAGE);
		ok = call("list", request->datacenter_id, own, 2, false, &answer, &count, request->error);
	}
	if (!ok)
		no_answer(request->error);
	else if (count == 3 && strcmp(answer[0], "layout") == 0)
	{
		request->refused = true;
		strlcpy(request->error, layout_conflict(answer), sizeof(request->error));
	}
	else
	{
		for (int i = 0; i < count && used < sizeof(request->answer); i++)
		{
			used += strlcpy(request->answer + used, answer[i], sizeof(request->answer) - used) + 1;
			request->count++;
		}
		if (used > sizeof(request->answer))
			strlcpy(request->error, "The answer of Redis is too long.", sizeof(request->error));
	}

	SpinLockAcquire(&registry->mutex);
	if (registry->ticket == ticket && registry->request_state == REQUEST_RUNNING)
	{
		registry->request = *request;
		registry->request_state = REQUEST_DONE;
	}
	SpinLockRelease(&registry->mutex);
	ConditionVariableBroadcast(&registry->request_changed);
}

/*---- The loop ----*/

/* Copies the shared state; true where a request was taken, to be served. */
static bool
look(bool take_request)
{
	int64		now = net_now_ms();
	bool		request;

	SpinLockAcquire(&registry->mutex);
	request = take_request && registry->has_node &&
		registry->request_state == REQUEST_WAITING &&
		now <= registry->request_ends;
	if (request)
		registry->request_state = REQUEST_RUNNING;
	memcpy(&seen, registry, sizeof(Registry));
	SpinLockRelease(&registry->mutex);
	return request;
}

/* What the claim needs now, if anything. */
static void
tend_claim(void)
{
	bool		due = net_now_ms() >= next_contact;

	if (revoked && (due || backoff == 0))
		revoked = !release(&revoked_claim, false);
	else if (seen.state == CLAIM_NONE || !seen.confirmed || (untidy && due))
	{
		if (due)
			claim_worker_id(false);
	}
	else if (seen.leaving.ownership != 0 && (due || backoff == 0) &&
			 seen.node.claim.ownership == seen.claim.ownership)
	{
		if (release(&seen.leaving, false))
		{
			SpinLockAcquire(&registry->mutex);
			memset(&registry->leaving, 0, sizeof(Claim));
			SpinLockRelease(&registry->mutex);
		}
	}
	else if (due && !settings_allow(&seen.claim) && seen.leaving.ownership == 0)
	{
		/* what is held is marked all the same, should it be refused */
		claim_worker_id(false);
		(void) look(false);
		if (answered && seen.state == CLAIM_HELD && !settings_allow(&seen.claim))
			mark();
	}
	else if (due || (seen.hurry && backoff == 0))
		mark();
}

/* One turn.  Returns the ms until the next. */
static long
turn(void)
{
	bool		ready;

	answered = false;
	if (look(true))
	{
		serve_request();
		(void) look(false);
	}
	/* the worker comes first: file and clock, and a lost claim's gate */
	ready = seen.has_node && seen.proposed_ms != 0 && seen.state != CLAIM_LOST;
	if (ready)
		tend_claim();
	if (answered)
		all_is_well();
	return ready ? Max(next_contact - net_now_ms(), 1) : 1000;
}

static void
leave(int code, Datum arg)
{
	SpinLockAcquire(&registry->mutex);
	if (registry->procno == MyProcNumber)
		registry->procno = -1;
	SpinLockRelease(&registry->mutex);
	redis_disconnect();
}

/* No gate opens with a lease from here on; false: one is open, or no lease. */
static bool
withdraw_lease(void)
{
	bool		withdrawn;

	SpinLockAcquire(&registry->mutex);
	withdrawn = registry->state == CLAIM_HELD && registry->confirmed &&
		registry->claim.lease_ms > 0 && registry->entered == 0;
	if (withdrawn)
	{
		registry->state = CLAIM_NONE;
		registry->confirmed = false;
	}
	SpinLockRelease(&registry->mutex);
	return withdrawn;
}

/*
 * Told to leave.  In a shutdown a lease is given back, once the gate is closed
 * and if Redis answered the last time.  As the snowid worker does, it has a
 * successor started, which a shutdown drops.
 */
static void
stop(void)
{
	int64		ends = net_now_ms() + CLOSE_MS;
	BackgroundWorker successor;

	PG_TRY();
	{
		(void) look(false);
		while (seen.state == CLAIM_HELD && seen.claim.lease_ms > 0 && seen.entered != 0 &&
			   net_now_ms() < ends)
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 10, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			(void) look(false);
		}
		if (withdraw_lease() && backoff == 0)
		{
			(void) look(false);
			(void) release(&seen.claim, true);
		}
	}
	PG_CATCH();
	{
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
	leave(0, 0);
	worker_describe(&successor, "snowid registry", "snowid_registry_main");
	(void) RegisterDynamicBackgroundWorker(&successor, NULL);
	proc_exit(1);
}

void
snowid_registry_main(Datum main_arg)
{
	MemoryContext turn_context;
	bool		attached;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SpinLockAcquire(&registry->mutex);
	attached = registry->procno < 0;
	if (attached)
		registry->procno = MyProcNumber;
	SpinLockRelease(&registry->mutex);
	if (!attached)
		proc_exit(0);			/* one is enough: ends this registration */
	before_shmem_exit(leave, 0);

	/* for PostgreSQL's hash functions */
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "snowid registry");
	turn_context = AllocSetContextCreate(TopMemoryContext, "snowid registry",
										 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		volatile long rest = 1000;

		if (ShutdownRequestPending)
			stop();

		MemoryContextSwitchTo(turn_context);
		PG_TRY();
		{
			CHECK_FOR_INTERRUPTS();
			if (ConfigReloadPending)
			{
				ConfigReloadPending = false;
				ProcessConfigFile(PGC_SIGHUP);
				redis_disconnect(); /* secrets and certificates may be new */
				next_contact = 0;
			}
			rest = turn();
		}
		PG_CATCH();
		{
			MemoryContextSwitchTo(turn_context);
			EmitErrorReport();
			FlushErrorState();
			redis_disconnect();
			try_later();
		}
		PG_END_TRY();
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(turn_context);

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 rest, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
