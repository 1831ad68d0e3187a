/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/contract.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "devices/wrap.h"

/* Every output of the backend starts with this, so that a write on failure shows. */
#define UNTOUCHED ((void *)0x1)

#define MAX_USES (GANTRY_MAX_CMD_ARGS + 2u)

/* A command in the device. */
struct flight {
	struct gantry_list link; /* gantry_dev.flights: in order of submission */
	uint64_t tag;
	struct gantry_object *stream;
	uint32_t nuses;
	struct gantry_object *uses[MAX_USES];
};

/* What one window_map() or window_alias() mapped. */
struct slab {
	struct gantry_list link; /* gantry_dev.slabs */
	struct gantry_object *window;
	uint64_t off;
	uint64_t len;
	bool is_alias;
};

struct gantry_dev {
	struct gantry_filter_dev filter; /* first: devices/filter.h */
	const struct gantry_device_host *host;
	struct gantry_device_host checked_host;
	pthread_t thread;
	bool entered; /* thread_enter() was called, or there is none */
	bool broken;  /* an error hurt more than a stream */
	struct gantry_objects objects;
	struct gantry_list slabs;
	pthread_mutex_t lock; /* protects flights: cancelled() comes from any thread */
	struct gantry_list flights;
};

static void violation(const struct gantry_dev *dev, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));

static void violation(const struct gantry_dev *dev, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args); /* cut short is good enough */
	va_end(args);
	/* Whoever reads this has a debugger or a test log open: nothing is left to return to. */
	(void)dprintf(STDERR_FILENO, "contract of devices/device.h broken with backend %s: %s\n",
		      dev->filter.next.backend->name, text);
	abort();
}

/* The caller's side. */

static void check_thread(const struct gantry_dev *dev, const char *call)
{
	if (!pthread_equal(dev->thread, pthread_self()))
		violation(dev, "%s() from a thread that is not the device thread", call);
}

static struct gantry_object *check_object(const struct gantry_dev *dev, const void *opaque,
					  uint32_t type, const char *what)
{
	struct gantry_object *object = gantry_object_of(opaque);

	if (!object)
		violation(dev, "%s is NULL", what);
	if (object->type != type)
		violation(dev, "%s is not one", what);
	if (object->dev != dev)
		violation(dev, "%s is of another device", what);
	if (!object->next)
		violation(dev, "%s %u is used after its end", what, object->id);
	return object;
}

static void use(struct flight *flight, struct gantry_object *object)
{
	flight->uses[flight->nuses++] = object;
	object->nuses++;
}

static struct slab *slab_at(struct gantry_dev *dev, const struct gantry_object *window, uint64_t at)
{
	gantry_list_for_each(&dev->slabs, struct slab, link, slab)
		if (slab->window == window && at - slab->off < slab->len)
			return slab;
	return NULL;
}

/* A range of a window has slabs behind all of it. */
static void check_mapped(struct gantry_dev *dev, const struct gantry_object *window, uint64_t off,
			 uint64_t len)
{
	uint64_t end = off + len;

	while (off < end) {
		const struct slab *slab = slab_at(dev, window, off);

		if (!slab)
			violation(dev, "a range of window %u where no slab is mapped", window->id);
		off = slab->off + slab->len;
	}
}

static void check_range(struct gantry_dev *dev, struct flight *flight,
			const struct gantry_range *range)
{
	struct gantry_object *mem = gantry_object_of(range->mem);

	/*
	 * Memory of a sister device is allowed with GANTRY_CAP_PEER; its own checker owns its
	 * count.
	 */
	if (mem && mem->dev != dev && mem->type == GANTRY_OBJECT_MEM && mem->next) {
		if (!(dev->filter.next.info.caps & GANTRY_CAP_PEER))
			violation(dev,
				  "a range in memory of another device, without GANTRY_CAP_PEER");
	} else {
		use(flight, check_object(dev, mem, GANTRY_OBJECT_MEM, "memory of a range"));
	}
	if (mem && !gantry_range_inside(range->off, range->len, mem->len))
		violation(dev, "a range reaches past memory %u", mem->id);
	if (mem && mem->is_window && mem->dev == dev)
		check_mapped(dev, mem, range->off, range->len);
}

static void check_launch(struct gantry_dev *dev, struct flight *flight,
			 const struct gantry_cmd_launch *launch)
{
	struct gantry_object *kernel = check_object(dev, launch->kernel, GANTRY_OBJECT_KERNEL,
						    "a kernel");

	use(flight,
	    check_object(dev, kernel->parent, GANTRY_OBJECT_IMAGE, "the image of a kernel"));
	if (launch->nargs != kernel->sig->nargs)
		violation(dev, "a launch with %u arguments where the signature has %u",
			  launch->nargs, kernel->sig->nargs);
	if (!kernel->sig->is_raw != !launch->raw)
		violation(dev,
			  "a launch with parameters as they are, or without, of another signature");
	for (uint32_t i = 0; i < launch->nargs; i++)
		if (kernel->sig->args[i].mode && launch->args[i].range.mem)
			check_range(dev, flight, &launch->args[i].range);
}

static void check_fill(struct gantry_dev *dev, struct flight *flight,
		       const struct gantry_cmd_fill *fill)
{
	check_range(dev, flight, &fill->dst);
	if (!gantry_is_pow2(fill->pattern_bytes) || fill->pattern_bytes > 8)
		violation(dev, "a fill with a pattern of %u bytes", fill->pattern_bytes);
	if (fill->dst.len % fill->pattern_bytes != 0)
		violation(dev, "a fill of a length that is no multiple of its pattern");
}

static void check_stamp(const struct gantry_dev *dev)
{
	if (!(dev->filter.next.info.caps & GANTRY_CAP_STAMP))
		violation(dev, "a stamp without GANTRY_CAP_STAMP");
}

static void check_cmd(struct gantry_dev *dev, struct flight *flight, const struct gantry_cmd *cmd)
{
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		check_launch(dev, flight, &cmd->launch);
		break;
	case GANTRY_CMD_COPY:
		check_range(dev, flight, &cmd->copy.dst);
		check_range(dev, flight, &cmd->copy.src);
		if (cmd->copy.dst.len != cmd->copy.src.len)
			violation(dev, "a copy between ranges of different length");
		break;
	case GANTRY_CMD_FILL:
		check_fill(dev, flight, &cmd->fill);
		break;
	case GANTRY_CMD_STAMP:
		check_stamp(dev);
		break;
	default:
		violation(dev, "a command of unknown kind %u", cmd->kind);
	}
}

static struct flight *find_flight_locked(struct gantry_dev *dev, uint64_t tag)
{
	gantry_list_for_each(&dev->flights, struct flight, link, flight)
		if (flight->tag == tag)
			return flight;
	return NULL;
}

static void add_flight(struct gantry_dev *dev, struct flight *flight)
{
	(void)pthread_mutex_lock(&dev->lock);
	if (find_flight_locked(dev, flight->tag))
		violation(dev, "tag %llu is in the device already",
			  (unsigned long long)flight->tag);
	gantry_list_push_back(&dev->flights, &flight->link);
	(void)pthread_mutex_unlock(&dev->lock);
}

static void end_flight(struct gantry_dev *dev, struct flight *flight)
{
	(void)pthread_mutex_lock(&dev->lock);
	gantry_list_remove(&flight->link);
	(void)pthread_mutex_unlock(&dev->lock);
	for (uint32_t i = 0; i < flight->nuses; i++)
		flight->uses[i]->nuses--;
	free(flight);
}

static int contract_submit(struct gantry_stream *opaque, const struct gantry_cmd *cmd)
{
	struct gantry_object *stream = gantry_object_of(opaque);
	struct gantry_dev *dev = stream->dev;
	struct flight *flight;
	struct gantry_cmd inner;
	int r;

	check_thread(dev, "submit");
	check_object(dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	if (!dev->entered)
		violation(dev, "submit() before thread_enter()");
	if (dev->broken || stream->broken)
		violation(dev, "submit() after an error that ended the stream or the device");
	flight = calloc(1, sizeof(*flight));
	if (!flight)
		return -EAGAIN; /* a refusal that every caller knows */
	gantry_list_init(&flight->link);
	flight->tag = cmd->tag;
	flight->stream = stream;
	use(flight, stream);
	check_cmd(dev, flight, cmd);
	add_flight(dev, flight); /* before: it may be running when submit() returns */
	gantry_object_unwrap_cmd(cmd, &inner);
	r = dev->filter.next.backend->submit(stream->next, &inner);
	/* What it was given is the caller's again: a backend that kept a pointer reads this. */
	memset(&inner, 0xdb, sizeof(inner));
	if (r > 0)
		violation(dev, "submit() returned %d", r);
	if (r < 0)
		end_flight(dev, flight);
	return r;
}

/* The backend's side. */

static bool status_exists(int32_t status)
{
	return status == GANTRY_OK || strcmp(gantry_status_name(status), "unknown") != 0;
}

static void note_blast(struct gantry_dev *dev, struct gantry_object *stream, uint32_t blast)
{
	if (blast == GANTRY_BLAST_STREAM)
		stream->broken = true;
	if (blast == GANTRY_BLAST_CONTEXT || blast == GANTRY_BLAST_DEVICE)
		dev->broken = true;
}

static void check_done(struct gantry_dev *dev, const struct gantry_done *done)
{
	unsigned long long tag = done->tag;
	struct flight *flight;

	(void)pthread_mutex_lock(&dev->lock);
	flight = find_flight_locked(dev, done->tag);
	if (!flight)
		violation(dev, "poll() told of tag %llu, which is not in the device", tag);
	gantry_list_for_each(&dev->flights, struct flight, link, earlier) {
		if (earlier == flight)
			break;
		if (earlier->stream == flight->stream)
			violation(dev, "tag %llu finished before tag %llu of the same stream", tag,
				  (unsigned long long)earlier->tag);
	}
	(void)pthread_mutex_unlock(&dev->lock);
	if (!status_exists(done->status))
		violation(dev, "tag %llu has status %d, which does not exist", tag, done->status);
	if (done->blast > GANTRY_BLAST_DEVICE)
		violation(dev, "tag %llu has blast %u, which does not exist", tag, done->blast);
	if ((done->status == GANTRY_OK) != (done->blast == GANTRY_BLAST_NONE))
		violation(dev, "tag %llu: status %d does not fit blast %u", tag, done->status,
			  done->blast);
	if (done->units > dev->filter.next.info.units)
		violation(dev, "tag %llu was kept to %u units of %u", tag, done->units,
			  dev->filter.next.info.units);
	note_blast(dev, flight->stream, done->blast);
	end_flight(dev, flight);
}

static unsigned contract_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	struct gantry_device *next = &dev->filter.next;
	unsigned count;

	check_thread(dev, "poll");
	count = next->backend->poll(next->dev, ret_done, n);
	if (count > n)
		violation(dev, "poll() returned %u of at most %u", count, n);
	for (unsigned int i = 0; i < count; i++)
		check_done(dev, &ret_done[i]);
	return count;
}

static void contract_flush(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	check_thread(stream->dev, "flush");
	check_object(stream->dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	stream->dev->filter.next.backend->flush(stream->next);
}

static void contract_boundary(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	check_thread(stream->dev, "boundary");
	check_object(stream->dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	stream->dev->filter.next.backend->boundary(stream->next);
}

/*
 * After a call that can fail: the return value, the sentence and the output must agree. Wraps the
 * output and returns @r. A backend tells what it lacks, so -ENOMEM of our own needs no undo here:
 * close() does it.
 */
static int check_made(struct gantry_dev *dev, const char *call, int r, uint32_t type, void *made,
		      const struct gantry_err *inner, struct gantry_object **ret_object,
		      struct gantry_err *err)
{
	if (r > 0)
		violation(dev, "%s() returned %d", call, r);
	if (r < 0 && made != UNTOUCHED)
		violation(dev, "%s() failed and wrote its output", call);
	if (r < 0 && inner->text[0] == '\0')
		violation(dev, "%s() failed without a sentence", call);
	if (r < 0)
		return gantry_err_set(err, r, "%s", inner->text);
	if (!made || made == UNTOUCHED)
		violation(dev, "%s() succeeded without an output", call);
	*ret_object = gantry_object_new(&dev->objects, dev, type, made);
	return *ret_object ? 0 : gantry_err_set(err, -ENOMEM, "no memory for the checker");
}

static int contract_thread_enter(struct gantry_dev *dev, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r;

	check_thread(dev, "thread_enter");
	if (dev->entered)
		violation(dev, "thread_enter() called twice");
	r = next->backend->thread_enter(next->dev, err);
	dev->entered = r == 0;
	return r;
}

static int contract_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			       size_t nbytes, struct gantry_image **ret_image,
			       struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_image *image = UNTOUCHED;
	struct gantry_object *object = NULL;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	check_thread(dev, "image_load");
	if (!bytes == !path || !bytes != !nbytes)
		violation(dev, "image_load() takes a path or bytes");
	if (bytes && !(next->info.caps & GANTRY_CAP_GUEST_IMAGES))
		violation(dev, "image_load() of bytes without GANTRY_CAP_GUEST_IMAGES");
	r = next->backend->image_load(next->dev, path, bytes, nbytes, &image, &inner);
	r = check_made(dev, "image_load", r, GANTRY_OBJECT_IMAGE, image, &inner, &object, err);
	if (r == 0)
		*ret_image = (struct gantry_image *)object;
	return r;
}

static void contract_image_unload(struct gantry_image *opaque)
{
	struct gantry_object *image = gantry_object_of(opaque);
	struct gantry_dev *dev;

	if (!image)
		return;
	dev = image->dev;
	check_thread(dev, "image_unload");
	check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	if (image->nuses)
		violation(dev, "image_unload() while a command uses image %u", image->id);
	gantry_list_for_each(&dev->objects.list, struct gantry_object, link, object)
		if (object->parent == image)
			object->next = NULL; /* kernels go with their image */
	dev->filter.next.backend->image_unload(image->next);
	image->next = NULL;
}

static void contract_image_say(struct gantry_dev *dev, struct gantry_image *opaque, char *text,
			       size_t cap)
{
	struct gantry_object *image = opaque ? gantry_object_of(opaque) : NULL;
	struct gantry_device *next = &dev->filter.next;

	check_thread(dev, "image_say");
	if (image)
		check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	if (cap == 0)
		violation(dev, "image_say() has no room");
	next->backend->image_say(next->dev, image ? image->next : NULL, text, cap);
}

static int contract_kernel_get(struct gantry_image *opaque, const char *symbol,
			       const struct gantry_signature *sig,
			       struct gantry_kernel **ret_kernel, struct gantry_err *err)
{
	struct gantry_object *image = gantry_object_of(opaque);
	struct gantry_dev *dev = image->dev;
	struct gantry_kernel *kernel = UNTOUCHED;
	struct gantry_object *object = NULL;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	check_thread(dev, "kernel_get");
	check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	r = dev->filter.next.backend->kernel_get(image->next, symbol, sig, &kernel, &inner);
	r = check_made(dev, "kernel_get", r, GANTRY_OBJECT_KERNEL, kernel, &inner, &object, err);
	if (r < 0)
		return r;
	object->parent = image;
	object->sig = sig;
	*ret_kernel = (struct gantry_kernel *)object;
	return 0;
}

static int mem_made(struct gantry_dev *dev, const char *call, int r, struct gantry_mem *mem,
		    uint64_t len, const struct gantry_err *inner, struct gantry_mem **ret_mem,
		    struct gantry_err *err)
{
	struct gantry_object *object = NULL;

	r = check_made(dev, call, r, GANTRY_OBJECT_MEM, mem, inner, &object, err);
	if (r < 0)
		return r;
	object->len = len;
	*ret_mem = (struct gantry_mem *)object;
	return 0;
}

static int contract_ask(struct gantry_dev *dev, const struct gantry_question *question,
			void *ret_answer, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_question inner;
	int r;

	check_thread(dev, "ask");
	if (question->kernel)
		check_object(dev, question->kernel, GANTRY_OBJECT_KERNEL, "a kernel");
	if (question->range.mem)
		check_object(dev, question->range.mem, GANTRY_OBJECT_MEM, "memory of a range");
	gantry_object_unwrap_question(question, &inner);
	r = next->backend->ask(next->dev, &inner, ret_answer, err);
	if (r > (int)GANTRY_ANSWER_BYTES)
		violation(dev, "ask() returned %d", r);
	return r;
}

static int contract_image_variable(struct gantry_image *opaque, const char *symbol,
				   struct gantry_mem **ret_mem, uint64_t *ret_len,
				   struct gantry_err *err)
{
	struct gantry_object *image = gantry_object_of(opaque);
	struct gantry_dev *dev = image->dev;
	struct gantry_mem *mem = UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	uint64_t len = 0;
	int r;

	check_thread(dev, "image_variable");
	check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	r = dev->filter.next.backend->image_variable(image->next, symbol, &mem, &len, &inner);
	if (r == 0 && len == 0)
		violation(dev, "image_variable() of no bytes");
	r = mem_made(dev, "image_variable", r, mem, len, &inner, ret_mem, err);
	if (r == 0)
		*ret_len = len;
	return r;
}

static int contract_texture_make(struct gantry_dev *dev, uint32_t what,
				 const struct gantry_wire_texture *spec, struct gantry_mem *of,
				 struct gantry_mem **ret_mem, uint64_t *ret_len,
				 uint64_t *ret_value, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	uint64_t len = 0, value = 0;
	int r;

	check_thread(dev, "texture_make");
	if (of)
		check_object(dev, of, GANTRY_OBJECT_MEM, "an array");
	r = next->backend->texture_make(next->dev, what, spec,
					of ? gantry_object_of(of)->next : NULL, &mem, &len, &value,
					&inner);
	r = mem_made(dev, "texture_make", r, mem, len, &inner, ret_mem, err);
	if (r == 0) {
		*ret_len = len;
		*ret_value = value;
	}
	return r;
}

static int contract_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			       struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	check_thread(dev, "mem_import");
	if (len == 0)
		violation(dev, "mem_import() of nothing");
	r = next->backend->mem_import(next->dev, fd, off, len, &mem, &inner);
	return mem_made(dev, "mem_import", r, mem, len, &inner, ret_mem, err);
}

static int contract_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			      struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	check_thread(dev, "mem_alloc");
	if (len == 0)
		violation(dev, "mem_alloc() of nothing");
	r = next->backend->mem_alloc(next->dev, len, &mem, &inner);
	return mem_made(dev, "mem_alloc", r, mem, len, &inner, ret_mem, err);
}

static int contract_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			     struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	check_thread(dev, "mem_host");
	if (!base || len == 0)
		violation(dev, "mem_host() of nothing");
	r = next->backend->mem_host(next->dev, base, len, &mem, &inner);
	/* The one call that has something to say when it succeeds. */
	if (r == 0 && inner.text[0] != '\0')
		(void)gantry_err_set(err, inner.code, "%s", inner.text);
	return mem_made(dev, "mem_host", r, mem, len, &inner, ret_mem, err);
}

static void check_slab_bytes(const struct gantry_dev *dev, const char *call, uint64_t off,
			     uint64_t len)
{
	uint64_t align = dev->filter.next.info.slab_align;

	if (len == 0 || off % align || len % align)
		violation(dev, "%s() of a place or length that is no multiple of slab_align", call);
}

static int contract_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
				struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int fd = -EBADF;
	int r;

	check_thread(dev, "slab_create");
	check_slab_bytes(dev, "slab_create", 0, len);
	r = next->backend->slab_create(next->dev, len, &fd, &inner);
	if (r > 0 || (r == 0) != (fd >= 0) || (r < 0 && inner.text[0] == '\0'))
		violation(dev, "slab_create(): %d, descriptor %d and the sentence do not fit", r,
			  fd);
	if (r < 0)
		return gantry_err_set(err, r, "%s", inner.text);
	*ret_fd = fd;
	return 0;
}

static int contract_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;

	check_thread(dev, "slab_scrub");
	check_slab_bytes(dev, "slab_scrub", 0, len);
	return next->backend->slab_scrub(next->dev, fd, len, err);
}

static int contract_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
				struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	check_thread(dev, "window_open");
	check_slab_bytes(dev, "window_open", address, len);
	r = next->backend->window_open(next->dev, address, len, &mem, &inner);
	r = mem_made(dev, "window_open", r, mem, len, &inner, ret_mem, err);
	if (r == 0)
		gantry_object_of(*ret_mem)->is_window = true;
	return r;
}

static struct gantry_object *check_window(const struct gantry_mem *opaque, const char *call,
					  uint64_t off, uint64_t len)
{
	struct gantry_object *window = gantry_object_of(opaque);
	struct gantry_dev *dev = window->dev;

	check_thread(dev, call);
	check_object(dev, window, GANTRY_OBJECT_MEM, "a window");
	check_slab_bytes(dev, call, off, len);
	if (!window->is_window || !gantry_range_inside(off, len, window->len))
		violation(dev, "%s() past a window, or of memory that is none", call);
	return window;
}

static void check_unmapped(struct gantry_dev *dev, const struct gantry_object *window,
			   const char *call, uint64_t off, uint64_t len)
{
	gantry_list_for_each(&dev->slabs, struct slab, link, other)
		if (other->window == window && off < other->off + other->len &&
		    other->off < off + len)
			violation(dev, "%s() where a slab is mapped", call);
}

static int contract_window_map(struct gantry_mem *opaque, uint64_t off, uint64_t len, int fd,
			       struct gantry_err *err)
{
	struct gantry_object *window = check_window(opaque, "window_map", off, len);
	struct gantry_dev *dev = window->dev;
	struct slab *slab;
	int r;

	check_unmapped(dev, window, "window_map", off, len);
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return gantry_err_set(err, -ENOMEM, "no memory for the checker");
	r = dev->filter.next.backend->window_map(window->next, off, len, fd, err);
	if (r < 0) {
		free(slab);
		return r;
	}
	slab->window = window;
	slab->off = off;
	slab->len = len;
	gantry_list_push_back(&dev->slabs, &slab->link);
	return 0;
}

static void contract_window_unmap(struct gantry_mem *opaque, uint64_t off, uint64_t len)
{
	struct gantry_object *window = check_window(opaque, "window_unmap", off, len);
	struct gantry_dev *dev = window->dev;
	struct slab *slab = slab_at(dev, window, off);

	if (!slab || slab->off != off || slab->len != len)
		violation(dev, "window_unmap() of what no window_map() mapped");
	gantry_list_remove(&slab->link);
	free(slab);
	/* Commands that used it may be in flight in other parts: what follows them is checked by its range. */
	dev->filter.next.backend->window_unmap(window->next, off, len);
}

static int contract_window_alias(struct gantry_mem *opaque, uint64_t off, struct gantry_mem *from,
				 uint64_t from_off, uint64_t len, struct gantry_err *err)
{
	struct gantry_object *range = check_window(opaque, "window_alias", off, len);
	struct gantry_object *window = check_window(from, "window_alias", from_off, len);
	struct gantry_dev *dev = range->dev;
	const struct slab *of = slab_at(dev, window, from_off);
	struct slab *slab;
	int r;

	if (window == range || window->dev != dev)
		violation(dev, "window_alias() of a window in itself, or of another device's");
	if (!of || of->is_alias || of->off != from_off || of->len != len)
		violation(dev, "window_alias() of what no window_map() mapped");
	check_unmapped(dev, range, "window_alias", off, len);
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return gantry_err_set(err, -ENOMEM, "no memory for the checker");
	r = dev->filter.next.backend->window_alias(range->next, off, window->next, from_off, len,
						   err);
	if (r < 0) {
		free(slab);
		return r;
	}
	*slab = (struct slab){ .window = range, .off = off, .len = len, .is_alias = true };
	gantry_list_push_back(&dev->slabs, &slab->link);
	return 0;
}

static int contract_window_rights(struct gantry_mem *opaque, uint64_t off, uint64_t len,
				  uint32_t rights, struct gantry_err *err)
{
	struct gantry_object *range = check_window(opaque, "window_rights", off, len);
	struct gantry_dev *dev = range->dev;
	const struct slab *slab = slab_at(dev, range, off);

	if (!slab || !slab->is_alias || slab->off != off || slab->len != len)
		violation(dev, "window_rights() of what no window_alias() mapped");
	if (rights != 0 && rights != GANTRY_R && rights != GANTRY_RW)
		violation(dev, "window_rights() of %u", rights);
	return dev->filter.next.backend->window_rights(range->next, off, len, rights, err);
}

/* Its device's thread is another; it is asked for nothing there meanwhile. */
static int contract_window_swap(struct gantry_mem *opaque, struct gantry_mem *other,
				struct gantry_err *err)
{
	struct gantry_object *mine = check_window(opaque, "window_swap", 0,
						  gantry_object_of(opaque)->len);
	struct gantry_object *its = gantry_object_of(other);
	struct gantry_dev *dev = mine->dev;

	if (its->dev == dev || !its->is_window || its->len != mine->len)
		violation(dev, "window_swap() with what is no such window of another device");
	gantry_list_for_each(&dev->slabs, struct slab, link, slab)
		if (slab->window == mine && slab->is_alias)
			violation(dev, "window_swap() of a range");
	return dev->filter.next.backend->window_swap(mine->next, its->next, err);
}

static void forget_slabs(struct gantry_dev *dev, const struct gantry_object *window)
{
	gantry_list_for_each_safe(&dev->slabs, struct slab, link, slab) {
		if (window && slab->window != window)
			continue;
		gantry_list_remove(&slab->link);
		free(slab);
	}
}

static void contract_mem_free(struct gantry_mem *opaque)
{
	struct gantry_object *mem = gantry_object_of(opaque);

	if (!mem)
		return;
	check_thread(mem->dev, "mem_free");
	check_object(mem->dev, mem, GANTRY_OBJECT_MEM, "memory");
	if (mem->nuses)
		violation(mem->dev, "mem_free() while a command uses memory %u", mem->id);
	forget_slabs(mem->dev, mem);
	mem->dev->filter.next.backend->mem_free(mem->next);
	mem->next = NULL;
}

static int contract_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
				  struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_stream *stream = UNTOUCHED;
	struct gantry_object *object = NULL;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	check_thread(dev, "stream_create");
	if (!dev->entered)
		violation(dev, "stream_create() before thread_enter()");
	r = next->backend->stream_create(next->dev, attr, &stream, &inner);
	r = check_made(dev, "stream_create", r, GANTRY_OBJECT_STREAM, stream, &inner, &object, err);
	if (r == 0)
		*ret_stream = (struct gantry_stream *)object;
	return r;
}

static void contract_stream_destroy(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	if (!stream)
		return;
	check_thread(stream->dev, "stream_destroy");
	check_object(stream->dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	if (stream->nuses)
		violation(stream->dev, "stream_destroy() of stream %u, which is not idle",
			  stream->id);
	stream->dev->filter.next.backend->stream_destroy(stream->next);
	stream->next = NULL;
}

static void contract_owner_left(struct gantry_dev *dev, const void *owner)
{
	struct gantry_device *next = &dev->filter.next;

	check_thread(dev, "owner_left");
	next->backend->owner_left(next->dev, owner);
}

static int contract_region_configure(struct gantry_dev *dev, uint32_t region,
				     struct gantry_image *opaque, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_object *image;

	check_thread(dev, "region_configure");
	image = check_object(dev, opaque, GANTRY_OBJECT_IMAGE, "an image");
	return next->backend->region_configure(next->dev, region, image->next, err);
}

static void contract_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	check_thread(dev, "close");
	gantry_device_close(&dev->filter.next);
	gantry_list_for_each_safe(&dev->flights, struct flight, link, flight) {
		gantry_list_remove(&flight->link);
		free(flight);
	}
	forget_slabs(dev, NULL);
	gantry_objects_fini(&dev->objects);
	(void)pthread_mutex_destroy(&dev->lock);
	free(dev);
}

/* The host, as the backend sees it. */

static void checked_wake(void *cookie)
{
	struct gantry_dev *dev = cookie;

	dev->host->wake(dev->host->cookie);
}

static int checked_cancelled(void *cookie, uint64_t tag)
{
	struct gantry_dev *dev = cookie;
	bool known;

	(void)pthread_mutex_lock(&dev->lock);
	known = find_flight_locked(dev, tag) != NULL;
	(void)pthread_mutex_unlock(&dev->lock);
	if (!known)
		violation(dev, "cancelled() about tag %llu, which is not in the device",
			  (unsigned long long)tag);
	return dev->host->cancelled(dev->host->cookie, tag);
}

static void checked_off_device(void *cookie, uint64_t tag, bool off)
{
	struct gantry_dev *dev = cookie;
	bool known;

	check_thread(dev, "off_device");
	(void)pthread_mutex_lock(&dev->lock);
	known = find_flight_locked(dev, tag) != NULL;
	(void)pthread_mutex_unlock(&dev->lock);
	if (!known)
		violation(dev, "off_device() about tag %llu, which is not in the device",
			  (unsigned long long)tag);
	if (dev->host->off_device)
		dev->host->off_device(dev->host->cookie, tag, off);
}

static bool checked_print_begin(void *cookie, uint64_t tag)
{
	struct gantry_dev *dev = cookie;
	bool known;

	check_thread(dev, "print_begin");
	(void)pthread_mutex_lock(&dev->lock);
	known = find_flight_locked(dev, tag) != NULL;
	(void)pthread_mutex_unlock(&dev->lock);
	if (!known)
		violation(dev, "print_begin() about tag %llu, which is not in the device",
			  (unsigned long long)tag);
	return dev->host->print_begin && dev->host->print_begin(dev->host->cookie, tag);
}

static void checked_print_end(void *cookie, uint64_t tag, uint32_t fault)
{
	struct gantry_dev *dev = cookie;

	check_thread(dev, "print_end");
	dev->host->print_end(dev->host->cookie, tag, fault);
}

static void check_backend(const struct gantry_dev *dev, const struct gantry_backend *b)
{
	if (b->abi != GANTRY_BACKEND_ABI || b->size != sizeof(*b))
		violation(dev, "abi or size is not that of device.h");
	if (!b->close || !b->stream_create || !b->stream_destroy || !b->submit || !b->poll)
		violation(dev, "a member that is not optional is missing");
	if (!b->mem_free || (!b->mem_import && !b->mem_alloc && !b->window_open))
		violation(dev, "neither mem_import(), mem_alloc() nor windows, or no mem_free()");
	if (!b->window_open != !b->slab_create || !b->window_open != !b->slab_scrub ||
	    !b->window_open != !b->window_map || !b->window_open != !b->window_unmap)
		violation(dev, "the members for slabs and windows come together");
	if (!b->window_alias != !b->window_rights || (b->window_alias && !b->window_open))
		violation(dev, "window_alias and window_rights come together, and with windows");
	if (!b->image_load != !b->image_unload || !b->image_load != !b->kernel_get)
		violation(dev, "image_load, image_unload and kernel_get come together");
	if (!b->image_is_text != !b->compile || !b->compiler_open != !b->compile)
		violation(dev, "image_is_text, compiler_open and compile come together");
}

static void check_info(const struct gantry_dev *dev, const struct gantry_device_info *info)
{
	if (info->kind == GANTRY_KIND_ANY || info->kind >= GANTRY_NKINDS)
		violation(dev, "open() tells kind %u", info->kind);
	if (info->lanes == 0 || !gantry_is_pow2(info->mem_align))
		violation(dev, "open() tells %u lanes and alignment %u", info->lanes,
			  info->mem_align);
	if (!memchr(info->name, '\0', sizeof(info->name)) || info->name[0] == '\0' ||
	    !memchr(info->id, '\0', sizeof(info->id)))
		violation(dev, "open() tells no proper name or id");
	if ((info->caps & GANTRY_CAP_MEM_FD) && !dev->filter.next.backend->mem_import)
		violation(dev, "GANTRY_CAP_MEM_FD without mem_import()");
	if ((info->caps & GANTRY_CAP_WINDOW) &&
	    (!dev->filter.next.backend->window_open || !gantry_is_pow2(info->slab_align)))
		violation(dev, "GANTRY_CAP_WINDOW without windows, or without slab_align");
}

static struct gantry_dev *dev_new(const struct gantry_device_host *host)
{
	struct gantry_dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->host = host;
	dev->checked_host = (struct gantry_device_host){
		checked_wake,	    checked_cancelled,	 dev,
		checked_off_device, checked_print_begin, checked_print_end
	};
	dev->thread = pthread_self();
	gantry_objects_init(&dev->objects);
	gantry_list_init(&dev->flights);
	gantry_list_init(&dev->slabs);
	(void)pthread_mutex_init(&dev->lock, NULL); /* default attributes cannot fail */
	return dev;
}

static void replace_calls(struct gantry_backend *ops)
{
	ops->thread_enter = ops->thread_enter ? contract_thread_enter : NULL;
	if (ops->image_load) {
		ops->image_load = contract_image_load;
		ops->image_unload = contract_image_unload;
		ops->kernel_get = contract_kernel_get;
		ops->image_say = ops->image_say ? contract_image_say : NULL;
	}
	ops->ask = ops->ask ? contract_ask : NULL;
	ops->image_variable = ops->image_variable ? contract_image_variable : NULL;
	ops->texture_make = ops->texture_make ? contract_texture_make : NULL;
	ops->mem_import = ops->mem_import ? contract_mem_import : NULL;
	ops->mem_alloc = ops->mem_alloc ? contract_mem_alloc : NULL;
	ops->mem_host = ops->mem_host ? contract_mem_host : NULL;
	ops->mem_free = contract_mem_free;
	if (ops->window_open) {
		ops->slab_create = contract_slab_create;
		ops->slab_scrub = contract_slab_scrub;
		ops->window_open = contract_window_open;
		ops->window_map = contract_window_map;
		ops->window_unmap = contract_window_unmap;
		ops->window_alias = ops->window_alias ? contract_window_alias : NULL;
		ops->window_rights = ops->window_rights ? contract_window_rights : NULL;
		ops->window_swap = ops->window_swap ? contract_window_swap : NULL;
	}
	ops->stream_create = contract_stream_create;
	ops->stream_destroy = contract_stream_destroy;
	ops->submit = contract_submit;
	ops->poll = contract_poll;
	ops->flush = ops->flush ? contract_flush : NULL;
	ops->boundary = ops->boundary ? contract_boundary : NULL;
	ops->region_configure = ops->region_configure ? contract_region_configure : NULL;
	ops->owner_left = ops->owner_left ? contract_owner_left : NULL;
}

static void cover(struct gantry_dev *dev, const struct gantry_device *below,
		  struct gantry_device *ret_device)
{
	gantry_filter_init(&dev->filter, below, contract_close);
	check_backend(dev, below->backend);
	check_info(dev, &below->info);
	dev->entered = !below->backend->thread_enter;
	replace_calls(&dev->filter.ops);
	*ret_device = (struct gantry_device){ &dev->filter.ops, dev, below->info };
}

static int contract_open(const struct gantry_filter_next *next,
			 const struct gantry_device_conf *conf,
			 const struct gantry_device_host *host, struct gantry_device *ret_device,
			 struct gantry_err *err)
{
	_cleanup_free_ struct gantry_dev *dev = dev_new(host);
	struct gantry_device below;
	int r;

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for the contract checker");
	r = gantry_filter_open_next(next, conf, &dev->checked_host, &below, err);
	if (r < 0)
		return r;
	cover(GANTRY_TAKE_PTR(dev), &below, ret_device);
	return 0;
}

int gantry_contract_wrap(struct gantry_device *device, struct gantry_err *err)
{
	struct gantry_device below = *device;
	struct gantry_dev *dev = dev_new(NULL);

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for the contract checker");
	cover(dev, &below, device);
	return 0;
}

const struct gantry_filter gantry_filter_contract = { .name = "contract", .open = contract_open };
