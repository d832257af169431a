/*
 * keys.c
 *		Checks files of keys, one by one.
 *
 *	test/lib/keys FILE...
 *
 * A file has a key a line; its name ends with ":" and the pair of its keys,
 * datacenter and worker ID in one number.  Prints examples of what is wrong, then
 * how many keys there are, how many are not above the one before in their file, and
 * how many have another pair.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
main(int argc, char **argv)
{
	long		keys = 0;
	long		below = 0;
	long		foreign = 0;

	for (int i = 1; i < argc; i++)
	{
		const char *colon = strrchr(argv[i], ':');
		FILE	   *file = fopen(argv[i], "r");
		long long	last = -1;
		long long	key = 0;
		int			pair;
		int			c;

		if (colon == NULL || file == NULL)
		{
			perror(argv[i]);
			return 1;
		}
		pair = atoi(colon + 1);
		while ((c = getc_unlocked(file)) != EOF)
		{
			if (c >= '0' && c <= '9')
			{
				key = key * 10 + c - '0';
				continue;
			}
			if (c != '\n')
				break;
			if (key <= last && ++below <= 3)
				printf("%s: key %lld after %lld\n", argv[i], key, last);
			if ((key >> 12 & 1023) != pair && ++foreign <= 3)
				printf("%s: key %lld\n", argv[i], key);
			keys++;
			last = key;
			key = 0;
		}
		if (c != EOF || key != 0)
		{
			fprintf(stderr, "%s: not a key behind %lld\n", argv[i], last);
			return 1;
		}
		if (ferror(file))
		{
			perror(argv[i]);
			return 1;
		}
		fclose(file);
	}
	printf("%ld %ld %ld\n", keys, below, foreign);
	return 0;
}
