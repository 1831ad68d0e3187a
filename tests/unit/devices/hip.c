/* SPDX-License-Identifier: Apache-2.0 */
/* The hip backend beside the contract: runtimes of each version and none, options, two GPUs, a bad access. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

static struct gantry_err err;
static struct gantry_device device;
static unsigned char memory[2][4096];

static void wake(void *cookie)
{
	(void)cookie;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static const struct gantry_device_host host = { wake, cancelled, NULL };

static int open_as(struct gantry_device *to, const char *library, const char *opt)
{
	char path[512];
	const char *opts[] = { path, opt };
	struct gantry_device_conf conf = {
		.name = "hip0", .backend = "hip", .nopts = opt ? 2 : 1, .opts = opts
	};

	(void)snprintf(path, sizeof(path), "library=%s", library);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	return gantry_device_open(&conf, &host, to, &err);
}

static void open_or_fail(struct gantry_device *to, const char *library, const char *opt)
{
	ck_assert_msg(open_as(to, library, opt) == 0, "%s", err.text);
	ck_assert_int_eq(to->backend->thread_enter(to->dev, &err), 0);
	gantry_unit_forgive(); /* a runtime is never unloaded */
}

static struct gantry_done run(struct gantry_device *on, struct gantry_cmd *cmd)
{
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	const struct gantry_stream_attr attr = { 0 };
	struct gantry_stream *stream;
	struct gantry_done done;

	ck_assert_int_eq(on->backend->stream_create(on->dev, &attr, &stream, &err), 0);
	ck_assert_int_eq(on->backend->submit(stream, cmd), 0);
	while (on->backend->poll(on->dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	on->backend->stream_destroy(stream);
	return done;
}

static struct gantry_mem *window(struct gantry_device *of)
{
	uint64_t align = of->info.slab_align;
	struct gantry_mem *mem;
	int fd;

	ck_assert_msg(of->backend->window_open(of->dev, 0, align, &mem, &err) == 0, "%s", err.text);
	ck_assert_msg(of->backend->slab_create(of->dev, align, &fd, &err) == 0, "%s", err.text);
	ck_assert_msg(of->backend->window_map(mem, 0, align, fd, &err) == 0, "%s", err.text);
	gantry_fd_close(fd);
	return mem;
}

static struct gantry_cmd copy_cmd(struct gantry_mem *dst, struct gantry_mem *src, uint64_t len)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_COPY, .tag = 1 };

	cmd.copy.dst = (struct gantry_range){ dst, 0, len };
	cmd.copy.src = (struct gantry_range){ src, 0, len };
	return cmd;
}

static struct gantry_mem *host_mem(struct gantry_device *of, unsigned int i)
{
	struct gantry_mem *mem;

	ck_assert_int_eq(of->backend->mem_host(of->dev, memory[i], sizeof(memory[i]), &mem, &err),
			 0);
	return mem;
}

START_TEST(test_open_with_a_wrong_option_names_it)
{
	static const char *const wrong[][2] = {
		{ "memory=never", "memory" },
		{ "gpu=two", "gpu" },
		{ "gpu=64", "gpu" },
		{ "scratch=x", "scratch" },
		{ "colour=red", "colour" },
		{ "graphs=maybe", "graphs" },
		{ "processes=some", "processes" },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(open_as(&device, FAKEHIP, wrong[i][0]), -EINVAL);
		ck_assert_msg(strstr(err.text, wrong[i][1]) != NULL, "%s", err.text);
	}
}
END_TEST

START_TEST(test_open_without_a_runtime_is_no_device)
{
	ck_assert_int_eq(open_as(&device, "/nowhere/libamdhip64.so.6", NULL), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/libamdhip64.so.6"));
	/* A library of something else. */
	ck_assert_int_eq(open_as(&device, "libc.so.6", NULL), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "hipInit"));
}
END_TEST

START_TEST(test_open_without_a_gpu_is_no_device)
{
	ck_assert_int_eq(setenv("FAKEHIP_GPUS", "0", 1), 0);
	ck_assert_int_eq(open_as(&device, FAKEHIP, NULL), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "no GPU"));
	gantry_unit_forgive();
}
END_TEST

/* AMD's own library, as Debian packages it, where the machine has no AMD GPU. */
START_TEST(test_open_over_the_real_runtime_without_hardware_is_no_device)
{
	struct gantry_device_conf conf = { .name = "hip0", .backend = "hip" };
	int r;

	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = gantry_device_open(&conf, &host, &device, &err);
	gantry_unit_forgive();
	if (r == 0) {
		gantry_device_close(&device);
		gantry_unit_skip("this machine has an AMD GPU");
	}
	if (strstr(err.text, "are not there"))
		gantry_unit_skip("this machine has no libamdhip64: install libamdhip64-5");
	ck_assert_int_eq(r, -ENODEV);
	ck_assert_msg(strstr(err.text, "finds no GPU") != NULL, "%s", err.text);
	/* And again: what was told once is told alike. */
	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), -ENODEV);
}
END_TEST

START_TEST(test_open_of_a_gpu_that_is_not_there_says_how_many_are)
{
	ck_assert_int_eq(open_as(&device, FAKEHIP, "gpu=3"), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "3"));
	ck_assert_ptr_nonnull(strstr(err.text, "has 1"));
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_open_tells_the_processor_by_either_layout)
{
	ck_assert_int_eq(setenv("FAKEHIP_ARCH", "gfx1030", 1), 0);
	open_or_fail(&device, _i ? FAKEHIP_ROCM5 : FAKEHIP, _i ? "memory=staged" : NULL);
	ck_assert_str_eq(device.info.arch, "gfx1030");
	ck_assert_str_eq(device.info.pci, "0000:40:00.0");
	ck_assert_uint_ne(device.info.caps & GANTRY_CAP_ABORTS, 0);
	ck_assert_uint_eq(device.info.caps & (GANTRY_CAP_WINDOW | GANTRY_CAP_MEM_FD),
			  _i ? GANTRY_CAP_MEM_FD : GANTRY_CAP_WINDOW);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_open_of_a_runtime_that_names_no_processor_is_refused)
{
	ck_assert_int_eq(setenv("FAKEHIP_ARCH", "Radeon", 1), 0);
	ck_assert_int_eq(open_as(&device, FAKEHIP, NULL), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "processor"));
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_windows_that_the_runtime_does_not_have_are_refused)
{
	ck_assert_int_eq(open_as(&device, FAKEHIP_ROCM5, NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "memory = staged"));
	gantry_unit_forgive();
}
END_TEST

/* Runtimes from 7.1 on take a descriptor by value; the stand-in does as it is told to be. */
START_TEST(test_slab_is_mapped_with_runtimes_before_and_after_7_1)
{
	ck_assert_int_eq(setenv("FAKEHIP_VERSION", _i ? "70140000" : "70060000", 1), 0);
	open_or_fail(&device, FAKEHIP, NULL);
	struct gantry_mem *mem = window(&device);
	struct gantry_cmd in = copy_cmd(mem, host_mem(&device, 0), 4096);
	struct gantry_cmd out = copy_cmd(host_mem(&device, 1), mem, 4096);

	memset(memory[0], 0x5c, sizeof(memory[0]));
	ck_assert_int_eq(run(&device, &in).status, GANTRY_OK);
	ck_assert_int_eq(run(&device, &out).status, GANTRY_OK);
	ck_assert_mem_eq(memory[1], memory[0], sizeof(memory[0]));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_copy_between_gpus_arrives)
{
	struct gantry_device second;

	ck_assert_int_eq(setenv("FAKEHIP_GPUS", "2", 1), 0);
	open_or_fail(&device, FAKEHIP, NULL);
	open_or_fail(&second, FAKEHIP, "gpu=1");
	struct gantry_mem *here = window(&device), *there = window(&second);
	struct gantry_cmd in = copy_cmd(here, host_mem(&device, 0), 4096);
	struct gantry_cmd across = copy_cmd(there, here, 4096);
	struct gantry_cmd out = copy_cmd(host_mem(&second, 1), there, 4096);

	memset(memory[0], 0x77, sizeof(memory[0]));
	ck_assert_int_eq(run(&device, &in).status, GANTRY_OK);
	ck_assert_int_eq(run(&second, &across).status, GANTRY_OK);
	ck_assert_int_eq(run(&second, &out).status, GANTRY_OK);
	ck_assert_mem_eq(memory[1], memory[0], 4096);
	gantry_device_close(&second);
	gantry_device_close(&device);
}
END_TEST

/* What AMD's runtime does, and why a session has a worker of its own. */
START_TEST(test_bad_access_ends_the_process)
{
	struct gantry_signature sig;
	struct gantry_image *image;
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = 1 };
	char *bytes;
	size_t nbytes;

	open_or_fail(&device, FAKEHIP, NULL);
	ck_assert_int_eq(gantry_file_read(HIP_CODE, 1 << 20, &bytes, &nbytes), 0);
	ck_assert_msg(device.backend->image_load(device.dev, NULL, bytes, nbytes, &image, &err) ==
			      0,
		      "%s", err.text);
	ck_assert_int_eq(gantry_signature_parse("void", &sig, &err), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, "fault", &sig, &cmd.launch.kernel, &err),
			 0);
	for (unsigned int i = 0; i < 3; i++)
		cmd.launch.grid[i] = cmd.launch.block[i] = 1;
	(void)run(&device, &cmd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hip");
	TCase *tc = gantry_unit_case(suite, "hip");

	tcase_add_test(tc, test_open_with_a_wrong_option_names_it);
	tcase_add_test(tc, test_open_without_a_runtime_is_no_device);
	tcase_add_test(tc, test_open_without_a_gpu_is_no_device);
	tcase_add_test(tc, test_open_over_the_real_runtime_without_hardware_is_no_device);
	tcase_add_test(tc, test_open_of_a_gpu_that_is_not_there_says_how_many_are);
	tcase_add_loop_test(tc, test_open_tells_the_processor_by_either_layout, 0, 2);
	tcase_add_test(tc, test_open_of_a_runtime_that_names_no_processor_is_refused);
	tcase_add_test(tc, test_windows_that_the_runtime_does_not_have_are_refused);
	tcase_add_loop_test(tc, test_slab_is_mapped_with_runtimes_before_and_after_7_1, 0, 2);
	tcase_add_test(tc, test_copy_between_gpus_arrives);
	tcase_add_test_raise_signal(tc, test_bad_access_ends_the_process, SIGABRT);
	return gantry_unit_run(suite);
}
