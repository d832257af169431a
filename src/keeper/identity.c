/*
 * node.c
 *		Who this node is: its data directory, told from copies of it, and the
 *		claim that it remembers.
 *
 * Keeps the snowid worker's copy of the state file, and writes it.  A copy of
 * the directory is another node: what it knows may be old, and its claim is
 * the original's.  So is one whose content was restored or rewound; where it is
 * the same directory, the registry knows it again by the fingerprint.  Unless
 * another server was found to have the same fingerprint (a copy of the whole
 * machine): then it says nothing, and the node is marked so ("shared").
 *
 * What is given up is written into the list of past claims first, so that it
 * is never resumed, whatever Redis says later.  Nothing counts as remembered
 * before it is on the disk.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "snowid.h"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

/* As in the file, or as it is going to be. */
static NodeIdentity node;
static bool is_loaded = false;

uint64
random_id(void)
{
	uint64		id;

	if (!pg_strong_random(&id, sizeof(id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	return id | 1;				/* 0 stands for none */
}

static void
become_new(bool shared)
{
	memset(&node, 0, sizeof(node));
	node.directory = statefile_fingerprint();
	node.life = statefile_life();
	node.shared = shared;
	node.id[0] = random_id();
	node.id[1] = random_id();
}

static bool
write_file(char *err)
{
	return statefile_write(&node, err, GATE_DETAIL_LEN);
}

/*
 * The machine's boot, and the device under the data directory: what was left
 * by a process that is gone for sure, since we hold its lock, was written
 * under the same.
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
 * Reads the state file.  Returns why the gate must be closed, with the detail
 * in err, or GATE_OPEN; then *is_new tells whether the file is to be written,
 * and *is_copy, whether it is that of another directory.
 */
GateReason
node_load(bool *is_new, bool *is_copy, char *err)
{
	StateFileResult result;
	Fingerprint directory = statefile_fingerprint();
	Life		life = statefile_life();

	if (!statefile_lock(err, GATE_DETAIL_LEN))
		return GATE_FILE;
	result = statefile_read(&node, err, GATE_DETAIL_LEN);
	if (result == STATE_FILE_FAILED)
		return GATE_FILE;
	if (result == STATE_FILE_DAMAGED)
		return GATE_FILE_DAMAGED;
	*is_copy = result == STATE_FILE_OK &&
		(memcmp(&node.directory, &directory, sizeof(directory)) != 0 ||
		 (node.life.inode != 0 && memcmp(&node.life, &life, sizeof(life)) != 0));
	*is_new = result == STATE_FILE_ABSENT || *is_copy;
	if (*is_new)
		become_new(false);
	else if (node.life.inode == 0)
	{
		/* written by a former version */
		node.life = life;
		*is_new = true;
	}
	is_loaded = true;
	return GATE_OPEN;
}

/*
 * Tells the registry who we are, once a start; and again where it has found
 * out that a clone of this node is about.  Returns as node_load().
 */
GateReason
node_introduce(char *err)
{
	bool		clone;
	bool		is_known = claim_has_node(&clone);
	bool		is_new = false;
	bool		is_copy;
	bool		is_start;
	char		boot[BOOT_LEN];

	if (is_known && is_loaded && !clone)
		return GATE_OPEN;
	if (!is_loaded)
	{
		GateReason	reason = node_load(&is_new, &is_copy, err);

		if (reason != GATE_OPEN)
			return reason;
		if (is_copy)
			ereport(LOG,
					(errmsg("this data directory is a copy, or was restored"),
					 errdetail("Its worker ID is claimed anew.")));
	}
	if (clone)
		become_new(true);
	is_start = !is_known || is_new || clone;
	if (is_start)
	{
		node.starts++;
		/* as soon as Redis takes it for a lease, it is not for good any more */
		if (snowid_redis_lease > 0 && node.claim.ownership != 0)
			node.claim.lease_ms = snowid_redis_lease;
		if (!write_file(err))
		{
			is_loaded = false;
			return GATE_FILE;
		}
	}
	describe_boot(boot);
	claim_set_node(&node, boot, is_start);
	return GATE_OPEN;
}

/* Is this the ownership that the file remembers, and on the same terms? */
bool
node_remembers(const Claim *claim, bool *same_terms)
{
	*same_terms = node.claim.lease_ms == claim->lease_ms;
	return node.claim.ownership == claim->ownership;
}

/* The claim that the file has; ownership 0: none. */
const Claim *
node_claim(void)
{
	return &node.claim;
}

/*
 * Remembers a claim, or none where that is NULL.  The one before, if it is
 * another, is given up, with the ceiling of its keys; "exact": no key of it lies
 * above.  False: it is not on the disk; the reason is in err.
 */
bool
node_remember(const Claim *claim, int64 used_ms, bool exact, char *err)
{
	NodeIdentity before = node;
	Claim		none = {0};

	if (!claim)
		claim = &none;
	if (node.claim.ownership != 0 && node.claim.ownership != claim->ownership)
	{
		memmove(node.past + 1, node.past, sizeof(node.past) - sizeof(node.past[0]));
		memset(&node.past[0], 0, sizeof(node.past[0]));
		node.past[0].ownership = node.claim.ownership;
		node.past[0].datacenter_id = node.claim.datacenter_id;
		node.past[0].worker_id = node.claim.worker_id;
		node.past[0].ceiling_ms = Max(Max(used_ms, node.claim.floor_ms), 0);
		node.past[0].exact = exact;
	}
	node.claim = *claim;
	if (!write_file(err))
	{
		node = before;
		return false;
	}
	if (claim_from_redis())
		claim_set_node(&node, "", false);
	return true;
}
