/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend over the fake driver: what the contract suite cannot ask of every backend. */
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
#include "base/futex.h"
#include "devices/cuda/backend.h"
#include "devices/registry.h"
#include "proto/cuda_link.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/runner.h"

#define MAX_OPTS 6
#define WAIT_NS	 (20 * GANTRY_NS_PER_S)
#define MIB	 (1ull << 20)

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_stream *stream;
static struct gantry_signature sigs[16];
static unsigned int nsigs;
static uint32_t nwakes;
static uint64_t cancelled_tag = UINT64_MAX;

static void wake(void *cookie)
{
	(void)cookie;
	gantry_fetch_add(&nwakes, 1);
	(void)gantry_futex_wake(&nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	return gantry_load_relaxed(&cancelled_tag) == tag;
}

static const struct gantry_device_host host = { wake, cancelled, NULL };

static int open_with(struct gantry_device *ret_device, const char *const *more)
{
	const char *opts[MAX_OPTS] = { "driver=" FAKE_DRIVER, "nvml=" FAKE_NVML,
				       "filters=contract" };
	struct gantry_device_conf conf = {
		.name = "cuda0", .backend = "cuda", .opts = opts, .nopts = 3
	};

	while (more && *more)
		opts[conf.nopts++] = *more++;
	err = (struct gantry_err)GANTRY_ERR_NONE;
	return gantry_device_open(&conf, &host, ret_device, &err);
}

static struct gantry_stream *new_stream(struct gantry_device *on, int32_t priority)
{
	const struct gantry_stream_attr attr = { .priority = priority };
	struct gantry_stream *made;

	ck_assert_msg(on->backend->stream_create(on->dev, &attr, &made, &err) == 0, "%s", err.text);
	return made;
}

static void open_device(const char *const *more)
{
	ck_assert_msg(open_with(&device, more) == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
	stream = new_stream(&device, 0);
}

static void wait_done(struct gantry_done *ret_done, unsigned int n)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	unsigned int count = 0;

	while (count < n) {
		count += device.backend->poll(device.dev, ret_done + count, n - count);
		ck_assert_msg(!gantry_deadline_passed(deadline), "only %u of %u ended", count, n);
	}
}

static int submit(struct gantry_cmd *cmd, uint64_t tag)
{
	cmd->tag = tag;
	return device.backend->submit(stream, cmd);
}

static struct gantry_done run(struct gantry_cmd *cmd)
{
	static uint64_t tag = 1000000;
	struct gantry_done done;

	ck_assert_int_eq(submit(cmd, ++tag), 0);
	wait_done(&done, 1);
	ck_assert_uint_eq(done.tag, tag);
	return done;
}

static struct gantry_mem *host_mem(void *base, uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_msg(device.backend->mem_host(device.dev, base, len, &mem, &err) == 0, "%s",
		      err.text);
	return mem;
}

static struct gantry_mem *device_mem(uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_msg(device.backend->mem_alloc(device.dev, len, &mem, &err) == 0, "%s", err.text);
	return mem;
}

static struct gantry_cmd copy_cmd(struct gantry_mem *dst, uint64_t dst_off, struct gantry_mem *src,
				  uint64_t src_off, uint64_t len)
{
	return (struct gantry_cmd){ .kind = GANTRY_CMD_COPY,
				    .copy = { { dst, dst_off, len }, { src, src_off, len } } };
}

static struct gantry_cmd fill_cmd(struct gantry_mem *dst, uint64_t off, uint64_t len,
				  uint64_t pattern, uint32_t bytes)
{
	return (struct gantry_cmd){ .kind = GANTRY_CMD_FILL,
				    .fill = { { dst, off, len }, pattern, bytes } };
}

static void run_ok(struct gantry_cmd cmd)
{
	struct gantry_done done = run(&cmd);

	ck_assert_msg(done.status == GANTRY_OK, "%s", gantry_status_text(done.status));
}

/* ---- images and kernels ---- */

/* A file of PTX, as an administrator may install it. */
static struct gantry_image *ptx_image(void)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
	char path[] = "/tmp/gantry-unit-cuda-XXXXXX";
	int fd = mkstemp(path);
	struct gantry_image *image;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gantry_write_all(fd, text, sizeof(text) - 1), 0);
	gantry_fd_close(fd);
	ck_assert_msg(device.backend->image_load(device.dev, path, NULL, 0, &image, &err) == 0,
		      "%s", err.text);
	ck_assert_int_eq(unlink(path), 0);
	return image;
}

static struct gantry_image *module_image(void)
{
	struct gantry_image *image;

	ck_assert_msg(device.backend->image_load(device.dev, CUDA_MODULE, NULL, 0, &image, &err) ==
			      0,
		      "%s", err.text);
	return image;
}

static int try_kernel(struct gantry_image *image, const char *name, const char *signature,
		      struct gantry_kernel **ret_kernel)
{
	struct gantry_signature *sig = &sigs[nsigs++];

	ck_assert_int_eq(gantry_signature_parse(signature, sig, &err), 0);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	return device.backend->kernel_get(image, name, sig, ret_kernel, &err);
}

static struct gantry_cmd launch_cmd(struct gantry_image *image, const char *name,
				    const char *signature)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };

	ck_assert_msg(try_kernel(image, name, signature, &cmd.launch.kernel) == 0, "%s", err.text);
	for (unsigned int i = 0; i < 3; i++)
		cmd.launch.grid[i] = cmd.launch.block[i] = 1;
	cmd.launch.nargs = sigs[nsigs - 1].nargs;
	return cmd;
}

/* ---- opening ---- */

START_TEST(test_open_tells_what_the_device_is)
{
	const struct gantry_device_info *info = &device.info;

	open_device(NULL);
	ck_assert_uint_eq(info->kind, GANTRY_KIND_CUDA);
	ck_assert_uint_ne(info->caps & GANTRY_CAP_WINDOW, 0);
	ck_assert_uint_ne(info->caps & GANTRY_CAP_PEER, 0);
	ck_assert_uint_eq(info->slab_align, 2 * MIB);
	ck_assert_str_eq(info->arch, "sm_90");
	ck_assert_int_eq(strncmp(info->id, "GPU-66616b65-", 13), 0); /* "fake" */
	ck_assert_uint_eq(strlen(info->id), 40);
	ck_assert_uint_eq(strlen(info->pci), 12);
	ck_assert_uint_gt(info->units, 0);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_open_finds_a_gpu_by_any_of_its_names)
{
	char gpu[80];

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "3", 1), 0);
	const char *more[] = { "gpu=2", NULL };
	open_device(more);
	struct gantry_device_info info = device.info;
	gantry_device_close(&device);

	const char *names[] = { info.id, info.pci, info.pci + 5 /* without its domain */ };
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(names); i++) {
		snprintf(gpu, sizeof(gpu), "gpu=%s", names[i]);
		more[0] = gpu;
		open_device(more);
		ck_assert_str_eq(device.info.id, info.id);
		gantry_device_close(&device);
	}
}
END_TEST

START_TEST(test_open_of_what_is_not_there_says_so)
{
	static const char *const absent[][2] = {
		{ "gpu=7", NULL },
		{ "gpu=GPU-00000000-0000-0000-0000-000000000000", NULL },
		{ "gpu=00ff:1f:1f.7", NULL },
		{ "gpu=nonsense", NULL },
	};

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(absent); i++) {
		ck_assert_int_eq(open_with(&device, absent[i]), -ENODEV);
		ck_assert_ptr_nonnull(strstr(err.text, "gpu: "));
	}
}
END_TEST

START_TEST(test_open_without_a_driver_is_no_device)
{
	const char *opts[] = { "driver=/nonexistent/libcuda.so.1" };
	struct gantry_device_conf conf = {
		.name = "c", .backend = "cuda", .opts = opts, .nopts = 1
	};

	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "no NVIDIA driver"));
	/* A library that is none does not do either. */
	opts[0] = "driver=" CUDA_KERNELS;
	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "12.4 or newer"));
}
END_TEST

START_TEST(test_open_without_gpus_is_no_device)
{
	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "0", 1), 0);
	ck_assert_int_eq(open_with(&device, NULL), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "CUDA_ERROR_NO_DEVICE"));
}
END_TEST

START_TEST(test_open_refuses_options_it_does_not_know)
{
	static const char *const wrong[][2] = { { "cores=2", NULL }, { "scratch=much", NULL } };

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++)
		ck_assert_int_eq(open_with(&device, wrong[i]), -EINVAL);
}
END_TEST

/* A failure at any step leaves nothing behind; the runner looks for threads, descriptors and memory. */
START_TEST(test_open_that_fails_halfway_cleans_up)
{
	static const char *const steps[] = {
		"cuDevicePrimaryCtxRetain:1:2",	     "cuStreamCreateWithPriority:1:2",
		"cuMemGetAllocationGranularity:1:1", "cuMemHostAlloc:1:2",
		"cuMemHostGetDevicePointer:1:1",
	};
	ck_assert_int_eq(setenv("FAKECUDA_FAIL", steps[_i], 1), 0);
	ck_assert_int_lt(open_with(&device, NULL), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "CUDA_ERROR_"));
}
END_TEST

START_TEST(test_probe_names_what_can_be_opened)
{
	const struct gantry_backend *backend = gantry_backend_find("cuda");
	struct gantry_device_conf confs[4];

	/* This machine may have a driver or none; a test cannot know, but no failure may come of it. */
	int n = backend->probe(confs, 4, &err);
	ck_assert_int_ge(n, 0);
	for (int i = 0; i < n; i++) {
		ck_assert_str_eq(confs[i].backend, "cuda");
		ck_assert_ptr_nonnull(gantry_device_opt(&confs[i], "gpu"));
	}
	ck_assert(n > 0 || err.text[0] != '\0');
}
END_TEST

START_TEST(test_list_names_instances_in_place_of_a_divided_gpu)
{
	static const char text[] = "mig=3\n";
	char path[] = "/tmp/gantry-unit-nvml-XXXXXX";
	char names[8][80];

	gantry_fd_close(mkstemp(path));
	ck_assert_int_eq(setenv("FAKECUDA_NVML", path, 1), 0);
	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	ck_assert_int_eq(gantry_cuda_nvml_list(FAKE_NVML, names, 8, &err), 2);
	ck_assert_int_eq(strncmp(names[0], "GPU-", 4), 0);
	ck_assert_int_eq(gantry_file_replace(path, text, sizeof(text) - 1, 0600), 0);
	ck_assert_int_eq(gantry_cuda_nvml_list(FAKE_NVML, names, 8, &err), 4);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_int_eq(strncmp(names[i], "MIG-", 4), 0);
	ck_assert_int_eq(strncmp(names[3], "GPU-", 4), 0);
	ck_assert_int_eq(gantry_cuda_nvml_list(FAKE_NVML, names, 2, &err), 2);
	ck_assert_int_eq(gantry_cuda_nvml_list("/nonexistent", names, 2, &err), -ENODEV);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* The driver is told of an instance before it starts, and of another one never again. */
START_TEST(test_process_of_one_instance_serves_no_other)
{
	const char *first[] = { "gpu=MIG-66616b65-0000-0000-0000-000000000001", NULL };
	const char *second[] = { "gpu=MIG-66616b65-0000-0000-0000-000000000002", NULL };

	ck_assert_int_eq(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
	open_device(first);
	ck_assert_str_eq(getenv("CUDA_VISIBLE_DEVICES"), first[0] + 4);
	ck_assert_str_eq(device.info.id, first[0] + 4);
	gantry_device_close(&device);
	ck_assert_int_eq(open_with(&device, second), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "one MIG instance"));
	ck_assert_int_eq(open_with(&device, NULL), -EBUSY);
	open_device(first);
	gantry_device_close(&device);
}
END_TEST

/* ---- memory ---- */

START_TEST(test_fill_of_every_width_at_any_address)
{
	static unsigned char back[512], expected[512];
	const uint64_t patterns[] = { 0x8877665544332211ull, 0x4433221144332211ull,
				      0xabababababababab, 0 };

	open_device(NULL);
	struct gantry_mem *mem = device_mem(512), *host_side = host_mem(back, 512);
	for (uint32_t width = 1; width <= 8; width *= 2) {
		for (uint32_t off = 0; off < 9; off++) {
			uint64_t pattern = patterns[off % GANTRY_ARRAY_SIZE(patterns)];

			memset(expected, 0xee, sizeof(expected));
			for (uint32_t i = 0; i < 23; i++)
				memcpy(expected + off + i * width, &pattern, width);
			run_ok(fill_cmd(mem, 0, 512, 0xee, 1));
			run_ok(fill_cmd(mem, off, 23 * width, pattern, width));
			run_ok(copy_cmd(host_side, 0, mem, 0, 512));
			ck_assert_mem_eq(back, expected, 512);
		}
	}
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_fill_longer_than_its_seed_is_whole)
{
	const uint64_t pattern = 0x0102030405060708ull, len = 3 * MIB + 8;
	uint64_t *back = malloc(len);

	open_device(NULL);
	struct gantry_mem *mem = device_mem(len);
	run_ok(fill_cmd(mem, 0, len, pattern, 8));
	run_ok(copy_cmd(host_mem(back, len), 0, mem, 0, len));
	for (uint64_t i = 0; i < len / 8; i++)
		if (back[i] != pattern)
			ck_abort_msg("word %zu is %#zx", (size_t)i, (size_t)back[i]);
	gantry_device_close(&device);
	free(back);
}
END_TEST

START_TEST(test_copy_of_overlapping_ranges_moves_them)
{
	static unsigned char data[1000], back[1000], expected[1000];

	open_device(NULL);
	struct gantry_mem *mem = device_mem(1000), *in = host_mem(data, 1000),
			  *out = host_mem(back, 1000);
	for (unsigned int i = 0; i < 1000; i++)
		data[i] = (unsigned char)(i * 31);
	for (int shift = -7; shift <= 7; shift += 7) {
		run_ok(copy_cmd(mem, 0, in, 0, 1000));
		run_ok(copy_cmd(mem, (uint64_t)(100 + shift), mem, 100, 800));
		run_ok(copy_cmd(out, 0, mem, 0, 1000));
		memcpy(expected, data, 1000);
		memmove(expected + 100 + shift, expected + 100, 800);
		ck_assert_mem_eq(back, expected, 1000);
	}
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_copy_and_fill_of_nothing_end_well)
{
	open_device(NULL);
	struct gantry_mem *mem = device_mem(64);
	run_ok(fill_cmd(mem, 64, 0, 1, 8));
	run_ok(copy_cmd(mem, 0, mem, 64, 0));
	gantry_device_close(&device);
}
END_TEST

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

START_TEST(test_host_memory_that_cannot_be_pinned_works_and_says_so)
{
	static unsigned char data[4096], back[4096];

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+:2", 1), 0);
	open_device(NULL);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	struct gantry_mem *mem = device_mem(4096), *in = host_mem(data, 4096);
	ck_assert_ptr_nonnull(strstr(err.text, "not pinned"));
	struct gantry_mem *out = host_mem(back, 4096);
	memset(data, 0x5a, sizeof(data));
	run_ok(copy_cmd(mem, 0, in, 0, 4096));
	run_ok(copy_cmd(out, 0, mem, 0, 4096));
	ck_assert_mem_eq(back, data, 4096);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_kernel_on_host_memory_that_it_cannot_reach_is_refused)
{
	static uint32_t x = 5;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+:2", 1), 0);
	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ host_mem(&x, 4), 0, 4 };
	cmd.launch.args[1].value.u32 = 2;
	ck_assert_int_eq(submit(&cmd, 1), -EOPNOTSUPP);
	ck_assert_uint_eq(x, 5);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_alloc_is_clean_and_keeps_to_the_pool)
{
	static unsigned char back[4096], zero[4096];
	struct gantry_mem *mem = NULL;

	ck_assert_int_eq(setenv("FAKECUDA_DIRTY", "1", 1), 0);
	open_device(NULL);
	run_ok(copy_cmd(host_mem(back, 4096), 0, device_mem(4096), 0, 4096));
	ck_assert_mem_eq(back, zero, 4096);
	ck_assert_int_eq(device.backend->mem_alloc(device.dev, 1ull << 60, &mem, &err), -ENOMEM);
	ck_assert_ptr_null(mem);
	gantry_device_close(&device);
}
END_TEST

/* ---- slabs and windows ---- */

static int new_slab(uint64_t len)
{
	int fd;

	ck_assert_msg(device.backend->slab_create(device.dev, len, &fd, &err) == 0, "%s", err.text);
	return fd;
}

static struct gantry_mem *new_window(uint64_t address, uint64_t len)
{
	struct gantry_mem *window;

	ck_assert_msg(device.backend->window_open(device.dev, address, len, &window, &err) == 0,
		      "%s", err.text);
	return window;
}

static void map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd)
{
	ck_assert_msg(device.backend->window_map(window, off, len, fd, &err) == 0, "%s", err.text);
}

START_TEST(test_slab_is_clean_and_keeps_its_bytes_in_its_descriptor)
{
	static unsigned char back[64], expected[64];

	ck_assert_int_eq(setenv("FAKECUDA_DIRTY", "1", 1), 0);
	open_device(NULL);
	int fd = new_slab(4 * MIB);
	struct gantry_mem *window = new_window(0, 64 * MIB), *out = host_mem(back, 64);

	map(window, 8 * MIB, 4 * MIB, fd);
	run_ok(copy_cmd(out, 0, window, 12 * MIB - 64, 64));
	ck_assert_mem_eq(back, expected, 64);
	run_ok(fill_cmd(window, 8 * MIB, 64, 0x77, 1));
	device.backend->window_unmap(window, 8 * MIB, 4 * MIB);
	map(window, 32 * MIB, 4 * MIB, fd);
	memset(expected, 0x77, 64);
	run_ok(copy_cmd(out, 0, window, 32 * MIB, 64));
	ck_assert_mem_eq(back, expected, 64);

	ck_assert_msg(device.backend->slab_scrub(device.dev, fd, 4 * MIB, &err) == 0, "%s",
		      err.text);
	memset(expected, 0, 64);
	run_ok(copy_cmd(out, 0, window, 32 * MIB, 64));
	ck_assert_mem_eq(back, expected, 64);
	gantry_fd_close(fd);
	gantry_device_close(&device); /* with the slab mapped */
}
END_TEST

START_TEST(test_slab_of_a_window_lies_in_a_range_too)
{
	static unsigned char back[64], expected[64];

	open_device(NULL);
	int fd = new_slab(4 * MIB);
	struct gantry_mem *window = new_window(0, 64 * MIB), *range = new_window(0, 64 * MIB);
	struct gantry_mem *out = host_mem(back, 64);
	const struct gantry_backend *be = device.backend;

	map(window, 8 * MIB, 4 * MIB, fd);
	gantry_fd_close(fd); /* nobody needs it for that */
	run_ok(fill_cmd(window, 8 * MIB, 64, 0x77, 1));
	memset(expected, 0x77, 64);
	ck_assert_int_eq(be->window_alias(range, 0, window, 8 * MIB, 4 * MIB, &err), 0);
	ck_assert_int_eq(be->window_rights(range, 0, 4 * MIB, GANTRY_R, &err), 0);
	run_ok(copy_cmd(out, 0, range, 0, 64));
	ck_assert_mem_eq(back, expected, 64);
	be->window_unmap(window, 8 * MIB, 4 * MIB);
	run_ok(copy_cmd(out, 0, range, 0, 64)); /* its memory lives on there */
	ck_assert_mem_eq(back, expected, 64);
	ck_assert_int_eq(be->window_rights(range, 0, 4 * MIB, 0, &err), 0);
	gantry_device_close(&device);
}
END_TEST

/* Two windows, each with a slab of its own device's: of device 0 at 8 MiB, of device 1 at 16 MiB. */
struct pair {
	struct gantry_device device[2];
	struct gantry_mem *window[2];
	uint64_t address[2];
	int fd[2];
};

static uint64_t address_in(const struct gantry_device *of, struct gantry_mem *window)
{
	const struct gantry_question question = { .what = GANTRY_QUESTION_ADDRESS,
						  .range = { window, 0, 64 * MIB } };
	uint8_t answer[GANTRY_ANSWER_BYTES];
	uint64_t address;

	ck_assert_int_gt(of->backend->ask(of->dev, &question, answer, &err), 0);
	memcpy(&address, answer, sizeof(address));
	return address;
}

/* @failing: of the driver's calls; the first four cuMemMap() are over when this returns. */
static void open_pair(struct pair *pair, const char *failing)
{
	const char *gpu[2][2] = { { "gpu=0", NULL }, { "gpu=1", NULL } };

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	if (failing)
		ck_assert_int_eq(setenv("FAKECUDA_FAIL", failing, 1), 0);
	for (uint64_t i = 0; i < 2; i++) {
		struct gantry_device *d = &pair->device[i];

		ck_assert_msg(open_with(d, gpu[i]) == 0, "%s", err.text);
		ck_assert_int_eq(d->backend->thread_enter(d->dev, &err), 0);
		ck_assert_int_eq(d->backend->slab_create(d->dev, 4 * MIB, &pair->fd[i], &err), 0);
		ck_assert_int_eq(
			d->backend->window_open(d->dev, 0, 64 * MIB, &pair->window[i], &err), 0);
		ck_assert_int_eq(d->backend->window_map(pair->window[i], (i + 1) * 8 * MIB, 4 * MIB,
							pair->fd[i], &err),
				 0);
		pair->address[i] = address_in(d, pair->window[i]);
		memset((void *)(uintptr_t)(pair->address[i] + (i + 1) * 8 * MIB), 0x70 + (int)i,
		       64);
	}
}

/* The bytes of window @i lie at its offset from @address, and nothing where the other's would. */
static void expect_at(const struct pair *pair, uint64_t i, uint64_t address)
{
	unsigned char expected[64];

	memset(expected, 0x70 + (int)i, sizeof(expected));
	ck_assert_uint_eq(address_in(&pair->device[i], pair->window[i]), address);
	ck_assert_mem_eq((const void *)(uintptr_t)(address + (i + 1) * 8 * MIB), expected,
			 sizeof(expected));
}

static void close_pair(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		gantry_fd_close(pair->fd[i]);
		gantry_device_close(&pair->device[i]);
	}
}

START_TEST(test_windows_of_two_devices_exchange_their_addresses)
{
	struct pair pair;

	open_pair(&pair, NULL);
	for (int n = 0; n < 3; n++) {
		const struct gantry_device *d = &pair.device[n % 2];

		ck_assert_msg(d->backend->window_swap(pair.window[n % 2], pair.window[1 - n % 2],
						      &err) == 0,
			      "%s", err.text);
		expect_at(&pair, 0, pair.address[1 - n % 2]);
		expect_at(&pair, 1, pair.address[n % 2]);
	}
	/* What is mapped can be taken away, and other slabs come. */
	pair.device[0].backend->window_unmap(pair.window[0], 8 * MIB, 4 * MIB);
	ck_assert_int_eq(pair.device[0].backend->window_map(pair.window[0], 32 * MIB, 4 * MIB,
							    pair.fd[0], &err),
			 0);
	ck_assert_uint_eq(*(const uint8_t *)(uintptr_t)(pair.address[1] + 32 * MIB), 0x70);
	close_pair(&pair);
}
END_TEST

START_TEST(test_exchange_of_addresses_that_fails_leaves_all_as_it_was)
{
	static const char *const failing[] = { "cuMemMap:5:2", "cuMemMap:6:2",
					       "cuMemSetAccess:6:2" };
	struct pair pair;

	open_pair(&pair, failing[_i]);
	ck_assert_int_lt(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 0);
	ck_assert_int_ne(err.code, -ENOTRECOVERABLE);
	expect_at(&pair, 0, pair.address[0]);
	expect_at(&pair, 1, pair.address[1]);
	ck_assert_int_eq(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 0);
	expect_at(&pair, 0, pair.address[1]);
	close_pair(&pair);
}
END_TEST

START_TEST(test_exchange_of_addresses_without_a_way_back_says_so)
{
	struct pair pair;

	open_pair(&pair, "cuMemMap:5+:2");
	ck_assert_int_eq(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 -ENOTRECOVERABLE);
	ck_assert_int_eq(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 -ENOTRECOVERABLE);
	close_pair(&pair);
}
END_TEST

START_TEST(test_record_writes_what_lies_in_a_range_too)
{
	static const char expected[] = "window_alias 2 off=0 of=1 from=2097152 len=2097152 -> 0\n"
				       "window_rights 2 off=0 len=2097152 rights=1 -> 0\n"
				       "window_unmap 2 off=0 len=2097152\n";
	char path[] = "/tmp/gantry-record.XXXXXX", file[64];
	const char *opts[] = { "driver=" FAKE_DRIVER, "nvml=" FAKE_NVML,
			       "filters=contract,record,contract", file };
	const struct gantry_device_conf conf = {
		.name = "cuda0", .backend = "cuda", .opts = opts, .nopts = 4
	};
	struct gantry_mem *window, *range;
	const struct gantry_backend *be;
	char *text;

	gantry_fd_close(mkstemp(path));
	snprintf(file, sizeof(file), "record.file=%s", path);
	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	be = device.backend;
	ck_assert_int_eq(be->thread_enter(device.dev, &err), 0);
	int fd = new_slab(2 * MIB);
	window = new_window(0, 4 * MIB);
	range = new_window(0, 4 * MIB);
	map(window, 2 * MIB, 2 * MIB, fd);
	gantry_fd_close(fd);
	ck_assert_int_eq(be->window_alias(range, 0, window, 2 * MIB, 2 * MIB, &err), 0);
	ck_assert_int_eq(be->window_rights(range, 0, 2 * MIB, GANTRY_R, &err), 0);
	be->window_unmap(range, 0, 2 * MIB);
	gantry_device_close(&device);
	ck_assert_int_eq(gantry_file_read(path, 4096, &text, NULL), 0);
	ck_assert_msg(strstr(text, expected) != NULL, "%s", text);
	free(text);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(test_slab_survives_the_device_that_made_it)
{
	static unsigned char back[64], expected[64];

	open_device(NULL);
	int fd = new_slab(2 * MIB);
	struct gantry_mem *window = new_window(0, 4 * MIB);
	map(window, 0, 2 * MIB, fd);
	run_ok(fill_cmd(window, 0, 64, 0x42, 1));
	gantry_device_close(&device);

	open_device(NULL);
	window = new_window(0, 4 * MIB);
	map(window, 2 * MIB, 2 * MIB, fd);
	memset(expected, 0x42, 64);
	run_ok(copy_cmd(host_mem(back, 64), 0, window, 2 * MIB, 64));
	ck_assert_mem_eq(back, expected, 64);
	gantry_fd_close(fd);
	gantry_device_close(&device);
}
END_TEST

/* A place where nothing is, also under sanitizers, which have their own ideas of the address space. */
static uint64_t free_address(uint64_t len)
{
	void *at = mmap(NULL, len + 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(munmap(at, len + 2 * MIB), 0);
	return ((uint64_t)(uintptr_t)at + 2 * MIB - 1) & ~(2 * MIB - 1);
}

START_TEST(test_window_at_an_address_that_is_taken_is_refused)
{
	struct gantry_mem *second = NULL;

	open_device(NULL);
	const uint64_t address = free_address(64 * MIB);
	struct gantry_mem *first = new_window(address, 64 * MIB);
	ck_assert_int_eq(device.backend->window_open(device.dev, address, 64 * MIB, &second, &err),
			 -EADDRINUSE);
	ck_assert_ptr_null(second);
	device.backend->mem_free(first);
	device.backend->mem_free(new_window(address, 64 * MIB));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_slab_past_the_memory_is_refused)
{
	int fd = -7;

	open_device(NULL);
	ck_assert_int_eq(device.backend->slab_create(device.dev, 1ull << 50, &fd, &err), -ENOMEM);
	ck_assert_int_eq(fd, -7);
	ck_assert_ptr_nonnull(strstr(err.text, "cuMemCreate"));
	gantry_device_close(&device);
}
END_TEST

/* Every call on the way may fail; what was made before it goes. */
START_TEST(test_slab_and_map_that_fail_halfway_leave_nothing)
{
	static const char *const steps[] = {
		"cuMemAddressReserve:1:2", "cuMemMap:1:2",
		"cuMemSetAccess:1:1",	   "cuMemExportToShareableHandle:1:304",
		"cuMemsetD8Async:1:1",
	};
	static unsigned char back[64];
	int fd = -7;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", steps[_i], 1), 0);
	open_device(NULL);
	ck_assert_int_lt(device.backend->slab_create(device.dev, 2 * MIB, &fd, &err), 0);
	ck_assert_int_eq(fd, -7);
	fd = new_slab(2 * MIB); /* the second time it works */
	struct gantry_mem *window = new_window(0, 2 * MIB);
	map(window, 0, 2 * MIB, fd);
	run_ok(copy_cmd(host_mem(back, 64), 0, window, 0, 64));
	gantry_fd_close(fd);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_map_of_what_is_no_slab_is_refused)
{
	open_device(NULL);
	struct gantry_mem *window = new_window(0, 4 * MIB);
	ck_assert_int_lt(device.backend->window_map(window, 0, 2 * MIB, STDIN_FILENO, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "cuMemImport"));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_copy_between_sisters_needs_no_host)
{
	static unsigned char back[4096], expected[4096];
	const char *more[] = { "gpu=1", NULL };
	struct gantry_device sister;

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	ck_assert_int_eq(open_with(&sister, more), 0);
	ck_assert_int_eq(sister.backend->thread_enter(sister.dev, &err), 0);
	struct gantry_mem *theirs;
	ck_assert_int_eq(sister.backend->mem_alloc(sister.dev, 4096, &theirs, &err), 0);
	open_device(NULL);
	struct gantry_mem *ours = device_mem(4096);

	memset(expected, 0x3c, 4096);
	run_ok(fill_cmd(ours, 0, 4096, 0x3c, 1));
	run_ok(copy_cmd(theirs, 0, ours, 0, 4096));
	run_ok(fill_cmd(ours, 0, 4096, 0, 1));
	run_ok(copy_cmd(ours, 0, theirs, 0, 4096));
	run_ok(copy_cmd(host_mem(back, 4096), 0, ours, 0, 4096));
	ck_assert_mem_eq(back, expected, 4096);
	gantry_device_close(&device);
	gantry_device_close(&sister);
}
END_TEST

/* A session's heap comes to each of the worker's devices; the driver pins a range once. */
START_TEST(test_host_memory_of_two_devices_is_pinned_once)
{
	static unsigned char data[4096], back[4096];
	const char *more[] = { "gpu=1", NULL };
	struct gantry_device sister;
	struct gantry_mem *theirs;

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	ck_assert_int_eq(open_with(&sister, more), 0);
	ck_assert_int_eq(sister.backend->thread_enter(sister.dev, &err), 0);
	open_device(NULL);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	ck_assert_int_eq(sister.backend->mem_host(sister.dev, data, 4096, &theirs, &err), 0);
	ck_assert_str_eq(err.text, "");
	struct gantry_mem *ours = host_mem(data, 4096);
	ck_assert_str_eq(err.text, "");
	sister.backend->mem_free(theirs);

	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ ours, 0, 4 };
	run_ok(cmd);
	ck_assert_uint_eq(data[0], 1);
	run_ok(copy_cmd(host_mem(back, 4096), 0, ours, 0, 4096));
	gantry_device_close(&device);
	gantry_device_close(&sister);
}
END_TEST

/* ---- host memory that is pinned in pieces ---- */

#define LARGE (80 * MIB)

static unsigned char *large_memory(void)
{
	unsigned char *base = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(base, MAP_FAILED);
	return base;
}

/* What is pinned cannot be pinned again. */
static bool is_pinned(void *at)
{
	static CUresult (*pin)(void *, size_t, unsigned int), (*unpin)(void *);
	CUresult result;

	if (!pin) {
		void *driver = dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_NOLOAD);

		ck_assert_ptr_nonnull(driver);
		*(void **)&pin = dlsym(driver, "cuMemHostRegister_v2");
		*(void **)&unpin = dlsym(driver, "cuMemHostUnregister");
		ck_assert(pin && unpin);
	}
	result = pin(at, 1, 0);
	if (result == CUDA_SUCCESS)
		ck_assert_int_eq(unpin(at), CUDA_SUCCESS);
	else
		ck_assert_int_eq(result, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	return result != CUDA_SUCCESS;
}

/* Which MiB of it are pinned, as ranges of text: "0-31 64-79". */
static const char *pinned(unsigned char *base)
{
	static char text[256];
	size_t used = 0;

	text[0] = '\0';
	for (uint64_t i = 0, from; i < LARGE / MIB; i++) {
		for (from = i; i < LARGE / MIB && is_pinned(base + i * MIB); i++)
			;
		if (i > from)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d-%d",
						 used ? " " : "", (int)from, (int)i - 1);
	}
	return text;
}

static unsigned char pattern_at(uint64_t i)
{
	return (unsigned char)(i * 31 >> 7);
}

START_TEST(test_host_memory_is_pinned_where_commands_use_it)
{
	unsigned char *base = large_memory();
	const uint64_t len = 40 * MIB;

	open_device(NULL);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	struct gantry_mem *large = host_mem(base, LARGE), *mem = device_mem(len);
	ck_assert_str_eq(err.text, "");
	ck_assert_str_eq(pinned(base), "");
	run_ok(copy_cmd(mem, 0, large, LARGE - 64, 64));
	ck_assert_str_eq(pinned(base), "64-79");
	run_ok(fill_cmd(large, 0, LARGE, 0x5a, 1)); /* needs no pins */
	ck_assert_str_eq(pinned(base), "64-79");
	run_ok(copy_cmd(mem, 0, large, 2 * MIB, 1));
	run_ok(copy_cmd(mem, 0, large, 3 * MIB, 1));
	ck_assert_str_eq(pinned(base), "0-31 64-79");

	/* From one piece into the third, there and back. */
	for (uint64_t i = 0; i < len; i++)
		base[31 * MIB + i] = pattern_at(i);
	run_ok(copy_cmd(mem, 0, large, 31 * MIB, len));
	ck_assert_str_eq(pinned(base), "0-79");
	memset(base + 31 * MIB, 0, len);
	run_ok(copy_cmd(large, 29 * MIB + 1, mem, 0, len));
	for (uint64_t i = 0; i < len; i++)
		if (base[29 * MIB + 1 + i] != pattern_at(i))
			ck_abort_msg("byte %zu differs", (size_t)i);
	device.backend->mem_free(large);
	ck_assert_str_eq(pinned(base), "");
	gantry_device_close(&device);
	(void)munmap(base, LARGE);
}
END_TEST

START_TEST(test_kernels_reach_all_pieces_of_their_host_memory)
{
	unsigned char *base = large_memory();
	const uint64_t from = 32 * MIB - 5000, len = 10000;

	open_device(NULL);
	struct gantry_mem *large = host_mem(base, LARGE), *mem = device_mem(len);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ large, 32 * MIB - 4, 8 };
	run_ok(cmd);
	ck_assert_str_eq(pinned(base), "0-63");

	/* A host function moves across the border too, also at an odd place. */
	for (uint64_t odd = 0; odd < 2; odd++) {
		unsigned char back[10000];

		cmd = launch_cmd(module_image(), "paint", "rw:u8*,w:u8*");
		cmd.launch.args[0].range = (struct gantry_range){ large, from + odd, len };
		cmd.launch.args[1].range = (struct gantry_range){ mem, 0, len };
		run_ok(cmd);
		run_ok(copy_cmd(host_mem(back, len), 0, mem, 0, len));
		for (uint64_t i = 0; i < len; i++)
			ck_assert_uint_eq(back[i], i % 2 ? 0x22 : 0x11);
		ck_assert_mem_eq(back, base + from + odd, len);
	}
	gantry_device_close(&device);
	(void)munmap(base, LARGE);
}
END_TEST

START_TEST(test_piece_that_cannot_be_pinned_is_copied_all_the_same)
{
	unsigned char *base = large_memory();

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemHostRegister:1:2", 1), 0);
	open_device(NULL);
	struct gantry_mem *large = host_mem(base, LARGE), *mem = device_mem(2 * MIB);
	memset(base, 0x3c, LARGE);
	run_ok(copy_cmd(mem, 0, large, 0, 4096)); /* the first try, which is refused */
	err = (struct gantry_err)GANTRY_ERR_NONE;
	device.backend->mem_free(host_mem(base, LARGE));
	ck_assert_ptr_nonnull(strstr(err.text, "not pinned"));
	ck_assert_str_eq(pinned(base), "");
	run_ok(copy_cmd(mem, 0, large, 31 * MIB, 2 * MIB));
	ck_assert_str_eq(pinned(base), "32-63");
	memset(base, 0, LARGE);
	run_ok(copy_cmd(large, 31 * MIB, mem, 0, 2 * MIB));
	for (uint64_t i = 31 * MIB; i < 33 * MIB; i++)
		if (base[i] != 0x3c)
			ck_abort_msg("byte %zu differs", (size_t)i);

	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ large, 32 * MIB - 4, 8 };
	ck_assert_int_eq(submit(&cmd, 1), -EOPNOTSUPP);
	cmd.launch.args[0].range = (struct gantry_range){ large, 32 * MIB, 8 };
	run_ok(cmd);
	gantry_device_close(&device);
	(void)munmap(base, LARGE);
}
END_TEST

/* A copy of a byte by another device than the test's, whose context this thread does not have. */
static void copy_on(struct gantry_device *on, struct gantry_stream *their_stream,
		    struct gantry_mem *dst, struct gantry_mem *src, uint64_t src_off)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	struct gantry_cmd cmd = copy_cmd(dst, 0, src, src_off, 1);
	struct gantry_done done;

	cmd.tag = 1;
	ck_assert_int_eq(on->backend->submit(their_stream, &cmd), 0);
	while (on->backend->poll(on->dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	ck_assert_int_eq(done.status, GANTRY_OK);
}

START_TEST(test_pieces_of_two_devices_are_pinned_once)
{
	unsigned char *base = large_memory();
	const char *more[] = { "gpu=1", NULL };
	struct gantry_device sister;
	struct gantry_mem *theirs, *there;

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	ck_assert_int_eq(open_with(&sister, more), 0);
	ck_assert_int_eq(sister.backend->thread_enter(sister.dev, &err), 0);
	struct gantry_stream *their_stream = new_stream(&sister, 0);
	ck_assert_int_eq(sister.backend->mem_alloc(sister.dev, 4096, &there, &err), 0);
	open_device(NULL);
	ck_assert_int_eq(sister.backend->mem_host(sister.dev, base, LARGE, &theirs, &err), 0);
	struct gantry_mem *ours = host_mem(base, LARGE), *here = device_mem(4096);
	for (unsigned int i = 0; i < 2; i++) {
		copy_on(&sister, their_stream, there, theirs, 40 * MIB + i);
		run_ok(copy_cmd(here, 0, ours, 40 * MIB + i, 4096));
	}
	copy_on(&sister, their_stream, there, theirs, 65 * MIB);
	ck_assert_str_eq(pinned(base), "32-79");
	sister.backend->mem_free(theirs);
	ck_assert_str_eq(pinned(base), "32-63");
	run_ok(copy_cmd(here, 0, ours, 40 * MIB, 4096));
	device.backend->mem_free(ours);
	ck_assert_str_eq(pinned(base), "");
	gantry_device_close(&device);
	gantry_device_close(&sister);
	(void)munmap(base, LARGE);
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
static void sleep_until_done(struct gantry_done *ret_done)
{
	uint32_t before = gantry_load_acquire(&nwakes);

	while (device.backend->poll(device.dev, ret_done, 1) == 0) {
		while (gantry_load_acquire(&nwakes) == before)
			ck_assert_int_ne(gantry_futex_wait(&nwakes, before,
							   gantry_deadline_ns((int64_t)WAIT_NS)),
					 -ETIMEDOUT);
		before = gantry_load_acquire(&nwakes);
	}
}

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

/* Copies out are told by marks, kernels by words; of both in any order each is told in its turn, to sleepers too. */
START_TEST(test_copies_between_kernels_are_told_in_their_turn)
{
	static unsigned char bytes[8192];
	struct gantry_cmd nap, in, out;
	struct gantry_mem *mem, *of_host;

	open_device(NULL);
	nap = launch_cmd(ptx_image(), "nap", "u32");
	mem = device_mem(sizeof(bytes));
	of_host = host_mem(bytes, sizeof(bytes));
	in = copy_cmd(mem, 0, of_host, 0, sizeof(bytes) / 2);
	out = copy_cmd(of_host, sizeof(bytes) / 2, mem, 0, sizeof(bytes) / 2);
	for (unsigned int round = 0; round < 40; round++) {
		unsigned int n = 1 + round % 9; /* more than there are marks, too */

		memset(bytes, (int)round + 1, sizeof(bytes) / 2);
		for (unsigned int i = 0; i < n; i++) {
			struct gantry_cmd *cmds[] = { &out, &in, &nap };

			nap.launch.args[0].value.u32 = round % 3;
			ck_assert_int_eq(submit(i + 1 == n ? &out : cmds[(round + i) % 3], i), 0);
			if (round % 2 || i + 1 == n)
				device.backend->flush(stream);
		}
		for (unsigned int i = 0; i < n; i++) {
			struct gantry_done done;

			sleep_until_done(&done);
			ck_assert_uint_eq(done.tag, i);
			ck_assert_int_eq(done.status, GANTRY_OK);
		}
	}
	run_ok(in);
	run_ok(out);
	ck_assert_mem_eq(bytes, bytes + sizeof(bytes) / 2, sizeof(bytes) / 2);
	gantry_device_close(&device);
}
END_TEST

/* The cell of a stream is another's next: what a mark was faster than must not be written there. */
START_TEST(test_stream_that_ends_behind_a_mark_leaves_nothing_to_come)
{
	static unsigned char bytes[4096];
	struct gantry_cmd nap, out;
	struct gantry_mem *mem;

	open_device(NULL);
	nap = launch_cmd(ptx_image(), "nap", "u32");
	nap.launch.args[0].value.u32 = 3;
	mem = device_mem(sizeof(bytes));
	out = copy_cmd(host_mem(bytes, sizeof(bytes)), 0, mem, 0, sizeof(bytes));
	run_ok(nap); /* it is known to take long: a word follows the mark */
	for (unsigned int i = 0; i < 20; i++) {
		struct gantry_done done[2];

		ck_assert_int_eq(submit(&nap, 0), 0);
		ck_assert_int_eq(submit(&out, 1), 0);
		device.backend->flush(stream);
		wait_done(done, 2);
		ck_assert_uint_eq(done[1].tag, 1);
		device.backend->stream_destroy(stream);
		stream = new_stream(&device, 0);
		run_ok(out);
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

/* ---- faults ---- */

/* As a worker does: what the driver holds of a context that is broken goes with the process. */
static void leave(void)
{
	gantry_device_close(&device);
	_exit(0);
}

static const char *const culprits[] = { "fault", "trap", "assert" };

START_TEST(test_fault_ends_everything_in_flight)
{
	struct gantry_done done[12];
	struct gantry_stream *other;

	open_device(NULL);
	struct gantry_image *image = ptx_image();
	struct gantry_cmd culprit = launch_cmd(image, culprits[_i], "void");
	struct gantry_cmd nap = launch_cmd(image, "nap", "u32");
	nap.launch.args[0].value.u32 = 0;
	run_ok(nap);
	other = new_stream(&device, 0);
	nap.launch.args[0].value.u32 = 200;
	nap.tag = 100;
	ck_assert_int_eq(device.backend->submit(other, &nap), 0);
	ck_assert_int_eq(submit(&culprit, 1), 0);
	for (uint64_t i = 2; i < 12; i++)
		ck_assert_int_eq(submit(&nap, i), 0);
	wait_done(done, 12);
	for (unsigned int i = 0; i < 12; i++) {
		if (done[i].tag == 100 && done[i].status == GANTRY_OK)
			continue; /* its own stream, and it may have been quick */
		/* It may as well not have been given to the driver yet when the fault came. */
		if (done[i].tag != 100 || done[i].status != GANTRY_E_INTERRUPTED)
			ck_assert_int_eq(done[i].status, done[i].tag == 1 || done[i].tag == 100
								 ? GANTRY_E_DEVICE_FAULT
								 : GANTRY_E_INTERRUPTED);
		ck_assert_uint_eq(done[i].blast, GANTRY_BLAST_CONTEXT);
	}
	leave();
}
END_TEST

static void check_ends(const struct gantry_done *done, const int *wanted, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		ck_assert_uint_eq(done[i].tag, i);
		ck_assert_msg(done[i].status == wanted[i], "command %u of %u ended with %d", i, n,
			      done[i].status);
		ck_assert_uint_eq(done[i].blast, wanted[i] ? GANTRY_BLAST_CONTEXT : 0);
	}
}

static void submit_results(struct gantry_cmd *cmd, const uint32_t *codes, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		cmd->launch.args[0].value.u32 = codes[i];
		ck_assert_int_eq(submit(cmd, i), 0);
	}
	device.backend->flush(stream);
}

START_TEST(test_fault_of_a_new_kernel_is_told_from_the_rest_of_its_batch)
{
	const int wanted[] = { GANTRY_OK, GANTRY_OK, GANTRY_E_DEVICE_FAULT, GANTRY_E_INTERRUPTED,
			       GANTRY_E_INTERRUPTED };
	struct gantry_done done[5];

	open_device(NULL);
	struct gantry_image *image = ptx_image();
	struct gantry_cmd known = launch_cmd(image, "result", "u32");
	struct gantry_cmd culprit = launch_cmd(image, culprits[_i], "void");

	known.launch.args[0].value.u32 = 0;
	run_ok(known);
	for (unsigned int i = 0; i < 5; i++)
		ck_assert_int_eq(submit(i == 2 ? &culprit : &known, i), 0);
	device.backend->flush(stream);
	wait_done(done, 5);
	check_ends(done, wanted, 5);
	leave();
}
END_TEST

static const uint32_t fourth_faults[] = { 0, 0, 0, CUDA_ERROR_ILLEGAL_ADDRESS, 0 };

START_TEST(test_fault_of_a_known_kernel_may_be_anyones_of_its_batch)
{
	struct gantry_done done[5];

	open_device(NULL);
	struct gantry_cmd known = launch_cmd(ptx_image(), "result", "u32");

	known.launch.args[0].value.u32 = 0;
	run_ok(known);
	submit_results(&known, fourth_faults, 5);
	wait_done(done, 5);
	/* On a machine that is busy the kernel is not so quick that its launches share a batch. */
	for (unsigned int i = 0; i < 3; i++)
		ck_assert(done[i].status == GANTRY_OK || done[i].status == GANTRY_E_DEVICE_FAULT);
	ck_assert_int_eq(done[3].status, GANTRY_E_DEVICE_FAULT);
	ck_assert(done[4].status == GANTRY_E_INTERRUPTED ||
		  done[4].status == GANTRY_E_DEVICE_FAULT);
	leave();
}
END_TEST

START_TEST(test_fault_of_a_known_kernel_on_a_careful_stream_is_its_own)
{
	const struct gantry_stream_attr attr = { .ncareful = 100 };
	const int wanted[] = { GANTRY_OK, GANTRY_OK, GANTRY_OK, GANTRY_E_DEVICE_FAULT,
			       GANTRY_E_INTERRUPTED };
	struct gantry_done done[5];

	open_device(NULL);
	struct gantry_cmd known = launch_cmd(ptx_image(), "result", "u32");

	known.launch.args[0].value.u32 = 0;
	run_ok(known);
	device.backend->stream_destroy(stream);
	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err), 0);
	submit_results(&known, fourth_faults, 5);
	wait_done(done, 5);
	check_ends(done, wanted, 5);
	leave();
}
END_TEST

START_TEST(test_fault_wakes_whoever_does_not_poll)
{
	struct gantry_done done;

	open_device(NULL);
	struct gantry_cmd culprit = launch_cmd(ptx_image(), "fault", "void");
	ck_assert_int_eq(submit(&culprit, 1), 0);
	device.backend->flush(stream);
	sleep_until_done(&done);
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_FAULT);
	leave();
}
END_TEST

START_TEST(test_sticky_error_of_a_submission_is_told_by_poll)
{
	struct gantry_done done;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuLaunchKernel:1:719", 1), 0);
	open_device(NULL);
	struct gantry_cmd nap = launch_cmd(ptx_image(), "nap", "u32");
	nap.launch.args[0].value.u32 = 0;
	ck_assert_int_eq(submit(&nap, 1), 0);
	wait_done(&done, 1);
	/* The error is of what ran before, so that this did not begin. */
	ck_assert_int_eq(done.status, GANTRY_E_INTERRUPTED);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CONTEXT);
	leave();
}
END_TEST

START_TEST(test_gpu_off_the_bus_is_device_lost)
{
	char path[] = "/tmp/gantry-unit-lost-XXXXXX";
	struct gantry_device_health health;
	struct gantry_done done;

	gantry_fd_close(mkstemp(path));
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(setenv("FAKECUDA_LOST", path, 1), 0);
	open_device(NULL);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), 0);
	struct gantry_cmd nap = launch_cmd(ptx_image(), "nap", "u32");
	nap.launch.args[0].value.u32 = 50;
	ck_assert_int_eq(submit(&nap, 1), 0);
	ck_assert_int_eq(gantry_file_replace(path, "", 0, 0600), 0);
	wait_done(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_LOST);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_DEVICE);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), -EIO);
	ck_assert_ptr_nonnull(strstr(err.text, "off the bus"));
	ck_assert_int_eq(unlink(path), 0);
	leave();
}
END_TEST

/* ---- health ---- */

START_TEST(test_health_tells_what_nvml_says)
{
	static const char text[] = "temperature=61\nsm_clock=1500\nmem_clock=2600\nused=1000\n"
				   "total=5000\necc=3\n";
	static const char event[] = "xid=79\nxid_count=1\n";
	char path[] = "/tmp/gantry-unit-nvml-XXXXXX";
	struct gantry_device_health health;

	gantry_fd_close(mkstemp(path));
	ck_assert_int_eq(setenv("FAKECUDA_NVML", path, 1), 0);
	ck_assert_int_eq(gantry_file_replace(path, text, sizeof(text) - 1, 0600), 0);
	open_device(NULL);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), 0);
	ck_assert_uint_eq(health.known, GANTRY_HEALTH_TEMPERATURE | GANTRY_HEALTH_CLOCKS |
						GANTRY_HEALTH_MEM | GANTRY_HEALTH_ECC |
						GANTRY_HEALTH_FAULTS);
	ck_assert_int_eq(health.temperature_c, 61);
	ck_assert_uint_eq(health.clock_mhz, 1500);
	ck_assert_uint_eq(health.mem_clock_mhz, 2600);
	ck_assert_uint_eq(health.mem_used, 1000);
	ck_assert_uint_eq(health.mem_total, 5000);
	ck_assert_uint_eq(health.ecc_uncorrected, 3);
	ck_assert_uint_eq(health.nfaults, 0);

	ck_assert_int_eq(gantry_file_replace(path, event, sizeof(event) - 1, 0600), 0);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), -EIO);
	ck_assert_ptr_nonnull(strstr(err.text, "Xid 79"));
	ck_assert_uint_eq(health.nfaults, 1);
	ck_assert_uint_eq(health.last_fault, 79);
	ck_assert_int_eq(unlink(path), 0);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_health_without_nvml_knows_nothing)
{
	const char *opts[] = { "driver=" FAKE_DRIVER, "nvml=none" };
	struct gantry_device_conf conf = {
		.name = "c", .backend = "cuda", .opts = opts, .nopts = 2
	};
	struct gantry_device_health health;

	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), 0);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), 0);
	ck_assert_uint_eq(health.known, 0);
	gantry_device_close(&device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda");
	TCase *life = gantry_unit_case(suite, "open");
	TCase *memory = gantry_unit_case(suite, "memory");
	TCase *kernels = gantry_unit_case(suite, "kernels");
	TCase *streams = gantry_unit_case(suite, "streams");
	TCase *faults = gantry_unit_case(suite, "faults");

	tcase_add_test(life, test_open_tells_what_the_device_is);
	tcase_add_test(life, test_open_finds_a_gpu_by_any_of_its_names);
	tcase_add_test(life, test_open_of_what_is_not_there_says_so);
	tcase_add_test(life, test_open_without_a_driver_is_no_device);
	tcase_add_test(life, test_open_without_gpus_is_no_device);
	tcase_add_test(life, test_open_refuses_options_it_does_not_know);
	tcase_add_loop_test(life, test_open_that_fails_halfway_cleans_up, 0, 5);
	tcase_add_test(life, test_probe_names_what_can_be_opened);
	tcase_add_test(life, test_list_names_instances_in_place_of_a_divided_gpu);
	tcase_add_test(life, test_process_of_one_instance_serves_no_other);
	tcase_add_test(life, test_health_tells_what_nvml_says);
	tcase_add_test(life, test_health_without_nvml_knows_nothing);
	tcase_add_test(memory, test_fill_of_every_width_at_any_address);
	tcase_add_test(memory, test_fill_longer_than_its_seed_is_whole);
	tcase_add_test(memory, test_copy_of_overlapping_ranges_moves_them);
	tcase_add_test(memory, test_copy_and_fill_of_nothing_end_well);
	tcase_add_test(memory, test_host_memory_that_cannot_be_pinned_works_and_says_so);
	tcase_add_test(memory, test_kernel_on_host_memory_that_it_cannot_reach_is_refused);
	tcase_add_test(memory, test_alloc_is_clean_and_keeps_to_the_pool);
	tcase_add_test(memory, test_slab_is_clean_and_keeps_its_bytes_in_its_descriptor);
	tcase_add_test(memory, test_slab_of_a_window_lies_in_a_range_too);
	tcase_add_test(memory, test_record_writes_what_lies_in_a_range_too);
	tcase_add_test(memory, test_windows_of_two_devices_exchange_their_addresses);
	tcase_add_loop_test(memory, test_exchange_of_addresses_that_fails_leaves_all_as_it_was, 0,
			    3);
	tcase_add_test(memory, test_exchange_of_addresses_without_a_way_back_says_so);
	tcase_add_test(memory, test_slab_survives_the_device_that_made_it);
	tcase_add_test(memory, test_window_at_an_address_that_is_taken_is_refused);
	tcase_add_test(memory, test_slab_past_the_memory_is_refused);
	tcase_add_loop_test(memory, test_slab_and_map_that_fail_halfway_leave_nothing, 0, 5);
	tcase_add_test(memory, test_map_of_what_is_no_slab_is_refused);
	tcase_add_test(memory, test_copy_between_sisters_needs_no_host);
	tcase_add_test(memory, test_host_memory_of_two_devices_is_pinned_once);
	tcase_add_test(memory, test_host_memory_is_pinned_where_commands_use_it);
	tcase_add_test(memory, test_kernels_reach_all_pieces_of_their_host_memory);
	tcase_add_test(memory, test_piece_that_cannot_be_pinned_is_copied_all_the_same);
	tcase_add_test(memory, test_pieces_of_two_devices_are_pinned_once);
	tcase_add_test(kernels, test_launch_passes_addresses_and_values);
	tcase_add_test(kernels, test_launch_out_of_range_is_refused_and_the_stream_goes_on);
	tcase_add_loop_test(kernels, test_launch_that_the_driver_refuses_hurts_itself_only, 0, 3);
	tcase_add_test(kernels, test_kernel_get_compares_the_signature);
	tcase_add_test(kernels, test_image_that_is_none_is_refused);
	tcase_add_test(kernels, test_images_of_a_guest_are_checked_first);
	tcase_add_test(kernels, test_log_of_a_link_is_its_own);
	tcase_add_test(kernels, test_host_function_enqueues_in_order);
	tcase_add_test(kernels, test_host_function_is_offered_what_module_h_says);
	tcase_add_test(kernels, test_verdict_of_device_code_is_the_status);
	tcase_add_test(kernels, test_host_function_that_refuses_hurts_its_command_only);
	tcase_add_test(kernels, test_device_code_that_asks_learns_of_a_cancelled_session);
	tcase_add_test(streams, test_full_stream_says_again_and_goes_on);
	tcase_add_test(streams, test_streams_past_the_last_are_refused);
	tcase_add_test(streams, test_device_without_stream_memory_operations_works);
	tcase_add_test(streams, test_completion_wakes_whoever_does_not_poll);
	tcase_add_test(streams, test_copies_between_kernels_are_told_in_their_turn);
	tcase_add_test(streams, test_stream_that_ends_behind_a_mark_leaves_nothing_to_come);
	tcase_add_test(streams, test_completion_wakes_also_after_a_long_pause);
	tcase_add_test(streams, test_overlap_of_streams_counts_once);
	tcase_add_test(streams, test_time_of_a_batch_goes_by_what_was_expected);
	tcase_add_loop_exit_test(faults,
				 test_fault_of_a_new_kernel_is_told_from_the_rest_of_its_batch, 0,
				 0, GANTRY_ARRAY_SIZE(culprits));
	tcase_add_exit_test(faults, test_fault_of_a_known_kernel_may_be_anyones_of_its_batch, 0);
	tcase_add_exit_test(faults, test_fault_of_a_known_kernel_on_a_careful_stream_is_its_own, 0);
	tcase_add_loop_exit_test(faults, test_fault_ends_everything_in_flight, 0, 0,
				 (int)GANTRY_ARRAY_SIZE(culprits));
	tcase_add_exit_test(faults, test_fault_wakes_whoever_does_not_poll, 0);
	tcase_add_exit_test(faults, test_sticky_error_of_a_submission_is_told_by_poll, 0);
	tcase_add_exit_test(faults, test_gpu_off_the_bus_is_device_lost, 0);
	return gantry_unit_run(suite);
}
