/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a door memory. */
#include <errno.h>
#include <stdlib.h>

#include "host-agent/agent/extents.h"
#include "tests/unit/runner.h"

#define BEGIN 100u
#define END   1000u

static struct gantry_extents e;

static void fresh(void)
{
	gantry_extents_init(&e, BEGIN, END);
}

START_TEST(test_extents_take_gives_the_lowest_hole_that_fits)
{
	uint64_t a, b, c, d;

	ck_assert_int_eq(gantry_extents_take(&e, 300, &a), 0);
	ck_assert_int_eq(gantry_extents_take(&e, 300, &b), 0);
	ck_assert_int_eq(gantry_extents_take(&e, 300, &c), 0);
	ck_assert_uint_eq(a, 100);
	ck_assert_uint_eq(c, 700);
	ck_assert_int_eq(gantry_extents_take(&e, 1, &d), -ENOSPC);
	ck_assert_uint_eq(gantry_extents_put(&e, b), 300);
	ck_assert_int_eq(gantry_extents_take(&e, 301, &d), -ENOSPC);
	ck_assert_int_eq(gantry_extents_take(&e, 100, &d), 0);
	ck_assert_uint_eq(d, b);
	ck_assert_uint_eq(gantry_extents_largest(&e), 200);
	ck_assert_uint_eq(gantry_extents_used(&e), 700);
}
END_TEST

START_TEST(test_extents_claim_takes_what_is_free_and_nothing_else)
{
	ck_assert_int_eq(gantry_extents_claim(&e, 200, 100), 0);
	ck_assert_int_eq(gantry_extents_claim(&e, 100, 100), 0);
	ck_assert_int_eq(gantry_extents_claim(&e, 900, 100), 0);
	ck_assert_int_eq(gantry_extents_claim(&e, 299, 2), -EEXIST);
	ck_assert_int_eq(gantry_extents_claim(&e, 150, 1), -EEXIST);
	ck_assert_int_eq(gantry_extents_claim(&e, 50, 60), -ERANGE);
	ck_assert_int_eq(gantry_extents_claim(&e, 950, 51), -ERANGE);
	ck_assert_int_eq(gantry_extents_claim(&e, 1000, 0), -ERANGE);
	ck_assert_int_eq(gantry_extents_claim(&e, 500, UINT64_MAX), -ERANGE);
	ck_assert_uint_eq(gantry_extents_largest(&e), 600);
	ck_assert_uint_eq(gantry_extents_put(&e, 201), 0);
	ck_assert_uint_eq(gantry_extents_used(&e), 300);
}
END_TEST

START_TEST(test_extents_has_room_for_so_many_and_no_more)
{
	uint64_t off = 0;

	gantry_extents_init(&e, 0, 1u << 20);
	for (unsigned i = 0; i < GANTRY_EXTENTS_MAX; i++)
		ck_assert_int_eq(gantry_extents_take(&e, 1, &off), 0);
	ck_assert_uint_eq(gantry_extents_largest(&e), 0);
	ck_assert_int_eq(gantry_extents_take(&e, 1, &off), -ENOSPC);
	ck_assert_int_eq(gantry_extents_claim(&e, 1u << 19, 1), -ENOSPC);
	ck_assert_uint_eq(gantry_extents_put(&e, 7), 1);
	ck_assert_int_eq(gantry_extents_take(&e, 1, &off), 0);
	ck_assert_uint_eq(off, 7);
}
END_TEST

/* Against a map of bytes. */
START_TEST(test_extents_leaving_are_no_holes_but_will_be)
{
	uint64_t a, b, c;

	ck_assert_int_eq(gantry_extents_take(&e, 300, &a), 0);
	ck_assert_int_eq(gantry_extents_take(&e, 300, &b), 0);
	ck_assert_int_eq(gantry_extents_take(&e, 300, &c), 0);
	ck_assert_uint_eq(gantry_extents_largest_later(&e), 0);
	gantry_extents_find(&e, a)->is_leaving = true;
	gantry_extents_find(&e, b)->is_leaving = true;
	ck_assert_uint_eq(gantry_extents_largest(&e), 0);
	ck_assert_uint_eq(gantry_extents_largest_later(&e), 600);
	ck_assert_uint_eq(gantry_extents_put(&e, b), 300);
	ck_assert_uint_eq(gantry_extents_largest(&e), 300);
	ck_assert_uint_eq(gantry_extents_largest_later(&e), 600);
	ck_assert_ptr_null(gantry_extents_find(&e, b));
}
END_TEST

START_TEST(test_extents_dirty_ones_are_found_in_turn)
{
	uint64_t a, b;

	ck_assert_int_eq(gantry_extents_take(&e, 300, &a), 0);
	ck_assert_int_eq(gantry_extents_take(&e, 300, &b), 0);
	ck_assert_ptr_null(gantry_extents_dirty(&e, 0));
	gantry_extents_find(&e, a)->is_dirty = true;
	ck_assert_uint_eq(gantry_extents_dirty(&e, a + 1)->off, a);
	gantry_extents_find(&e, b)->is_dirty = true;
	ck_assert_uint_eq(gantry_extents_dirty(&e, a)->off, a);
	ck_assert_uint_eq(gantry_extents_dirty(&e, a + 1)->off, b);
	ck_assert_uint_eq(gantry_extents_dirty(&e, b + 1)->off, a);
}
END_TEST

START_TEST(test_extents_never_overlap_whatever_is_done)
{
	static uint8_t owner[END];
	unsigned seed = 7;

	for (int step = 0; step < 20000; step++) {
		uint64_t bytes = 1 + (unsigned)rand_r(&seed) % 60;
		uint64_t off = BEGIN + (unsigned)rand_r(&seed) % (END - BEGIN);

		if (rand_r(&seed) % 2 && gantry_extents_take(&e, bytes, &off) == 0) {
			for (uint64_t i = off; i < off + bytes; i++)
				ck_assert_uint_eq(owner[i]++, 0);
		} else if (rand_r(&seed) % 2 && e.n > 0) {
			struct gantry_extent x = e.taken[(unsigned)rand_r(&seed) % e.n];

			ck_assert_uint_eq(gantry_extents_put(&e, x.off), x.bytes);
			for (uint64_t i = x.off; i < x.off + x.bytes; i++)
				owner[i]--;
		} else if (gantry_extents_claim(&e, off, bytes) == 0) {
			for (uint64_t i = off; i < off + bytes; i++)
				ck_assert_uint_eq(owner[i]++, 0);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("extents");
	TCase *tc = gantry_unit_case(suite, "extents");

	tcase_add_checked_fixture(tc, fresh, NULL);
	tcase_add_test(tc, test_extents_take_gives_the_lowest_hole_that_fits);
	tcase_add_test(tc, test_extents_claim_takes_what_is_free_and_nothing_else);
	tcase_add_test(tc, test_extents_has_room_for_so_many_and_no_more);
	tcase_add_test(tc, test_extents_leaving_are_no_holes_but_will_be);
	tcase_add_test(tc, test_extents_dirty_ones_are_found_in_turn);
	tcase_add_test(tc, test_extents_never_overlap_whatever_is_done);
	return gantry_unit_run(suite);
}
