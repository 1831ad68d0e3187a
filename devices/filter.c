/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/filter.h"

/* Every filter's struct gantry_dev begins with a struct gantry_filter_dev. */
static struct gantry_filter_dev *filter_of(struct gantry_dev *dev)
{
	return (struct gantry_filter_dev *)dev;
}

static int pass_thread_enter(struct gantry_dev *dev, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->thread_enter(next->dev, err);
}

static int pass_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->image_load(next->dev, path, bytes, nbytes, ret_image, err);
}

static void pass_image_say(struct gantry_dev *dev, struct gantry_image *image, char *text,
			   size_t cap)
{
	struct gantry_device *next = &filter_of(dev)->next;

	next->backend->image_say(next->dev, image, text, cap);
}

static int pass_ask(struct gantry_dev *dev, const struct gantry_question *question,
		    void *ret_answer, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->ask(next->dev, question, ret_answer, err);
}

static int pass_texture_make(struct gantry_dev *dev, uint32_t what,
			     const struct gantry_wire_texture *spec, struct gantry_mem *of,
			     struct gantry_mem **ret_mem, uint64_t *ret_len, uint64_t *ret_value,
			     struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->texture_make(next->dev, what, spec, of, ret_mem, ret_len, ret_value,
					   err);
}

static int pass_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->mem_import(next->dev, fd, off, len, ret_mem, err);
}

static int pass_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			  struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->mem_alloc(next->dev, len, ret_mem, err);
}

static int pass_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->mem_host(next->dev, base, len, ret_mem, err);
}

static int pass_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->stream_create(next->dev, attr, ret_stream, err);
}

static void pass_owner_left(struct gantry_dev *dev, const void *owner)
{
	struct gantry_device *next = &filter_of(dev)->next;

	next->backend->owner_left(next->dev, owner);
}

static unsigned pass_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->poll(next->dev, ret_done, n);
}

static int pass_region_configure(struct gantry_dev *dev, uint32_t region,
				 struct gantry_image *image, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->region_configure(next->dev, region, image, err);
}

static int pass_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			    struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->slab_create(next->dev, len, ret_fd, err);
}

static int pass_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->slab_scrub(next->dev, fd, len, err);
}

static int pass_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			    struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->window_open(next->dev, address, len, ret_mem, err);
}

static int pass_health(struct gantry_dev *dev, struct gantry_device_health *ret_health,
		       struct gantry_err *err)
{
	struct gantry_device *next = &filter_of(dev)->next;

	return next->backend->health(next->dev, ret_health, err);
}

void gantry_filter_init(struct gantry_filter_dev *dev, const struct gantry_device *next,
			void (*close)(struct gantry_dev *dev))
{
	struct gantry_backend *ops = &dev->ops;

	dev->next = *next;
	*ops = *next->backend;
	ops->probe = NULL;
	ops->open = NULL;
	ops->close = close;
	/* The other members take no device: those of the backend beneath serve as they are. */
	ops->thread_enter = ops->thread_enter ? pass_thread_enter : NULL;
	ops->image_load = ops->image_load ? pass_image_load : NULL;
	ops->image_say = ops->image_say ? pass_image_say : NULL;
	ops->ask = ops->ask ? pass_ask : NULL;
	ops->texture_make = ops->texture_make ? pass_texture_make : NULL;
	ops->mem_import = ops->mem_import ? pass_mem_import : NULL;
	ops->mem_alloc = ops->mem_alloc ? pass_mem_alloc : NULL;
	ops->mem_host = ops->mem_host ? pass_mem_host : NULL;
	ops->slab_create = ops->slab_create ? pass_slab_create : NULL;
	ops->slab_scrub = ops->slab_scrub ? pass_slab_scrub : NULL;
	ops->window_open = ops->window_open ? pass_window_open : NULL;
	ops->stream_create = pass_stream_create;
	ops->poll = pass_poll;
	ops->region_configure = ops->region_configure ? pass_region_configure : NULL;
	ops->health = ops->health ? pass_health : NULL;
	ops->owner_left = ops->owner_left ? pass_owner_left : NULL;
}
