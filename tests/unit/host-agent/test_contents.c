/* SPDX-License-Identifier: Apache-2.0 */
/* Which number a task is told of a buffer's contents, when tasks of several queues use it. */
#include <stdlib.h>

#include "host-agent/worker/memory.h"
#include "tests/unit/runner.h"

#define SLOT 7u

static struct gantry_ledger_queue led[4];
static struct wqueue queues[4];
static struct wdevice device;
static struct gantry_engine engine;
static struct wsession session;

static void begin(uint32_t caps)
{
	device.device.info.caps = caps;
	engine.devices[0] = &device;
	engine.ndevices = 1;
	session = (struct wsession){ .engine = &engine };
	session.ledger.queues = led;
	session.ledger.nqueues = 4;
	pthread_mutex_init(&session.contents_lock, NULL);
	for (uint32_t i = 0; i < 4; i++) {
		led[i] = (struct gantry_ledger_queue){ 0 };
		queues[i] = (struct wqueue){ .session = &session, .slot = i, .led = &led[i] };
	}
	ck_assert_int_eq(worker_contents_init(&session), 0);
}

static void end(void)
{
	pthread_mutex_destroy(&session.contents_lock);
	free(session.contents);
}

/* The next task of queue @q is bound: what it is told. */
static uint64_t bind(uint32_t q, bool write)
{
	uint64_t told = worker_contents_use(&queues[q], SLOT, write);

	led[q].issued++;
	return told;
}

static void finish(uint32_t q)
{
	led[q].done = led[q].issued;
}

START_TEST(test_no_numbers_are_kept_where_no_device_wants_any)
{
	begin(GANTRY_CAP_MEM_FD);
	ck_assert_ptr_null(session.contents);
	worker_contents_end(&session, SLOT); /* harmless */
	end();
}
END_TEST

START_TEST(test_readers_are_told_one_number_until_somebody_writes)
{
	uint64_t first, made;

	begin(GANTRY_CAP_KEEPS);
	first = bind(1, false);
	ck_assert_uint_ne(first, 0);
	ck_assert_uint_eq(bind(1, false), first);
	ck_assert_uint_eq(bind(2, false), first);
	/* The writer is told what it finds, and who follows in its queue what it made. */
	ck_assert_uint_eq(bind(1, true), first);
	made = queues[1].makes;
	ck_assert_uint_eq(queues[1].made_for, GANTRY_TICKET(1, 3));
	ck_assert_uint_ne(made, first);
	ck_assert_uint_eq(bind(1, false), made);
	finish(1);
	ck_assert_uint_eq(bind(2, false), made);
	end();
}
END_TEST

START_TEST(test_task_that_is_bound_again_or_has_the_buffer_twice_is_told_the_same)
{
	uint64_t first, made;

	begin(GANTRY_CAP_KEEPS);
	first = bind(1, false);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(worker_contents_use(&queues[1], SLOT, true), first);
		ck_assert_uint_eq(worker_contents_use(&queues[1], SLOT, false), first);
	}
	made = queues[1].makes;
	ck_assert_uint_eq(worker_contents_use(&queues[1], SLOT + 1, true) == made, 0);
	ck_assert_uint_eq(queues[1].makes, made); /* one for all that it writes */
	end();
}
END_TEST

START_TEST(test_reader_of_another_queue_knows_nothing_before_the_writer_has_finished)
{
	begin(GANTRY_CAP_KEEPS);
	(void)bind(1, true);
	ck_assert_uint_eq(bind(2, false), 0);
	ck_assert_uint_eq(bind(2, true), 0);
	finish(1);
	finish(2);
	ck_assert_uint_ne(bind(1, false), 0);
	end();
}
END_TEST

/* Either may be the last to write: what a board has of one need not be what the host has of the other. */
START_TEST(test_two_writers_at_once_leave_what_is_neithers)
{
	uint64_t made1, made2, after;

	begin(GANTRY_CAP_KEEPS);
	(void)bind(1, true);
	made1 = queues[1].makes;
	ck_assert_uint_eq(bind(2, true), 0);
	made2 = queues[2].makes;
	ck_assert_uint_eq(bind(2, false), 0);
	finish(2);
	ck_assert_uint_eq(bind(2, false), 0);
	ck_assert_uint_eq(bind(1, false), 0);
	ck_assert_uint_eq(bind(1, true), 0);
	finish(1);
	after = bind(3, false);
	ck_assert_uint_ne(after, 0);
	ck_assert_uint_ne(after, made1);
	ck_assert_uint_ne(after, made2);
	ck_assert_uint_ne(after, queues[1].makes);
	ck_assert_uint_eq(bind(3, false), after);
	end();
}
END_TEST

START_TEST(test_three_writers_at_once_are_too_many_until_the_buffer_ends)
{
	begin(GANTRY_CAP_KEEPS);
	for (uint32_t q = 1; q < 4; q++)
		(void)bind(q, true);
	for (uint32_t q = 1; q < 4; q++)
		finish(q);
	ck_assert_uint_eq(bind(1, false), 0);
	worker_contents_end(&session, SLOT);
	ck_assert_uint_ne(bind(1, false), 0);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("contents");
	TCase *tc = gantry_unit_case(suite, "contents");

	tcase_add_test(tc, test_no_numbers_are_kept_where_no_device_wants_any);
	tcase_add_test(tc, test_readers_are_told_one_number_until_somebody_writes);
	tcase_add_test(tc, test_task_that_is_bound_again_or_has_the_buffer_twice_is_told_the_same);
	tcase_add_test(tc,
		       test_reader_of_another_queue_knows_nothing_before_the_writer_has_finished);
	tcase_add_test(tc, test_two_writers_at_once_leave_what_is_neithers);
	tcase_add_test(tc, test_three_writers_at_once_are_too_many_until_the_buffer_ends);
	return gantry_unit_run(suite);
}
