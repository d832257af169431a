/*
 * statefile.c
 *		What must outlive the server and is not for its replicas.
 *
 * Alone knows the path and the format of the file; the snowid worker alone
 * calls it.  Functions return codes and fill the caller's error buffer; they
 * do not log and do not retry.  The file is small, rarely written, and always
 * replaced as a whole, so a reader finds the old one or the new one:
 *
 *		byte  0	+---------------------------------+
 *				| magic              uint32       |
 *			  4	| version            uint32       |
 *			  8	| epoch, Unix ms     int64        |
 *			 16	| datacenter bits    int32        |
 *			 20	| worker bits        int32        |
 *			 24	| sequence bits      int32        |
 *			 28	| CRC-32C of all above            |
 *			 32	+---------------------------------+
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "snowid.h"

#define STATE_DIR "snowid"
#define STATE_FILE STATE_DIR "/state"
#define STATE_FILE_TMP STATE_FILE ".tmp"

#define STATE_MAGIC 0x534e4f57	/* "SNOW" */
#define STATE_VERSION 1

typedef struct StateFile
{
	uint32		magic;
	uint32		version;
	int64		epoch;
	int32		datacenter_bits;
	int32		worker_bits;
	int32		sequence_bits;
	pg_crc32c	crc;
} StateFile;

StaticAssertDecl(sizeof(StateFile) == 32, "the format has no padding");

static pg_crc32c
state_crc(const StateFile *state)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, state, offsetof(StateFile, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Reads the layout that made the last keys. */
StateFileResult
statefile_read(Layout *layout, char *err, Size errlen)
{
	StateFile	state;
	int			fd = OpenTransientFile(STATE_FILE, O_RDONLY | PG_BINARY);
	ssize_t		len;

	if (fd < 0)
	{
		if (errno == ENOENT)
			return STATE_FILE_ABSENT;
		snprintf(err, errlen, "could not open file \"%s\": %s",
				 STATE_FILE, strerror(errno));
		return STATE_FILE_FAILED;
	}
	len = read(fd, &state, sizeof(state));
	if (len < 0)
		snprintf(err, errlen, "could not read file \"%s\": %s",
				 STATE_FILE, strerror(errno));
	CloseTransientFile(fd);
	if (len < 0)
		return STATE_FILE_FAILED;
	if (len != sizeof(state) || state.magic != STATE_MAGIC ||
		(state.version == STATE_VERSION && state.crc != state_crc(&state)))
	{
		snprintf(err, errlen, "file \"%s\" is damaged", STATE_FILE);
		return STATE_FILE_FAILED;
	}
	if (state.version != STATE_VERSION)
	{
		snprintf(err, errlen, "file \"%s\" has version %u, not %u",
				 STATE_FILE, state.version, STATE_VERSION);
		return STATE_FILE_FAILED;
	}
	memset(layout, 0, sizeof(*layout));
	layout->tick = 1;
	layout->epoch = state.epoch;
	layout->datacenter_bits = state.datacenter_bits;
	layout->worker_bits = state.worker_bits;
	layout->sequence_bits = state.sequence_bits;
	return STATE_FILE_OK;
}

/* Replaces the file; on true it is on the disk. */
bool
statefile_write(const Layout *layout, char *err, Size errlen)
{
	StateFile	state;
	int			fd;
	ssize_t		len;

	memset(&state, 0, sizeof(state));
	state.magic = STATE_MAGIC;
	state.version = STATE_VERSION;
	state.epoch = layout->epoch;
	state.datacenter_bits = layout->datacenter_bits;
	state.worker_bits = layout->worker_bits;
	state.sequence_bits = layout->sequence_bits;
	state.crc = state_crc(&state);

	if ((MakePGDirectory(STATE_DIR) < 0 && errno != EEXIST) ||
		fsync_fname_ext(".", true, false, LOG) != 0)
	{
		snprintf(err, errlen, "could not create directory \"%s\": %s",
				 STATE_DIR, strerror(errno));
		return false;
	}
	fd = OpenTransientFile(STATE_FILE_TMP,
						   O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);
	if (fd < 0)
	{
		snprintf(err, errlen, "could not create file \"%s\": %s",
				 STATE_FILE_TMP, strerror(errno));
		return false;
	}
	errno = ENOSPC;				/* a short write sets none */
	len = write(fd, &state, sizeof(state));
	if (CloseTransientFile(fd) != 0 || len != sizeof(state) ||
		durable_rename(STATE_FILE_TMP, STATE_FILE, LOG) != 0)
	{
		snprintf(err, errlen, "could not write file \"%s\": %s",
				 STATE_FILE, strerror(errno));
		unlink(STATE_FILE_TMP);
		return false;
	}
	return true;
}
