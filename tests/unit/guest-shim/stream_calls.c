/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a round trip over a stream costs its guest in system calls: linked with --wrap for those that the library makes
 * there, which are counted on the thread of the test. In an emulated machine each is a good part of the whole trip.
 */
#include <poll.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "guest-shim/gantry.h"
#include "tests/unit/guest-shim/fake_host.h"
#include "tests/unit/runner.h"

#define TRIPS 200

static struct fake_host host;
static struct gantry_session *session;
static gantry_queue queue;
static __thread unsigned int nsends, nreceives, npolls;

ssize_t __real_sendmsg(int sock, const struct msghdr *msg, int flags);
ssize_t __real_recvmsg(int sock, struct msghdr *msg, int flags);
int __real_poll(struct pollfd *fds, nfds_t nfds, int timeout);
ssize_t __wrap_sendmsg(int sock, const struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int sock, struct msghdr *msg, int flags);
int __wrap_poll(struct pollfd *fds, nfds_t nfds, int timeout);

ssize_t __wrap_sendmsg(int sock, const struct msghdr *msg, int flags)
{
	nsends++;
	return __real_sendmsg(sock, msg, flags);
}

ssize_t __wrap_recvmsg(int sock, struct msghdr *msg, int flags)
{
	nreceives++;
	return __real_recvmsg(sock, msg, flags);
}

int __wrap_poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	npolls++;
	return __real_poll(fds, nfds, timeout);
}

static void setup(void)
{
	fake_host_init(&host);
	fake_host_start(&host);
	ck_assert_int_eq(gantry_open(host.where, NULL, &session), 0);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &queue), 0);
	nsends = nreceives = npolls = 0;
}

static void teardown(void)
{
	gantry_close(session);
	fake_host_stop(&host);
}

static void trip(void)
{
	gantry_ticket t;

	ck_assert_int_eq(gantry_submit_marker(session, queue, &t), 0);
	ck_assert_int_eq(gantry_wait(session, &t, 1, GANTRY_FOREVER), 0);
}

/* On a machine that is busy with other things a host may be so late that the guest falls asleep for longer: not each time. */
START_TEST(test_round_trip_sends_once_and_receives_once)
{
	unsigned int nbest = 0;

	for (int i = 0; i < TRIPS; i++) {
		nsends = nreceives = npolls = 0;
		trip();
		ck_assert_uint_ge(nsends, 1);
		nbest += nsends == 1 && nreceives == 1 && npolls == 0;
	}
	ck_assert_uint_ge(nbest, 1);
}
END_TEST

/* Whoever waits longer than a receive does polls, once, however long it takes; and is back when its time is over. */
START_TEST(test_wait_in_vain_polls_and_times_out)
{
	const int64_t timeout_ns = 50000000;
	gantry_ticket t;

	gantry_store_relaxed(&host.hold_tasks, 1);
	ck_assert_int_eq(gantry_submit_marker(session, queue, &t), 0);
	nsends = nreceives = npolls = 0;
	ck_assert_int_eq(gantry_wait(session, &t, 1, timeout_ns), GANTRY_E_TIMEOUT);
	ck_assert_uint_ge(npolls, 1);
	ck_assert_uint_le(npolls, 4);
	ck_assert_uint_eq(nsends, 0);
	gantry_store_relaxed(&host.hold_tasks, 0);
	ck_assert_int_eq(gantry_wait(session, &t, 1, GANTRY_FOREVER), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stream-calls");
	TCase *tc = gantry_unit_case(suite, "stream");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_round_trip_sends_once_and_receives_once);
	tcase_add_test(tc, test_wait_in_vain_polls_and_times_out);
	return gantry_unit_run(suite);
}
