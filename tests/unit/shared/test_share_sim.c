/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing over simulated seconds: lanes run tasks of set lengths, the clock jumps from end to end, and
 * a waiting session does nothing until its worker is called. After every event a free lane with somebody
 * waiting fails the test: that is a lost call, or work not conserved.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "tests/unit/runner.h"

#define NOTHING	      UINT64_MAX
#define SIM_NSESSIONS 32u

uint64_t gantry_test_now_ns(void);

struct sim_session {
	uint64_t task_ns;
	uint64_t start_ns; /* wants nothing before */
	uint64_t stop_ns;  /* wants nothing more after */
	uint64_t burst;	   /* tasks between pauses; 0: no pauses */
	uint64_t pause_ns;
	int32_t priority;
	uint32_t nqueues; /* lanes that it can use */
	bool dead;
	/* the simulation's */
	uint64_t nrun;
	uint64_t resume_ns;
	uint32_t ticket;
	uint32_t seen;
	uint32_t nlanes;
};

struct sim_lane {
	uint64_t end_ns; /* NOTHING: free */
	uint64_t task_ns;
	uint32_t session;
};

static struct {
	struct gantry_share_page *page;
	int fd;
	uint64_t now_ns;
	uint64_t random;
	uint32_t nlanes;
	uint32_t nsessions;
	struct sim_session sessions[SIM_NSESSIONS];
	struct sim_lane lanes[GANTRY_SHARE_NLANES];
	uint64_t yields;
} sim = { .fd = -EBADF };

uint64_t gantry_test_now_ns(void)
{
	return sim.now_ns;
}

static uint64_t next_random(void)
{
	sim.random ^= sim.random << 13;
	sim.random ^= sim.random >> 7;
	sim.random ^= sim.random << 17;
	return sim.random;
}

static void sim_start(uint32_t nlanes)
{
	memset(&sim, 0, sizeof(sim));
	sim.now_ns = GANTRY_NS_PER_S;
	sim.random = 88172645463325252ull;
	sim.nlanes = nlanes;
	for (uint32_t i = 0; i < GANTRY_SHARE_NLANES; i++)
		sim.lanes[i].end_ns = NOTHING;
	ck_assert_int_eq(gantry_share_create("sim0", nlanes, 0, &sim.page, &sim.fd, NULL), 0);
}

static void sim_stop(void)
{
	gantry_share_close(sim.page);
	sim.fd = gantry_fd_close(sim.fd);
}

static void sim_tenant(uint32_t tenant, uint32_t weight)
{
	gantry_share_set_tenant(sim.page, tenant, weight);
}

/* A session that floods: always one more task of @task_ns. */
static struct sim_session *sim_session(uint32_t tenant, uint32_t worker, uint64_t task_ns)
{
	uint32_t i = sim.nsessions++;
	struct sim_session *s = &sim.sessions[i];

	ck_assert_uint_lt(i, SIM_NSESSIONS);
	gantry_share_admit(sim.page, i, tenant, worker);
	s->task_ns = task_ns;
	s->stop_ns = NOTHING;
	s->nqueues = 1;
	return s;
}

static bool has_work(const struct sim_session *s)
{
	return !s->dead && sim.now_ns >= s->start_ns && sim.now_ns < s->stop_ns &&
	       sim.now_ns >= s->resume_ns && s->nlanes < s->nqueues;
}

static void start_task(uint32_t lane, uint32_t session)
{
	struct sim_session *s = &sim.sessions[session];

	/* Lengths vary by a quarter, so that nothing runs in step. */
	sim.lanes[lane].task_ns = s->task_ns - s->task_ns / 8 + next_random() % (s->task_ns / 4);
	sim.lanes[lane].end_ns = sim.now_ns + sim.lanes[lane].task_ns;
	sim.lanes[lane].session = session;
}

static bool try_take(uint32_t session)
{
	int lane = gantry_share_take(sim.page, session);

	if (lane < 0)
		return false;
	ck_assert_uint_eq(sim.lanes[lane].end_ns, NOTHING);
	sim.sessions[session].nlanes++;
	start_task((uint32_t)lane, session);
	return true;
}

/* As a device thread: want, ticket, take; then nothing until the worker is called. */
static bool serve(uint32_t session, bool again)
{
	struct sim_session *s = &sim.sessions[session];
	uint32_t worker = sim.page->sessions[session].worker;
	bool called = gantry_share_ticket(sim.page, worker) != s->ticket;
	bool wanted = sim.page->sessions[session].wants;

	if (!has_work(s)) {
		if (wanted && !s->dead)
			gantry_share_leave(sim.page, session);
		return false;
	}
	if (wanted && !called && !again)
		return false;
	gantry_share_want(sim.page, session, s->priority);
	s->ticket = gantry_share_ticket(sim.page, worker);
	return try_take(session) || !wanted;
}

/* Everyone who is called or has new work acts, in an order of chance, until nobody can. */
static void settle(void)
{
	bool acted = true;

	for (int rounds = 0; acted; rounds++) {
		uint32_t first = (uint32_t)(next_random() % sim.nsessions);

		ck_assert_msg(rounds < 1000, "the sessions call each other without end");
		acted = false;
		for (uint32_t i = 0; i < sim.nsessions; i++)
			acted |= serve((first + i) % sim.nsessions, false);
		/* A call answered in vain may have called others. */
		for (uint32_t i = 0; i < sim.nsessions && !acted; i++) {
			uint32_t worker = sim.page->sessions[i].worker;

			acted = has_work(&sim.sessions[i]) &&
				sim.sessions[i].ticket != gantry_share_ticket(sim.page, worker);
		}
	}
}

static void assert_work_conserved(void)
{
	uint32_t nfree = 0;

	for (uint32_t i = 0; i < sim.nlanes; i++)
		nfree += sim.lanes[i].end_ns == NOTHING;
	for (uint32_t i = 0; i < sim.nsessions && nfree; i++)
		ck_assert_msg(!has_work(&sim.sessions[i]), "a lane is free and session %u waits",
			      i);
}

static void end_task(uint32_t lane)
{
	uint32_t session = sim.lanes[lane].session;
	struct sim_session *s = &sim.sessions[session];
	bool yield;

	gantry_share_charge(sim.page, session, sim.lanes[lane].task_ns);
	s->nrun++;
	if (s->burst && s->nrun % s->burst == 0)
		s->resume_ns = sim.now_ns + s->pause_ns;
	s->nlanes--;
	yield = gantry_share_must_yield(sim.page, session, &s->seen);
	if (has_work(s) && !yield) {
		s->nlanes++;
		start_task(lane, session);
		return;
	}
	sim.yields += yield;
	sim.lanes[lane].end_ns = NOTHING;
	gantry_share_give(sim.page, session, (int)lane, has_work(s));
}

/* The next moment at which anything happens by itself. */
static uint64_t next_event(void)
{
	uint64_t next = NOTHING;

	for (uint32_t i = 0; i < sim.nlanes; i++)
		if (sim.lanes[i].end_ns < next)
			next = sim.lanes[i].end_ns;
	for (uint32_t i = 0; i < sim.nsessions; i++) {
		const struct sim_session *s = &sim.sessions[i];

		if (s->start_ns > sim.now_ns && s->start_ns < next)
			next = s->start_ns;
		if (s->resume_ns > sim.now_ns && s->resume_ns < next)
			next = s->resume_ns;
	}
	return next;
}

static void sim_run(uint64_t duration_ns)
{
	uint64_t until_ns = sim.now_ns + duration_ns;

	settle();
	for (;;) {
		uint64_t next = next_event();

		if (next > until_ns)
			break;
		sim.now_ns = next;
		for (uint32_t i = 0; i < sim.nlanes; i++)
			if (sim.lanes[i].end_ns <= sim.now_ns)
				end_task(i);
		settle();
		assert_work_conserved();
	}
	sim.now_ns = until_ns;
}

static uint64_t tenant_ns(uint32_t tenant)
{
	return sim.page->tenants[tenant].device_ns;
}

static void assert_ratio(uint64_t a, uint64_t b, double want, double tolerance)
{
	double ratio = (double)a / (double)b;

	ck_assert_msg(ratio > want * (1 - tolerance) && ratio < want * (1 + tolerance),
		      "%.4f, not %.4f", ratio, want);
}

START_TEST(test_sim_weights_three_to_one_whatever_the_lengths)
{
	const uint64_t us[][2] = {
		{ 70, 1100 }, { 1100, 70 }, { 5, 5 }, { 3000, 20 }, { 9000, 9000 }
	};

	for (size_t i = 0; i < sizeof(us) / sizeof(us[0]); i++) {
		sim_start(1);
		sim_tenant(0, 300);
		sim_tenant(1, 100);
		(void)sim_session(0, 0, us[i][0] * GANTRY_NS_PER_US);
		(void)sim_session(1, 1, us[i][1] * GANTRY_NS_PER_US);
		sim_run((us[i][0] == 5 ? 2 : 10) * GANTRY_NS_PER_S);
		assert_ratio(tenant_ns(0), tenant_ns(1), 3.0, 0.01);
		sim_stop();
	}
}
END_TEST

START_TEST(test_sim_eight_flooding_sessions_get_no_more_than_one)
{
	sim_start(1);
	sim_tenant(0, 100);
	sim_tenant(1, 100);
	for (uint32_t i = 0; i < 8; i++)
		(void)sim_session(0, i, (50 + 100 * i) * GANTRY_NS_PER_US);
	(void)sim_session(1, 8, 200 * GANTRY_NS_PER_US);
	sim_run(10 * GANTRY_NS_PER_S);
	assert_ratio(tenant_ns(0), tenant_ns(1), 1.0, 0.01);
	/* And among themselves the eight are even too. */
	for (uint32_t i = 0; i < 8; i++)
		assert_ratio(sim.page->sessions[i].device_ns * 8, tenant_ns(0), 1.0, 0.02);
	sim_stop();
}
END_TEST

START_TEST(test_sim_pooled_sessions_of_one_worker_are_even)
{
	sim_start(1);
	sim_tenant(0, 100);
	sim_tenant(1, 100);
	for (uint32_t i = 0; i < 6; i++)
		(void)sim_session(i % 2, 0, (20 + 30 * i) * GANTRY_NS_PER_US);
	sim_run(3 * GANTRY_NS_PER_S);
	assert_ratio(tenant_ns(0), tenant_ns(1), 1.0, 0.01);
	assert_ratio(sim.page->sessions[0].device_ns, sim.page->sessions[4].device_ns, 1.0, 0.01);
	sim_stop();
}
END_TEST

START_TEST(test_sim_idle_tenant_returns_without_credit)
{
	struct sim_session *b;
	uint64_t a_ns;
	uint64_t b_ns;

	sim_start(1);
	sim_tenant(0, 100);
	sim_tenant(1, 100);
	(void)sim_session(0, 0, 100 * GANTRY_NS_PER_US);
	b = sim_session(1, 1, 100 * GANTRY_NS_PER_US);
	b->stop_ns = sim.now_ns + GANTRY_NS_PER_MS;
	sim_run(5 * GANTRY_NS_PER_S);
	b->stop_ns = NOTHING;
	a_ns = tenant_ns(0);
	b_ns = tenant_ns(1);
	sim_run(400 * GANTRY_NS_PER_MS);
	assert_ratio(tenant_ns(0) - a_ns, tenant_ns(1) - b_ns, 1.0, 0.02);
	sim_stop();
}
END_TEST

START_TEST(test_sim_lone_use_is_not_held_against_a_tenant)
{
	struct sim_session *a;
	struct sim_session *b;
	uint64_t a_ns;

	sim_start(1);
	sim_tenant(0, 100);
	sim_tenant(1, 100);
	a = sim_session(0, 0, 100 * GANTRY_NS_PER_US);
	b = sim_session(1, 1, 100 * GANTRY_NS_PER_US);
	/* A alone for 5 s, then a pause, then both. */
	a->stop_ns = sim.now_ns + 5 * GANTRY_NS_PER_S;
	b->start_ns = a->stop_ns + GANTRY_NS_PER_S;
	sim_run(6 * GANTRY_NS_PER_S);
	sim_run(GANTRY_NS_PER_MS);
	a->stop_ns = NOTHING;
	a_ns = tenant_ns(0);
	sim_run(400 * GANTRY_NS_PER_MS);
	assert_ratio(tenant_ns(0) - a_ns, tenant_ns(1), 1.0, 0.02);
	sim_stop();
}
END_TEST

START_TEST(test_sim_higher_priority_preempts_between_tasks)
{
	struct sim_session *high;
	uint64_t low_ns;

	sim_start(1);
	sim_tenant(0, 10000);
	sim_tenant(1, 1);
	(void)sim_session(0, 0, 100 * GANTRY_NS_PER_US);
	(void)sim_session(0, 1, 100 * GANTRY_NS_PER_US);
	high = sim_session(1, 2, 50 * GANTRY_NS_PER_US);
	high->priority = 1;
	high->burst = 20;
	high->pause_ns = 10 * GANTRY_NS_PER_MS;
	sim_run(2 * GANTRY_NS_PER_S);
	/* It never waits longer than the task that is running, weights or not: 1 ms + 10 ms + 0.1 ms. */
	ck_assert_uint_ge(sim.sessions[2].nrun, 20 * 178);
	low_ns = tenant_ns(0);
	high->burst = 0;
	sim_run(200 * GANTRY_NS_PER_MS);
	/* While it has work nobody below it runs. */
	ck_assert_uint_le(tenant_ns(0) - low_ns, 11 * GANTRY_NS_PER_MS);
	sim_stop();
}
END_TEST

START_TEST(test_sim_two_tenants_share_four_lanes)
{
	sim_start(4);
	sim_tenant(0, 100);
	sim_tenant(1, 100);
	sim_session(0, 0, 300 * GANTRY_NS_PER_US)->nqueues = 4;
	sim_session(1, 1, 800 * GANTRY_NS_PER_US)->nqueues = 4;
	sim_run(5 * GANTRY_NS_PER_S);
	assert_ratio(tenant_ns(0), tenant_ns(1), 1.0, 0.01);
	assert_ratio(tenant_ns(0) + tenant_ns(1), 20 * GANTRY_NS_PER_S, 1.0, 0.001);
	sim_stop();
}
END_TEST

START_TEST(test_sim_session_that_can_use_less_leaves_the_rest)
{
	sim_start(4);
	sim_tenant(0, 100);
	sim_tenant(1, 100);
	sim_session(0, 0, 300 * GANTRY_NS_PER_US)->nqueues = 1;
	sim_session(1, 1, 300 * GANTRY_NS_PER_US)->nqueues = 8;
	sim_run(2 * GANTRY_NS_PER_S);
	assert_ratio(tenant_ns(1), tenant_ns(0), 3.0, 0.01);
	assert_ratio(tenant_ns(0) + tenant_ns(1), 8 * GANTRY_NS_PER_S, 1.0, 0.001);
	sim_stop();
}
END_TEST

START_TEST(test_sim_no_waiter_no_yield)
{
	sim_start(3);
	sim_tenant(0, 100);
	sim_tenant(1, 1);
	sim_tenant(2, 10000);
	for (uint32_t i = 0; i < 3; i++)
		sim_session(i, i, 500 * GANTRY_NS_PER_US)->priority = (int32_t)i;
	sim_run(GANTRY_NS_PER_S);
	ck_assert_uint_eq(sim.yields, 0);
	ck_assert_uint_eq(sim.page->sessions[0].waits, 0);
	sim_stop();
}
END_TEST

/* Sessions that come and go at random on 1, 2, 5 lanes; sim_run() asserts that no lane idles. */
START_TEST(test_sim_random_load_never_idles_a_lane)
{
	const uint32_t lanes[] = { 1, 2, 5 };

	for (size_t round = 0; round < 12; round++) {
		sim_start(lanes[round % 3]);
		sim.random += round * 0x9e3779b97f4a7c15ull;
		for (uint32_t i = 0; i < 4; i++)
			sim_tenant(i, 50 * (i + 1));
		for (uint32_t i = 0; i < 12; i++) {
			struct sim_session *s;

			s = sim_session(i % 4, round % 2 ? i : i / 3,
					(10 + next_random() % 900) * GANTRY_NS_PER_US);
			s->burst = 1 + next_random() % 9;
			s->pause_ns = next_random() % (8 * GANTRY_NS_PER_MS);
			s->priority = (int32_t)(next_random() % 3);
			s->nqueues = 1 + (uint32_t)(next_random() % 3);
			s->start_ns = sim.now_ns + next_random() % (20 * GANTRY_NS_PER_MS);
		}
		sim_run(500 * GANTRY_NS_PER_MS);
		sim_stop();
	}
}
END_TEST

START_TEST(test_sim_holder_dies_and_is_buried_others_go_on)
{
	struct sim_session *victim;
	uint64_t before;
	uint64_t at;

	sim_start(2);
	sim_tenant(0, 100);
	sim_tenant(1, 100);
	victim = sim_session(0, 0, 100 * GANTRY_NS_PER_US);
	victim->nqueues = 2;
	sim_session(1, 1, 100 * GANTRY_NS_PER_US)->nqueues = 2;
	sim_run(100 * GANTRY_NS_PER_MS);
	victim->dead = true;
	victim->nlanes = 0;
	for (uint32_t i = 0; i < 2; i++)
		if (sim.lanes[i].end_ns != NOTHING && sim.lanes[i].session == 0)
			sim.lanes[i].end_ns = NOTHING;
	(void)gantry_share_bury(sim.page, 0);
	ck_assert_uint_eq(sim.page->sessions[0].state, GANTRY_SHARE_IDLE);
	before = tenant_ns(1);
	at = sim.now_ns;
	sim_run(100 * GANTRY_NS_PER_MS);
	assert_ratio(tenant_ns(1) - before, 2 * (sim.now_ns - at), 1.0, 0.01);
	sim_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share-sim");
	TCase *tc = gantry_unit_case(suite, "sim");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_sim_weights_three_to_one_whatever_the_lengths);
	tcase_add_test(tc, test_sim_eight_flooding_sessions_get_no_more_than_one);
	tcase_add_test(tc, test_sim_pooled_sessions_of_one_worker_are_even);
	tcase_add_test(tc, test_sim_idle_tenant_returns_without_credit);
	tcase_add_test(tc, test_sim_lone_use_is_not_held_against_a_tenant);
	tcase_add_test(tc, test_sim_higher_priority_preempts_between_tasks);
	tcase_add_test(tc, test_sim_two_tenants_share_four_lanes);
	tcase_add_test(tc, test_sim_session_that_can_use_less_leaves_the_rest);
	tcase_add_test(tc, test_sim_no_waiter_no_yield);
	tcase_add_test(tc, test_sim_random_load_never_idles_a_lane);
	tcase_add_test(tc, test_sim_holder_dies_and_is_buried_others_go_on);
	return gantry_unit_run(suite);
}
