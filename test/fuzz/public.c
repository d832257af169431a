/*
 * public.c
 *		Public forms and the lines of their secrets from any text: lines with the
 *		prefix, the form, a key, and the file.  What is read is written as a form
 *		that is read as the same key, and a key that was written comes back.
 */
#include "fuzz.h"

#include "key/public_form.h"

void
fuzz_one(const char *data, size_t size)
{
	char	   *prefix = fuzz_line(&data);
	char	   *form = fuzz_line(&data);
	int64		key = strtoll(fuzz_line(&data), NULL, 10);
	int			prefix_len = strlen(prefix);
	Secrets		secrets = {.writer = -1};
	char		written[PUBLIC_LEN];
	int64		read;
	int64		again;
	int			detail = -1;
	int			len;

	while (*data)
		(void) secrets_add_line(&secrets, fuzz_line(&data));
	fuzz_check(secrets.writer < 0 || secrets.keys[secrets.writer] != NULL);
	if (public_prefix_is_good(prefix, prefix_len))
	{
		PublicProblem problem = public_read(&secrets, prefix, prefix_len, form, strlen(form),
											&read, &detail);

		if (problem == PUBLIC_NO_DIGIT)
			fuzz_check(detail > prefix_len && detail < strlen(form));
		if (problem == PUBLIC_GOOD)
		{
			fuzz_check(read >= 0);
			secrets.writer = detail;
			len = public_write(&secrets, prefix, prefix_len, read, written);
			fuzz_check(public_read(&secrets, prefix, prefix_len, written, len, &again,
								   &detail) == PUBLIC_GOOD && again == read);
		}
		if (secrets.writer >= 0 && key >= 0)
		{
			len = public_write(&secrets, prefix, prefix_len, key, written);
			fuzz_check(len == prefix_len + 1 + PUBLIC_DIGITS);
			fuzz_check(public_read(&secrets, prefix, prefix_len, written, len, &again,
								   &detail) == PUBLIC_GOOD && again == key);
		}
	}
	secrets_free(&secrets);
}
