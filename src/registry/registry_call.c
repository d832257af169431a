/*
 * registry_call.c
 *		One call of the registry's script, and what it answers.
 *
 * Each call carries the start's token and a number that rises, so that what
 * Redis executes late or twice does no harm; and its own version.  Arguments go
 * by name.  The answers are checked here and by who asked; how a call is made
 * is in redis.c.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "key/layout_text.h"
#include "registry/redis.h"
#include "registry/registry_call.h"
#include "registry/registry_contact.h"
#include "registry/registry_view.h"
#include "settings.h"
#include "url.h"

/* Room for numbers as text, in the memory of one turn. */
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

/* A whole number from 0 to max; false: nonsense. */
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

/* What identifies the data directory to the registry; "": nothing does. */
static const char *
place(void)
{
	const Fingerprint *print = &seen.identity.directory;

	if (seen.identity.shared != 0 || print->inode == 0 || print->birth_ns == 0)
		return "";
	return psprintf("%s%s%s", registry_hex(print->file_system), registry_hex(print->inode),
					registry_hex((uint64) print->birth_ns));
}

/* Begins a call, with what all calls carry. */
void
registry_begin_call(RegistryCall *call, const char *operation, int datacenter_id)
{
	char		layout[LAYOUT_TEXT_LEN];

	call->count = 0;
	layout_describe(&server_layout, layout);
	registry_argument(call, "version", "2");
	registry_argument(call, "operation", operation);
	registry_argument(call, "layout", pstrdup(layout));
	registry_argument(call, "node", psprintf("%s%s", registry_hex(seen.identity.id[0]),
											 registry_hex(seen.identity.id[1])));
	registry_argument(call, "name", registry_node_name());
	registry_argument(call, "place", place());
	registry_argument(call, "token", registry_hex(seen.token));
	registry_argument(call, "starts", registry_number((int64) seen.identity.starts));
	/* the longest that we go unheard when all is well */
	registry_argument(call, "interval",
					  registry_number(registry_mark_interval() +
									  url_count(snowid_redis_url) * (int64) snowid_redis_timeout));
	registry_argument(call, "lease", registry_number(snowid_redis_lease));
	registry_argument(call, "boot", seen.boot);
	registry_argument(call, "dc", registry_number(datacenter_id));
}

/*
 * What this server gave up, as the script reads it; without what it is about to
 * release by a call of its own, and what it still has: a keeper that leaves takes
 * a lease out of the file, and its successor may go on with it.
 */
char *
registry_past(void)
{
	char	   *text = "";

	for (int i = 0; i < PAST_CLAIMS; i++)
	{
		const PastClaim *past = &seen.identity.past[i];

		if (past->ownership != 0 && past->ownership != seen.leaving.ownership &&
			!(seen.state == CLAIM_HELD && past->ownership == seen.claim.ownership))
			text = psprintf("%s %d:%d/%s/" INT64_FORMAT "/%d", text, past->datacenter_id, past->worker_id,
							registry_hex(past->ownership), past->ceiling_ms, past->exact);
	}
	return text;
}

/* One try.  False: no answer; the reason is in err. */
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
	return redis_run_script(snowid_redis_prefix, numbered.args, numbered.count, last_call,
							answer, count, err);
}

/*
 * Calls an operation.  False: no answer, or one that no operation gives; which
 * has been dealt with unless err is wanted.
 */
bool
registry_call(RegistryCall *call, bool last_call, char ***answer, int *count, char *err)
{
	char		reason[NET_ERR_LEN] = "";
	int64		began = monotonic_ms();
	bool		fresh = !redis_is_connected();
	bool		ok = try_call(call, last_call, answer, count, reason);

	/* a connection that was idle may have ended long ago; twice does no harm */
	if (!ok && !fresh && monotonic_ms() - began < snowid_redis_timeout / 2)
		ok = try_call(call, last_call, answer, count, reason);
	/* of other nodes' names, what any encoding can show */
	for (int i = 0; ok && i < *count; i++)
		for (char *p = (*answer)[i]; *p; p++)
			if (*p < ' ' || *p > '~')
				*p = '?';
	if (ok && *count == 3 && strcmp((*answer)[0], "damaged") == 0)
	{
		snprintf(reason, sizeof(reason), "the field \"%.20s\" of the hash \"%.100s\" is damaged",
				 (*answer)[1], snowid_redis_prefix);
		ok = false;
	}
	else if (ok && *count == 3 && strcmp((*answer)[0], "version") == 0)
	{
		snprintf(reason, sizeof(reason), "the field \"%.20s\" of the hash \"%.100s\" was written by another version of snowid: it has format %.16s, and this one has 2",
				 (*answer)[1], snowid_redis_prefix, (*answer)[2]);
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

/* An answer that the script cannot have given. */
void
registry_nonsense(const char *operation)
{
	redis_disconnect();
	registry_no_answer(psprintf("the answer to \"%s\" makes no sense", operation));
}

/* The layout that others use of this registry. */
char *
registry_layout_conflict(char **answer)
{
	char		ours[LAYOUT_TEXT_LEN];

	layout_describe(&server_layout, ours);
	return psprintf("The registry \"%s\" is for the layout \"%.120s\", by \"%.64s\"; this server has \"%s\".",
					snowid_redis_prefix, answer[1], answer[2], ours);
}
