/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/liveness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "tests/unit/runner.h"

static bool ended(int pidfd, int wait_ms)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, wait_ms) == 1;
}

static uint64_t boot_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A child that lives until it is killed. */
static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* A listener, and a child that connects and lives; the connection and the child's number. */
static int connected_child(pid_t *ret_pid)
{
	char path[64];
	int listener, fd;

	(void)gantry_str_format(path, sizeof(path), "@gantry-liveness-%d", (int)getpid());
	ck_assert_int_eq(gantry_unix_listen(path, SOCK_SEQPACKET, 0, &listener), 0);
	*ret_pid = fork();
	if (*ret_pid == 0) {
		if (gantry_unix_connect(path, SOCK_SEQPACKET, &fd) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	fd = accept(listener, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	gantry_fd_close(listener);
	return fd;
}

START_TEST(test_liveness_open_tells_the_end_of_who_connected)
{
	pid_t pid;
	int sock = connected_child(&pid);
	int pidfd = -EBADF;

	ck_assert_int_eq(gantry_liveness_open(sock, pid, &pidfd), 0);
	ck_assert(!ended(pidfd, 0));
	end(pid);
	ck_assert(ended(pidfd, 10000));
	gantry_fd_close(pidfd);
	gantry_fd_close(sock);
}
END_TEST

/* The kernel may still give a descriptor for a process that was reaped; then it is readable at once. */
START_TEST(test_liveness_open_after_the_end_says_so)
{
	pid_t pid;
	int sock = connected_child(&pid);
	int pidfd = -EBADF;
	int r;

	end(pid);
	r = gantry_liveness_open(sock, pid, &pidfd);
	ck_assert(r == -ESRCH || (r == 0 && ended(pidfd, 0)));
	gantry_fd_close(pidfd);
	gantry_fd_close(sock);
}
END_TEST

START_TEST(test_liveness_open_foreign_namespace_has_only_the_hang_up)
{
	int fds[2], pidfd = 12345;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	ck_assert_int_eq(gantry_liveness_open(fds[0], 0, &pidfd), -ENOTSUP);
	ck_assert_int_eq(pidfd, 12345);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

START_TEST(test_liveness_by_pid_tells_the_end)
{
	pid_t pid = sleeper();
	int pidfd = -EBADF;

	ck_assert_int_eq(gantry_liveness_open_by_pid(pid, boot_ns(), &pidfd), 0);
	ck_assert(!ended(pidfd, 0));
	end(pid);
	ck_assert(ended(pidfd, 10000));
	gantry_fd_close(pidfd);
}
END_TEST

START_TEST(test_liveness_by_pid_younger_process_is_not_the_one)
{
	uint64_t before_ns = boot_ns() -
			     1000000000u; /* the kernel rounds starts down to its tick */
	pid_t pid = sleeper();
	int pidfd = 12345;

	ck_assert_int_eq(gantry_liveness_open_by_pid(pid, before_ns, &pidfd), -ESRCH);
	ck_assert_int_eq(pidfd, 12345);
	end(pid);
	ck_assert_int_eq(gantry_liveness_open_by_pid(pid, boot_ns(), &pidfd), -ESRCH);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("liveness");
	TCase *tc = gantry_unit_case(suite, "liveness");

	tcase_add_test(tc, test_liveness_open_tells_the_end_of_who_connected);
	tcase_add_test(tc, test_liveness_open_after_the_end_says_so);
	tcase_add_test(tc, test_liveness_open_foreign_namespace_has_only_the_hang_up);
	tcase_add_test(tc, test_liveness_by_pid_tells_the_end);
	tcase_add_test(tc, test_liveness_by_pid_younger_process_is_not_the_one);
	return gantry_unit_run(suite);
}
