/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "tests/unit/runner.h"

#define A_STEP GANTRY_FAILPOINT_OUT_HOLD
#define AN_IO  GANTRY_FAILPOINT_LINK_SEND

/* The page of this test, mapped by it and by the code under test. */
static struct gantry_failpoint_slot *open_page(void)
{
	char path[] = "/tmp/gantry-points-XXXXXX";
	int fd = mkstemp(path);
	struct gantry_failpoint_slot *page;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, GANTRY_FAILPOINT_PAGE_BYTES), 0);
	page = mmap(NULL, GANTRY_FAILPOINT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	ck_assert_int_eq(setenv("GANTRY_FAILPOINTS", path, 1), 0);
	gantry_failpoints_open();
	ck_assert_int_eq(unlink(path), 0);
	gantry_fd_close(fd);
	return page;
}

static void arm(struct gantry_failpoint_slot *slot, uint32_t action, uint32_t skip, uint32_t times)
{
	*slot = (struct gantry_failpoint_slot){ .skip = skip, .times = times };
	gantry_store_release(&slot->action, action);
}

START_TEST(test_failpoint_without_a_page_does_nothing)
{
	ck_assert_int_eq(unsetenv("GANTRY_FAILPOINTS"), 0);
	gantry_failpoints_open();
	gantry_failpoint(A_STEP);
	ck_assert_int_eq(gantry_failpoint_io(AN_IO), 0);
	ck_assert_int_eq(setenv("GANTRY_FAILPOINTS", "/nonexistent/page", 1), 0);
	gantry_failpoints_open();
	ck_assert_int_eq(setenv("GANTRY_FAILPOINTS", "/dev/null", 1), 0);
	gantry_failpoints_open();
	ck_assert_int_eq(gantry_failpoint_io(AN_IO), 0);
}
END_TEST

START_TEST(test_failpoint_fails_after_those_that_are_skipped_and_so_often_as_it_is_told)
{
	struct gantry_failpoint_slot *slot = &open_page()[AN_IO];

	arm(slot, GANTRY_FAILPOINT_FAIL, 2, 2);
	ck_assert_int_eq(gantry_failpoint_io(AN_IO), 0);
	ck_assert_int_eq(gantry_failpoint_io(AN_IO), 0);
	ck_assert_int_eq(gantry_failpoint_io(AN_IO), -EIO);
	ck_assert_int_eq(gantry_failpoint_io(AN_IO), -EIO);
	ck_assert_int_eq(gantry_failpoint_io(AN_IO), 0);
	ck_assert_uint_eq(slot->hits, 5);
	ck_assert_uint_eq(slot->fired, 2);
	ck_assert_int_eq(slot->pid, (int)getpid());
	arm(slot, GANTRY_FAILPOINT_FAIL, 0, GANTRY_FAILPOINT_ALWAYS);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(gantry_failpoint_io(AN_IO), -EIO);
}
END_TEST

START_TEST(test_failpoint_of_a_step_cannot_fail)
{
	struct gantry_failpoint_slot *slot = &open_page()[A_STEP];

	arm(slot, GANTRY_FAILPOINT_FAIL, 0, 1);
	ck_assert_int_eq(gantry_failpoint_io(A_STEP), 0);
	ck_assert_uint_eq(slot->fired, 0);
	ck_assert_uint_eq(slot->times, 1);
}
END_TEST

START_TEST(test_failpoint_ends_one_process_of_several)
{
	struct gantry_failpoint_slot *slot = &open_page()[A_STEP];
	int ended = 0;

	arm(slot, GANTRY_FAILPOINT_DIE, 1, 1);
	for (int i = 0; i < 4; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			gantry_failpoint(A_STEP);
			_exit(0);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFEXITED(status));
		ck_assert(WEXITSTATUS(status) == 0 ||
			  WEXITSTATUS(status) == GANTRY_FAILPOINT_STATUS);
		ended += WEXITSTATUS(status) != 0;
	}
	ck_assert_int_eq(ended, 1);
	ck_assert_uint_eq(slot->hits, 4);
}
END_TEST

static void *pass(void *arg)
{
	gantry_failpoint(A_STEP);
	gantry_store_release((uint32_t *)arg, 1u);
	return NULL;
}

START_TEST(test_failpoint_stands_still_until_it_may_go_on)
{
	struct gantry_failpoint_slot *slot = &open_page()[A_STEP];
	uint32_t passed = 0;
	pthread_t thread;

	arm(slot, GANTRY_FAILPOINT_STALL, 0, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, pass, &passed), 0);
	while (gantry_load_acquire(&slot->action) != GANTRY_FAILPOINT_STALLED)
		sched_yield();
	gantry_failpoint(A_STEP); /* others pass */
	ck_assert_uint_eq(gantry_load_acquire(&passed), 0);
	gantry_store_release(&slot->action, (uint32_t)GANTRY_FAILPOINT_NOTHING);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(passed, 1);
}
END_TEST

START_TEST(test_failpoints_have_names_of_their_own)
{
	for (uint32_t i = 0; i < GANTRY_NFAILPOINTS; i++) {
		const struct gantry_failpoint_info *info = gantry_failpoint_at(i);

		ck_assert(info->name[0] && info->program[0] && info->what[0]);
		for (uint32_t k = 0; k < i; k++)
			ck_assert_str_ne(info->name, gantry_failpoint_at(k)->name);
	}
	ck_assert_ptr_null(gantry_failpoint_at(GANTRY_NFAILPOINTS));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("failpoint");
	TCase *tc = gantry_unit_case(suite, "failpoint");

	tcase_add_test(tc, test_failpoint_without_a_page_does_nothing);
	tcase_add_test(
		tc, test_failpoint_fails_after_those_that_are_skipped_and_so_often_as_it_is_told);
	tcase_add_test(tc, test_failpoint_of_a_step_cannot_fail);
	tcase_add_test(tc, test_failpoint_ends_one_process_of_several);
	tcase_add_test(tc, test_failpoint_stands_still_until_it_may_go_on);
	tcase_add_test(tc, test_failpoints_have_names_of_their_own);
	return gantry_unit_run(suite);
}
