/*
 * snowid.c
 *		Module load and shared-memory hooks.
 *
 * Runs in the postmaster: defines the settings, reserves and initialises the
 * shared memory, registers the background processes.  No I/O there.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "snowid.h"

PG_MODULE_MAGIC;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	generator_shmem_request();
	RequestAddinShmemSpace(pair_shmem_size());
	RequestAddinShmemSpace(inquiry_shmem_size());
	claim_shmem_request();
}

static void
shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	generator_shmem_init();
	pair_shmem_init();
	clock_shmem_init();
	inquiry_shmem_init();
	claim_shmem_init();
	LWLockRelease(AddinShmemInitLock);
}

void
_PG_init(void)
{
	/* in a session the functions that need no server still work */
	if (!process_shared_preload_libraries_in_progress)
		return;

	settings_define();
	if (IsBinaryUpgrade)
		return;

	if (max_active_replication_origins == 0)
		ereport(WARNING,
				(errmsg("there is no room for the replication origins of snowid"),
				 errdetail("This server can make no keys; as a standby it stops with an error at the first ceiling of its primary."),
				 errhint("Raise max_replication_slots (max_active_replication_origins from PostgreSQL 18 on).")));

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
	worker_register();
	inquiry_register();
	if (claim_from_redis())
		registry_register();
}
