/* SPDX-License-Identifier: Apache-2.0 */
/* A session that came with its machine waits for its seat without a worker: what becomes of the one that it had. */
#include "host-agent/agent/seat.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "tests/unit/runner.h"

static struct gantry_agent agent;
static struct gantry_worker worker;
static struct gantry_session session;
static int ctl_fd; /* the worker's end */

static pid_t idle_process(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	return pid;
}

static void set_up(void)
{
	int pair[2];

	gantry_list_init(&agent.sessions);
	gantry_list_init(&agent.workers);
	agent.base = event_base_new();
	agent.monitor_fd = -EBADF;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ctl_fd = pair[1];
	worker.agent = &agent;
	worker.ctl_fd = pair[0];
	worker.pid = idle_process();
	worker.pidfd = pidfd_open(worker.pid, 0);
	ck_assert_int_ge(worker.pidfd, 0);
	gantry_list_init(&worker.calls);
	gantry_list_init(&worker.out);
	session.agent = &agent;
	session.id = 1;
	ck_assert_int_eq(gantry_memfd_create("ledger", 4096, 0, &session.ledger_fd), 0);
	session.worker = &worker;
	session.phase = GANTRY_PHASE_ATTACHED;
}

static void tear_down(void)
{
	gantry_call_forget(&worker, &session);
	(void)kill(worker.pid, SIGKILL);
	ck_assert_int_eq(waitpid(worker.pid, NULL, 0), worker.pid);
	gantry_fd_close(worker.pidfd);
	gantry_fd_close(worker.ctl_fd);
	gantry_fd_close(ctl_fd);
	gantry_store_fini(&agent.kept);
	gantry_fd_close(session.ledger_fd);
	event_base_free(agent.base);
}

static bool has_ended(int options)
{
	siginfo_t end = { 0 };

	return waitid(P_PID, (id_t)worker.pid, &end, WEXITED | WNOWAIT | options) == 0 &&
	       end.si_pid == worker.pid;
}

START_TEST(test_seat_await_ends_a_worker_that_has_nothing_else)
{
	char byte;

	worker.class.mode = GANTRY_ISOLATED;
	gantry_seat_await(&session);
	ck_assert(has_ended(0));
	ck_assert_int_lt(recv(ctl_fd, &byte, 1, MSG_DONTWAIT), 0);
	ck_assert(session.unadopted && session.is_seated);
}
END_TEST

START_TEST(test_seat_await_leaves_a_worker_to_those_who_share_it)
{
	const enum gantry_isolation modes[] = { GANTRY_POOLED, GANTRY_PACKED };
	Gantry__Worker__ToWorker *msg;
	uint8_t packet[256];

	worker.class.mode = modes[_i];
	gantry_seat_await(&session);
	ck_assert(!has_ended(WNOHANG));
	ck_assert(!worker.dead);
	msg = gantry__worker__to_worker__unpack(
		NULL, (size_t)recv(ctl_fd, packet, sizeof(packet), MSG_DONTWAIT), packet);
	ck_assert_ptr_nonnull(msg);
	ck_assert_int_eq(msg->body_case, GANTRY__WORKER__TO_WORKER__BODY_DETACH);
	ck_assert_uint_eq(msg->detach->session_id, 1);
	ck_assert(msg->detach->part);
	gantry__worker__to_worker__free_unpacked(msg, NULL);
	ck_assert(session.unadopted && session.is_seated);
}
END_TEST

static bool has_time(void)
{
	return session.guest_timer && event_pending(session.guest_timer, EV_TIMEOUT, NULL);
}

/* Nobody else would look after it: it has no guest and no machine. */
START_TEST(test_handover_begin_that_is_refused_leaves_a_session_adrift_its_time)
{
	static struct gantry_tenant red = { .conf.name = "red" };
	static struct gantry_ledger_object objects[GANTRY_LEDGER_NOBJECTS];
	static struct gantry_ledger_header header;
	const struct gantry_handover_ask ask = { .to = "there:0" };
	uint64_t id = 77;

	gantry_list_init(&agent.handovers);
	gantry_list_init(&agent.movers);
	agent.events = calloc(GANTRY_EVENTS_KEPT, sizeof(*agent.events));
	agent.config = gantry_config_new();
	(void)gantry_str_copy(agent.config->agent.migration_certificates,
			      sizeof(agent.config->agent.migration_certificates), "/nowhere");
	session.tenant = &red;
	session.ledger.hdr = &header;
	session.ledger.objects = objects;
	session.has_key = true;
	worker.class.mode = GANTRY_ISOLATED;
	gantry_seat_follow(&session, true);
	gantry_seat_drift(&session);
	ck_assert(has_time());
	ck_assert_int_eq(gantry_handover_begin(&session, &ask, &id, NULL), GANTRY_ADMIN_USAGE);
	ck_assert_uint_eq(id, 77);
	ck_assert(has_time());
	gantry_seat_drift_no_more(&session);
	ck_assert(!has_time());
	gantry_seat_follow(&session, false);
	gantry_handovers_fini(&agent);
	gantry_config_free(agent.config);
	free(agent.events);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seat");
	TCase *tc = gantry_unit_case(suite, "seat");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_seat_await_ends_a_worker_that_has_nothing_else);
	tcase_add_loop_test(tc, test_seat_await_leaves_a_worker_to_those_who_share_it, 0, 2);
	tcase_add_test(tc, test_handover_begin_that_is_refused_leaves_a_session_adrift_its_time);
	return gantry_unit_run(suite);
}
