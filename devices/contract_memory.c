/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of memory: what is made and freed, and where slabs lie in windows. */
#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"
#include "devices/contract_inside.h"

/* What one window_map() or window_alias() mapped. */
struct slab {
	struct gantry_list link; /* gantry_dev.slabs */
	struct gantry_object *window;
	uint64_t off;
	uint64_t len;
	bool is_alias;
};

static struct slab *slab_at(struct gantry_dev *dev, const struct gantry_object *window, uint64_t at)
{
	gantry_list_for_each(&dev->slabs, struct slab, link, slab)
		if (slab->window == window && at - slab->off < slab->len)
			return slab;
	return NULL;
}

void gantry_contract_check_mapped(struct gantry_dev *dev, const struct gantry_object *window,
				  uint64_t off, uint64_t len)
{
	uint64_t end = off + len;

	while (off < end) {
		const struct slab *slab = slab_at(dev, window, off);

		if (!slab)
			gantry_contract_violation(
				dev, "a range of window %u where no slab is mapped", window->id);
		off = slab->off + slab->len;
	}
}

static int mem_made(struct gantry_dev *dev, const char *call, int r, struct gantry_mem *mem,
		    uint64_t len, const struct gantry_err *inner, struct gantry_mem **ret_mem,
		    struct gantry_err *err)
{
	struct gantry_object *object = NULL;

	r = gantry_contract_check_made(dev, call, r, GANTRY_OBJECT_MEM, mem, inner, &object, err);
	if (r < 0)
		return r;
	object->len = len;
	*ret_mem = (struct gantry_mem *)object;
	return 0;
}

static int contract_image_variable(struct gantry_image *opaque, const char *symbol,
				   struct gantry_mem **ret_mem, uint64_t *ret_len,
				   struct gantry_err *err)
{
	struct gantry_object *image = gantry_object_of(opaque);
	struct gantry_dev *dev = image->dev;
	struct gantry_mem *mem = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	uint64_t len = 0;
	int r;

	gantry_contract_check_thread(dev, "image_variable");
	gantry_contract_check_object(dev, image, GANTRY_OBJECT_IMAGE, "an image");
	r = dev->filter.next.backend->image_variable(image->next, symbol, &mem, &len, &inner);
	if (r == 0 && len == 0)
		gantry_contract_violation(dev, "image_variable() of no bytes");
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
	struct gantry_mem *mem = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	uint64_t len = 0, value = 0;
	int r;

	gantry_contract_check_thread(dev, "texture_make");
	if (of)
		gantry_contract_check_object(dev, of, GANTRY_OBJECT_MEM, "an array");
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
	struct gantry_mem *mem = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	gantry_contract_check_thread(dev, "mem_import");
	if (len == 0)
		gantry_contract_violation(dev, "mem_import() of nothing");
	r = next->backend->mem_import(next->dev, fd, off, len, &mem, &inner);
	return mem_made(dev, "mem_import", r, mem, len, &inner, ret_mem, err);
}

static int contract_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			      struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	gantry_contract_check_thread(dev, "mem_alloc");
	if (len == 0)
		gantry_contract_violation(dev, "mem_alloc() of nothing");
	r = next->backend->mem_alloc(next->dev, len, &mem, &inner);
	return mem_made(dev, "mem_alloc", r, mem, len, &inner, ret_mem, err);
}

static int contract_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			     struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	gantry_contract_check_thread(dev, "mem_host");
	if (!base || len == 0)
		gantry_contract_violation(dev, "mem_host() of nothing");
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
		gantry_contract_violation(
			dev, "%s() of a place or length that is no multiple of slab_align", call);
}

static int contract_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
				struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int fd = -EBADF;
	int r;

	gantry_contract_check_thread(dev, "slab_create");
	check_slab_bytes(dev, "slab_create", 0, len);
	r = next->backend->slab_create(next->dev, len, &fd, &inner);
	if (r > 0 || (r == 0) != (fd >= 0) || (r < 0 && inner.text[0] == '\0'))
		gantry_contract_violation(
			dev, "slab_create(): %d, descriptor %d and the sentence do not fit", r, fd);
	if (r < 0)
		return gantry_err_set(err, r, "%s", inner.text);
	*ret_fd = fd;
	return 0;
}

static int contract_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;

	gantry_contract_check_thread(dev, "slab_scrub");
	check_slab_bytes(dev, "slab_scrub", 0, len);
	return next->backend->slab_scrub(next->dev, fd, len, err);
}

static int contract_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
				struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem = GANTRY_CONTRACT_UNTOUCHED;
	struct gantry_err inner = GANTRY_ERR_NONE;
	int r;

	gantry_contract_check_thread(dev, "window_open");
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

	gantry_contract_check_thread(dev, call);
	gantry_contract_check_object(dev, window, GANTRY_OBJECT_MEM, "a window");
	check_slab_bytes(dev, call, off, len);
	if (!window->is_window || !gantry_range_inside(off, len, window->len))
		gantry_contract_violation(dev, "%s() past a window, or of memory that is none",
					  call);
	return window;
}

static void check_unmapped(struct gantry_dev *dev, const struct gantry_object *window,
			   const char *call, uint64_t off, uint64_t len)
{
	gantry_list_for_each(&dev->slabs, struct slab, link, other)
		if (other->window == window && off < other->off + other->len &&
		    other->off < off + len)
			gantry_contract_violation(dev, "%s() where a slab is mapped", call);
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
		gantry_contract_violation(dev, "window_unmap() of what no window_map() mapped");
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
		gantry_contract_violation(
			dev, "window_alias() of a window in itself, or of another device's");
	if (!of || of->is_alias || of->off != from_off || of->len != len)
		gantry_contract_violation(dev, "window_alias() of what no window_map() mapped");
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
		gantry_contract_violation(dev, "window_rights() of what no window_alias() mapped");
	if (rights != 0 && rights != GANTRY_R && rights != GANTRY_RW)
		gantry_contract_violation(dev, "window_rights() of %u", rights);
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
		gantry_contract_violation(
			dev, "window_swap() with what is no such window of another device");
	gantry_list_for_each(&dev->slabs, struct slab, link, slab)
		if (slab->window == mine && slab->is_alias)
			gantry_contract_violation(dev, "window_swap() of a range");
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
	gantry_contract_check_thread(mem->dev, "mem_free");
	gantry_contract_check_object(mem->dev, mem, GANTRY_OBJECT_MEM, "memory");
	if (mem->nuses)
		gantry_contract_violation(mem->dev, "mem_free() while a command uses memory %u",
					  mem->id);
	forget_slabs(mem->dev, mem);
	mem->dev->filter.next.backend->mem_free(mem->next);
	mem->next = NULL;
}

void gantry_contract_memory_init(struct gantry_dev *dev)
{
	gantry_list_init(&dev->slabs);
}

void gantry_contract_memory_fini(struct gantry_dev *dev)
{
	forget_slabs(dev, NULL);
}

void gantry_contract_memory_cover(struct gantry_backend *ops)
{
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
}
