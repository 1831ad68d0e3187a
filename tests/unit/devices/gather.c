/* SPDX-License-Identifier: Apache-2.0 */
/* What is gathered while a device has enough to do (devices/gather.h), and that backends do so. */
#include "devices/gather.h"

#include "base/array.h"
#include "tests/unit/devices/steps.h"
#include "tests/unit/runner.h"

#define US 1000u

/* ---- the rule ---- */

/* What is in flight, in microseconds; a 0 behind each batch. */
static uint32_t flight[16];

static struct gantry_devtime_cmd cmd_at(struct gantry_stream *stream, uint32_t position)
{
	(void)stream;
	return (struct gantry_devtime_cmd){ .estimate_ns = flight[position] * US,
					    .closes = flight[position + 1] == 0 };
}

static const struct gantry_devtime_driver driver = { .cmd_at = cmd_at };

static const struct {
	uint32_t flight[8];
	uint32_t gathered;
	bool much, waits;
} rows[] = {
	{ { 5, 0, 5 }, 400, false, true }, /* little: until the older batch has ended */
	/* A device that is looked at late has no more to do. */
	{ { 300, 0, 200 }, 10, true, false },
	{ { 250, 0, 250, 250 }, 10, true, true },
	{ { 250, 0, 250, 250 }, 110, true, false },  /* an eighth */
	{ { 400, 400, 0, 3500 }, 510, true, false }, /* enough of it */
	{ { 400, 400, 0, 3500 }, 490, true, true },
	/* All but the batch behind it is the older one; and it may be told a sixteenth later than it ends. */
	{ { 4000, 0, 150 }, 20, true, false },
	{ { 4000, 0, 430 }, 20, true, false },
	{ { 4000, 0, 480 }, 20, true, true },
};

START_TEST(test_what_is_gathered_is_little_beside_what_is_in_flight)
{
	struct gantry_devtime device = { .driver = &driver };
	struct gantry_devtime_stream time = { .of = &device };
	struct gantry_gather gather = { 0 };
	uint32_t n = 0;

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(rows[_i].flight); i++) {
		flight[i] = rows[_i].flight[i];
		gantry_gather_add(&gather, flight[i] * US);
		if (flight[i])
			n = i + 1;
	}
	gather.gathered_ns = 0;
	gantry_gather_add(&gather, rows[_i].gathered * US);
	ck_assert_int_eq(gantry_gather_is_much(&gather), rows[_i].much);
	ck_assert_int_eq(gantry_gather_waits(&gather, &time, 0, n), rows[_i].waits);
}
END_TEST

/* ---- backends ---- */

/* More batches than the device is given at a time: the rest goes off as those end, also when nobody polls in between. */
START_TEST(test_gathered_batches_go_off_without_being_flushed_again)
{
	steps_begin((enum steps_backend)_i, NULL, NULL);
	for (unsigned int round = 0; round < 5; round++) {
		struct gantry_done done;

		for (unsigned int i = 0; i < 60; i++) {
			steps_submit(steps_step(1), i);
			steps.device.backend->flush(steps.stream);
		}
		for (unsigned int i = 0; i < 60; i++) {
			steps_sleep(&done);
			ck_assert_uint_eq(done.tag, i);
		}
	}
	ck_assert_uint_eq(steps_word(), 300);
	steps_end();
}
END_TEST

#define PILED 100u
#define BATCH 32u

/* Much to do for a device that is held up meanwhile: how often something was sent to it. */
static unsigned int pile_up(void)
{
	struct gantry_cmd nap = steps_launch_of("nap", "u32"), step = steps_step(1);
	struct gantry_done done;
	unsigned int nsent = 0;

	nap.launch.args[0].value.u64 =
		300; /* ms: time enough for what follows, on a busy machine too */
	steps_expect(nap.launch.kernel, 400 * US);
	steps_expect(step.launch.kernel, 20 * US);
	steps_submit(nap, PILED);
	steps.device.backend->flush(steps.stream);
	for (unsigned int i = 0; i < PILED; i++) {
		steps_submit(step, i);
		steps.device.backend->flush(steps.stream);
		ck_assert_uint_eq(steps.device.backend->poll(steps.device.dev, &done, 1), 0);
		nsent += steps_nkept() == 0;
	}
	return nsent;
}

/*
 * A device that has milliseconds to do gets a write behind some kernels, not behind each that comes alone: the write costs it
 * more than a microsecond. What is held back goes off in time, also when nobody looks before something has ended.
 */
START_TEST(test_writes_are_few_while_much_is_in_flight)
{
	struct gantry_done done;

	steps_begin_bare((enum steps_backend)_i);
	ck_assert_uint_le(pile_up(), 40);
	ck_assert_uint_lt(steps_nkept(), BATCH);
	for (unsigned int i = 0; i <= PILED; i++) {
		steps_sleep(&done);
		ck_assert_uint_eq(done.tag, i ? i - 1 : PILED);
	}
	ck_assert_uint_eq(steps_word(), PILED);
	steps_end();
}
END_TEST

/* What is gathered behind a long one is not so much that the device would have nothing to do, once that has ended. */
START_TEST(test_device_has_work_behind_the_batch_that_runs)
{
	struct gantry_cmd nap;

	steps_begin_bare((enum steps_backend)_i);
	nap = steps_launch_of("nap", "u32");
	nap.launch.args[0].value.u64 = 300;
	steps_expect(nap.launch.kernel, 400 * US);
	steps_submit(nap, 0);
	steps_expect(steps_step(1).launch.kernel, 30 * US);
	for (unsigned int i = 1; i <= 6; i++) {
		steps_submit(steps_step(1), i);
		steps.device.backend->flush(steps.stream);
	}
	/* Less than 200 us behind it are not enough. */
	ck_assert_uint_eq(steps_nkept(), 0);
	for (unsigned int i = 0; i <= 6; i++) {
		struct gantry_done done;

		steps_wait(&done, 1);
		ck_assert_uint_eq(done.tag, i);
	}
	steps_end();
}
END_TEST

/*
 * What ends makes room, and who had no room puts more at once: that goes with what was gathered. Else batches that were small once stay
 * so, each as large as the one that made room for it.
 */
START_TEST(test_what_comes_in_the_room_of_an_end_goes_with_what_was_gathered)
{
	struct gantry_cmd nap, step;
	struct gantry_done done;

	steps_begin_bare((enum steps_backend)_i);
	nap = steps_launch_of("nap", "u32");
	step = steps_step(1);
	for (unsigned int i = 0; i < 2; i++) {
		nap.launch.args[0].value.u64 = i ? 300 : 10;
		steps_expect(nap.launch.kernel, 20 * US);
		steps_submit(nap, i);
		steps.device.backend->flush(steps.stream);
	}
	steps_expect(step.launch.kernel, 5 * US);
	steps_submit(step, 2);
	steps.device.backend->flush(steps.stream);
	ck_assert_uint_eq(steps_nkept(), 1);
	steps_wait(&done, 1);
	ck_assert_uint_eq(steps_nkept(), 1);
	steps_submit(step, 3);
	steps.device.backend->flush(steps.stream);
	ck_assert_uint_eq(steps_nkept(), 0);
	for (unsigned int i = 1; i <= 3; i++) {
		steps_sleep(&done);
		ck_assert_uint_eq(done.tag, i);
	}
	steps_end();
}
END_TEST

START_TEST(test_boundary_is_told_without_what_follows)
{
	struct gantry_done done[PILED + 2];

	steps_begin_bare((enum steps_backend)_i);
	(void)pile_up();
	steps_submit(steps_step(1), 0);
	ck_assert_uint_gt(steps_nkept(), 0);
	steps.device.backend->boundary(steps.stream);
	ck_assert_uint_eq(steps_nkept(), 0);
	steps_wait(done, PILED + 2);
	/* Nothing is in flight: nothing to tell. */
	steps.device.backend->boundary(steps.stream);
	ck_assert_uint_eq(steps_word(), PILED + 1);
	steps_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gather");
	TCase *rule = gantry_unit_case(suite, "rule");
	TCase *backends = gantry_unit_case(suite, "backends");

	tcase_add_loop_test(rule, test_what_is_gathered_is_little_beside_what_is_in_flight, 0,
			    (int)GANTRY_ARRAY_SIZE(rows));
	tcase_add_loop_test(backends, test_gathered_batches_go_off_without_being_flushed_again, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(backends, test_writes_are_few_while_much_is_in_flight, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(backends, test_device_has_work_behind_the_batch_that_runs, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(backends,
			    test_what_comes_in_the_room_of_an_end_goes_with_what_was_gathered, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(backends, test_boundary_is_told_without_what_follows, 0,
			    STEPS_BACKENDS);
	return gantry_unit_run(suite);
}
