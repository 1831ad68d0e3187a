/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake at a door, against the agent's own code, up to the point where a worker is needed.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "proto/door.h"
#include "proto/wire.h"
#include "tests/unit/runner.h"

static struct gantry_agent agent;
static struct gantry_tenant *tenant;
static struct gantry_config *config;
static char dir[64];

static void set_up(void)
{
	static const char text[] = "[tenant red]\nsessions = 1\n";

	gantry_log_level_set(GANTRY_LOG_ERR);
	(void)snprintf(dir, sizeof(dir), "/tmp/gantry-door.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	memset(&agent, 0, sizeof(agent));
	agent.args.run_dir = dir;
	gantry_agent_blank(&agent);
	agent.base = event_base_new();
	agent.events = calloc(GANTRY_EVENTS_KEPT, sizeof(*agent.events));
	config = gantry_config_new();
	ck_assert_int_eq(gantry_config_parse(config, "test", text, strlen(text), NULL), 0);
	agent.config = config;
	gantry_tenants_apply(&agent, config);
	tenant = gantry_tenant_find(&agent, "red");
	ck_assert_ptr_nonnull(tenant);
	ck_assert_str_eq(tenant->state, "open");
}

static void remove_dirs(void)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/doors/red", dir);
	(void)rmdir(path); /* best effort */
	(void)snprintf(path, sizeof(path), "%s/doors", dir);
	(void)rmdir(path); /* best effort */
	(void)rmdir(dir);  /* best effort */
}

static void tear_down(void)
{
	gantry_tenant_free(tenant);
	gantry_event_free(&agent.journal_event);
	gantry_event_free(&agent.door_retry_timer);
	gantry_store_fini(&agent.kept);
	event_base_free(agent.base);
	free(agent.events);
	gantry_config_free(config);
	remove_dirs();
}

/* The loop runs until nothing is ready: the sockets are local, so everything sent has arrived. */
static void run_loop(void)
{
	for (int i = 0; i < 4; i++)
		(void)event_base_loop(agent.base, EVLOOP_NONBLOCK); /* no event is no error */
}

static int connect_guest(void)
{
	int fd = -EBADF;

	ck_assert_int_eq(
		gantry_unix_connect(tenant->door_path, SOCK_SEQPACKET | SOCK_NONBLOCK, &fd), 0);
	run_loop();
	return fd;
}

static struct gantry_door_hello make_hello(void)
{
	struct gantry_door_hello hello;

	memset(&hello, 0, sizeof(hello));
	gantry_door_header_init(&hello.h, GANTRY_DOOR_HELLO, 0);
	hello.version_min = GANTRY_WIRE_VERSION_MIN;
	hello.version_max = GANTRY_WIRE_VERSION_MAX;
	return hello;
}

static void say(int fd, const void *msg, size_t len)
{
	ck_assert_int_eq(send(fd, msg, len, MSG_NOSIGNAL), (ssize_t)len);
	run_loop();
}

/* The answer must be a REFUSE of this status with a sentence, and the end after it. */
static void expect_refuse(int fd, int status)
{
	struct gantry_door_refuse msg;
	uint16_t kind;
	char end;

	ck_assert_int_eq(recv(fd, &msg, sizeof(msg), 0), sizeof(msg));
	ck_assert_int_eq(gantry_door_check(&msg, sizeof(msg), &kind), 0);
	ck_assert_uint_eq(kind, GANTRY_DOOR_REFUSE);
	ck_assert_msg(msg.status == status, "%d %s, not %d", msg.status, msg.text, status);
	ck_assert_uint_gt(strlen(msg.text), 5);
	ck_assert_int_eq(recv(fd, &end, 1, 0), 0);
	ck_assert_uint_eq(tenant->nhalf_open, 0);
	ck_assert_uint_eq(tenant->nsessions, 0);
	gantry_fd_close(fd);
}

START_TEST(test_door_hello_without_a_device_is_refused)
{
	struct gantry_door_hello hello = make_hello();
	int fd = connect_guest();

	ck_assert_uint_eq(tenant->nhalf_open, 1);
	say(fd, &hello, sizeof(hello));
	expect_refuse(fd, GANTRY_E_NO_DEVICE);
}
END_TEST

START_TEST(test_door_garbage_closes_and_is_counted)
{
	int fd = connect_guest();

	say(fd, "GET / HTTP/1.0\r\n\r\n", 18);
	expect_refuse(fd, GANTRY_E_PROTOCOL);
	ck_assert_uint_eq(tenant->protocol_errors, 1);
	ck_assert_uint_eq(agent.counters.protocol_errors, 1);
}
END_TEST

START_TEST(test_door_oversized_message_closes)
{
	static uint8_t big[4096];
	int fd = connect_guest();

	say(fd, big, sizeof(big));
	expect_refuse(fd, GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_door_request_before_hello_closes)
{
	struct gantry_door_share share = { .mode = GANTRY_R };
	int fd = connect_guest();

	gantry_door_header_init(&share.h, GANTRY_DOOR_SHARE, 1);
	say(fd, &share, sizeof(share));
	expect_refuse(fd, GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_door_descriptors_from_a_guest_are_not_kept)
{
	struct gantry_door_hello hello = make_hello();
	unsigned int before;
	int fd = connect_guest();
	int fds[2] = { fd, fd };

	before = gantry_unit_count_fds();
	ck_assert_int_eq(gantry_fd_send(fd, &hello, sizeof(hello), fds, 2, 0), sizeof(hello));
	run_loop();
	ck_assert_uint_le(gantry_unit_count_fds(), before);
	gantry_fd_close(fd);
}
END_TEST

START_TEST(test_door_other_version_is_refused_with_ours)
{
	struct gantry_door_hello hello = make_hello();
	int fd = connect_guest();

	hello.version_min = hello.version_max = GANTRY_WIRE_VERSION_MAX + 5;
	say(fd, &hello, sizeof(hello));
	expect_refuse(fd, GANTRY_E_VERSION);
}
END_TEST

START_TEST(test_door_full_tenant_refuses)
{
	struct gantry_door_hello hello = make_hello();
	int fd = connect_guest();

	tenant->conf.sessions = 0;
	say(fd, &hello, sizeof(hello));
	expect_refuse(fd, GANTRY_E_FULL);
	ck_assert_uint_eq(tenant->denied, 1);
}
END_TEST

START_TEST(test_door_full_tenant_that_queues_lets_the_next_in)
{
	struct gantry_door_hello hello = make_hello();
	int fd = connect_guest();

	tenant->conf.sessions = 0;
	tenant->conf.on_full = GANTRY_ON_FULL_QUEUE;
	say(fd, &hello, sizeof(hello));
	ck_assert_int_eq(recv(fd, &hello, sizeof(hello), 0), -1);
	ck_assert_uint_eq(gantry_list_count(&tenant->waiting), 1);
	tenant->conf.sessions = 1;
	gantry_conn_next(tenant);
	ck_assert_uint_eq(gantry_list_count(&tenant->waiting), 0);
	expect_refuse(fd, GANTRY_E_NO_DEVICE);
}
END_TEST

START_TEST(test_door_of_other_users_denies)
{
	int fd;

	tenant->conf.nuids = 1;
	tenant->conf.door_uids[0] = geteuid() + 1;
	fd = connect_guest();
	expect_refuse(fd, GANTRY_E_DENIED);
	ck_assert_uint_eq(agent.counters.denied_peers, 1);
}
END_TEST

START_TEST(test_door_many_half_open_guests_are_bounded)
{
	int fds[40];

	for (int i = 0; i < 40; i++)
		fds[i] = connect_guest();
	ck_assert_uint_eq(tenant->nhalf_open, 32);
	for (int i = 0; i < 40; i++)
		gantry_fd_close(fds[i]);
	run_loop();
	run_loop();
	ck_assert_uint_eq(tenant->nhalf_open, 0);
}
END_TEST

START_TEST(test_door_hang_up_before_hello_leaves_nothing)
{
	int fd = connect_guest();

	gantry_fd_close(fd);
	run_loop();
	ck_assert_uint_eq(tenant->nhalf_open, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("door");
	TCase *tc = gantry_unit_case(suite, "handshake");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_door_hello_without_a_device_is_refused);
	tcase_add_test(tc, test_door_garbage_closes_and_is_counted);
	tcase_add_test(tc, test_door_oversized_message_closes);
	tcase_add_test(tc, test_door_request_before_hello_closes);
	tcase_add_test(tc, test_door_descriptors_from_a_guest_are_not_kept);
	tcase_add_test(tc, test_door_other_version_is_refused_with_ours);
	tcase_add_test(tc, test_door_full_tenant_refuses);
	tcase_add_test(tc, test_door_full_tenant_that_queues_lets_the_next_in);
	tcase_add_test(tc, test_door_of_other_users_denies);
	tcase_add_test(tc, test_door_many_half_open_guests_are_bounded);
	tcase_add_test(tc, test_door_hang_up_before_hello_leaves_nothing);
	return gantry_unit_run(suite);
}
