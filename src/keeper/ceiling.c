/*
 * ceiling.c
 *		The durable ceilings: positions of replication origins that have a number and
 *		no name.
 *
 * PostgreSQL keeps positions by number in shared memory, in the checkpoint's file
 * and in the WAL, and looks at no catalog to set, replay, checkpoint or read one; only
 * SQL's functions look up names.  So a number without a row in pg_replication_origin
 * works, and SQL cannot drop, move or own it.  A ceiling is in the WAL before it is
 * used, so it precedes every row with a key below it.  Crash recovery, standbys,
 * promotion and base backups carry it without code of ours.
 *
 * PostgreSQL gives names the lowest free number, so ours are the highest ones
 * (settings.h); 65535 means "do not replicate".  Each that has a position takes a place of
 * max_replication_slots: usually two, and five at most.
 *
 *		HIGHEST_ORIGIN			the layout of the last keys
 *		the PLACES below it		the ceilings of the last PAIRS pairs
 *
 * A ceiling is the greatest key of its millisecond with its pair, so that the later one
 * of two is the greater one.  Above it is the number of its layout, modulo 2, which the
 * layout has as well: a ceiling with another number than the layout's is not valid.
 *
 * With a new layout the first ceiling is written before the layout, in the place that is
 * left.  A server that sees only the ceiling, after a crash or on a standby, sees the
 * former layout with all of its ceilings.  One that sees the layout, too, sees this
 * ceiling alone.
 */
#include "postgres.h"

#include "replication/origin.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "keeper/ceiling.h"
#include "settings.h"

#define PLACES (HIGHEST_ORIGIN - LOWEST_ORIGIN)
#define PAIRS (PLACES - 1)
#define DAY_MS (INT64CONST(24) * 3600 * 1000)

/* Bits of a position. */
#define LAYOUT_IS_THERE (UINT64CONST(1) << 62)
#define NUMBER_BIT (UINT64CONST(1) << 63)
#define WIDTH_BITS 5
#define WIDTH_MASK ((1 << WIDTH_BITS) - 1)

/* The ceiling of a pair. */
typedef struct PairCeiling
{
	bool		is_valid;
	PairId		pair;
	int64		ms;
} PairCeiling;

/* All positions. */
typedef struct Positions
{
	bool		has_layout;
	Layout		layout;
	uint64		number;			/* of the layout: 0 or NUMBER_BIT */
	PairCeiling pairs[PLACES];
} Positions;

static uint64
get(int n)
{
	return replorigin_get_progress((RepOriginId) (HIGHEST_ORIGIN - n), false);
}

/* Sets a position, in memory and in the WAL, which is not flushed yet. */
static void
set(int n, uint64 position)
{
	replorigin_advance((RepOriginId) (HIGHEST_ORIGIN - n), (XLogRecPtr) position,
					   InvalidXLogRecPtr, true, true);
}

/* Only a superuser who gave a number of ours a row can have set such a one. */
static void
refuse_position(int n)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the position of replication origin number %d was not set by snowid",
					HIGHEST_ORIGIN - n)));
}

static uint64
layout_position(const Layout *layout, uint64 number)
{
	uint64		position = (uint64) layout->epoch;

	position = position << WIDTH_BITS | (uint64) layout->datacenter_bits;
	position = position << WIDTH_BITS | (uint64) layout->worker_bits;
	position = position << WIDTH_BITS | (uint64) layout->sequence_bits;
	return position | LAYOUT_IS_THERE | number;
}

/* A number for the server's layout. */
uint64
ceiling_layout(void)
{
	return layout_position(&server_layout, 0);
}

static void
read_layout(Positions *all)
{
	uint64		position = get(0);

	if (position == 0)
		return;
	all->has_layout = true;
	all->number = position & NUMBER_BIT;
	all->layout.tick = 1;
	all->layout.sequence_bits = position & WIDTH_MASK;
	all->layout.worker_bits = position >> WIDTH_BITS & WIDTH_MASK;
	all->layout.datacenter_bits = position >> 2 * WIDTH_BITS & WIDTH_MASK;
	all->layout.epoch = (int64) ((position & ~(LAYOUT_IS_THERE | NUMBER_BIT)) >> 3 * WIDTH_BITS);
	if (!(position & LAYOUT_IS_THERE) || layout_unusable(&all->layout) != NULL)
		refuse_position(0);
}

/* Reads all of them. */
static Positions
read_all(void)
{
	Positions	all;

	memset(&all, 0, sizeof(all));
	read_layout(&all);
	for (int i = 0; all.has_layout && i < PLACES; i++)
	{
		uint64		position = get(i + 1);
		int64		key = (int64) (position & ~NUMBER_BIT);
		Parts		parts;

		if (position == 0 || (position & NUMBER_BIT) != all.number)
			continue;
		if (key > layout_key_at(&all.layout, PG_INT64_MAX, true))
			refuse_position(i + 1);
		layout_unpack(&all.layout, key, &parts);
		all.pairs[i].is_valid = true;
		all.pairs[i].pair.datacenter = parts.datacenter;
		all.pairs[i].pair.worker = parts.worker;
		all.pairs[i].ms = parts.unix_ms;
	}
	return all;
}

/* Where the ceiling of a pair is; -1: there is none. */
static int
place_with(const Positions *all, PairId pair)
{
	for (int i = 0; i < PLACES; i++)
		if (all->pairs[i].is_valid && same_pair(all->pairs[i].pair, pair))
			return i;
	return -1;
}

/*
 * Reads what is known of keys, and of a pair's.  Ceilings of other pairs above reach_ms
 * tell that the clock was wrong.
 */
Ceiling
ceiling_read(PairId pair, int64 reach_ms)
{
	Positions	all = read_all();
	Ceiling		answer;

	memset(&answer, 0, sizeof(answer));
	answer.has_layout = all.has_layout;
	answer.layout = all.layout;
	for (int i = 0; i < PLACES; i++)
	{
		const PairCeiling *ceiling = &all.pairs[i];

		if (!ceiling->is_valid)
			continue;
		if (!layout_equal(&all.layout, &server_layout))
			answer.layout_ms = Max(answer.layout_ms, ceiling->ms);
		else if (same_pair(ceiling->pair, pair))
			answer.own_ms = ceiling->ms;
		else if (ceiling->ms <= reach_ms)
			answer.others_ms = Max(answer.others_ms, ceiling->ms);
		else
			answer.beyond_ms = Max(answer.beyond_ms, ceiling->ms);
	}
	return answer;
}

/* The ceiling of a pair, whatever layout the last keys have; 0: there is none. */
int64
ceiling_of(PairId pair)
{
	Positions	all = read_all();
	int			place = place_with(&all, pair);

	return place < 0 ? 0 : all.pairs[place].ms;
}

/*
 * Do the last keys in the WAL have another layout than the settings?  For
 * sessions, when the keeper has not decided: on a standby, before its first
 * turn after a start, or if there is no pair.
 */
bool
ceiling_other_layout(Layout *other)
{
	Positions	all = read_all();

	*other = all.layout;
	return all.has_layout && !layout_equal(&all.layout, &server_layout);
}

/*
 * The place for a pair's ceiling: a free one, if there can be one that has had a position;
 * or that of the lowest one, if there are enough pairs, or it is a day below the others.
 * With "keep" the others are still needed.  The lowest one is missed by the fewest: once
 * the clocks have passed it, by a server whose clock is behind.
 */
static int
place_of(const Positions *all, int64 unix_ms, bool keep)
{
	int			free = -1;
	int			lowest = -1;
	int			valid = 0;
	int64		newest_ms = 0;
	bool		is_spare;

	for (int i = 0; i < PLACES; i++)
	{
		const PairCeiling *ceiling = &all->pairs[i];

		if (ceiling->is_valid)
		{
			valid++;
			newest_ms = Max(newest_ms, ceiling->ms);
			if (lowest < 0 || ceiling->ms < all->pairs[lowest].ms)
				lowest = i;
		}
		else if (free < 0 || get(i + 1) != 0)
			free = i;
	}
	is_spare = valid >= PAIRS ||
		(lowest >= 0 && all->pairs[lowest].ms < Min(newest_ms, unix_ms) - DAY_MS);
	return free < 0 || (is_spare && !keep) ? lowest : free;
}

/* Writes the ceiling of a pair as one of the server's layout with this number. */
static void
write_pair(int place, PairId pair, int64 unix_ms, uint64 number)
{
	Parts		parts = {
		.unix_ms = Max(unix_ms, server_layout.epoch),
		.datacenter = pair.datacenter,
		.worker = pair.worker,
		.sequence = (1 << server_layout.sequence_bits) - 1
	};

	set(place + 1, (uint64) layout_pack(&server_layout, &parts) | number);
}

/* The first ceiling of a layout, and then the layout. */
static void
begin_layout(const Positions *all, PairId pair, int64 unix_ms)
{
	uint64		number = all->has_layout ? all->number ^ NUMBER_BIT : 0;
	int			place = place_of(all, unix_ms, true);

	/* what is not valid now could become so */
	for (int i = 0; i < PLACES; i++)
		if (i != place && !all->pairs[i].is_valid && get(i + 1) != 0)
			set(i + 1, 0);
	write_pair(place, pair, unix_ms, number);
	set(0, layout_position(&server_layout, number));
}

/*
 * Sets a pair's ceiling, which begins this layout if the last keys have another one.  It is
 * durable once the caller has flushed the WAL.  It is lowered, to what was used, only while
 * the gate is closed, and without that: after a crash it may be as it was, which is safe.
 */
void
ceiling_set(PairId pair, int64 unix_ms)
{
	Positions	all = read_all();
	int			place = place_with(&all, pair);

	if (!all.has_layout || !layout_equal(&all.layout, &server_layout))
	{
		begin_layout(&all, pair, unix_ms);
		return;
	}
	if (place < 0)
		place = place_of(&all, unix_ms, false);
	write_pair(place, pair, unix_ms, all.number);
}
