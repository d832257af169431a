/*
 * identity.c
 *		The server's identity: its data directory, as distinct from copies of it,
 *		and the claim in its state file, snowid/state.
 *
 * Keeps the snowid keeper's copy of the state file, and writes it.  A copy of the
 * directory is another server: its state may be out of date, and its claim
 * belongs to the original.  A directory that was restored or rewound in place is
 * a new server, too, but the registry recognizes it by its fingerprint.
 *
 * A claim that is given up is first written into the list of past claims, so that
 * it is never resumed, even if Redis later says otherwise.  Only the file on the
 * disk counts.
 *
 * No other file uses the directory "snowid" or the format of the file.  It must
 * survive a restart, and is not for replicas.  It is small, rarely written, and
 * replaced as a whole, so a reader finds the old one or the new one:
 *
 *		byte  0	+---------------------------------+
 *				| magic              uint32       |
 *			  4	| version            uint32       |
 *			  8	| file system        uint64       |  of the data directory
 *			 16	| inode              uint64       |
 *			 24	| birth time, ns     int64        |
 *			 32	| server ID          2 x uint64   |  random
 *			 48	| number of starts   uint64       |
 *			 56	| ownership          uint64       |  of the claim; 0: no claim
 *			 64	| floor, Unix ms     int64        |
 *			 72	| lease, ms          int32        |  0: for good
 *			 76	| datacenter ID      int32        |
 *			 80	| worker ID          int32        |
 *			 84	| exact              int32        |  of a past claim; see claim.h
 *			 88	| generation         int64        |  of the claim; 0: of the settings
 *			 96	| registry           uint64       |  whose claim that is
 *			104	| file system        uint64       |  of global/pg_control
 *			112	| inode              uint64       |
 *			120	| birth time, ns     int64        |
 *			128	| home               uint64       |  hash of Redis' URL and prefix
 *			136	| span, ms           int64        |  see registry.lua
 *			144	| high               int64        |  the same
 *			152	| past claims        8 x 48 bytes |  newest first, each as from 56 on
 *			536	| ceiling, Unix ms   int64        |  of the claim, as far as known
 *			544	| advanced, Unix ms  int64        |  keys of all IDs are above it
 *			552	| CRC-32C of all above            |
 *			556	+---------------------------------+
 *
 * PostgreSQL's own lock on a data directory does not work between containers;
 * flock() on the file "lock" beside the state file does.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/statfs.h>
#else
#include <sys/param.h>
#include <sys/mount.h>
#endif

#include "common/file_perm.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "keeper/identity.h"
#include "settings.h"

#define STATE_DIR "snowid"
#define STATE_FILE STATE_DIR "/state"
#define TMP_FILE STATE_FILE ".tmp"
#define LOCK_FILE STATE_DIR "/lock"

#define STATE_MAGIC 0x534e4f57	/* "SNOW" */
#define STATE_VERSION 4

typedef struct StateFile
{
	uint32		magic;
	uint32		version;
	Identity	identity;
	pg_crc32c	crc;
} StateFile;

StaticAssertDecl(offsetof(StateFile, crc) == 552, "the format has no padding");

#define STATE_FILE_LEN (offsetof(StateFile, crc) + sizeof(pg_crc32c))

/*
 * Its fingerprint is that of the directory's content.  PostgreSQL and its tools
 * rewrite this file in place.  A restore or a rewind creates a new one, or brings
 * our file from another directory.
 */
#define CONTROL_FILE "global/pg_control"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

static int	lock_fd = -1;
static int	directory_fd = -1;

/* The content of the file, or of the first one: "starts" is 0 before Redis knows it. */
static Identity kept;
const Identity *const identity = &kept;

static bool is_loaded = false;
static bool is_copy;			/* it was another directory's: to be said */

/*---- The file ----*/

static GateReason
could_not(const char *what, const char *path, char *err)
{
	snprintf(err, GATE_DETAIL_LEN, "Could not %s \"%s\": %s.", what, path, strerror(errno));
	return GATE_FILE;
}

/*
 * Takes the lock for the life of this process.  Creates the directory and the
 * lock file if they are missing.  Also locks the data directory itself, if the
 * file system can: it stays the same when all of its content is replaced.
 */
static GateReason
lock_directory(char *err)
{
	int			fd;

	if (lock_fd >= 0)
		return GATE_MAY_OPEN;
	if ((MakePGDirectory(STATE_DIR) < 0 && errno != EEXIST) ||
		fsync_fname_ext(".", true, false, DEBUG1) != 0)
		return could_not("create directory", STATE_DIR, err);
	fd = BasicOpenFile(LOCK_FILE, O_RDWR | O_CREAT | PG_BINARY);
	if (fd < 0)
		return could_not("open file", LOCK_FILE, err);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
	{
		if (errno == EWOULDBLOCK)
			snprintf(err, GATE_DETAIL_LEN, "Another server, perhaps in another container, uses this data directory: it has locked \"%s\".",
					 LOCK_FILE);
		else
			(void) could_not("lock file", LOCK_FILE, err);
		close(fd);
		return GATE_FILE;
	}
	lock_fd = fd;
	directory_fd = BasicOpenFile(".", O_RDONLY | PG_BINARY);
	if (directory_fd < 0 ||
		(flock(directory_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK))
	{
		snprintf(err, GATE_DETAIL_LEN, "A process of a former server still uses this data directory.");
		identity_unlock();
		return GATE_FILE;
	}
	return GATE_MAY_OPEN;
}

/* Releases the lock, for a successor; nothing if it is not held. */
void
identity_unlock(void)
{
	close(lock_fd);
	close(directory_fd);
	lock_fd = directory_fd = -1;
}

#define XFS_MAGIC 0x58465342

/* Inode and birth time of a file; what is unknown is left as it is. */
static void
read_birth(const char *path, uint64 *inode, int64 *birth_ns)
{
#ifdef STATX_BTIME
	struct statx st;

	if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &st) != 0)
		return;
	*inode = st.stx_ino;
	if (st.stx_mask & STATX_BTIME)
		*birth_ns = st.stx_btime.tv_sec * INT64CONST(1000000000) + st.stx_btime.tv_nsec;
#else
	struct stat st;

	if (stat(path, &st) != 0)
		return;
	*inode = st.st_ino;
#if defined(__APPLE__) || defined(__FreeBSD__)
	*birth_ns = st.st_birthtimespec.tv_sec * INT64CONST(1000000000) +
		st.st_birthtimespec.tv_nsec;
#endif
#endif
}

/* The ID of a path's file system; 0: it has none that stays the same. */
static uint64
file_system_of(const char *path)
{
	struct statfs fs;
	uint64		id = 0;

	if (statfs(path, &fs) != 0)
		return 0;
#ifdef __linux__
	/* XFS derives it from the device number, which a volume may change */
	if (fs.f_type == XFS_MAGIC)
		return 0;
#endif
	memcpy(&id, &fs.f_fsid, Min(sizeof(id), sizeof(fs.f_fsid)));
	return id;
}

static Fingerprint
fingerprint(const char *path)
{
	Fingerprint print;

	memset(&print, 0, sizeof(print));
	print.file_system = file_system_of(path);
	read_birth(path, &print.inode, &print.birth_ns);
	return print;
}

static pg_crc32c
crc_of(const StateFile *file)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, file, offsetof(StateFile, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Reads the file, if there is one. */
static GateReason
read_file(bool *exists, char *err)
{
	StateFile	file;
	char		beyond;
	struct stat st;
	ssize_t		len;
	int			fd;

	/* a FIFO of this name must not block */
	fd = OpenTransientFile(STATE_FILE, O_RDONLY | O_NONBLOCK | PG_BINARY);
	*exists = fd >= 0 || errno != ENOENT;
	if (fd < 0)
		return *exists ? could_not("open file", STATE_FILE, err) : GATE_MAY_OPEN;
	if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
	{
		CloseTransientFile(fd);
		snprintf(err, GATE_DETAIL_LEN, "File \"%s\" is not a regular file.", STATE_FILE);
		return GATE_FILE;
	}
	memset(&file, 0, sizeof(file));
	len = read(fd, &file, STATE_FILE_LEN);
	if (len == STATE_FILE_LEN && read(fd, &beyond, 1) != 0)
		len++;
	if (len < 0)
		(void) could_not("read file", STATE_FILE, err);
	CloseTransientFile(fd);
	if (len < 0)
		return GATE_FILE;

	/* another version may have another length, and its CRC elsewhere */
	if (len >= (ssize_t) offsetof(StateFile, identity) &&
		file.magic == STATE_MAGIC && file.version != STATE_VERSION)
	{
		snprintf(err, GATE_DETAIL_LEN, "File \"%s\" has version %u, and this snowid reads version %u.",
				 STATE_FILE, file.version, STATE_VERSION);
		return GATE_FILE_DAMAGED;
	}
	if (len != STATE_FILE_LEN || file.magic != STATE_MAGIC ||
		file.crc != crc_of(&file))
	{
		snprintf(err, GATE_DETAIL_LEN, "File \"%s\" is damaged.", STATE_FILE);
		return GATE_FILE_DAMAGED;
	}
	kept = file.identity;
	return GATE_MAY_OPEN;
}

/* Replaces the file. */
static GateReason
write_file(const Identity *next, char *err)
{
	StateFile	file;
	int			fd;
	bool		written;

	memset(&file, 0, sizeof(file));
	file.magic = STATE_MAGIC;
	file.version = STATE_VERSION;
	file.identity = *next;
	file.crc = crc_of(&file);

	fd = OpenTransientFile(TMP_FILE,
						   O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
		return could_not("create file", TMP_FILE, err);
	errno = 0;
	written = write(fd, &file, STATE_FILE_LEN) == STATE_FILE_LEN;
	if (!written && errno == 0)
		errno = ENOSPC;			/* a short write sets no errno */
	if (CloseTransientFile(fd) != 0 || !written ||
		durable_rename(TMP_FILE, STATE_FILE, DEBUG1) != 0)
	{
		(void) could_not("write file", STATE_FILE, err);
		unlink(TMP_FILE);
		return GATE_FILE;
	}
	kept = *next;
	return GATE_MAY_OPEN;
}

/*---- The identity ----*/

static void
become_new(Identity *next)
{
	memset(next, 0, sizeof(*next));
	next->directory = fingerprint(".");
	next->content = fingerprint(CONTROL_FILE);
	next->id[0] = random_id();
	next->id[1] = random_id();
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

/* Reads the state file, once. */
GateReason
identity_load(char *err)
{
	Identity	fresh;
	GateReason	reason;
	bool		exists;

	if (is_loaded)
		return GATE_MAY_OPEN;
	reason = lock_directory(err);
	if (reason == GATE_MAY_OPEN)
		reason = read_file(&exists, err);
	if (reason != GATE_MAY_OPEN)
		return reason;
	become_new(&fresh);
	is_copy = exists &&
		(memcmp(&kept.directory, &fresh.directory, sizeof(fresh.directory)) != 0 ||
		 memcmp(&kept.content, &fresh.content, sizeof(fresh.content)) != 0);
	if (!exists || is_copy)
		kept = fresh;
	is_loaded = true;
	return GATE_MAY_OPEN;
}

/*
 * Publishes the server's identity to the registry, once after the start, and
 * again if the registry has found that a clone of it is running.
 */
GateReason
identity_introduce(char *err)
{
	Identity	next = kept;
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
		become_new(&next);
	/* the rows of a clone are the same */
	next.advanced_ms = kept.advanced_ms;
	is_start = !seen.has_identity || next.starts == 0;
	if (is_start)
	{
		next.starts++;
		/* once Redis knows it as a lease, it is no longer for good */
		if (snowid_redis_lease > 0 && next.claim.ownership != 0)
			next.claim.lease_ms = snowid_redis_lease;
		if (write_file(&next, err) != GATE_MAY_OPEN)
			return GATE_FILE;
	}
	describe_boot(boot);
	claim_set_identity(&kept, boot, is_start);
	is_told = true;
	return GATE_MAY_OPEN;
}

/* The layout changes: ceilings of pairs by the settings are of the former one. */
GateReason
identity_forget_ceilings(char *err)
{
	Identity	next = kept;

	if (next.claim.generation == 0)
		next.ceiling_ms = 0;
	for (int i = 0; i < PAST_CLAIMS; i++)
		if (next.past[i].generation == 0)
			next.past[i].floor_ms = 0;
	return write_file(&next, err);
}

/*
 * Writes the ceiling of the claim into the file: no key of it is above, by now.
 * If that fails, the origin alone has it.
 */
void
identity_remember_ceiling(int64 unix_ms)
{
	Identity	next = kept;
	char		err[GATE_DETAIL_LEN];

	next.ceiling_ms = Max(next.ceiling_ms, unix_ms);
	(void) write_file(&next, err);
}

/* Raises advanced_ms in the file. */
GateReason
identity_advance(int64 unix_ms, char *err)
{
	Identity	next = kept;

	if (unix_ms <= next.advanced_ms)
		return GATE_MAY_OPEN;
	next.advanced_ms = unix_ms;
	return write_file(&next, err);
}

/*
 * Writes a claim into the file, with the floor of its keys, or none if it is NULL.
 * The one before, if it is another, becomes a past claim.  old_ms is the ceiling of
 * its keys, from its origin; 0: that was not looked up.  The ceiling with which the gate
 * was closed counts as well; if there is none of both, it is a guess.
 */
GateReason
identity_remember(const Claim *claim, int64 floor_ms, int64 old_ms, char *err)
{
	static const Claim none = {0};
	Identity	next = kept;
	Registry	seen;

	if (!claim)
		claim = &none;
	claim_look(&seen);
	if (next.claim.ownership != claim->ownership)
	{
		if (next.claim.ownership != 0)
		{
			if (next.claim.ownership == seen.left)
				old_ms = Max(old_ms, seen.left_ms);
			memcpy(next.past + 1, kept.past, sizeof(next.past) - sizeof(next.past[0]));
			next.past[0] = next.claim;
			next.past[0].exact = old_ms != 0;
			if (old_ms == 0)
				old_ms = unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_lead + RESERVE_MS;
			next.past[0].floor_ms = Max(Max(old_ms, next.ceiling_ms), 0);
		}
		next.ceiling_ms = 0;
	}
	next.claim = *claim;
	next.claim.floor_ms = floor_ms;
	next.ceiling_ms = Max(next.ceiling_ms, floor_ms);
	next.home = claim_home();
	next.span_ms = seen.span_ms;
	next.high = seen.high;
	if (is_copy && claim->ownership != 0)
	{
		ereport(WARNING,
				(errmsg("this data directory is a copy, or was restored"),
				 errdetail("Its keys are made as datacenter %d, worker %d.",
						   claim->datacenter_id, claim->worker_id),
				 errhint("Make sure that no other server has this worker ID.")));
		is_copy = false;
	}
	if (write_file(&next, err) != GATE_MAY_OPEN)
		return GATE_FILE;
	/* before the introduction the registry must not ask */
	if (seen.has_identity)
		claim_set_identity(&kept, "", false);
	return GATE_MAY_OPEN;
}
