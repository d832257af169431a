/*
 * opening.h
 *		May keys be made, with which pair, and above which time?
 */
#ifndef SNOWID_KEEPER_OPENING_H
#define SNOWID_KEEPER_OPENING_H

#include "generator/gate.h"

/* How far the keeper has come with the claim that is wanted. */
typedef enum PairStage
{
	PAIR_NONE,					/* nothing is known of it */
	PAIR_FOUND,					/* since when it is this server's */
	PAIR_ASKED,					/* its ceilings were asked for in this turn */
	PAIR_FAILED,				/* they cannot be had now */
	PAIR_KNOWN,					/* they are known, and its origin is owned */
	PAIR_IN_USE					/* and the gate was opened with it */
} PairStage;

/* Where the clock is in the layout's range. */
typedef enum LayoutRange
{
	RANGE_GOOD,
	RANGE_BEFORE_EPOCH,
	RANGE_ENDS_SOON,
	RANGE_OVER
} LayoutRange;

/* The clock must be behind the keys for so long before the gate is closed. */
#define BEHIND_MS 500

/* The facts of a decision; times are in Unix ms, 0: none. */
typedef struct Facts
{
	/* the claim that is wanted, and why there is none */
	bool		from_registry;
	GateReason	source;
	int64		claim_floor_ms; /* the registry: its keys begin above it */

	/* the server and its clock */
	bool		recovery;
	bool		believed;
	int64		now_ms;
	int64		reach_ms;		/* no caller waits for a key above it */
	int64		max_lead_ms;
	LayoutRange range;
	bool		consent;		/* to another layout */

	/* the gate, and the claim that it was opened with last */
	bool		is_open;
	bool		is_ours;		/* that is the claim which is wanted */
	bool		other_pair;		/* it had another pair */
	int64		last_ms;		/* no key is above it */

	/* the state file */
	GateReason	file;
	bool		left_source;	/* its claim was granted by another source */
	bool		remembers;		/* it has the claim that is wanted */
	bool		same_terms;		/* on the same terms */
	int64		known_ms;		/* the highest ceiling that it knows of the
								 * pair */
	int64		advanced_ms;	/* snowid_advance() went up to it */
	int64		furthest_ms;	/* it can go up to this now */

	/* the ceilings; of a claim that is not found, nothing counts */
	PairStage	stage;
	int64		found_ms;		/* since when it is this server's ... */
	int64		waited_ms;		/* ... and for how long, by a steady clock */
	int64		own_ms;
	int64		others_ms;		/* of this server's other pairs, within reach */
	int64		other_layout_ms;
	bool		is_above;		/* keys would be above those of the other
								 * layout */

	/* the clock behind the keys */
	int64		behind_ms;		/* for how long it has been */
	int64		patience_ms;	/* for how long it must be before an ID is
								 * left */
} Facts;

typedef enum OpeningAction
{
	/* steps, which settle nothing yet */
	OPENING_GIVE_UP,			/* the state file's claim goes */
	OPENING_LOOK_UP,			/* the ceilings are asked for */
	OPENING_AWAIT,				/* they will come */

	OPENING_CLOSE,				/* the gate is closed, or stays so */
	OPENING_HOLD,				/* the gate stays open, without a grant */
	OPENING_TAKE_OVER,			/* a predecessor's gate stays open: as below,
								 * once its ceiling is raised again */
	OPENING_STAY_OPEN,			/* the gate stays open */
	OPENING_OPEN
} OpeningAction;

/* The text beside a reason. */
typedef enum OpeningDetail
{
	DETAIL_NONE,
	DETAIL_SOURCE,				/* the last text of each of these three */
	DETAIL_FILE,
	DETAIL_LOOK_UP,
	DETAIL_CLOCK,
	DETAIL_RANGE,
	DETAIL_LAYOUT,
	DETAIL_WAIT,
	DETAIL_BEHIND
} OpeningDetail;

typedef struct Decision
{
	OpeningAction action;
	GateReason	reason;			/* GATE_OPEN, or the gate is closed first */
	OpeningDetail detail;
	int64		floor_ms;		/* keys begin above it */
	int64		opens_ms;		/* the clock must have passed it; 0: at once */
	int64		found_ms;		/* for the next decision */
	bool		remember;		/* first, the claim goes into the state file */
	bool		leave_layouts;	/* and the other layouts are left */
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
