/*
 * identity.c
 *		The server's identity: its data directory, as distinct from copies of it,
 *		and the claim in its state file.
 *
 * Keeps the snowid keeper's copy of the state file, and writes it.  A copy of the
 * directory is another server: its state may be out of date, and its claim
 * belongs to the original.  A directory that was restored or rewound in place is
 * a new server, too, but the registry recognizes it by its fingerprint.
 *
 * A claim that is given up is first written into the list of past claims, so that
 * it is never resumed, even if Redis later says otherwise.  Only the file on the
 * disk counts.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "keeper/identity.h"
#include "keeper/statefile.h"
#include "settings.h"

/*
 * Its fingerprint is that of the directory's content.  PostgreSQL and its tools
 * rewrite this file in place.  A restore or a rewind creates a new one, or brings
 * our file from another directory.
 */
#define CONTROL_FILE "global/pg_control"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

/* The content of the file, or the content that is about to be written. */
static Identity identity;
static Identity on_disk;		/* the same before a write that may fail */
static bool is_loaded = false;
static bool is_new;				/* the file does not have it yet */
static bool is_copy;			/* it was another directory's: to be said */

static void
become_new(void)
{
	memset(&identity, 0, sizeof(identity));
	identity.directory = statefile_fingerprint(".");
	identity.content = statefile_fingerprint(CONTROL_FILE);
	identity.id[0] = random_id();
	identity.id[1] = random_id();
}

/*
 * Names the machine's boot and the device of the data directory.  Since we hold
 * the lock of the directory, a former process of the same boot is certainly
 * gone.
 */
static void
describe_boot(char *boot)
{
	struct stat st;
	ssize_t		len = 0;
	int			fd = OpenTransientFile(BOOT_ID_FILE, O_RDONLY);

	boot[0] = '\0';
	if (fd >= 0)
	{
		len = read(fd, boot, 36);
		CloseTransientFile(fd);
	}
	if (len != 36 || stat(".", &st) < 0)
		snprintf(boot, BOOT_LEN, "%016llx", (unsigned long long) random_id());
	else
		snprintf(boot + len, BOOT_LEN - len, "/%llx", (unsigned long long) st.st_dev);
}

/*
 * Reads the state file, once.  Returns the reason why the gate must stay closed,
 * with the detail in err, or GATE_MAY_OPEN.
 */
GateReason
identity_load(char *err)
{
	StateFileResult result;
	Fingerprint directory = statefile_fingerprint(".");
	Fingerprint content = statefile_fingerprint(CONTROL_FILE);

	if (is_loaded)
		return GATE_MAY_OPEN;
	if (!statefile_lock(err, GATE_DETAIL_LEN))
		return GATE_FILE;
	result = statefile_read(&identity, err, GATE_DETAIL_LEN);
	if (result == STATE_FILE_FAILED)
		return GATE_FILE;
	if (result == STATE_FILE_DAMAGED)
		return GATE_FILE_DAMAGED;
	is_copy = result == STATE_FILE_OK &&
		(memcmp(&identity.directory, &directory, sizeof(directory)) != 0 ||
		 memcmp(&identity.content, &content, sizeof(content)) != 0);
	is_new = result == STATE_FILE_ABSENT || is_copy;
	if (is_new)
		become_new();
	on_disk = identity;
	is_loaded = true;
	return GATE_MAY_OPEN;
}

/* Writes the state file.  False: nothing has changed; the reason is in err. */
static bool
write_file(char *err)
{
	if (!statefile_write(&identity, err, GATE_DETAIL_LEN))
	{
		identity = on_disk;
		return false;
	}
	on_disk = identity;
	is_new = false;
	return true;
}

/*
 * Publishes the server's identity to the registry, once after the start, and
 * again if the registry has found that a clone of it is running.  Returns the
 * result of identity_load().
 */
GateReason
identity_introduce(char *err)
{
	Registry	seen;
	bool		clone;
	bool		is_start;
	char		boot[BOOT_LEN];
	static bool is_told = false;

	claim_look(&seen);
	clone = seen.state == CLAIM_LOST && seen.clone;
	if (is_told && seen.has_identity && !clone)
		return GATE_MAY_OPEN;
	if (is_copy)
		ereport(LOG,
				(errmsg("this data directory is a copy, or was restored"),
				 errdetail("It claims a worker ID of its own.")));
	is_copy = false;
	if (clone)
		become_new();
	is_start = !seen.has_identity || is_new || clone;
	if (is_start)
	{
		identity.starts++;
		/* once Redis knows it as a lease, it is no longer for good */
		if (snowid_redis_lease > 0 && identity.claim.ownership != 0)
			identity.claim.lease_ms = snowid_redis_lease;
		if (!write_file(err))
			return GATE_FILE;
	}
	describe_boot(boot);
	claim_set_identity(&identity, boot, is_start);
	is_told = true;
	return GATE_MAY_OPEN;
}

/* Does the file have this ownership, and on the same terms? */
bool
identity_remembers(const Claim *claim, bool *same_terms)
{
	int64		span_ms;
	int64		high;

	claim_marks(&span_ms, &high);
	*same_terms = identity.claim.lease_ms == claim->lease_ms && identity.home == claim_home() &&
		identity.span_ms >= span_ms;
	return identity.claim.ownership == claim->ownership;
}

/* Does the file have a claim that another source granted than the present one? */
bool
identity_changed_source(void)
{
	return identity.claim.ownership != 0 &&
		(identity.claim.generation != 0) != claim_from_redis();
}

/* The highest Unix ms up to which this server is known to have used a pair; 0: none. */
int64
identity_known_ms(const Claim *pair)
{
	int64		known_ms = 0;

	if (identity.claim.ownership != 0 && same_pair(&identity.claim, pair))
		known_ms = identity.ceiling_ms;
	for (int i = 0; i < PAST_CLAIMS; i++)
		if (same_pair(&identity.past[i], pair))
			known_ms = Max(known_ms, identity.past[i].floor_ms);
	return known_ms;
}

/*
 * The layout changes: ceilings of pairs by the settings are of the former one.
 * False: the reason is in err.
 */
bool
identity_forget_ceilings(char *err)
{
	if (identity.claim.generation == 0)
		identity.ceiling_ms = 0;
	for (int i = 0; i < PAST_CLAIMS; i++)
		if (identity.past[i].generation == 0)
			identity.past[i].floor_ms = 0;
	return write_file(err);
}

/*
 * Writes the ceiling of the claim into the file: no key of it is above, by now.
 * If that fails, the origin alone has it.
 */
void
identity_remember_ceiling(uint64 ownership, int64 unix_ms)
{
	char		err[GATE_DETAIL_LEN];

	if (!is_loaded || ownership == 0 || identity.claim.ownership != ownership ||
		unix_ms <= identity.ceiling_ms)
		return;
	identity.ceiling_ms = unix_ms;
	(void) write_file(err);
}

/* The claim in the file; ownership 0: none. */
const Claim *
identity_claim(void)
{
	return &identity.claim;
}

/* How many past claims have a ceiling above this Unix ms. */
int
identity_count_past(int64 unix_ms)
{
	int			n = 0;

	for (int i = 0; i < PAST_CLAIMS; i++)
		if (identity.past[i].ownership != 0 && identity.past[i].floor_ms > unix_ms)
			n++;
	return n;
}

/* Keys of all worker IDs are above this Unix ms: snowid_advance(). */
int64
identity_advanced_ms(void)
{
	return identity.advanced_ms;
}

/* Raises advanced_ms in the file.  False: nothing was written; the reason is in err. */
bool
identity_advance(int64 unix_ms, char *err)
{
	if (unix_ms <= identity.advanced_ms)
		return true;
	identity.advanced_ms = unix_ms;
	return write_file(err);
}

/*
 * Writes a claim into the file, or none if it is NULL.  The one before, if it is
 * another, becomes a past claim with the ceiling of its keys; "exact": none of
 * them is above it.  False: nothing was written; the reason is in err.
 */
bool
identity_remember(const Claim *claim, int64 used_ms, bool exact, char *err)
{
	Claim		none = {0};
	Registry	seen;

	if (!claim)
		claim = &none;
	if (identity.claim.ownership != 0 && identity.claim.ownership != claim->ownership)
	{
		memmove(identity.past + 1, identity.past, sizeof(identity.past) - sizeof(identity.past[0]));
		identity.past[0] = identity.claim;
		identity.past[0].floor_ms = Max(Max(used_ms, identity.ceiling_ms), 0);
		identity.past[0].exact = exact;
	}
	if (identity.claim.ownership != claim->ownership)
		identity.ceiling_ms = 0;
	/* a lease that this keeper's predecessor gave up, and that continues */
	for (int i = 0; i < PAST_CLAIMS; i++)
		if (claim->ownership != 0 && identity.past[i].ownership == claim->ownership)
			memset(&identity.past[i], 0, sizeof(identity.past[i]));
	identity.claim = *claim;
	identity.ceiling_ms = Max(identity.ceiling_ms, claim->floor_ms);
	identity.home = claim_home();
	claim_marks(&identity.span_ms, &identity.high);
	if (is_copy && claim->ownership != 0)
	{
		ereport(WARNING,
				(errmsg("this data directory is a copy, or was restored"),
				 errdetail("Its keys are made as datacenter %d, worker %d.",
						   claim->datacenter_id, claim->worker_id),
				 errhint("Make sure that no other server has this worker ID.")));
		is_copy = false;
	}
	if (!write_file(err))
		return false;
	/* before the introduction the registry must not ask */
	claim_look(&seen);
	if (seen.has_identity)
		claim_set_identity(&identity, "", false);
	return true;
}
