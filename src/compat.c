/*
 * compat.c
 *		Functions that not every PostgreSQL major or operating system has.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/statfs.h>
#else
#include <sys/param.h>
#include <sys/mount.h>
#endif

#include "utils/wait_event.h"

#include "compat.h"

#if PG_VERSION_NUM >= 170000
uint32		own_waits[OWN_WAITS];

/* Runs in the postmaster, also after a crash; its children inherit the result. */
void
own_waits_init(void)
{
	static const char *const names[] =
	{
		[WAIT_CLOCK] = "SnowidClock",
		[WAIT_KEEPER] = "SnowidKeeper",
		[WAIT_ADVANCE] = "SnowidAdvance",
		[WAIT_REGISTRY] = "SnowidRegistry",
		[WAIT_REDIS] = "SnowidRedis",
		[WAIT_SEGMENT] = "SnowidSegment",
		[WAIT_MAIN] = "SnowidMain"
	};

	for (int i = 0; i < OWN_WAITS; i++)
		own_waits[i] = WaitEventExtensionNew(names[i]);
}
#endif

#define XFS_MAGIC 0x58465342

/* Inode and birth time of a file; what is unknown is left as it is. */
void
compat_birth(const char *path, uint64 *inode, int64 *birth_ns)
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
uint64
compat_file_system(const char *path)
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
