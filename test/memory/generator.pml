/*
 * generator.pml
 *		The generator's memory protocol, for the model checker spin.
 *
 * Mirrors src/generator/generator.c (the callers), and gate.c (the keeper),
 * where they touch what state.h has outside of its locks: last,
 * usable_until, pair_bits and opening.  A change of one of these accesses, of their order or
 * of their barriers is a change of this model, too; comments name the functions.
 *
 * The memory is arm64's: one for all, but each process performs its accesses in
 * any order that no barrier forbids.
 *
 * - The caller's loads between its read barrier and its compare-and-swap may be
 *	 performed at any moment in between, its window.  What they can have found
 *	 is remembered instead of making each a step: of usable_until the greatest
 *	 value, since the unit is below it; of pair_bits all values.  Of "last" it
 *	 is the present one, for else the swap would fail.
 * - A compare-and-swap is one step, although arm64's CASAL lets later loads pass
 *	 its store: the only one that counts is of "opening", which does not change
 *	 while "last" is no sentinel, and nobody else writes "last" meanwhile.
 * - The keeper's stores are performed in the order of the source: between any
 *	 two that count are a barrier, a lock and its release, or an exchange.
 *
 * Left out are:
 * - The clock: a caller may take any unit above the last one.  max_lead and the
 *	 waits only choose among them.
 * - ask_above, the condition variable and the latches: they wake somebody, who
 *	 looks again; each wait has a time-out.
 * - Crashes: they lose everything but the ceilings, and the next floor is above
 *	 the pair's ceiling.  So it is asserted that no unit is above the ceiling
 *	 of its pair when it is taken, nor when that ceiling is lowered.
 *
 * Each #ifdef is a mutation: test/memory/run knows what they stand for.
 */
#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef ADVANCES
#define ADVANCES 1
#endif
#define OPENINGS 2
#ifndef END
#define END 7				/* the last unit */
#endif
#define MASK 1				/* sequence_mask: a ms has two units */

#define CLOSED 15			/* GATE_CLOSED */
#define UNREAD 15

#define max(a, b) ((a) > (b) -> (a) : (b))
#define key(unit, pair) ((unit) / 2 * 4 + (pair) * 2 + (unit) % 2)
#define unit_of(key) ((key) / 4 * 2 + (key) % 2)

/* state.h */
byte last = CLOSED;
byte usable_until;
byte pair_bits;
byte opening;
byte resume_above;

/* The pair's ceiling, as the WAL has it. */
byte ceiling;

/* What each caller can have loaded in its window; 0 outside of it. */
byte usable_seen[CALLERS];
byte pairs_seen[CALLERS];	/* a bit for each pair */

/* For the assertions alone: what is promised. */
bool is_open;				/* by the two exchanges */
byte pair_in_force;			/* of the present opening */
byte newest;				/* the greatest key so far */

/* These units are taken, and will be handed out under the pair in force. */
inline promise(first, end)
{
	assert(is_open);
	assert(end <= ceiling);
	assert(key(first, pair_in_force) > newest);
	newest = key(end, pair_in_force)
}

/* The keeper's stores, which open windows see as well. */
inline store_usable(unit)
{
	atomic {
		usable_until = unit;
		for (i : 0 .. CALLERS - 1) {
			if
			:: pairs_seen[i] != 0 -> usable_seen[i] = max(usable_seen[i], usable_until)
			:: else
			fi
		};
		i = 0
	}
}

inline store_pair(value)
{
	atomic {
		pair_bits = value;
		for (i : 0 .. CALLERS - 1) {
			if
			:: pairs_seen[i] != 0 -> pairs_seen[i] = pairs_seen[i] | (1 << value)
			:: else
			fi
		};
		i = 0
	}
}

/*---- generator_next(), take(), snowid_next_block() ----*/

#define window_begins \
	usable_seen[_pid] = usable_until; \
	pairs_seen[_pid] = 1 << pair_bits

active [CALLERS] proctype caller()
{
	byte opening1 = UNREAD;
	byte opening2 = UNREAD;
	byte pair1 = UNREAD;
	byte under;				/* the pair in force when the unit was taken */
	byte first;
	byte end;
#ifdef NO_SWAP
	byte last1;
#endif

again:
	do
	/* opening = g->opening; pg_read_barrier(); also after a swap that failed */
	:: atomic {
		opening1 = opening;
#ifdef NO_READ_BARRIER
		if
		:: pairs_seen[_pid] == 0 -> window_begins
		:: else
		fi
#else
#ifdef PAIR_READ_FIRST
		usable_seen[_pid] = usable_until;
		pairs_seen[_pid] = (pairs_seen[_pid] == 0 -> 1 << pair_bits : pairs_seen[_pid])
#else
#ifdef CEILING_READ_FIRST
		usable_seen[_pid] = max(usable_seen[_pid], usable_until);
		pairs_seen[_pid] = 1 << pair_bits
#else
		window_begins
#endif
#endif
#endif
		}
#if defined(NO_READ_BARRIER) || defined(PAIR_READ_FIRST) || defined(CEILING_READ_FIRST)
	:: atomic { opening1 == UNREAD -> window_begins }
#endif
#ifdef COMPARED_BEFORE
	:: atomic { opening1 != UNREAD && opening1 == opening -> opening2 = opening }
#endif
#ifdef NO_SWAP
	:: atomic { opening1 != UNREAD && last != CLOSED -> last1 = last }
#endif
	/*
	 * unit = Max(last + 1, now), or a block of units from there on, and
	 * pg_atomic_compare_exchange_u64(&g->last, &last, block.end)
	 */
	:: atomic {
		opening1 != UNREAD &&
#ifdef COMPARED_BEFORE
		opening2 != UNREAD &&
#endif
#ifdef NO_SWAP
		last1 != 0 && last1 < usable_seen[_pid] ->
		first = last1 + 1;
		last1 = 0;
#else
#ifdef NO_CEILING
		last < END ->
		usable_seen[_pid] = END;
#else
		last < usable_seen[_pid] ->
#endif
#ifdef NOT_ABOVE
		first = last;
#else
		first = last + 1;
#endif
#endif
		if
		:: first < usable_seen[_pid] -> first++
		:: true
		fi;
		end = first;
		if
#ifdef BLOCK_BEYOND
		:: end < END -> end++
#else
		:: end < usable_seen[_pid] -> end++
#endif
		:: true
		fi;
		last = end;
		under = pair_in_force;
		if
#ifdef NOT_COMPARED
		:: true -> promise(first, end)
#else
#ifdef COMPARED_BEFORE
		:: true -> promise(first, end)
#else
		:: opening == opening1 -> promise(first, end)
		:: else
#endif
#endif
		fi;
		/* pair_bits = g->pair_bits, at some moment of the window */
		if
		:: pairs_seen[_pid] & 1 -> pair1 = 0
		:: pairs_seen[_pid] & 2 -> pair1 = 1
		fi;
		first = 0;
		end = 0;
		usable_seen[_pid] = 0;
		pairs_seen[_pid] = 0;
		break }
	od;

#ifdef PAIR_READ_LAST
	opening2 = opening;
#endif
	/* g->opening == opening, and key_from_unit(): under the pair that it has */
	atomic {
#ifdef PAIR_READ_LAST
		pair1 = pair_bits;
#else
#ifdef NOT_COMPARED
		opening2 = opening1;
#else
#ifndef COMPARED_BEFORE
		opening2 = opening;
#endif
#endif
#endif
		assert(opening2 != opening1 || pair1 == under);
		opening1 = UNREAD;
		opening2 = UNREAD;
		pair1 = UNREAD;
		under = 0;
		goto again
	}
}

/*---- The keeper ----*/

/* ceiling_set(), XLogFlush(), and generator_grant() */
inline raise(unit)
{
#ifdef PUBLISHED_FIRST
	store_usable(unit);
	ceiling = unit;
#else
	ceiling = unit;
	store_usable(unit);
#endif
	unit = 0
}

inline generator_open()
{
	/* LWLockAcquire(generator_lock, LW_EXCLUSIVE) */
	atomic {
		if
#ifndef SAME_MS
		:: opening > 0 && pair != pair_bits -> resume_above = resume_above | MASK
#endif
		:: else
		fi;
		if
#ifdef NO_RESUME
		:: true -> resume_above = 0
#else
		:: forget -> resume_above = 0
		:: else
#endif
		fi
	}
#ifdef NO_OPEN_EXCHANGE
	exchange_open();
#endif
#ifdef NO_WRITE_BARRIER
	opening++;
	store_pair(pair);
#else
#ifndef PAIR_LATE
	store_pair(pair);
#endif
	/* pg_write_barrier() */
#if !defined(NOT_COUNTED) && !defined(COUNTED_LATE)
	opening++;
#endif
#endif
	/* LWLockRelease(generator_lock); pg_atomic_exchange_u64(&generator->last, last) */
#ifndef NO_OPEN_EXCHANGE
	exchange_open();
#endif
#ifdef COUNTED_LATE
	opening++;
#endif
#ifdef PAIR_LATE
	store_pair(pair);
#endif
	opened++
}

inline exchange_open()
{
	atomic {
		last = resume_above;
		resume_above = 0;
		is_open = true;
		pair_in_force = pair;
		if
		:: forget -> newest = 0; forget = false		/* order is given up */
		:: else
		fi
	}
}

/* Keeps the highest unit that was ever taken: resume_above. */
inline generator_close()
{
#ifdef NO_CLOSE_EXCHANGE
	resume_above = last;
	atomic { last = CLOSED; is_open = false }
#else
	/* pg_atomic_exchange_u64(&generator->last, GATE_CLOSED) */
	atomic { resume_above = last; last = CLOSED; is_open = false }
#endif
}

/* Stores the exact last value. */
inline ceiling_leave()
{
	atomic {
		ceiling = resume_above;
		assert(unit_of(newest) <= ceiling)
	}
}

/* generator_advance_end(): keys go on above the unit, whatever their pair */
inline generator_advance_end()
{
#ifdef ADVANCE_STORES
	if
	:: last < until -> last = until
	:: else
	fi;
#else
	atomic {
		last = max(last, until)		/* in a loop of compare-and-swap */
	}
#endif
}

active proctype keeper()
{
	byte i;
	byte opened;
	byte pair;
	byte begin;
	byte until;
	bool forget;
	byte advanced;
	byte left;				/* the other pair's ceiling: floors are above both */

	do
	:: opened < OPENINGS ->
		/* open_gate(): the same pair or another one, whose keys are lower */
		atomic {
			if
			:: pair = 1
			:: opened > 0 -> pair = 0
			fi;
			begin = resume_above;
			if
			:: opened > 0 && pair != pair_bits -> left = ceiling; ceiling = 0
			:: opened > 0 && pair != pair_bits -> ceiling = 0; forget = true; begin = 0
			:: else
			fi
		}
#ifdef OLD_GRANT
		begin = max(begin, usable_until);
#else
		/* generator_grant(begin, begin) */
		store_usable(begin);
#endif
		/* grant(): much, little, or nothing, for the lease has ended */
		if
		:: begin + 4 <= END -> until = (begin + 4) | MASK; raise(until)
		:: begin + 2 <= END -> until = (begin + 2) | MASK; raise(until)
		:: true
		fi;
		begin = 0;
		generator_open();

		do
		/* grant() */
		:: usable_until + 2 <= END ->
			until = (usable_until + 2) | MASK;
			raise(until)
#ifdef LOWERED_WHILE_OPEN
		/* generator_grant() of what is left of the lease */
		:: ceiling > last ->
			until = last;
			ceiling = until;
			store_usable(until);
			until = 0
#endif
		/* advance() */
		:: advanced < ADVANCES ->
			atomic {
				advanced++;
				if
				:: until = 3
				:: until = END - 2
				fi
			}
			begin = until;
			if
#ifndef ADVANCE_NOT_DURABLE
			:: until > usable_until -> raise(until)
#endif
			:: else
			fi;
			until = begin;
			begin = 0;
			generator_advance_end();
			atomic {
				newest = max(newest, key(until, 1));
				assert(until <= max(ceiling, left));
				until = 0
			}
		:: break
		od;

		/* close_gate() */
#ifdef LEFT_FIRST
		resume_above = last;
		ceiling_leave();
		generator_close();
#else
		generator_close();
		ceiling_leave();
#endif
#ifndef OLD_GRANT
		/* generator_grant(last, last) */
		store_usable(resume_above)
#else
		skip
#endif
	:: else -> break
	od
}
