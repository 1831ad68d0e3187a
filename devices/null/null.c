/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The null backend: answers every command at the next poll() and does nothing else. No byte is read
 * or written: copies and fills are not performed, kernels do not run.
 *
 * It is three things: the floor under every latency measurement; a far end for tests that care
 * about the road and not the result; and the template. To write a backend copy this folder, rename
 * null to yours, and answer the comments that begin with "Decide". docs/backends.md goes through
 * them one by one.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/device.h"
#include "devices/null/image.h"

/*
 * Decide: how many commands may wait inside the device. The core keeps a window of a few
 * milliseconds in flight; past this count submit() says -EAGAIN, which is no error. A power of two.
 */
#define DEPTH 1024u

/*
 * Decide: what the pool holds when the configuration does not say. Nothing is backed here, so
 * anything.
 */
#define DEFAULT_MEM_BYTES (1ull << 30)

/*
 * Decide: what your device remembers. Whatever lives on it hangs in a list, because close() ends
 * what is left: a worker that shuts down a session does not have to tidy up object by object.
 */
struct gantry_dev {
	const struct gantry_device_host *host;
	struct gantry_list streams;
	struct gantry_list mems;
	struct gantry_list images;
	/* Tags of commands submitted and not yet told by poll(); free-running counters. */
	uint32_t head;
	uint32_t tail;
	uint64_t tags[DEPTH];
};

struct gantry_stream {
	struct gantry_list link;
	struct gantry_dev *dev;
};

struct gantry_mem {
	struct gantry_list link;
};

struct gantry_image {
	struct gantry_list link;
	bool is_guests;
	struct null_table table; /* of a guest's */
};

/*
 * Decide: what a kernel is. It lives as long as its image and needs no free of its own; here all
 * kernels are the same one.
 */
struct gantry_kernel {
	char unused;
};

static struct gantry_kernel the_kernel;

/*
 * Decide: whether devices are found by themselves. A probe of real hardware loads the vendor's
 * library with dlopen() and returns 0 where it is missing. A null device exists only where somebody
 * asks for one, so the table below leaves probe out.
 */

/* Decide: options of your own. "images=yes" makes this device take guests' images: see image.h. */
static const char *const known_keys[] = { "images", NULL };

static bool takes_guest_images(const struct gantry_device_conf *conf)
{
	const char *value = gantry_device_opt(conf, "images");

	return value && strcmp(value, "yes") == 0;
}

static void fill_info(const struct gantry_device_conf *conf, struct gantry_device_info *info)
{
	*info = (struct gantry_device_info){
		.kind = GANTRY_KIND_NULL,
		/*
		 * Decide: capabilities; each is a promise. MEM_FD and HOST_DIRECT are easy to keep
		 * for memory that nobody touches. CALLER_RUNS, because nothing finishes outside
		 * poll(): without it the core may sleep until host->wake(), which nobody here would
		 * call.
		 */
		.caps = GANTRY_CAP_MEM_FD | GANTRY_CAP_HOST_DIRECT | GANTRY_CAP_CALLER_RUNS,
		.lanes = conf->lanes ? conf->lanes : 1,
		.units = 1,
		.mem_bytes = conf->mem_bytes ? conf->mem_bytes : DEFAULT_MEM_BYTES,
		.mem_align = 64,
		.numa_node = -1,
	};
	if (takes_guest_images(conf))
		info->caps |= GANTRY_CAP_GUEST_IMAGES;
	(void)gantry_str_copy(info->name, sizeof(info->name), "null (moves no data)"); /* fits */
}

/*
 * Decide: what open() needs, and what it refuses. Set outputs after everything has succeeded; on
 * failure undo, leave one sentence in @err and touch no output.
 */
static int null_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		     struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		     struct gantry_err *err)
{
	struct gantry_dev *dev;
	int r = gantry_device_opts_check(conf, known_keys, err);

	if (r < 0)
		return r;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a null device");
	dev->host = host;
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);

	fill_info(conf, ret_info);
	*ret_dev = dev;
	return 0;
}

static void null_image_unload(struct gantry_image *image)
{
	if (!image)
		return;
	gantry_list_remove(&image->link);
	free(image);
}

static void null_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	gantry_list_remove(&mem->link);
	free(mem);
}

static void null_stream_destroy(struct gantry_stream *stream)
{
	if (!stream)
		return;
	gantry_list_remove(&stream->link);
	free(stream);
}

/*
 * Commands in flight are dropped here: nobody will poll() any more. Order: users before what they
 * use.
 */
static void null_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream)
		null_stream_destroy(stream);
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		null_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, link, mem)
		null_mem_free(mem);
	free(dev);
}

/*
 * Decide: what an image is. An installed one comes as a path, a guest's as bytes, and the latter
 * only if caps say GANTRY_CAP_GUEST_IMAGES. A null device runs nothing: it looks at no installed one, and in a
 * guest's it finds names.
 */
static int null_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_image *image = calloc(1, sizeof(*image));
	int r;

	assert(!path != !bytes);
	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	if (bytes) {
		image->is_guests = true;
		r = null_table_parse(bytes, nbytes, &image->table, err);
		if (r < 0) {
			free(image);
			return r;
		}
	}
	gantry_list_push_back(&dev->images, &image->link);
	*ret_image = image;
	return 0;
}

/* Decide: how a symbol is found; -ENOENT when it is not. In an installed image every name is a kernel. */
static int null_kernel_get(struct gantry_image *image, const char *symbol,
			   const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err)
{
	int r;

	assert(image && symbol && sig);
	if (image->is_guests) {
		r = null_table_check(&image->table, symbol, sig, err);
		if (r < 0)
			return r;
	}
	*ret_kernel = &the_kernel;
	return 0;
}

static int mem_new(struct gantry_dev *dev, struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	gantry_list_push_back(&dev->mems, &mem->link);
	*ret_mem = mem;
	return 0;
}

/*
 * Decide: how memory comes about. mem_import is what makes it survive a worker: offer it if the
 * device can work on memory behind a descriptor, and mem_alloc if it cannot. The null device keeps
 * a name for the range and maps nothing.
 */
static int null_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	assert(fd >= 0 && len > 0);
	(void)off;
	return mem_new(dev, ret_mem, err);
}

/*
 * Host memory for copies. A device with DMA registers the range here, once, and copies at link
 * speed after.
 */
static int null_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	assert(base && len > 0);
	return mem_new(dev, ret_mem, err);
}

/* Decide: what a stream is on your device, and how many there can be (-EAGAIN past that). */
static int null_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));

	(void)attr; /* no priorities: everything is done at once anyway */
	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	stream->dev = dev;
	gantry_list_push_back(&dev->streams, &stream->link);
	*ret_stream = stream;
	return 0;
}

/*
 * The hot path: no allocation, no system call, no wait. @cmd is the caller's again when this
 * returns, so copy what you keep. What is wrong with a command itself is told by its gantry_done,
 * not by a return value here: a return value means that it was never accepted.
 */
static int null_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;

	if (dev->tail - dev->head == DEPTH)
		return -EAGAIN;
	dev->tags[dev->tail++ % DEPTH] = cmd->tag;
	return 0;
}

/*
 * Decide: what a command cost. device_ns is what fairness counts, so measure the command, not the
 * wait for it. One queue for all streams keeps the order within each; a device whose commands take
 * time here needs a queue for each stream, takes the highest priority first, runs one command a
 * call (none if @n is 0), and asks host->cancelled() before it starts one.
 */
static unsigned null_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	while (count < n && dev->head != dev->tail) {
		ret_done[count++] = (struct gantry_done){
			.tag = dev->tags[dev->head++ % DEPTH],
			.status = GANTRY_OK,
			.blast = GANTRY_BLAST_NONE,
			.device_ns = 0,
		};
	}
	return count;
}

/*
 * The table; what is missing is optional. Its name is gantry_backend_ and the folder's name, which
 * is how devices/meson.build finds it.
 */
const struct gantry_backend gantry_backend_null = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "null",
	.kind = GANTRY_KIND_NULL,
	.open = null_open,
	.close = null_close,
	.image_load = null_image_load,
	.image_unload = null_image_unload,
	.kernel_get = null_kernel_get,
	.mem_import = null_mem_import,
	.mem_host = null_mem_host,
	.mem_free = null_mem_free,
	.stream_create = null_stream_create,
	.stream_destroy = null_stream_destroy,
	.submit = null_submit,
	.poll = null_poll,
	/* Optional, for guests' images that are text. */
	.image_is_text = null_image_is_text,
	.compiles = takes_guest_images,
	.compiler_open = null_compiler_open,
	.compile = null_compile,
};
