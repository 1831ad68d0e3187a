/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim backend: a device that exists in a text file, and in virtual time. docs/sim.md has the
 * format.
 *
 * Options: file=PATH (without: one device of kind sim), device=NAME (which device of the file; the
 * configured name), work=cpu (really runs copies, fills and kernels, so that results are right).
 */
#include "devices/sim/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"

static const char default_machine[] = "device sim0 sim 1G lanes 1\n";

static void sim_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, sim_close);

static const struct gantry_sim_device *described(const struct gantry_dev *dev)
{
	return &dev->machine->devices[dev->idx];
}

static int read_machine(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			struct gantry_err *err)
{
	const char *path = gantry_device_opt(conf, "file");
	const char *name = gantry_device_opt(conf, "device");
	int r, idx;

	if (!path)
		return gantry_sim_machine_parse(default_machine, strlen(default_machine),
						&dev->machine, err);
	r = gantry_sim_machine_read(path, &dev->machine, err);
	if (r < 0)
		return gantry_err_wrap(err, -EINVAL, "file");
	idx = gantry_sim_device_find(dev->machine, name ? name : conf->name);
	if (idx < 0)
		return gantry_err_set(err, -ENODEV, "%s has no device %s", path,
				      name ? name : conf->name);
	dev->idx = (uint32_t)idx;
	return 0;
}

/* Of one gigabyte: latency would hide in it. */
static uint64_t bytes_per_s(const struct gantry_dev *dev)
{
	uint64_t ns = gantry_sim_copy_ns(dev->machine, GANTRY_SIM_HOST, dev->idx, 1000000000u);

	return ns ? 1000000000ull * 1000000000ull / ns : 0;
}

static void fill_info(const struct gantry_dev *dev, struct gantry_device_info *info)
{
	const struct gantry_sim_device *d = described(dev);

	*info = (struct gantry_device_info){
		.kind = (uint32_t)d->kind,
		.caps = GANTRY_CAP_MEM_FD | GANTRY_CAP_CALLER_RUNS | GANTRY_CAP_PEER |
			GANTRY_CAP_VIRTUAL_TIME |
			(d->kind == GANTRY_KIND_CPU ? GANTRY_CAP_HOST_DIRECT : 0),
		.lanes = d->nlanes,
		.units = d->nlanes,
		.mem_bytes = d->mem_bytes,
		.mem_align = 64,
		.numa_node = -1,
		.bytes_per_s = bytes_per_s(dev),
	};
	(void)gantry_str_format(info->name, sizeof(info->name), "simulated %s %s",
				gantry_kind_name(d->kind), d->name); /* fits */
}

static int sim_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		    struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		    struct gantry_err *err)
{
	static const char *const keys[] = { "file", "device", "work", NULL };
	_cleanup_(sim_closep) struct gantry_dev *dev = NULL;
	int r = gantry_device_opts_check(conf, keys, err);

	if (r < 0)
		return r;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a simulated device");
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	gantry_sim_clock_init(&dev->clock);
	r = read_machine(conf, dev, err);
	if (r == 0)
		r = gantry_sim_worker_open(&dev->worker, gantry_device_opt(conf, "work"), host,
					   err);
	if (r < 0)
		return r;
	if (conf->mem_bytes)
		dev->machine->devices[dev->idx].mem_bytes = conf->mem_bytes;
	if (conf->lanes)
		dev->machine->devices[dev->idx].nlanes = conf->lanes;
	dev->nfree[GANTRY_SIM_COMPUTE] = described(dev)->nlanes;
	dev->nfree[GANTRY_SIM_COPY] = described(dev)->ncopies;
	fill_info(dev, ret_info);
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static void sim_image_unload(struct gantry_image *image)
{
	struct gantry_kernel *next;

	if (!image)
		return;
	for (struct gantry_kernel *kernel = image->kernels; kernel; kernel = next) {
		next = kernel->next;
		free(kernel);
	}
	if (image->inner)
		image->dev->worker.device.backend->image_unload(image->inner);
	gantry_list_remove(&image->link);
	free(image);
}

static void sim_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	if (mem->inner)
		mem->dev->worker.device.backend->mem_free(mem->inner);
	mem->dev->mem_used -= mem->charged;
	gantry_list_remove(&mem->link);
	free(mem);
}

static void sim_stream_destroy(struct gantry_stream *stream)
{
	if (!stream)
		return;
	gantry_list_remove(&stream->link);
	free(stream);
}

static void sim_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream)
		sim_stream_destroy(stream);
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		sim_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, link, mem)
		sim_mem_free(mem);
	gantry_sim_worker_close(&dev->worker);
	gantry_sim_clock_fini(&dev->clock);
	free(dev->machine);
	free(dev);
}

static int sim_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			  size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	_cleanup_free_ struct gantry_image *image = calloc(1, sizeof(*image));
	const struct gantry_device *work = &dev->worker.device;
	int r = 0;

	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	if (work->backend)
		r = work->backend->image_load(work->dev, path, bytes, nbytes, &image->inner, err);
	if (r < 0)
		return r;
	image->dev = dev;
	gantry_list_push_back(&dev->images, &image->link);
	*ret_image = GANTRY_TAKE_PTR(image);
	return 0;
}

static int sim_kernel_get(struct gantry_image *image, const char *symbol,
			  const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			  struct gantry_err *err)
{
	_cleanup_free_ struct gantry_kernel *kernel = calloc(1, sizeof(*kernel));
	const struct gantry_device *work = &image->dev->worker.device;
	int r = 0;

	if (!kernel)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	if (gantry_str_copy(kernel->name, sizeof(kernel->name), symbol) < 0)
		return gantry_err_set(err, -ENOENT, "the name of kernel %s is too long", symbol);
	if (work->backend)
		r = work->backend->kernel_get(image->inner, symbol, sig, &kernel->inner, err);
	if (r < 0)
		return r;
	kernel->sig = sig;
	kernel->next = image->kernels;
	image->kernels = kernel;
	*ret_kernel = GANTRY_TAKE_PTR(kernel);
	return 0;
}

/* A memory object that takes @charged bytes of the pool; -ENOMEM when they are not there. */
static int mem_new(struct gantry_dev *dev, uint32_t place, uint64_t charged,
		   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_mem *mem;

	if (!gantry_range_inside(dev->mem_used, charged, described(dev)->mem_bytes))
		return gantry_err_set(err, -ENOMEM,
				      "the simulated device has no room for %zu bytes",
				      (size_t)charged);
	mem = calloc(1, sizeof(*mem));
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	mem->dev = dev;
	mem->place = place;
	mem->charged = charged;
	dev->mem_used += charged;
	gantry_list_push_back(&dev->mems, &mem->link);
	*ret_mem = mem;
	return 0;
}

static int mem_settle(struct gantry_mem *mem, int r, struct gantry_mem **ret_mem)
{
	if (r < 0)
		sim_mem_free(mem);
	else
		*ret_mem = mem;
	return r;
}

/* Who imports decides which parts are backed, and counts these: a session's whole space of offsets may come. */
static int sim_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			  struct gantry_mem **ret_mem, struct gantry_err *err)
{
	const struct gantry_device *work = &dev->worker.device;
	struct gantry_mem *mem;
	int r = mem_new(dev, dev->idx, 0, &mem, err);

	if (r < 0)
		return r;
	if (work->backend)
		r = work->backend->mem_import(work->dev, fd, off, len, &mem->inner, err);
	return mem_settle(mem, r, ret_mem);
}

static int sim_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			 struct gantry_err *err)
{
	const struct gantry_device *work = &dev->worker.device;
	struct gantry_mem *mem;
	int r = mem_new(dev, dev->idx, len, &mem, err);

	if (r < 0)
		return r;
	if (work->backend)
		r = work->backend->mem_alloc(work->dev, len, &mem->inner, err);
	return mem_settle(mem, r, ret_mem);
}

static int sim_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			struct gantry_mem **ret_mem, struct gantry_err *err)
{
	const struct gantry_device *work = &dev->worker.device;
	struct gantry_mem *mem;
	int r = mem_new(dev, GANTRY_SIM_HOST, 0, &mem, err);

	if (r < 0)
		return r;
	if (work->backend)
		r = work->backend->mem_host(work->dev, base, len, &mem->inner, err);
	return mem_settle(mem, r, ret_mem);
}

static int sim_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			     struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	stream->dev = dev;
	stream->priority = attr->priority;
	gantry_list_push_back(&dev->streams, &stream->link);
	*ret_stream = stream;
	return 0;
}

const struct gantry_backend gantry_backend_sim = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "sim",
	.kind = GANTRY_KIND_SIM,
	.open = sim_open,
	.close = sim_close,
	.image_load = sim_image_load,
	.image_unload = sim_image_unload,
	.kernel_get = sim_kernel_get,
	.mem_import = sim_mem_import,
	.mem_alloc = sim_mem_alloc,
	.mem_host = sim_mem_host,
	.mem_free = sim_mem_free,
	.stream_create = sim_stream_create,
	.stream_destroy = sim_stream_destroy,
	.submit = gantry_sim_submit,
	.poll = gantry_sim_poll,
};
