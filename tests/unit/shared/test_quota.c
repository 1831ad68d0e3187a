/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "host-agent/shared/quota.h"
#include "tests/unit/runner.h"

#define NTHREADS 4
#define ROUNDS	 50000
#define LIMIT	 1000u

START_TEST(test_charge_up_to_limit_then_refused)
{
	uint64_t used = 0;
	uint64_t limit = 100;

	ck_assert_int_eq(gantry_quota_charge(&used, &limit, 60), 0);
	ck_assert_int_eq(gantry_quota_charge(&used, &limit, 41), -EDQUOT);
	ck_assert_uint_eq(used, 60);
	ck_assert_int_eq(gantry_quota_charge(&used, &limit, 40), 0);
	ck_assert_int_eq(gantry_quota_charge(&used, &limit, 1), -EDQUOT);
	ck_assert_uint_eq(used, 100);
}
END_TEST

START_TEST(test_charge_sum_would_wrap_refused)
{
	uint64_t used = UINT64_MAX - 5;
	uint64_t limit = UINT64_MAX;

	ck_assert_int_eq(gantry_quota_charge(&used, &limit, 6), -EDQUOT);
	ck_assert_int_eq(gantry_quota_charge(&used, &limit, UINT64_MAX), -EDQUOT);
	ck_assert_uint_eq(used, UINT64_MAX - 5);
}
END_TEST

START_TEST(test_charge_after_limit_was_lowered_refused)
{
	uint64_t used = 80;
	uint64_t limit = 50;

	ck_assert_int_eq(gantry_quota_charge(&used, &limit, 1), -EDQUOT);
	ck_assert_int_eq(gantry_quota_charge(&used, &limit, 0), 0);
	ck_assert_uint_eq(used, 80);
}
END_TEST

START_TEST(test_refund_more_than_used_stops_at_zero)
{
	uint64_t used = 10;

	gantry_quota_refund(&used, 4);
	ck_assert_uint_eq(used, 6);
	gantry_quota_refund(&used, UINT64_MAX);
	ck_assert_uint_eq(used, 0);
}
END_TEST

START_TEST(test_peak_only_rises)
{
	uint64_t peak = 5;
	uint64_t used = 9;

	gantry_quota_peak(&peak, &used);
	ck_assert_uint_eq(peak, 9);
	used = 3;
	gantry_quota_peak(&peak, &used);
	ck_assert_uint_eq(peak, 9);
}
END_TEST

START_TEST(test_open_sees_what_create_made)
{
	struct gantry_quota_page *a = NULL;
	struct gantry_quota_page *b = NULL;
	int fd = -EBADF;

	ck_assert_int_eq(gantry_quota_create("red", &a, &fd, NULL), 0);
	gantry_store_relaxed(&a->mem_bytes, (uint64_t)4096);
	ck_assert_int_eq(gantry_quota_open(fd, &b, NULL), 0);
	ck_assert_uint_eq(b->mem_bytes, 4096);
	ck_assert_int_eq(gantry_quota_charge(&b->mem_used, &b->mem_bytes, 4096), 0);
	ck_assert_uint_eq(a->mem_used, 4096);
	gantry_quota_close(b);

	a->magic++;
	ck_assert_int_eq(gantry_quota_open(fd, &b, NULL), -EINVAL);
	gantry_quota_close(a);
	gantry_quota_close(NULL);
	gantry_fd_close(fd);
}
END_TEST

START_TEST(test_open_unsealed_or_small_memfd_refused)
{
	struct gantry_quota_page *page = NULL;
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("x", 4096, 0, &fd), 0);
	ck_assert_int_eq(gantry_quota_open(fd, &page, NULL), -EPERM);
	fd = gantry_fd_close(fd);
	ck_assert_int_eq(gantry_memfd_create("x", 64, GANTRY_MEMFD_SEALED, &fd), 0);
	ck_assert_int_eq(gantry_quota_open(fd, &page, NULL), -ERANGE);
	gantry_fd_close(fd);
}
END_TEST

static struct {
	uint64_t used;
	uint64_t limit;
	uint64_t held; /* counted by the test beside it: what was granted and not given back */
	uint64_t granted;
	uint64_t refused;
	uint64_t overruns;
} shared;

static void *charge_and_refund(void *arg)
{
	uint64_t mine = 0;
	uint64_t bytes = 1 + (uint64_t)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		bytes = bytes * 1103515245u % 397 + 1;
		if (gantry_quota_charge(&shared.used, &shared.limit, bytes) < 0) {
			gantry_count_add(&shared.refused, 1);
			(void)gantry_fetch_sub(&shared.held, mine);
			gantry_quota_refund(&shared.used, mine);
			mine = 0;
			continue;
		}
		mine += bytes;
		gantry_count_add(&shared.granted, 1);
		/* held is raised after the grant and lowered before the refund: never above used. */
		if (gantry_fetch_add(&shared.held, bytes) + bytes > LIMIT ||
		    gantry_load_relaxed(&shared.used) > LIMIT)
			gantry_count_add(&shared.overruns, 1);
	}
	(void)gantry_fetch_sub(&shared.held, mine);
	gantry_quota_refund(&shared.used, mine);
	return NULL;
}

START_TEST(test_charge_four_threads_never_pass_the_limit)
{
	pthread_t threads[NTHREADS];

	shared.limit = LIMIT;
	for (uintptr_t i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, charge_and_refund, (void *)i),
				 0);
	for (int i = 0; i < NTHREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(shared.overruns, 0);
	ck_assert_uint_eq(shared.used, 0);
	ck_assert_uint_gt(shared.granted, 0);
	ck_assert_uint_gt(shared.refused, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quota");
	TCase *tc = gantry_unit_case(suite, "quota");

	tcase_add_test(tc, test_charge_up_to_limit_then_refused);
	tcase_add_test(tc, test_charge_sum_would_wrap_refused);
	tcase_add_test(tc, test_charge_after_limit_was_lowered_refused);
	tcase_add_test(tc, test_refund_more_than_used_stops_at_zero);
	tcase_add_test(tc, test_peak_only_rises);
	tcase_add_test(tc, test_open_sees_what_create_made);
	tcase_add_test(tc, test_open_unsealed_or_small_memfd_refused);
	tcase_add_test(tc, test_charge_four_threads_never_pass_the_limit);
	return gantry_unit_run(suite);
}
