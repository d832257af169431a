/*
 * opening.c
 *		May keys be made, with which pair, and above what?  All combinations of the
 *		facts are decided by src/keeper/opening.c, and each decision is held against
 *		what must be so, which is written here a second time and in another way.
 *
 *	test/lib/opening [first]
 *
 * Linked with that object file alone.  Prints a line for each property, which begins
 * with "not so: " where it does not hold, with the facts of the first such decision;
 * "first": ends there.  test/release/mutations takes out each condition once.
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

#define ALL_FILES FILE_UNUSABLE, FILE_DAMAGED, FILE_WITHOUT_CLAIM, FILE_OTHER_CLAIM, FILE_WANTED_CLAIM
#define ALL_GATES SHUT, SHUT_AFTER_OTHER, OPEN_FOR_OTHER, OPEN_FOR_WANTED
#define ALL_LAYOUTS LAYOUT_OF_NO_KEYS, LAYOUT_IS_OURS, LAYOUT_IS_BELOW, LAYOUT_IS_ABOVE

/* Source, server, gate, file and layout: with few times. */
static const Domain who[] = {
	FACT(from_registry, 0, 1),
	FACT(source, NO_REASON, GATE_NO_WORKER_ID, GATE_CLAIM, GATE_CLAIM_LOST, GATE_CLAIM_REFUSED),
	FACT(recovery, 0, 1),
	FACT(believed, 0, 1),
	FACT(range, RANGE_GOOD, RANGE_BEFORE_EPOCH, RANGE_ENDS_SOON),
	FACT(gate, ALL_GATES),
	FACT(file, ALL_FILES),
	FACT(layout, ALL_LAYOUTS),
	FACT(consent, 0, 1),
	FACT(own_ms, 0, NOW - 10),
	FACT(claim_floor_ms, 0, NOW + 110),
	FACT(others_until_ms, NOW - 200, NOW),
	FACT(behind_ms, 0, BEHIND_MS),
	FACT(last_ms, NOW - 10, NOW + 151),
	{NULL, 0, 0, 0, {0}}
};

/* From where on, if nothing else is in the way. */
static const Domain where[] = {
	FACT(from_registry, 0, 1),
	FACT(gate, ALL_GATES),
	FACT(file, FILE_WITHOUT_CLAIM, FILE_WANTED_CLAIM),
	FACT(layout, ALL_LAYOUTS),
	FACT(consent, 0, 1),
	FACT(claim_floor_ms, 0, NOW + 110),
	FACT(last_ms, NOW - 10, NOW + 150, NOW + 151, NOW + 500),
	FACT(known_ms, 0, NOW + 140, NOW + 200),
	FACT(advanced_ms, 0, NOW + 150, NOW + 151, NOW + 1000),
	FACT(own_ms, 0, NOW - 100, NOW + 150, NOW + 151, NOW + 300),
	FACT(others_ms, 0, NOW - 100, NOW + 120),
	FACT(behind_ms, 0, BEHIND_MS - 1, BEHIND_MS, 1000),
	{NULL, 0, 0, 0, {0}}
};

/* When, if others may have used the pair. */
static const Domain when[] = {
	FACT(from_registry, 0, 1),
	FACT(believed, 0, 1),
	FACT(recovery, 0, 1),
	FACT(gate, ALL_GATES),
	FACT(file, ALL_FILES),
	FACT(claim_floor_ms, 0, NOW + 110),
	FACT(max_lead_ms, 0, 100),
	FACT(own_ms, 0, NOW - 100, NOW + 10),
	FACT(known_ms, 0, NOW + 50, NOW + 140),
	FACT(others_until_ms, NOW - 500, NOW - 101, NOW - 100, NOW - 99, NOW - 1, NOW),
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
	facts.source = NO_REASON;
	facts.believed = true;
	facts.now_ms = NOW;
	facts.max_lead_ms = 100;
	facts.reach_ms = NOW + facts.max_lead_ms + WAIT;
	facts.range = RANGE_GOOD;
	facts.layout = LAYOUT_IS_OURS;
	facts.file = FILE_WANTED_CLAIM;
	facts.others_until_ms = NOW - 1000;
	facts.patience_ms = patience_ms;
}

/*---- What must be so ----*/

static Decision d;

static bool
was_open(void)
{
	return facts.gate == OPEN_FOR_OTHER || facts.gate == OPEN_FOR_WANTED;
}

static bool
is_usable(void)
{
	return facts.file != FILE_UNUSABLE && facts.file != FILE_DAMAGED;
}

/* May keys be made, once that is done? */
static bool
is_open_then(void)
{
	if (d.action == OPENING_CLOSE)
		return false;
	return d.action == OPENING_GIVE_UP ? was_open() && d.reason == NO_REASON : true;
}

static bool
is_granted_then(void)
{
	return d.action == OPENING_STAY_OPEN || d.action == OPENING_OPEN;
}

/* May others have had this pair since this server's last key with it? */
static bool
is_new_pair(void)
{
	return facts.file != FILE_WANTED_CLAIM || facts.own_ms == 0;
}

/* Is the claim in the file not to be resumed any more? */
static bool
is_to_go(void)
{
	return facts.file == FILE_OTHER_CLAIM ||
		(facts.file == FILE_WANTED_CLAIM && facts.recovery && !facts.from_registry);
}

static bool
is_other_layout(void)
{
	return facts.layout == LAYOUT_IS_BELOW || facts.layout == LAYOUT_IS_ABOVE;
}

/* Is nothing in the way but ceilings, layout and time? */
static bool
may_be_opened(void)
{
	return !facts.recovery && facts.source == NO_REASON && facts.believed &&
		is_usable() && facts.file != FILE_OTHER_CLAIM && facts.gate != OPEN_FOR_OTHER;
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
	return if_so(facts.source != NO_REASON, !is_open_then());
}

static Result
no_key_with_a_claim_that_is_not_wanted(void)
{
	return if_so(facts.gate == OPEN_FOR_OTHER || facts.file == FILE_OTHER_CLAIM, !is_open_then());
}

static Result
no_key_without_the_file(void)
{
	return if_so(!is_usable(), !is_open_then());
}

static Result
a_wrong_clock_opens_and_grants_nothing(void)
{
	return if_so(!facts.believed, !is_granted_then() && (!is_open_then() || facts.gate == OPEN_FOR_WANTED));
}

static Result
a_wrong_clock_closes_nothing(void)
{
	return if_so(!facts.believed && facts.gate == OPEN_FOR_WANTED && is_usable() &&
				 facts.file != FILE_OTHER_CLAIM && facts.source == NO_REASON && !facts.recovery,
				 d.action == OPENING_HOLD && d.detail == DETAIL_CLOCK);
}

static Result
above_every_ceiling(void)
{
	return if_so(d.action == OPENING_OPEN && facts.layout != LAYOUT_IS_BELOW,
				 d.floor_ms >= facts.own_ms && d.floor_ms >= facts.others_ms);
}

static Result
above_the_registrys_floor(void)
{
	return if_so(d.action == OPENING_OPEN, d.floor_ms >= facts.claim_floor_ms);
}

static Result
above_what_the_file_knows(void)
{
	return if_so(d.action == OPENING_OPEN && facts.layout != LAYOUT_IS_BELOW,
				 d.floor_ms >= facts.known_ms && d.floor_ms >= facts.advanced_ms);
}

/* The ceilings of another layout, in the WAL or in the file, may be far ahead. */
static Result
a_new_layout_begins_now(void)
{
	return if_so(d.action == OPENING_OPEN && facts.layout == LAYOUT_IS_BELOW,
				 d.floor_ms == Max(Max(facts.claim_floor_ms, facts.now_ms), d.opens_ms));
}

static Result
order_is_given_up_for_another_pair_only(void)
{
	return if_so(d.action == OPENING_OPEN,
				 d.forget_order == (facts.gate == SHUT_AFTER_OTHER && facts.last_ms > facts.reach_ms));
}

static Result
another_layout_needs_consent(void)
{
	return if_so(d.action == OPENING_OPEN && is_other_layout(),
				 facts.layout == LAYOUT_IS_BELOW && facts.consent);
}

static Result
a_range_that_ends_is_not_begun(void)
{
	return if_so(d.action == OPENING_OPEN && facts.range != RANGE_GOOD,
				 facts.range == RANGE_ENDS_SOON && facts.layout == LAYOUT_IS_OURS);
}

static Result
a_new_pair_waits(void)
{
	return if_so(d.action == OPENING_OPEN && is_new_pair(),
				 facts.now_ms > facts.others_until_ms + facts.max_lead_ms &&
				 d.floor_ms >= facts.others_until_ms + facts.max_lead_ms);
}

static Result
no_other_pair_waits(void)
{
	return if_so(d.detail == DETAIL_WAIT, is_new_pair());
}

static Result
what_is_not_open_is_opened(void)
{
	return if_so(is_open_then(), was_open() == (d.action != OPENING_OPEN));
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
				d.reason == GATE_STARTING && was_open() &&
				(is_to_go() || facts.gate == OPEN_FOR_OTHER);
			break;
		case DETAIL_SOURCE:
			is_fact = d.reason == facts.source;
			break;
		case DETAIL_FILE:
			is_fact = facts.file == FILE_DAMAGED ? d.reason == GATE_FILE_DAMAGED :
				facts.file == FILE_UNUSABLE && d.reason == GATE_FILE;
			break;
		case DETAIL_CLOCK:
			is_fact = d.reason == GATE_STARTING && !facts.believed;
			break;
		case DETAIL_RANGE:
			is_fact = d.reason == GATE_LAYOUT && facts.range == RANGE_ENDS_SOON;
			break;
		case DETAIL_LAYOUT:
			is_fact = facts.layout == LAYOUT_IS_ABOVE ? d.reason == GATE_LAYOUT :
				facts.layout == LAYOUT_IS_BELOW && d.reason == GATE_LAYOUT_CONSENT && !facts.consent;
			break;
		case DETAIL_WAIT:
			is_fact = d.reason == GATE_STARTING && is_new_pair() && !was_open() &&
				d.opens_ms >= facts.now_ms && d.opens_ms <= facts.now_ms + facts.max_lead_ms;
			break;
		case DETAIL_BEHIND:
			is_fact = d.reason == GATE_BEHIND && d.may_move && d.end_ms > facts.reach_ms &&
				(!was_open() || facts.behind_ms >= BEHIND_MS);
			break;
	}
	return if_so(d.reason != NO_REASON || d.action == OPENING_CLOSE, d.reason != NO_REASON && is_fact);
}

/* Of an open gate, nothing is decided again that was decided when it was opened. */
static Result
what_is_open_stays_open(void)
{
	return if_so(facts.gate == OPEN_FOR_WANTED && may_be_opened() &&
				 !(d.may_move && facts.last_ms > facts.reach_ms),
				 d.action == OPENING_STAY_OPEN);
}

static Result
a_standby_says_so(void)
{
	bool		needs_file = facts.from_registry && !is_usable();

	return if_so(facts.recovery && facts.source != GATE_CLAIM_LOST && !is_to_go(),
				 needs_file ? d.detail == DETAIL_FILE : d.reason == GATE_RECOVERY);
}

static Result
a_claim_that_was_lost_goes(void)
{
	return if_so(facts.source == GATE_CLAIM_LOST,
				 d.reason == GATE_CLAIM_LOST &&
				 d.action == (is_usable() ? OPENING_GIVE_UP : OPENING_CLOSE));
}

static Result
a_claim_that_is_not_wanted_goes(void)
{
	return if_so(is_to_go(), d.action == OPENING_GIVE_UP);
}

static Result
no_other_claim_goes(void)
{
	return if_so(d.action == OPENING_GIVE_UP, is_usable() &&
				 (facts.source == GATE_CLAIM_LOST || is_to_go()));
}

static Result
an_open_gate_is_held_for_the_clock_only(void)
{
	return if_so(d.action == OPENING_HOLD, d.detail == DETAIL_CLOCK && !facts.believed);
}

static Result
a_standby_remembers_its_claim_in_advance(void)
{
	return if_so(d.action == OPENING_CLOSE,
				 d.remember == (d.reason == GATE_RECOVERY && facts.from_registry && facts.believed &&
								facts.source == NO_REASON));
}

static Result
above_what_others_made_with_it(void)
{
	return if_so(d.action == OPENING_CLOSE && d.remember,
				 d.floor_ms >= facts.claim_floor_ms &&
				 (facts.file == FILE_WANTED_CLAIM || d.floor_ms >= facts.now_ms + facts.max_lead_ms));
}

static Result
a_standby_that_remembers_begins_at_its_floor(void)
{
	return if_so(d.action == OPENING_CLOSE && d.remember && facts.file == FILE_WANTED_CLAIM,
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
	return if_so(d.behind, (d.detail == DETAIL_BEHIND) == (!was_open() || facts.behind_ms >= BEHIND_MS));
}

static Result
an_id_is_left_after_a_while(void)
{
	return if_so(true, d.unwanted == (d.behind && facts.behind_ms >= facts.patience_ms));
}

static Result
known_once_the_pair_may_be_used(void)
{
	bool		by_layout = d.detail == DETAIL_RANGE || d.detail == DETAIL_LAYOUT ||
	d.reason == GATE_BEFORE_EPOCH;

	return if_so(true, d.is_known == (may_be_opened() && !by_layout));
}

static Result
the_keys_end_there(void)
{
	return if_so(d.is_known, was_open() ? d.end_ms == facts.last_ms :
				 d.end_ms >= facts.claim_floor_ms &&
				 (facts.layout == LAYOUT_IS_BELOW || (d.end_ms >= facts.known_ms && d.end_ms >= facts.own_ms &&
									 d.end_ms >= facts.others_ms)));
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
	{no_key_with_a_claim_that_is_not_wanted, "no key is made with a claim that is not wanted any more"},
	{no_key_without_the_file, "no key is made without the state file"},
	{a_wrong_clock_opens_and_grants_nothing, "a clock that is not believed opens and grants nothing"},
	{a_wrong_clock_closes_nothing, "a clock that is not believed does not close an open gate"},
	{above_every_ceiling, "keys begin above every known ceiling"},
	{above_the_registrys_floor, "keys begin above the floor that the registry gives"},
	{above_what_the_file_knows, "keys begin above what the state file knows, and above snowid_advance()"},
	{a_new_layout_begins_now, "a new layout begins now, whatever the former one reserved"},
	{order_is_given_up_for_another_pair_only, "order is given up for another pair's keys out of reach only"},
	{another_layout_needs_consent, "another layout needs consent, and keys above"},
	{a_range_that_ends_is_not_begun, "a layout's range that ends soon is not begun"},
	{a_new_pair_waits, "a pair that others may have had waits for max_lead"},
	{no_other_pair_waits, "no other pair waits"},
	{what_is_not_open_is_opened, "a closed gate is opened, and an open one stays open"},
	{a_reason_is_a_fact, "a gate is closed for a reason that is a fact"},
	{what_is_open_stays_open, "an open gate is not closed for what its opening decided"},
	{a_standby_says_so, "a standby says that it is one, or what is wrong with the file that it needs"},
	{a_claim_that_was_lost_goes, "a claim that was lost closes the gate, and goes"},
	{a_claim_that_is_not_wanted_goes, "a claim that is not wanted any more goes"},
	{no_other_claim_goes, "no other claim goes"},
	{an_open_gate_is_held_for_the_clock_only, "an open gate gets no grant by a clock that is not believed"},
	{a_standby_remembers_its_claim_in_advance, "a standby remembers the claim that it will use"},
	{above_what_others_made_with_it, "with a floor above what others made with it"},
	{a_standby_that_remembers_begins_at_its_floor, "a standby that knows the claim has no other floor"},
	{another_id_is_claimed_from_the_registry_only, "another ID is claimed from the registry only, above an advance"},
	{the_clock_is_behind_its_keys, "the clock is behind if keys are out of reach"},
	{a_clock_that_is_behind_closes_the_gate, "a clock that is behind closes the gate, an open one after a while"},
	{an_id_is_left_after_a_while, "an ID is left when the clock has been behind for a while"},
	{known_once_the_pair_may_be_used, "whether it is behind is known once the pair may be used"},
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
	printf("  action %d, reason %d, detail %d, floor %lld, opens at %lld, end %lld, %s%s%s%s\n",
		   d.action, d.reason, d.detail, (long long) d.floor_ms, (long long) d.opens_ms,
		   (long long) d.end_ms, d.remember ? "remember " : "",
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
