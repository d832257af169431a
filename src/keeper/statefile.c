/*
 * statefile.c
 *		The file snowid/state: the server's identity, and the claims with which
 *		it has made keys.  Both must survive a restart, and are not for replicas.
 *
 * No other file uses the directory "snowid" or the format of the file; only the
 * snowid keeper calls this one.  Functions return codes and fill the caller's error
 * buffer; they neither log nor retry.  The file is small, rarely written, and
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

#include "common/file_perm.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "compat.h"
#include "keeper/statefile.h"

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

static int	lock_fd = -1;
static int	directory_fd = -1;

static bool
could_not(const char *what, const char *path, char *err, Size errlen)
{
	snprintf(err, errlen, "Could not %s \"%s\": %s.", what, path,
			 strerror(errno));
	return false;
}

/*
 * Takes the lock for the life of this process.  Creates the directory and the
 * lock file if they are missing.  Also locks the data directory itself, if the
 * file system can: it stays the same when all of its content is replaced.
 */
bool
statefile_lock(char *err, Size errlen)
{
	int			fd;

	if (lock_fd >= 0)
		return true;
	if ((MakePGDirectory(STATE_DIR) < 0 && errno != EEXIST) ||
		fsync_fname_ext(".", true, false, DEBUG1) != 0)
		return could_not("create directory", STATE_DIR, err, errlen);
	fd = BasicOpenFile(LOCK_FILE, O_RDWR | O_CREAT | PG_BINARY);
	if (fd < 0)
		return could_not("open file", LOCK_FILE, err, errlen);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
	{
		if (errno == EWOULDBLOCK)
			snprintf(err, errlen, "Another server, perhaps in another container, uses this data directory: it has locked \"%s\".",
					 LOCK_FILE);
		else
			could_not("lock file", LOCK_FILE, err, errlen);
		close(fd);
		return false;
	}
	lock_fd = fd;
	directory_fd = BasicOpenFile(".", O_RDONLY | PG_BINARY);
	if (directory_fd < 0 ||
		(flock(directory_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK))
	{
		snprintf(err, errlen, "A process of a former server still uses this data directory.");
		statefile_unlock();
		return false;
	}
	return true;
}

/* Releases the lock, for a successor; nothing if it is not held. */
void
statefile_unlock(void)
{
	close(lock_fd);
	close(directory_fd);
	lock_fd = directory_fd = -1;
}

Fingerprint
statefile_fingerprint(const char *path)
{
	Fingerprint print;

	memset(&print, 0, sizeof(print));
	print.file_system = compat_file_system(path);
	compat_birth(path, &print.inode, &print.birth_ns);
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

StateFileResult
statefile_read(Identity *identity, char *err, Size errlen)
{
	StateFile	file;
	char		beyond;
	struct stat st;
	ssize_t		len;
	int			fd;

	/* a FIFO of this name must not block */
	fd = OpenTransientFile(STATE_FILE, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0 && errno == ENOENT)
		return STATE_FILE_ABSENT;
	if (fd < 0)
	{
		could_not("open file", STATE_FILE, err, errlen);
		return STATE_FILE_FAILED;
	}
	if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
	{
		CloseTransientFile(fd);
		snprintf(err, errlen, "File \"%s\" is not a regular file.", STATE_FILE);
		return STATE_FILE_FAILED;
	}
	memset(&file, 0, sizeof(file));
	len = read(fd, &file, STATE_FILE_LEN);
	if (len == STATE_FILE_LEN && read(fd, &beyond, 1) != 0)
		len++;
	if (len < 0)
		could_not("read file", STATE_FILE, err, errlen);
	CloseTransientFile(fd);
	if (len < 0)
		return STATE_FILE_FAILED;

	/* another version may have another length, and its CRC elsewhere */
	if (len >= (ssize_t) offsetof(StateFile, identity) &&
		file.magic == STATE_MAGIC && file.version != STATE_VERSION)
	{
		snprintf(err, errlen, "File \"%s\" has version %u, and this snowid reads version %u.",
				 STATE_FILE, file.version, STATE_VERSION);
		return STATE_FILE_DAMAGED;
	}
	if (len != STATE_FILE_LEN || file.magic != STATE_MAGIC ||
		file.crc != crc_of(&file))
	{
		snprintf(err, errlen, "File \"%s\" is damaged.", STATE_FILE);
		return STATE_FILE_DAMAGED;
	}
	*identity = file.identity;
	return STATE_FILE_OK;
}

/* Replaces the file; true: the new one is on the disk. */
bool
statefile_write(const Identity *identity, char *err, Size errlen)
{
	StateFile	file;
	int			fd;
	bool		written;

	memset(&file, 0, sizeof(file));
	file.magic = STATE_MAGIC;
	file.version = STATE_VERSION;
	file.identity = *identity;
	file.crc = crc_of(&file);

	fd = OpenTransientFile(TMP_FILE,
						   O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
		return could_not("create file", TMP_FILE, err, errlen);
	errno = 0;
	written = write(fd, &file, STATE_FILE_LEN) == STATE_FILE_LEN;
	if (!written && errno == 0)
		errno = ENOSPC;			/* a short write sets no errno */
	if (CloseTransientFile(fd) != 0 || !written ||
		durable_rename(TMP_FILE, STATE_FILE, DEBUG1) != 0)
	{
		could_not("write file", STATE_FILE, err, errlen);
		unlink(TMP_FILE);
		return false;
	}
	return true;
}
