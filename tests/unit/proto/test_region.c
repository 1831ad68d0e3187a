/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/region.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/runner.h"

static uint8_t memory[4096] __attribute__((aligned(4096)));
static const struct gantry_region region = { memory, sizeof(memory) };

START_TEST(test_span_inside_points_at_offset)
{
	void *ptr = NULL;

	ck_assert_int_eq(gantry_region_span(&region, 64, 128, 64, &ptr), 0);
	ck_assert_ptr_eq(ptr, memory + 64);
	ck_assert_int_eq(gantry_region_span(&region, 0, 4096, 1, &ptr), 0);
	ck_assert_int_eq(gantry_region_span(&region, 4095, 1, 1, &ptr), 0);
}
END_TEST

START_TEST(test_span_empty_at_end_is_inside)
{
	void *ptr = NULL;

	ck_assert_int_eq(gantry_region_span(&region, 4096, 0, 1, &ptr), 0);
	ck_assert_ptr_eq(ptr, memory + 4096);
	ck_assert_int_eq(gantry_region_span(&region, 4097, 0, 1, &ptr), -ERANGE);
}
END_TEST

START_TEST(test_span_past_the_end_is_refused_and_writes_nothing)
{
	static const struct {
		uint64_t off, len;
	} past[] = {
		{ 4096, 1 },
		{ 4090, 8 },
		{ 0, 4097 },
		{ 1, 4096 },
		{ UINT64_MAX, 1 },
		{ UINT64_MAX - 7, 8 },
		{ 8, UINT64_MAX },
		{ 8, UINT64_MAX - 7 },
		{ 4096, UINT64_MAX - 4095 },
		{ UINT64_MAX, UINT64_MAX },
	};

	for (size_t i = 0; i < sizeof(past) / sizeof(past[0]); i++) {
		void *ptr = &ptr;

		ck_assert_int_eq(gantry_region_span(&region, past[i].off, past[i].len, 1, &ptr),
				 -ERANGE);
		ck_assert_ptr_eq(ptr, &ptr);
	}
}
END_TEST

START_TEST(test_span_misaligned_is_refused)
{
	void *ptr;

	for (uint64_t align = 2; align <= 4096; align *= 2) {
		ck_assert_int_eq(gantry_region_span(&region, align / 2, 1, align, &ptr), -EINVAL);
		ck_assert_int_eq(gantry_region_span(&region, align + 1, 1, align, &ptr), -EINVAL);
		ck_assert_int_eq(gantry_region_span(&region, 0, 1, align, &ptr), 0);
	}
}
END_TEST

START_TEST(test_span_of_nothing_has_only_the_empty_range)
{
	const struct gantry_region nothing = { memory, 0 };
	void *ptr;

	ck_assert_int_eq(gantry_region_span(&nothing, 0, 0, 1, &ptr), 0);
	ck_assert_int_eq(gantry_region_span(&nothing, 0, 1, 1, &ptr), -ERANGE);
}
END_TEST

START_TEST(test_copies_move_every_byte)
{
	uint8_t out[100], in[100];

	for (unsigned i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7);
	gantry_region_copy_in(memory, in, sizeof(in));
	gantry_region_copy_out(out, memory, sizeof(out));
	ck_assert_mem_eq(in, out, sizeof(in));
	gantry_region_copy_out(out, memory, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *tc = gantry_unit_case(suite, "region");

	tcase_add_test(tc, test_span_inside_points_at_offset);
	tcase_add_test(tc, test_span_empty_at_end_is_inside);
	tcase_add_test(tc, test_span_past_the_end_is_refused_and_writes_nothing);
	tcase_add_test(tc, test_span_misaligned_is_refused);
	tcase_add_test(tc, test_span_of_nothing_has_only_the_empty_range);
	tcase_add_test(tc, test_copies_move_every_byte);
	return gantry_unit_run(suite);
}
