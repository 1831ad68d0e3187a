/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend: NVIDIA GPUs, and MIG instances of them, through a driver loaded at run time.
 *
 * Options: gpu=INDEX|GPU-UUID|PCI address|MIG-UUID (0), driver=PATH (libcuda.so.1), nvml=PATH or none,
 * nvrtc=PATH and nvjitlink=PATH (compilers of guests' sources), libraries=FOLDER (cuBLAS and cuFFT), scratch=SIZE
 * (a stream's; 256M).
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/cuda/backend.h"
#include "devices/cuda/compile.h"

#define DEFAULT_SCRATCH_BYTES (256ull << 20)
/* Hardware queues that the driver spreads streams over, unless its environment says otherwise. */
#define DEFAULT_LANES 8u
#define MAX_PROBED    64u
/* Magnitude of a copy over a bus of which nothing is known. */
#define COPY_BYTES_PER_S   12000000000ull
#define WITHIN_BYTES_PER_S 1000000000000ull

static void cuda_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, cuda_close);

/* ---- which device ---- */

/* "GPU-" or "MIG-", then 8-4-4-4-12 hexadecimal digits. */
static void uuid_text(const CUuuid *uuid, const char *prefix, char *text, size_t cap)
{
	static const char dash_before[16] = { [4] = 1, [6] = 1, [8] = 1, [10] = 1 };
	char digits[64] = "";
	size_t len = 0;

	for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
		if (dash_before[i])
			digits[len++] = '-';
		(void)snprintf(digits + len, 3, "%02x", (unsigned char)uuid->bytes[i]); /* fits */
		len += 2;
	}
	(void)gantry_str_format(text, cap, "%s%s", prefix, digits); /* fits */
}

/* Of the device that the process sees under index @index. */
static void names_of(const struct gantry_cuda_driver *driver, CUdevice device, const char *prefix,
		     char uuid[48], char pci[32])
{
	CUuuid bytes = { { 0 } };

	uuid[0] = '\0';
	pci[0] = '\0';
	if (driver->DeviceGetUuid(&bytes, device) == CUDA_SUCCESS)
		uuid_text(&bytes, prefix, uuid, 48);
	if (driver->DeviceGetPCIBusId(pci, 32, device) != CUDA_SUCCESS)
		pci[0] = '\0';
	for (char *c = pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
}

/* PCI addresses are written with and without their domain, of four digits or eight. */
static bool pci_equal(const char *a, const char *b)
{
	unsigned int da = 0, db = 0, ba, bb, sa, sb, fa = 0, fb = 0;

	if (sscanf(a, "%x:%x:%x.%x", &da, &ba, &sa, &fa) != 4) {
		da = 0;
		if (sscanf(a, "%x:%x.%x", &ba, &sa, &fa) != 3)
			return false;
	}
	if (sscanf(b, "%x:%x:%x.%x", &db, &bb, &sb, &fb) != 4)
		return false;
	return da == db && ba == bb && sa == sb && fa == fb;
}

static bool is_named(const struct gantry_cuda_driver *driver, CUdevice device, const char *name)
{
	char uuid[48], pci[32];

	names_of(driver, device, gantry_str_starts(name, "MIG-") ? "MIG-" : "GPU-", uuid, pci);
	return strcasecmp(name, uuid) == 0 || pci_equal(name, pci);
}

static int find_device(const struct gantry_cuda_driver *driver, const char *name,
		       CUdevice *ret_device, struct gantry_err *err)
{
	uint64_t index;
	CUdevice device;
	int count = 0;

	if (driver->DeviceGetCount(&count) != CUDA_SUCCESS || count <= 0)
		return gantry_err_set(err, -ENODEV, "the NVIDIA driver has no devices");
	if (gantry_u64_parse(name, 0, INT32_MAX, &index, NULL) == 0) {
		if (index < (uint64_t)count &&
		    driver->DeviceGet(ret_device, (int)index) == CUDA_SUCCESS)
			return 0;
		return gantry_err_set(err, -ENODEV, "gpu: there is no %s, there are %d", name,
				      count);
	}
	for (int i = 0; i < count; i++) {
		if (driver->DeviceGet(&device, i) == CUDA_SUCCESS &&
		    is_named(driver, device, name)) {
			*ret_device = device;
			return 0;
		}
	}
	return gantry_err_set(err, -ENODEV, "gpu: the machine has no %.60s", name);
}

/* ---- what it is ---- */

static int attribute(const struct gantry_dev *dev, CUdevice_attribute which)
{
	int value = 0;

	/* One that a driver does not know is a thing that the device does not have. */
	if (dev->driver->DeviceGetAttribute(&value, which, dev->device) != CUDA_SUCCESS)
		return 0;
	return value;
}

static void read_limits(struct gantry_dev *dev)
{
	static const CUdevice_attribute grid[] = { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
						   CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
						   CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z };
	static const CUdevice_attribute block[] = { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
						    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
						    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z };

	for (unsigned int i = 0; i < 3; i++) {
		dev->max_grid[i] = (uint32_t)attribute(dev, grid[i]);
		dev->max_block[i] = (uint32_t)attribute(dev, block[i]);
	}
	dev->max_threads = (uint32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	dev->max_shared = (uint32_t)gantry_max_u64(
		(uint32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
		(uint32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
	dev->units = (uint32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	dev->units = dev->units ? dev->units : 1;
	dev->nresident = dev->units *
			 (uint32_t)attribute(dev,
					     CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
	dev->pageable = attribute(dev, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) != 0;
	dev->pins_in_place =
		attribute(dev, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
	(void)gantry_str_format(dev->arch, sizeof(dev->arch), "sm_%d%d",
				attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
				attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

static int32_t numa_node(const char *pci)
{
	_cleanup_free_ char *text = NULL;
	char path[96];

	if (gantry_str_format(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci) < 0 ||
	    gantry_file_read(path, 64, &text, NULL) < 0)
		return -1;
	return (int32_t)strtol(text, NULL, 10);
}

static void fill_info(const struct gantry_dev *dev, const struct gantry_device_conf *conf,
		      const char *uuid, const char *pci, struct gantry_device_info *info)
{
	uint64_t link = gantry_cuda_nvml_link(dev->nvml);

	*info = (struct gantry_device_info){
		.kind = GANTRY_KIND_CUDA,
		.caps = GANTRY_CAP_STAMP | GANTRY_CAP_WINDOW | GANTRY_CAP_DRIVER |
			GANTRY_CAP_GUEST_IMAGES | GANTRY_CAP_PEER | GANTRY_CAP_GROUPS,
		.lanes = conf->lanes ? conf->lanes : DEFAULT_LANES,
		.units = dev->units,
		.mem_bytes = dev->mem_bytes,
		.board_bytes = dev->board_bytes,
		.mem_align = 256,
		.numa_node = numa_node(pci),
		.bytes_per_s = link ? link : COPY_BYTES_PER_S,
		.within_bytes_per_s = WITHIN_BYTES_PER_S,
		.slab_align = dev->slab_align,
	};
	if (dev->driver->DeviceGetName(info->name, sizeof(info->name), dev->device) !=
		    CUDA_SUCCESS ||
	    info->name[0] == '\0')
		(void)gantry_str_copy(info->name, sizeof(info->name), "NVIDIA GPU"); /* fits */
	/* Cut short is good enough for people; both fit. */
	(void)gantry_str_copy(info->id, sizeof(info->id), uuid[0] ? uuid : pci);
	(void)gantry_str_copy(info->pci, sizeof(info->pci), pci);
	(void)gantry_str_copy(info->arch, sizeof(info->arch), dev->arch);
}

/* ---- opening ---- */

static int take_option(const struct gantry_device_conf *conf, const char *key, char **ret_text,
		       struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, key);

	*ret_text = text ? strdup(text) : NULL;
	return text && !*ret_text ? gantry_err_set(err, -ENOMEM, "no memory for an option") : 0;
}

static int parse_options(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			 struct gantry_err *err)
{
	static const char *const keys[] = { "gpu",	 "driver",    "nvml",	 "nvrtc",
					    "nvjitlink", "libraries", "scratch", NULL };
	const char *text;
	int r = gantry_device_opts_check(conf, keys, err);

	if (r < 0)
		return r;
	dev->scratch_bytes = DEFAULT_SCRATCH_BYTES;
	text = gantry_device_opt(conf, "scratch");
	if (text) {
		r = gantry_size_parse(text, &dev->scratch_bytes, err);
		if (r < 0)
			return gantry_err_wrap(err, -EINVAL, "scratch");
	}
	return take_option(conf, "libraries", &dev->libraries, err);
}

static int find(struct gantry_dev *dev, const struct gantry_device_conf *conf,
		struct gantry_err *err)
{
	const char *name = gantry_device_opt(conf, "gpu");
	const char *instance;
	int r;

	name = name ? name : "0";
	instance = gantry_str_starts(name, "MIG-") ? name : NULL;
	r = gantry_cuda_driver_open(gantry_device_opt(conf, "driver"), instance, &dev->driver, err);
	if (r < 0)
		return r;
	/* Of a MIG instance the process sees no other device; the driver's own UUID may be the GPU's. */
	return find_device(dev->driver, instance ? "0" : name, &dev->device, err);
}

static int context_open(struct gantry_dev *dev, struct gantry_err *err)
{
	const struct gantry_cuda_driver *driver = dev->driver;
	CUcontext context;
	int r;

	/* Whoever waits for the driver here has time to sleep. Refused when the context is active: it stays. */
	(void)driver->DevicePrimaryCtxSetFlags(dev->device, CU_CTX_SCHED_BLOCKING_SYNC);
	r = gantry_cuda_check(dev, driver->DevicePrimaryCtxRetain(&context, dev->device),
			      "making a context", err);
	if (r < 0)
		return r;
	dev->context = context;
	r = gantry_cuda_check(dev, driver->CtxSetCurrent(context), "cuCtxSetCurrent", err);
	if (r == 0)
		r = gantry_cuda_check(dev,
				      driver->CtxGetStreamPriorityRange(&dev->least_priority,
									&dev->greatest_priority),
				      "cuCtxGetStreamPriorityRange", err);
	if (r == 0)
		r = gantry_cuda_check(
			dev, driver->StreamCreateWithPriority(&dev->own, CU_STREAM_NON_BLOCKING, 0),
			"cuStreamCreateWithPriority", err);
	return r;
}

/* Device code gets the addresses of cells as the host has them. */
static int cells_open(struct gantry_dev *dev, struct gantry_err *err)
{
	size_t bytes = GANTRY_WATCH_PLACES * sizeof(*dev->cells);
	CUdeviceptr address = 0;
	void *cells;
	int r;

	r = gantry_cuda_check(dev,
			      dev->driver->MemHostAlloc(&cells, bytes,
							CU_MEMHOSTALLOC_PORTABLE |
								CU_MEMHOSTALLOC_DEVICEMAP),
			      "cuMemHostAlloc", err);
	if (r < 0)
		return r;
	dev->cells = cells;
	memset(cells, 0, bytes);
	r = gantry_cuda_check(dev, dev->driver->MemHostGetDevicePointer(&address, cells, 0),
			      "cuMemHostGetDevicePointer", err);
	if (r == 0 && address != (CUdeviceptr)(uintptr_t)cells)
		return gantry_err_set(err, -ENODEV,
				      "the device does not share addresses with the host");
	return r;
}

static int memory_open(struct gantry_dev *dev, const struct gantry_device_conf *conf,
		       struct gantry_err *err)
{
	size_t total = 0;
	int r = gantry_cuda_check(dev, dev->driver->DeviceTotalMem(&total, dev->device),
				  "cuDeviceTotalMem", err);

	if (r < 0)
		return r;
	if (conf->mem_bytes > total)
		return gantry_err_set(err, -EINVAL,
				      "mem: the GPU has %zu MiB, of which %zu MiB cannot be given "
				      "out",
				      total >> 20, (size_t)(conf->mem_bytes >> 20));
	dev->board_bytes = total;
	dev->mem_bytes = conf->mem_bytes ? conf->mem_bytes : total;
	r = gantry_cuda_slab_align(dev, &dev->slab_align, err);
	return r < 0 ? r : cells_open(dev, err);
}

static struct gantry_dev *dev_new(const struct gantry_device_host *host)
{
	struct gantry_dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->host = host;
	gantry_list_init(&dev->sisters);
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->active);
	gantry_list_init(&dev->owners);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	return dev;
}

static int cuda_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		     struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		     struct gantry_err *err)
{
	_cleanup_(cuda_closep) struct gantry_dev *dev = dev_new(host);
	const char *name = gantry_device_opt(conf, "gpu");
	char uuid[48], pci[32];
	int r;

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a cuda device");
	r = parse_options(conf, dev, err);
	if (r == 0)
		r = find(dev, conf, err);
	if (r < 0)
		return r;
	read_limits(dev);
	r = context_open(dev, err);
	if (r == 0)
		r = memory_open(dev, conf, err);
	if (r == 0)
		r = gantry_watch_start(&dev->watch, dev->cells, sizeof(*dev->cells), dev->host,
				       err);
	if (r < 0)
		return r;
	names_of(dev->driver, dev->device, "GPU-", uuid, pci);
	if (name && gantry_str_starts(name, "MIG-"))
		(void)gantry_str_copy(uuid, sizeof(uuid), name); /* cut short is good enough */
	dev->nvml = gantry_cuda_nvml_open(gantry_device_opt(conf, "nvml"), pci, uuid);
	gantry_cuda_stream_calibrate(dev);
	gantry_cuda_sisters_join(dev);
	fill_info(dev, conf, uuid, pci, ret_info);
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static int cuda_thread_enter(struct gantry_dev *dev, struct gantry_err *err)
{
	return gantry_cuda_check(dev, dev->driver->CtxSetCurrent(dev->context), "cuCtxSetCurrent",
				 err);
}

/* ---- closing ---- */

static void end_objects(struct gantry_dev *dev)
{
	gantry_cuda_owners_end(dev);
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream) {
		stream->told = stream->submitted; /* nobody will poll() any more */
		gantry_cuda_stream_destroy(stream);
	}
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		gantry_cuda_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, link, mem)
		gantry_cuda_mem_free(mem);
}

static void context_close(struct gantry_dev *dev)
{
	const struct gantry_cuda_driver *driver = dev->driver;

	/* None of these has a failure that anybody could act on. */
	if (dev->stamp_base)
		(void)driver->EventDestroy(dev->stamp_base);
	if (dev->own)
		(void)driver->StreamDestroy(dev->own);
	if (dev->cells)
		(void)driver->MemFreeHost(dev->cells);
	if (dev->zeroes)
		(void)driver->MemFree(dev->zeroes);
	if (dev->context) {
		(void)driver->CtxSetCurrent(NULL);
		(void)driver->DevicePrimaryCtxRelease(dev->device);
	}
}

/*
 * After a fault, and with a command in the device that does not end, the driver would wait in each of these
 * calls, perhaps for ever: what it holds is left to the end of the process, which is near.
 */
static void cuda_close(struct gantry_dev *dev)
{
	bool leaves = true;

	if (!dev)
		return;
	if (dev->context && gantry_cuda_drain(dev)) {
		end_objects(dev);
		gantry_watch_stop(&dev->watch);
		gantry_cuda_sisters_leave(dev);
		context_close(dev);
	} else {
		leaves = gantry_cuda_owners_abandon(dev);
		gantry_watch_stop(&dev->watch);
		gantry_cuda_sisters_leave(dev);
	}
	gantry_cuda_nvml_close(dev->nvml);
	if (!leaves)
		return; /* a thread that does not come back from a library uses the rest */
	gantry_cuda_reach_changed(dev);
	free(dev->link_log);
	free(dev->libraries);
	free(dev);
}

/* ---- the machine's ---- */

/* Without NVML the driver itself is asked, which takes longer and makes a CUDA process of this one. */
static int list_by_driver(char (*names)[80], unsigned cap, struct gantry_err *err)
{
	const struct gantry_cuda_driver *driver;
	int count = 0;
	int r = gantry_cuda_driver_open(NULL, NULL, &driver, err);

	if (r < 0)
		return r;
	if (driver->DeviceGetCount(&count) != CUDA_SUCCESS || count < 0)
		return 0;
	for (int i = 0; i < count && i < (int)cap; i++)
		(void)gantry_str_format(names[i], sizeof(names[0]), "%d", i); /* fits */
	return (int)gantry_min_u64((uint64_t)count, cap);
}

static int cuda_probe(struct gantry_device_conf *confs, unsigned cap, struct gantry_err *err)
{
	/* Live until the next probe, as the contract wants it. */
	static char names[MAX_PROBED][16];
	static char options[MAX_PROBED][88];
	static const char *opts[MAX_PROBED];
	char found[MAX_PROBED][80];
	int count;

	cap = cap < MAX_PROBED ? cap : MAX_PROBED;
	count = gantry_cuda_nvml_list(NULL, found, cap, err);
	if (count < 0)
		count = list_by_driver(found, cap, err);
	/* No driver, no devices: @err says why to whom wants to know. */
	for (int i = 0; i < count; i++) {
		(void)gantry_str_format(names[i], sizeof(names[i]), "cuda%d", i); /* fits */
		(void)gantry_str_format(options[i], sizeof(options[i]), "gpu=%s",
					found[i]); /* fits */
		opts[i] = options[i];
		confs[i] = (struct gantry_device_conf){
			.name = names[i], .backend = "cuda", .nopts = 1, .opts = &opts[i]
		};
	}
	return count < 0 ? 0 : count;
}

const struct gantry_backend gantry_backend_cuda = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "cuda",
	.kind = GANTRY_KIND_CUDA,
	.probe = cuda_probe,
	.open = cuda_open,
	.close = cuda_close,
	.thread_enter = cuda_thread_enter,
	.image_load = gantry_cuda_image_load,
	.image_unload = gantry_cuda_image_unload,
	.kernel_get = gantry_cuda_kernel_get,
	.image_say = gantry_cuda_image_say,
	.ask = gantry_cuda_ask,
	.image_variable = gantry_cuda_image_variable,
	.texture_bytes = gantry_cuda_texture_bytes,
	.texture_make = gantry_cuda_texture_make,
	.mem_alloc = gantry_cuda_mem_alloc,
	.mem_host = gantry_cuda_mem_host,
	.mem_free = gantry_cuda_mem_free,
	.slab_create = gantry_cuda_slab_create,
	.slab_scrub = gantry_cuda_slab_scrub,
	.window_open = gantry_cuda_window_open,
	.window_map = gantry_cuda_window_map,
	.window_unmap = gantry_cuda_window_unmap,
	.window_alias = gantry_cuda_window_alias,
	.window_rights = gantry_cuda_window_rights,
	.window_swap = gantry_cuda_window_swap,
	.stream_create = gantry_cuda_stream_create,
	.stream_destroy = gantry_cuda_stream_destroy,
	.submit = gantry_cuda_submit,
	.poll = gantry_cuda_poll,
	.flush = gantry_cuda_flush,
	.boundary = gantry_cuda_boundary,
	.owner_left = gantry_cuda_owner_left,
	.health = gantry_cuda_health,
	.image_is_text = gantry_cuda_image_is_text,
	.compiler_open = gantry_cuda_compiler_open,
	.compile = gantry_cuda_compile,
};
