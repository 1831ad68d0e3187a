/* SPDX-License-Identifier: Apache-2.0 */
/* Boards that fail: loadings, copies, manifests that lie, launches without end, and the whole of it gone. */
#include "tests/fpga/backend.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"

START_TEST(test_failed_loading_is_tried_again)
{
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_cmd cmd;

	put_three();
	device_open("fail_loads=2", NULL);
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N);
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_OK);
	check_vadd(out[0], N);
	ck_assert_int_eq(health_of_board(&health, &err), 0);
	ck_assert_uint_eq(health.nfaults, 0);
	device_close();
}
END_TEST

START_TEST(test_image_that_does_not_load_is_reported_and_others_go_on)
{
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_cmd cmd;
	struct gantry_done done;

	put_three();
	/* Twice in each of two regions. */
	device_open("fail_loads=4", "retries=1");
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N);
	done = run(stream_of(0), &cmd);
	ck_assert_int_eq(done.status, GANTRY_E_IMAGE);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(health_of_board(&health, &err), 0);
	ck_assert_uint_eq(health.nfaults, 2);
	ck_assert_ptr_nonnull(strstr(err.text, "bitstream vadd did not load at "));
	ck_assert_ptr_nonnull(strstr(err.text, "the configuration port reports an error"));
	cmd = scale_of(kernel_of("scale", "scale", SCALE_SIG), out[1], 7);
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_OK);
	check_scale(out[1], 7);
	device_close();
}
END_TEST

START_TEST(test_manifest_that_lies_about_its_kernels_is_found_out)
{
	static const char *const lies[] = {
		"kernel scale r:i32*,w:i32*,i32 window 0\n",
		"kernel scale r:i32*,w:i32*,i32,u64 window 1\n",
		"kernel scale r:i32*,w:i32*,i32,u64 window 0 units 2\n",
	};
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_cmd cmd;

	put("scale", lies[_i]);
	device_open("", "retries=0");
	fill_inputs();
	if (_i == 0) {
		cmd = scale_of(kernel_of("scale", "scale", "r:i32*,w:i32*,i32"), out[0], 7);
		cmd.launch.nargs = 3;
	} else {
		cmd = scale_of(kernel_of("scale", "scale", SCALE_SIG), out[0], 7);
	}
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_E_IMAGE);
	ck_assert_int_eq(health_of_board(&health, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "holds no kernel scale"));
	device_close();
}
END_TEST

/* What was kept is given up, and nobody computes with what is there instead. */
START_TEST(test_manifest_that_lies_about_memory_is_found_out_when_something_is_kept)
{
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_cmd cmd;

	put("scale", SCALE);
	put("vadd", VADD);
	device_open("memory_lost=1", "retries=0");
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	run_well(stream, known_scale(scale, m[0], m[1], 1, 2, 3));
	check_copies(2 * BYTES, 0, BYTES);
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N);
	/* Of the other region, for nothing is kept then that could tell. */
	run_well(stream, cmd);
	ck_assert_int_eq(health_of_board(&health, &err), 0);
	ck_assert_uint_ge(health.nfaults, 1);
	ck_assert_ptr_nonnull(strstr(err.text, "bitstream vadd did not load at "));
	ck_assert_ptr_nonnull(strstr(err.text, "loading it loses that"));
	check_copies(3 * BYTES, 0, BYTES);
	run_well(stream, known_scale(scale, m[1], m[0], 3, 1, 4));
	check_copies(2 * BYTES, 0, BYTES);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(kept[0][i], (int32_t)((uint32_t)in_a[i] * 9));
	device_close();
}
END_TEST

START_TEST(test_failed_copy_to_the_board_fails_its_launch_only)
{
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done;

	put_three();
	device_open("fail_copies=1", NULL);
	stream = stream_of(0);
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N);
	done = run(stream, &cmd);
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_FAULT);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_OK);
	check_vadd(out[0], N);
	device_close();
}
END_TEST

START_TEST(test_lost_board_ends_everything_and_takes_nothing_more)
{
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_kernel *vadd;
	struct gantry_cmd cmd;
	struct gantry_done done[8];
	unsigned int nsubmitted = 0;

	put_three();
	device_open("lost_after=0", NULL);
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", VADD_SIG);
	cmd = vadd_of(vadd, out[0], N);
	for (int s = 0; s < 4; s++) {
		struct gantry_stream *stream = stream_of(0);

		/* The first of them may find the board lost already. */
		for (int i = 0; i < 2; i++)
			if (submit(stream, &cmd) == 0)
				nsubmitted++;
	}
	ck_assert_uint_ge(nsubmitted, 1);
	wait_for(done, nsubmitted);
	for (unsigned int i = 0; i < nsubmitted; i++) {
		ck_assert_int_eq(done[i].status, GANTRY_E_DEVICE_LOST);
		ck_assert_uint_eq(done[i].blast, GANTRY_BLAST_DEVICE);
	}
	ck_assert_int_eq(health_of_board(&health, &err), -EIO);
	ck_assert_str_eq(err.text, "the board is gone");
	device_close();
}
END_TEST

/* It is told of its launch; what cannot know is a successor's affair, from whom a seat hears nothing. */
static void check_endless(const struct gantry_done *done)
{
	struct gantry_device_health health;
	struct gantry_err err;
	uint64_t worker = 0;
	const char *kernel = "";

	ck_assert_int_eq(done->status, GANTRY_E_DEADLINE);
	ck_assert_uint_eq(done->blast, is_seated() ? GANTRY_BLAST_CMD : GANTRY_BLAST_CONTEXT);
	ck_assert_int_eq(health_of_board(&health, &err), 0); /* the board itself is well */
	if (!is_seated())
		return;
	ck_assert(gantry_seat_holder_blames(held.holder, &worker, &kernel));
	ck_assert_uint_eq(worker, 1);
	ck_assert_str_eq(kernel, "vadd");
}

/* A board has no way to take one off it, and others wait for the region. */
START_TEST(test_cancelled_launch_that_does_not_end_costs_the_board)
{
	struct gantry_stream *stream;
	struct gantry_done done;
	struct gantry_cmd cmd;

	put_three();
	device_open("hang=1", "stuck=200ms");
	fill_inputs();
	stream = stream_of(0);
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N);
	/* One that was cancelled before it was on the board just ends; so the next is given longer to get there. */
	for (uint64_t ms = 50; ms < 20000; ms *= 2) {
		uint64_t until_ns = gantry_now_ns() + ms * GANTRY_NS_PER_MS;

		ck_assert_int_eq(submit(stream, &cmd), 0);
		while (gantry_now_ns() < until_ns) {
			uint32_t seen = gantry_load_acquire(&nwakes);

			ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
			(void)gantry_futex_wait(&nwakes, seen, until_ns);
		}
		gantry_store_release(&cancel, 1u);
		wait_for(&done, 1);
		if (done.status != GANTRY_E_CANCELLED)
			break;
		gantry_store_release(&cancel, 0u);
	}
	check_endless(&done);
	device_close();
}
END_TEST
START_TEST(test_launch_that_takes_longer_than_any_may_ends_and_nobody_else_is_told_of_a_fault)
{
	const char *of_vadd = VADD_SIG;
	struct gantry_stream *endless, *other;
	struct gantry_kernel *vadd;
	struct gantry_done done;
	struct gantry_cmd cmd;

	put_three();
	device_open("hang_n=100", "longest=300ms");
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", of_vadd);
	endless = stream_of(0);
	other = stream_of(0);
	cmd = vadd_of(vadd, out[1], N);
	ck_assert_int_eq(submit(other, &cmd), 0);
	wait_for(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_OK);
	cmd = vadd_of(vadd, out[0], 100);
	ck_assert_int_eq(submit(endless, &cmd), 0);
	wait_for(&done, 1);
	check_endless(&done);
	device_close();
}
END_TEST

void backend_fault_tests(TCase *tc)
{
	tcase_add_test(tc, test_failed_loading_is_tried_again);
	tcase_add_test(tc, test_image_that_does_not_load_is_reported_and_others_go_on);
	tcase_add_loop_test(tc, test_manifest_that_lies_about_its_kernels_is_found_out, 0, 3);
	tcase_add_test(tc,
		       test_manifest_that_lies_about_memory_is_found_out_when_something_is_kept);
	tcase_add_test(tc, test_failed_copy_to_the_board_fails_its_launch_only);
	tcase_add_test(tc, test_lost_board_ends_everything_and_takes_nothing_more);
	tcase_add_test(tc, test_cancelled_launch_that_does_not_end_costs_the_board);
	tcase_add_test(
		tc,
		test_launch_that_takes_longer_than_any_may_ends_and_nobody_else_is_told_of_a_fault);
}
