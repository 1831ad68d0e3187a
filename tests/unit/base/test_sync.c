/* SPDX-License-Identifier: Apache-2.0 */
/* atomic.h, futex.h and spin.h: what threads and processes meet on. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/spin.h"
#include "tests/unit/runner.h"

#define ROUNDS 20000u
/* Of a hand-shake, which takes a time slice or two where the other thread has no processor. */
#define MOST_NS (2 * GANTRY_NS_PER_S)
#define LEAST	100u
#define END	UINT32_MAX

START_TEST(test_cas_other_value_loads_it)
{
	uint64_t word = 5, expected = 4;

	ck_assert(!gantry_cas(&word, &expected, 9));
	ck_assert_uint_eq(expected, 5);
	ck_assert(gantry_cas(&word, &expected, 9));
	ck_assert_uint_eq(word, 9);
	ck_assert_uint_eq(gantry_exchange(&word, 1), 9);
	ck_assert_uint_eq(gantry_fetch_or(&word, 6), 1);
	ck_assert_uint_eq(gantry_fetch_and(&word, 5), 7);
	ck_assert_uint_eq(gantry_fetch_sub(&word, 5), 5);
	ck_assert_uint_eq(gantry_load_relaxed(&word), 0);
}
END_TEST

static uint32_t counter;

static void *count_up(void *arg)
{
	for (uint32_t i = 0; i < ROUNDS; i++)
		gantry_fetch_add(&counter, 1);
	return arg;
}

START_TEST(test_fetch_add_two_threads_lose_nothing)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, count_up, NULL), 0);
	count_up(NULL);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(gantry_load_acquire(&counter), 2 * ROUNDS);
}
END_TEST

/* Dekker's hand-shake: each side stores its flag, fences, then reads the other's. */
static struct {
	uint32_t round;
	uint32_t flag[2];
	uint32_t seen[2];
	uint32_t done;
} dekker;

static void dekker_step(unsigned int me)
{
	gantry_store_relaxed(&dekker.flag[me], 1);
	gantry_fence_full(); /* partner: the fence of the other side's step */
	dekker.seen[me] = gantry_load_relaxed(&dekker.flag[1 - me]);
}

/* Until @word is another than @before. Both sides are to go on at the same time, but whoever waits for long leaves the other the processor. */
static uint32_t next(const uint32_t *word, uint32_t before)
{
	uint32_t n = 0, now;

	while ((now = gantry_load_acquire(word)) == before)
		if (++n % 4096 == 0)
			(void)sched_yield(); /* cannot fail */
		else
			gantry_cpu_relax();
	return now;
}

static void *dekker_other_side(void *arg)
{
	uint32_t round = 0;

	while ((round = next(&dekker.round, round)) != END) {
		dekker_step(1);
		gantry_store_release(&dekker.done, round);
	}
	return arg;
}

START_TEST(test_fence_full_store_then_load_never_misses_both)
{
	uint64_t deadline = gantry_deadline_ns(MOST_NS);
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, dekker_other_side, NULL), 0);
	for (uint32_t round = 1;
	     round <= ROUNDS && (round <= LEAST || !gantry_deadline_passed(deadline)); round++) {
		gantry_store_relaxed(&dekker.flag[0], 0);
		gantry_store_relaxed(&dekker.flag[1], 0);
		gantry_store_release(&dekker.round, round);
		dekker_step(0);
		ck_assert_uint_eq(next(&dekker.done, round - 1), round);
		ck_assert_msg(dekker.seen[0] || dekker.seen[1], "both missed in round %u", round);
	}
	gantry_store_release(&dekker.round, END);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(test_futex_wait_other_value_returns_eagain)
{
	uint32_t word = 1;

	ck_assert_int_eq(gantry_futex_wait(&word, 0, GANTRY_DEADLINE_NEVER), -EAGAIN);
}
END_TEST

START_TEST(test_futex_wait_deadline_times_out_after_it)
{
	uint64_t deadline = gantry_deadline_ns(2000000);
	uint32_t word = 0;
	int r;

	do {
		r = gantry_futex_wait(&word, 0, deadline);
	} while (r == -EINTR || r == 0);
	ck_assert_int_eq(r, -ETIMEDOUT);
	ck_assert_uint_ge(gantry_now_ns(), deadline);
	ck_assert_int_eq(gantry_futex_wait(&word, 0, 1), -ETIMEDOUT);
}
END_TEST

START_TEST(test_futex_wake_other_process_returns)
{
	uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			      0);
	int status = 1;
	pid_t child;

	ck_assert_ptr_ne(word, MAP_FAILED);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		while (gantry_load_acquire(word) == 0)
			(void)gantry_futex_wait(word, 0, GANTRY_DEADLINE_NEVER);
		_exit(0);
	}
	gantry_store_release(word, 1);
	ck_assert_int_ge(gantry_futex_wake(word, 1), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(munmap(word, 4096), 0);
	ck_assert_int_eq(gantry_futex_wake(word, 1), -EFAULT);
}
END_TEST

/* A wait that never sees what it waits for. */
static void fail_once(struct gantry_spin *spin)
{
	gantry_spin_begin(spin);
	while (gantry_spin_again(spin))
		;
	gantry_spin_end(spin, false);
}

static void hit_once(struct gantry_spin *spin)
{
	gantry_spin_begin(spin);
	gantry_spin_end(spin, true);
}

START_TEST(test_spin_one_cpu_never_spins)
{
	struct gantry_spin spin;

	gantry_spin_init(&spin, 50000, 1);
	for (int i = 0; i < 100; i++) {
		gantry_spin_begin(&spin);
		ck_assert(!gantry_spin_again(&spin));
		gantry_spin_end(&spin, true);
	}
	gantry_spin_init(&spin, 0, 4);
	gantry_spin_begin(&spin);
	ck_assert(!gantry_spin_again(&spin));
}
END_TEST

START_TEST(test_spin_failures_shrink_budget_to_zero)
{
	struct gantry_spin spin;

	gantry_spin_init(&spin, 50000, 4);
	ck_assert_uint_gt(spin.budget_cycles, 0);
	for (int i = 0; i < 8; i++)
		fail_once(&spin);
	ck_assert_uint_eq(spin.budget_cycles, 0);
	gantry_spin_begin(&spin);
	ck_assert(!gantry_spin_again(&spin));
}
END_TEST

START_TEST(test_spin_allow_raises_the_bound_and_starts_nothing)
{
	struct gantry_spin spin, off;
	uint64_t before;

	gantry_spin_init(&spin, 50000, 4);
	before = spin.max_cycles;
	gantry_spin_allow(&spin, 20000);
	ck_assert_uint_eq(spin.max_cycles, before);
	gantry_spin_allow(&spin, 200000);
	ck_assert_uint_ge(spin.max_cycles, 4 * before - 4);
	for (int i = 0; i < 10; i++)
		hit_once(&spin);
	ck_assert_uint_eq(spin.budget_cycles, spin.max_cycles);
	gantry_spin_init(&off, 50000, 1);
	gantry_spin_allow(&off, 200000);
	ck_assert_uint_eq(off.max_cycles, 0);
}
END_TEST

START_TEST(test_spin_success_grows_budget_to_its_bound)
{
	struct gantry_spin spin;

	gantry_spin_init(&spin, 50000, 4);
	for (int i = 0; i < 20; i++)
		hit_once(&spin);
	ck_assert_uint_eq(spin.budget_cycles, spin.max_cycles);
}
END_TEST

START_TEST(test_spin_from_zero_a_trial_that_hits_brings_it_back)
{
	struct gantry_spin spin;
	int trials = 0;

	gantry_spin_init(&spin, 50000, 4);
	for (int i = 0; i < 8; i++)
		fail_once(&spin);
	for (int i = 0; i < 64 && spin.budget_cycles == 0; i++) {
		gantry_spin_begin(&spin);
		trials += spin.until_cycles != 0;
		gantry_spin_end(&spin, spin.until_cycles != 0);
	}
	ck_assert_int_eq(trials, 1);
	ck_assert_uint_ge(spin.budget_cycles, spin.floor_cycles);
}
END_TEST

START_TEST(test_spin_from_zero_trials_grow_until_one_hits)
{
	struct gantry_spin spin;
	uint64_t longest = 0;

	gantry_spin_init(&spin, 50000, 4);
	for (int i = 0; i < 10; i++)
		fail_once(&spin);
	for (int i = 0; i < 16 * 8; i++) {
		uint64_t start = gantry_cycles();

		gantry_spin_begin(&spin);
		if (spin.until_cycles > start + longest)
			longest = spin.until_cycles - start;
		gantry_spin_end(&spin, false);
	}
	ck_assert_uint_eq(spin.budget_cycles, 0);
	ck_assert_uint_ge(longest, spin.max_cycles / 2);
	/* Something that takes half the bound is caught, and spinning goes on with at least that. */
	for (int i = 0; i < 16 * 8 && spin.budget_cycles == 0; i++) {
		gantry_spin_begin(&spin);
		gantry_spin_end(&spin,
				spin.until_cycles && spin.trial_cycles >= spin.max_cycles / 2);
	}
	ck_assert_uint_ge(spin.budget_cycles, spin.max_cycles / 2);
}
END_TEST

START_TEST(test_spin_again_ends_within_its_budget)
{
	struct gantry_spin spin;
	uint64_t start = gantry_now_ns();

	gantry_spin_init(&spin, 2000000, 4);
	fail_once(&spin);
	/* Half of 2 ms, and it cannot end early; no upper bound, as this thread may be preempted. */
	ck_assert_uint_ge(gantry_now_ns() - start, 500000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sync");
	TCase *atomics = gantry_unit_case(suite, "atomic");
	TCase *futex = gantry_unit_case(suite, "futex");
	TCase *spin = gantry_unit_case(suite, "spin");

	tcase_add_test(atomics, test_cas_other_value_loads_it);
	tcase_add_test(atomics, test_fetch_add_two_threads_lose_nothing);
	tcase_add_test(atomics, test_fence_full_store_then_load_never_misses_both);
	tcase_add_test(futex, test_futex_wait_other_value_returns_eagain);
	tcase_add_test(futex, test_futex_wait_deadline_times_out_after_it);
	tcase_add_test(futex, test_futex_wake_other_process_returns);
	tcase_add_test(spin, test_spin_one_cpu_never_spins);
	tcase_add_test(spin, test_spin_failures_shrink_budget_to_zero);
	tcase_add_test(spin, test_spin_allow_raises_the_bound_and_starts_nothing);
	tcase_add_test(spin, test_spin_success_grows_budget_to_its_bound);
	tcase_add_test(spin, test_spin_from_zero_a_trial_that_hits_brings_it_back);
	tcase_add_test(spin, test_spin_from_zero_trials_grow_until_one_hits);
	tcase_add_test(spin, test_spin_again_ends_within_its_budget);
	return gantry_unit_run(suite);
}
