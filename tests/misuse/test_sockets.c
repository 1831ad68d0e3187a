/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Garbage on the sockets that are not for guests: admin, the one between agent and worker (both ends), and that of
 * other agents where there is one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/control/framing.h"
#include "tests/misuse/world.h"

static char admin[108];
static char peer[108];

static void begin(void)
{
	struct stat st;

	world_path(admin, "admin.sock");
	world_path(peer, "peer.sock");
	ck_assert_int_eq(stat(admin, &st), 0);
	ck_assert_int_eq(stat(peer, &st), 0);
}

/* The sockets that speak in frames: a loop test's number chooses. */
static const char *framed(int i)
{
	return i ? peer : admin;
}

static int connect_to(const char *path, int type)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%.107s", path);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/* The other side hangs up. What it says before is read and dropped. */
static bool hung_up(int fd, unsigned int timeout_ms)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)timeout_ms * 1000000);
	char buf[4096];

	while (!gantry_deadline_passed(deadline)) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (poll(&p, 1, 100) <= 0)
			continue;
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return true;
	}
	return false;
}

/* A version request, by hand: field 2 (tag) is 7, field 10 an empty message. */
static const uint8_t version_request[] = { 4, 0, 0, 0, 0x10, 7, 0x52, 0 };

static bool admin_answered(void)
{
	uint8_t answer[4096];
	struct pollfd p;
	int fd = connect_to(admin, SOCK_STREAM);
	bool answered;

	ck_assert_int_ge(fd, 0);
	(void)!send(fd, version_request, sizeof(version_request), MSG_NOSIGNAL);
	p = (struct pollfd){ .fd = fd, .events = POLLIN };
	ck_assert_int_eq(poll(&p, 1, 5000), 1);
	answered = recv(fd, answer, sizeof(answer), 0) > 4;
	close(fd);
	return answered;
}

/* It has so many connections at most, and hangs up on one more until it has seen that others were closed. */
static void admin_answers(void)
{
	uint64_t deadline = gantry_deadline_ns(5 * (int64_t)GANTRY_NS_PER_S);

	while (!admin_answered())
		ck_assert(!gantry_deadline_passed(deadline));
}

START_TEST(test_socket_length_that_is_huge_ends_that_connection)
{
	static const uint32_t lengths[] = { UINT32_MAX, 0x7fffffff,
					    GANTRY_FRAME_REQUEST_MAX_BYTES + 1, 1u << 24 };

	for (unsigned int i = 0; i < 4; i++) {
		int fd = connect_to(framed(_i), SOCK_STREAM);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(send(fd, &lengths[i], 4, MSG_NOSIGNAL), 4);
		ck_assert_msg(hung_up(fd, 5000), "a length of %u was waited for", lengths[i]);
		close(fd);
	}
	admin_answers();
}
END_TEST

START_TEST(test_socket_noise_of_every_length_harms_nobody)
{
	uint64_t seed = 21;

	for (int i = 0; i < 100; i++) {
		uint8_t frame[2052];
		uint32_t len = (uint32_t)(hostile_random(&seed) % 2048);
		int fd = connect_to(framed(_i), SOCK_STREAM);

		ck_assert_int_ge(fd, 0);
		memcpy(frame, &len, 4);
		hostile_noise(&seed, frame + 4, len);
		(void)!send(fd, frame, len + 4, MSG_NOSIGNAL);
		if (i % 4 == 0)
			ck_assert(hung_up(fd, 5000) || len == 0);
		close(fd);
	}
	admin_answers();
}
END_TEST

START_TEST(test_socket_half_a_message_and_then_silence_holds_nobody_up)
{
	int fds[64];

	for (int i = 0; i < 64; i++) {
		fds[i] = connect_to(framed(_i), SOCK_STREAM);
		if (fds[i] >= 0)
			(void)!send(fds[i], version_request, (size_t)(i % 8), MSG_NOSIGNAL);
	}
	neighbour_check(&world.neighbour);
	for (int i = 0; i < 64; i++)
		if (fds[i] >= 0 && i % 2)
			close(fds[i]);
	admin_answers();
	for (int i = 0; i < 64; i += 2)
		if (fds[i] >= 0)
			close(fds[i]);
}
END_TEST

START_TEST(test_socket_requests_without_reading_answers_are_bounded)
{
	int fd = connect_to(framed(_i), SOCK_STREAM);
	uint64_t deadline = gantry_deadline_ns(2 * (int64_t)GANTRY_NS_PER_S);
	uint64_t sent = 0;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (!gantry_deadline_passed(deadline) && sent < 4u << 20) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		ssize_t n = send(fd, version_request, sizeof(version_request), MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN && poll(&p, 1, 200) <= 0)
			break; /* it reads no more until it is read */
		if (n < 0 && errno != EAGAIN)
			break; /* or it hung up */
		sent += n > 0 ? (uint64_t)n : 0;
	}
	neighbour_check(&world.neighbour);
	admin_answers();
	close(fd);
}
END_TEST

START_TEST(test_socket_descriptors_sent_along_are_closed)
{
	unsigned int before = world_agent_fds();
	uint64_t deadline = gantry_deadline_ns(5 * (int64_t)GANTRY_NS_PER_S);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fds[8] = { null, null, null, null, null, null, null, null };
	int fd = connect_to(framed(_i), SOCK_STREAM);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_gt(gantry_fd_send(fd, version_request, 4, fds, 8, 0), 0);
	close(null);
	while (world_agent_fds() > before + 4 && !gantry_deadline_passed(deadline))
		(void)poll(NULL, 0, 5);
	ck_assert_uint_le(world_agent_fds(),
			  before + 4); /* the connection, and a warm worker on its way */
	close(fd);
	admin_answers();
}
END_TEST

/* ---- between agent and worker ---- */

/* A duplicate of the first SEQPACKET socket of @pid: a worker has one, to its agent. */
static int steal_socket(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int found = -1;

	ck_assert_int_ge(pidfd, 0);
	for (int i = 3; i < 256 && found < 0; i++) {
		int fd = (int)syscall(SYS_pidfd_getfd, pidfd, i, 0);
		int type = 0;
		socklen_t len = sizeof(type);

		if (fd < 0 && errno == EPERM) {
			close(pidfd);
			gantry_unit_skip("no right to take another process's descriptors");
		}
		if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
		    type == SOCK_SEQPACKET)
			found = fd;
		else if (fd >= 0)
			close(fd);
	}
	close(pidfd);
	return found;
}

/* The worker of the attacker: the one that has its segment mapped. */
static pid_t worker_of(const struct hostile *h)
{
	pid_t pids[64];
	unsigned int n = world_workers(pids, 64);
	struct stat st;

	ck_assert_int_eq(fstat(h->segment_fd, &st), 0);
	for (unsigned int i = 0; i < n && i < 64; i++) {
		char path[64], line[512], inode[32];
		bool found = false;
		FILE *f;

		(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pids[i]);
		(void)snprintf(inode, sizeof(inode), " %lu ", (unsigned long)st.st_ino);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f))
			found = found || (strstr(line, "gantry-segment") && strstr(line, inode));
		if (f)
			(void)fclose(f);
		if (found)
			return pids[i];
	}
	return -1;
}

static void session_survives_or_ends(struct hostile *h, uint32_t queue)
{
	uint64_t deadline = gantry_deadline_ns(10 * (int64_t)GANTRY_NS_PER_S);
	int status = HOSTILE_TIMEOUT;

	while (hostile_alive(h) && !gantry_deadline_passed(deadline)) {
		status = hostile_ping(h, queue);
		if (status == GANTRY_OK)
			return;
	}
	ck_assert_msg(status != HOSTILE_TIMEOUT, "the session neither works nor ends");
}

static void noise_on(int fd)
{
	uint64_t seed = 31;
	uint8_t noise[4096];

	for (int i = 0; i < 50; i++) {
		hostile_noise(&seed, noise, sizeof(noise));
		if (send(fd, noise, 1 + hostile_random(&seed) % 4000, MSG_NOSIGNAL | MSG_DONTWAIT) <
		    0)
			break;
	}
}

START_TEST(test_worker_that_talks_nonsense_is_replaced)
{
	struct hostile h;
	uint32_t queue;
	pid_t worker;
	int fd;

	world_hostile(&h);
	ck_assert_int_eq(hostile_queue(&h, &queue, NULL), GANTRY_OK);
	worker = worker_of(&h);
	if (worker < 0)
		gantry_unit_skip("cannot see which worker serves a session");
	fd = steal_socket(worker);
	if (fd < 0)
		gantry_unit_skip("the worker's socket was not found");
	noise_on(fd);
	close(fd);
	session_survives_or_ends(&h, queue);
	world_hostile_end(&h);
}
END_TEST

START_TEST(test_agent_that_talks_nonsense_to_a_worker_loses_that_worker_only)
{
	struct hostile h;
	uint32_t queue;
	pid_t worker;
	int fd;

	world_hostile(&h);
	ck_assert_int_eq(hostile_queue(&h, &queue, NULL), GANTRY_OK);
	worker = worker_of(&h);
	if (worker < 0)
		gantry_unit_skip("cannot see which worker serves a session");
	fd = steal_socket(worker);
	if (fd < 0)
		gantry_unit_skip("the worker's socket was not found");
	/* Its own end, closed under its feet: what it reads next is the end. */
	(void)shutdown(fd, SHUT_RDWR);
	close(fd);
	session_survives_or_ends(&h, queue);
	world_hostile_end(&h);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("misuse-sockets");
	TCase *tc = world_case(suite, "agent", WORLD_AGENT);

	tcase_add_checked_fixture(tc, begin, NULL);
	tcase_add_loop_test(tc, test_socket_length_that_is_huge_ends_that_connection, 0, 2);
	tcase_add_loop_test(tc, test_socket_noise_of_every_length_harms_nobody, 0, 2);
	tcase_add_loop_test(tc, test_socket_half_a_message_and_then_silence_holds_nobody_up, 0, 2);
	tcase_add_loop_test(tc, test_socket_requests_without_reading_answers_are_bounded, 0, 2);
	tcase_add_loop_test(tc, test_socket_descriptors_sent_along_are_closed, 0, 2);
	tcase_add_test(tc, test_worker_that_talks_nonsense_is_replaced);
	tcase_add_test(tc, test_agent_that_talks_nonsense_to_a_worker_loses_that_worker_only);
	return gantry_unit_run(suite);
}
