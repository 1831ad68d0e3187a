/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cpu backend: installed kernel modules on the host's cores.
 *
 * Options: cores=N (or the device's lanes; 1), cpus=LIST ("0-3,6": pins lanes to these),
 * scratch=SIZE (a lane; 64M), window=yes (memory in slabs and windows, as a GPU's: for tests of all that
 * without one).
 */
#include "devices/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define DEFAULT_SCRATCH_BYTES (64ull << 20)

/* Rough speed of one core's memcpy() from and to memory; placement only wants the magnitude. */
#define COPY_BYTES_PER_S 8000000000ull

static void cpu_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, cpu_close);

/* Reads digits off *@text; false when there are none, or the number is no CPU's. */
static bool take_cpu(const char **text, unsigned int *ret_cpu)
{
	unsigned int cpu = 0;
	const char *c = *text;

	for (; *c >= '0' && *c <= '9' && cpu < CPU_SETSIZE; c++)
		cpu = 10 * cpu + (unsigned int)(*c - '0');
	if (c == *text || cpu >= CPU_SETSIZE)
		return false;
	*text = c;
	*ret_cpu = cpu;
	return true;
}

/* "0-3,6" to a set. */
static int parse_cpus(const char *text, cpu_set_t *set, struct gantry_err *err)
{
	unsigned int first, last;

	CPU_ZERO(set);
	while (take_cpu(&text, &first)) {
		last = first;
		if (*text == '-') {
			text++;
			if (!take_cpu(&text, &last))
				break;
		}
		if (last < first)
			break;
		for (unsigned int cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, set);
		if (*text == '\0')
			return 0;
		if (*text++ != ',')
			break;
	}
	return gantry_err_set(err, -EINVAL, "cpus: not a list of CPUs such as \"0-3,6\"");
}

static int parse_cores(const struct gantry_device_conf *conf, uint32_t *ret_cores,
		       struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, "cores");
	uint64_t cores = conf->lanes ? conf->lanes : 1;
	int r;

	if (text) {
		r = gantry_u64_parse(text, 1, GANTRY_CPU_MAX_CORES, &cores, err);
		if (r < 0)
			return gantry_err_wrap(err, -EINVAL, "cores");
	}
	if (cores > GANTRY_CPU_MAX_CORES)
		return gantry_err_set(err, -EINVAL, "lanes: at most %u", GANTRY_CPU_MAX_CORES);
	*ret_cores = (uint32_t)cores;
	return 0;
}

static uint64_t default_mem_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES);

	return pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / 4 : 1ull << 30;
}

static int parse_options(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			 struct gantry_err *err)
{
	static const char *const keys[] = { "cores", "cpus", "scratch", "window", NULL };
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
	text = gantry_device_opt(conf, "cpus");
	if (text) {
		r = parse_cpus(text, &dev->cpus, err);
		if (r < 0)
			return r;
		dev->pinned = true;
	}
	text = gantry_device_opt(conf, "window");
	if (text && strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		return gantry_err_set(err, -EINVAL, "window: yes or no");
	dev->windows = text && strcmp(text, "yes") == 0;
	dev->mem_bytes = conf->mem_bytes ? conf->mem_bytes : default_mem_bytes();
	return 0;
}

/* "model name\t: Some CPU" of the first processor, or a general word. */
static void model_name(char *buf, size_t cap)
{
	_cleanup_free_ char *text = NULL;
	char *line;

	(void)gantry_str_copy(buf, cap, "host cores"); /* may be cut short */
	if (gantry_file_read("/proc/cpuinfo", 4u << 20, &text, NULL) < 0)
		return;
	line = strstr(text, "model name");
	line = line ? strstr(line, ": ") : NULL;
	if (!line)
		return;
	line[strcspn(line, "\n")] = '\0';
	(void)gantry_str_copy(buf, cap, line + 2);
}

static void fill_info(const struct gantry_dev *dev, struct gantry_device_info *info)
{
	*info = (struct gantry_device_info){
		.kind = GANTRY_KIND_CPU,
		.caps = (dev->windows ? GANTRY_CAP_WINDOW
				      : GANTRY_CAP_MEM_FD | GANTRY_CAP_HOST_DIRECT) |
			GANTRY_CAP_PEER | (dev->ncores == 1 ? GANTRY_CAP_CALLER_RUNS : 0),
		.lanes = dev->ncores,
		.units = dev->ncores,
		.mem_bytes = dev->mem_bytes,
		.mem_align = 64,
		.numa_node = -1,
		.bytes_per_s = COPY_BYTES_PER_S,
		.slab_align = dev->windows ? GANTRY_CPU_SLAB_ALIGN : 0,
	};
	model_name(info->name, sizeof(info->name));
}

static struct gantry_dev *dev_new(uint32_t ncores, const struct gantry_device_host *host)
{
	uint64_t bytes = sizeof(struct gantry_dev) + ncores * sizeof(struct gantry_cpu_lane);
	struct gantry_dev *dev;

	/* Rounded for aligned_alloc(); the counters stand on cache lines of their own. */
	bytes = (bytes + 63) & ~63ull;
	dev = aligned_alloc(64, bytes);
	if (!dev)
		return NULL;
	memset(dev, 0, bytes);
	dev->host = host;
	dev->ncores = ncores;
	dev->ns_per_cycle_22 = (GANTRY_NS_PER_US << 22) / gantry_cycles_per_us();
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	gantry_list_init(&dev->ready);
	gantry_list_init(&dev->jobs);
	/* Default attributes: these cannot fail on Linux. */
	(void)pthread_mutex_init(&dev->lock, NULL);
	(void)pthread_mutex_init(&dev->library_lock, NULL);
	(void)pthread_cond_init(&dev->work, NULL);
	(void)pthread_cond_init(&dev->job_done, NULL);
	for (uint32_t i = 0; i < ncores; i++)
		gantry_cpu_lane_init(&dev->lanes[i], dev, i);
	return dev;
}

static int cpu_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		    struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		    struct gantry_err *err)
{
	_cleanup_(cpu_closep) struct gantry_dev *dev = NULL;
	uint32_t ncores = 1;
	int r;

	r = parse_cores(conf, &ncores, err);
	if (r < 0)
		return r;
	dev = dev_new(ncores, host);
	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a cpu device");
	r = parse_options(conf, dev, err);
	if (r < 0)
		return r;
	if (ncores > 1) {
		r = gantry_cpu_lanes_start(dev, err);
		if (r < 0)
			return r;
	}
	fill_info(dev, ret_info);
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static void cpu_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	/*
	 * Threads first: they use everything else. A running command is waited for, queued ones are
	 * dropped.
	 */
	gantry_cpu_lanes_stop(dev);
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream) {
		gantry_list_remove(&stream->link);
		free(stream);
	}
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		gantry_cpu_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, link, mem)
		gantry_cpu_mem_free(mem);
	for (uint32_t i = 0; i < dev->ncores; i++)
		gantry_cpu_lane_fini(&dev->lanes[i]);
	gantry_cpu_libraries_close(dev);
	(void)pthread_cond_destroy(&dev->job_done);
	(void)pthread_cond_destroy(&dev->work);
	(void)pthread_mutex_destroy(&dev->library_lock);
	(void)pthread_mutex_destroy(&dev->lock);
	free(dev);
}

static int cpu_thread_enter(struct gantry_dev *dev, struct gantry_err *err)
{
	if (dev->ncores > 1 || !dev->pinned)
		return 0;
	if (sched_setaffinity(0, sizeof(dev->cpus), &dev->cpus) < 0)
		return gantry_err_set_errno(err, -errno, "cpus: pinning the device thread");
	return 0;
}

/* A host always has one; what it may use is for the configuration to say. */
static int cpu_probe(struct gantry_device_conf *confs, unsigned cap, struct gantry_err *err)
{
	(void)err; /* cannot fail */
	if (cap == 0)
		return 0;
	confs[0] = (struct gantry_device_conf){ .name = "cpu0", .backend = "cpu" };
	return 1;
}

const struct gantry_backend gantry_backend_cpu = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "cpu",
	.kind = GANTRY_KIND_CPU,
	.probe = cpu_probe,
	.open = cpu_open,
	.close = cpu_close,
	.thread_enter = cpu_thread_enter,
	.image_load = gantry_cpu_image_load,
	.image_unload = gantry_cpu_image_unload,
	.kernel_get = gantry_cpu_kernel_get,
	.mem_import = gantry_cpu_mem_import,
	.mem_alloc = gantry_cpu_mem_alloc,
	.mem_host = gantry_cpu_mem_host,
	.mem_free = gantry_cpu_mem_free,
	.slab_create = gantry_cpu_slab_create,
	.slab_scrub = gantry_cpu_slab_scrub,
	.window_open = gantry_cpu_window_open,
	.window_map = gantry_cpu_window_map,
	.window_unmap = gantry_cpu_window_unmap,
	.stream_create = gantry_cpu_stream_create,
	.stream_destroy = gantry_cpu_stream_destroy,
	.submit = gantry_cpu_submit,
	.poll = gantry_cpu_poll,
};
