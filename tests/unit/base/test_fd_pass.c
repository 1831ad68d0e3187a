/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "tests/unit/runner.h"

static int ends[2];

static void open_pair(int type)
{
	ck_assert_int_eq(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
}

static void close_pair(void)
{
	gantry_fd_close(ends[0]);
	gantry_fd_close(ends[1]);
}

/* Send "hi" with @nfds copies of one descriptor. */
static void send_copies(unsigned int nfds)
{
	_cleanup_close_ int fd = -EBADF;
	int fds[GANTRY_FD_MSG_MAX];

	ck_assert_int_eq(gantry_memfd_create("passed", 4096, 0, &fd), 0);
	for (unsigned int i = 0; i < nfds; i++)
		fds[i] = fd;
	ck_assert_int_eq(gantry_fd_send(ends[0], "hi", 2, fds, nfds, 0), 2);
}

START_TEST(test_fd_recv_passed_memfd_has_its_contents)
{
	_cleanup_close_ int sent = -EBADF;
	int got[2] = { -1, -1 };
	unsigned int ngot = 77;
	char text[8] = "";
	char data[4] = "";

	open_pair(SOCK_SEQPACKET);
	ck_assert_int_eq(gantry_memfd_create("passed", 4096, 0, &sent), 0);
	ck_assert_int_eq(pwrite(sent, "abc", 3, 0), 3);
	ck_assert_int_eq(gantry_fd_send(ends[0], "hello", 5, &sent, 1, 0), 5);
	ck_assert_int_eq(gantry_fd_recv(ends[1], text, sizeof(text), got, 2, &ngot, 0), 5);
	ck_assert_str_eq(text, "hello");
	ck_assert_uint_eq(ngot, 1);
	ck_assert_int_eq(pread(got[0], data, 3, 0), 3);
	ck_assert_str_eq(data, "abc");
	ck_assert_int_eq(fcntl(got[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	gantry_fd_close(got[0]);
	close_pair();
}
END_TEST

START_TEST(test_fd_recv_surplus_descriptors_are_closed)
{
	unsigned int before, ngot = 0;
	int got[2] = { -1, -1 };
	char text[8];

	open_pair(SOCK_STREAM);
	before = gantry_unit_count_fds();
	send_copies(5);
	ck_assert_int_eq(gantry_fd_recv(ends[1], text, sizeof(text), got, 2, &ngot, 0), 2);
	ck_assert_uint_eq(ngot, 2);
	ck_assert_uint_eq(gantry_unit_count_fds(), before + 2);
	gantry_fd_close(got[0]);
	gantry_fd_close(got[1]);
	close_pair();
}
END_TEST

START_TEST(test_fd_recv_unwanted_flood_of_descriptors_is_closed)
{
	unsigned int before;
	char text[8];

	open_pair(SOCK_STREAM);
	before = gantry_unit_count_fds();
	send_copies(GANTRY_FD_MSG_MAX);
	ck_assert_int_eq(gantry_fd_recv(ends[1], text, sizeof(text), NULL, 0, NULL, 0), 2);
	ck_assert_uint_eq(gantry_unit_count_fds(), before);
	close_pair();
}
END_TEST

START_TEST(test_fd_recv_long_message_is_refused_and_leaks_nothing)
{
	unsigned int before, ngot = 77;
	int got[5] = { -7 };
	char one;

	open_pair(SOCK_SEQPACKET);
	before = gantry_unit_count_fds();
	send_copies(5);
	ck_assert_int_eq(gantry_fd_recv(ends[1], &one, 1, got, 5, &ngot, 0), -EMSGSIZE);
	ck_assert_uint_eq(gantry_unit_count_fds(), before);
	ck_assert_uint_eq(ngot, 77);
	ck_assert_int_eq(got[0], -7);
	close_pair();
}
END_TEST

START_TEST(test_fd_recv_out_of_descriptors_is_refused_and_leaks_nothing)
{
	struct rlimit limit, low;
	unsigned int before, ngot = 77;
	int got[5];
	char text[8];
	int r;

	open_pair(SOCK_STREAM);
	before = gantry_unit_count_fds();
	send_copies(5);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = (rlim_t)ends[1] + 3; /* room for two of the five */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	r = (int)gantry_fd_recv(ends[1], text, sizeof(text), got, 5, &ngot, 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(r, -EMFILE);
	ck_assert_uint_eq(ngot, 77);
	ck_assert_uint_eq(gantry_unit_count_fds(), before);
	close_pair();
}
END_TEST

START_TEST(test_fd_recv_nothing_there_or_peer_gone_is_told_apart)
{
	unsigned int ngot = 77;
	char text[8];

	open_pair(SOCK_STREAM);
	ck_assert_int_eq(gantry_fd_recv(ends[1], text, 8, NULL, 0, NULL, MSG_DONTWAIT), -EAGAIN);
	ends[0] = gantry_fd_close(ends[0]);
	ck_assert_int_eq(gantry_fd_recv(ends[1], text, 8, NULL, 0, &ngot, 0), 0);
	ck_assert_uint_eq(ngot, 0);
	close_pair();
}
END_TEST

START_TEST(test_fd_recv_last_words_of_a_peer_that_had_not_read_all_are_heard)
{
	static const int types[] = { SOCK_SEQPACKET, SOCK_STREAM };

	for (size_t i = 0; i < 2; i++) {
		_cleanup_close_ int sent = -EBADF;
		int got = -1;
		unsigned int ngot = 0;
		char text[8] = "";

		open_pair(types[i]);
		ck_assert_int_eq(gantry_memfd_create("last", 4096, 0, &sent), 0);
		ck_assert_int_eq(gantry_fd_send(ends[1], "unread", 6, NULL, 0, 0), 6);
		ck_assert_int_eq(gantry_fd_send(ends[0], "keep", 4, &sent, 1, 0), 4);
		gantry_fd_close(ends[0]);
		ends[0] = -EBADF;
		ck_assert_int_eq(gantry_fd_recv(ends[1], text, sizeof(text), &got, 1, &ngot, 0), 4);
		ck_assert_str_eq(text, "keep");
		ck_assert_uint_eq(ngot, 1);
		gantry_fd_close(got);
		ck_assert_int_eq(gantry_fd_recv(ends[1], text, sizeof(text), &got, 1, &ngot, 0), 0);
		close_pair();
	}
}
END_TEST

START_TEST(test_fd_send_to_closed_peer_fails_without_signal)
{
	open_pair(SOCK_STREAM);
	ends[1] = gantry_fd_close(ends[1]);
	ck_assert_int_eq(gantry_fd_send(ends[0], "x", 1, NULL, 0, 0), -EPIPE);
	close_pair();
}
END_TEST

START_TEST(test_fd_send_bad_counts_are_refused)
{
	int fds[1] = { 0 };

	open_pair(SOCK_STREAM);
	ck_assert_int_eq(gantry_fd_send(ends[0], "x", 1, fds, GANTRY_FD_MSG_MAX + 1, 0), -EINVAL);
	ck_assert_int_eq(gantry_fd_send(ends[0], "", 0, fds, 1, 0), -EINVAL);
	close_pair();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fd_pass");
	TCase *tc = gantry_unit_case(suite, "fd_pass");

	tcase_add_test(tc, test_fd_recv_passed_memfd_has_its_contents);
	tcase_add_test(tc, test_fd_recv_surplus_descriptors_are_closed);
	tcase_add_test(tc, test_fd_recv_unwanted_flood_of_descriptors_is_closed);
	tcase_add_test(tc, test_fd_recv_long_message_is_refused_and_leaks_nothing);
	tcase_add_test(tc, test_fd_recv_out_of_descriptors_is_refused_and_leaks_nothing);
	tcase_add_test(tc, test_fd_recv_nothing_there_or_peer_gone_is_told_apart);
	tcase_add_test(tc, test_fd_recv_last_words_of_a_peer_that_had_not_read_all_are_heard);
	tcase_add_test(tc, test_fd_send_to_closed_peer_fails_without_signal);
	tcase_add_test(tc, test_fd_send_bad_counts_are_refused);
	return gantry_unit_run(suite);
}
