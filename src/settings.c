/*
 * settings.c
 *		All settings of snowid, in one table.
 *
 * Runs in the postmaster, so it only reads text.  A wrong setting in the configuration
 * file stops the start: PostgreSQL would continue with the default, so that a typing
 * error could choose another layout.
 */
#include "postgres.h"

#include <limits.h>
#include <regex.h>
#include <unistd.h>

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "compat.h"
#include "key/layout.h"
#include "net.h"
#include "settings.h"

static char *layout_setting = "twitter";
static char *worker_id_setting = "-1";
static int	sequence_from_zero = false;

/* Read at the server's start: a renamed host keeps its worker ID until the next one. */
char		snowid_host_name[256] = "";

Layout		server_layout = {.tick = 1};
UnitFormat	unit_format;
int			snowid_datacenter_id = 0;
int			snowid_worker_id = -1;
bool		snowid_worker_from_host = false;
int			snowid_max_lead = 1000;
int			snowid_max_wait = 5000;
int			snowid_max_jump = 3600 * 1000;
int			snowid_max_segments = 1000;
char	   *snowid_public_key_file = "";
char	   *snowid_redis_url = "";
char	   *snowid_redis_password_file = "";
char	   *snowid_redis_ca_file = "";
char	   *snowid_redis_prefix = "snowid";
char	   *snowid_server_name = "";
int			snowid_redis_timeout = 1000;
int			snowid_redis_lease = 0;
int			snowid_redis_wait_replicas = 0;

static const struct config_enum_entry sequence_starts[] =
{
	{"fraction", false, false},
	{"zero", true, false},
	{NULL, 0, false}
};

/*---- Checks ----*/

static bool
check_layout(char **newval, void **extra, GucSource source)
{
	Layout		layout;
	const char *problem = layout_read(*newval, &layout);

	if (problem)
	{
		GUC_check_errdetail("%s", problem);
		GUC_check_errhint(LAYOUT_HINT);
		return false;
	}
	problem = layout_unusable(&layout);
	if (problem)
		GUC_check_errdetail("A server cannot make keys in this layout: %s.", problem);
	return problem == NULL;
}

static void
assign_layout(const char *newval, void *extra)
{
	(void) layout_read(newval, &server_layout);
}

/* Does a datacenter or worker ID fit the layout, which was set before? */
static bool
check_fits(int id, int bits)
{
	if (id < 0 || id >> bits == 0)
		return true;
	GUC_check_errdetail("The layout's range is from 0 to %d (%d bits).",
						(1 << bits) - 1, bits);
	return false;
}

static bool
check_datacenter_id(int *newval, void **extra, GucSource source)
{
	return check_fits(*newval, server_layout.datacenter_bits);
}

/*
 * Where this machine's name, without its domain, matches an extended regular
 * expression; or NULL.
 */
static const char *
match_in_host_name(const char *pattern)
{
	char		name[sizeof(snowid_host_name)];
	regex_t		regex;
	regmatch_t	match;
	const char *found = NULL;

	strlcpy(name, snowid_host_name, strcspn(snowid_host_name, ".") + 1);
	if (regcomp(&regex, pattern, REG_EXTENDED) == 0)
	{
		if (regexec(&regex, name, 1, &match, 0) == 0)
			found = snowid_host_name + match.rm_so;
		regfree(&regex);
	}
	return found;
}

/*
 * Reads a number of decimal digits; -2: it is none.  One that begins with 0 is not read:
 * to some it is octal, and two hosts, pg-7 and pg-07, would have the same.
 */
static int
read_digits(const char *text, int len)
{
	if (len == 0 || strspn(text, "0123456789") != len || (text[0] == '0' && len > 1))
		return -2;
	return (int) Min(strtol(text, NULL, 10), INT_MAX);
}

/*
 * The number after the last hyphen of the host's name; -1: there is none; -2: it begins
 * with 0.  The end of an address (ip-10-0-0-7) is not such a number: a host of another
 * network may have the same.
 */
static int
host_number(void)
{
	const char *end = match_in_host_name("-[0-9]+$");

	if (end == NULL || match_in_host_name("(^|-)[0-9]+-[0-9]+-[0-9]+-[0-9]+$"))
		return -1;
	return read_digits(end + 1, strcspn(end + 1, "."));
}

static bool
is_host_name(const char *setting)
{
	return pg_strcasecmp(setting, "hostname") == 0;
}

/* The worker ID of the setting; -1: none; -2: it is not valid. */
static int
worker_id_of(const char *setting)
{
	if (is_host_name(setting))
		return host_number();
	return strcmp(setting, "-1") == 0 ? -1 : read_digits(setting, strlen(setting));
}

/*
 * A server has one source of its worker ID.  The host of a job that prepares a data
 * directory, such as CloudNativePG's shop-1-initdb, need not have a number: a server
 * there must start, and makes no keys.
 */
static bool
check_worker_id(char **newval, void **extra, GucSource source)
{
	int			number = worker_id_of(*newval);
	bool		by_host = is_host_name(*newval);

	if (snowid_redis_url[0] != '\0' && (number >= 0 || by_host))
		GUC_check_errdetail("With snowid.redis_url, the worker ID is claimed. Remove one of the two settings.");
	else if (number == -2 && by_host)
		GUC_check_errdetail("The number in the host name \"%s\" must not begin with 0.",
							snowid_host_name);
	else if (number == -2)
		GUC_check_errdetail("It must be decimal digits that do not begin with 0, or \"hostname\", or -1.");
	else if (by_host && number < 0 && !match_in_host_name("-[0-9]+-[A-Za-z]"))
		GUC_check_errdetail("The host name \"%s\" must end in a hyphen and a number, and not in an address.",
							snowid_host_name);
	else if (by_host && number >= 0 && number >> server_layout.worker_bits != 0)
		GUC_check_errdetail("The number in the host name \"%s\" is not in the layout's range, from 0 to %d.",
							snowid_host_name, (1 << server_layout.worker_bits) - 1);
	else
		return check_fits(number, server_layout.worker_bits);
	return false;
}

static void
assign_worker_id(const char *newval, void *extra)
{
	snowid_worker_id = worker_id_of(newval);
	snowid_worker_from_host = is_host_name(newval);
}

/* The value may contain a password, so the message does not have it. */
static bool
check_redis_url(char **newval, void **extra, GucSource source)
{
	const char *error = NULL;
	const char *end;
	Address		address;

	for (const char *url = *newval; !error && (url = url_next(url, &end)) != NULL; url = end)
		error = url_parse(url, end, &address);
	if ((*newval)[0] != '\0' && url_count(*newval) == 0)
		error = "it must have an address";
	if (error == NULL)
		return true;
	GUC_check_errmsg("invalid value for parameter \"snowid.redis_url\": %s", error);
	if (strstr(error, "must not contain"))
		GUC_check_errhint("A password belongs in the file that snowid.redis_password_file names.");
	return false;
}

/* It goes to Redis, and into messages of other servers. */
static bool
check_plain_name(char **newval, void **extra, GucSource source)
{
	const char *p = *newval;

	while (*p >= ' ' && *p <= '~')
		p++;
	if (strlen(*newval) > SERVER_NAME_LEN)
		GUC_check_errdetail("It has %d characters at most.", SERVER_NAME_LEN);
	else if (*p)
		GUC_check_errdetail("It must be of printable ASCII characters.");
	else
		return true;
	return false;
}

static bool
check_redis_prefix(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] != '\0')
		return check_plain_name(newval, extra, source);
	GUC_check_errdetail("It must not be empty.");
	return false;
}

static bool
check_redis_lease(int *newval, void **extra, GucSource source)
{
	if (*newval == 0 || *newval >= 1000)
		return true;
	GUC_check_errdetail("A lease lasts at least 1 s; 0 is a claim for good.");
	return false;
}

/*---- The table ----*/

/*
 * A setting is a string, an enum (if it has words), or else a number.  Its
 * default is its variable's initial value.
 */
typedef struct Setting
{
	const char *name;
	const char *description;
	GucContext	context;
	int			flags;
	int		   *number;
	int			min;
	int			max;
	GucIntCheckHook check_number;
	char	  **string;
	GucStringCheckHook check_string;
	GucStringAssignHook assign_string;
	const struct config_enum_entry *words;
} Setting;

#define NUMBER(variable, min, max, check) \
	&variable, min, max, check, NULL, NULL, NULL, NULL
#define STRING(variable, check, assign) \
	NULL, 0, 0, NULL, &variable, check, assign, NULL
#define ENUM(variable, words) \
	&variable, 0, 0, NULL, NULL, NULL, NULL, words

/* The layout comes first, which the IDs must fit, and a Redis before the worker ID. */
static const Setting settings[] =
{
	{"snowid.layout",
		"Epoch of the keys, and widths of their fields: a named layout, or spelled out.",
	PGC_POSTMASTER, 0, STRING(layout_setting, check_layout, assign_layout)},
	{"snowid.sequence_start",
		"Sequence of a millisecond's first key: \"fraction\", the time within the millisecond, so that keys spread evenly; or \"zero\", the classic form.",
	PGC_POSTMASTER, 0, ENUM(sequence_from_zero, sequence_starts)},
	{"snowid.datacenter_id",
		"This server's datacenter ID.",
	PGC_SIGHUP, 0, NUMBER(snowid_datacenter_id, 0, INT_MAX, check_datacenter_id)},
	{"snowid.redis_url",
		"Address of the Redis from which the worker ID is claimed, or several, separated by commas.",
	PGC_POSTMASTER, GUC_SUPERUSER_ONLY, STRING(snowid_redis_url, check_redis_url, NULL)},
	{"snowid.worker_id",
		"This server's worker ID, which no other server of the datacenter may use, or \"hostname\": the number at the end of the host's name; -1: none.",
	PGC_SIGHUP, 0, STRING(worker_id_setting, check_worker_id, assign_worker_id)},
	{"snowid.max_lead",
		"How far a key's timestamp may lead the clock.",
	PGC_SIGHUP, GUC_UNIT_MS, NUMBER(snowid_max_lead, 0, 24 * 3600 * 1000, NULL)},
	{"snowid.max_wait",
		"How long a caller waits for a key before it gets an error.",
	PGC_SIGHUP, GUC_UNIT_MS, NUMBER(snowid_max_wait, 0, 3600 * 1000, NULL)},
	{"snowid.max_jump",
		"How far the clock may jump ahead, and snowid_advance() ahead of the clock.",
	PGC_SIGHUP, GUC_UNIT_MS, NUMBER(snowid_max_jump, 1000, INT_MAX, NULL)},
	{"snowid.max_segments",
		"How many tags of snowid_segments can be in memory; 0: none.",
	PGC_POSTMASTER, 0, NUMBER(snowid_max_segments, 0, 100 * 1000, NULL)},
	{"snowid.public_key_file",
		"File with the secrets of the public form of keys.",
	PGC_SIGHUP, GUC_SUPERUSER_ONLY, STRING(snowid_public_key_file, NULL, NULL)},
	{"snowid.redis_password_file",
		"File whose first line is the password for Redis.",
	PGC_SIGHUP, GUC_SUPERUSER_ONLY, STRING(snowid_redis_password_file, NULL, NULL)},
	{"snowid.redis_ca_file",
		"File with the certificates that rediss:// trusts; empty: the system's.",
	PGC_SIGHUP, GUC_SUPERUSER_ONLY, STRING(snowid_redis_ca_file, NULL, NULL)},
	{"snowid.redis_prefix",
		"Key of the registry in Redis.",
	PGC_POSTMASTER, 0, STRING(snowid_redis_prefix, check_redis_prefix, NULL)},
	{"snowid.server_name",
		"Name of this server, for people; empty: host name and port.",
	PGC_SIGHUP, 0, STRING(snowid_server_name, check_plain_name, NULL)},
	{"snowid.redis_timeout",
		"How long a call to Redis may take.",
	PGC_SIGHUP, GUC_UNIT_MS, NUMBER(snowid_redis_timeout, 10, 60 * 1000, NULL)},
	{"snowid.redis_lease",
		"How long a claim lasts without renewal; 0: for good.",
	PGC_POSTMASTER, GUC_UNIT_MS, NUMBER(snowid_redis_lease, 0, 24 * 3600 * 1000, check_redis_lease)},
	{"snowid.redis_wait_replicas",
		"Number of Redis replicas that must confirm a claim or grant.",
	PGC_SIGHUP, 0, NUMBER(snowid_redis_wait_replicas, 0, 16, NULL)}
};

/*
 * Defines a setting.  For a bad value in the configuration file, PostgreSQL
 * warns and takes the default; here that is an error.
 */
static void
define(const Setting *s)
{
	const char *configured = GetConfigOption(s->name, true, false);
	char	   *value = configured ? pstrdup(configured) : NULL;
	int			number;
	bool		taken;

	if (s->string)
		DefineCustomStringVariable(s->name, s->description, NULL, s->string,
								   *s->string, s->context, s->flags,
								   s->check_string, s->assign_string, NULL);
	else if (s->words)
		DefineCustomEnumVariable(s->name, s->description, NULL, s->number,
								 *s->number, s->words, s->context, s->flags,
								 NULL, NULL, NULL);
	else
		DefineCustomIntVariable(s->name, s->description, NULL, s->number,
								*s->number, s->min, s->max, s->context,
								s->flags, s->check_number, NULL, NULL);
	if (value == NULL)
		return;
	if (s->string || s->words)
		taken = pg_strcasecmp(value, GetConfigOption(s->name, false, false)) == 0;
	else
		taken = parse_int(value, &number, s->flags, NULL) &&
			number == *s->number;
	if (taken)
		return;

	/* check it again, for the error's detail */
	GUC_check_errdetail_string = NULL;
	if (s->check_string)
		(void) s->check_string(&value, NULL, PGC_S_FILE);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for parameter \"%s\": \"%s\"", s->name,
					s->string == &snowid_redis_url ? "..." : value),
			 GUC_check_errdetail_string ? errdetail_internal("%s", GUC_check_errdetail_string) :
			 errdetail("The server would start with another value than the configured one."),
			 errhint("Correct the configuration; see the warning before this message.")));
}

/* A setting that does not exist is a typing error, too. */
static void
refuse_unknown_settings(void)
{
	int			n;
	struct config_generic **all = all_settings(&n);

	for (int i = 0; i < n; i++)
	{
		if ((all[i]->flags & GUC_CUSTOM_PLACEHOLDER) &&
			pg_strncasecmp(all[i]->name, "snowid.", strlen("snowid.")) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("unrecognized configuration parameter \"%s\"", all[i]->name),
					 errhint("See doc/reference.md in snowid's manual.")));
	}
}

void
settings_define(void)
{
	if (gethostname(snowid_host_name, sizeof(snowid_host_name) - 1) != 0)
		snowid_host_name[0] = '\0';
	for (int i = 0; i < lengthof(settings); i++)
		define(&settings[i]);
	refuse_unknown_settings();
	MarkGUCPrefixReserved("snowid");
	unit_format.sequence_mask = (INT64CONST(1) << server_layout.sequence_bits) - 1;
	unit_format.time_mask = ~unit_format.sequence_mask;
	unit_format.clock_mask = sequence_from_zero ? unit_format.time_mask : -1;
	unit_format.pair_width = server_layout.datacenter_bits + server_layout.worker_bits;
}
