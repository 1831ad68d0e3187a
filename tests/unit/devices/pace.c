/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/clock.h"
#include "devices/pace.h"
#include "tests/unit/runner.h"

#define ROUND_NS 20u

static int go_slowly(void *cookie, uint64_t nrounds)
{
	uint64_t start_ns = gantry_now_ns();

	(*(unsigned int *)cookie)++;
	while (gantry_now_ns() - start_ns < nrounds * ROUND_NS)
		;
	return 0;
}

static int go_third(void *cookie, uint64_t nrounds)
{
	unsigned int *calls = cookie;

	(void)nrounds;
	return ++*calls == 3 ? -EIO : 0;
}

/* A machine that does other things may make it slower; a little faster, where the shorter trial was disturbed. */
START_TEST(test_measure_tells_rounds_of_a_millisecond)
{
	unsigned int calls = 0;
	uint64_t rounds = 0;

	ck_assert_int_eq(gantry_pace_measure(go_slowly, &calls, &rounds), 0);
	ck_assert_uint_le(rounds, 2 * GANTRY_NS_PER_MS / ROUND_NS);
	ck_assert_uint_gt(rounds, GANTRY_NS_PER_MS / ROUND_NS / 10);
	ck_assert_uint_gt(calls, 3);
}
END_TEST

START_TEST(test_measure_passes_on_what_failed)
{
	unsigned int calls = 0;
	uint64_t rounds = 7;

	ck_assert_int_eq(gantry_pace_measure(go_third, &calls, &rounds), -EIO);
	ck_assert_uint_eq(calls, 3);
	ck_assert_uint_eq(rounds, 7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pace");
	TCase *tc = gantry_unit_case(suite, "pace");

	tcase_add_test(tc, test_measure_tells_rounds_of_a_millisecond);
	tcase_add_test(tc, test_measure_passes_on_what_failed);
	return gantry_unit_run(suite);
}
