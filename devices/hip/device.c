/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hip backend: AMD GPUs through AMD's runtime.
 *
 * Options: gpu=N (its number to the runtime; 0), memory=window|staged (window), scratch=SIZE (of a
 * command; 256M), graphs=yes|no (rows of launches as graphs; yes), processes=turns|beside (for the agent: whether sessions have
 * work on the GPU one at a time; turns), library=PATH (instead of libamdhip64).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "devices/hip/backend.h"

#define DEFAULT_SCRATCH_BYTES	   (256ull << 20)
#define MAX_GPUS		   64u
#define LANES_MAX		   64u
#define DEFAULT_LANES		   8u
#define GUESSED_BYTES_PER_S	   25000000000ull
#define GUESSED_WITHIN_BYTES_PER_S 500000000000ull

static void hip_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, hip_close);

static int parse_memory(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, "memory");

	dev->windows = !text || strcmp(text, "window") == 0;
	if (!dev->windows && strcmp(text, "staged") != 0)
		return gantry_err_set(err, -EINVAL, "memory: window or staged");
	return 0;
}

/* What is asked for; whether the runtime has them is seen later. */
static int parse_graphs(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, "graphs");

	dev->graphs = !text || strcmp(text, "yes") == 0;
	if (!dev->graphs && strcmp(text, "no") != 0)
		return gantry_err_set(err, -EINVAL, "graphs: yes or no");
	return 0;
}

/* The agent goes by it. */
static int check_processes(const struct gantry_device_conf *conf, struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, "processes");

	if (text && strcmp(text, "turns") != 0 && strcmp(text, "beside") != 0)
		return gantry_err_set(err, -EINVAL, "processes: turns or beside");
	return 0;
}

static int parse_options(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			 struct gantry_err *err)
{
	static const char *const keys[] = { "gpu",	 "memory",  "scratch", "graphs",
					    "processes", "library", NULL };
	const char *gpu = gantry_device_opt(conf, "gpu");
	const char *scratch = gantry_device_opt(conf, "scratch");
	uint64_t number = 0;
	int r = gantry_device_opts_check(conf, keys, err);

	if (r == 0)
		r = parse_memory(conf, dev, err);
	if (r == 0)
		r = parse_graphs(conf, dev, err);
	if (r == 0)
		r = check_processes(conf, err);
	if (r == 0 && gpu && gantry_u64_parse(gpu, 0, MAX_GPUS - 1, &number, err) < 0)
		r = gantry_err_wrap(err, -EINVAL, "gpu");
	dev->device = (int)number;
	dev->scratch_bytes = DEFAULT_SCRATCH_BYTES;
	if (r == 0 && scratch && gantry_size_parse(scratch, &dev->scratch_bytes, err) < 0)
		r = gantry_err_wrap(err, -EINVAL, "scratch");
	if (r == 0 && conf->lanes > LANES_MAX)
		r = gantry_err_set(err, -EINVAL, "lanes: at most %u", LANES_MAX);
	return r;
}

/* ---- opening ---- */

static int choose_gpu(struct gantry_dev *dev, struct gantry_err *err)
{
	int count = 0;
	int r = gantry_hip_err(dev->hip->GetDeviceCount(&count), "hipGetDeviceCount", err);

	if (r < 0)
		return -ENODEV;
	if (dev->device >= count)
		return gantry_err_set(err, -ENODEV, "gpu: there is no %d, the HIP runtime has %d",
				      dev->device, count);
	if (gantry_hip_err(dev->hip->SetDevice(dev->device), "hipSetDevice", err) < 0)
		return -ENODEV;
	return gantry_hip_arch(dev->hip, dev->device, dev->arch, sizeof(dev->arch), err);
}

static int check_memory(struct gantry_dev *dev, struct gantry_err *err)
{
	if (!dev->windows)
		return 0;
	if (!gantry_hip_has_windows(dev->hip, dev->device))
		return gantry_err_set(
			err, -EINVAL,
			"memory: this runtime or GPU has no memory behind descriptors (ROCm 6 or newer "
			"is needed): say memory = staged");
	return gantry_hip_slab_align(dev, err);
}

static int measure(struct gantry_dev *dev, const struct gantry_device_conf *conf,
		   struct gantry_err *err)
{
	size_t total = 0;
	int r = gantry_hip_err(dev->hip->DeviceTotalMem(&total, dev->device), "hipDeviceTotalMem",
			       err);

	if (r < 0)
		return r;
	dev->mem_bytes = conf->mem_bytes ? conf->mem_bytes : total / 10 * 9;
	if (dev->windows)
		dev->mem_bytes -= dev->mem_bytes % dev->slab_align;
	dev->units = (uint32_t)gantry_hip_attribute(dev->hip, dev->device, GANTRY_HIP_ATTR_UNITS,
						    1);
	dev->max_threads = (uint32_t)gantry_hip_attribute(
		dev->hip, dev->device, GANTRY_HIP_ATTR_MAX_THREADS_PER_BLOCK, 256);
	dev->max_shared = (uint32_t)gantry_hip_attribute(dev->hip, dev->device,
							 GANTRY_HIP_ATTR_SHARED_PER_BLOCK, 0);
	return 0;
}

static int open_device(struct gantry_dev *dev, const struct gantry_device_conf *conf,
		       struct gantry_err *err)
{
	int r = gantry_hip_driver_open(gantry_device_opt(conf, "library"), &dev->hip, err);

	dev->graphs = dev->graphs && r == 0 && gantry_hip_has_graphs(dev->hip);
	if (r == 0)
		r = choose_gpu(dev, err);
	if (r == 0)
		r = check_memory(dev, err);
	if (r == 0)
		r = measure(dev, conf, err);
	if (r == 0)
		r = gantry_hip_err(dev->hip->StreamCreateWithPriority(
					   &dev->own, GANTRY_HIP_STREAM_NON_BLOCKING, 0),
				   "hipStreamCreateWithPriority", err);
	if (r == 0)
		r = gantry_hip_streams_begin(dev, err);
	return r;
}

static void fill_info(const struct gantry_dev *dev, const struct gantry_device_conf *conf,
		      struct gantry_device_info *info)
{
	size_t processor = strcspn(dev->arch, ":");

	*info = (struct gantry_device_info){
		.kind = GANTRY_KIND_HIP,
		.caps = (dev->windows ? GANTRY_CAP_WINDOW : GANTRY_CAP_MEM_FD) |
			GANTRY_CAP_GUEST_IMAGES | GANTRY_CAP_PEER | GANTRY_CAP_DRIVER |
			GANTRY_CAP_ABORTS,
		.lanes = conf->lanes ? conf->lanes : DEFAULT_LANES,
		.units = dev->units,
		.mem_bytes = dev->mem_bytes,
		.mem_align = 256,
		.numa_node = -1,
		.bytes_per_s = GUESSED_BYTES_PER_S,
		.within_bytes_per_s = GUESSED_WITHIN_BYTES_PER_S,
		.slab_align = dev->windows ? dev->slab_align : 0,
	};
	if (dev->hip->DeviceGetName(info->name, sizeof(info->name) - 1, dev->device) !=
		    GANTRY_HIP_SUCCESS ||
	    info->name[0] == '\0')
		(void)gantry_str_copy(info->name, sizeof(info->name), "AMD GPU");
	gantry_str_make_printable(info->name);
	if (dev->hip->DeviceGetPCIBusId(info->pci, sizeof(info->pci) - 1, dev->device) !=
	    GANTRY_HIP_SUCCESS)
		info->pci[0] = '\0';
	gantry_str_make_printable(info->pci);
	(void)gantry_str_copy(info->id, sizeof(info->id), info->pci); /* it is shorter */
	if (processor < sizeof(info->arch))
		memcpy(info->arch, dev->arch, processor);
}

static int hip_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		    struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		    struct gantry_err *err)
{
	_cleanup_(hip_closep) struct gantry_dev *dev = aligned_alloc(64, sizeof(*dev));
	int r;

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a hip device");
	memset(dev, 0, sizeof(*dev));
	dev->host = host;
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->active);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	r = parse_options(conf, dev, err);
	if (r == 0)
		r = open_device(dev, conf, err);
	if (r < 0)
		return r;
	fill_info(dev, conf, ret_info);
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static void hip_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_hip_streams_end(dev);
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		gantry_hip_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, host.link, mem)
		gantry_hip_mem_free(mem);
	if (dev->own)
		(void)dev->hip->StreamDestroy(dev->own); /* idle */
	free(dev);
}

/* The runtime's calls are for the GPU that their thread has chosen. */
static int hip_thread_enter(struct gantry_dev *dev, struct gantry_err *err)
{
	return gantry_hip_err(dev->hip->SetDevice(dev->device), "hipSetDevice", err);
}

static int hip_health(struct gantry_dev *dev, struct gantry_device_health *ret_health,
		      struct gantry_err *err)
{
	size_t available = 0, total = 0;
	int r;

	*ret_health = (struct gantry_device_health){ 0 };
	if (gantry_load_relaxed(&dev->lost))
		return gantry_err_set(err, -EIO, "a command failed, and all that follow will");
	/* Any thread's: the choice of a GPU is the thread's own. */
	r = gantry_hip_err(dev->hip->SetDevice(dev->device), "hipSetDevice", err);
	if (r == 0)
		r = gantry_hip_err(dev->hip->MemGetInfo(&available, &total), "hipMemGetInfo", err);
	if (r < 0)
		return -EIO;
	ret_health->known = GANTRY_HEALTH_MEM;
	ret_health->mem_total = total;
	ret_health->mem_used = total - gantry_min_u64(available, total);
	return 0;
}

/* ---- what the machine has ---- */

static char probed[MAX_GPUS][16];
static const char *probed_opts[MAX_GPUS][2];

static int hip_probe(struct gantry_device_conf *confs, unsigned cap, struct gantry_err *err)
{
	const struct gantry_hip_driver *hip;
	int count = 0;

	if (gantry_hip_driver_open(NULL, &hip, err) < 0 ||
	    hip->GetDeviceCount(&count) != GANTRY_HIP_SUCCESS)
		return 0;
	for (unsigned i = 0; i < (unsigned)count && i < cap && i < MAX_GPUS; i++) {
		(void)snprintf(probed[i], sizeof(probed[i]), "gpu=%u", i);
		probed_opts[i][0] = probed[i];
		probed_opts[i][1] = "memory=staged";
		confs[i] = (struct gantry_device_conf){
			.name = "hip",
			.backend = "hip",
			.nopts = gantry_hip_has_windows(hip, (int)i) ? 1 : 2,
			.opts = probed_opts[i],
		};
	}
	return (int)gantry_min_u64((uint64_t)count, gantry_min_u64(cap, MAX_GPUS));
}

extern const struct gantry_backend gantry_backend_hip;
const struct gantry_backend gantry_backend_hip = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "hip",
	.kind = GANTRY_KIND_HIP,
	.probe = hip_probe,
	.open = hip_open,
	.close = hip_close,
	.thread_enter = hip_thread_enter,
	.image_load = gantry_hip_image_load,
	.image_unload = gantry_hip_image_unload,
	.kernel_get = gantry_hip_kernel_get,
	.mem_import = gantry_hip_mem_import,
	.mem_host = gantry_hip_mem_host,
	.mem_free = gantry_hip_mem_free,
	.slab_create = gantry_hip_slab_create,
	.slab_scrub = gantry_hip_slab_scrub,
	.window_open = gantry_hip_window_open,
	.window_map = gantry_hip_window_map,
	.window_unmap = gantry_hip_window_unmap,
	.stream_create = gantry_hip_stream_create,
	.stream_destroy = gantry_hip_stream_destroy,
	.submit = gantry_hip_submit,
	.poll = gantry_hip_poll,
	.flush = gantry_hip_flush,
	.boundary = gantry_hip_boundary,
	.health = hip_health,
};
