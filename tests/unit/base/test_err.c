/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "tests/unit/runner.h"

START_TEST(test_err_set_formats_and_returns_code)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_err_set(&err, -EINVAL, "slot %d", 7), -EINVAL);
	ck_assert_int_eq(err.code, -EINVAL);
	ck_assert_str_eq(err.text, "slot 7");
}
END_TEST

START_TEST(test_err_all_without_object_return_code)
{
	ck_assert_int_eq(gantry_err_set(NULL, -EIO, "x"), -EIO);
	ck_assert_int_eq(gantry_err_set_errno(NULL, -EIO, "x"), -EIO);
	ck_assert_int_eq(gantry_err_wrap(NULL, -EIO, "x"), -EIO);
}
END_TEST

START_TEST(test_err_set_errno_appends_reason)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_err_set_errno(&err, -ENOENT, "opening %s", "a"), -ENOENT);
	ck_assert_str_eq(err.text, "opening a: No such file or directory");
}
END_TEST

START_TEST(test_err_wrap_twice_reads_outside_in)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	gantry_err_set(&err, -ENOMEM, "mapping %d bytes", 4096);
	gantry_err_wrap(&err, -ENOMEM, "attaching");
	ck_assert_int_eq(gantry_err_wrap(&err, -EIO, "tenant %s", "red"), -EIO);
	ck_assert_str_eq(err.text, "tenant red: attaching: mapping 4096 bytes");
	ck_assert_int_eq(err.code, -EIO);
}
END_TEST

START_TEST(test_err_wrap_empty_uses_errno_text)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	gantry_err_wrap(&err, -EACCES, "reading the key");
	ck_assert_str_eq(err.text, "reading the key: Permission denied");
}
END_TEST

START_TEST(test_err_wrap_overlong_keeps_outer_and_terminates)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char inner[400];

	memset(inner, 'i', sizeof(inner) - 1);
	inner[sizeof(inner) - 1] = '\0';
	gantry_err_set(&err, -EIO, "%s", inner);
	ck_assert_uint_eq(strlen(err.text), GANTRY_ERR_TEXT_MAX - 1);
	gantry_err_wrap(&err, -EIO, "outer");
	ck_assert_uint_eq(strlen(err.text), GANTRY_ERR_TEXT_MAX - 1);
	ck_assert_int_eq(strncmp(err.text, "outer: iii", 10), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("err");
	TCase *tc = gantry_unit_case(suite, "err");

	tcase_add_test(tc, test_err_set_formats_and_returns_code);
	tcase_add_test(tc, test_err_all_without_object_return_code);
	tcase_add_test(tc, test_err_set_errno_appends_reason);
	tcase_add_test(tc, test_err_wrap_twice_reads_outside_in);
	tcase_add_test(tc, test_err_wrap_empty_uses_errno_text);
	tcase_add_test(tc, test_err_wrap_overlong_keeps_outer_and_terminates);
	return gantry_unit_run(suite);
}
