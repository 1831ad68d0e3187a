/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/vocab.h"

#include <ctype.h>
#include <string.h>

#include "tests/unit/runner.h"

static const struct {
	int value;
	const char *name;
	const char *text;
} statuses[] = {
#define ROW(name, value, text) { value, "GANTRY_E_" #name, text },
	GANTRY_STATUS_LIST(ROW)
#undef ROW
};
#define NSTATUSES (sizeof(statuses) / sizeof(statuses[0]))

START_TEST(test_status_each_has_its_name_and_text)
{
	for (size_t i = 0; i < NSTATUSES; i++) {
		ck_assert_str_eq(gantry_status_name(statuses[i].value), statuses[i].name);
		ck_assert_str_eq(gantry_status_text(statuses[i].value), statuses[i].text);
	}
	ck_assert_str_eq(gantry_status_name(GANTRY_OK), "GANTRY_OK");
	ck_assert_str_ne(gantry_status_text(GANTRY_OK), "unknown");
}
END_TEST

START_TEST(test_status_unknown_numbers_have_a_text_too)
{
	static const int unknown[] = { 1, -99, -199, -1000, INT32_MAX, INT32_MIN };

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		ck_assert_str_eq(gantry_status_name(unknown[i]), "unknown");
		ck_assert_str_eq(gantry_status_text(unknown[i]), "unknown");
	}
}
END_TEST

START_TEST(test_status_values_descend_within_their_groups)
{
	for (size_t i = 0; i < NSTATUSES; i++) {
		ck_assert_int_lt(statuses[i].value, 0);
		ck_assert_int_gt(statuses[i].value, -300);
		if (i > 0)
			ck_assert_int_lt(statuses[i].value, statuses[i - 1].value);
	}
}
END_TEST

START_TEST(test_status_texts_fit_a_reply_and_read_as_part_of_a_sentence)
{
	for (size_t i = 0; i < NSTATUSES; i++) {
		size_t len = strlen(statuses[i].text);

		ck_assert_uint_gt(len, 0);
		ck_assert_uint_lt(len, 72);
		ck_assert(islower((unsigned char)statuses[i].text[0]));
		ck_assert_int_ne(statuses[i].text[len - 1], '.');
	}
}
END_TEST

START_TEST(test_kind_names_differ)
{
	for (int i = 0; i < GANTRY_NKINDS; i++) {
		ck_assert_str_ne(gantry_kind_name(i), "unknown");
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(gantry_kind_name(i), gantry_kind_name(j));
	}
	ck_assert_str_eq(gantry_kind_name(-1), "unknown");
	ck_assert_str_eq(gantry_kind_name(GANTRY_NKINDS), "unknown");
}
END_TEST

START_TEST(test_handle_parts_come_back)
{
	uint64_t h = GANTRY_HANDLE(GANTRY_HANDLE_QUEUE, 0xfffffffeu, 0xabcdefu);

	ck_assert_uint_eq(GANTRY_HANDLE_TYPE(h), GANTRY_HANDLE_QUEUE);
	ck_assert_uint_eq(GANTRY_HANDLE_GEN(h), 0xfffffffeu);
	ck_assert_uint_eq(GANTRY_HANDLE_SLOT(h), 0xabcdefu);
}
END_TEST

START_TEST(test_ticket_parts_come_back)
{
	uint64_t t = GANTRY_TICKET(63, UINT64_C(0xffffffffffffff));

	ck_assert_uint_eq(GANTRY_TICKET_QUEUE(t), 63);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(t), UINT64_C(0xffffffffffffff));
	ck_assert_uint_eq(GANTRY_TICKET(0, 0), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vocab");
	TCase *tc = gantry_unit_case(suite, "vocab");

	tcase_add_test(tc, test_status_each_has_its_name_and_text);
	tcase_add_test(tc, test_status_unknown_numbers_have_a_text_too);
	tcase_add_test(tc, test_status_values_descend_within_their_groups);
	tcase_add_test(tc, test_status_texts_fit_a_reply_and_read_as_part_of_a_sentence);
	tcase_add_test(tc, test_kind_names_differ);
	tcase_add_test(tc, test_handle_parts_come_back);
	tcase_add_test(tc, test_ticket_parts_come_back);
	return gantry_unit_run(suite);
}
