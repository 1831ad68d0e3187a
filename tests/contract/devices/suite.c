/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite for every backend of the build, plain and under filters. Each row is opened under the
 * contract checker, which asserts more than the tests say.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/str.h"
#include "tests/contract/devices/fixture.h"
#include "tests/unit/runner.h"

#define UNDER_ALL                                                                                 \
	"filters=contract,record,delay,error,contract", "record.file=/dev/null", "delay.polls=3", \
		"error.submit=1000000:EIO"

static const struct dut_row rows[] = {
	{ "null", "null", false, { "filters=contract" } },
	{ "null under filters", "null", false, { UNDER_ALL } },
	{ "cpu", "cpu", true, { "filters=contract", "scratch=1M" } },
	{ "cpu under filters", "cpu", true, { UNDER_ALL, "scratch=1M" } },
	{ "cpu without checker", "cpu", true, { "scratch=1M" } },
	{ "cpu with two cores", "cpu", true, { "filters=contract", "cores=2", "scratch=1M" } },
	{ "cpu with three cores under filters",
	  "cpu",
	  true,
	  { UNDER_ALL, "cores=3", "scratch=1M" } },
	{ "cpu with two cores without checker", "cpu", true, { "cores=2", "scratch=1M" } },
	{ "cpu with windows", "cpu", true, { "filters=contract", "window=yes", "scratch=1M" } },
	{ "cpu with windows and two cores under filters",
	  "cpu",
	  true,
	  { UNDER_ALL, "window=yes", "cores=2", "scratch=1M" } },
	{ "sim that works", "sim", true, { "filters=contract", "work=cpu" } },
	{ "sim that works under filters", "sim", true, { UNDER_ALL, "work=cpu" } },
	{ "sim", "sim", false, { "filters=contract" } },
	{ "cuda", "cuda", true, { "filters=contract" }, dut_choose_cuda },
	{ "cuda under filters", "cuda", true, { UNDER_ALL }, dut_choose_cuda },
	{ "cuda without checker", "cuda", true, { NULL }, dut_choose_cuda },
	{ "opencl", "opencl", true, { "filters=contract", "guest_code=yes" }, dut_choose_opencl },
	{ "opencl under filters", "opencl", true, { UNDER_ALL }, dut_choose_opencl },
	{ "opencl with memory apart",
	  "opencl",
	  true,
	  { "filters=contract", "memory=staged" },
	  dut_choose_opencl },
	{ "hip", "hip", true, { "filters=contract" }, dut_choose_hip },
	{ "hip of ROCm 5", "hip", true, { "filters=contract", "memory=staged" }, dut_choose_hip5 },
	{ "hip over CUDA", "hip", true, { "filters=contract" }, dut_choose_hip_cuda },
	{ "hip over CUDA under filters", "hip", true, { UNDER_ALL }, dut_choose_hip_cuda },
};

static struct dut *dut;

/* ck_assert() tells the parent process of every call: too slow for each of many items. */
static void assert_all(const uint32_t *items, size_t count, uint32_t expected)
{
	for (size_t i = 0; i < count; i++)
		if (items[i] != expected)
			ck_abort_msg("item %zu is %u, not %u", i, items[i], expected);
}

/* Tests of memory that comes in by a descriptor are not for devices whose memory is behind windows. */
static void need_import(void)
{
	if (!(dut->device.info.caps & GANTRY_CAP_MEM_FD))
		gantry_unit_skip("this device imports no memory");
}

static void need_windows(void)
{
	if (!(dut->device.info.caps & GANTRY_CAP_WINDOW))
		gantry_unit_skip("this device has no windows");
}

/* GANTRY_TEST_ROWS: only those whose title begins so. */
static void open_row(int idx)
{
	const char *only = getenv("GANTRY_TEST_ROWS");

	if (only && !gantry_str_starts(rows[idx].title, only))
		gantry_unit_skip("other rows were asked for");
	dut = dut_open(&rows[idx]);
}

/* The same, for tests that look at results. */
static void open_working_row(int idx)
{
	if (!rows[idx].moves_data)
		gantry_unit_skip("this device moves no data");
	open_row(idx);
}

START_TEST(test_open_tells_a_usable_device)
{
	open_row(_i);
	ck_assert_uint_gt(dut->device.info.mem_bytes, 0);
	ck_assert_uint_ge(dut->device.info.lanes, 1);
	ck_assert_uint_ne(dut->device.info.caps & (GANTRY_CAP_MEM_FD | GANTRY_CAP_WINDOW), 0);
	dut_close(dut);
}
END_TEST

START_TEST(test_fill_of_every_width_writes_its_range_only)
{
	static unsigned char host[256], expected[256];
	const uint64_t pattern = 0x8877665544332211ull;

	open_working_row(_i);
	for (uint32_t width = 1; width <= 8; width *= 2) {
		struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
		struct gantry_cmd cmd = dut_fill(mem, 3, 23 * width, pattern, width);

		memset(host, 0xee, sizeof(host));
		memset(expected, 0xee, sizeof(expected));
		for (uint32_t i = 0; i < 23; i++)
			memcpy(expected + 3 + i * width, &pattern, width);
		ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
		ck_assert_mem_eq(host, expected, sizeof(host));
		dut->device.backend->mem_free(mem);
	}
	dut_close(dut);
}
END_TEST

START_TEST(test_copy_from_host_reaches_the_descriptor)
{
	static unsigned char host[8192], back[8192];
	unsigned char *seen;
	int fd;

	open_working_row(_i);
	need_import();
	struct gantry_mem *mem = dut_import(dut, sizeof(host), &fd);
	struct gantry_cmd in = dut_copy(mem, 16, dut_host(dut, host, sizeof(host)), 0, 5000);
	struct gantry_cmd out = dut_copy(dut_host(dut, back, sizeof(back)), 8, mem, 16, 5000);

	for (size_t i = 0; i < sizeof(host); i++)
		host[i] = (unsigned char)(i * 7);
	ck_assert_int_eq(dut_run(dut, &in).status, GANTRY_OK);
	ck_assert_int_eq(dut_run(dut, &out).status, GANTRY_OK);
	ck_assert_mem_eq(back + 8, host, 5000);
	ck_assert_uint_eq(back[7], 0);

	seen = mmap(NULL, sizeof(host), PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	ck_assert_mem_eq(seen + 16, host, 5000);
	munmap(seen, sizeof(host));
	gantry_fd_close(fd);
	dut_close(dut);
}
END_TEST

START_TEST(test_import_at_an_offset_maps_that_part)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem;
	unsigned char byte;
	int fd;

	open_working_row(_i);
	need_import();
	ck_assert_int_eq(gantry_memfd_create("dut", 3 * page, 0, &fd), 0);
	ck_assert_int_eq(
		dut->device.backend->mem_import(dut->device.dev, fd, page, page, &mem, &err), 0);
	struct gantry_cmd cmd = dut_fill(mem, 0, page, 0xab, 1);
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)page - 1), 1);
	ck_assert_uint_eq(byte, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)(2 * page) - 1), 1);
	ck_assert_uint_eq(byte, 0xab);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)(2 * page)), 1);
	ck_assert_uint_eq(byte, 0);
	gantry_fd_close(fd);
	dut_close(dut);
}
END_TEST

START_TEST(test_alloc_past_the_pool_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem = NULL;

	open_row(_i);
	if (!dut->device.backend->mem_alloc)
		gantry_unit_skip("the backend imports only");
	ck_assert_int_eq(dut->device.backend->mem_alloc(dut->device.dev, UINT64_MAX, &mem, &err),
			 -ENOMEM);
	ck_assert_ptr_null(mem);
	ck_assert_int_eq(dut->device.backend->mem_alloc(dut->device.dev, 65536, &mem, &err), 0);
	dut->device.backend->mem_free(mem);
	dut_close(dut);
}
END_TEST

/* Bytes of [off, off + len) of @mem, as they are now. */
static const unsigned char *peek(struct gantry_mem *mem, uint64_t off, uint64_t len)
{
	static unsigned char host[4096];
	struct gantry_mem *to = dut_host(dut, host, sizeof(host));
	struct gantry_cmd cmd = dut_copy(to, 0, mem, off, len);

	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	dut->device.backend->mem_free(to);
	return host;
}

static void paint(struct gantry_mem *mem, uint64_t off, uint64_t len, uint64_t byte)
{
	struct gantry_cmd cmd = dut_fill(mem, off, len, byte, 1);

	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
}

START_TEST(test_slab_is_zero_and_keeps_its_bytes_from_window_to_window)
{
	struct gantry_mem *first, *second;
	uint64_t align;
	int fd;

	open_working_row(_i);
	need_windows();
	align = dut->device.info.slab_align;
	first = dut_window(dut, 4);
	fd = dut_slab(dut, first, 1, 2);
	ck_assert_uint_eq(peek(first, align, 1)[0], 0);
	ck_assert_uint_eq(peek(first, 3 * align - 1, 1)[0], 0);
	paint(first, 2 * align - 8, 16, 0xa5); /* across the granules of one slab */
	dut->device.backend->mem_free(first);

	second = dut_window(dut, 8);
	dut_map(dut, second, 5, 2, fd);
	ck_assert_uint_eq(peek(second, 6 * align - 9, 1)[0], 0);
	ck_assert_uint_eq(peek(second, 6 * align - 8, 1)[0], 0xa5);
	ck_assert_uint_eq(peek(second, 6 * align + 7, 1)[0], 0xa5);
	gantry_fd_close(fd);
	dut_close(dut);
}
END_TEST

START_TEST(test_range_may_cross_slabs_and_unmapping_one_leaves_the_other)
{
	struct gantry_mem *window;
	uint64_t align;
	int a, b;

	open_working_row(_i);
	need_windows();
	align = dut->device.info.slab_align;
	window = dut_window(dut, 4);
	a = dut_slab(dut, window, 0, 1);
	b = dut_slab(dut, window, 1, 1);
	paint(window, align - 64, 128, 0x77);
	dut->device.backend->window_unmap(window, 0, align);
	ck_assert_uint_eq(peek(window, align + 63, 1)[0], 0x77);
	dut_map(dut, window, 0, 1, a);
	ck_assert_uint_eq(peek(window, align - 64, 1)[0], 0x77);
	gantry_fd_close(a);
	gantry_fd_close(b);
	dut_close(dut);
}
END_TEST

START_TEST(test_slab_lies_at_two_addresses)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *window, *range;
	const struct gantry_backend *be;
	uint64_t align;

	open_working_row(_i);
	need_windows();
	be = dut->device.backend;
	if (!be->window_alias)
		gantry_unit_skip("a slab has one address on this device");
	align = dut->device.info.slab_align;
	window = dut_window(dut, 4);
	range = dut_window(dut, 8);
	gantry_fd_close(dut_slab(dut, window, 1, 2));
	paint(window, align + 64, 64, 0x31);
	ck_assert_msg(be->window_alias(range, 5 * align, window, align, 2 * align, &err) == 0, "%s",
		      err.text);
	ck_assert_int_eq(be->window_rights(range, 5 * align, 2 * align, GANTRY_R, &err), 0);
	ck_assert_uint_eq(peek(range, 5 * align + 64, 1)[0], 0x31);
	ck_assert_int_eq(be->window_rights(range, 5 * align, 2 * align, GANTRY_RW, &err), 0);
	paint(range, 7 * align - 64, 64, 0x32);
	ck_assert_uint_eq(peek(window, 3 * align - 1, 1)[0], 0x32);
	/* Gone from one, and there at the other. */
	be->window_unmap(window, align, 2 * align);
	ck_assert_uint_eq(peek(range, 5 * align + 64, 1)[0], 0x31);
	be->window_unmap(range, 5 * align, 2 * align);
	gantry_fd_close(dut_slab(dut, range, 5, 2));
	ck_assert_uint_eq(peek(range, 5 * align + 64, 1)[0], 0);
	be->mem_free(range);
	dut_close(dut);
}
END_TEST

START_TEST(test_scrubbed_slab_is_zero)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *window;
	uint64_t align;
	int fd;

	open_working_row(_i);
	need_windows();
	align = dut->device.info.slab_align;
	window = dut_window(dut, 2);
	fd = dut_slab(dut, window, 0, 2);
	paint(window, 0, 2 * align, 0xff);
	dut->device.backend->window_unmap(window, 0, 2 * align);
	ck_assert_int_eq(dut->device.backend->slab_scrub(dut->device.dev, fd, 2 * align, &err), 0);
	dut_map(dut, window, 0, 2, fd);
	for (uint64_t off = 0; off < 2 * align; off += align / 2) {
		static const unsigned char zero[4096];

		ck_assert_mem_eq(peek(window, off, sizeof(zero)), zero, sizeof(zero));
	}
	gantry_fd_close(fd);
	dut_close(dut);
}
END_TEST

START_TEST(test_kernels_work_on_a_window)
{
	struct gantry_mem *window;
	uint64_t align;

	open_working_row(_i);
	need_windows();
	align = dut->device.info.slab_align;
	window = dut_window(dut, 2);
	gantry_fd_close(dut_slab(dut, window, 1, 1)); /* what is mapped stays */
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "step", "rw:u32*"), 1);

	dut_arg_range(&cmd, 0, window, align + 4096, 4);
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	ck_assert_uint_eq(peek(window, align + 4096, 4)[0], 1);
	dut_close(dut);
}
END_TEST

START_TEST(test_window_lies_where_it_was_asked_for_or_is_refused)
{
#ifdef GANTRY_ATOMIC_UNDER_TSAN
	gantry_unit_skip("the thread sanitizer ends programs that use the windows' addresses");
#endif
	const uint64_t address = 0x300000000000;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *window = NULL, *other = NULL;
	uint64_t len;
	int r;

	open_working_row(_i);
	need_windows();
	len = 4 * dut->device.info.slab_align;
	r = dut->device.backend->window_open(dut->device.dev, address, len, &window, &err);
	if (r < 0)
		gantry_unit_skip("a sanitizer has the place that the test knows of");
	ck_assert_int_eq(dut->device.backend->window_open(dut->device.dev, address, len, &other,
							  &err),
			 -EADDRINUSE);
	ck_assert_ptr_null(other);
	dut->device.backend->mem_free(window);
	ck_assert_int_eq(
		dut->device.backend->window_open(dut->device.dev, address, len, &other, &err), 0);
	dut_close(dut);
}
END_TEST

START_TEST(test_descriptor_that_is_no_slab_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *window;
	uint64_t align;
	int fd;

	open_working_row(_i);
	need_windows();
	align = dut->device.info.slab_align;
	window = dut_window(dut, 4);
	ck_assert_int_eq(gantry_memfd_create("small", 4096, GANTRY_MEMFD_SEALED, &fd), 0);
	ck_assert_int_lt(dut->device.backend->window_map(window, 0, align, fd, &err), 0);
	ck_assert_str_ne(err.text, "");
	gantry_fd_close(fd);
	dut_close(dut);
}
END_TEST

START_TEST(test_launch_gets_geometry_and_arguments)
{
	static uint32_t host[16];
	static const uint32_t expected[9] = { 1, 2, 3, 4, 5, 6, 3, 41, 42 };

	open_working_row(_i);
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "geometry", "w:u32*,f64,i32"), 3);
	for (uint32_t i = 0; i < 3; i++) {
		cmd.launch.grid[i] = i + 1;
		cmd.launch.block[i] = i + 4;
	}
	dut_arg_range(&cmd, 0, dut_host(dut, host, sizeof(host)), 0, sizeof(host));
	cmd.launch.args[1].value.f64 = 41.5;
	cmd.launch.args[2].value.i32 = 42;
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	ck_assert_mem_eq(host, expected, sizeof(expected));
	dut_close(dut);
}
END_TEST

START_TEST(test_kernel_that_fails_hurts_its_command_only)
{
	open_working_row(_i);
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "answer", "i32"), 1);
	struct gantry_done done;

	cmd.launch.args[0].value.i32 = -EINVAL;
	done = dut_run(dut, &cmd);
	ck_assert_int_eq(done.status, GANTRY_E_KERNEL);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	cmd.launch.args[0].value.i32 = 0;
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	dut_close(dut);
}
END_TEST

START_TEST(test_kernel_get_of_an_unknown_symbol_says_so)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_kernel *kernel = NULL;
	struct gantry_signature sig = { 0 };

	open_working_row(_i);
	(void)dut_kernel(dut, "set", "w:u32*,u32");
	ck_assert_int_eq(dut->device.backend->kernel_get(dut->image, "nobody", &sig, &kernel, &err),
			 -ENOENT);
	ck_assert_ptr_null(kernel);
	ck_assert_ptr_nonnull(strstr(err.text, "nobody"));
	dut_close(dut);
}
END_TEST

START_TEST(test_image_that_is_none_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_image *image = NULL;

	open_working_row(_i);
	ck_assert_int_eq(dut->device.backend->image_load(dut->device.dev, "/proc/self/status", NULL,
							 0, &image, &err),
			 -ENOEXEC);
	ck_assert_ptr_null(image);
	ck_assert_int_eq(dut->device.backend->image_load(dut->device.dev, "libc.so.6", NULL, 0,
							 &image, &err),
			 -ENOEXEC);
	dut_close(dut);
}
END_TEST

/* The file's bytes, as a guest sends them; ends with a NUL that is not counted. */
static char *read_code(size_t *ret_bytes)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char *bytes;

	if (!dut->images.code || !(dut->device.info.caps & GANTRY_CAP_GUEST_IMAGES))
		gantry_unit_skip("no image is sent to this device");
	ck_assert_msg(gantry_file_read(dut_image_path(dut->images.code), 64 << 20, &bytes,
				       ret_bytes) == 0,
		      "%s", err.text);
	return bytes;
}

static int device_load(const char *bytes, size_t nbytes, struct gantry_err *err)
{
	return dut->device.backend->image_load(dut->device.dev, NULL, bytes, nbytes, &dut->image,
					       err);
}

START_TEST(test_guest_image_runs_with_the_parameters_it_was_compiled_with)
{
	static const char *const wrong[] = { "w:u32*,f64", "w:u32*,f32,i32", "w:u32*,f64,i32,i32",
					     "f64,w:u32*,i64" };
	static uint32_t host[16];
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_kernel *kernel;
	struct gantry_signature sig;
	size_t nbytes;

	open_working_row(_i);
	char *bytes = read_code(&nbytes);
	int r = device_load(bytes, nbytes, &err);

	free(bytes);
	/* A vendor's library may be newer than what is checked of its binaries: refused with a sentence, as it should. */
	if (r == -ENOEXEC && strstr(err.text, "this build knows"))
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(gantry_signature_parse(wrong[i], &sig, &err), 0);
		ck_assert_int_eq(dut->device.backend->kernel_get(dut->image, "geometry", &sig,
								 &kernel, &err),
				 -EINVAL);
		ck_assert_ptr_nonnull(strstr(err.text, "parameter"));
	}
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "probe_step", "rw:u32*"), 1);
	host[0] = 5;
	dut_arg_range(&cmd, 0, dut_host(dut, host, sizeof(host)), 0, sizeof(host));
	/* Only a host function can do without a geometry. */
	ck_assert_int_eq(dut_submit(dut, dut->stream, &cmd), -EINVAL);
	for (unsigned int i = 0; i < 3; i++)
		cmd.launch.grid[i] = cmd.launch.block[i] = 1;
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	ck_assert_uint_eq(host[0], 16);
	cmd.launch.block[0] = 1u << 30;
	ck_assert_int_eq(dut_submit(dut, dut->stream, &cmd), -EINVAL);
	dut_close(dut);
}
END_TEST

START_TEST(test_guest_image_cut_short_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_image *image = NULL;
	size_t nbytes;

	open_working_row(_i);
	char *bytes = read_code(&nbytes);
	for (unsigned int i = 1; i < 8; i++) {
		size_t cut = nbytes * i / 8;
		char *some = malloc(cut);

		ck_assert_ptr_nonnull(some);
		memcpy(some, bytes, cut);
		ck_assert_int_eq(dut->device.backend->image_load(dut->device.dev, NULL, some, cut,
								 &image, &err),
				 -ENOEXEC);
		ck_assert_ptr_null(image);
		free(some);
	}
	free(bytes);
	dut_close(dut);
}
END_TEST

START_TEST(test_image_unload_and_load_again_works)
{
	open_row(_i);
	(void)dut_kernel(dut, "set", "w:u32*,u32");
	dut->device.backend->image_unload(dut->image);
	dut->image = NULL;
	(void)dut_kernel(dut, "step", "rw:u32*");
	dut_close(dut);
}
END_TEST

START_TEST(test_commands_of_a_stream_run_in_order)
{
	enum {
		NSTEPS = 500
	};
	static uint32_t host[4];
	struct gantry_done done[NSTEPS];
	uint32_t expected = 1;
	unsigned int submitted = 0, finished = 0;

	open_row(_i);
	struct gantry_kernel *kernel = dut_kernel(dut, "step", "rw:u32*");
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));

	host[0] = 1;
	while (finished < NSTEPS) {
		struct gantry_cmd cmd = dut_launch(kernel, 1);

		dut_arg_range(&cmd, 0, mem, 0, sizeof(uint32_t));
		if (submitted < NSTEPS && dut_submit(dut, dut->stream, &cmd) == 0)
			submitted++;
		else
			finished += dut->device.backend->poll(dut->device.dev, done + finished,
							      NSTEPS - finished);
	}
	for (unsigned int i = 0; i < NSTEPS; i++) {
		ck_assert_uint_eq(done[i].tag, i + 1);
		expected = 3 * expected + 1;
	}
	if (dut->row->moves_data)
		ck_assert_uint_eq(host[0], expected);
	dut_close(dut);
}
END_TEST

START_TEST(test_full_device_says_again_and_loses_nothing)
{
	enum {
		MAX = 5000
	};
	static uint32_t host[4];
	static struct gantry_done done[MAX];
	static bool seen[MAX + 1];
	unsigned int submitted = 0;
	int r = 0;

	open_row(_i);
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	/* Nothing is polled, so every device is full at some count. */
	while (submitted < MAX) {
		struct gantry_cmd cmd = dut_fill(mem, 0, 8, submitted, 8);

		r = dut_submit(dut, dut->stream, &cmd);
		if (r < 0)
			break;
		submitted++;
	}
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert_uint_ge(submitted, 16);
	dut_wait(dut, done, submitted);
	for (unsigned int i = 0; i < submitted; i++) {
		ck_assert(!seen[done[i].tag]);
		seen[done[i].tag] = true;
	}
	struct gantry_cmd again = dut_fill(mem, 0, 8, 0, 8);
	ck_assert_int_eq(dut_run(dut, &again).status, GANTRY_OK);
	dut_close(dut);
}
END_TEST

START_TEST(test_many_streams_all_finish)
{
	enum {
		NSTREAMS = 20,
		EACH = 15
	};
	static uint32_t host[NSTREAMS];
	struct gantry_stream *streams[NSTREAMS];
	struct gantry_done done[NSTREAMS * EACH];
	uint32_t expected = 0;

	open_row(_i);
	struct gantry_kernel *kernel = dut_kernel(dut, "step", "rw:u32*");
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));

	for (unsigned int s = 0; s < NSTREAMS; s++)
		streams[s] = dut_stream(dut, (int32_t)(s % 3));
	for (unsigned int i = 0; i < NSTREAMS * EACH; i++) {
		struct gantry_cmd cmd = dut_launch(kernel, 1);

		dut_arg_range(&cmd, 0, mem, 4 * (i % NSTREAMS), 4);
		ck_assert_int_eq(dut_submit(dut, streams[i % NSTREAMS], &cmd), 0);
	}
	/* One at a time: a small answer must starve no stream. */
	for (unsigned int i = 0; i < NSTREAMS * EACH; i++)
		dut_wait(dut, done + i, 1);
	for (unsigned int i = 0; i < EACH; i++)
		expected = 3 * expected + 1;
	for (unsigned int s = 0; s < NSTREAMS; s++) {
		if (dut->row->moves_data)
			ck_assert_uint_eq(host[s], expected);
		dut->device.backend->stream_destroy(streams[s]);
	}
	dut_close(dut);
}
END_TEST

START_TEST(test_streams_come_and_go_beside_work)
{
	static uint32_t host[4];
	struct gantry_done done;

	open_row(_i);
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	for (unsigned int i = 0; i < 2000; i++) {
		struct gantry_stream *stream = dut_stream(dut, 0);
		struct gantry_cmd cmd = dut_fill(mem, 0, 8, i, 8);

		ck_assert_int_eq(dut_submit(dut, stream, &cmd), 0);
		dut_wait(dut, &done, 1);
		dut->device.backend->stream_destroy(stream);
	}
	dut_close(dut);
}
END_TEST

START_TEST(test_higher_priority_runs_first)
{
	static uint32_t host[4];
	struct gantry_done done[2];

	open_working_row(_i);
	if (!(dut->device.info.caps & GANTRY_CAP_CALLER_RUNS))
		gantry_unit_skip("with lanes of its own the first may start at once");
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	struct gantry_cmd low = dut_fill(mem, 0, 8, 1, 8), high = dut_fill(mem, 8, 8, 2, 8);

	ck_assert_int_eq(dut_submit(dut, dut->stream, &low), 0);
	ck_assert_int_eq(dut_submit(dut, dut_stream(dut, 5), &high), 0);
	dut_wait(dut, done, 2);
	ck_assert_uint_eq(done[0].tag, high.tag);
	dut_close(dut);
}
END_TEST

START_TEST(test_running_kernel_stops_when_cancelled)
{
	open_working_row(_i);
	if (dut->device.info.kind == GANTRY_KIND_OPENCL &&
	    !(dut->device.info.caps & GANTRY_CAP_HOST_DIRECT))
		gantry_unit_skip(
			"a kernel that runs apart from the host's memory hears nothing from it");
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "endless", "void"), 0);

	dut->cancel_after = 1000;
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_E_CANCELLED);
	ck_assert_uint_gt(dut->nquestions, 1000);
	dut_close(dut);
}
END_TEST

START_TEST(test_cancelled_command_does_not_start)
{
	static uint32_t host[4];

	open_working_row(_i);
	struct gantry_cmd cmd = dut_fill(dut_host(dut, host, sizeof(host)), 0, 8, 7, 8);

	host[0] = 1;
	dut->cancel_after = 1;
	gantry_fetch_add(&dut->nquestions, 1);
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_E_CANCELLED);
	ck_assert_uint_eq(host[0], 1);
	dut_close(dut);
}
END_TEST

START_TEST(test_completion_wakes_a_sleeper)
{
	static uint32_t host[4];
	struct gantry_done done;

	open_row(_i);
	if (dut->device.info.caps & GANTRY_CAP_CALLER_RUNS)
		gantry_unit_skip("nothing happens without poll()");
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	for (unsigned int i = 0; i < 200; i++) {
		struct gantry_cmd cmd = dut_fill(mem, 0, 8, i, 8);
		uint32_t before = gantry_load_acquire(&dut->nwakes);

		ck_assert_int_eq(dut_submit(dut, dut->stream, &cmd), 0);
		if (dut->device.backend->flush)
			dut->device.backend->flush(dut->stream);
		while (gantry_load_acquire(&dut->nwakes) == before)
			ck_assert_int_ne(gantry_futex_wait(&dut->nwakes, before,
							   gantry_deadline_ns(60000000000)),
					 -ETIMEDOUT);
		dut_wait(dut, &done, 1);
	}
	dut_close(dut);
}
END_TEST

START_TEST(test_device_time_is_of_the_work)
{
	static unsigned char host[4 << 20];

	open_working_row(_i);
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	struct gantry_cmd small = dut_fill(mem, 0, 64, 1, 8);
	struct gantry_cmd large = dut_fill(mem, 0, sizeof(host), 1, 8);
	uint64_t few = UINT64_MAX, many = UINT64_MAX;

	(void)dut_run(dut, &large); /* the pages are there after this */
	/* The least of some, of as many as it takes on a busy machine: other work only adds to it. */
	for (unsigned int i = 0; i < 5 || (many < few && i < 1000); i++) {
		few = gantry_min_u64(few, dut_run(dut, &small).device_ns);
		many = gantry_min_u64(many, dut_run(dut, &large).device_ns);
	}
	/* Equal where a busy machine let no short time be seen. */
	ck_assert_uint_ge(many, few);
	ck_assert_uint_gt(many, 1000);
	ck_assert_uint_lt(many, 1000000000);
	dut_close(dut);
}
END_TEST

START_TEST(test_split_kernel_touches_each_item_once)
{
	enum {
		N = 100000
	};
	static uint32_t host[N];

	open_working_row(_i);
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "split", "rw:u32*"), 1);

	dut_arg_range(&cmd, 0, mem, 0, sizeof(host));
	for (unsigned int round = 1; round <= 50; round++) {
		ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
		assert_all(host, N, round);
	}
	dut_close(dut);
}
END_TEST

START_TEST(test_split_kernels_of_many_streams_do_not_deadlock)
{
	enum {
		NSTREAMS = 6,
		EACH = 20,
		N = 4000
	};
	static uint32_t host[NSTREAMS][N];
	struct gantry_stream *streams[NSTREAMS];
	struct gantry_done done[NSTREAMS * EACH];

	open_working_row(_i);
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	struct gantry_kernel *kernel = dut_kernel(dut, "split", "rw:u32*");

	for (unsigned int s = 0; s < NSTREAMS; s++)
		streams[s] = dut_stream(dut, 0);
	for (unsigned int i = 0; i < NSTREAMS * EACH; i++) {
		struct gantry_cmd cmd = dut_launch(kernel, 1);

		dut_arg_range(&cmd, 0, mem, (i % NSTREAMS) * sizeof(host[0]), sizeof(host[0]));
		ck_assert_int_eq(dut_submit(dut, streams[i % NSTREAMS], &cmd), 0);
	}
	dut_wait(dut, done, NSTREAMS * EACH);
	assert_all(host[0], NSTREAMS * N, EACH);
	dut_close(dut);
}
END_TEST

START_TEST(test_scratch_memory_has_its_limit)
{
	static uint64_t host[8];

	open_working_row(_i);
	if (strcmp(dut->row->backend, "cpu") != 0)
		gantry_unit_skip("the limit is set on cpu rows only");
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "scratch", "u64,w:u64*"), 2);

	dut_arg_range(&cmd, 1, dut_host(dut, host, sizeof(host)), 0, sizeof(host));
	/* Twice half of the limit fits, again and again; more does not. */
	for (unsigned int i = 0; i < 3; i++) {
		cmd.launch.args[0].value.u64 = 512 << 10;
		ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
		ck_assert_uint_eq(host[0], 1);
		cmd.launch.args[0].value.u64 = (512 << 10) + 1;
		ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
		ck_assert_uint_eq(host[0], 0);
	}
	cmd.launch.args[0].value.u64 = UINT64_MAX;
	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	ck_assert_uint_eq(host[0], 0);
	dut_close(dut);
}
END_TEST

START_TEST(test_unknown_library_is_null)
{
	open_working_row(_i);
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "handle", "void"), 0);

	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	dut_close(dut);
}
END_TEST

START_TEST(test_openblas_multiplies)
{
	static float host[12] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	static const float product[4] = { 19, 22, 43, 50 };

	open_working_row(_i);
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "blas", "rw:f32*"), 1);
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));

	dut_arg_range(&cmd, 0, mem, 0, sizeof(host));
	if (dut_run(dut, &cmd).status == GANTRY_E_KERNEL)
		gantry_unit_skip("this machine has no OpenBLAS");
	ck_assert_mem_eq(host + 8, product, sizeof(product));
	dut_close(dut);
}
END_TEST

START_TEST(test_empty_buffer_argument_is_null)
{
	open_working_row(_i);
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "set", "w:u32*,u32"), 2);

	ck_assert_int_eq(dut_run(dut, &cmd).status, GANTRY_OK);
	dut_close(dut);
}
END_TEST

START_TEST(test_close_ends_what_is_left)
{
	static uint32_t host[4];

	open_row(_i);
	(void)dut_kernel(dut, "set", "w:u32*,u32");
	struct gantry_mem *mem = dut_host(dut, host, sizeof(host));
	for (unsigned int i = 0; i < 10; i++) {
		struct gantry_cmd cmd = dut_fill(mem, i % 2 * 8, 8, i,
						 8); /* each stream its own bytes */

		ck_assert_int_eq(dut_submit(dut, i % 2 ? dut->stream : dut_stream(dut, 1), &cmd),
				 0);
	}
	if (dut->device.info.caps & GANTRY_CAP_MEM_FD)
		(void)dut_import(dut, 4096, NULL);
	else
		gantry_fd_close(dut_slab(dut, dut_window(dut, 4), 1, 1));
	dut_close(dut);
}
END_TEST

START_TEST(test_poll_of_an_idle_device_has_nothing)
{
	struct gantry_done done;

	open_row(_i);
	for (unsigned int i = 0; i < 10; i++)
		ck_assert_uint_eq(dut->device.backend->poll(dut->device.dev, &done, 1), 0);
	ck_assert_uint_eq(dut->device.backend->poll(dut->device.dev, NULL, 0), 0);
	dut_close(dut);
}
END_TEST

static void add(TCase *tc, const TTest *test)
{
	tcase_add_loop_test(tc, test, 0, (int)GANTRY_ARRAY_SIZE(rows));
}

int main(void)
{
	Suite *suite = suite_create("devices");
	TCase *life = gantry_unit_case(suite, "life");
	TCase *data = gantry_unit_case(suite, "data");
	TCase *windows = gantry_unit_case(suite, "windows");
	TCase *order = gantry_unit_case(suite, "order");
	TCase *kernels = gantry_unit_case(suite, "kernels");

	add(life, test_open_tells_a_usable_device);
	add(life, test_close_ends_what_is_left);
	add(life, test_poll_of_an_idle_device_has_nothing);
	add(life, test_streams_come_and_go_beside_work);
	add(data, test_fill_of_every_width_writes_its_range_only);
	add(data, test_copy_from_host_reaches_the_descriptor);
	add(data, test_import_at_an_offset_maps_that_part);
	add(data, test_alloc_past_the_pool_is_refused);
	add(windows, test_slab_is_zero_and_keeps_its_bytes_from_window_to_window);
	add(windows, test_range_may_cross_slabs_and_unmapping_one_leaves_the_other);
	add(windows, test_slab_lies_at_two_addresses);
	add(windows, test_scrubbed_slab_is_zero);
	add(windows, test_kernels_work_on_a_window);
	add(windows, test_window_lies_where_it_was_asked_for_or_is_refused);
	add(windows, test_descriptor_that_is_no_slab_is_refused);
	add(data, test_device_time_is_of_the_work);
	add(order, test_commands_of_a_stream_run_in_order);
	add(order, test_full_device_says_again_and_loses_nothing);
	add(order, test_many_streams_all_finish);
	add(order, test_higher_priority_runs_first);
	add(order, test_completion_wakes_a_sleeper);
	add(order, test_running_kernel_stops_when_cancelled);
	add(order, test_cancelled_command_does_not_start);
	add(kernels, test_launch_gets_geometry_and_arguments);
	add(kernels, test_kernel_that_fails_hurts_its_command_only);
	add(kernels, test_kernel_get_of_an_unknown_symbol_says_so);
	add(kernels, test_image_that_is_none_is_refused);
	add(kernels, test_guest_image_runs_with_the_parameters_it_was_compiled_with);
	add(kernels, test_guest_image_cut_short_is_refused);
	add(kernels, test_image_unload_and_load_again_works);
	add(kernels, test_split_kernel_touches_each_item_once);
	add(kernels, test_split_kernels_of_many_streams_do_not_deadlock);
	add(kernels, test_scratch_memory_has_its_limit);
	add(kernels, test_unknown_library_is_null);
	add(kernels, test_openblas_multiplies);
	add(kernels, test_empty_buffer_argument_is_null);
	return gantry_unit_run(suite);
}
