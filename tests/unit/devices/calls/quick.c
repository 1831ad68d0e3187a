/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that are quick: when they are called so, what one slow call changes, and that none is taken for another. */
#include <string.h>

#include "devices/cuda/calls/quick.h"
#include "tests/unit/runner.h"

#define SLOW (GANTRY_QUICK_NS + 1)

static struct gantry_quick quick;

static void runs(uint64_t id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		gantry_quick_learn(&quick, id, GANTRY_QUICK_NS);
}

static void setup(void)
{
	memset(&quick, 0, sizeof(quick));
}

START_TEST(test_quick_calls_in_a_row_make_a_function_quick)
{
	ck_assert(!gantry_quick_is(&quick, 5));
	runs(5, GANTRY_QUICK_RUNS - 1);
	ck_assert(!gantry_quick_is(&quick, 5));
	runs(5, 1);
	ck_assert(gantry_quick_is(&quick, 5));
	ck_assert(!gantry_quick_is(&quick, 6));
}
END_TEST

START_TEST(test_slow_call_soon_after_takes_twice_as_many)
{
	uint32_t wanted = GANTRY_QUICK_RUNS;

	runs(5, wanted);
	for (int i = 0; i < 6; i++) {
		ck_assert(gantry_quick_is(&quick, 5));
		gantry_quick_learn(&quick, 5, SLOW);
		ck_assert(!gantry_quick_is(&quick, 5));
		wanted = 2 * wanted > GANTRY_QUICK_RUNS_MAX ? GANTRY_QUICK_RUNS_MAX : 2 * wanted;
		runs(5, wanted - 1);
		ck_assert(!gantry_quick_is(&quick, 5));
		runs(5, 1);
	}
}
END_TEST

/* Plans that compile when they run first, then many calls, some of which the machine made slow. */
START_TEST(test_one_slow_call_among_many_quick_ones_is_forgiven)
{
	for (int i = 0; i < 50; i++)
		gantry_quick_learn(&quick, 5, SLOW);
	runs(5, GANTRY_QUICK_RUNS_MAX + GANTRY_QUICK_FORGIVEN);
	for (int i = 0; i < 10; i++) {
		gantry_quick_learn(&quick, 5, SLOW);
		ck_assert(gantry_quick_is(&quick, 5));
		runs(5, GANTRY_QUICK_FORGIVEN);
	}
	gantry_quick_learn(&quick, 5, SLOW);
	ck_assert(gantry_quick_is(&quick, 5));
	gantry_quick_learn(&quick, 5, SLOW);
	ck_assert(!gantry_quick_is(&quick, 5));
}
END_TEST

START_TEST(test_call_as_long_as_compiling_is_not_forgiven)
{
	runs(5, GANTRY_QUICK_RUNS_MAX + GANTRY_QUICK_FORGIVEN);
	gantry_quick_learn(&quick, 5, GANTRY_QUICK_LONG_NS + 1);
	ck_assert(!gantry_quick_is(&quick, 5));
}
END_TEST

/* All of them have the same place. */
START_TEST(test_functions_of_one_place_are_told_apart)
{
	for (uint64_t i = 1; i <= GANTRY_QUICK_PROBES; i++) {
		gantry_quick_learn(&quick, i * GANTRY_QUICK_KNOWN, SLOW);
		runs(i * GANTRY_QUICK_KNOWN, i % 2 ? 2 * GANTRY_QUICK_RUNS : 0);
	}
	for (uint64_t i = 1; i <= GANTRY_QUICK_PROBES; i++)
		ck_assert_int_eq(gantry_quick_is(&quick, i * GANTRY_QUICK_KNOWN), i % 2);
	/* One too many is never quick, and harms nobody. */
	runs((GANTRY_QUICK_PROBES + 1) * (uint64_t)GANTRY_QUICK_KNOWN, 100);
	ck_assert(
		!gantry_quick_is(&quick, (GANTRY_QUICK_PROBES + 1) * (uint64_t)GANTRY_QUICK_KNOWN));
	ck_assert(gantry_quick_is(&quick, GANTRY_QUICK_KNOWN));
}
END_TEST

/* What a guest asks about is looked for, and takes no place. */
START_TEST(test_asking_takes_no_place)
{
	static const struct gantry_quick none;

	for (uint64_t id = 1; id < 3 * GANTRY_QUICK_KNOWN; id++)
		ck_assert(!gantry_quick_is(&quick, id));
	ck_assert_int_eq(memcmp(&quick, &none, sizeof(none)), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quick");
	TCase *tc = gantry_unit_case(suite, "quick");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_quick_calls_in_a_row_make_a_function_quick);
	tcase_add_test(tc, test_slow_call_soon_after_takes_twice_as_many);
	tcase_add_test(tc, test_one_slow_call_among_many_quick_ones_is_forgiven);
	tcase_add_test(tc, test_call_as_long_as_compiling_is_not_forgiven);
	tcase_add_test(tc, test_functions_of_one_place_are_told_apart);
	tcase_add_test(tc, test_asking_takes_no_place);
	return gantry_unit_run(suite);
}
