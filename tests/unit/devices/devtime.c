/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/devtime.h"
#include "base/array.h"
#include "tests/unit/runner.h"

#define LONG_NS 300000u

struct gantry_stream {
	int none;
};

static uint64_t device_ns[16];
static unsigned int nasked;

static bool record(struct gantry_stream *stream, void **event)
{
	(void)stream;
	*event = &nasked;
	return true;
}

static bool elapsed(struct gantry_stream *stream, void *begin, void *end, float *ret_ms)
{
	(void)stream, (void)begin, (void)end;
	*ret_ms = 8;
	return true;
}

static void destroy(struct gantry_stream *stream, void *event)
{
	(void)stream, (void)event;
}

static struct gantry_devtime_cmd cmd_at(struct gantry_stream *stream, uint32_t position)
{
	(void)stream;
	ck_assert_uint_lt(nasked++, 1000);
	return (struct gantry_devtime_cmd){
		.estimate_ns = LONG_NS,
		.device_ns = &device_ns[position % GANTRY_ARRAY_SIZE(device_ns)]
	};
}

static const struct gantry_devtime_driver driver = { record, elapsed, destroy, cmd_at };
static struct gantry_stream stream;
static struct gantry_devtime device;
static struct gantry_devtime_stream timed;

/* A batch of commands @from up to @to, with events around it. */
static void put_batch(uint32_t from, uint32_t to)
{
	gantry_devtime_open(&timed, from, LONG_NS, false, true);
	gantry_devtime_close(&timed, to);
}

static void setup(void)
{
	device = (struct gantry_devtime){ .driver = &driver };
	timed = (struct gantry_devtime_stream){ .of = &device, .stream = &stream };
	gantry_devtime_start(&timed);
}

static void teardown(void)
{
	gantry_devtime_stop(&timed);
	gantry_devtime_fini(&timed);
}

START_TEST(test_batch_with_events_shares_the_time_between_them)
{
	put_batch(0, 4);
	gantry_devtime_account(&timed, 0, 4);
	for (unsigned int i = 0; i < 4; i++) {
		ck_assert_uint_gt(device_ns[i], 0);
		ck_assert_uint_le(device_ns[i], 2000000);
	}
	ck_assert_uint_eq(device_ns[4], 0);
}
END_TEST

/* What device code of a guest can do to its stream's word. */
START_TEST(test_word_in_the_middle_of_a_batch_ends_there)
{
	put_batch(0, 4);
	put_batch(4, 8);
	gantry_devtime_account(&timed, 0, 2);
	gantry_devtime_account(&timed, 2, 5);
	gantry_devtime_account(&timed, 5, 8);
	for (unsigned int i = 0; i < 8; i++)
		ck_assert_uint_gt(device_ns[i], 0);
	ck_assert_uint_eq(timed.first, timed.next);
}
END_TEST

/* Positions go round. */
START_TEST(test_word_in_the_middle_of_a_batch_at_the_end_of_numbers)
{
	put_batch(-2u, 2);
	gantry_devtime_account(&timed, -2u, 1);
	gantry_devtime_account(&timed, 1, 2);
	ck_assert_uint_gt(device_ns[1], 0);
	ck_assert_uint_eq(timed.first, timed.next);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("devtime");
	TCase *tc = gantry_unit_case(suite, "devtime");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_batch_with_events_shares_the_time_between_them);
	tcase_add_test(tc, test_word_in_the_middle_of_a_batch_ends_there);
	tcase_add_test(tc, test_word_in_the_middle_of_a_batch_at_the_end_of_numbers);
	return gantry_unit_run(suite);
}
