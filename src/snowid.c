/*
 * snowid.c
 *		Module load and shared-memory hooks.
 *
 * Runs in the postmaster: defines the settings, reserves and initializes
 * shared memory, and registers the background processes.  No I/O here.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/keeper.h"
#include "keeper/pair.h"
#include "key/layout.h"
#include "process.h"
#include "registry/claim.h"
#include "registry/registry.h"
#include "segment/fetcher.h"
#include "segment/segment.h"
#include "settings.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowid",
					.version = LIBRARY_VERSION
);

extern PGDLLEXPORT void _PG_init(void);
extern PGDLLEXPORT void snowid_process_main(Datum main_arg);

static const Process *const our_processes[] = {
	[PROCESS_KEEPER] = &keeper_process,
	[PROCESS_REGISTRY] = &registry_process,
	[PROCESS_SEGMENTS] = &segments_process
};

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
shmem(bool reserve)
{
	process_shmem(reserve);
	generator_shmem(reserve);
	claim_shmem(reserve);
	if (snowid_max_segments > 0)
	{
		segment_shmem(reserve);
		fetcher_shmem(reserve);
	}
}

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	shmem(true);
}

static void
shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shmem(false);
	library_is_preloaded = true;
	LWLockRelease(AddinShmemInitLock);
}

void
_PG_init(void)
{
	/* in a session, functions that need no shared memory still work */
	if (!process_shared_preload_libraries_in_progress)
		return;

	settings_define();
	if (IsBinaryUpgrade)
		return;

	if (max_active_replication_origins < 2)
		ereport(WARNING,
				(errmsg("there is no room for the ceilings of snowid"),
				 errdetail("They take two places of replication origins or more. This server can make no keys; as a standby it stops with an error at the first ceiling of its primary."),
				 errhint("Increase max_replication_slots (max_active_replication_origins from PostgreSQL 18 on).")));

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
	decode_server_layout = pair_server_layout;
	process_register(&keeper_process);
	if (snowid_max_segments > 0)
		process_register(&segments_process);
	if (claim_from_redis())
		process_register(&registry_process);
}

/* A background process begins here. */
void
snowid_process_main(Datum main_arg)
{
	process_run(our_processes[DatumGetInt32(main_arg)]);
}
