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
 * No other file uses the directory "snowid"; state_file.h has the format of the file.
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

#include "access/xlog.h"
#include "common/file_perm.h"
#include "common/hashfn.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "keeper/ceiling.h"
#include "keeper/identity.h"
#include "registry/claim.h"
#include "settings.h"

#define STATE_DIR "snowid"
#define STATE_FILE STATE_DIR "/state"
#define TMP_FILE STATE_FILE ".tmp"
#define LOCK_FILE STATE_DIR "/lock"

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
static bool is_copy;			/* it was another directory's ... */
static bool is_warned;			/* ... which was said, or is meant */

/*---- The file ----*/

static FileState
could_not(const char *what, const char *path, char *err)
{
	snprintf(err, GATE_DETAIL_LEN, "Could not %s \"%s\": %s.", what, path, strerror(errno));
	return FILE_UNUSABLE;
}

/*
 * Takes the lock for the life of this process, and again if somebody removed it.  Creates
 * the directory and the lock file if they are missing.  Also locks the data directory
 * itself, if the file system can: it stays the same when all of its content is replaced.
 */
static FileState
lock_directory(char *err)
{
	int			fd;

	if (lock_fd >= 0 && (access(LOCK_FILE, F_OK) == 0 || errno != ENOENT))
		return FILE_WITHOUT_CLAIM;
	identity_unlock();
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
		return FILE_UNUSABLE;
	}
	lock_fd = fd;
	directory_fd = BasicOpenFile(".", O_RDONLY | PG_BINARY);
	if (directory_fd < 0 ||
		(flock(directory_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK))
	{
		snprintf(err, GATE_DETAIL_LEN, "A process of a former server still uses this data directory.");
		identity_unlock();
		return FILE_UNUSABLE;
	}
	return FILE_WITHOUT_CLAIM;
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
static FileState
read_file(bool *exists, char *err)
{
	StateFile	file;
	char		beyond;
	ssize_t		len;
	int			fd;

	/* a FIFO of this name must not block */
	fd = OpenTransientFile(STATE_FILE, O_RDONLY | O_NONBLOCK | PG_BINARY);
	*exists = fd >= 0 || errno != ENOENT;
	if (fd < 0)
		return *exists ? could_not("open file", STATE_FILE, err) : FILE_WITHOUT_CLAIM;
	memset(&file, 0, sizeof(file));
	len = read(fd, &file, STATE_FILE_LEN);
	if (len == STATE_FILE_LEN && read(fd, &beyond, 1) != 0)
		len++;
	if (len < 0)
		(void) could_not("read file", STATE_FILE, err);
	CloseTransientFile(fd);
	if (len < 0)
		return FILE_UNUSABLE;

	/* another version may have another length, and its CRC elsewhere */
	if (file.magic == STATE_MAGIC && file.version != STATE_VERSION)
	{
		snprintf(err, GATE_DETAIL_LEN, "File \"%s\" has version %u, and this snowid reads version %u.",
				 STATE_FILE, file.version, STATE_VERSION);
		return FILE_DAMAGED;
	}
	if (len != STATE_FILE_LEN || file.crc != crc_of(&file))
	{
		snprintf(err, GATE_DETAIL_LEN, "File \"%s\" is damaged.", STATE_FILE);
		return FILE_DAMAGED;
	}
	kept = file.identity;
	return FILE_WITHOUT_CLAIM;
}

/* Replaces the file.  False: the former one is there, and err says why. */
static bool
write_file(const Identity *next, char *err)
{
	StateFile	file;
	int			fd;
	bool		written;

	if (lock_directory(err) != FILE_WITHOUT_CLAIM)
		return false;
	memset(&file, 0, sizeof(file));
	file.magic = STATE_MAGIC;
	file.version = STATE_VERSION;
	file.identity = *next;
	file.crc = crc_of(&file);

	fd = OpenTransientFile(TMP_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
	{
		(void) could_not("create file", TMP_FILE, err);
		return false;
	}
	errno = ENOSPC;				/* a short write sets none */
	written = write(fd, &file, STATE_FILE_LEN) == STATE_FILE_LEN;
	if (CloseTransientFile(fd) != 0 || !written ||
		durable_rename(TMP_FILE, STATE_FILE, DEBUG1) != 0)
	{
		(void) could_not("write file", STATE_FILE, err);
		unlink(TMP_FILE);
		return false;
	}
	kept = *next;
	return true;
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
	next->layout = ceiling_layout();
}

#define BOOT_ID_LEN 36

/* Reads the ID of the machine's boot; false: there is none. */
static bool
read_boot_id(char *boot)
{
	ssize_t		len = 0;
	int			fd = OpenTransientFile(BOOT_ID_FILE, O_RDONLY);

	if (fd >= 0)
	{
		len = read(fd, boot, BOOT_ID_LEN);
		CloseTransientFile(fd);
	}
	return len == BOOT_ID_LEN;
}

/* The machine's boot, as a hash; 0: it has no ID. */
uint64
identity_boot(void)
{
	char		boot[BOOT_ID_LEN];

	return read_boot_id(boot) ? hash_bytes_extended((unsigned char *) boot, sizeof(boot), 0) | 1 : 0;
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

	if (!read_boot_id(boot) || stat(".", &st) < 0)
		snprintf(boot, BOOT_LEN, "%016llx", (unsigned long long) random_id());
	else
		snprintf(boot + BOOT_ID_LEN, BOOT_LEN - BOOT_ID_LEN, "/%llx", (unsigned long long) st.st_dev);
}

/* Reads the state file, once. */
FileState
identity_load(char *err)
{
	Identity	fresh;
	FileState	state;
	bool		exists;

	if (is_loaded)
		return FILE_WITHOUT_CLAIM;
	state = lock_directory(err);
	if (state == FILE_WITHOUT_CLAIM)
		state = read_file(&exists, err);
	if (state != FILE_WITHOUT_CLAIM)
		return state;
	become_new(&fresh);
	is_copy = exists &&
		(memcmp(&kept.directory, &fresh.directory, sizeof(fresh.directory)) != 0 ||
		 memcmp(&kept.content, &fresh.content, sizeof(fresh.content)) != 0);
	if (!exists || is_copy)
		kept = fresh;
	/* a standby, which may be promoted, is meant to be one */
	is_warned = access(STANDBY_SIGNAL_FILE, F_OK) == 0;
	is_loaded = true;
	return FILE_WITHOUT_CLAIM;
}

/*
 * The claim is not used without Redis any more, not after a restart either, until it is
 * remembered again.
 */
static bool
doubt_claim(char *err)
{
	Identity	next = kept;

	next.home = 0;
	if (!write_file(&next, err))
		return false;
	claim_set_identity(&kept, "", false);
	return true;
}

/*
 * Publishes the server's identity to the registry, once after the start, and
 * again if the registry has found that a clone of it is running.  Notes if another server
 * may have the claim.
 */
bool
identity_introduce(char *err)
{
	Identity	next = kept;
	ClaimBoard	seen;
	bool		is_start;
	char		boot[BOOT_LEN];
	static bool is_told = false;

	claim_look(&seen);
	if (is_told && !seen.clone)
		return !claim_in_doubt(&seen) || doubt_claim(err);
	if (is_copy)
		ereport(LOG,
				(errmsg("this data directory is a copy, or was restored"),
				 errdetail("It claims a worker ID of its own.")));
	is_copy = false;
	if (seen.clone)
		become_new(&next);
	/* the rows of a clone are the same, and so is the clock */
	next.advanced_ms = kept.advanced_ms;
	next.advanced_at_ms = kept.advanced_at_ms;
	next.belief = kept.belief;
	is_start = !seen.has_identity || next.starts == 0;
	if (is_start)
	{
		next.starts++;
		/* once Redis knows it as a lease, it is no longer for good */
		if (snowid_redis_lease > 0 && next.claim.ownership != 0)
			next.claim.lease_ms = snowid_redis_lease;
		/* the registry's first call says up to where keys were made */
		if (next.claim.ownership != 0)
			next.ceiling_ms = Max(next.ceiling_ms, ceiling_of(next.claim.pair));
		if (!write_file(&next, err))
			return false;
	}
	describe_boot(boot);
	claim_set_identity(&kept, boot, is_start);
	is_told = true;
	return true;
}

/*
 * The WAL has a ceiling of this layout, above floor_ms: the ceilings of claims by the
 * settings that are of another layout go, and snowid_advance() above keys of that.  They
 * did not count meanwhile.
 */
bool
identity_begin_layout(int64 floor_ms, char *err)
{
	Identity	next = kept;

	if (kept.layout == ceiling_layout())
		return true;
	next.layout = ceiling_layout();
	if (next.claim.generation == 0)
		next.ceiling_ms = floor_ms;
	for (int i = 0; i < PAST_CLAIMS; i++)
		if (next.past[i].generation == 0)
			next.past[i].floor_ms = 0;
	next.advanced_ms = next.advanced_at_ms = 0;
	return write_file(&next, err);
}

/*
 * Writes the ceiling of the claim into the file: no key of it is above, by now.
 * If that fails, the WAL alone has it.
 */
void
identity_remember_ceiling(int64 unix_ms)
{
	Identity	next = kept;
	char		err[GATE_DETAIL_LEN];

	next.ceiling_ms = Max(next.ceiling_ms, unix_ms);
	(void) write_file(&next, err);
}

/*
 * Raises advanced_ms in the file, or renews it by a clock that was set back since: from now
 * on it counts until the clock is set back from here.
 */
bool
identity_advance(int64 unix_ms, int64 now_ms, char *err)
{
	Identity	next = kept;

	if (unix_ms <= kept.advanced_ms && now_ms >= kept.advanced_at_ms)
		return true;
	next.advanced_ms = Max(kept.advanced_ms, unix_ms);
	next.advanced_at_ms = now_ms;
	return write_file(&next, err);
}

/* So far a clock may be slewed before the file is written again. */
#define SLEW_US (1000 * 1000)

/*
 * Writes the clock that is believed into the file, which was loaded; if that fails, later.
 * If it was set back since snowid_advance() from beyond reach_ms, what callers wait for, a
 * wrong clock did that, and it does not count any more.
 */
void
identity_believe(const Belief *belief, int64 reach_ms)
{
	Identity	next = kept;
	char		err[GATE_DETAIL_LEN];
	bool		is_void = kept.advanced_at_ms > reach_ms;

	/* that it is a copy must be said first */
	if ((is_copy && !is_warned) ||
		(!is_void && belief->boot == kept.belief.boot &&
		 llabs(belief->believed - kept.belief.believed) < SLEW_US))
		return;
	if (is_void)
		next.advanced_ms = next.advanced_at_ms = 0;
	next.belief = *belief;
	(void) write_file(&next, err);
}

/* Does the file have this claim, on the same terms? */
static bool
has_claim(const Claim *claim, const ClaimBoard *seen)
{
	return kept.claim.ownership == claim->ownership && kept.claim.lease_ms == claim->lease_ms &&
		kept.home == claim_home() && kept.span_ms >= seen->span_ms;
}

/* Writes a change of the claim, and publishes it. */
static bool
write_claim(Identity *next, const ClaimBoard *seen, char *err)
{
	next->home = claim_home();
	next->span_ms = seen->span_ms;
	next->high = seen->high;
	if (!write_file(next, err))
		return false;
	/* before the introduction the registry must not ask */
	if (seen->has_identity)
		claim_set_identity(&kept, "", false);
	return true;
}

/*
 * Writes a claim into the file, which has it or none, with the floor of its keys, unless it
 * is there.
 */
bool
identity_remember(const Claim *claim, int64 floor_ms, char *err)
{
	Identity	next = kept;
	ClaimBoard	seen;

	claim_look(&seen);
	if (has_claim(claim, &seen))
		return true;
	next.claim = *claim;
	next.claim.floor_ms = floor_ms;
	next.ceiling_ms = Max(next.ceiling_ms, floor_ms);
	if (is_copy && !is_warned)
	{
		ereport(WARNING,
				(errmsg("this data directory is a copy, or was restored"),
				 errdetail("Its keys are made as datacenter %d, worker %d.",
						   claim->pair.datacenter, claim->pair.worker),
				 errhint("Make sure that no other server has this worker ID.")));
		is_warned = true;
	}
	return write_claim(&next, &seen, err);
}

/*
 * Makes the claim in the file, if there is one, a past one.  old_ms is the ceiling of its
 * keys, from the WAL; 0: that is not known, so it is a guess, unless that in the file is
 * higher.
 */
bool
identity_give_up(int64 old_ms, char *err)
{
	Identity	next = kept;
	ClaimBoard	seen;

	claim_look(&seen);
	if (kept.claim.ownership != 0)
	{
		memcpy(next.past + 1, kept.past, sizeof(next.past) - sizeof(next.past[0]));
		next.past[0] = kept.claim;
		next.past[0].exact = old_ms != 0;
		if (old_ms == 0)
			old_ms = unix_ms_from_timestamptz(GetCurrentTimestamp()) + snowid_max_lead + RESERVE_MS;
		next.past[0].floor_ms = Max(old_ms, kept.ceiling_ms);
		memset(&next.claim, 0, sizeof(next.claim));
		next.ceiling_ms = 0;
	}
	return write_claim(&next, &seen, err);
}
