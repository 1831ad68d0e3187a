/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"
#include "host-agent/agent/slab_plan.h"
#include "tests/unit/runner.h"

#define MIB   (1ull << 20)
#define UNIT  (2 * MIB)
#define LARGE (4096 * MIB)

static struct gantry_slab_place out[64];

static uint32_t plan(const struct gantry_slab_place *have, uint32_t nhave, uint64_t off,
		     uint64_t bytes)
{
	return gantry_slab_plan(have, nhave, off, bytes, UNIT, out, GANTRY_ARRAY_SIZE(out));
}

START_TEST(test_class_is_the_largest_doubling_that_fits)
{
	ck_assert_uint_eq(gantry_slab_class(UNIT, UNIT), UNIT);
	ck_assert_uint_eq(gantry_slab_class(3 * UNIT, UNIT), 2 * UNIT);
	ck_assert_uint_eq(gantry_slab_class(4 * UNIT, UNIT), 4 * UNIT);
	ck_assert_uint_eq(gantry_slab_class(LARGE - UNIT, UNIT), LARGE / 2);
	ck_assert_uint_eq(gantry_slab_class(LARGE, UNIT), LARGE);
	ck_assert_uint_eq(gantry_slab_class(100 * LARGE, UNIT), LARGE);
	ck_assert_uint_eq(gantry_slab_class(UINT64_MAX, UNIT), LARGE);
}
END_TEST

START_TEST(test_range_is_refused_when_it_is_none_of_a_window)
{
	ck_assert(gantry_slab_range_valid(0, UNIT, UNIT, UNIT));
	ck_assert(gantry_slab_range_valid(0, UNIT, UNIT, 4096)); /* its space is rounded up */
	ck_assert(gantry_slab_range_valid(UNIT, UNIT, UNIT, UNIT + 1));
	ck_assert(!gantry_slab_range_valid(UNIT, UNIT, UNIT, UNIT));
	ck_assert(!gantry_slab_range_valid(0, 0, UNIT, UNIT));
	ck_assert(!gantry_slab_range_valid(4096, UNIT, UNIT, 8 * UNIT));
	ck_assert(!gantry_slab_range_valid(0, UNIT + 4096, UNIT, 8 * UNIT));
	ck_assert(!gantry_slab_range_valid(0, UNIT, 0, UNIT)); /* a device without windows */
	ck_assert(!gantry_slab_range_valid(0 - UNIT, 2 * UNIT, UNIT, 8 * UNIT));
	ck_assert(!gantry_slab_range_valid(UNIT, 0 - UNIT, UNIT, 8 * UNIT));
	ck_assert(!gantry_slab_range_valid(0, UNIT, UNIT, UINT64_MAX));
}
END_TEST

START_TEST(test_plan_of_an_empty_window_is_pieces_largest_first)
{
	ck_assert_uint_eq(plan(NULL, 0, UNIT, 7 * UNIT), 3);
	ck_assert_uint_eq(out[0].off, UNIT);
	ck_assert_uint_eq(out[0].bytes, 4 * UNIT);
	ck_assert_uint_eq(out[1].off, 5 * UNIT);
	ck_assert_uint_eq(out[1].bytes, 2 * UNIT);
	ck_assert_uint_eq(out[2].off, 7 * UNIT);
	ck_assert_uint_eq(out[2].bytes, UNIT);
}
END_TEST

START_TEST(test_plan_fills_gaps_only)
{
	const struct gantry_slab_place have[] = {
		{ 0, 2 * UNIT },	/* reaches into the range */
		{ 3 * UNIT, UNIT },	/* inside */
		{ 6 * UNIT, 8 * UNIT }, /* begins inside, ends past it */
		{ 20 * UNIT, UNIT },	/* behind it */
	};

	ck_assert_uint_eq(plan(have, 4, UNIT, 7 * UNIT), 2);
	ck_assert_uint_eq(out[0].off, 2 * UNIT);
	ck_assert_uint_eq(out[0].bytes, UNIT);
	ck_assert_uint_eq(out[1].off, 4 * UNIT);
	ck_assert_uint_eq(out[1].bytes, 2 * UNIT);
}
END_TEST

START_TEST(test_plan_of_what_is_there_is_nothing)
{
	const struct gantry_slab_place have[] = { { 0, 2 * UNIT }, { 2 * UNIT, 2 * UNIT } };

	ck_assert_uint_eq(plan(have, 2, 0, 4 * UNIT), 0);
	ck_assert_uint_eq(plan(have, 2, UNIT, 2 * UNIT), 0);
}
END_TEST

START_TEST(test_plan_ignores_slabs_outside_the_range)
{
	const struct gantry_slab_place have[] = { { 0, UNIT }, { 9 * UNIT, UNIT } };

	ck_assert_uint_eq(plan(have, 2, UNIT, UNIT), 1);
	ck_assert_uint_eq(out[0].off, UNIT);
	ck_assert_uint_eq(out[0].bytes, UNIT);
}
END_TEST

/* Whatever is there, what is planned lies disjoint beside it and covers the range. */
START_TEST(test_plan_covers_every_unit_once)
{
	for (uint32_t mask = 0; mask < 1u << 10; mask++) {
		struct gantry_slab_place have[10];
		uint32_t nhave = 0, covered = mask, n;

		for (uint32_t i = 0; i < 10; i++)
			if (mask >> i & 1)
				have[nhave++] = (struct gantry_slab_place){ i * UNIT, UNIT };
		n = plan(have, nhave, 0, 10 * UNIT);
		ck_assert_uint_le(n, GANTRY_ARRAY_SIZE(out));
		for (uint32_t i = 0; i < n; i++)
			for (uint64_t at = 0; at < out[i].bytes; at += UNIT) {
				uint32_t bit = 1u << ((out[i].off + at) / UNIT);

				ck_assert_uint_eq(covered & bit, 0);
				covered |= bit;
			}
		ck_assert_uint_eq(covered, (1u << 10) - 1);
	}
}
END_TEST

START_TEST(test_plan_past_the_cap_says_how_many_it_takes)
{
	struct gantry_slab_place one[1];

	ck_assert_uint_eq(gantry_slab_plan(NULL, 0, 0, 7 * UNIT, UNIT, one, 1), 3);
	ck_assert_uint_eq(one[0].bytes, 4 * UNIT);
	ck_assert_uint_eq(gantry_slab_plan(NULL, 0, 0, 100 * LARGE, UNIT, one, 1), 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slab_plan");
	TCase *tc = gantry_unit_case(suite, "plan");

	tcase_add_test(tc, test_class_is_the_largest_doubling_that_fits);
	tcase_add_test(tc, test_range_is_refused_when_it_is_none_of_a_window);
	tcase_add_test(tc, test_plan_of_an_empty_window_is_pieces_largest_first);
	tcase_add_test(tc, test_plan_fills_gaps_only);
	tcase_add_test(tc, test_plan_of_what_is_there_is_nothing);
	tcase_add_test(tc, test_plan_ignores_slabs_outside_the_range);
	tcase_add_test(tc, test_plan_covers_every_unit_once);
	tcase_add_test(tc, test_plan_past_the_cap_says_how_many_it_takes);
	return gantry_unit_run(suite);
}
