/*
 * registry_call.c
 *		Calls of the registry's script, and what its answers say.
 *
 * Each call carries the token of the start and a number that rises, so that a
 * call which Redis executes late or twice does no harm.  It also carries the
 * version of the format.  Arguments go by name.  How a call is sent is in
 * redis.c.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "key/layout.h"
#include "key/layout_text.h"
#include "registry/link.h"
#include "registry/redis.h"
#include "registry/registry_call.h"
#include "registry/registry_contact.h"
#include "registry/registry_view.h"
#include "settings.h"
#include "url.h"

/* A number as text, in the memory of one turn. */
char *
registry_number(int64 value)
{
	return psprintf(INT64_FORMAT, value);
}

char *
registry_hex(uint64 value)
{
	return psprintf("%016llx", (unsigned long long) value);
}

/* Reads a whole number from 0 to max.  False: the text is none. */
bool
registry_parse_number(const char *text, int64 max, int64 *value)
{
	char	   *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value <= max;
}

void
registry_argument(RegistryCall *call, const char *name, const char *value)
{
	Assert(call->count + 2 <= lengthof(call->args));
	call->args[call->count++] = name;
	call->args[call->count++] = value;
}

/* The data directory's fingerprint; "": it does not tell it from others. */
static const char *
place(void)
{
	const Fingerprint *print = &seen.identity.directory;

	if (print->inode == 0 || print->birth_ns == 0)
		return "";
	return psprintf("%s%s%s", registry_hex(print->file_system),
					registry_hex(print->inode), registry_hex((uint64) print->birth_ns));
}

/*
 * The Unix ms that no time of the registry can be above: further ahead than this
 * server's clock can be (snowid.max_jump), and than its keys.  What is above was
 * written by somebody else than a server, and is kept nowhere.
 */
static int64
latest_ms(void)
{
	int64		ms = unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_jump;

	if (seen.entered != 0)
		ms = Max(ms, seen.used_ms);
	ms = Max(ms, seen.left.used_ms);
	if (seen.unwanted != 0)
		ms = Max(ms, seen.unwanted_ms);
	ms += snowid_max_lead + RESERVE_MS +
		Max(snowid_redis_lease, 2 * (int64) snowid_redis_mark_interval);
	return Max(Min(ms, layout_last_ms(&server_layout)), 0);
}

/*
 * The longest that this server is silent when all is well, and Redis may still
 * hear of it.
 */
int64
registry_interval(void)
{
	return registry_mark_interval() + url_count(snowid_redis_url) * (int64) snowid_redis_timeout;
}

/*
 * Begins a call, with the arguments that all calls have; "claim": the one that it
 * concerns, if any.
 */
void
registry_begin_call(RegistryCall *call, const char *operation, int datacenter_id, const Claim *claim)
{
	char		layout[LAYOUT_TEXT_LEN];

	call->count = 0;
	layout_describe(&server_layout, layout);
	registry_argument(call, "version", "4");
	registry_argument(call, "operation", operation);
	registry_argument(call, "layout", pstrdup(layout));
	registry_argument(call, "server", psprintf("%s%s", registry_hex(seen.identity.id[0]),
											   registry_hex(seen.identity.id[1])));
	registry_argument(call, "name", registry_server_name());
	registry_argument(call, "place", place());
	registry_argument(call, "token", registry_hex(seen.token));
	registry_argument(call, "starts", registry_number((int64) seen.identity.starts));
	registry_argument(call, "interval", registry_number(registry_interval()));
	registry_argument(call, "lease", registry_number(snowid_redis_lease));
	registry_argument(call, "latest", registry_number(latest_ms()));
	registry_argument(call, "boot", seen.boot);
	registry_argument(call, "dc", registry_number(datacenter_id));
	registry_argument(call, "registry", claim && claim->ownership != 0 ? registry_hex(claim->registry) : "");
	registry_argument(call, "span", registry_number(seen.span_ms));
	registry_argument(call, "high", registry_number(seen.high));
}

/*
 * What this server gave up, as the script reads it.  Without the claim that it is
 * about to release, and without the one that it has: a keeper that leaves removes
 * a lease from the file, and its successor may go on with it.
 */
char *
registry_past(void)
{
	char	   *text = "";

	for (int i = 0; i < PAST_CLAIMS; i++)
	{
		const PastClaim *past = &seen.identity.past[i];

		if (past->ownership != 0 && !past->by_setting && past->ownership != seen.leaving.ownership &&
			!(seen.state == CLAIM_HELD && past->ownership == seen.claim.ownership))
			text = psprintf("%s %s/%d:%d/%s/" INT64_FORMAT "/%d", text, registry_hex(past->registry),
							past->datacenter_id, past->worker_id, registry_hex(past->ownership), past->ceiling_ms, past->exact);
	}
	return text;
}

/*
 * Is this a claim or a grant?  It counts when the replicas have it, too.  What
 * takes a worker ID away counts at once, and so does what only tells.
 */
static bool
is_given(const char *outcome)
{
	return strcmp(outcome, "yours") == 0 || strcmp(outcome, "ok") == 0;
}

/* Calls once.  False: there is no answer; the reason is in err. */
static bool
try_call(RegistryCall *call, bool last_call, char ***answer, int *count, char *err)
{
	RegistryCall numbered = *call;
	uint64		n;

	if (!redis_connect(last_call, err))
		return false;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	n = ++registry->n;
	LWLockRelease(registry_lock);
	registry_argument(&numbered, "n", registry_number((int64) n));
	registry_argument(&numbered, "deadline", registry_number(redis_now_ms() + snowid_redis_timeout));
	return redis_run_script(snowid_redis_prefix, numbered.args, numbered.count, last_call,
							answer, count, err) &&
		(!is_given((*answer)[0]) || redis_wait_for_replicas(err));
}

/*
 * Keeps what is to outlive Redis, the last two parts of an answer.  False: they
 * are invalid.
 */
bool
registry_keep_marks(char **marks)
{
	int64		span_ms;
	int64		high;

	if (!registry_parse_number(marks[0], MAX_MS, &span_ms) ||
		!registry_parse_number(marks[1], MAX_MS, &high))
		return false;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	registry->span_ms = span_ms;
	registry->high = high;
	LWLockRelease(registry_lock);
	return true;
}

/* Says that a record has a time that cannot be. */
static void
describe_beyond(char *reason, size_t size, int datacenter_id, int worker_id, int64 unix_ms)
{
	snprintf(reason, size, "the record of worker ID %d of datacenter %d has a ceiling in %s, further ahead than snowid.max_jump",
			 worker_id, datacenter_id, timestamptz_to_str(timestamptz_from_unix_ms(unix_ms)));
}

/*
 * Calls an operation.  False: there is no answer, or the registry cannot be read.
 * The reason is in err; where that is NULL, it has been dealt with.
 */
bool
registry_call(RegistryCall *call, bool last_call, char ***answer, int *count, char *err)
{
	char		reason[NET_ERR_LEN] = "";
	int64		began = monotonic_ms();
	bool		fresh = !link_is_open();
	bool		ok = try_call(call, last_call, answer, count, reason);
	int			datacenter_id;
	int			worker_id;
	int64		unix_ms;

	/*
	 * An idle connection may have ended long ago, or Redis' clock was
	 * stepped; to call twice does no harm.
	 */
	if (ok && !fresh && strcmp((*answer)[0], "expired") == 0)
	{
		link_close();
		ok = false;
	}
	if (!ok && !fresh && monotonic_ms() - began < snowid_redis_timeout / 2)
		ok = try_call(call, last_call, answer, count, reason);
	/* keeps of other servers' names what every encoding can show */
	for (int i = 0; ok && i < *count; i++)
		for (char *p = (*answer)[i]; *p; p++)
			if (*p < ' ' || *p > '~')
				*p = '?';
	if (ok && *count == 1 && strcmp((*answer)[0], "expired") == 0)
	{
		link_close();
		snprintf(reason, sizeof(reason), "%s: no answer within snowid.redis_timeout", link_name());
		ok = false;
	}
	else if (ok && *count == 3 && strcmp((*answer)[0], "damaged") == 0)
	{
		snprintf(reason, sizeof(reason), "the field \"%.20s\" of the hash \"%.100s\" is damaged",
				 (*answer)[1], snowid_redis_prefix);
		ok = false;
	}
	else if (ok && *count == 3 && strcmp((*answer)[0], "version") == 0)
	{
		snprintf(reason, sizeof(reason), "the field \"%.20s\" of the hash \"%.100s\" was written by another version of snowid: it has format %.16s, and this one has 4",
				 (*answer)[1], snowid_redis_prefix, (*answer)[2]);
		ok = false;
	}
	else if (ok && *count == 3 && strcmp((*answer)[0], "beyond") == 0 &&
			 sscanf((*answer)[1], "%d:%d", &datacenter_id, &worker_id) == 2 &&
			 registry_parse_number((*answer)[2], MAX_MS, &unix_ms))
	{
		describe_beyond(reason, sizeof(reason), datacenter_id, worker_id, unix_ms);
		ok = false;
	}
	if (ok)
		answered = true;
	else if (err)
		strlcpy(err, reason, NET_ERR_LEN);
	else
		registry_no_answer(reason);
	return ok;
}

/* "<dc>:<w>" of a claim, or "" where there is none. */
const char *
registry_field(const Claim *claim)
{
	return claim->ownership == 0 ? "" : psprintf("%d:%d", claim->datacenter_id, claim->worker_id);
}

/* The script cannot have given this answer. */
void
registry_nonsense(const char *operation)
{
	link_close();
	registry_no_answer(psprintf("unexpected reply to \"%s\"", operation));
}

/* Says which layout the registry is for. */
char *
registry_layout_conflict(char **answer)
{
	char		ours[LAYOUT_TEXT_LEN];

	layout_describe(&server_layout, ours);
	return psprintf("The registry \"%s\" is for the layout \"%.120s\", by \"%.64s\"; this server has \"%s\".",
					snowid_redis_prefix, answer[1], answer[2], ours);
}

/* Reads an answer that gives this server a worker ID.  False: it is invalid. */
bool
registry_parse_claim(char **answer, Claim *claim, int64 *ceiling_ms)
{
	int64		worker_id;
	char	   *end;

	memset(claim, 0, sizeof(*claim));
	claim->ownership = strtoull(answer[2], &end, 16);
	claim->registry = strtoull(answer[6], NULL, 16);
	claim->datacenter_id = snowid_datacenter_id;
	claim->lease_ms = snowid_redis_lease;
	if (!registry_parse_number(answer[1], (INT64CONST(1) << server_layout.worker_bits) - 1, &worker_id) ||
		strlen(answer[2]) != 16 || *end != '\0' || claim->ownership == 0 ||
		!registry_parse_number(answer[3], MAX_MS, &claim->floor_ms) ||
		!registry_parse_number(answer[4], MAX_MS, ceiling_ms) ||
		!registry_parse_number(answer[5], MAX_MS, &claim->generation) ||
		strlen(answer[6]) != 16 || claim->registry == 0)
		return false;
	claim->worker_id = (int32) worker_id;
	/* a higher floor that was found when the claim began stays */
	if (claim->ownership == seen.identity.claim.ownership)
		claim->floor_ms = Max(claim->floor_ms, seen.identity.claim.floor_ms);
	return true;
}

/*
 * Can this be a time of this server's record?  If not, it is dealt with like a
 * record that cannot be read.
 */
bool
registry_check_time(const Claim *claim, int64 unix_ms)
{
	char		reason[NET_ERR_LEN];

	if (unix_ms <= latest_ms())
		return true;
	describe_beyond(reason, sizeof(reason), claim->datacenter_id, claim->worker_id, unix_ms);
	registry_no_answer(reason);
	return false;
}

/* Why Redis refuses a worker ID, in words; NULL: this answer is no refusal. */
char *
registry_refusal(char **answer, int count)
{
	const char *outcome = answer[0];
	int64		until_ms;
	const char *until;

	if (strcmp(outcome, "layout") == 0 && count == 3)
		return registry_layout_conflict(answer);
	if (strcmp(outcome, "full") != 0 || count != 4 ||
		!registry_parse_number(answer[3], MAX_MS, &until_ms))
		return NULL;
	until = timestamptz_to_str(timestamptz_from_unix_ms(until_ms));
	return psprintf("All %d worker IDs of datacenter %d are in use: %.10s have an owner, and the keys of %.10s lie ahead of this server's clock%s%s.",
					1 << server_layout.worker_bits, snowid_datacenter_id, answer[1], answer[2],
					until_ms > 0 ? ", the nearest up to " : "", until_ms > 0 ? until : "");
}
