/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"
#include "tests/unit/runner.h"

START_TEST(test_str_copy_too_long_is_cut_and_terminated)
{
	char dst[4] = "zzz";

	ck_assert_int_eq(gantry_str_copy(dst, sizeof(dst), "abc"), 0);
	ck_assert_str_eq(dst, "abc");
	ck_assert_int_eq(gantry_str_copy(dst, sizeof(dst), "wxyz"), -E2BIG);
	ck_assert_str_eq(dst, "wxy");
	ck_assert_int_eq(gantry_str_copy(dst, 1, "a"), -E2BIG);
	ck_assert_str_eq(dst, "");
}
END_TEST

START_TEST(test_str_format_too_long_is_cut_and_terminated)
{
	char dst[4];

	ck_assert_int_eq(gantry_str_format(dst, sizeof(dst), "%d", 123), 0);
	ck_assert_str_eq(dst, "123");
	ck_assert_int_eq(gantry_str_format(dst, sizeof(dst), "%d", 1234), -E2BIG);
	ck_assert_str_eq(dst, "123");
}
END_TEST

START_TEST(test_str_starts_compares_prefix_only)
{
	ck_assert(gantry_str_starts("unix:/run/x", "unix:"));
	ck_assert(!gantry_str_starts("uni", "unix:"));
	ck_assert(gantry_str_equal("a", "a"));
	ck_assert(!gantry_str_equal("a", "b"));
}
END_TEST

START_TEST(test_name_valid_usual_names_pass)
{
	static const char *const good[] = { "a", "cpu0", "0", "red-team_1.x",
					    "a234567890123456789012345678901" };

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(good); i++)
		ck_assert_msg(gantry_name_valid(good[i]), "%s", good[i]);
}
END_TEST

START_TEST(test_name_valid_dangerous_names_fail)
{
	static const char *const bad[] = {
		"",    ".",   "..",   "-a",   "A",   "a b",
		"a/b", "a\n", "\xc3", "../x", "a:b", "a2345678901234567890123456789012"
	};

	ck_assert(!gantry_name_valid(NULL));
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(bad); i++)
		ck_assert_msg(!gantry_name_valid(bad[i]), "%s", bad[i]);
}
END_TEST

START_TEST(test_name_valid_bounded_without_terminator_fails)
{
	static const char full[4] = { 'a', 'b', 'c', 'd' };

	ck_assert(!gantry_name_valid_bounded(full, sizeof(full)));
	ck_assert(gantry_name_valid_bounded("abc", 4));
}
END_TEST

START_TEST(test_hex_encode_then_decode_is_the_same)
{
	static const unsigned char data[3] = { 0x00, 0xaf, 0xff };
	unsigned char back[3];
	char text[7] = "??????";

	ck_assert_int_eq(gantry_hex_encode(data, 3, text, 6), -E2BIG);
	ck_assert_str_eq(text, "??????");
	ck_assert_int_eq(gantry_hex_encode(data, 3, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "00afff");
	ck_assert_int_eq(gantry_hex_decode("00AfFf", back, 3), 0);
	ck_assert_mem_eq(back, data, 3);
}
END_TEST

START_TEST(test_hex_decode_wrong_length_or_digit_is_refused)
{
	unsigned char back[2];

	ck_assert_int_eq(gantry_hex_decode("00a", back, 2), -EINVAL);
	ck_assert_int_eq(gantry_hex_decode("00af0", back, 2), -EINVAL);
	ck_assert_int_eq(gantry_hex_decode("0g00", back, 2), -EINVAL);
	ck_assert_int_eq(gantry_hex_decode("", back, 2), -EINVAL);
}
END_TEST

START_TEST(test_random_bytes_twice_differ)
{
	unsigned char a[600] = { 0 }, b[600] = { 0 };

	ck_assert_int_eq(gantry_random_bytes(a, sizeof(a)), 0);
	ck_assert_int_eq(gantry_random_bytes(b, sizeof(b)), 0);
	ck_assert_mem_ne(a, b, sizeof(a));
	ck_assert_mem_ne(a + 584, b + 584, 16);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("str");
	TCase *tc = gantry_unit_case(suite, "str");

	tcase_add_test(tc, test_str_copy_too_long_is_cut_and_terminated);
	tcase_add_test(tc, test_str_format_too_long_is_cut_and_terminated);
	tcase_add_test(tc, test_str_starts_compares_prefix_only);
	tcase_add_test(tc, test_name_valid_usual_names_pass);
	tcase_add_test(tc, test_name_valid_dangerous_names_fail);
	tcase_add_test(tc, test_name_valid_bounded_without_terminator_fails);
	tcase_add_test(tc, test_hex_encode_then_decode_is_the_same);
	tcase_add_test(tc, test_hex_decode_wrong_length_or_digit_is_refused);
	tcase_add_test(tc, test_random_bytes_twice_differ);
	return gantry_unit_run(suite);
}
