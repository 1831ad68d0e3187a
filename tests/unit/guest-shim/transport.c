/* SPDX-License-Identifier: Apache-2.0 */
/* What guest-shim/transport.h promises, asked of each kind of door: GANTRY_TEST_DOOR names it. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest-shim/error.h"
#include "guest-shim/handshake.h"
#include "guest-shim/transport.h"
#include "tests/unit/guest-shim/fake_door.h"
#include "tests/unit/runner.h"

#define PATIENCE_NS INT64_C(10000000000)

static struct fake_host host;
static const struct gantry_transport_ops *ops;
static void *cookie;

static void setup(void)
{
	fake_host_init(&host);
	ops = host.door->ops;
}

static void start_and_connect(void)
{
	fake_host_start(&host);
	ck_assert_int_eq(ops->connect(host.where + strlen(ops->prefix),
				      gantry_deadline_ns(PATIENCE_NS), &cookie),
			 0);
}

static int shake(int64_t timeout_ns, struct gantry_attachment *ret_attachment)
{
	struct gantry_door_hello hello = { .version_min = 1, .version_max = 1, .name = "suite" };

	gantry_door_header_init(&hello.h, GANTRY_DOOR_HELLO, 0);
	return ops->handshake(cookie, &hello, gantry_deadline_ns(timeout_ns), ret_attachment);
}

/* The descriptor is ours, if there is one. */
static void drop(const struct gantry_attachment *a)
{
	if (!a->mapped)
		gantry_fd_close(a->segment_fd);
}

static void attach(void)
{
	struct gantry_attachment a = { 0 };

	start_and_connect();
	ck_assert_int_eq(shake(PATIENCE_NS, &a), 0);
	drop(&a);
}

static void end(void)
{
	ops->close(cookie);
	fake_host_stop(&host);
}

START_TEST(test_where_begins_with_the_prefix)
{
	fake_host_start(&host);
	ck_assert_int_eq(strncmp(host.where, ops->prefix, strlen(ops->prefix)), 0);
	fake_host_stop(&host);
}
END_TEST

START_TEST(test_connect_nobody_there_says_no_agent_and_gives_nothing)
{
	void *nothing = &host;

	ck_assert_int_eq(ops->connect("/nonexistent/gantry/door", gantry_deadline_ns(PATIENCE_NS),
				      &nothing),
			 GANTRY_E_NO_AGENT);
	ck_assert_ptr_eq(nothing, &host);
	ck_assert_str_ne(gantry_last_error(), "");
}
END_TEST

START_TEST(test_handshake_brings_the_segment)
{
	struct gantry_attachment a = { 0 };
	struct gantry_segment_header h;

	start_and_connect();
	ck_assert_int_eq(shake(PATIENCE_NS, &a), 0);
	ck_assert_str_eq(host.hello.name, "suite");
	ck_assert_uint_eq(a.welcome.session_id, 42);
	ck_assert_uint_eq(a.segment_off % GANTRY_PAGE, 0);
	if (a.mapped)
		memcpy(&h, a.mapped, sizeof(h));
	else
		ck_assert_int_eq(pread(a.segment_fd, &h, sizeof(h), (off_t)a.segment_off),
				 sizeof(h));
	ck_assert_uint_eq(h.magic, GANTRY_WIRE_MAGIC);
	drop(&a);
	end();
}
END_TEST

static const struct {
	enum fake_answer answer;
	int status;
	bool needs_memory;
} refusals[] = {
	{ FAKE_REFUSE, GANTRY_E_FULL, false },
	{ FAKE_GARBAGE, GANTRY_E_PROTOCOL, false },
	{ FAKE_WRONG_KIND, GANTRY_E_PROTOCOL, false },
	{ FAKE_SILENCE, GANTRY_E_NO_AGENT, false },
	{ FAKE_HANG_UP, GANTRY_E_NO_AGENT, false },
	{ FAKE_NO_SEGMENT, GANTRY_E_PROTOCOL, true },
	{ FAKE_BAD_BELL, GANTRY_E_PROTOCOL, true },
	{ FAKE_BAD_SEGMENT, GANTRY_E_PROTOCOL, true },
};

START_TEST(test_handshake_refused_says_which_and_can_be_closed)
{
	struct gantry_attachment a = { .segment_fd = 1234 };

	if (refusals[_i].needs_memory && !host.door->shares_memory)
		gantry_unit_skip("a welcome of this door brings neither segment nor bell");
	host.answer = refusals[_i].answer;
	start_and_connect();
	ck_assert_int_eq(shake(200000000, &a), refusals[_i].status);
	ck_assert_int_eq(a.segment_fd, 1234);
	end();
}
END_TEST

START_TEST(test_handshake_with_an_agent_that_makes_way_says_so)
{
	struct gantry_attachment a = { .segment_fd = 1234 };

	if (ops != &gantry_transport_unix)
		gantry_unit_skip("agents say it at sockets only");
	host.answer = FAKE_MAKES_WAY;
	start_and_connect();
	ck_assert_int_eq(shake(PATIENCE_NS, &a), GANTRY_HANDSHAKE_ANEW);
	ck_assert_str_eq(gantry_last_error(), "another agent comes");
	ck_assert_int_eq(a.segment_fd, 1234);
	end();
}
END_TEST

START_TEST(test_close_without_a_handshake)
{
	start_and_connect();
	end();
}
END_TEST

START_TEST(test_kick_wakes_the_host)
{
	uint64_t deadline_ns = gantry_deadline_ns(PATIENCE_NS);

	if (!host.door->shares_memory)
		gantry_unit_skip("what a kick of this door sends is tasks, and there are none");
	attach();
	ops->kick(cookie);
	while (gantry_load_relaxed(&host.nkicks) == 0 && !gantry_deadline_passed(deadline_ns))
		usleep(1000);
	ck_assert_uint_gt(gantry_load_relaxed(&host.nkicks), 0);
	end();
}
END_TEST

/* A host that never looks, whose bell is full. */
START_TEST(test_kick_never_blocks)
{
	attach();
	for (int i = 0; i < 100000; i++)
		ops->kick(cookie);
	end();
}
END_TEST

static int peek_until(int wanted, struct gantry_door_refuse *ret_notice)
{
	uint64_t deadline_ns = gantry_deadline_ns(PATIENCE_NS);
	int r;

	do {
		r = ops->peek(cookie, ret_notice);
	} while (r != wanted && !gantry_deadline_passed(deadline_ns));
	return r;
}

START_TEST(test_peek_while_the_agent_lives_is_0_and_has_no_notice)
{
	struct gantry_door_refuse notice = { .status = 5 };

	attach();
	ck_assert_int_eq(ops->peek(cookie, &notice), 0);
	ck_assert_int_eq(notice.status, 0);
	end();
}
END_TEST

START_TEST(test_peek_keeps_the_notice)
{
	uint64_t deadline_ns = gantry_deadline_ns(PATIENCE_NS);
	struct gantry_door_refuse notice;

	attach();
	fake_host_notice(&host, GANTRY_E_DETACHED, "going away");
	do {
		(void)ops->peek(cookie, &notice);
	} while (notice.status == 0 && !gantry_deadline_passed(deadline_ns));
	ck_assert_str_eq(notice.text, "going away");
	fake_host_hang_up(&host);
	ck_assert_int_eq(peek_until(-ECONNRESET, &notice), -ECONNRESET);
	ck_assert_str_eq(notice.text, "going away");
	end();
}
END_TEST

START_TEST(test_peek_after_the_agent_died_is_econnreset)
{
	struct gantry_door_refuse notice;

	attach();
	fake_host_hang_up(&host);
	ck_assert_int_eq(peek_until(-ECONNRESET, &notice), -ECONNRESET);
	ck_assert_int_eq(peek_until(-ECONNRESET, &notice), -ECONNRESET);
	end();
}
END_TEST

static int ask(int64_t timeout_ns, struct gantry_door_shared *ret_answer)
{
	struct gantry_door_share msg = { .buffer = 7, .mode = GANTRY_R };

	gantry_door_header_init(&msg.h, GANTRY_DOOR_SHARE, 0);
	return ops->request(cookie, &msg, GANTRY_DOOR_SHARED, ret_answer,
			    gantry_deadline_ns(timeout_ns));
}

START_TEST(test_request_gets_its_own_answer)
{
	struct gantry_door_shared answer;

	attach();
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(ask(PATIENCE_NS, &answer), 0);
		ck_assert_int_eq(answer.status, 0); /* the late one says DENIED */
		ck_assert_uint_eq(answer.token[0], 0x5a);
	}
	end();
}
END_TEST

START_TEST(test_request_after_a_second_welcome_gets_its_own_answer)
{
	struct gantry_door_refuse notice;
	struct gantry_door_shared answer;

	if (ops->is_pumped)
		gantry_unit_skip("behind a stream nobody adopts");
	attach();
	fake_host_welcome_again(&host);
	ck_assert_int_eq(ops->peek(cookie, &notice), 0);
	ck_assert_int_eq(notice.status, 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ask(PATIENCE_NS, &answer), 0);
		ck_assert_uint_eq(answer.token[0], 0x5a);
	}
	end();
}
END_TEST

START_TEST(test_request_without_an_answer_times_out_and_the_next_is_answered)
{
	struct gantry_door_shared answer;

	attach();
	gantry_store_relaxed(&host.mute_door, 1);
	ck_assert_int_eq(ask(100000000, &answer), GANTRY_E_TIMEOUT);
	gantry_store_relaxed(&host.mute_door, 0);
	ck_assert_int_eq(ask(PATIENCE_NS, &answer), 0);
	end();
}
END_TEST

START_TEST(test_request_after_the_agent_died_is_detached)
{
	struct gantry_door_shared answer;

	attach();
	fake_host_hang_up(&host);
	ck_assert_int_eq(ask(PATIENCE_NS, &answer), GANTRY_E_DETACHED);
	end();
}
END_TEST

START_TEST(test_close_in_a_child_leaves_the_parents_door_alone)
{
	struct gantry_door_shared answer;
	struct gantry_door_refuse notice;
	int status;
	pid_t pid;

	attach();
	pid = fork();
	if (pid == 0) {
		ops->close(cookie);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(ops->peek(cookie, &notice), 0);
	ck_assert_int_eq(ask(PATIENCE_NS, &answer), 0);
	end();
}
END_TEST

static void wait_for_leaver(void)
{
	uint64_t deadline_ns = gantry_deadline_ns(PATIENCE_NS);

	while (gantry_load_relaxed(&host.nleft) == 0 && !gantry_deadline_passed(deadline_ns))
		usleep(1000);
	ck_assert_uint_eq(gantry_load_relaxed(&host.nleft), 1);
}

/* Attaches, forks, and ends, or only closes its door; the child lives until @until says something. */
static void be_a_parent(const int until[2], bool closes)
{
	struct gantry_attachment a = { 0 };
	char c;

	if (ops->connect(host.where + strlen(ops->prefix), gantry_deadline_ns(PATIENCE_NS),
			 &cookie) < 0 ||
	    shake(PATIENCE_NS, &a) < 0)
		_exit(1);
	if (fork() == 0) {
		close(until[1]);
		(void)!read(until[0], &c, 1);
		_exit(0);
	}
	if (closes) {
		ops->close(cookie);
		close(until[1]);
		(void)!read(until[0], &c, 1);
	}
	_exit(0);
}

/* The host is to see that a guest is gone, though a child of it has copies of all its descriptors. */
START_TEST(test_child_does_not_keep_its_parents_door)
{
	int until[2], status = 0;
	pid_t parent;

	if (host.door == &fake_door_ivshmem)
		gantry_unit_skip("what tells the end there is the claim's lock: see ivshmem.c");
	fake_host_start(&host);
	ck_assert_int_eq(pipe(until), 0);
	parent = fork();
	if (parent == 0)
		be_a_parent(until, _i == 1);
	wait_for_leaver();
	close(until[0]);
	close(until[1]);
	ck_assert_int_eq(waitpid(parent, &status, 0), parent);
	ck_assert_int_eq(status, 0);
	fake_host_stop(&host);
}
END_TEST

START_TEST(test_stream_that_comes_back_to_silence_is_given_up)
{
	struct gantry_door_refuse notice;

	if (host.door != &fake_door_stream)
		gantry_unit_skip("only a stream comes back");
	attach();
	gantry_store_relaxed(&host.break_stream, 1);
	ck_assert_int_eq(peek_until(-ECONNRESET, &notice), -ECONNRESET);
	ck_assert_int_eq(notice.status, GANTRY_E_DETACHED);
	ck_assert_ptr_nonnull(strstr(notice.text, "did not come back"));
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/transport");
	TCase *tc = gantry_unit_case(suite, "transport");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_where_begins_with_the_prefix);
	tcase_add_test(tc, test_connect_nobody_there_says_no_agent_and_gives_nothing);
	tcase_add_test(tc, test_handshake_brings_the_segment);
	tcase_add_loop_test(tc, test_handshake_refused_says_which_and_can_be_closed, 0,
			    (int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_test(tc, test_handshake_with_an_agent_that_makes_way_says_so);
	tcase_add_test(tc, test_close_without_a_handshake);
	tcase_add_test(tc, test_kick_wakes_the_host);
	tcase_add_test(tc, test_kick_never_blocks);
	tcase_add_test(tc, test_peek_while_the_agent_lives_is_0_and_has_no_notice);
	tcase_add_test(tc, test_peek_keeps_the_notice);
	tcase_add_test(tc, test_peek_after_the_agent_died_is_econnreset);
	tcase_add_test(tc, test_request_gets_its_own_answer);
	tcase_add_test(tc, test_request_after_a_second_welcome_gets_its_own_answer);
	tcase_add_test(tc, test_request_without_an_answer_times_out_and_the_next_is_answered);
	tcase_add_test(tc, test_request_after_the_agent_died_is_detached);
	tcase_add_test(tc, test_close_in_a_child_leaves_the_parents_door_alone);
	tcase_add_loop_test(tc, test_child_does_not_keep_its_parents_door, 0, 2);
	tcase_add_test(tc, test_stream_that_comes_back_to_silence_is_given_up);
	return gantry_unit_run(suite);
}
