/*
 * snowid.h
 *		What the files of snowid share: the layout of a key, the settings, and
 *		the prototypes, grouped by the file that owns them.
 *
 * Calls go downwards only: snowid -> generator, layout, worker, registry;
 * decode -> layout; worker -> pair, clock, ceiling, gate, claim;
 * pair -> node, ceiling, layout; node -> statefile, claim; registry -> claim, redis -> net;
 * admin -> claim.
 */
#ifndef SNOWID_H
#define SNOWID_H

#include "datatype/timestamp.h"
#include "fmgr.h"

/*---- What differs between PostgreSQL majors ----*/

#if PG_VERSION_NUM < 150000
#error "snowid needs PostgreSQL 15 or later"
#endif
#if PG_VERSION_NUM < 170000
#define MyProcNumber (MyProc->pgprocno)
#endif
#if PG_VERSION_NUM < 180000
#define max_active_replication_origins max_replication_slots
#endif
#if PG_VERSION_NUM < 160000
#define all_settings(n) (*(n) = GetNumConfigOptions(), get_guc_variables())
#else
#define all_settings(n) get_guc_variables(n)
#endif

/*---- What PostgreSQL looks up by name ----*/

extern PGDLLEXPORT void _PG_init(void);
extern PGDLLEXPORT void snowid_worker_main(Datum main_arg);
extern PGDLLEXPORT void snowid_origin_main(Datum main_arg);
extern PGDLLEXPORT void snowid_registry_main(Datum main_arg);

/* The rest stays inside of the library, and is called without detours. */
#pragma GCC visibility push(hidden)

/*---- The layout of a key ----*/

/*
 * From the sign bit down: 0, timestamp, datacenter, worker, sequence.  The
 * timestamp has what the widths leave of 63 bits.
 */
typedef struct Layout
{
	int64		epoch;			/* Unix ms at timestamp 0 */
	int			tick;			/* ms a timestamp step: 1; Sonyflake 10 */
	int			datacenter_bits;	/* a width of 0: no such field */
	int			worker_bits;
	int			sequence_bits;
	bool		sequence_above; /* Sonyflake: sequence above the worker */
} Layout;

/* A key taken apart, or to be put together. */
typedef struct Parts
{
	int64		unix_ms;
	int			datacenter;
	int			worker;
	int			sequence;
} Parts;

/* Longest text of a layout that layout_describe() writes, with its NUL. */
#define LAYOUT_TEXT_LEN 128

/*---- Settings (snowid.c) ----*/

typedef enum SequenceStart
{
	SEQUENCE_FRACTION,			/* the sequence is the sub-millisecond time */
	SEQUENCE_ZERO				/* it restarts at 0 each millisecond */
} SequenceStart;

extern int	snowid_sequence_start;	/* a SequenceStart */
extern int	snowid_datacenter_id;
extern int	snowid_worker_id;	/* -1: not set */
extern int	snowid_max_drift;	/* ms */
extern int	snowid_max_wait;	/* ms */
extern int	snowid_max_jump;	/* ms */
extern int	snowid_reserve;		/* ms */
extern char *snowid_redis_url;	/* "": no Redis */
extern char *snowid_redis_password_file;
extern char *snowid_redis_ca_file;
extern char *snowid_redis_prefix;
extern char *snowid_node_name;	/* "": host name and port */
extern int	snowid_redis_timeout;	/* ms */
extern int	snowid_redis_lease; /* ms; 0: for good */
extern int	snowid_redis_check_interval;	/* ms */
extern int	snowid_redis_wait_replicas;

extern Layout server_layout;	/* fixed at server start */

extern void require_preloaded(void);

/*---- layout.c ----*/

extern void layout_parse(text *spec, Layout *layout);
extern bool layout_parse_epoch(const char *str, int64 *unix_ms);
extern void layout_describe(const Layout *layout, char *buf);
extern const char *layout_named(int i, Layout *layout);
extern bool layout_equal(const Layout *a, const Layout *b);
extern int	layout_timestamp_bits(const Layout *layout);
extern int64 layout_last_ms(const Layout *layout);
extern bool layout_ends_soon(const Layout *layout, int64 unix_ms);
extern int64 layout_pack(const Layout *layout, const Parts *parts);
extern void layout_unpack(const Layout *layout, int64 id, Parts *parts);
extern int64 layout_key_at(const Layout *layout, int64 unix_ms, bool greatest);
extern int64 layout_bound(const Layout *layout, TimestampTz ts, bool greatest);
extern int64 unix_ms_from_timestamptz(TimestampTz ts);
extern TimestampTz timestamptz_from_unix_ms(int64 unix_ms);

/*---- generator.c, gate.c ----*/

/*
 * The clock, in units of 1/2^sequence_bits ms since the epoch.  A unit is a
 * key without its pair: timestamp and sequence.
 */

static inline int64
units_from_ms(int64 ms)
{
	return (int64) ((uint64) ms << server_layout.sequence_bits);
}

/* Rounded up. */
static inline int64
ms_from_units(int64 units)
{
	return (units + units_from_ms(1) - 1) >> server_layout.sequence_bits;
}

static inline int64
unix_ms_from_units(int64 units)
{
	return server_layout.epoch + (units >> server_layout.sequence_bits);
}

/* Consecutive units that belong to the caller. */
typedef struct UnitBlock
{
	int64		next;			/* the next unit to hand out */
	int64		end;			/* the last one; next > end: used up */
	uint64		node_bits;		/* the pair, at its place in the key */
} UnitBlock;

/* Why no key can be made; each has its message in gate.c. */
typedef enum GateReason
{
	GATE_OPEN,
	GATE_STARTING,				/* will pass: callers wait */
	GATE_STOPPING,
	GATE_RECOVERY,
	GATE_SINGLE_USER,
	GATE_NO_WORKER_ID,
	GATE_CLAIM,					/* will pass: callers wait */
	GATE_CLAIM_LOST,
	GATE_CLAIM_REFUSED,
	GATE_BEFORE_EPOCH,
	GATE_LAYOUT,
	GATE_LAYOUT_CONSENT,
	GATE_FILE,
	GATE_FILE_DAMAGED,
	GATE_CEILING
} GateReason;

#define GATE_DETAIL_LEN 512

typedef struct GeneratorStatus
{
	GateReason	reason;
	char		detail[GATE_DETAIL_LEN];	/* "" where reason says all */
	bool		has_pair;
	int			datacenter_id;
	int			worker_id;
	bool		has_last;		/* a key was made since the start */
	int64		last_key;
	int64		last_unix_ms;
	int64		ceiling_ms;		/* Unix; keys are granted up to it */
	double		lead_ms;		/* of the last key over the clock, or 0 */
	int64		keys;
	int64		waits;
	int64		wait_us;
	int64		errors;
	int64		steps_back;
} GeneratorStatus;

/* What the worker needs to know for a grant, in units. */
typedef struct GeneratorProgress
{
	int64		last;
	int64		usable_until;
	bool		asked;			/* a caller is near the ceiling */
} GeneratorProgress;

extern Size generator_shmem_size(void);
extern void generator_shmem_init(void);
extern bool generator_attached(void);
extern int64 generator_next(void);
extern void generator_refill(UnitBlock *block, int64 wanted);
extern int64 block_next(UnitBlock *block);
extern void generator_advance(int64 id);
extern void generator_wake_worker(void);
extern const char *gate_message(GateReason reason);
extern void generator_status(GeneratorStatus *status);

/* for the snowid worker only */
extern int64 generator_units(const struct timespec *time);
extern bool generator_attach_worker(void);
extern void generator_detach_worker(void);
extern GateReason generator_gate(bool *has_pair, int *datacenter_id,
								 int *worker_id);
extern int64 generator_close(GateReason reason, const char *detail);
extern void generator_open(int datacenter_id, int worker_id, int64 floor,
						   bool forget);
extern void generator_progress(GeneratorProgress *progress);
extern int64 generator_take_wish(void);
extern int64 generator_range_end(void);
extern void generator_grant(int64 usable_until, int64 ask_above);
extern void generator_ask_above(int64 unit);
extern void generator_no_grant(const char *detail);
extern void generator_count_step_back(void);

/*---- worker.c ----*/

struct BackgroundWorker;
extern void worker_describe(struct BackgroundWorker *worker, const char *name,
							const char *function);
extern void worker_register(void);

/*---- What a node is, and what it claims ----*/

#define NODE_NAME_LEN 64		/* bytes, without the NUL */
#define BOOT_LEN 64

/* How a data directory is told from a copy of it. */
typedef struct Fingerprint
{
	uint64		file_system;
	uint64		inode;
	int64		birth_ns;		/* 0 where the file system does not say */
} Fingerprint;

/* How its content is told from what is restored in its place. */
typedef struct Life
{
	uint64		inode;			/* 0: not known */
	int64		birth_ns;
} Life;

/* A pair that is this server's; from the settings, it has no ownership. */
typedef struct Claim
{
	uint64		ownership;		/* a random ID; 0: not claimed */
	int64		floor_ms;		/* Unix; keys begin above it */
	int32		lease_ms;		/* 0: for good */
	int32		datacenter_id;
	int32		worker_id;
	int32		unused;
	int64		generation;		/* those of a pair rise */
} Claim;

/* A claim that was given up. */
typedef struct PastClaim
{
	uint64		ownership;		/* 0: none */
	int64		ceiling_ms;		/* Unix */
	int32		exact;			/* 1: no key of it lies above */
	int32		datacenter_id;
	int32		worker_id;
	int32		unused;
} PastClaim;

#define PAST_CLAIMS 8

/* What the state file holds. */
typedef struct NodeIdentity
{
	Fingerprint directory;
	uint64		id[2];			/* random */
	uint64		starts;			/* how often it was started, with a Redis */
	Claim		claim;
	Life		life;
	uint64		shared;			/* 1: another server has this fingerprint */
	PastClaim	past[PAST_CLAIMS];	/* newest first */
} NodeIdentity;

static inline bool
same_pair(const Claim *a, const Claim *b)
{
	return a->datacenter_id == b->datacenter_id && a->worker_id == b->worker_id;
}

/*---- ceiling.c ----*/

/* What the origins in the WAL know; times in Unix ms, 0: nothing. */
typedef struct Ceiling
{
	uint16		origin;			/* the pair's own */
	int64		own_ms;			/* the pair's own ceiling */
	int64		old_ms;			/* that of the pair asked for beside it */
	int64		others_ms;		/* greatest of other pairs within reach */
	int64		other_layout_ms;	/* greatest of all other layouts ... */
	Layout		other_layout;	/* ... and that layout */
} Ceiling;

extern Size ceiling_shmem_size(void);
extern void ceiling_shmem_init(void);
extern bool ceiling_find(int datacenter_id, int worker_id,
						 int old_datacenter_id, int old_worker_id, int64 reach_ms,
						 Ceiling *ceiling, char *err, Size errlen);
extern void ceiling_write(const Ceiling *ceiling, int64 unix_ms, bool lower);

/*---- pair.c ----*/

/* What is known of this server's pair. */
typedef struct Pair
{
	bool		looked_up;		/* the ceiling is that of these IDs */
	bool		known;			/* the rest is, too: the gate may open */
	Claim		claim;
	Ceiling		ceiling;
	int64		opens_at;		/* unit; the clock must have passed it */
	int64		floor;			/* unit; keys begin above it */
	bool		is_new;			/* to be written into the state file */
} Pair;

extern Size pair_shmem_size(void);
extern void pair_shmem_init(void);
extern void pair_accept_layout(void);
extern int64 last_unit_of(int64 unix_ms);
extern int64 reach_of(int64 now);
extern GateReason pair_wanted(Claim *wanted, int64 *limit_ms, char *err);
extern GateReason pair_find(Pair *pair, const Claim *wanted, int64 now, char *err);
extern bool pair_remember(Pair *pair, char *err);
extern bool pair_remember_early(const Claim *claim, int64 now, char *err);
extern bool pair_forget(char *err);

/*---- node.c ----*/

extern uint64 random_id(void);
extern GateReason node_load(bool *is_new, bool *is_copy, char *err);
extern GateReason node_introduce(char *err);
extern bool node_remembers(const Claim *claim, bool *same_terms);
extern const Claim *node_claim(void);
extern bool node_remember(const Claim *claim, int64 used_ms, bool exact, char *err);

/*---- clock.c ----*/

extern Size clock_shmem_size(void);
extern void clock_shmem_init(void);
extern bool clock_accept(void);
extern bool clock_read(int64 *now);

/*---- statefile.c ----*/

typedef enum StateFileResult
{
	STATE_FILE_OK,
	STATE_FILE_ABSENT,
	STATE_FILE_FAILED,			/* the reason is in the caller's buffer */
	STATE_FILE_DAMAGED			/* the same */
} StateFileResult;

extern bool statefile_lock(char *err, Size errlen);
extern void statefile_unlock(void);
extern Fingerprint statefile_fingerprint(void);
extern Life statefile_life(void);
extern StateFileResult statefile_read(NodeIdentity *node, char *err, Size errlen);
extern bool statefile_write(const NodeIdentity *node, char *err, Size errlen);

/*---- claim.c ----*/

#define NET_ERR_LEN 256

/* Records in one answer to a REQUEST_LIST, behind "list", and their columns. */
#define REGISTRY_PAGE 20
#define RECORD_COLUMNS 9

typedef enum RegistryOperation
{
	REQUEST_LIST,				/* claims of a datacenter, from a worker ID on */
	REQUEST_RELEASE,			/* a worker ID is given back */
	REQUEST_RECLAIM				/* this server is to get another one */
} RegistryOperation;

/* What an administrator wants, and the answer: strings, each with its NUL. */
typedef struct RegistryRequest
{
	RegistryOperation operation;
	int			datacenter_id;
	int			worker_id;
	bool		force;
	int			count;
	char		answer[4096];
	bool		refused;		/* by the registry, for the reason in "error" */
	char		error[GATE_DETAIL_LEN]; /* "": it was answered */
} RegistryRequest;

typedef struct RegistryStatus
{
	bool		held;			/* there is a claim */
	bool		confirmed;		/* by Redis, since the start */
	int			lease_ms;
	int64		limit_ms;		/* Unix; on lease, keys end here */
	TimestampTz last_ok;		/* 0: never */
	char		detail[GATE_DETAIL_LEN];	/* why there is no claim */
	char		last_error[NET_ERR_LEN];
} RegistryStatus;

extern void claim_shmem_request(void);
extern void claim_shmem_init(void);
extern bool claim_from_redis(void);
extern bool claim_ask(RegistryRequest *request);
extern void claim_status(RegistryStatus *status);

/* for the snowid worker only */
extern bool claim_has_node(bool *clone);
extern void claim_set_node(const NodeIdentity *node, const char *boot, bool is_start);
extern GateReason claim_held(Claim *claim, int64 *limit_ms, char *err);
extern void claim_propose(int64 now_ms, int64 wish_ms, bool hurry);
extern bool claim_enter(const Claim *claim, int64 used_ms);
extern void claim_use(int64 used_ms);
extern uint64 claim_entered(void);
extern void claim_leave(int64 used_ms);
extern bool claim_used(const Claim *claim, int64 *used_ms);

/*---- registry.c ----*/

extern void registry_register(void);

/*---- redis.c, for the registry ----*/

extern const char *redis_check_urls(const char *urls);
extern int	redis_count_urls(void);
extern bool redis_connect(bool last_call, char *err);
extern bool redis_is_connected(void);
extern void redis_disconnect(void);
extern const char *redis_may_evict(void);
extern bool redis_run_script(const char *key, const char **args, int nargs,
							 bool last_call, char ***answer, int *count,
							 char *err);

/*---- net.c, for the registry ----*/

#define NET_ADDRESS_LEN 64		/* of a numeric address, with its NUL */
#define NET_ADDRESSES_LEN 512

extern int64 net_now_ms(void);
extern void net_set_deadline(int timeout_ms, bool last_call);
extern bool net_wait(int fd, int event, char *err);
extern bool net_resolve(const char *host, char *addresses, char *err);

#pragma GCC visibility pop

#endif							/* SNOWID_H */
