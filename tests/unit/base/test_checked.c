/* SPDX-License-Identifier: Apache-2.0 */
#include "base/checked.h"
#include "tests/unit/runner.h"

#define UNTOUCHED 77u

START_TEST(test_add_u64_overflow_is_refused_and_result_kept)
{
	uint64_t sum = UNTOUCHED;

	ck_assert_int_eq(gantry_add_u64(UINT64_MAX, 1, &sum), -EOVERFLOW);
	ck_assert_uint_eq(sum, UNTOUCHED);
	ck_assert_int_eq(gantry_add_u64(UINT64_MAX - 1, 1, &sum), 0);
	ck_assert_uint_eq(sum, UINT64_MAX);
}
END_TEST

START_TEST(test_sub_u64_below_zero_is_refused)
{
	uint64_t difference = UNTOUCHED;

	ck_assert_int_eq(gantry_sub_u64(1, 2, &difference), -EOVERFLOW);
	ck_assert_uint_eq(difference, UNTOUCHED);
	ck_assert_int_eq(gantry_sub_u64(2, 2, &difference), 0);
	ck_assert_uint_eq(difference, 0);
}
END_TEST

START_TEST(test_mul_u64_overflow_is_refused_and_result_kept)
{
	uint64_t product = UNTOUCHED;

	ck_assert_int_eq(gantry_mul_u64(1ull << 32, 1ull << 32, &product), -EOVERFLOW);
	ck_assert_uint_eq(product, UNTOUCHED);
	ck_assert_int_eq(gantry_mul_u64(1ull << 32, (1ull << 32) - 1, &product), 0);
	ck_assert_uint_eq(product, 0xffffffff00000000ull);
}
END_TEST

START_TEST(test_align_up_edges_are_exact)
{
	uint64_t aligned = UNTOUCHED;

	ck_assert_int_eq(gantry_align_up(0, 4096, &aligned), 0);
	ck_assert_uint_eq(aligned, 0);
	ck_assert_int_eq(gantry_align_up(1, 4096, &aligned), 0);
	ck_assert_uint_eq(aligned, 4096);
	ck_assert_int_eq(gantry_align_up(4096, 4096, &aligned), 0);
	ck_assert_uint_eq(aligned, 4096);
	ck_assert_int_eq(gantry_align_up(UINT64_MAX, 2, &aligned), -EOVERFLOW);
	ck_assert_int_eq(gantry_align_up(1, 3, &aligned), -EINVAL);
	ck_assert_int_eq(gantry_align_up(1, 0, &aligned), -EINVAL);
	ck_assert_uint_eq(aligned, 4096);
}
END_TEST

START_TEST(test_range_inside_wrapping_range_is_outside)
{
	ck_assert(gantry_range_inside(0, 4096, 4096));
	ck_assert(gantry_range_inside(4096, 0, 4096));
	ck_assert(!gantry_range_inside(4096, 1, 4096));
	ck_assert(!gantry_range_inside(4097, 0, 4096));
	ck_assert(!gantry_range_inside(8, UINT64_MAX - 4, 4096));
	ck_assert(!gantry_range_inside(UINT64_MAX, 1, 4096));
}
END_TEST

START_TEST(test_pow2_and_ilog2_agree)
{
	ck_assert(!gantry_is_pow2(0));
	ck_assert(!gantry_is_pow2(3));
	ck_assert_uint_eq(gantry_ilog2(0), 0);
	for (unsigned int i = 0; i < 64; i++) {
		ck_assert(gantry_is_pow2(1ull << i));
		ck_assert_uint_eq(gantry_ilog2(1ull << i), i);
	}
	ck_assert_uint_eq(gantry_ilog2(UINT64_MAX), 63);
}
END_TEST

START_TEST(test_min_max_clamp_pick_the_right_one)
{
	ck_assert_uint_eq(gantry_min_u64(1, 2), 1);
	ck_assert_uint_eq(gantry_max_u64(1, 2), 2);
	ck_assert_uint_eq(gantry_clamp_u64(5, 1, 3), 3);
	ck_assert_uint_eq(gantry_clamp_u64(0, 1, 3), 1);
	ck_assert_uint_eq(gantry_clamp_u64(2, 1, 3), 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("checked");
	TCase *tc = gantry_unit_case(suite, "checked");

	tcase_add_test(tc, test_add_u64_overflow_is_refused_and_result_kept);
	tcase_add_test(tc, test_sub_u64_below_zero_is_refused);
	tcase_add_test(tc, test_mul_u64_overflow_is_refused_and_result_kept);
	tcase_add_test(tc, test_align_up_edges_are_exact);
	tcase_add_test(tc, test_range_inside_wrapping_range_is_outside);
	tcase_add_test(tc, test_pow2_and_ilog2_agree);
	tcase_add_test(tc, test_min_max_clamp_pick_the_right_one);
	return gantry_unit_run(suite);
}
