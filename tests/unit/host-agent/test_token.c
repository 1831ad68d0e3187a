/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "host-agent/agent/token.h"
#include "tests/unit/runner.h"

START_TEST(test_token_names_what_it_was_made_for)
{
	struct gantry_tokens table = { 0 };
	const struct gantry_token like = { .session_id = 3, .share_id = 9, .mode = GANTRY_R };
	uint8_t a[GANTRY_DOOR_TOKEN], b[GANTRY_DOOR_TOKEN];

	ck_assert_int_eq(gantry_tokens_add(&table, &like, a), 0);
	ck_assert_int_eq(gantry_tokens_add(&table, &like, b), 0);
	ck_assert_mem_ne(a, b, sizeof(a));
	ck_assert_ptr_nonnull(gantry_tokens_find(&table, a));
	ck_assert_uint_eq(gantry_tokens_find(&table, b)->share_id, 9);
	a[15] ^= 1;
	ck_assert_ptr_null(gantry_tokens_find(&table, a));
	gantry_tokens_fini(&table);
}
END_TEST

START_TEST(test_token_dies_with_its_session)
{
	struct gantry_tokens table = { 0 };
	struct gantry_token like = { .session_id = 3, .mode = GANTRY_RW };
	uint8_t mine[GANTRY_DOOR_TOKEN], other[GANTRY_DOOR_TOKEN];

	ck_assert_int_eq(gantry_tokens_add(&table, &like, mine), 0);
	like.session_id = 4;
	ck_assert_int_eq(gantry_tokens_add(&table, &like, other), 0);
	gantry_tokens_drop_session(&table, 3);
	ck_assert_ptr_null(gantry_tokens_find(&table, mine));
	ck_assert_ptr_nonnull(gantry_tokens_find(&table, other));
	gantry_tokens_fini(&table);
}
END_TEST

START_TEST(test_token_table_is_bounded_per_tenant)
{
	struct gantry_tokens table = { 0 };
	struct gantry_token like = { .tenant_slot = 1, .mode = GANTRY_R };
	uint8_t bytes[GANTRY_DOOR_TOKEN];

	for (unsigned int i = 0; i < GANTRY_TOKENS_PER_TENANT; i++)
		ck_assert_int_eq(gantry_tokens_add(&table, &like, bytes), 0);
	ck_assert_int_eq(gantry_tokens_add(&table, &like, bytes), -EDQUOT);
	like.tenant_slot = 2;
	ck_assert_int_eq(gantry_tokens_add(&table, &like, bytes), 0);
	gantry_tokens_fini(&table);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("token");
	TCase *tc = gantry_unit_case(suite, "table");

	tcase_add_test(tc, test_token_names_what_it_was_made_for);
	tcase_add_test(tc, test_token_dies_with_its_session);
	tcase_add_test(tc, test_token_table_is_bounded_per_tenant);
	return gantry_unit_run(suite);
}
