/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attached way to another host with a libvirt and agents that are only bits, as test_journey.c has it for the detached
 * one: each thing that is asked of them may fail, in every combination, before or after its effect, and somebody may press
 * ^C at each moment. Never may a session run at both ends, nor a machine without its sessions unless that is said.
 */
#include <stdio.h>
#include <string.h>

#include "host-agent/vm/journey.h"
#include "tests/unit/runner.h"

enum action {
	ASK,
	LEAVE,
	STAGE,
	EXPECT,
	MOVE,
	HOLD,
	GO_FIRST,
	GO_SECOND,
	TAKE,
	RESUME,
	AWAIT,
	LIFT,
	CANCEL,
	EXPECT_HERE,
	MOVE_BACK,
	BRING_FIRST,
	BRING_SECOND,
	TAKE_HERE,
	RESUME_HERE,
	NACTIONS
};

/* Where a session is, and whether anybody runs it. */
struct session {
	bool is_there;
	bool runs;
};

struct state {
	struct session session[2];
	bool machine_there;
	bool machine_runs;
	bool door_left; /* newcomers wait */
	bool expected;
	bool seated_there;
	bool came_back;
	bool staged;
};

static const struct state start = {
	.session = { { .runs = true }, { .runs = true } },
	.machine_runs = true,
};

struct world {
	struct state state;
	uint32_t failing;
	bool fails_afterwards;
	bool is_lost;
	int interrupted_at;
	uint32_t done;
	enum gantry_vm_step at;
};

/* Of a session whose machine is elsewhere, or stands still, nobody may know more than that it stands still. */
static void check_invariant(const struct world *w)
{
	for (int i = 0; i < 2; i++) {
		const struct session *s = &w->state.session[i];

		if (s->runs)
			ck_assert(s->is_there == w->state.machine_there);
	}
	if (w->state.machine_runs && w->state.machine_there)
		ck_assert(w->state.seated_there);
}

static int act(struct world *w, enum action action, void (*effect)(struct state *),
	       struct gantry_err *err)
{
	bool fails = w->failing & 1u << action;

	w->done |= 1u << action;
	if (!fails || w->fails_afterwards)
		effect(&w->state);
	check_invariant(w);
	if (!fails)
		return 0;
	(void)gantry_err_set(err, -5, "action %d", action);
	return action == MOVE && w->is_lost ? GANTRY_VM_LOST : 10 + (int)action;
}

/* ---- effects ---- */

static void nothing(struct state *s)
{
	(void)s;
}

static void leave_door(struct state *s)
{
	s->door_left = true;
}

static void stage_sessions(struct state *s)
{
	s->staged = true;
}

static void expect_machine(struct state *s)
{
	s->expected = true;
}

/* Where the machine stands still its sessions are held; libvirt starts it nowhere. */
static void move_machine(struct state *s)
{
	s->machine_there = true;
	s->machine_runs = false;
	s->session[0].runs = s->session[1].runs = false;
}

static void go_first(struct state *s)
{
	s->session[0] = (struct session){ .is_there = true };
}

static void go_second(struct state *s)
{
	s->session[1] = (struct session){ .is_there = true };
}

static void take(struct state *s)
{
	s->seated_there = true;
	s->session[0].runs = s->session[1].runs = true;
}

static void resume(struct state *s)
{
	s->machine_runs = true;
}

static void lift(struct state *s)
{
	s->door_left = false;
}

static void cancel(struct state *s)
{
	s->staged = false;
	for (int i = 0; i < 2; i++) /* who has its machine goes on, who has not waits for it */
		if (!s->session[i].is_there && !s->machine_there && !s->came_back)
			s->session[i].runs = true;
}

static void move_back_machine(struct state *s)
{
	s->machine_there = false;
	s->came_back = true;
}

static void bring_first(struct state *s)
{
	s->session[0].is_there = false;
}

static void bring_second(struct state *s)
{
	s->session[1].is_there = false;
}

static void take_here(struct state *s)
{
	s->session[0].runs = s->session[1].runs = true;
}

/* ---- steps: in the order of migrate_attached.c ---- */

static int check(void *arg, struct gantry_err *err)
{
	return act(arg, ASK, nothing, err);
}

static int leave(void *arg, struct gantry_err *err)
{
	return act(arg, LEAVE, leave_door, err);
}

static int stage(void *arg, struct gantry_err *err)
{
	return act(arg, STAGE, stage_sessions, err);
}

static int expect(void *arg, struct gantry_err *err)
{
	return act(arg, EXPECT, expect_machine, err);
}

static int move(void *arg, struct gantry_err *err)
{
	struct world *w = arg;
	int r;

	/* Else it would come to a door that looks at what QEMU is still writing. */
	ck_assert(w->state.expected && w->state.staged);
	r = act(w, MOVE, move_machine, err);
	return r && r != GANTRY_VM_LOST && w->state.machine_there ? 0 : r; /* it is looked up */
}

static int seat(void *arg, struct gantry_err *err)
{
	struct world *w = arg;
	int r = act(w, HOLD, nothing, err);

	/* Offered only once the machine is there. */
	ck_assert(w->state.machine_there && !w->state.machine_runs);
	if (!r)
		r = act(w, GO_FIRST, go_first, err);
	if (!r)
		r = act(w, GO_SECOND, go_second, err);
	if (!r) {
		ck_assert(w->state.session[0].is_there && w->state.session[1].is_there);
		r = act(w, TAKE, take, err);
	}
	return r ? r : act(w, RESUME, resume, err);
}

static int await(void *arg, struct gantry_err *err)
{
	return act(arg, AWAIT, nothing, err);
}

static int open_doors(void *arg, struct gantry_err *err)
{
	struct gantry_err unsaid = GANTRY_ERR_NONE;
	struct world *w = arg;

	(void)err;
	(void)act(w, LIFT, lift, &unsaid); /* it ends by itself */
	w->state.door_left = false;
	return 0;
}

static int unstage(void *arg, struct gantry_err *err)
{
	struct world *w = arg;
	int r = 0;

	ck_assert(!w->state.machine_there); /* they would be where it is not */
	(void)act(w, CANCEL, cancel, err);
	cancel(&w->state); /* an agent that hears nothing decides so by itself */
	if (w->state.session[0].is_there)
		r = act(w, BRING_FIRST, bring_first, err);
	if (r == 0 && w->state.session[1].is_there)
		r = act(w, BRING_SECOND, bring_second, err);
	if (r || !w->state.came_back)
		return r;
	r = act(w, TAKE_HERE, take_here, err);
	return r ? r : act(w, RESUME_HERE, resume, err);
}

static int expect_no_more(void *arg, struct gantry_err *err)
{
	struct world *w = arg;

	(void)err;
	w->state.expected = false;
	return 0;
}

static int move_back(void *arg, struct gantry_err *err)
{
	struct world *w = arg;
	int r;

	if (!w->state.machine_there)
		return 0;
	if (w->state.seated_there) {
		(void)gantry_err_set(err, -5, "its sessions sit in it there");
		return 1;
	}
	r = act(w, EXPECT_HERE, nothing, err);
	return r ? r : act(w, MOVE_BACK, move_back_machine, err);
}

static bool interrupted(void *arg)
{
	const struct world *w = arg;

	return w->interrupted_at >= 0 && (int)w->at >= w->interrupted_at;
}

static void tell(void *arg, enum gantry_vm_step step, bool undo)
{
	struct world *w = arg;

	if (!undo)
		w->at = step + 1;
}

static const struct gantry_vm_journey_ops ops = {
	.run = { check, leave, stage, expect, move, seat, await },
	.undo = { NULL, open_doors, unstage, expect_no_more, move_back, NULL, NULL },
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

static bool runs_whole(const struct state *s, bool there)
{
	return s->machine_runs && s->machine_there == there && s->session[0].runs &&
	       s->session[1].runs && s->session[0].is_there == there &&
	       s->session[1].is_there == there;
}

/* ---- */

START_TEST(test_attached_without_a_failure_all_runs_there)
{
	struct world w = { .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_DONE);
	ck_assert(runs_whole(&w.state, true));
}
END_TEST

START_TEST(test_attached_that_libvirt_refuses_goes_on_here_at_once)
{
	struct world w = { .failing = 1u << MOVE, .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_BACK);
	ck_assert_int_eq(j.code, 10 + MOVE);
	ck_assert(runs_whole(&w.state, false));
	ck_assert(!(w.done & (1u << MOVE_BACK | 1u << TAKE_HERE | 1u << GO_FIRST)));
	ck_assert(!w.state.expected && !w.state.door_left);
}
END_TEST

START_TEST(test_attached_whose_session_is_not_taken_there_comes_back_whole)
{
	for (enum action a = HOLD; a <= TAKE; a++) {
		struct world w = { .failing = 1u << a, .interrupted_at = -1 };
		struct gantry_vm_journey j = run(&w);

		ck_assert_int_eq(j.outcome, GANTRY_VM_BACK);
		ck_assert_int_eq(j.failed, GANTRY_VM_PUT_IN);
		ck_assert(w.done & 1u << RESUME_HERE);
		ck_assert(runs_whole(&w.state, false));
	}
}
END_TEST

START_TEST(test_attached_that_does_not_run_once_it_is_seated_stays_there)
{
	struct world w = { .failing = 1u << RESUME, .interrupted_at = -1 };
	struct gantry_vm_journey j = run(&w);

	ck_assert_int_eq(j.outcome, GANTRY_VM_HALF);
	ck_assert_int_eq(j.stuck, GANTRY_VM_MOVE);
	ck_assert(w.state.seated_there && w.state.session[0].is_there);
}
END_TEST

START_TEST(test_attached_that_is_interrupted_goes_on_here)
{
	for (int step = 0; step <= GANTRY_VM_MOVE; step++) {
		struct world w = { .interrupted_at = step };
		struct gantry_vm_journey j = run(&w);

		ck_assert_int_eq(j.code, 1);
		ck_assert(runs_whole(&w.state, false));
		ck_assert(!(w.done & 1u << MOVE));
	}
}
END_TEST

/* Nothing follows from these. */
#define ALONE (1u << ASK | 1u << AWAIT | 1u << LIFT)

START_TEST(test_attached_in_every_combination_of_failures_is_somewhere_whole_or_says_so)
{
	unsigned long outcomes[GANTRY_VM_HALF + 1] = { 0 };

	for (uint32_t failing = 0; failing < 1u << NACTIONS; failing++) {
		struct world w = { .failing = failing,
				   .fails_afterwards = failing % 3 == 1,
				   .is_lost = failing % 5 == 2,
				   .interrupted_at = -1 };
		struct gantry_vm_journey j;

		if ((failing & ALONE) && (failing & (failing - 1)))
			continue;
		j = run(&w);
		outcomes[j.outcome]++;
		switch (j.outcome) {
		case GANTRY_VM_DONE:
			ck_assert(runs_whole(&w.state, true));
			break;
		case GANTRY_VM_STAYED:
		case GANTRY_VM_BACK:
			ck_assert(runs_whole(&w.state, false));
			ck_assert(!w.state.door_left && !w.state.expected);
			break;
		default:
			ck_assert(j.code != 0 && j.stuck_why.text[0]);
		}
	}
	for (int i = 0; i <= GANTRY_VM_HALF; i++)
		ck_assert_uint_gt(outcomes[i], 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("attached");
	TCase *tc = gantry_unit_case(suite, "attached");

	tcase_add_test(tc, test_attached_without_a_failure_all_runs_there);
	tcase_add_test(tc, test_attached_that_libvirt_refuses_goes_on_here_at_once);
	tcase_add_test(tc, test_attached_whose_session_is_not_taken_there_comes_back_whole);
	tcase_add_test(tc, test_attached_that_does_not_run_once_it_is_seated_stays_there);
	tcase_add_test(tc, test_attached_that_is_interrupted_goes_on_here);
	tcase_add_test(
		tc, test_attached_in_every_combination_of_failures_is_somewhere_whole_or_says_so);
	return gantry_unit_run(suite);
}
