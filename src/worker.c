/*
 * worker.c
 *		The background worker "snowid worker": opens and closes the gate, and
 *		watches the clock.
 *
 * Alone decides whether keys may be made, and with which pair; alone writes
 * the state file.  Never serves keys and never talks to the network.  What it
 * cannot do now it tries again; it leaves only when told to, with exit code 1,
 * for 0 would end it for good.
 *
 * Order of publication: file synced, then gate opened.  Of withdrawal: gate
 * closed first.
 */
#include "postgres.h"

#include <time.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procsignal.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "snowid.h"

/* How often the clock is looked at, and what could not be done tried again. */
#define TURN_MS 1000

/* A step back that is smaller than this may be an error of the reading. */
#define STEP_BACK_MS 5

/* The state file says that this layout is in use, or has been made to. */
static bool layout_settled = false;

/* What the gate was last closed for, so that each change is logged once. */
static GateReason closed_for = GATE_OPEN;
static char closed_detail[GATE_DETAIL_LEN];

/*
 * A pair of which nothing is known may have been used by another server until
 * now, up to max_drift ahead of the clock: it begins above that.
 */
static struct
{
	bool		wanted;
	int			datacenter_id;
	int			worker_id;
	int64		floor;			/* unit */
}			candidate;

/* Runs in the postmaster. */
void
worker_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* on a standby too: it waits for the promotion */
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = 0;
	strlcpy(worker.bgw_library_name, "snowid", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "snowid_worker_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "snowid worker", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "snowid worker", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

static void
close_gate(GateReason reason, const char *detail)
{
	if (detail == NULL)
		detail = "";
	if (reason == closed_for && strcmp(detail, closed_detail) == 0)
		return;
	generator_close(reason, detail);
	closed_for = reason;
	strlcpy(closed_detail, detail, sizeof(closed_detail));
	ereport(LOG,
			(errmsg("%s", gate_message(reason)),
			 detail[0] ? errdetail("%s", detail) : 0));
}

static void
open_gate(int64 floor)
{
	char		text[LAYOUT_TEXT_LEN];

	generator_open(snowid_datacenter_id, snowid_worker_id, floor);
	closed_for = GATE_OPEN;
	layout_describe(&server_layout, text);
	ereport(LOG,
			(errmsg("snowid makes keys as datacenter %d, worker %d",
					snowid_datacenter_id, snowid_worker_id),
			 errdetail("The layout is \"%s\".", text)));
}

/*
 * Makes sure that this layout may be used: it made the keys before, or is new
 * and lasts.  Closes the gate where it may not.
 */
static bool
settle_layout(void)
{
	Layout		used;
	char		err[GATE_DETAIL_LEN];
	char		text[LAYOUT_TEXT_LEN];
	char		used_text[LAYOUT_TEXT_LEN];
	int64		now = unix_ms_from_timestamptz(GetCurrentTimestamp());
	bool		ends_soon = layout_ends_soon(&server_layout, now);
	const char *last_day = timestamptz_to_str(timestamptz_from_unix_ms(layout_last_ms(&server_layout)));

	layout_describe(&server_layout, text);
	switch (statefile_read(&used, err, sizeof(err)))
	{
		case STATE_FILE_FAILED:
			close_gate(GATE_FILE, err);
			return false;
		case STATE_FILE_OK:
			layout_describe(&used, used_text);
			if (strcmp(text, used_text) != 0)
			{
				snprintf(err, sizeof(err),
						 "The settings make \"%s\", and this server's keys have \"%s\".",
						 text, used_text);
				close_gate(GATE_LAYOUT, err);
				return false;
			}
			if (ends_soon)
				ereport(WARNING,
						(errmsg("the timestamp's range of the snowid layout ends at %s",
								last_day)));
			break;
		case STATE_FILE_ABSENT:
			if (ends_soon)
			{
				snprintf(err, sizeof(err),
						 "The timestamp's range of \"%s\" ends at %s, in less than ten years.",
						 text, last_day);
				close_gate(GATE_LAYOUT, err);
				return false;
			}
			if (!statefile_write(&server_layout, err, sizeof(err)))
			{
				close_gate(GATE_FILE, err);
				return false;
			}
			break;
	}
	layout_settled = true;
	return true;
}

/* Opens or closes the gate as settings, role and clock have it. */
static void
tend_gate(void)
{
	GateReason	reason;
	bool		has_pair;
	bool		same_pair;
	int			datacenter_id;
	int			worker_id;

	if (RecoveryInProgress())
	{
		close_gate(GATE_RECOVERY, NULL);
		return;
	}
	if (snowid_worker_id < 0)
	{
		close_gate(GATE_NO_WORKER_ID, NULL);
		return;
	}
	if (!layout_settled && !settle_layout())
		return;

	reason = generator_gate(&has_pair, &datacenter_id, &worker_id);
	same_pair = has_pair && datacenter_id == snowid_datacenter_id &&
		worker_id == snowid_worker_id;
	if (same_pair)
	{
		/* this server's own: shared memory knows how far it went */
		if (reason != GATE_OPEN)
			open_gate(PG_INT64_MIN);
		candidate.wanted = false;
		return;
	}
	if (!candidate.wanted || candidate.datacenter_id != snowid_datacenter_id ||
		candidate.worker_id != snowid_worker_id)
	{
		close_gate(GATE_STARTING, NULL);
		candidate.wanted = true;
		candidate.datacenter_id = snowid_datacenter_id;
		candidate.worker_id = snowid_worker_id;
		candidate.floor = generator_clock() + units_from_ms(snowid_max_drift);
	}
	if (generator_clock() >= candidate.floor)
	{
		open_gate(candidate.floor);
		candidate.wanted = false;
	}
}

/*
 * Logs and counts each step back of the wall clock, seen as a change of its
 * distance from a clock that nobody sets.  Backends cannot see it: two of them
 * read a steady clock out of order all the time.
 */
static void
watch_clock(void)
{
	static bool known = false;
	static int64 distance;		/* us */
	int64		reading = 0;
	int64		took;

	/* a pair of readings that was interrupted says nothing: try again */
	for (int i = 0; i < 10; i++)
	{
		struct timespec before,
					wall,
					after;

		clock_gettime(CLOCK_BOOTTIME, &before);
		clock_gettime(CLOCK_REALTIME, &wall);
		clock_gettime(CLOCK_BOOTTIME, &after);
		took = (after.tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(after.tv_nsec - before.tv_nsec) / 1000;
		reading = (wall.tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(wall.tv_nsec - before.tv_nsec) / 1000;
		if (took < 1000)
			break;
	}
	if (took >= 1000)
		return;

	if (known && reading < distance - STEP_BACK_MS * 1000)
	{
		generator_count_step_back();
		ereport(LOG,
				(errmsg("the clock was set back by " INT64_FORMAT " ms",
						(distance - reading) / 1000),
				 errdetail("Keys go on in order, up to snowid.max_drift ahead of the clock.")));
	}
	known = true;
	distance = reading;
}

/* Runs when the worker leaves, in whatever way. */
static void
leave(int code, Datum arg)
{
	generator_detach_worker();
}

void
snowid_worker_main(Datum main_arg)
{
	MemoryContext turn_context;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(leave, 0);
	generator_attach_worker();

	turn_context = AllocSetContextCreate(TopMemoryContext, "snowid worker",
										 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		long		pause = TURN_MS;

		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
		{
			generator_close(GATE_STOPPING, NULL);
			proc_exit(1);
		}
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		MemoryContextSwitchTo(turn_context);
		PG_TRY();
		{
			watch_clock();
			tend_gate();
		}
		PG_CATCH();
		{
			EmitErrorReport();
			FlushErrorState();
		}
		PG_END_TRY();
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(turn_context);

		if (candidate.wanted)
			pause = Min(Max(ms_from_units(candidate.floor - generator_clock()), 1),
						TURN_MS);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 pause, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
