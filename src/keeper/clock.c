/*
 * clock.c
 *		Detects steps and jumps of the clock.
 *
 * Compares the wall clock with a steady one (STEADY_CLOCK, which also runs during
 * a suspend).  Steps back are logged and counted.  A jump ahead by more than
 * snowid.max_jump is not believed until it is over or an administrator accepts
 * it.  The belief survives the keeper and a crash restart.  Only the keeper writes
 * it, and never from a clock that has jumped.
 */
#include "postgres.h"

#include <sys/mman.h>
#include <time.h>

#include "port/atomics.h"

#include "compat.h"
#include "generator/gate.h"
#include "keeper/clock.h"
#include "process.h"
#include "units.h"

/* A smaller step back may be an inexact reading. */
#define STEP_BACK_US (5 * 1000)

/* Positions of the wall clock: in us, from STEADY_CLOCK to it. */
typedef struct Belief
{
	int64		distance;
	int64		former;			/* it was set back from there ... */
	int64		former_until;	/* ... and may return until this second */
} Belief;

typedef struct ClockWatch
{
	Belief		belief;
	bool		jumped;
	pg_atomic_uint32 accept;	/* set by snowid_accept_clock() */
} ClockWatch;

/* For so long a clock that was set back may return to its former position. */
#define RETURN_S 3600

/*
 * On a page of its own, which every process inherits from the postmaster: a
 * crash restart clears the server's shared memory.
 */
static ClockWatch *watch = NULL;

/* One reading of the wall clock, and its distance in us. */
static int64
read_both(struct timespec *wall)
{
	int64		distance = 0;

	/* readings too far apart tell nothing: try again */
	for (int i = 0; i < 10; i++)
	{
		struct timespec before,
					after;

		clock_gettime(STEADY_CLOCK, &before);
		clock_gettime(CLOCK_REALTIME, wall);
		clock_gettime(STEADY_CLOCK, &after);
		distance = (wall->tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(wall->tv_nsec - before.tv_nsec) / 1000;
		if ((after.tv_sec - before.tv_sec) * INT64CONST(1000000) +
			(after.tv_nsec - before.tv_nsec) / 1000 < STEP_BACK_US / 5)
			break;
	}
	return distance;
}

/* Runs in the postmaster, at the start and after a crash. */
void
clock_shmem_init(void)
{
	struct timespec ignored;

	if (watch == NULL)
	{
		void	   *page = mmap(NULL, sizeof(ClockWatch), PROT_READ | PROT_WRITE,
								MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			ereport(FATAL,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("could not map a page for snowid: %m")));
		watch = page;			/* of zeros */
		watch->belief.distance = read_both(&ignored);
	}
	watch->jumped = false;
	pg_atomic_init_u32(&watch->accept, 0);
}

/* The administrator accepts the clock as it is; false: it has not jumped. */
bool
clock_accept(void)
{
	if (!watch->jumped)
		return false;
	pg_atomic_write_u32(&watch->accept, 1);
	process_notify(PROCESS_KEEPER);
	return true;
}

/* Is a clock at this distance near a position?  Whole seconds, as max_jump may be exact. */
static bool
is_near(int64 position, int64 distance)
{
	return llabs(distance - position) / 1000000 <= snowid_max_jump / 1000;
}

/*
 * May the clock be at this distance?  Yes, if it is behind, has not jumped ahead
 * by more than max_jump, or is near the position from which it was set back.
 */
static bool
is_believed(const Belief *belief, int64 distance, int64 steady_s)
{
	return distance <= belief->distance || is_near(belief->distance, distance) ||
		(steady_s < belief->former_until && is_near(belief->former, distance));
}

/*
 * The clock was set back: it may return to its former position; after several
 * steps, to the foremost one.
 */
static void
note_step_back(Belief *belief, int64 steady_s)
{
	if (steady_s >= belief->former_until || belief->distance > belief->former)
		belief->former = belief->distance;
	else if (!is_near(belief->former, belief->distance))
		return;
	belief->former_until = steady_s + RETURN_S;
}

/*
 * Reads the wall clock, in units.  False: it has jumped ahead, and must not be
 * used.  (Backends cannot detect steps: even of a steady clock, two backends'
 * readings are often out of order.)
 */
bool
clock_read(int64 *now)
{
	struct timespec wall;
	struct timespec steady;
	int64		distance = read_both(&wall);
	Belief	   *belief = &watch->belief;

	*now = units_from_timespec(&wall);
	if (pg_atomic_exchange_u32(&watch->accept, 0) != 0 && watch->jumped)
	{
		ereport(LOG, (errmsg("the jump of the clock was accepted")));
		belief->distance = distance;
		watch->jumped = false;
	}

	clock_gettime(STEADY_CLOCK, &steady);
	if (!is_believed(belief, distance, steady.tv_sec))
	{
		if (!watch->jumped)
			ereport(LOG,
					(errmsg("the clock jumped ahead by " INT64_FORMAT " ms, more than snowid.max_jump",
							(distance - belief->distance) / 1000),
					 errdetail("Keys stop at the ceiling until the clock is back."),
					 errhint("If this is the right time, call snowid_accept_clock().")));
		watch->jumped = true;
		return false;
	}
	if (watch->jumped)
		ereport(LOG, (errmsg("the clock is back after its jump ahead")));
	watch->jumped = false;
	if (distance < belief->distance - STEP_BACK_US)
	{
		int64		back = belief->distance - distance;

		note_step_back(belief, steady.tv_sec);
		generator_count_step_back();
		ereport(LOG,
				(errmsg("the clock was set back by " INT64_FORMAT " ms",
						back / 1000),
				 errdetail("Keys stay in order, up to snowid.max_lead ahead of the clock.")));
	}
	belief->distance = distance;
	return true;
}
