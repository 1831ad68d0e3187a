/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "tests/unit/runner.h"

static char folder[] = "/tmp/gantry-fd-unix.XXXXXX";
static char path[sizeof(folder) + 16];

static void make_folder(void)
{
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/entry", folder);
}

static void remove_folder(void)
{
	(void)unlink(path);
	ck_assert_msg(rmdir(folder) == 0, "something was left in %s", folder);
}

START_TEST(test_unix_listen_then_connect_meet)
{
	_cleanup_close_ int listener = -EBADF, client = -EBADF, served = -EBADF;
	struct stat st;

	ck_assert_int_eq(gantry_unix_listen(path, SOCK_SEQPACKET, 0640, &listener), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);
	ck_assert_int_eq(gantry_unix_connect(path, SOCK_SEQPACKET, &client), 0);
	served = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(served, 0);
	ck_assert_int_eq(gantry_fd_send(client, "x", 1, NULL, 0, 0), 1);
}
END_TEST

START_TEST(test_unix_listen_live_listener_is_address_in_use)
{
	_cleanup_close_ int first = -EBADF;
	_cleanup_close_ int client = -EBADF;
	int second = 77;

	ck_assert_int_eq(gantry_unix_listen(path, SOCK_STREAM, 0600, &first), 0);
	ck_assert_int_eq(gantry_unix_listen(path, SOCK_STREAM, 0600, &second), -EADDRINUSE);
	ck_assert_int_eq(gantry_unix_listen(path, SOCK_SEQPACKET, 0600, &second), -EADDRINUSE);
	ck_assert_int_eq(second, 77);
	ck_assert_int_eq(gantry_unix_connect(path, SOCK_STREAM, &client), 0);
}
END_TEST

START_TEST(test_unix_listen_stale_socket_is_replaced)
{
	_cleanup_close_ int second = -EBADF;
	int first = -EBADF;

	ck_assert_int_eq(gantry_unix_listen(path, SOCK_STREAM, 0600, &first), 0);
	gantry_fd_close(first); /* as a killed process would: the file stays */
	ck_assert_int_eq(gantry_unix_listen(path, SOCK_STREAM, 0600, &second), 0);
}
END_TEST

START_TEST(test_unix_listen_ordinary_file_is_left_alone)
{
	int fd = 77;

	ck_assert_int_eq(gantry_file_replace(path, "keep", 4, 0600), 0);
	ck_assert_int_eq(gantry_unix_listen(path, SOCK_STREAM, 0600, &fd), -EADDRINUSE);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(fd, 77);
}
END_TEST

START_TEST(test_unix_paths_too_long_or_absent_have_their_own_errors)
{
	char long_path[200];
	int fd = 77;

	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[0] = '/';
	long_path[sizeof(long_path) - 1] = '\0';
	ck_assert_int_eq(gantry_unix_connect(long_path, SOCK_STREAM, &fd), -ENAMETOOLONG);
	ck_assert_int_eq(gantry_unix_listen(long_path, SOCK_STREAM, 0600, &fd), -ENAMETOOLONG);
	ck_assert_int_eq(gantry_unix_connect("", SOCK_STREAM, &fd), -EINVAL);
	ck_assert_int_eq(gantry_unix_connect(path, SOCK_STREAM, &fd), -ENOENT);
	ck_assert_int_eq(fd, 77);
}
END_TEST

START_TEST(test_unix_listen_abstract_name_meets_and_leaves_no_file)
{
	_cleanup_close_ int listener = -EBADF, client = -EBADF;
	int second = 77;
	char name[64];

	(void)snprintf(name, sizeof(name), "@gantry-test-%d", (int)getpid());
	ck_assert_int_eq(gantry_unix_listen(name, SOCK_STREAM, 0600, &listener), 0);
	ck_assert_int_eq(gantry_unix_listen(name, SOCK_STREAM, 0600, &second), -EADDRINUSE);
	ck_assert_int_eq(gantry_unix_connect(name, SOCK_STREAM, &client), 0);
}
END_TEST

START_TEST(test_file_replace_then_read_gives_the_same_bytes)
{
	_cleanup_free_ char *data = NULL;
	size_t len = 0;
	struct stat st;

	ck_assert_int_eq(gantry_file_replace(path, "old", 3, 0600), 0);
	ck_assert_int_eq(gantry_file_replace(path, "a\0b", 3, 0644), 0);
	ck_assert_int_eq(gantry_file_read(path, 3, &data, &len), 0);
	ck_assert_uint_eq(len, 3);
	ck_assert_mem_eq(data, "a\0b", 4);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0644);
}
END_TEST

START_TEST(test_file_replace_failure_leaves_nothing_behind)
{
	/* rename() of a file onto a folder fails after the temporary file was written. */
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_lt(gantry_file_replace(path, "x", 1, 0600), 0);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(gantry_file_replace("/nonexistent/x", "x", 1, 0600), -ENOENT);
}
END_TEST

START_TEST(test_file_read_over_the_cap_is_refused)
{
	char *data = (char *)77;

	ck_assert_int_eq(gantry_file_replace(path, "four", 4, 0600), 0);
	ck_assert_int_eq(gantry_file_read(path, 3, &data, NULL), -EFBIG);
	ck_assert_int_eq(gantry_file_read("/dev/zero", 100000, &data, NULL), -EFBIG);
	ck_assert_int_eq(gantry_file_read("/nonexistent", 3, &data, NULL), -ENOENT);
	ck_assert_ptr_eq(data, (char *)77);
}
END_TEST

START_TEST(test_file_read_empty_and_proc_files_work)
{
	_cleanup_free_ char *data = NULL, *proc = NULL;
	size_t len = 77;

	ck_assert_int_eq(gantry_file_replace(path, "", 0, 0600), 0);
	ck_assert_int_eq(gantry_file_read(path, 0, &data, &len), 0);
	ck_assert_uint_eq(len, 0);
	ck_assert_str_eq(data, "");
	ck_assert_int_eq(gantry_file_read("/proc/self/status", 65536, &proc, &len), 0);
	ck_assert_uint_gt(len, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fd_unix");
	TCase *tc = gantry_unit_case(suite, "fd_unix");

	tcase_add_checked_fixture(tc, make_folder, remove_folder);
	tcase_add_test(tc, test_unix_listen_then_connect_meet);
	tcase_add_test(tc, test_unix_listen_live_listener_is_address_in_use);
	tcase_add_test(tc, test_unix_listen_stale_socket_is_replaced);
	tcase_add_test(tc, test_unix_listen_ordinary_file_is_left_alone);
	tcase_add_test(tc, test_unix_paths_too_long_or_absent_have_their_own_errors);
	tcase_add_test(tc, test_unix_listen_abstract_name_meets_and_leaves_no_file);
	tcase_add_test(tc, test_file_replace_then_read_gives_the_same_bytes);
	tcase_add_test(tc, test_file_replace_failure_leaves_nothing_behind);
	tcase_add_test(tc, test_file_read_over_the_cap_is_refused);
	tcase_add_test(tc, test_file_read_empty_and_proc_files_work);
	return gantry_unit_run(suite);
}
