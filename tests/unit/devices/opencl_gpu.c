/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opencl backend on what looks like a GPU: PoCL under a layer of the loader (tests/opencl/layer.c, word gpu) that differs from it
 * as NVIDIA's OpenCL was seen to.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/opencl/backend.h"
#include "devices/opencl/builder.h"
#include "devices/opencl/container.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

#define TIMEOUT_S 120 /* compilers take their time on a busy machine */
#define PLATFORM  "Stand-in GPU"

static const char source[] =
	"__kernel void add(__global uint *x, uint n)\n"
	"{ x[get_global_id(0)] += n; }\n"
	"__kernel void spin(__global uint *x, uint n)\n"
	"{ uint v = x[0]; for (uint i = 0; i < n; i++) v = v * 1664525u + 1013904223u; x[0] = v; }\n"
	"__kernel void wild(__global uint *x, uint n)\n"
	"{ x[0] = n; }\n";

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_stream *stream;
static struct gantry_image *image;
static struct gantry_mem *mem;
static uint32_t words[1024];

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

static int load(const void *bytes, size_t nbytes)
{
	int r;

	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = device.backend->image_load(device.dev, NULL, bytes, nbytes, &image, &err);
	if (r == -EOPNOTSUPP && strstr(err.text, "Landlock"))
		gantry_unit_skip(err.text);
	return r;
}

static void open_device(void)
{
	const char *opts[] = { "platform=" PLATFORM, "guest_code=yes" };
	const struct gantry_device_conf conf = {
		.name = "test", .backend = "opencl", .nopts = 2, .opts = opts
	};
	const struct gantry_stream_attr attr = { 0 };
	int r;

	if (!OPENCL_MORE_LAYER[0] || access(OPENCL_MORE_LAYER, R_OK) < 0)
		gantry_unit_skip("the layer was not built: no CL/cl_layer.h");
	ck_assert_int_eq(setenv("OPENCL_LAYERS", OPENCL_MORE_LAYER, 1), 0);
	ck_assert_int_eq(setenv("OPENCL_MORE", "gpu", 1), 0);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = gantry_device_open(&conf, &host, &device, &err);
	if (r == -ENODEV)
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	gantry_unit_forgive(); /* PoCL's threads, and the builder */
	ck_assert_msg(load(source, sizeof(source) - 1) == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->mem_host(device.dev, words, sizeof(words), &mem, &err), 0);
	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err), 0);
}

static void close_device(void)
{
	device.backend->stream_destroy(stream);
	gantry_device_close(&device);
}

/* submit()'s answer. */
static int put(const char *name, uint32_t items, uint32_t value)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = 7 };
	static struct gantry_signature sig; /* its kernel keeps it */

	ck_assert_int_eq(gantry_signature_parse("rw:u32*,u32", &sig, &err), 0);
	ck_assert_msg(device.backend->kernel_get(image, name, &sig, &cmd.launch.kernel, &err) == 0,
		      "%s", err.text);
	for (int i = 0; i < 3; i++)
		cmd.launch.grid[i] = cmd.launch.block[i] = 1;
	cmd.launch.block[0] = items;
	cmd.launch.nargs = 2;
	cmd.launch.args[0].range = (struct gantry_range){ mem, 0, sizeof(words) };
	cmd.launch.args[1].value.u32 = value;
	return device.backend->submit(stream, &cmd);
}

static struct gantry_done next_done(void)
{
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_done done;

	while (device.backend->poll(device.dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	return done;
}

START_TEST(test_gpu_is_served_as_one)
{
	open_device();
	ck_assert_uint_ne(device.info.caps & GANTRY_CAP_DRIVER, 0);
	ck_assert_uint_eq(device.info.caps & (GANTRY_CAP_HOST_CODE | GANTRY_CAP_HOST_DIRECT), 0);
	ck_assert_ptr_nonnull(strstr(device.info.about, "type 4\n"));
	ck_assert_ptr_nonnull(strstr(device.info.about, "unified 0\n"));
	ck_assert_ptr_null(strstr(device.info.about, "partition"));
	ck_assert_ptr_null(strstr(device.info.about, "domain"));
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(words); i++)
		words[i] = i;
	/* More than it advises, and no more than there can be. */
	ck_assert_int_eq(put("add", 1u << 20, 100), -EINVAL);
	ck_assert_int_eq(put("add", 512, 100), 0);
	ck_assert_int_eq(next_done().status, GANTRY_OK);
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(words); i++)
		ck_assert_uint_eq(words[i], i < 512 ? i + 100 : i);
	close_device();
}
END_TEST

/* What its compiler gives is text with NULs behind it. */
START_TEST(test_its_binaries_are_ptx_and_are_taken_whole_only)
{
	const struct gantry_opencl_work work = { .choice.platform = PLATFORM, .of_gpu = true };
	enum gantry_opencl_sort sort = GANTRY_OPENCL_UNKNOWN;
	void *binary;
	size_t n;

	open_device();
	ck_assert_msg(gantry_opencl_builder_compile(&work, source, sizeof(source) - 1, &binary, &n,
						    NULL, &err) == 0,
		      "%s", err.text);
	ck_assert_int_eq(gantry_opencl_container_check(binary, n, &sort, &err), 0);
	ck_assert_int_eq(sort, GANTRY_OPENCL_PTX);
	ck_assert_int_eq(load(binary, n / 2), -ENOEXEC);
	ck_assert_msg(strstr(err.text, "cut short"), "%s", err.text);
	((char *)binary)[n / 2] = '\0';
	ck_assert_int_eq(load(binary, n), -ENOEXEC);
	ck_assert_msg(strstr(err.text, "a NUL within it"), "%s", err.text);
	/* Whole, and not the device's: its own loader says so, in a process apart. */
	((char *)binary)[n / 2] = 'x';
	ck_assert_int_eq(load(binary, n), -ENOEXEC);
	free(binary);
	ck_assert_int_eq(gantry_opencl_builder_compile(&work, source, sizeof(source) - 1, &binary,
						       &n, NULL, &err),
			 0);
	ck_assert_msg(load(binary, n) == 0, "%s", err.text);
	free(binary);
	words[0] = 1;
	ck_assert_int_eq(put("add", 1, 2), 0);
	ck_assert_int_eq(next_done().status, GANTRY_OK);
	ck_assert_uint_eq(words[0], 3);
	close_device();
}
END_TEST

/* It says that a command began before the one ahead of it ended. */
START_TEST(test_time_of_commands_counts_once)
{
	const uint32_t n = 24;
	uint64_t begin, sum = 0;

	open_device();
	ck_assert_int_eq(put("spin", 1, 1000), 0);
	ck_assert_int_eq(next_done().status, GANTRY_OK);
	begin = gantry_now_ns();
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(put("spin", 1, 1000), 0);
	for (uint32_t i = 0; i < n; i++) {
		struct gantry_done done = next_done();

		ck_assert_int_eq(done.status, GANTRY_OK);
		ck_assert_uint_gt(done.device_ns, 0);
		sum += done.device_ns;
	}
	/* Three commands of OpenCL's for each, every one of which is said to begin 100 ms early. */
	ck_assert_uint_le(sum, gantry_now_ns() - begin + GANTRY_NS_PER_S);
	close_device();
}
END_TEST

/* A wrong access shows where it is asked how commands ended, by a number that no header names. */
START_TEST(test_fault_ends_what_is_in_flight_and_the_device)
{
	open_device();
	ck_assert_int_eq(put("add", 1, 1), 0);
	ck_assert_int_eq(next_done().status, GANTRY_OK);
	ck_assert_int_eq(put("wild", 1, 1), 0);
	ck_assert_int_eq(put("add", 1, 1), 0);
	for (int i = 0; i < 2; i++) {
		struct gantry_done done = next_done();

		ck_assert_int_eq(done.status, GANTRY_E_DEVICE_FAULT);
		ck_assert_int_eq(done.blast, GANTRY_BLAST_CONTEXT);
	}
	ck_assert_int_eq(put("add", 1, 1), -ENODEV);
	close_device();
}
END_TEST

START_TEST(test_installed_kernels_ask_for_exact_division_and_guests_for_what_they_want)
{
	static const char exact[] = "#ifndef EXACT_DIVISION\n#error not-exact\n#endif\n"
				    "__kernel void k(__global float *x) { x[0] /= x[1]; }\n";
	struct gantry_opencl_work work = { .choice.platform = PLATFORM, .of_gpu = true };
	void *binary;
	size_t n;

	open_device();
	ck_assert_msg(gantry_opencl_builder_compile(&work, exact, sizeof(exact) - 1, &binary, &n,
						    NULL, &err) == 0,
		      "%s", err.text);
	free(binary);
	ck_assert_int_eq(load(exact, sizeof(exact) - 1), -ENOEXEC);
	ck_assert_msg(strstr(err.text, "not-exact"), "%s", err.text);
	close_device();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl gpu");
	TCase *gpu = gantry_unit_case(suite, "gpu");

	tcase_set_timeout(gpu, TIMEOUT_S);
	tcase_add_test(gpu, test_gpu_is_served_as_one);
	tcase_add_test(gpu, test_its_binaries_are_ptx_and_are_taken_whole_only);
	tcase_add_test(gpu,
		       test_installed_kernels_ask_for_exact_division_and_guests_for_what_they_want);
	tcase_add_test(gpu, test_time_of_commands_counts_once);
	tcase_add_test(gpu, test_fault_ends_what_is_in_flight_and_the_device);
	return gantry_unit_run(suite);
}
