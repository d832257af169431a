/*
 * hold.c
 *		A background process that a test can hold: preloaded into a test's server,
 *		stops one of snowid's, or a client's ("client"), when it comes to a call.
 *
 * The file $HOLD_FILE names the process, "who", and the call: the first call of
 * the function "at", or the first one after a call of "after".  The process stops
 * before that call, between two of its calls to the server, so that others see all
 * of its work as it is then.  At a release of a lock, it stops after the call, so
 * that it holds no lock.
 *
 * The server's functions cannot be interposed, for it is a program.  So when the
 * library is loaded, its table of the functions that it calls is changed: that of
 * an ELF file of 64 bits, on Linux.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of at most six arguments, none of which is a floating-point number. */
#define FUNCTIONS(X) \
	X(LWLockAcquire) \
	X(LWLockRelease) \
	X(ConditionVariableBroadcast) \
	X(ProcessConfigFile) \
	X(StartTransactionCommand) \
	X(CommitTransactionCommand) \
	X(PopActiveSnapshot) \
	X(replorigin_advance) \
	X(replorigin_get_progress) \
	X(XLogFlush) \
	X(durable_rename) \
	X(RegisterDynamicBackgroundWorker) \
	X(WaitLatch) \
	X(SetConfigOption) \
	X(proc_exit) \
	X(fmgr_info)

typedef long (*Function) (long, long, long, long, long, long);

#define NAME(f) #f,
#define NUMBER(f) NUMBER_##f,

static const char *const names[] = {FUNCTIONS(NAME)};
enum Number
{
	FUNCTIONS(NUMBER) COUNT
};
static Function real[COUNT];

/* The file; the test writes all of it, "armed" last. */
typedef struct Hold
{
	char		who[64];
	char		at[64];
	char		after[64];		/* "": at once */
	int32_t		pid;			/* of the process that was held, or 0 */
	int32_t		armed;
} Hold;

static volatile Hold *hold = NULL;

/* BackgroundWorker *, which begins with the name; NULL in other processes. */
static const char **my_worker;

static void
may_hold(enum Number number)
{
	if (!hold || !hold->armed ||
		strcmp(*my_worker ? *my_worker : "client", (char *) hold->who) != 0)
		return;
	if (hold->after[0] != '\0')
	{
		if (strcmp(names[number], (char *) hold->after) == 0)
			hold->after[0] = '\0';
	}
	else if (strcmp(names[number], (char *) hold->at) == 0)
	{
		hold->armed = 0;
		hold->pid = getpid();
		kill(getpid(), SIGSTOP);
	}
}

static long
call(enum Number number, long a, long b, long c, long d, long e, long f)
{
	long		result;

	if (number != NUMBER_LWLockRelease)
		may_hold(number);
	result = real[number] (a, b, c, d, e, f);
	if (number == NUMBER_LWLockRelease)
		may_hold(number);
	return result;
}

#define WRAPPER(name) \
static long \
my_##name(long a, long b, long c, long d, long e, long f) \
{ \
	return call(NUMBER_##name, a, b, c, d, e, f); \
}
#define MINE(f) my_##f,

FUNCTIONS(WRAPPER)
static const Function mine[] = {FUNCTIONS(MINE)};

/* Has a slot of the table lead to ours, if it is that of one of our functions. */
static void
wrap(const char *name, void **slot)
{
	uintptr_t	page = (uintptr_t) slot & -(uintptr_t) sysconf(_SC_PAGESIZE);

	for (int i = 0; i < COUNT; i++)
	{
		if (strcmp(name, names[i]) != 0)
			continue;
		real[i] = (Function) dlsym(RTLD_DEFAULT, name);
		if (!real[i] || mprotect((void *) page, (uintptr_t) (slot + 1) - page,
								 PROT_READ | PROT_WRITE) != 0)
			abort();
		*slot = (void *) mine[i];
	}
}

/* An address in the dynamic section: musl leaves it as it is in the file. */
static const void *
address(const struct link_map *map, Elf64_Addr ptr)
{
	return (const void *) (ptr < map->l_addr ? map->l_addr + ptr : ptr);
}

static void
wrap_all(const struct link_map *map)
{
	const Elf64_Rela *rela = NULL;
	const Elf64_Sym *symbols = NULL;
	const char *strings = NULL;
	size_t		size = 0;

	for (const Elf64_Dyn *d = (const Elf64_Dyn *) map->l_ld; d->d_tag != DT_NULL; d++)
	{
		if (d->d_tag == DT_JMPREL)
			rela = address(map, d->d_un.d_ptr);
		else if (d->d_tag == DT_PLTRELSZ)
			size = d->d_un.d_val;
		else if (d->d_tag == DT_SYMTAB)
			symbols = address(map, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			strings = address(map, d->d_un.d_ptr);
	}
	for (size_t i = 0; i < size / sizeof(*rela); i++)
		wrap(strings + symbols[ELF64_R_SYM(rela[i].r_info)].st_name,
			 (void **) (map->l_addr + rela[i].r_offset));
}

static void
map_file(void)
{
	const char *path = getenv("HOLD_FILE");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(Hold), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		hold = map;
}

void *
dlopen(const char *file, int mode)
{
	void	   *(*next) (const char *, int) = (void *(*) (const char *, int)) dlsym(RTLD_NEXT, "dlopen");
	void	   *library = next(file, mode);

	if (library && file && strstr(file, "/snowid.") && !hold)
	{
		my_worker = (const char **) dlsym(RTLD_DEFAULT, "MyBgworkerEntry");
		map_file();
		if (my_worker && hold)
			wrap_all(library);
	}
	return library;
}
