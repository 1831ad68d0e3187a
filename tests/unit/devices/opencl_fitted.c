/* SPDX-License-Identifier: Apache-2.0 */
/* Code for work-groups of one size, over PoCL: made by the builder, found by this process, and asked for in a kernel's name. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/str.h"
#include "devices/opencl/backend.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

#define TIMEOUT_S 120 /* compilers take their time on a busy machine */
#define NUMBERS	  70000u

static struct gantry_err err;
static struct gantry_device device;

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

static const char source[] =
	"__kernel void sizes(__global uint *x, uint n, __local uint *l)\n"
	"{\n"
	"	size_t i = get_global_id(0);\n"
	"	if (i < n) { l[get_local_id(0)] = (uint)i; x[i] += 1000 * get_local_size(0) + l[get_local_id(0)]; }\n"
	"}\n"
	"__kernel void crashes(__global uint *x, uint n, __local uint *l)\n"
	"{\n"
	"	size_t i = get_global_id(0);\n"
	"	if (n == 0) x[i + ((ulong)1 << 40)] = 1;\n"
	"	x[i] += 1000 * get_local_size(0) + i + l[0] * 0;\n"
	"}\n"
	"__kernel void endless(__global uint *x, uint n, __local uint *l)\n"
	"{\n"
	"	volatile uint i = n;\n"
	"	while (i == 0) ;\n"
	"	x[get_global_id(0)] += 1000 * get_local_size(0) + get_global_id(0) + l[0] * 0;\n"
	"}\n"
	"__kernel __attribute__((reqd_work_group_size(4, 2, 1)))\n"
	"void wants(__global uint *x, uint n, __local uint *l)\n"
	"{\n"
	"	size_t i = get_global_id(0);\n"
	"	if (i < n && get_global_id(1) == 0) x[i] += 1000 * get_local_size(1) + i + l[0] * 0;\n"
	"}\n";

static struct gantry_image *load(const char *option)
{
	const char *opts[] = { "platform=Portable Computing Language", "guest_code=yes", option };
	const struct gantry_device_conf conf = {
		.name = "test", .backend = "opencl", .nopts = option ? 3 : 2, .opts = opts
	};
	struct gantry_image *image;
	int r = gantry_device_open(&conf, &host, &device, &err);

	if (r == -ENODEV)
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	gantry_unit_forgive(); /* PoCL's threads, and the builder */
	r = device.backend->image_load(device.dev, NULL, source, sizeof(source) - 1, &image, &err);
	if (r == -EOPNOTSUPP && strstr(err.text, "Landlock"))
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	return image;
}

static struct gantry_signature sig;

static int get(struct gantry_image *image, const char *name, struct gantry_kernel **ret_kernel)
{
	ck_assert_int_eq(gantry_signature_parse("range,rw:u32*,u32,local", &sig, &err), 0);
	return device.backend->kernel_get(image, name, &sig, ret_kernel, &err);
}

/* How many files PoCL would find of @kernel for sizes that @what fits. */
static size_t files(const char *kernel, const char *what)
{
	char pattern[512];
	glob_t found = { 0 };
	size_t n = 0;

	ck_assert_int_eq(gantry_str_format(pattern, sizeof(pattern), "%s/*/*/%s/%s/%s.so",
					   getenv("POCL_CACHE_DIR"), kernel, what, kernel),
			 0);
	if (glob(pattern, 0, NULL, &found) == 0)
		n = found.gl_pathc;
	globfree(&found);
	return n;
}

static uint32_t numbers[NUMBERS];

/* submit()'s answer; of what it took, once it is done. */
static int run(struct gantry_kernel *kernel, const uint32_t grid[2], const uint32_t block[2],
	       uint64_t offset)
{
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *be = device.backend;
	const struct gantry_launch_range range = { .offset = { offset }, .ndims = 3 };
	const uint64_t local_bytes = 1024;
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = 7 };
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_stream *stream;
	struct gantry_done done;
	struct gantry_mem *mem;
	int r;

	memset(numbers, 0, sizeof(numbers));
	ck_assert_int_eq(be->mem_host(device.dev, numbers, sizeof(numbers), &mem, &err), 0);
	ck_assert_int_eq(be->stream_create(device.dev, &attr, &stream, &err), 0);
	cmd.launch.kernel = kernel;
	for (int i = 0; i < 3; i++) {
		cmd.launch.grid[i] = i < 2 ? grid[i] : 1;
		cmd.launch.block[i] = i < 2 ? block[i] : 1;
	}
	cmd.launch.nargs = 4;
	cmd.launch.args[0].raw = (struct gantry_raw){ &range, sizeof(range) };
	cmd.launch.args[1].range = (struct gantry_range){ mem, 0, sizeof(numbers) };
	cmd.launch.args[2].value.u32 = NUMBERS;
	cmd.launch.args[3].raw = (struct gantry_raw){ &local_bytes, sizeof(local_bytes) };
	r = be->submit(stream, &cmd);
	while (r == 0 && be->poll(device.dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	if (r == 0)
		ck_assert_int_eq(done.status, GANTRY_OK);
	be->stream_destroy(stream);
	be->mem_free(mem);
	return r;
}

static void check(uint32_t from, uint32_t n, uint32_t size)
{
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(numbers[from + i], 1000 * size + from + i);
	if (from + n < NUMBERS)
		ck_assert_uint_eq(numbers[from + n], 0);
}

START_TEST(test_code_for_a_size_is_made_once_and_gives_the_same)
{
	struct gantry_image *image = load(NULL);
	struct gantry_kernel *kernel, *again;

	ck_assert_msg(get(image, "sizes@16,1,1", &kernel) == 0, "%s", err.text);
	ck_assert_uint_eq(files("sizes", "16-1-1-goffs0-smallgrid"), 1);
	ck_assert_int_eq(get(image, "sizes@16,1,1", &again), 0);
	ck_assert_uint_eq(image->nfitted, 1);
	ck_assert_msg(get(image, "sizes@16,1,1,wide", &again) == 0, "%s", err.text);
	ck_assert_uint_eq(files("sizes", "16-1-1-goffs0"), 1);
	ck_assert_uint_eq(image->nfitted, 2);
	/* As it was made for, wider, and of another size, which has the code for all. */
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 16, 1 }, 0), 0);
	check(0, 64, 16);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4200, 1 }, (uint32_t[]){ 16, 1 }, 0), 0);
	check(0, 4200 * 16, 16);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 8, 1 }, 5), 0);
	check(5, 32, 8);
	gantry_device_close(&device);
}
END_TEST

/* What a kernel does with arguments that mean nothing is its own affair, in a process of its own. */
START_TEST(test_code_is_made_of_a_kernel_that_crashes_or_never_ends_there)
{
	static const char *const names[] = { "crashes", "endless" };
	struct gantry_image *image = load(NULL);
	struct gantry_kernel *kernel;
	char wish[32];

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(names); i++) {
		(void)snprintf(wish, sizeof(wish), "%s@8,1,1", names[i]);
		ck_assert_msg(get(image, wish, &kernel) == 0, "%s", err.text);
		ck_assert_uint_eq(files(names[i], "8-1-1-goffs0-smallgrid"), 1);
		ck_assert_int_eq(run(kernel, (uint32_t[]){ 2, 1 }, (uint32_t[]){ 8, 1 }, 0), 0);
		check(0, 16, 8);
	}
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_kernel_that_wants_a_size_runs_with_it_alone)
{
	struct gantry_image *image = load(NULL);
	struct gantry_kernel *kernel;

	ck_assert_msg(get(image, "wants", &kernel) == 0, "%s", err.text);
	/* Every sort of launch finds code: PoCL would end this process. */
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 4, 2 }, 0), 0);
	check(0, 16, 2);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 4, 2 }, 3), 0);
	check(3, 16, 2);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 17000, 1 }, (uint32_t[]){ 4, 2 }, 0), 0);
	check(0, 68000, 2);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 16500, 1 }, (uint32_t[]){ 4, 2 }, 3), 0);
	check(3, 66000, 2);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 4, 1 }, 0), -EINVAL);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 8, 2 }, 0), -EINVAL);
	gantry_device_close(&device);
}
END_TEST

/* As many descriptors as are open, or as there were. */
static void let_open(bool more)
{
	static struct rlimit before;
	struct rlimit limit;
	int fd;

	if (more) {
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
		return;
	}
	fd = dup(0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = (rlim_t)fd; /* the first that is free */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* kernel_get() where nothing can be opened. */
static int get_in_want(struct gantry_image *image, const char *name,
		       struct gantry_kernel **ret_kernel)
{
	int r;

	let_open(false);
	r = get(image, name, ret_kernel);
	let_open(true);
	return r;
}

START_TEST(test_code_that_could_not_be_made_just_now_is_made_another_time)
{
	struct gantry_image *image = load(NULL);
	struct gantry_kernel *kernel;

	ck_assert_int_eq(get_in_want(image, "wants", &kernel),
			 -ENOMEM); /* not that it can never be */
	ck_assert_msg(strstr(err.text, "another time") != NULL, "%s", err.text);
	ck_assert_msg(get(image, "wants", &kernel) == 0, "%s", err.text);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 4, 2 }, 0), 0);
	check(0, 16, 2);
	/* A wish: there is the other code. */
	ck_assert_int_eq(get_in_want(image, "sizes@16,1,1", &kernel), 0);
	ck_assert_uint_eq(files("sizes", "16-1-1-goffs0-smallgrid"), 0);
	ck_assert_msg(get(image, "sizes@16,1,1", &kernel) == 0, "%s", err.text);
	ck_assert_uint_eq(files("sizes", "16-1-1-goffs0-smallgrid"), 1);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_code_is_not_tried_again_until_a_pause_is_over)
{
	struct gantry_image *image = load(NULL);
	struct gantry_kernel *kernel;
	uint64_t first;

	ck_assert_int_eq(get_in_want(image, "wants", &kernel), -ENOMEM);
	ck_assert_uint_eq(image->fitted[0].again_ns, 0);
	ck_assert_int_eq(get_in_want(image, "wants", &kernel), -ENOMEM);
	first = image->fitted[0].again_ns;
	ck_assert_uint_ne(first, 0);
	image->fitted[0].again_ns = UINT64_MAX;
	ck_assert_int_eq(get(image, "wants", &kernel), -ENOMEM);
	ck_assert_msg(strstr(err.text, "a moment ago") != NULL, "%s", err.text);
	ck_assert_uint_eq(files("wants", "4-2-1*"), 0);
	image->fitted[0].again_ns = 1;
	ck_assert_int_eq(get_in_want(image, "wants", &kernel), -ENOMEM);
	ck_assert_uint_gt(image->fitted[0].again_ns, first);
	image->fitted[0].again_ns = 1;
	ck_assert_msg(get(image, "wants", &kernel) == 0, "%s", err.text);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_code_that_the_host_never_has_enough_for_is_given_up)
{
	struct gantry_image *image = load(NULL);
	struct gantry_kernel *kernel;
	int n = 0, r;

	do {
		r = get_in_want(image, "wants", &kernel);
		image->fitted[0].again_ns = 1;
	} while (r == -ENOMEM && ++n < 20);
	ck_assert_int_eq(r, -EOPNOTSUPP);
	ck_assert_msg(strstr(err.text, "given up after") != NULL, "%s", err.text);
	ck_assert_int_gt(n, 2);
	/* For good, and without asking. */
	ck_assert_int_eq(get(image, "wants", &kernel), -EOPNOTSUPP);
	ck_assert_uint_eq(files("wants", "4-2-1*"), 0);
	/* That is the kernel's affair, and that size's. */
	ck_assert_msg(get(image, "sizes@16,1,1", &kernel) == 0, "%s", err.text);
	ck_assert_uint_eq(files("sizes", "16-1-1-goffs0-smallgrid"), 1);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_device_without_fitted_code_makes_none)
{
	struct gantry_image *image = load("fitted=no");
	struct gantry_kernel *kernel;

	ck_assert_msg(get(image, "sizes@16,1,1", &kernel) == 0, "%s", err.text);
	ck_assert_uint_eq(files("sizes", "16-*"), 0);
	ck_assert_int_eq(run(kernel, (uint32_t[]){ 4, 1 }, (uint32_t[]){ 16, 1 }, 0), 0);
	check(0, 64, 16);
	ck_assert_int_eq(get(image, "wants", &kernel), -EOPNOTSUPP);
	ck_assert_msg(strstr(err.text, "reqd_work_group_size") != NULL, "%s", err.text);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_wish_that_is_none_is_no_kernel)
{
	static const char *const wrong[] = {
		"",
		"@8,1,1",
		"sizes@",
		"sizes@8",
		"sizes@8,1",
		"sizes@0,1,1",
		"sizes@8,1,1,",
		"sizes@8,1,1,x",
		"sizes@8,1,1 ",
		"sizes@8,1,1,wide,",
		"sizes@-1,1,1",
		"sizes@99999,99999,99999,99999",
	};
	struct gantry_opencl_wish wish;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++)
		ck_assert_msg(gantry_opencl_wish_parse(wrong[i], &wish) == -ENOENT, "%s", wrong[i]);
	ck_assert_int_eq(gantry_opencl_wish_parse("k@8,4,2,wide", &wish), 0);
	ck_assert_str_eq(wish.name, "k");
	ck_assert_uint_eq(wish.local[2], 2);
	ck_assert_uint_eq(wish.breadth, GANTRY_OPENCL_WIDE);
	ck_assert_int_eq(gantry_opencl_wish_parse("k", &wish), 0);
	ck_assert_uint_eq(wish.local[0], 0);
}
END_TEST

/* Who sends these may be a guest's code: no path leads out of the folder. */
START_TEST(test_fit_with_a_name_that_leads_elsewhere_is_refused)
{
	struct gantry_opencl_fit fit = { .folder = "AB/CDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLM",
					 .kernel = "k",
					 .local = { 8, 1, 1 } };
	char path[256];

	ck_assert_int_eq(gantry_opencl_fit_path(&fit, 0, "/x", path, sizeof(path)), 0);
	ck_assert_str_eq(path,
			 "/x/AB/CDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLM/k/8-1-1-goffs0-smallgrid");
	ck_assert_int_eq(gantry_opencl_fit_path(&fit, 3, "/x", path, sizeof(path)), -EINVAL);
	(void)gantry_str_copy(fit.kernel, sizeof(fit.kernel), "../k");
	ck_assert_int_eq(gantry_opencl_fit_path(&fit, 0, "/x", path, sizeof(path)), -EINVAL);
	ck_assert_int_eq(gantry_opencl_fit_take(&fit, "/tmp", "/tmp"), -EINVAL);
	(void)gantry_str_copy(fit.kernel, sizeof(fit.kernel), "k");
	fit.folder[2] = '.';
	ck_assert_int_eq(gantry_opencl_fit_path(&fit, 0, "/x", path, sizeof(path)), -EINVAL);
	fit.folder[2] = '/';
	memset(fit.kernel, 'k', sizeof(fit.kernel));
	ck_assert_int_eq(gantry_opencl_fit_path(&fit, 0, "/x", path, 64), -E2BIG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl_fitted");
	TCase *code = gantry_unit_case(suite, "code");
	TCase *names = gantry_unit_case(suite, "names");

	tcase_set_timeout(code, TIMEOUT_S);
	tcase_add_test(code, test_code_for_a_size_is_made_once_and_gives_the_same);
	tcase_add_test(code, test_code_is_made_of_a_kernel_that_crashes_or_never_ends_there);
	tcase_add_test(code, test_kernel_that_wants_a_size_runs_with_it_alone);
	tcase_add_test(code, test_code_that_could_not_be_made_just_now_is_made_another_time);
	tcase_add_test(code, test_code_is_not_tried_again_until_a_pause_is_over);
	tcase_add_test(code, test_code_that_the_host_never_has_enough_for_is_given_up);
	tcase_add_test(code, test_device_without_fitted_code_makes_none);
	tcase_add_test(names, test_wish_that_is_none_is_no_kernel);
	tcase_add_test(names, test_fit_with_a_name_that_leads_elsewhere_is_refused);
	return gantry_unit_run(suite);
}
