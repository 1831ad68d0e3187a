/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's store, and what monitor and agent say to each other. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "host-agent/monitor/document.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/state.h"
#include "host-agent/monitor/store.h"
#include "tests/unit/runner.h"

static int any_fd(void)
{
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("test", 4096, 0, &fd), 0);
	return fd;
}

START_TEST(test_store_replaces_finds_and_drops)
{
	struct gantry_store store;
	int first = any_fd(), second = any_fd();

	gantry_store_init(&store, true);
	ck_assert_int_eq(gantry_store_put(&store, "s/1/ledger", first), 0);
	ck_assert_int_eq(gantry_store_put(&store, "s/1/ledger", second), 0);
	ck_assert_int_eq(fcntl(first, F_GETFD), -1);
	ck_assert_int_eq(gantry_store_find(&store, "s/1/ledger"), second);
	gantry_store_drop(&store, "s/1/ledger");
	ck_assert_int_eq(gantry_store_find(&store, "s/1/ledger"), -ENOENT);
	ck_assert_int_eq(fcntl(second, F_GETFD), -1);
	gantry_store_fini(&store);
}
END_TEST

START_TEST(test_store_drop_tree_takes_only_its_tree)
{
	struct gantry_store store;

	gantry_store_init(&store, true);
	ck_assert_int_eq(gantry_store_put(&store, "s/1/a", any_fd()), 0);
	ck_assert_int_eq(gantry_store_put(&store, "s/11/a", any_fd()), 0);
	ck_assert_int_eq(gantry_store_put(&store, "s/1/b", any_fd()), 0);
	gantry_store_drop_tree(&store, "s/1/");
	ck_assert_uint_eq(store.nentries, 1);
	ck_assert_int_ge(gantry_store_find(&store, "s/11/a"), 0);
	gantry_store_fini(&store);
}
END_TEST

START_TEST(test_store_refuses_names_it_cannot_keep)
{
	char name[GANTRY_MONITOR_NAME_MAX + 1];
	struct gantry_store store;
	int fd = any_fd();

	memset(name, 'n', sizeof(name));
	name[GANTRY_MONITOR_NAME_MAX] = '\0';
	gantry_store_init(&store, true);
	ck_assert_int_eq(gantry_store_put(&store, "", fd), -EINVAL);
	ck_assert_int_eq(gantry_store_put(&store, name, fd), -EINVAL);
	gantry_fd_close(fd);
	gantry_store_fini(&store);
}
END_TEST

START_TEST(test_link_hands_everything_over)
{
	struct gantry_store kept, taken;
	int32_t restarts = 0;
	int fds[2];

	ck_assert_int_eq(gantry_link_pair(fds), 0);
	gantry_store_init(&kept, true);
	gantry_store_init(&taken, true);
	ck_assert_int_eq(gantry_store_put(&kept, "lock", any_fd()), 0);
	ck_assert_int_eq(gantry_store_put(&kept, "s/1/bell", any_fd()), 0);
	ck_assert_int_eq(gantry_link_hand_over(fds[0], &kept, 3), 0);
	ck_assert_int_eq(gantry_link_take_over(fds[1], 1000, &taken, &restarts), 0);
	ck_assert_int_eq(restarts, 3);
	ck_assert_uint_eq(taken.nentries, 2);
	ck_assert_int_ge(gantry_store_find(&taken, "s/1/bell"), 0);
	gantry_store_fini(&kept);
	gantry_store_fini(&taken);
	gantry_fd_close(fds[0]);
	gantry_fd_close(fds[1]);
}
END_TEST

START_TEST(test_link_take_over_gives_up_on_silence_and_nonsense)
{
	struct gantry_store taken;
	int32_t restarts;
	int fds[2];

	ck_assert_int_eq(gantry_link_pair(fds), 0);
	gantry_store_init(&taken, true);
	ck_assert_int_eq(gantry_link_take_over(fds[1], 20, &taken, &restarts), -ETIMEDOUT);
	ck_assert_int_eq(send(fds[0], "hello", 5, 0), 5);
	ck_assert_int_eq(gantry_link_take_over(fds[1], 1000, &taken, &restarts), -EPROTO);
	ck_assert_int_eq(
		gantry_link_send(fds[0], GANTRY_MONITOR_HAND, 0, 0, "no descriptor", -EBADF), 0);
	ck_assert_int_eq(gantry_link_take_over(fds[1], 1000, &taken, &restarts), -EPROTO);
	fds[0] = gantry_fd_close(fds[0]);
	ck_assert_int_eq(gantry_link_take_over(fds[1], 1000, &taken, &restarts), -ENODATA);
	gantry_fd_close(fds[1]);
	gantry_store_fini(&taken);
}
END_TEST

START_TEST(test_link_message_with_unterminated_name_is_refused)
{
	struct gantry_monitor_msg msg = { .op = GANTRY_MONITOR_DROP };
	int fds[2], fd = -EBADF;

	memset(msg.name, 'x', sizeof(msg.name));
	ck_assert_int_eq(gantry_link_pair(fds), 0);
	ck_assert_int_eq(gantry_fd_send(fds[0], &msg, sizeof(msg), fds, 1, 0), sizeof(msg));
	ck_assert_int_eq(gantry_link_recv(fds[1], &msg, &fd, MSG_DONTWAIT), -EPROTO);
	gantry_fd_close(fds[0]);
	gantry_fd_close(fds[1]);
}
END_TEST

/* A program of @mode that holds nothing. The descriptor is the caller's, the file is gone. */
static int program_of_mode(mode_t mode)
{
	char path[] = "gantry-program-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	ck_assert_int_eq(unlink(path), 0);
	return fd;
}

START_TEST(test_program_is_started_only_where_nobody_else_could_have_written_it)
{
	static const struct {
		mode_t mode;
		int wanted;
	} rows[] = {
		{ 0755, 0 }, { 0500, 0 }, { 0644, -EACCES }, { 0775, -EPERM }, { 0757, -EPERM },
	};
	int folder = open(".", O_PATH | O_CLOEXEC), fds[2];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int fd = program_of_mode(rows[i].mode);

		ck_assert_int_eq(gantry_program_check(fd), rows[i].wanted);
		gantry_fd_close(fd);
	}
	ck_assert_int_eq(gantry_program_check(folder), -ENOTSUP);
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(gantry_program_check(fds[0]), -ENOTSUP);
	ck_assert_int_eq(gantry_program_check(-EBADF), -EBADF);
	gantry_fd_close(fds[0]);
	gantry_fd_close(fds[1]);
	gantry_fd_close(folder);
}
END_TEST

static int state_of(const char *text)
{
	int fd = memfd_create("state", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gantry_write_all(fd, text, strlen(text)), 0);
	return fd;
}

static int resume(const char *text)
{
	static struct gantry_monitor m;
	int r;

	m = (struct gantry_monitor){ .sock = -EBADF, .agent_pidfd = -EBADF };
	gantry_store_init(&m.store, true);
	r = gantry_monitor_resume(&m, state_of(text));
	gantry_fd_close(m.agent_pidfd);
	gantry_store_fini(&m.store);
	return r;
}

START_TEST(test_monitor_takes_up_what_another_build_of_it_left)
{
	static struct gantry_monitor m;
	struct gantry_monitor_msg msg;
	int fds[2], kept = any_fd(), fd = -EBADF;
	char text[512];

	ck_assert_int_eq(gantry_link_pair(fds), 0);
	ck_assert_int_eq(gantry_fd_cloexec(kept, false), 0);
	snprintf(
		text, sizeof(text),
		"gantry-monitor 1\nagent %d %d 1 1 7\nleaving 12\nexited 13 256\nfd %d s/1/ledger\nend\n",
		(int)getpid(), fds[0], kept);
	m = (struct gantry_monitor){ .sock = -EBADF, .agent_pidfd = -EBADF };
	gantry_store_init(&m.store, true);
	ck_assert_int_eq(gantry_monitor_resume(&m, state_of(text)), 0);
	ck_assert_int_eq(m.agent_pid, getpid());
	ck_assert_int_eq(m.restarts, 7);
	ck_assert_int_eq(m.leaving_pid, 12);
	ck_assert_uint_eq(m.nuntold, 1);
	ck_assert_int_eq(m.untold[0].status, 256);
	ck_assert_int_eq(gantry_store_find(&m.store, "s/1/ledger"), kept);
	ck_assert_int_eq(fcntl(kept, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(gantry_link_recv(fds[1], &msg, &fd, MSG_DONTWAIT), 0);
	ck_assert_uint_eq(msg.op, GANTRY_MONITOR_BECAME);
	gantry_fd_close(m.agent_pidfd);
	gantry_store_fini(&m.store);
	gantry_fd_close(fds[0]);
	gantry_fd_close(fds[1]);
}
END_TEST

START_TEST(test_monitor_goes_on_where_the_agent_died_meanwhile)
{
	int fds[2];
	char text[160];

	ck_assert_int_eq(gantry_link_pair(fds), 0);
	gantry_fd_close(fds[1]);
	snprintf(text, sizeof(text), "gantry-monitor 1\nagent %d %d 1 1 0\nend\n", (int)getpid(),
		 fds[0]);
	ck_assert_int_eq(resume(text), 0);
	gantry_fd_close(fds[0]);
}
END_TEST

START_TEST(test_monitor_refuses_what_it_does_not_understand)
{
	ck_assert_int_eq(resume(""), -EPROTO);
	ck_assert_int_eq(resume("gantry-monitor 99\nend\n"), -EPROTO);
	ck_assert_int_eq(resume("gantry-monitor 1\nend\n"), -EPROTO);
	ck_assert_int_eq(resume("gantry-monitor 1\nwhat\nend\n"), -EPROTO);
	ck_assert_int_eq(resume("gantry-monitor 1\nexited 3 4\n"), -ENODATA);
	ck_assert_int_lt(resume("gantry-monitor 1\nfd 1000000 s/1\nend\n"), 0);
}
END_TEST

START_TEST(test_monitor_line_of_another_build_is_bounded)
{
	static const char *const bad[] = {
		"",
		"end end",
		"agent 1 2 3 4",
		"agent 0 5 1 1 0",
		"agent 7 -5 1 1 0",
		"agent 7 5 1 1 0 9",
		"agent 99999999999 5 1 1 0",
		"exited 0 1",
		"exited 7",
		"leaving -1",
		"fd 7",
		"fd x lock",
		"fd -1 lock",
		"fd 7 lock more",
		"gantry-monitor",
		"gantry-monitor -1",
		"end\r",
		"colour blue",
	};
	struct gantry_monitor_line line = { .kind = GANTRY_MONITOR_LINE_END, .fd = 77 };
	char text[GANTRY_MONITOR_LINE_MAX] = "fd 7 ";

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(gantry_monitor_line_parse(bad[i], &line) == -EPROTO, "%s", bad[i]);
	ck_assert_int_eq(line.fd, 77);
	memset(text + 5, 'n', GANTRY_MONITOR_NAME_MAX);
	ck_assert_int_eq(gantry_monitor_line_parse(text, &line), -EPROTO);
	text[5 + GANTRY_MONITOR_NAME_MAX - 1] = '\0';
	ck_assert_int_eq(gantry_monitor_line_parse(text, &line), 0);
	ck_assert_int_eq(line.fd, 7);
	ck_assert_uint_eq(strlen(line.name), GANTRY_MONITOR_NAME_MAX - 1);
}
END_TEST

START_TEST(test_names_that_systemd_kept_are_taken_one_by_one)
{
	char name[GANTRY_MONITOR_NAME_MAX], longest[GANTRY_MONITOR_NAME_MAX + 8] = "";
	const char *at = "lock:s/1/bell::x";

	at = gantry_shelf_name_next(at, name);
	ck_assert_str_eq(name, "lock");
	at = gantry_shelf_name_next(at, name);
	ck_assert_str_eq(name, "s/1/bell");
	at = gantry_shelf_name_next(at, name);
	ck_assert_str_eq(name, "");
	at = gantry_shelf_name_next(at, name);
	ck_assert_str_eq(name, "x");
	ck_assert_str_eq(gantry_shelf_name_next(at, name), "");
	ck_assert_str_eq(name, "");
	ck_assert_ptr_null(gantry_shelf_name_next(NULL, name));
	memset(longest, 'n', GANTRY_MONITOR_NAME_MAX);
	strcat(longest, ":y");
	at = gantry_shelf_name_next(longest, name);
	ck_assert_str_eq(name, "");
	ck_assert_str_eq(at, "y");
}
END_TEST

/* What the monitor tells the agent; false: nothing. */
static bool is_told(int agent, struct gantry_monitor_msg *ret_msg)
{
	int fd = -EBADF;
	bool told = gantry_link_recv(agent, ret_msg, &fd, MSG_DONTWAIT) == 0;

	gantry_fd_close(fd);
	return told;
}

static int reap_candidate(const struct gantry_monitor *m)
{
	int status = 0;

	ck_assert_int_eq(waitpid(m->candidate.pid, &status, 0), m->candidate.pid);
	return status;
}

START_TEST(test_candidate_after_a_cancelled_one_waits_for_its_end_and_hears_nothing_of_it)
{
	char *const argv[] = { (char *)"true", NULL };
	struct gantry_monitor m = {
		.argv = argv,
		.previous = -EBADF,
		.candidate = { .sock = -EBADF, .program = -EBADF, .next = -EBADF },
	};
	struct gantry_monitor_msg msg;
	int ends[2], unused;
	pid_t first;

	ck_assert_int_eq(gantry_link_pair(ends), 0);
	m.sock = ends[0];
	gantry_candidate_try(&m, open("/bin/true", O_PATH | O_CLOEXEC));
	ck_assert_int_eq(m.candidate.state, GANTRY_CANDIDATE_STARTING);
	first = m.candidate.pid;
	gantry_candidate_cancel(&m);
	unused = open("/bin/true", O_PATH | O_CLOEXEC);
	gantry_candidate_try(&m, unused);
	gantry_candidate_try(&m, open("/bin/true", O_PATH | O_CLOEXEC)); /* the later one counts */
	ck_assert_int_eq(fcntl(unused, F_GETFD), -1);
	ck_assert_int_eq(m.candidate.pid, first);
	ck_assert(!is_told(ends[1], &msg));

	gantry_candidate_ended(&m, reap_candidate(&m));
	ck_assert(!is_told(ends[1], &msg));
	ck_assert_int_eq(m.candidate.state, GANTRY_CANDIDATE_STARTING);
	ck_assert_int_ne(m.candidate.pid, first);
	gantry_candidate_ended(&m, reap_candidate(&m));
	ck_assert(is_told(ends[1], &msg));
	ck_assert_uint_eq(msg.op, GANTRY_MONITOR_CANDIDATE);
	ck_assert_int_eq(msg.value, -ECHILD);

	/* Cancelled while it waits: it never begins. */
	gantry_candidate_try(&m, open("/bin/true", O_PATH | O_CLOEXEC));
	gantry_candidate_cancel(&m);
	gantry_candidate_try(&m, open("/bin/true", O_PATH | O_CLOEXEC));
	gantry_candidate_cancel(&m);
	gantry_candidate_ended(&m, reap_candidate(&m));
	ck_assert_int_eq(m.candidate.state, GANTRY_CANDIDATE_NONE);
	ck_assert(!is_told(ends[1], &msg));
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* It had said that it is ready, and the loop had not come round to become its program. */
START_TEST(test_build_that_was_ready_and_died_is_not_what_the_monitor_becomes)
{
	for (int no_way_back = 0; no_way_back < 2; no_way_back++) {
		struct gantry_monitor m = { .previous = any_fd(),
					    .program = any_fd(),
					    .no_way_back = no_way_back };

		gantry_candidate_ready(&m);
		ck_assert(m.become);
		gantry_candidate_failed(&m);
		ck_assert(!m.become);
		ck_assert_int_eq(m.previous >= 0, no_way_back);
		/* The one that is started then is. */
		gantry_candidate_ready(&m);
		ck_assert_int_eq(m.become, no_way_back);
		gantry_fd_close(m.previous);
		gantry_fd_close(m.program);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("monitor");
	TCase *tc = gantry_unit_case(suite, "store");

	tcase_add_test(tc, test_store_replaces_finds_and_drops);
	tcase_add_test(tc, test_store_drop_tree_takes_only_its_tree);
	tcase_add_test(tc, test_store_refuses_names_it_cannot_keep);
	tc = gantry_unit_case(suite, "link");
	tcase_add_test(tc, test_link_hands_everything_over);
	tcase_add_test(tc, test_link_take_over_gives_up_on_silence_and_nonsense);
	tcase_add_test(tc, test_link_message_with_unterminated_name_is_refused);
	tc = gantry_unit_case(suite, "builds");
	tcase_add_test(tc, test_program_is_started_only_where_nobody_else_could_have_written_it);
	tcase_add_test(
		tc, test_candidate_after_a_cancelled_one_waits_for_its_end_and_hears_nothing_of_it);
	tcase_add_test(tc, test_build_that_was_ready_and_died_is_not_what_the_monitor_becomes);
	tcase_add_test(tc, test_monitor_takes_up_what_another_build_of_it_left);
	tcase_add_test(tc, test_monitor_goes_on_where_the_agent_died_meanwhile);
	tcase_add_test(tc, test_monitor_refuses_what_it_does_not_understand);
	tcase_add_test(tc, test_monitor_line_of_another_build_is_bounded);
	tcase_add_test(tc, test_names_that_systemd_kept_are_taken_one_by_one);
	return gantry_unit_run(suite);
}
