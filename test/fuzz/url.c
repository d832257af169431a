/*
 * url.c
 *		Lists of URLs from any text.
 */
#include "fuzz.h"

#include "net.h"

void
fuzz_one(const char *data, size_t size)
{
	const char *url = data;
	const char *end;
	int			count = 0;

	for (; (url = url_next(url, &end)) != NULL; url = end)
	{
		Address		address;

		fuzz_check(end > url && end <= data + size);
		count++;
		if (url_parse(url, end, &address) != NULL)
			continue;
		fuzz_check(memchr(address.host, '\0', sizeof(address.host)) != NULL);
		fuzz_check(memchr(address.user, '\0', sizeof(address.user)) != NULL);
		fuzz_check(address.host[0] != '\0');
		fuzz_check(strchr(address.user, ':') == NULL);
		fuzz_check(address.port >= 1 && address.port <= 65535);
		fuzz_check(address.database >= 0 && address.database <= 1000000);
	}
	fuzz_check(count == url_count(data));
}
