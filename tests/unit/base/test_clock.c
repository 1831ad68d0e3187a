/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>

#include "base/clock.h"
#include "tests/unit/runner.h"

START_TEST(test_now_ns_twice_never_goes_back)
{
	uint64_t before = gantry_now_ns();

	for (int i = 0; i < 1000; i++) {
		uint64_t now = gantry_now_ns();

		ck_assert_uint_ge(now, before);
		before = now;
	}
}
END_TEST

START_TEST(test_thread_cpu_ns_busy_thread_advances)
{
	uint64_t cpu = gantry_thread_cpu_ns();

	while (gantry_thread_cpu_ns() == cpu)
		;
	ck_assert_uint_gt(gantry_thread_cpu_ns(), cpu);
}
END_TEST

START_TEST(test_cycles_per_us_agrees_with_clock)
{
	uint64_t rate = gantry_cycles_per_us();
	uint64_t start = gantry_now_ns(), cycles = gantry_cycles();
	uint64_t elapsed_ns, measured;

	while (gantry_now_ns() - start < GANTRY_NS_PER_MS)
		;
	elapsed_ns = gantry_now_ns() - start;
	measured = (gantry_cycles() - cycles) * GANTRY_NS_PER_US / elapsed_ns;
	ck_assert_uint_ge(rate, 1);
	/* Wide, as this thread may lose its CPU between the two clocks. */
	ck_assert_uint_gt(measured, rate / 2);
	ck_assert_uint_lt(measured, rate * 2);
}
END_TEST

START_TEST(test_deadline_ns_negative_is_never)
{
	ck_assert_uint_eq(gantry_deadline_ns(-1), GANTRY_DEADLINE_NEVER);
	ck_assert_uint_eq(gantry_deadline_left_ns(GANTRY_DEADLINE_NEVER), UINT64_MAX);
	ck_assert_int_eq(gantry_deadline_poll_ms(GANTRY_DEADLINE_NEVER), -1);
	ck_assert(!gantry_deadline_passed(GANTRY_DEADLINE_NEVER));
}
END_TEST

START_TEST(test_deadline_ns_zero_has_passed)
{
	uint64_t deadline = gantry_deadline_ns(0);

	ck_assert(gantry_deadline_passed(deadline));
	ck_assert_uint_eq(gantry_deadline_left_ns(deadline), 0);
	ck_assert_int_eq(gantry_deadline_poll_ms(deadline), 0);
}
END_TEST

START_TEST(test_deadline_ns_huge_is_not_in_the_past)
{
	ck_assert(!gantry_deadline_passed(gantry_deadline_ns(INT64_MAX)));
	ck_assert_int_eq(gantry_deadline_poll_ms(gantry_deadline_ns(INT64_MAX)), INT_MAX);
}
END_TEST

START_TEST(test_deadline_poll_ms_fraction_rounds_up)
{
	/* Far enough away that the fraction cannot pass while this runs. */
	uint64_t now = gantry_now_ns();
	int ms = gantry_deadline_poll_ms(now + 3600 * GANTRY_NS_PER_S);

	ck_assert_int_le(ms, 3600 * 1000);
	ck_assert_int_gt(ms, 3599 * 1000);
	/* One nanosecond left must not become a poll() that does not wait. */
	do {
		now = gantry_now_ns();
		ms = gantry_deadline_poll_ms(now + 900 * GANTRY_NS_PER_US);
	} while (ms == 0 && gantry_now_ns() - now > 900 * GANTRY_NS_PER_US);
	ck_assert_int_eq(ms, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clock");
	TCase *tc = gantry_unit_case(suite, "clock");

	tcase_add_test(tc, test_now_ns_twice_never_goes_back);
	tcase_add_test(tc, test_thread_cpu_ns_busy_thread_advances);
	tcase_add_test(tc, test_cycles_per_us_agrees_with_clock);
	tcase_add_test(tc, test_deadline_ns_negative_is_never);
	tcase_add_test(tc, test_deadline_ns_zero_has_passed);
	tcase_add_test(tc, test_deadline_ns_huge_is_not_in_the_past);
	tcase_add_test(tc, test_deadline_poll_ms_fraction_rounds_up);
	return gantry_unit_run(suite);
}
