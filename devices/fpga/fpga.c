/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fpga backend: boards behind a driver of devices/board/driver.h, a shared object or one of this build. docs/boards.md goes through the options:
 * driver=PATH and images=DIRECTORY have to be there; board="KEY=VALUE ..." is for the driver; mode, age, retries for the manager of bitstreams.
 */
#include "devices/fpga/fpga.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#define STUCK_NS	(60 * GANTRY_NS_PER_S)
#define DEFAULT_RETRIES 2u
#define MAX_RETRIES	100u
#define LANES_A_REGION	2u
#define MAX_LANES	16u

static void fpga_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, fpga_close);

static const struct gantry_board_driver *builtin_driver(const char *name)
{
	for (const struct gantry_board_driver *const *d = gantry_board_drivers; *d; d++)
		if (strcmp((*d)->name, name) == 0)
			return *d;
	return NULL;
}

static int load_driver(struct gantry_dev *dev, const char *path, struct gantry_err *err)
{
	dev->driver = path ? builtin_driver(path) : NULL;
	/* A bare name would be searched for in the system's folders. */
	if (!dev->driver && (!path || path[0] != '/'))
		return gantry_err_set(err, -EINVAL,
				      "driver: write the full path of a board's driver, or opencl "
				      "(if this build has it)");
	if (!dev->driver)
		dev->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!dev->driver && !dev->library)
		return gantry_err_set(err, -ENODEV, "driver: %s", dlerror());
	if (!dev->driver)
		dev->driver = dlsym(dev->library, GANTRY_BOARD_DRIVER_SYMBOL);
	if (!dev->driver)
		return gantry_err_set(err, -EINVAL, "driver: %s has no " GANTRY_BOARD_DRIVER_SYMBOL,
				      path);
	if (dev->driver->abi != GANTRY_BOARD_ABI || dev->driver->bytes < sizeof(*dev->driver))
		return gantry_err_set(err, -EINVAL, "driver: %s has interface %u, this is %u", path,
				      dev->driver->abi, GANTRY_BOARD_ABI);
	return 0;
}

static int open_board(struct gantry_dev *dev, const char *options, struct gantry_err *err)
{
	struct gantry_board_file files[GANTRY_BOARD_MAX_IMAGES * GANTRY_BOARD_NPLACES];
	uint32_t nfiles = 0;
	char text[128] = "";
	int r;

	for (uint32_t i = 0; i < dev->nbitstreams; i++)
		for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
			if (dev->bitstreams[i].files[place].fd >= 0)
				files[nfiles++] = dev->bitstreams[i].files[place];
	r = dev->driver->open(options ? options : "", files, nfiles, &dev->handle, &dev->info, text,
			      sizeof(text));

	text[sizeof(text) - 1] = '\0';
	gantry_str_make_printable(text);
	if (r < 0)
		return gantry_err_set(err, r, "board: %s", text[0] ? text : strerror(-r));
	if (dev->info.nregions == 0 || dev->info.nregions > GANTRY_BOARD_MAX_REGIONS ||
	    !gantry_is_pow2(dev->info.mem_align) || dev->info.mem_bytes == 0 ||
	    !gantry_name_valid_bounded(dev->info.model, sizeof(dev->info.model)))
		return gantry_err_set(err, -ENODEV, "board: its driver describes none");
	return 0;
}

/* Whether what launches used stays on the board. */
static int parse_keep(const struct gantry_device_conf *conf, struct gantry_dev *dev,
		      struct gantry_err *err)
{
	const char *keep = gantry_device_opt(conf, "keep");

	if (keep && strcmp(keep, "yes") != 0 && strcmp(keep, "no") != 0)
		return gantry_err_set(err, -EINVAL, "keep: \"%.20s\" is not yes or no", keep);
	dev->keeps = keep ? strcmp(keep, "yes") == 0 : !dev->info.ties_memory;
	return 0;
}

/* How long launches may take. */
static int parse_bounds(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			struct gantry_err *err)
{
	const char *stuck = gantry_device_opt(conf, "stuck");
	const char *longest = gantry_device_opt(conf, "longest");

	dev->stuck_ns = STUCK_NS;
	if (stuck && gantry_duration_parse(stuck, &dev->stuck_ns, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "stuck");
	if (longest && gantry_duration_parse(longest, &dev->longest_ns, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "longest");
	return 0;
}

static int parse_manager(const struct gantry_device_conf *conf, struct gantry_board_conf *manager,
			 struct gantry_err *err)
{
	const char *mode = gantry_device_opt(conf, "mode");
	const char *age = gantry_device_opt(conf, "age");
	const char *retries = gantry_device_opt(conf, "retries");
	uint64_t nretries = DEFAULT_RETRIES;
	int m = gantry_plan_mode_of_name(mode ? mode : "auto");

	if (m < 0)
		return gantry_err_set(err, -EINVAL,
				      "mode: \"%.20s\" is not auto, single or spatial", mode);
	if (age && gantry_duration_parse(age, &manager->age_ns, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "age");
	if (retries && gantry_u64_parse(retries, 0, MAX_RETRIES, &nretries, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "retries");
	manager->mode = (enum gantry_plan_mode)m;
	manager->nretries = (uint32_t)nretries;
	return 0;
}

static int make_manager(struct gantry_dev *dev, const struct gantry_device_conf *conf,
			struct gantry_err *err)
{
	const struct gantry_bitstream *manifests[GANTRY_BOARD_MAX_IMAGES];
	struct gantry_board_conf manager = { .model = dev->info.model,
					     .nregions = dev->info.nregions };
	int r;

	r = parse_bounds(conf, dev, err);
	if (r == 0)
		r = parse_keep(conf, dev, err);
	if (r == 0)
		r = parse_manager(conf, &manager, err);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < dev->nbitstreams; i++)
		manifests[i] = dev->bitstreams[i].manifest;
	r = gantry_board_new(&manager, manifests, dev->nbitstreams, &dev->board, err);
	return r < 0 ? gantry_err_wrap(err, r == -ENOMEM ? r : -EINVAL, "images") : 0;
}

static int start_thread(struct gantry_dev *dev, struct gantry_err *err)
{
	int r = gantry_thread_start(&dev->thread, gantry_fpga_work, dev);

	if (r < 0)
		return gantry_err_set_errno(err, r, "a thread for the board");
	dev->started = true;
	return 0;
}

static struct gantry_dev *dev_new(const struct gantry_device_host *host)
{
	struct gantry_dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->host = host;
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->pieces);
	(void)pthread_mutex_init(&dev->lock, NULL);
	gantry_cond_init(&dev->work);
	gantry_cond_init(&dev->done);
	return dev;
}

/* What cannot get a lane the manager does not see: as many as any image has units. */
static uint32_t usual_lanes(const struct gantry_dev *dev)
{
	uint32_t lanes = LANES_A_REGION * dev->info.nregions;

	for (uint32_t i = 0; i < dev->nbitstreams; i++)
		lanes = dev->bitstreams[i].manifest->nunits > lanes
				? dev->bitstreams[i].manifest->nunits
				: lanes;
	return lanes < MAX_LANES ? lanes : MAX_LANES;
}

static void fill_info(const struct gantry_dev *dev, const struct gantry_device_conf *conf,
		      struct gantry_device_info *info)
{
	*info = (struct gantry_device_info){
		.kind = GANTRY_KIND_FPGA,
		.caps = GANTRY_CAP_MEM_FD | GANTRY_CAP_EXCLUSIVE | GANTRY_CAP_DRIVER |
			(dev->keeps ? GANTRY_CAP_KEEPS : 0),
		.lanes = conf->lanes ? conf->lanes : usual_lanes(dev),
		.units = dev->info.nregions,
		.mem_bytes = conf->mem_bytes ? conf->mem_bytes : dev->info.mem_bytes,
		.mem_align = dev->info.mem_align > 64 ? dev->info.mem_align : 64,
		.numa_node = -1,
	};
	(void)gantry_str_format(info->name, sizeof(info->name), "board %s", dev->info.model);
	(void)gantry_str_copy(info->id, sizeof(info->id), dev->info.id);
	(void)gantry_str_copy(info->arch, sizeof(info->arch), dev->info.model);
}

static int fpga_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		     struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		     struct gantry_err *err)
{
	/* "holder" says who opens it, which has been heeded. */
	static const char *const keys[] = { "driver", "images",	 "board",  "mode", "age", "retries",
					    "stuck",  "longest", "holder", "keep", NULL };
	const char *holder = gantry_device_opt(conf, "holder");
	_cleanup_(fpga_closep) struct gantry_dev *dev = NULL;
	const char *images = gantry_device_opt(conf, "images");
	int r = gantry_device_opts_check(conf, keys, err);

	if (r < 0)
		return r;
	if (holder && strcmp(holder, "steward") != 0 && strcmp(holder, "worker") != 0)
		return gantry_err_set(err, -EINVAL, "holder: \"%.20s\" is not worker or steward",
				      holder);
	if (!images)
		return gantry_err_set(err, -EINVAL,
				      "images: write the directory of the board's bitstreams");
	dev = dev_new(host);
	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a board");
	r = load_driver(dev, gantry_device_opt(conf, "driver"), err);
	if (r == 0)
		r = gantry_fpga_bitstreams_open(dev, images, err);
	if (r == 0)
		r = open_board(dev, gantry_device_opt(conf, "board"), err);
	if (r == 0)
		r = make_manager(dev, conf, err);
	if (r == 0)
		r = start_thread(dev, err);
	if (r < 0)
		return r;
	fill_info(dev, conf, ret_info);
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static void stop_thread(struct gantry_dev *dev)
{
	if (!dev->started)
		return;
	(void)pthread_mutex_lock(&dev->lock);
	dev->stopping = true;
	(void)pthread_mutex_unlock(&dev->lock);
	gantry_fpga_wake(dev);
	(void)pthread_join(dev->thread, NULL);
	dev->started = false;
}

static void fpga_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	/* What is at work on the board ends with it. */
	stop_thread(dev);
	if (dev->handle)
		dev->driver->close(dev->handle);
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream)
		gantry_fpga_stream_destroy(stream);
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		gantry_fpga_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, host.link, mem)
		gantry_fpga_mem_free(mem);
	gantry_fpga_pieces_free(dev);
	gantry_board_free(dev->board);
	gantry_fpga_bitstreams_close(dev);
	if (dev->library)
		(void)dlclose(dev->library); /* it stays; drivers keep what they made */
	(void)pthread_cond_destroy(&dev->work);
	(void)pthread_cond_destroy(&dev->done);
	(void)pthread_mutex_destroy(&dev->lock);
	free(dev);
}

static int fpga_health(struct gantry_dev *dev, struct gantry_device_health *ret_health,
		       struct gantry_err *err)
{
	int r = 0;

	(void)pthread_mutex_lock(&dev->lock);
	*ret_health = (struct gantry_device_health){
		.known = GANTRY_HEALTH_FAULTS | GANTRY_HEALTH_COPIES,
		.nfaults = dev->ngiven_up,
		.copied_in = gantry_load_relaxed(&dev->copied_in),
		.kept = gantry_load_relaxed(&dev->kept),
		.copied_out = gantry_load_relaxed(&dev->copied_out),
		.followed = gantry_load_relaxed(&dev->followed),
	};
	if (dev->lost && !dev->endless)
		r = gantry_err_set(err, -EIO, "the board is gone");
	else if (err)
		*err = dev->last;
	(void)pthread_mutex_unlock(&dev->lock);
	return r;
}

const struct gantry_backend gantry_backend_fpga = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "fpga",
	.kind = GANTRY_KIND_FPGA,
	.open = fpga_open,
	.close = fpga_close,
	.image_load = gantry_fpga_image_load,
	.image_unload = gantry_fpga_image_unload,
	.kernel_get = gantry_fpga_kernel_get,
	.mem_import = gantry_fpga_mem_import,
	.mem_host = gantry_fpga_mem_host,
	.mem_free = gantry_fpga_mem_free,
	.stream_create = gantry_fpga_stream_create,
	.stream_destroy = gantry_fpga_stream_destroy,
	.submit = gantry_fpga_submit,
	.poll = gantry_fpga_poll,
	.health = fpga_health,
};
