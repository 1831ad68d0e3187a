/* SPDX-License-Identifier: Apache-2.0 */
/* The fpga backend over the test board: what it opens, results, and sharing. backend_*.c have the rest. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "tests/fpga/backend.h"

START_TEST(test_open_says_what_is_wrong)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device none;

	put_three();
	ck_assert_int_eq(try_open("speed=3", NULL, &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "board: no such option"));
	ck_assert_int_eq(try_open("", "mode=fast", &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "mode: \"fast\" is not auto, single or spatial"));
	ck_assert_int_eq(try_open("", "age=soon", &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "age"));
	put_file("scale", ".bit", "bits", 4);
	ck_assert_int_eq(try_open("", NULL, &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "scale.bit is not the file that the manifest"));
	put_file("scale", ".bitstream", "bitstream scale 1\nboard b\n", 26);
	ck_assert_int_eq(try_open("", NULL, &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "scale.bitstream: "));
	drop_all();
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_one_process_has_the_board)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device second;
	char lock[] = "/tmp/gantry-fpga-lock-XXXXXX", options[64];
	int fd = mkstemp(lock);

	ck_assert_int_ge(fd, 0);
	(void)snprintf(options, sizeof(options), "lock=%s", lock);
	put_three();
	device_open(options, NULL);
	ck_assert_uint_eq(device.info.kind, GANTRY_KIND_FPGA);
	ck_assert(device.info.caps & GANTRY_CAP_EXCLUSIVE);
	ck_assert_int_eq(try_open(options, NULL, &second, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "board: another process has the board"));
	gantry_fd_close(fd);
	(void)unlink(lock);
	device_close();
}
END_TEST

/* Of all of it, or of a part that begins where the board's memory could not have it begin. */
START_TEST(test_kernel_works_on_memory_behind_a_descriptor)
{
	uint64_t off = _i == 2 ? 4 : 0;
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done;
	struct gantry_mem *mem;
	int32_t *seen;
	int fd;

	put_three();
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	ck_assert_int_eq(gantry_memfd_create("fpga", 2 * sizeof(in_a), _i ? GANTRY_MEMFD_SEALED : 0,
					     &fd),
			 0);
	ck_assert_int_eq(
		device.backend->mem_import(device.dev, fd, 0, 2 * sizeof(in_a), &mem, NULL), 0);
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N - 1);
	arg(&cmd, 2, mem, off, sizeof(in_a));
	done = run(stream, &cmd);
	ck_assert_int_eq(done.status, GANTRY_OK);
	ck_assert_uint_gt(done.device_ns, 0);
	seen = mmap(NULL, 2 * sizeof(in_a), PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	check_vadd(seen + off / 4, N - 1);
	/* What the kernel does not write stays. */
	ck_assert_int_eq(seen[off / 4 + N - 1], 0);
	munmap(seen, 2 * sizeof(in_a));
	gantry_fd_close(fd);
	device_close();
}
END_TEST

START_TEST(test_copies_and_fills_keep_their_order_with_launches)
{
	struct gantry_cmd fill = { .kind = GANTRY_CMD_FILL }, copy = { .kind = GANTRY_CMD_COPY };
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done[4];

	put_three();
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	cmd = scale_of(kernel_of("scale", "scale", SCALE_SIG), out[0], 3);
	fill.fill.dst = (struct gantry_range){ mem_of(out[0], sizeof(out[0])), 0, sizeof(out[0]) };
	fill.fill.pattern = 0x0102030405060708;
	fill.fill.pattern_bytes = 8;
	copy.copy.src = (struct gantry_range){ mem_of(out[0], sizeof(out[0])), 0, 2048 };
	copy.copy.dst = (struct gantry_range){ mem_of(out[1], sizeof(out[1])), 2048, 2048 };
	ck_assert_int_eq(submit(stream, &fill), 0);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	ck_assert_int_eq(submit(stream, &copy), 0);
	fill.fill.pattern_bytes = 1;
	ck_assert_int_eq(submit(stream, &fill), 0);
	wait_for(done, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	ck_assert_int_eq(out[1][512], (int32_t)((uint32_t)in_a[0] * 3));
	ck_assert_int_eq(out[1][1023], (int32_t)((uint32_t)in_a[511] * 3));
	ck_assert_int_eq(out[0][7], 0x08080808);
	device_close();
}
END_TEST

static const struct {
	const char *mode;
	const char *board;
} mixes[] = {
	{ "mode=auto", "" },
	{ "mode=single", "load_ms=3" },
	{ "mode=spatial", "" },
	{ "age=200ms", "memory_lost=1 load_ms=1" },
};

/* Three kernels for two regions, five streams: images have to be changed, and every result is right. */
START_TEST(test_streams_of_several_kernels_share_the_board)
{
	struct gantry_kernel *vadd, *scale, *stencil;
	struct gantry_done done[60];

	put_three();
	put("pair", PAIR);
	device_open(mixes[_i].board, mixes[_i].mode);
	fill_inputs();
	vadd = kernel_of("pair", "vadd", VADD_SIG);
	scale = kernel_of("pair", "scale", SCALE_SIG);
	stencil = kernel_of("vadd", "stencil", STENCIL_SIG);
	for (int s = 0; s < 5; s++) {
		struct gantry_stream *stream = stream_of(s == 4);
		struct gantry_cmd cmd = s % 3 == 0   ? vadd_of(vadd, out[s], N)
					: s % 3 == 1 ? scale_of(scale, out[s], s + 5)
						     : stencil_of(stencil, out[s]);

		for (int i = 0; i < 12; i++)
			ck_assert_int_eq(submit(stream, &cmd), 0);
	}
	wait_for(done, 60);
	for (int i = 0; i < 60; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	check_vadd(out[0], N);
	check_scale(out[1], 6);
	check_stencil(out[2]);
	check_vadd(out[3], N);
	check_scale(out[4], 9);
	device_close();
}
END_TEST

START_TEST(test_refused_arguments_hurt_their_command_only)
{
	struct gantry_kernel *vadd;
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done;

	put_three();
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", VADD_SIG);
	cmd = vadd_of(vadd, out[0], N + 1);
	done = run(stream, &cmd);
	ck_assert_int_eq(done.status, GANTRY_E_KERNEL);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(out[0][0], 0);
	cmd = vadd_of(vadd, out[0], N);
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_OK);
	check_vadd(out[0], N);
	device_close();
}
END_TEST

START_TEST(test_grid_is_refused)
{
	struct gantry_cmd cmd;

	put_three();
	device_open("", NULL);
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N);
	cmd.launch.grid[0] = 2;
	ck_assert_int_eq(submit(stream_of(0), &cmd), -EINVAL);
	device_close();
}
END_TEST

START_TEST(test_kernel_get_knows_names_and_arguments)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_signature sig;
	struct gantry_kernel *kernel = NULL;
	struct gantry_image *image;
	char path[192];

	put_three();
	device_open("", NULL);
	(void)snprintf(path, sizeof(path), "%s/vadd.bit", folder);
	ck_assert_int_eq(device.backend->image_load(device.dev, path, NULL, 0, &image, &err),
			 -ENOEXEC);
	(void)snprintf(path, sizeof(path), "%s/vadd.bitstream", folder);
	ck_assert_int_eq(device.backend->image_load(device.dev, path, NULL, 0, &image, &err), 0);
	ck_assert_int_eq(gantry_signature_parse("r:i32*,r:i32*,w:i32*,u32", &sig, NULL), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, "vadd", &sig, &kernel, &err), -EINVAL);
	ck_assert_int_eq(device.backend->kernel_get(image, "nobody", &sig, &kernel, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "nobody"));
	ck_assert_ptr_null(kernel);
	device_close();
}
END_TEST

START_TEST(test_launch_that_no_board_has_room_for_says_so_and_others_wait_for_theirs)
{
	struct gantry_kernel *vadd;
	struct gantry_cmd cmd;
	struct gantry_done done[8];

	/* Room for one launch at a time. */
	put("vadd", VADD);
	device_open("memory=16384", NULL);
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", VADD_SIG);
	for (int s = 0; s < 4; s++) {
		cmd = vadd_of(vadd, out[s], N);
		ck_assert_int_eq(submit(stream_of(0), &cmd), 0);
	}
	wait_for(done, 4);
	for (int s = 0; s < 4; s++) {
		ck_assert_int_eq(done[s].status, GANTRY_OK);
		check_vadd(out[s], N);
	}
	arg(&cmd, 2, mem_of(out, sizeof(out)), 0, 3 * sizeof(out[0]));
	done[0] = run(stream_of(0), &cmd);
	ck_assert_int_eq(done[0].status, GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(done[0].blast, GANTRY_BLAST_CMD);
	device_close();
}
END_TEST

#define NFILLS 24u

static uint32_t *of_board(const char *name)
{
	void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
	uint32_t *number = driver ? dlsym(driver, name) : NULL;

	ck_assert_ptr_nonnull(number);
	(void)dlclose(driver); /* the device has it open */
	return number;
}

static void wait_for_more_than(const uint32_t *number, uint32_t before)
{
	uint64_t deadline_ns = gantry_now_ns() + TIMEOUT_NS;
	struct gantry_done done;

	while (gantry_load_acquire(number) == before) {
		ck_assert_uint_lt(gantry_now_ns(), deadline_ns);
		ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
		(void)usleep(1000);
	}
}

/* Each makes way for the next, of which nobody tells the board's thread: one that sleeps until it is told never does them. */
START_TEST(test_commands_behind_each_other_do_not_wait_for_the_launch_of_another_stream)
{
	struct gantry_stream *busy, *stream;
	struct gantry_done done[NFILLS];
	struct gantry_kernel *vadd;
	struct gantry_cmd cmd, fill = { .kind = GANTRY_CMD_FILL };
	uint32_t *sleeps, *naps, before;

	put_three();
	device_open("hang=1 naps=1", "stuck=200ms");
	sleeps = of_board("gantry_test_board_sleeps");
	naps = of_board("gantry_test_board_naps");
	fill_inputs();
	busy = stream_of(0);
	stream = stream_of(0);
	vadd = kernel_of("vadd", "vadd", VADD_SIG);
	cmd = vadd_of(vadd, out[0], N);
	before = gantry_load_acquire(naps);
	ck_assert_int_eq(submit(busy, &cmd), 0);
	wait_for_more_than(naps, before); /* only beside a launch that is on the board */
	fill.fill.dst = (struct gantry_range){ mem_of(out[1], sizeof(out[1])), 0, 64 };
	fill.fill.pattern_bytes = 1;
	gantry_store_release(sleeps, 1u);
	for (unsigned int i = 0; i < NFILLS; i++)
		ck_assert_int_eq(submit(stream, &fill), 0);
	wait_for(done, NFILLS);
	gantry_store_release(sleeps, 0u);
	ck_assert_int_eq(submit(stream, &fill), 0); /* which wakes it */
	wait_for(done, 1);
	gantry_store_release(&cancel, 1u);
	wait_for(done, 1);
	gantry_store_release(&cancel, 0u);
	device_close();
}
END_TEST
START_TEST(test_close_does_not_wait_for_what_is_queued)
{
	struct gantry_cmd cmd;

	put_three();
	device_open("load_ms=20", NULL);
	fill_inputs();
	cmd = stencil_of(kernel_of("stencil", "stencil", STENCIL_SIG), out[0]);
	for (int s = 0; s < 8; s++) {
		struct gantry_stream *stream = stream_of(0);

		while (submit(stream, &cmd) == 0)
			;
	}
	device_close();
}
END_TEST

START_TEST(test_cancelled_launch_changes_nothing)
{
	struct gantry_cmd cmd;

	put_three();
	device_open("", NULL);
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", VADD_SIG), out[0], N);
	gantry_store_release(&cancel, 1);
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_E_CANCELLED);
	ck_assert_int_eq(out[0][1], 0);
	device_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fpga backend");
	TCase *tc = gantry_unit_case(suite, "backend");

	if (!is_seated()) {
		tcase_add_test(tc, test_open_says_what_is_wrong);
		tcase_add_test(tc, test_one_process_has_the_board);
		tcase_add_test(tc, test_grid_is_refused);
	}
	tcase_add_loop_test(tc, test_kernel_works_on_memory_behind_a_descriptor, 0, 3);
	tcase_add_test(tc, test_copies_and_fills_keep_their_order_with_launches);
	tcase_add_loop_test(tc, test_streams_of_several_kernels_share_the_board, 0,
			    (int)GANTRY_ARRAY_SIZE(mixes));
	tcase_add_test(tc, test_refused_arguments_hurt_their_command_only);
	tcase_add_test(tc, test_kernel_get_knows_names_and_arguments);
	tcase_add_test(tc,
		       test_launch_that_no_board_has_room_for_says_so_and_others_wait_for_theirs);
	tcase_add_test(
		tc, test_commands_behind_each_other_do_not_wait_for_the_launch_of_another_stream);
	tcase_add_test(tc, test_cancelled_launch_changes_nothing);
	tcase_add_test(tc, test_close_does_not_wait_for_what_is_queued);
	backend_keep_tests(tc);
	backend_follow_tests(tc);
	backend_fault_tests(tc);
	return gantry_unit_run(suite);
}
