/* SPDX-License-Identifier: Apache-2.0 */
/* What a seat asks its holder for, each of it checked; and a seat's end. */
#include "devices/seat/holder_seat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/hostmem.h"

struct gantry_seat *gantry_seat_new(struct gantry_seat_holder *holder,
				    const struct gantry_device *device, const char *images,
				    int sock, uint64_t worker)
{
	struct gantry_seat *seat = calloc(1, sizeof(*seat));

	if (!seat)
		return NULL;
	seat->holder = holder;
	seat->device = device;
	seat->images = images;
	seat->sock = sock;
	seat->worker = worker;
	gantry_list_init(&seat->link);
	for (uint32_t i = 0; i < GANTRY_SEAT_TASKS; i++)
		seat->entries[i].seat = seat;
	return seat;
}

/* ---- the end ---- */

static void image_end(struct gantry_seat *seat, uint32_t image)
{
	for (uint32_t i = 0; i < GANTRY_SEAT_MAX_KERNELS; i++) {
		if (!seat->kernels[i] || seat->kernels[i]->image != image)
			continue;
		free(seat->kernels[i]);
		seat->kernels[i] = NULL;
	}
	seat->device->backend->image_unload(seat->images_of[image]);
	seat->images_of[image] = NULL;
}

static void mem_end(struct gantry_seat *seat, struct gantry_seat_memory *m)
{
	seat->device->backend->mem_free(m->mem);
	(void)munmap(m->base, m->len); /* cannot fail for what mmap() returned */
	gantry_seat_holder_refuge_end(seat->holder, seat);
	*m = (struct gantry_seat_memory){ 0 };
}

void gantry_seat_leave(struct gantry_seat *seat)
{
	if (seat->gone)
		return;
	seat->gone = true;
	seat->sock = gantry_fd_close(seat->sock);
	for (uint32_t i = 0; i < GANTRY_SEAT_TASKS; i++)
		gantry_store_release(&seat->entries[i].cancelled, 1u);
	/*
	 * In one step for whoever is writing there: the device's threads go on, into memory that is nobody's. It is there already, shared
	 * and so accounted to nobody, and the mapping takes the place of one that is as long: nothing is left that could be short.
	 */
	for (uint32_t i = 0; i < GANTRY_SEAT_MAX_MEMS; i++)
		if (seat->mems[i].base &&
		    mmap(seat->mems[i].base, seat->mems[i].len, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, seat->mems[i].refuge, 0) == MAP_FAILED)
			abort(); /* without it another process's memory would be written to */
}

void gantry_seat_condemn(struct gantry_seat *seat, const char *why)
{
	struct gantry_seat_answer last = { .what = GANTRY_SEAT_CONDEMNED };

	if (seat->gone)
		return;
	(void)gantry_str_copy(last.text, sizeof(last.text), why);
	/* One that does not listen sees its end all the same. */
	(void)gantry_fd_send(seat->sock, &last, sizeof(last), NULL, 0, MSG_DONTWAIT);
	gantry_seat_leave(seat);
}

void gantry_seat_free(struct gantry_seat *seat)
{
	gantry_seat_leave(seat);
	for (uint32_t i = 0; i < GANTRY_SEAT_MAX_STREAMS; i++)
		if (seat->streams[i].stream)
			seat->device->backend->stream_destroy(seat->streams[i].stream);
	for (uint32_t i = 0; i < GANTRY_SEAT_MAX_IMAGES; i++)
		if (seat->images_of[i])
			image_end(seat, i);
	for (uint32_t i = 0; i < GANTRY_SEAT_MAX_MEMS; i++)
		if (seat->mems[i].base)
			mem_end(seat, &seat->mems[i]);
	if (seat->page)
		(void)munmap(seat->page, sizeof(*seat->page)); /* as above */
	gantry_list_remove(&seat->link);
	free(seat);
}

/* ---- asks; each answers 0 or -errno ---- */

static int make_page(struct gantry_seat *seat, int *ret_fd, struct gantry_err *err)
{
	void *page;
	int fd;
	int r = gantry_memfd_create("gantry-seat", sizeof(*seat->page), GANTRY_MEMFD_SEALED, &fd);

	if (r < 0)
		return gantry_err_set_errno(err, r, "a seat's page");
	r = gantry_hostmem_map(fd, 0, sizeof(*seat->page), &page, err);
	if (r < 0) {
		gantry_fd_close(fd);
		return r;
	}
	seat->page = page;
	*ret_fd = fd; /* the caller's */
	return 0;
}

static int hello(struct gantry_seat *seat, const struct gantry_seat_ask *ask,
		 struct gantry_seat_answer *answer, int *ret_fd, struct gantry_err *err)
{
	if (ask->version != GANTRY_SEAT_VERSION)
		return gantry_err_set(
			err, -ENODEV,
			"the device's holder is of another build: it ends with the next upgrade's renewal");
	if (seat->page)
		return gantry_err_set(err, -EPROTO, "it has said hello before");
	answer->info = seat->device->info;
	answer->info.about = NULL;
	return make_page(seat, ret_fd, err);
}

static int take_memory(struct gantry_seat *seat, const struct gantry_seat_ask *ask, int fd,
		       uint32_t *ret_id, struct gantry_err *err)
{
	const struct gantry_backend *backend = seat->device->backend;
	struct gantry_seat_memory *m = seat->mems;
	uint64_t end;
	void *base;
	int r;

	/* What a worker had that has died may be a session's that this one recovers. */
	gantry_seat_holder_see_ends(seat->holder);
	if (fd < 0 || ask->len == 0 || gantry_add_u64(ask->off, ask->len, &end) < 0)
		return gantry_err_set(err, -EPROTO, "memory without a descriptor, or of no size");
	r = gantry_memfd_check(fd, end);
	if (r < 0)
		return gantry_err_set_errno(err, -EPERM,
					    "memory that could be cut short, or not backed");
	while (m < seat->mems + GANTRY_SEAT_MAX_MEMS && m->base)
		m++;
	if (m == seat->mems + GANTRY_SEAT_MAX_MEMS)
		return gantry_err_set(err, -ENOMEM, "the seat has its %u pieces of memory",
				      GANTRY_SEAT_MAX_MEMS);
	r = gantry_seat_holder_refuge(seat->holder, seat, ask->len, &m->refuge);
	if (r < 0)
		return gantry_err_set_errno(err, r, "the device's holder has its pieces of memory");
	r = gantry_hostmem_map(fd, ask->off, ask->len, &base, err);
	if (r == 0) {
		r = backend->mem_host(seat->device->dev, base, ask->len, &m->mem, err);
		if (r < 0)
			(void)munmap(base, ask->len); /* cannot fail for what mmap() returned */
	}
	if (r < 0) {
		gantry_seat_holder_refuge_end(seat->holder, seat);
		return r;
	}
	m->base = base;
	m->len = ask->len;
	*ret_id = (uint32_t)(m - seat->mems) + 1;
	return 0;
}

static int make_stream(struct gantry_seat *seat, const struct gantry_seat_ask *ask,
		       uint32_t *ret_id, struct gantry_err *err)
{
	const struct gantry_stream_attr attr = { .priority = ask->number };
	uint32_t i = 0;
	int r;

	while (i < GANTRY_SEAT_MAX_STREAMS && seat->streams[i].stream)
		i++;
	if (i == GANTRY_SEAT_MAX_STREAMS)
		return gantry_err_set(err, -EAGAIN, "the seat has its %u streams", i);
	r = seat->device->backend->stream_create(seat->device->dev, &attr, &seat->streams[i].stream,
						 err);
	*ret_id = i + 1;
	return r;
}

/* A path that a worker says: a plain name, directly in the folder of images. */
static bool is_installed(const struct gantry_seat *seat, const char *path)
{
	size_t len = seat->images ? strlen(seat->images) : 0;

	while (len > 0 && seat->images[len - 1] == '/')
		len--;
	return len > 0 && strncmp(path, seat->images, len) == 0 && path[len] == '/' &&
	       path[len + 1] && path[len + 1] != '.' && !strchr(path + len + 1, '/');
}

static int load_image(struct gantry_seat *seat, const struct gantry_seat_ask *ask, uint32_t *ret_id,
		      struct gantry_err *err)
{
	uint32_t i = 0;
	int r;

	if (!is_installed(seat, ask->text))
		return gantry_err_set(err, -ENOEXEC, "image: it is not in the device's store");
	while (i < GANTRY_SEAT_MAX_IMAGES && seat->images_of[i])
		i++;
	if (i == GANTRY_SEAT_MAX_IMAGES)
		return gantry_err_set(err, -ENOMEM, "the seat has its %u images", i);
	r = seat->device->backend->image_load(seat->device->dev, ask->text, NULL, 0,
					      &seat->images_of[i], err);
	if (r < 0)
		seat->images_of[i] = NULL;
	*ret_id = i + 1;
	return r;
}

static int get_kernel(struct gantry_seat *seat, const struct gantry_seat_ask *ask, uint32_t *ret_id,
		      struct gantry_err *err)
{
	struct gantry_seat_kernel *k;
	uint32_t i = 0;
	int r;

	if (ask->id == 0 || ask->id > GANTRY_SEAT_MAX_IMAGES || !seat->images_of[ask->id - 1])
		return gantry_err_set(err, -EPROTO, "a kernel of no image");
	while (i < GANTRY_SEAT_MAX_KERNELS && seat->kernels[i])
		i++;
	if (i == GANTRY_SEAT_MAX_KERNELS)
		return gantry_err_set(err, -ENOMEM, "the seat has its %u kernels", i);
	k = calloc(1, sizeof(*k));
	if (!k)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	k->image = ask->id - 1;
	(void)gantry_str_copy(k->name, sizeof(k->name), ask->text); /* for people */
	gantry_str_make_printable(k->name);
	r = gantry_signature_parse(ask->signature, &k->sig, err);
	if (r == 0)
		r = seat->device->backend->kernel_get(seat->images_of[k->image], ask->text, &k->sig,
						      &k->kernel, err);
	if (r < 0) {
		free(k);
		return r;
	}
	seat->kernels[i] = k;
	*ret_id = i + 1;
	return 0;
}

/* ---- ends of things: false breaks the rules ---- */

static bool end_memory(struct gantry_seat *seat, uint32_t id)
{
	if (id == 0 || id > GANTRY_SEAT_MAX_MEMS || !seat->mems[id - 1].base ||
	    seat->mems[id - 1].nusers > 0)
		return false;
	mem_end(seat, &seat->mems[id - 1]);
	return true;
}

static bool end_stream(struct gantry_seat *seat, uint32_t id)
{
	if (id == 0 || id > GANTRY_SEAT_MAX_STREAMS || !seat->streams[id - 1].stream ||
	    seat->streams[id - 1].nflight > 0)
		return false;
	seat->device->backend->stream_destroy(seat->streams[id - 1].stream);
	seat->streams[id - 1].stream = NULL;
	return true;
}

static bool end_image(struct gantry_seat *seat, uint32_t id)
{
	if (id == 0 || id > GANTRY_SEAT_MAX_IMAGES || !seat->images_of[id - 1])
		return false;
	for (uint32_t i = 0; i < GANTRY_SEAT_MAX_KERNELS; i++)
		if (seat->kernels[i] && seat->kernels[i]->image == id - 1 &&
		    seat->kernels[i]->nusers > 0)
			return false;
	image_end(seat, id - 1);
	return true;
}

/* ---- messages ---- */

/*
 * One bell lies in the socket at most, so that there is room for answers; who hears it looks at the page afterwards. One that does
 * not fit is not missed either: any message wakes.
 */
void gantry_seat_tell(struct gantry_seat *seat)
{
	const uint8_t byte = 0;
	uint32_t heard;

	seat->has_news = false;
	if (seat->gone)
		return;
	gantry_fence_full(); /* pairs with the fence of a worker that has heard */
	heard = gantry_load_relaxed(&seat->page->worker.heard);
	if (seat->is_rung && heard == seat->heard)
		return;
	seat->is_rung = gantry_fd_send(seat->sock, &byte, sizeof(byte), NULL, 0, MSG_DONTWAIT) == 1;
	seat->heard = heard;
}

static void answer_ask(struct gantry_seat *seat, const struct gantry_seat_ask *ask, int fd)
{
	struct gantry_seat_answer answer = { .what = ask->what };
	struct gantry_err err = GANTRY_ERR_NONE;
	int page = -EBADF;

	if (ask->what == GANTRY_SEAT_HELLO)
		answer.r = hello(seat, ask, &answer, &page, &err);
	else if (ask->what == GANTRY_SEAT_MEM)
		answer.r = take_memory(seat, ask, fd, &answer.id, &err);
	else if (ask->what == GANTRY_SEAT_STREAM)
		answer.r = make_stream(seat, ask, &answer.id, &err);
	else if (ask->what == GANTRY_SEAT_IMAGE)
		answer.r = load_image(seat, ask, &answer.id, &err);
	else
		answer.r = get_kernel(seat, ask, &answer.id, &err);
	if (answer.r < 0)
		(void)gantry_str_copy(answer.text, sizeof(answer.text), err.text);
	if (answer.r == -EPROTO)
		gantry_seat_condemn(seat, err.text);
	/* A worker that asks and does not read has no seat to lose but its own. */
	else if (gantry_fd_send(seat->sock, &answer, sizeof(answer), &page, page >= 0,
				MSG_DONTWAIT) < 0)
		gantry_seat_condemn(seat, "it does not hear its answers");
	gantry_fd_close(page);
}

static void obey(struct gantry_seat *seat, struct gantry_seat_ask *ask, int fd)
{
	bool fine = true;

	ask->text[sizeof(ask->text) - 1] = '\0';
	ask->signature[sizeof(ask->signature) - 1] = '\0';
	if (!seat->page && ask->what != GANTRY_SEAT_HELLO) {
		gantry_seat_condemn(seat, "it did not say hello");
		return;
	}
	switch (ask->what) {
	case GANTRY_SEAT_HELLO:
	case GANTRY_SEAT_MEM:
	case GANTRY_SEAT_STREAM:
	case GANTRY_SEAT_IMAGE:
	case GANTRY_SEAT_KERNEL:
		answer_ask(seat, ask, fd);
		return;
	case GANTRY_SEAT_MEM_END:
		fine = end_memory(seat, ask->id);
		break;
	case GANTRY_SEAT_STREAM_END:
		fine = end_stream(seat, ask->id);
		break;
	case GANTRY_SEAT_IMAGE_END:
		fine = end_image(seat, ask->id);
		break;
	default:
		fine = false;
	}
	if (!fine)
		gantry_seat_condemn(seat, "it ended what it has not, or what is in use");
}

bool gantry_seat_hear(struct gantry_seat *seat)
{
	struct gantry_seat_ask ask;
	unsigned int nfds = 0;
	int fd = -EBADF;
	ssize_t n;

	if (seat->gone)
		return false;
	n = gantry_fd_recv(seat->sock, &ask, sizeof(ask), &fd, 1, &nfds, MSG_DONTWAIT);
	if (n == -EAGAIN)
		return false;
	if (n == 0)
		gantry_seat_leave(seat);
	else if (n < 0)
		gantry_seat_condemn(seat, "a message that the holder could not take");
	else if (n == 1)
		; /* a bell: it has woken, which is all */
	else if (n != (ssize_t)sizeof(ask))
		gantry_seat_condemn(seat, "a message of another size");
	else
		obey(seat, &ask, nfds ? fd : -EBADF);
	if (nfds)
		gantry_fd_close(fd);
	return true;
}
