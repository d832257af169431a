/*
 * protocol.c
 *		Calls of the registry's script: the arguments, and the answers.
 *
 * Each call carries the token of the start and a number that rises, so that a
 * call which Redis executes late or twice does no harm.  It also carries the
 * version of the format.  Arguments go by name.  redis.c sends a call, and
 * registry.c acts on the answer.
 */
#include "postgres.h"

#include "postmaster/postmaster.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "key/layout.h"
#include "registry/protocol.h"
#include "registry/redis.h"
#include "settings.h"

/* A number as text, in the memory of one turn. */
char *
protocol_number(int64 value)
{
	return psprintf(INT64_FORMAT, value);
}

char *
protocol_hex(uint64 value)
{
	return psprintf("%016llx", (unsigned long long) value);
}

/* Reads a whole number from 0 to max.  False: the text is none. */
static bool
read_number(const char *text, int64 max, int64 *value)
{
	char	   *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value <= max;
}

void
protocol_add(RegistryCall *call, const char *name, const char *value)
{
	Assert(call->count + 2 <= lengthof(call->args));
	call->args[call->count++] = name;
	call->args[call->count++] = value;
}

/* The data directory's fingerprint; "": it does not distinguish it from others. */
static const char *
place(const Fingerprint *print)
{
	if (print->inode == 0 || print->birth_ns == 0)
		return "";
	return psprintf("%s%s%s", protocol_hex(print->file_system),
					protocol_hex(print->inode), protocol_hex((uint64) print->birth_ns));
}

/*
 * The Unix ms that no time of the registry can be above: further ahead than this
 * server's clock can be (snowid.max_jump), than its keys, and than it has asked for,
 * perhaps with a greater snowid.max_lead.  A time above was not written by a server,
 * and is kept nowhere.
 */
static int64
latest_ms(const ClaimBoard *seen)
{
	int64		ms = unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_jump;

	if (seen->entered != 0)
		ms = Max(ms, seen->used_ms);
	ms = Max(ms, seen->left_ms);
	/* what this server itself wrote into its file is no damage */
	ms = Max(ms, seen->identity.ceiling_ms);
	for (int i = 0; i < PAST_CLAIMS; i++)
		ms = Max(ms, seen->identity.past[i].floor_ms);
	if (seen->unwanted != 0)
		ms = Max(ms, seen->unwanted_ms);
	ms += snowid_max_lead + RESERVE_MS +
		Max(snowid_redis_lease, 2 * (int64) mark_ms());
	ms = Max(ms, seen->highest_ms);
	return Max(Min(ms, layout_last_ms(&server_layout)), 0);
}

/* The ms between two marks; a lease is renewed at a third of it. */
int
protocol_mark_interval(void)
{
	return snowid_redis_lease > 0 ? Min(mark_ms(), snowid_redis_lease / 3) : mark_ms();
}

/* The server's name, for people. */
const char *
protocol_server_name(void)
{
	static char name[SERVER_NAME_LEN + 1];

	if (snowid_server_name[0])
		return snowid_server_name;
	snprintf(name, sizeof(name), "%.*s:%d", SERVER_NAME_LEN - 6, snowid_host_name, PostPortNumber);
	return name;
}

/*
 * The longest silence of this server when all is well, and after which Redis may
 * still hear of it.
 */
static int64
interval(void)
{
	return protocol_mark_interval() +
		Max(url_count(snowid_redis_url) * (int64) snowid_redis_timeout, MARK_LATE_MS);
}

/*
 * Begins a call, with the arguments that all calls have; "claim": the one that it
 * concerns, if any.
 */
void
protocol_begin(RegistryCall *call, const ClaimBoard *seen, const char *operation, int datacenter_id,
			   const Claim *claim)
{
	char		layout[LAYOUT_TEXT_LEN];

	call->operation = operation;
	call->claim = claim;
	call->count = 0;
	layout_describe(&server_layout, layout);
	protocol_add(call, "version", "4");
	protocol_add(call, "operation", operation);
	protocol_add(call, "layout", pstrdup(layout));
	protocol_add(call, "server", psprintf("%s%s", protocol_hex(seen->identity.id[0]),
										  protocol_hex(seen->identity.id[1])));
	protocol_add(call, "name", protocol_server_name());
	protocol_add(call, "place", place(&seen->identity.directory));
	protocol_add(call, "token", protocol_hex(seen->token));
	protocol_add(call, "starts", protocol_number((int64) seen->identity.starts));
	protocol_add(call, "interval", protocol_number(interval()));
	/* of a server for good: it may have been forgotten, whatever is stored */
	protocol_add(call, "least", protocol_number(2 * (mark_ms() + MARK_LATE_MS)));
	protocol_add(call, "lease", protocol_number(snowid_redis_lease));
	protocol_add(call, "latest", protocol_number(latest_ms(seen)));
	protocol_add(call, "boot", seen->boot);
	protocol_add(call, "dc", protocol_number(datacenter_id));
	protocol_add(call, "count", protocol_number(INT64CONST(1) << server_layout.worker_bits));
	protocol_add(call, "registry", claim && claim->ownership != 0 ? protocol_hex(claim->registry) : "");
	protocol_add(call, "span", protocol_number(seen->span_ms));
	protocol_add(call, "high", protocol_number(seen->high));
}

/*
 * The ceiling of the keys made with a claim; 0: there are none.  That of a former start
 * is in the identity, since the keeper reads the WAL before the first call.
 */
static int64
used_of(const ClaimBoard *seen, const Claim *claim)
{
	if (claim->ownership == 0)
		return 0;
	/* on lease keys may be made up to the limit before the next call */
	if (seen->entered == claim->ownership)
		return claim->lease_ms > 0 && seen->claim.ownership == claim->ownership ?
			Max(seen->used_ms, seen->limit_ms) : seen->used_ms;
	if (seen->left == claim->ownership)
		return seen->left_ms;
	return seen->identity.claim.ownership == claim->ownership ?
		Max(Min(seen->identity.ceiling_ms, MAX_MS), 0) : 0;
}

/*
 * Is there a claim that the server leaves, and has the keeper left it?  It has seen the
 * present one, which it has written into the file, or found that it cannot use.
 */
bool
protocol_has_left(const ClaimBoard *seen)
{
	return seen->leaving.ownership != 0 &&
		(seen->claim.ownership == seen->identity.claim.ownership ||
		 seen->claim.ownership == seen->unwanted);
}

/*
 * The claims that this server gave up, as the script reads them.  Of one that the keeper
 * still has only the keys, without its ownership: it is not let go yet.
 */
static char *
past_claims(const ClaimBoard *seen)
{
	const Claim *leaving = &seen->leaving;
	uint64		kept = protocol_has_left(seen) ? 0 : leaving->ownership;
	char	   *text = "";

	for (int i = 0; i < PAST_CLAIMS; i++)
	{
		const Claim *past = &seen->identity.past[i];

		if (past->ownership != 0 && past->generation != 0 && past->ownership != kept)
			text = psprintf("%s %s/%d:%d/%s/" INT64_FORMAT "/%d", text, protocol_hex(past->registry),
							past->pair.datacenter, past->pair.worker, protocol_hex(past->ownership),
							past->floor_ms, past->exact);
	}
	/* one that was never used is not in the file */
	if (leaving->ownership != 0)
		text = psprintf("%s %s/%s/%s/" INT64_FORMAT "/0", text, protocol_hex(leaving->registry),
						protocol_field(leaving), kept != 0 ? "0" : protocol_hex(leaving->ownership),
						used_of(seen, leaving));
	return text;
}

/*
 * May the claim be resumed if Redis forgot it?  "now": it is in use and cannot
 * have lapsed, and Redis heard of it without a gap.  "held": it is in use.
 * "settled": after the settling.  "record": if its record is still there, or, for good, if no
 * other server has put it back in the settling.
 */
static const char *
resume(const ClaimBoard *seen, const Claim *claim, int64 now)
{
	bool		for_good = claim->lease_ms == 0 && snowid_redis_lease == 0;
	bool		connected = seen->confirmed && now - seen->renewed_at < 2 * interval();

	if (seen->state == CLAIM_HELD && claim->ownership == seen->claim.ownership &&
		(for_good || (seen->confirmed && now - seen->renewed_at < snowid_redis_lease)))
		return connected || !for_good ? "now" : "held";
	return for_good && !seen->watching ? "settled" : "record";
}

/* Can the answer give no other ID than that of this claim? */
bool
protocol_resumes(const ClaimBoard *seen, const Claim *claim, int64 now)
{
	return claim->ownership != 0 && strcmp(resume(seen, claim, now), "record") != 0;
}

/* Adds the arguments about the claim that is marked or claimed again. */
void
protocol_add_claim(RegistryCall *call, const ClaimBoard *seen, const Claim *claim, int64 now)
{
	protocol_add(call, "ownership", protocol_hex(claim->ownership));
	protocol_add(call, "generation", protocol_number(claim->generation));
	protocol_add(call, "floor", protocol_number(Max(claim->floor_ms, 0)));
	protocol_add(call, "ceiling", protocol_number(seen->proposed_ms));
	protocol_add(call, "used", protocol_number(used_of(seen, claim)));
	protocol_add(call, "resume", resume(seen, claim, now));
	protocol_add(call, "past", past_claims(seen));
}

/* Describes a record with an impossible time. */
static void
describe_beyond(char *err, PairId pair, int64 unix_ms)
{
	snprintf(err, NET_ERR_LEN, "the record of worker ID %d of datacenter %d has a ceiling in %s, further ahead than snowid.max_jump",
			 pair.worker, pair.datacenter, timestamptz_to_str(timestamptz_from_unix_ms(unix_ms)));
}

/* Does the answer say that the registry cannot be read?  Then err has the reason. */
static bool
is_unreadable(char **answer, int count, char *err)
{
	const char *outcome = answer[0];
	PairId		pair;
	int64		unix_ms;
	bool		is_record;

	if (count < 3)
		return false;
	is_record = sscanf(answer[1], "%d:%d", &pair.datacenter, &pair.worker) == 2;
	if (strcmp(outcome, "damaged") == 0 && is_record)
		snprintf(err, NET_ERR_LEN, "the field \"%.20s\" of the hash \"%.100s\" is damaged; snowid_release(%d, %d) removes it",
				 answer[1], snowid_redis_prefix, pair.datacenter, pair.worker);
	else if (strcmp(outcome, "damaged") == 0)
		snprintf(err, NET_ERR_LEN, "the field \"%.20s\" of the hash \"%.100s\" is damaged; remove it by HDEL",
				 answer[1], snowid_redis_prefix);
	else if (strcmp(outcome, "version") == 0)
		snprintf(err, NET_ERR_LEN, "the field \"%.20s\" of the hash \"%.100s\" was written by another version of snowid: it has format %.16s, and this one has 4",
				 answer[1], snowid_redis_prefix, answer[2]);
	else if (strcmp(outcome, "beyond") == 0 && is_record && read_number(answer[2], MAX_MS, &unix_ms))
		describe_beyond(err, pair, unix_ms);
	else
		return false;
	return true;
}

/*
 * Calls an operation.  False: the reason is in err.  *count is 0: there is no answer,
 * or none that tells more; it is not: the registry cannot be read.
 */
bool
protocol_call(RegistryCall *call, char ***answer, int *count, char *err)
{
	uint64		n;

	*count = 0;
	if (!redis_connect(err))
		return false;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	n = ++board->n;
	LWLockRelease(registry_lock);
	protocol_add(call, "n", protocol_number((int64) n));
	protocol_add(call, "deadline", protocol_number(redis_now_ms() + snowid_redis_timeout));
	if (!redis_run_script(snowid_redis_prefix, call->args, call->count, answer, count, err))
	{
		/* the hash is something else */
		*count = strstr(err, "WRONGTYPE") != NULL;
		return false;
	}
	if (strcmp((*answer)[0], "expired") == 0)
	{
		*count = 0;
		return redis_failed(err, "no answer within snowid.redis_timeout");
	}
	/* what is given counts when the replicas have it, too; the rest at once */
	if ((strcmp((*answer)[0], "yours") == 0 || strcmp((*answer)[0], "ok") == 0) &&
		!redis_wait_for_replicas(err))
	{
		*count = 0;
		return false;
	}
	/* replaces bytes in other servers' names that are not printable ASCII */
	for (int i = 0; i < *count; i++)
		for (char *p = (*answer)[i]; *p; p++)
			if (*p < ' ' || *p > '~')
				*p = '?';
	if (!is_unreadable(*answer, *count, err))
		return true;
	/* the claim's own record has a time that cannot be: the ID is no other's */
	if (*count == 4 && strcmp((*answer)[3], "own") == 0)
		*count = 0;
	return false;
}

/* "<dc>:<w>" of a claim, or "" if there is none. */
const char *
protocol_field(const Claim *claim)
{
	return claim->ownership == 0 ? "" : psprintf("%d:%d", claim->pair.datacenter, claim->pair.worker);
}

/* Describes the registry's layout, which is not this server's. */
char *
protocol_layout_conflict(char **answer)
{
	char		ours[LAYOUT_TEXT_LEN];

	layout_describe(&server_layout, ours);
	return psprintf("The registry \"%s\" is for the layout \"%.120s\", by \"%.64s\"; this server has \"%s\".",
					snowid_redis_prefix, answer[1], answer[2], ours);
}

/* Can this be a time of this server's record?  If not, err has the reason. */
bool
protocol_check_time(const ClaimBoard *seen, const Claim *claim, int64 unix_ms, char *err)
{
	if (unix_ms <= latest_ms(seen))
		return true;
	describe_beyond(err, claim->pair, unix_ms);
	return false;
}

/*---- What an answer says ----*/

/* Reads what must outlive Redis.  False: it is invalid. */
static bool
read_marks(char **marks, RegistryAnswer *answer)
{
	return read_number(marks[0], MAX_SPAN_MS, &answer->span_ms) &&
		read_number(marks[1], MAX_HIGH, &answer->high);
}

/* Reads a claim that is given.  False: it is invalid. */
static bool
read_claim(char **texts, RegistryAnswer *answer)
{
	Claim	   *claim = &answer->claim;
	int64		worker_id;
	char	   *end;

	claim->ownership = strtoull(texts[2], &end, 16);
	claim->registry = strtoull(texts[6], NULL, 16);
	claim->pair.datacenter = snowid_datacenter_id;
	claim->lease_ms = snowid_redis_lease;
	if (!read_number(texts[1], (INT64CONST(1) << server_layout.worker_bits) - 1, &worker_id) ||
		strlen(texts[2]) != 16 || *end != '\0' || claim->ownership == 0 ||
		!read_number(texts[3], MAX_MS, &claim->floor_ms) ||
		!read_number(texts[4], MAX_MS, &answer->limit_ms) ||
		!read_number(texts[5], MAX_MS, &claim->generation) ||
		strlen(texts[6]) != 16 || claim->registry == 0)
		return false;
	claim->pair.worker = (int32) worker_id;
	return read_marks(texts + 7, answer);
}

/* Reads the reason why there is no free ID.  False: it is invalid. */
static bool
read_full(char **texts, RegistryAnswer *answer)
{
	int64		until_ms;
	const char *ahead = "";

	if (!read_number(texts[3], MAX_MS, &until_ms))
		return false;
	if (until_ms > 0)
		ahead = psprintf(", and the keys of %.10s free ones lie ahead of this server's clock, the nearest up to %s",
						 texts[2], timestamptz_to_str(timestamptz_from_unix_ms(until_ms)));
	answer->why = psprintf("All %d worker IDs of datacenter %d are in use: %.10s have an owner, of which only a silent one can be released%s.",
						   1 << server_layout.worker_bits, snowid_datacenter_id, texts[1], ahead);
	return true;
}

/* Is it this answer, with so many texts? */
static bool
is_answer(char **texts, int count, const char *word, int expected)
{
	return count == expected && strcmp(texts[0], word) == 0;
}

/*
 * By these the claim is lost: another server has the record, or none.  If that took the
 * ID as the same server while this one had it, then both are alive: from now on this one
 * is another.
 */
static AnswerKind
kind_of_loss(const ClaimBoard *seen, PairId pair, char **texts, int count, const char **why)
{
	if (is_answer(texts, count, "lost", 3))
	{
		*why = psprintf("Worker ID %d of datacenter %d was released, or is now held by \"%.64s\".",
						pair.worker, pair.datacenter, texts[1]);
		return seen->confirmed && strcmp(texts[2], "server") == 0 ? ANSWER_LOST_TO_CLONE : ANSWER_LOST;
	}
	if (is_answer(texts, count, "other", 1))
	{
		*why = psprintf("Worker ID %d of datacenter %d was claimed from another registry.",
						pair.worker, pair.datacenter);
		return ANSWER_LOST;
	}
	if (is_answer(texts, count, "late", 1))
		*why = "Another server runs from a copy of this one's memory.";
	else if (is_answer(texts, count, "older", 1))
		*why = "This data directory was started later by another server: this is an old copy, or that is one.";
	else if (is_answer(texts, count, "twin", 1))
		*why = "Another server uses a copy of this data directory, or its lease has not ended.";
	else
		return ANSWER_UNREADABLE;
	return ANSWER_LOST_TO_CLONE;
}

static AnswerKind
read_claim_answer(char **texts, int count, RegistryAnswer *answer)
{
	if (is_answer(texts, count, "yours", 9) && read_claim(texts, answer))
		return ANSWER_GIVEN;
	if (is_answer(texts, count, "full", 5) && read_full(texts, answer))
		return strcmp(texts[4], "more") == 0 ? ANSWER_MORE : ANSWER_REFUSED;
	if (is_answer(texts, count, "silence", 2) && read_number(texts[1], MAX_MS, &answer->wait_ms))
		return ANSWER_SILENCE;
	if (is_answer(texts, count, "settling", 3) && read_number(texts[1], MAX_MS, &answer->wait_ms) &&
		read_number(texts[2], MAX_MS, &answer->until_ms))
		return ANSWER_SETTLING;
	return ANSWER_UNREADABLE;
}

static AnswerKind
read_mark_answer(char **texts, int count, RegistryAnswer *answer)
{
	if (is_answer(texts, count, "ok", 5) && read_number(texts[1], MAX_MS, &answer->limit_ms) &&
		read_marks(texts + 3, answer))
		return ANSWER_OK;
	return is_answer(texts, count, "gone", 1) ? ANSWER_GONE :
		is_answer(texts, count, "revoked", 1) ? ANSWER_REVOKED : ANSWER_UNREADABLE;
}

/* ANSWER_UNREADABLE: the script cannot have given it. */
static AnswerKind
read_answer(const ClaimBoard *seen, const RegistryCall *call, char **texts, int count,
			RegistryAnswer *answer)
{
	AnswerKind	kind;

	if (is_answer(texts, count, "layout", 3))
	{
		answer->why = protocol_layout_conflict(texts);
		return ANSWER_OTHER_LAYOUT;
	}
	kind = strcmp(call->operation, "claim") == 0 ? read_claim_answer(texts, count, answer) :
		read_mark_answer(texts, count, answer);
	return kind != ANSWER_UNREADABLE ? kind :
		kind_of_loss(seen, call->claim->pair, texts, count, &answer->why);
}

/* Calls an operation for this server's claim, and reads the answer. */
void
protocol_ask(const ClaimBoard *seen, RegistryCall *call, RegistryAnswer *answer)
{
	char		err[NET_ERR_LEN];
	char	  **texts;
	int			count;

	memset(answer, 0, sizeof(*answer));
	if (!protocol_call(call, &texts, &count, err))
	{
		answer->kind = count > 0 ? ANSWER_UNREADABLE : ANSWER_NONE;
		answer->why = pstrdup(err);
		return;
	}
	answer->kind = read_answer(seen, call, texts, count, answer);
	if (answer->kind != ANSWER_UNREADABLE)
		return;
	redis_close();
	answer->why = psprintf("unexpected reply to \"%s\"", call->operation);
}
