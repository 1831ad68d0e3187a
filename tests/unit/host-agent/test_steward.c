/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of a steward, over cpu devices that play at having memory of their own. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "host-agent/worker/steward.h"
#include "proto/vocab.h"
#include "tests/unit/runner.h"

#define SLAB (4ull << 20)

/* Answers come through a pipe: from device threads to the test's. */
struct answer {
	uint64_t tag;
	int status;
	int fd;
	char text[64];
};

static int pipe_fds[2];
static struct gantry_steward *steward;
static struct gantry_steward_device devices[3];

static void put(uint64_t tag, int status, const char *text, int fd)
{
	struct answer a = { .tag = tag, .status = status, .fd = fd };

	(void)snprintf(a.text, sizeof(a.text), "%s", text);
	ck_assert_int_eq(write(pipe_fds[1], &a, sizeof(a)), (ssize_t)sizeof(a));
}

static void on_made(void *cookie, uint64_t tag, int status, const char *text, int fd)
{
	(void)cookie;
	put(tag, status, text, fd);
}

static void on_scrubbed(void *cookie, uint64_t tag, int status, const char *text)
{
	(void)cookie;
	put(tag, status, text, -EBADF);
}

static struct answer take(void)
{
	struct answer a;

	ck_assert_int_eq(read(pipe_fds[0], &a, sizeof(a)), (ssize_t)sizeof(a));
	return a;
}

static void begin(void)
{
	static const char *const window[] = { "window=yes" };
	const struct gantry_device_conf confs[3] = {
		{ .name = "gpu0",
		  .backend = "cpu",
		  .mem_bytes = 1 << 30,
		  .nopts = 1,
		  .opts = window },
		{ .name = "", .backend = "" }, /* another steward's */
		{ .name = "cpu2", .backend = "cpu" },
	};
	const struct gantry_steward_events events = { .made = on_made, .scrubbed = on_scrubbed };
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_eq(gantry_steward_start(confs, 3, &events, &steward, devices, &err), 0);
}

static void finish(void)
{
	gantry_steward_stop(steward);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

START_TEST(test_steward_opens_what_has_windows_and_says_why_not)
{
	begin();
	ck_assert_str_eq(devices[0].error, "");
	ck_assert_uint_ge(devices[0].info.slab_align, 4096);
	ck_assert(devices[0].info.caps & GANTRY_CAP_WINDOW);
	ck_assert_str_ne(devices[1].error, "");
	ck_assert_str_ne(devices[2].error, "");
	finish();
}
END_TEST

START_TEST(test_slab_is_made_zero_and_zero_again_after_a_scrub)
{
	struct answer a;
	uint64_t word = 1;

	begin();
	ck_assert_int_eq(gantry_steward_make(steward, 0, SLAB, 7), 0);
	a = take();
	ck_assert_uint_eq(a.tag, 7);
	ck_assert_int_eq(a.status, GANTRY_OK);
	ck_assert_int_ge(a.fd, 0);
	ck_assert_int_eq(pread(a.fd, &word, 8, SLAB - 8), 8);
	ck_assert_uint_eq(word, 0);
	word = 0x5ec2e7;
	ck_assert_int_eq(pwrite(a.fd, &word, 8, SLAB - 8), 8);
	ck_assert_int_eq(gantry_steward_scrub(steward, 0, SLAB, dup(a.fd), 8), 0);
	ck_assert_int_eq(take().status, GANTRY_OK);
	ck_assert_int_eq(pread(a.fd, &word, 8, SLAB - 8), 8);
	ck_assert_uint_eq(word, 0);
	gantry_fd_close(a.fd);
	finish();
}
END_TEST

START_TEST(test_request_for_a_device_that_is_not_served_is_refused)
{
	begin();
	ck_assert_int_eq(gantry_steward_make(steward, 1, SLAB, 1), -ENODEV);
	ck_assert_int_eq(gantry_steward_make(steward, 2, SLAB, 1), -ENODEV);
	ck_assert_int_eq(gantry_steward_make(steward, 3, SLAB, 1), -ENODEV);
	ck_assert_int_eq(gantry_steward_scrub(steward, 0, SLAB, -1, 1), -EBADF);
	finish();
}
END_TEST

START_TEST(test_health_of_a_device_that_is_not_served_is_unknown)
{
	struct gantry_steward_health health;

	begin();
	for (uint32_t i = 0; i < 5; i++) {
		gantry_steward_health(steward, i, &health);
		ck_assert_str_eq(health.error, "");
		ck_assert(i == 0 || health.health.known == 0);
	}
	finish();
}
END_TEST

START_TEST(test_stop_ends_what_waits)
{
	struct pollfd p;

	begin();
	for (uint64_t i = 0; i < 8; i++)
		ck_assert_int_eq(gantry_steward_make(steward, 0, SLAB, i), 0);
	gantry_steward_stop(steward);
	steward = NULL;
	p = (struct pollfd){ .fd = pipe_fds[0], .events = POLLIN };
	while (poll(&p, 1, 0) > 0)
		gantry_fd_close(take().fd);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("steward");
	TCase *tc = gantry_unit_case(suite, "steward");

	tcase_add_test(tc, test_steward_opens_what_has_windows_and_says_why_not);
	tcase_add_test(tc, test_slab_is_made_zero_and_zero_again_after_a_scrub);
	tcase_add_test(tc, test_request_for_a_device_that_is_not_served_is_refused);
	tcase_add_test(tc, test_health_of_a_device_that_is_not_served_is_unknown);
	tcase_add_test(tc, test_stop_ends_what_waits);
	return gantry_unit_run(suite);
}
