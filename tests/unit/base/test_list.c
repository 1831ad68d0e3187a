/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/list.h"
#include "tests/unit/runner.h"

struct item {
	int number;
	struct gantry_list link;
};

static struct item items[4] = { { .number = 0 },
				{ .number = 1 },
				{ .number = 2 },
				{ .number = 3 } };

/* The numbers on the list as one decimal, so that 0, 1, 2 reads 12 and an order is one comparison. */
static int digits(struct gantry_list *head)
{
	int value = 0;

	gantry_list_for_each(head, struct item, link, item)
		value = value * 10 + item->number;
	return value;
}

START_TEST(test_list_push_both_ends_keeps_order)
{
	struct gantry_list head = GANTRY_LIST_INIT(head);

	ck_assert(gantry_list_is_empty(&head));
	gantry_list_push_back(&head, &items[2].link);
	gantry_list_push_back(&head, &items[3].link);
	gantry_list_push_front(&head, &items[1].link);
	ck_assert_int_eq(digits(&head), 123);
	ck_assert_uint_eq(gantry_list_count(&head), 3);
	ck_assert_ptr_eq(gantry_list_first(&head, struct item, link), &items[1]);
}
END_TEST

START_TEST(test_list_remove_twice_is_harmless)
{
	struct gantry_list head;

	gantry_list_init(&head);
	for (int i = 1; i < 4; i++)
		gantry_list_push_back(&head, &items[i].link);
	gantry_list_remove(&items[2].link);
	gantry_list_remove(&items[2].link);
	ck_assert_int_eq(digits(&head), 13);
	ck_assert(gantry_list_is_empty(&items[2].link));
}
END_TEST

START_TEST(test_list_pop_front_empties_in_order_then_null)
{
	struct gantry_list head = GANTRY_LIST_INIT(head);

	gantry_list_push_back(&head, &items[1].link);
	gantry_list_push_back(&head, &items[2].link);
	ck_assert_ptr_eq(gantry_list_pop_front(&head), &items[1].link);
	ck_assert_ptr_eq(gantry_list_pop_front(&head), &items[2].link);
	ck_assert_ptr_null(gantry_list_pop_front(&head));
	ck_assert_ptr_null(gantry_list_first(&head, struct item, link));
}
END_TEST

START_TEST(test_list_splice_back_moves_all_and_empties_source)
{
	struct gantry_list to = GANTRY_LIST_INIT(to), from = GANTRY_LIST_INIT(from);

	gantry_list_push_back(&to, &items[1].link);
	gantry_list_push_back(&from, &items[2].link);
	gantry_list_push_back(&from, &items[3].link);
	gantry_list_splice_back(&to, &from);
	ck_assert_int_eq(digits(&to), 123);
	ck_assert(gantry_list_is_empty(&from));
	gantry_list_splice_back(&to, &from);
	ck_assert_int_eq(digits(&to), 123);
}
END_TEST

START_TEST(test_list_for_each_safe_body_may_free)
{
	struct gantry_list head = GANTRY_LIST_INIT(head);

	for (int i = 0; i < 5; i++) {
		struct item *item = calloc(1, sizeof(*item));

		ck_assert_ptr_nonnull(item);
		gantry_list_push_back(&head, &item->link);
	}
	gantry_list_for_each_safe(&head, struct item, link, item) {
		gantry_list_remove(&item->link);
		free(item);
	}
	ck_assert(gantry_list_is_empty(&head));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("list");
	TCase *tc = gantry_unit_case(suite, "list");

	tcase_add_test(tc, test_list_push_both_ends_keeps_order);
	tcase_add_test(tc, test_list_remove_twice_is_harmless);
	tcase_add_test(tc, test_list_pop_front_empties_in_order_then_null);
	tcase_add_test(tc, test_list_splice_back_moves_all_and_empties_source);
	tcase_add_test(tc, test_list_for_each_safe_body_may_free);
	return gantry_unit_run(suite);
}
