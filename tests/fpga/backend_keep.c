/* SPDX-License-Identifier: Apache-2.0 */
/* What stays on the board after a launch: found when it is the same, and never when it is not. */
#include "tests/fpga/backend.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"

START_TEST(test_contents_that_are_the_same_are_not_copied_again)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[3];

	put("scale", SCALE);
	device_open("", NULL);
	ck_assert(device.info.caps & GANTRY_CAP_KEEPS);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	m[2] = shared(2, 1);
	run_well(stream, known_scale(scale, m[0], m[1], 1, 2, 3));
	check_copies(2 * BYTES, 0, BYTES);
	/* Nothing is copied to the board; what it has is the same. */
	run_well(stream, known_scale(scale, m[0], m[1], 1, 3, 4));
	check_copies(0, 2 * BYTES, BYTES);
	check_scale(kept[1], 3);
	/* What a launch wrote is what the next reads. */
	run_well(stream, known_scale(scale, m[1], m[2], 4, 5, 6));
	check_copies(BYTES, BYTES, BYTES);
	check_scale(kept[2], 9);
	/* Other contents: the host wrote them. */
	kept[0][0] = ++in_a[0];
	run_well(stream, known_scale(scale, m[0], m[1], 7, 4, 8));
	check_copies(BYTES, BYTES, BYTES);
	check_scale(kept[1], 3);
	/* Not known: copied each time. */
	for (int i = 0; i < 2; i++) {
		kept[0][0] = ++in_a[0];
		run_well(stream, known_scale(scale, m[0], m[1], 0, 0, 0));
		check_copies(2 * BYTES, 0, BYTES);
		check_scale(kept[1], 3);
	}
	/* And what was known of them before is nothing any more. */
	run_well(stream, known_scale(scale, m[0], m[1], 7, 8, 9));
	check_copies(2 * BYTES, 0, BYTES);
	device_close();
}
END_TEST

/* A loading that loses memory, or fails; the board that says so has other bytes there then. */
START_TEST(test_nothing_is_found_on_a_board_that_lost_its_memory)
{
	struct gantry_kernel *scale, *vadd;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_cmd cmd;

	put_memory = "lost";
	put("scale", SCALE);
	put("vadd", VADD);
	device_open("memory_lost=1", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	vadd = kernel_of("vadd", "vadd", VADD_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	run_well(stream, known_scale(scale, m[0], m[1], 1, 2, 3));
	cmd = vadd_of(vadd, out[1], N);
	run_well(stream, cmd);
	check_copies(5 * BYTES, 0, 2 * BYTES);
	run_well(stream, known_scale(scale, m[1], m[0], 3, 1, 4));
	check_copies(2 * BYTES, 0, BYTES);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(kept[0][i], (int32_t)(i * 2654435761u * 9));
	device_close();
	put_memory = "kept";
}
END_TEST

START_TEST(test_what_is_kept_makes_room_for_launches_that_need_it)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[8];

	/* Room for three buffers and a bit. */
	put("scale", SCALE);
	device_open("memory=14336", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	for (uint64_t i = 1; i < 8; i++) {
		m[i] = shared((uint32_t)i, 1);
		run_well(stream, known_scale(scale, m[0], m[i], 1, 10 + i, 20 + i));
		check_scale(kept[i], 3);
	}
	/* The one that all of them used was there each time, and two of the others'. */
	check_copies(8 * BYTES, 6 * BYTES, 7 * BYTES);
	run_well(stream, known_scale(scale, m[7], m[6], 27, 26, 30));
	check_copies(0, 2 * BYTES, BYTES);
	check_scale(kept[6], 9);
	device_close();
}
END_TEST

START_TEST(test_launch_that_fails_or_is_not_wanted_leaves_nothing_to_be_found)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_cmd cmd;

	put("scale", SCALE);
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	memset(kept[1], 0, BYTES);
	cmd = known_scale(scale, m[0], m[1], 1, 2, 3);
	cmd.launch.args[3].value.u64 = N + 1; /* the unit refuses it */
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_E_KERNEL);
	check_copies(2 * BYTES, 0, 0);
	ck_assert_int_eq(kept[1][1], 0);
	run_well(stream, known_scale(scale, m[0], m[1], 1, 3, 4));
	check_copies(2 * BYTES, 0, BYTES);
	check_scale(kept[1], 3);
	device_close();
}
END_TEST

/* Ranges that overlap, of one memory: what one launch writes is not what another's part had. */
START_TEST(test_writing_a_part_makes_other_parts_stale)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *both;
	struct gantry_cmd cmd;

	put("scale", SCALE);
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	both = shared(0, 8);
	cmd = known_scale(scale, both, both, 1, 1, 2);
	cmd.launch.args[1].range.off = BYTES;
	run_well(stream, cmd);
	/* Half of what is read, with the same number. */
	cmd = known_scale(scale, both, both, 2, 2, 3);
	cmd.launch.args[0].range.off = BYTES;
	cmd.launch.args[1].range.off = BYTES / 2;
	run_well(stream, cmd);
	check_copies(2 * BYTES + BYTES, BYTES, 2 * BYTES);
	cmd = known_scale(scale, both, both, 2, 2, 4);
	cmd.launch.args[0].range.off = BYTES;
	cmd.launch.args[1].range.off = 4 * BYTES;
	run_well(stream, cmd);
	check_copies(2 * BYTES, 0, BYTES);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(kept[0][4 * N + i], (int32_t)((uint32_t)kept[0][N + i] * 3));
	device_close();
}
END_TEST

START_TEST(test_board_that_is_to_keep_nothing_keeps_nothing)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device none;

	put("scale", SCALE);
	if (!is_seated()) {
		ck_assert_int_eq(try_open("", "keep=some", &none, &err), -EINVAL);
		ck_assert_ptr_nonnull(strstr(err.text, "keep: \"some\" is not yes or no"));
	}
	device_open("", "keep=no");
	ck_assert(!(device.info.caps & GANTRY_CAP_KEEPS));
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	for (uint64_t i = 0; i < 2; i++)
		run_well(stream, known_scale(scale, m[0], m[1], 1, 2 + i, 3 + i));
	check_copies(4 * BYTES, 0, 2 * BYTES);
	device_close();
}
END_TEST

/* It was wanted when it went to the board, and is not any more when it ends there. */
START_TEST(test_launch_that_is_cancelled_on_the_board_ends_there_and_changes_nothing)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_cmd cmd;
	struct gantry_done done;

	put("scale", SCALE);
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	/* Its image is there: then the board's thread asks once before it begins. */
	run_well(stream, known_scale(scale, m[0], m[1], 1, 2, 3));
	check_copies(2 * BYTES, 0, BYTES);
	memset(kept[1], 0, BYTES);
	cmd = known_scale(scale, m[0], m[1], 4, 5, 6);
	/* A seat's holder asks of all that its page says. */
	gantry_store_release(&cancel, is_seated() ? 1u : BEHIND_THE_NEXT);
	done = run(stream, &cmd);
	gantry_store_release(&cancel, 0u);
	ck_assert_int_eq(done.status, GANTRY_E_CANCELLED);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	check_copies(is_seated() ? 0 : 2 * BYTES, 0, 0); /* it was there, and nothing came back */
	ck_assert_int_eq(kept[1][1], 0);
	/* Nothing that it wrote is found there; its unit and its stream go on. */
	run_well(stream, known_scale(scale, m[0], m[1], 4, 5, 7));
	check_copies(2 * BYTES, 0, BYTES);
	check_scale(kept[1], 3);
	device_close();
}
END_TEST

void backend_keep_tests(TCase *tc)
{
	tcase_add_test(tc, test_contents_that_are_the_same_are_not_copied_again);
	tcase_add_test(tc, test_nothing_is_found_on_a_board_that_lost_its_memory);
	tcase_add_test(tc, test_what_is_kept_makes_room_for_launches_that_need_it);
	tcase_add_test(tc, test_launch_that_fails_or_is_not_wanted_leaves_nothing_to_be_found);
	tcase_add_test(tc, test_writing_a_part_makes_other_parts_stale);
	tcase_add_test(tc, test_board_that_is_to_keep_nothing_keeps_nothing);
	tcase_add_test(tc,
		       test_launch_that_is_cancelled_on_the_board_ends_there_and_changes_nothing);
}
