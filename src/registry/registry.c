/*
 * registry.c
 *		The process "snowid registry": claims this server's worker ID from Redis,
 *		marks it, gives it back, and carries out requests of administrators.
 *
 * Runs only with snowid.redis_url.  It alone talks to Redis; it makes no key,
 * opens no gate and writes no file.  It says in shared memory which pair may be
 * used and up to when, and the snowid keeper acts on it.  A claim takes effect in
 * this order: answered by Redis, written to the state file, gate opened.  It ends
 * in this one: gate closed, removed from the file, let go by the next mark.
 *
 * Logs once when two calls in a row or a request failed, and once when Redis can be
 * used again; the reason of each failure is in the status.  Calls that fail are
 * tried again after pauses that grow up to the interval of the marks.  When Redis
 * cannot be used at the start, a claim for good that is in the state file is used
 * without it.
 *
 * The rules of the registry are in registry.lua, and the calls in protocol.c.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "postmaster/interrupt.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "key/layout.h"
#include "process.h"
#include "registry/protocol.h"
#include "registry/redis.h"
#include "registry/registry.h"
#include "settings.h"

/* The pause between turns when nothing is due. */
#define IDLE_MS 1000

/* The first pause after a failure; it doubles up to the interval of marks. */
#define FIRST_PAUSE_MS 100

/* The script looks at all worker IDs in fewer calls. */
#define MAX_PARTS 20

/*
 * The shared state, as it was at the last claim_look().  It is changed under
 * registry_lock, and looked at again before the copy is relied on.
 */
static ClaimBoard seen;

static int64 next_contact = 0;	/* with Redis; by monotonic_ms() */
static int64 backoff = 0;		/* ms; 0: the last call went well */
static bool answered;			/* Redis gave a valid reply in this turn */
static bool logged_failure;		/* by the log, Redis cannot be used */

static bool untidy;				/* a second ID may have been claimed by a call
								 * without an answer */
static bool settling;			/* Redis' last answer: hurrying does not help */
static Claim revoked_claim;
static char refusal[GATE_DETAIL_LEN];	/* why Redis refused the last time */
static char logged_refusal[GATE_DETAIL_LEN];

/*---- Whether Redis can be used ----*/

/* Publishes the reason why there is no claim, or "". */
static void
set_detail(bool refused, const char *detail)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->refused = refused;
	strlcpy(board->detail, detail, GATE_DETAIL_LEN);
	LWLockRelease(registry_lock);
	process_notify(PROCESS_KEEPER);
}

/* Puts the next call off, by pauses that grow, with jitter. */
static void
try_later(void)
{
	backoff = Min(Max(2 * backoff, FIRST_PAUSE_MS), protocol_mark_interval());
	next_contact = monotonic_ms() + backoff / 2 +
		(int64) pg_prng_uint64_range(&pg_global_prng_state, 0, backoff / 2);
}

/* A claim from the state file may be older than the layout. */
static bool
settings_allow(const Claim *claim)
{
	return claim->pair.datacenter == snowid_datacenter_id &&
		claim->pair.worker >> server_layout.worker_bits == 0;
}

/* May the claim in the state file be used without Redis? */
static bool
may_use_remembered(void)
{
	const Claim *claim = &seen.identity.claim;

	/*
	 * Not if a record cannot be read, or was watched, since another server
	 * may have the ID, and not if the claim may be of another registry.
	 */
	return seen.state == CLAIM_NONE && !seen.unreadable &&
		seen.identity.home == claim_home() && claim->ownership != 0 &&
		claim->lease_ms == 0 && snowid_redis_lease == 0 && settings_allow(claim);
}

/* Keeps it in shared memory, for this process' successor. */
static void
note_doubt(bool watching, bool unreadable)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->watching = seen.watching = watching;
	board->unreadable = seen.unreadable = unreadable;
	LWLockRelease(registry_lock);
}

/* A call failed: the reason is for the status, and once for the log. */
static void
note_failure(const char *err)
{
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->last_error_at = now;
	strlcpy(board->last_error, err, sizeof(board->last_error));
	LWLockRelease(registry_lock);

	/*
	 * The first failure may be a connection that ended: the next call is
	 * soon.  But the error of a request may say "See the server log."
	 */
	if (!logged_failure && (backoff > 0 || mailbox_has_taken(&registry_mail->box)) &&
		process_may_log())
	{
		logged_failure = true;
		ereport(LOG, (errmsg("Redis cannot be used"), errdetail("%s.", err)));
	}
}

/* Redis gave no answer, or none that can be used. */
static void
no_answer(const char *err)
{
	char		detail[GATE_DETAIL_LEN];
	bool		remembered = may_use_remembered();

	answered = false;
	if (ShutdownRequestPending)
		return;
	logged_failure |= remembered;
	note_failure(err);
	snprintf(detail, sizeof(detail), "Redis cannot be used: %s.", err);
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (remembered && board->state == CLAIM_NONE)
	{
		board->state = CLAIM_HELD;
		board->claim = seen.identity.claim;
	}
	LWLockRelease(registry_lock);
	set_detail(false, detail);

	if (remembered)
		ereport(WARNING,
				(errmsg("snowid continues with previously claimed worker ID %d",
						seen.identity.claim.pair.worker),
				 errdetail("%s", detail),
				 errhint("It checks the claim as soon as Redis can be used.")));
	try_later();
}

/* Redis has answered in this turn. */
static void
all_is_well(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (logged_failure)
		ereport(LOG, (errmsg("Redis can be used again")));
	logged_failure = false;
	backoff = 0;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->last_ok = now;
	LWLockRelease(registry_lock);
}

/*
 * Calls the script, and handles an answer that is missing or cannot be read.  False: so
 * it is.
 */
static bool
ask_or_try_later(RegistryCall *call, RegistryAnswer *answer)
{
	protocol_ask(&seen, call, answer);
	if (answer->kind != ANSWER_NONE)
	{
		settling = answer->kind == ANSWER_SETTLING;
		note_doubt(seen.watching || answer->kind == ANSWER_SILENCE,
				   answer->kind == ANSWER_UNREADABLE);
	}
	answered = answer->kind > ANSWER_UNREADABLE;
	if (!answered)
		no_answer(answer->why);
	return answered;
}

/* Keeps the parts of an answer that must outlive Redis. */
static void
keep_marks(const RegistryAnswer *answer)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->span_ms = answer->span_ms;
	board->high = answer->high;
	LWLockRelease(registry_lock);
}

/*---- Claiming ----*/

/*
 * Redis refuses a worker ID, and will be asked again, since one may become free.
 * A server that only wanted to change ("change") keeps the one it has.
 */
static void
claim_refused(bool change, const char *detail)
{
	strlcpy(refusal, detail, sizeof(refusal));
	if (change)
	{
		if (strcmp(logged_refusal, detail) != 0 && process_may_log())
			ereport(LOG,
					(errmsg("snowid keeps worker ID %d of datacenter %d",
							seen.claim.pair.worker, seen.claim.pair.datacenter),
					 errdetail("%s", detail)));
		strlcpy(logged_refusal, detail, sizeof(logged_refusal));
		return;
	}
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (board->state == CLAIM_HELD || board->identity.claim.ownership != 0)
	{
		/* the claim in the state file must not be used either */
		board->state = CLAIM_LOST;
		board->confirmed = false;
	}
	LWLockRelease(registry_lock);
	set_detail(true, detail);
}

/* The claim is lost.  The keeper closes the gate before another is claimed. */
static void
lose(bool clone, const char *detail)
{
	static int64 last_loss = PG_INT64_MIN / 2;
	int64		now = monotonic_ms();

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->state = CLAIM_LOST;
	board->confirmed = false;
	board->clone = clone;
	board->watching = false;
	LWLockRelease(registry_lock);
	set_detail(false, detail);
	/* the next claim is tried at once, unless this happens again and again */
	next_contact = now < last_loss + 10 * protocol_mark_interval() ? now + protocol_mark_interval() : 0;
	last_loss = now;
}

static void
got_claim(const RegistryAnswer *answer, int64 asked_at, const Claim *known)
{
	const Claim *claim = &answer->claim;
	bool		is_new;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	is_new = board->state != CLAIM_HELD || !board->confirmed ||
		board->claim.ownership != claim->ownership;
	/* the old claim is released when the keeper has left it */
	if (known->ownership != 0 && !same_pair(known->pair, claim->pair))
		board->leaving = *known;
	board->claim = *claim;
	board->limit_ms = answer->limit_ms;
	board->renewed_at = asked_at;
	board->state = CLAIM_HELD;
	board->confirmed = true;
	board->watching = false;
	LWLockRelease(registry_lock);
	set_detail(false, "");
	logged_refusal[0] = '\0';
	memset(&revoked_claim, 0, sizeof(revoked_claim));
	if (is_new)
		ereport(LOG,
				(errmsg("snowid claimed worker ID %d of datacenter %d as \"%s\"",
						claim->pair.worker, claim->pair.datacenter, protocol_server_name())));
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
	claim_refused(change, psprintf("%s.", masters));
	next_contact = monotonic_ms() + protocol_mark_interval();
}

/* Only servers that use a worker ID get one, until that Unix ms: in so many ms. */
static void
wait_for_settling(bool change, int64 ms, int64 until_ms)
{
	snprintf(refusal, sizeof(refusal), "The registry is empty, or Redis was restarted: until %s, by its clock, only servers that already have a worker ID get it.",
			 timestamptz_to_str(timestamptz_from_unix_ms(until_ms)));
	if (!change)
		set_detail(false, refusal);
	/* not all at the same moment */
	next_contact = Min(next_contact, monotonic_ms() + ms + 1 +
					   (int64) pg_prng_uint64_range(&pg_global_prng_state, 0, protocol_mark_interval()));
}

/*
 * Asks for a worker ID: the one that is known, if the settings allow it; with
 * "move", another one.  False: there is no answer.
 */
static bool
ask_for_claim(const Claim *known, bool move, int64 began, RegistryAnswer *answer)
{
	/* the clock may have been set back since the keeper looked */
	int64		reach_ms = Min(seen.reach_ms,
							   unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_lead);
	RegistryCall call;

	protocol_begin(&call, &seen, "claim", snowid_datacenter_id, known);
	protocol_add(&call, "fresh", protocol_hex(random_id()));
	protocol_add(&call, "reach", protocol_number(Max(reach_ms, 0)));
	protocol_add(&call, "known", protocol_field(known));
	protocol_add(&call, "up", protocol_number(began - seen.known_since));
	protocol_add(&call, "move", move ? "1" : "0");
	protocol_add(&call, "leaving", protocol_field(&seen.leaving));
	protocol_add_claim(&call, &seen, known, began);
	return ask_or_try_later(&call, answer);
}

/*
 * Claims a worker ID: the one that the server has or remembers, if the settings
 * allow it; with "move", another one.  False: Redis gave no answer.
 */
static bool
claim_worker_id(bool move)
{
	const Claim *known = seen.state == CLAIM_HELD ? &seen.claim : &seen.identity.claim;
	bool		change = seen.state == CLAIM_HELD && (move || !settings_allow(&seen.claim));
	int64		began = monotonic_ms();
	RegistryAnswer answer;
	char		err[NET_ERR_LEN];

	/* prefers another ID to the one that was revoked */
	if (seen.state == CLAIM_NONE && revoked_claim.ownership != 0)
	{
		known = &revoked_claim;
		move = true;
	}
	/* the answer may be another ID */
	if ((move || !settings_allow(known) || !protocol_resumes(&seen, known, began)) &&
		!redis_is_one(err))
	{
		refuse_two(change, err);
		return true;
	}
	for (int part = 0; part == 0 || (part < MAX_PARTS && answer.kind == ANSWER_MORE); part++)
	{
		if (!ask_for_claim(known, move, began, &answer))
		{
			untidy |= change;
			return false;
		}
	}
	untidy = false;

	next_contact = monotonic_ms() + protocol_mark_interval();
	switch (answer.kind)
	{
		case ANSWER_GIVEN:
			keep_marks(&answer);
			if (protocol_check_time(&seen, &answer.claim, Max(answer.claim.floor_ms, answer.limit_ms), err))
				got_claim(&answer, began, known == &revoked_claim ? &seen.identity.claim : known);
			else
			{
				if (answer.claim.ownership != known->ownership)
					note_doubt(seen.watching, true);
				no_answer(err);
			}
			break;
		case ANSWER_SILENCE:
			set_detail(false, "The worker ID that this data directory had before the machine was restarted is taken back when no other server uses it.");
			next_contact = Min(next_contact, monotonic_ms() + Max(answer.wait_ms, FIRST_PAUSE_MS));
			break;
		case ANSWER_SETTLING:
			wait_for_settling(change, answer.wait_ms, answer.until_ms);
			break;
		case ANSWER_MORE:
		case ANSWER_REFUSED:
		case ANSWER_OTHER_LAYOUT:
			/* there is no other: it may have that one again when it is free */
			if (known == &revoked_claim)
				memset(&revoked_claim, 0, sizeof(revoked_claim));
			claim_refused(change && answer.kind != ANSWER_OTHER_LAYOUT, answer.why);
			break;
		default:				/* it is lost */
			lose(answer.kind == ANSWER_LOST_TO_CLONE, answer.why);
	}
	return answered;
}

/*---- Marks ----*/

/* Marks the claim in Redis: the server is alive, and has it; renews a lease. */
static void
mark(void)
{
	int64		began = monotonic_ms();
	const Claim *left = protocol_has_left(&seen) ? &seen.leaving : NULL;
	RegistryCall call;
	RegistryAnswer answer;
	char		err[NET_ERR_LEN];

	protocol_begin(&call, &seen, "mark", seen.claim.pair.datacenter, &seen.claim);
	protocol_add(&call, "worker", protocol_number(seen.claim.pair.worker));
	protocol_add_claim(&call, &seen, &seen.claim, began);
	if (!ask_or_try_later(&call, &answer))
		return;
	next_contact = monotonic_ms() + protocol_mark_interval();
	switch (answer.kind)
	{
		case ANSWER_OK:
			keep_marks(&answer);
			if (!protocol_check_time(&seen, &seen.claim, answer.limit_ms, err))
			{
				no_answer(err);
				return;
			}
			LWLockAcquire(registry_lock, LW_EXCLUSIVE);
			board->limit_ms = answer.limit_ms;
			board->hurry = false;
			board->renewed_at = began;
			board->detail[0] = '\0';
			if (left)
				memset(&board->leaving, 0, sizeof(Claim));
			LWLockRelease(registry_lock);
			if (left)
				ereport(LOG,
						(errmsg("snowid released worker ID %d of datacenter %d",
								left->pair.worker, left->pair.datacenter)));
			if (seen.claim.lease_ms > 0)
				process_notify(PROCESS_KEEPER);
			break;
		case ANSWER_GONE:
			if (settings_allow(&seen.claim))
				(void) claim_worker_id(false);
			else
				lose(false, psprintf("The lease of worker ID %d of datacenter %d has lapsed, and the settings want another datacenter.",
									 seen.claim.pair.worker, seen.claim.pair.datacenter));
			break;
		case ANSWER_REVOKED:
			lose(false, psprintf("Worker ID %d of datacenter %d was revoked by snowid_release().",
								 seen.claim.pair.worker, seen.claim.pair.datacenter));
			revoked_claim = seen.claim;
			break;
		case ANSWER_OTHER_LAYOUT:
			claim_refused(false, answer.why);
			break;
		default:				/* it is lost */
			lose(answer.kind == ANSWER_LOST_TO_CLONE, answer.why);
	}
}

/* Does the keeper want another ID than that of the claim? */
static bool
is_unwanted(void)
{
	return seen.state == CLAIM_HELD && seen.unwanted != 0 &&
		seen.unwanted == seen.claim.ownership;
}

/*
 * Claims another worker ID for the keeper, or because the settings do not allow
 * the present one.  If that is refused, the present one is marked all the same, or
 * confirmed.
 */
static void
change_worker_id(void)
{
	uint64		before = seen.claim.ownership;
	bool		is_answered;

	refusal[0] = '\0';
	is_answered = claim_worker_id(is_unwanted());
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (board->unwanted == before)
		strlcpy(board->no_other, refusal[0] ? refusal : board->detail, GATE_DETAIL_LEN);
	LWLockRelease(registry_lock);
	process_notify(PROCESS_KEEPER);
	claim_look(&seen);
	if (!is_answered || seen.state != CLAIM_HELD || seen.claim.ownership != before)
		return;
	if (seen.confirmed)
		mark();
	else
		(void) claim_worker_id(false);
}

/* Makes the call that the claim needs now, if any. */
static void
tend_claim(void)
{
	bool		due = monotonic_ms() >= next_contact;

	if (seen.state == CLAIM_NONE || !seen.confirmed || (untidy && due))
	{
		/* Redis may refuse to confirm it: its marks are beyond this clock */
		if (due && is_unwanted() && !seen.confirmed && seen.leaving.ownership == 0)
			change_worker_id();
		else if (due)
			(void) claim_worker_id(false);
	}
	else if (seen.leaving.ownership == 0 &&
			 ((is_unwanted() && seen.no_other[0] == '\0' && backoff == 0) ||
			  (due && (is_unwanted() || !settings_allow(&seen.claim)))))
		change_worker_id();
	else if (due || ((seen.hurry || protocol_has_left(&seen)) && backoff == 0 && !settling))
		mark();
}

/*---- Requests of administrators ----*/

static bool
list(PairId from, int records, char ***answer, int *count, char *err)
{
	RegistryCall call;

	protocol_begin(&call, &seen, "list", from.datacenter, NULL);
	protocol_add(&call, "from", protocol_number(from.worker));
	protocol_add(&call, "records", protocol_number(records));
	/* the ownerships that this server has, or is about to release */
	protocol_add(&call, "own",
				 psprintf("%s %s %s %s",
						  protocol_hex(seen.state == CLAIM_HELD ? seen.claim.ownership : 0),
						  protocol_hex(seen.identity.claim.ownership),
						  protocol_hex(seen.leaving.ownership), protocol_hex(seen.entered)));
	return protocol_call(&call, answer, count, err);
}

/* Frees an ID of the owner that has it now. */
static bool
release_other(const RegistryRequest *request, char ***answer, int *count, char *err)
{
	RegistryCall call;
	const char *worker = protocol_number(request->pair.worker);
	bool		is_taken;

	if (!list(request->pair, 1, answer, count, err))
		return false;
	if (strcmp((*answer)[0], "list") != 0)
		return true;			/* another layout; the session checks the rest */
	is_taken = *count == 1 + RECORD_COLUMNS && strcmp((*answer)[1], worker) == 0;
	if (!is_taken || strcmp((*answer)[RECORD_COLUMNS - 1], "1") == 0)
	{
		(*answer)[0] = is_taken ? "own" : "free";
		*count = 1;
		return true;
	}
	protocol_begin(&call, &seen, "free", request->pair.datacenter, NULL);
	protocol_add(&call, "worker", worker);
	protocol_add(&call, "ownership", (*answer)[RECORD_COLUMNS]);
	protocol_add(&call, "force", protocol_number(request->force));
	return protocol_call(&call, answer, count, err);
}

/*
 * Claims another worker ID.  Fills in the ID, or the reason why there is none: Redis
 * refused it, or there was no call though Redis can be used, or there is no answer.
 */
static void
serve_reclaim(RegistryRequest *request)
{
	refusal[0] = '\0';
	if (seen.state == CLAIM_HELD && seen.confirmed && seen.leaving.ownership == 0)
		(void) claim_worker_id(true);
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (board->state != CLAIM_HELD || board->claim.ownership == seen.claim.ownership)
	{
		request->refused = answered || backoff == 0;
		strlcpy(request->error, refusal[0] ? refusal :
				board->detail[0] ? board->detail : "There is no claim that Redis has confirmed, or another one is under way.",
				sizeof(request->error));
	}
	request->pair.worker = board->claim.pair.worker;
	LWLockRelease(registry_lock);
}

/* Passes on the script's answer. */
static void
fill_in(RegistryRequest *request, char **answer, int count)
{
	size_t		used = 0;

	if (count == 3 && strcmp(answer[0], "layout") == 0)
	{
		request->refused = true;
		strlcpy(request->error, protocol_layout_conflict(answer), sizeof(request->error));
		return;
	}
	for (int i = 0; i < count && used < sizeof(request->answer); i++)
	{
		used += strlcpy(request->answer + used, answer[i], sizeof(request->answer) - used) + 1;
		request->count++;
	}
	if (used > sizeof(request->answer))
		strlcpy(request->error, "The reply from Redis is too long.", sizeof(request->error));
}

/* Serves the request that was taken. */
static void
serve_request(void)
{
	RegistryRequest *request = &registry_mail->request;
	char	  **answer = NULL;
	int			count = 0;
	int64		due = next_contact;

	request->error[0] = '\0';
	request->refused = false;
	request->count = 0;
	if (request->operation == REQUEST_RECLAIM)
		serve_reclaim(request);
	else if (request->operation == REQUEST_RELEASE ?
			 release_other(request, &answer, &count, request->error) :
			 list(request->pair, REGISTRY_PAGE, &answer, &count, request->error))
	{
		answered = true;
		fill_in(request, answer, count);
	}
	else if (!ShutdownRequestPending)
		note_failure(request->error);
	/* a mark is not put off, however often there are requests */
	next_contact = Min(next_contact, due);
	mailbox_answer(&registry_mail->box);
}

/*---- The process ----*/

static Pause
registry_turn(bool reloaded)
{
	Pause		pause = {.ms = IDLE_MS};
	bool		ready;

	if (reloaded)
	{
		redis_close();			/* password and certificates may be new */
		next_contact = 0;
	}
	answered = false;
	claim_look(&seen);
	if (seen.has_identity && mailbox_take(&registry_mail->box))
	{
		serve_request();
		claim_look(&seen);
	}
	/* not before the keeper has read file and clock, or done what is due */
	ready = seen.has_identity && seen.proposed_ms != 0 && seen.state != CLAIM_LOST &&
		!claim_in_doubt(&seen);
	if (ready)
		tend_claim();
	if (answered)
		all_is_well();
	if (ready)
		pause.ms = ms_until(next_contact);
	return pause;
}

/* At an error, and at an exit. */
static void
close_all(void)
{
	RegistryRequest *request = &registry_mail->request;

	redis_close();
	if (!mailbox_has_taken(&registry_mail->box))
		return;
	strlcpy(request->error, "The process \"snowid registry\" failed; see the server log.",
			sizeof(request->error));
	mailbox_answer(&registry_mail->box);
}

static Pause
registry_recover(const ErrorData *error)
{
	Pause		pause = {.ms = IDLE_MS};

	EmitErrorReport();
	close_all();
	try_later();
	return pause;
}

const Process registry_process = {
	.id = PROCESS_REGISTRY,
	.name = "snowid registry",
	.turn = registry_turn,
	.recover = registry_recover,
	.leave = close_all
};
