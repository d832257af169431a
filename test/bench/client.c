/*
 * client.c
 *		The benchmark's client: does one job over some connections for some
 *		time, and prints what it did.
 *
 *	client JOB CONNECTIONS SECONDS DEPTH DELAY POSTGRESQL REDIS
 *
 * One thread a connection, each with a closed loop: the next turn begins when
 * the answer is there.  A turn is an order with ten lines, or DEPTH keys (one
 * round trip).  DELAY is what the network adds to a round trip to PostgreSQL, in
 * us: the client sleeps so long.  Prints turns and seconds.
 */
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
	char		keys[ORDERS_AHEAD * KEYS][KEY_LEN];
	int			orders_left;
	long		turns;
};

static int	depth;
static double seconds;
static struct timespec delay;
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

/* Ends the round trip and reads all answers; the first values of so many rows. */
static void
pg_round_trip(Client *c, char (*values)[KEY_LEN], int rows)
{
	if (!PQpipelineSync(c->pg))
		fail("%s", PQerrorMessage(c->pg));
	for (;;)
	{
		PGresult   *result = PQgetResult(c->pg);
		ExecStatusType status = PQresultStatus(result);

		if (result == NULL)
			continue;			/* the end of one statement */
		if (status == PGRES_TUPLES_OK && PQntuples(result) >= rows)
			for (int i = 0; i < rows; i++)
				snprintf(values[i], KEY_LEN, "%s", PQgetvalue(result, i, 0));
		else if (status != PGRES_COMMAND_OK && status != PGRES_PIPELINE_SYNC)
			fail("%s", PQerrorMessage(c->pg));
		PQclear(result);
		if (status == PGRES_PIPELINE_SYNC)
			break;
	}
	nanosleep(&delay, NULL);
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

	snprintf(n, sizeof(n), "%d", ORDERS_AHEAD * KEYS);
	pg_send(c, "fetch", 1, params);
	pg_round_trip(c, c->keys, ORDERS_AHEAD * KEYS);
	c->orders_left = ORDERS_AHEAD;
}

/* The keys are there: all in one round trip. */
static void
keys_then_pipeline(Client *c)
{
	const char *params[KEYS];

	if (c->orders_left == 0)
		fetch_keys(c);
	c->orders_left--;
	for (int i = 0; i < KEYS; i++)
		params[i] = c->keys[c->orders_left * KEYS + i];
	pg_send(c, "begin", 0, NULL);
	pg_send(c, "first", 1, params);
	pg_send(c, "second", KEYS, params);
	pg_send(c, "commit", 0, NULL);
	pg_round_trip(c, NULL, 0);
}

/* The server makes the keys: the lines wait for the order's. */
static void
returning(Client *c)
{
	char		key[1][KEY_LEN];
	const char *params[] = {key[0]};

	pg_send(c, "begin", 0, NULL);
	pg_send(c, "first", 0, NULL);
	pg_round_trip(c, key, 1);
	pg_send(c, "second", 1, params);
	pg_send(c, "commit", 0, NULL);
	pg_round_trip(c, NULL, 0);
}

/* DEPTH statements a round trip, each with no parameter. */
static void
statements(Client *c)
{
	for (int i = 0; i < depth; i++)
		pg_send(c, "first", 0, NULL);
	pg_round_trip(c, NULL, 0);
}

/* A batch of DEPTH. */
static void
batch(Client *c)
{
	char		n[12];
	const char *params[] = {n};

	snprintf(n, sizeof(n), "%d", depth);
	pg_send(c, "first", 1, params);
	pg_round_trip(c, NULL, 0);
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
	{"returning", returning,
		"INSERT INTO orders (customer) VALUES (42) RETURNING id",
	"INSERT INTO lines (order_id, item, quantity) VALUES" LINES_OF_SERVER},
	{"cte", statements,
		"WITH o AS (INSERT INTO orders (customer) VALUES (42) RETURNING id)"
		" INSERT INTO lines (order_id, item, quantity)"
	" SELECT o.id, i, 1 FROM o, generate_series(1, 10) i", NULL},
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

	pthread_barrier_wait(&begin);
	start = now();
	do
	{
		c->job->turn(c);
		c->turns++;
	} while (now() - start < seconds);
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

	if (argc != 8)
		fail("usage: client JOB CONNECTIONS SECONDS DEPTH DELAY POSTGRESQL REDIS");
	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
		if (strcmp(jobs[i].name, argv[1]) == 0)
			job = &jobs[i];
	if (job == NULL)
		fail("no such job: %s", argv[1]);
	n = atoi(argv[2]);
	seconds = atof(argv[3]);
	depth = atoi(argv[4]);
	delay.tv_nsec = atol(argv[5]) * 1000;
	prctl(PR_SET_TIMERSLACK, 1UL);

	clients = calloc(n, sizeof(Client));
	pthread_barrier_init(&begin, NULL, n + 1);
	for (int i = 0; i < n; i++)
	{
		Client	   *c = &clients[i];

		c->job = job;
		if (strncmp(job->name, "redis-", 6) != 0)
			c->pg = pg_connect(argv[6], job);
		else if ((c->redis = redisConnectUnix(argv[7])) == NULL || c->redis->err)
			fail("cannot connect to redis");
		pthread_create(&c->thread, NULL, run, c);
	}
	pthread_barrier_wait(&begin);
	start = now();
	for (int i = 0; i < n; i++)
	{
		pthread_join(clients[i].thread, NULL);
		turns += clients[i].turns;
	}
	printf("%ld %.6f\n", turns, now() - start);
	return 0;
}
