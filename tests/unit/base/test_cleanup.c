/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/unit/runner.h"

static int released;

static void release(int *object)
{
	released += *object;
}

GANTRY_DEFINE_CLEANUP(int *, release);

static int open_null(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

START_TEST(test_cleanup_close_scope_end_closes)
{
	int fd = open_null();

	{
		_cleanup_close_ int scoped = fd;

		ck_assert_int_ge(scoped, 0);
	}
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_int_eq(errno, EBADF);
}
END_TEST

START_TEST(test_take_fd_moves_ownership)
{
	int fd = open_null();
	int taken;

	{
		_cleanup_close_ int scoped = fd;

		taken = GANTRY_TAKE_FD(scoped);
		ck_assert_int_eq(scoped, -EBADF);
	}
	ck_assert_int_ge(fcntl(taken, F_GETFD), 0);
	gantry_fd_close(taken);
}
END_TEST

START_TEST(test_take_ptr_moves_ownership)
{
	char *kept;

	{
		_cleanup_free_ char *scoped = calloc(1, 16);

		kept = GANTRY_TAKE_PTR(scoped);
		ck_assert_ptr_null(scoped);
	}
	ck_assert_ptr_nonnull(kept);
	kept[0] = 'x'; /* the address sanitizer objects if it was freed */
	free(kept);
}
END_TEST

START_TEST(test_define_cleanup_runs_once_and_not_on_null)
{
	int one = 1;

	released = 0;
	{
		_cleanup_(releasep) int *object = &one;
		_cleanup_(releasep) int *none = NULL;

		ck_assert_ptr_ne(object, none);
	}
	ck_assert_int_eq(released, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cleanup");
	TCase *tc = gantry_unit_case(suite, "cleanup");

	tcase_add_test(tc, test_cleanup_close_scope_end_closes);
	tcase_add_test(tc, test_take_fd_moves_ownership);
	tcase_add_test(tc, test_take_ptr_moves_ownership);
	tcase_add_test(tc, test_define_cleanup_runs_once_and_not_on_null);
	return gantry_unit_run(suite);
}
