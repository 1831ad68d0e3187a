/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's way to another host with a libvirt and agents that are only bits: each thing that is done to them may fail, in
 * every combination, before or after its effect; somebody may press ^C at each moment. What is left is looked at.
 */
#include <stdio.h>
#include <string.h>

#include "host-agent/vm/journey.h"
#include "tests/unit/runner.h"

/* Everything that one asks of libvirt or of an agent. */
enum action {
	ASK,
	DRAIN,
	SEND_FIRST,
	SEND_SECOND,
	UNPLUG,
	MOVE,
	PLUG_THERE,
	AWAIT,
	OPEN,
	BRING_FIRST,
	BRING_SECOND,
	PLUG_BACK,
	MOVE_BACK,
	UNPLUG_THERE,
	NACTIONS
};

struct state {
	bool drained;
	bool first_there, second_there;
	bool in_here, in_there; /* the device */
	bool moved;
};

struct world {
	struct state state;
	uint32_t failing;      /* by action */
	bool fails_afterwards; /* what fails has had its effect */
	bool is_lost;	       /* a move that fails leaves nobody who knows */
	int interrupted_at;    /* the step; -1: never */
	uint32_t done;	       /* actions that were asked for, failed or not */
	enum gantry_vm_step at;
	char log[256];
};

static const struct state start = { .in_here = true };

static int act(struct world *w, enum action action, bool *what, bool to, struct gantry_err *err)
{
	bool fails = w->failing & 1u << action;

	w->done |= 1u << action;
	if (!fails || w->fails_afterwards)
		*what = to;
	if (!fails)
		return 0;
	(void)gantry_err_set(err, -5, "action %d", action);
	return action == MOVE && w->is_lost ? GANTRY_VM_LOST : 10 + (int)action;
}

static void note(struct world *w, const char *name)
{
	size_t len = strlen(w->log);

	snprintf(w->log + len, sizeof(w->log) - len, "%s ", name);
}

static int ask(void *arg, struct gantry_err *err)
{
	bool nothing = false;

	return act(arg, ASK, &nothing, true, err);
}

static int drain(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	return act(w, DRAIN, &w->state.drained, true, err);
}

static int open_again(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	return w->state.drained ? act(w, OPEN, &w->state.drained, false, err) : 0;
}

static int send(void *arg, struct gantry_err *err)
{
	struct world *w = arg;
	int r = act(w, SEND_FIRST, &w->state.first_there, true, err);

	return r ? r : act(w, SEND_SECOND, &w->state.second_there, true, err);
}

static int bring_back(void *arg, struct gantry_err *err)
{
	struct world *w = arg;
	int r = 0;

	/* They would be where their machine is not. */
	ck_assert(!w->state.moved);
	if (w->state.first_there)
		r = act(w, BRING_FIRST, &w->state.first_there, false, err);
	if (r == 0 && w->state.second_there)
		r = act(w, BRING_SECOND, &w->state.second_there, false, err);
	return r;
}

static int unplug(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	return act(w, UNPLUG, &w->state.in_here, false, err);
}

static int plug_back(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	ck_assert(!w->state.moved);
	return w->state.in_here ? 0 : act(w, PLUG_BACK, &w->state.in_here, true, err);
}

static int move(void *arg, struct gantry_err *err)
{
	struct world *w = arg;
	int r;

	/* libvirt would refuse with the device in; and a session left behind would be lost. */
	ck_assert(!w->state.in_here && !w->state.in_there);
	ck_assert(w->state.first_there && w->state.second_there);
	r = act(w, MOVE, &w->state.moved, true, err);
	return r && r != GANTRY_VM_LOST && w->state.moved ? 0 : r; /* it is looked up */
}

static int move_back(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	return w->state.moved ? act(w, MOVE_BACK, &w->state.moved, false, err) : 0;
}

static int plug_there(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	ck_assert(w->state.moved);
	return act(w, PLUG_THERE, &w->state.in_there, true, err);
}

static int unplug_there(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	return w->state.in_there ? act(w, UNPLUG_THERE, &w->state.in_there, false, err) : 0;
}

static int await(void *arg, struct gantry_err *err)
{
	bool nothing = false;

	return act(arg, AWAIT, &nothing, true, err);
}

static bool interrupted(void *arg)
{
	const struct world *w = arg;

	return w->interrupted_at >= 0 && (int)w->at >= w->interrupted_at;
}

static void tell(void *arg, enum gantry_vm_step step, bool undo)
{
	struct world *w = arg;

	if (undo)
		note(w, "undo");
	else
		w->at = step + 1;
	note(w, gantry_vm_step_name(step));
}

static const struct gantry_vm_journey_ops ops = {
	.run = { ask, drain, send, unplug, move, plug_there, await },
	.undo = { NULL, open_again, bring_back, plug_back, move_back, unplug_there, NULL },
	.interrupted = interrupted,
	.tell = tell,
};

static struct gantry_vm_journey run(struct world *w)
{
	struct gantry_vm_journey j;

	w->state = start;
	gantry_vm_journey_run(&ops, w, false, &j);
	return j;
}

static bool same(const struct state *a, const struct state *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- */

START_TEST(test_journey_without_a_failure_brings_all_there_in_order)
{
	static const struct state end = { .drained = true,
					  .first_there = true,
					  .second_there = true,
					  .in_there = true,
					  .moved = true };
	struct world w = { .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_DONE);
	ck_assert_int_eq(j.code, 0);
	ck_assert(same(&w.state, &end));
	ck_assert_str_eq(w.log, "check leave sessions detach move attach return ");
	for (int i = 0; i < GANTRY_VM_NSTEPS; i++)
		ck_assert(j.began_ns[i] > 0);
}
END_TEST

START_TEST(test_journey_that_is_only_asked_about_changes_nothing)
{
	struct world w = { .state = start, .interrupted_at = -1 };
	struct gantry_vm_journey j;

	gantry_vm_journey_run(&ops, &w, true, &j);
	ck_assert_int_eq(j.outcome, GANTRY_VM_STAYED);
	ck_assert_int_eq(j.code, 0);
	ck_assert_str_eq(w.log, "check ");
	ck_assert(same(&w.state, &start));
}
END_TEST

START_TEST(test_journey_that_libvirt_refuses_is_undone_in_reverse_order)
{
	struct world w = { .failing = 1u << MOVE, .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_BACK);
	ck_assert_int_eq(j.failed, GANTRY_VM_MOVE);
	ck_assert_int_eq(j.code, 10 + MOVE);
	ck_assert_str_eq(w.log,
			 "check leave sessions detach move undo move undo detach undo sessions "
			 "undo leave ");
	ck_assert(same(&w.state, &start));
}
END_TEST

START_TEST(test_journey_whose_device_finds_no_place_there_comes_back)
{
	struct world w = { .failing = 1u << PLUG_THERE, .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_BACK);
	ck_assert(w.done & 1u << MOVE_BACK);
	ck_assert(same(&w.state, &start));
}
END_TEST

START_TEST(test_journey_of_a_machine_that_cannot_come_back_leaves_its_sessions_with_it)
{
	struct world w = { .failing = 1u << PLUG_THERE | 1u << MOVE_BACK, .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_HALF);
	ck_assert_int_eq(j.failed, GANTRY_VM_PUT_IN);
	ck_assert_int_eq(j.stuck, GANTRY_VM_MOVE);
	ck_assert_str_eq(j.why.text, "action 6");
	ck_assert_str_eq(j.stuck_why.text, "action 12");
	ck_assert(w.state.moved && w.state.first_there && w.state.second_there);
}
END_TEST

START_TEST(test_journey_that_lost_its_machine_undoes_nothing)
{
	struct world w = { .failing = 1u << MOVE, .is_lost = true, .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_HALF);
	ck_assert_int_eq(j.code, 1);
	ck_assert_str_eq(w.log, "check leave sessions detach move ");
}
END_TEST

START_TEST(test_journey_that_is_interrupted_goes_back_up_to_the_move_and_on_after_it)
{
	for (int step = 0; step <= GANTRY_VM_NSTEPS; step++) {
		struct world w = { .interrupted_at = step };
		struct gantry_vm_journey j = run(&w);

		if (step > GANTRY_VM_MOVE) {
			ck_assert_int_eq(j.outcome, GANTRY_VM_DONE);
			continue;
		}
		ck_assert_int_eq(j.outcome,
				 step <= GANTRY_VM_LEAVE ? GANTRY_VM_STAYED : GANTRY_VM_BACK);
		ck_assert_int_eq(j.code, 1);
		ck_assert_str_eq(j.why.text, "interrupted");
		ck_assert(same(&w.state, &start));
		/* What had not begun is not undone. */
		ck_assert(!(w.done & 1u << MOVE_BACK));
	}
}
END_TEST

#define UNDOS (~0u << OPEN)

static void check_end(const struct world *w, const struct gantry_vm_journey *j)
{
	uint32_t failed = w->failing & w->done;

	switch (j->outcome) {
	case GANTRY_VM_DONE:
		ck_assert(w->state.moved && w->state.first_there && w->state.second_there &&
			  w->state.in_there);
		break;
	case GANTRY_VM_STAYED:
		ck_assert_uint_eq(w->done, 1u << ASK);
		ck_assert(same(&w->state, &start));
		break;
	case GANTRY_VM_BACK:
		ck_assert(same(&w->state, &start));
		break;
	case GANTRY_VM_HALF:
		ck_assert((failed & UNDOS) || w->is_lost);
		/* Sessions stay with their machine, as far as they had got. */
		if (w->state.moved)
			ck_assert(w->state.first_there && w->state.second_there);
		break;
	}
	ck_assert(j->outcome == GANTRY_VM_DONE ? j->code == 0 : j->code > 0);
}

START_TEST(test_journey_ends_whole_or_says_that_it_is_half_whatever_fails)
{
	unsigned int outcomes[4] = { 0 };

	for (uint32_t failing = 0; failing < 1u << NACTIONS; failing++)
		for (int variant = 0; variant < 4; variant++) {
			struct world w = { .failing = failing,
					   .fails_afterwards = variant & 1,
					   .is_lost = variant & 2,
					   .interrupted_at = -1 };
			struct gantry_vm_journey j = run(&w);

			check_end(&w, &j);
			outcomes[j.outcome]++;
		}
	for (int i = 0; i < 4; i++)
		ck_assert_uint_gt(outcomes[i], 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journey");
	TCase *tc = gantry_unit_case(suite, "journey");

	tcase_add_test(tc, test_journey_without_a_failure_brings_all_there_in_order);
	tcase_add_test(tc, test_journey_that_is_only_asked_about_changes_nothing);
	tcase_add_test(tc, test_journey_that_libvirt_refuses_is_undone_in_reverse_order);
	tcase_add_test(tc, test_journey_whose_device_finds_no_place_there_comes_back);
	tcase_add_test(tc,
		       test_journey_of_a_machine_that_cannot_come_back_leaves_its_sessions_with_it);
	tcase_add_test(tc, test_journey_that_lost_its_machine_undoes_nothing);
	tcase_add_test(tc,
		       test_journey_that_is_interrupted_goes_back_up_to_the_move_and_on_after_it);
	tcase_add_test(tc, test_journey_ends_whole_or_says_that_it_is_half_whatever_fails);
	return gantry_unit_run(suite);
}
