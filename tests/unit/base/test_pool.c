/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "base/pool.h"
#include "tests/unit/runner.h"

START_TEST(test_pool_take_all_are_distinct_aligned_and_zero)
{
	struct gantry_pool pool;
	unsigned char *taken[8];

	ck_assert_int_eq(gantry_pool_init(&pool, 40, 8), 0);
	for (int i = 0; i < 8; i++) {
		taken[i] = gantry_pool_take(&pool);
		ck_assert_ptr_nonnull(taken[i]);
		ck_assert_uint_eq((uintptr_t)taken[i] % 64, 0);
		for (int j = 0; j < 40; j++)
			ck_assert_uint_eq(taken[i][j], 0);
		memset(taken[i], i + 1, 40);
	}
	ck_assert_ptr_null(gantry_pool_take(&pool));
	ck_assert_uint_eq(gantry_pool_in_use(&pool), 8);
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(taken[i][39], (unsigned int)i + 1);
	gantry_pool_fini(&pool);
}
END_TEST

START_TEST(test_pool_put_then_take_gives_it_again_cleared)
{
	struct gantry_pool pool;
	unsigned char *object;

	ck_assert_int_eq(gantry_pool_init(&pool, 1, 2), 0);
	object = gantry_pool_take(&pool);
	object[0] = 9;
	gantry_pool_put(&pool, object);
	gantry_pool_put(&pool, NULL);
	ck_assert_uint_eq(gantry_pool_in_use(&pool), 0);
	ck_assert_ptr_eq(gantry_pool_take(&pool), object);
	ck_assert_uint_eq(object[0], 0);
	gantry_pool_fini(&pool);
	gantry_pool_fini(&pool);
}
END_TEST

START_TEST(test_pool_init_impossible_sizes_are_refused)
{
	struct gantry_pool pool = { .count = 77 };

	ck_assert_int_eq(gantry_pool_init(&pool, 0, 8), -EINVAL);
	ck_assert_int_eq(gantry_pool_init(&pool, 8, 0), -EINVAL);
	ck_assert_int_eq(gantry_pool_init(&pool, SIZE_MAX, 2), -EOVERFLOW);
	ck_assert_int_eq(gantry_pool_init(&pool, SIZE_MAX / 2, 4), -EOVERFLOW);
	ck_assert_uint_eq(pool.count, 77);
}
END_TEST

START_TEST(test_pool_put_twice_asserts)
{
	struct gantry_pool pool;
	void *object;

	ck_assert_int_eq(gantry_pool_init(&pool, 8, 2), 0);
	object = gantry_pool_take(&pool);
	gantry_pool_put(&pool, object);
	gantry_pool_put(&pool, object);
}
END_TEST

START_TEST(test_pool_put_stranger_asserts)
{
	struct gantry_pool pool;
	unsigned char *object;

	ck_assert_int_eq(gantry_pool_init(&pool, 8, 2), 0);
	object = gantry_pool_take(&pool);
	gantry_pool_put(&pool, object + 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool");
	TCase *tc = gantry_unit_case(suite, "pool");

	tcase_add_test(tc, test_pool_take_all_are_distinct_aligned_and_zero);
	tcase_add_test(tc, test_pool_put_then_take_gives_it_again_cleared);
	tcase_add_test(tc, test_pool_init_impossible_sizes_are_refused);
	tcase_add_test_raise_signal(tc, test_pool_put_twice_asserts, SIGABRT);
	tcase_add_test_raise_signal(tc, test_pool_put_stranger_asserts, SIGABRT);
	return gantry_unit_run(suite);
}
