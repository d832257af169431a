/*
 * opening.h
 *		May keys be made, with which pair, and above which time?
 */
#ifndef SNOWID_KEEPER_OPENING_H
#define SNOWID_KEEPER_OPENING_H

#include "generator/gate.h"

/*
 * The gate in shared memory.  Only the keeper changes it; a keeper that died leaves
 * it to its successor as it was.
 */
typedef enum GateState
{
	SHUT,						/* never open yet, or last with the wanted
								 * pair */
	SHUT_AFTER_OTHER,			/* it was open last with another pair */
	OPEN_FOR_OTHER,				/* it is open with another claim */
	OPEN_FOR_WANTED
} GateState;

/* The state file.  Only the keeper changes it; a copy of the directory has none. */
typedef enum FileState
{
	FILE_UNUSABLE,				/* it cannot be read, or written */
	FILE_DAMAGED,
	FILE_WITHOUT_CLAIM,
	FILE_OTHER_CLAIM,			/* its claim is not wanted, or was not for a
								 * while: somebody else may have the pair */
	FILE_WANTED_CLAIM			/* nobody else can have had it since, but for
								 * a stop, as the manual says */
} FileState;

/* The layout of the last keys by the WAL, which a standby has from its primary. */
typedef enum LastLayout
{
	LAYOUT_OF_NO_KEYS,			/* there are no keys yet */
	LAYOUT_IS_OURS,
	LAYOUT_IS_BELOW,			/* another one; new keys would be above all of
								 * its keys */
	LAYOUT_IS_ABOVE				/* another one, and they would not */
} LastLayout;

/* Where the clock is in the layout's range. */
typedef enum LayoutRange
{
	RANGE_GOOD,
	RANGE_BEFORE_EPOCH,
	RANGE_ENDS_SOON				/* or is over: callers get no key */
} LayoutRange;

/* The clock must be behind the keys for so long before the gate is closed. */
#define BEHIND_MS 500

/* The facts of a decision; times are in Unix ms, 0: none. */
typedef struct Facts
{
	/* the claim that is wanted by now, and why there is none */
	bool		from_registry;
	GateReason	source;			/* NO_REASON: there is one */
	int64		claim_floor_ms; /* the registry: its keys begin above it */

	/* the server and its clock, which an administrator may set */
	bool		recovery;
	bool		believed;
	int64		now_ms;
	int64		reach_ms;		/* no caller waits for a key above it */
	int64		max_lead_ms;
	LayoutRange range;
	bool		consent;		/* to another layout */

	GateState	gate;
	int64		last_ms;		/* no key since the start is above it */

	FileState	file;
	int64		known_ms;		/* the highest ceiling that it knows of the
								 * pair */
	int64		advanced_ms;	/* snowid_advance() went up to it in this
								 * layout, and the clock was not set back
								 * since */

	/* the ceilings in the WAL: no key of them is above */
	LastLayout	layout;
	int64		own_ms;			/* of the pair; 0: it is not known */
	int64		others_ms;		/* of this server's other pairs, within reach */

	/*
	 * While the gate is shut: until then somebody else may have had the pair,
	 * by the highest reading of the clock since it was set back.
	 */
	int64		others_until_ms;

	/* the clock behind the keys */
	int64		behind_ms;		/* for how long it has been */
	int64		patience_ms;	/* for how long it must be before an ID is
								 * left */
} Facts;

typedef enum OpeningAction
{
	OPENING_GIVE_UP,			/* the state file's claim goes; then decide
								 * again */
	OPENING_CLOSE,				/* the gate is closed, or stays so */
	OPENING_HOLD,				/* the gate stays open, without a grant */
	OPENING_STAY_OPEN,			/* the gate stays open */
	OPENING_OPEN
} OpeningAction;

/* The text beside a reason. */
typedef enum OpeningDetail
{
	DETAIL_NONE,
	DETAIL_SOURCE,				/* the last text of each of these two */
	DETAIL_FILE,
	DETAIL_CLOCK,
	DETAIL_RANGE,
	DETAIL_LAYOUT,
	DETAIL_WAIT,
	DETAIL_BEHIND
} OpeningDetail;

typedef struct Decision
{
	OpeningAction action;
	GateReason	reason;			/* the gate is closed first, for this reason */
	OpeningDetail detail;
	int64		floor_ms;		/* keys begin above it */
	int64		opens_ms;		/* the clock must have passed it; 0: at once */
	bool		remember;		/* in recovery the claim goes into the state
								 * file, in advance */
	bool		forget_order;	/* keys of another pair are out of reach */
	bool		may_move;		/* another ID is claimed if the clock is
								 * behind */
	bool		is_known;		/* it is known whether it is */
	bool		behind;
	int64		end_ms;			/* of the keys that it is behind */
	bool		unwanted;		/* now another ID must be claimed */
} Decision;

extern Decision opening_decide(const Facts *facts);

#endif							/* SNOWID_KEEPER_OPENING_H */
