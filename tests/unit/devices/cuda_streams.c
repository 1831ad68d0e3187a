/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend over the fake driver: streams, who is woken, and device time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/cuda/backend.h"
#include "tests/unit/devices/cuda_fixture.h"
#include "tests/unit/runner.h"

/* ---- streams ---- */

START_TEST(test_full_stream_says_again_and_goes_on)
{
	static struct gantry_done done[1024];
	uint64_t n = 0;

	open_device(NULL);
	struct gantry_cmd nap = launch_cmd(ptx_image(), "nap", "u32");
	nap.launch.args[0].value.u32 = 20;
	ck_assert_int_eq(submit(&nap, n++), 0);
	nap.launch.args[0].value.u32 = 0;
	while (submit(&nap, n) == 0)
		ck_assert_uint_lt(++n, GANTRY_ARRAY_SIZE(done));
	ck_assert_int_eq(submit(&nap, n), -EAGAIN);
	wait_done(done, (unsigned int)n);
	for (uint64_t i = 0; i < n; i++)
		ck_assert_uint_eq(done[i].tag, i);
	run_ok(nap);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_streams_past_the_last_are_refused)
{
	const struct gantry_stream_attr attr = { .priority = INT32_MIN };
	struct gantry_stream *more;
	unsigned int n = 1;
	int r;

	open_device(NULL);
	while ((r = device.backend->stream_create(device.dev, &attr, &more, &err)) == 0)
		ck_assert_uint_lt(++n, 100000);
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert_ptr_nonnull(strstr(err.text, "streams"));
	device.backend->stream_destroy(stream);
	stream = new_stream(&device, INT32_MAX);
	run_ok(fill_cmd(device_mem(64), 0, 64, 1, 1));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_device_without_stream_memory_operations_works)
{
	static uint32_t x = 1;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuStreamWriteValue32:1+:801", 1), 0);
	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ host_mem(&x, 4), 0, 4 };
	cmd.launch.args[1].value.u32 = 1;
	for (unsigned int i = 0; i < 300; i++)
		run_ok(cmd);
	ck_assert_uint_eq(x, 301);
	gantry_device_close(&device);
}
END_TEST

/* Sleeps as the device thread does: after a poll() that had nothing, until the device wakes it. */
START_TEST(test_completion_wakes_whoever_does_not_poll)
{
	open_device(NULL);
	struct gantry_cmd nap = launch_cmd(ptx_image(), "nap", "u32");
	for (uint32_t ms = 0; ms < 60; ms += 6) {
		struct gantry_done done;

		nap.launch.args[0].value.u32 = ms;
		ck_assert_int_eq(submit(&nap, ms), 0);
		device.backend->flush(stream);
		sleep_until_done(&done);
		ck_assert_uint_eq(done.tag, ms);
	}
	gantry_device_close(&device);
}
END_TEST

/* The thread that watches goes to sleep when there is nothing to watch, and is woken by work. */
START_TEST(test_completion_wakes_also_after_a_long_pause)
{
	open_device(NULL);
	struct gantry_cmd nap = launch_cmd(ptx_image(), "nap", "u32");
	nap.launch.args[0].value.u32 = 1;
	for (unsigned int i = 0; i < 5; i++) {
		struct gantry_done done;

		(void)usleep(30000); /* past the time after which it sleeps; correct either way */
		ck_assert_int_eq(submit(&nap, i), 0);
		device.backend->flush(stream);
		sleep_until_done(&done);
	}
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_overlap_of_streams_counts_once)
{
	struct gantry_done done[3];
	struct gantry_stream *streams[3];
	uint64_t start, wall, sum = 0;

	open_device(NULL);
	struct gantry_cmd nap = launch_cmd(ptx_image(), "nap", "u32");
	nap.launch.args[0].value.u32 = 60;
	for (unsigned int i = 0; i < 3; i++)
		streams[i] = new_stream(&device, 0);
	start = gantry_now_ns();
	for (unsigned int i = 0; i < 3; i++) {
		nap.tag = i;
		ck_assert_int_eq(device.backend->submit(streams[i], &nap), 0);
	}
	wait_done(done, 3);
	wall = gantry_now_ns() - start;
	for (unsigned int i = 0; i < 3; i++)
		sum += done[i].device_ns;
	ck_assert_uint_le(sum, wall + wall / 20);
	ck_assert_uint_ge(sum, 50 * GANTRY_NS_PER_MS);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_time_of_a_batch_goes_by_what_was_expected)
{
	struct gantry_done done[2];

	open_device(NULL);
	struct gantry_image *image = ptx_image();
	struct gantry_cmd longer = launch_cmd(image, "nap", "u32");
	struct gantry_cmd shorter = launch_cmd(image, "nap", "u32");
	longer.launch.args[0].value.u32 = 200; /* a busy machine makes the other one long too */
	shorter.launch.args[0].value.u32 = 1;
	(void)run(&longer);
	(void)run(&shorter);
	ck_assert_int_eq(submit(&longer, 1), 0);
	ck_assert_int_eq(submit(&shorter, 2), 0);
	wait_done(done, 2);
	ck_assert_uint_gt(done[0].device_ns, done[1].device_ns);
	ck_assert_uint_ge(done[0].device_ns + done[1].device_ns, 190 * GANTRY_NS_PER_MS);
	gantry_device_close(&device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_streams");
	TCase *streams = gantry_unit_case(suite, "streams");

	tcase_add_test(streams, test_full_stream_says_again_and_goes_on);
	tcase_add_test(streams, test_streams_past_the_last_are_refused);
	tcase_add_test(streams, test_device_without_stream_memory_operations_works);
	tcase_add_test(streams, test_completion_wakes_whoever_does_not_poll);
	tcase_add_test(streams, test_completion_wakes_also_after_a_long_pause);
	tcase_add_test(streams, test_overlap_of_streams_counts_once);
	tcase_add_test(streams, test_time_of_a_batch_goes_by_what_was_expected);
	return gantry_unit_run(suite);
}
