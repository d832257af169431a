/*
 * secret_file.c
 *		Reads a file that holds a secret.
 *
 * Owner and permissions are checked as PostgreSQL checks those of its own key
 * files.  An error names the file, and shows nothing of its content.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "secret_file.h"

/* Describes the problem of the file, apart from its content; false: there is none. */
static bool
is_refused(const char *path, int fd, char *err, size_t err_size)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		snprintf(err, err_size, "file \"%s\" is not a regular file", path);
	else if (st.st_uid != geteuid() && st.st_uid != 0)
		snprintf(err, err_size, "file \"%s\" must be owned by the server's user or root", path);
	else if (st.st_mode & (st.st_uid == 0 ? (S_IWGRP | S_IXGRP | S_IRWXO) : (S_IRWXG | S_IRWXO)))
		snprintf(err, err_size, "file \"%s\" has group or world access; its permissions should be u=rw (0600) or less, or u=rw,g=r (0640) or less if owned by root", path);
	else
		return false;
	return true;
}

/*
 * Reads the file, or as much of it as there is room for; returns the length, or
 * -1 and the reason.  The caller wipes the buffer.  A relative path is in the data
 * directory, the working directory of all processes of the server.
 */
ssize_t
secret_file_read(const char *path, char *buf, size_t size, char *err, size_t err_size)
{
	ssize_t		got = 1;
	ssize_t		len = 0;
	int			fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);

	if (fd < 0)
	{
		snprintf(err, err_size, "could not open file \"%s\": %s", path, strerror(errno));
		return -1;
	}
	if (is_refused(path, fd, err, err_size))
	{
		CloseTransientFile(fd);
		return -1;
	}
	while (got > 0 && len < size)
	{
		got = read(fd, buf + len, size - len);
		len += Max(got, 0);
	}
	if (got < 0)
	{
		snprintf(err, err_size, "could not read file \"%s\": %s", path, strerror(errno));
		explicit_bzero(buf, size);
	}
	CloseTransientFile(fd);
	return got < 0 ? -1 : len;
}
