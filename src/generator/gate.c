/*
 * gate.c
 *		The generator as the snowid keeper sees it: gate, grants, snowid_advance(),
 *		status.
 *
 * Creates the shared state; state.h has the rules of its locks.  The keeper
 * decides, the functions here only carry it out, and never throw in it.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "generator/gate.h"
#include "generator/state.h"
#include "process.h"
#include "units.h"

Generator  *generator = NULL;
LWLock	   *generator_lock;

const GateText gate_texts[] =
{
	[GATE_OPEN] = {true, "snowid could not reserve more keys",
	"snowid tries again by itself; see the server log."},
	[GATE_STARTING] = {true, "snowid is not ready yet",
	"Try again; if it lasts, see the server log."},
	[GATE_BEHIND] = {true, "the clock is too far behind the keys of this server",
	"Set the clock right; see doc/worker-ids.md in snowid's manual.", ERRCODE_SYSTEM_ERROR},
	[GATE_STOPPING] = {true, "snowid is shutting down or starting again",
	"Try again; unless the server is being stopped, \"snowid keeper\" starts again by itself."},
	[GATE_RECOVERY] = {false, "snowid makes no keys during recovery",
	"Ask the primary server, or promote this one."},
	[GATE_SINGLE_USER] = {false, "snowid makes no keys in single-user mode",
	"Start the server as usual."},
	[GATE_NO_WORKER_ID] = {false, "snowid has no worker ID",
	"Set snowid.worker_id, a number that no other server uses, and reload the configuration."},
	[GATE_CLAIM] = {true, "snowid has not claimed a worker ID yet",
	"snowid tries again by itself; see doc/worker-ids.md in snowid's manual."},
	[GATE_CLAIM_LOST] = {true, "snowid lost its worker ID",
	"snowid claims another one by itself; see the server log."},
	[GATE_CLAIM_REFUSED] = {false, "snowid was refused a worker ID",
	"See snowid_claims(), and doc/worker-ids.md in snowid's manual; snowid tries again by itself."},
	[GATE_BEFORE_EPOCH] = {false, "the clock is before the layout's epoch",
		"Set the clock of this machine, or correct snowid.layout and restart the server.",
	ERRCODE_SYSTEM_ERROR},
	[GATE_LAYOUT] = {false, "snowid cannot use this layout",
	"Correct snowid.layout and restart the server."},
	[GATE_LAYOUT_CONSENT] = {false, "snowid's layout was changed",
	"Put the old layout back, or call snowid_accept_layout() if the change is meant."},
	[GATE_FILE] = {false, "snowid cannot use its state file",
	"See doc/troubleshooting.md in snowid's manual; snowid tries again by itself."},
	[GATE_FILE_DAMAGED] = {false, "snowid cannot use its state file",
		"See doc/troubleshooting.md in snowid's manual; snowid tries again by itself.",
	ERRCODE_DATA_CORRUPTED},
	[GATE_CEILING] = {true, "snowid cannot raise its ceiling",
	"See the server log; snowid tries again by itself."},
	[GATE_RANGE_ENDED] = {false, "the timestamp's range of the snowid layout has ended",
	"See doc/layouts.md in snowid's manual.", ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED}
};

/*---- Shared memory ----*/

/* A wait event in pg_stat_activity. */
#define LOCK_NAME "snowid_generator"

void
generator_shmem(bool reserve)
{
	generator = shmem_area(reserve, "snowid",
						   offsetof(Generator, counters) + MaxBackends * sizeof(Counters));
	if (reserve)
	{
		RequestNamedLWLockTranche(LOCK_NAME, 1);
		return;
	}
	generator_lock = &GetNamedLWLockTranche(LOCK_NAME)->lock;
	pg_atomic_init_u64(&generator->last, GATE_CLOSED);
	pg_atomic_init_u64(&generator->usable_until, 0);
	pg_atomic_init_u64(&generator->ask_above, 0);
	ConditionVariableInit(&generator->changed);
	mailbox_init(&generator->advance, generator_lock, &generator->advance_letter,
				 sizeof(AdvanceLetter));
	generator->gate.stats_reset = GetCurrentTimestamp();
	generator->gate.reason = IsPostmasterEnvironment ? GATE_STARTING : GATE_SINGLE_USER;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u64(&generator->counters[i].keys, 0);
		pg_atomic_init_u64(&generator->counters[i].waits, 0);
		pg_atomic_init_u64(&generator->counters[i].wait_us, 0);
		pg_atomic_init_u64(&generator->counters[i].errors, 0);
	}
}

/* The last unit of the timestamp's range. */
int64
generator_range_end(void)
{
	int64		ms = layout_last_ms(&server_layout) - server_layout.epoch;

	if (ms >= GATE_CLOSED >> server_layout.sequence_bits)
		return GATE_CLOSED - 1;
	return units_from_ms(ms + 1) - 1;
}

/* The greatest unit that keys can have at this time, by the settings. */
int64
generator_reach(int64 now)
{
	return now + units_from_ms((int64) snowid_max_lead + snowid_max_wait +
							   RESERVE_MS);
}

const char *
gate_message(GateReason reason)
{
	return gate_texts[reason].message;
}

/*---- The rule for callers ----*/

/* The ms until a unit is due, or 0. */
int64
generator_due_in(int64 unit, int64 now)
{
	int64		left = (unit & ~unit_format.sequence_mask) - units_from_ms(snowid_max_lead) - now;

	return left <= 0 ? 0 : ms_from_units(left);
}

/*
 * The outlook of a caller that wants this unit, Max(last + 1, now), and may wait for so
 * many ms more.  take() and generator_next() have the first case inline.
 */
Prospect
generator_judge(int64 unit, int64 now, int64 usable_until, int64 may_wait_ms)
{
	int64		due_in = generator_due_in(unit, now);

	if (due_in == 0 && unit <= usable_until)
		return UNIT_USABLE;
	if (now < 0)
		return UNIT_BEFORE_EPOCH;
	if (unit > generator_range_end())
		return UNIT_BEYOND_RANGE;
	if (due_in > Max(may_wait_ms, 0))
		return UNIT_TOO_FAR;
	return unit <= usable_until ? UNIT_USABLE : UNIT_NEEDS_GRANT;
}

/* The reason as it is now: the keeper may not have seen a promotion yet. */
GateReason
generator_reason(GateReason reason)
{
	return reason == GATE_RECOVERY && !RecoveryInProgress() ? GATE_STARTING : reason;
}

/*---- The gate ----*/

/*
 * True if there is no keeper, or if it has begun no turn for "patience" ms; the
 * detail then says so.
 */
bool
generator_keeper_trouble(int64 patience, char *detail)
{
	int64		still;
	int			pid = process_pid(PROCESS_KEEPER, &still);

	if (pid == 0)
		strlcpy(detail, still >= 0 ?
				"The \"snowid keeper\" process is not running; see the server log." :
				"The \"snowid keeper\" process is not running; increase max_worker_processes.",
				GATE_DETAIL_LEN);
	else if (still > patience)
		snprintf(detail, GATE_DETAIL_LEN,
				 "The \"snowid keeper\" process, PID %d, is busy or hangs: it has reserved nothing since %s.",
				 pid,
				 timestamptz_to_str(GetCurrentTimestamp() - still * 1000));
	else
		return false;
	return true;
}

/* Closes the gate, or changes the reason of a closed gate. */
void
generator_close(GateReason reason, const char *detail)
{
	int64		last = (int64) pg_atomic_exchange_u64(&generator->last, GATE_CLOSED);
	bool		changed;

	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	if (last != GATE_CLOSED)
		generator->gate.resume_above = last;
	changed = generator->gate.reason != reason;
	generator->gate.reason = reason;
	strlcpy(generator->gate.detail, detail, GATE_DETAIL_LEN);
	LWLockRelease(generator_lock);
	/* a caller woken without a change would ask again at once */
	if (changed)
		ConditionVariableBroadcast(&generator->changed);
}

/*
 * Opens the closed gate for a pair.  Keys begin above the unit "floor" (-1: none),
 * and above every unit taken before, unless "forget" is set: those of another pair
 * may be too far ahead of the clock.  Another pair begins in the next ms, because in
 * a key the pair is above the sequence.
 */
void
generator_open(PairId pair, int64 floor, bool forget)
{
	int64		last;
	bool		same;

	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	Assert(generator->gate.reason != GATE_OPEN);
	same = generator->gate.has_pair && same_pair(generator->gate.pair, pair);
	last = generator->gate.resume_above;
	if (!same)
		last |= unit_format.sequence_mask;
	if (!generator->gate.has_pair || forget || last < floor)
		last = floor;
	if (!same || last != generator->gate.resume_above)
		generator->gate.floor = last;
	generator->gate.resume_above = last;
	generator->gate.has_pair = true;
	generator->gate.pair = pair;
	generator->pair_bits =
		((uint64) pair.datacenter << server_layout.worker_bits | (uint64) pair.worker)
		<< server_layout.sequence_bits;
	pg_write_barrier();			/* the pair is visible before the opening */
	generator->opening++;
	generator->gate.reason = GATE_OPEN;
	generator->gate.detail[0] = '\0';
	LWLockRelease(generator_lock);

	/*
	 * A full barrier: the pair is visible before any unit.  On ARM64 a caller
	 * may load "opening" before its swap is stored; but before "opening"
	 * changes, the sentinel is exchanged into "last", so that swap fails.
	 */
	pg_atomic_exchange_u64(&generator->last, last);
	ConditionVariableBroadcast(&generator->changed);
}

const Gate *
generator_gate(void)
{
	return &generator->gate;
}

/* The highest unit ever taken. */
int64
generator_last(void)
{
	int64		last = (int64) pg_atomic_read_u64(&generator->last);

	return last == GATE_CLOSED ? generator->gate.resume_above : last;
}

/*---- Grants ----*/

int64
generator_usable_until(void)
{
	return (int64) pg_atomic_read_u64(&generator->usable_until);
}

/* Has a caller come near the ceiling? */
bool
generator_is_asked(void)
{
	return pg_atomic_read_u64(&generator->ask_above) == GATE_CLOSED;
}

/*
 * Publishes a grant that is durable.  Only while the gate is closed may it be
 * lower than the one before.
 */
void
generator_grant(int64 usable_until, int64 ask_above)
{
	bool		open;
	int64		now = monotonic_ms();

	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	generator->gate.granted_at = now;
	open = generator->gate.reason == GATE_OPEN;
	if (open)
		generator->gate.detail[0] = '\0';
	LWLockRelease(generator_lock);
	pg_atomic_write_u64(&generator->usable_until, usable_until);
	pg_atomic_write_u64(&generator->ask_above, ask_above);
	if (open)
		ConditionVariableBroadcast(&generator->changed);
}

/* The first caller that takes a unit above this one wakes the keeper. */
void
generator_ask_above(int64 unit)
{
	pg_atomic_write_u64(&generator->ask_above, unit);
}

/*
 * Says why there is no grant; callers see it when they reach the ceiling.  The next
 * grant takes the reason away, so it is due even if nobody makes keys.
 */
void
generator_no_grant(const char *detail)
{
	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	strlcpy(generator->gate.detail, detail, GATE_DETAIL_LEN);
	LWLockRelease(generator_lock);
	pg_atomic_write_u64(&generator->ask_above, GATE_CLOSED);
}

/* The clock has jumped ahead, or is believed again; it was set back. */
void
generator_note_clock(bool jumped, bool set_back)
{
	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	generator->gate.clock_jumped = jumped;
	generator->gate.accepts_clock &= jumped;	/* it may have come just now */
	generator->gate.steps_back += set_back;
	LWLockRelease(generator_lock);
}

/* Will another pair be taken if the clock is too far behind?  Was one just now? */
void
generator_note_move(bool may_move, bool has_moved)
{
	LWLockAcquire(generator_lock, LW_EXCLUSIVE);
	generator->gate.may_move = may_move;
	generator->gate.moves += has_moved;
	LWLockRelease(generator_lock);
}

/*---- snowid_advance(): the caller's side is in wait.c ----*/

/* Takes a request: the unit that a caller wants keys to be above, or -1. */
int64
generator_advance_take(void)
{
	return mailbox_take(&generator->advance) ? generator->advance_letter.unit : -1;
}

/* The request that was taken cannot be carried out yet; its caller may withdraw it. */
void
generator_advance_later(void)
{
	mailbox_put_back(&generator->advance);
}

/*
 * Ends the request that was taken, if there is one.  "durable": a ceiling above
 * its unit is durable and the gate is open, so keys continue above it.  Otherwise
 * "error" is the reason, or "".
 */
void
generator_advance_end(bool durable, const char *error)
{
	AdvanceLetter *letter = &generator->advance_letter;

	if (!mailbox_has_taken(&generator->advance))
		return;
	if (durable)
	{
		uint64		last = pg_atomic_read_u64(&generator->last);

		while ((int64) last < letter->unit &&
			   !pg_atomic_compare_exchange_u64(&generator->last, &last, letter->unit))
			;
	}
	letter->done = durable;
	strlcpy(letter->error, error, GATE_DETAIL_LEN);
	mailbox_answer(&generator->advance);
}

/*---- Status ----*/

/*
 * Would a caller get a key now?  By its own rule; and if it needs a grant, there is no
 * reason against one, the lease lasts, and the keeper works.
 */
static bool
has_prospect(GeneratorStatus *status, int64 unit, int64 now, int64 usable_until, int64 lease_end_ms)
{
	char	   *detail = status->gate.detail;
	Prospect	prospect = generator_judge(unit, now, usable_until, snowid_max_wait);

	if (prospect == UNIT_USABLE)
		return true;
	if (prospect == UNIT_NEEDS_GRANT)
		return detail[0] == '\0' && unix_ms_from_units(now) <= lease_end_ms &&
			!generator_keeper_trouble(STUCK_MS, detail);
	detail[0] = '\0';
	if (prospect == UNIT_TOO_FAR)
		status->message = psprintf("the next key would lead the clock by " INT64_FORMAT " ms",
								   ms_from_units(unit - now));
	else
		status->message = gate_message(prospect == UNIT_BEFORE_EPOCH ? GATE_BEFORE_EPOCH : GATE_RANGE_ENDED);
	return false;
}

/* After "lease_end_ms", a Unix time, there are no grants. */
void
generator_status(GeneratorStatus *status, int64 lease_end_ms)
{
	int64		now = clock_units();
	int64		last;
	int64		usable_until = generator_usable_until();
	uint64		pair_bits;

	memset(status, 0, sizeof(*status));
	LWLockAcquire(generator_lock, LW_SHARED);
	status->gate = generator->gate;
	last = generator_last();
	pair_bits = generator->pair_bits;
	LWLockRelease(generator_lock);

	status->ceiling_ms = unix_ms_from_units(usable_until);
	status->grant_age_ms = status->gate.granted_at == 0 ? -1 : monotonic_ms() - status->gate.granted_at;
	status->gate.reason = generator_reason(status->gate.reason);
	status->message = gate_message(status->gate.reason);
	if (status->gate.reason == GATE_OPEN)
		status->is_open = has_prospect(status, Max(last + 1, now), now, usable_until, lease_end_ms);
	else if (gate_texts[status->gate.reason].temporary && status->gate.detail[0] == '\0')
		(void) generator_keeper_trouble(STUCK_MS, status->gate.detail);
	status->has_last = status->gate.has_pair && last > status->gate.floor;
	if (status->has_last)
	{
		status->last_key = key_from_unit(last, pair_bits);
		status->last_unix_ms = unix_ms_from_units(last);
	}
	/* also before the first key after a start, which is above all former ones */
	if (status->gate.has_pair && last > now)
		status->lead_ms = (double) (last - now) / (double) (unit_format.sequence_mask + 1);
	for (int i = 0; i < MaxBackends; i++)
	{
		Counters   *c = &generator->counters[i];

		status->keys += pg_atomic_read_u64(&c->keys);
		status->waits += pg_atomic_read_u64(&c->waits);
		status->wait_us += pg_atomic_read_u64(&c->wait_us);
		status->errors += pg_atomic_read_u64(&c->errors);
	}
}
