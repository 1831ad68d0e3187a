/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends in threads of their own, neither ever spinning: every hand-over goes through park and wake.
 * A sleep that reaches its limit is a lost wake-up. (tests/model proves what this only tries.)
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "tests/unit/proto/fixture.h"

#define STRESS_NS (700 * GANTRY_NS_PER_MS)
#define LOST_NS	  (5 * GANTRY_NS_PER_S)
#define MAX_BATCH 5u
#define NWAITERS  3

static struct ring_fixture f;
static int bell;
static uint32_t stop;
static uint32_t lost;
static uint64_t marks_wrong;

static void setup(void)
{
	ring_fixture_init(&f);
	bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ck_assert_int_ge(bell, 0);
}

static void teardown(void)
{
	close(bell);
	ring_fixture_fini(&f);
}

static void host_sleep(void)
{
	struct pollfd p = { .fd = bell, .events = POLLIN };
	uint64_t count;

	gantry_ring_park(&f.host);
	if (gantry_ring_ready(&f.host) == 0 && !gantry_load_acquire(&stop)) {
		if (poll(&p, 1, (int)(LOST_NS / GANTRY_NS_PER_MS)) == 0)
			gantry_store_relaxed(&lost, 1);
		(void)!read(bell, &count, sizeof(count)); /* non-blocking: nothing there is fine */
	}
	gantry_ring_unpark(&f.host);
}

static void *host(void *arg)
{
	struct gantry_desc desc;
	struct gantry_inline inl;

	while (!gantry_load_acquire(&stop)) {
		int64_t n = gantry_ring_ready(&f.host);
		uint64_t mark;

		if (n == 0) {
			host_sleep();
			continue;
		}
		for (int64_t i = 0; i < n; i++) {
			gantry_ring_peek(&f.host, &desc, &inl);
			memcpy(&mark, desc.imm, sizeof(mark));
			marks_wrong += mark != f.host.head;
			gantry_ring_advance(&f.host);
		}
		gantry_ring_complete(&f.host, f.host.head);
		(void)gantry_ring_wake(&f.host);
	}
	return arg;
}

static void kick(void)
{
	const uint64_t one = 1;

	(void)!write(bell, &one, sizeof(one)); /* full: then it rings anyway */
}

static void wait_for(uint64_t seq)
{
	gantry_ring_wait_enter(&f.map);
	while (gantry_ring_done(&f.map) < seq && !gantry_load_relaxed(&lost))
		if (gantry_ring_wait_sleep(&f.map, seq, gantry_now_ns() + LOST_NS) == -ETIMEDOUT)
			gantry_store_relaxed(&lost, 1);
	gantry_ring_wait_leave(&f.map);
}

static void put_batch(uint32_t n)
{
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, n), 0);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t mark = f.guest.tail + i;
		struct gantry_desc *desc = gantry_ring_desc(&f.guest, i);

		desc->op = 1;
		desc->flags = 0;
		memcpy(desc->imm, &mark, sizeof(mark));
	}
	gantry_ring_publish(&f.guest, n);
	if (gantry_ring_must_kick(&f.map))
		kick();
}

START_TEST(test_park_and_wait_under_load_lose_no_wake_up)
{
	uint64_t end = gantry_now_ns() + STRESS_NS;
	uint64_t rounds = 0;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, host, NULL), 0);
	while (gantry_now_ns() < end && !gantry_load_relaxed(&lost)) {
		put_batch(1 + (uint32_t)(rounds % MAX_BATCH));
		wait_for(f.guest.tail);
		rounds++;
	}
	gantry_store_release(&stop, 1);
	kick();
	ck_assert_int_eq(pthread_join(thread, NULL), 0);

	ck_assert_msg(!lost, "a wake-up was lost after %lu rounds", (unsigned long)rounds);
	ck_assert_uint_eq(marks_wrong, 0);
	ck_assert_uint_eq(gantry_ring_done(&f.map), f.guest.tail);
	ck_assert_uint_gt(rounds, 10);
}
END_TEST

static void *wait_for_one(void *arg)
{
	wait_for(*(uint64_t *)arg);
	return arg;
}

START_TEST(test_wake_reaches_every_waiting_thread)
{
	pthread_t threads[NWAITERS];
	uint64_t seqs[NWAITERS] = { 1, 2, 2 };

	for (int i = 0; i < NWAITERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_one, &seqs[i]), 0);
	while (gantry_load_relaxed(&f.map.area->waiters) < NWAITERS)
		gantry_cpu_relax();
	gantry_ring_complete(&f.host, 2);
	ck_assert(gantry_ring_wake(&f.host));
	for (int i = 0; i < NWAITERS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert(!lost);
	ck_assert_uint_eq(f.map.area->waiters, 0);
}
END_TEST

START_TEST(test_consumer_init_wakes_whom_a_dead_worker_left_asleep)
{
	struct gantry_ring_consumer successor;
	uint64_t seq = 1;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_one, &seq), 0);
	while (gantry_load_relaxed(&f.map.area->waiters) == 0)
		gantry_cpu_relax();
	gantry_ring_complete(&f.host, 1); /* and dies before gantry_ring_wake() */
	gantry_ring_consumer_init(&successor, &f.map, 1, 1);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(!lost);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring_threads");
	TCase *tc = gantry_unit_case(suite, "threads");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_park_and_wait_under_load_lose_no_wake_up);
	tcase_add_test(tc, test_wake_reaches_every_waiting_thread);
	tcase_add_test(tc, test_consumer_init_wakes_whom_a_dead_worker_left_asleep);
	return gantry_unit_run(suite);
}
