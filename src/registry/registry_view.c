/*
 * registry_view.c
 *		What the parts of the registry process share.
 *
 * "seen" is a copy of the shared state, as it was at the last registry_look().
 * Whoever changes the shared state does so under registry_lock, and looks again
 * before relying on the copy.
 */
#include "postgres.h"

#include "compat.h"
#include "registry/registry_view.h"

Registry	seen;
int64		next_contact = 0;
int64		backoff = 0;
bool		answered;
bool		watching;

/* Copies the shared state.  True: it took a request, which is to be served. */
bool
registry_look(bool take_request)
{
	int64		now = monotonic_ms();
	bool		request;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	request = take_request && registry->has_identity &&
		registry->request_state == REQUEST_WAITING &&
		now <= registry->request_ends;
	if (request)
		registry->request_state = REQUEST_RUNNING;
	memcpy(&seen, registry, sizeof(Registry));
	LWLockRelease(registry_lock);
	return request;
}
