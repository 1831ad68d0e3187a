/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/clock.h"
#include "devices/pace.h"
#include "tests/unit/runner.h"

#define ROUND_NS 20u
#define START_NS 30000u /* what a run takes beside its rounds */

/* Time passes here while rounds are made, and not else. */
static struct {
	uint64_t now_ns;
	unsigned int calls;
	unsigned int
		one_in; /* runs that the machine is free in, all others being held up; 1: all */
} machine;

uint64_t __wrap_gantry_now_ns(void);

uint64_t __wrap_gantry_now_ns(void)
{
	return machine.now_ns;
}

static int go(void *cookie, uint64_t nrounds)
{
	(void)cookie;
	machine.now_ns += START_NS + nrounds * ROUND_NS;
	if (++machine.calls % machine.one_in != 0)
		machine.now_ns += machine.calls * 7 * GANTRY_NS_PER_MS;
	return 0;
}

static int go_third(void *cookie, uint64_t nrounds)
{
	unsigned int *calls = cookie;

	(void)nrounds;
	return ++*calls == 3 ? -EIO : 0;
}

/* The fastest of four counts: held up in three of them it is no slower. */
START_TEST(test_measure_tells_rounds_of_a_millisecond_also_on_a_machine_that_does_much_else)
{
	uint64_t rounds = 0;

	machine.calls = 0;
	machine.one_in = (unsigned int)_i;
	ck_assert_int_eq(gantry_pace_measure(go, NULL, &rounds), 0);
	ck_assert_uint_eq(rounds, GANTRY_NS_PER_MS / ROUND_NS);
	ck_assert_uint_gt(machine.calls, 8);
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

	tcase_add_loop_test(
		tc,
		test_measure_tells_rounds_of_a_millisecond_also_on_a_machine_that_does_much_else, 1,
		5);
	tcase_add_test(tc, test_measure_passes_on_what_failed);
	return gantry_unit_run(suite);
}
