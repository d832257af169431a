/*
 * server.c
 *		As much of a PostgreSQL server as the code under test calls.
 *
 * Other functions are not linked: a call of one ends the target.  An error jumps
 * back to fuzz_call(), and memory lives until the end of one input.
 */
#include "fuzz.h"

#include <stdarg.h>

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

static sigjmp_buf on_error;
static char said[8192];			/* the last message, detail or hint */

static struct Chunk
{
	struct Chunk *next;
	char		memory[] pg_attribute_aligned(16);
}		   *chunks;

/*---- Memory ----*/

void *
palloc(Size size)
{
	struct Chunk *chunk = malloc(sizeof(struct Chunk) + size);

	chunk->next = chunks;
	chunks = chunk;
	return chunk->memory;
}

/* Freed at the end of the input. */
void
pfree(void *pointer)
{
}

char *
pnstrdup(const char *str, Size len)
{
	char	   *copy = palloc(len + 1);

	memcpy(copy, str, len);
	copy[len] = '\0';
	return copy;
}

char *
pstrdup(const char *str)
{
	return pnstrdup(str, strlen(str));
}

char *
psprintf(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	return pstrdup(said);
}

text *
cstring_to_text_with_len(const char *str, int len)
{
	text	   *result = palloc(len + VARHDRSZ);

	SET_VARSIZE(result, len + VARHDRSZ);
	memcpy(VARDATA(result), str, len);
	return result;
}

text *
cstring_to_text(const char *str)
{
	return cstring_to_text_with_len(str, strlen(str));
}

char *
text_to_cstring(const text *t)
{
	return pnstrdup(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
}

struct varlena *
pg_detoast_datum_packed(struct varlena *datum)
{
	return datum;
}

/*---- Errors ----*/

bool
errstart(int elevel, const char *domain)
{
	return elevel >= ERROR;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return elevel >= ERROR;
}

int
errcode(int code)
{
	return 0;
}

/* As the server would, so that what is said is read. */
#define SAYS(function) \
int \
function(const char *format,...) \
{ \
	va_list		args; \
	va_start(args, format); \
	vsnprintf(said, sizeof(said), format, args); \
	va_end(args); \
	return 0; \
}
SAYS(errmsg)
SAYS(errmsg_internal)
SAYS(errdetail)
SAYS(errhint)

void
errfinish(const char *file, int line, const char *function)
{
	siglongjmp(on_error, 1);
}

#if PG_VERSION_NUM >= 160000
bool
errsave_start(struct Node *context, const char *domain)
{
	return true;
}

void
errsave_finish(struct Node *context, const char *file, int line, const char *function)
{
	errfinish(file, line, function);
}
#endif

void
ExceptionalCondition(const char *condition,
#if PG_VERSION_NUM < 160000
					 const char *type,
#endif
					 const char *file, int line)
{
	fuzz_failed(condition, file, line);
}

/*---- Encodings and dates ----*/

/* Of one byte: an input may end within a character, a text of a server not. */
int
pg_encoding_mblen(int encoding, const char *str)
{
	return 1;
}

int
GetDatabaseEncoding(void)
{
	return PG_SQL_ASCII;
}

int
pg_mbstrlen_with_len(const char *str, int len)
{
	return len;
}

const char *
timestamptz_to_str(TimestampTz t)
{
	return "a time";
}

/* Both are PostgreSQL's own, from datetime.c. */
int
date2j(int y, int m, int d)
{
	int			julian;
	int			century;

	if (m > 2)
	{
		m += 1;
		y += 4800;
	}
	else
	{
		m += 13;
		y += 4799;
	}
	century = y / 100;
	julian = y * 365 - 32167;
	julian += y / 4 - century + century / 4;
	julian += 7834 * m / 256 + d;
	return julian;
}

void
j2date(int jd, int *year, int *month, int *day)
{
	unsigned int julian = jd;
	unsigned int quad;
	unsigned int extra;
	int			y;

	julian += 32044;
	quad = julian / 146097;
	extra = (julian - quad * 146097) * 4 + 3;
	julian += 60 + quad * 3 + extra / 146097;
	quad = julian / 1461;
	julian -= quad * 1461;
	y = julian * 4 / 1461;
	julian = ((y != 0) ? ((julian + 305) % 365) : ((julian + 306) % 366)) + 123;
	y += quad * 4;
	*year = y - 4800;
	quad = julian * 2141 / 65536;
	*day = julian - 7834 * quad / 256;
	*month = (quad + 10) % 12 + 1;
}

/* Without a zone. */
int
timestamp2tm(Timestamp dt, int *tzp, struct pg_tm *tm, fsec_t *fsec,
			 const char **tzn, pg_tz *attimezone)
{
	int64		days = dt / USECS_PER_DAY;
	int64		us = dt % USECS_PER_DAY;

	if (us < 0)
	{
		us += USECS_PER_DAY;
		days--;
	}
	j2date((int) days + POSTGRES_EPOCH_JDATE, &tm->tm_year, &tm->tm_mon, &tm->tm_mday);
	tm->tm_hour = us / USECS_PER_HOUR;
	tm->tm_min = us / USECS_PER_MINUTE % 60;
	tm->tm_sec = us / USECS_PER_SEC % 60;
	*fsec = us % USECS_PER_SEC;
	return 0;
}

/*---- The target ----*/

bool
fuzz_call(PGFunction function, Datum *result, int nargs,...)
{
	LOCAL_FCINFO(fcinfo, 8);
	va_list		args;

	memset(fcinfo, 0, SizeForFunctionCallInfo(8));
	fcinfo->nargs = nargs;
	va_start(args, nargs);
	for (int i = 0; i < nargs; i++)
		fcinfo->args[i].value = va_arg(args, Datum);
	va_end(args);
	if (sigsetjmp(on_error, 0) != 0)
		return false;
	*result = function(fcinfo);
	return true;
}

char *
fuzz_line(const char **data)
{
	const char *from = *data;
	size_t		len = strcspn(from, "\n");

	*data += len + (from[len] == '\n');
	return pnstrdup(from, len);
}

void
fuzz_failed(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
	abort();
}

int			LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	char	   *input = pnstrdup((const char *) data, size);

	fuzz_one(input, size);
	while (chunks)
	{
		struct Chunk *next = chunks->next;

		free(chunks);
		chunks = next;
	}
	return 0;
}
