/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's store, and what monitor and agent say to each other. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "host-agent/monitor/link.h"
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
	return gantry_unit_run(suite);
}
