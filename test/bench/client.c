/*
 * client.c
 *		The benchmark's client: does one job over some connections for some
 *		time, and prints what it did.
 *
 *	client JOB CONNECTIONS SECONDS|COUNTx DEPTH POSTGRESQL [REDIS]
 *
 * One thread a connection, each with a closed loop: the next turn begins when
 * the answer is there.  A turn is an order with ten lines, or DEPTH keys (one
 * round trip).  "1000x" ends after that many turns instead of seconds.  Prints
 * turns, seconds and the longest turn in ms.
 */
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define LINES 10
#define KEYS (1 + LINES)		/* of an order: its own, then the lines' */
#define ORDERS_AHEAD 100		/* for which keys are fetched at a time */
#define KEY_LEN 40

typedef struct Client Client;

typedef struct Job
{
	const char *name;
	void		(*turn) (Client *);
	const char *first;			/* statement, or Redis command */
	const char *second;
}			Job;

struct Client
{
	pthread_t	thread;
	const Job  *job;
	PGconn	   *pg;
	redisContext *redis;
	char		keys[ORDERS_AHEAD][KEYS][KEY_LEN];
	int			orders_left;
	long		turns;
	double		longest;
};

static int	depth;
static double seconds;
static long count;				/* turns in all, or 0 */
static long started;			/* turns begun */
static pthread_barrier_t begin;

static void
fail(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/*---- PostgreSQL: a round trip is a pipeline that ends in a sync ----*/

static void
pg_send(Client *c, const char *statement, int nparams, const char *const *params)
{
	if (!PQsendQueryPrepared(c->pg, statement, nparams, params, NULL, NULL, 0))
		fail("%s", PQerrorMessage(c->pg));
}

/*
 * Ends the round trip and reads all answers.  The first value of the first row
 * goes into "value", where that is not NULL.
 */
static void
pg_round_trip(Client *c, char *value)
{
	if (!PQpipelineSync(c->pg))
		fail("%s", PQerrorMessage(c->pg));
	for (;;)
	{
		PGresult   *result = PQgetResult(c->pg);
		ExecStatusType status = PQresultStatus(result);

		if (result == NULL)
			continue;			/* the end of one statement */
		if (status == PGRES_TUPLES_OK && value && PQntuples(result) > 0)
			snprintf(value, KEY_LEN, "%s", PQgetvalue(result, 0, 0));
		else if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK &&
				 status != PGRES_PIPELINE_SYNC)
			fail("%s", PQerrorMessage(c->pg));
		PQclear(result);
		if (status == PGRES_PIPELINE_SYNC)
			return;
	}
}

static void
pg_prepare(PGconn *pg, const char *name, const char *sql)
{
	PGresult   *result;

	if (sql == NULL)
		return;
	result = PQprepare(pg, name, sql, 0, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fail("%s", PQerrorMessage(pg));
	PQclear(result);
}

static PGconn *
pg_connect(const char *conninfo, const Job *job)
{
	PGconn	   *pg = PQconnectdb(conninfo);

	if (PQstatus(pg) != CONNECTION_OK)
		fail("%s", PQerrorMessage(pg));
	pg_prepare(pg, "begin", "BEGIN");
	pg_prepare(pg, "commit", "COMMIT");
	pg_prepare(pg, "fetch", "SELECT snowid_next_batch($1)");
	pg_prepare(pg, "first", job->first);
	pg_prepare(pg, "second", job->second);
	if (!PQenterPipelineMode(pg))
		fail("%s", PQerrorMessage(pg));
	return pg;
}

/*---- Orders ----*/

/* Keys for the next orders, in one round trip. */
static void
fetch_keys(Client *c)
{
	char		n[12];
	const char *params[] = {n};
	PGresult   *result;

	snprintf(n, sizeof(n), "%d", ORDERS_AHEAD * KEYS);
	pg_send(c, "fetch", 1, params);
	if (!PQpipelineSync(c->pg))
		fail("%s", PQerrorMessage(c->pg));
	result = PQgetResult(c->pg);
	if (PQntuples(result) != ORDERS_AHEAD * KEYS)
		fail("%s", PQerrorMessage(c->pg));
	for (int i = 0; i < ORDERS_AHEAD * KEYS; i++)
		strcpy(c->keys[i / KEYS][i % KEYS], PQgetvalue(result, i, 0));
	PQclear(result);
	while ((result = PQgetResult(c->pg)) == NULL ||
		   PQresultStatus(result) != PGRES_PIPELINE_SYNC)
		PQclear(result);
	PQclear(result);
	c->orders_left = ORDERS_AHEAD;
}

/* UUIDs for the next order, made by the client, of version 4 or 7. */
static void
make_uuids(Client *c, int version)
{
	uint8_t		b[KEYS][16];
	struct timespec t;

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		fail("getrandom failed");
	clock_gettime(CLOCK_REALTIME, &t);
	for (int i = 0; i < KEYS; i++)
	{
		uint64_t	ms = t.tv_sec * 1000 + t.tv_nsec / 1000000;
		char	   *p = c->keys[0][i];

		for (int j = 5; version == 7 && j >= 0; j--, ms >>= 8)
			b[i][j] = ms;
		b[i][6] = (b[i][6] & 0x0f) | version << 4;
		b[i][8] = (b[i][8] & 0x3f) | 0x80;
		for (int j = 0; j < 16; j++)
			p += sprintf(p, "%02x", b[i][j]);
	}
	c->orders_left = 1;
}

static void
take_keys(Client *c, const char *params[KEYS])
{
	c->orders_left--;
	for (int i = 0; i < KEYS; i++)
		params[i] = c->keys[c->orders_left][i];
}

/* The keys are there: all in one round trip. */
static void
order_in_pipeline(Client *c)
{
	const char *params[KEYS];

	take_keys(c, params);
	pg_send(c, "begin", 0, NULL);
	pg_send(c, "first", 1, params);
	pg_send(c, "second", KEYS, params);
	pg_send(c, "commit", 0, NULL);
	pg_round_trip(c, NULL);
}

static void
keys_then_pipeline(Client *c)
{
	if (c->orders_left == 0)
		fetch_keys(c);
	order_in_pipeline(c);
}

static void
uuid4_then_pipeline(Client *c)
{
	make_uuids(c, 4);
	order_in_pipeline(c);
}

static void
uuid7_then_pipeline(Client *c)
{
	make_uuids(c, 7);
	order_in_pipeline(c);
}

static void
keys_then_statement(Client *c)
{
	const char *params[KEYS];

	if (c->orders_left == 0)
		fetch_keys(c);
	take_keys(c, params);
	pg_send(c, "first", KEYS, params);
	pg_round_trip(c, NULL);
}

/* The server makes the keys: the lines wait for the order's. */
static void
returning(Client *c)
{
	char		key[KEY_LEN];
	const char *params[] = {key};

	pg_send(c, "begin", 0, NULL);
	pg_send(c, "first", 0, NULL);
	pg_round_trip(c, key);
	pg_send(c, "second", 1, params);
	pg_send(c, "commit", 0, NULL);
	pg_round_trip(c, NULL);
}

/* DEPTH statements a round trip, each with no parameter. */
static void
statements(Client *c)
{
	for (int i = 0; i < depth; i++)
		pg_send(c, "first", 0, NULL);
	pg_round_trip(c, NULL);
}

/* A batch of DEPTH. */
static void
batch(Client *c)
{
	char		n[12];
	const char *params[] = {n};

	snprintf(n, sizeof(n), "%d", depth);
	pg_send(c, "first", 1, params);
	pg_round_trip(c, NULL);
}

/*---- Redis ----*/

static void
redis_answers(Client *c, int n)
{
	for (int i = 0; i < n; i++)
	{
		redisReply *reply = NULL;

		if (redisGetReply(c->redis, (void **) &reply) != REDIS_OK)
			fail("redis: %s", c->redis->errstr);
		if (reply->type == REDIS_REPLY_ERROR)
			fail("redis: %s", reply->str);
		freeReplyObject(reply);
	}
}

/* One command a key. */
static void
redis_command(Client *c)
{
	for (int i = 0; i < depth; i++)
		redisAppendCommand(c->redis, c->job->first);
	redis_answers(c, depth);
}

/* INCR on a key for each millisecond, which expires. */
static void
redis_timed(Client *c)
{
	for (int i = 0; i < depth; i++)
	{
		struct timespec t;
		long long	ms;

		clock_gettime(CLOCK_REALTIME, &t);
		ms = t.tv_sec * 1000LL + t.tv_nsec / 1000000;
		redisAppendCommand(c->redis, "INCR id:%lld", ms);
		redisAppendCommand(c->redis, "EXPIRE id:%lld 10", ms);
	}
	redis_answers(c, 2 * depth);
}

/* The whole 64-bit ID, as two halves since Lua's numbers have 53 bits. */
#define LUA_ID \
	"local t = redis.call('TIME') " \
	"local ms = t[1] * 1000 + math.floor(t[2] / 1000) " \
	"local n = redis.call('INCR', 'id:' .. ms) " \
	"if n == 1 then redis.call('EXPIRE', 'id:' .. ms, 10) end " \
	"ms = ms - 1288834974657 " \
	"return struct.pack('>I4I4', math.floor(ms / 1024), " \
	"ms % 1024 * 4194304 + 7 * 4096 + n % 4096)"

static void
redis_lua(Client *c)
{
	static __thread char sha[64];

	if (sha[0] == '\0')
	{
		redisReply *reply = redisCommand(c->redis, "SCRIPT LOAD %s", LUA_ID);

		if (reply == NULL || reply->type != REDIS_REPLY_STRING)
			fail("redis: SCRIPT LOAD failed");
		snprintf(sha, sizeof(sha), "%s", reply->str);
		freeReplyObject(reply);
	}
	for (int i = 0; i < depth; i++)
		redisAppendCommand(c->redis, "EVALSHA %s 0", sha);
	redis_answers(c, depth);
}

/*---- Jobs ----*/

#define LINES_OF_PARAMETERS \
	" ($2, $1, 1, 1), ($3, $1, 2, 1), ($4, $1, 3, 1), ($5, $1, 4, 1)," \
	" ($6, $1, 5, 1), ($7, $1, 6, 1), ($8, $1, 7, 1), ($9, $1, 8, 1)," \
	" ($10, $1, 9, 1), ($11, $1, 10, 1)"
#define LINES_OF_SERVER \
	" ($1, 1, 1), ($1, 2, 1), ($1, 3, 1), ($1, 4, 1), ($1, 5, 1)," \
	" ($1, 6, 1), ($1, 7, 1), ($1, 8, 1), ($1, 9, 1), ($1, 10, 1)"

/* Tables: see bench.pl. */
static const Job jobs[] = {
	{"keys-pipeline", keys_then_pipeline,
		"INSERT INTO orders (id, customer) VALUES ($1, 42)",
	"INSERT INTO lines (id, order_id, item, quantity) VALUES" LINES_OF_PARAMETERS},
	{"keys-statement", keys_then_statement,
		"WITH o AS (INSERT INTO orders (id, customer) VALUES ($1, 42))"
	" INSERT INTO lines (id, order_id, item, quantity) VALUES" LINES_OF_PARAMETERS, NULL},
	{"returning", returning,
		"INSERT INTO orders (customer) VALUES (42) RETURNING id",
	"INSERT INTO lines (order_id, item, quantity) VALUES" LINES_OF_SERVER},
	{"cte", statements,
		"WITH o AS (INSERT INTO orders (customer) VALUES (42) RETURNING id)"
		" INSERT INTO lines (order_id, item, quantity)"
	" SELECT o.id, i, 1 FROM o, generate_series(1, 10) i", NULL},
	{"uuid4", uuid4_then_pipeline,
		"INSERT INTO orders (id, customer) VALUES ($1, 42)",
	"INSERT INTO lines (id, order_id, item, quantity) VALUES" LINES_OF_PARAMETERS},
	{"uuid7", uuid7_then_pipeline,
		"INSERT INTO orders (id, customer) VALUES ($1, 42)",
	"INSERT INTO lines (id, order_id, item, quantity) VALUES" LINES_OF_PARAMETERS},
	{"select-1", statements, "SELECT 1", NULL},
	{"next", statements, "SELECT snowid_next()", NULL},
	{"nothing", statements, "SELECT bench_nothing()", NULL},
	{"batch", batch, "SELECT snowid_next_batch($1)", NULL},
	{"redis-incr", redis_command, "INCR id", NULL},
	{"redis-timed", redis_timed, NULL, NULL},
	{"redis-lua", redis_lua, NULL, NULL}
};

static void *
run(void *arg)
{
	Client	   *c = arg;
	double		start;
	double		t;

	pthread_barrier_wait(&begin);
	start = t = now();
	while (count ? __atomic_fetch_add(&started, 1, __ATOMIC_RELAXED) < count
		   : t - start < seconds)
	{
		double		before = t;

		c->job->turn(c);
		t = now();
		c->turns++;
		if (t - before > c->longest)
			c->longest = t - before;
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	const Job  *job = NULL;
	int			n;
	Client	   *clients;
	double		start;
	long		turns = 0;
	double		longest = 0;

	if (argc < 6)
		fail("usage: client JOB CONNECTIONS SECONDS|COUNTx DEPTH POSTGRESQL [REDIS]");
	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
		if (strcmp(jobs[i].name, argv[1]) == 0)
			job = &jobs[i];
	if (job == NULL)
		fail("no such job: %s", argv[1]);
	n = atoi(argv[2]);
	if (strchr(argv[3], 'x'))
		count = atol(argv[3]);
	seconds = atof(argv[3]);
	depth = atoi(argv[4]);

	clients = calloc(n, sizeof(Client));
	pthread_barrier_init(&begin, NULL, n + 1);
	for (int i = 0; i < n; i++)
	{
		Client	   *c = &clients[i];

		c->job = job;
		if (strncmp(job->name, "redis-", 6) != 0)
			c->pg = pg_connect(argv[5], job);
		else if (argc < 7 || (c->redis = redisConnectUnix(argv[6])) == NULL || c->redis->err)
			fail("cannot connect to redis");
		pthread_create(&c->thread, NULL, run, c);
	}
	pthread_barrier_wait(&begin);
	start = now();
	for (int i = 0; i < n; i++)
	{
		pthread_join(clients[i].thread, NULL);
		turns += clients[i].turns;
		if (clients[i].longest > longest)
			longest = clients[i].longest;
	}
	printf("%ld %.6f %.3f\n", turns, now() - start, longest * 1000);
	return 0;
}
