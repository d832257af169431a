/*
 * secrets.c
 *		Files that hold a secret; and the public form of keys in SQL, whose
 *		secrets are in one.
 *
 * Owner and permissions of such a file are checked as PostgreSQL checks those of its
 * own key files.  An error names the file, and shows nothing of its content.
 *
 * Each process reads the secrets of the public form when it first needs them, and
 * again after each reload of the configuration; a file that cannot be used is an error,
 * and the next call tries it again.  Secrets are in the memory of OpenSSL, and nowhere
 * else: the text of the file is wiped before anything can throw.  The file's name and
 * problem are shown in the log, and to callers that may see the setting.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "key/layout.h"
#include "key/public_form.h"
#include "secrets.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_to_public);
PG_FUNCTION_INFO_V1(snowid_from_public);

/* Room for all secrets, and as much again for comments. */
#define FILE_SIZE 8192
#define PROBLEM_LEN (MAXPGPATH + 256)

static Secrets secrets = {.writer = -1};
static TimestampTz read_for;	/* the reload for which the file was read */

/*---- Files ----*/

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
	ssize_t		got = -1;
	ssize_t		len = 0;
	int			fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);

	if (fd < 0)
	{
		snprintf(err, err_size, "could not open file \"%s\": %s", path, strerror(errno));
		return -1;
	}
	if (!is_refused(path, fd, err, err_size))
	{
		/* 0 bytes are read at the end, and if there is no room */
		while ((got = read(fd, buf + len, size - len)) > 0)
			len += got;
		if (got < 0)
		{
			snprintf(err, err_size, "could not read file \"%s\": %s", path, strerror(errno));
			explicit_bzero(buf, size);
		}
	}
	CloseTransientFile(fd);
	return got < 0 ? -1 : len;
}

/*---- The secrets of the public form ----*/

/* Adds the secrets of the file's lines; false, after a message, if one is bad. */
static bool
add_lines(const char *path, char *lines, char *problem)
{
	const char *line;

	for (int number = 1; (line = strsep(&lines, "\n")) != NULL; number++)
	{
		const char *wrong = secrets_add_line(&secrets, line);

		if (wrong)
		{
			snprintf(problem, PROBLEM_LEN, "line %d of file \"%s\" %s", number, path, wrong);
			return false;
		}
	}
	if (secrets.writer >= 0)
		return true;
	snprintf(problem, PROBLEM_LEN, "file \"%s\" has no secret that writes", path);
	return false;
}

/* Reads the secrets; false, after a message, if there are none. */
static bool
read_secrets(const char *path, char *problem)
{
	char		lines[FILE_SIZE];
	ssize_t		len = secret_file_read(path, lines, FILE_SIZE, problem, PROBLEM_LEN);
	bool		good = len >= 0 && len < FILE_SIZE;

	if (good)
	{
		/* a zero byte is not the end of the file */
		for (char *zero = lines; (zero = memchr(zero, '\0', lines + len - zero)) != NULL;)
			*zero = '?';
		lines[len] = '\0';
		good = add_lines(path, lines, problem);
	}
	else if (len == FILE_SIZE)
		snprintf(problem, PROBLEM_LEN, "file \"%s\" is longer than %d bytes",
				 path, FILE_SIZE - 1);
	explicit_bzero(lines, FILE_SIZE);
	if (!good)
		secrets_free(&secrets);
	return good;
}

/* Makes sure that the secrets are those of the file at the last reload. */
static void
load_secrets(void)
{
	const char *path = snowid_public_key_file;
	char		problem[PROBLEM_LEN];
	bool		may_know;

	secrets_free(&secrets);
	if (path[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowid.public_key_file is not set"),
				 errhint("Make a file with a secret, name it in the setting, and reload; see doc/public.md in snowid's manual.")));
	read_for = PgReloadTime;
	if (read_secrets(path, problem))
		return;
	may_know = may_read_settings();
	ereport(ERROR,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("the file of snowid.public_key_file cannot be used"),
			 errdetail("%s.", may_know ? problem : "See the server log"),
			 errdetail_log("%s.", problem)));
}

/*---- Calls ----*/

/* Checks what each call needs: the secrets, and a valid prefix. */
static inline void
begin_call(const text *prefix)
{
	require_preloaded();
	if (unlikely(secrets.writer < 0 || read_for != PgReloadTime))
		load_secrets();
	if (!public_prefix_is_good(VARDATA_ANY(prefix), VARSIZE_ANY_EXHDR(prefix)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid prefix: \"%s\"",
						text_shown(VARDATA_ANY(prefix), VARSIZE_ANY_EXHDR(prefix))),
				 errdetail("It has from 1 to %d characters: a to z, 0 to 9, and underscores except at its ends.",
						   PREFIX_LEN)));
}

Datum
snowid_to_public(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	text	   *prefix = PG_GETARG_TEXT_PP(1);
	char		buf[PUBLIC_LEN];
	int			len;

	begin_call(prefix);
	if (id < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key must not be negative")));
	len = public_write(&secrets, VARDATA_ANY(prefix), VARSIZE_ANY_EXHDR(prefix), id, buf);
	if (len == 0)
		elog(ERROR, "OpenSSL does not encipher");
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf, len));
}

/* The sentence about a bad text; "detail" is public_read()'s. */
static const char *
describe(PublicProblem problem, const text *prefix, const char *str, int len, int detail)
{
	switch (problem)
	{
		case PUBLIC_OTHER_PREFIX:
			return psprintf("It does not begin with \"%s_\".", text_to_cstring(prefix));
		case PUBLIC_NO_DIGIT:
			return not_a_digit(str, len, detail, 32);
		case PUBLIC_LENGTH:
			return psprintf("It has %d digits instead of %d.", detail, PUBLIC_DIGITS);
		case PUBLIC_NO_SECRET:
			return psprintf("This server has no secret with its number, %d.", detail);
		case PUBLIC_NOT_MADE:
			return psprintf("It was not made with this prefix and this server's secret %d, or was altered.", detail);
		default:
			elog(ERROR, "OpenSSL does not decipher");
	}
}

Datum
snowid_from_public(PG_FUNCTION_ARGS)
{
	text	   *public = PG_GETARG_TEXT_PP(0);
	text	   *prefix = PG_GETARG_TEXT_PP(1);
	const char *str = VARDATA_ANY(public);
	int			len = VARSIZE_ANY_EXHDR(public);
	int64		id;
	int			detail;
	PublicProblem problem;

	begin_call(prefix);
	problem = public_read(&secrets, VARDATA_ANY(prefix), VARSIZE_ANY_EXHDR(prefix),
						  str, len, &id, &detail);
	if (problem != PUBLIC_GOOD)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid public form of a key: \"%s\"", text_shown(str, len)),
				 errdetail("%s", describe(problem, prefix, str, len, detail))));
	PG_RETURN_INT64(id);
}
