/* SPDX-License-Identifier: Apache-2.0 */
/* What is learnt of a kernel from its runs with nobody beside it. */
#include "host-agent/worker/alone.h"
#include "tests/unit/runner.h"

START_TEST(test_first_run_counts_until_there_is_a_second)
{
	struct walone alone = { 0 };

	ck_assert(worker_alone_wants(&alone));
	worker_alone_add(&alone, 5000);
	ck_assert_uint_eq(alone.mean_ns, 5000);
	ck_assert(worker_alone_wants(&alone));
	worker_alone_add(&alone, 100);
	ck_assert_uint_eq(alone.mean_ns, 100);
}
END_TEST

START_TEST(test_next_runs_are_worth_the_same)
{
	static const uint64_t runs_ns[] = { 9000, 90, 110, 96, 104 };
	struct walone alone = { 0 };

	for (size_t i = 0; i < sizeof(runs_ns) / sizeof(runs_ns[0]); i++) {
		ck_assert(worker_alone_wants(&alone));
		worker_alone_add(&alone, runs_ns[i]);
	}
	ck_assert_uint_ge(alone.mean_ns, 98);
	ck_assert_uint_le(alone.mean_ns, 100);
	ck_assert(!worker_alone_wants(&alone));
}
END_TEST

START_TEST(test_later_run_moves_the_mean_by_an_eighth)
{
	struct walone alone = { 0 };

	for (unsigned int i = 0; i < 100; i++)
		worker_alone_add(&alone, 8000);
	ck_assert_uint_eq(alone.mean_ns, 8000);
	worker_alone_add(&alone, 16000);
	ck_assert_uint_eq(alone.mean_ns, 9000);
	for (unsigned int i = 0; i < 100; i++)
		worker_alone_add(&alone, 16000);
	ck_assert_uint_gt(alone.mean_ns, 15900);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alone");
	TCase *tc = gantry_unit_case(suite, "alone");

	tcase_add_test(tc, test_first_run_counts_until_there_is_a_second);
	tcase_add_test(tc, test_next_runs_are_worth_the_same);
	tcase_add_test(tc, test_later_run_moves_the_mean_by_an_eighth);
	return gantry_unit_run(suite);
}
