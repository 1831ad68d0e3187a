/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "tests/unit/runner.h"

START_TEST(test_fd_close_negative_keeps_errno)
{
	errno = ENOENT;
	ck_assert_int_eq(gantry_fd_close(-1), -EBADF);
	ck_assert_int_eq(errno, ENOENT);
}
END_TEST

START_TEST(test_memfd_create_sealed_cannot_be_resized)
{
	_cleanup_close_ int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("t", 8192, GANTRY_MEMFD_SEALED, &fd), 0);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(fd, 16384), -1);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(gantry_memfd_check(fd, 8192), 0);
	ck_assert_int_eq(gantry_memfd_check(fd, 8193), -ERANGE);
}
END_TEST

START_TEST(test_memfd_create_unsealed_can_be_resized_and_fails_check)
{
	_cleanup_close_ int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("t", 4096, 0, &fd), 0);
	ck_assert_int_eq(ftruncate(fd, 8192), 0);
	ck_assert_int_eq(gantry_memfd_check(fd, 4096), -EPERM);
}
END_TEST

static void *unmap_soon(void *at)
{
	(void)usleep(60000);
	(void)munmap(at, 4096);
	return NULL;
}

/* A page that somebody holds for a moment is no reason to give up. */
START_TEST(test_memfd_freeze_waits_for_whoever_holds_a_page)
{
	_cleanup_close_ int fd = -EBADF;
	pthread_t thread;
	void *at;

	ck_assert_int_eq(gantry_memfd_create("t", 4096, 0, &fd), 0);
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	memset(at, 7, 4096);
	ck_assert_int_eq(gantry_memfd_freeze(fd), -EBUSY);
	ck_assert_int_eq(pthread_create(&thread, NULL, unmap_soon, at), 0);
	ck_assert_int_eq(gantry_memfd_freeze(fd), 0);
	(void)pthread_join(thread, NULL);
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(gantry_memfd_check(fd, 4096), 0);
	ck_assert_int_eq(gantry_memfd_freeze(-1), -EBADF);
}
END_TEST

START_TEST(test_memfd_create_bad_arguments_leave_result_alone)
{
	int fd = 77;

	ck_assert_int_eq(gantry_memfd_create("t", 4096, 0x80, &fd), -EINVAL);
	ck_assert_int_eq(gantry_memfd_create("t", UINT64_MAX, 0, &fd), -EFBIG);
	ck_assert_int_eq(fd, 77);
}
END_TEST

/* A mapping of it ends a process that touches it when the machine has no such page left. */
START_TEST(test_memfd_check_huge_pages_are_refused)
{
	_cleanup_close_ int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0)
		return; /* a kernel without them has nothing to refuse */
	ck_assert_int_eq(ftruncate(fd, 16 << 20), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	ck_assert_int_eq(gantry_memfd_check(fd, 4096), -EMEDIUMTYPE);
}
END_TEST

START_TEST(test_memfd_check_pipe_is_refused)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_lt(gantry_memfd_check(ends[0], 0), 0);
	gantry_fd_close(ends[0]);
	gantry_fd_close(ends[1]);
}
END_TEST

START_TEST(test_fd_nonblock_and_cloexec_set_and_clear)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(gantry_fd_nonblock(ends[0], true), 0);
	ck_assert_int_ne(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_eq(gantry_fd_nonblock(ends[0], false), 0);
	ck_assert_int_eq(fcntl(ends[0], F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_eq(gantry_fd_cloexec(ends[0], false), 0);
	ck_assert_int_eq(fcntl(ends[0], F_GETFD) & FD_CLOEXEC, 0);
	ck_assert_int_eq(gantry_fd_nonblock(-1, true), -EBADF);
	gantry_fd_close(ends[0]);
	gantry_fd_close(ends[1]);
}
END_TEST

START_TEST(test_fd_peer_cred_own_socketpair_is_me)
{
	struct ucred cred = { 0 };
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	ck_assert_int_eq(gantry_fd_peer_cred(ends[0], &cred), 0);
	ck_assert_int_eq(cred.pid, getpid());
	ck_assert_int_eq((int)cred.uid, (int)getuid());
	gantry_fd_close(ends[0]);
	gantry_fd_close(ends[1]);
}
END_TEST

START_TEST(test_read_all_write_all_move_more_than_a_pipe_holds)
{
	static char out[300000], in[300000];
	int ends[2];
	pid_t child;

	memset(out, 'x', sizeof(out));
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(gantry_write_all(ends[1], out, sizeof(out)) == 0 ? 0 : 1);
	gantry_fd_close(ends[1]);
	ck_assert_int_eq(gantry_read_all(ends[0], in, sizeof(in)), 0);
	ck_assert_mem_eq(in, out, sizeof(in));
	ck_assert_int_eq(gantry_read_all(ends[0], in, 1), -ENODATA);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	gantry_fd_close(ends[0]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fd");
	TCase *tc = gantry_unit_case(suite, "fd");

	tcase_add_test(tc, test_fd_close_negative_keeps_errno);
	tcase_add_test(tc, test_memfd_create_sealed_cannot_be_resized);
	tcase_add_test(tc, test_memfd_create_unsealed_can_be_resized_and_fails_check);
	tcase_add_test(tc, test_memfd_create_bad_arguments_leave_result_alone);
	tcase_add_test(tc, test_memfd_freeze_waits_for_whoever_holds_a_page);
	tcase_add_test(tc, test_memfd_check_huge_pages_are_refused);
	tcase_add_test(tc, test_memfd_check_pipe_is_refused);
	tcase_add_test(tc, test_fd_nonblock_and_cloexec_set_and_clear);
	tcase_add_test(tc, test_fd_peer_cred_own_socketpair_is_me);
	tcase_add_test(tc, test_read_all_write_all_move_more_than_a_pipe_holds);
	return gantry_unit_run(suite);
}
