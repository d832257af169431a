/*
 * steps.c
 *		Prints how many instructions a read of the clock takes, the vdso's
 *		included, which valgrind does not have: single-steps a child that reads
 *		it more or less often.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long
steps(int reads)
{
	long		n = 0;
	int			status;
	pid_t		child = fork();

	if (child == 0)
	{
		struct timespec now;

		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		clock_gettime(CLOCK_REALTIME, &now);	/* the linker's work */
		raise(SIGUSR1);
		for (volatile int i = 0; i < reads; i++)
			clock_gettime(CLOCK_REALTIME, &now);
		raise(SIGUSR1);
		_exit(0);
	}
	waitpid(child, &status, 0);
	do
	{
		ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
		waitpid(child, &status, 0);
		n++;
	} while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	ptrace(PTRACE_KILL, child, NULL, NULL);
	waitpid(child, &status, 0);
	return n;
}

int
main(void)
{
	/* the loop itself is five instructions a turn */
	printf("%ld\n", (steps(1100) - steps(100)) / 1000 - 5);
	return 0;
}
