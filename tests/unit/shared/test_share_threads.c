/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real threads, real futexes, and a clock that stands still: patience never runs out, so one lost
 * wake-up hangs a thread for good and fails the test by its time limit.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "tests/unit/runner.h"

#define NTHREADS  6u
#define TIMEOUT_S 60
#define MAX_RUNS  50u

uint64_t gantry_test_now_ns(void);

struct thread {
	pthread_t thread;
	uint32_t worker;
	uint32_t nsessions; /* that it serves: worker, worker + NTHREADS, ... */
	uint32_t rounds;    /* tasks for each of them */
};

static struct {
	struct gantry_share_page *page;
	int fd;
	uint32_t owner[GANTRY_SHARE_NLANES]; /* session + 1, as the holders say */
	uint32_t collisions;
	uint64_t sleeps;
	uint64_t tasks;
} world = { .fd = -EBADF };

/* Years from now, so that no sleep ends by itself. */
uint64_t gantry_test_now_ns(void)
{
	return GANTRY_DEADLINE_NEVER / 8;
}

static void burn(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		gantry_cpu_relax();
}

/* Runs tasks on @lane until done or somebody else's turn. Returns how many. */
static uint32_t run_tasks(uint32_t session, int lane, uint32_t ntasks, uint32_t *seen)
{
	uint32_t nobody = 0;
	uint32_t me = session + 1;
	uint32_t n = 0;

	if (!gantry_cas(&world.owner[lane], &nobody, me))
		gantry_count_add(&world.collisions, 1);
	do {
		burn(session * 7 % 60);
		gantry_share_charge(world.page, session, 700000 + session * 1000);
		n++;
	} while (n < ntasks && !gantry_share_must_yield(world.page, session, seen));
	if (!gantry_cas(&world.owner[lane], &me, 0u))
		gantry_count_add(&world.collisions, 1);
	gantry_count_add(&world.tasks, n);
	return n;
}

/* What a device thread keeps about one of its sessions. */
struct served {
	uint32_t session;
	uint32_t left; /* tasks */
	uint32_t seen;
	uint32_t round;
};

/* One look at one session. Whether it did something, so that there is no reason to sleep. */
static bool serve_one(struct served *s)
{
	int lane;

	if (s->left == 0)
		return false;
	lane = gantry_share_take(world.page, s->session);
	if (lane < 0) {
		/* Now and then it has nothing to do after all, when its turn may have come. */
		if (++s->round % 7 != 0)
			return false;
		gantry_share_leave(world.page, s->session);
		return true;
	}
	s->left -= run_tasks(s->session, lane, s->left % 5 ? s->left : 1, &s->seen);
	gantry_share_give(world.page, s->session, lane, s->left % 3 != 0);
	return true;
}

static void *serve(void *arg)
{
	const struct thread *t = arg;
	struct served served[4] = { 0 };
	bool busy = true;

	for (uint32_t i = 0; i < t->nsessions; i++)
		served[i] = (struct served){
			.session = t->worker + i * NTHREADS,
			.left = t->rounds,
		};
	while (busy) {
		uint32_t ticket;
		bool acted = false;

		busy = false;
		for (uint32_t i = 0; i < t->nsessions; i++)
			if (served[i].left)
				gantry_share_want(world.page, served[i].session,
						  (int32_t)(served[i].left / 64 % 2));
		ticket = gantry_share_ticket(world.page, t->worker);
		for (uint32_t i = 0; i < t->nsessions; i++) {
			acted |= serve_one(&served[i]);
			busy |= served[i].left > 0;
		}
		if (busy && !acted) {
			gantry_count_add(&world.sleeps, 1);
			gantry_share_sleep(world.page, t->worker, ticket, GANTRY_DEADLINE_NEVER);
		}
	}
	return NULL;
}

/* @rounds tasks for each of the sessions, the first @ndouble threads serving two of them. */
static void stress(uint32_t nlanes, uint32_t ndouble, uint32_t rounds)
{
	struct thread threads[NTHREADS];
	uint32_t nsessions = 0;

	ck_assert_int_eq(gantry_share_create("sim0", nlanes, 0, &world.page, &world.fd, NULL), 0);
	for (uint32_t i = 0; i < 3; i++)
		gantry_share_set_tenant(world.page, i, 100 * (i + 1));
	for (uint32_t i = 0; i < NTHREADS; i++) {
		threads[i] = (struct thread){
			.worker = i,
			.nsessions = i < ndouble ? 2 : 1,
			.rounds = rounds,
		};
		for (uint32_t j = 0; j < threads[i].nsessions; j++, nsessions++)
			gantry_share_admit(world.page, i + j * NTHREADS, i % 3, i);
	}
	for (uint32_t i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i].thread, NULL, serve, &threads[i]), 0);
	for (uint32_t i = 0; i < NTHREADS; i++)
		pthread_join(threads[i].thread, NULL);

	ck_assert_uint_eq(world.collisions, 0);
	ck_assert_uint_eq(world.tasks, (uint64_t)nsessions * rounds);
	world.tasks = 0;
	for (uint32_t i = 0; i < nlanes; i++)
		ck_assert_uint_eq(world.page->lanes[i], 0);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(world.page->tenants[i].nactive, 0);
	gantry_share_close(world.page);
	world.fd = gantry_fd_close(world.fd);
}

/* The same until somebody had to sleep: with few processors the threads may get by without. */
static void stress_asleep(uint32_t nlanes, uint32_t ndouble, uint32_t rounds)
{
	for (uint32_t i = 0; i < MAX_RUNS && world.sleeps == 0; i++)
		stress(nlanes, ndouble, rounds);
	ck_assert_uint_gt(world.sleeps, 0);
}

START_TEST(test_threads_one_lane_excludes_and_always_wakes)
{
	stress_asleep(1, 0, 30000);
}
END_TEST

START_TEST(test_threads_two_lanes_exclude_and_always_wake)
{
	stress_asleep(2, 0, 30000);
}
END_TEST

START_TEST(test_threads_two_sessions_a_worker_exclude_and_always_wake)
{
	stress_asleep(1, 3, 20000);
}
END_TEST

START_TEST(test_threads_nearly_enough_lanes_exclude_and_always_wake)
{
	stress_asleep(5, 2, 30000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share-threads");
	TCase *tc = gantry_unit_case(suite, "threads");

	tcase_set_timeout(tc, TIMEOUT_S);
	tcase_add_test(tc, test_threads_one_lane_excludes_and_always_wakes);
	tcase_add_test(tc, test_threads_two_lanes_exclude_and_always_wake);
	tcase_add_test(tc, test_threads_two_sessions_a_worker_exclude_and_always_wake);
	tcase_add_test(tc, test_threads_nearly_enough_lanes_exclude_and_always_wake);
	return gantry_unit_run(suite);
}
