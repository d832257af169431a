/*
 * clock.c
 *		The clock watch of the snowid worker.
 *
 * Compares the wall clock with one that nobody sets (CLOCK_BOOTTIME, which
 * counts through a suspend).  Steps back are logged and counted.  A jump ahead
 * by more than snowid.max_jump is not believed until it is over or an
 * administrator accepts it.  What is known of the clock is in shared memory,
 * for a worker's successor; only the worker touches it.
 */
#include "postgres.h"

#include <time.h>

#include "port/atomics.h"
#include "storage/shmem.h"

#include "snowid.h"

/* A step back that is smaller than this may be an error of the reading. */
#define STEP_BACK_US (5 * 1000)

typedef struct ClockWatch
{
	bool		jumped;
	int64		distance;		/* us from CLOCK_BOOTTIME to the wall clock */
	int64		before_step;	/* the distance before a step back */
	int64		before_step_until;	/* s of CLOCK_BOOTTIME */
	pg_atomic_uint32 accept;	/* set by snowid_accept_clock() */
} ClockWatch;

/* A step ahead within this time may be the end of a step back. */
#define STEP_S 3600

static ClockWatch *watch = NULL;

/*
 * The distance when the server was started.  In the postmaster, where it
 * outlives a restart after a crash; the clock may have jumped before that.
 */
static int64 distance_at_start;
static bool started = false;

Size
clock_shmem_size(void)
{
	return MAXALIGN(sizeof(ClockWatch));
}

/* One reading of the wall clock, and its distance in us. */
static int64
read_both(struct timespec *wall)
{
	int64		distance = 0;

	/* a pair of readings that was interrupted says nothing: try again */
	for (int i = 0; i < 10; i++)
	{
		struct timespec before,
					after;

		clock_gettime(CLOCK_BOOTTIME, &before);
		clock_gettime(CLOCK_REALTIME, wall);
		clock_gettime(CLOCK_BOOTTIME, &after);
		distance = (wall->tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(wall->tv_nsec - before.tv_nsec) / 1000;
		if ((after.tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(after.tv_nsec - before.tv_nsec) / 1000 < STEP_BACK_US / 5)
			break;
	}
	return distance;
}

void
clock_shmem_init(void)
{
	struct timespec ignored;
	bool		found;

	watch = ShmemInitStruct("snowid clock", clock_shmem_size(), &found);
	if (found)
		return;
	if (!started)
		distance_at_start = read_both(&ignored);
	started = true;
	memset(watch, 0, sizeof(ClockWatch));
	watch->distance = watch->before_step = distance_at_start;
	pg_atomic_init_u32(&watch->accept, 0);
}

/* The administrator takes the clock as it is now; false: it has not jumped. */
bool
clock_accept(void)
{
	if (!watch->jumped)
		return false;
	pg_atomic_write_u32(&watch->accept, 1);
	generator_wake_worker();
	return true;
}

/*
 * Reads the wall clock, in units.  False: it has jumped ahead, and is not to
 * be used.  Backends cannot tell steps: two of them read a steady clock out of
 * order all the time.
 */
bool
clock_read(int64 *now)
{
	struct timespec wall;
	struct timespec boot;
	int64		distance = read_both(&wall);
	int64		ahead;

	*now = generator_units(&wall);
	if (pg_atomic_exchange_u32(&watch->accept, 0) != 0 && watch->jumped)
	{
		ereport(LOG, (errmsg("the jump of the clock was accepted")));
		watch->distance = distance;
		watch->jumped = false;
	}

	clock_gettime(CLOCK_BOOTTIME, &boot);
	ahead = distance - watch->distance;
	if (boot.tv_sec < watch->before_step_until)
		ahead = distance - Max(watch->distance, watch->before_step);
	/* in whole seconds: an hour is not more than an hour */
	if (ahead / 1000000 > snowid_max_jump / 1000)
	{
		if (!watch->jumped)
			ereport(LOG,
					(errmsg("the clock jumped ahead by " INT64_FORMAT " ms, more than snowid.max_jump",
							ahead / 1000),
					 errdetail("Keys stop at the ceiling until the clock is back."),
					 errhint("If this is the right time, call snowid_accept_clock().")));
		watch->jumped = true;
		return false;
	}
	if (watch->jumped)
		ereport(LOG, (errmsg("the clock is back after its jump ahead")));
	watch->jumped = false;
	if (distance < watch->distance - STEP_BACK_US)
	{
		if (boot.tv_sec >= watch->before_step_until)
			watch->before_step = watch->distance;
		watch->before_step_until = boot.tv_sec + STEP_S;
		generator_count_step_back();
		ereport(LOG,
				(errmsg("the clock was set back by " INT64_FORMAT " ms",
						(watch->distance - distance) / 1000),
				 errdetail("Keys go on in order, up to snowid.max_drift ahead of the clock.")));
	}
	watch->distance = distance;
	return true;
}
