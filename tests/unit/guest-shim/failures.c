/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/failures.h"
#include "tests/unit/runner.h"

#define NSLOTS 16u

static _Alignas(4096) uint8_t segment[32 * 4096];

struct fixture {
	struct gantry_ring_map map;
	struct gantry_ring_consumer host;
	struct gantry_failures failures;
	uint64_t tail;
	uint64_t nfailed;
};

static void setup(struct fixture *f)
{
	struct gantry_region region = { segment, sizeof(segment) };

	memset(segment, 0, sizeof(segment));
	*f = (struct fixture){ 0 };
	ck_assert_int_eq(gantry_ring_map_init(&f->map, &region, 0, 0, NSLOTS), 0);
	gantry_ring_consumer_init(&f->host, &f->map, 0, 0);
	gantry_failures_init(&f->failures);
}

/* The host finishes the next task with @status. */
static void finish(struct fixture *f, int status)
{
	uint64_t pos = f->map.area->done;

	f->tail = pos + 1;
	f->nfailed += status != 0;
	gantry_ring_set_status(&f->host, pos, status, f->nfailed);
	gantry_ring_complete(&f->host, pos + 1);
}

static int status_of(struct fixture *f, uint64_t pos)
{
	return gantry_failures_status(&f->failures, &f->map, &f->tail, pos);
}

START_TEST(test_failures_harvest_more_done_than_put_returns_eproto)
{
	struct fixture f;
	uint64_t seen = 5;

	setup(&f);
	gantry_ring_complete(&f.host, 3);
	ck_assert_int_eq(gantry_failures_harvest(&f.failures, &f.map, &f.tail, &seen), -EPROTO);
	ck_assert_uint_eq(seen, 5);
	gantry_failures_fini(&f.failures);
}
END_TEST

START_TEST(test_failures_status_after_many_wraps_is_exact)
{
	struct fixture f;
	uint64_t seen;

	setup(&f);
	for (uint64_t pos = 0; pos < 1000; pos++) {
		finish(&f, pos % 7 == 3 ? GANTRY_E_KERNEL : 0);
		/* As a producer does, at the latest when every slot is in use. */
		if (pos % NSLOTS == NSLOTS - 1)
			ck_assert_int_eq(
				gantry_failures_harvest(&f.failures, &f.map, &f.tail, &seen), 0);
	}
	for (uint64_t pos = 0; pos < 1000; pos++)
		ck_assert_int_eq(status_of(&f, pos), pos % 7 == 3 ? GANTRY_E_KERNEL : 0);
	gantry_failures_fini(&f.failures);
}
END_TEST

START_TEST(test_failures_adopted_are_those_whose_slots_are_as_they_were)
{
	struct gantry_failures next;
	struct fixture f;
	uint64_t done = 3 * NSLOTS + 5, tail = done + 4;

	setup(&f);
	for (uint64_t pos = 0; pos < done; pos++)
		finish(&f, pos % 3 == 1 ? GANTRY_E_KERNEL : 0);
	f.tail = tail; /* and four that are not finished, whose slots are those of the oldest */
	gantry_failures_init(&next);
	gantry_failures_adopt(&next, &f.map, tail);
	for (uint64_t pos = tail - NSLOTS; pos < done; pos++)
		ck_assert_int_eq(gantry_failures_status(&next, &f.map, &f.tail, pos),
				 pos % 3 == 1 ? GANTRY_E_KERNEL : 0);
	/* What comes after counts on. */
	finish(&f, GANTRY_E_SPAN);
	f.tail = tail;
	ck_assert_int_eq(gantry_failures_status(&next, &f.map, &f.tail, done), GANTRY_E_SPAN);
	gantry_failures_fini(&next);
	gantry_failures_fini(&f.failures);
}
END_TEST

START_TEST(test_failures_more_than_kept_forgets_oldest)
{
	const uint64_t n = GANTRY_FAILURES_MAX + 100;
	struct fixture f;
	uint64_t seen;

	setup(&f);
	for (uint64_t pos = 0; pos < n; pos++) {
		finish(&f, GANTRY_E_DEADLINE);
		ck_assert_int_eq(gantry_failures_harvest(&f.failures, &f.map, &f.tail, &seen), 0);
	}
	ck_assert_int_eq(status_of(&f, 99), 0);
	ck_assert_int_eq(status_of(&f, 100), GANTRY_E_DEADLINE);
	ck_assert_int_eq(status_of(&f, n - 1), GANTRY_E_DEADLINE);
	gantry_failures_fini(&f.failures);
}
END_TEST

START_TEST(test_failures_restart_with_count_reset_by_host_keeps_old_and_sees_new)
{
	struct fixture f;

	setup(&f);
	finish(&f, GANTRY_E_KERNEL);
	ck_assert_int_eq(status_of(&f, 0), GANTRY_E_KERNEL);
	f.nfailed = 0;
	gantry_ring_set_status(&f.host, 5, 0, 0);
	gantry_failures_restart(&f.failures, &f.map, f.tail);
	finish(&f, GANTRY_E_SPAN);
	ck_assert_int_eq(status_of(&f, 1), GANTRY_E_SPAN);
	ck_assert_int_eq(status_of(&f, 0), GANTRY_E_KERNEL);
	gantry_failures_fini(&f.failures);
}
END_TEST

START_TEST(test_failures_status_word_beyond_int_is_a_failure)
{
	struct fixture f;

	setup(&f);
	finish(&f, GANTRY_E_KERNEL);
	f.map.status[0] = UINT32_MAX;
	ck_assert_int_eq(status_of(&f, 0), GANTRY_E_INTERNAL);
	gantry_failures_fini(&f.failures);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/failures");
	TCase *tc = gantry_unit_case(suite, "failures");

	tcase_add_test(tc, test_failures_harvest_more_done_than_put_returns_eproto);
	tcase_add_test(tc, test_failures_status_after_many_wraps_is_exact);
	tcase_add_test(tc, test_failures_adopted_are_those_whose_slots_are_as_they_were);
	tcase_add_test(tc, test_failures_more_than_kept_forgets_oldest);
	tcase_add_test(tc, test_failures_restart_with_count_reset_by_host_keeps_old_and_sees_new);
	tcase_add_test(tc, test_failures_status_word_beyond_int_is_a_failure);
	return gantry_unit_run(suite);
}
