/* SPDX-License-Identifier: Apache-2.0 */
/* The opencl backend over PoCL: options, guests' own code, and what its compilers and loaders are kept from. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/opencl/backend.h"
#include "devices/opencl/builder.h"
#include "devices/opencl/container.h"
#include "devices/registry.h"
#include "proto/opencl.h"
#include "tests/unit/runner.h"

#define TIMEOUT_S 120 /* compilers take their time on a busy machine */

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

static int open_with_two(const char *option, const char *other)
{
	const char *opts[] = { "platform=Portable Computing Language", option, other };
	const struct gantry_device_conf conf = { .name = "test",
						 .backend = "opencl",
						 .nopts = option ? other ? 3 : 2 : 1,
						 .opts = opts };

	err = (struct gantry_err)GANTRY_ERR_NONE;
	return gantry_device_open(&conf, &host, &device, &err);
}

static int open_with(const char *option)
{
	return open_with_two(option, NULL);
}

static int open_for_guests_with(const char *option)
{
	return open_with_two("guest_code=yes", option);
}

/* A device that takes guests' code; the test is skipped where there is no PoCL. */
static void open_for_guests(void)
{
	int r = open_with("guest_code=yes");

	if (r == -ENODEV)
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	gantry_unit_forgive(); /* PoCL's threads, and the builder */
}

static int load(const void *bytes, size_t nbytes, struct gantry_image **ret_image)
{
	int r;

	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = device.backend->image_load(device.dev, NULL, bytes, nbytes, ret_image, &err);
	if (r == -EOPNOTSUPP && strstr(err.text, "Landlock"))
		gantry_unit_skip(err.text);
	return r;
}

static const char source[] = "__kernel void twice(__global uint *x, uint n)\n"
			     "{\n"
			     "	if (get_global_id(0) < n)\n"
			     "		x[get_global_id(0)] *= 2;\n"
			     "}\n";

static void *compiled(size_t *ret_nbytes)
{
	const struct gantry_opencl_work work = { .choice.platform = "Portable Computing Language" };
	void *binary;

	ck_assert_msg(gantry_opencl_builder_compile(&work, source, sizeof(source), &binary,
						    ret_nbytes, NULL, &err) == 0,
		      "%s", err.text);
	return binary;
}

/* Doubles four numbers. */
static void run(struct gantry_image *image)
{
	uint32_t numbers[] = { 1, 2, 3, 4, 5 };
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *be = device.backend;
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = 7 };
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_signature sig;
	struct gantry_stream *stream;
	struct gantry_done done;
	struct gantry_mem *mem;

	ck_assert_int_eq(gantry_signature_parse("rw:u32*,u32", &sig, &err), 0);
	ck_assert_msg(be->kernel_get(image, "twice", &sig, &cmd.launch.kernel, &err) == 0, "%s",
		      err.text);
	ck_assert_int_eq(be->mem_host(device.dev, numbers, sizeof(numbers), &mem, &err), 0);
	ck_assert_int_eq(be->stream_create(device.dev, &attr, &stream, &err), 0);
	cmd.launch.grid[0] = cmd.launch.grid[1] = cmd.launch.grid[2] = 1;
	cmd.launch.block[0] = 8;
	cmd.launch.block[1] = cmd.launch.block[2] = 1;
	cmd.launch.nargs = 2;
	cmd.launch.args[0].range = (struct gantry_range){ mem, 0, sizeof(numbers) };
	cmd.launch.args[1].value.u32 = 4;
	ck_assert_int_eq(be->submit(stream, &cmd), 0);
	while (be->poll(device.dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	ck_assert_int_eq(done.status, GANTRY_OK);
	ck_assert_uint_eq(numbers[3], 8);
	ck_assert_uint_eq(numbers[4], 5);
	be->stream_destroy(stream);
}

START_TEST(test_open_with_a_wrong_option_names_it)
{
	static const char *const wrong[][2] = {
		{ "memory=never", "memory" }, { "guest_code=maybe", "guest_code" },
		{ "cache=here", "cache" },    { "scratch=x", "scratch" },
		{ "colour=red", "colour" },   { "fitted=1", "fitted" },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(open_with(wrong[i][0]), -EINVAL);
		ck_assert_msg(strstr(err.text, wrong[i][1]) != NULL, "%s", err.text);
	}
}
END_TEST

START_TEST(test_open_without_a_loader_is_no_device)
{
	ck_assert_int_eq(open_with("library=/nowhere/libOpenCL.so.1"), -ENODEV);
	ck_assert_str_ne(err.text, "");
}
END_TEST

START_TEST(test_open_of_a_device_that_is_not_there_says_what_is)
{
	open_for_guests();
	gantry_device_close(&device);
	ck_assert_int_eq(open_with("device=nobody's"), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "nobody's"));
	ck_assert_ptr_nonnull(strstr(err.text, "Portable"));
}
END_TEST

START_TEST(test_device_without_leave_takes_no_guest_code)
{
	int r = open_with(NULL);

	if (r == -ENODEV)
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	gantry_unit_forgive();
	ck_assert_uint_eq(device.info.caps & GANTRY_CAP_GUEST_IMAGES, 0);
	ck_assert_uint_ne(device.info.caps & GANTRY_CAP_HOST_CODE, 0);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_guest_text_and_guest_binary_run)
{
	struct gantry_image *image;
	size_t nbytes;
	void *binary;

	open_for_guests();
	ck_assert_msg(load(source, sizeof(source) - 1, &image) == 0, "%s", err.text);
	run(image);
	device.backend->image_unload(image);
	binary = compiled(&nbytes);
	ck_assert_msg(load(binary, nbytes, &image) == 0, "%s", err.text);
	free(binary);
	run(image);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_guest_binary_cut_or_foreign_is_refused)
{
	struct gantry_image *image = NULL;
	size_t nbytes;
	char *binary;

	open_for_guests();
	binary = compiled(&nbytes);
	/* Any length is refused by the check; a few show that the backend asks it. */
	for (unsigned int i = 1; i < 4; i++)
		ck_assert_int_eq(load(binary, nbytes * i / 4, &image), -ENOEXEC);
	/* Made for another device: whole, and PoCL's to refuse, in its own process. */
	binary[8] ^= 1;
	ck_assert_int_eq(load(binary, nbytes, &image), -ENOEXEC);
	ck_assert_ptr_nonnull(strstr(err.text, "CL_INVALID_BINARY"));
	ck_assert_ptr_null(image);
	free(binary);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_text_that_does_not_compile_is_refused_with_the_complaint)
{
	static const char wrong[] = "__kernel void k(__global int *x) { x[0] = nowhere; }";
	struct gantry_image *image = NULL;

	open_for_guests();
	ck_assert_int_eq(load(wrong, sizeof(wrong) - 1, &image), -ENOEXEC);
	ck_assert_msg(strstr(err.text, "nowhere") != NULL, "%s", err.text);
	gantry_device_close(&device);
}
END_TEST

/* A file of this user's that no compiler has business with. */
START_TEST(test_guest_text_reads_no_file_of_the_host)
{
	char path[] = "/tmp/gantry-unit-secret-XXXXXX", text[256];
	struct gantry_image *image = NULL;
	int fd;

	open_for_guests();
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "#error found-the-secret\n", 24), 24);
	(void)close(fd);
	(void)snprintf(text, sizeof(text), "#include \"%s\"\n%s", path, source);
	ck_assert_int_eq(load(text, strlen(text), &image), -ENOEXEC);
	(void)unlink(path);
	ck_assert_msg(strstr(err.text, "found-the-secret") == NULL, "%s", err.text);
	gantry_device_close(&device);
}
END_TEST

/* ---- images of pixels ---- */

static const char pixels_text[] =
	"__kernel void k(read_only image2d_t in, sampler_t s, __global uint4 *out)\n"
	"{ int2 at = (int2)(get_global_id(0), get_global_id(1)); out[at.y * 4 + at.x] = read_imageui(in, s, at); }";

/* Sixteen pixels of four bytes, and what a kernel reads of them. */
struct pixels {
	unsigned char in[64 + 16] __attribute__((aligned(64)));
	uint32_t out[64];
	struct gantry_launch_image image;
	struct gantry_launch_sampler sampler;
	struct gantry_stream *stream;
	struct gantry_mem *mem[2];
	struct gantry_cmd cmd;
	struct gantry_signature sig;
};

static struct pixels px;

static void pixels_init(void)
{
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *be = device.backend;
	struct gantry_image *image;

	for (size_t i = 0; i < sizeof(px.in); i++)
		px.in[i] = (unsigned char)(3 * i + 1);
	px.image = (struct gantry_launch_image){
		GANTRY_IMAGE_2D, 0x10B5, 0x10DA, 0, 4, 4, 1, 1, 16, 64
	};
	px.sampler = (struct gantry_launch_sampler){ 0, GANTRY_SAMPLER_ADDRESSING + 2,
						     GANTRY_SAMPLER_FILTER, 0 };
	ck_assert_msg(load(pixels_text, sizeof(pixels_text) - 1, &image) == 0, "%s", err.text);
	ck_assert_int_eq(gantry_signature_parse("image,r:u8*,sampler,w:u8*", &px.sig, &err), 0);
	px.cmd = (struct gantry_cmd){ .kind = GANTRY_CMD_LAUNCH, .tag = 9 };
	ck_assert_msg(be->kernel_get(image, "k", &px.sig, &px.cmd.launch.kernel, &err) == 0, "%s",
		      err.text);
	ck_assert_int_eq(be->mem_host(device.dev, px.in, sizeof(px.in), &px.mem[0], &err), 0);
	ck_assert_int_eq(be->mem_host(device.dev, px.out, sizeof(px.out), &px.mem[1], &err), 0);
	ck_assert_int_eq(be->stream_create(device.dev, &attr, &px.stream, &err), 0);
	for (int i = 0; i < 3; i++) {
		px.cmd.launch.grid[i] = 1;
		px.cmd.launch.block[i] = i < 2 ? 4 : 1;
	}
	px.cmd.launch.nargs = 4;
	px.cmd.launch.args[0].raw = (struct gantry_raw){ &px.image, sizeof(px.image) };
	px.cmd.launch.args[1].range = (struct gantry_range){ px.mem[0], 0, 64 };
	px.cmd.launch.args[2].raw = (struct gantry_raw){ &px.sampler, sizeof(px.sampler) };
	px.cmd.launch.args[3].range = (struct gantry_range){ px.mem[1], 0, sizeof(px.out) };
}

static void pixels_run(void)
{
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_done done;

	memset(px.out, 0xff, sizeof(px.out));
	ck_assert_int_eq(device.backend->submit(px.stream, &px.cmd), 0);
	while (device.backend->poll(device.dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	ck_assert_int_eq(done.status, GANTRY_OK);
	for (size_t i = 0; i < 64; i++)
		ck_assert_uint_eq(px.out[i], px.in[px.cmd.launch.args[1].range.off + i]);
}

static const char *const memories[] = { "memory=direct", "memory=staged" };

/* A guest's description is nobody's word. */
START_TEST(test_image_that_is_not_what_it_says_is_refused)
{
	static const struct {
		size_t off;
		uint64_t value;
	} wrong[] = {
		{ offsetof(struct gantry_launch_image, width), 5 },
		{ offsetof(struct gantry_launch_image, height), 5 },
		{ offsetof(struct gantry_launch_image, height), 1ull << 60 },
		{ offsetof(struct gantry_launch_image, depth), 2 },
		{ offsetof(struct gantry_launch_image, row_bytes), 15 },
		{ offsetof(struct gantry_launch_image, row_bytes), UINT64_MAX },
		{ offsetof(struct gantry_launch_image, slice_bytes), 80 },
	};

	open_for_guests();
	gantry_device_close(&device);
	ck_assert_int_eq(open_for_guests_with(memories[_i]), 0);
	pixels_init();
	pixels_run();
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++) {
		uint64_t *at = (uint64_t *)(void *)((char *)&px.image + wrong[i].off), was = *at;

		*at = wrong[i].value;
		ck_assert_int_eq(device.backend->submit(px.stream, &px.cmd), -EINVAL);
		*at = was;
	}
	px.cmd.launch.args[1].range.len = 63; /* a byte less than it takes */
	ck_assert_int_eq(device.backend->submit(px.stream, &px.cmd), -EINVAL);
	px.cmd.launch.args[1].range = (struct gantry_range){ px.mem[0], 2,
							     64 }; /* within a pixel */
	ck_assert_int_eq(device.backend->submit(px.stream, &px.cmd), -EINVAL);
	px.cmd.launch.args[1].range = (struct gantry_range){ 0 }; /* no buffer at all */
	ck_assert_int_eq(device.backend->submit(px.stream, &px.cmd), -EINVAL);
	px.cmd.launch.args[1].range = (struct gantry_range){ px.mem[0], 12, 64 };
	px.sampler.filter = 7;
	ck_assert_int_eq(device.backend->submit(px.stream, &px.cmd), -EINVAL);
	px.sampler.filter = GANTRY_SAMPLER_FILTER;
	pixels_run(); /* nothing of what was refused is left */
	device.backend->stream_destroy(px.stream);
	gantry_device_close(&device);
}
END_TEST

/* Bytes of a guest's never become a handle of the driver's. */
START_TEST(test_image_or_sampler_under_another_type_is_refused)
{
	static const char *const wrong[] = { "r:u8*,sampler,w:u8*",
					     "b8,sampler,w:u8*",
					     "local,sampler,w:u8*",
					     "image,r:u8*,u64,w:u8*",
					     "image,r:u8*,b8,w:u8*",
					     "image,r:u8*,b16,w:u8*",
					     "image,r:u8*,sampler,image,w:u8*",
					     "sampler,sampler,w:u8*",
					     "image,r:u8*,sampler" };
	struct gantry_image *image;
	struct gantry_kernel *kernel;
	struct gantry_signature sig;

	open_for_guests();
	ck_assert_msg(load(pixels_text, sizeof(pixels_text) - 1, &image) == 0, "%s", err.text);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(gantry_signature_parse(wrong[i], &sig, &err), 0);
		ck_assert_msg(device.backend->kernel_get(image, "k", &sig, &kernel, &err) ==
				      -EINVAL,
			      "%s", wrong[i]);
	}
	gantry_device_close(&device);
}
END_TEST

/* ---- what is said of an image ---- */

#define NKERNELS 24u

static unsigned ntrials;

/* A driver that takes four bytes and nothing else. */
static cl_int CL_API_CALL takes_four(cl_kernel kernel, cl_uint i, size_t n, const void *value)
{
	(void)kernel;
	(void)i;
	(void)value;
	ntrials++;
	return n == 4 ? CL_SUCCESS : CL_INVALID_ARG_SIZE;
}

/* Sizes of types that a text names itself are found by trying: not of as many as a stranger's text has. */
START_TEST(test_what_is_tried_for_an_image_is_bounded_and_said_once)
{
	static char text[16384], said[65536], again[65536];
	struct gantry_opencl_driver strict;
	struct gantry_image *image;
	size_t len;

	len = (size_t)snprintf(text, sizeof(text), "typedef int s;\n");
	for (unsigned i = 0; i < NKERNELS; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"__kernel void k%02u(s a, float3 v, s b) { }\n", i);
	open_for_guests();
	ck_assert_msg(load(text, len, &image) == 0, "%s", err.text);
	strict = *device.dev->cl;
	strict.SetKernelArg = takes_four;
	device.dev->cl = &strict;
	device.backend->image_say(device.dev, image, said, sizeof(said));
	ck_assert_uint_le(ntrials, 8192);
	ck_assert_msg(strstr(said, "\t4\ts\ta\n") != NULL, "%s", said);
	ck_assert_msg(strstr(said, "\t16\tfloat3\tv\n") != NULL, "%s", said);
	ck_assert_msg(strstr(said, "\t0\ts\tb\n") != NULL, "all %u were tried", 2 * NKERNELS);
	device.backend->image_say(device.dev, image, again, sizeof(again));
	ck_assert_str_eq(said, again);
	ck_assert_uint_le(ntrials, 8192);
	/* Cut short: no half of a line, and no end. */
	device.backend->image_say(device.dev, image, again, 100);
	ck_assert_uint_lt(strlen(again), 100);
	ck_assert_ptr_null(strstr(again, "\nend\n"));
	gantry_device_close(&device);
}
END_TEST

/* What did not fit when it was asked is not asked for the rest. */
START_TEST(test_what_does_not_fit_of_an_image_is_not_tried)
{
	static char text[16384], said[256];
	struct gantry_opencl_driver strict;
	struct gantry_image *image;
	size_t len = 0;

	for (unsigned i = 0; i < NKERNELS; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"typedef int t%02u; __kernel void k%02u(t%02u a) { }\n", i,
					i, i);
	open_for_guests();
	ck_assert_msg(load(text, len, &image) == 0, "%s", err.text);
	strict = *device.dev->cl;
	strict.SetKernelArg = takes_four;
	device.dev->cl = &strict;
	device.backend->image_say(device.dev, image, said, sizeof(said));
	ck_assert_uint_ge(ntrials, 1);
	ck_assert_uint_lt(ntrials, NKERNELS / 2 * 258);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_folder_goes_with_the_process)
{
	char folder[256];
	struct stat st;
	uint64_t deadline;
	int pipes[2];
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		const char *name;

		if (gantry_opencl_builder_start(&err) < 0)
			_exit(1);
		name = getenv("POCL_CACHE_DIR");
		if (!name || write(pipes[1], name, strlen(name) + 1) < 0)
			_exit(1);
		_exit(0);
	}
	(void)close(pipes[1]);
	n = read(pipes[0], folder, sizeof(folder));
	ck_assert_int_gt(n, 0);
	(void)close(pipes[0]);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	deadline = gantry_deadline_ns(30 * (int64_t)GANTRY_NS_PER_S);
	while (stat(folder, &st) == 0) {
		ck_assert_msg(!gantry_deadline_passed(deadline), "%s is still there", folder);
		(void)sched_yield();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl");
	TCase *life = gantry_unit_case(suite, "life");
	TCase *guests = gantry_unit_case(suite, "guests");

	tcase_set_timeout(life, TIMEOUT_S);
	tcase_set_timeout(guests, TIMEOUT_S);
	tcase_add_test(life, test_open_with_a_wrong_option_names_it);
	tcase_add_test(life, test_open_without_a_loader_is_no_device);
	tcase_add_test(life, test_open_of_a_device_that_is_not_there_says_what_is);
	tcase_add_test(life, test_folder_goes_with_the_process);
	tcase_add_test(guests, test_device_without_leave_takes_no_guest_code);
	tcase_add_test(guests, test_guest_text_and_guest_binary_run);
	tcase_add_test(guests, test_guest_binary_cut_or_foreign_is_refused);
	tcase_add_test(guests, test_text_that_does_not_compile_is_refused_with_the_complaint);
	tcase_add_test(guests, test_guest_text_reads_no_file_of_the_host);
	tcase_add_loop_test(guests, test_image_that_is_not_what_it_says_is_refused, 0,
			    GANTRY_ARRAY_SIZE(memories));
	tcase_add_test(guests, test_image_or_sampler_under_another_type_is_refused);
	tcase_add_test(guests, test_what_is_tried_for_an_image_is_bounded_and_said_once);
	tcase_add_test(guests, test_what_does_not_fit_of_an_image_is_not_tried);
	return gantry_unit_run(suite);
}
