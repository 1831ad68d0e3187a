/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/lock.h"
#include "tests/unit/runner.h"

#define NTHREADS 4
#define ROUNDS	 20000u
#define SOON_NS	 2000000

START_TEST(test_lock_zeroed_is_free_and_held_once)
{
	struct gantry_lock lock = { 0 };

	ck_assert(gantry_lock_try(&lock));
	ck_assert(!gantry_lock_try(&lock));
	gantry_lock_put(&lock);
	ck_assert(gantry_lock_try(&lock));
	gantry_lock_put(&lock);
	ck_assert_uint_eq(lock.state, GANTRY_LOCK_FREE);
}
END_TEST

START_TEST(test_lock_until_held_times_out_after_its_deadline)
{
	struct gantry_lock lock = { 0 };
	uint64_t deadline = gantry_deadline_ns(SOON_NS);

	gantry_lock_take(&lock);
	ck_assert_int_eq(gantry_lock_until(&lock, deadline), -ETIMEDOUT);
	ck_assert_uint_ge(gantry_now_ns(), deadline);
	/* Whoever gave up left it as it was, to its holder and to those that come after. */
	ck_assert(!gantry_lock_try(&lock));
	gantry_lock_put(&lock);
	ck_assert(gantry_lock_try(&lock));
	gantry_lock_put(&lock);
}
END_TEST

START_TEST(test_lock_until_free_is_taken_past_the_deadline)
{
	struct gantry_lock lock = { 0 };

	ck_assert_int_eq(gantry_lock_until(&lock, 1), 0);
	ck_assert_int_eq(gantry_lock_until(&lock, 1), -ETIMEDOUT);
	gantry_lock_put(&lock);
	ck_assert_int_eq(gantry_lock_until(&lock, 1), 0);
	gantry_lock_put(&lock);
}
END_TEST

static struct gantry_lock shared;
static uint64_t counter; /* under shared */

static void *wait_for_it(void *arg)
{
	gantry_lock_take(&shared);
	counter++;
	gantry_lock_put(&shared);
	return arg;
}

START_TEST(test_lock_put_wakes_every_sleeper_in_turn)
{
	pthread_t threads[NTHREADS];

	gantry_lock_take(&shared);
	for (int i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_it, NULL), 0);
	/* Until one of them is about to sleep, or sleeps: either way a put that wakes nobody would leave them there. */
	while (gantry_load_relaxed(&shared.state) != GANTRY_LOCK_WANTED)
		gantry_cpu_relax();
	ck_assert_uint_eq(counter, 0);
	gantry_lock_put(&shared);
	for (int i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(counter, NTHREADS);
}
END_TEST

static void *count_up(void *arg)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		/* Some are impatient, and try again. */
		while (gantry_lock_until(&shared, i % 3 ? GANTRY_DEADLINE_NEVER : 1) < 0)
			;
		counter++;
		gantry_lock_put(&shared);
	}
	return arg;
}

START_TEST(test_lock_threads_that_count_lose_nothing)
{
	pthread_t threads[NTHREADS];

	for (int i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count_up, NULL), 0);
	for (int i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(counter, NTHREADS * ROUNDS);
	ck_assert(gantry_lock_try(&shared));
	gantry_lock_put(&shared);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lock");
	TCase *tc = gantry_unit_case(suite, "lock");

	tcase_add_test(tc, test_lock_zeroed_is_free_and_held_once);
	tcase_add_test(tc, test_lock_until_held_times_out_after_its_deadline);
	tcase_add_test(tc, test_lock_until_free_is_taken_past_the_deadline);
	tcase_add_test(tc, test_lock_put_wakes_every_sleeper_in_turn);
	tcase_add_test(tc, test_lock_threads_that_count_lose_nothing);
	return gantry_unit_run(suite);
}
