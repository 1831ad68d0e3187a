/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of a seat: its life, its memory, and the images and kernels that it asks its holder for. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/seat/client.h"

/* A board may be loading, which takes up to a minute, and its holder may be starting. */
#define ANSWER_MS 90000
/* An agent that is there ends workers of a dead steward within milliseconds; one that starts within seconds. */
#define END_MS 20000

static void seat_close(struct gantry_dev *dev);
GANTRY_DEFINE_CLEANUP(struct gantry_dev *, seat_close);

/* ---- loss ---- */

/* Any thread; the first word counts. */
static void lose(struct gantry_dev *dev, uint32_t loss)
{
	uint32_t kept = GANTRY_SEAT_KEPT;

	(void)gantry_cas(&dev->lost, &kept, loss);
}

/* ---- asking ---- */

/*
 * The agent ends this process, and its sessions go on in another: until then there is no answer, for a refusal would end them.
 */
static int gone(struct gantry_dev *dev, struct gantry_err *err)
{
	struct pollfd p = { .fd = dev->stop, .events = POLLIN };

	if (dev->page && gantry_load_acquire(&dev->lost) != GANTRY_SEAT_REFUSED)
		(void)poll(&p, 1, END_MS);
	return gantry_err_set(err, -ENODEV, "the process that holds the device has ended");
}

int gantry_seat_ask(struct gantry_dev *dev, const struct gantry_seat_ask *ask, int fd,
		    struct gantry_seat_answer *ret_answer, int *ret_fds, unsigned int nfds,
		    struct gantry_err *err)
{
	struct pollfd p = { .fd = dev->sock, .events = POLLIN };
	unsigned int count = 0;
	ssize_t n;
	int r;

	if (gantry_load_acquire(&dev->lost))
		return gone(dev, err);
	if (gantry_fd_send(dev->sock, ask, sizeof(*ask), &fd, fd >= 0 ? 1 : 0, 0) < 0)
		return gone(dev, err);
	while ((r = poll(&p, 1, ANSWER_MS)) < 0 && errno == EINTR)
		;
	if (r <= 0)
		return gantry_err_set(err, -EIO,
				      "the process that holds the device does not answer");
	n = gantry_fd_recv(dev->sock, ret_answer, sizeof(*ret_answer), ret_fds, nfds, &count, 0);
	if (n != (ssize_t)sizeof(*ret_answer))
		return gone(dev, err);
	ret_answer->text[sizeof(ret_answer->text) - 1] = '\0';
	if (ret_answer->what == GANTRY_SEAT_CONDEMNED)
		lose(dev, GANTRY_SEAT_REFUSED);
	r = ret_answer->what == ask->what ? ret_answer->r : -EIO;
	if (r < 0 || count != nfds) {
		while (count > 0)
			gantry_fd_close(ret_fds[--count]);
		return gantry_err_set(err, r < 0 ? r : -EIO, "%s",
				      ret_answer->text[0] ? ret_answer->text : strerror(-r));
	}
	return 0;
}

void gantry_seat_say(struct gantry_dev *dev, uint32_t what, uint32_t id)
{
	struct gantry_seat_ask ask = { .what = what, .id = id };

	/* A holder that is gone has nothing to end. */
	(void)gantry_fd_send(dev->sock, &ask, sizeof(ask), NULL, 0, 0);
}

/* ---- the bell ---- */

/* The answers are the device thread's to read, but for what comes unasked when the seat is taken away. */
static void look_why(struct gantry_dev *dev)
{
	struct gantry_seat_answer last;
	ssize_t n = gantry_fd_recv(dev->sock, &last, sizeof(last), NULL, 0, NULL, MSG_DONTWAIT);

	lose(dev, n == (ssize_t)sizeof(last) && last.what == GANTRY_SEAT_CONDEMNED
			  ? GANTRY_SEAT_REFUSED
			  : GANTRY_SEAT_HOLDER_GONE);
}

static void *listen_to_bell(void *arg)
{
	struct gantry_dev *dev = arg;
	struct pollfd p[3] = { { .fd = dev->told, .events = POLLIN },
			       { .fd = dev->stop, .events = POLLIN },
			       { .fd = dev->sock, .events = POLLRDHUP } };
	nfds_t n = 3;

	for (;;) {
		uint64_t count;

		if (poll(p, n, -1) < 0 && errno != EINTR)
			return NULL;
		if (p[1].revents)
			return NULL;
		if (p[0].revents)
			(void)!read(dev->told, &count, sizeof(count));
		if (n == 3 && p[2].revents) {
			look_why(dev);
			n = 2;
		}
		dev->host->wake(dev->host->cookie);
	}
}

static int start_thread(struct gantry_dev *dev, struct gantry_err *err)
{
	sigset_t all, before;
	int r;

	/* Signals are the device thread's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&dev->thread, NULL, listen_to_bell, dev);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		return gantry_err_set_errno(err, -r, "a thread for the seat's bell");
	dev->started = true;
	return 0;
}

/* ---- life ---- */

static int take_page(struct gantry_dev *dev, const int *fds, struct gantry_err *err)
{
	void *page;
	int r = gantry_hostmem_map(fds[0], 0, sizeof(*dev->page), &page, err);

	gantry_fd_close(fds[0]);
	dev->bell = fds[1];
	dev->told = fds[2];
	if (r == 0)
		dev->page = page;
	return r;
}

static int hello(struct gantry_dev *dev, const struct gantry_device_conf *conf,
		 struct gantry_device_info *ret_info, struct gantry_err *err)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_HELLO, .version = GANTRY_SEAT_VERSION };
	struct gantry_seat_answer answer;
	int fds[3];
	int r = gantry_seat_ask(dev, &ask, -EBADF, &answer, fds, 3, err);

	if (r == 0)
		r = take_page(dev, fds, err);
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
	return gantry_fd_nonblock(dev->sock, false);
}

static int seat_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		     struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		     struct gantry_err *err)
{
	static const char *const keys[] = { "seat", NULL };
	_cleanup_(seat_closep) struct gantry_dev *dev = NULL;
	int r = gantry_device_opts_check(conf, keys, err);

	if (r < 0)
		return r;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for a seat");
	dev->host = host;
	dev->sock = dev->bell = dev->told = dev->stop = -EBADF;
	gantry_list_init(&dev->streams);
	gantry_list_init(&dev->mems);
	gantry_list_init(&dev->images);
	r = take_socket(dev, gantry_device_opt(conf, "seat"), err);
	if (r == 0)
		r = hello(dev, conf, ret_info, err);
	if (r == 0)
		r = start_thread(dev, err);
	if (r < 0)
		return r;
	*ret_dev = GANTRY_TAKE_PTR(dev);
	return 0;
}

static void seat_mem_free(struct gantry_mem *mem);
static void seat_image_unload(struct gantry_image *image);

static void stop_thread(struct gantry_dev *dev)
{
	uint64_t one = 1;

	if (!dev->started)
		return;
	(void)!write(dev->stop, &one, sizeof(one));
	(void)pthread_join(dev->thread, NULL);
}

static void seat_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	stop_thread(dev);
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
	gantry_fd_close(dev->bell);
	gantry_fd_close(dev->told);
	gantry_fd_close(dev->stop);
	free(dev);
}

/* ---- memory ---- */

/* What the holder may not map, because a peer could cut it short, is private. */
static int hand_over(struct gantry_mem *mem, int fd, uint64_t off, uint64_t len,
		     struct gantry_err *err)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_MEM, .off = off, .len = len };
	struct gantry_seat_answer answer;
	uint64_t end;
	int r;

	if (__builtin_add_overflow(off, len, &end) || gantry_memfd_check(fd, end) < 0)
		return 0;
	r = gantry_seat_ask(mem->dev, &ask, fd, &answer, NULL, 0, err);
	if (r == 0)
		mem->id = answer.id;
	return r;
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
	if (mem->id)
		gantry_seat_say(mem->dev, GANTRY_SEAT_MEM_END, mem->id);
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
	r = gantry_seat_ask(dev, &ask, -EBADF, &answer, NULL, 0, err);
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
	r = gantry_seat_ask(image->dev, &ask, -EBADF, &answer, NULL, 0, err);
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
