/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/contract/devices/fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "tests/unit/runner.h"

#define DUT_MORE_OPTS 2
#define EVENTFD	      "anon_inode:[eventfd]"

#define WAIT_NS (60 * GANTRY_NS_PER_S)

static void wake(void *cookie)
{
	struct dut *dut = cookie;

	gantry_fetch_add(&dut->nwakes, 1);
	(void)gantry_futex_wake(&dut->nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	struct dut *dut = cookie;
	uint32_t before = gantry_fetch_add(&dut->nquestions, 1);

	(void)tag;
	return dut->cancel_after != 0 && before >= dut->cancel_after;
}

/* What the build has; a bundle has the modules beside the program. */
#ifndef FAKECUDA_DRIVER
#define FAKECUDA_DRIVER ""
#define FAKECUDA_NVML	""
#define FAKE_MODULE	""
#define FAKE_CODE	""
#endif
#ifndef CUDA_MODULE
#define CUDA_MODULE ""
#define CUDA_CODE   ""
#endif

#ifndef OPENCL_MODULE
#define OPENCL_MODULE ""
#define OPENCL_CODE   ""
#define OPENCL_CACHE  ""
#endif

#ifndef HIP_MODULE
#define FAKEHIP	      ""
#define FAKEHIP_ROCM5 ""
#define HIP_MODULE    ""
#define HIP_CODE      ""
#endif

#ifndef HIPCUDA
#define HIPCUDA ""
#endif
#ifndef HIP_CUDA_MODULE
#define HIP_CUDA_MODULE ""
#define HIP_CUDA_CODE	""
#endif
#ifndef HIP_FAKECUDA_MODULE
#define HIP_FAKECUDA_MODULE ""
#define HIP_FAKECUDA_CODE   ""
#endif

/* A test runner may have put the fake's folder where libraries are searched. */
static bool is_fake(const char *driver)
{
	struct link_map *map;
	bool fake = true;
	void *library;

	if (driver)
		return strcmp(driver, "fake") == 0;
	library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (!library)
		return true;
	if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
		fake = strcmp(map->l_name, FAKECUDA_DRIVER) == 0;
	(void)dlclose(library); /* nothing of it was used */
	return fake;
}

int dut_choose_cuda(const char **ret_opts, struct dut_images *images)
{
	static char path[PATH_MAX];
	const char *driver = getenv("GANTRY_TEST_CUDA_DRIVER");
	bool fake = is_fake(driver);

	images->module = fake ? FAKE_MODULE : CUDA_MODULE;
	images->code = fake ? FAKE_CODE : CUDA_CODE;
	images->are_real = !fake;
	if (images->module[0] == '\0' || (fake && access(FAKECUDA_DRIVER, R_OK) != 0))
		return -ENODEV;
	if (!fake && !driver)
		return 0;
	(void)snprintf(path, sizeof(path), "driver=%s", fake ? FAKECUDA_DRIVER : driver);
	ret_opts[0] = path;
	ret_opts[1] = "nvml=" FAKECUDA_NVML;
	return fake ? 2 : 1;
}

int dut_choose_opencl(const char **ret_opts, struct dut_images *images)
{
	static char platform[256], cache[PATH_MAX];
	const char *wanted = getenv("GANTRY_TEST_OPENCL_PLATFORM");
	const char *folder = getenv("GANTRY_TEST_OPENCL_CACHE");

	images->module = OPENCL_MODULE;
	images->code = OPENCL_CODE;
	if (images->module[0] == '\0')
		return -ENODEV;
	(void)snprintf(platform, sizeof(platform), "platform=%s",
		       wanted ? wanted : "Portable Computing Language");
	(void)snprintf(cache, sizeof(cache), "cache=%s", folder ? folder : OPENCL_CACHE);
	ret_opts[0] = platform;
	ret_opts[1] = cache;
	return 2;
}

static int choose_hip(const char *library, const char **ret_opts, struct dut_images *images)
{
	static char path[PATH_MAX];

	images->module = HIP_MODULE;
	images->code = HIP_CODE;
	if (images->module[0] == '\0' || access(library, R_OK) != 0)
		return -ENODEV;
	(void)snprintf(path, sizeof(path), "library=%s", library);
	ret_opts[0] = path;
	return 1;
}

int dut_choose_hip(const char **ret_opts, struct dut_images *images)
{
	return choose_hip(FAKEHIP, ret_opts, images);
}

int dut_choose_hip5(const char **ret_opts, struct dut_images *images)
{
	return choose_hip(FAKEHIP_ROCM5, ret_opts, images);
}

int dut_choose_hip_cuda(const char **ret_opts, struct dut_images *images)
{
	static char path[PATH_MAX];
	const char *library = dut_image_path(HIPCUDA);
	const char *driver = getenv("GANTRY_TEST_CUDA_DRIVER");
	bool fake = is_fake(driver);

	if (HIPCUDA[0] == '\0' || access(library, R_OK) != 0)
		return -ENODEV;
	(void)snprintf(path, sizeof(path), "library=%s", library);
	images->module = fake ? HIP_FAKECUDA_MODULE : HIP_CUDA_MODULE;
	images->code = fake ? HIP_FAKECUDA_CODE : HIP_CUDA_CODE;
	images->are_real = !fake;
	if (images->module[0] == '\0')
		return -ENODEV;
	if (fake)
		ck_assert_int_eq(setenv("HIPCUDA_DRIVER", FAKECUDA_DRIVER, 1), 0);
	else if (driver)
		ck_assert_int_eq(setenv("HIPCUDA_DRIVER", driver, 1), 0);
	ret_opts[0] = path;
	return 1;
}

/*
 * What every test does with its device: a thread that uses it, a stream, and a command. CUDA's driver makes the thread
 * that calls host functions back with the first of them.
 */
static int use_device(struct dut *dut, struct gantry_err *err)
{
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *be = dut->device.backend;
	struct gantry_stream *stream;
	struct gantry_mem *mem;
	struct gantry_cmd fill;
	uint64_t word = 0;
	int r = be->thread_enter ? be->thread_enter(dut->device.dev, err) : 0;

	if (r == 0)
		r = be->stream_create(dut->device.dev, &attr, &stream, err);
	if (r < 0)
		return r;
	mem = dut_host(dut, &word, sizeof(word));
	fill = dut_fill(mem, 0, sizeof(word), 0, sizeof(word));
	dut->stream = stream;
	(void)dut_run(dut, &fill); /* tests look at what comes of it */
	dut->stream = NULL;
	dut->last_tag = 0;
	be->mem_free(mem);
	be->stream_destroy(stream);
	return 0;
}

/*
 * A real driver is not unloaded: what the process's first context leaves behind is its own. A second one has to leave
 * nothing more, and the test is held to that; but for one eventfd, which NVIDIA's driver 580 keeps for each device that
 * was opened. Nothing in devices/ or base/ makes an eventfd; which call of the driver's does is told here.
 */
static int open_device(const struct gantry_device_conf *conf, struct dut *dut,
		       struct gantry_err *err)
{
	int r = gantry_device_open(conf, &dut->host, &dut->device, err);
	unsigned int before;

	if (r < 0 || (dut->device.info.kind != GANTRY_KIND_CUDA &&
		      dut->device.info.kind != GANTRY_KIND_HIP &&
		      dut->device.info.kind != GANTRY_KIND_OPENCL))
		return r;
	r = use_device(dut, err);
	gantry_device_close(&dut->device);
	if (r < 0)
		return r;
	gantry_unit_forgive();
	if (!dut->images.are_real)
		return gantry_device_open(conf, &dut->host, &dut->device, err);
	gantry_unit_allow_fds(EVENTFD, 1);
	before = gantry_unit_count_fds_of(EVENTFD);
	r = gantry_device_open(conf, &dut->host, &dut->device, err);
	(void)printf("# eventfds: %u before the device was opened again, %u then\n", before,
		     gantry_unit_count_fds_of(EVENTFD));
	(void)fflush(stdout);
	return r;
}

struct dut *dut_open(const struct dut_row *row)
{
	const char *opts[DUT_MAX_OPTS + DUT_MORE_OPTS];
	struct gantry_device_conf conf = { .name = "dut", .backend = row->backend, .opts = opts };
	struct dut *dut = calloc(1, sizeof(*dut));
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	ck_assert_ptr_nonnull(dut);
	dut->row = row;
	dut->images.module = PROBE_IMAGE;
	for (; conf.nopts < DUT_MAX_OPTS && row->opts[conf.nopts]; conf.nopts++)
		opts[conf.nopts] = row->opts[conf.nopts];
	r = row->choose ? row->choose(opts + conf.nopts, &dut->images) : 0;
	if (r < 0) {
		free(dut);
		gantry_unit_skip("neither a driver nor a stand-in, or no image for it");
	}
	conf.nopts += (uint32_t)r;
	dut->host = (struct gantry_device_host){ wake, cancelled, dut };
	r = open_device(&conf, dut, &err);
	if (r == -ENODEV) {
		free(dut);
		gantry_unit_skip("neither this build nor this machine has such a device");
	}
	ck_assert_msg(r == 0, "%s", err.text);
	if (dut->device.backend->thread_enter)
		ck_assert_int_eq(dut->device.backend->thread_enter(dut->device.dev, &err), 0);
	dut->stream = dut_stream(dut, 0);
	return dut;
}

void dut_close(struct dut *dut)
{
	gantry_device_close(&dut->device);
	free(dut);
}

struct gantry_stream *dut_stream(struct dut *dut, int32_t priority)
{
	const struct gantry_stream_attr attr = { .priority = priority };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_stream *stream;

	ck_assert_msg(dut->device.backend->stream_create(dut->device.dev, &attr, &stream, &err) ==
			      0,
		      "%s", err.text);
	return stream;
}

struct gantry_mem *dut_import(struct dut *dut, uint64_t bytes, int *ret_fd)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem;
	int fd;

	ck_assert_int_eq(gantry_memfd_create("dut", bytes, 0, &fd), 0);
	ck_assert_msg(dut->device.backend->mem_import(dut->device.dev, fd, 0, bytes, &mem, &err) ==
			      0,
		      "%s", err.text);
	if (ret_fd)
		*ret_fd = fd;
	else
		gantry_fd_close(fd);
	return mem;
}

struct gantry_mem *dut_window(struct dut *dut, uint64_t n)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem;

	ck_assert_msg(dut->device.backend->window_open(
			      dut->device.dev, 0, n * dut->device.info.slab_align, &mem, &err) == 0,
		      "%s", err.text);
	return mem;
}

void dut_map(struct dut *dut, struct gantry_mem *window, uint64_t at, uint64_t n, int fd)
{
	uint64_t align = dut->device.info.slab_align;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_msg(dut->device.backend->window_map(window, at * align, n * align, fd, &err) == 0,
		      "%s", err.text);
}

int dut_slab(struct dut *dut, struct gantry_mem *window, uint64_t at, uint64_t n)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int fd;

	ck_assert_msg(dut->device.backend->slab_create(
			      dut->device.dev, n * dut->device.info.slab_align, &fd, &err) == 0,
		      "%s", err.text);
	dut_map(dut, window, at, n, fd);
	return fd;
}

struct gantry_mem *dut_host(struct dut *dut, void *base, uint64_t bytes)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem;

	ck_assert_msg(dut->device.backend->mem_host(dut->device.dev, base, bytes, &mem, &err) == 0,
		      "%s", err.text);
	return mem;
}

const char *dut_image_path(const char *built)
{
	static char path[PATH_MAX];
	const char *name = strrchr(built, '/') ? strrchr(built, '/') + 1 : built;
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *end;

	if (access(built, R_OK) == 0 || len <= 0)
		return built;
	path[len] = '\0';
	end = strrchr(path, '/') + 1;
	ck_assert_uint_lt((size_t)(end - path) + strlen(name), sizeof(path));
	(void)strcpy(end, name);
	return path;
}

struct gantry_kernel *dut_kernel(struct dut *dut, const char *name, const char *signature)
{
	const struct gantry_backend *backend = dut->device.backend;
	struct gantry_signature *sig = &dut->sigs[dut->nsigs++];
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_kernel *kernel;

	if (!dut->image) {
		int r = backend->image_load(dut->device.dev, dut_image_path(dut->images.module),
					    NULL, 0, &dut->image, &err);

		/* A machine may have a newer PoCL than the one whose binaries are checked. */
		if (r == -ENOEXEC && strstr(err.text, "a PoCL binary of format"))
			gantry_unit_skip(err.text);
		ck_assert_msg(r == 0, "%s", err.text);
	}
	ck_assert_int_eq(gantry_signature_parse(signature, sig, &err), 0);
	ck_assert_msg(backend->kernel_get(dut->image, name, sig, &kernel, &err) == 0, "%s",
		      err.text);
	return kernel;
}

struct gantry_cmd dut_fill(struct gantry_mem *mem, uint64_t off, uint64_t len, uint64_t pattern,
			   uint32_t pattern_bytes)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_FILL };

	cmd.fill.dst = (struct gantry_range){ mem, off, len };
	cmd.fill.pattern = pattern;
	cmd.fill.pattern_bytes = pattern_bytes;
	return cmd;
}

struct gantry_cmd dut_copy(struct gantry_mem *dst, uint64_t dst_off, struct gantry_mem *src,
			   uint64_t src_off, uint64_t len)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_COPY };

	cmd.copy.dst = (struct gantry_range){ dst, dst_off, len };
	cmd.copy.src = (struct gantry_range){ src, src_off, len };
	return cmd;
}

struct gantry_cmd dut_launch(struct gantry_kernel *kernel, uint32_t nargs)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };

	cmd.launch.kernel = kernel;
	cmd.launch.nargs = nargs;
	return cmd;
}

void dut_arg_range(struct gantry_cmd *cmd, uint32_t idx, struct gantry_mem *mem, uint64_t off,
		   uint64_t len)
{
	cmd->launch.args[idx].range = (struct gantry_range){ mem, off, len };
}

int dut_submit(struct dut *dut, struct gantry_stream *stream, struct gantry_cmd *cmd)
{
	int r;

	cmd->tag = dut->last_tag + 1;
	r = dut->device.backend->submit(stream, cmd);
	if (r == 0)
		dut->last_tag++;
	return r;
}

void dut_wait(struct dut *dut, struct gantry_done *ret_done, unsigned int n)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	unsigned int count = 0;

	while (count < n) {
		count += dut->device.backend->poll(dut->device.dev, ret_done + count, n - count);
		ck_assert_msg(!gantry_deadline_passed(deadline), "only %u of %u commands ended",
			      count, n);
	}
}

struct gantry_done dut_run(struct dut *dut, struct gantry_cmd *cmd)
{
	struct gantry_done done;

	ck_assert_int_eq(dut_submit(dut, dut->stream, cmd), 0);
	dut_wait(dut, &done, 1);
	ck_assert_uint_eq(done.tag, cmd->tag);
	return done;
}
