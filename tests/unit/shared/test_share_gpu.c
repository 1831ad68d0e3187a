/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing of a GPU over simulated seconds. The device runs commands of different sessions at the same time as far as
 * their units fit into it, and where they do not, one of each in turn, urgent ones first; a session's own run in
 * order. Sessions act as device threads do: lane, yield, window, charge.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "tests/unit/runner.h"

#define NOTHING	       UINT64_MAX
#define MAX	       16u
#define IN_FLIGHT      128u
#define WINDOW_US      2000u
#define POLL_NS	       5000u
#define QUIET_EVERY_NS (100 * GANTRY_NS_PER_MS)
#define LOOK_NS	       20000u /* between two looks at who waits, while nobody new does */

uint64_t gantry_test_now_ns(void);

struct client {
	uint64_t task_ns;
	uint32_t units;
	int32_t priority;
	uint64_t start_ns;
	uint64_t every_ns; /* one request each; 0: floods */
	uint32_t batch;	   /* a flood of so many, waited for, and so many more; 0: without end */
	uint64_t pause_ns; /* between batches: the guest is told and puts the next */
	/* the simulation's */
	int lane;
	uint32_t seen;
	uint64_t looked_ns;
	uint64_t next_ns;
	uint32_t nput;	  /* of the batch */
	uint32_t nqueued; /* in flight, the running one among them */
	uint64_t asked_ns;
	uint64_t ready_ns;  /* the command at the head could begin */
	uint64_t end_ns;    /* of the running one */
	uint64_t pace_ns;   /* what a command takes alone */
	bool quiet;	    /* it has asked for it */
	uint64_t hushed_ns; /* when it did last */
	bool was_alone;	    /* when the one at the head could begin */
	uint64_t ndone;
	uint64_t busy_ns; /* device time it really had, whole device */
	uint64_t worst_ns;
	uint64_t total_ns; /* of requests */
	uint32_t yields;
	uint64_t rest_ns; /* it has a lane and nothing in flight since then; 0: not so */
};

static struct {
	struct gantry_share_page *page;
	int fd;
	uint64_t now_ns;
	uint32_t n;
	uint64_t switch_ns; /* what it costs the device to begin with another party's */
	uint32_t party;	    /* that it was last at work for */
	uint32_t nswitches;
	struct client c[MAX];
} sim = { .fd = -EBADF };

uint64_t gantry_test_now_ns(void)
{
	return sim.now_ns;
}

static void sim_start(void)
{
	memset(&sim, 0, sizeof(sim));
	sim.now_ns = GANTRY_NS_PER_S;
	ck_assert_int_eq(gantry_share_create("gpu0", 1, 0, &sim.page, &sim.fd, NULL), 0);
	gantry_share_set_gpu(sim.page, true, 0);
	gantry_share_set_turn_pause(sim.page, GANTRY_SHARE_TURN_PAUSE_US);
}

static void sim_stop(void)
{
	gantry_share_close(sim.page);
	sim.fd = gantry_fd_close(sim.fd);
}

/* A client of a tenant and a worker of its own. */
static struct client *add(uint32_t weight, uint32_t party, uint64_t task_us, uint32_t units)
{
	uint32_t i = sim.n++;

	gantry_share_set_tenant(sim.page, i, weight);
	gantry_share_admit(sim.page, i, i, i);
	gantry_share_set_party(sim.page, i, party);
	sim.c[i] = (struct client){ .task_ns = task_us * GANTRY_NS_PER_US,
				    .units = units,
				    .lane = -1,
				    .end_ns = NOTHING,
				    .ready_ns = NOTHING };
	return &sim.c[i];
}

/* ---- the device ---- */

static uint32_t units_running(void)
{
	uint32_t units = 0;

	for (uint32_t i = 0; i < sim.n; i++)
		units += sim.c[i].end_ns != NOTHING ? sim.c[i].units : 0;
	return units;
}

/* The device's contexts are of parties. */
static uint64_t switch_to(uint32_t party)
{
	bool same = sim.party == party;

	sim.party = party;
	sim.nswitches += !same;
	return same ? 0 : sim.switch_ns;
}

/* Commands at the heads of queues begin: the urgent first, then who is ready longest, while they fit. */
static void device_begin(void)
{
	for (;;) {
		struct client *best = NULL;

		for (uint32_t i = 0; i < sim.n; i++) {
			struct client *c = &sim.c[i];

			if (c->nqueued == 0 || c->end_ns != NOTHING)
				continue;
			if (!best || c->priority > best->priority ||
			    (c->priority == best->priority && c->ready_ns < best->ready_ns))
				best = c;
		}
		if (!best || units_running() + best->units > GANTRY_SHARE_WHOLE)
			return;
		best->end_ns = sim.now_ns + best->task_ns +
			       switch_to(sim.page->sessions[best - sim.c].party);
	}
}

/* ---- a device thread ---- */

static void told(uint32_t i)
{
	struct client *c = &sim.c[i];

	gantry_share_use(sim.page, i, c->nqueued ? c->units : 0);
}

static bool has_more(const struct client *c)
{
	return c->nqueued > 1 || c->batch == 0 || c->nput < c->batch;
}

static void finish(uint32_t i)
{
	struct client *c = &sim.c[i];
	uint64_t observed_ns = sim.now_ns - c->ready_ns;

	c->busy_ns += c->task_ns * c->units / GANTRY_SHARE_WHOLE;
	c->ndone++;
	if (c->was_alone && gantry_share_is_alone(sim.page, i))
		c->pace_ns = observed_ns;
	c->was_alone = gantry_share_is_alone(sim.page, i);
	if (c->quiet && (c->pace_ns || !has_more(c))) {
		gantry_share_end_quiet(sim.page, i);
		c->quiet = false;
	}
	if (!c->pace_ns && !c->was_alone && !c->quiet && has_more(c) &&
	    c->units >= GANTRY_SHARE_WHOLE / 2 && sim.now_ns - c->hushed_ns >= QUIET_EVERY_NS) {
		c->hushed_ns = sim.now_ns;
		c->quiet = gantry_share_ask_quiet(sim.page, i);
	}
	gantry_share_charge_units(sim.page, i, observed_ns, c->pace_ns, c->units);
	if (c->every_ns) {
		uint64_t took_ns = sim.now_ns - c->asked_ns;

		c->total_ns += took_ns;
		c->worst_ns = took_ns > c->worst_ns ? took_ns : c->worst_ns;
	}
	c->nqueued--;
	c->end_ns = NOTHING;
	c->ready_ns = c->nqueued ? sim.now_ns : NOTHING;
	if (c->batch && c->nput == c->batch && c->nqueued == 0) {
		c->nput = 0;
		c->next_ns = sim.now_ns + c->pause_ns;
	}
	told(i);
}

static bool has_work(const struct client *c)
{
	return sim.now_ns >= c->start_ns && sim.now_ns >= c->next_ns &&
	       (c->batch == 0 || c->nput < c->batch);
}

static void pay_for_rest(uint32_t i)
{
	if (sim.c[i].rest_ns)
		gantry_share_charge_pause(sim.page, i, sim.c[i].rest_ns, sim.now_ns);
	sim.c[i].rest_ns = 0;
}

/* Nothing is in flight; and more may come at once. */
static void rest(uint32_t i)
{
	struct client *c = &sim.c[i];

	if (c->rest_ns == 0)
		c->rest_ns = sim.now_ns;
	if (gantry_share_keeps(sim.page, i, sim.now_ns - c->rest_ns))
		return;
	pay_for_rest(i);
	gantry_share_give(sim.page, i, c->lane, false);
	c->lane = -1;
}

static bool may_submit(uint32_t i)
{
	struct client *c = &sim.c[i];

	if (c->lane < 0) {
		gantry_share_want(sim.page, i, c->priority);
		c->lane = gantry_share_take(sim.page, i);
		c->looked_ns = 0;
		return c->lane >= 0;
	}
	pay_for_rest(i);
	if (sim.now_ns - c->looked_ns < LOOK_NS && !gantry_share_has_news(sim.page, c->seen))
		return true;
	c->looked_ns = sim.now_ns;
	if (!gantry_share_must_yield(sim.page, i, &c->seen))
		return true;
	c->looked_ns = 0;
	c->yields++;
	if (c->nqueued == 0) {
		gantry_share_give(sim.page, i, c->lane, true);
		c->lane = -1;
	}
	return false;
}

static void serve(uint32_t i)
{
	struct client *c = &sim.c[i];

	while (has_work(c)) {
		uint32_t us = gantry_share_window_us(sim.page, i, WINDOW_US, c->seen);

		if (c->nqueued &&
		    (c->nqueued >= IN_FLIGHT || c->nqueued * c->task_ns >= us * GANTRY_NS_PER_US))
			return;
		if (!may_submit(i))
			return;
		if (c->nqueued++ == 0) {
			c->ready_ns = sim.now_ns;
			c->was_alone = gantry_share_is_alone(sim.page, i);
		}
		c->nput++;
		told(i);
		if (c->every_ns) {
			c->asked_ns = c->next_ns ? c->next_ns : sim.now_ns;
			c->next_ns = c->asked_ns + c->every_ns;
		}
	}
	if (c->nqueued == 0 && c->lane >= 0)
		rest(i);
}

/* ck_assert() tells the parent process of every call: too slow for each step of the simulation. */
static void assert_one_party(void)
{
	const struct client *first = NULL;

	for (uint32_t i = 0; i < sim.n; i++) {
		if (sim.c[i].nqueued == 0)
			continue;
		if (first && sim.page->sessions[i].party != sim.page->sessions[first - sim.c].party)
			ck_abort_msg("sessions %u and %u are of two parties", i,
				     (uint32_t)(first - sim.c));
		first = &sim.c[i];
	}
}

static void sim_run(uint64_t duration_ns)
{
	uint64_t until_ns = sim.now_ns + duration_ns;

	while (sim.now_ns < until_ns) {
		uint64_t next = until_ns;

		/* Twice: who is served later may have given what one before could have taken. */
		for (uint32_t i = 0; i < 2 * sim.n; i++)
			serve((i + (uint32_t)(sim.now_ns / 1000)) % sim.n);
		device_begin();
		assert_one_party();
		for (uint32_t i = 0; i < sim.n; i++) {
			const struct client *c = &sim.c[i];
			uint64_t at = c->start_ns > c->next_ns ? c->start_ns : c->next_ns;

			next = c->end_ns < next ? c->end_ns : next;
			next = at > sim.now_ns && at < next ? at : next;
			/* Who waits for a lane tries again and again, and who keeps one looks who waits. */
			if ((c->rest_ns || (has_work(c) && c->lane < 0)) &&
			    sim.now_ns + POLL_NS < next)
				next = sim.now_ns + POLL_NS;
		}
		sim.now_ns = next;
		for (uint32_t i = 0; i < sim.n; i++)
			if (sim.c[i].end_ns <= sim.now_ns)
				finish(i);
	}
}

static void assert_ratio(uint64_t a, uint64_t b, double want, double tolerance)
{
	double ratio = (double)a / (double)b;

	ck_assert_msg(ratio > want * (1 - tolerance) && ratio < want * (1 + tolerance),
		      "%.4f, not %.4f", ratio, want);
}

static uint64_t busy_of_all(void)
{
	uint64_t ns = 0;

	for (uint32_t i = 0; i < sim.n; i++)
		ns += sim.c[i].busy_ns;
	return ns;
}

START_TEST(test_gpu_floods_share_by_weight)
{
	const uint64_t us[][2] = {
		{ 100, 100 }, { 20, 20 }, { 300, 100 }, { 100, 300 }, { 1000, 50 }
	};

	for (size_t i = 0; i < sizeof(us) / sizeof(us[0]); i++) {
		sim_start();
		(void)add(300, 1, us[i][0], GANTRY_SHARE_WHOLE);
		/* The second comes later: the first is known alone, as the second is in the first's pauses. */
		add(100, 1, us[i][1], GANTRY_SHARE_WHOLE)->start_ns = sim.now_ns +
								      20 * GANTRY_NS_PER_MS;
		sim_run(200 * GANTRY_NS_PER_MS);
		sim.c[0].busy_ns = sim.c[1].busy_ns = 0;
		sim_run(2 * GANTRY_NS_PER_S);
		assert_ratio(sim.c[0].busy_ns, sim.c[1].busy_ns, 3.0, 0.05);
		assert_ratio(busy_of_all(), 2 * GANTRY_NS_PER_S, 1.0, 0.01);
		sim_stop();
	}
}
END_TEST

/* Both at once and without a pause: neither ever has the device alone but by asking for it. */
START_TEST(test_gpu_what_is_never_alone_asks_for_quiet)
{
	static const uint64_t us[][2] = { { 100, 100 }, { 30, 300 }, { 500, 60 } };

	for (size_t i = 0; i < sizeof(us) / sizeof(us[0]); i++) {
		sim_start();
		for (uint32_t k = 0; k < 2; k++)
			(void)add(k ? 100 : 300, 1, us[i][k], GANTRY_SHARE_WHOLE);
		sim_run(400 * GANTRY_NS_PER_MS);
		for (uint32_t k = 0; k < 2; k++) {
			ck_assert_uint_ge(sim.c[k].pace_ns, us[i][k] * GANTRY_NS_PER_US);
			ck_assert_uint_eq(sim.page->sessions[k].quiet_us, 0);
			sim.c[k].busy_ns = 0;
		}
		sim_run(2 * GANTRY_NS_PER_S);
		assert_ratio(sim.c[0].busy_ns, sim.c[1].busy_ns, 3.0, 0.03);
		assert_ratio(busy_of_all(), 2 * GANTRY_NS_PER_S, 1.0, 0.01);
		sim_stop();
	}
}
END_TEST

START_TEST(test_gpu_quiet_is_for_one_for_a_moment_and_not_for_the_urgent)
{
	uint32_t seen = 0;
	int lane;

	sim_start();
	for (uint32_t i = 0; i < 3; i++) {
		(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
		gantry_share_want(sim.page, i, i == 2);
	}
	lane = gantry_share_take(sim.page, 0);
	ck_assert_int_ge(lane, 0);
	ck_assert(gantry_share_ask_quiet(sim.page, 1));
	ck_assert(!gantry_share_ask_quiet(sim.page, 0));
	ck_assert(gantry_share_must_yield(sim.page, 0, &seen));
	gantry_share_give(sim.page, 0, lane, true);
	ck_assert_int_eq(gantry_share_take(sim.page, 0), -EAGAIN);
	ck_assert_int_ge(gantry_share_take(sim.page, 1), 0);
	ck_assert_int_ge(gantry_share_take(sim.page, 2), 0);
	gantry_share_end_quiet(sim.page, 1);
	ck_assert(gantry_share_ask_quiet(sim.page, 1));
	ck_assert_int_eq(gantry_share_take(sim.page, 0), -EAGAIN);
	sim.now_ns += GANTRY_SHARE_QUIET_US * GANTRY_NS_PER_US;
	ck_assert_int_ge(gantry_share_take(sim.page, 0), 0);
	sim_stop();
}
END_TEST

/* Guests that put 64 commands, wait for all and put 64 more, over one MPS server and each with the GPU alone. */
START_TEST(test_gpu_batches_share_by_weight)
{
	static const uint64_t pauses_us[] = { 10, 60, 150 };

	for (uint32_t i = 0; i < 2 * sizeof(pauses_us) / sizeof(pauses_us[0]); i++) {
		sim_start();
		for (uint32_t k = 0; k < 2; k++) {
			struct client *c = add(k ? 100 : 300, i % 2 ? 1 + k : 1, 100,
					       GANTRY_SHARE_WHOLE);

			c->batch = 64;
			c->pause_ns = pauses_us[i / 2] * GANTRY_NS_PER_US;
		}
		sim_run(200 * GANTRY_NS_PER_MS);
		sim.c[0].busy_ns = sim.c[1].busy_ns = 0;
		sim_run(4 * GANTRY_NS_PER_S);
		assert_ratio(sim.c[0].busy_ns, sim.c[1].busy_ns, 3.0, 0.05);
		assert_ratio(busy_of_all(), 4 * GANTRY_NS_PER_S, 1.0, 0.03);
		sim_stop();
	}
}
END_TEST

/* One that comes now and then is idle in between: the flood has the rest, though both are to have the same. */
START_TEST(test_gpu_pauses_are_short)
{
	sim_start();
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	add(100, 1, 100, GANTRY_SHARE_WHOLE)->every_ns = 600 * GANTRY_NS_PER_US;
	sim_run(GANTRY_NS_PER_S);
	assert_ratio(busy_of_all(), GANTRY_NS_PER_S, 1.0, 0.02);
	assert_ratio(sim.c[1].ndone, GANTRY_NS_PER_S / sim.c[1].every_ns, 1.0, 0.02);
	sim_stop();
}
END_TEST

START_TEST(test_gpu_small_kernels_overlap_at_full_speed)
{
	sim_start();
	for (uint32_t i = 0; i < 4; i++)
		(void)add(i ? 100 : 10000, 1, 90, 60);
	sim_run(GANTRY_NS_PER_S);
	for (uint32_t i = 0; i < 4; i++) {
		assert_ratio(sim.c[i].ndone, GANTRY_NS_PER_S / sim.c[i].task_ns, 1.0, 0.005);
		ck_assert_uint_eq(sim.c[i].yields, 0);
		/* Much in flight keeps nobody waiting. */
		ck_assert_uint_eq(gantry_share_window_us(sim.page, i, WINDOW_US, sim.c[i].seen),
				  WINDOW_US);
	}
	sim_stop();
}
END_TEST

/* Fewer lanes than sessions: so many at once, and everybody as long as the others. */
START_TEST(test_gpu_lanes_bound_how_many_sessions_run_at_once)
{
	static const uint32_t lanes[] = { 1, 2, 4 };

	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
		uint64_t ndone = 0;

		sim_start();
		gantry_share_set_gpu(sim.page, true, lanes[i]);
		for (uint32_t k = 0; k < 8; k++) {
			add(100, 1, 90, 60)->batch = 16;
			gantry_share_admit(sim.page, k, k, 0); /* all of one worker, pooled */
		}
		sim_run(GANTRY_NS_PER_S);
		for (uint32_t k = 0; k < 8; k++) {
			ndone += sim.c[k].ndone;
			assert_ratio(sim.c[k].ndone, sim.c[0].ndone, 1.0, 0.1);
		}
		assert_ratio(ndone * 90 * GANTRY_NS_PER_US, lanes[i] * GANTRY_NS_PER_S, 1.0, 0.03);
		sim_stop();
	}
}
END_TEST

START_TEST(test_gpu_two_halves_run_beside_each_other)
{
	sim_start();
	(void)add(1, 1, 100, 499);
	(void)add(10000, 1, 100, 499);
	sim_run(GANTRY_NS_PER_S);
	assert_ratio(sim.c[0].ndone, sim.c[1].ndone, 1.0, 0.01);
	assert_ratio(sim.c[0].ndone, GANTRY_NS_PER_S / (100 * GANTRY_NS_PER_US), 1.0, 0.01);
	sim_stop();
}
END_TEST

START_TEST(test_gpu_flood_of_another_weight_leaves_no_time_unused)
{
	sim_start();
	(void)add(1, 1, 100, GANTRY_SHARE_WHOLE);
	add(10000, 1, 200, GANTRY_SHARE_WHOLE)->every_ns = 5 * GANTRY_NS_PER_MS;
	sim_run(GANTRY_NS_PER_S);
	assert_ratio(busy_of_all(), GANTRY_NS_PER_S, 1.0, 0.01);
	assert_ratio(sim.c[1].ndone, 200, 1.0, 0.02);
	sim_stop();
}
END_TEST

START_TEST(test_gpu_urgent_request_waits_for_what_runs_only)
{
	struct client *urgent;

	sim_start();
	(void)add(10000, 1, 100, GANTRY_SHARE_WHOLE);
	urgent = add(1, 1, 100, GANTRY_SHARE_WHOLE);
	urgent->priority = 1;
	urgent->every_ns = GANTRY_NS_PER_MS + 37000;
	sim_run(GANTRY_NS_PER_S);
	assert_ratio(urgent->ndone, GANTRY_NS_PER_S / urgent->every_ns, 1.0, 0.01);
	ck_assert_uint_le(urgent->worst_ns, 200 * GANTRY_NS_PER_US);
	assert_ratio(busy_of_all(), GANTRY_NS_PER_S, 1.0, 0.02);
	sim_stop();
}
END_TEST

/* The same where each has the GPU alone: what is in flight has to end first, and is little. */
START_TEST(test_gpu_urgent_request_of_another_party_comes_soon)
{
	struct client *urgent;

	sim_start();
	add(10000, 1, 100, 485)->batch = 64;
	urgent = add(1, 2, 100, 60);
	urgent->priority = 10;
	urgent->every_ns = 637000;
	sim_run(GANTRY_NS_PER_S);
	assert_ratio(urgent->ndone, GANTRY_NS_PER_S / urgent->every_ns, 1.0, 0.01);
	ck_assert_uint_le(urgent->total_ns / urgent->ndone, 260 * GANTRY_NS_PER_US);
	ck_assert_uint_gt(sim.c[0].ndone, 5000);
	sim_stop();
}
END_TEST

START_TEST(test_gpu_parties_take_turns_and_tenants_get_their_shares)
{
	sim_start();
	for (uint32_t i = 0; i < 4; i++)
		(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	(void)add(100, 2, 100, GANTRY_SHARE_WHOLE);
	sim_run(4 * GANTRY_NS_PER_S);
	for (uint32_t i = 0; i < 4; i++)
		assert_ratio(sim.c[i].busy_ns, sim.c[4].busy_ns, 1.0, 0.08);
	assert_ratio(busy_of_all(), 4 * GANTRY_NS_PER_S, 1.0, 0.02);
	sim_stop();
}
END_TEST

/* Session 0 has @lead_ns more than 1, which fills the device now. Both of one party. */
static void lead_by(uint64_t lead_ns)
{
	uint32_t seen = 0;

	sim_start();
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	gantry_share_want(sim.page, 1, 0);
	ck_assert_int_ge(gantry_share_take(sim.page, 1), 0);
	gantry_share_use(sim.page, 1, GANTRY_SHARE_WHOLE);
	gantry_share_want(sim.page, 0, 0);
	gantry_share_charge(sim.page, 0, lead_ns);
	ck_assert(!gantry_share_must_yield(sim.page, 1, &seen));
	ck_assert_uint_lt(gantry_share_window_us(sim.page, 1, WINDOW_US, seen), WINDOW_US);
}

START_TEST(test_gpu_copies_to_the_host_do_not_stand_back_for_kernels)
{
	uint32_t seen = 0;
	int lane;

	lead_by(2ull * GANTRY_SHARE_SLICE_NS);
	ck_assert_int_eq(gantry_share_take(sim.page, 0), -EAGAIN);
	lane = gantry_share_take_to_move(sim.page, 0);
	ck_assert_int_ge(lane, 0);
	ck_assert(!gantry_share_must_yield_to_move(sim.page, 0, &seen));
	/* What follows the copy has to. */
	ck_assert(gantry_share_must_yield(sim.page, 0, &seen));
	gantry_share_give(sim.page, 0, lane, true);
	ck_assert_int_eq(gantry_share_take(sim.page, 0), -EAGAIN);
	sim_stop();
}
END_TEST

START_TEST(test_gpu_copies_wait_for_another_party)
{
	sim_start();
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	(void)add(100, 2, 100, GANTRY_SHARE_WHOLE);
	gantry_share_want(sim.page, 1, 0);
	ck_assert_int_ge(gantry_share_take(sim.page, 1), 0);
	gantry_share_want(sim.page, 0, 0);
	ck_assert_int_eq(gantry_share_take_to_move(sim.page, 0), -EAGAIN);
	sim_stop();
}
END_TEST

/* Some microseconds of a copy are no reason to let another's kernels end first. */
START_TEST(test_gpu_who_comes_stands_back_from_a_lead_of_a_slice_only)
{
	uint32_t seen = 0;
	int lane;

	lead_by(GANTRY_SHARE_SLICE_NS / 2);
	lane = gantry_share_take(sim.page, 0);
	ck_assert_int_ge(lane, 0);
	gantry_share_charge(sim.page, 0, GANTRY_SHARE_SLICE_NS);
	ck_assert(gantry_share_must_yield(sim.page, 0, &seen));
	gantry_share_give(sim.page, 0, lane, true);
	/* Who has stood back does so until there is no lead. */
	gantry_share_charge(sim.page, 1, GANTRY_SHARE_SLICE_NS);
	ck_assert_int_eq(gantry_share_take(sim.page, 0), -EAGAIN);
	gantry_share_charge(sim.page, 1, GANTRY_SHARE_SLICE_NS / 2);
	ck_assert_int_ge(gantry_share_take(sim.page, 0), 0);
	sim_stop();
}
END_TEST

START_TEST(test_gpu_isolated_floods_share_by_weight)
{
	sim_start();
	(void)add(300, 1, 100, GANTRY_SHARE_WHOLE);
	(void)add(100, 2, 250, 300);
	sim_run(4 * GANTRY_NS_PER_S);
	/* Alone on the device it is all of it that the second has, filled or not. */
	assert_ratio(sim.c[0].ndone * 100, sim.c[1].ndone * 250, 3.0, 0.05);
	sim_stop();
}
END_TEST

/* ---- pauses between turns ---- */

#define SWITCH_NS (200 * GANTRY_NS_PER_US)

/* Parties whose guests put one short command after the other, and what they get done in a second. */
static uint64_t filters(uint32_t n, uint32_t turn_pause_us, uint64_t pause_us)
{
	uint64_t ndone = 0;

	sim_start();
	sim.switch_ns = SWITCH_NS;
	gantry_share_set_turn_pause(sim.page, turn_pause_us);
	for (uint32_t i = 0; i < n; i++) {
		struct client *c = add(i ? 100 : 300, 1 + i, 30, GANTRY_SHARE_WHOLE);

		c->batch = 1;
		c->pause_ns = pause_us * GANTRY_NS_PER_US;
	}
	sim_run(GANTRY_NS_PER_S);
	for (uint32_t i = 0; i < n; i++)
		ndone += sim.c[i].ndone;
	return ndone;
}

START_TEST(test_gpu_is_not_handed_over_in_each_short_pause)
{
	for (uint32_t n = 2; n <= 4; n += 2) {
		uint64_t at_once = filters(n, 0, 15);

		sim_stop();
		/* One after the other would be 22222. */
		ck_assert_uint_gt(filters(n, GANTRY_SHARE_TURN_PAUSE_US, 15), 4 * at_once);
		ck_assert_uint_gt(sim.c[1].ndone, 0);
		for (uint32_t i = 1; i < n; i++)
			assert_ratio(sim.c[0].ndone, sim.c[i].ndone, 3.0, 0.1);
		sim_stop();
	}
}
END_TEST

/* A guest that is gone for longer than a pause costs what waits no more than that, and pays. */
START_TEST(test_gpu_pause_in_vain_is_short)
{
	uint64_t at_once = filters(4, 0, 150);

	sim_stop();
	ck_assert_uint_gt(2 * filters(4, GANTRY_SHARE_TURN_PAUSE_US, 150), at_once);
	sim_stop();
}
END_TEST

/* A guest that puts next to nothing, just in time to keep the GPU: all that it keeps is its own time. */
START_TEST(test_gpu_idleness_on_purpose_takes_nothing_from_others)
{
	for (uint32_t weight = 100; weight <= 300; weight += 200) {
		sim_start();
		add(100, 1, 1, GANTRY_SHARE_WHOLE)->batch = 1;
		sim.c[0].pause_ns = 90 * GANTRY_NS_PER_US;
		(void)add(weight, 2, 100, GANTRY_SHARE_WHOLE);
		sim_run(GANTRY_NS_PER_S);
		ck_assert_uint_ge(sim.c[1].busy_ns,
				  GANTRY_NS_PER_S / (weight + 100) * weight * 97 / 100);
		ck_assert_uint_gt(sim.c[0].ndone, 0);
		sim_stop();
	}
}
END_TEST

/* Of two parties 0 has a lane and nothing in flight, and 1 waits. */
static void pause_of_two(uint32_t turn_pause_us)
{
	sim_start();
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	(void)add(100, 2, 100, GANTRY_SHARE_WHOLE);
	gantry_share_set_turn_pause(sim.page, turn_pause_us);
	gantry_share_want(sim.page, 0, 0);
	sim.c[0].lane = gantry_share_take(sim.page, 0);
	ck_assert_int_ge(sim.c[0].lane, 0);
	gantry_share_want(sim.page, 1, 0);
}

START_TEST(test_gpu_is_kept_for_the_pause_that_is_said)
{
	pause_of_two(100);
	ck_assert(gantry_share_keeps(sim.page, 0, 0));
	ck_assert(gantry_share_keeps(sim.page, 0, 99999));
	ck_assert(!gantry_share_keeps(sim.page, 0, 100000));
	gantry_share_set_turn_pause(sim.page, 0);
	ck_assert(!gantry_share_keeps(sim.page, 0, 0));
	/* A number that makes no sense is bounded. */
	gantry_share_set_turn_pause(sim.page, UINT32_MAX);
	ck_assert(gantry_share_keeps(sim.page, 0, 999999));
	ck_assert(!gantry_share_keeps(sim.page, 0, 1000000));
	/* Nobody is kept from it; and a device with lanes of queues has no turns. */
	gantry_share_leave(sim.page, 1);
	ck_assert(!gantry_share_keeps(sim.page, 0, 0));
	gantry_share_want(sim.page, 1, 0);
	gantry_share_set_gpu(sim.page, false, 0);
	ck_assert(!gantry_share_keeps(sim.page, 0, 0));
	sim_stop();
}
END_TEST

START_TEST(test_gpu_is_not_kept_from_the_urgent_nor_by_who_leads_by_a_slice)
{
	pause_of_two(100);
	gantry_share_want(sim.page, 1, 1);
	ck_assert(!gantry_share_keeps(sim.page, 0, 0));
	gantry_share_want(sim.page, 1, -1);
	ck_assert(gantry_share_keeps(sim.page, 0, 0));
	gantry_share_want(sim.page, 1, 0);
	gantry_share_charge(sim.page, 0, GANTRY_SHARE_SLICE_NS - 50000);
	/* What it would pay for counts. */
	ck_assert(gantry_share_keeps(sim.page, 0, 50000));
	ck_assert(!gantry_share_keeps(sim.page, 0, 50001));
	gantry_share_set_tenant(sim.page, 0, 1);
	ck_assert(gantry_share_keeps(sim.page, 0, 500));
	ck_assert(!gantry_share_keeps(sim.page, 0, 501));
	sim_stop();
}
END_TEST

START_TEST(test_gpu_is_not_kept_of_a_drained_device_nor_from_the_own_party)
{
	pause_of_two(100);
	gantry_share_disable(sim.page, true);
	ck_assert(!gantry_share_keeps(sim.page, 0, 0));
	gantry_share_disable(sim.page, false);
	ck_assert(gantry_share_keeps(sim.page, 0, 0));
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	ck_assert(gantry_share_keeps(sim.page, 0, 0));
	gantry_share_want(sim.page, 2, 0);
	ck_assert(!gantry_share_keeps(sim.page, 0, 0));
	sim_stop();
}
END_TEST

START_TEST(test_gpu_what_is_kept_from_others_is_paid_for)
{
	uint64_t from_ns;

	pause_of_two(100);
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	gantry_share_leave(sim.page, 1);
	from_ns = sim.now_ns;
	sim.now_ns += 30000;
	gantry_share_charge_pause(sim.page, 0, from_ns, sim.now_ns);
	ck_assert_uint_eq(sim.page->tenants[0].device_ns, 0);
	/* From when the other has waited. */
	gantry_share_want(sim.page, 1, 0);
	sim.now_ns += 20000;
	gantry_share_charge_pause(sim.page, 0, from_ns, sim.now_ns);
	ck_assert_uint_eq(sim.page->tenants[0].device_ns, 20000);
	/* Who kept it, too, pays a part; and while another of the party has it at work, that one does. */
	gantry_share_want(sim.page, 2, 1);
	ck_assert_int_ge(gantry_share_take(sim.page, 2), 0);
	gantry_share_charge_pause(sim.page, 0, from_ns, sim.now_ns);
	ck_assert_uint_eq(sim.page->tenants[0].device_ns, 30000);
	gantry_share_use(sim.page, 2, 10);
	gantry_share_charge_pause(sim.page, 0, from_ns, sim.now_ns);
	ck_assert_uint_eq(sim.page->tenants[0].device_ns, 30000);
	sim_stop();
}
END_TEST

/* Who dies in its pause keeps nobody waiting. */
START_TEST(test_gpu_pause_of_the_dead_is_over)
{
	pause_of_two(1000);
	ck_assert_int_eq(gantry_share_take(sim.page, 1), -EAGAIN);
	ck_assert_uint_eq(gantry_share_bury(sim.page, 0), 1);
	ck_assert_int_ge(gantry_share_take(sim.page, 1), 0);
	sim_stop();
}
END_TEST

START_TEST(test_gpu_dead_worker_is_forgotten)
{
	sim_start();
	(void)add(100, 1, 100, GANTRY_SHARE_WHOLE);
	(void)add(100, 2, 100, GANTRY_SHARE_WHOLE);
	gantry_share_want(sim.page, 0, 0);
	ck_assert_int_ge(gantry_share_take(sim.page, 0), 0);
	gantry_share_use(sim.page, 0, GANTRY_SHARE_WHOLE);
	gantry_share_want(sim.page, 1, 0);
	ck_assert_int_eq(gantry_share_take(sim.page, 1), -EAGAIN);
	ck_assert_uint_eq(gantry_share_bury(sim.page, 0), 1);
	ck_assert_uint_eq(sim.page->sessions[0].units, 0);
	ck_assert_int_ge(gantry_share_take(sim.page, 1), 0);
	sim_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share-gpu");
	TCase *tc = gantry_unit_case(suite, "gpu");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_gpu_floods_share_by_weight);
	tcase_add_test(tc, test_gpu_what_is_never_alone_asks_for_quiet);
	tcase_add_test(tc, test_gpu_quiet_is_for_one_for_a_moment_and_not_for_the_urgent);
	tcase_add_test(tc, test_gpu_batches_share_by_weight);
	tcase_add_test(tc, test_gpu_pauses_are_short);
	tcase_add_test(tc, test_gpu_small_kernels_overlap_at_full_speed);
	tcase_add_test(tc, test_gpu_lanes_bound_how_many_sessions_run_at_once);
	tcase_add_test(tc, test_gpu_two_halves_run_beside_each_other);
	tcase_add_test(tc, test_gpu_flood_of_another_weight_leaves_no_time_unused);
	tcase_add_test(tc, test_gpu_urgent_request_waits_for_what_runs_only);
	tcase_add_test(tc, test_gpu_urgent_request_of_another_party_comes_soon);
	tcase_add_test(tc, test_gpu_parties_take_turns_and_tenants_get_their_shares);
	tcase_add_test(tc, test_gpu_copies_to_the_host_do_not_stand_back_for_kernels);
	tcase_add_test(tc, test_gpu_copies_wait_for_another_party);
	tcase_add_test(tc, test_gpu_who_comes_stands_back_from_a_lead_of_a_slice_only);
	tcase_add_test(tc, test_gpu_isolated_floods_share_by_weight);
	tcase_add_test(tc, test_gpu_is_not_handed_over_in_each_short_pause);
	tcase_add_test(tc, test_gpu_pause_in_vain_is_short);
	tcase_add_test(tc, test_gpu_idleness_on_purpose_takes_nothing_from_others);
	tcase_add_test(tc, test_gpu_is_kept_for_the_pause_that_is_said);
	tcase_add_test(tc, test_gpu_is_not_kept_from_the_urgent_nor_by_who_leads_by_a_slice);
	tcase_add_test(tc, test_gpu_is_not_kept_of_a_drained_device_nor_from_the_own_party);
	tcase_add_test(tc, test_gpu_what_is_kept_from_others_is_paid_for);
	tcase_add_test(tc, test_gpu_pause_of_the_dead_is_over);
	tcase_add_test(tc, test_gpu_dead_worker_is_forgotten);
	return gantry_unit_run(suite);
}
