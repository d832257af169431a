/*
 * opening.c
 *		May keys be made, with which pair, and above what?  All combinations of the
 *		facts are decided by src/keeper/opening.c, and each decision is held against
 *		what must be so, which is written here a second time and in another way.
 *
 *	test/opening [first]
 *
 * Linked with that object file alone.  Prints a line for each property, which begins
 * with "not so: " where it does not hold, with the facts of the first such decision;
 * "first": ends there.  test/opening_mutations takes out each condition once.
 */
#include "postgres.h"

#include "keeper/opening.h"

#undef printf

/*---- The facts ----*/

/* Times: now, and around it. */
#define NOW 10000
#define WAIT 50					/* how long callers wait beyond max_lead */

/* A fact and the values that it may have; ends with the size 0. */
typedef struct Domain
{
	const char *name;
	size_t		offset;
	size_t		size;
	int			count;
	int64		values[10];
} Domain;

static Facts facts;

#define COUNT(...) ((int) (sizeof((int64[]) {__VA_ARGS__}) / sizeof(int64)))
#define FACT(field, ...) \
	{#field, offsetof(Facts, field), sizeof(facts.field), COUNT(__VA_ARGS__), {__VA_ARGS__}}

/* Source, server, gate and file: with few times. */
static const Domain who[] = {
	FACT(from_registry, 0, 1),
	FACT(source, GATE_MAY_OPEN, GATE_NO_WORKER_ID, GATE_CLAIM, GATE_CLAIM_LOST, GATE_CLAIM_REFUSED),
	FACT(recovery, 0, 1),
	FACT(believed, 0, 1),
	FACT(range, RANGE_GOOD, RANGE_BEFORE_EPOCH, RANGE_ENDS_SOON, RANGE_OVER),
	FACT(is_open, 0, 1),
	FACT(is_ours, 0, 1),
	FACT(other_pair, 0, 1),
	FACT(file, GATE_MAY_OPEN, GATE_FILE, GATE_FILE_DAMAGED),
	FACT(left_source, 0, 1),
	FACT(remembers, 0, 1),
	FACT(same_terms, 0, 1),
	FACT(stage, PAIR_NONE, PAIR_FOUND, PAIR_ASKED, PAIR_FAILED, PAIR_KNOWN, PAIR_IN_USE),
	FACT(own_ms, 0, NOW - 10),
	FACT(other_layout_ms, 0, NOW - 20),
	FACT(consent, 0, 1),
	FACT(found_ms, NOW - 200, NOW + 1),
	{NULL, 0, 0, 0, {0}}
};

/* From where on, if nothing else is in the way. */
static const Domain where[] = {
	FACT(from_registry, 0, 1),
	FACT(range, RANGE_GOOD, RANGE_ENDS_SOON),
	FACT(is_open, 0, 1),
	FACT(other_pair, 0, 1),
	FACT(remembers, 0, 1),
	FACT(stage, PAIR_KNOWN, PAIR_IN_USE),
	FACT(claim_floor_ms, 0, NOW + 110),
	FACT(last_ms, NOW - 10, NOW + 150, NOW + 151, NOW + 500),
	FACT(known_ms, 0, NOW + 140, NOW + 200),
	FACT(advanced_ms, 0, NOW + 150, NOW + 151, NOW + 1000, NOW + 1001),
	FACT(own_ms, 0, NOW - 100, NOW + 150, NOW + 151, NOW + 300),
	FACT(others_ms, 0, NOW - 100, NOW + 120),
	FACT(other_layout_ms, 0, NOW - 100, NOW + 130, NOW + 400),
	FACT(is_above, 0, 1),
	FACT(consent, 0, 1),
	FACT(behind_ms, BEHIND_MS - 1, BEHIND_MS, 1000),
	{NULL, 0, 0, 0, {0}}
};

/* When, if others may have used the pair. */
static const Domain when[] = {
	FACT(from_registry, 0, 1),
	FACT(believed, 0, 1),
	FACT(recovery, 0, 1),
	FACT(is_open, 0, 1),
	FACT(is_ours, 0, 1),
	FACT(remembers, 0, 1),
	FACT(same_terms, 0, 1),
	FACT(stage, PAIR_KNOWN, PAIR_IN_USE),
	FACT(claim_floor_ms, 0, NOW + 110),
	FACT(max_lead_ms, 0, 100),
	FACT(own_ms, 0, NOW - 100, NOW + 10),
	FACT(known_ms, 0, NOW + 50, NOW + 140),
	FACT(found_ms, NOW - 500, NOW - 101, NOW - 100, NOW - 50, NOW, NOW + 1),
	FACT(waited_ms, 0, 50, 100, 101, 500),
	{NULL, 0, 0, 0, {0}}
};

static void
set(const Domain *domain, int64 value)
{
	char	   *place = (char *) &facts + domain->offset;

	if (domain->size == sizeof(bool))
		*(bool *) place = value != 0;
	else if (domain->size == sizeof(int))
		*(int *) place = (int) value;
	else
		*(int64 *) place = value;
}

static int64
get(const Domain *domain)
{
	const char *place = (const char *) &facts + domain->offset;

	return domain->size == sizeof(bool) ? *(const bool *) place :
		domain->size == sizeof(int) ? *(const int *) place : *(const int64 *) place;
}

/* If nothing is wrong. */
static void
begin(int64 patience_ms)
{
	memset(&facts, 0, sizeof(facts));
	facts.source = GATE_MAY_OPEN;
	facts.believed = true;
	facts.now_ms = NOW;
	facts.max_lead_ms = 100;
	facts.reach_ms = NOW + facts.max_lead_ms + WAIT;
	facts.furthest_ms = NOW + 1000;
	facts.range = RANGE_GOOD;
	facts.is_ours = true;
	facts.file = GATE_MAY_OPEN;
	facts.same_terms = true;
	facts.waited_ms = 1000;
	facts.patience_ms = patience_ms;
}

/*---- What must be so ----*/

static Decision d;

/* May keys be made, once that is done? */
static bool
is_open_then(void)
{
	bool		as_it_is = d.action == OPENING_GIVE_UP || d.action == OPENING_LOOK_UP ||
	d.action == OPENING_AWAIT;

	if (d.action == OPENING_CLOSE)
		return false;
	return as_it_is ? facts.is_open && d.reason == GATE_OPEN : true;
}

static bool
is_granted_then(void)
{
	return is_open_then() && (d.action == OPENING_TAKE_OVER || d.action == OPENING_STAY_OPEN ||
							  d.action == OPENING_OPEN);
}

/* Is it by the settings, or by Redis, and in the file, that this pair was the last one? */
static bool
is_new_pair(void)
{
	return !(facts.remembers && facts.own_ms > 0);
}

/* Was another layout used after this one, as far as the ceilings say? */
static bool
other_layout_is_last(void)
{
	if (facts.other_layout_ms == 0 || facts.others_ms > facts.other_layout_ms)
		return false;
	return facts.own_ms <= facts.other_layout_ms || facts.own_ms > facts.reach_ms;
}

/* Has this layout the last keys?  No, if nobody has made any. */
static bool
this_layout_is_last(void)
{
	return !other_layout_is_last() &&
		(facts.others_ms > 0 || (facts.own_ms > 0 && facts.own_ms <= facts.reach_ms));
}

/* Is nothing in the way of a look-up? */
static bool
may_be_asked_for(void)
{
	return !facts.recovery && facts.source == GATE_MAY_OPEN && facts.believed &&
		facts.file == GATE_MAY_OPEN && !facts.left_source;
}

/* How a property turned out for a decision. */
typedef enum Result
{
	NOTHING,					/* it says nothing of it */
	YES,
	NO
} Result;

/* If "when", then "must". */
static Result
if_so(bool when, bool must)
{
	return !when ? NOTHING : must ? YES : NO;
}

static Result
no_key_in_recovery(void)
{
	return if_so(facts.recovery, !is_open_then());
}

static Result
no_key_without_a_claim(void)
{
	return if_so(facts.source != GATE_MAY_OPEN, !is_open_then());
}

static Result
no_key_with_a_pair_of_another(void)
{
	return if_so(facts.is_open && !facts.is_ours, !is_open_then());
}

static Result
no_key_with_a_claim_of_a_former_source(void)
{
	return if_so(facts.left_source && facts.file == GATE_MAY_OPEN, !is_open_then() || !facts.is_open);
}

static Result
no_key_without_the_file(void)
{
	return if_so(facts.file != GATE_MAY_OPEN, !is_open_then());
}

static Result
in_the_file_first(void)
{
	return if_so(d.action == OPENING_OPEN, d.remember == !(facts.remembers && facts.same_terms));
}

static Result
no_grant_by_a_wrong_clock(void)
{
	return if_so(!facts.believed, !is_granted_then() && d.action != OPENING_LOOK_UP);
}

static Result
a_wrong_clock_opens_nothing(void)
{
	return if_so(!facts.believed && is_open_then(), facts.is_open && facts.is_ours);
}

static Result
a_wrong_clock_closes_nothing(void)
{
	return if_so(!facts.believed && facts.is_open && facts.is_ours && facts.file == GATE_MAY_OPEN &&
				 facts.source == GATE_MAY_OPEN && !facts.recovery && !facts.left_source,
				 d.action == OPENING_HOLD && d.detail == DETAIL_CLOCK);
}

static Result
above_every_ceiling(void)
{
	return if_so(d.action == OPENING_OPEN,
				 d.floor_ms >= facts.own_ms && d.floor_ms >= facts.others_ms &&
				 d.floor_ms >= facts.claim_floor_ms);
}

static Result
above_what_the_file_knows(void)
{
	return if_so(d.action == OPENING_OPEN, d.floor_ms >= (d.leave_layouts ? facts.now_ms : facts.known_ms));
}

static Result
not_above_a_former_layouts_ceiling(void)
{
	return if_so(d.action == OPENING_OPEN && d.leave_layouts && facts.known_ms > facts.reach_ms &&
				 facts.own_ms <= facts.reach_ms, d.floor_ms < facts.known_ms);
}

static Result
above_an_advance(void)
{
	return if_so(d.action == OPENING_OPEN && !d.leave_layouts && facts.advanced_ms <= facts.furthest_ms,
				 d.floor_ms >= facts.advanced_ms);
}

static Result
an_advance_that_is_too_far_holds_no_other_id(void)
{
	return if_so(d.action == OPENING_OPEN && facts.advanced_ms > facts.furthest_ms &&
				 facts.own_ms <= facts.reach_ms && facts.known_ms <= facts.reach_ms,
				 d.floor_ms <= facts.reach_ms);
}

static Result
order_is_given_up_for_another_pair_only(void)
{
	return if_so(d.action == OPENING_OPEN,
				 d.forget_order == (facts.other_pair && facts.last_ms > facts.reach_ms));
}

static Result
another_layout_needs_consent(void)
{
	return if_so((d.action == OPENING_OPEN || d.action == OPENING_TAKE_OVER) && other_layout_is_last(),
				 facts.consent && facts.is_above && d.leave_layouts);
}

static Result
only_another_layout_is_left(void)
{
	return if_so(d.leave_layouts, other_layout_is_last() && facts.consent && facts.is_above);
}

static Result
a_range_that_ends_is_not_begun(void)
{
	return if_so((d.action == OPENING_OPEN || d.action == OPENING_TAKE_OVER) && facts.range != RANGE_GOOD,
				 facts.range == RANGE_ENDS_SOON && this_layout_is_last());
}

static Result
a_new_pair_waits(void)
{
	return if_so(d.action == OPENING_OPEN && is_new_pair(),
				 facts.now_ms > facts.found_ms + facts.max_lead_ms &&
				 facts.waited_ms > facts.max_lead_ms &&
				 d.floor_ms >= facts.found_ms + facts.max_lead_ms &&
				 d.floor_ms >= facts.now_ms - facts.waited_ms + facts.max_lead_ms);
}

static Result
found_is_the_highest_reading(void)
{
	int64		reading = facts.now_ms - facts.waited_ms;
	bool		is_higher = reading > facts.found_ms && facts.believed && !facts.is_open;

	return if_so(true, d.found_ms == (is_higher ? reading : facts.found_ms));
}

static Result
the_ceilings_are_known(void)
{
	return if_so(is_granted_then(), facts.stage == PAIR_KNOWN || facts.stage == PAIR_IN_USE);
}

static Result
what_is_not_open_is_opened(void)
{
	return if_so(is_open_then(), facts.is_open == (d.action != OPENING_OPEN));
}

static Result
a_successor_raises_the_ceiling_first(void)
{
	return if_so(facts.is_open && is_granted_then(),
				 d.action == (facts.stage == PAIR_IN_USE ? OPENING_STAY_OPEN : OPENING_TAKE_OVER));
}

/*
 * Is the reason that callers get a fact, which passes or which a user can act on?
 * The gate would not be closed for anything else.
 */
static Result
a_reason_is_a_fact(void)
{
	bool		is_fact = false;

	switch (d.detail)
	{
		case DETAIL_NONE:
			is_fact = d.reason == GATE_RECOVERY ? facts.recovery :
				d.reason == GATE_BEFORE_EPOCH ? facts.range == RANGE_BEFORE_EPOCH :
				d.reason == GATE_STARTING && d.action != OPENING_CLOSE && facts.is_open &&
				(facts.left_source || !facts.is_ours);
			break;
		case DETAIL_SOURCE:
			is_fact = d.reason == facts.source;
			break;
		case DETAIL_FILE:
			is_fact = d.reason == facts.file;
			break;
		case DETAIL_LOOK_UP:
			is_fact = d.reason == GATE_CEILING && facts.stage == PAIR_FAILED && !facts.is_open;
			break;
		case DETAIL_CLOCK:
			is_fact = d.reason == GATE_STARTING && !facts.believed;
			break;
		case DETAIL_RANGE:
			is_fact = d.reason == GATE_LAYOUT &&
				(facts.range == RANGE_OVER || facts.range == RANGE_ENDS_SOON);
			break;
		case DETAIL_LAYOUT:
			is_fact = other_layout_is_last() &&
				d.reason == (facts.is_above ? GATE_LAYOUT_CONSENT : GATE_LAYOUT) &&
				!(facts.is_above && facts.consent);
			break;
		case DETAIL_WAIT:
			is_fact = d.reason == GATE_STARTING && is_new_pair() && !facts.is_open &&
				d.opens_ms >= facts.now_ms && d.opens_ms <= facts.now_ms + facts.max_lead_ms;
			break;
		case DETAIL_BEHIND:
			is_fact = d.reason == GATE_BEHIND && d.may_move && d.end_ms > facts.reach_ms &&
				(!facts.is_open || facts.behind_ms >= BEHIND_MS);
			break;
	}
	return if_so(d.reason != GATE_OPEN || d.action == OPENING_CLOSE, d.reason != GATE_OPEN && is_fact);
}

/* Of an open gate, nothing is decided again that was decided when it was opened. */
static Result
what_is_open_stays_open(void)
{
	return if_so(facts.is_open && facts.is_ours && facts.stage == PAIR_IN_USE && may_be_asked_for() &&
				 !(d.may_move && facts.last_ms > facts.reach_ms),
				 d.action == OPENING_STAY_OPEN);
}

static Result
a_standby_says_so(void)
{
	return if_so(facts.recovery && facts.source != GATE_CLAIM_LOST &&
				 !(facts.left_source && facts.file == GATE_MAY_OPEN),
				 d.reason == (facts.from_registry && facts.file != GATE_MAY_OPEN ? facts.file : GATE_RECOVERY));
}

static Result
a_claim_that_was_lost_goes(void)
{
	return if_so(facts.source == GATE_CLAIM_LOST,
				 d.reason == GATE_CLAIM_LOST &&
				 d.action == (facts.file == GATE_MAY_OPEN ? OPENING_GIVE_UP : OPENING_CLOSE));
}

static Result
no_other_claim_goes(void)
{
	return if_so(d.action == OPENING_GIVE_UP, facts.file == GATE_MAY_OPEN &&
				 (facts.source == GATE_CLAIM_LOST || facts.left_source));
}

static Result
asked_for_when_unknown_or_void(void)
{
	bool		is_unknown = facts.stage == PAIR_NONE || facts.stage == PAIR_FOUND;
	bool		is_void = facts.is_open ? !facts.is_ours : facts.now_ms < facts.found_ms;

	return if_so(may_be_asked_for() || d.action == OPENING_LOOK_UP,
				 (d.action == OPENING_LOOK_UP) == (may_be_asked_for() && (is_unknown || is_void)));
}

static Result
an_answer_is_awaited(void)
{
	return if_so(d.action == OPENING_AWAIT, facts.stage == PAIR_ASKED && d.reason == GATE_OPEN);
}

static Result
an_open_gate_is_held_for_a_reason(void)
{
	return if_so(d.action == OPENING_HOLD, d.detail == DETAIL_CLOCK ? !facts.believed :
				 d.detail == DETAIL_LOOK_UP && facts.stage == PAIR_FAILED);
}

static Result
a_standby_remembers_its_claim_in_advance(void)
{
	return if_so(d.action == OPENING_CLOSE,
				 d.remember == (d.reason == GATE_RECOVERY && facts.from_registry && facts.believed &&
								facts.source == GATE_MAY_OPEN && !(facts.remembers && facts.same_terms)));
}

static Result
above_what_others_made_with_it(void)
{
	return if_so(d.action == OPENING_CLOSE && d.remember,
				 d.floor_ms >= facts.claim_floor_ms &&
				 (facts.remembers || d.floor_ms >= facts.now_ms + facts.max_lead_ms));
}

static Result
a_standby_that_remembers_begins_at_its_floor(void)
{
	return if_so(d.action == OPENING_CLOSE && d.remember && facts.remembers,
				 d.floor_ms == facts.claim_floor_ms);
}

static Result
another_id_is_claimed_from_the_registry_only(void)
{
	return if_so(true, d.may_move == (facts.from_registry && facts.advanced_ms <= facts.reach_ms));
}

static Result
the_clock_is_behind_its_keys(void)
{
	return if_so(true, d.behind == (d.is_known && d.may_move && d.end_ms > facts.reach_ms));
}

static Result
a_clock_that_is_behind_closes_the_gate(void)
{
	return if_so(d.behind, (d.detail == DETAIL_BEHIND) == (!facts.is_open || facts.behind_ms >= BEHIND_MS));
}

static Result
an_id_is_left_after_a_while(void)
{
	return if_so(true, d.unwanted == (d.behind && facts.behind_ms >= facts.patience_ms));
}

static Result
known_once_the_ceilings_are(void)
{
	bool		is_void = facts.is_open ? !facts.is_ours : facts.now_ms < facts.found_ms;
	bool		by_layout = d.detail == DETAIL_RANGE || d.detail == DETAIL_LAYOUT ||
	d.reason == GATE_BEFORE_EPOCH;

	return if_so(true, d.is_known == (may_be_asked_for() && !is_void && !by_layout &&
									  (facts.stage == PAIR_KNOWN || facts.stage == PAIR_IN_USE)));
}

static Result
the_keys_end_there(void)
{
	return if_so(d.is_known, facts.is_open ? d.end_ms == facts.last_ms :
				 d.end_ms >= facts.own_ms && d.end_ms >= facts.others_ms &&
				 d.end_ms >= facts.claim_floor_ms &&
				 (d.leave_layouts || d.end_ms >= facts.known_ms));
}

/*---- All of it ----*/

typedef struct Property
{
	Result		(*holds) (void);
	const char *what;
} Property;

static const Property properties[] = {
	{no_key_in_recovery, "no key is made in recovery"},
	{no_key_without_a_claim, "no key is made without a claim"},
	{no_key_with_a_pair_of_another, "no key is made with a claim that is not wanted any more"},
	{no_key_with_a_claim_of_a_former_source, "a claim of another source is given up first"},
	{no_key_without_the_file, "no key is made without the state file"},
	{in_the_file_first, "a claim is in the state file before its first key, and written once"},
	{no_grant_by_a_wrong_clock, "nothing is granted or looked up by a clock that is not believed"},
	{a_wrong_clock_opens_nothing, "a clock that is not believed opens nothing"},
	{a_wrong_clock_closes_nothing, "a clock that is not believed does not close an open gate"},
	{above_every_ceiling, "keys begin above every known ceiling"},
	{above_what_the_file_knows, "keys begin above what the state file knows"},
	{not_above_a_former_layouts_ceiling, "a former layout's ceiling in the state file does not count"},
	{above_an_advance, "keys with another worker ID begin above snowid_advance()"},
	{an_advance_that_is_too_far_holds_no_other_id, "an advance by a clock that was wrong does not count"},
	{order_is_given_up_for_another_pair_only, "order is given up for another pair's keys out of reach only"},
	{another_layout_needs_consent, "another layout needs consent, and keys above"},
	{only_another_layout_is_left, "only another layout is left, and only with consent"},
	{a_range_that_ends_is_not_begun, "a layout's range that ends soon is not begun"},
	{a_new_pair_waits, "a pair that is new to the server waits for max_lead"},
	{found_is_the_highest_reading, "a new pair waits from the highest reading of a believed clock on"},
	{the_ceilings_are_known, "the ceilings are known before anything is granted"},
	{what_is_not_open_is_opened, "a closed gate is opened, and an open one stays open"},
	{a_successor_raises_the_ceiling_first, "a successor raises the ceiling first"},
	{a_reason_is_a_fact, "a gate is closed for a reason that is a fact"},
	{what_is_open_stays_open, "an open gate is not closed for what its opening decided"},
	{a_standby_says_so, "a standby says that it is one, or what is wrong with the file that it needs"},
	{a_claim_that_was_lost_goes, "a claim that was lost closes the gate, and goes"},
	{no_other_claim_goes, "no other claim goes"},
	{asked_for_when_unknown_or_void, "ceilings are looked up if unknown or void, and only then"},
	{an_answer_is_awaited, "an answer is awaited if it was asked for"},
	{an_open_gate_is_held_for_a_reason, "an open gate gets no grant for a reason that is a fact"},
	{a_standby_remembers_its_claim_in_advance, "a standby remembers the claim that it will use"},
	{above_what_others_made_with_it, "with a floor above what others made with it"},
	{a_standby_that_remembers_begins_at_its_floor, "a standby that knows the claim has no other floor"},
	{another_id_is_claimed_from_the_registry_only, "another ID is claimed from the registry only, above an advance"},
	{the_clock_is_behind_its_keys, "the clock is behind if keys are out of reach"},
	{a_clock_that_is_behind_closes_the_gate, "a clock that is behind closes the gate, an open one after a while"},
	{an_id_is_left_after_a_while, "an ID is left when the clock has been behind for a while"},
	{known_once_the_ceilings_are, "whether it is behind is known once the ceilings are"},
	{the_keys_end_there, "the end of the keys is that of all known ones"}
};

/* Of how many decisions it says something; and where it did not hold. */
static int64 counts[lengthof(properties)];
static bool fails[lengthof(properties)];

static void
say(const Domain *domain)
{
	for (; domain->name; domain++)
		printf("  %s = %lld\n", domain->name, (long long) get(domain));
	printf("  action %d, reason %d, detail %d, floor %lld, opens at %lld, end %lld, %s%s%s%s%s\n",
		   d.action, d.reason, d.detail, (long long) d.floor_ms, (long long) d.opens_ms,
		   (long long) d.end_ms, d.remember ? "remember " : "", d.leave_layouts ? "leave_layouts " : "",
		   d.forget_order ? "forget_order " : "", d.behind ? "behind " : "", d.unwanted ? "unwanted" : "");
}

/* Goes through all combinations; returns their number. */
static int64
go_through(const Domain *domains, bool first)
{
	int			at[lengthof(who) + lengthof(where) + lengthof(when)] = {0};
	int64		n = 0;
	int			i;

	for (i = 0; domains[i].name; i++)
		set(&domains[i], domains[i].values[0]);
	do
	{
		d = opening_decide(&facts);
		n++;
		for (i = 0; i < (int) lengthof(properties); i++)
		{
			Result		result = properties[i].holds();

			counts[i] += result != NOTHING;
			if (result != NO || fails[i])
				continue;
			fails[i] = true;
			printf("not so: %s\n", properties[i].what);
			say(domains);
			if (first)
				exit(1);
		}
		for (i = 0; domains[i].name; i++)
		{
			at[i] = (at[i] + 1) % domains[i].count;
			set(&domains[i], domains[i].values[at[i]]);
			if (at[i] != 0)
				break;
		}
	} while (domains[i].name);
	return n;
}

int
main(int argc, char **argv)
{
	bool		first = argc > 1 && strcmp(argv[1], "first") == 0;
	bool		failed = false;
	int64		n;

	begin(BEHIND_MS);
	n = go_through(who, first);
	begin(1000);
	n += go_through(where, first);
	begin(BEHIND_MS);
	n += go_through(when, first);
	for (int i = 0; i < (int) lengthof(properties); i++)
	{
		failed |= fails[i] || counts[i] == 0;
		if (counts[i] > 0 && !fails[i])
			printf("%s\n", properties[i].what);
		else if (!fails[i])
			printf("not so: nothing was said of this: %s\n", properties[i].what);
	}
	printf("%lld combinations of the facts\n", (long long) n);
	return failed ? 1 : 0;
}
