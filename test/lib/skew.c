/*
 * skew.c
 *		A wall clock that a test can step or stop: preloaded into a test's server,
 *		adds the ns that stand in the file $SKEW_FILE to every reading of it.  A
 *		second number there, in ns since 1970 and not 0, is the time at which it
 *		stands still.  The file is mapped, so that a change is seen at once in
 *		every process.
 *
 * CLOCK_MONOTONIC and CLOCK_BOOTTIME, and so all sleeps, are left alone; but while there
 * is a file $SKEW_FILE.slow, reading CLOCK_BOOTTIME takes 5 ms; and the machine has slept
 * for the seconds that stand in $SKEW_FILE.slept, by CLOCK_BOOTTIME.
 *
 * And a name server that hangs: a name that ends in ".hangs" is not found while
 * there is a file $SKEW_FILE.hangs, and then is this machine.  A data directory
 * that cannot be distinguished from another one: where there is a file $SKEW_FILE.place,
 * the number in it is its inode and its time of birth; and where there is a file
 * $SKEW_FILE.volume, its two numbers are the type of its file system, and the ID.
 * And files that are another user's: while there is a file $SKEW_FILE.stranger, the
 * process has another user ID; and while there is a file $SKEW_FILE.root, open files
 * are root's.
 * And a host of another name: the first line of $SKEW_FILE.hostname, if there is one.
 * And a machine that can have no more processes, while there is a file $SKEW_FILE.forks,
 * or on which each takes 100 ms, while there is a file $SKEW_FILE.forks_late.
 *
 * And a claim of a worker ID that is marked every 300 ms, or as often as stands in ms in
 * $SKEW_FILE.marks.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000

static const int64_t no_skew[2];
static const volatile int64_t *skew = no_skew;
static int	(*real_clock_gettime) (clockid_t, struct timespec *);

static int
there_is(const char *suffix)
{
	const char *path = getenv("SKEW_FILE");
	char		file[4096];

	snprintf(file, sizeof(file), "%s.%s", path ? path : "", suffix);
	return path && access(file, F_OK) == 0;
}

/* NULL: there is none. */
static FILE *
open_beside(const char *suffix)
{
	const char *path = getenv("SKEW_FILE");
	char		file[4096];

	snprintf(file, sizeof(file), "%s.%s", path ? path : "", suffix);
	return path ? fopen(file, "r") : NULL;
}

/* Reads such a file as fscanf() does; returns how many values it has. */
static int
scan_beside(const char *suffix, const char *format,...)
{
	FILE	   *f = open_beside(suffix);
	va_list		args;
	int			n;

	if (f == NULL)
		return 0;
	va_start(args, format);
	n = vfscanf(f, format, args);
	va_end(args);
	fclose(f);
	return n;
}

/* Instead of MARK_MS (src/registry/state.h). */
int
snowid_test_mark_ms(void)
{
	int			ms = 300;

	(void) scan_beside("marks", "%d", &ms);
	return ms;
}

static int
seconds_slept(void)
{
	int			seconds = 0;

	(void) scan_beside("slept", "%d", &seconds);
	return seconds;
}

__attribute__((constructor))
static void
map_skew(void)
{
	const char *path = getenv("SKEW_FILE");
	int			fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct stat st;
	void	   *map;

	real_clock_gettime = (int (*) (clockid_t, struct timespec *))
		dlsym(RTLD_NEXT, "clock_gettime");
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size >= (off_t) sizeof(no_skew))
	{
		map = mmap(NULL, sizeof(no_skew), PROT_READ, MAP_SHARED, fd, 0);
		if (map != MAP_FAILED)
			skew = map;
	}
	close(fd);
}

int
clock_gettime(clockid_t clock, struct timespec *t)
{
	int			result;
	int64_t		stopped = skew[1];	/* in this order: it is written last */
	int64_t		add = skew[0];

	if (!real_clock_gettime)
		map_skew();				/* called before our constructor */
	if (clock == CLOCK_BOOTTIME && there_is("slow"))
		usleep(5000);
	result = real_clock_gettime(clock, t);
	if (clock == CLOCK_BOOTTIME)
		t->tv_sec += seconds_slept();
	if (result != 0 || (clock != CLOCK_REALTIME &&
						clock != CLOCK_REALTIME_COARSE && clock != CLOCK_TAI))
		return result;
	if (stopped != 0)
	{
		t->tv_sec = stopped / NS;
		t->tv_nsec = stopped % NS;
		return 0;
	}
	t->tv_sec += add / NS;
	t->tv_nsec += add % NS;
	if (t->tv_nsec < 0)
	{
		t->tv_nsec += NS;
		t->tv_sec--;
	}
	else if (t->tv_nsec >= NS)
	{
		t->tv_nsec -= NS;
		t->tv_sec++;
	}
	return 0;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec t;

	(void) tz;
	clock_gettime(CLOCK_REALTIME, &t);
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (result)
		*result = t.tv_sec;
	return t.tv_sec;
}

static void
wait_while_there_is(const char *suffix)
{
	while (there_is(suffix))
		usleep(10000);
}

uid_t
geteuid(void)
{
	uid_t		(*real) (void) = (uid_t (*) (void)) dlsym(RTLD_NEXT, "geteuid");

	return real() + there_is("stranger");
}

int
fstat(int fd, struct stat *st)
{
	int			(*real) (int, struct stat *) = (int (*) (int, struct stat *)) dlsym(RTLD_NEXT, "fstat");
	int			result = real(fd, st);

	if (result == 0 && there_is("root"))
		st->st_uid = 0;
	return result;
}

int
gethostname(char *name, size_t size)
{
	int			(*real) (char *, size_t) = (int (*) (char *, size_t)) dlsym(RTLD_NEXT, "gethostname");
	FILE	   *f = open_beside("hostname");

	if (f == NULL)
		return real(name, size);
	if (fgets(name, size, f) == NULL)
		name[0] = '\0';
	name[strcspn(name, "\n")] = '\0';
	fclose(f);
	return 0;
}

/* A fortified build may call this instead. */
extern int	__gethostname_chk(char *name, size_t size, size_t room);

int
__gethostname_chk(char *name, size_t size, size_t room)
{
	return gethostname(name, size);
}

int
fdatasync(int fd)
{
	int			(*real) (int) = (int (*) (int)) dlsym(RTLD_NEXT, "fdatasync");

	wait_while_there_is("syncs");
	return real(fd);
}

pid_t
fork(void)
{
	pid_t		(*real) (void) = (pid_t (*) (void)) dlsym(RTLD_NEXT, "fork");

	if (there_is("forks_late"))
		usleep(100000);
	if (!there_is("forks"))
		return real();
	errno = EAGAIN;
	return -1;
}

int
statx(int dir, const char *restrict path, int flags, unsigned int mask,
	  struct statx *restrict st)
{
	int			(*real) (int, const char *, int, unsigned int, struct statx *) =
		(int (*) (int, const char *, int, unsigned int, struct statx *)) dlsym(RTLD_NEXT, "statx");
	int			result = real(dir, path, flags, mask, st);
	unsigned int number;

	if (result == 0 && strcmp(path, ".") == 0 && scan_beside("place", "%u", &number) == 1)
		st->stx_ino = st->stx_btime.tv_sec = st->stx_btime.tv_nsec = number;
	return result;
}

int
statfs(const char *path, struct statfs *fs)
{
	int			(*real) (const char *, struct statfs *) =
		(int (*) (const char *, struct statfs *)) dlsym(RTLD_NEXT, "statfs");
	int			result = real(path, fs);
	long		type;
	int			id;

	if (result == 0 && strcmp(path, ".") == 0 && scan_beside("volume", "%ld %d", &type, &id) == 2)
	{
		fs->f_type = type;
		memset(&fs->f_fsid, id, sizeof(fs->f_fsid));
	}
	return result;
}

int
getaddrinfo(const char *restrict node, const char *restrict service,
			const struct addrinfo *restrict hints, struct addrinfo **restrict result)
{
	int			(*real) (const char *, const char *, const struct addrinfo *, struct addrinfo **);
	const char *path = getenv("SKEW_FILE");
	size_t		len = node ? strlen(node) : 0;

	if (path && len > 6 && strcmp(node + len - 6, ".hangs") == 0 &&
		!(hints && (hints->ai_flags & AI_NUMERICHOST)))
	{
		wait_while_there_is("hangs");
		node = "127.0.0.1";
	}
	real = (int (*) (const char *, const char *, const struct addrinfo *, struct addrinfo **))
		dlsym(RTLD_NEXT, "getaddrinfo");
	return real(node, service, hints, result);
}
