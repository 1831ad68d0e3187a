/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend over the fake driver: images, launches and host functions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/atomic.h"
#include "devices/cuda/backend.h"
#include "proto/cuda_link.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/devices/cuda_fixture.h"
#include "tests/unit/runner.h"

START_TEST(test_images_of_a_guest_are_checked_first)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
	static const char other[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_100");
	static const char fatbin[] = "\x50\xed\x55\xba\x01\0\x10\0\xff\xff\0\0\0\0\0\0";
	const struct {
		const void *bytes;
		size_t nbytes;
		const char *sentence;
	} bad[] = {
		{ text, sizeof(text) - 1, "NUL" },
		{ fatbin, 16, "cut short" },
		{ "int x;", 7, "neither" },
		{ other, sizeof(other), "sm_90" },
	};
	struct gantry_image *image = NULL;
	struct gantry_kernel *kernel;

	open_device(NULL);
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(device.backend->image_load(device.dev, NULL, bad[i].bytes,
							    bad[i].nbytes, &image, &err),
				 -ENOEXEC);
		ck_assert_msg(strstr(err.text, bad[i].sentence), "%s", err.text);
	}
	ck_assert_ptr_null(image);
	ck_assert_msg(device.backend->image_load(device.dev, NULL, text, sizeof(text), &image,
						 &err) == 0,
		      "%s", err.text);
	ck_assert_int_eq(try_kernel(image, "step", "rw:u32*,u32", &kernel), 0);
	device.backend->image_unload(image);
	gantry_device_close(&device);
}
END_TEST

/* A link's log that nobody asked for, of another session's maybe, is not the next image's. */
START_TEST(test_log_of_a_link_is_its_own)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
	static const char wrong[] = ".version 7.0\n.target sm_80\n";
	struct {
		struct gantry_link_header header;
		struct gantry_link_input input;
		char bytes[sizeof(wrong)];
	} link = {
		.header = { .version = GANTRY_LINK_VERSION, .ninputs = 1, .bytes = sizeof(link) },
		.input = { .type = CU_JIT_INPUT_PTX, .bytes = sizeof(wrong), .name = "wrong" }
	};
	struct gantry_image *image = NULL;
	char said[512];

	memcpy(link.header.magic, GANTRY_LINK_MAGIC, GANTRY_LINK_MAGIC_BYTES);
	memcpy(link.bytes, wrong, sizeof(wrong));
	link.input.off = (uint64_t)((char *)link.bytes - (char *)&link);
	open_device(NULL);
	ck_assert_int_eq(device.backend->image_load(device.dev, NULL, &link, sizeof(link), &image,
						    &err),
			 -ENOEXEC);
	device.backend->image_say(device.dev, NULL, said, sizeof(said));
	ck_assert_str_ne(said, "");
	ck_assert_int_eq(device.backend->image_load(device.dev, NULL, &link, sizeof(link), &image,
						    &err),
			 -ENOEXEC);
	ck_assert_msg(device.backend->image_load(device.dev, NULL, text, sizeof(text), &image,
						 &err) == 0,
		      "%s", err.text);
	device.backend->image_say(device.dev, image, said, sizeof(said));
	ck_assert_str_eq(said, "");
	device.backend->image_unload(image);
	gantry_device_close(&device);
}
END_TEST

/* ---- launches ---- */

START_TEST(test_launch_passes_addresses_and_values)
{
	static uint32_t x = 5;

	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	struct gantry_mem *mem = device_mem(4), *host_side = host_mem(&x, 4);
	cmd.launch.args[0].range = (struct gantry_range){ mem, 0, 4 };
	cmd.launch.args[1].value.u32 = 3;
	run_ok(copy_cmd(mem, 0, host_side, 0, 4));
	run_ok(cmd);
	run_ok(copy_cmd(host_side, 0, mem, 0, 4));
	ck_assert_uint_eq(x, 16);
	cmd.launch.args[0].range.mem = host_side; /* pinned, so the device reaches it */
	run_ok(cmd);
	ck_assert_uint_eq(x, 49);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_launch_out_of_range_is_refused_and_the_stream_goes_on)
{
	static const uint32_t geometries[][7] = {
		{ 0, 0, 0, 1, 1, 1, 0 },	  { 1, 1, 1, 0, 0, 0, 0 },
		{ 1, 0, 1, 1, 1, 1, 0 },	  { 1, 1, 1, 1025, 1, 1, 0 },
		{ 1, 1, 1, 64, 64, 1, 0 },	  { 1, 70000, 1, 1, 1, 1, 0 },
		{ 1, 1, 1, 1, 1, 1, 1u << 30 },	  { 1, 1, 1, 1, 1, 1, UINT32_MAX },
		{ UINT32_MAX, 1, 1, 1, 1, 1, 0 }, { 1, 1, 1, 65536, 65536, 65536, 0 },
	};

	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "nap", "u32");
	cmd.launch.args[0].value.u32 = 0;
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(geometries); i++) {
		struct gantry_cmd wrong = cmd;

		memcpy(wrong.launch.grid, geometries[i], 12);
		memcpy(wrong.launch.block, geometries[i] + 3, 12);
		wrong.launch.shared_bytes = geometries[i][6];
		ck_assert_msg(submit(&wrong, i) == -EINVAL, "geometry %u", i);
	}
	run_ok(cmd);
	cmd.launch.shared_bytes = 100 << 10; /* past 48 KiB: allowed first */
	run_ok(cmd);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_launch_that_the_driver_refuses_hurts_itself_only)
{
	static const struct {
		const char *order;
		int status;
	} orders[] = {
		{ "cuLaunchKernel:1:1", GANTRY_E_ARG },
		{ "cuLaunchKernel:1:701", GANTRY_E_ARG },
		{ "cuLaunchKernel:1:2", GANTRY_E_NO_MEMORY },
	};
	struct gantry_done done;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", orders[_i].order, 1), 0);
	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "nap", "u32");
	cmd.launch.args[0].value.u32 = 0;
	done = run(&cmd);
	ck_assert_int_eq(done.status, orders[_i].status);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	run_ok(cmd);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_kernel_get_compares_the_signature)
{
	static const struct {
		const char *signature;
		const char *sentence;
	} wrong[] = {
		{ "rw:u32*", "takes more than the 1 parameters" },
		{ "rw:u32*,u32,u32", "takes 2 parameters, the signature has 3" },
		{ "rw:u32*,u64", "parameter 2 of kernel step has 4 bytes, in the signature 8" },
		{ "u32,u32", "parameter 1 of kernel step has 8 bytes, in the signature 4" },
		{ "void", "takes more than the 0 parameters" },
	};
	struct gantry_kernel *kernel;

	open_device(NULL);
	struct gantry_image *image = ptx_image();
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(try_kernel(image, "step", wrong[i].signature, &kernel), -EINVAL);
		ck_assert_msg(strstr(err.text, wrong[i].sentence), "%s", err.text);
	}
	ck_assert_int_eq(try_kernel(image, "absent", "void", &kernel), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "absent"));
	ck_assert_int_eq(try_kernel(image, "step", "c:f64*,f32", &kernel), 0);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_image_that_is_none_is_refused)
{
	static const char *const paths[] = { "/dev/null", "/nonexistent", "bare-name.so",
					     CUDA_KERNELS /* a shared object, but no module */ };
	struct gantry_image *image;

	open_device(NULL);
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(paths); i++)
		ck_assert_msg(device.backend->image_load(device.dev, paths[i], NULL, 0, &image,
							 &err) == -ENOEXEC,
			      "%s", paths[i]);
	gantry_device_close(&device);
}
END_TEST

/* ---- host functions ---- */

START_TEST(test_host_function_enqueues_in_order)
{
	static uint32_t x = 1;

	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(module_image(), "step", "rw:u32*,u32");
	struct gantry_mem *mem = device_mem(4), *host_side = host_mem(&x, 4);
	run_ok(copy_cmd(mem, 0, host_side, 0, 4));
	cmd.launch.args[0].range = (struct gantry_range){ mem, 0, 4 };
	cmd.launch.args[1].value.u32 = 2;
	struct gantry_done done[20];
	for (uint64_t i = 0; i < 20; i++)
		ck_assert_int_eq(submit(&cmd, i), 0);
	wait_done(done, 20);
	for (uint64_t i = 0; i < 20; i++) {
		ck_assert_uint_eq(done[i].tag, i);
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	}
	run_ok(copy_cmd(host_side, 0, mem, 0, 4));
	ck_assert_uint_eq(x, (2u << 20) - 1);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_host_function_is_offered_what_module_h_says)
{
	open_device(NULL);
	struct gantry_image *image = module_image();
	struct gantry_cmd cmd = launch_cmd(image, "world", "void");
	memset(cmd.launch.grid, 0, sizeof(cmd.launch.grid)); /* the kernel decides */
	run_ok(cmd);
	for (unsigned int i = 0; i < 3; i++)
		run_ok(launch_cmd(image, "scratch", "void"));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_verdict_of_device_code_is_the_status)
{
	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(module_image(), "judge", "i32");
	/* Round and round: a cell is clean again when its next user gets it. */
	for (int i = 0; i < 300; i++) {
		struct gantry_done done;

		cmd.launch.args[0].value.i32 = i % 3 == 0 ? -ERANGE : i % 3 == 1 ? -ECANCELED : 0;
		done = run(&cmd);
		ck_assert_int_eq(done.status, i % 3 == 0   ? GANTRY_E_KERNEL
					      : i % 3 == 1 ? GANTRY_E_CANCELLED
							   : GANTRY_OK);
	}
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_host_function_that_refuses_hurts_its_command_only)
{
	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(module_image(), "refuse", "i32");
	cmd.launch.args[0].value.i32 = -EINVAL;
	struct gantry_done done = run(&cmd);
	ck_assert_int_eq(done.status, GANTRY_E_KERNEL);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	cmd.launch.args[0].value.i32 = 0;
	run_ok(cmd);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_device_code_that_asks_learns_of_a_cancelled_session)
{
	struct gantry_done done[2];

	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(module_image(), "linger", "void");
	ck_assert_int_eq(submit(&cmd, 7), 0);
	ck_assert_uint_eq(device.backend->poll(device.dev, done, 2), 0);
	gantry_store_relaxed(&cancelled_tag, (uint64_t)7);
	wait_done(done, 1);
	ck_assert_int_eq(done[0].status, GANTRY_E_CANCELLED);
	gantry_device_close(&device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_launch");
	TCase *images = gantry_unit_case(suite, "images");
	TCase *launches = gantry_unit_case(suite, "launches");

	tcase_add_test(images, test_images_of_a_guest_are_checked_first);
	tcase_add_test(images, test_log_of_a_link_is_its_own);
	tcase_add_test(launches, test_launch_passes_addresses_and_values);
	tcase_add_test(launches, test_launch_out_of_range_is_refused_and_the_stream_goes_on);
	tcase_add_loop_test(launches, test_launch_that_the_driver_refuses_hurts_itself_only, 0, 3);
	tcase_add_test(launches, test_kernel_get_compares_the_signature);
	tcase_add_test(launches, test_image_that_is_none_is_refused);
	tcase_add_test(launches, test_host_function_enqueues_in_order);
	tcase_add_test(launches, test_host_function_is_offered_what_module_h_says);
	tcase_add_test(launches, test_verdict_of_device_code_is_the_status);
	tcase_add_test(launches, test_host_function_that_refuses_hurts_its_command_only);
	tcase_add_test(launches, test_device_code_that_asks_learns_of_a_cancelled_session);
	return gantry_unit_run(suite);
}
