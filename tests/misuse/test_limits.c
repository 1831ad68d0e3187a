/* SPDX-License-Identifier: Apache-2.0 */
/* More of everything than there is: sessions, descriptors, disk. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "tests/misuse/world.h"

#define SESSIONS 8u

static int try_attach(struct hostile *h, char text[GANTRY_DOOR_TEXT])
{
	struct gantry_door_hello hello;
	char door[108];
	int r;

	world_door(door, "red");
	r = hostile_connect(h, door);
	ck_assert_int_eq(r, 0);
	hostile_hello_init(&hello);
	return hostile_attach(h, &hello, text);
}

START_TEST(test_sessions_over_the_limit_are_refused_with_a_sentence)
{
	struct hostile h[SESSIONS], more;
	char text[GANTRY_DOOR_TEXT];
	uint32_t queue;

	for (unsigned int i = 0; i < SESSIONS; i++)
		ck_assert_int_eq(try_attach(&h[i], text), GANTRY_OK);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(try_attach(&more, text), GANTRY_E_FULL);
		ck_assert_msg(strstr(text, "8"), "the sentence names no number: %s", text);
		hostile_close(&more);
	}
	/* Those that are in are not touched, and a place that becomes free can be had. */
	for (unsigned int i = 0; i < SESSIONS; i++) {
		ck_assert_int_eq(hostile_queue(&h[i], &queue, NULL), GANTRY_OK);
		ck_assert_int_eq(hostile_ping(&h[i], queue), GANTRY_OK);
	}
	hostile_close(&h[0]);
	for (int i = 0; i < 500; i++) {
		int status = try_attach(&h[0], text);

		if (status == GANTRY_OK)
			break;
		hostile_close(&h[0]);
		ck_assert_int_eq(status, GANTRY_E_FULL);
		ck_assert_int_lt(i, 499);
		(void)poll(NULL, 0, 10);
	}
	for (unsigned int i = 0; i < SESSIONS; i++)
		hostile_close(&h[i]);
}
END_TEST

static void limit_agent_fds(rlim_t soft, struct rlimit *ret_old)
{
	struct rlimit limit;

	ck_assert_int_eq(prlimit(world_agent_pid(), RLIMIT_NOFILE, NULL, &limit), 0);
	if (ret_old)
		*ret_old = limit;
	limit.rlim_cur = soft;
	ck_assert_int_eq(prlimit(world_agent_pid(), RLIMIT_NOFILE, &limit, NULL), 0);
}

START_TEST(test_descriptors_exhausted_refuses_newcomers_and_recovers)
{
	struct hostile h[SESSIONS];
	char text[GANTRY_DOOR_TEXT];
	struct rlimit old;
	unsigned int n = 0, refused = 0;
	struct gantry_door_hello hello;
	char door[108];
	int fd;

	/* Room for one or two sessions more; a session takes five or so. */
	limit_agent_fds(world_agent_fds() + 8, &old);
	world_door(door, "red");
	hostile_hello_init(&hello);
	for (; n < SESSIONS; n++) {
		struct gantry_door_refuse answer;
		int r = hostile_connect(&h[n], door);

		ck_assert_int_eq(r, 0);
		(void)hostile_send(&h[n], &hello, sizeof(hello));
		r = hostile_receive(&h[n], &answer, sizeof(answer), 500);
		/* Welcomed, refused, or (accept() itself fails) left standing at the door: never a dead agent. */
		refused += r == -ETIMEDOUT || r == 0 ||
			   (r > 0 && answer.h.kind == GANTRY_DOOR_REFUSE);
	}
	ck_assert_uint_gt(refused, 0);
	neighbour_check(&world.neighbour);
	for (unsigned int i = 0; i < n; i++)
		hostile_close(&h[i]);
	limit_agent_fds(old.rlim_cur, NULL);
	for (int i = 0; i < 100; i++) {
		int status = try_attach(&h[0], text);

		hostile_close(&h[0]);
		if (status == GANTRY_OK)
			break;
		ck_assert_msg(i < 99, "still %d (%s) with descriptors at hand", status, text);
		(void)poll(NULL, 0, 50);
	}
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(fd);
}
END_TEST

/* A full disk under the run folder. A mount name space of our own keeps the mount from everybody else's eyes. */
START_TEST(test_disk_full_for_the_journal_keeps_service)
{
	struct hostile h;
	char path[108], text[GANTRY_DOOR_TEXT];
	uint32_t queue;
	uint8_t block[4096] = { 1 };
	int fd;

	world_path(path, "filler");
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	ck_assert_int_eq(errno, ENOSPC);
	close(fd);
	for (int i = 0; i < 5; i++) {
		int status = try_attach(&h, text);

		ck_assert_msg(status == GANTRY_OK, "%d: %s", status, text);
		ck_assert_int_eq(hostile_queue(&h, &queue, NULL), GANTRY_OK);
		ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
		hostile_close(&h);
	}
	neighbour_check(&world.neighbour);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("misuse-limits");
	TCase *tc = world_case(suite, "agent", WORLD_AGENT);
	TCase *full;

	world_config("sessions = 8\n");
	tcase_add_test(tc, test_sessions_over_the_limit_are_refused_with_a_sentence);
	tcase_add_test(tc, test_descriptors_exhausted_refuses_newcomers_and_recovers);
	full = world_case(suite, "full-disk", WORLD_AGENT_ON_SMALL_DISK);
	tcase_add_test(full, test_disk_full_for_the_journal_keeps_service);
	return gantry_unit_run(suite);
}
