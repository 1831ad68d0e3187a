/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that can happen to one hand-over: every reachable state of both sides with every set of messages under way.
 * A message that was sent once may be delivered any number of times, at any time, or never; each side may crash at any
 * time, also after it wrote a decision down and before it acted on it.
 */
#include <stdlib.h>
#include <string.h>

#include "migration/handover.h"
#include "tests/unit/runner.h"

enum {
	TO_SOURCE_PREPARED = 1,
	TO_SOURCE_OWNED = 2,
	TO_SOURCE_UNKNOWN = 4,
	TO_DESTINATION_IMAGE = 8, /* all of it is under way: it may arrive */
	TO_DESTINATION_COMMIT = 16,
	TO_DESTINATION_ASK = 32,
	TO_DESTINATION_FORGET = 64,
	NMESSAGES = 7,
};

struct world {
	uint8_t source;
	uint8_t destination;
	uint8_t messages;
	bool took;    /* the destination has run it */
	bool arrived; /* the image was taken: it comes over one connection, once */
};

#define NSOURCE	     GANTRY_SOURCE_NSTATES
#define NDESTINATION GANTRY_DESTINATION_NSTATES
#define NWORLDS	     (NSOURCE * NDESTINATION * (1u << NMESSAGES) * 4)

static bool seen[NWORLDS];
static struct world todo[NWORLDS];
static unsigned int ntodo;
static unsigned int nseen;

static unsigned int number(const struct world *w)
{
	return (((unsigned int)w->source * NDESTINATION + w->destination) * (1u << NMESSAGES) +
		w->messages) *
		       4 +
	       w->took * 2 + w->arrived;
}

static bool source_may_run(const struct world *w)
{
	return w->source == GANTRY_SOURCE_OWNER || w->source == GANTRY_SOURCE_KEPT;
}

static bool destination_runs(const struct world *w)
{
	return w->destination == GANTRY_DESTINATION_OWNER ||
	       w->destination == GANTRY_DESTINATION_SETTLED;
}

static void check(const struct world *w)
{
	ck_assert_msg(!(source_may_run(w) && destination_runs(w)), "both run it: %u %u %x",
		      w->source, w->destination, w->messages);
	/* What the destination has run the source does not run again, even when the destination is done with it. */
	ck_assert_msg(!(source_may_run(w) && w->took), "it runs twice: %u %u %x", w->source,
		      w->destination, w->messages);
	/* The source lets its copy go only when the other has, or had, its own. */
	ck_assert_msg(w->source != GANTRY_SOURCE_GONE || w->took, "nobody has it: %u %u %x",
		      w->source, w->destination, w->messages);
}

static void push(const struct world *w)
{
	check(w);
	if (seen[number(w)])
		return;
	seen[number(w)] = true;
	nseen++;
	todo[ntodo++] = *w;
}

static uint8_t sent_by(uint8_t actions)
{
	uint8_t messages = 0;

	if (actions & GANTRY_HANDOVER_SEND_COMMIT)
		messages |= TO_DESTINATION_COMMIT;
	if (actions & GANTRY_HANDOVER_SEND_ASK)
		messages |= TO_DESTINATION_ASK;
	if (actions & GANTRY_HANDOVER_SEND_FORGET)
		messages |= TO_DESTINATION_FORGET;
	if (actions & GANTRY_HANDOVER_SEND_OWNED)
		messages |= TO_SOURCE_OWNED;
	if (actions & GANTRY_HANDOVER_SEND_UNKNOWN)
		messages |= TO_SOURCE_UNKNOWN;
	return messages;
}

/* With what it sent, and without: it crashed after it wrote the state down, or nothing arrives. */
static void step_source(struct world w, enum gantry_handover_event event)
{
	struct gantry_handover_step step;

	if (!gantry_handover_source_step(w.source, event, &step))
		return;
	w.source = step.to;
	push(&w);
	w.messages |= sent_by(step.actions);
	push(&w);
}

static void step_destination(struct world w, enum gantry_handover_event event)
{
	struct gantry_handover_step step;

	if (!gantry_handover_destination_step(w.destination, event, &step))
		return;
	w.destination = step.to;
	if (event == GANTRY_HANDOVER_ARRIVED) {
		w.arrived = true;
		w.messages = (w.messages & ~TO_DESTINATION_IMAGE) | TO_SOURCE_PREPARED;
	}
	w.took = w.took || destination_runs(&w);
	push(&w);
	w.messages |= sent_by(step.actions);
	push(&w);
}

static void explore(struct world w)
{
	static const struct {
		uint8_t message;
		bool to_source;
		enum gantry_handover_event event;
	} deliveries[] = {
		{ TO_SOURCE_PREPARED, true, GANTRY_HANDOVER_PREPARED },
		{ TO_SOURCE_OWNED, true, GANTRY_HANDOVER_OWNED },
		{ TO_SOURCE_UNKNOWN, true, GANTRY_HANDOVER_UNKNOWN },
		{ TO_DESTINATION_IMAGE, false, GANTRY_HANDOVER_ARRIVED },
		{ TO_DESTINATION_COMMIT, false, GANTRY_HANDOVER_COMMIT },
		{ TO_DESTINATION_ASK, false, GANTRY_HANDOVER_ASK },
		{ TO_DESTINATION_FORGET, false, GANTRY_HANDOVER_FORGET },
	};

	for (size_t i = 0; i < sizeof(deliveries) / sizeof(deliveries[0]); i++) {
		if (!(w.messages & deliveries[i].message))
			continue;
		if (deliveries[i].to_source)
			step_source(w, deliveries[i].event);
		else
			step_destination(w, deliveries[i].event);
	}
	step_source(w, GANTRY_HANDOVER_CANCEL);
	step_source(w, GANTRY_HANDOVER_CRASH);
	step_destination(w, GANTRY_HANDOVER_DISCARD);
	step_destination(w, GANTRY_HANDOVER_ENDED);
	step_destination(w, GANTRY_HANDOVER_CRASH);
}

static void explore_all(void)
{
	const struct world first = { .messages = TO_DESTINATION_IMAGE };

	push(&first);
	while (ntodo > 0)
		explore(todo[--ntodo]);
}

START_TEST(test_handover_whatever_happens_at_most_one_side_runs_it)
{
	explore_all();
	/* Not all of them are reachable, but many more than a straight road has. */
	ck_assert_msg(nseen > 30, "only %u states", nseen);
}
END_TEST

/* From here on nothing is lost: a source that does not know asks until it is told. */
static void settle(struct world w)
{
	struct gantry_handover_step step;

	for (int i = 0; i < 4; i++) {
		if (w.source == GANTRY_SOURCE_OWNER &&
		    gantry_handover_source_step(w.source, GANTRY_HANDOVER_CANCEL, &step))
			w.source = step.to;
		if (w.source != GANTRY_SOURCE_OFFERED)
			break;
		ck_assert(gantry_handover_destination_step(w.destination, GANTRY_HANDOVER_ASK,
							   &step));
		w.destination = step.to;
		ck_assert(gantry_handover_source_step(w.source,
						      step.actions & GANTRY_HANDOVER_SEND_OWNED
							      ? GANTRY_HANDOVER_OWNED
							      : GANTRY_HANDOVER_UNKNOWN,
						      &step));
		w.source = step.to;
	}
	check(&w);
	ck_assert_msg(w.source == GANTRY_SOURCE_KEPT || w.source == GANTRY_SOURCE_GONE,
		      "it hangs between both: %u %u", w.source, w.destination);
	if (w.source == GANTRY_SOURCE_GONE && w.destination != GANTRY_DESTINATION_OVER &&
	    w.destination != GANTRY_DESTINATION_NONE)
		ck_assert(destination_runs(&w));
}

START_TEST(test_handover_from_every_state_one_side_has_it_once_they_can_talk)
{
	explore_all();
	for (unsigned int i = 0; i < NWORLDS; i++) {
		struct world w = {
			.took = i / 2 % 2,
			.messages = (uint8_t)(i / 4 % (1u << NMESSAGES)),
			.destination = (uint8_t)(i / 4 / (1u << NMESSAGES) % NDESTINATION),
			.source = (uint8_t)(i / 4 / (1u << NMESSAGES) / NDESTINATION),
		};

		if (seen[i])
			settle(w);
	}
}
END_TEST

START_TEST(test_handover_a_decision_is_written_down_before_anything_follows)
{
	for (uint32_t state = 0; state < NSOURCE; state++)
		for (int event = 0; event < GANTRY_HANDOVER_NEVENTS; event++) {
			struct gantry_handover_step step;

			if (!gantry_handover_source_step(state, (enum gantry_handover_event)event,
							 &step))
				continue;
			if (step.to != state &&
			    (step.to == GANTRY_SOURCE_OFFERED || step.to == GANTRY_SOURCE_GONE))
				ck_assert(step.actions & GANTRY_HANDOVER_RECORD);
			ck_assert(gantry_handover_source_name(step.to)[0]);
		}
	for (uint32_t state = 0; state < NDESTINATION; state++) {
		struct gantry_handover_step step;

		if (gantry_handover_destination_step(state, GANTRY_HANDOVER_COMMIT, &step) &&
		    step.to != state)
			ck_assert(step.actions & GANTRY_HANDOVER_RECORD);
	}
}
END_TEST

START_TEST(test_handover_event_that_means_nothing_changes_nothing)
{
	struct gantry_handover_step step = { 77, 77 };

	ck_assert(
		!gantry_handover_source_step(GANTRY_SOURCE_KEPT, GANTRY_HANDOVER_PREPARED, &step));
	ck_assert(!gantry_handover_source_step(GANTRY_SOURCE_GONE, GANTRY_HANDOVER_UNKNOWN, &step));
	ck_assert(!gantry_handover_destination_step(GANTRY_DESTINATION_OVER,
						    GANTRY_HANDOVER_ARRIVED, &step));
	ck_assert_uint_eq(step.to, 77);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("handover");
	TCase *tc = gantry_unit_case(suite, "fence");

	tcase_add_test(tc, test_handover_whatever_happens_at_most_one_side_runs_it);
	tcase_add_test(tc, test_handover_from_every_state_one_side_has_it_once_they_can_talk);
	tcase_add_test(tc, test_handover_a_decision_is_written_down_before_anything_follows);
	tcase_add_test(tc, test_handover_event_that_means_nothing_changes_nothing);
	return gantry_unit_run(suite);
}
