/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "tests/unit/runner.h"

#define GIB (1ull << 30)

struct good {
	const char *text;
	uint64_t value;
};

static const struct good good_sizes[] = {
	{ "0", 0 },
	{ "512", 512 },
	{ "512B", 512 },
	{ "64K", 65536 },
	{ "64k", 65536 },
	{ "20G", 20 * GIB },
	{ "20Gi", 20 * GIB },
	{ "20480M", 20 * GIB },
	{ "1.5G", GIB + GIB / 2 },
	{ "18446744073709551615", UINT64_MAX },
};

START_TEST(test_size_parse_usual_spellings_are_read)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(good_sizes); i++) {
		uint64_t bytes = 1;

		ck_assert_int_eq(gantry_size_parse(good_sizes[i].text, &bytes, NULL), 0);
		ck_assert_uint_eq(bytes, good_sizes[i].value);
	}
}
END_TEST

static const char *const bad_sizes[] = { "",	" 1",  "1 ",  "-1",  "+1",   "G",
					 "1.G", ".5G", "1.5", "1x",  "1GG",  "0x10",
					 "1e3", "1,5", "20g", "nan", "1.1K", "1GiB" };

START_TEST(test_size_parse_anything_else_is_refused_with_a_sentence)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(bad_sizes); i++) {
		struct gantry_err err = GANTRY_ERR_NONE;
		uint64_t bytes = 77;

		ck_assert_msg(gantry_size_parse(bad_sizes[i], &bytes, &err) == -EINVAL, "\"%s\"",
			      bad_sizes[i]);
		ck_assert_uint_eq(bytes, 77);
		ck_assert_ptr_nonnull(strstr(err.text, "is not a size"));
	}
}
END_TEST

START_TEST(test_size_parse_overflow_is_a_range_error)
{
	static const char *const large[] = { "18446744073709551616", "16777216T", "99999999999P" };

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(large); i++) {
		uint64_t bytes = 77;

		ck_assert_int_eq(gantry_size_parse(large[i], &bytes, NULL), -ERANGE);
		ck_assert_uint_eq(bytes, 77);
	}
}
END_TEST

START_TEST(test_size_format_is_read_back_exactly)
{
	static const uint64_t values[] = { 0,	     1,	      513,	  1024,	     1536 << 20,
					   20 * GIB, 1 + GIB, 1ull << 63, UINT64_MAX };

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(values); i++) {
		char text[GANTRY_QUANTITY_MAX];
		uint64_t bytes = 1;

		gantry_size_format(values[i], text);
		ck_assert_int_eq(gantry_size_parse(text, &bytes, NULL), 0);
		ck_assert_uint_eq(bytes, values[i]);
	}
}
END_TEST

START_TEST(test_size_format_picks_the_largest_exact_unit)
{
	char text[GANTRY_QUANTITY_MAX];

	gantry_size_format(20 * GIB, text);
	ck_assert_str_eq(text, "20G");
	gantry_size_format(1536ull << 20, text);
	ck_assert_str_eq(text, "1536M");
	gantry_size_format(513, text);
	ck_assert_str_eq(text, "513");
}
END_TEST

START_TEST(test_size_format_rounded_is_short)
{
	char text[GANTRY_QUANTITY_MAX];

	gantry_size_format_rounded(20 * GIB, text);
	ck_assert_str_eq(text, "20G");
	gantry_size_format_rounded(19 * GIB + GIB / 2, text);
	ck_assert_str_eq(text, "19.5G");
	gantry_size_format_rounded(GIB - 1, text);
	ck_assert_str_eq(text, "1.0G");
	gantry_size_format_rounded(0, text);
	ck_assert_str_eq(text, "0");
}
END_TEST

START_TEST(test_duration_parse_usual_spellings_are_read)
{
	static const struct good good[] = { { "0", 0 },
					    { "10ns", 10 },
					    { "500us", 500000 },
					    { "2ms", 2000000 },
					    { "3s", 3000000000 },
					    { "1.5s", 1500000000 },
					    { "5m", 300000000000 },
					    { "1h", 3600000000000 } };

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(good); i++) {
		char text[GANTRY_QUANTITY_MAX];
		uint64_t ns = 1;

		ck_assert_int_eq(gantry_duration_parse(good[i].text, &ns, NULL), 0);
		ck_assert_uint_eq(ns, good[i].value);
		gantry_duration_format(ns, text);
		ns = 1;
		ck_assert_int_eq(gantry_duration_parse(text, &ns, NULL), 0);
		ck_assert_uint_eq(ns, good[i].value);
	}
}
END_TEST

START_TEST(test_duration_parse_without_unit_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t ns = 77;

	ck_assert_int_eq(gantry_duration_parse("5", &ns, &err), -EINVAL);
	ck_assert_int_eq(gantry_duration_parse("-5s", &ns, &err), -EINVAL);
	ck_assert_int_eq(gantry_duration_parse("5 s", &ns, &err), -EINVAL);
	ck_assert_int_eq(gantry_duration_parse("9999999999h", &ns, &err), -ERANGE);
	ck_assert_uint_eq(ns, 77);
}
END_TEST

START_TEST(test_duration_format_rounded_has_three_digits)
{
	char text[GANTRY_QUANTITY_MAX];

	gantry_duration_format_rounded(1234567, text);
	ck_assert_str_eq(text, "1.23ms");
	gantry_duration_format_rounded(45600000000, text);
	ck_assert_str_eq(text, "45.6s");
	gantry_duration_format_rounded(7, text);
	ck_assert_str_eq(text, "7ns");
	gantry_duration_format_rounded(0, text);
	ck_assert_str_eq(text, "0ns");
}
END_TEST

START_TEST(test_percent_parse_bounds_are_kept)
{
	unsigned int percent = 77;

	ck_assert_int_eq(gantry_percent_parse("50%", &percent, NULL), 0);
	ck_assert_uint_eq(percent, 50);
	ck_assert_int_eq(gantry_percent_parse("100", &percent, NULL), 0);
	ck_assert_uint_eq(percent, 100);
	ck_assert_int_eq(gantry_percent_parse("101%", &percent, NULL), -ERANGE);
	ck_assert_int_eq(gantry_percent_parse("5%%", &percent, NULL), -EINVAL);
	ck_assert_int_eq(gantry_percent_parse("%", &percent, NULL), -EINVAL);
	ck_assert_int_eq(gantry_percent_parse("", &percent, NULL), -EINVAL);
	ck_assert_uint_eq(percent, 100);
}
END_TEST

START_TEST(test_u64_parse_bounds_are_kept)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t value = 77;

	ck_assert_int_eq(gantry_u64_parse("8", 1, 8, &value, &err), 0);
	ck_assert_uint_eq(value, 8);
	ck_assert_int_eq(gantry_u64_parse("9", 1, 8, &value, &err), -ERANGE);
	ck_assert_str_eq(err.text, "\"9\" is not from 1 to 8");
	ck_assert_int_eq(gantry_u64_parse("0", 1, 8, &value, &err), -ERANGE);
	ck_assert_int_eq(gantry_u64_parse("8x", 1, 8, &value, &err), -EINVAL);
	ck_assert_int_eq(gantry_u64_parse("99999999999999999999", 0, UINT64_MAX, &value, &err),
			 -ERANGE);
	ck_assert_uint_eq(value, 8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bytes");
	TCase *tc = gantry_unit_case(suite, "bytes");

	tcase_add_test(tc, test_size_parse_usual_spellings_are_read);
	tcase_add_test(tc, test_size_parse_anything_else_is_refused_with_a_sentence);
	tcase_add_test(tc, test_size_parse_overflow_is_a_range_error);
	tcase_add_test(tc, test_size_format_is_read_back_exactly);
	tcase_add_test(tc, test_size_format_picks_the_largest_exact_unit);
	tcase_add_test(tc, test_size_format_rounded_is_short);
	tcase_add_test(tc, test_duration_parse_usual_spellings_are_read);
	tcase_add_test(tc, test_duration_parse_without_unit_is_refused);
	tcase_add_test(tc, test_duration_format_rounded_has_three_digits);
	tcase_add_test(tc, test_percent_parse_bounds_are_kept);
	tcase_add_test(tc, test_u64_parse_bounds_are_kept);
	return gantry_unit_run(suite);
}
