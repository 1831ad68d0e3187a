/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opencl backend: CPUs and GPUs through whatever OpenCL drivers the machine has.
 *
 * Options: platform=P and device=D (a number, or part of a name; the first), memory=auto|direct|staged, keep=SIZE|no (of device memory, for
 * what staged memory leaves there; a quarter of it), scratch=SIZE (of a command; 256M), cache=FOLDER (for what was compiled of installed modules), guest_code=yes|no (sessions may bring their own;
 * no), library=PATH (instead of libOpenCL.so.1).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "devices/opencl/backend.h"

#define DEFAULT_SCRATCH_BYTES (256ull << 20)
#define MAX_PROBED	      16u
#define GUESSED_BYTES_PER_S   8000000000ull
#define LANES_MAX	      64u

static void opencl_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, opencl_close);

/* ---- options ---- */

enum memory_option {
	MEMORY_AUTO,
	MEMORY_DIRECT,
	MEMORY_STAGED,
};

static int parse_yes(const struct gantry_device_conf *conf, const char *key, bool *ret_yes,
		     struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, key);

	if (text && strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		return gantry_err_set(err, -EINVAL, "%s: yes or no", key);
	if (text)
		*ret_yes = strcmp(text, "yes") == 0;
	return 0;
}

static int parse_memory(const struct gantry_device_conf *conf, enum memory_option *ret_memory,
			struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, "memory");

	*ret_memory = MEMORY_AUTO;
	if (!text || strcmp(text, "auto") == 0)
		return 0;
	if (strcmp(text, "direct") == 0)
		*ret_memory = MEMORY_DIRECT;
	else if (strcmp(text, "staged") == 0)
		*ret_memory = MEMORY_STAGED;
	else
		return gantry_err_set(err, -EINVAL, "memory: auto, direct or staged");
	return 0;
}

/* Of nothing said, UINT64_MAX. */
static int parse_keep(const struct gantry_device_conf *conf, uint64_t *ret_bytes,
		      struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, "keep");

	*ret_bytes = text ? 0 : UINT64_MAX;
	if (!text || strcmp(text, "no") == 0)
		return 0;
	return gantry_size_parse(text, ret_bytes, err) < 0
		       ? gantry_err_set(err, -EINVAL, "keep: a size, or no")
		       : 0;
}

/* What the builder is told is kept: @conf may go. */
static int keep_strings(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			struct gantry_err *err)
{
	const char *const keys[] = { "library", "platform", "device", "cache" };
	const char **const to[] = { &dev->work.library, &dev->work.choice.platform,
				    &dev->work.choice.device, &dev->cache };
	size_t room = 0;
	char *at;

	for (size_t i = 0; i < 4; i++) {
		const char *text = gantry_device_opt(conf, keys[i]);

		room += text ? strlen(text) + 1 : 0;
	}
	at = dev->strings = malloc(room + 1);
	if (!at)
		return gantry_err_set(err, -ENOMEM, "no memory for an opencl device");
	for (size_t i = 0; i < 4; i++) {
		const char *text = gantry_device_opt(conf, keys[i]);
		size_t len = text ? strlen(text) + 1 : 0;

		if (!text)
			continue;
		memcpy(at, text, len);
		*to[i] = at;
		at += len;
	}
	if (dev->cache && dev->cache[0] != '/')
		return gantry_err_set(err, -EINVAL, "cache: not a path that begins with /");
	return 0;
}

static int parse_options(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			 struct gantry_err *err)
{
	static const char *const keys[] = { "library", "platform",   "device", "memory", "scratch",
					    "cache",   "guest_code", "fitted", "keep",	 NULL };
	const char *text = gantry_device_opt(conf, "scratch");
	int r = gantry_device_opts_check(conf, keys, err);

	if (r == 0)
		r = keep_strings(conf, dev, err);
	if (r == 0)
		r = parse_yes(conf, "guest_code", &dev->guest_code, err);
	dev->fits = true;
	if (r == 0)
		r = parse_yes(conf, "fitted", &dev->fits, err);
	dev->scratch_bytes = DEFAULT_SCRATCH_BYTES;
	if (r == 0 && text && gantry_size_parse(text, &dev->scratch_bytes, err) < 0)
		r = gantry_err_wrap(err, -EINVAL, "scratch");
	if (r == 0)
		r = parse_keep(conf, &dev->keep_bytes, err);
	if (r == 0 && conf->lanes > LANES_MAX)
		r = gantry_err_set(err, -EINVAL, "lanes: at most %u", LANES_MAX);
	return r;
}

/* ---- opening ---- */

static int create_context(struct gantry_dev *dev, struct gantry_err *err)
{
	cl_int result = CL_SUCCESS;

	dev->context = dev->cl->CreateContext(NULL, 1, &dev->target.device, NULL, NULL, &result);
	if (result == CL_SUCCESS)
		return 0;
	(void)gantry_opencl_err(result, "clCreateContext", err);
	return result == CL_DEVICE_NOT_AVAILABLE ? -EBUSY : -ENODEV;
}

/* Kinds that this backend serves. An accelerator is a board, which takes registered binaries and one process. */
static int check_kind(struct gantry_dev *dev, struct gantry_err *err)
{
	char name[64];

	dev->kind_bits = (uint32_t)gantry_opencl_number(dev->cl, dev->target.device, CL_DEVICE_TYPE,
							0);
	dev->work.of_gpu = !(dev->kind_bits & CL_DEVICE_TYPE_CPU);
	if (dev->kind_bits & (CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU))
		return 0;
	gantry_opencl_text(dev->cl, dev->target.device, CL_DEVICE_NAME, name, sizeof(name));
	return gantry_err_set(err, -ENODEV,
			      "%s is neither a CPU nor a GPU to OpenCL: an accelerator takes "
			      "backend = fpga, driver = opencl",
			      name);
}

static void fill_identity(struct gantry_dev *dev)
{
	char name[96], version[96], platform[96];

	gantry_opencl_text(dev->cl, dev->target.device, CL_DEVICE_NAME, name, sizeof(name));
	gantry_opencl_text(dev->cl, dev->target.device, CL_DRIVER_VERSION, version,
			   sizeof(version));
	gantry_opencl_platform_text(dev->cl, dev->target.platform, CL_PLATFORM_VERSION, platform,
				    sizeof(platform));
	(void)gantry_str_format(dev->identity, sizeof(dev->identity), "%s|%s|%s", name, version,
				platform); /* as much as fits */
	gantry_opencl_platform_text(dev->cl, dev->target.platform, CL_PLATFORM_NAME, platform,
				    sizeof(platform));
	dev->is_pocl = strcmp(platform, "Portable Computing Language") == 0;
}

static int choose_memory(struct gantry_dev *dev, enum memory_option memory, struct gantry_err *err)
{
	bool direct = memory != MEMORY_STAGED && gantry_opencl_mem_is_direct(dev);

	if (memory == MEMORY_DIRECT && !direct)
		return gantry_err_set(
			err, -EINVAL,
			"memory: this device does not work on host memory: leave it auto");
	dev->direct = direct;
	return 0;
}

static uint64_t host_share(void)
{
	long pages = sysconf(_SC_PHYS_PAGES);

	return pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / 4 : 1ull << 30;
}

static void fill_info(const struct gantry_dev *dev, const struct gantry_device_conf *conf,
		      struct gantry_device_info *info)
{
	bool cpu = dev->kind_bits & CL_DEVICE_TYPE_CPU;

	*info = (struct gantry_device_info){
		.kind = GANTRY_KIND_OPENCL,
		.caps = GANTRY_CAP_MEM_FD | GANTRY_CAP_PEER |
			(dev->direct ? GANTRY_CAP_HOST_DIRECT : 0) |
			(!dev->direct && dev->keep_bytes ? GANTRY_CAP_KEEPS : 0) |
			(dev->guest_code ? GANTRY_CAP_GUEST_IMAGES : 0) |
			(cpu ? GANTRY_CAP_HOST_CODE : GANTRY_CAP_DRIVER),
		.lanes = conf->lanes ? conf->lanes
				     : (uint32_t)gantry_min_u64(gantry_max_u64(dev->units, 2), 8),
		.units = dev->units,
		.mem_bytes = dev->mem_bytes,
		.mem_align = 64,
		.numa_node = -1,
		.bytes_per_s = GUESSED_BYTES_PER_S,
		.about = dev->about,
	};
	gantry_opencl_text(dev->cl, dev->target.device, CL_DEVICE_NAME, info->name,
			   sizeof(info->name));
}

/* Of the device's own memory. */
static void take_sizes(struct gantry_dev *dev)
{
	dev->device_bytes = gantry_opencl_number(dev->cl, dev->target.device,
						 CL_DEVICE_GLOBAL_MEM_SIZE, UINT64_MAX);
	dev->most_bytes = gantry_opencl_number(dev->cl, dev->target.device,
					       CL_DEVICE_MAX_MEM_ALLOC_SIZE, UINT64_MAX);
	if (dev->keep_bytes == UINT64_MAX)
		dev->keep_bytes = dev->device_bytes / 4;
}

static int open_device(struct gantry_dev *dev, const struct gantry_device_conf *conf,
		       struct gantry_err *err)
{
	enum memory_option memory;
	int r = parse_memory(conf, &memory, err);

	if (r == 0)
		r = gantry_opencl_driver_open(dev->work.library, &dev->cl, err);
	/* Before the first call of OpenCL: it starts threads, and reads what the builder sets. */
	if (r == 0)
		r = gantry_opencl_builder_start(err);
	if (r == 0)
		r = gantry_opencl_choose(dev->cl, &dev->work.choice, &dev->target, err);
	if (r == 0)
		r = check_kind(dev, err);
	if (r == 0)
		r = create_context(dev, err);
	if (r == 0)
		r = choose_memory(dev, memory, err);
	if (r < 0)
		return r;
	fill_identity(dev);
	dev->units = (uint32_t)gantry_opencl_number(dev->cl, dev->target.device,
						    CL_DEVICE_MAX_COMPUTE_UNITS, 1);
	dev->max_local = (uint32_t)gantry_opencl_number(dev->cl, dev->target.device,
							CL_DEVICE_MAX_WORK_GROUP_SIZE, 1);
	dev->mem_bytes = conf->mem_bytes ? conf->mem_bytes : host_share();
	take_sizes(dev);
	gantry_opencl_parts_find(dev);
	gantry_opencl_about(dev);
	dev->log = calloc(1, GANTRY_OPENCL_LOG_BYTES);
	if (!dev->about || !dev->log)
		return gantry_err_set(err, -ENOMEM, "no memory for an opencl device");
	return 0;
}

static int opencl_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		       struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		       struct gantry_err *err)
{
	_cleanup_(opencl_closep) struct gantry_dev *dev = aligned_alloc(64, sizeof(*dev));
	int r;

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for an opencl device");
	memset(dev, 0, sizeof(*dev));
	dev->host = host;
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	gantry_list_init(&dev->twins);
	r = parse_options(conf, dev, err);
	if (r == 0)
		r = open_device(dev, conf, err);
	if (r < 0)
		return r;
	fill_info(dev, conf, ret_info);
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static void opencl_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_opencl_streams_end(dev);
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		gantry_opencl_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, host.link, mem)
		gantry_opencl_mem_free(mem);
	gantry_opencl_samplers_release(dev);
	if (dev->context)
		(void)dev->cl->ReleaseContext(dev->context);
	free(dev->function_ids);
	free(dev->strings);
	free(dev->about);
	free(dev->log);
	free(dev);
}

static int opencl_health(struct gantry_dev *dev, struct gantry_device_health *ret_health,
			 struct gantry_err *err)
{
	(void)err;
	*ret_health = (struct gantry_device_health){
		.known = GANTRY_HEALTH_COPIES,
		.copied_in = gantry_load_relaxed(&dev->copied_in),
		.kept = gantry_load_relaxed(&dev->kept),
		.copied_out = gantry_load_relaxed(&dev->copied_out),
	};
	return 0;
}

/* ---- what the machine has ---- */

static char probed[MAX_PROBED][2][32];
static const char *probed_opts[MAX_PROBED][2];

/* Counts the devices as gantry_opencl_choose() does: all of the platform. */
static unsigned probe_platform(const struct gantry_opencl_driver *cl, cl_platform_id platform,
			       unsigned p, struct gantry_device_conf *confs, unsigned n,
			       unsigned cap)
{
	cl_device_id devices[MAX_PROBED];
	cl_uint ndevices = 0;

	if (cl->GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_PROBED, devices, &ndevices) !=
	    CL_SUCCESS)
		return n;
	for (cl_uint d = 0; d < ndevices && d < MAX_PROBED && n < cap && n < MAX_PROBED; d++) {
		if (!(gantry_opencl_number(cl, devices[d], CL_DEVICE_TYPE, 0) &
		      (CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU)))
			continue;
		(void)snprintf(probed[n][0], sizeof(probed[n][0]), "platform=%u", p);
		(void)snprintf(probed[n][1], sizeof(probed[n][1]), "device=%u", d);
		probed_opts[n][0] = probed[n][0];
		probed_opts[n][1] = probed[n][1];
		confs[n] = (struct gantry_device_conf){
			.name = "opencl", .backend = "opencl", .nopts = 2, .opts = probed_opts[n]
		};
		n++;
	}
	return n;
}

static int opencl_probe(struct gantry_device_conf *confs, unsigned cap, struct gantry_err *err)
{
	const struct gantry_opencl_driver *cl;
	cl_platform_id platforms[MAX_PROBED];
	cl_uint nplatforms = 0;
	unsigned n = 0;

	if (gantry_opencl_driver_open(NULL, &cl, err) < 0 || gantry_opencl_builder_start(err) < 0)
		return 0;
	if (cl->GetPlatformIDs(MAX_PROBED, platforms, &nplatforms) != CL_SUCCESS ||
	    nplatforms == 0) {
		(void)gantry_err_set(err, -ENODEV, "the OpenCL loader finds no platform");
		return 0;
	}
	for (cl_uint p = 0; p < nplatforms && p < MAX_PROBED; p++)
		n = probe_platform(cl, platforms[p], p, confs, n, cap);
	return (int)n;
}

extern const struct gantry_backend gantry_backend_opencl;
const struct gantry_backend gantry_backend_opencl = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "opencl",
	.kind = GANTRY_KIND_OPENCL,
	.probe = opencl_probe,
	.open = opencl_open,
	.close = opencl_close,
	.image_load = gantry_opencl_image_load,
	.image_unload = gantry_opencl_image_unload,
	.kernel_get = gantry_opencl_kernel_get,
	.image_say = gantry_opencl_image_say,
	.mem_import = gantry_opencl_mem_import,
	.mem_host = gantry_opencl_mem_host,
	.mem_free = gantry_opencl_mem_free,
	.stream_create = gantry_opencl_stream_create,
	.stream_destroy = gantry_opencl_stream_destroy,
	.submit = gantry_opencl_submit,
	.poll = gantry_opencl_poll,
	.flush = gantry_opencl_flush,
	.boundary = gantry_opencl_boundary,
	.health = opencl_health,
};
