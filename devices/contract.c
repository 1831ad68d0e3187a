/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/contract.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "devices/contract_inside.h"

void gantry_contract_violation(const struct gantry_dev *dev, const char *fmt, ...)
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

void gantry_contract_check_thread(const struct gantry_dev *dev, const char *call)
{
	if (!pthread_equal(dev->thread, pthread_self()))
		gantry_contract_violation(dev, "%s() from a thread that is not the device thread",
					  call);
}

struct gantry_object *gantry_contract_check_object(const struct gantry_dev *dev, const void *opaque,
						   uint32_t type, const char *what)
{
	struct gantry_object *object = gantry_object_of(opaque);

	if (!object)
		gantry_contract_violation(dev, "%s is NULL", what);
	if (object->type != type)
		gantry_contract_violation(dev, "%s is not one", what);
	if (object->dev != dev)
		gantry_contract_violation(dev, "%s is of another device", what);
	if (!object->next)
		gantry_contract_violation(dev, "%s %u is used after its end", what, object->id);
	return object;
}

int gantry_contract_check_made(struct gantry_dev *dev, const char *call, int r, uint32_t type,
			       void *made, const struct gantry_err *inner,
			       struct gantry_object **ret_object, struct gantry_err *err)
{
	if (r > 0)
		gantry_contract_violation(dev, "%s() returned %d", call, r);
	if (r < 0 && made != GANTRY_CONTRACT_UNTOUCHED)
		gantry_contract_violation(dev, "%s() failed and wrote its output", call);
	if (r < 0 && inner->text[0] == '\0')
		gantry_contract_violation(dev, "%s() failed without a sentence", call);
	if (r < 0)
		return gantry_err_set(err, r, "%s", inner->text);
	if (!made || made == GANTRY_CONTRACT_UNTOUCHED)
		gantry_contract_violation(dev, "%s() succeeded without an output", call);
	*ret_object = gantry_object_new(&dev->objects, dev, type, made);
	return *ret_object ? 0 : gantry_err_set(err, -ENOMEM, "no memory for the checker");
}

static int contract_thread_enter(struct gantry_dev *dev, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r;

	gantry_contract_check_thread(dev, "thread_enter");
	if (dev->entered)
		gantry_contract_violation(dev, "thread_enter() called twice");
	r = next->backend->thread_enter(next->dev, err);
	dev->entered = r == 0;
	return r;
}

static int contract_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			       size_t nbytes, struct gantry_image **ret_image,
			       struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_image *image = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_object *object = NULL;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	gantry_contract_check_thread(dev, "image_load");
	if (!bytes == !path || !bytes != !nbytes)
		gantry_contract_violation(dev, "image_load() takes a path or bytes");
	if (bytes && !(next->info.caps & GANTRY_CAP_GUEST_IMAGES))
		gantry_contract_violation(dev,
					  "image_load() of bytes without GANTRY_CAP_GUEST_IMAGES");
	r = next->backend->image_load(next->dev, path, bytes, nbytes, &image, &inner);
	r = gantry_contract_check_made(dev, "image_load", r, GANTRY_OBJECT_IMAGE, image, &inner,
				       &object, err);
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
	gantry_contract_check_thread(dev, "image_unload");
	gantry_contract_check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	if (image->nuses)
		gantry_contract_violation(dev, "image_unload() while a command uses image %u",
					  image->id);
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

	gantry_contract_check_thread(dev, "image_say");
	if (image)
		gantry_contract_check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	if (cap == 0)
		gantry_contract_violation(dev, "image_say() has no room");
	next->backend->image_say(next->dev, image ? image->next : NULL, text, cap);
}

static int contract_kernel_get(struct gantry_image *opaque, const char *symbol,
			       const struct gantry_signature *sig,
			       struct gantry_kernel **ret_kernel, struct gantry_err *err)
{
	struct gantry_object *image = gantry_object_of(opaque);
	struct gantry_dev *dev = image->dev;
	struct gantry_kernel *kernel = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_object *object = NULL;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	gantry_contract_check_thread(dev, "kernel_get");
	gantry_contract_check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	r = dev->filter.next.backend->kernel_get(image->next, symbol, sig, &kernel, &inner);
	r = gantry_contract_check_made(dev, "kernel_get", r, GANTRY_OBJECT_KERNEL, kernel, &inner,
				       &object, err);
	if (r < 0)
		return r;
	object->parent = image;
	object->sig = sig;
	*ret_kernel = (struct gantry_kernel *)object;
	return 0;
}

static int contract_ask(struct gantry_dev *dev, const struct gantry_question *question,
			void *ret_answer, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_question inner;
	int r;

	gantry_contract_check_thread(dev, "ask");
	if (question->kernel)
		gantry_contract_check_object(dev, question->kernel, GANTRY_OBJECT_KERNEL,
					     "a kernel");
	if (question->range.mem)
		gantry_contract_check_object(dev, question->range.mem, GANTRY_OBJECT_MEM,
					     "memory of a range");
	gantry_object_unwrap_question(question, &inner);
	r = next->backend->ask(next->dev, &inner, ret_answer, err);
	if (r > (int)GANTRY_ANSWER_BYTES)
		gantry_contract_violation(dev, "ask() returned %d", r);
	return r;
}

static int contract_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
				  struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_stream *stream = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_object *object = NULL;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	gantry_contract_check_thread(dev, "stream_create");
	if (!dev->entered)
		gantry_contract_violation(dev, "stream_create() before thread_enter()");
	r = next->backend->stream_create(next->dev, attr, &stream, &inner);
	r = gantry_contract_check_made(dev, "stream_create", r, GANTRY_OBJECT_STREAM, stream,
				       &inner, &object, err);
	if (r == 0)
		*ret_stream = (struct gantry_stream *)object;
	return r;
}

static void contract_stream_destroy(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	if (!stream)
		return;
	gantry_contract_check_thread(stream->dev, "stream_destroy");
	gantry_contract_check_object(stream->dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	if (stream->nuses)
		gantry_contract_violation(stream->dev,
					  "stream_destroy() of stream %u, which is not idle",
					  stream->id);
	stream->dev->filter.next.backend->stream_destroy(stream->next);
	stream->next = NULL;
}

static void contract_owner_left(struct gantry_dev *dev, const void *owner)
{
	struct gantry_device *next = &dev->filter.next;

	gantry_contract_check_thread(dev, "owner_left");
	next->backend->owner_left(next->dev, owner);
}

static int contract_region_configure(struct gantry_dev *dev, uint32_t region,
				     struct gantry_image *opaque, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_object *image;

	gantry_contract_check_thread(dev, "region_configure");
	image = gantry_contract_check_object(dev, opaque, GANTRY_OBJECT_IMAGE, "an image");
	return next->backend->region_configure(next->dev, region, image->next, err);
}

static void contract_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_contract_check_thread(dev, "close");
	gantry_device_close(&dev->filter.next);
	gantry_contract_commands_fini(dev);
	gantry_contract_memory_fini(dev);
	gantry_objects_fini(&dev->objects);
	free(dev);
}

static void check_backend(const struct gantry_dev *dev, const struct gantry_backend *b)
{
	if (b->abi != GANTRY_BACKEND_ABI || b->size != sizeof(*b))
		gantry_contract_violation(dev, "abi or size is not that of device.h");
	if (!b->close || !b->stream_create || !b->stream_destroy || !b->submit || !b->poll)
		gantry_contract_violation(dev, "a member that is not optional is missing");
	if (!b->mem_free || (!b->mem_import && !b->mem_alloc && !b->window_open))
		gantry_contract_violation(
			dev, "neither mem_import(), mem_alloc() nor windows, or no mem_free()");
	if (!b->window_open != !b->slab_create || !b->window_open != !b->slab_scrub ||
	    !b->window_open != !b->window_map || !b->window_open != !b->window_unmap)
		gantry_contract_violation(dev, "the members for slabs and windows come together");
	if (!b->window_alias != !b->window_rights || (b->window_alias && !b->window_open))
		gantry_contract_violation(
			dev, "window_alias and window_rights come together, and with windows");
	if (!b->image_load != !b->image_unload || !b->image_load != !b->kernel_get)
		gantry_contract_violation(dev,
					  "image_load, image_unload and kernel_get come together");
	if (!b->image_is_text != !b->compile || !b->compiler_open != !b->compile)
		gantry_contract_violation(dev,
					  "image_is_text, compiler_open and compile come together");
}

static void check_info(const struct gantry_dev *dev, const struct gantry_device_info *info)
{
	if (info->kind == GANTRY_KIND_ANY || info->kind >= GANTRY_NKINDS)
		gantry_contract_violation(dev, "open() tells kind %u", info->kind);
	if (info->lanes == 0 || !gantry_is_pow2(info->mem_align))
		gantry_contract_violation(dev, "open() tells %u lanes and alignment %u",
					  info->lanes, info->mem_align);
	if (!memchr(info->name, '\0', sizeof(info->name)) || info->name[0] == '\0' ||
	    !memchr(info->id, '\0', sizeof(info->id)))
		gantry_contract_violation(dev, "open() tells no proper name or id");
	if ((info->caps & GANTRY_CAP_MEM_FD) && !dev->filter.next.backend->mem_import)
		gantry_contract_violation(dev, "GANTRY_CAP_MEM_FD without mem_import()");
	if ((info->caps & GANTRY_CAP_WINDOW) &&
	    (!dev->filter.next.backend->window_open || !gantry_is_pow2(info->slab_align)))
		gantry_contract_violation(
			dev, "GANTRY_CAP_WINDOW without windows, or without slab_align");
}

static struct gantry_dev *dev_new(const struct gantry_device_host *host)
{
	struct gantry_dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->host = host;
	dev->thread = pthread_self();
	gantry_objects_init(&dev->objects);
	gantry_contract_commands_init(dev);
	gantry_contract_memory_init(dev);
	return dev;
}

static void cover_objects(struct gantry_backend *ops)
{
	ops->thread_enter = ops->thread_enter ? contract_thread_enter : NULL;
	if (ops->image_load) {
		ops->image_load = contract_image_load;
		ops->image_unload = contract_image_unload;
		ops->kernel_get = contract_kernel_get;
		ops->image_say = ops->image_say ? contract_image_say : NULL;
	}
	ops->ask = ops->ask ? contract_ask : NULL;
	ops->stream_create = contract_stream_create;
	ops->stream_destroy = contract_stream_destroy;
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
	gantry_contract_commands_cover(&dev->filter.ops);
	gantry_contract_memory_cover(&dev->filter.ops);
	cover_objects(&dev->filter.ops);
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
