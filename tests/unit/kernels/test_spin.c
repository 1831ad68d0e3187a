/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_spin;

static int64_t now_ns(clockid_t clock)
{
	struct timespec now;

	ck_assert_int_eq(clock_gettime(clock, &now), 0);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

START_TEST(test_spin_takes_time_asked)
{
	const int64_t want_ns = 40000000;
	clockid_t clock = env_device ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
	struct test_env te;
	int64_t start_ns, used_ns;

	env_init(&te, ENV_INLINE);
	/* The first run opens the device. */
	ck_assert_int_eq(RUN(&te, gantry_kernel_spin, U64(0)), 0);
	start_ns = now_ns(clock);
	ck_assert_int_eq(RUN(&te, gantry_kernel_spin, U64((uint64_t)want_ns)), 0);
	used_ns = now_ns(clock) - start_ns;
	/*
	 * No upper bound: the machine may be busy. Devices without a clock count rounds, whose pace was measured on a
	 * machine that may have been.
	 */
	ck_assert_int_ge(used_ns, env_device ? want_ns / 8 : want_ns);
	env_fini(&te);
}
END_TEST

START_TEST(test_spin_stops_when_cancelled)
{
	struct test_env te;

	env_init(&te, ENV_INLINE);
	te.asks_left = 3;
	/* Where a running kernel is not told, it ends by itself. */
	ASSERT_CANCELLED(RUN(&te, gantry_kernel_spin, U64(env_device ? 3000000000u : UINT64_MAX)));
	env_fini(&te);
}
END_TEST

Suite *kernels_spin_suite(void)
{
	Suite *suite = suite_create("kernels/spin");
	TCase *tc = env_case(suite, "spin");

	tcase_add_test(tc, test_spin_takes_time_asked);
	tcase_add_test(tc, test_spin_stops_when_cancelled);
	return suite;
}
