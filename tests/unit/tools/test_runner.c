/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A suite that goes wrong in every way the unit test runner must notice. test_runner.py runs it and
 * reads what it reports.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/runner.h"

START_TEST(good)
{
	ck_assert_int_eq(1, 1);
}
END_TEST

START_TEST(skips)
{
	gantry_unit_skip("no such device");
}
END_TEST

START_TEST(fails)
{
	ck_assert_int_eq(1, 2);
}
END_TEST

START_TEST(leaks_descriptor)
{
	ck_assert_int_ge(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
}
END_TEST

START_TEST(keeps_what_is_allowed)
{
	gantry_unit_allow_fds("anon_inode:[eventfd]", 2);
	for (int i = 0; i < 2; i++)
		ck_assert_int_ge(eventfd(0, EFD_CLOEXEC), 0);
}
END_TEST

START_TEST(keeps_more_than_is_allowed)
{
	gantry_unit_allow_fds("anon_inode:[eventfd]", 1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_ge(eventfd(0, EFD_CLOEXEC), 0);
}
END_TEST

START_TEST(keeps_another_kind)
{
	gantry_unit_allow_fds("anon_inode:[eventfd]", 1);
	ck_assert_int_ge(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
}
END_TEST

static void *sleep_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

START_TEST(leaks_thread)
{
	pthread_t thread;

	/* Two, as a sanitizer's own thread may hide one. */
	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_for_ever, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_for_ever, NULL), 0);
}
END_TEST

START_TEST(crashes)
{
	raise(SIGSEGV);
}
END_TEST

START_TEST(hangs)
{
	sleep_for_ever(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("runner");
	TCase *tc = gantry_unit_case(suite, "runner");
	TCase *slow = gantry_unit_case(suite, "slow");

	tcase_add_test(tc, good);
	tcase_add_test(tc, skips);
	tcase_add_test(tc, fails);
	tcase_add_test(tc, leaks_descriptor);
	tcase_add_test(tc, keeps_what_is_allowed);
	tcase_add_test(tc, keeps_more_than_is_allowed);
	tcase_add_test(tc, keeps_another_kind);
	tcase_add_test(tc, leaks_thread);
	tcase_add_test(tc, crashes);
	tcase_set_timeout(slow, 0.2);
	tcase_add_test(slow, hangs);
	return gantry_unit_run(suite);
}
