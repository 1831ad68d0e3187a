/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges: addresses of a device that a guest reserved, and its memory that lies there too (GANTRY_ALLOC_WHOLE).
 *
 * Such memory has its own place in the window like any other, made of slabs of its own, and everything that is done for it is done there: it
 * is charged, washed, recovered and copied as a buffer. What a range adds is a second address of the same slabs. So a range takes neither
 * memory nor offsets of the session, and the agent knows nothing of it. The ledger has the range as an object, and with the buffer
 * where it is mapped; the worker after this one opens the range where it was, and maps the buffer again when its slabs have come.
 *
 * Threads: the device's, but for what is _locked. Statuses and -errno as memory.h has it.
 */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/window.h"

bool worker_has_ranges(const struct wdevice *d, const struct wsession *s)
{
	const struct wwindow *w = s->windows[d->index];

	return w && w->mem && d->device.backend->window_alias && d->device.backend->ask;
}

/* ---- where ranges lie ---- */

static bool is_range(const struct gantry_ledger_object *obj, uint32_t device)
{
	return worker_is_buffer(obj) && obj->buffer.place == GANTRY_PLACE_RANGE &&
	       obj->buffer.device == device;
}

/* A range of the session's that has some of [at, at + bytes); NULL: none does. */
static const struct gantry_ledger_buffer *find_there_locked(const struct wsession *s,
							    uint32_t device, uint64_t at,
							    uint64_t bytes)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_buffer *b = &s->ledger.objects[i].buffer;

		if (is_range(&s->ledger.objects[i], device) && b->address < at + bytes &&
		    at < b->address + b->bytes)
			return b;
	}
	return NULL;
}

static uint64_t reserved_bytes_locked(const struct wsession *s, uint32_t device)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (is_range(&s->ledger.objects[i], device))
			bytes += s->ledger.objects[i].buffer.bytes;
	return bytes;
}

/* Of all sessions here that are of the same tenant, on all devices. Whoever reserves on another device just now is seen the next time. */
static uint64_t reserved_by_tenant(const struct wdevice *d, const struct wsession *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < d->nsessions; i++)
		if (strcmp(d->sessions[i]->tenant, s->tenant) == 0)
			bytes += gantry_load_relaxed(&d->sessions[i]->range_bytes);
	return bytes;
}

/* Where the guest wants it, or the lowest place; 0: the device chooses. */
static uint64_t choose_locked(const struct wsession *s, uint32_t device,
			      const struct gantry_op_reserve *op, uint64_t align)
{
	const struct wwindow *w = s->windows[device];
	uint64_t stop = w->ranges + WORKER_RANGES_BYTES;
	uint64_t at = (w->ranges + align - 1) & ~(align - 1);
	const struct gantry_ledger_buffer *other;

	if (!w->ranges)
		return 0;
	if (op->address >= w->ranges && op->address < stop && stop - op->address >= op->bytes &&
	    op->address % align == 0 && !find_there_locked(s, device, op->address, op->bytes))
		return op->address;
	while (at < stop && stop - at >= op->bytes) {
		other = find_there_locked(s, device, at, op->bytes);
		if (!other)
			return at;
		at = (other->address + other->bytes + align - 1) & ~(align - 1);
	}
	return 0;
}

static int find_address(struct wdevice *d, struct gantry_mem *mem, uint64_t bytes,
			uint64_t *ret_address, struct gantry_err *err)
{
	const struct gantry_question question = { .what = GANTRY_QUESTION_ADDRESS,
						  .range = { mem, 0, bytes } };
	uint8_t answer[GANTRY_ANSWER_BYTES];
	int r = d->device.backend->ask(d->device.dev, &question, answer, err);

	if (r < 0)
		return r;
	memcpy(ret_address, answer, sizeof(*ret_address));
	return 0;
}

/* Where the device chooses: it knows of its own alignment only, so of a place that is larger what is aligned is taken. */
static int open_anywhere(struct wdevice *d, uint64_t align, uint64_t bytes,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	const struct gantry_backend *be = d->device.backend;
	uint64_t more = align > d->device.info.slab_align ? align : 0, address = 0;
	int r = be->window_open(d->device.dev, 0, bytes + more, ret_mem, err);

	if (r < 0 || !more)
		return r;
	r = find_address(d, *ret_mem, bytes, &address, err);
	be->mem_free(*ret_mem);
	return r < 0 ? r
		     : be->window_open(d->device.dev, (address + align - 1) & ~(align - 1), bytes,
				       ret_mem, err);
}

static int open_at(struct wdevice *d, uint64_t address, uint64_t align, uint64_t bytes,
		   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	int r = address ? d->device.backend->window_open(d->device.dev, address, bytes, ret_mem,
							 err)
			: -EADDRINUSE;

	if (r == -EADDRINUSE)
		r = open_anywhere(d, align, bytes, ret_mem, err);
	return r < 0 ? worker_device_status(r) : GANTRY_OK;
}

static int publish_locked(struct wdevice *d, struct wsession *s, struct gantry_mem *mem,
			  struct gantry_reply_variable *made)
{
	struct gantry_ledger_buffer *b;
	uint32_t slot;
	int status = worker_object_new_locked(s, GANTRY_HANDLE_BUFFER, &slot);

	if (status != GANTRY_OK)
		return status;
	b = &s->ledger.objects[slot].buffer;
	b->bytes = made->bytes;
	b->rights = GANTRY_RW;
	b->device = d->index;
	b->place = GANTRY_PLACE_RANGE;
	b->address = made->address;
	s->objects[slot].variable = mem;
	worker_object_publish(s, slot, WORKER_NOT_TOLD);
	gantry_store_relaxed(&s->range_bytes, s->range_bytes + made->bytes);
	made->handle = worker_object_handle(s, slot);
	return GANTRY_OK;
}

static int check_range(const struct wdevice *d, const struct wsession *s,
		       const struct gantry_op_reserve *op, struct gantry_err *err)
{
	uint64_t granule = s->windows[d->index]->align;
	uint64_t reserved = reserved_bytes_locked(s, d->index), all;

	if (op->bytes % granule) {
		(void)gantry_err_set(err, -EINVAL, "a range is whole granules of %zu bytes",
				     (size_t)granule);
		return GANTRY_E_ARG;
	}
	if (reserved > WORKER_RANGES_BYTES || op->bytes > WORKER_RANGES_BYTES - reserved ||
	    op->align > WORKER_RANGES_BYTES) {
		(void)gantry_err_set(
			err, -ENOMEM,
			"a session reserves at most %zu bytes of addresses on a device",
			(size_t)WORKER_RANGES_BYTES);
		return GANTRY_E_LIMIT;
	}
	/* Where sessions of others have the same addresses. */
	all = d->engine->isolated ? 0 : reserved_by_tenant(d, s);
	if (all > WORKER_RANGES_OF_TENANT ||
	    GANTRY_MAX(op->bytes, op->align) > WORKER_RANGES_OF_TENANT - all) {
		(void)gantry_err_set(err, -ENOMEM,
				     "a tenant has %zu TiB of addresses in a shared worker",
				     (size_t)(WORKER_RANGES_OF_TENANT >> 40));
		return GANTRY_E_LIMIT;
	}
	return GANTRY_OK;
}

int worker_range_make(struct wdevice *d, struct wsession *s, const struct gantry_op_reserve *op,
		      struct gantry_reply_variable *ret_made, struct gantry_err *err)
{
	struct gantry_reply_variable made = { .bytes = op->bytes };
	struct gantry_mem *mem;
	uint64_t align, wish;
	int status;

	if (!worker_has_ranges(d, s))
		return GANTRY_E_UNSUPPORTED;
	align = GANTRY_MAX(op->align, s->windows[d->index]->align);
	pthread_mutex_lock(&s->lock);
	status = check_range(d, s, op, err);
	wish = status == GANTRY_OK ? choose_locked(s, d->index, op, align) : 0;
	pthread_mutex_unlock(&s->lock);
	if (status == GANTRY_OK)
		status = open_at(d, wish, align, op->bytes, &mem, err);
	if (status != GANTRY_OK)
		return status;
	status = find_address(d, mem, op->bytes, &made.address, err) < 0 ? GANTRY_E_INTERNAL
									 : GANTRY_OK;
	if (status == GANTRY_OK) {
		pthread_mutex_lock(&s->lock);
		status = publish_locked(d, s, mem, &made);
		pthread_mutex_unlock(&s->lock);
	}
	if (status != GANTRY_OK) {
		d->device.backend->mem_free(mem);
		return status;
	}
	*ret_made = made;
	return GANTRY_OK;
}

/* ---- what lies there ---- */

/* The buffer's slabs, each with where it lies in the range; false: no more. @i counts from worker_window_slab_after() on. */
static bool next_slab(const struct wwindow *w, const struct gantry_ledger_buffer *b, uint32_t i,
		      struct wextent *ret_slab, uint64_t *ret_off)
{
	if (i >= w->nslabs || w->slabs[i].off >= b->off + b->bytes)
		return false;
	*ret_slab = w->slabs[i];
	*ret_off = b->range_off + (w->slabs[i].off - b->off);
	return true;
}

static struct gantry_mem *range_mem_locked(const struct wsession *s,
					   const struct gantry_ledger_buffer *b)
{
	return s->objects[GANTRY_HANDLE_SLOT(b->range)].variable;
}

/* The first @n of its slabs. */
static void unmap_slabs_locked(struct wdevice *d, struct wsession *s,
			       const struct gantry_ledger_buffer *b, uint32_t n)
{
	const struct wwindow *w = s->windows[d->index];
	struct gantry_mem *mem = range_mem_locked(s, b);
	uint32_t first = worker_window_slab_after(w, b->off);
	struct wextent slab;
	uint64_t off;

	for (uint32_t i = 0; mem && i < n && next_slab(w, b, first + i, &slab, &off); i++)
		d->device.backend->window_unmap(mem, off, slab.len);
}

static int give_rights_locked(struct wdevice *d, struct wsession *s,
			      const struct gantry_ledger_buffer *b, uint32_t rights,
			      struct gantry_err *err)
{
	const struct wwindow *w = s->windows[d->index];
	struct gantry_mem *mem = range_mem_locked(s, b);
	uint32_t first = worker_window_slab_after(w, b->off);
	struct wextent slab;
	uint64_t off;
	int r = 0;

	for (uint32_t i = first; r == 0 && next_slab(w, b, i, &slab, &off); i++)
		r = d->device.backend->window_rights(mem, off, slab.len, rights, err);
	return r < 0 ? worker_device_status(r) : GANTRY_OK;
}

/* All its slabs are mapped in the window, and go where @b says. */
static int map_slabs_locked(struct wdevice *d, struct wsession *s,
			    const struct gantry_ledger_buffer *b, struct gantry_err *err)
{
	struct wwindow *w = s->windows[d->index];
	struct gantry_mem *mem = range_mem_locked(s, b);
	uint32_t first = worker_window_slab_after(w, b->off), i = first;
	struct wextent slab;
	uint64_t off;
	int r = mem ? 0 : -ENOENT;

	for (; r == 0 && next_slab(w, b, i, &slab, &off); i++)
		/* No slab of such a buffer is anybody else's too. */
		r = slab.off < b->off || worker_extent_end(&slab) > b->off + b->bytes
			    ? gantry_err_set(err, -EINVAL, "a slab reaches beyond its buffer")
			    : d->device.backend->window_alias(mem, off, w->mem, slab.off, slab.len,
							      err);
	if (r == 0)
		return GANTRY_OK;
	unmap_slabs_locked(d, s, b, i - first - 1);
	return worker_device_status(r);
}

/* Whether a buffer other than that in @slot is mapped in @range between @off and @off + @bytes. */
static bool is_taken_locked(const struct wsession *s, uint32_t slot, uint64_t range, uint64_t off,
			    uint64_t bytes)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_buffer *b = &s->ledger.objects[i].buffer;

		if (i != slot && worker_is_buffer(&s->ledger.objects[i]) && b->range == range &&
		    b->range_off < off + bytes && off < b->range_off + b->bytes)
			return true;
	}
	return false;
}

/* Whether the buffer may lie there: a guest asks for it, or a ledger says so that another worker wrote. */
static int check_place_locked(const struct wdevice *d, struct wsession *s, uint32_t slot,
			      uint64_t handle, uint64_t off)
{
	const struct gantry_ledger_object *range = worker_object_get(s, handle,
								     GANTRY_HANDLE_BUFFER, NULL, 0);
	uint64_t bytes = s->ledger.objects[slot].buffer.bytes;

	if (!range)
		return GANTRY_E_HANDLE;
	if (!is_range(range, d->index))
		return GANTRY_E_ACCESS;
	if (off % s->windows[d->index]->align ||
	    !gantry_range_inside(off, bytes, range->buffer.bytes))
		return GANTRY_E_SPAN;
	return is_taken_locked(s, slot, handle, off, bytes) ? GANTRY_E_ACCESS : GANTRY_OK;
}

/* What has no rights is not mapped: nobody would take it away again, and its slabs may be somebody else's then. */
static int settle_rights_locked(struct wdevice *d, struct wsession *s,
				const struct gantry_ledger_buffer *b)
{
	int status = give_rights_locked(d, s, b, b->range_rights, NULL);

	if (status != GANTRY_OK)
		unmap_slabs_locked(d, s, b, UINT32_MAX);
	return status;
}

/* Its slabs are there, and it lies where its ledger says. */
static int settle_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct wobject *rt = &s->objects[slot];
	int status = worker_window_want_locked(s, d->index, b->off, b->bytes);

	if (status != GANTRY_OK || !b->range || rt->mapped)
		return status;
	if (rt->not_mapped == GANTRY_OK) {
		rt->not_mapped = check_place_locked(d, s, slot, b->range, b->range_off);
		if (rt->not_mapped == GANTRY_OK)
			rt->not_mapped = map_slabs_locked(d, s, b, NULL);
		if (rt->not_mapped == GANTRY_OK)
			rt->not_mapped = settle_rights_locked(d, s, b);
		rt->mapped = rt->not_mapped == GANTRY_OK;
	}
	return rt->not_mapped;
}

static int unmap_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct gantry_ledger_buffer was = *b;
	struct wobject *rt = &s->objects[slot];

	/* First: whoever comes after this worker maps nothing that the guest may have given up. */
	gantry_store_release(&b->range, (uint64_t)0);
	if (rt->mapped)
		unmap_slabs_locked(d, s, &was, UINT32_MAX);
	rt->mapped = false;
	rt->not_mapped = GANTRY_OK;
	return GANTRY_OK;
}

static int map_locked(struct wdevice *d, struct wsession *s, uint32_t slot,
		      const struct gantry_op_map *op, struct gantry_err *err)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct gantry_ledger_buffer then = *b;
	int status = check_place_locked(d, s, slot, op->range, op->off);

	if (status == GANTRY_OK && b->range && (b->range != op->range || b->range_off != op->off))
		status = GANTRY_E_ACCESS;
	if (status != GANTRY_OK)
		return status;
	if (b->range) /* the worker before may have done it and not said so */
		return settle_locked(d, s, slot);
	status = settle_locked(d, s, slot);
	if (status != GANTRY_OK)
		return status;
	then.range = op->range;
	then.range_off = op->off;
	status = map_slabs_locked(d, s, &then, err);
	if (status != GANTRY_OK)
		return status;
	s->objects[slot].mapped = true;
	b->range_off = op->off;
	gantry_store_relaxed(&b->range_rights, 0u);
	/* Release: the others are written. */
	gantry_store_release(&b->range, op->range);
	return GANTRY_OK;
}

static int rights_locked(struct wdevice *d, struct wsession *s, uint32_t slot,
			 const struct gantry_op_map *op, struct gantry_err *err)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	int status;

	if (!b->range || (op->rights && op->rights != GANTRY_R && op->rights != GANTRY_RW))
		return GANTRY_E_ARG;
	status = settle_locked(d, s, slot);
	if (status == GANTRY_OK)
		status = give_rights_locked(d, s, b, op->rights, err);
	if (status == GANTRY_OK)
		gantry_store_relaxed(&b->range_rights, op->rights);
	return status;
}

static int change_locked(struct wdevice *d, struct wsession *s, const struct gantry_op_map *op,
			 struct gantry_err *err)
{
	const struct gantry_ledger_object *obj = worker_object_get(s, op->buffer,
								   GANTRY_HANDLE_BUFFER, NULL, 0);
	uint32_t slot = GANTRY_HANDLE_SLOT(op->buffer);

	if (!obj)
		return GANTRY_E_HANDLE;
	/* Its memory is where the guest knows it, and never elsewhere. */
	if (!(obj->buffer.alloc_flags & GANTRY_ALLOC_WHOLE) || obj->buffer.address == 0 ||
	    obj->buffer.place != GANTRY_PLACE_WINDOW || obj->buffer.device != d->index)
		return GANTRY_E_ACCESS;
	switch (op->what) {
	case GANTRY_MAP_MAP:
		return map_locked(d, s, slot, op, err);
	case GANTRY_MAP_UNMAP:
		return unmap_locked(d, s, slot);
	default:
		return rights_locked(d, s, slot, op, err);
	}
}

int worker_range_map(struct wdevice *d, struct wsession *s, const struct gantry_op_map *op,
		     struct gantry_err *err)
{
	int status;

	if (!worker_has_ranges(d, s))
		return GANTRY_E_UNSUPPORTED;
	pthread_mutex_lock(&s->lock);
	status = change_locked(d, s, op, err);
	pthread_mutex_unlock(&s->lock);
	return status;
}

bool worker_range_holds_locked(const struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;

	if (b->place != GANTRY_PLACE_RANGE)
		return b->range != 0;
	return is_taken_locked(s, slot, worker_object_handle(s, slot), 0, b->bytes);
}

/* ---- after another worker ---- */

/* From *slot on. Other devices' threads may serve the session already, and bring its buffers. */
static bool next_range(const struct wdevice *d, struct wsession *s, uint32_t *slot,
		       struct gantry_ledger_buffer *ret_range)
{
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (; *slot < GANTRY_LEDGER_NOBJECTS; (*slot)++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[*slot];

		found = is_range(obj, d->index) && obj->state == GANTRY_OBJECT_LIVE;
		if (found)
			break;
	}
	if (found)
		*ret_range = s->ledger.objects[*slot].buffer;
	pthread_mutex_unlock(&s->lock);
	return found;
}

int worker_ranges_open(struct wdevice *d, struct wsession *s, struct gantry_err *err)
{
	struct gantry_ledger_buffer range;

	for (uint32_t i = 0; next_range(d, s, &i, &range); i++) {
		struct gantry_mem *mem;
		int r = d->device.backend->window_open(d->device.dev, range.address, range.bytes,
						       &mem, err);

		if (r == -EADDRINUSE)
			return gantry_err_set(
				err, r,
				"its program has reserved addresses on device %s that are taken "
				"in its new worker",
				d->name);
		if (r < 0)
			return r;
		pthread_mutex_lock(&s->lock);
		s->objects[i].variable = mem;
		pthread_mutex_unlock(&s->lock);
	}
	return 0;
}

void worker_ranges_again_locked(struct wdevice *d, struct wsession *s)
{
	if (gantry_load_relaxed(&s->known_away) == 0)
		return;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (worker_is_buffer(obj) && obj->buffer.range && obj->buffer.device == d->index &&
		    !s->objects[i].mapped)
			(void)settle_locked(d, s, i); /* who waits for it is told */
	}
}

int worker_range_known_locked(const struct wsession *s, uint32_t slot)
{
	const struct wobject *rt = &s->objects[slot];

	if (!s->ledger.objects[slot].buffer.range || rt->mapped)
		return GANTRY_OK;
	return rt->not_mapped ? rt->not_mapped : GANTRY_E_AGAIN;
}
