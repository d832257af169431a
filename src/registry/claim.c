/*
 * claim.c
 *		The claim in shared memory, as the snowid keeper sees it; and the SQL
 *		functions by which an administrator lists the claims, gives a worker ID
 *		back, or changes this server's own.
 *
 * Creates the state in claim.h and state.h.  It decides nothing; the snowid registry
 * does.  A lost claim is not used, because the gate opens only through
 * claim_enter(), under the lock under which a claim is withdrawn; and a claim
 * that is withdrawn while the gate is open stays CLAIM_LOST until the keeper has
 * closed the gate and removed it from the state file.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "key/layout.h"
#include "process.h"
#include "registry/claim.h"
#include "registry/state.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowid_claims);
PG_FUNCTION_INFO_V1(snowid_release);
PG_FUNCTION_INFO_V1(snowid_reclaim);

/* For so long after the start the registry process may be missing. */
#define START_MS 2000

/* The tests mark more often: by a library that they preload (test/lib/skew.c). */
extern int	snowid_test_mark_ms(void) __attribute__((weak, visibility("default")));

ClaimBoard *board = NULL;
RegistryMail *registry_mail = NULL;
LWLock	   *registry_lock = NULL;

/*---- Shared memory ----*/

void
claim_shmem(bool reserve)
{
	board = shmem_area(reserve, "snowid registry", sizeof(ClaimBoard));
	registry_mail = shmem_area(reserve, "snowid registry's mail", sizeof(RegistryMail));
	if (reserve)
	{
		RequestNamedLWLockTranche("snowid_registry", 1);
		return;
	}
	registry_lock = &GetNamedLWLockTranche("snowid_registry")->lock;
	mailbox_init(&registry_mail->box, registry_lock, &registry_mail->request, sizeof(RegistryRequest));
}

bool
claim_from_redis(void)
{
	return snowid_redis_url[0] != '\0';
}

/* Copies the shared state. */
void
claim_look(ClaimBoard *seen)
{
	LWLockAcquire(registry_lock, LW_SHARED);
	memcpy(seen, board, sizeof(ClaimBoard));
	LWLockRelease(registry_lock);
}

/*
 * Redis says that another server may have the remembered claim, and the state file does not
 * say so yet: before the next call it must, since a start without Redis would use the claim.
 */
bool
claim_in_doubt(const ClaimBoard *seen)
{
	return seen->state == CLAIM_NONE && seen->watching &&
		seen->identity.claim.ownership != 0 && seen->identity.home != 0;
}

int
mark_ms(void)
{
	return snowid_test_mark_ms ? snowid_test_mark_ms() : MARK_MS;
}

/* A random number, used by no other server; never 0. */
uint64
random_id(void)
{
	uint64		id;

	if (!pg_strong_random(&id, sizeof(id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values"),
				 errdetail("This machine's source of random numbers failed.")));
	return id | 1;				/* 0 stands for none */
}

/* The registry's place by the settings, as a hash; 0: there is none. */
uint64
claim_home(void)
{
	char	   *where;

	if (!claim_from_redis())
		return 0;
	where = psprintf("%s\n%s", snowid_redis_url, snowid_redis_prefix);
	return hash_bytes_extended((unsigned char *) where, strlen(where), 0) | 1;
}

/*---- The snowid keeper's side ----*/

/*
 * The identity as it is in the state file now.  The first one, or one with
 * another ID, begins a start.  A lost claim must have left the file.
 */
void
claim_set_identity(const Identity *identity, const char *boot, bool is_start)
{
	uint64		token = random_id();
	int64		now = monotonic_ms();

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (!board->has_identity || memcmp(board->identity.id, identity->id, sizeof(identity->id)) != 0)
	{
		/* two servers without one would look like one */
		Assert(boot[0] != '\0');
		board->token = token;
		board->n = 0;
		board->state = CLAIM_LOST;
		strlcpy(board->boot, boot, sizeof(board->boot));
	}
	board->identity = *identity;
	if (!board->has_identity)
	{
		board->known_since = now;
		board->span_ms = identity->span_ms;
		board->high = identity->high;
	}
	board->has_identity = true;
	if (board->state == CLAIM_LOST && (is_start || identity->claim.ownership == 0))
	{
		board->state = CLAIM_NONE;
		board->clone = false;
		/* if it was used, it is among the past claims, or the one in the file */
		memset(&board->leaving, 0, sizeof(Claim));
	}
	LWLockRelease(registry_lock);
	process_wake(PROCESS_REGISTRY);
}

/*
 * The pair that may be used, and up to which Unix ms; or the reason why there is
 * none.  GATE_CLAIM_LOST: the keeper must close the gate and forget the claim.
 */
GateReason
claim_held(Claim *claim, int64 *limit_ms, char *err)
{
	GateReason	reason = NO_REASON;
	bool		has_process;
	int64		now = monotonic_ms();

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	has_process = process_is_there(PROCESS_REGISTRY) || now < board->known_since + START_MS ||
		!board->has_identity;
	*claim = board->claim;
	*limit_ms = board->claim.lease_ms > 0 ? board->limit_ms : PG_INT64_MAX;
	if (board->state != CLAIM_HELD)
	{
		memcpy(err, board->detail, GATE_DETAIL_LEN);
		reason = board->state == CLAIM_LOST ? GATE_CLAIM_LOST :
			board->refused ? GATE_CLAIM_REFUSED : GATE_CLAIM;
	}
	LWLockRelease(registry_lock);
	if (reason == GATE_CLAIM && (err[0] == '\0' || !has_process))
		strlcpy(err, has_process ? "Redis has not answered yet." :
				"The \"snowid registry\" process is not running; increase max_worker_processes.",
				GATE_DETAIL_LEN);
	return reason;
}

/*
 * The keeper's clock is at now_ms.  wish_ms is a higher ceiling than the usual
 * one, or 0; "hurry": the present limit is too low.
 */
void
claim_propose(int64 now_ms, int64 wish_ms, bool hurry)
{
	int64		horizon = snowid_redis_lease > 0 ? snowid_redis_lease :
	2 * (int64) mark_ms();
	int64		proposed = Max(now_ms + snowid_max_lead + RESERVE_MS + horizon, wish_ms);
	bool		wake;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	wake = hurry || board->proposed_ms == 0;
	board->proposed_ms = Max(Min(proposed, Min(MAX_MS, layout_last_ms(&server_layout))), 0);
	board->highest_ms = Max(board->highest_ms, board->proposed_ms);
	board->reach_ms = Max(now_ms + snowid_max_lead, 0);
	board->hurry |= hurry;
	LWLockRelease(registry_lock);
	if (wake)
		process_wake(PROCESS_REGISTRY);
}

/*
 * The gate is about to open with this claim, with keys up to used_ms.  False: the
 * claim was lost.
 */
bool
claim_enter(const Claim *claim, int64 used_ms)
{
	bool		held;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	held = !claim_from_redis() ||
		(board->state == CLAIM_HELD && board->claim.ownership == claim->ownership);
	if (held)
	{
		board->entered = claim->ownership;
		board->used_ms = Max(Min(used_ms, MAX_MS), 0);
	}
	LWLockRelease(registry_lock);
	return held;
}

/* Keys up to used_ms are about to be granted. */
void
claim_use(int64 used_ms)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->used_ms = Max(board->used_ms, Min(used_ms, MAX_MS));
	LWLockRelease(registry_lock);
}

/* The claim that the gate is open with; 0: the gate is closed.  Only the caller sets it. */
uint64
claim_entered(void)
{
	return board->entered;
}

/* The gate was closed; no key of its claim is above used_ms. */
void
claim_leave(int64 used_ms)
{
	bool		was_entered;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	was_entered = board->entered != 0;
	if (was_entered)
	{
		board->left = board->entered;
		board->left_ms = Max(Min(used_ms, MAX_MS), 0);
		board->entered = 0;
	}
	LWLockRelease(registry_lock);
	if (was_entered)
		process_wake(PROCESS_REGISTRY);
}

/*
 * The claim in the state file is not the wanted one any more, and leaves the file.  If
 * that cannot be written, it is not resumed for all that.
 */
void
claim_give_up(uint64 ownership)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	board->given_up = ownership;
	LWLockRelease(registry_lock);
}

/* Only the caller sets it. */
uint64
claim_given_up(void)
{
	return board->given_up;
}

/*
 * The keeper wants another worker ID in place of this ownership's, whose keys end
 * far ahead of the clock; 0: it wants none.
 */
void
claim_unwanted(uint64 ownership, int64 end_ms)
{
	bool		is_new;

	if (!claim_from_redis())
		return;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	is_new = board->unwanted != ownership;
	board->unwanted = ownership;
	board->unwanted_ms = Max(Min(end_ms, MAX_MS), 0);
	if (is_new)
		board->no_other[0] = '\0';
	LWLockRelease(registry_lock);
	if (is_new && ownership != 0)
		process_wake(PROCESS_REGISTRY);
}

/*---- Requests of administrators ----*/

/* The columns of snowid_claims(): those of a record but the last. */
static const Oid claims_columns[] = {
	INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, TEXTOID, BOOLOID
};

/* Throws if the registry or Redis does not answer in time. */
static void
ask_registry(RegistryRequest *request)
{
	ClaimBoard	seen;
	MailState	state;

	require_preloaded();
	if (!claim_from_redis())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this server's worker ID does not come from Redis"),
				 errhint("Set snowid.redis_url and restart the server.")));
	state = mailbox_ask(&registry_mail->box, request, PROCESS_REGISTRY, snowid_redis_timeout,
						WAIT_REGISTRY);
	if (state != MAIL_ANSWERED)
	{
		claim_look(&seen);
		if (!seen.has_identity || !process_is_there(PROCESS_REGISTRY))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the snowid registry process is not ready"),
					 errhint("\"reason\" in snowid_status() says why.")));
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("Redis did not answer within snowid.redis_timeout"),
				 seen.last_error[0] && may_read_settings() ?
				 errdetail("The last error was: %s.", seen.last_error) : 0,
				 state == MAIL_TAKEN && request->operation != REQUEST_LIST ?
				 errhint("The request may still be carried out; see snowid_claims().") : 0));
	}
	if (request->error[0])
		ereport(ERROR,
				(errcode(request->refused ? ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE :
						 ERRCODE_CONNECTION_FAILURE),
				 request->refused && request->operation == REQUEST_RECLAIM ?
				 errmsg("no other worker ID could be claimed") :
				 errmsg("Redis cannot be used"),
				 errdetail("%s", request->refused || may_read_settings() ? request->error : "See the server log."),
				 request->refused || request->operation == REQUEST_LIST ? 0 :
				 errhint("The request may have been carried out; see snowid_claims().")));
}

/* No script of ours gives such an answer. */
static void
refuse_answer(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("unexpected reply from Redis"),
			 errhint("Is something else using snowid.redis_prefix?")));
}

/* A time in Unix ms; throws if timestamptz has no such time. */
static Datum
time_datum(const char *text, bool *isnull)
{
	int64		unix_ms = strtoll(text, NULL, 10);

	*isnull = text[0] == '\0';	/* of a damaged record */

	if (unix_ms < 0 || unix_ms > INT64CONST(9000000000000000))
		refuse_answer();
	return TimestampTzGetDatum(timestamptz_from_unix_ms(unix_ms));
}

Datum
snowid_claims(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	RegistryRequest request = {.operation = REQUEST_LIST};
	int			records;

	InitMaterializedSRF(fcinfo, 0);
	require_columns(fcinfo, rsinfo->setDesc, claims_columns, lengthof(claims_columns));
	do
	{
		const char *p = request.answer;

		request.pair.datacenter = snowid_datacenter_id;
		ask_registry(&request);
		records = (request.count - 1) / RECORD_COLUMNS;
		if (strcmp(p, "list") != 0 || request.count != 1 + records * RECORD_COLUMNS)
			refuse_answer();
		p += strlen(p) + 1;
		for (int i = 0; i < records; i++)
		{
			const char *field[RECORD_COLUMNS];
			Datum		values[lengthof(claims_columns)];
			bool		nulls[lengthof(claims_columns)] = {false};
			int64		worker_id;

			for (int j = 0; j < RECORD_COLUMNS; j++)
			{
				field[j] = p;
				p += strlen(p) + 1;
			}
			worker_id = strtoll(field[0], NULL, 10);
			if (worker_id < request.pair.worker || worker_id > PG_INT32_MAX - 1)
				refuse_answer();
			request.pair.worker = (int) worker_id + 1;
			values[0] = Int32GetDatum((int32) worker_id);
			values[1] = CStringGetTextDatum(field[1]);
			nulls[1] = field[4][0] == '\0';
			for (int j = 2; j <= 4; j++)
				values[j] = time_datum(field[j], &nulls[j]);
			nulls[5] = field[5][0] == '\0';
			values[5] = Int64GetDatum(strtoll(field[5], NULL, 10));
			values[6] = CStringGetTextDatum(field[6]);
			values[7] = BoolGetDatum(field[7][0] == '1');
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	} while (records == REGISTRY_PAGE);
	return (Datum) 0;
}

Datum
snowid_release(PG_FUNCTION_ARGS)
{
	RegistryRequest request = {.operation = REQUEST_RELEASE};
	const char *outcome = request.answer;
	const char *name;

	require_preloaded();
	request.pair.datacenter = PG_GETARG_INT32(0);
	request.pair.worker = PG_GETARG_INT32(1);
	request.force = PG_GETARG_BOOL(2);
	if (request.pair.datacenter < 0 || request.pair.datacenter >> server_layout.datacenter_bits != 0 ||
		request.pair.worker < 0 || request.pair.worker >> server_layout.worker_bits != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("datacenter ID or worker ID is out of range"),
				 errdetail("The layout has %d datacenter bits and %d worker bits.",
						   server_layout.datacenter_bits, server_layout.worker_bits)));
	ask_registry(&request);
	name = outcome + strlen(outcome) + 1;
	if (strcmp(outcome, "free") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker ID %d of datacenter %d is not claimed",
						request.pair.worker, request.pair.datacenter),
				 errdetail("It is free already.")));
	if (strcmp(outcome, "own") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker ID %d of datacenter %d is this server's own",
						request.pair.worker, request.pair.datacenter),
				 errhint("Use snowid_reclaim() to change it.")));
	if (strcmp(outcome, "live") == 0 && request.count == 3)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker ID %d of datacenter %d is in use",
						request.pair.worker, request.pair.datacenter),
				 errdetail("\"%s\" was seen %s ms ago.", name, name + strlen(name) + 1),
				 errhint("Stop that server first, or use force.")));
	if (strcmp(outcome, "released") != 0 && strcmp(outcome, "revoked") != 0)
		refuse_answer();
	PG_RETURN_TEXT_P(cstring_to_text(outcome));
}

Datum
snowid_reclaim(PG_FUNCTION_ARGS)
{
	RegistryRequest request = {.operation = REQUEST_RECLAIM};

	ask_registry(&request);
	PG_RETURN_INT32(request.pair.worker);
}
