/*
 * statefile.c
 *		What must outlive the server and is not for its replicas: which node
 *		this is, and the worker ID that it has claimed.
 *
 * Alone knows the directory "snowid" and the format of its file; the snowid
 * worker alone calls it.  Functions return codes and fill the caller's error
 * buffer; they do not log and do not retry.  The file is small, rarely
 * written, and always replaced as a whole, so a reader finds the old one or
 * the new one:
 *
 *		byte  0	+---------------------------------+
 *				| magic              uint32       |
 *			  4	| version            uint32       |
 *			  8	| file system        uint64       |  of the data directory
 *			 16	| inode              uint64       |
 *			 24	| birth time, ns     int64        |
 *			 32	| node ID            2 x uint64   |  random
 *			 48	| count of starts    uint64       |
 *			 56	| ownership          uint64       |  of the claim; 0: no claim
 *			 64	| floor, Unix ms     int64        |
 *			 72	| lease, ms          int32        |  0: for good
 *			 76	| datacenter ID      int32        |
 *			 80	| worker ID          int32        |
 *			 84	| 0                  int32        |
 *			 88	| CRC-32C of all above            |
 *			 92	+---------------------------------+
 *
 * PostgreSQL's own lock on a data directory does not see into another
 * container; flock() on the file "lock" beside it does.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "snowid.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

#define STATE_DIR "snowid"
#define STATE_FILE STATE_DIR "/state"
#define STATE_FILE_TMP STATE_FILE ".tmp"
#define LOCK_FILE STATE_DIR "/lock"

#define STATE_MAGIC 0x534e4f57	/* "SNOW" */
#define STATE_VERSION 1

typedef struct StateFile
{
	uint32		magic;
	uint32		version;
	NodeIdentity node;
	pg_crc32c	crc;
} StateFile;

StaticAssertDecl(offsetof(StateFile, crc) == 88, "the format has no padding");

#define STATE_FILE_LEN (offsetof(StateFile, crc) + sizeof(pg_crc32c))

static int	lock_fd = -1;

static bool
failed(const char *what, const char *path, char *err, Size errlen)
{
	snprintf(err, errlen, "Could not %s \"%s\": %s.", what, path,
			 strerror(errno));
	return false;
}

/*
 * Takes the lock for the life of this process.  Creates the directory and the
 * lock file where they are missing.
 */
bool
statefile_lock(char *err, Size errlen)
{
	int			fd;

	if (lock_fd >= 0)
		return true;
	if ((MakePGDirectory(STATE_DIR) < 0 && errno != EEXIST) ||
		fsync_fname_ext(".", true, false, DEBUG1) != 0)
		return failed("create directory", STATE_DIR, err, errlen);
	ReserveExternalFD();
	fd = BasicOpenFile(LOCK_FILE, O_RDWR | O_CREAT | PG_BINARY);
	if (fd < 0)
	{
		ReleaseExternalFD();
		return failed("open file", LOCK_FILE, err, errlen);
	}
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
	{
		if (errno == EWOULDBLOCK)
			snprintf(err, errlen, "Another server, perhaps in another container, uses this data directory: it has locked \"%s\".",
					 LOCK_FILE);
		else
			failed("lock file", LOCK_FILE, err, errlen);
		close(fd);
		ReleaseExternalFD();
		return false;
	}
	lock_fd = fd;
	return true;
}

/* Lets go of it, for a successor. */
void
statefile_unlock(void)
{
	if (lock_fd < 0)
		return;
	close(lock_fd);
	lock_fd = -1;
	ReleaseExternalFD();
}

/* Of the data directory, which is the current one. */
Fingerprint
statefile_fingerprint(void)
{
	Fingerprint print;
	struct statx st;
	struct statfs fs;

	memset(&print, 0, sizeof(print));
	/* XFS makes it of the device's number, which a volume does not keep */
	if (statfs(".", &fs) == 0 && fs.f_type != XFS_SUPER_MAGIC)
		memcpy(&print.file_system, &fs.f_fsid,
			   Min(sizeof(print.file_system), sizeof(fs.f_fsid)));
	if (statx(AT_FDCWD, ".", 0, STATX_INO | STATX_BTIME, &st) == 0)
	{
		print.inode = st.stx_ino;
		if (st.stx_mask & STATX_BTIME)
			print.birth_ns = st.stx_btime.tv_sec * INT64CONST(1000000000) +
				st.stx_btime.tv_nsec;
	}
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
statefile_read(NodeIdentity *node, char *err, Size errlen)
{
	StateFile	file;
	char		beyond;
	int			fd = OpenTransientFile(STATE_FILE, O_RDONLY | PG_BINARY);
	ssize_t		len;

	if (fd < 0 && errno == ENOENT)
		return STATE_FILE_ABSENT;
	if (fd < 0)
	{
		failed("open file", STATE_FILE, err, errlen);
		return STATE_FILE_FAILED;
	}
	len = read(fd, &file, STATE_FILE_LEN);
	if (len == STATE_FILE_LEN && read(fd, &beyond, 1) != 0)
		len++;
	if (len < 0)
		failed("read file", STATE_FILE, err, errlen);
	CloseTransientFile(fd);
	if (len < 0)
		return STATE_FILE_FAILED;

	/* of another version neither the length nor the CRC is known */
	if (len >= (ssize_t) offsetof(StateFile, node) &&
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
	*node = file.node;
	return STATE_FILE_OK;
}

/* Replaces the file; on true it is on the disk. */
bool
statefile_write(const NodeIdentity *node, char *err, Size errlen)
{
	StateFile	file;
	int			fd;
	bool		written;

	memset(&file, 0, sizeof(file));
	file.magic = STATE_MAGIC;
	file.version = STATE_VERSION;
	file.node = *node;
	file.crc = crc_of(&file);

	fd = OpenTransientFile(STATE_FILE_TMP,
						   O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);
	if (fd < 0)
		return failed("create file", STATE_FILE_TMP, err, errlen);
	errno = 0;
	written = write(fd, &file, STATE_FILE_LEN) == STATE_FILE_LEN;
	if (!written && errno == 0)
		errno = ENOSPC;			/* a short write does not say why */
	if (CloseTransientFile(fd) != 0 || !written ||
		durable_rename(STATE_FILE_TMP, STATE_FILE, DEBUG1) != 0)
	{
		failed("write file", STATE_FILE, err, errlen);
		unlink(STATE_FILE_TMP);
		return false;
	}
	return true;
}
