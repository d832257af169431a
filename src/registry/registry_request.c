/*
 * registry_request.c
 *		Carries out what administrators ask for: lists and frees worker IDs, and
 *		claims another one.
 *
 * One request at a time, passed in shared memory by claim_ask() (claim.c); the
 * answer goes back the same way, unless its caller has stopped waiting.
 */
#include "postgres.h"

#include "registry/registry_call.h"
#include "registry/registry_claim.h"
#include "registry/registry_contact.h"
#include "registry/registry_request.h"
#include "registry/registry_view.h"

/* The ownerships that this server has, or is about to release. */
static char *
own_ownerships(void)
{
	uint64		own[4];
	char	   *text = "";

	LWLockAcquire(registry_lock, LW_SHARED);
	own[0] = registry->state == CLAIM_HELD ? registry->claim.ownership : 0;
	own[1] = registry->identity.claim.ownership;
	own[2] = registry->leaving.ownership;
	own[3] = registry->entered;
	LWLockRelease(registry_lock);
	for (int i = 0; i < lengthof(own); i++)
		text = psprintf("%s %s", text, registry_hex(own[i]));
	return text;
}

static bool
list(int datacenter_id, int from, int records, char ***answer, int *count, char *err)
{
	RegistryCall call;

	registry_begin_call(&call, "list", datacenter_id, NULL);
	registry_argument(&call, "from", registry_number(from));
	registry_argument(&call, "count", registry_number(records));
	registry_argument(&call, "own", own_ownerships());
	return registry_call(&call, false, answer, count, err);
}

/* Frees an ID of the owner that has it now. */
static bool
serve_release(const RegistryRequest *request, char ***answer, int *count, char *err)
{
	RegistryCall call;
	const char *worker = registry_number(request->worker_id);

	if (!list(request->datacenter_id, request->worker_id, 1, answer, count, err))
		return false;
	if (strcmp((*answer)[0], "list") != 0)
		return true;			/* another layout; the session checks the rest */
	if (*count != 1 + RECORD_COLUMNS || strcmp((*answer)[1], worker) != 0)
	{
		(*answer)[0] = "free";	/* there is no such claim */
		*count = 1;
		return true;
	}
	registry_begin_call(&call, "free", request->datacenter_id, NULL);
	registry_argument(&call, "worker", worker);
	registry_argument(&call, "ownership", (*answer)[RECORD_COLUMNS]);
	registry_argument(&call, "own", own_ownerships());
	registry_argument(&call, "force", registry_number(request->force));
	return registry_call(&call, false, answer, count, err);
}

/* Serves the request that registry_look() took. */
void
registry_serve_request(void)
{
	RegistryRequest *request = &seen.request;
	uint64		ticket = seen.ticket;
	char	  **answer = NULL;
	int			count = 0;
	bool		ok = true;
	size_t		used = 0;
	int64		due = next_contact;

	request->error[0] = '\0';
	request->refused = false;
	request->count = 0;
	if (request->operation == REQUEST_RECLAIM)
	{
		const char *refusal = registry_reclaim();

		LWLockAcquire(registry_lock, LW_EXCLUSIVE);
		if (registry->state != CLAIM_HELD || registry->claim.ownership == seen.claim.ownership)
		{
			/* or it was not asked, though it can be */
			request->refused = answered || backoff == 0;
			strlcpy(request->error, refusal[0] ? refusal :
					registry->detail[0] ? registry->detail : "There is no claim that Redis has confirmed, or another one is under way.",
					sizeof(request->error));
		}
		request->worker_id = registry->claim.worker_id;
		LWLockRelease(registry_lock);
	}
	else if (request->operation == REQUEST_RELEASE)
		ok = serve_release(request, &answer, &count, request->error);
	else
		ok = list(request->datacenter_id, request->worker_id, REGISTRY_PAGE, &answer, &count,
				  request->error);
	if (ok && count == 3 && strcmp(answer[0], "layout") == 0)
	{
		request->refused = true;
		strlcpy(request->error, registry_layout_conflict(answer), sizeof(request->error));
	}
	else if (ok)
	{
		for (int i = 0; i < count && used < sizeof(request->answer); i++)
		{
			used += strlcpy(request->answer + used, answer[i], sizeof(request->answer) - used) + 1;
			request->count++;
		}
		if (used > sizeof(request->answer))
			strlcpy(request->error, "The reply from Redis is too long.", sizeof(request->error));
	}
	/* a mark is not put off, however often there are requests */
	next_contact = Min(next_contact, due);

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (registry->ticket == ticket && registry->request_state == REQUEST_RUNNING)
	{
		registry->request = *request;
		registry->request_state = REQUEST_DONE;
	}
	LWLockRelease(registry_lock);
	ConditionVariableBroadcast(&registry->request_changed);
}
