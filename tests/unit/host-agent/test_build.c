/* SPDX-License-Identifier: Apache-2.0 */
/* What builds say of themselves, and which may follow which. */
#include <errno.h>
#include <string.h>

#include "host-agent/agent/build.h"
#include "tests/unit/runner.h"

static struct gantry_build self(const char *version)
{
	struct gantry_build b;

	gantry_build_self(&b);
	strcpy(b.version, version);
	return b;
}

static int parse(const char *text, struct gantry_build *b)
{
	return gantry_build_parse(text, strlen(text), b);
}

START_TEST(test_build_text_reads_back_the_same)
{
	struct gantry_build b = self("1.2.3"), read;
	char text[GANTRY_BUILD_TEXT_MAX];
	int n;

	strcpy(b.problem, "no door: it is night");
	n = gantry_build_format(&b, text, sizeof(text));
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(gantry_build_parse(text, (size_t)n, &read), 0);
	ck_assert_str_eq(read.version, "1.2.3");
	ck_assert_str_eq(read.problem, b.problem);
	ck_assert_mem_eq(read.formats, b.formats, sizeof(b.formats));
	ck_assert_int_eq(gantry_build_format(&b, text, 40), -E2BIG);
	ck_assert_int_eq(gantry_build_format(&b, text, (size_t)n), -E2BIG);
}
END_TEST

START_TEST(test_build_text_that_is_none_is_refused_and_writes_nothing)
{
	static const char *const texts[] = {
		"",
		"end\n",
		"gantryd 1\n",
		"gantryd 1\nend",
		"gantryd \nend\n",
		"gantry 1\nend\n",
		"gantryd 1\nformat ledger 2 1\nend\n",
		"gantryd 1\nformat ledger one two\nend\n",
		"gantryd 1\nformat ledger 1 1 1\nend\n",
		"gantryd 1\nproblem \x1b[2J\nend\n",
		"gantryd 1234567890123456789012345678901234567890\nend\n",
	};
	struct gantry_build b = self("untouched");
	char longline[512];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		ck_assert_int_eq(parse(texts[i], &b), -EINVAL);
		ck_assert_str_eq(b.version, "untouched");
	}
	ck_assert_int_eq(gantry_build_parse("gantryd 1\n\0\nend\n", 16, &b), -EINVAL);
	memset(longline, 'x', sizeof(longline));
	memcpy(longline, "gantryd 1\n", 10);
	memcpy(longline + 506, "\nend\n", 6);
	ck_assert_int_eq(parse(longline, &b), -EINVAL);
}
END_TEST

START_TEST(test_build_of_a_format_that_we_do_not_know_is_no_hindrance)
{
	struct gantry_build now = self("1.0"), next;
	char text[GANTRY_BUILD_TEXT_MAX];

	ck_assert_int_gt(gantry_build_format(&now, text, sizeof(text)), 0);
	strcpy(strstr(text, "end\n"), "format dreams 7 9\nend\n");
	ck_assert_int_eq(parse(text, &next), 0);
	ck_assert_int_eq(gantry_build_may_follow(&now, &next, false, NULL), 0);
}
END_TEST

START_TEST(test_build_may_follow_only_who_reads_what_was_written)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	for (unsigned int i = 0; i < GANTRY_NFORMATS; i++) {
		struct gantry_build now = self("1.0"), next = self("1.1");

		next.formats[i].newest += 3;
		ck_assert_int_eq(gantry_build_may_follow(&now, &next, false, &err), 0);
		ck_assert_int_eq(gantry_build_may_return(&now, &next, &err), -EPROTO);
		next.formats[i].oldest = next.formats[i].newest;
		ck_assert_int_eq(gantry_build_may_follow(&now, &next, false, &err), -EPROTO);
		ck_assert_ptr_nonnull(strstr(err.text, "1.1 reads"));
		/* One that says nothing of a format knows nothing of it. */
		next.formats[i] = (struct gantry_build_range){ 0 };
		ck_assert_int_eq(gantry_build_may_follow(&now, &next, true, &err), -EPROTO);
	}
}
END_TEST

START_TEST(test_build_may_not_follow_where_old_guests_would_be_left_behind)
{
	struct gantry_build now = self("1.0"), next = self("1.1");
	struct gantry_err err = GANTRY_ERR_NONE;

	now.formats[GANTRY_FORMAT_WIRE] = (struct gantry_build_range){ 1, 3 };
	next.formats[GANTRY_FORMAT_WIRE] = (struct gantry_build_range){ 2, 3 };
	ck_assert_int_eq(gantry_build_may_follow(&now, &next, false, &err), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err.text, "protocol 2 and later"));
}
END_TEST

START_TEST(test_build_older_or_with_a_problem_may_not_follow)
{
	struct gantry_build now = self("1.10"), next = self("1.9");
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_build_may_follow(&now, &next, false, &err), -EPERM);
	ck_assert_int_eq(gantry_build_may_follow(&now, &next, true, &err), 0);
	strcpy(next.problem, "no");
	ck_assert_int_eq(gantry_build_may_follow(&now, &next, true, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "cannot serve here: no"));
}
END_TEST

START_TEST(test_build_versions_compare_as_numbers)
{
	ck_assert_int_eq(gantry_build_version_compare("1.2", "1.2"), 0);
	ck_assert_int_lt(gantry_build_version_compare("1.9", "1.10"), 0);
	ck_assert_int_gt(gantry_build_version_compare("2", "1.99.99"), 0);
	ck_assert_int_lt(gantry_build_version_compare("1.2", "1.2.1"), 0);
	ck_assert_int_eq(gantry_build_version_compare("1.2-rc1", "1.2-rc2"), 0);
	ck_assert_int_gt(gantry_build_version_compare("0.1", "unknown"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("build");
	TCase *tc = gantry_unit_case(suite, "builds");

	tcase_add_test(tc, test_build_text_reads_back_the_same);
	tcase_add_test(tc, test_build_text_that_is_none_is_refused_and_writes_nothing);
	tcase_add_test(tc, test_build_of_a_format_that_we_do_not_know_is_no_hindrance);
	tcase_add_test(tc, test_build_may_follow_only_who_reads_what_was_written);
	tcase_add_test(tc, test_build_may_not_follow_where_old_guests_would_be_left_behind);
	tcase_add_test(tc, test_build_older_or_with_a_problem_may_not_follow);
	tcase_add_test(tc, test_build_versions_compare_as_numbers);
	return gantry_unit_run(suite);
}
