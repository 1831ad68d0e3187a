/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of a seat: its life, its memory, and the images and kernels that it asks its holder for. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/thread.h"
#include "devices/seat/client.h"

/* A board may be loading, which takes up to a minute, and its holder may be starting. */
#define ANSWER_MS 90000

static void seat_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, seat_close);

/* ---- life ---- */

static int take_page(struct gantry_dev *dev, int fd, struct gantry_err *err)
{
	void *page;
	int r = gantry_hostmem_map(fd, 0, sizeof(*dev->page), &page, err);

	gantry_fd_close(fd);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&dev->lock);
	dev->page = page;
	(void)pthread_mutex_unlock(&dev->lock);
	return 0;
}

static int hello(struct gantry_dev *dev, const struct gantry_device_conf *conf,
		 struct gantry_device_info *ret_info, struct gantry_err *err)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_HELLO, .version = GANTRY_SEAT_VERSION };
	struct gantry_seat_answer answer;
	int fd;
	int r = gantry_seat_ask(dev, &ask, -EBADF, &answer, &fd, err);

	if (r == 0)
		r = take_page(dev, fd, err);
	if (r < 0)
		return r;
	*ret_info = answer.info;
	ret_info->about = NULL;
	/* This process calls no driver, and others may have seats beside it. */
	ret_info->caps = (answer.info.caps & ~(uint32_t)(GANTRY_CAP_EXCLUSIVE | GANTRY_CAP_DRIVER |
							 GANTRY_CAP_CALLER_RUNS)) |
			 GANTRY_CAP_MEM_FD;
	if (conf->mem_bytes)
		ret_info->mem_bytes = conf->mem_bytes;
	if (conf->lanes)
		ret_info->lanes = conf->lanes;
	dev->mem_align = ret_info->mem_align;
	dev->mem_bytes = answer.info.mem_bytes;
	return 0;
}

static int take_socket(struct gantry_dev *dev, const char *seat, struct gantry_err *err)
{
	uint64_t fd;

	if (!seat || gantry_u64_parse(seat, 3, INT32_MAX, &fd, NULL) < 0)
		return gantry_err_set(
			err, -EINVAL,
			"backend seat is for gantryd's own use: name the device's backend, "
			"and holder = steward");
	dev->sock = fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
	if (dev->sock < 0)
		return gantry_err_set_errno(err, -errno, "seat");
	dev->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (dev->stop < 0)
		return gantry_err_set_errno(err, -errno, "seat");
	return 0;
}

/* How long the holder may take for an answer; tests have less patience. */
static int take_patience(struct gantry_dev *dev, const char *text, struct gantry_err *err)
{
	uint64_t ms = ANSWER_MS;

	if (text && gantry_u64_parse(text, 1, INT32_MAX, &ms, NULL) < 0)
		return gantry_err_set(err, -EINVAL, "answer_ms: %s is no number of milliseconds",
				      text);
	dev->answer_ms = (uint32_t)ms;
	return 0;
}

static struct gantry_dev *dev_new(const struct gantry_device_host *host)
{
	struct gantry_dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->host = host;
	dev->sock = dev->stop = dev->answer_fd = -EBADF;
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	(void)pthread_mutex_init(&dev->lock, NULL);
	gantry_cond_init(&dev->changed);
	return dev;
}

static int seat_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		     struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		     struct gantry_err *err)
{
	static const char *const keys[] = { "seat", "answer_ms", NULL };
	_cleanup_(seat_closep) struct gantry_dev *dev = NULL;
	int r = gantry_device_opts_check(conf, keys, err);

	if (r < 0)
		return r;
	dev = dev_new(host);
	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a seat");
	r = take_socket(dev, gantry_device_opt(conf, "seat"), err);
	if (r == 0)
		r = take_patience(dev, gantry_device_opt(conf, "answer_ms"), err);
	if (r == 0)
		r = gantry_seat_link_start(dev, err);
	if (r == 0)
		r = hello(dev, conf, ret_info, err);
	if (r < 0)
		return r;
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static void seat_mem_free(struct gantry_mem *mem);
static void seat_image_unload(struct gantry_image *image);

static void seat_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_seat_link_stop(dev);
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream) {
		stream->told = stream->submitted; /* what is under way ends with the seat */
		gantry_seat_stream_destroy(stream);
	}
	gantry_list_for_each_safe(&dev->images, struct gantry_image, link, image)
		seat_image_unload(image);
	gantry_list_for_each_safe(&dev->mems, struct gantry_mem, host.link, mem)
		seat_mem_free(mem);
	if (dev->page)
		(void)munmap(dev->page,
			     sizeof(*dev->page)); /* cannot fail for what mmap() returned */
	gantry_fd_close(dev->sock);
	gantry_fd_close(dev->stop);
	(void)pthread_cond_destroy(&dev->changed);
	(void)pthread_mutex_destroy(&dev->lock);
	free(dev);
}

/* ---- memory ---- */

/* What the holder may not map, because a peer could cut it short, is private; so is what it has no place for. */
static int hand_over(struct gantry_mem *mem, int fd, uint64_t off, uint64_t len,
		     struct gantry_err *err)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_MEM, .off = off, .len = len };
	struct gantry_seat_answer answer;
	uint64_t end;
	int r;

	if (__builtin_add_overflow(off, len, &end) || gantry_memfd_check(fd, end) < 0 ||
	    mem->dev->npieces >= GANTRY_SEAT_MAX_IMPORTS)
		return 0;
	r = gantry_seat_ask(mem->dev, &ask, fd, &answer, NULL, err);
	if (r == -ENOMEM)
		return 0; /* it works all the same */
	if (r < 0)
		return r;
	mem->id = answer.id;
	mem->dev->npieces++;
	return 0;
}

static int seat_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	struct gantry_mem *mem;
	int r = gantry_hostmem_import(sizeof(*mem), &dev->mems, fd, off, len, &host, err);

	if (r < 0)
		return r;
	mem = gantry_container_of(host, struct gantry_mem, host);
	mem->dev = dev;
	r = hand_over(mem, fd, off, len, err);
	if (r < 0)
		gantry_hostmem_free(host);
	else
		*ret_mem = mem;
	return r;
}

static int seat_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	int r = gantry_hostmem_new(sizeof(struct gantry_mem), &dev->mems, base, len, &host, err);

	if (r < 0)
		return r;
	*ret_mem = gantry_container_of(host, struct gantry_mem, host);
	(*ret_mem)->dev = dev;
	return 0;
}

static void seat_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	if (mem->id) {
		gantry_seat_say(mem->dev, GANTRY_SEAT_MEM_END, mem->id);
		mem->dev->npieces--;
	}
	gantry_hostmem_free(&mem->host);
}

/* ---- images ---- */

static int seat_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_IMAGE };
	struct gantry_seat_answer answer;
	struct gantry_image *image;
	int r;

	(void)nbytes;
	if (!path || bytes)
		return gantry_err_set(err, -ENOEXEC, "this device takes installed images only");
	if (gantry_str_copy(ask.text, sizeof(ask.text), path) < 0)
		return gantry_err_set(err, -ENOEXEC, "%.80s...: the path is too long", path);
	image = calloc(1, sizeof(*image));
	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	r = gantry_seat_ask(dev, &ask, -EBADF, &answer, NULL, err);
	if (r < 0) {
		free(image);
		return r;
	}
	image->dev = dev;
	image->id = answer.id;
	gantry_list_init(&image->kernels);
	gantry_list_push_back(&dev->images, &image->link);
	*ret_image = image;
	return 0;
}

static void seat_image_unload(struct gantry_image *image)
{
	if (!image)
		return;
	gantry_seat_say(image->dev, GANTRY_SEAT_IMAGE_END, image->id);
	gantry_list_for_each_safe(&image->kernels, struct gantry_kernel, link, kernel)
		free(kernel);
	gantry_list_remove(&image->link);
	free(image);
}

static int seat_kernel_get(struct gantry_image *image, const char *symbol,
			   const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_KERNEL, .id = image->id };
	struct gantry_seat_answer answer;
	struct gantry_kernel *kernel;
	int r;

	if (gantry_str_copy(ask.text, sizeof(ask.text), symbol) < 0)
		return gantry_err_set(err, -ENOENT, "no kernel has so long a name");
	r = gantry_signature_format(sig, ask.signature, sizeof(ask.signature));
	if (r < 0)
		return gantry_err_set(err, -EINVAL,
				      "kernel %.80s has arguments that this device does not take",
				      symbol);
	kernel = calloc(1, sizeof(*kernel));
	if (!kernel)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	r = gantry_seat_ask(image->dev, &ask, -EBADF, &answer, NULL, err);
	if (r < 0) {
		free(kernel);
		return r;
	}
	kernel->sig = sig;
	kernel->id = answer.id;
	gantry_list_push_back(&image->kernels, &kernel->link);
	*ret_kernel = kernel;
	return 0;
}

const struct gantry_backend gantry_backend_seat = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "seat",
	.kind = GANTRY_KIND_FPGA,
	.open = seat_open,
	.close = seat_close,
	.image_load = seat_image_load,
	.image_unload = seat_image_unload,
	.kernel_get = seat_kernel_get,
	.mem_import = seat_mem_import,
	.mem_host = seat_mem_host,
	.mem_free = seat_mem_free,
	.stream_create = gantry_seat_stream_create,
	.stream_destroy = gantry_seat_stream_destroy,
	.submit = gantry_seat_submit,
	.poll = gantry_seat_poll,
};
